// FakeEngine: what the real engine does around a Scheduler, over a real prefix
// index and a fake cache (fake_kv.h), on a clock of its own. Every step checks
// the invariants, that the plan can be carried out, and that each item reads
// the KV of its own tokens.
#ifndef INLAY_TESTS_SCHED_FAKE_ENGINE_H_
#define INLAY_TESTS_SCHED_FAKE_ENGINE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sched/invariants.h"
#include "sched/scheduler.h"
#include "tests/sched/fake_kv.h"

namespace inlay {

// Blocks of 4 tokens; at most so many requests run, with so many tokens a step.
inline SchedulerConfig FakeConfig(int32_t running = 8, int32_t batch = 64) {
  SchedulerConfig config;
  config.groups[0].block_size = 4;
  config.max_batch_tokens = batch;
  config.max_running = running;
  return config;
}

// The requests of a step, in its order.
inline std::vector<RequestId> Ids(const StepPlan& plan) {
  std::vector<RequestId> ids;
  for (const StepItem& item : plan.items) ids.push_back(item.id);
  return ids;
}

struct FakeSession {
  KvTables tables;
  KvTables hold;  // blocks set aside for the next request
  PrefixCursors cursors;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> values;  // of each token's slot
  uint64_t salt = 0;
  RequestId request = 0;  // 0: none
  bool cancelled = false;
  struct Coming {
    size_t group;
    int64_t index;
    KvBlockKey key;
  };
  std::vector<Coming> coming;  // from the tier, the next one last
};

struct FakeOptions {
  int priority = 0;
  int64_t deadline_us = kNoDeadline;
  uint64_t share_key = 0;
  bool whole = false;
};

// What a run met, so that a test can tell whether it proved anything.
struct FakeCounts {
  int64_t steps = 0, preempted = 0, blocked = 0, copies = 0, chunks = 0;
  int64_t cancelled_in_step = 0, failed_items = 0, failed_steps = 0;
  int64_t finished = 0, expired = 0, peeks = 0, hits = 0;
  int64_t hit_tokens = 0, partial_hits = 0;
  int64_t loaded = 0, lost = 0, dropped_coming = 0, steps_beside_loads = 0;
  int64_t not_yet = 0;

  FakeCounts& operator+=(const FakeCounts& other);
};

class FakeEngine final : public KvOwner {
 public:
  FakeEngine(const SchedulerConfig& config, int32_t num_blocks)
      : kv(config.groups, num_blocks) {
    auto created = Scheduler::Create(config, &kv.pool, this);
    EXPECT_TRUE(created.ok()) << created.status();
    scheduler = *std::move(created);
  }

  SessionId AddSession(uint64_t salt = 0) {
    FakeSession session{KvTables(&kv.pool, kv.groups),
                        KvTables(&kv.pool, kv.groups),
                        PrefixCursors(kv.groups.size())};
    session.salt = salt;
    sessions.emplace(++last_session_, std::move(session));
    return last_session_;
  }
  // A session with the same tokens; what KV there is it finds in the index.
  SessionId Fork(SessionId id);
  void Rewind(SessionId id, size_t num_tokens);
  void Append(SessionId id, absl::Span<const int32_t> tokens);

  absl::Status TrySubmit(SessionId id, absl::Span<const int32_t> tokens,
                         int64_t max_new, const FakeOptions& options = {});
  RequestId SubmitTo(SessionId id, absl::Span<const int32_t> tokens,
                     int64_t max_new, const FakeOptions& options = {}) {
    const absl::Status status = TrySubmit(id, tokens, max_new, options);
    EXPECT_TRUE(status.ok()) << status;
    return last_request_;
  }
  // In a session of its own; of tokens that no other request has.
  RequestId Submit(int prompt, int64_t max_new,
                   const FakeOptions& options = {}) {
    return SubmitTo(AddSession(), NewTokens(prompt), max_new, options);
  }
  RequestId Submit(int prompt, int64_t max_new, int priority) {
    return Submit(prompt, max_new, FakeOptions{priority});
  }
  std::vector<int32_t> NewTokens(int count) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(--last_token_);
    return tokens;
  }

  // Outside a step the request's session is free at once; inside, the end of
  // the step sees to it.
  void Cancel(SessionId id);
  // Sets blocks for num_tokens tokens aside for the session's next request (in
  // the place of those that are), if there are as many.
  void SetHold(SessionId id, int num_tokens);
  // The memory lease changes, between steps. Requests preempted for it.
  int Resize(int32_t num_blocks);

  // A step, and the time it takes. An empty plan takes none.
  StepPlan Step();
  void StepUntilIdle(int most_steps = 20000) {
    while (scheduler->HasWork() && !::testing::Test::HasFailure()) {
      Step();
      ASSERT_GT(--most_steps, 0) << "requests do not end";
    }
  }

  // So many blocks come from the tier, if as many are to.
  void Load(int blocks);

  const SchedRequest* Find(RequestId id) const { return scheduler->Find(id); }
  SessionId SessionOf(RequestId id) const { return active_.at(id); }
  FakeSession& SessionWith(RequestId id) { return sessions.at(active_.at(id)); }

  // KvOwner.
  PrefixHit Peek(const SchedRequest& request) override;
  KvTaken Take(const SchedRequest& request, int64_t max_tokens) override;
  void Drop(const SchedRequest& request) override;

  FakeKv kv;
  std::unique_ptr<Scheduler> scheduler;
  std::map<SessionId, FakeSession> sessions;
  FakeCounts counts;

  int64_t now_us = 0;
  int64_t budget_us = 0;
  bool must_progress = true;
  bool decodes_only = false;
  std::function<double(const StepShape&)> machine = [](const StepShape&) {
    return 1000.0;
  };
  double last_step_us = 0;
  int32_t vocabulary = 1 << 30;  // of what is generated

  std::function<bool()> fails = [] { return false; };       // an item
  std::function<bool()> step_fails = [] { return false; };  // all of them
  bool faults = false;  // allocations may fail by injection
  // Blocks that come from the tier behind a step.
  std::function<int()> loads = [] { return 1; };
  // Whether the next of them has to be read first, and its request to wait.
  std::function<bool()> is_read = [] { return false; };
  // After the plan, and after the reservations for it.
  std::function<void()> after_plan = [] {};
  std::function<void()> after_reserve = [] {};
  std::function<void(RequestId)> on_end = [](RequestId) {};

 private:
  struct Work {
    FakeSession* session;
    StepItem item;
    KvTablesReservation reservation;
    size_t index;
  };

  absl::Span<const int32_t> TokensOf(const SchedRequest& request,
                                     int64_t count) const {
    return absl::MakeConstSpan(sessions.at(request.session_id).tokens)
        .first(static_cast<size_t>(count));
  }
  bool FitsAlone(const SchedRequest& request) const;
  bool WaitsForDecodes(const SchedRequest& request, const StepPlan& plan) const;
  void CheckPlan(const StepPlan& plan) const;
  std::vector<Work> Reserve(const StepPlan& plan,
                            std::vector<StepResult>* results);
  void Compute(Work* work);
  void ReadBack(const Work& work);
  void CommitItem(Work* work, StepResult* result);
  void EndRequest(RequestId id);
  KvMatch Look(uint64_t salt, absl::Span<const int32_t> tokens,
               bool whole) const;
  KvTaken BeginTake(const SchedRequest& request, int64_t max_tokens);
  void Retire(FakeSession* session);

  std::map<RequestId, SessionId> active_;
  SessionId last_session_ = 0;
  RequestId last_request_ = 0;
  int32_t last_token_ = 0;
  bool in_step_ = false;
  // During the plan: others could have had those blocks, had they known.
  bool hold_came_free_ = false;
};

}  // namespace inlay

#include "tests/sched/fake_engine_inl.h"

#endif  // INLAY_TESTS_SCHED_FAKE_ENGINE_H_
