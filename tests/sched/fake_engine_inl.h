// What FakeEngine does; included by fake_engine.h only.
#ifndef INLAY_TESTS_SCHED_FAKE_ENGINE_INL_H_
#define INLAY_TESTS_SCHED_FAKE_ENGINE_INL_H_

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sched/policy.h"
#include "tests/sched/fake_engine.h"

namespace inlay {

inline FakeCounts& FakeCounts::operator+=(const FakeCounts& other) {
  for (int64_t FakeCounts::*count :
       {&FakeCounts::steps, &FakeCounts::preempted, &FakeCounts::blocked,
        &FakeCounts::copies, &FakeCounts::chunks, &FakeCounts::failed_items,
        &FakeCounts::cancelled_in_step, &FakeCounts::failed_steps,
        &FakeCounts::finished, &FakeCounts::expired, &FakeCounts::hits,
        &FakeCounts::hit_tokens, &FakeCounts::partial_hits, &FakeCounts::loaded,
        &FakeCounts::lost, &FakeCounts::dropped_coming,
        &FakeCounts::steps_beside_loads, &FakeCounts::not_yet}) {
    this->*count += other.*count;
  }
  return *this;
}

inline void FakeEngine::Append(SessionId id, absl::Span<const int32_t> tokens) {
  FakeSession& session = sessions.at(id);
  for (int32_t token : tokens) {
    const uint64_t before =
        session.values.empty() ? session.salt : session.values.back();
    session.tokens.push_back(token);
    session.values.push_back(FakeKv::Next(before, token));
  }
}

inline SessionId FakeEngine::Fork(SessionId id) {
  const SessionId fork = AddSession(sessions.at(id).salt);
  Append(fork, sessions.at(id).tokens);
  return fork;
}

inline void FakeEngine::Rewind(SessionId id, size_t num_tokens) {
  FakeSession& session = sessions.at(id);
  session.tokens.resize(std::min(session.tokens.size(), num_tokens));
  session.values.resize(session.tokens.size());
}

inline absl::Status FakeEngine::TrySubmit(SessionId id,
                                          absl::Span<const int32_t> tokens,
                                          int64_t max_new,
                                          const FakeOptions& options) {
  FakeSession& session = sessions.at(id);
  const size_t before = session.tokens.size();
  Append(id, tokens);
  SchedRequest request;
  request.id = ++last_request_;
  request.session_id = id;
  request.priority = options.priority;
  request.deadline_us = options.deadline_us;
  request.share_key = options.share_key;
  request.whole = options.whole;
  request.submitted_us = now_us;
  request.num_tokens_total = static_cast<int64_t>(session.tokens.size());
  request.max_new_tokens = max_new;
  request.tables = &session.tables;
  const absl::Status status = scheduler->Submit(request);
  if (status.ok()) {
    session.request = request.id;
    active_[request.id] = id;
  } else {
    Rewind(id, before);
  }
  return status;
}

inline void FakeEngine::Cancel(SessionId id) {
  FakeSession& session = sessions.at(id);
  EXPECT_TRUE(scheduler->Cancel(session.request).ok());
  session.cancelled = true;
  if (in_step_ && scheduler->Find(session.request) != nullptr) {
    ++counts.cancelled_in_step;
  } else {
    EndRequest(session.request);
  }
}

inline void FakeEngine::SetHold(SessionId id, int num_tokens) {
  KvTables& hold = sessions.at(id).hold;
  hold.Clear();
  auto reservation = KvTablesReservation::Make(&hold, num_tokens);
  if (reservation.ok()) reservation->Commit(num_tokens);
  scheduler->Retry();
}

inline int FakeEngine::Resize(int32_t num_blocks) {
  const int preempted = scheduler->PreemptTo(num_blocks, now_us);
  std::vector<KvTables*> held;
  for (auto& [id, session] : sessions) {
    if (kv.num_held() > num_blocks) session.hold.Clear();
    held.push_back(&session.tables);
    held.push_back(&session.hold);
  }
  kv.Resize(num_blocks, absl::MakeConstSpan(held));
  scheduler->Retry();
  EXPECT_EQ(CheckInvariants(*scheduler, kv.pool), absl::OkStatus());
  return preempted;
}

// All but the last token: its logits choose the next one.
inline PrefixHit FakeEngine::Peek(const SchedRequest& request) {
  ++counts.peeks;
  const FakeSession& session = sessions.at(request.session_id);
  const KvMatch match =
      Look(session.salt, TokensOf(request, request.num_tokens_total - 1),
           request.whole);
  return {match.num_tokens,
          match.num_blocks() - match.num_evictable() - match.num_below(),
          session.hold.num_blocks_held()};
}

// An engine keeps nothing of those that are computed whole.
inline KvMatch FakeEngine::Look(uint64_t salt, absl::Span<const int32_t> tokens,
                                bool whole) const {
  return whole ? kv.cache.Find(salt, tokens) : kv.Look(salt, tokens);
}

inline KvTaken FakeEngine::BeginTake(const SchedRequest& request,
                                     int64_t max_tokens) {
  FakeSession* const session = &sessions.at(request.session_id);
  absl::Span<const int32_t> tokens =
      TokensOf(request, request.num_tokens_total - 1);
  KvMatch match = Look(session->salt, tokens, request.whole);
  if (match.num_tokens > max_tokens) {
    tokens = tokens.first(static_cast<size_t>(max_tokens));
    match = Look(session->salt, tokens, request.whole);
  }
  EXPECT_EQ(session->tables.num_tokens(), 0);
  if (match.num_tokens == 0) return {};
  const int32_t before = kv.pool.num_available();
  if (match.num_below() == 0) {
    kv.cache.Take(match, session->salt, tokens, &session->tables,
                  &session->cursors);
  } else {
    for (size_t g = 0; g < kv.groups.size(); ++g) {
      PrefixMatch& part = match.groups[g];
      for (const PrefixMatch::Below& below : part.below) {
        session->coming.push_back({g, below.index, below.key});
        part.blocks[static_cast<size_t>(below.index)] = KvBlockTable::kNoBlock;
      }
      session->tables.group(g).Share(part.blocks, match.num_tokens);
    }
    std::reverse(session->coming.begin(), session->coming.end());
  }
  EXPECT_EQ(before - kv.pool.num_available(), match.num_evictable());
  ++counts.hits;
  counts.hit_tokens += match.num_tokens;
  counts.partial_hits +=
      match.num_tokens % kv.groups.front().block_size ? 1 : 0;
  return {match.num_tokens, static_cast<int64_t>(session->coming.size())};
}

inline KvTaken FakeEngine::Take(const SchedRequest& request,
                                int64_t max_tokens) {
  FakeSession& session = sessions.at(request.session_id);
  hold_came_free_ |= session.hold.num_tokens() > 0;
  session.hold.Clear();
  const KvTaken taken = BeginTake(request, max_tokens);
  // Of fewer, more blocks may have to be copied than there was room made for.
  EXPECT_EQ(taken.num_tokens, max_tokens) << "what Peek() found";
  return taken;
}

inline void FakeEngine::Retire(FakeSession* session) {
  counts.dropped_coming += session->coming.empty() ? 0 : 1;
  session->coming.clear();
  kv.Retire(session->salt,
            absl::MakeConstSpan(session->tokens)
                .first(static_cast<size_t>(session->tables.num_tokens())),
            &session->tables, &session->cursors);
}

inline void FakeEngine::Load(int blocks) {
  while (blocks > 0) {
    const SchedRequest* request = scheduler->NextToLoad();
    if (request == nullptr) return;
    if (is_read()) {
      // Others have their turn.
      ++counts.not_yet;
      scheduler->WaitToLoad(request->id);
      continue;
    }
    FakeSession& session = SessionWith(request->id);
    const FakeSession::Coming next = session.coming.back();
    const auto fresh = kv.pool.Allocate(1);
    if (!fresh.ok()) {
      EXPECT_TRUE(faults) << "no room was kept";
      return scheduler->WaitToLoad(request->id);
    }
    KvTaken now{request->num_computed, request->num_coming - 1};
    if (kv.Load(next.key, fresh->front())) {
      session.tables.group(next.group)
          .Put(static_cast<size_t>(next.index), fresh->front());
      session.coming.pop_back();
      ++counts.loaded;
      --blocks;
    } else {
      kv.pool.Unref(fresh->front());
      ++counts.lost;
      Retire(&session);
      now = BeginTake(*request, request->num_computed);
    }
    scheduler->SetComing(request->id, now);
    if (now.num_coming == 0)
      kv.Publish(session.salt, session.tokens, &session.tables,
                 &session.cursors);
  }
}

inline void FakeEngine::Drop(const SchedRequest& request) {
  Retire(&sessions.at(request.session_id));
}

inline void FakeEngine::EndRequest(RequestId id) {
  FakeSession& session = SessionWith(id);
  Retire(&session);
  session.request = 0;
  session.cancelled = false;
  active_.erase(id);
  on_end(id);
}

// Whether nothing but blocks held outside of requests keeps it from running.
inline bool FakeEngine::FitsAlone(const SchedRequest& request) const {
  std::vector<bool> of_requests(static_cast<size_t>(kv.pool.end_id()), false);
  for (const auto& [id, session] : sessions) {
    for (size_t g = 0; g < kv.groups.size(); ++g) {
      for (int32_t block : session.tables.group(g).blocks()) {
        if (block >= 0) of_requests[static_cast<size_t>(block)] = true;
      }
    }
  }
  int64_t there = kv.pool.num_available();
  there += std::count(of_requests.begin(), of_requests.end(), true);
  // What it has of shared blocks must be copied before those can go.
  return PeakKvBlocks(request, scheduler->config()) +
             request.tables->AppendCopies() <=
         there;
}

// Who decodes goes first, and may leave too few tokens for one that is computed
// whole. As nobody else gets any meanwhile, it is its turn when they end.
inline bool FakeEngine::WaitsForDecodes(const SchedRequest& request,
                                        const StepPlan& plan) const {
  const auto decodes = [&](const StepItem& item) {
    return IsDecode(*scheduler->Find(item.id));
  };
  const auto left = scheduler->config().max_batch_tokens -
                    static_cast<int64_t>(plan.items.size());
  return request.whole && request.pending() > left &&
         std::all_of(plan.items.begin(), plan.items.end(), decodes);
}

inline void FakeEngine::CheckPlan(const StepPlan& plan) const {
  const std::vector<SchedEntry*>& running = scheduler->queues().running();
  const Queues::Waiting& waiting = scheduler->queues().waiting();
  for (const SchedEntry* entry : waiting) {
    const SchedRequest& request = entry->request;
    const int64_t bound = scheduler->config().starvation_us;
    EXPECT_TRUE(bound == 0 || request.starved ||
                now_us - request.waiting_since_us <= bound)
        << "request " << request.id << " is not promoted";
    EXPECT_GE(request.deadline_us, now_us) << "expired and not told";
  }
  for (RequestId id : plan.expired) {
    EXPECT_EQ(scheduler->Find(id), nullptr);
    EXPECT_TRUE(active_.contains(id));
  }
  if (decodes_only || (budget_us > 0 && !must_progress)) return;
  const SchedEntry* first = !running.empty()   ? running.front()
                            : !waiting.empty() ? *waiting.begin()
                                               : nullptr;
  if (first == nullptr || hold_came_free_ || !FitsAlone(first->request)) return;
  const bool limited =
      budget_us > 0 ||
      (scheduler->config().tpot_target_us > 0 && !IsDecode(first->request));
  if (limited) {
    EXPECT_TRUE(!plan.empty() || scheduler->NextToLoad() != nullptr)
        << "must progress";
  } else {
    EXPECT_TRUE(first->in_flight || first->may_load ||
                WaitsForDecodes(first->request, plan))
        << "the first in rank must get on";
  }
}

inline std::vector<FakeEngine::Work> FakeEngine::Reserve(
    const StepPlan& plan, std::vector<StepResult>* results) {
  std::vector<Work> work;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    FakeSession& session = SessionWith(item.id);
    auto reservation =
        session.cancelled
            ? absl::StatusOr<KvTablesReservation>(absl::CancelledError())
            : KvTablesReservation::Make(&session.tables, item.num_tokens);
    if (reservation.ok() && !fails()) {
      EXPECT_EQ(reservation->first_token(), item.first_token);
      work.push_back({&session, item, *std::move(reservation), i});
    } else {
      EXPECT_TRUE(reservation.ok() || session.cancelled || faults)
          << "the plan cannot be carried out: " << reservation.status();
      (*results)[i].computed = false;
      ++counts.failed_items;
    }
  }
  return work;
}

inline void FakeEngine::Compute(Work* work) {
  const FakeSession& session = *work->session;
  const int64_t begin = work->item.first_token;
  for (size_t g = 0; g < kv.groups.size(); ++g) {
    const int64_t size = kv.groups[g].block_size;
    const KvReservation& blocks = work->reservation.group(g);
    for (int64_t p = begin; p < begin + work->item.num_tokens; ++p) {
      const uint64_t before =
          p == 0 ? session.salt
                 : FakeKv::ValueIn(
                       g, kv.Slot(g, blocks.block((p - 1) / size), p - 1));
      kv.Slot(g, blocks.block(p / size), p) = FakeKv::ValueIn(
          g, FakeKv::Next(before, session.tokens[static_cast<size_t>(p)]));
    }
  }
}

inline void FakeEngine::ReadBack(const Work& work) {
  const int64_t begin = work.item.first_token;
  const std::vector<uint64_t>& values = work.session->values;
  for (size_t g = 0; g < kv.groups.size(); ++g) {
    const int64_t size = kv.groups[g].block_size;
    for (int64_t p = KvFirstRead(begin, kv.groups[g].window);
         p < begin + work.item.num_tokens; ++p) {
      const int32_t block = work.reservation.group(g).block(p / size);
      const uint64_t want = FakeKv::ValueIn(g, values[static_cast<size_t>(p)]);
      if (block >= 0 && kv.Slot(g, block, p) == want) continue;
      ADD_FAILURE() << "request " << work.item.id << ": block " << block
                    << " of group " << g << " has not the KV of position " << p;
      return;
    }
  }
}

// What was cancelled is committed too, as its KV is right.
inline void FakeEngine::CommitItem(Work* work, StepResult* result) {
  FakeSession& session = *work->session;
  const StepItem& item = work->item;
  const int64_t last = item.first_token + item.num_tokens - 1;
  const int64_t size = kv.groups.front().block_size;
  const uint64_t value =
      kv.Slot(0, work->reservation.group(0).block(last / size), last);
  work->reservation.Commit(item.num_tokens);
  kv.Publish(session.salt, session.tokens, &session.tables, &session.cursors);
  if (session.cancelled) return;
  const SchedRequest* request = scheduler->Find(item.id);
  if (item.samples && request->max_new_tokens > 0) {
    const auto token =
        static_cast<int32_t>(value % static_cast<uint64_t>(vocabulary));
    Append(request->session_id, {token});
    result->tokens_appended = 1;
  }
  result->finished = item.samples && request->max_new_tokens <= 1;
  counts.finished += result->finished ? 1 : 0;
  counts.chunks += item.samples ? 0 : 1;
}

inline StepPlan FakeEngine::Step() {
  hold_came_free_ = false;
  const StepPlan plan =
      scheduler->Plan({now_us, budget_us, must_progress, decodes_only});
  in_step_ = true;
  ++counts.steps;
  counts.preempted += static_cast<int64_t>(plan.preempted.size());
  counts.expired += static_cast<int64_t>(plan.expired.size());
  counts.blocked += plan.num_blocked;
  EXPECT_EQ(CheckInvariants(*scheduler, kv.pool), absl::OkStatus());
  CheckPlan(plan);
  for (RequestId id : plan.expired) EndRequest(id);
  after_plan();
  std::vector<StepResult> results(plan.items.size());
  std::vector<Work> work = Reserve(plan, &results);
  after_reserve();
  const bool failed = step_fails();
  if (failed) {
    ++counts.failed_steps;
    work.clear();
    for (StepResult& result : results) result.computed = false;
  }
  for (const Work& w : work) {
    for (size_t g = 0; g < kv.groups.size(); ++g) {
      const auto held =
          static_cast<int64_t>(w.session->tables.group(g).blocks().size());
      const KvReservation& blocks = w.reservation.group(g);
      for (int64_t i = held; i < blocks.num_blocks(); ++i)
        kv.Poison(blocks.block(i));
    }
  }
  for (const Work& w : work) {
    for (size_t g = 0; g < kv.groups.size(); ++g) {
      const auto& copy = w.reservation.group(g).copy();
      if (!copy.has_value()) continue;
      ++counts.copies;
      kv.Copy(copy->src, copy->dst);
    }
  }
  for (Work& w : work) Compute(&w);
  for (const Work& w : work) ReadBack(w);
  for (Work& w : work) CommitItem(&w, &results[w.index]);
  work.clear();
  last_step_us = plan.empty() ? 0 : machine(plan.shape);
  now_us += std::llround(last_step_us);
  const absl::Status committed =
      scheduler->Commit(plan, results, failed ? -1 : last_step_us);
  EXPECT_TRUE(committed.ok()) << committed;
  in_step_ = false;
  for (const StepItem& item : plan.items) {
    const bool gone = scheduler->Find(item.id) == nullptr;
    EXPECT_TRUE(gone || !SessionWith(item.id).cancelled)
        << "cancelled requests are gone after the commit";
    if (gone) EndRequest(item.id);
  }
  EXPECT_EQ(CheckInvariants(*scheduler, kv.pool), absl::OkStatus());
  if (scheduler->NextToLoad() != nullptr) {
    counts.steps_beside_loads += plan.empty() ? 0 : 1;
    Load(loads());
    EXPECT_EQ(CheckInvariants(*scheduler, kv.pool), absl::OkStatus());
  }
  return plan;
}

}  // namespace inlay

#endif  // INLAY_TESTS_SCHED_FAKE_ENGINE_INL_H_
