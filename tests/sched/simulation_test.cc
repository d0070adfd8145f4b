// Random schedules: arrivals that share prefixes, cancels in every state,
// forks, rewinds, memory that comes and goes, windows, time budgets, deadlines,
// faults. What must hold of each step is checked by FakeEngine::Step() and
// Watch(); at the end every request has ended and no block stays.
//
// INLAY_SIM_SCHEDULES=1000000 INLAY_SIM_SEED=1 sched_test
// --gtest_filter='Simulation*' runs more of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sched/fake_engine.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

constexpr size_t kMostSessions = 16;

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : rng_(static_cast<uint32_t>(seed ^ (seed >> 32))),
        num_blocks_(Draw(3, 40)),
        config_(RandomConfig()),
        engine_(config_, num_blocks_) {
    fault_percent_ = Draw(0, 1) * Draw(1, 30);
    arrival_percent_ = Draw(5, 60);
    lease_percent_ = Chance(30) ? Draw(1, 20) : 0;
    hold_percent_ = Chance(30) ? Draw(1, 10) : 0;
    timed_ = Chance(30);
    engine_.kv.has_tier = Chance(60);
    engine_.loads = [this] { return Draw(0, 3); };
    if (Chance(50)) engine_.is_read = [this] { return Chance(30); };
    engine_.vocabulary = Draw(1, 4);
    const int step_us = Draw(1, 2000), token_us = Draw(0, 300);
    const double pair_us = Draw(0, 20), noise = Draw(0, 1) * 0.1;
    engine_.machine = [=, this](const StepShape& shape) {
      return (step_us + token_us * double(shape.num_tokens) +
              pair_us * double(shape.attention_pairs)) *
             (1 + noise * Draw(-3, 9));
    };
    engine_.after_plan = [this] {
      Watch();
      MaybeCancel(4);
    };
    engine_.after_reserve = [this] {
      MaybeCancel(4);
      if (Chance(4)) ForkAny();
    };
    engine_.on_end = [this](RequestId) { ++num_ended_; };
  }

  FakeCounts Run() {
    SetFaults(fault_percent_);
    for (int step = 0; step < 60 && !::testing::Test::HasFailure(); ++step) {
      for (int ops = Draw(0, 3); ops > 0; --ops) Operate();
      Step();
    }
    Drain();
    return engine_.counts;
  }
  int64_t num_moved() const { return engine_.kv.num_moved; }
  int64_t num_deduped() const { return engine_.kv.num_deduped; }
  int64_t num_starved() const { return num_starved_; }
  int64_t num_stalls() const { return num_stalls_; }

 private:
  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng_);
  }
  bool Chance(int percent) { return Draw(0, 99) < percent; }

  SchedulerConfig RandomConfig() {
    SchedulerConfig config;
    config.groups[0].block_size = Draw(1, 5);
    config.max_batch_tokens = Draw(1, 24);
    config.max_running = Draw(1, std::min(8, config.max_batch_tokens));
    config.max_prefill_chunk = Draw(0, 8);
    config.max_queue = Draw(1, 12);
    config.groups[0].window = Chance(25) ? Draw(1, 12) : 0;
    config.tpot_target_us = Chance(25) ? Draw(1, 5000) : 0;
    config.starvation_us = Chance(50) ? Draw(1, 40) * 1000 : 0;
    AddGroups(&config.groups);
    return config;
  }

  // More groups of layers, each of a shorter window than those before.
  void AddGroups(KvGroups* groups) {
    for (int more = Chance(40) ? Draw(1, 2) : 0; more > 0; --more) {
      const int64_t window = groups->back().window;
      if (window == 1) return;
      const int most = window > 0 ? static_cast<int>(window) - 1 : 12;
      groups->push_back({Draw(1, 5), Draw(1, most)});
    }
  }

  void SetFaults(int percent) {
    engine_.faults = percent > 0;
    engine_.fails = [this, percent] { return Chance(percent / 2); };
    engine_.step_fails = [this, percent] { return Chance(percent / 4); };
    engine_.kv.pool.SetAllocationFaultForTest(
        [this, percent] { return Chance(percent); });
  }

  void Step() {
    if (timed_) {
      engine_.budget_us = Chance(80) ? Draw(1, 8000) : 0;
      engine_.must_progress = Chance(50);
    }
    running_before_.clear();
    for (const SchedEntry* entry : engine_.scheduler->queues().running())
      running_before_.insert(entry->request.id);
    engine_.Step();
    engine_.now_us += Draw(0, 500);
    CheckReferences();
    if (::testing::Test::HasFailure()) Describe();
    num_stalls_ +=
        !engine_.scheduler->empty() && !engine_.scheduler->HasWork() ? 1 : 0;
  }

  const SchedEntry* FirstThatFits(const Queues& queues) const {
    for (const SchedEntry* entry : queues.waiting()) {
      if (!entry->parked &&
          PeakKvBlocks(entry->request, config_) <= engine_.kv.pool.num_total())
        return entry;
    }
    return nullptr;
  }

  // What must hold of the plan in flight.
  void Watch() {
    const Queues& queues = engine_.scheduler->queues();
    for (const SchedEntry* entry : queues.running()) {
      num_starved_ += entry->request.starved ? 1 : 0;
      if (!running_before_.contains(entry->request.id) && entry->in_flight)
        CheckNobodyWasPassed(entry->request);
      const SchedEntry* head = FirstThatFits(queues);
      if (running_before_.contains(entry->request.id) || head == nullptr)
        continue;
      EXPECT_TRUE(RanksBefore(entry->request, head->request))
          << "request " << entry->request.id << " was let in before "
          << head->request.id;
    }
    const StepPlan* plan = engine_.scheduler->plan_in_flight();
    if (plan == nullptr || engine_.budget_us == 0 || engine_.must_progress)
      return;
    EXPECT_LE(engine_.scheduler->cost().BoundUs(plan->shape),
              static_cast<double>(engine_.budget_us) * (1 + 1e-9))
        << "more than there is time for";
  }

  // Who is let in gets no tokens that a running prefill above it could have;
  // but for blocks that were set aside for another and come free as that is let
  // in.
  void CheckNobodyWasPassed(const SchedRequest& newcomer) {
    if (hold_percent_ > 0) return;
    for (const SchedEntry* entry : engine_.scheduler->queues().running()) {
      if (!RanksBefore(entry->request, newcomer)) return;
      EXPECT_TRUE(entry->in_flight || IsDecode(entry->request) ||
                  !CanCompute(entry->request) ||
                  !running_before_.contains(entry->request.id))
          << "request " << newcomer.id << " got tokens, " << entry->request.id
          << " did not";
    }
  }

  // For whoever looks into a failure.
  void Describe() {
    std::string text = absl::StrCat(
        "batch ", config_.max_batch_tokens, ", running ", config_.max_running,
        ", chunk ", config_.max_prefill_chunk, ", target ",
        config_.tpot_target_us, ", starvation ", config_.starvation_us,
        ", budget ", engine_.budget_us, ", must ", engine_.must_progress,
        "; now ", engine_.now_us, ", blocks ", engine_.kv.pool.num_available(),
        " of ", engine_.kv.pool.num_total());
    for (const KvGroup& group : config_.groups) {
      absl::StrAppend(&text, "\nblocks of ", group.block_size, ", window ",
                      group.window);
    }
    const auto add = [&](const char* state, const SchedEntry* entry) {
      const SchedRequest& r = entry->request;
      absl::StrAppend(&text, "\n", state, " ", r.id, ": priority ", r.priority,
                      ", starved ", r.starved, ", tag ", r.share_tag,
                      ", arrival ", r.arrival, ", computed ", r.num_computed,
                      " of ", r.num_tokens_total, ", last step ", r.last_step,
                      ", before ", running_before_.count(r.id), ", parked ",
                      entry->parked);
    };
    for (const SchedEntry* entry : engine_.scheduler->queues().running())
      add("runs", entry);
    for (const SchedEntry* entry : engine_.scheduler->queues().waiting())
      add("waits", entry);
    ADD_FAILURE() << text;
  }

  // Every reference to a block is that of a table, a hold or the cache.
  void CheckReferences() {
    const KvBlockPool& pool = engine_.kv.pool;
    std::vector<int32_t> known(static_cast<size_t>(pool.end_id()), 0);
    for (const auto& [id, session] : engine_.sessions) {
      EXPECT_TRUE(session.request != 0 || session.tables.num_tokens() == 0);
      for (const KvTables* tables : {&session.tables, &session.hold}) {
        for (size_t g = 0; g < tables->num_groups(); ++g) {
          for (int32_t block : tables->group(g).blocks()) {
            if (block >= 0) ++known[static_cast<size_t>(block)];
          }
        }
      }
    }
    int32_t held = 0;
    for (int32_t id = 0; id < pool.end_id(); ++id) {
      const int32_t tables = known[static_cast<size_t>(id)];
      held += tables > 0 ? 1 : 0;
      const bool cached = pool.RefCount(id) > 0 && pool.IsCached(id);
      EXPECT_EQ(pool.RefCount(id), tables + (cached ? 1 : 0)) << "block " << id;
    }
    EXPECT_EQ(engine_.kv.num_held(), held);
  }

  // A random session with (or without) a request; 0: none.
  SessionId Pick(bool busy) {
    std::vector<SessionId> ids;
    for (const auto& [id, session] : engine_.sessions) {
      if ((session.request != 0) == busy && !session.cancelled)
        ids.push_back(id);
    }
    return ids.empty() ? 0
                       : ids[static_cast<size_t>(
                             Draw(0, static_cast<int>(ids.size()) - 1))];
  }

  void MaybeCancel(int percent) {
    if (!Chance(percent)) return;
    if (const SessionId id = Pick(true); id != 0) engine_.Cancel(id);
  }

  void ForkAny() {
    if (engine_.sessions.size() >= kMostSessions) return;
    if (const SessionId id = Pick(Chance(50)); id != 0) engine_.Fork(id);
  }

  // The beginning of one of a few families, and an end of its own. So few
  // different tokens that families share beginnings too.
  std::vector<int32_t> RandomTokens(int least) {
    std::vector<int32_t> tokens;
    const auto family = static_cast<uint64_t>(Draw(1, 3));
    for (int common = Draw(0, 20); common > 0; --common) {
      const auto at = static_cast<int32_t>(tokens.size());
      tokens.push_back(static_cast<int32_t>(FakeKv::Next(family, at) % 2));
    }
    for (int own = Draw(0, 6); own > 0; --own) tokens.push_back(Draw(0, 2));
    while (static_cast<int>(tokens.size()) < least) tokens.push_back(0);
    return tokens;
  }

  void SubmitAny() {
    SessionId id = Chance(50) ? Pick(false) : 0;
    if (id == 0) {
      if (engine_.sessions.size() >= kMostSessions) return;
      id = engine_.AddSession(Chance(80) ? 0 : 1);
    }
    const bool has_tokens = !engine_.sessions.at(id).tokens.empty();
    FakeOptions options;
    options.priority = Draw(0, 2);
    options.share_key = static_cast<uint64_t>(Draw(0, 3));
    if (Chance(20)) options.deadline_us = engine_.now_us + Draw(0, 60000);
    const auto tokens = RandomTokens(has_tokens ? 0 : 1);
    const int32_t batch = engine_.scheduler->config().max_batch_tokens;
    options.whole =
        Chance(15) && engine_.sessions.at(id).tokens.size() + tokens.size() <=
                          static_cast<size_t>(batch);
    const absl::Status status =
        engine_.TrySubmit(id, tokens, options.whole ? 0 : Draw(0, 12), options);
    num_submitted_ += status.ok() ? 1 : 0;
    EXPECT_TRUE(status.ok() ||
                status.code() == absl::StatusCode::kResourceExhausted)
        << status;
  }

  void Operate() {
    if (Chance(arrival_percent_)) return SubmitAny();
    if (Chance(lease_percent_))
      return static_cast<void>(engine_.Resize(Draw(0, num_blocks_)));
    if (Chance(hold_percent_)) {
      const SessionId any = Pick(Chance(50));
      if (any != 0) engine_.SetHold(any, Draw(0, 20));
      return;
    }
    if (Chance(30)) LoseWhatComes();
    const int op = Draw(0, 6);
    if (op == 0) return MaybeCancel(50);
    if (op == 1) return ForkAny();
    if (op == 2 && Chance(5)) return engine_.kv.cache.Clear();
    const SessionId idle = Pick(false);
    if (idle == 0) return;
    if (op == 3) engine_.Rewind(idle, static_cast<size_t>(Draw(0, 30)));
    if (op == 4) {
      engine_.sessions.erase(idle);
      engine_.scheduler->Retry();  // it may have had blocks set aside
    }
  }

  // Or some of it: others find the rest.
  void LoseWhatComes() {
    for (const auto& [id, session] : engine_.sessions) {
      if (!session.coming.empty())
        engine_.kv.tier.erase(session.coming.back().key);
    }
  }

  void Drain() {
    SetFaults(0);
    timed_ = Chance(50) && timed_;
    lease_percent_ = hold_percent_ = 0;
    for (auto& [id, session] : engine_.sessions) session.hold.Clear();
    engine_.Resize(num_blocks_);
    int steps = 0;
    while (engine_.scheduler->HasWork() && !::testing::Test::HasFailure()) {
      Step();
      ASSERT_LT(++steps, 20000) << "requests do not end";
    }
    if (::testing::Test::HasFailure()) return;
    EXPECT_TRUE(engine_.scheduler->empty()) << "given up with requests left";
    if (!engine_.scheduler->empty()) return Describe();
    EXPECT_EQ(num_ended_, num_submitted_);
    EXPECT_EQ(engine_.kv.num_held(), 0);
    EXPECT_EQ(engine_.kv.pool.num_used(), engine_.kv.cache.num_blocks());
    engine_.kv.cache.Clear();
    EXPECT_EQ(engine_.kv.pool.num_used(), 0);
    EXPECT_EQ(engine_.kv.pool.num_free(), num_blocks_);
  }

  std::mt19937 rng_;
  int32_t num_blocks_;
  SchedulerConfig config_;
  FakeEngine engine_;
  int fault_percent_ = 0, arrival_percent_ = 0;
  int lease_percent_ = 0, hold_percent_ = 0;
  bool timed_ = false;
  std::set<RequestId> running_before_;
  int64_t num_submitted_ = 0, num_ended_ = 0;
  int64_t num_starved_ = 0, num_stalls_ = 0;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(SimulationTest, EveryRequestEndsAndNoBlockStays) {
  const uint64_t first = FromEnvironment("INLAY_SIM_SEED", 1);
  const uint64_t count = FromEnvironment(
      "INLAY_SIM_SCHEDULES", ::inlay::testing::FewerWhenSanitized(4000));
  const auto start = std::chrono::steady_clock::now();
  FakeCounts sum;
  int64_t moved = 0, deduped = 0, starved = 0, stalls = 0;
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    sum += simulation.Run();
    moved += simulation.num_moved();
    deduped += simulation.num_deduped();
    starved += simulation.num_starved();
    stalls += simulation.num_stalls();
  }
  if (HasFailure()) return;
  if (count > 100000) {
    const std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    std::printf("%.0f schedules a second\n",
                static_cast<double>(count) / seconds.count());
  }
  // The schedules are only worth something if they get into trouble.
  struct {
    const char* name;
    int64_t value;
  } const counters[] = {{"steps", sum.steps},
                        {"preempted", sum.preempted},
                        {"blocked", sum.blocked},
                        {"copies", sum.copies},
                        {"chunks", sum.chunks},
                        {"cancelled in a step", sum.cancelled_in_step},
                        {"failed items", sum.failed_items},
                        {"failed steps", sum.failed_steps},
                        {"finished", sum.finished},
                        {"expired", sum.expired},
                        {"hits", sum.hits},
                        {"partial hits", sum.partial_hits},
                        {"loaded", sum.loaded},
                        {"steps beside loads", sum.steps_beside_loads},
                        {"to be read first", sum.not_yet},
                        {"lost below", sum.lost},
                        {"dropped on their way", sum.dropped_coming},
                        {"moved", moved},
                        {"deduped", deduped},
                        {"starved", starved},
                        {"stalls", stalls}};
  for (const auto& counter : counters) {
    EXPECT_GT(counter.value, static_cast<int64_t>(count / 4)) << counter.name;
    RecordProperty(counter.name, std::to_string(counter.value));
  }
}

}  // namespace
}  // namespace inlay
