// The C ABI of engines.
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "api/src/metrics_proto.h"
#include "api/src/metrics_text.h"
#include "api/src/shim.h"
#include "api/src/trace_proto.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"

namespace inlay::api {
namespace {

// A thousand years: times of it can be added without overflow.
constexpr uint64_t kMostUs = uint64_t{1} << 55;

absl::Status CheckRange(uint64_t value, uint64_t min, uint64_t max,
                        const char* name) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("%s is %d, allowed: %d to %d", name, value, min, max));
}

absl::StatusOr<EngineOptions> ToEngineOptions(
    const inlay_engine_options& options) {
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.backend, INLAY_BACKEND_CUDA, "backend"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.drive, INLAY_DRIVE_THREAD, "drive"));
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.log_level, INLAY_LOG_DEBUG, "log_level"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.num_threads, 1024, "num_threads"));
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.max_batch_tokens, 1, 65536, "max_batch_tokens"));
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.max_running, 1, 4096, "max_running"));
  INLAY_RETURN_IF_ERROR(CheckRange(options.max_queue, 1, 1 << 24, "max_queue"));
  if ((options.allocate == nullptr) != (options.deallocate == nullptr)) {
    return absl::InvalidArgumentError(
        "allocate and deallocate must both be set, or neither");
  }
  EngineOptions result;
  constexpr inlay::Backend kBackends[] = {
      inlay::Backend::kAuto, inlay::Backend::kCpu, inlay::Backend::kCuda};
  result.backend = kBackends[options.backend];
  INLAY_RETURN_IF_ERROR(CheckRange(options.gpu, 0, 1023, "gpu"));
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.batch_invariant, 0, 1, "batch_invariant"));
  result.batch_invariant = options.batch_invariant != 0;
  result.gpu = static_cast<int>(options.gpu);
  result.own_thread = options.drive == INLAY_DRIVE_THREAD;
  result.num_threads = options.num_threads;
  result.memory_budget_bytes = options.memory_budget_bytes;
  result.scheduler.max_batch_tokens =
      static_cast<int32_t>(options.max_batch_tokens);
  // A running request needs at least one token of the batch.
  result.scheduler.max_running = static_cast<int32_t>(
      std::min(options.max_running, options.max_batch_tokens));
  result.scheduler.max_queue = static_cast<int32_t>(options.max_queue);
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.prefix_sharing, 0, 1, "prefix_sharing"));
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.max_prefill_chunk, 0, 65536, "max_prefill_chunk"));
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.tpot_target_us, 0, kMostUs, "tpot_target_us"));
  INLAY_RETURN_IF_ERROR(
      CheckRange(options.starvation_us, 0, kMostUs, "starvation_us"));
  result.prefix_sharing = options.prefix_sharing != 0;
  result.scheduler.max_prefill_chunk =
      static_cast<int32_t>(options.max_prefill_chunk);
  result.scheduler.tpot_target_us =
      static_cast<int64_t>(options.tpot_target_us);
  result.scheduler.starvation_us = static_cast<int64_t>(options.starvation_us);
  if (options.log != nullptr) {
    result.log = Log(static_cast<LogLevel>(options.log_level),
                     [log = options.log, user = options.log_user](
                         LogLevel level, const std::string& message) {
                       std::string text;
                       inlay::AppendValidUtf8(message, &text);
                       log(user, static_cast<int32_t>(level), text.c_str());
                     });
  }
  if (options.allocate != nullptr) {
    result.allocator = HostAllocator{options.allocate, options.deallocate,
                                     options.allocator_user};
  }
  return result;
}

inlay_stats ToStats(const EngineMetrics& metrics) {
  inlay_stats result;
  inlay_stats_init(&result);
  result.num_models = static_cast<uint32_t>(metrics.models);
  result.num_sessions = static_cast<uint32_t>(metrics.sessions);
  result.running_requests = static_cast<uint32_t>(metrics.requests_running);
  result.waiting_requests = static_cast<uint32_t>(metrics.requests_waiting);
  result.submitted_requests = metrics.requests_submitted;
  result.finished_requests = metrics.requests_stop + metrics.requests_length;
  result.cancelled_requests = metrics.requests_cancelled;
  result.failed_requests = metrics.requests_failed + metrics.requests_deadline;
  result.preemptions = metrics.preemptions_recompute + metrics.preemptions_swap;
  result.evictions = metrics.evicted_blocks;
  result.steps = metrics.step_time_us.count();
  result.step_us = metrics.step_time_us.sum();
  result.schedule_us = metrics.schedule_time_us.sum();
  result.prefill_tokens = metrics.prefill_tokens;
  result.decode_tokens = metrics.decode_tokens;
  result.kv_blocks_total = metrics.kv_blocks_total;
  result.kv_blocks_used = metrics.kv_blocks_used - metrics.kv_blocks_evictable;
  result.memory_bytes = metrics.memory_weights_bytes + metrics.memory_kv_bytes +
                        metrics.memory_workspace_bytes;
  result.memory_peak_bytes = metrics.memory_peak_bytes;
  result.memory_budget_bytes = metrics.memory_budget_bytes;
  result.weight_bytes = metrics.memory_weights_bytes;
  result.kv_bytes = metrics.memory_kv_bytes;
  result.workspace_bytes = metrics.memory_workspace_bytes;
  result.mapped_bytes = metrics.mapped_bytes;
  result.kv_blocks_cached = metrics.kv_blocks_evictable;
  result.lookup_tokens = metrics.prefix_lookup_tokens;
  result.hit_tokens = metrics.prefix_hit_tokens;
  result.host_cache_bytes = metrics.tier_host_used_bytes;
  result.host_cache_peak_bytes = metrics.tier_host_peak_bytes;
  result.host_cache_budget_bytes = metrics.tier_host_budget_bytes;
  result.disk_cache_bytes = metrics.tier_disk_used_bytes;
  result.disk_cache_budget_bytes = metrics.tier_disk_budget_bytes;
  result.expert_host_bytes = metrics.expert_host_bytes;
  const auto fill = [](const Histogram& from, inlay_distribution* to) {
    to->count = from.count();
    to->sum = from.sum();
    to->p50 = static_cast<uint64_t>(from.Quantile(0.5));
    to->p90 = static_cast<uint64_t>(from.Quantile(0.9));
    to->p99 = static_cast<uint64_t>(from.Quantile(0.99));
    to->max = from.max();
  };
  fill(metrics.queue_time_us, &result.queue_time_us);
  fill(metrics.time_to_first_token_us, &result.time_to_first_token_us);
  fill(metrics.inter_token_time_us, &result.inter_token_time_us);
  fill(metrics.request_time_us, &result.request_time_us);
  fill(metrics.step_time_us, &result.step_time_us);
  fill(metrics.schedule_time_us, &result.schedule_time_us);
  fill(metrics.step_overshoot_us, &result.step_overshoot_us);
  fill(metrics.step_tokens, &result.step_tokens);
  return result;
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

void(inlay_engine_options_init)(inlay_engine_options* options) {
  inlay_engine_options_init_sized(options, kFirstSize<inlay_engine_options>);
}

void inlay_engine_options_init_sized(inlay_engine_options* options,
                                     size_t size) {
  inlay_engine_options defaults;
  InitStruct(&defaults);
  defaults.max_batch_tokens = 512;
  defaults.max_running = 256;
  defaults.max_queue = 65536;
  defaults.log_level = INLAY_LOG_WARNING;
  defaults.prefix_sharing = 1;
  defaults.starvation_us = 10'000'000;
  InitSized(defaults, options, size);
}

inlay_status inlay_engine_create(const inlay_engine_options* options,
                                 inlay_engine** engine, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(engine, "engine"));
    *engine = nullptr;
    inlay_engine_options read;
    inlay_engine_options_init(&read);
    INLAY_RETURN_IF_ERROR(ReadOptions(options, "inlay_engine_options", &read));
    INLAY_ASSIGN_OR_RETURN(const inlay::EngineOptions converted,
                           ToEngineOptions(read));
    INLAY_ASSIGN_OR_RETURN(auto created, inlay::Engine::Create(converted));
    *engine = AddHandle(EngineHandle{std::move(created)});
    return absl::OkStatus();
  });
}

void inlay_device_info_init(inlay_device_info* info) {
  if (info != nullptr) InitStruct(info);
}

inlay_status inlay_engine_device(inlay_engine* engine, inlay_device_info* info,
                                 inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckPointer(info, "info"));
    INLAY_RETURN_IF_ERROR(CheckResult(info, "inlay_device_info"));
    const inlay::DeviceInfo& device = handle->engine->device_info();
    const bool gpu = device.kind == inlay::DeviceKind::kCuda;
    inlay_device_info result;
    inlay_device_info_init(&result);
    result.backend = gpu ? INLAY_BACKEND_CUDA : INLAY_BACKEND_CPU;
    result.memory_bytes = device.memory_bytes;
    result.num_processors =
        static_cast<uint32_t>(gpu ? device.num_sms : device.num_threads);
    result.compute_capability = static_cast<uint32_t>(device.sm);
    CopyText(device.name, result.name);
    WriteResult(result, info);
    return absl::OkStatus();
  });
}

inlay_status inlay_engine_measure_copy(inlay_engine* engine, uint64_t bytes,
                                       double* bytes_per_second,
                                       inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckPointer(bytes_per_second, "bytes_per_second"));
    INLAY_RETURN_IF_ERROR(
        CheckRange(bytes, uint64_t{1} << 20, uint64_t{4} << 30, "bytes"));
    INLAY_ASSIGN_OR_RETURN(*bytes_per_second,
                           handle->engine->MeasureCopy(bytes));
    return absl::OkStatus();
  });
}

void inlay_engine_release(inlay_engine* engine) {
  GuardVoid([&] {
    const auto handle = TakeHandle<EngineHandle>(engine);
    if (handle != nullptr) handle->engine->Close();
  });
}

void(inlay_step_info_init)(inlay_step_info* info) {
  inlay_step_info_init_sized(info, kFirstSize<inlay_step_info>);
}

void inlay_step_info_init_sized(inlay_step_info* info, size_t size) {
  inlay_step_info zero;
  InitStruct(&zero);
  InitSized(zero, info, size);
}

inlay_status inlay_engine_step(inlay_engine* engine, uint64_t budget_us,
                               inlay_step_info* info, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    if (info != nullptr) {
      INLAY_RETURN_IF_ERROR(CheckResult(info, "inlay_step_info"));
    }
    INLAY_ASSIGN_OR_RETURN(const auto summary, handle->engine->Step(budget_us));
    if (info == nullptr) return absl::OkStatus();
    inlay_step_info result;
    inlay_step_info_init(&result);
    result.num_requests = summary.info.requests;
    result.prefill_tokens = summary.info.prefill_tokens;
    result.decode_tokens = summary.info.decode_tokens;
    result.sampled_tokens = summary.info.sampled_tokens;
    result.more_work = summary.more_work ? 1 : 0;
    result.duration_us = summary.duration_us;
    result.predicted_us = summary.info.predicted_us;
    result.overshoot_us = summary.overshoot_us;
    WriteResult(result, info);
    return absl::OkStatus();
  });
}

void(inlay_stats_init)(inlay_stats* stats) {
  inlay_stats_init_sized(stats, kFirstSize<inlay_stats>);
}

void inlay_stats_init_sized(inlay_stats* stats, size_t size) {
  inlay_stats zero;
  InitStruct(&zero);
  InitSized(zero, stats, size);
}

inlay_status inlay_engine_set_memory_budget(inlay_engine* engine,
                                            int32_t device, uint64_t bytes,
                                            inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    return handle->engine->SetMemoryBudget(device, bytes);
  });
}

inlay_status inlay_engine_stats(inlay_engine* engine, inlay_stats* stats,
                                inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckResult(stats, "inlay_stats"));
    const auto got = std::make_unique<inlay::EngineStats>();
    handle->engine->GetStats(got.get());
    WriteResult(ToStats(got->metrics), stats);
    return absl::OkStatus();
  });
}

inlay_status inlay_engine_metrics(inlay_engine* engine, int32_t format,
                                  inlay_buffer** metrics, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(metrics, "metrics"));
    *metrics = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckEnum(format, INLAY_METRICS_PROTOBUF, "format"));
    const auto got = std::make_unique<inlay::EngineStats>();
    handle->engine->GetStats(got.get());
    BufferHandle buffer;
    if (format == INLAY_METRICS_PROTOBUF) {
      buffer.bytes = MetricsProto(got->metrics);
    } else {
      INLAY_ASSIGN_OR_RETURN(buffer.bytes, MetricsText({{&got->metrics, {}}}));
    }
    *metrics = AddHandle(std::move(buffer));
    return absl::OkStatus();
  });
}

inlay_status inlay_engine_trace_start(inlay_engine* engine, size_t num_events,
                                      inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    return handle->engine->trace().Start(num_events);
  });
}

inlay_status inlay_engine_trace_take(inlay_engine* engine, int32_t stop,
                                     inlay_buffer** trace,
                                     inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(CheckPointer(trace, "trace"));
    *trace = nullptr;
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckEnum(stop, 1, "stop"));
    inlay::TraceRecorder& recorder = handle->engine->trace();
    INLAY_ASSIGN_OR_RETURN(inlay::TraceLog log,
                           stop != 0 ? recorder.Stop() : recorder.Take());
    absl::Cleanup put_back = [&] { recorder.PutBack(std::move(log)); };
    BufferHandle buffer;
    buffer.bytes = TraceProto(log, {static_cast<int>(getpid()), "inlay"});
    *trace = AddHandle(std::move(buffer));
    std::move(put_back).Cancel();
    return absl::OkStatus();
  });
}

inlay_status inlay_engine_event_fd(inlay_engine* engine, int32_t* fd,
                                   inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const auto handle, GetHandle<EngineHandle>(engine));
    INLAY_RETURN_IF_ERROR(CheckPointer(fd, "fd"));
    INLAY_ASSIGN_OR_RETURN(*fd, handle->engine->events().Descriptor());
    return absl::OkStatus();
  });
}
