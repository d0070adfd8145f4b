// The memory lease: whatever the host allows, from one moment to the next, is
// what the engine takes, and nobody loses anything but time by it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/lease_allocator.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::LeaseAllocator;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;
using std::chrono::milliseconds;

std::vector<RequestOptions> MixedRequests(int count) {
  std::vector<RequestOptions> requests;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<uint32_t>(i);
    requests.push_back(
        TokenRequest(RandomTokens(seed, 10 + static_cast<size_t>(i * 37 % 90)),
                     4 + i * 7 % 30));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    requests.back().sampling.seed = seed;
  }
  return requests;
}

std::vector<std::vector<int32_t>> Alone(
    const std::vector<RequestOptions>& requests) {
  EngineHarness harness(GoldenModel("llama3"));
  std::vector<std::vector<int32_t>> tokens;
  for (const RequestOptions& request : requests)
    tokens.push_back(harness.RunAlone(request).tokens);
  return tokens;
}

EngineOptions Leased(LeaseAllocator& allocator, bool own_thread = false) {
  EngineOptions options;
  options.own_thread = own_thread;
  options.allocator = allocator.hooks();
  options.scheduler.max_batch_tokens = 32;
  options.scheduler.max_running = 6;
  return options;
}

// Sets a budget, and says so to the allocator where that is the stricter.
class Lease {
 public:
  Lease(EngineHarness& harness, LeaseAllocator& allocator)
      : engine_(harness.engine()),
        allocator_(allocator),
        fixed_(harness.FixedBytes()),
        now_(UINT64_MAX) {}

  uint64_t fixed() const { return fixed_; }
  void Set(uint64_t bytes) {
    if (bytes > now_) allocator_.Allow(bytes);
    const absl::Status status = engine_.SetMemoryBudget(0, bytes);
    EXPECT_TRUE(status.ok()) << status;
    if (bytes <= now_) allocator_.Allow(bytes);
    now_ = bytes;
  }
  void Lift() {
    allocator_.Allow(0);
    EXPECT_TRUE(engine_.SetMemoryBudget(0, 0).ok());
    now_ = UINT64_MAX;
  }

 private:
  Engine& engine_;
  LeaseAllocator& allocator_;
  const uint64_t fixed_;
  uint64_t now_;
};

TEST(LeaseTest, EveryAllocationAndEveryStepKeepsIt) {
  const std::vector<RequestOptions> requests = MixedRequests(10);
  const auto want = Alone(requests);
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    LeaseAllocator allocator;
    {
      EngineHarness harness(GoldenModel("llama3"), Leased(allocator),
                            Blocks(40));
      ASSERT_TRUE(harness.ok());
      Lease lease(harness, allocator);
      std::mt19937 random(seed);
      uint64_t bytes = 0;
      const auto outcomes = harness.RunTogether(requests, 0, [&] {
        // What the step before left.
        EXPECT_TRUE(bytes == 0 || allocator.live() <= bytes);
        // Not always whole blocks; sometimes more than it can use.
        bytes = lease.fixed() + random() % (50 << 14);
        lease.Set(bytes);
        EXPECT_LE(allocator.live(), bytes);
        EXPECT_EQ(harness.Stats().memory.total_bytes, allocator.live());
      });
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(outcomes[i].tokens, want[i]) << i;
      EXPECT_EQ(allocator.num_violations(), 0);
      EXPECT_EQ(harness.BlocksUsed(), 0u);
      lease.Lift();
      EXPECT_EQ(harness.Metrics().kv_blocks_total, 40u);
    }
    EXPECT_EQ(allocator.num_live(), 0);
  }
}

TEST(LeaseTest, DownToTheFloorAndUpAgain) {
  const std::vector<RequestOptions> requests = MixedRequests(5);
  const auto want = Alone(requests);
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator), Blocks(40));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  Lease lease(harness, allocator);
  // One idle, four at work, of which two still wait.
  std::vector<SessionId> sessions;
  for (size_t i = 0; i < requests.size(); ++i)
    sessions.push_back(*runner.CreateSession());
  EXPECT_EQ(harness.Run(sessions[0], requests[0]).tokens, want[0]);
  std::vector<RequestId> ids;
  for (size_t i = 1; i < requests.size(); ++i)
    ids.push_back(*runner.Submit(sessions[i], requests[i]));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.engine().Step(0).ok());

  for (int round = 0; round < 3; ++round) {
    lease.Set(lease.fixed());
    EXPECT_EQ(allocator.live(), lease.fixed());
    EXPECT_EQ(harness.Metrics().kv_blocks_total, 0u);
    EXPECT_EQ(harness.BlocksUsed(), 0u);
    const uint64_t steps = harness.Metrics().step_time_us.count();
    for (int i = 0; i < 5; ++i) {
      const auto summary = harness.engine().Step(0);
      ASSERT_TRUE(summary.ok());
      EXPECT_FALSE(summary->more_work);
    }
    EXPECT_EQ(harness.Metrics().step_time_us.count(), steps);
    EXPECT_FALSE(runner.HasWork());
    EXPECT_TRUE(runner.HasRequests());
    EXPECT_EQ(runner.GetSessionInfo(sessions[0])->num_cached, 0u);
    EXPECT_EQ(runner.Tokens(sessions[0])->size(),
              requests[0].tokens.size() + want[0].size());
    // Room for the smallest only, then for all.
    lease.Set(lease.fixed() + ((3 + 10 * static_cast<uint64_t>(round)) << 14));
    EXPECT_TRUE(runner.HasWork());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(harness.engine().Step(0).ok());
  }
  lease.Lift();
  harness.RunAll();
  for (size_t i = 0; i < ids.size(); ++i) {
    Outcome outcome;
    harness.Drain(ids[i], outcome);
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.tokens, want[i + 1]);
  }
  // The idle one goes on as though nothing had been.
  RequestOptions more = TokenRequest({}, 5);
  const std::vector<int32_t> log = *runner.Tokens(sessions[0]);
  EXPECT_EQ(harness.Run(sessions[0], more).tokens,
            harness.RunAlone(TokenRequest(log, 5)).tokens);
  EXPECT_EQ(allocator.num_violations(), 0);
}

TEST(LeaseTest, RefusesWhatCannotBe) {
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator), Blocks(10));
  ASSERT_TRUE(harness.ok());
  Engine& engine = harness.engine();
  const uint64_t fixed = harness.FixedBytes();
  const uint64_t before = allocator.live();
  EXPECT_EQ(engine.SetMemoryBudget(0, fixed - 1).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.SetMemoryBudget(0, 1).code(),
            absl::StatusCode::kResourceExhausted);
  for (const int device : {-1, 1}) {
    EXPECT_EQ(engine.SetMemoryBudget(device, 0).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(allocator.live(), before);
  EXPECT_EQ(harness.Stats().memory.budget_bytes, 0u);
  EXPECT_EQ(harness.RunAlone(TokenRequest({1, 2}, 3)).tokens.size(), 3u);
  engine.Close();
  EXPECT_EQ(engine.SetMemoryBudget(0, 0).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(allocator.live(), 0u);
}

TEST(LeaseTest, ModelsShareIt) {
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator), Blocks(30));
  ASSERT_TRUE(harness.ok());
  const auto second = harness.engine().Load(GoldenModel("mistral"), Blocks(30));
  ASSERT_TRUE(second.ok());
  Lease lease(harness, allocator);
  const auto want = Alone(MixedRequests(1));
  lease.Set(lease.fixed() + (30 << 14));
  const auto half = [&](ModelRunner& runner) {
    const ModelRunner::KvMemory memory = runner.kv_memory();
    EXPECT_LE(memory.bytes, memory.target_bytes / 2);
    EXPECT_GE(memory.bytes, memory.target_bytes / 2 - memory.extent_bytes);
  };
  half(harness.runner());
  half(*second->runner);
  lease.Set(lease.fixed());
  EXPECT_EQ(second->runner->kv_memory().bytes, 0u);
  lease.Lift();
  for (ModelRunner* runner : {&harness.runner(), second->runner.get()}) {
    EXPECT_EQ(runner->kv_memory().bytes, runner->kv_memory().target_bytes);
  }
  EXPECT_EQ(harness.RunAlone(MixedRequests(1)[0]).tokens, want[0]);
  EXPECT_EQ(allocator.num_violations(), 0);
}

TEST(LeaseTest, DeadlinesEndWhatWaits) {
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator), Blocks(10));
  ASSERT_TRUE(harness.ok());
  Lease lease(harness, allocator);
  RequestOptions options = TokenRequest(RandomTokens(1, 30), 30);
  options.deadline_us = 400000;
  const SessionId session = *harness.runner().CreateSession();
  const RequestId request = *harness.runner().Submit(session, options);
  ASSERT_TRUE(harness.engine().Step(0).ok());
  lease.Set(lease.fixed());
  ASSERT_TRUE(harness.engine().Step(0).ok());
  Outcome outcome;
  harness.Drain(request, outcome);
  EXPECT_FALSE(outcome.finished);
  std::this_thread::sleep_for(milliseconds(410));
  ASSERT_TRUE(harness.engine().Step(0).ok());
  harness.Drain(request, outcome);
  ASSERT_TRUE(outcome.finished);
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome.finish.status));
  EXPECT_FALSE(harness.runner().HasRequests());
  EXPECT_FALSE(harness.runner().GetSessionInfo(session)->busy);
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(LeaseTest, AnEngineOfItsOwnThreadWaitsWithoutSpinning) {
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator, true),
                        Blocks(10));
  ASSERT_TRUE(harness.ok());
  Lease lease(harness, allocator);
  lease.Set(lease.fixed() + (2 << 14));
  RequestOptions options = TokenRequest(RandomTokens(1, 20), 12);
  const SessionId session = *harness.runner().CreateSession();
  const RequestId request = *harness.runner().Submit(session, options);
  options.deadline_us = 250000;
  options.tokens = RandomTokens(2, 20);
  const SessionId late_session = *harness.runner().CreateSession();
  lease.Set(lease.fixed());
  for (int i = 0; i < 1000 && allocator.live() > lease.fixed(); ++i)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(allocator.live(), lease.fixed());
  Outcome early;
  harness.Drain(request, early);

  const double cpu = CpuSeconds();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(CpuSeconds() - cpu, 0.1);
  lease.Lift();
  Outcome outcome = early;
  while (!outcome.finished) {
    const auto event = harness.engine().events().NextOf(request, 10000000);
    ASSERT_TRUE(event.ok()) << event.status();
    outcome.Take(*event);
  }
  EXPECT_EQ(outcome.tokens.size(), 12u);

  // And a deadline passes although nothing is computed.
  const RequestId late = *harness.runner().Submit(late_session, options);
  lease.Set(lease.fixed());
  Outcome expired;
  while (!expired.finished) {
    const auto event = harness.engine().events().NextOf(late, 10000000);
    ASSERT_TRUE(event.ok()) << event.status();
    expired.Take(*event);
  }
  EXPECT_TRUE(expired.finish.status.ok() ||
              absl::IsDeadlineExceeded(expired.finish.status));
}

TEST(LeaseTest, AnotherThreadSetsItDuringSteps) {
  const std::vector<RequestOptions> requests = MixedRequests(12);
  const auto want = Alone(requests);
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator), Blocks(40));
  ASSERT_TRUE(harness.ok());
  std::atomic<bool> done{false};
  Lease lease(harness, allocator);
  std::thread setter([&] {
    std::mt19937 random(1);
    while (!done) {
      // Allocations during a step keep the budget of any moment since it
      // began; only what the allocator is told must not race with them.
      allocator.Allow(0);
      EXPECT_TRUE(harness.engine()
                      .SetMemoryBudget(0, lease.fixed() + random() % (50 << 14))
                      .ok());
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
  });
  const auto outcomes = harness.RunTogether(requests);
  done = true;
  setter.join();
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(outcomes[i].tokens, want[i]) << i;
  lease.Lift();
  EXPECT_EQ(harness.Metrics().kv_blocks_total, 40u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// Whatever moment of a step it comes in, when both have returned it is obeyed.
TEST(LeaseTest, NoChangeIsMissed) {
  LeaseAllocator allocator;
  EngineHarness harness(GoldenModel("llama3"), Leased(allocator), Blocks(40));
  ASSERT_TRUE(harness.ok());
  const uint64_t fixed = harness.FixedBytes();
  for (uint64_t round = 0; round < 2000 && !HasFailure(); ++round) {
    const uint64_t low = fixed + ((round % 20) << 14);
    const uint64_t lower = fixed + ((round % 7) << 14);
    std::atomic<int> ready{0};
    const auto meet = [&] {
      for (++ready; ready < 2;) std::this_thread::yield();
    };
    std::thread stepper([&] {
      meet();
      if (round % 2 == 0) {
        EXPECT_TRUE(harness.engine().Step(0).ok());
      } else {
        EXPECT_TRUE(harness.engine().SetMemoryBudget(0, low).ok());
      }
    });
    meet();
    EXPECT_TRUE(harness.engine().SetMemoryBudget(0, lower).ok());
    stepper.join();
    EXPECT_LE(allocator.live(), harness.Stats().memory.budget_bytes);
    ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
    ASSERT_EQ(harness.Metrics().kv_blocks_total, 40u);
  }
}

TEST(LeaseTest, ManyThreadsAndAnEngineOfItsOwn) {
  const std::vector<RequestOptions> requests = MixedRequests(8);
  const auto want = Alone(requests);
  LeaseAllocator allocator;
  {
    EngineHarness harness(GoldenModel("llama3"), Leased(allocator, true),
                          Blocks(30));
    ASSERT_TRUE(harness.ok());
    const uint64_t fixed = harness.FixedBytes();
    std::atomic<bool> done{false};
    std::thread setter([&] {
      std::mt19937 random(2);
      while (!done) {
        const uint64_t room = (random() % 4) * (random() % (20 << 14));
        EXPECT_TRUE(harness.engine().SetMemoryBudget(0, fixed + room).ok());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 900));
      }
      EXPECT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
    });
    std::atomic<int> right{0};
    std::atomic<int> refused{0};
    std::vector<std::thread> hosts;
    for (size_t t = 0; t < requests.size(); ++t) {
      hosts.emplace_back([&, t] {
        const SessionId session = *harness.runner().CreateSession();
        Outcome outcome;
        absl::StatusOr<RequestId> request = absl::UnknownError("");
        // While memory is low, what cannot fit now is refused.
        while (!request.ok()) {
          request = harness.runner().Submit(session, requests[t]);
          if (request.ok()) break;
          EXPECT_TRUE(absl::IsResourceExhausted(request.status()));
          ++refused;
          std::this_thread::sleep_for(milliseconds(1));
        }
        while (!outcome.finished) {
          const auto event =
              harness.engine().events().NextOf(*request, UINT64_MAX);
          if (!event.ok()) return;
          outcome.Take(*event);
        }
        if (outcome.tokens == want[t]) ++right;
        harness.runner().ReleaseSession(session);
      });
    }
    for (std::thread& host : hosts) host.join();
    done = true;
    setter.join();
    EXPECT_EQ(right, 8);
    EXPECT_EQ(harness.BlocksUsed(), 0u);
  }
  EXPECT_EQ(allocator.live(), 0u);
}

}  // namespace
}  // namespace inlay
