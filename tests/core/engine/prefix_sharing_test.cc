// What sessions share of each other's KV, what they must not, and what goes
// first when blocks are short.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;

TEST(PrefixSharingTest, HitsAreCounted) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  std::vector<int32_t> prompt = RandomTokens(1, 50);
  EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 4)).finish.cached_tokens, 0u);
  EngineMetrics metrics = harness.Metrics();
  EXPECT_EQ(metrics.prefix_lookup_tokens, 50u);
  EXPECT_EQ(metrics.prefix_hit_tokens, 0u);
  EXPECT_EQ(metrics.prefill_tokens, 50u);

  EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 4)).finish.cached_tokens,
            48u);  // one more token would cost a copy
  prompt[40] ^= 1;
  EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 4)).finish.cached_tokens,
            40u);
  metrics = harness.Metrics();
  EXPECT_EQ(metrics.prefix_lookup_tokens, 150u);
  EXPECT_EQ(metrics.prefix_hit_tokens, 88u);
  EXPECT_EQ(metrics.prefill_tokens, 50u + 2u + 10u);
  // 50 + 3 tokens with KV are 4 blocks; the third prompt differs in the third.
  EXPECT_EQ(metrics.kv_blocks_cached, 6u);
  EXPECT_EQ(metrics.kv_blocks_used, 6u);
  EXPECT_EQ(metrics.kv_blocks_evictable, 6u);
}

TEST(PrefixSharingTest, WhatTwoComputeAtOnceIsKeptOnce) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  // The same 64 tokens in one step, and different ends.
  std::vector<SessionId> sessions;
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt = RandomTokens(2, 70);
    prompt.back() = i;
    sessions.push_back(*runner.CreateSession());
    ASSERT_TRUE(runner.Submit(sessions.back(), TokenRequest(prompt, 3)).ok());
  }
  ASSERT_TRUE(harness.engine().Step(0).ok());
  EXPECT_EQ(harness.Metrics().requests_running, 6u);
  // 4 blocks of all, one more of each.
  EXPECT_EQ(harness.BlocksUsed(), 10u);
  harness.RunAll();
  EXPECT_EQ(harness.Metrics().kv_blocks_used, 10u);
  EXPECT_EQ(harness.Metrics().prefix_hit_tokens, 0u);
  // The same to the end: nothing at all is kept twice.
  const uint64_t used = harness.Metrics().kv_blocks_used;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(*runner.CreateSession());
    ASSERT_TRUE(
        runner.Submit(sessions.back(), TokenRequest(RandomTokens(3, 40), 9))
            .ok());
  }
  harness.RunAll();
  EXPECT_EQ(harness.Metrics().kv_blocks_used, used + 3);
  for (const SessionId session : sessions) runner.ReleaseSession(session);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(PrefixSharingTest, IsolatedSessionsShareWithTheirForksOnly) {
  EngineOptions options;
  options.prefix_sharing = false;
  EngineHarness harness(GoldenModel("llama3"), options);
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t> prompt = RandomTokens(1, 60);
  const SessionId session = *runner.CreateSession();
  const Outcome first = harness.Run(session, TokenRequest(prompt, 5));
  const Outcome stranger = harness.RunAlone(TokenRequest(prompt, 5));
  EXPECT_EQ(stranger.finish.cached_tokens, 0u);
  EXPECT_EQ(stranger.tokens, first.tokens);
  // Its own it finds.
  const SessionId fork = *runner.Fork(session);
  const SessionId fork_of_fork = *runner.Fork(fork);
  for (const SessionId of_family : {session, fork, fork_of_fork}) {
    EXPECT_EQ(harness.Run(of_family, TokenRequest({7}, 1)).finish.cached_tokens,
              64u)
        << of_family;
  }
  // What a fork computed, its family may have too.
  harness.Run(fork, TokenRequest({8, 9, 10}, 1));
  EXPECT_EQ(
      harness.Run(session, TokenRequest({8, 9, 10}, 1)).finish.cached_tokens,
      69u);
  EXPECT_EQ(harness.RunAlone(TokenRequest(prompt, 1)).finish.cached_tokens, 0u);
  // Nor does a snapshot restored: it is nobody's family.
  std::vector<std::byte> saved;
  ASSERT_TRUE(runner
                  .Save(session,
                        [&](absl::Span<const std::byte> piece) {
                          saved.insert(saved.end(), piece.begin(), piece.end());
                          return absl::OkStatus();
                        })
                  .ok());
  const uint64_t used = harness.Metrics().kv_blocks_used;
  const auto restored = runner.Restore(saved);
  ASSERT_TRUE(restored.ok());
  EXPECT_GT(restored->num_kv_tokens, 0u);
  EXPECT_EQ(harness.Metrics().kv_blocks_used, used + 5);
}

TEST(PrefixSharingTest, RopeRegimesAreNeverMixed) {
  EngineHarness harness(GoldenModel("phi3_longrope"));
  ASSERT_TRUE(harness.ok());
  const std::vector<int32_t> prompt = RandomTokens(1, 40);
  const auto run = [&](int64_t max_tokens) {
    return harness.RunAlone(TokenRequest(prompt, max_tokens));
  };
  const Outcome first_short = run(24);  // 64: the last of the short
  EXPECT_EQ(first_short.finish.cached_tokens, 0u);
  const Outcome first_long = run(25);
  EXPECT_EQ(first_long.finish.cached_tokens, 0u);
  const Outcome again_short = run(24);
  const Outcome again_long = run(25);
  EXPECT_EQ(again_short.finish.cached_tokens, 39u);
  EXPECT_EQ(again_long.finish.cached_tokens, 39u);
  EXPECT_EQ(again_short.tokens, first_short.tokens);
  EXPECT_EQ(again_long.tokens, first_long.tokens);

  // A session that passes the threshold computes its log again, once.
  const SessionId session = *harness.runner().CreateSession();
  harness.Run(session, TokenRequest(prompt, 10));
  const Outcome over = harness.Run(session, TokenRequest({1, 2, 3}, 20));
  EXPECT_EQ(over.finish.cached_tokens, 40u);  // of the long one above
  const Outcome further = harness.Run(session, TokenRequest({4}, 20));
  EXPECT_EQ(further.finish.cached_tokens, 72u);
  std::vector<int32_t> log = *harness.runner().Tokens(session);
  log.resize(53);
  EXPECT_EQ(harness.RunAlone(TokenRequest(log, 20)).tokens, over.tokens);
  // Rewound, it is short again, and forks of it are.
  ASSERT_TRUE(harness.runner().Rewind(session, 30).ok());
  const SessionId fork = *harness.runner().Fork(session);
  const Outcome back = harness.Run(fork, TokenRequest({5}, 3));
  EXPECT_EQ(back.finish.cached_tokens, 30u);
  log.resize(30);
  log.push_back(5);
  EXPECT_EQ(harness.RunAlone(TokenRequest(log, 3)).tokens, back.tokens);
}

TEST(PrefixSharingTest, ASlidingWindowNeedsItsWindowOnly) {
  EngineHarness reference(GoldenModel("mistral"));
  ASSERT_TRUE(reference.ok());
  const std::vector<int32_t> prompt = RandomTokens(1, 60);
  const Outcome want = reference.RunAlone(TokenRequest(prompt, 400));
  ASSERT_EQ(want.tokens.size(), 400u);

  EngineOptions options;
  options.scheduler.max_batch_tokens = 16;
  options.scheduler.max_running = 4;
  // 460 tokens are 29 blocks; the window of 32 and a step are 4.
  EngineHarness harness(GoldenModel("mistral"), options,
                        Blocks(6, reference.BlockBytes()));
  ASSERT_TRUE(harness.ok());
  const SessionId session = *harness.runner().CreateSession();
  EXPECT_EQ(harness.Run(session, TokenRequest(prompt, 400)).tokens,
            want.tokens);
  // It goes on from what is left of it.
  const Outcome more = harness.Run(session, TokenRequest({}, 20));
  EXPECT_EQ(more.finish.cached_tokens, 459u);
  std::vector<int32_t> log = prompt;
  log.insert(log.end(), want.tokens.begin(), want.tokens.end());
  EXPECT_EQ(more.tokens, reference.RunAlone(TokenRequest(log, 20)).tokens);
  // Forks share the window; the beginning is gone, and computed again.
  const SessionId fork = *harness.runner().Fork(session);
  const Outcome forked = harness.Run(fork, TokenRequest({}, 5));
  EXPECT_EQ(forked.finish.cached_tokens, 479u);
  ASSERT_TRUE(harness.runner().Rewind(fork, 100).ok());
  const Outcome rewound = harness.Run(fork, TokenRequest({}, 10));
  EXPECT_LT(rewound.finish.cached_tokens, 99u);
  EXPECT_EQ(rewound.tokens, std::vector<int32_t>(want.tokens.begin() + 40,
                                                 want.tokens.begin() + 50));
  EXPECT_EQ(harness.BlocksUsed(), 0u);

  // Two at once, each longer than the whole cache.
  EngineHarness two(GoldenModel("mistral"), options,
                    Blocks(9, reference.BlockBytes()));
  const std::vector<Outcome> outcomes = two.RunTogether(
      {TokenRequest(prompt, 400), TokenRequest(RandomTokens(2, 200), 200)});
  EXPECT_EQ(outcomes[0].tokens, want.tokens);
  EXPECT_EQ(outcomes[1].tokens,
            reference.RunAlone(TokenRequest(RandomTokens(2, 200), 200)).tokens);
  // What cannot fit even so is refused.
  EngineHarness tiny(GoldenModel("mistral"), options,
                     Blocks(2, reference.BlockBytes()));
  EXPECT_EQ(
      tiny.runner()
          .Submit(*tiny.runner().CreateSession(), TokenRequest(prompt, 400))
          .status()
          .code(),
      absl::StatusCode::kResourceExhausted);
}

TEST(PrefixSharingTest, WhatWasUsedLongestAgoGoesFirstAndFromItsEnd) {
  EngineHarness like(GoldenModel("llama3"));
  EngineHarness harness(GoldenModel("llama3"), {},
                        Blocks(22, like.BlockBytes()));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const auto cached = [&](SessionId session) {
    return runner.GetSessionInfo(session)->num_cached;
  };
  std::vector<SessionId> sessions;  // 5 blocks each
  for (uint32_t i = 0; i < 4; ++i) {
    sessions.push_back(*runner.CreateSession());
    harness.Run(sessions.back(), TokenRequest(RandomTokens(i, 80), 1));
  }
  for (const SessionId session : sessions) EXPECT_EQ(cached(session), 80u);
  // The first is used again: now the second is the oldest.
  harness.Run(sessions[0], TokenRequest({}, 0));
  EXPECT_EQ(harness.Metrics().evicted_blocks, 0u);
  // 5 more blocks, of which 2 are free: a shorter beginning of it is left,
  // never a hole.
  harness.RunAlone(TokenRequest(RandomTokens(100, 80), 0));
  EXPECT_EQ(cached(sessions[1]), 32u);
  harness.RunAlone(TokenRequest(RandomTokens(101, 80), 0));
  EXPECT_EQ(cached(sessions[1]), 0u);
  EXPECT_EQ(cached(sessions[2]), 32u);
  EXPECT_EQ(cached(sessions[0]), 80u);
  EXPECT_EQ(cached(sessions[3]), 80u);
  // What many begin with outlives what only one of them has.
  EngineHarness shared(GoldenModel("llama3"), {},
                       Blocks(20, like.BlockBytes()));
  std::vector<SessionId> family;
  for (int32_t i = 0; i < 4; ++i) {
    std::vector<int32_t> prompt = RandomTokens(1, 80);
    for (size_t t = 48; t < 80; ++t) prompt[t] = i + static_cast<int32_t>(t);
    family.push_back(*shared.runner().CreateSession());
    shared.Run(family.back(), TokenRequest(prompt, 1));
  }
  shared.RunAlone(TokenRequest(RandomTokens(50, 200), 1));
  for (const SessionId session : family)
    EXPECT_GE(shared.runner().GetSessionInfo(session)->num_cached, 48u);
  EXPECT_GT(shared.Metrics().evicted_blocks, 0u);
}

}  // namespace
}  // namespace inlay
