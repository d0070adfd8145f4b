// Traces as Perfetto reads them.
#include "core/engine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "api/src/trace_proto.h"
#include "trace.pb.h"

namespace inlay::api {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using trace::TrackEvent;

struct Slice {
  std::string name;
  uint64_t begin = 0;
  uint64_t end = 0;
  int depth = 0;
  std::map<std::string, std::string> arguments;
};

struct TrackContents {
  trace::TrackDescriptor descriptor;
  std::vector<Slice> slices;  // in the order they begin
  std::vector<Slice> instants;
  std::vector<std::pair<uint64_t, int64_t>> counts;
};

void AddArguments(const TrackEvent& event, Slice* slice) {
  for (const trace::DebugAnnotation& argument : event.debug_annotations()) {
    EXPECT_TRUE(argument.has_int_value() != argument.has_string_value());
    slice->arguments[argument.name()] =
        argument.has_int_value() ? std::to_string(argument.int_value())
                                 : argument.string_value();
  }
}

// Reads a trace as Perfetto's trace processor does, and checks on the way what
// it would complain about.
std::map<std::string, TrackContents> ReadTrace(const std::string& bytes) {
  std::map<uint64_t, TrackContents> tracks;
  std::map<uint64_t, std::vector<size_t>> open;
  std::map<uint64_t, uint64_t> now;
  trace::Trace parsed;
  EXPECT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_TRUE(parsed.unknown_fields().empty());
  for (const trace::TracePacket& packet : parsed.packet()) {
    EXPECT_TRUE(packet.has_timestamp());
    EXPECT_NE(packet.trusted_packet_sequence_id(), 0u);
    EXPECT_NE(packet.has_track_event(), packet.has_track_descriptor());
    if (packet.has_track_descriptor()) {
      const auto& descriptor = packet.track_descriptor();
      EXPECT_NE(descriptor.uuid(), 0u);
      EXPECT_FALSE(tracks.contains(descriptor.uuid()));
      if (descriptor.has_parent_uuid()) {
        EXPECT_TRUE(tracks.contains(descriptor.parent_uuid()));
      } else {
        EXPECT_TRUE(descriptor.has_process() || descriptor.has_thread());
      }
      if (descriptor.has_thread()) {
        EXPECT_GT(descriptor.thread().pid(), 0);
        EXPECT_GT(descriptor.thread().tid(), 0);
      }
      tracks[descriptor.uuid()].descriptor = descriptor;
      continue;
    }
    const TrackEvent& event = packet.track_event();
    const uint64_t uuid = event.track_uuid();
    EXPECT_TRUE(tracks.contains(uuid));
    TrackContents& track = tracks[uuid];
    EXPECT_GE(packet.timestamp(), now[uuid]);
    now[uuid] = packet.timestamp();
    EXPECT_EQ(event.type() == TrackEvent::TYPE_COUNTER,
              track.descriptor.has_counter());
    Slice slice;
    slice.name = event.name();
    slice.begin = slice.end = packet.timestamp();
    switch (event.type()) {
      case TrackEvent::TYPE_SLICE_BEGIN:
        EXPECT_FALSE(event.name().empty());
        slice.depth = static_cast<int>(open[uuid].size());
        open[uuid].push_back(track.slices.size());
        AddArguments(event, &slice);
        track.slices.push_back(slice);
        break;
      case TrackEvent::TYPE_SLICE_END:
        if (open[uuid].empty()) {
          ADD_FAILURE() << "an end without a beginning";
          break;
        }
        track.slices[open[uuid].back()].end = packet.timestamp();
        AddArguments(event, &track.slices[open[uuid].back()]);
        open[uuid].pop_back();
        break;
      case TrackEvent::TYPE_INSTANT:
        AddArguments(event, &slice);
        track.instants.push_back(slice);
        break;
      case TrackEvent::TYPE_COUNTER:
        EXPECT_TRUE(event.has_counter_value());
        track.counts.emplace_back(packet.timestamp(), event.counter_value());
        break;
      default:
        ADD_FAILURE() << event.type();
    }
  }
  for (const auto& [uuid, slices] : open) EXPECT_TRUE(slices.empty());
  std::map<std::string, TrackContents> by_name;
  for (auto& [uuid, track] : tracks) {
    const auto& descriptor = track.descriptor;
    const std::string name =
        descriptor.has_process()  ? descriptor.process().process_name()
        : descriptor.has_thread() ? descriptor.thread().thread_name()
                                  : descriptor.name();
    EXPECT_TRUE(by_name.emplace(name, std::move(track)).second) << name;
  }
  return by_name;
}

// A log made by hand: times are nanoseconds.
class LogMaker {
 public:
  LogMaker(uint64_t begin, uint64_t end) {
    log_.begin = At(begin);
    log_.end = At(end);
  }
  LogMaker& Add(uint64_t time, TraceEventType type, uint64_t id,
                std::vector<int64_t> values = {}, uint32_t model = 0) {
    TraceEvent event;
    event.time = At(time);
    event.type = type;
    event.id = id;
    event.model = model;
    std::copy(values.begin(), values.end(), event.values.begin());
    log_.events.push_back(event);
    return *this;
  }
  LogMaker& Lost(uint64_t count) {
    log_.num_lost = count;
    return *this;
  }
  std::map<std::string, TrackContents> Read() const {
    return ReadTrace(TraceProto(log_, {.pid = 77, .name = "host"}));
  }

 private:
  static SteadyTime At(uint64_t time) {
    return SteadyTime(std::chrono::nanoseconds(time));
  }
  TraceLog log_;
};

using T = TraceEventType;

// name, begin, end, depth.
std::vector<std::tuple<std::string, uint64_t, uint64_t, int>> Shape(
    const TrackContents& track) {
  std::vector<std::tuple<std::string, uint64_t, uint64_t, int>> shape;
  for (const Slice& slice : track.slices) {
    shape.emplace_back(slice.name, slice.begin, slice.end, slice.depth);
  }
  return shape;
}

using S = std::tuple<std::string, uint64_t, uint64_t, int>;

TEST(TraceProtoTest, AnEmptyLog) {
  const auto tracks = LogMaker(5, 5).Read();
  ASSERT_TRUE(tracks.contains("host"));
  EXPECT_EQ(tracks.at("host").descriptor.process().pid(), 77);
  EXPECT_EQ(tracks.size(), 2u);  // and the group of requests
  for (const auto& [name, track] : tracks) {
    EXPECT_TRUE(track.slices.empty() && track.instants.empty());
  }
}

TEST(TraceProtoTest, StepsAndTheirPhases) {
  const auto tracks =
      LogMaker(1000, 9000)
          .Add(1000, T::kStep, 7, {10, 5, 200, 30, 4, 0, 64, 3, 5, 180, 1000})
          .Add(1249, T::kStep, 8, {10, 0, 0, 0, 2, 3})  // at once; failed
          .Add(900, T::kStep, 1, {50, 0, 50, 0, 0}, 2)
          .Read();
  EXPECT_THAT(
      Shape(tracks.at("steps")),
      ElementsAre(S("step", 1000, 1249, 0), S("plan", 1000, 1010, 1),
                  S("reserve", 1010, 1015, 1), S("forward", 1015, 1215, 1),
                  S("sample", 1215, 1245, 1), S("commit", 1245, 1249, 1),
                  S("step", 1249, 1264, 0), S("plan", 1249, 1259, 1),
                  S("commit", 1259, 1261, 1), S("load", 1261, 1264, 1)));
  EXPECT_THAT(
      tracks.at("steps").slices[0].arguments,
      ElementsAre(Pair("budget_us", "1000"), Pair("decode_tokens", "3"),
                  Pair("predicted_us", "180"), Pair("prefill_tokens", "64"),
                  Pair("requests", "5"), Pair("step", "7")));
  EXPECT_THAT(Shape(tracks.at("steps, model 2")),
              ElementsAre(S("step", 900, 1000, 0), S("plan", 900, 950, 1),
                          S("forward", 950, 1000, 1)));
  // Both are threads of the process, with names of their own.
  const auto& first = tracks.at("steps").descriptor.thread();
  const auto& second = tracks.at("steps, model 2").descriptor.thread();
  EXPECT_EQ(first.pid(), 77);
  EXPECT_EQ(second.pid(), 77);
  EXPECT_NE(first.tid(), second.tid());
}

TEST(TraceProtoTest, ARequestsLife) {
  const auto tracks =
      LogMaker(0, 1000)
          .Add(10, T::kSubmitted, 4, {120}, 3)
          .Add(11, T::kPrefixHit, 4, {64, 120}, 3)
          .Add(20, T::kStarted, 4, {64}, 3)
          .Add(30, T::kPreempted, 4, {}, 3)
          .Add(40, T::kResumed, 4, {}, 3)
          .Add(50, T::kFirstToken, 4, {}, 3)
          .Add(60, T::kPreempted, 4, {}, 3)
          .Add(70, T::kResumed, 4, {}, 3)
          .Add(80, T::kFinished, 4,
               {static_cast<int64_t>(FinishReason::kLength), 9}, 3)
          .Read();
  const TrackContents& track = tracks.at("request 4");
  EXPECT_EQ(track.descriptor.parent_uuid(),
            tracks.at("requests").descriptor.uuid());
  EXPECT_THAT(Shape(track),
              ElementsAre(S("request", 10, 80, 0), S("queued", 10, 20, 1),
                          S("prefill", 20, 30, 1), S("preempted", 30, 40, 1),
                          S("prefill", 40, 50, 1), S("decode", 50, 60, 1),
                          S("preempted", 60, 70, 1), S("decode", 70, 80, 1)));
  EXPECT_THAT(track.slices[0].arguments,
              ElementsAre(Pair("generated_tokens", "9"), Pair("id", "4"),
                          Pair("model", "3"), Pair("prompt_tokens", "120"),
                          Pair("reason", "length")));
  EXPECT_EQ(track.slices[2].arguments.at("cached_tokens"), "64");
  ASSERT_EQ(track.instants.size(), 1u);
  EXPECT_EQ(track.instants[0].name, "prefix hit");
  EXPECT_THAT(
      track.instants[0].arguments,
      ElementsAre(Pair("tokens_found", "64"), Pair("tokens_wanted", "120")));
}

TEST(TraceProtoTest, EveryReasonHasItsName) {
  const std::vector<std::pair<FinishReason, std::string>> kReasons = {
      {FinishReason::kStop, "stop"},
      {FinishReason::kLength, "length"},
      {FinishReason::kCancelled, "cancelled"},
      {FinishReason::kError, "error"},
      {static_cast<FinishReason>(99), "unknown"}};
  for (const auto& [reason, name] : kReasons) {
    const auto tracks =
        LogMaker(0, 10)
            .Add(1, T::kSubmitted, 4, {120})
            .Add(2, T::kFinished, 4, {static_cast<int64_t>(reason), 0})
            .Read();
    EXPECT_EQ(tracks.at("request 4").slices[0].arguments.at("reason"), name);
  }
}

TEST(TraceProtoTest, WhatHasNoEndEndsWithTheLog) {
  const auto tracks = LogMaker(0, 100)
                          .Add(10, T::kSubmitted, 1, {5})
                          .Add(20, T::kSubmitted, 2, {5})
                          .Add(30, T::kStarted, 2, {0})
                          .Read();
  EXPECT_THAT(Shape(tracks.at("request 1")),
              ElementsAre(S("request", 10, 100, 0), S("queued", 10, 100, 1)));
  EXPECT_THAT(Shape(tracks.at("request 2")),
              ElementsAre(S("request", 20, 100, 0), S("queued", 20, 30, 1),
                          S("prefill", 30, 100, 1)));
  EXPECT_EQ(tracks.at("request 1").slices[0].arguments.at("reason"),
            "traced no further");
}

TEST(TraceProtoTest, WhatLostItsBeginningBeginsWhereItIsKnown) {
  for (const T first : {T::kPrefixHit, T::kStarted, T::kFirstToken,
                        T::kPreempted, T::kResumed, T::kFinished}) {
    LogMaker maker(0, 100);
    maker.Lost(12).Add(10, first, 1);
    if (first != T::kFinished) maker.Add(20, T::kFinished, 1);
    const auto tracks = maker.Read();
    const Slice& slice = tracks.at("request 1").slices.at(0);
    EXPECT_EQ(slice.name, "request, beginning lost");
    EXPECT_EQ(slice.begin, 10u);
    EXPECT_EQ(slice.end, first == T::kFinished ? 10u : 20u);
    const auto& instants = tracks.at("host").instants;
    ASSERT_EQ(instants.size(), 1u);
    EXPECT_EQ(instants[0].name, "events lost");
    EXPECT_EQ(instants[0].arguments.at("events"), "12");
  }
}

TEST(TraceProtoTest, CountersSayWhatChanges) {
  const auto tracks = LogMaker(0, 100)
                          .Add(10, T::kGauges, 0, {1, 0, 30, 70, 5})
                          .Add(20, T::kGauges, 0, {1, 2, 30, 70, 6})
                          .Add(25, T::kGauges, 0, {1, 0, 30, 70, 6}, 9)
                          .Add(30, T::kGauges, 0, {0, 2, 0, 100, 6})
                          .Add(40, T::kMemory, 0, {1 << 30, 1 << 20})
                          .Add(50, T::kMemory, 0, {1 << 29, 1 << 20})
                          .Add(60, T::kEvicted, 0, {4})
                          .Read();
  EXPECT_THAT(tracks.at("requests running").counts,
              ElementsAre(Pair(10, 1), Pair(30, 0)));
  EXPECT_THAT(tracks.at("requests waiting").counts,
              ElementsAre(Pair(10, 0), Pair(20, 2)));
  EXPECT_THAT(tracks.at("KV blocks used").counts,
              ElementsAre(Pair(10, 30), Pair(30, 0)));
  EXPECT_THAT(tracks.at("KV blocks free").counts,
              ElementsAre(Pair(10, 70), Pair(30, 100)));
  EXPECT_THAT(tracks.at("KV blocks cached").counts,
              ElementsAre(Pair(10, 5), Pair(20, 6)));
  EXPECT_THAT(tracks.at("KV blocks used, model 9").counts,
              ElementsAre(Pair(25, 30)));
  EXPECT_THAT(tracks.at("memory budget").counts,
              ElementsAre(Pair(40, 1 << 30), Pair(50, 1 << 29)));
  EXPECT_THAT(tracks.at("memory used").counts, ElementsAre(Pair(40, 1 << 20)));
  EXPECT_EQ(tracks.at("memory used").descriptor.counter().unit(),
            trace::CounterDescriptor::UNIT_SIZE_BYTES);
  ASSERT_EQ(tracks.at("evictions").instants.size(), 1u);
  EXPECT_EQ(tracks.at("evictions").instants[0].arguments.at("blocks"), "4");
}

// Whatever order and times events come in, the trace is one that can be read:
// Read() checks.
TEST(TraceProtoTest, AnyLogIsReadable) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    LogMaker maker(random() % 2000, random() % 2000);
    std::vector<int> finished(6, 0);
    for (int i = 0; i < 200; ++i) {
      const auto type = static_cast<T>(random() % 11);
      const uint64_t id = random() % 6;
      // A request that comes back would have a second track of its name.
      if (type >= T::kSubmitted && finished[id] > 0) continue;
      if (type == T::kFinished) ++finished[id];
      std::vector<int64_t> values(TraceEvent::kNumValues);
      for (int64_t& value : values) {
        value = static_cast<int64_t>(random() % 100) - 10;
      }
      maker.Add(random() % 1000, type, id, values,
                static_cast<uint32_t>(random() % 3));
    }
    const auto tracks = maker.Read();
    EXPECT_GT(tracks.size(), 10u);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(TraceProtoTest, FromARecorder) {
  TraceRecorder recorder;
  ASSERT_TRUE(recorder.Start(100).ok());
  recorder.Submitted(0, 1, 10);
  TraceStep step;
  step.begin = Now();
  recorder.Started(0, 1, 0);
  step.phase_ends.fill(Now());
  recorder.FirstToken(0, 1);
  recorder.Finished(0, 1, FinishReason::kStop, 1);
  recorder.Step(0, step);
  const auto log = recorder.Stop();
  ASSERT_TRUE(log.ok());
  const auto tracks = ReadTrace(TraceProto(*log, {}));
  EXPECT_EQ(tracks.at("request 1").slices.size(), 4u);
  EXPECT_EQ(tracks.at("steps").slices.front().name, "step");
  EXPECT_LE(tracks.at("steps").slices.back().end,
            tracks.at("request 1").slices.front().end + uint64_t{1000000000});
}

}  // namespace
}  // namespace inlay::api
