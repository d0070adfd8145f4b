// Models of which only some layers have a window: what is held, and that
// nothing of it shows in the tokens. (determinism_test.cc has them through
// preemption, forks, snapshots, tiers and changing memory.)
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/model_harness.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::inlay::testing::Blocks;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;

// What the model gives greedily with all KV of all layers kept.
std::vector<int32_t> WithEverythingKept(EngineHarness& harness,
                                        const std::vector<int32_t>& prompt,
                                        int count) {
  const Model& model = *harness.runner().loaded().model;
  auto device = CreateCpuDevice(2, 0, nullptr);
  EXPECT_TRUE(device.ok());
  ModelHarness plain(model, **device,
                     static_cast<int64_t>(prompt.size()) + count + 64);
  const int sequence = plain.AddSequence(0);
  auto logits = plain.Run(sequence, prompt, 256);
  EXPECT_TRUE(logits.ok()) << logits.status();
  auto tokens = plain.Greedy(sequence, std::move(logits->back()), count);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *std::move(tokens);
}

// The golden's window is 32, on three of four layers: blocks of 48 and 16.
TEST(KvGroupsTest, WindowedLayersHoldTheirWindowOnly) {
  EngineHarness reference(GoldenModel("gemma3_text"));
  ASSERT_TRUE(reference.ok());
  ASSERT_EQ(reference.runner().loaded().kv_layout.groups(),
            (KvGroups{{48, 0}, {16, 32}}));
  const std::vector<int32_t> prompt = RandomTokens(1, 60);
  const std::vector<int32_t> want = WithEverythingKept(reference, prompt, 400);

  EngineOptions options;
  options.scheduler.max_batch_tokens = 16;
  options.scheduler.max_running = 4;
  // 459 tokens are 10 blocks, and 29 if all were kept; the window and a step
  // are 5.
  EngineHarness harness(GoldenModel("gemma3_text"), options,
                        Blocks(16, reference.BlockBytes()));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  const RequestId request = *runner.Submit(session, TokenRequest(prompt, 400));
  uint64_t most = 0;
  while (runner.HasWork()) {
    ASSERT_TRUE(harness.engine().Step(0).ok());
    most = std::max(most, harness.BlocksUsed());
  }
  Outcome outcome;
  harness.Drain(request, outcome);
  EXPECT_EQ(outcome.tokens, want);
  EXPECT_LE(most, 10u + 3u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  // It goes on from what is left of it, and so does a fork.
  std::vector<int32_t> log = prompt;
  log.insert(log.end(), want.begin(), want.end());
  const std::vector<int32_t> next = WithEverythingKept(reference, log, 20);
  const SessionId fork = *runner.Fork(session);
  for (const SessionId id : {session, fork}) {
    const Outcome more = harness.Run(id, TokenRequest({}, 20));
    EXPECT_EQ(more.finish.cached_tokens, 459u);
    EXPECT_EQ(more.tokens, next);
  }
  // Behind what the window has left it is computed again.
  ASSERT_TRUE(runner.Rewind(fork, 100).ok());
  const Outcome rewound = harness.Run(fork, TokenRequest({}, 10));
  EXPECT_LT(rewound.finish.cached_tokens, 99u);
  EXPECT_EQ(rewound.tokens,
            std::vector<int32_t>(want.begin() + 40, want.begin() + 50));
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST(KvGroupsTest, SeveralRunInACacheThatNoneOfThemWouldFitWhole) {
  EngineHarness reference(GoldenModel("gemma2"));
  ASSERT_TRUE(reference.ok());
  EngineOptions options;
  options.scheduler.max_batch_tokens = 24;
  options.scheduler.max_running = 4;
  std::vector<RequestOptions> requests;
  std::vector<std::vector<int32_t>> want;
  for (uint32_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> prompt = RandomTokens(10 + i, 200);
    requests.push_back(TokenRequest(prompt, 100));
    want.push_back(WithEverythingKept(reference, prompt, 100));
  }
  EngineHarness harness(GoldenModel("gemma2"), options,
                        Blocks(30, reference.BlockBytes()));
  ASSERT_TRUE(harness.ok());
  const std::vector<Outcome> outcomes = harness.RunTogether(requests);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(outcomes[i].tokens, want[i]) << i;
  EXPECT_GT(harness.Metrics().preemptions_recompute, 0u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// As gemma3 has them: five layers of six with a window of 512.
TEST(KvGroupsTest, ALongSequenceTakesLittleMoreThanItsFullLayers) {
  const std::string path = "random:" + TestData() + "/shapes/gemma3-6-layers";
  EngineHarness harness(path);
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  constexpr uint64_t kTokens = 8192;
  const SessionId session = *runner.CreateSession();
  const auto request =
      runner.Submit(session, TokenRequest(RandomTokens(1, kTokens), 2));
  ASSERT_TRUE(request.ok()) << request.status();
  uint64_t held = 0;
  while (runner.HasWork()) {
    ASSERT_TRUE(harness.engine().Step(0).ok());
    held = std::max(held, harness.BlocksUsed() * harness.BlockBytes());
  }
  // K and V of one head of 32 in float32.
  const uint64_t layer = kTokens * 2 * 32 * 4;
  const double share =
      static_cast<double>(held) / static_cast<double>(6 * layer);
  RecordProperty("share", std::to_string(share));
  // A sixth, and the window of 512 (5 / 6 of a sixteenth) with ends of blocks.
  EXPECT_LT(share, 1.0 / 6 + 5.0 / 6 / 16 + 0.01);
}

TEST(KvGroupsTest, QuotesAndPinsCountWhatIsHeld) {
  EngineHarness harness(GoldenModel("gemma3_text"));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const uint64_t block = harness.BlockBytes();
  const std::vector<int32_t> tokens = RandomTokens(1, 300);
  const SessionId session = *runner.CreateSession();
  // 7 blocks of 48 tokens, and all 19 of 16: a step may have 512.
  const auto quote = runner.Quote(session, TokenRequest(tokens, 1), true);
  ASSERT_TRUE(quote.ok()) << quote.status();
  EXPECT_EQ(quote->kv_bytes, 26 * block);
  EXPECT_EQ(quote->new_kv_bytes, 26 * block);
  EXPECT_TRUE(quote->reserved);
  EXPECT_EQ(harness.BlocksUsed(), 26u);
  harness.Run(session, TokenRequest(tokens, 1));
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  // The prefix is there; 7 blocks, and the 3 that the window touches.
  const auto prefix =
      runner.CreatePrefix("system", TokenRequest(tokens, 0), true, 10 * block);
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(*prefix)->num_cached, 300u);
  EXPECT_EQ(runner.GetPrefixInfo(*prefix)->kv_bytes, 10 * block);
  EXPECT_EQ(harness.BlocksUsed(), 10u);
  const SessionId opened = *runner.OpenPrefix(*prefix);
  const Outcome outcome = harness.Run(opened, TokenRequest({7, 8}, 5));
  EXPECT_EQ(outcome.finish.cached_tokens, 300u);
  EXPECT_EQ(harness.BlocksUsed(), 10u);
}

// Blocks of both groups move as memory goes, and come back from a snapshot
// without what the window had passed.
TEST(KvGroupsTest, SnapshotsAndLeases) {
  EngineHarness harness(GoldenModel("gemma3_text"));
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t> prompt = RandomTokens(3, 150);
  const std::vector<int32_t> want = WithEverythingKept(harness, prompt, 60);
  const SessionId session = *runner.CreateSession();
  EXPECT_EQ(harness.Run(session, TokenRequest(prompt, 30)).tokens,
            std::vector<int32_t>(want.begin(), want.begin() + 30));
  std::vector<std::byte> saved;
  ASSERT_TRUE(runner
                  .Save(session,
                        [&](absl::Span<const std::byte> piece) {
                          saved.insert(saved.end(), piece.begin(), piece.end());
                          return absl::OkStatus();
                        })
                  .ok());
  // 4 blocks of the full layer, 3 that the window touches.
  EXPECT_GT(saved.size(), 7 * harness.BlockBytes());
  EXPECT_LT(saved.size(), 8 * harness.BlockBytes());
  EngineHarness fresh(GoldenModel("gemma3_text"));
  const auto restored = fresh.runner().Restore(saved);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->num_kv_tokens, 179u);
  EXPECT_EQ(restored->note, "");
  // Ever less memory, while it runs and between.
  const uint64_t fixed = fresh.FixedBytes();
  const auto request =
      fresh.runner().Submit(restored->session, TokenRequest({}, 30));
  ASSERT_TRUE(request.ok()) << request.status();
  uint64_t blocks = 60;
  while (fresh.runner().HasWork()) {
    ASSERT_TRUE(fresh.engine().Step(0).ok());
    blocks = std::max<uint64_t>(blocks - 3, 24);
    ASSERT_TRUE(fresh.engine()
                    .SetMemoryBudget(0, fixed + blocks * fresh.BlockBytes())
                    .ok());
  }
  Outcome outcome;
  fresh.Drain(*request, outcome);
  EXPECT_EQ(outcome.tokens,
            std::vector<int32_t>(want.begin() + 30, want.begin() + 60));
  EXPECT_EQ(outcome.finish.cached_tokens, 179u);
}

}  // namespace
}  // namespace inlay
