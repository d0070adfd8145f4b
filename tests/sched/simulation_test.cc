// Thousands of random schedules on a fake device: arrivals, cancels at every
// point of a step, forks, rewinds, destroyed sessions, failing items and
// failing allocations. The engine's checks run each step; here: every request
// ends, no block stays.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/sched/fake_engine.h"

namespace inlay {
namespace {

class Simulation {
 public:
  explicit Simulation(uint32_t seed)
      : rng_(seed), config_(RandomConfig()), engine_(config_, Draw(3, 40)) {
    fault_percent_ = Draw(0, 1) * Draw(1, 30);
    arrival_percent_ = Draw(5, 60);
    engine_.after_plan = [this] { MaybeCancel(4); };
    engine_.after_reserve = [this] {
      MaybeCancel(4);
      if (Chance(4)) ForkAny();
    };
  }

  FakeCounts Run() {
    SetFaults(fault_percent_);
    for (int step = 0; step < 60 && !::testing::Test::HasFailure(); ++step) {
      for (int ops = Draw(0, 3); ops > 0; --ops) Operate();
      engine_.Step();
    }
    Drain();
    return engine_.counts;
  }

 private:
  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng_);
  }
  bool Chance(int percent) { return Draw(0, 99) < percent; }

  SchedulerConfig RandomConfig() {
    SchedulerConfig config;
    config.block_size = Draw(1, 5);
    config.max_batch_tokens = Draw(1, 24);
    config.max_running = Draw(1, std::min(8, config.max_batch_tokens));
    config.max_prefill_chunk = Draw(0, 8);
    config.max_queue = Draw(1, 12);
    return config;
  }

  void SetFaults(int percent) {
    engine_.faults = percent > 0;
    engine_.fails = [this, percent] { return Chance(percent / 2); };
    engine_.pool.SetAllocationFaultForTest(
        [this, percent] { return Chance(percent); });
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
    if (engine_.sessions.size() >= 16) return;
    if (const SessionId id = Pick(Chance(50)); id != 0) engine_.Fork(id);
  }

  void SubmitAny() {
    SessionId id = Chance(50) ? Pick(false) : 0;
    if (id == 0) {
      if (engine_.sessions.size() >= 16) return;
      id = engine_.AddSession();
    }
    const bool has_tokens = !engine_.sessions.at(id).tokens.empty();
    const size_t before = engine_.sessions.at(id).tokens.size();
    const absl::Status status = engine_.TrySubmit(
        id, Draw(has_tokens ? 0 : 1, 25), Draw(0, 12), Draw(0, 2));
    if (status.ok()) return;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    engine_.Rewind(id, before);
    engine_.scheduler->SetIdle(id, &engine_.sessions.at(id).table);
  }

  void Operate() {
    if (Chance(arrival_percent_)) return SubmitAny();
    const int op = Draw(0, 5);
    if (op == 0) return MaybeCancel(50);
    if (op == 1) return ForkAny();
    const SessionId idle = Pick(false);
    if (idle == 0) return;
    if (op == 2) engine_.Rewind(idle, static_cast<size_t>(Draw(0, 30)));
    if (op == 3) engine_.Destroy(idle);
    if (op == 4)
      engine_.scheduler->SetIdle(idle, &engine_.sessions.at(idle).table);
  }

  void Drain() {
    SetFaults(0);
    engine_.after_plan = [] {};
    engine_.after_reserve = [] {};
    int steps = 0;
    while (engine_.scheduler->HasWork() && !::testing::Test::HasFailure()) {
      engine_.Step();
      ASSERT_LT(++steps, 20000) << "requests do not end";
    }
    EXPECT_EQ(
        engine_.scheduler->num_running() + engine_.scheduler->num_waiting(),
        0u);
    while (!engine_.sessions.empty())
      engine_.Destroy(engine_.sessions.begin()->first);
    EXPECT_EQ(engine_.scheduler->num_idle_sessions(), 0u);
    EXPECT_EQ(engine_.pool.num_used(), 0);
    EXPECT_EQ(CheckInvariants(*engine_.scheduler, engine_.pool),
              absl::OkStatus());
  }

  std::mt19937 rng_;
  SchedulerConfig config_;
  FakeEngine engine_;
  int fault_percent_;
  int arrival_percent_;
};

TEST(SimulationTest, EveryRequestEndsAndNoBlockStays) {
  FakeCounts sum;
  for (uint32_t seed = 1; seed <= 4000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const FakeCounts counts = Simulation(seed).Run();
    sum.steps += counts.steps;
    sum.preempted += counts.preempted;
    sum.evicted += counts.evicted;
    sum.blocked += counts.blocked;
    sum.copies += counts.copies;
    sum.cancelled_in_step += counts.cancelled_in_step;
    sum.failed_items += counts.failed_items;
    sum.chunks += counts.chunks;
    sum.finished += counts.finished;
  }
  if (HasFailure()) return;
  // The schedules are only worth something if they get into trouble.
  EXPECT_GT(sum.steps, 100000);
  for (int64_t count :
       {sum.preempted, sum.evicted, sum.blocked, sum.copies,
        sum.cancelled_in_step, sum.failed_items, sum.chunks, sum.finished}) {
    EXPECT_GT(count, 2000);
  }
}

}  // namespace
}  // namespace inlay
