// ModelRunner: the sessions and requests of one loaded model, its KV cache, and
// the step that serves them. Knows nothing of the C ABI, other models or
// threads that drive it.
#ifndef INLAY_CORE_ENGINE_MODEL_RUNNER_H_
#define INLAY_CORE_ENGINE_MODEL_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/engine/event_queue.h"
#include "core/engine/kv_cache.h"
#include "core/engine/loaded_model.h"
#include "core/engine/log.h"
#include "core/engine/request.h"
#include "core/engine/step_batch.h"
#include "memory/device/device.h"
#include "memory/mutex.h"
#include "sched/kv_owner.h"
#include "sched/scheduler.h"

namespace inlay {

// What several runners of an engine share; outlives them.
struct RunnerContext {
  Device* device = nullptr;
  EventQueue* events = nullptr;
  std::atomic<uint64_t>* next_id = nullptr;  // of sessions and requests
  std::function<void()> on_work;  // called when there is work to step
  SchedulerConfig scheduler;      // block_size, window and prior: the model's
  bool prefix_sharing = true;     // between sessions
  Log log;
};

struct SessionInfo {
  bool busy = false;
  uint64_t num_tokens = 0;
  uint64_t num_cached = 0;
};

struct RunnerStats {
  uint64_t sessions = 0, running = 0, waiting = 0;
  uint64_t submitted = 0, finished = 0, cancelled = 0, failed = 0;
  uint64_t preemptions = 0, evictions = 0;
  uint64_t steps = 0, step_us = 0, schedule_us = 0;
  uint64_t prefill_tokens = 0, decode_tokens = 0;
  uint64_t kv_blocks_total = 0;
  uint64_t kv_blocks_used = 0;    // held by requests, prefixes, reservations
  uint64_t kv_blocks_cached = 0;  // held by nobody, and still of use
  uint64_t lookup_tokens = 0;     // of requests that began
  uint64_t hit_tokens = 0;        // of these, found in the cache

  RunnerStats& operator+=(const RunnerStats& other);
};

// What a step may take.
struct StepLimits {
  uint64_t budget_us = 0;     // 0: no limit
  bool must_progress = true;  // if even the least does not fit the budget
};

struct StepInfo {
  uint64_t predicted_us = 0;  // what the steps were expected to take
  uint32_t requests = 0;
  uint32_t prefill_tokens = 0;
  uint32_t decode_tokens = 0;
  uint32_t sampled_tokens = 0;
};

// Thread-safe, but that one thread at a time may be in Step(). Other calls
// never wait for a forward pass: the mutex is free while one runs. After
// Close() all give UNAVAILABLE.
class ModelRunner final : private KvOwner {
 public:
  // Allocates the KV cache and scratch. RESOURCE_EXHAUSTED names the bytes.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(
      const RunnerContext& context, std::unique_ptr<LoadedModel> loaded,
      uint64_t kv_budget_bytes);
  ~ModelRunner() override;

  const LoadedModel& loaded() const { return *loaded_; }
  int64_t kv_capacity_tokens() const { return capacity_tokens_; }

  absl::StatusOr<SessionId> CreateSession();
  void ReleaseSession(SessionId id);
  absl::StatusOr<SessionId> Fork(SessionId id);
  absl::Status Rewind(SessionId id, uint64_t num_tokens);
  absl::StatusOr<SessionInfo> GetSessionInfo(SessionId id);
  absl::StatusOr<std::vector<int32_t>> Tokens(SessionId id);

  // Text and chat are tokenised before the mutex is taken.
  absl::StatusOr<RequestId> Submit(SessionId id, RequestOptions options);
  // OK also when it has ended.
  absl::Status Cancel(RequestId id);

  bool HasWork();
  // Also those that nothing can be done for now.
  bool HasRequests();
  // One step: plan, reserve, build batch, forward, sample, commit, emit. False
  // when there was nothing to do, or no time for it.
  bool Step(const StepLimits& limits, StepInfo* info);

  // Memory of the KV cache: what it has, what it was made with, and the least
  // that it can be brought to.
  struct KvMemory {
    uint64_t bytes = 0;
    uint64_t target_bytes = 0;
    uint64_t extent_bytes = 0;
  };
  KvMemory kv_memory();
  // Brings the cache to at most `bytes`, and to that if the device has the
  // memory. What is cached goes first, then running requests are preempted;
  // none is lost. Only between steps.
  void ResizeKv(uint64_t bytes);

  RunnerStats stats();
  // Ends every request and frees the KV cache and the weights.
  void Close();

 private:
  ModelRunner(const RunnerContext& context,
              std::unique_ptr<LoadedModel> loaded);
  absl::Status Allocate(uint64_t kv_budget_bytes);

  // Submit's parts.
  absl::Status Tokenize(RequestOptions& options, bool session_is_empty) const;
  absl::Status Check(const RequestOptions& options) const;
  absl::StatusOr<RequestId> Admit(Session& session, RequestOptions&& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // KvOwner, called by the scheduler while it plans.
  PrefixHit Peek(const SchedRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t Take(const SchedRequest& request, int64_t max_tokens) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(const SchedRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::StatusOr<std::unique_ptr<Scheduler>> NewScheduler()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Full blocks of the session can be found by others.
  void PublishKv(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The session's KV goes to the cache, under what its log says.
  void RetireKv(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<KvBlockTable*> HeldTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Step's parts, in order.
  absl::Status Plan(const PlanInput& input) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReserveAndBuild() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Forward();
  absl::Status Sample(StepInfo& info);
  absl::Status SampleRow(LogitRow& row, absl::Span<float> logits);
  void Commit(const absl::Status& executed, SteadyTime begin)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StepResult CommitItem(BatchItem& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static StepResult Fail(Request& request, const absl::Status& status);
  bool TakeToken(Request& request, const SampleResult& sample)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmitRows(BatchItem& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Event MakeEvent(const Request& request, EventKind kind) const;
  // Emits what is left of its output and its end, and forgets it. Never throws.
  void End(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmitEnd(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends every request with `why` and starts over with a new scheduler: what is
  // left when planning itself failed.
  void StartOver(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Session*> FindSession(SessionId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Session*> FindIdleSession(SessionId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckInvariantsInDebug() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RunnerContext context_;
  const std::unique_ptr<LoadedModel> loaded_;
  int64_t capacity_tokens_ = 0;

  // The stepping thread's own: not touched by other calls.
  std::unique_ptr<Stream> stream_;
  Buffer workspace_;
  Buffer hidden_;  // [max_batch_tokens, hidden_size] float32
  Buffer logits_;  // [kLogitSlice, vocab_size] float32
  StepBatch batch_;

  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // Declared before what refers to it: tables and the scheduler go first.
  // Its base() is also read by the stepping thread, while nothing changes it.
  std::unique_ptr<KvCache> kv_;
  uint64_t kv_target_bytes_ = 0;
  std::unique_ptr<Scheduler> scheduler_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<SessionId, std::unique_ptr<Session>> sessions_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_
      ABSL_GUARDED_BY(mu_);
  StepPlan plan_ ABSL_GUARDED_BY(mu_);
  std::vector<StepResult> results_ ABSL_GUARDED_BY(mu_);
  RunnerStats stats_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mu_);  // to be logged
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_MODEL_RUNNER_H_
