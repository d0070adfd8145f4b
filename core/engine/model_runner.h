// ModelRunner: the sessions and requests of one loaded model, its KV cache, and
// the step that serves them. Knows nothing of the C ABI, other models or
// threads that drive it.
#ifndef INLAY_CORE_ENGINE_MODEL_RUNNER_H_
#define INLAY_CORE_ENGINE_MODEL_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/engine/ahead_step.h"
#include "core/engine/event_queue.h"
#include "core/engine/executor.h"
#include "core/engine/kv_cache.h"
#include "core/engine/load_pace.h"
#include "core/engine/loaded_model.h"
#include "core/engine/log.h"
#include "core/engine/metrics.h"
#include "core/engine/named_prefix.h"
#include "core/engine/recording.h"
#include "core/engine/replay.h"
#include "core/engine/request.h"
#include "core/engine/snapshot.h"
#include "core/engine/step_batch.h"
#include "core/engine/trace.h"
#include "memory/device/device.h"
#include "memory/mutex.h"
#include "sched/kv_owner.h"
#include "sched/scheduler.h"

namespace inlay {

// What several runners of an engine share; outlives them.
struct RunnerContext {
  Device* device = nullptr;
  ThreadPool* pool = nullptr;  // where the device has none of its own
  EventQueue* events = nullptr;
  std::atomic<uint64_t>* next_id = nullptr;  // of sessions and requests
  TraceRecorder* trace = nullptr;
  uint32_t trace_model = 0;       // tells models apart in the trace
  std::function<void()> on_work;  // called when there is work to step
  SchedulerConfig scheduler;      // groups and prior: the model's
  bool prefix_sharing = true;     // between sessions
  std::optional<HostAllocator> allocator;
  Log log;
};

struct SessionInfo {
  bool busy = false;
  uint64_t num_tokens = 0;
  uint64_t num_cached = 0;
};

struct RequestQuote {
  uint64_t prompt_tokens = 0;   // of the input and the log before it
  uint64_t cached_tokens = 0;   // of these, not to be computed
  uint64_t kv_bytes = 0;        // that the sequence comes to hold
  uint64_t new_kv_bytes = 0;    // of these, not shared with the cache
  uint64_t first_token_us = 0;  // estimate, behind what is queued now
  bool fits = false;            // in the cache, if nothing else were there
  bool fits_now = false;        // beside what runs
  bool reserved = false;
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
      const RunnerContext& context, std::shared_ptr<LoadedModel> loaded,
      const ModelOptions& options);
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
  // What the request would need if it were submitted now. With `reserve`,
  // blocks for all of it are set aside until the session's next request begins,
  // or its next quote, or its release, or the cache has to shrink.
  // RESOURCE_EXHAUSTED: they are not to be had.
  absl::StatusOr<RequestQuote> Quote(SessionId id, RequestOptions options,
                                     bool reserve);
  // The session as bytes (snapshot.h) and back, as a session of its own.
  // INVALID_STATE while a request runs in it.
  absl::Status Save(SessionId id, ByteSink sink);
  struct Restored {
    SessionId session = 0;
    uint64_t num_tokens = 0;
    uint64_t num_kv_tokens = 0;  // of these, tokens that need not be computed
    std::string note;            // why not all; empty otherwise
  };
  absl::StatusOr<Restored> Restore(absl::Span<const std::byte> snapshot);
  // OK also when it has ended.
  absl::Status Cancel(RequestId id);

  // Named prefixes (named_prefix.h). `input`: text, tokens or chat.
  // RESOURCE_EXHAUSTED: a pinned one does not fit its budget or the cache.
  absl::StatusOr<PrefixId> CreatePrefix(std::string name, RequestOptions input,
                                        bool pin, uint64_t budget_bytes,
                                        SteadyTime now = Now());
  // One more holder of the prefix; ReleasePrefix() by each.
  absl::StatusOr<PrefixId> RetainPrefix(std::string_view name);
  absl::Status PinPrefix(PrefixId id, bool pinned, SteadyTime now = Now());
  absl::StatusOr<PrefixInfo> GetPrefixInfo(PrefixId id);
  absl::StatusOr<SessionId> OpenPrefix(PrefixId id);
  void ReleasePrefix(PrefixId id);

  // Ends every request with `why`: nothing can be computed any more.
  void EndAll(const absl::Status& why);

  bool HasWork();
  // Also those that nothing can be done for now.
  bool HasRequests();
  // Whether the last step left a block of KV for later that a disk has alone;
  // context.on_work tells when it is here.
  bool WaitsForDisk();
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
  // none is lost. Only between steps. Shrinking ends after the first piece that
  // is over at `until` or later.
  enum class Resized : uint8_t { kDone, kNoMemory, kNoTime };
  Resized ResizeKv(uint64_t bytes, SteadyTime until = SteadyTime::max());

  // Everything that comes in and every step goes into a recording at `path`
  // until StopRecording() or Close(): recording.h. It begins with an empty
  // cache and with nothing learned of what steps take. FAILED_PRECONDITION: it
  // records already, requests run, KV is set aside, a prefix is pinned, or
  // there is a lower tier.
  absl::Status StartRecording(const std::string& path);
  // Not OK: why the recording ended before, or cannot be read to its end.
  absl::Status StopRecording();
  // Serves the recording at `path` again, in a runner made as the recorded one
  // was, with this one's weights: replay.h. One at a time, and not beside
  // Step(). `go_on` is asked before each entry; UNAVAILABLE where it says no.
  absl::StatusOr<ReplayReport> Replay(const std::string& path,
                                      const std::function<bool()>& go_on) const;

  // Adds this model's metrics (not those that the engine has of all) to `sum`.
  void AddMetrics(EngineMetrics* sum);
  // Ends every request and frees the KV cache and the weights.
  void Close();
  // The same in pieces, most of them of a millisecond or less; mapped weight
  // files, a tokenizer and the index of what is cached go in one each. What
  // they let go of is large: the device's frees are to be deferred meanwhile
  // (memory/device/deferred_frees.h). With `waits` it waits for disks, too.
  enum class Closing : uint8_t {
    kMore,
    kWaits,  // for a disk; context.on_work tells when that is over
    kClosed
  };
  Closing CloseSome(bool waits);

 private:
  friend class Replayer;  // a runner's steps, one part at a time

  ModelRunner(const RunnerContext& context,
              std::shared_ptr<LoadedModel> loaded);
  absl::Status Allocate(uint64_t kv_budget_bytes);
  absl::Status AddTier(const ModelOptions& options);

  // Submit's parts.
  absl::Status Tokenize(RequestOptions& options, bool session_is_empty) const;
  absl::Status TokenizePair(const Tokenizer& tokenizer,
                            RequestOptions& options) const;
  absl::Status ChoosePooling(RequestOptions& options) const;
  absl::Status ChooseActivation(RequestOptions& options) const;
  absl::Status CheckTypes(const RequestOptions& options) const;
  absl::Status CheckEmbedding(const RequestOptions& options) const;
  absl::Status Check(const RequestOptions& options) const;
  absl::StatusOr<Sampler> Prepare(SessionId id, RequestOptions& options);
  // The log a request would make, and what follows from it.
  struct Draft {
    std::vector<int32_t> log;
    int64_t prompt_begin = 0;
    int64_t max_new_tokens = 0;
    int64_t first_wanted = 0;
    bool is_long = false;
  };
  int64_t UnlimitedTokens() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Draft> MakeDraft(const Session& session,
                                  const RequestOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether there is a generation to go on with, if that is asked.
  static absl::Status CheckResume(const Session& session,
                                  const RequestOptions& options);
  absl::Status SetAside(const SchedRequest& entry, KvSequence& hold)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HoldsAll(const KvSequence& hold, const SchedRequest& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  SchedRequest MakeEntry(Session& session, const Draft& draft,
                         const RequestOptions& options, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `sampler` is shown the log that the request starts from.
  absl::StatusOr<RequestId> Admit(Session& session, RequestOptions&& options,
                                  Sampler&& sampler, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Named prefixes' parts.
  absl::StatusOr<PrefixId> AddPrefix(std::string name, RequestOptions input,
                                     bool pin, uint64_t budget_bytes,
                                     SteadyTime now);
  absl::StatusOr<NamedPrefix*> FindPrefix(PrefixId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sees to it that the prefix is computed and held.
  absl::Status Warm(NamedPrefix& prefix, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t BytesOf(const NamedPrefix& prefix) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t NumWarming() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WarmPrefixes(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnWarmed(PrefixId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False when it is not all computed.
  bool HoldPrefix(NamedPrefix& prefix) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void JudgeTier() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropHolds() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ResizeKv(), or a piece of it.
  void Resize(uint64_t bytes, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // KvOwner, called by the scheduler while it plans.
  PrefixHit Peek(const SchedRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  KvTaken Take(const SchedRequest& request, int64_t max_tokens) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(const SchedRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::StatusOr<std::unique_ptr<Scheduler>> NewScheduler()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Save's parts: what there is of the snapshot's KV, and its bytes.
  std::vector<KvCache::Located> FindKv(uint64_t salt, SessionSnapshot& snapshot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CopyKv(uint64_t salt, SessionSnapshot& snapshot,
                      std::vector<std::byte>& kv);
  // A snapshot's blocks, some of them copied.
  struct KvCopy {
    // Now they are `found`, of which those that were copied stay so.
    void Keep(std::vector<KvCache::Located> found,
              const SessionSnapshot& snapshot);

    std::vector<KvCache::Located> blocks;
    std::vector<int> used;  // slots of each that are the session's
    std::vector<bool> copied;
    std::vector<std::byte> bytes;  // of all blocks, one after another
  };
  // Those that are not copied yet. False: one is not there any more.
  absl::StatusOr<bool> CopyInPieces(const SessionSnapshot& snapshot,
                                    KvCopy& copy);
  absl::StatusOr<bool> CopyBlocks(const SessionSnapshot& snapshot, KvCopy& copy,
                                  size_t begin, size_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A session on its way back: blocks are set aside for as much of its KV as
  // there is room for and is not cached yet (Session::hold), and filled.
  struct Restoring {
    RestoredSession from;
    SessionId session = 0;
    struct Place {
      size_t group = 0;
      int64_t index = 0;
    };
    std::vector<Place> places;  // of those blocks
  };
  absl::StatusOr<Restoring> DecodeSession(
      absl::Span<const std::byte> snapshot) const;
  Session& BeginRestore(Restoring& restoring)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of what is not cached yet.
  int64_t BlocksToRestore(const Restoring& restoring,
                          const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Evicts a few of what stands in the way of that many; whether more must go.
  bool MakeRoom(int64_t blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Otherwise all of the KV or none.
  bool RestoresInPart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetAside(Restoring& restoring, Session& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: the blocks were taken back, or cannot be written.
  bool WriteInPieces(const Restoring& restoring);
  bool WriteBlocks(const Restoring& restoring, size_t begin, size_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How many tokens' KV can be found then.
  int64_t EndRestore(Session& session, bool written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Full blocks of the session can be found by others.
  void PublishKv(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The session's KV goes to the cache, under what its log says.
  void RetireKv(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<KvBlockTable*> HeldTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes blocks back from sessions being restored, which come with less then.
  // Whether there were any.
  bool DropRestoring() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  bool StepSilently(const StepLimits& limits, StepInfo* info);
  void LogFailures();
  // When a step's phases ended.
  struct StepTimes {
    SteadyTime begin, planned, reserved, forwarded, sampled, committed;
  };
  // Step's parts, in order.
  absl::Status Plan(const PlanInput& input) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReserveAndBuild() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Forward();
  // `samples`: the device does, if it can do all that is wanted.
  absl::Status QueueBatch(bool samples);
  absl::Status Sample(StepInfo& info);
  absl::Status TakeDeviceTokens();
  absl::Status SampleRows(int64_t begin, int64_t count);
  absl::Status PoolRows(int64_t begin, int64_t count);
  // BatchItem::pooled of those whose last token is in the batch.
  absl::Status FinishPools();
  // What `head` makes of their pooled states, in their place.
  absl::Status HeadsOfPooled(Executor::PooledHead head,
                             absl::Span<BatchItem* const> items);
  absl::Status SampleRow(LogitRow& row, absl::Span<float> logits);
  // The step ahead (step_ahead.cc). Whether one may be queued behind the batch,
  bool MayGoAhead(const StepLimits& limits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ... and which; none where blocks are short or a request has to see its
  // token first.
  void PlanAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Its blocks are the scheduler's to plan with, as if it were not; whether
  // there is one.
  bool ReleaseAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the batch is what was queued; if not, waits until that is over.
  void TakeAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until it is over, and forgets it.
  void DropAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitForAhead();
  // Waits while blocks are written to for nobody, without the mutex. One that
  // ends afterwards is waited for with it.
  void WaitForEndedAhead();
  // KV on its way from a tier (step_load.cc). Less for the step that is to be
  // planned where a block is due. `fetched`: the last step left one that a disk
  // had. False: it is still on its way, and has no time left for it.
  bool LeaveTimeToLoad(bool fetched, PlanInput& input) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Brings some of it, at the end of the step that began then, unless it has
  // none of its time left; whether any came. No plan may be in flight.
  // `in_time`: what LeaveTimeToLoad() gave.
  bool Load(const StepLimits& limits, SteadyTime begin, bool in_time)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double LoadingEndsUs(const StepLimits& limits, double elapsed_us) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  enum class Came : uint8_t {
    kBlock,
    kOther,   // not from below: what is missing was looked for anew
    kNotYet,  // it has to be read from a disk first
    kNoRoom
  };
  Came LoadBlock(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // At most most_tokens are to come.
  void LookAgain(Request& request, int64_t most_tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetComing(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountStep(const StepTimes& times, const StepLimits& limits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CommitItems(const absl::Status& executed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // elapsed_us: as Scheduler::Commit().
  void CommitPlan(double elapsed_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StepResult CommitItem(BatchItem& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static StepResult Fail(Request& request, const absl::Status& status);
  bool TakeToken(Request& request, const SampleResult& sample)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EmitClassification(const Request& request,
                                  std::vector<float> logits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmitRows(BatchItem& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Event MakeEvent(const Request& request, EventKind kind) const;
  // Ends it, at once or with the step that it is in.
  void CancelRequest(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Emits what is left of its output and its end, and forgets it. Never throws.
  void End(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountTier(const KvTierStats& tier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnStarted(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountEnd(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmitEnd(Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends every request with `why` and starts over with a new scheduler: what is
  // left when planning itself failed.
  void StartOver(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // CloseSome()'s first piece.
  void EndAllForClose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // With its share of the engine, where that is its own.
  void EraseSession(SessionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Session*> FindSession(SessionId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Session*> FindIdleSession(SessionId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives what `make` returns to the recorder, if there is one.
  template <typename Make>
  void Record(const Make& make) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (recorder_ != nullptr) recorder_->WriteMade(make);
  }
  absl::Status CheckRecordable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordWhatIsThere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  CommitEntry RecordedCommit(double elapsed_us) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Outside the mutex: files are written, and the log is the host's.
  void FlushRecording(Recorder* recorder) const;
  std::shared_ptr<Recorder> TakeRecorder();
  void CheckInvariantsInDebug() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RunnerContext context_;
  const std::shared_ptr<LoadedModel> loaded_;  // a replay's runner shares it
  int64_t capacity_tokens_ = 0;

  std::unique_ptr<Device> tier_device_;  // the tier's memory; outlives kv_
  uint64_t pages_left_ = 0;              // bytes of files; CloseSome()'s own

  // The stepping thread's own: not touched by other calls.
  std::unique_ptr<Executor> executor_;
  StepBatch batch_;
  // Queued behind the batch; of Release() and Place() the pool is mu_'s.
  AheadStep ahead_;
  bool ahead_lost_ = false;           // it must not be taken
  bool is_taken_ = false;             // the batch was queued ahead,
  std::vector<int32_t> device_rows_;  // as these rows

  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // Declared before what refers to it: tables and the scheduler go first.
  // Its base() is also read by the stepping thread, while nothing changes it.
  std::unique_ptr<KvCache> kv_;
  uint64_t kv_budget_bytes_ = 0;  // it was made with
  uint64_t kv_target_bytes_ = 0;  // it came to
  std::unique_ptr<Scheduler> scheduler_ ABSL_GUARDED_BY(mu_);
  // In the order they came, so that a recording replays what goes over all.
  std::map<SessionId, std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_
      ABSL_GUARDED_BY(mu_);
  std::map<PrefixId, std::unique_ptr<NamedPrefix>> prefixes_
      ABSL_GUARDED_BY(mu_);
  StepPlan plan_ ABSL_GUARDED_BY(mu_);
  std::vector<StepResult> results_ ABSL_GUARDED_BY(mu_);
  EngineMetrics metrics_ ABSL_GUARDED_BY(mu_);
  LoadPace load_pace_ ABSL_GUARDED_BY(mu_);
  bool fetches_ ABSL_GUARDED_BY(mu_) = false;  // as of the last step
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mu_);  // to be logged
  // Null: nothing is recorded. Shared with who flushes it.
  std::shared_ptr<Recorder> recorder_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_MODEL_RUNNER_H_
