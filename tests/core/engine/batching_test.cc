// Batched equals isolated: whatever else runs, however a prompt is chunked,
// whatever was evicted or preempted, a request gives the tokens it gives alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::TokenRequest;

struct Job {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  float temperature = 0.0f;
  uint64_t seed = 0;

  RequestOptions Options() const {
    RequestOptions options = TokenRequest(prompt, max_tokens);
    options.sampling.temperature = temperature;
    options.sampling.seed = seed;
    options.sampling.top_p = 0.9f;
    return options;
  }
};

std::vector<Job> MakeJobs(std::mt19937& random, int count) {
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) {
    Job job;
    job.prompt.resize(1 + random() % 90);
    for (int32_t& token : job.prompt) {
      token = static_cast<int32_t>(random() % 320);
    }
    job.max_tokens = 1 + static_cast<int64_t>(random() % 24);
    job.temperature = random() % 2 == 0 ? 0.0f : 0.8f;
    job.seed = random();
    jobs.push_back(std::move(job));
  }
  return jobs;
}

class BatchingTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BatchingTest, EqualsIsolated) {
  constexpr int kJobs = 28;
  const std::string path = GoldenModel(GetParam());
  for (const uint32_t seed : {1u, 2u}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const std::vector<Job> jobs = MakeJobs(random, kJobs);
    std::vector<Outcome> alone;
    {
      EngineOptions options;
      options.num_threads = 1;
      EngineHarness harness(path, options);
      ASSERT_TRUE(harness.ok());
      for (const Job& job : jobs)
        alone.push_back(harness.RunAlone(job.Options()));
    }

    // A small cache and small steps: prompts are chunked, requests preempted.
    EngineOptions options;
    options.num_threads = 2;
    options.scheduler.max_batch_tokens =
        8 + static_cast<int32_t>(random() % 60);
    options.scheduler.max_running = 8;
    ModelOptions model_options;
    model_options.kv_block_size = seed == 2 ? 8 : 16;
    model_options.kv_budget_bytes = 420 << 10;
    EngineHarness harness(path, options, model_options);
    ASSERT_TRUE(harness.ok());
    ModelRunner& runner = harness.runner();
    std::map<size_t, std::pair<SessionId, RequestId>> live;
    std::vector<Outcome> batched(kJobs);
    std::vector<bool> cancelled(kJobs, false);
    size_t next = 0;
    while (next < jobs.size() || !live.empty()) {
      while (next < jobs.size() && random() % 3 != 0) {
        const SessionId session = *runner.CreateSession();
        const auto request = runner.Submit(session, jobs[next].Options());
        ASSERT_TRUE(request.ok()) << request.status();
        live[next++] = {session, *request};
      }
      ASSERT_TRUE(harness.engine().Step(0).ok());
      for (auto it = live.begin(); it != live.end();) {
        const auto [session, request] = it->second;
        if (random() % 150 == 0) {
          cancelled[it->first] = true;
          ASSERT_TRUE(runner.Cancel(request).ok());
        }
        Outcome& outcome = batched[it->first];
        harness.Drain(request, outcome);
        if (!outcome.finished) {
          ++it;
          continue;
        }
        // Some sessions stay, idle, and are evicted when blocks are short.
        if (random() % 2 == 0) runner.ReleaseSession(session);
        it = live.erase(it);
      }
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (cancelled[i]) {
        ASSERT_LE(batched[i].tokens.size(), alone[i].tokens.size());
        alone[i].tokens.resize(batched[i].tokens.size());
      }
      EXPECT_EQ(batched[i].tokens, alone[i].tokens) << "job " << i;
    }
    const EngineMetrics metrics = harness.Metrics();
    EXPECT_GT(metrics.preemptions_recompute + metrics.evicted_blocks, 0u)
        << "the cache was large enough for everything: nothing was proved";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, BatchingTest,
    ::testing::Values("llama3", "gemma3_text", "mistral", "gpt2", "cohere2",
                      "olmo3", "llama4_text", "minimax", "minimax_m2", "lfm2",
                      "qwen3_next", "deepseek_v3", "deepseek_v32",
                      "deepseek_v4", "deepseek_v4_rates", "glm_moe_dsa",
                      "qwen3_5_text", "gemma4_text", "gemma4_moe_text"),
    [](const auto& info) { return info.param; });

// Turns of many sessions over a cache that holds few of them: what was evicted
// is computed again and the answers do not change.
TEST(BatchingTest, EvictedSessionsGoOn) {
  EngineHarness reference(GoldenModel("llama3"));
  ModelOptions model_options;
  model_options.kv_budget_bytes = 200 << 10;
  EngineHarness harness(GoldenModel("llama3"), {}, model_options);
  ASSERT_TRUE(harness.ok() && reference.ok());
  std::vector<SessionId> sessions, wanted;
  for (int i = 0; i < 6; ++i) {
    sessions.push_back(*harness.runner().CreateSession());
    wanted.push_back(*reference.runner().CreateSession());
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (size_t i = 0; i < sessions.size(); ++i) {
      const std::vector<int32_t> input(10, static_cast<int32_t>(20 + i) + turn);
      EXPECT_EQ(harness.Run(sessions[i], TokenRequest(input, 15)).tokens,
                reference.Run(wanted[i], TokenRequest(input, 15)).tokens);
    }
  }
  EXPECT_GT(harness.Metrics().evicted_blocks, 0u);
  EXPECT_EQ(reference.Metrics().evicted_blocks, 0u);
  for (const SessionId session : sessions)
    harness.runner().ReleaseSession(session);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

}  // namespace
}  // namespace inlay
