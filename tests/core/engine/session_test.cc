// Sessions and requests through the engine: what each promise of inlay.h means,
// on a tiny model with random weights.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "core/sampling/log_softmax.h"
#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::TokenRequest;

const std::vector<int32_t> kPrompt = {341, 339, 139, 375, 196, 19, 478};

TEST(SessionTest, ContinuesWhereTheLogEnds) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  const Outcome whole = harness.RunAlone(TokenRequest(kPrompt, 12));
  ASSERT_EQ(whole.tokens.size(), 12u);
  EXPECT_EQ(whole.finish.reason, FinishReason::kLength);

  const SessionId session = *harness.runner().CreateSession();
  Outcome first = harness.Run(session, TokenRequest(kPrompt, 5));
  // No input: generation goes on from the log.
  const Outcome second = harness.Run(session, TokenRequest({}, 7));
  first.tokens.insert(first.tokens.end(), second.tokens.begin(),
                      second.tokens.end());
  EXPECT_EQ(first.tokens, whole.tokens);
  // All but the last token of the log had their KV.
  EXPECT_EQ(second.finish.prompt_tokens, kPrompt.size() + 5);
  EXPECT_EQ(second.finish.cached_tokens, kPrompt.size() + 4);
  EXPECT_EQ(*harness.runner().Tokens(session), [&] {
    std::vector<int32_t> log = kPrompt;
    log.insert(log.end(), whole.tokens.begin(), whole.tokens.end());
    return log;
  }());
}

TEST(SessionTest, ForkSharesAndThenDiffers) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  // 21 tokens: the second block of 16 is partly filled, so forks copy it.
  std::vector<int32_t> prompt(21);
  std::iota(prompt.begin(), prompt.end(), 5);
  const SessionId session = *harness.runner().CreateSession();
  harness.Run(session, TokenRequest(prompt, 1));
  const uint64_t used = harness.BlocksUsed();
  std::vector<SessionId> forks;
  for (int i = 0; i < 3; ++i) forks.push_back(*harness.runner().Fork(session));
  EXPECT_EQ(harness.BlocksUsed(), used);

  for (int i = 0; i < 3; ++i) {
    std::vector<int32_t> fresh = *harness.runner().Tokens(session);
    fresh.push_back(100 + i);
    const Outcome forked =
        harness.Run(forks[static_cast<size_t>(i)], TokenRequest({100 + i}, 8));
    EXPECT_EQ(forked.tokens, harness.RunAlone(TokenRequest(fresh, 8)).tokens);
  }
  for (const SessionId fork : forks) harness.runner().ReleaseSession(fork);
  EXPECT_EQ(harness.BlocksUsed(), used);
  harness.runner().ReleaseSession(session);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(SessionTest, RewindKeepsWhatStaysValid) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  const SessionId session = *harness.runner().CreateSession();
  const Outcome first = harness.Run(session, TokenRequest(kPrompt, 30));
  EXPECT_FALSE(harness.runner().Rewind(session, 38).ok());
  ASSERT_TRUE(harness.runner().Rewind(session, kPrompt.size()).ok());
  const Outcome again = harness.Run(session, TokenRequest({}, 30));
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.finish.cached_tokens, kPrompt.size() - 1);
}

// Of a generation that was cut back to before its first token, what comes next
// is generated too, for penalties of those that go on from there.
TEST(SessionTest, ResumedAfterARewindInPiecesOrAtOnce) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  RequestOptions options = TokenRequest(kPrompt, 9);
  options.sampling.frequency_penalty = 100;  // no token twice
  const auto resume = [&](SessionId session, int64_t tokens) {
    RequestOptions more = options;
    more.tokens.clear();
    more.max_tokens = tokens;
    more.resume = true;
    return harness.Run(session, more).tokens;
  };
  for (const bool replaces : {false, true}) {
    SCOPED_TRACE(replaces ? "replaced" : "rewound");
    const SessionId session = *runner.CreateSession();
    harness.Run(session, options);
    std::vector<std::vector<int32_t>> got;
    for (const int64_t first : {6, 26}) {
      const SessionId fork = *runner.Fork(session);
      std::vector<int32_t> tokens;
      if (replaces) {
        RequestOptions more = options;
        more.tokens.resize(1);
        more.mode = InputMode::kReplace;
        more.max_tokens = first;
        more.resume = true;
        tokens = harness.Run(fork, more).tokens;
      } else {
        ASSERT_TRUE(runner.Rewind(fork, 1).ok());
        tokens = resume(fork, first);
      }
      if (first < 26) {
        const auto rest = resume(fork, 26 - first);
        tokens.insert(tokens.end(), rest.begin(), rest.end());
      }
      got.push_back(tokens);
      runner.ReleaseSession(fork);
    }
    EXPECT_EQ(got[0], got[1]);
    EXPECT_EQ(got[1].size(), 26u);
    runner.ReleaseSession(session);
  }
}

TEST(SessionTest, ReplaceKeepsTheCommonPrefix) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  const SessionId session = *harness.runner().CreateSession();
  harness.Run(session, TokenRequest(kPrompt, 10));
  std::vector<int32_t> other = kPrompt;
  other[5] = 7;
  RequestOptions options = TokenRequest(other, 10);
  options.mode = InputMode::kReplace;
  const Outcome replaced = harness.Run(session, options);
  EXPECT_EQ(replaced.finish.cached_tokens, 5u);
  EXPECT_EQ(replaced.tokens, harness.RunAlone(TokenRequest(other, 10)).tokens);
  // The same once more: all but the last token is there.
  options = TokenRequest(other, 10);
  options.mode = InputMode::kReplace;
  EXPECT_EQ(harness.Run(session, options).finish.cached_tokens,
            other.size() - 1);
}

TEST(SessionTest, RefusesWithTheReason) {
  ModelOptions model_options;
  model_options.kv_budget_bytes = 1 << 16;  // 4 blocks of 16 KiB
  EngineHarness harness(GoldenModel("llama3"), {}, model_options);
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const auto capacity = runner.kv_capacity_tokens();
  const SessionId session = *runner.CreateSession();
  const auto submit = [&](RequestOptions options) {
    return runner.Submit(session, std::move(options)).status();
  };
  EXPECT_EQ(submit(TokenRequest({}, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(submit(TokenRequest({512}, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(submit(TokenRequest({-1}, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(submit(TokenRequest({1}, -2)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(submit(TokenRequest(std::vector<int32_t>(513, 1), 1)).code(),
            absl::StatusCode::kInvalidArgument);
  // Within the context, but the cache could never hold it.
  const absl::Status too_big = submit(TokenRequest(
      std::vector<int32_t>(static_cast<size_t>(capacity) + 2, 1), 1));
  EXPECT_EQ(too_big.code(), absl::StatusCode::kResourceExhausted) << too_big;
  RequestOptions text;
  text.input = InputKind::kText;
  text.text = "hello";
  EXPECT_EQ(submit(text).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(runner.GetSessionInfo(session)->num_tokens, 0u);

  ASSERT_TRUE(runner.Submit(session, TokenRequest({1, 2}, 4)).ok());
  EXPECT_EQ(submit(TokenRequest({3}, 1)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runner.Fork(session).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runner.Rewind(session, 0).code(),
            absl::StatusCode::kFailedPrecondition);
  harness.RunAll();
  EXPECT_TRUE(runner.Rewind(session, 0).ok());
  runner.ReleaseSession(session);
  EXPECT_EQ(runner.GetSessionInfo(session).status().code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(SessionTest, CancelInEveryState) {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 16;
  options.scheduler.max_running = 2;
  EngineHarness harness(GoldenModel("llama3"), options);
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  std::vector<int32_t> prompt(60, 9);
  // Steps before the cancel: 0 waiting, 1 in prefill, 6 in decode, 200
  // finished.
  for (const int steps : {0, 1, 6, 200}) {
    std::vector<SessionId> sessions;
    std::vector<RequestId> requests;
    for (int i = 0; i < 3; ++i) {
      sessions.push_back(*runner.CreateSession());
      requests.push_back(
          *runner.Submit(sessions.back(), TokenRequest(prompt, 20)));
    }
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(harness.engine().Step(0).ok());
    for (const RequestId request : requests) {
      ASSERT_TRUE(runner.Cancel(request).ok());
      ASSERT_TRUE(runner.Cancel(request).ok());  // once more changes nothing
    }
    harness.RunAll();
    for (size_t i = 0; i < requests.size(); ++i) {
      Outcome outcome;
      harness.Drain(requests[i], outcome);
      ASSERT_TRUE(outcome.finished) << steps;
      EXPECT_EQ(outcome.finish.reason, steps == 200 ? FinishReason::kLength
                                                    : FinishReason::kCancelled);
      runner.ReleaseSession(sessions[i]);
    }
    EXPECT_EQ(harness.BlocksUsed(), 0u) << steps;
  }
  EXPECT_EQ(harness.Metrics().requests_cancelled, 9u);
  EXPECT_EQ(harness.Metrics().requests_length, 3u);
}

TEST(SessionTest, LogitsAreThoseTokensAreChosenFrom) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  RequestOptions options = TokenRequest(kPrompt, 6);
  options.logits = LogitsMode::kGenerated;
  options.sampling.num_logprobs = 3;
  const Outcome generated = harness.RunAlone(options);
  ASSERT_EQ(generated.logits.size(), 6u);
  ASSERT_EQ(generated.logprobs.size(), 6u * 4u);
  for (size_t i = 0; i < 6; ++i) {
    const auto& [position, logits] = generated.logits[i];
    EXPECT_EQ(position, static_cast<int64_t>(kPrompt.size() + i - 1));
    const auto best = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(best - logits.begin(), generated.tokens[i]);
    const EventLogprob& chosen = generated.logprobs[i * 4];
    EXPECT_EQ(chosen.token, generated.tokens[i]);
    EXPECT_FLOAT_EQ(chosen.logprob, LogProbOf(logits, chosen.token));
    EXPECT_EQ(generated.logprobs[i * 4 + 1].token, chosen.token);
  }

  options = TokenRequest(kPrompt, 0);
  options.logits = LogitsMode::kAll;
  options.score_prompt = true;
  const Outcome all = harness.RunAlone(options);
  EXPECT_TRUE(all.tokens.empty());
  ASSERT_EQ(all.logits.size(), kPrompt.size());
  ASSERT_EQ(all.scores.size(), kPrompt.size() - 1);
  EXPECT_EQ(all.logits.back().second, generated.logits.front().second);
  for (size_t i = 0; i < all.scores.size(); ++i) {
    EXPECT_EQ(all.scores[i].first, static_cast<int64_t>(i + 1));
    EXPECT_FLOAT_EQ(all.scores[i].second,
                    LogProbOf(all.logits[i].second, kPrompt[i + 1]));
  }

  options = TokenRequest(kPrompt, 1);
  options.logits = LogitsMode::kPositions;
  options.logits_positions = {4, 2};
  const Outcome some = harness.RunAlone(options);
  ASSERT_EQ(some.logits.size(), 2u);
  EXPECT_EQ(some.logits[0].second, all.logits[2].second);
  EXPECT_EQ(some.logits[1].second, all.logits[4].second);
}

// What the host asks to see does not depend on what happened to be cached.
TEST(SessionTest, CachedTokensAreComputedAgainWhereAskedFor) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  RequestOptions options = TokenRequest(kPrompt, 0);
  options.score_prompt = true;
  options.logits = LogitsMode::kPositions;
  options.logits_positions = {1, 4};
  options.mode = InputMode::kReplace;
  const SessionId session = *harness.runner().CreateSession();
  const Outcome fresh = harness.Run(session, options);
  const Outcome cached = harness.Run(session, options);
  ASSERT_EQ(fresh.scores.size(), kPrompt.size() - 1);
  ASSERT_EQ(fresh.logits.size(), 2u);
  EXPECT_EQ(cached.scores, fresh.scores);
  EXPECT_EQ(cached.logits, fresh.logits);

  // Appended tokens are scored from the first one on.
  RequestOptions more = TokenRequest({5, 6, 7}, 0);
  more.score_prompt = true;
  const Outcome appended = harness.Run(session, more);
  ASSERT_EQ(appended.scores.size(), 3u);
  EXPECT_EQ(appended.scores[0].first, static_cast<int64_t>(kPrompt.size()));

  for (const int64_t position : {int64_t{-1}, int64_t{10}}) {
    RequestOptions wrong = TokenRequest({}, 0);
    wrong.logits = LogitsMode::kPositions;
    wrong.logits_positions = {position};
    EXPECT_EQ(harness.runner().Submit(session, wrong).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(SessionTest, ModelsAreReclaimedWhenNobodyHoldsThem) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  EXPECT_GT(harness.Stats().memory.total_bytes, 0u);
  harness.RunAlone(TokenRequest(kPrompt, 2));
  harness.DropModel();
  ASSERT_TRUE(harness.engine().Step(0).ok());
  EXPECT_EQ(harness.Stats().metrics.models, 0u);
  // Counters count since creation, whatever became of the model.
  EXPECT_EQ(harness.Stats().metrics.requests_submitted, 1u);
  EXPECT_EQ(harness.Stats().metrics.requests_length, 1u);
  EXPECT_EQ(harness.Stats().metrics.kv_blocks_total, 0u);
  EXPECT_EQ(harness.Stats().memory.total_bytes, 0u);
}

TEST(SessionTest, ClosedEngineAnswersSo) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  const RequestId request = *runner.Submit(session, TokenRequest({1, 2}, 5));
  harness.engine().Close();
  EXPECT_EQ(runner.Submit(session, TokenRequest({1}, 1)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness.engine().Step(0).status().code(),
            absl::StatusCode::kUnavailable);
  Outcome outcome;
  harness.Drain(request, outcome);
  ASSERT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.finish.reason, FinishReason::kCancelled);
  EXPECT_EQ(harness.Stats().memory.total_bytes, 0u);
}

}  // namespace
}  // namespace inlay
