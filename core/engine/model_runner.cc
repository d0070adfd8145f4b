#include "core/engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "memory/caught.h"
#include "memory/device/deferred_frees.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#include "sched/policy.h"

namespace inlay {
namespace {

absl::Status ClosedError() {
  return absl::UnavailableError("the engine was released");
}

// Without a budget of its own, a model's cache has room for a few full
// contexts, within a share of the machine that leaves others room.
constexpr uint64_t kDefaultContexts = 4;
constexpr uint64_t kMemoryShare = 4;

uint64_t DefaultKvBytes(const Device& device, uint64_t block_bytes,
                        uint64_t blocks_per_context) {
  return std::min<uint64_t>(block_bytes * blocks_per_context * kDefaultContexts,
                            device.info().memory_bytes / kMemoryShare);
}

// Of a step's block tables, made room for ahead: 16 MiB on the device.
constexpr int64_t kMostBlockEntries = int64_t{1} << 21;

// Of the first group all of it: what its window has passed, if it has one, may
// serve other sessions.
int64_t BlocksPerContext(int64_t max_context, const KvLayout& layout,
                         int64_t max_batch_tokens) {
  // States kept of what a sequence has passed: a rewind seldom goes further.
  constexpr int64_t kStates = 16;
  int64_t blocks = 0;
  for (const KvGroup& group : layout.groups()) {
    const int64_t most = group.window + max_batch_tokens +
                         (group.is_state ? kStates : 2) * group.block_size;
    const bool all = &group == layout.groups().data() && !group.is_state;
    blocks += KvBlocksFor(all ? max_context : std::min(max_context, most),
                          group.block_size);
  }
  return blocks;
}

// Tokens that one sequence can have in `num_blocks` blocks.
int64_t CapacityTokens(int64_t num_blocks, int64_t max_context,
                       const SchedulerConfig& config) {
  const KvGroup& first = config.groups.front();
  return MostKvTokens(
      num_blocks, first.is_state ? max_context : num_blocks * first.block_size,
      config);
}

// What the budget leaves of `bytes` at the moment.
uint64_t WithinBudget(const Device& device, uint64_t bytes) {
  const MemoryUse use = device.memory_use();
  if (use.budget_bytes == 0) return bytes;
  return std::min(
      bytes, use.budget_bytes - std::min(use.budget_bytes, use.total_bytes));
}

// A slow machine: the first steps within a time budget must not overrun it.
CostPrior Prior(const ModelInfo& info) {
  constexpr double kBytesPerUs = 2e3;
  constexpr double kFlopsPerUs = 5e3;
  CostPrior prior;
  prior.step_us =
      20.0 + static_cast<double>(info.weight_bytes_per_token) / kBytesPerUs;
  prior.token_us = 2.0 * static_cast<double>(info.num_parameters) / kFlopsPerUs;
  double pair_flops = 0;
  for (const KvLayerShape& layer : info.kv_layers) {
    // Latent attention's heads all read one row.
    const double heads = layer.value_dim > 0 ? 64.0 : 4.0 * layer.num_kv_heads;
    pair_flops += 4.0 * heads * layer.head_dim / layer.row_tokens;
  }
  prior.pair_us = pair_flops / kFlopsPerUs;
  return prior;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(
    const RunnerContext& context, std::shared_ptr<LoadedModel> loaded,
    const ModelOptions& options) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(context, std::move(loaded)));
  INLAY_RETURN_IF_ERROR(runner->Allocate(options.kv_budget_bytes));
  if (options.host_cache_bytes > 0) {
    INLAY_RETURN_IF_ERROR(runner->AddTier(options));
  }
  return runner;
}

ModelRunner::ModelRunner(const RunnerContext& context,
                         std::shared_ptr<LoadedModel> loaded)
    : context_(context), loaded_(std::move(loaded)) {}

ModelRunner::~ModelRunner() { Close(); }

absl::Status ModelRunner::Allocate(uint64_t kv_budget_bytes) {
  const Model& model = *loaded_->model;
  const KvLayout& layout = model.kv_layout();
  const auto max_tokens = int64_t{context_.scheduler.max_batch_tokens};
  Device& device = *context_.device;
  const uint64_t block_bytes = std::max<uint64_t>(layout.block_bytes(), 1);
  const auto blocks_per_context = static_cast<uint64_t>(
      BlocksPerContext(loaded_->max_context, layout, max_tokens));
  const int64_t max_running = context_.scheduler.max_running;
  const int64_t most_blocks =
      max_running * static_cast<int64_t>(blocks_per_context);
  // Scratch first: the cache then takes what the budget leaves.
  INLAY_ASSIGN_OR_RETURN(
      executor_, Executor::Create(&device, &model, context_.pool,
                                  {max_tokens, max_running,
                                   std::min(most_blocks, kMostBlockEntries)}));

  // Chosen here, it may grow when the budget does; given by the host, it must
  // be had now.
  const bool chosen = kv_budget_bytes == 0;
  if (chosen) {
    kv_budget_bytes =
        std::max(DefaultKvBytes(device, block_bytes, blocks_per_context),
                 KvCache::LeastBytes(device, layout));
  }
  const uint64_t now =
      chosen ? WithinBudget(device, kv_budget_bytes) : kv_budget_bytes;
  INLAY_ASSIGN_OR_RETURN(auto kv, KvCache::Create(&device, layout, now));
  MutexLock lock(&mu_);
  kv_ = std::move(kv);
  kv_budget_bytes_ = now;
  kv_target_bytes_ = std::max(kv_budget_bytes, kv_->bytes());
  INLAY_ASSIGN_OR_RETURN(scheduler_, NewScheduler());
  capacity_tokens_ = CapacityTokens(kv_->pool().num_total(),
                                    loaded_->max_context, scheduler_->config());
  const SchedulerConfig& config = scheduler_->config();
  // So that a step's bookkeeping cannot run out of memory.
  results_.reserve(static_cast<size_t>(config.max_running));
  batch_.items.reserve(static_cast<size_t>(config.max_running));
  return absl::OkStatus();
}

absl::Status ModelRunner::AddTier(const ModelOptions& options) {
  // A device of its own: the tier's bytes are granted apart from the engine's
  // memory budget.
  INLAY_ASSIGN_OR_RETURN(
      tier_device_,
      CreateCpuDevice(
          1, options.host_cache_bytes,
          context_.allocator.has_value() ? &*context_.allocator : nullptr));
  KvTierOptions tier;
  tier.block_size = loaded_->kv_layout.max_block_size();
  tier.block_bytes = loaded_->kv_layout.block_bytes();
  tier.host = tier_device_.get();
  tier.host_bytes = options.host_cache_bytes;
  tier.disk_folder = options.disk_cache_folder;
  tier.disk_bytes = options.disk_cache_bytes;
  const ModelFingerprint owner =
      FingerprintKv(loaded_->fingerprint, loaded_->kv_layout);
  tier.owner = {owner.high, owner.low};
  tier.file_ops = options.disk_cache_ops;
  tier.on_fetched = context_.on_work;
  INLAY_ASSIGN_OR_RETURN(auto created, KvTier::Create(tier));
  const std::string note = created->disk_note();
  if (!note.empty()) context_.log(LogLevel::kWarning, note);
  MutexLock lock(&mu_);
  kv_->SetTier(std::move(created));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Scheduler>> ModelRunner::NewScheduler() {
  SchedulerConfig config = context_.scheduler;
  config.groups = kv_->groups();
  config.cost_prior = Prior(loaded_->info);
  return Scheduler::Create(config, &kv_->pool(), this);
}

absl::StatusOr<Session*> ModelRunner::FindSession(SessionId id) {
  if (closed_) return ClosedError();
  const auto it = sessions_.find(id);
  if (it == sessions_.end() || it->second->released) {
    return InvalidHandleError("the session was released");
  }
  return it->second.get();
}

absl::StatusOr<Session*> ModelRunner::FindIdleSession(SessionId id) {
  INLAY_ASSIGN_OR_RETURN(Session * session, FindSession(id));
  if (session->active != 0) {
    return absl::FailedPreconditionError(
        "the session is busy: a request runs in it; wait for its end or cancel "
        "it");
  }
  if (session->restoring)
    return absl::FailedPreconditionError("the session is being restored");
  return session;
}

absl::StatusOr<SessionId> ModelRunner::CreateSession() {
  MutexLock lock(&mu_);
  if (closed_) return ClosedError();
  const SessionId id = context_.next_id->fetch_add(1);
  auto session = std::make_unique<Session>(id, kv_->NewSequence());
  if (!context_.prefix_sharing) session->isolation = id;
  sessions_.emplace(id, std::move(session));
  Record([&] { return CreateEntry{id}; });
  return id;
}

void ModelRunner::ReleaseSession(SessionId id) {
  MutexLock lock(&mu_);
  const auto it = sessions_.find(id);
  if (closed_ || it == sessions_.end()) return;
  Record([&] { return ReleaseEntry{id}; });
  Session& session = *it->second;
  session.released = true;
  if (session.active == 0) {
    EraseSession(id);
    scheduler_->Retry();  // it may have had blocks set aside
    return;
  }
  CancelRequest(*requests_.at(session.active));
}

void ModelRunner::CancelRequest(Request& request) {
  request.cancelled = true;
  static_cast<void>(scheduler_->Cancel(request.id));
  if (!request.in_flight) End(request);
}

void ModelRunner::EraseSession(SessionId id) {
  sessions_.erase(id);
  scheduler_->ForgetShare(id);
}

absl::StatusOr<SessionId> ModelRunner::Fork(SessionId id) {
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
  const SessionId fork_id = context_.next_id->fetch_add(1);
  auto fork = std::make_unique<Session>(fork_id, kv_->NewSequence());
  fork->log = session->log;
  fork->isolation = session->isolation;
  fork->is_long = session->is_long;
  fork->mark = session->mark;
  sessions_.emplace(fork_id, std::move(fork));
  Record([&] { return ForkEntry{id, fork_id}; });
  return fork_id;
}

absl::Status ModelRunner::Rewind(SessionId id, uint64_t num_tokens) {
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
  if (num_tokens > session->log.size()) {
    return absl::InvalidArgumentError(
        FormattedString("rewind to %d tokens, the session's log has %d",
                        num_tokens, session->log.size()));
  }
  session->log.resize(num_tokens);
  session->mark.CutTo(num_tokens);
  Record([&] { return RewindEntry{id, num_tokens}; });
  return absl::OkStatus();
}

absl::StatusOr<SessionInfo> ModelRunner::GetSessionInfo(SessionId id) {
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(Session * session, FindSession(id));
  const bool busy = session->active != 0;
  const int64_t cached =
      busy ? session->kv.NumThere(kv_->groups())
           : kv_->Find(session->salt(), session->log).num_tokens;
  return SessionInfo{busy, session->log.size(), static_cast<uint64_t>(cached)};
}

absl::StatusOr<std::vector<int32_t>> ModelRunner::Tokens(SessionId id) {
  MutexLock lock(&mu_);
  INLAY_ASSIGN_OR_RETURN(Session * session, FindSession(id));
  return session->log;
}

absl::Status ModelRunner::Cancel(RequestId id) {
  MutexLock lock(&mu_);
  if (closed_) return ClosedError();
  const auto it = requests_.find(id);
  if (it == requests_.end()) return absl::OkStatus();
  Record([&] { return CancelEntry{id}; });
  CancelRequest(*it->second);
  return absl::OkStatus();
}

bool ModelRunner::HasWork() {
  MutexLock lock(&mu_);
  return !closed_ && scheduler_->HasWork();
}

bool ModelRunner::HasRequests() {
  MutexLock lock(&mu_);
  return !closed_ && !scheduler_->empty();
}

void ModelRunner::CountTier(const KvTierStats& tier) {
  const uint64_t block_bytes = kv_->block_bytes();
  metrics_.tier_host_used_bytes = tier.host_bytes;
  metrics_.tier_disk_used_bytes = tier.disk_bytes;
  metrics_.tier_host_peak_bytes = tier.host_peak_bytes;
  metrics_.tier_host_budget_bytes = tier.host_limit_bytes;
  metrics_.tier_disk_budget_bytes = tier.disk_limit_bytes;
  metrics_.tier_host_hit_blocks = tier.host_hits;
  metrics_.tier_disk_hit_blocks = tier.disk_hits;
  metrics_.tier_host_read_bytes = tier.host_hits * block_bytes;
  metrics_.tier_disk_read_bytes =
      (tier.disk_hits + tier.promotions) * block_bytes;
  metrics_.tier_host_written_bytes = tier.puts * block_bytes;
  metrics_.tier_disk_written_bytes = tier.demotions * block_bytes;
}

void ModelRunner::AddMetrics(EngineMetrics* sum) {
  MutexLock lock(&mu_);
  if (!closed_) {
    const KvBlockPool& pool = kv_->pool();
    metrics_.sessions = sessions_.size() - NumWarming();
    metrics_.requests_running = scheduler_->num_running();
    metrics_.requests_waiting = scheduler_->num_waiting();
    metrics_.kv_blocks_total = static_cast<uint64_t>(pool.num_total());
    metrics_.kv_blocks_used = static_cast<uint64_t>(pool.num_used());
    metrics_.kv_blocks_cached =
        static_cast<uint64_t>(kv_->index().num_blocks());
    metrics_.kv_blocks_evictable = static_cast<uint64_t>(pool.num_evictable());
    metrics_.evicted_blocks = kv_->index().num_reclaimed();
    if (kv_->tier() != nullptr) CountTier(kv_->tier()->stats());
  }
  *sum += metrics_;
}

void ModelRunner::Close() {
  while (CloseSome(/*waits=*/true) != Closing::kClosed) {
  }
}

ModelRunner::Closing ModelRunner::CloseSome(bool waits) {
  if (const auto recorder = TakeRecorder(); recorder != nullptr) {
    // Without memory nobody hears of it: the rest must be closed all the same.
    static_cast<void>(Caught([&] {
      const absl::Status recorded = recorder->Finish();
      if (!recorded.ok()) context_.log(LogLevel::kWarning, recorded.ToString());
      return absl::OkStatus();
    }));
  }
  MutexLock lock(&mu_);
  DeferredFrees* const frees = DeferredFrees::Of(tier_device_.get());
  const DeferredFrees::Scope scope(waits ? nullptr : frees);
  if (!closed_ || scheduler_ != nullptr) {
    EndAllForClose();
    return Closing::kMore;
  }
  if (kv_ != nullptr) {
    // What is on disk serves the next run.
    if (kv_->FlushSome(waits))
      return kv_->is_flushing() ? Closing::kWaits : Closing::kMore;
    INLAY_DCHECK(kv_->num_held() == 0);
    if (!waits && kv_->DropSome()) return Closing::kMore;
    kv_.reset();
    executor_.reset();
    return Closing::kMore;
  }
  if (!waits && frees != nullptr && frees->FreeSome()) return Closing::kMore;
  // The weights go with the last runner on them; with pages of mapped files
  // still there, unmapping those would take long.
  if (loaded_.use_count() == 1 && loaded_->model != nullptr) {
    if (waits || !loaded_->model->LeaveSomePages(&pages_left_)) {
      loaded_->model.reset();
    }
    return Closing::kMore;
  }
  return Closing::kClosed;
}

void ModelRunner::EndAllForClose() {
  DropAhead();
  while (!requests_.empty()) {
    Request& request = *requests_.begin()->second;
    request.cancelled = true;
    static_cast<void>(scheduler_->Cancel(request.id));
    End(request);
  }
  closed_ = true;
  if (kv_ != nullptr) metrics_.evicted_blocks = kv_->index().num_reclaimed();
  metrics_.ClearGauges();
  sessions_.clear();
  prefixes_.clear();
  scheduler_.reset();
}

}  // namespace inlay
