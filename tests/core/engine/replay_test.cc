// Serving a recording again gives the same plans and tokens.
#include "core/engine/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "core/engine/recording.h"
#include "tests/support/replay_util.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

struct Counts {
  int steps = 0, within_steps = 0, cancels_within = 0, preempted = 0,
      expired = 0, hits = 0, resizes = 0, restores = 0, quotes = 0;
};

Counts Count(const std::vector<RecordingEntry>& entries) {
  Counts counts;
  bool in_step = false;
  for (const RecordingEntry& entry : entries) {
    if (const auto* plan = std::get_if<PlanEntry>(&entry)) {
      in_step = !plan->items.empty();
      counts.steps += in_step ? 1 : 0;
      counts.preempted += static_cast<int>(plan->preempted.size());
      counts.expired += static_cast<int>(plan->expired.size());
      continue;
    }
    if (std::holds_alternative<CommitEntry>(entry)) in_step = false;
    if (in_step) {
      ++counts.within_steps;
      counts.cancels_within += std::holds_alternative<CancelEntry>(entry);
    }
    counts.resizes += std::holds_alternative<ResizeEntry>(entry);
    counts.restores += std::holds_alternative<RestoreEntry>(entry);
    counts.quotes += std::holds_alternative<QuoteEntry>(entry);
  }
  return counts;
}

TEST_F(ReplayTest, RandomServingReplaysExactly) {
  Counts sum;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    // Windows and plain attention, with sharing and without.
    const std::string model = seed % 2 == 0 ? "mistral" : "llama3";
    EngineOptions options = SmallSteps();
    options.prefix_sharing = seed != 3;
    EngineHarness harness(GoldenModel(model), options, SmallCache(model));
    ASSERT_TRUE(harness.ok());
    // Sessions from before go on in the recording.
    const SessionId before = *harness.runner().CreateSession();
    harness.Run(before, TokenRequest({1, 2, 3}, 5));
    Record(harness, seed);
    harness.Run(before, TokenRequest({4}, 5));

    const Counts counts = Count(ReadEntries(path()));
    sum.within_steps += counts.within_steps;
    sum.cancels_within += counts.cancels_within;
    sum.preempted += counts.preempted;
    sum.expired += counts.expired;
    sum.resizes += counts.resizes;
    sum.restores += counts.restores;
    sum.quotes += counts.quotes;
    const EngineMetrics metrics = harness.Metrics();
    sum.hits += static_cast<int>(metrics.prefix_hit_tokens);

    // In the engine that recorded, and in one that is set otherwise.
    ModelOptions cache = SmallCache(model);
    cache.kv_budget_bytes *= 3;
    EngineHarness other(GoldenModel(model), {}, cache);
    for (EngineHarness* where : {&harness, &other, &other}) {
      const ReplayReport report = Replay(*where);
      EXPECT_TRUE(report.same())
          << "seed " << seed << " step " << report.first_difference->step
          << " of " << report.steps << ": " << report.first_difference->what;
      EXPECT_EQ(report.damage, "");
      EXPECT_EQ(report.steps, static_cast<uint64_t>(counts.steps));
      EXPECT_GT(report.tokens, 0u);  // few where deadlines pass: slow machines
      EXPECT_EQ(report.tokens_differing, 0u);
    }
  }
  // It was worth it.
  EXPECT_GT(sum.within_steps, 0);
  EXPECT_GT(sum.cancels_within, 0);
  EXPECT_GT(sum.preempted, 0);
  EXPECT_GT(sum.expired, 0);
  EXPECT_GT(sum.hits, 0);
  EXPECT_GT(sum.resizes, 0);
  EXPECT_GT(sum.restores, 0);
  EXPECT_GT(sum.quotes, 0);
}

// Other calls wait for a piece at most: 63 of 64 MiB, 16 at a time. What was
// used last stays, though it has to move.
TEST_F(ReplayTest, ALargeCacheIsGivenUpPieceByPiece) {
  EngineHarness harness(GoldenModel("llama3"), {}, Blocks(4096));
  ASSERT_TRUE(harness.ok());
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  for (uint32_t i = 0; i < 40; ++i)
    harness.RunAlone(TokenRequest(RandomTokens(i, 100), 2));
  const RequestOptions request = TokenRequest(RandomTokens(99, 100), 8);
  const Outcome before = harness.RunAlone(request);
  const uint64_t left = harness.FixedBytes() + (uint64_t{1} << 20);
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, left).ok());
  EXPECT_EQ(harness.Metrics().kv_blocks_total, 64u);
  const Outcome after = harness.RunAlone(request);
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_GT(after.finish.cached_tokens, 90u);
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  std::set<uint64_t> mib;
  for (const RecordingEntry& entry : ReadEntries(path())) {
    if (const auto* resize = std::get_if<ResizeEntry>(&entry))
      mib.insert(resize->bytes >> 20);
  }
  EXPECT_THAT(mib, ::testing::ElementsAre(1, 16, 32, 48));
  // Replaying takes a cache as large as the recorded one.
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
  const ReplayReport report = Replay(harness);
  EXPECT_TRUE(report.same());
  EXPECT_EQ(report.damage, "");
}

// Pieces of a cache are cut from what it may take: of a host's number, and
// where it is chosen, from what the engine's budget leaves.
TEST_F(ReplayTest, ACacheOfNoWholePieces) {
  const uint64_t block =
      EngineHarness(GoldenModel("llama3")).runner().kv_memory().extent_bytes;
  for (const uint64_t bytes :
       {block * 24 + 1, block * 150 - 1, block * 190, uint64_t{0}}) {
    SCOPED_TRACE(::testing::Message() << bytes << " bytes");
    ModelOptions cache;
    cache.kv_budget_bytes = bytes;
    EngineOptions options;
    if (bytes == 0) options.memory_budget_bytes = 2 << 20;
    EngineHarness harness(GoldenModel("llama3"), options, cache);
    ASSERT_TRUE(harness.ok());
    ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
    ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
    harness.RunAlone(TokenRequest({1, 2, 3}, 9));
    ASSERT_TRUE(harness.runner().StopRecording().ok());
    const ReplayReport report = Replay(harness);
    EXPECT_TRUE(report.same());
    EXPECT_EQ(report.tokens, 9u);
  }
}

// The tokens of a replay are those the host got.
TEST_F(ReplayTest, TheReportHasTheTokensOfEachRequest) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  std::map<RequestId, std::vector<int32_t>> got;
  for (int32_t i = 0; i < 3; ++i) {
    const SessionId session = *harness.runner().CreateSession();
    RequestOptions options = TokenRequest({1, 2, 3 + i}, 9);
    options.sampling.temperature = 1;
    options.sampling.seed = 7;
    const RequestId request = *harness.runner().Submit(session, options);
    harness.RunAll();
    Outcome outcome;
    harness.Drain(request, outcome);
    got[request] = outcome.tokens;
  }
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  const uint64_t sessions = harness.Metrics().sessions;
  const ReplayReport report = Replay(harness);
  EXPECT_EQ(report.tokens_of, got);
  EXPECT_EQ(report.requests, 3u);
  EXPECT_EQ(report.tokens, 27u);
  EXPECT_EQ(harness.Metrics().sessions, sessions);  // nothing stays
  EXPECT_THAT(ToJson(report), HasSubstr("\"same\":true"));
  EXPECT_THAT(ToJson(report), HasSubstr("\"tokens\":27,"));
}

TEST_F(ReplayTest, NamedPrefixes) {
  EngineHarness harness(GoldenModel("llama3"), SmallSteps(),
                        SmallCache("llama3"));
  ModelRunner& runner = harness.runner();
  RequestOptions input = TokenRequest(std::vector<int32_t>(20, 5), 0);
  // One from before; it is not pinned.
  const PrefixId before = *runner.CreatePrefix("before", input, false, 0);
  ASSERT_TRUE(runner.StartRecording(path()).ok());
  EXPECT_EQ(*runner.RetainPrefix("before"), before);
  input.tokens.assign(30, 6);
  const PrefixId pinned = *runner.CreatePrefix("pinned", input, true, 0);
  ASSERT_TRUE(runner.PinPrefix(before, true).ok());
  for (const PrefixId prefix : {before, pinned, pinned}) {
    const SessionId session = *runner.OpenPrefix(prefix);
    harness.Run(session, TokenRequest({1, 2, 3}, 6));
    runner.ReleaseSession(session);
  }
  const ModelRunner::KvMemory memory = runner.kv_memory();
  runner.ResizeKv(memory.extent_bytes * 3);  // takes what is pinned
  runner.ResizeKv(memory.target_bytes);      // and has it computed again
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(pinned)->num_cached, 30u);
  ASSERT_TRUE(runner.PinPrefix(before, false).ok());
  for (const PrefixId prefix : {before, before, pinned})
    runner.ReleasePrefix(prefix);
  harness.RunAlone(TokenRequest({9, 9}, 4));
  ASSERT_TRUE(runner.StopRecording().ok());
  const ReplayReport report = Replay(harness);
  EXPECT_TRUE(report.same()) << report.first_difference->what;
  EXPECT_EQ(report.damage, "");
  EXPECT_EQ(report.tokens, 22u);
}

// Ids that another model of the engine draws in between change nothing.
TEST_F(ReplayTest, TwoModelsShareIds) {
  EngineHarness harness(GoldenModel("llama3"));
  const auto other = harness.engine().Load(GoldenModel("mistral"), {});
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  RequestOptions input = TokenRequest(std::vector<int32_t>(20, 5), 0);
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(other->runner->CreateSession().ok());
    ASSERT_TRUE(harness.runner().CreatePrefix(name, input, true, 0).ok());
    ASSERT_TRUE(other->runner->CreateSession().ok());
    harness.RunAlone(TokenRequest({1, 2}, 3));
  }
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  EXPECT_TRUE(Replay(harness).same());
}

TEST_F(ReplayTest, WhatCannotBeRecorded) {
  EngineHarness harness(GoldenModel("llama3"));
  ModelRunner& runner = harness.runner();
  const auto refused = [&](const char* why) {
    const absl::Status status = runner.StartRecording(path());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.ToString(), HasSubstr(why));
  };
  EXPECT_FALSE(runner.StopRecording().ok());
  EXPECT_FALSE(runner.StartRecording(folder_.File("no/such")).ok());
  const SessionId session = *runner.CreateSession();
  ASSERT_TRUE(runner.Quote(session, TokenRequest({1, 2}, 3), true).ok());
  refused("set aside");
  ASSERT_TRUE(runner.Submit(session, TokenRequest({1, 2}, 3)).ok());
  refused("requests run");
  harness.RunAll();
  const PrefixId prefix =
      *runner.CreatePrefix("p", TokenRequest({1, 2}, 0), true, 0);
  harness.RunAll();
  refused("pinned");
  runner.ReleasePrefix(prefix);
  ASSERT_TRUE(runner.StartRecording(path()).ok());
  refused("already");
  EXPECT_TRUE(runner.StopRecording().ok());

  ModelOptions tiered;
  tiered.host_cache_bytes = 1 << 20;
  EngineHarness with_tier(GoldenModel("llama3"), {}, tiered);
  EXPECT_THAT(with_tier.runner().StartRecording(path()).ToString(),
              HasSubstr("host memory"));
}

TEST_F(ReplayTest, AnotherModelIsRefused) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  harness.RunAlone(TokenRequest({1, 2}, 3));
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  const auto refused = [&](EngineHarness& other, const char* why) {
    const auto report = other.engine().Replay(other.runner(), path());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().ToString(), HasSubstr(why));
  };
  EngineHarness mistral(GoldenModel("mistral"));
  refused(mistral, "another model");
  ModelOptions options;
  options.kv_dtype = DType::kF16;
  EngineHarness other_kv(GoldenModel("llama3"), {}, options);
  refused(other_kv, "KV");
  options = ModelOptions();
  options.max_context = 64;
  EngineHarness other_context(GoldenModel("llama3"), {}, options);
  refused(other_context, "context");
  WriteFile(path(), "something else");
  refused(harness, "no recording");
}

// A difference is found where it is, and what follows is compared all the same.
TEST_F(ReplayTest, DifferencesAreFindings) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  harness.RunAlone(TokenRequest({1, 2, 3}, 8));
  harness.RunAlone(TokenRequest({4, 5}, 8));
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  const std::vector<RecordingEntry> good = ReadEntries(path());
  const auto with = [&](auto&& change) {
    std::vector<RecordingEntry> entries = good;
    int step = 0;
    for (RecordingEntry& entry : entries) {
      step += std::holds_alternative<PlanEntry>(entry) ? 1 : 0;
      change(step, entry);
    }
    WriteEntries(path(), entries);
    return Replay(harness);
  };

  // Another token: it goes on from the recorded one.
  ReplayReport report = with([](int step, RecordingEntry& entry) {
    if (auto* commit = std::get_if<CommitEntry>(&entry); commit && step == 3)
      commit->items[0].token ^= 1;
  });
  ASSERT_FALSE(report.same());
  EXPECT_EQ(report.first_difference->step, 3u);
  EXPECT_THAT(report.first_difference->what, HasSubstr("token"));
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(report.tokens, 16u);
  EXPECT_GE(report.tokens_differing, 1u);

  // Another plan, or another end: there is no going on.
  report = with([](int step, RecordingEntry& entry) {
    if (auto* plan = std::get_if<PlanEntry>(&entry); plan && step == 4)
      ++plan->items[0].first_token;
  });
  ASSERT_FALSE(report.same());
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.first_difference->step, 4u);
  EXPECT_THAT(report.first_difference->what, HasSubstr("1 tokens from"));
  EXPECT_EQ(report.tokens, 3u);
  report = with([](int step, RecordingEntry& entry) {
    if (auto* commit = std::get_if<CommitEntry>(&entry); commit && step == 5)
      commit->items[0].result.finished = true;
  });
  ASSERT_FALSE(report.same());
  EXPECT_TRUE(report.stopped);
  EXPECT_THAT(report.first_difference->what, HasSubstr("goes on"));

  // A step that failed fails again.
  report = with([](int step, RecordingEntry& entry) {
    auto* commit = std::get_if<CommitEntry>(&entry);
    if (commit == nullptr || step != 5) return;
    commit->elapsed_us = -1;
    commit->items[0] = {{0, true, false}, true, 0};
  });
  EXPECT_EQ(report.tokens, 4u);
  ASSERT_FALSE(report.same());  // what was recorded after it went on
  EXPECT_EQ(report.first_difference->step, 6u);
}

TEST_F(ReplayTest, CloseEndsRecordingAndReplay) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  harness.RunAlone(TokenRequest({1, 2}, 3));
  harness.engine().Close();
  EXPECT_FALSE(harness.runner().StartRecording(path()).ok());
  EXPECT_TRUE(absl::IsUnavailable(
      harness.engine().Replay(harness.runner(), path()).status()));
  EngineHarness other(GoldenModel("llama3"));
  EXPECT_EQ(Replay(other).damage, "");
  EXPECT_TRUE(absl::IsUnavailable(
      other.runner().Replay(path(), [] { return false; }).status()));
}

}  // namespace
}  // namespace inlay::testing
