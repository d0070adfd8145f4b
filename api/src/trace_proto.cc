#include "api/src/trace_proto.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "api/src/trace_packets.h"

namespace inlay::api {
namespace {

uint64_t Nanoseconds(SteadyTime time) {
  const int64_t since = std::chrono::duration_cast<std::chrono::nanoseconds>(
                            time.time_since_epoch())
                            .count();
  return static_cast<uint64_t>(std::max<int64_t>(since, 0));
}

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

constexpr const char* kPhaseNames[kNumStepPhases] = {
    "plan", "reserve", "forward", "sample", "commit", "load"};
constexpr size_t kNumGauges = 5;
// In the order of TraceGauges.
constexpr const char* kGaugeNames[kNumGauges] = {
    "requests running", "requests waiting", "KV blocks used", "KV blocks free",
    "KV blocks cached"};

// A counter says something only when it changes.
struct CounterTrack {
  Track track;
  int64_t last = -1;
};

struct ModelTracks {
  Track steps;
  Track evictions;
  std::array<CounterTrack, kNumGauges> gauges;
};

// The slices of a request: itself, and in it the phase it is in.
struct RequestTrack {
  Track track;
  bool in_phase = false;
  bool decodes = false;  // it has its first token
};

class TraceWriter {
 public:
  TraceWriter(const TraceLog& log, const TraceProcess& process)
      : end_(Nanoseconds(log.end)),
        packets_(Begin(log), process.pid, process.name) {
    if (log.num_lost > 0) {
      packets_.Instant(packets_.process(), Begin(log), "events lost",
                       {{"events", static_cast<int64_t>(log.num_lost)}});
    }
    requests_group_ = packets_.Child("requests", packets_.process());
  }

  void Write(const TraceEvent& event) {
    const uint64_t time = Nanoseconds(event.time);
    end_ = std::max(end_, time);
    switch (event.type) {
      case TraceEventType::kStep:
        return WriteStep(event, time);
      case TraceEventType::kGauges:
        return WriteGauges(event, time);
      case TraceEventType::kEvicted:
        return WriteEvicted(event, time);
      case TraceEventType::kMemory:
        return WriteMemory(event, time);
      default:
        return WriteRequest(event, time);
    }
  }

  // What has not ended ends now.
  std::string Finish() {
    for (auto& [id, request] : requests_) {
      EndPhase(request, end_);
      packets_.End(request.track, end_, {{"reason", 0, "traced no further"}});
    }
    return packets_.Take();
  }

 private:
  // Steps are recorded when they are done, but begin earlier.
  static uint64_t Begin(const TraceLog& log) {
    uint64_t begin = Nanoseconds(log.begin);
    for (const TraceEvent& event : log.events) {
      begin = std::min(begin, Nanoseconds(event.time));
    }
    return begin;
  }

  static std::string NameOf(const char* what, uint32_t model) {
    return model == 0 ? what : absl::StrCat(what, ", model ", model);
  }

  void WriteStep(const TraceEvent& event, uint64_t time) {
    Track& track = models_[event.model].steps;
    if (track.uuid == 0) {
      track = packets_.Thread(NameOf("steps", event.model));
    }
    const auto& values = event.values;
    packets_.Begin(track, time, "step",
                   {{"step", static_cast<int64_t>(event.id)},
                    {"requests", values[kStepRequests]},
                    {"prefill_tokens", values[kStepPrefillTokens]},
                    {"decode_tokens", values[kStepDecodeTokens]},
                    {"predicted_us", values[kStepPredictedUs]},
                    {"budget_us", values[kStepBudgetUs]}});
    for (size_t i = 0; i < kNumStepPhases; ++i) {
      if (values[i] <= 0) continue;
      packets_.Begin(track, time, kPhaseNames[i]);
      time += static_cast<uint64_t>(values[i]);
      packets_.End(track, time);
    }
    packets_.End(track, time);
  }

  void Count(CounterTrack& counter, const std::string& name,
             trace::CounterDescriptor::Unit unit, uint64_t time,
             int64_t value) {
    if (counter.track.uuid == 0) counter.track = packets_.Counter(name, unit);
    if (value != counter.last) packets_.Count(counter.track, time, value);
    counter.last = value;
  }

  void WriteGauges(const TraceEvent& event, uint64_t time) {
    for (size_t i = 0; i < kNumGauges; ++i) {
      Count(models_[event.model].gauges[i], NameOf(kGaugeNames[i], event.model),
            trace::CounterDescriptor::UNIT_COUNT, time, event.values[i]);
    }
  }

  void WriteMemory(const TraceEvent& event, uint64_t time) {
    const auto unit = trace::CounterDescriptor::UNIT_SIZE_BYTES;
    Count(memory_budget_, "memory budget", unit, time, event.values[0]);
    Count(memory_used_, "memory used", unit, time, event.values[1]);
  }

  void WriteEvicted(const TraceEvent& event, uint64_t time) {
    Track& track = models_[event.model].evictions;
    if (track.uuid == 0) {
      track =
          packets_.Child(NameOf("evictions", event.model), packets_.process());
    }
    packets_.Instant(track, time, "evicted", {{"blocks", event.values[0]}});
  }

  RequestTrack& Open(const TraceEvent& event, uint64_t time) {
    const auto [it, is_new] = requests_.try_emplace(event.id);
    RequestTrack& request = it->second;
    if (!is_new) return request;
    request.track =
        packets_.Child(absl::StrCat("request ", event.id), requests_group_);
    const auto model = static_cast<int64_t>(event.model);
    const auto id = static_cast<int64_t>(event.id);
    if (event.type == TraceEventType::kSubmitted) {
      packets_.Begin(
          request.track, time, "request",
          {{"id", id}, {"model", model}, {"prompt_tokens", event.values[0]}});
    } else {
      packets_.Begin(request.track, time, "request, beginning lost",
                     {{"id", id}, {"model", model}});
    }
    return request;
  }

  void EndPhase(RequestTrack& request, uint64_t time) {
    if (request.in_phase) packets_.End(request.track, time);
    request.in_phase = false;
  }

  void BeginPhase(RequestTrack& request, uint64_t time, const char* name,
                  Arguments arguments = {}) {
    EndPhase(request, time);
    packets_.Begin(request.track, time, name, arguments);
    request.in_phase = true;
  }

  void WriteRequest(const TraceEvent& event, uint64_t time) {
    RequestTrack& request = Open(event, time);
    const auto& values = event.values;
    switch (event.type) {
      case TraceEventType::kSubmitted:
        return BeginPhase(request, time, "queued");
      case TraceEventType::kPrefixHit:
        return packets_.Instant(
            request.track, time, "prefix hit",
            {{"tokens_found", values[0]}, {"tokens_wanted", values[1]}});
      case TraceEventType::kStarted:
        return BeginPhase(request, time, "prefill",
                          {{"cached_tokens", values[0]}});
      case TraceEventType::kFirstToken:
        request.decodes = true;
        return BeginPhase(request, time, "decode");
      case TraceEventType::kPreempted:
        return BeginPhase(request, time, "preempted");
      case TraceEventType::kResumed:
        return BeginPhase(request, time, request.decodes ? "decode" : "prefill",
                          {{"resumed", 1}});
      default:
        break;
    }
    EndPhase(request, time);
    packets_.End(request.track, time,
                 {{"reason", 0, Name(static_cast<FinishReason>(values[0]))},
                  {"generated_tokens", values[1]}});
    requests_.erase(event.id);
  }

  uint64_t end_;
  TracePackets packets_;
  Track requests_group_;
  CounterTrack memory_budget_, memory_used_;
  std::map<uint32_t, ModelTracks> models_;
  std::unordered_map<uint64_t, RequestTrack> requests_;
};

}  // namespace

std::string TraceProto(const TraceLog& log, const TraceProcess& process) {
  TraceWriter writer(log, process);
  for (const TraceEvent& event : log.events) writer.Write(event);
  return writer.Finish();
}

}  // namespace inlay::api
