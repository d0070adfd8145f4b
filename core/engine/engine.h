// Engine: a device, the models on it and who steps them. Knows nothing of the C
// ABI.
#ifndef INLAY_CORE_ENGINE_ENGINE_H_
#define INLAY_CORE_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/engine/event_queue.h"
#include "core/engine/log.h"
#include "core/engine/measure_copy.h"
#include "core/engine/metrics.h"
#include "core/engine/model_runner.h"
#include "core/engine/trace.h"
#include "memory/device/deferred_frees.h"
#include "memory/device/device.h"
#include "memory/device/thread.h"
#include "memory/device/thread_pool.h"
#include "memory/mutex.h"
#include "sched/config.h"

namespace inlay {

enum class Backend : uint8_t {
  kAuto,  // CUDA where it is to be had, otherwise the CPU
  kCpu,
  kCuda
};

struct EngineOptions {
  Backend backend = Backend::kCpu;
  int gpu = 0;                   // its number, of CUDA
  bool batch_invariant = false;  // on CUDA; on CPU always
  bool own_thread = false;
  int num_threads = 0;  // 0: one per core
  uint64_t memory_budget_bytes = 0;
  SchedulerConfig scheduler;
  bool prefix_sharing = true;
  Log log;
  std::optional<HostAllocator> allocator;
};

struct EngineStats {
  EngineMetrics metrics;  // of all models
  MemoryUse memory;
};

// Thread-safe. Models live as long as anyone holds them; those held by nobody
// are reclaimed by the next steps, a piece at a time where they have a budget
// or others to serve, or by the next load.
class Engine {
 public:
  // Errors: those of CreateCpuDevice() or CreateCudaDevice() among others.
  static absl::StatusOr<std::shared_ptr<Engine>> Create(
      const EngineOptions& options);
  ~Engine();
  const DeviceInfo& device_info() const { return device_->info(); }

  // See measure_copy.h.
  absl::StatusOr<double> MeasureCopy(uint64_t bytes) {
    return inlay::MeasureCopy(*device_, bytes);
  }

  // Ends all work, joins the engine's thread and frees what its models hold.
  // Idempotent. Must not be called from the engine's own thread.
  void Close();
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // Null `runner` in the result for vocab_only models.
  struct Loaded {
    std::shared_ptr<const LoadedModel> model;
    std::shared_ptr<ModelRunner> runner;
  };
  absl::StatusOr<Loaded> Load(const std::string& path, ModelOptions options);

  // Host-driven only: one step, and more while the budget lasts and there is
  // work. FAILED_PRECONDITION with a thread of the engine's own, or while
  // another thread is in here; DeviceLostError when the device has failed: all
  // requests have ended with it then.
  struct StepSummary {
    StepInfo info;
    bool more_work = false;
    uint64_t duration_us = 0;
    uint64_t overshoot_us = 0;  // past the budget; 0 without one
  };
  absl::StatusOr<StepSummary> Step(uint64_t budget_us);

  // The memory that all allocations may take, from now on: 0 lifts the limit.
  // Caches shrink and requests are preempted until it is kept, at once, or at
  // the end of the step in flight; where that has a time budget, that and the
  // next give back what their time allows. With more memory, caches grow back.
  // RESOURCE_EXHAUSTED: less than weights and scratch take; nothing changes.
  absl::Status SetMemoryBudget(int device, uint64_t bytes);

  // Serves a recording again (ModelRunner::Replay) with the weights of
  // `runner`, one of this engine's. Like one long step: nobody else steps
  // meanwhile, and Close() ends it.
  absl::StatusOr<ReplayReport> Replay(const ModelRunner& runner,
                                      const std::string& path);

  // Lets the engine's own thread, if it has one, look for what there is to do,
  void Wake();
  // ... or for models that nobody holds, if there is one.
  void WakeToReclaim();

  EventQueue& events() { return events_; }
  // Filled in place: it is large.
  void GetStats(EngineStats* stats);
  TraceRecorder& trace() { return trace_; }

 private:
  explicit Engine(const EngineOptions& options) : options_(options) {}
  absl::Status OpenDevice();
  void ThreadMain();
  bool TryStep();
  bool StepOnce(const StepLimits& limits, StepInfo* info)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  bool HasWork();
  bool HasRequests();
  std::vector<std::shared_ptr<ModelRunner>> Runners();
  std::shared_ptr<ModelRunner> RunnerAt(size_t index, size_t* count);
  absl::StatusOr<StepSummary> StepWithin(uint64_t budget_us);
  // Until about then, but a piece of it in any case. False: it could not, or
  // not all, and is to be called again.
  bool ObeyBudget(SteadyTime until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  void ObeyWhereFree(SteadyTime until = SteadyTime::max());
  bool ApplyBudget(SteadyTime until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);
  uint64_t FixedBytes() const;
  bool IsOverBudget() const;
  // Models that nobody holds any more: moves them to closing_,
  void FindUnused();
  // ... closes and frees a piece of those,
  ModelRunner::Closing ReclaimPiece(bool waits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reclaim_mu_);
  // ... at least one, if there is any, until about then; whether there was,
  bool ReclaimUntil(SteadyTime until, bool waits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reclaim_mu_);
  // ... all of this, unless another thread is at it,
  bool ReclaimSome(SteadyTime until, bool waits);
  // ... or all there is.
  void ReclaimAll();
  bool HasToReclaim();
  void Retire(ModelRunner& runner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NotifyWork();
  // Calls of NotifyWork() so far,
  uint64_t WorkSignals();
  // ... and waits for another, but not long.
  void WaitForWork(uint64_t seen, SteadyTime until);
  // Whether something goes on when a disk has been read or written.
  bool WaitsForDisk();

  const EngineOptions options_;
  std::unique_ptr<Device> device_;
  DeferredFrees* frees_ = nullptr;    // the device's, if it has them
  std::unique_ptr<ThreadPool> pool_;  // null: the device has its own
  EventQueue events_;
  TraceRecorder trace_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<bool> closed_{false};

  std::atomic<bool> stepping_{false};  // a host's thread is in Step()
  Mutex step_mu_;  // held by whoever steps or resizes caches
  size_t next_runner_ ABSL_GUARDED_BY(step_mu_) = 0;
  bool obeys_late_ ABSL_GUARDED_BY(step_mu_) = false;  // for want of time
  std::atomic<bool> budget_changed_{false};
  std::atomic<uint64_t> num_budgets_{0};  // set since creation

  Mutex reclaim_mu_;                   // held by who closes models; before mu_
  std::atomic<bool> reclaims_{false};  // and there may be more
  std::atomic<bool> reclaim_waits_{false};  // for disks alone

  Mutex mu_;  // never held across a step or a load
  CondVar work_arrived_;
  uint64_t work_signals_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<ModelRunner>> runners_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<ModelRunner>> closing_ ABSL_GUARDED_BY(mu_);
  EngineMetrics retired_ ABSL_GUARDED_BY(mu_);  // of models that are gone
  uint32_t num_loaded_ ABSL_GUARDED_BY(mu_) = 0;
  Thread thread_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_ENGINE_H_
