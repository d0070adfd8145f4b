// FakeEngine: what the real engine does around a Scheduler, with a device that
// stores one number a KV slot. Every step checks the invariants, that the plan
// can be carried out, and that each item reads back its own tokens.
#ifndef INLAY_TESTS_SCHED_FAKE_ENGINE_H_
#define INLAY_TESTS_SCHED_FAKE_ENGINE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/reservation.h"
#include "sched/invariants.h"
#include "sched/scheduler.h"

namespace inlay {

struct FakeSession {
  KvBlockTable table;
  std::vector<int> tokens;
  RequestId request = 0;  // 0: none
  bool cancelled = false;
};

// What a run met, so that a test can tell whether it proved anything.
struct FakeCounts {
  int64_t steps = 0, preempted = 0, evicted = 0, blocked = 0, copies = 0;
  int64_t cancelled_in_step = 0, failed_items = 0, chunks = 0, finished = 0;
};

class FakeEngine {
 public:
  FakeEngine(const SchedulerConfig& config, int32_t num_blocks)
      : pool(num_blocks),
        slots_(static_cast<size_t>(num_blocks) *
               static_cast<size_t>(config.block_size)) {
    auto created = Scheduler::Create(config, &pool);
    EXPECT_TRUE(created.ok()) << created.status();
    scheduler = *std::move(created);
  }

  SessionId AddSession() {
    sessions.emplace(
        ++last_session_,
        FakeSession{KvBlockTable(&pool, scheduler->config().block_size), {}});
    return last_session_;
  }

  // A new idle session with the tokens of `id` whose KV is there.
  SessionId Fork(SessionId id) {
    const FakeSession& from = sessions.at(id);
    KvBlockTable table = from.table.Fork();
    const auto end = from.tokens.begin() + table.num_tokens();
    sessions.emplace(++last_session_,
                     FakeSession{std::move(table), {from.tokens.begin(), end}});
    scheduler->SetIdle(last_session_, &sessions.at(last_session_).table);
    return last_session_;
  }

  void Rewind(SessionId id, size_t num_tokens) {
    FakeSession& session = sessions.at(id);
    session.tokens.resize(std::min(session.tokens.size(), num_tokens));
    session.table.Truncate(static_cast<int64_t>(session.tokens.size()));
  }

  void Destroy(SessionId id) {
    scheduler->Remove(id);
    sessions.erase(id);
  }

  absl::Status TrySubmit(SessionId id, int prompt, int64_t max_new,
                         int priority = 0) {
    FakeSession& session = sessions.at(id);
    for (int i = 0; i < prompt; ++i) session.tokens.push_back(++last_token_);
    const auto total = static_cast<int64_t>(session.tokens.size());
    session.table.Truncate(total - 1);
    SchedRequest request;
    request.id = ++last_request_;
    request.session_id = id;
    request.priority = priority;
    request.num_tokens_total = total;
    request.num_computed = session.table.num_tokens();
    request.max_new_tokens = max_new;
    request.table = &session.table;
    const absl::Status status = scheduler->Submit(request);
    if (status.ok()) session.request = request.id;
    return status;
  }

  RequestId SubmitTo(SessionId id, int prompt, int64_t max_new,
                     int priority = 0) {
    const absl::Status status = TrySubmit(id, prompt, max_new, priority);
    EXPECT_TRUE(status.ok()) << status;
    return last_request_;
  }
  // In a session of its own.
  RequestId Submit(int prompt, int64_t max_new, int priority = 0) {
    return SubmitTo(AddSession(), prompt, max_new, priority);
  }

  SessionId SessionOf(RequestId request) const {
    for (const auto& [id, session] : sessions) {
      if (session.request == request) return id;
    }
    return 0;
  }

  // Outside a step the session is idle at once; inside, the end of the step
  // sees to it.
  void Cancel(SessionId id) {
    FakeSession& session = sessions.at(id);
    EXPECT_TRUE(scheduler->Cancel(session.request).ok());
    session.cancelled = true;
    if (in_step_) {
      ++counts.cancelled_in_step;
    } else {
      EndRequest(id);
    }
  }

  // A step in which `fails(item)` items come to nothing. The hooks run after
  // the plan is carried out as far as clearing goes, and after the
  // reservations.
  StepPlan Step();

  KvBlockPool pool;
  std::unique_ptr<Scheduler> scheduler;
  std::map<SessionId, FakeSession> sessions;
  std::function<bool()> fails = [] { return false; };
  bool faults = false;  // allocations may fail by injection
  FakeCounts counts;
  std::function<void()> after_plan = [] {};
  std::function<void()> after_reserve = [] {};

 private:
  struct Work {
    SessionId session;
    StepItem item;
    KvReservation reservation;
    size_t index;
  };

  int& Slot(int32_t block, int64_t position) {
    const int64_t size = scheduler->config().block_size;
    return slots_[static_cast<size_t>(block * size + position % size)];
  }

  void ClearWhatThePlanTakes(const StepPlan& plan) {
    for (RequestId id : plan.preempted)
      sessions.at(SessionOf(id)).table.Clear();
    for (SessionId id : plan.evicted_sessions) {
      EXPECT_EQ(sessions.at(id).request, 0u)
          << "only idle sessions are evicted";
      sessions.at(id).table.Clear();
    }
  }

  void CheckFirstInRankGetsOn(const StepPlan& plan) const {
    if (!scheduler->HasWork()) return;
    ASSERT_FALSE(scheduler->queues().running().empty())
        << "work, and nobody runs";
    const RequestId first = scheduler->queues().running().front()->request.id;
    const bool planned =
        std::any_of(plan.items.begin(), plan.items.end(),
                    [&](const StepItem& i) { return i.id == first; });
    EXPECT_TRUE(planned) << "the first in rank must get on";
  }

  void Compute(Work* work) {
    const std::vector<int>& tokens = sessions.at(work->session).tokens;
    const int64_t size = scheduler->config().block_size;
    const int64_t end = work->item.first_token + work->item.num_tokens;
    for (int64_t p = work->item.first_token; p < end; ++p) {
      const int32_t block = work->reservation.block(p / size);
      EXPECT_TRUE(work->reservation.num_blocks() > p / size);
      Slot(block, p) = tokens[static_cast<size_t>(p)];
    }
  }

  void ReadBack(const Work& work) {
    const std::vector<int>& tokens = sessions.at(work.session).tokens;
    const int64_t size = scheduler->config().block_size;
    const int64_t end = work.item.first_token + work.item.num_tokens;
    for (int64_t p = 0; p < end; ++p) {
      ASSERT_EQ(Slot(work.reservation.block(p / size), p),
                tokens[static_cast<size_t>(p)])
          << "request " << work.item.id << ", position " << p;
    }
  }

  void EndRequest(SessionId id) {
    FakeSession& session = sessions.at(id);
    session.request = 0;
    session.cancelled = false;
    scheduler->SetIdle(id, &session.table);
  }

  std::vector<Work> Reserve(const StepPlan& plan,
                            std::vector<StepResult>* results);
  void Finish(const StepPlan& plan, std::vector<Work>* work,
              std::vector<StepResult>* results);

  std::vector<int> slots_;  // [block][slot]
  SessionId last_session_ = 0;
  RequestId last_request_ = 0;
  int last_token_ = 0;
  bool in_step_ = false;
};

inline std::vector<FakeEngine::Work> FakeEngine::Reserve(
    const StepPlan& plan, std::vector<StepResult>* results) {
  std::vector<Work> work;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    const SessionId id = SessionOf(item.id);
    FakeSession& session = sessions.at(id);
    auto reservation =
        session.cancelled
            ? absl::StatusOr<KvReservation>(absl::CancelledError())
            : KvReservation::Make(&session.table, item.num_tokens);
    if (reservation.ok() && !fails()) {
      EXPECT_EQ(reservation->first_token(), item.first_token);
      work.push_back({id, item, *std::move(reservation), i});
    } else {
      EXPECT_TRUE(reservation.ok() || session.cancelled || faults)
          << "the plan cannot be carried out: " << reservation.status();
      (*results)[i].computed = false;
      ++counts.failed_items;
    }
  }
  return work;
}

inline void FakeEngine::Finish(const StepPlan& plan, std::vector<Work>* work,
                               std::vector<StepResult>* results) {
  for (Work& w : *work) {
    FakeSession& session = sessions.at(w.session);
    StepResult& result = (*results)[w.index];
    if (session.cancelled) continue;  // its reservation rolls back
    w.reservation.Commit(w.item.num_tokens);
    const SchedRequest* request = scheduler->Find(w.item.id);
    if (w.item.samples && request->max_new_tokens > 0) {
      session.tokens.push_back(++last_token_);
      result.tokens_appended = 1;
    }
    result.finished = w.item.samples && request->max_new_tokens <= 1;
    counts.finished += result.finished ? 1 : 0;
    counts.chunks += w.item.samples ? 0 : 1;
  }
  work->clear();
  const absl::Status committed = scheduler->Commit(plan, *results);
  EXPECT_TRUE(committed.ok()) << committed;
  for (auto& [id, session] : sessions) {
    if (session.request == 0) continue;
    const SchedRequest* request = scheduler->Find(session.request);
    EXPECT_FALSE(session.cancelled && request != nullptr)
        << "cancelled requests are gone after the commit";
    if (request == nullptr) EndRequest(id);
  }
}

inline StepPlan FakeEngine::Step() {
  const StepPlan plan = scheduler->Plan();
  in_step_ = true;
  ++counts.steps;
  counts.preempted += static_cast<int64_t>(plan.preempted.size());
  counts.evicted += static_cast<int64_t>(plan.evicted_sessions.size());
  counts.blocked += plan.num_blocked;
  EXPECT_EQ(CheckInvariants(*scheduler, pool), absl::OkStatus());
  CheckFirstInRankGetsOn(plan);
  ClearWhatThePlanTakes(plan);
  after_plan();
  std::vector<StepResult> results(plan.items.size());
  std::vector<Work> work = Reserve(plan, &results);
  after_reserve();
  for (const Work& w : work) {
    if (!w.reservation.copy().has_value()) continue;
    ++counts.copies;
    const KvBlockCopy copy = *w.reservation.copy();
    for (int64_t i = 0; i < scheduler->config().block_size; ++i)
      Slot(copy.dst, i) = Slot(copy.src, i);
  }
  for (Work& w : work) Compute(&w);
  for (const Work& w : work) ReadBack(w);
  Finish(plan, &work, &results);
  in_step_ = false;
  EXPECT_EQ(CheckInvariants(*scheduler, pool), absl::OkStatus());
  return plan;
}

}  // namespace inlay

#endif  // INLAY_TESTS_SCHED_FAKE_ENGINE_H_
