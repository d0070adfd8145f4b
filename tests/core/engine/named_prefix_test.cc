// Named prefixes, quotes and reservations: blocks that somebody keeps although
// no request runs on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
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

RequestOptions PrefixRequest(std::vector<int32_t> tokens) {
  return TokenRequest(std::move(tokens), 0);
}

// So many blocks' worth of other things go through the cache.
void Flood(EngineHarness& harness, uint32_t seed) {
  for (uint32_t i = 0; i < 6; ++i)
    harness.RunAlone(TokenRequest(RandomTokens(seed + i, 80), 10));
}

TEST(NamedPrefixTest, APinnedOneIsComputedOnceAndStays) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t> tokens = RandomTokens(1, 70);
  const auto id = runner.CreatePrefix("system", PrefixRequest(tokens), true, 0);
  ASSERT_TRUE(id.ok()) << id.status();
  PrefixInfo info = *runner.GetPrefixInfo(*id);
  EXPECT_EQ(info.num_tokens, 70u);
  EXPECT_EQ(info.num_cached, 0u);
  EXPECT_EQ(info.kv_bytes, 5u << 14);
  EXPECT_TRUE(info.pinned);

  EXPECT_TRUE(runner.HasWork());
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(*id)->num_cached, 70u);
  EXPECT_EQ(harness.BlocksUsed(), 5u);
  // The host sees nothing of how it came about.
  EXPECT_EQ(harness.engine().events().Next(0).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(harness.Metrics().sessions, 0u);

  Flood(harness, 100);
  EXPECT_GT(harness.Metrics().evicted_blocks, 0u);
  const SessionId session = *runner.OpenPrefix(*id);
  EXPECT_EQ(*runner.Tokens(session), tokens);
  const Outcome opened = harness.Run(session, TokenRequest({3, 4}, 6));
  EXPECT_EQ(opened.finish.cached_tokens, 70u);
  std::vector<int32_t> whole = tokens;
  whole.insert(whole.end(), {3, 4});
  EngineHarness fresh(GoldenModel("llama3"));
  EXPECT_EQ(opened.tokens, fresh.RunAlone(TokenRequest(whole, 6)).tokens);

  runner.ReleasePrefix(*id);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  EXPECT_EQ(runner.GetPrefixInfo(*id).status().code(),
            absl::StatusCode::kUnauthenticated);
  // The session goes on without it.
  EXPECT_EQ(harness.Run(session, TokenRequest({}, 2)).tokens.size(), 2u);
}

TEST(NamedPrefixTest, UnpinnedItMayGo) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const PrefixId id = *runner.CreatePrefix(
      "document", PrefixRequest(RandomTokens(1, 64)), false, 0);
  EXPECT_FALSE(runner.HasWork());
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 0u);
  ASSERT_TRUE(runner.PinPrefix(id, true).ok());
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 64u);
  EXPECT_EQ(harness.BlocksUsed(), 4u);
  const uint64_t computed = harness.Metrics().prefill_tokens;
  // Pinned again: there is nothing to do.
  ASSERT_TRUE(runner.PinPrefix(id, true).ok());
  EXPECT_FALSE(runner.HasWork());

  ASSERT_TRUE(runner.PinPrefix(id, false).ok());
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 64u);
  // And back before anything was lost.
  ASSERT_TRUE(runner.PinPrefix(id, true).ok());
  EXPECT_EQ(harness.BlocksUsed(), 4u);
  harness.RunAll();
  EXPECT_EQ(harness.Metrics().prefill_tokens, computed);
  ASSERT_TRUE(runner.PinPrefix(id, false).ok());
  Flood(harness, 100);
  EXPECT_LT(runner.GetPrefixInfo(id)->num_cached, 64u);
  runner.ReleasePrefix(id);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(NamedPrefixTest, SurvivesALeaseAndIsComputedAgain) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const PrefixId id = *runner.CreatePrefix(
      "system", PrefixRequest(RandomTokens(1, 70)), true, 0);
  harness.RunAll();
  const uint64_t fixed = harness.FixedBytes();
  // Room for it and little else: it stays.
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, fixed + (6 << 14)).ok());
  EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 70u);
  EXPECT_EQ(harness.BlocksUsed(), 5u);
  for (const uint64_t blocks : {3, 0}) {
    ASSERT_TRUE(
        harness.engine().SetMemoryBudget(0, fixed + (blocks << 14)).ok());
    EXPECT_EQ(harness.BlocksUsed(), 0u);
    EXPECT_LT(runner.GetPrefixInfo(id)->num_cached, 70u);
    EXPECT_TRUE(runner.GetPrefixInfo(id)->pinned);
    harness.RunAll();
    ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
    harness.RunAll();
    EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 70u);
    EXPECT_EQ(harness.BlocksUsed(), 5u);
  }
  // While it is being computed.
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, fixed).ok());
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
  ASSERT_TRUE(runner.HasWork());
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, fixed).ok());
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 0u);
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, 70u);
  EXPECT_EQ(harness.engine().events().Next(0).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  runner.ReleasePrefix(id);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(NamedPrefixTest, ReleasedWhileItIsComputed) {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 16;
  options.scheduler.max_running = 4;
  EngineHarness harness(GoldenModel("llama3"), options, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  for (int steps = 0; steps < 6; ++steps) {
    const PrefixId id = *runner.CreatePrefix(
        "p", PrefixRequest(RandomTokens(static_cast<uint32_t>(steps), 70)),
        true, 0);
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(harness.engine().Step(0).ok());
    if (steps % 2 == 0) {
      runner.ReleasePrefix(id);
    } else {
      ASSERT_TRUE(runner.PinPrefix(id, false).ok());
    }
    harness.RunAll();
    EXPECT_EQ(harness.BlocksUsed(), 0u) << steps;
    runner.ReleasePrefix(id);
    EXPECT_EQ(harness.Metrics().sessions, 0u);
  }
  // And with the engine.
  ASSERT_TRUE(
      runner.CreatePrefix("p", PrefixRequest(RandomTokens(9, 70)), true, 0)
          .ok());
  ASSERT_TRUE(harness.engine().Step(0).ok());
  harness.engine().Close();
  EXPECT_EQ(harness.Stats().memory.total_bytes, 0u);
}

TEST(NamedPrefixTest, NamesAndHolders) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const auto create = [&](const std::string& name, std::vector<int32_t> tokens,
                          bool pin = true, uint64_t budget = 0) {
    return runner
        .CreatePrefix(name, PrefixRequest(std::move(tokens)), pin, budget)
        .status()
        .code();
  };
  EXPECT_EQ(create("", {1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create("a", {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create("a", {512}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create("a", std::vector<int32_t>(512, 1)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(create("a", std::vector<int32_t>(321, 1)),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(create("a", std::vector<int32_t>(17, 1), true, (2 << 14) - 1),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(runner.RetainPrefix("a").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(create("big", std::vector<int32_t>(321, 1), false),
            absl::StatusCode::kOk);
  const PrefixId id = *runner.CreatePrefix(
      "a", PrefixRequest(RandomTokens(1, 17)), true, 2 << 14);
  EXPECT_EQ(create("a", {1}), absl::StatusCode::kFailedPrecondition);
  harness.RunAll();
  EXPECT_EQ(*runner.RetainPrefix("a"), id);
  runner.ReleasePrefix(id);
  // A single token in a block is not worth one.
  EXPECT_EQ(harness.BlocksUsed(), 1u);
  ASSERT_TRUE(runner.PinPrefix(id, true).ok());
  EXPECT_FALSE(runner.HasWork());
  runner.ReleasePrefix(id);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  runner.ReleasePrefix(id);  // once too often: nothing
  EXPECT_EQ(create("a", {1}), absl::StatusCode::kOk);
}

// KV of a prefix beyond the threshold is rotated like that of what follows it.
TEST(NamedPrefixTest, OfEitherRopeRegime) {
  for (const size_t length : {size_t{60}, size_t{64}, size_t{65}, size_t{90}}) {
    SCOPED_TRACE(::testing::Message() << length << " tokens");
    EngineHarness harness(GoldenModel("phi3_longrope"));
    ASSERT_TRUE(harness.ok());
    ModelRunner& runner = harness.runner();
    const std::vector<int32_t> tokens = RandomTokens(1, length);
    const PrefixId id =
        *runner.CreatePrefix("p", PrefixRequest(tokens), true, 0);
    harness.RunAll();
    const uint64_t kept = length == 65 ? 64 : length;
    EXPECT_EQ(runner.GetPrefixInfo(id)->num_cached, kept);
    EXPECT_EQ(harness.BlocksUsed(), (kept + 15) / 16);
    const SessionId session = *runner.OpenPrefix(id);
    EXPECT_EQ(runner.GetSessionInfo(session)->num_cached, kept);
    const Outcome outcome = harness.Run(session, TokenRequest({5}, 3));
    // Short ones are of no use to a request that may pass the threshold.
    EXPECT_EQ(outcome.finish.cached_tokens, length == 64 ? 0 : kept);
    std::vector<int32_t> whole = tokens;
    whole.push_back(5);
    EngineHarness fresh(GoldenModel("phi3_longrope"));
    EXPECT_EQ(outcome.tokens, fresh.RunAlone(TokenRequest(whole, 3)).tokens);
    runner.ReleasePrefix(id);
    EXPECT_EQ(harness.BlocksUsed(), 0u);
  }
}

TEST(NamedPrefixTest, IsolatedItIsSharedByItsOwnSessions) {
  EngineOptions options;
  options.prefix_sharing = false;
  EngineHarness harness(GoldenModel("llama3"), options, Blocks(30));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t> tokens = RandomTokens(1, 48);
  const PrefixId id = *runner.CreatePrefix("p", PrefixRequest(tokens), true, 0);
  harness.RunAll();
  for (int i = 0; i < 2; ++i) {
    const SessionId session = *runner.OpenPrefix(id);
    EXPECT_EQ(
        harness.Run(session, TokenRequest({1, 2}, 2)).finish.cached_tokens,
        48u);
  }
  EXPECT_EQ(harness.RunAlone(TokenRequest(tokens, 2)).finish.cached_tokens, 0u);
}

TEST(QuoteTest, SaysWhatARequestNeeds) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  const std::vector<int32_t> prompt = RandomTokens(1, 50);
  const auto quote = [&](int64_t max_tokens) {
    return *runner.Quote(session, TokenRequest(prompt, max_tokens), false);
  };
  RequestQuote empty = quote(40);  // 89 tokens with KV
  EXPECT_EQ(empty.prompt_tokens, 50u);
  EXPECT_EQ(empty.cached_tokens, 0u);
  EXPECT_EQ(empty.kv_bytes, 6u << 14);
  EXPECT_EQ(empty.new_kv_bytes, 6u << 14);
  EXPECT_TRUE(empty.fits && empty.fits_now);
  EXPECT_FALSE(empty.reserved);
  EXPECT_TRUE(quote(271).fits);
  EXPECT_FALSE(quote(272).fits);
  EXPECT_FALSE(quote(272).fits_now);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  EXPECT_EQ(runner.GetSessionInfo(session)->num_tokens, 0u);

  harness.RunAlone(TokenRequest(prompt, 1));
  const RequestQuote cached = quote(40);
  EXPECT_EQ(cached.cached_tokens, 48u);
  EXPECT_EQ(cached.kv_bytes, 6u << 14);
  EXPECT_EQ(cached.new_kv_bytes, 3u << 14);
  // Beside what runs.
  const SessionId other = *runner.CreateSession();
  ASSERT_TRUE(
      runner.Submit(other, TokenRequest(RandomTokens(2, 250), 10)).ok());
  ASSERT_TRUE(harness.engine().Step(0).ok());
  EXPECT_TRUE(quote(40).fits);
  EXPECT_FALSE(quote(40).fits_now);
  EXPECT_EQ(
      runner.Quote(session, TokenRequest(prompt, 40), true).status().code(),
      absl::StatusCode::kResourceExhausted);
  harness.RunAll();
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  EXPECT_EQ(
      runner.Quote(session, TokenRequest({999}, 1), false).status().code(),
      absl::StatusCode::kInvalidArgument);
  runner.ReleaseSession(session);
  EXPECT_EQ(
      runner.Quote(session, TokenRequest(prompt, 1), false).status().code(),
      absl::StatusCode::kUnauthenticated);
}

TEST(QuoteTest, AReservationIsKeptFromOthers) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const RequestOptions request = TokenRequest(RandomTokens(1, 100), 45);
  EngineHarness fresh(GoldenModel("llama3"));
  const std::vector<int32_t> want = fresh.RunAlone(request).tokens;
  const SessionId session = *runner.CreateSession();
  ASSERT_TRUE(runner.Quote(session, request, true)->reserved);
  EXPECT_EQ(harness.BlocksUsed(), 9u);  // of 144 tokens
  // Others get the rest, and wait for it where they must.
  std::vector<RequestId> others;
  for (uint32_t i = 0; i < 4; ++i) {
    others.push_back(*runner.Submit(
        *runner.CreateSession(), TokenRequest(RandomTokens(10 + i, 100), 60)));
  }
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(harness.engine().Step(0).ok());
  EXPECT_LE(harness.BlocksUsed(), 20u);
  // The request begins, and takes its blocks into use.
  const RequestId id = *runner.Submit(session, request);
  harness.RunAll();
  Outcome outcome;
  harness.Drain(id, outcome);
  EXPECT_EQ(outcome.tokens, want);
  for (size_t i = 0; i < others.size(); ++i) {
    Outcome other;
    harness.Drain(others[i], other);
    EXPECT_EQ(other.tokens.size(), 60u) << i;
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(QuoteTest, EveryWayThatAReservationEnds) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  const RequestOptions request = TokenRequest(RandomTokens(1, 100), 45);
  const auto reserve = [&] {
    ASSERT_TRUE(runner.Quote(session, request, true).ok());
    ASSERT_EQ(harness.BlocksUsed(), 9u);
  };
  reserve();  // The next quote, with or without.
  reserve();
  ASSERT_TRUE(runner.Quote(session, request, false).ok());
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  reserve();  // A lease that leaves it room, and one that does not.
  const uint64_t fixed = harness.FixedBytes();
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, fixed + (9 << 14)).ok());
  EXPECT_EQ(harness.BlocksUsed(), 9u);
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, fixed + (8 << 14)).ok());
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
  reserve();  // The request itself, another request, a cancelled one.
  EXPECT_EQ(harness.Run(session, request).tokens.size(), 45u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  ASSERT_TRUE(runner.Rewind(session, 0).ok());
  reserve();
  harness.Run(session, TokenRequest({1, 2, 3}, 2));
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  ASSERT_TRUE(runner.Rewind(session, 0).ok());
  reserve();
  const RequestId waiting = *runner.Submit(session, request);
  ASSERT_TRUE(runner.Cancel(waiting).ok());
  EXPECT_EQ(harness.BlocksUsed(), 9u);  // it never began
  ASSERT_TRUE(runner.Rewind(session, 0).ok());
  reserve();
  runner.ReleaseSession(session);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// A held session must not be what everybody waits for.
TEST(QuoteTest, ReservationsOfAllMemoryLetTheirOwnersThrough) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(20));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  const RequestOptions all = TokenRequest(RandomTokens(1, 300), 21);
  ASSERT_TRUE(runner.Quote(session, all, true).ok());
  EXPECT_EQ(harness.BlocksUsed(), 20u);
  const RequestId other = *runner.Submit(*runner.CreateSession(),
                                         TokenRequest(RandomTokens(2, 20), 2));
  harness.RunAll();
  EXPECT_FALSE(runner.HasWork());  // it waits, without spinning
  RequestOptions urgent = all;
  urgent.priority = 1;
  const RequestId owner = *runner.Submit(session, urgent);
  harness.RunAll();
  for (const RequestId request : {owner, other}) {
    Outcome outcome;
    harness.Drain(request, outcome);
    EXPECT_TRUE(outcome.finished);
    EXPECT_TRUE(outcome.finish.status.ok());
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

}  // namespace
}  // namespace inlay
