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

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Engine::Create(
    const EngineOptions& options) {
  INLAY_RETURN_IF_ERROR(ValidateConfig(options.scheduler));
  std::shared_ptr<Engine> engine(new Engine(options));
  INLAY_RETURN_IF_ERROR(engine->OpenDevice());
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
  if (thread_.joinable()) thread_.Join();
  events_.Close();
  // Handles of models and sessions may live on: nothing is computed for them.
  if (device_ != nullptr) device_->StopThreads();
  if (pool_ != nullptr) pool_->Stop();
}

absl::StatusOr<Engine::Loaded> Engine::Load(const std::string& path,
                                            ModelOptions options) {
  Reclaim();
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

void Engine::Reclaim() {
  std::vector<std::shared_ptr<ModelRunner>> unused;
  MutexLock lock(&mu_);
  // Should memory run out, then before anything is moved.
  unused.reserve(runners_.size());
  // With one reference, ours, nobody can make another: handles copy from
  // handles.
  const auto first = std::stable_partition(
      runners_.begin(), runners_.end(),
      [](const auto& runner) { return runner.use_count() > 1; });
  std::move(first, runners_.end(), std::back_inserter(unused));
  runners_.erase(first, runners_.end());
  for (const auto& runner : unused) Retire(*runner);
  // Others may have what it leaves.
  if (!unused.empty()) budget_changed_ = true;
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
// others can be reclaimed meanwhile.
bool Engine::StepOnce(const StepLimits& limits, StepInfo* info) {
  Reclaim();
  if (const absl::Status status = device_->status(); !status.ok()) {
    for (const auto& runner : Runners()) runner->EndAll(status);
    return false;
  }
  ObeyBudget();
  const auto obey = absl::MakeCleanup(
      [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { ObeyBudget(); });
  size_t count = 1;
  for (size_t i = 0; i < count; ++i) {
    const auto runner = RunnerAt(next_runner_ + i, &count);
    if (runner != nullptr && runner->Step(limits, info)) {
      next_runner_ = (next_runner_ + i) % count + 1;
      return true;
    }
  }
  return false;
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
  const auto done = absl::MakeCleanup([this] {
    ObeyWhereFree();
    stepping_ = false;
  });
  return StepWithin(budget_us);
}

absl::StatusOr<Engine::StepSummary> Engine::StepWithin(uint64_t budget_us) {
  const SteadyTime begin = Now();
  // Besides steps only budgets are set under it: no long wait.
  MutexLock lock(&step_mu_);
  if (closed()) return absl::UnavailableError("the engine was released");
  StepSummary summary;
  const auto elapsed = [&] { return MicrosecondsBetween(begin, Now()); };
  // Each step gets the time that is left; only the first must do something.
  StepLimits limits{budget_us, true};
  while (StepOnce(limits, &summary.info) && elapsed() < budget_us &&
         !closed()) {
    limits.budget_us = std::max<uint64_t>(1, budget_us - elapsed());
    limits.must_progress = false;
  }
  summary.more_work = HasWork();
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
    // that there was no memory to obey must be obeyed yet.
    const bool waiting = HasRequests() || budget_changed_;
    MutexLock lock(&mu_);
    if (work_signals_ != seen || closed()) continue;
    if (waiting) {
      work_arrived_.WaitUntil(&mu_, Now() + kStalledPoll);
    } else {
      work_arrived_.Wait(&mu_);
    }
  }
}

absl::Status Engine::SetMemoryBudget(int device, uint64_t bytes) {
  if (device != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "device is %d, allowed: 0, the only one of this engine", device));
  }
  if (closed()) return absl::UnavailableError("the engine was released");
  if (bytes != 0) {
    uint64_t least = 0;
    const MemoryUse use = device_->memory_use();
    for (const MemoryClass fixed :
         {MemoryClass::kWeights, MemoryClass::kWorkspace})
      least += use.by_class[static_cast<size_t>(fixed)];
    if (bytes < least) {
      return absl::ResourceExhaustedError(FormattedString(
          "the memory budget is %d bytes, allowed: at least %d, which weights "
          "and scratch take; release models for less",
          bytes, least));
    }
  }
  device_->set_budget(bytes);
  ++num_budgets_;
  budget_changed_ = true;
  ObeyWhereFree();
  NotifyWork();
  return absl::OkStatus();
}

absl::StatusOr<ReplayReport> Engine::Replay(const ModelRunner& runner,
                                            const std::string& path) {
  MutexLock lock(&step_mu_);
  if (closed()) return absl::UnavailableError("the engine was released");
  return runner.Replay(path, [this] { return !closed(); });
}

// Whoever holds step_mu_ looks again when it has let go: what comes in between
// is not missed.
void Engine::ObeyWhereFree() {
  bool obeyed = true;
  while (obeyed && budget_changed_ && step_mu_.TryLock()) {
    obeyed = ObeyBudget();
    step_mu_.Unlock();
  }
}

bool Engine::ObeyBudget() {
  if (!budget_changed_.exchange(false)) return true;
  try {
    if (ApplyBudget()) return true;
  } catch (...) {
    // No memory for the bookkeeping now.
  }
  budget_changed_ = true;  // the next step tries again
  return false;
}

// What weights and scratch leave is shared out: to each cache what it was made
// with, or its proportion of that.
bool Engine::ApplyBudget() {
  const auto runners = Runners();
  const MemoryUse use = device_->memory_use();
  std::vector<uint64_t> wanted;
  uint64_t sum = 0, held = 0;
  for (const auto& runner : runners) {
    const ModelRunner::KvMemory memory = runner->kv_memory();
    wanted.push_back(memory.target_bytes);
    sum += memory.target_bytes;
    held += memory.bytes;
  }
  uint64_t room = std::numeric_limits<uint64_t>::max();
  if (use.budget_bytes > 0) {
    const uint64_t fixed = use.total_bytes - std::min(use.total_bytes, held);
    room = use.budget_bytes - std::min<uint64_t>(use.budget_bytes, fixed);
  }
  if (room < sum) {
    const double share = static_cast<double>(room) / static_cast<double>(sum);
    for (uint64_t& bytes : wanted)
      bytes = static_cast<uint64_t>(static_cast<double>(bytes) * share);
  }
  trace_.Memory(static_cast<int64_t>(use.budget_bytes),
                static_cast<int64_t>(use.total_bytes));
  // Whoever has too much gives before others take.
  bool applied = true;
  for (const bool shrink : {true, false}) {
    for (size_t i = 0; i < runners.size(); ++i) {
      if ((wanted[i] < runners[i]->kv_memory().bytes) == shrink)
        applied &= runners[i]->ResizeKv(wanted[i]);
    }
  }
  return applied;
}

void Engine::NotifyWork() {
  MutexLock lock(&mu_);
  ++work_signals_;
  work_arrived_.SignalAll();
}

void Engine::GetStats(EngineStats* stats) {
  *stats = EngineStats();
  EngineMetrics& metrics = stats->metrics;
  {
    MutexLock lock(&mu_);
    metrics += retired_;
  }
  for (const auto& runner : Runners()) {
    ++metrics.models;
    metrics.mapped_bytes += runner->loaded().mapped_bytes;
    metrics.expert_host_bytes += runner->loaded().info.experts.host_bytes;
    runner->AddMetrics(&metrics);
  }
  // An idle engine may have been woken to reclaim one while it was held here.
  WakeToReclaim();
  stats->memory = device_->memory_use();
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
