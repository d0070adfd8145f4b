// Decode steps that a GPU begins before the host has seen the tokens of the
// step before: the same tokens as without, whoever comes and goes meanwhile.
// With a time budget, however long, there are none.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::GoldenModel;
using testing::Outcome;
using testing::RandomTokens;
using testing::TokenRequest;

constexpr uint64_t kLongUs = 1000000000;

EngineOptions OnGpu() {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.batch_invariant = true;
  options.scheduler.max_batch_tokens = 64;
  options.scheduler.max_running = 8;
  return options;
}

class CudaAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
  }
};

std::vector<RequestOptions> Requests(size_t count) {
  std::vector<RequestOptions> requests;
  for (size_t i = 0; i < count; ++i) {
    requests.push_back(TokenRequest(RandomTokens(i, 3 + i * 29 % 70),
                                    static_cast<int64_t>(20 + i * 13 % 50)));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    requests.back().sampling.seed = i;
  }
  return requests;
}

std::vector<std::vector<int32_t>> TokensOf(
    const std::vector<Outcome>& outcomes) {
  std::vector<std::vector<int32_t>> tokens;
  for (const Outcome& outcome : outcomes) tokens.push_back(outcome.tokens);
  return tokens;
}

// Models with one and two groups of KV blocks, with states besides, with states
// alone.
TEST_F(CudaAheadTest, TheSameTokens) {
  for (const char* name :
       {"llama3", "gemma2", "qwen3", "falcon_h1", "mamba2"}) {
    SCOPED_TRACE(name);
    EngineHarness ahead(GoldenModel(name), OnGpu());
    EngineHarness after(GoldenModel(name), OnGpu());
    ASSERT_TRUE(ahead.ok() && after.ok());
    auto requests = Requests(20);
    // Those that do not end at their length: the host is the first to know.
    const auto full = TokensOf(after.RunTogether(requests, kLongUs));
    for (size_t i = 0; i < requests.size(); i += 3)
      requests[i].stop_tokens = {full[i][full[i].size() / 2]};
    EXPECT_EQ(TokensOf(ahead.RunTogether(requests)),
              TokensOf(after.RunTogether(requests, kLongUs)));
    EXPECT_GT(ahead.Metrics().steps_ahead, 50u);
    EXPECT_EQ(after.Metrics().steps_ahead, 0u);
    EXPECT_EQ(ahead.BlocksUsed(), 0u);
  }
}

TEST_F(CudaAheadTest, AlmostEveryStepOfOne) {
  for (const char* name : {"llama3", "qwen3_5_text", "mamba2"}) {
    EngineHarness gpu(GoldenModel(name), OnGpu());
    ASSERT_TRUE(gpu.ok());
    gpu.RunAlone(TokenRequest(RandomTokens(1, 30), 100));
    // All but the prompt's step.
    EXPECT_EQ(gpu.Metrics().steps_ahead, 99u) << name;
  }
}

// Who has to see each token first: penalties, log-probabilities, logits.
TEST_F(CudaAheadTest, NotWhereTheHostHasToLook) {
  EngineHarness gpu(GoldenModel("llama3"), OnGpu());
  ASSERT_TRUE(gpu.ok());
  std::vector<RequestOptions> requests = Requests(3);
  requests[0].sampling.repetition_penalty = 1.3f;
  requests[1].sampling.num_logprobs = 2;
  requests[2].logits = LogitsMode::kGenerated;
  for (const RequestOptions& request : requests) gpu.RunAlone(request);
  EXPECT_EQ(gpu.Metrics().steps_ahead, 0u);
}

// Requests that come, are cancelled, lose their KV and the cache that shrinks,
// between steps of which one is under way.
TEST_F(CudaAheadTest, WhoeverComesAndGoes) {
  ModelOptions model;
  model.kv_budget_bytes = 16 << 20;
  EngineHarness gpu(GoldenModel("llama3"), OnGpu(), model);
  EngineHarness calm(GoldenModel("llama3"), OnGpu());
  ASSERT_TRUE(gpu.ok() && calm.ok());
  const auto requests = Requests(60);
  const uint64_t fixed = gpu.FixedBytes() + (16 << 20);
  std::mt19937 random(7);
  struct Flight {
    SessionId session;
    RequestId request;
    size_t index;
    bool cancelled;
    Outcome outcome;
  };
  std::vector<Flight> flights;
  size_t next = 0, finished = 0;
  while (finished < requests.size()) {
    if (next < requests.size() && random() % 6 == 0) {
      const SessionId session = *gpu.runner().CreateSession();
      flights.push_back({session, *gpu.runner().Submit(session, requests[next]),
                         next, false, Outcome()});
      ++next;
    }
    if (!flights.empty() && random() % 40 == 0) {
      Flight& flight = flights[random() % flights.size()];
      flight.cancelled = true;
      ASSERT_TRUE(gpu.runner().Cancel(flight.request).ok());
    }
    if (random() % 50 == 0) {
      const uint64_t room = (uint64_t{2} << 20) << random() % 4;
      ASSERT_TRUE(gpu.engine().SetMemoryBudget(0, fixed + room).ok());
    }
    ASSERT_TRUE(gpu.engine().Step(0).ok());
    for (size_t i = 0; i < flights.size();) {
      Flight& flight = flights[i];
      gpu.Drain(flight.request, flight.outcome);
      if (!flight.outcome.finished) {
        ++i;
        continue;
      }
      if (!flight.cancelled) {
        EXPECT_EQ(flight.outcome.tokens,
                  calm.RunAlone(requests[flight.index]).tokens)
            << flight.index;
      }
      gpu.engine().events().Drop(flight.request);
      gpu.runner().ReleaseSession(flight.session);
      std::swap(flight, flights.back());
      flights.pop_back();
      ++finished;
    }
  }
  EXPECT_GT(gpu.Metrics().steps_ahead, 100u);
  gpu.RunAll();
  EXPECT_EQ(gpu.BlocksUsed(), 0u);
}

// A fault of one request, behind which a step had been queued.
TEST_F(CudaAheadTest, AFaultIsOneRequestsAlone) {
  EngineHarness gpu(GoldenModel("llama3"), OnGpu());
  ASSERT_TRUE(gpu.ok());
  auto requests = Requests(4);
  const auto want = TokensOf(gpu.RunTogether(requests));
  for (int32_t t = 0; t < 512; ++t)
    requests[2].sampling.banned_tokens.push_back(t);
  const auto outcomes = gpu.RunTogether(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i == 2) {
      EXPECT_EQ(outcomes[i].finish.status.code(),
                absl::StatusCode::kInvalidArgument);
    } else {
      EXPECT_EQ(outcomes[i].tokens, want[i]) << i;
    }
  }
  EXPECT_EQ(gpu.BlocksUsed(), 0u);
}

// On a thread of the engine's own, with sessions that go on.
TEST_F(CudaAheadTest, AThreadOfItsOwn) {
  EngineOptions options = OnGpu();
  EngineHarness calm(GoldenModel("llama3"), options);
  options.own_thread = true;
  EngineHarness gpu(GoldenModel("llama3"), options);
  ASSERT_TRUE(gpu.ok() && calm.ok());
  const auto requests = Requests(4);
  std::vector<SessionId> sessions, calm_sessions;
  for (size_t i = 0; i < requests.size(); ++i) {
    sessions.push_back(*gpu.runner().CreateSession());
    calm_sessions.push_back(*calm.runner().CreateSession());
  }
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<RequestId> ids;
    for (size_t i = 0; i < requests.size(); ++i)
      ids.push_back(*gpu.runner().Submit(sessions[i], requests[i]));
    for (size_t i = 0; i < requests.size(); ++i) {
      Outcome outcome;
      while (!outcome.finished) {
        const auto event = gpu.engine().events().NextOf(ids[i], 5000000);
        ASSERT_TRUE(event.ok()) << event.status();
        outcome.Take(*event);
      }
      EXPECT_EQ(outcome.tokens, calm.Run(calm_sessions[i], requests[i]).tokens);
      gpu.engine().events().Drop(ids[i]);
    }
  }
  EXPECT_GT(gpu.Metrics().steps_ahead, 100u);
}

}  // namespace
}  // namespace inlay
