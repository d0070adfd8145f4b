// The C ABI of engines.
#include <utility>

#include "api/src/shim.h"

namespace inlay::api {
namespace {

// A thousand years: times of it can be added without overflow.
constexpr uint64_t kMostUs = uint64_t{1} << 55;

absl::Status CheckRange(uint64_t value, uint64_t min, uint64_t max,
                        const char* name) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, allowed: %d to %d", name, value, min, max));
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
  if (options.backend == INLAY_BACKEND_CUDA) {
    return absl::UnimplementedError(
        "this build has no CUDA backend: use INLAY_BACKEND_CPU or "
        "INLAY_BACKEND_AUTO");
  }
  EngineOptions result;
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
                       log(user, static_cast<int32_t>(level), message.c_str());
                     });
  }
  if (options.allocate != nullptr) {
    result.allocator = HostAllocator{options.allocate, options.deallocate,
                                     options.allocator_user};
  }
  return result;
}

inlay_stats ToStats(const EngineStats& stats) {
  inlay_stats result;
  inlay_stats_init(&result);
  const RunnerStats& runners = stats.runners;
  result.num_models = static_cast<uint32_t>(stats.models);
  result.num_sessions = static_cast<uint32_t>(runners.sessions);
  result.running_requests = static_cast<uint32_t>(runners.running);
  result.waiting_requests = static_cast<uint32_t>(runners.waiting);
  result.submitted_requests = runners.submitted;
  result.finished_requests = runners.finished;
  result.cancelled_requests = runners.cancelled;
  result.failed_requests = runners.failed;
  result.preemptions = runners.preemptions;
  result.evictions = runners.evictions;
  result.steps = runners.steps;
  result.step_us = runners.step_us;
  result.schedule_us = runners.schedule_us;
  result.prefill_tokens = runners.prefill_tokens;
  result.decode_tokens = runners.decode_tokens;
  result.kv_blocks_total = runners.kv_blocks_total;
  result.kv_blocks_used = runners.kv_blocks_used;
  result.memory_bytes = stats.memory.total_bytes;
  result.memory_peak_bytes = stats.memory.peak_bytes;
  result.memory_budget_bytes = stats.memory.budget_bytes;
  const auto of = [&](MemoryClass memory_class) {
    return stats.memory.by_class[static_cast<size_t>(memory_class)];
  };
  result.weight_bytes = of(MemoryClass::kWeights);
  result.kv_bytes = of(MemoryClass::kKv);
  result.workspace_bytes = of(MemoryClass::kWorkspace);
  result.mapped_bytes = stats.mapped_bytes;
  result.kv_blocks_cached = runners.kv_blocks_cached;
  result.lookup_tokens = runners.lookup_tokens;
  result.hit_tokens = runners.hit_tokens;
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
    WriteResult(ToStats(handle->engine->stats()), stats);
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
