#include "core/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/engine/clock.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::chrono::milliseconds kStalledPoll(5);

// Of a step without a budget, for the memory of models that nobody holds, while
// there are requests to serve.
constexpr uint64_t kReclaimUs = 2000;

SteadyTime After(SteadyTime begin, uint64_t us) {
  constexpr uint64_t kMostUs = uint64_t{1} << 50;
  return begin + std::chrono::microseconds(std::min(us, kMostUs));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Engine::Create(
    const EngineOptions& options) {
  INLAY_RETURN_IF_ERROR(ValidateConfig(options.scheduler));
  std::shared_ptr<Engine> engine(new Engine(options));
  INLAY_RETURN_IF_ERROR(engine->OpenDevice());
  engine->frees_ = DeferredFrees::Of(engine->device_.get());
  if (options.own_thread) {
    INLAY_ASSIGN_OR_RETURN(engine->thread_, Thread::Start([raw = engine.get()] {
                             raw->ThreadMain();
                           }));
  }
  return engine;
}

absl::Status Engine::OpenDevice() {
  const bool auto_cpu = options_.backend == Backend::kAuto &&
                        options_.allocator.has_value();  // is for host memory
  if (options_.backend != Backend::kCpu && !auto_cpu) {
    auto gpu = CreateCudaDevice(options_.gpu, options_.memory_budget_bytes,
                                options_.num_threads);
    if (gpu.ok()) {
      device_ = *std::move(gpu);
      INLAY_ASSIGN_OR_RETURN(pool_,
                             ThreadPool::Create(device_->info().num_threads));
      options_.log(LogLevel::kInfo,
                   FormattedString("computing on %s", device_->info().name));
      return absl::OkStatus();
    }
    if (options_.backend == Backend::kCuda) return gpu.status();
    options_.log(LogLevel::kInfo, std::string(gpu.status().message()));
  }
  INLAY_ASSIGN_OR_RETURN(
      device_,
      CreateCpuDevice(
          options_.num_threads, options_.memory_budget_bytes,
          options_.allocator.has_value() ? &*options_.allocator : nullptr));
  return absl::OkStatus();
}

Engine::~Engine() { Close(); }

void Engine::Close() {
  closed_.store(true, std::memory_order_release);
  NotifyWork();
  std::vector<std::shared_ptr<ModelRunner>> runners;
  {
    MutexLock step_lock(&step_mu_);
    MutexLock lock(&mu_);
    runners = std::move(runners_);
    runners_.clear();
  }
  {
    // One closer at a time joins; a second finds it done.
    MutexLock step_lock(&step_mu_);
    for (const auto& runner : runners) runner->Close();
  }
  ReclaimAll();
  if (thread_.joinable()) thread_.Join();
  events_.Close();
  // Handles of models and sessions may live on: nothing is computed for them.
  if (device_ != nullptr) device_->StopThreads();
  if (pool_ != nullptr) pool_->Stop();
}

absl::StatusOr<Engine::Loaded> Engine::Load(const std::string& path,
                                            ModelOptions options) {
  ReclaimAll();
  if (closed()) return absl::UnavailableError("the engine was released");
  options.batch_invariant = options_.batch_invariant;
  // A budget set meanwhile, up or down, did not reach the new model's cache,
  // nor did others get what a load that failed had of it.
  bool failed = true;
  const auto obey = absl::MakeCleanup([&, before = num_budgets_.load()] {
    const bool frees = failed && device_->memory_use().budget_bytes > 0;
    if (num_budgets_ == before && !frees) return;
    budget_changed_ = true;
    ObeyWhereFree();
    NotifyWork();
  });
  INLAY_ASSIGN_OR_RETURN(
      std::unique_ptr<LoadedModel> loaded,
      LoadModelFromPath(path, options, *device_, options_.log));
  Loaded result;
  std::shared_ptr<ModelRunner> runner;
  if (!options.vocab_only) {
    RunnerContext context;
    context.device = device_.get();
    context.pool = pool_.get();
    context.events = &events_;
    context.next_id = &next_id_;
    context.trace = &trace_;
    {
      MutexLock lock(&mu_);
      context.trace_model = num_loaded_++;
    }
    context.on_work = [this] { NotifyWork(); };
    context.scheduler = options_.scheduler;
    context.prefix_sharing = options_.prefix_sharing;
    context.allocator = options_.allocator;
    context.log = options_.log;
    INLAY_ASSIGN_OR_RETURN(
        runner, ModelRunner::Create(context, std::move(loaded), options));
  }
  // Before it is one of the engine's: a cancelled one is freed here and now.
  if (options.progress && !options.progress(LoadStage::kReady, 1.0f)) {
    return absl::CancelledError("the progress callback cancelled the load");
  }
  if (runner == nullptr) {
    failed = false;
    result.model = std::move(loaded);
    return result;
  }
  {
    MutexLock lock(&mu_);
    if (closed()) return absl::UnavailableError("the engine was released");
    runners_.push_back(runner);
  }
  failed = false;
  // Shares the runner's ownership: the model lives as long as its runner.
  result.model = std::shared_ptr<const LoadedModel>(runner, &runner->loaded());
  result.runner = std::move(runner);
  return result;
}

std::vector<std::shared_ptr<ModelRunner>> Engine::Runners() {
  MutexLock lock(&mu_);
  return runners_;
}

void Engine::Retire(ModelRunner& runner) {
  runner.AddMetrics(&retired_);
  // Gauges go with the model, counters stay.
  retired_.ClearGauges();
}

void Engine::Wake() { NotifyWork(); }

void Engine::WakeToReclaim() {
  MutexLock lock(&mu_);
  // The step at hand may hold one, too, and has looked already.
  const bool unused =
      std::any_of(runners_.begin(), runners_.end(),
                  [](const auto& runner) { return runner.use_count() <= 2; });
  if (!unused) return;
  ++work_signals_;
  work_arrived_.SignalAll();
}

// Neither allocates: the engine's thread asks where nothing would catch.
bool Engine::HasRequests() {
  MutexLock lock(&mu_);
  return std::any_of(runners_.begin(), runners_.end(),
                     [](const auto& runner) { return runner->HasRequests(); });
}

bool Engine::HasWork() {
  MutexLock lock(&mu_);
  return std::any_of(runners_.begin(), runners_.end(),
                     [](const auto& runner) { return runner->HasWork(); });
}

std::shared_ptr<ModelRunner> Engine::RunnerAt(size_t index, size_t* count) {
  MutexLock lock(&mu_);
  *count = runners_.size();
  return runners_.empty() ? nullptr : runners_[index % runners_.size()];
}

// Models take turns, one step each. Only the model whose turn it is is held:
// others can be reclaimed meanwhile. Within a budget, a quarter of the time is
// for the memory of models that are gone, and half for a smaller memory budget,
// before anything is computed; a piece of both is done in any case.
bool Engine::StepOnce(const StepLimits& limits, StepInfo* info) {
  const SteadyTime begin = Now();
  const bool timed = limits.budget_us > 0;
  const auto after = [&](uint64_t us) {
    return timed ? After(begin, us) : SteadyTime::max();
  };
  const bool slices = options_.own_thread || HasRequests();
  bool did = ReclaimSome(
      !timed && slices ? After(begin, kReclaimUs) : after(limits.budget_us / 4),
      /*waits=*/!timed && !slices);
  if (const absl::Status status = device_->status(); !status.ok()) {
    for (const auto& runner : Runners()) runner->EndAll(status);
    return false;
  }
  ObeyBudget(after(limits.budget_us / 2));
  did |= obeys_late_;
  const auto obey = absl::MakeCleanup([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const SteadyTime end = after(limits.budget_us);
    if (Now() < end) ObeyBudget(end);
  });
  StepLimits left = limits;
  if (timed) {
    const uint64_t passed = MicrosecondsBetween(begin, Now());
    left.budget_us -= std::min(passed, left.budget_us - 1);
  }
  size_t count = 1;
  for (size_t i = 0; i < count; ++i) {
    const auto runner = RunnerAt(next_runner_ + i, &count);
    if (runner != nullptr && runner->Step(left, info)) {
      next_runner_ = (next_runner_ + i) % count + 1;
      return true;
    }
  }
  return did;
}

absl::StatusOr<Engine::StepSummary> Engine::Step(uint64_t budget_us) {
  if (options_.own_thread) {
    return absl::FailedPreconditionError(
        "the engine steps on a thread of its own (INLAY_DRIVE_THREAD): wait "
        "for "
        "events instead");
  }
  if (stepping_.exchange(true)) {
    return absl::FailedPreconditionError(
        "another thread is stepping this engine");
  }
  const SteadyTime until =
      budget_us > 0 ? After(Now(), budget_us) : SteadyTime::max();
  const auto done = absl::MakeCleanup([this] { stepping_ = false; });
  auto summary = [&] {
    const auto obey = absl::MakeCleanup([&] { ObeyWhereFree(until); });
    return StepWithin(budget_us);
  }();
  // A budget that was set after the step had looked for more work.
  if (summary.ok()) summary->more_work |= budget_changed_ && IsOverBudget();
  return summary;
}

absl::StatusOr<Engine::StepSummary> Engine::StepWithin(uint64_t budget_us) {
  const SteadyTime begin = Now();
  // Only a replay, which is one long step, holds it for long besides.
  MutexLock lock(&step_mu_);
  if (closed()) return absl::UnavailableError("the engine was released");
  StepSummary summary;
  const auto elapsed = [&] { return MicrosecondsBetween(begin, Now()); };
  // Each step gets the time that is left; only the first must do something.
  StepLimits limits{budget_us, true};
  const SteadyTime end =
      budget_us > 0 ? After(begin, budget_us) : SteadyTime::max();
  while (!closed()) {
    const uint64_t seen = WorkSignals();
    if (StepOnce(limits, &summary.info)) {
      limits.must_progress = false;
      if (budget_us == 0) break;
    } else if (!device_->status().ok() || !WaitsForDisk()) {
      break;
    } else {
      WaitForWork(seen, end);
    }
    if (elapsed() >= budget_us && budget_us > 0) break;
    if (budget_us > 0)
      limits.budget_us = std::max<uint64_t>(1, budget_us - elapsed());
  }
  summary.more_work =
      HasWork() || HasToReclaim() || (budget_changed_ && IsOverBudget());
  summary.duration_us = elapsed();
  if (budget_us > 0 && summary.duration_us > budget_us)
    summary.overshoot_us = summary.duration_us - budget_us;
  // Lost in this very step: others wait in vain.
  if (const absl::Status status = device_->status(); !status.ok()) {
    StepOnce(limits, &summary.info);
    return status;
  }
  return summary;
}

// A step whose exceptions (memory running out) do not end the thread: whether
// it did anything.
bool Engine::TryStep() {
  MutexLock lock(&step_mu_);
  try {
    StepInfo info;
    return StepOnce(StepLimits(), &info);
  } catch (...) {
    // Others may give memory back; until then there is no hurry.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
}

void Engine::ThreadMain() {
  while (!closed()) {
    uint64_t seen = 0;
    {
      MutexLock lock(&mu_);
      seen = work_signals_;
    }
    if (TryStep()) continue;
    // Requests that wait for memory may still meet their deadlines; a budget
    // that there was no memory to obey must be obeyed yet, a model whose disk
    // is written freed.
    const bool waiting = HasRequests() || budget_changed_ || HasToReclaim();
    MutexLock lock(&mu_);
    if (work_signals_ != seen || closed()) continue;
    if (waiting) {
      work_arrived_.WaitUntil(&mu_, Now() + kStalledPoll);
    } else {
      work_arrived_.Wait(&mu_);
    }
  }
}

absl::StatusOr<ReplayReport> Engine::Replay(const ModelRunner& runner,
                                            const std::string& path) {
  MutexLock lock(&step_mu_);
  if (closed()) return absl::UnavailableError("the engine was released");
  return runner.Replay(path, [this] { return !closed(); });
}

uint64_t Engine::WorkSignals() {
  MutexLock lock(&mu_);
  return work_signals_;
}

// Requests' deadlines may pass meanwhile.
void Engine::WaitForWork(uint64_t seen, SteadyTime until) {
  until = std::min(until, Now() + kStalledPoll);
  MutexLock lock(&mu_);
  while (work_signals_ == seen && !closed()) {
    if (work_arrived_.WaitUntil(&mu_, until)) return;
  }
}

bool Engine::WaitsForDisk() {
  if (reclaim_waits_) return true;
  MutexLock lock(&mu_);
  return std::any_of(runners_.begin(), runners_.end(),
                     [](const auto& runner) { return runner->WaitsForDisk(); });
}

void Engine::NotifyWork() {
  MutexLock lock(&mu_);
  ++work_signals_;
  work_arrived_.SignalAll();
}

void Engine::GetStats(EngineStats* stats) {
  *stats = EngineStats();
  EngineMetrics& metrics = stats->metrics;
  // Before models are counted: their memory goes after they do, so that who
  // finds none taken finds no model.
  stats->memory = device_->memory_use();
  std::vector<std::shared_ptr<ModelRunner>> runners;
  {
    MutexLock lock(&mu_);
    metrics += retired_;
    runners = runners_;
  }
  for (const auto& runner : runners) {
    ++metrics.models;
    metrics.mapped_bytes += runner->loaded().mapped_bytes;
    metrics.expert_host_bytes += runner->loaded().info.experts.host_bytes;
    runner->AddMetrics(&metrics);
  }
  // An idle engine may have been woken to reclaim one while it was held here.
  runners.clear();
  WakeToReclaim();
  const auto of = [&](MemoryClass memory_class) {
    return stats->memory.by_class[static_cast<size_t>(memory_class)];
  };
  metrics.memory_weights_bytes = of(MemoryClass::kWeights);
  metrics.memory_kv_bytes = of(MemoryClass::kKv);
  metrics.memory_workspace_bytes = of(MemoryClass::kWorkspace);
  metrics.memory_peak_bytes = stats->memory.peak_bytes;
  metrics.memory_budget_bytes = stats->memory.budget_bytes;
}

}  // namespace inlay
