// The same request gives the same tokens, to the last bit of their
// log-probabilities: alone or among others, however its prompt is cut up,
// whatever was cached, evicted, preempted or taken away meanwhile. Forks and
// snapshots: every_decoder_test.cc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/determinism_util.h"
#include "tests/support/sanitized.h"
#include "tests/support/small_tokens.h"

namespace inlay {
namespace {

using ::inlay::testing::AppendOutcome;
using ::inlay::testing::DeterminismCase;
using ::inlay::testing::DeterminismTest;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::ExpectSame;
using ::inlay::testing::kDeterminismCases;
using ::inlay::testing::kSanitized;
using ::inlay::testing::Outcome;
using ::inlay::testing::SmallTokens;
using ::inlay::testing::TokenRequest;

TEST_P(DeterminismTest, AmongOthersOnAnyThreads) {
  for (const int threads : {1, 2, 3}) {
    SCOPED_TRACE(::testing::Message() << threads << " threads");
    EngineOptions options;
    options.num_threads = threads;
    EngineHarness harness(path_, options, Model());
    ASSERT_TRUE(harness.ok());
    ExpectAllSame(harness.RunTogether(requests_));
    EXPECT_EQ(harness.BlocksUsed(), 0u);
  }
}

// All of the prompt but its last token, whose logits are needed, and but for a
// single token in a block, which is not worth a copy.
uint64_t Reusable(const RequestOptions& request) {
  const uint64_t tokens = request.tokens.size() - 1;
  return tokens - (tokens % 16 == 1 ? 1 : 0);
}

TEST_P(DeterminismTest, WhateverIsCached) {
  EngineHarness harness(path_, {}, Model(64));
  ASSERT_TRUE(harness.ok());
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "request " << i);
    const RequestOptions& request = requests_[i];
    ExpectSame(harness.RunAlone(request), want(i));
    const Outcome again = harness.RunAlone(request);
    ExpectSame(again, want(i));
    ExpectCached(again, Reusable(request));
  }
  // A part: others computed a prompt that is the same up to a token in the
  // middle of a block, at its end or its beginning.
  for (const size_t common : {3, 21, 32, 47}) {
    SCOPED_TRACE(::testing::Message() << common << " tokens in common");
    EngineHarness fresh(path_, {}, Model());
    RequestOptions other = requests_[3];
    other.tokens[common] ^= 1;
    other.max_tokens = 1;
    fresh.RunAlone(other);
    const Outcome got = fresh.RunAlone(requests_[3]);
    ExpectSame(got, want(3));
    ExpectCached(got, common);
  }
  // Nothing any more.
  for (uint32_t seed = 500; harness.Metrics().evicted_blocks < 70; ++seed) {
    ASSERT_LT(seed, 600u);
    harness.RunAlone(TokenRequest(SmallTokens(seed, 120), 20));
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Outcome got = harness.RunAlone(requests_[i]);
    ExpectSame(got, want(i));
    EXPECT_LT(got.finish.cached_tokens, Reusable(requests_[i]));
  }
}

// Cancelled wherever it was, the generation goes on to the same end.
TEST_P(DeterminismTest, CancelledAndResumed) {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 40;
  options.scheduler.max_running = 4;
  EngineHarness harness(path_, options, Model());
  ASSERT_TRUE(harness.ok());
  for (const size_t i : {size_t{1}, size_t{3}}) {
    for (const int steps : {3, 5, 9, 14}) {
      SCOPED_TRACE(::testing::Message()
                   << "request " << i << " after " << steps << " steps");
      const SessionId session = *harness.runner().CreateSession();
      const RequestId request = *harness.runner().Submit(session, requests_[i]);
      for (int step = 0; step < steps; ++step)
        ASSERT_TRUE(harness.engine().Step(0).ok());
      ASSERT_TRUE(harness.runner().Cancel(request).ok());
      harness.RunAll();
      Outcome outcome;
      harness.Drain(request, outcome);
      ASSERT_TRUE(outcome.finished);
      // What was shown is what the log has.
      const std::vector<int32_t> log = *harness.runner().Tokens(session);
      ASSERT_EQ(log.size(), requests_[i].tokens.size() + outcome.tokens.size());
      ExpectSame(GoOn(harness, session, i, outcome), want(i));
      harness.runner().ReleaseSession(session);
    }
  }
}

TEST_P(DeterminismTest, WhileMemoryComesAndGoes) {
  for (const uint32_t seed : {1u, 2u}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    EngineOptions options;
    options.scheduler.max_batch_tokens = 32;
    options.scheduler.max_running = 4;
    EngineHarness harness(path_, options, Model(24));
    ASSERT_TRUE(harness.ok());
    const uint64_t fixed = harness.FixedBytes();
    std::mt19937 random(seed);
    const std::vector<Outcome> outcomes =
        harness.RunTogether(requests_, 0, [&] {
          const uint64_t blocks = random() % 30;
          const absl::Status status = harness.engine().SetMemoryBudget(
              0, fixed + blocks * block_bytes_);
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_LE(harness.Stats().memory.total_bytes,
                    fixed + blocks * block_bytes_);
        });
    ExpectAllSame(outcomes);
    EXPECT_GT(harness.Metrics().preemptions_recompute, 0u);
    EXPECT_EQ(harness.BlocksUsed(), 0u);
  }
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "inlay-XXXXXX").string();
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The tier's thread reads the folder beside the engine's first steps.
void WaitUntilFound(const std::string& folder, EngineHarness& harness) {
  constexpr uint64_t kPiece = 4096;  // of what a record takes
  uint64_t bytes = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    bytes += (entry.file_size() + kPiece - 1) / kPiece * kPiece;
  }
  for (int i = 0; i < 6000; ++i) {
    if (harness.Metrics().tier_disk_used_bytes >= bytes) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "the folder's " << bytes << " bytes were not found";
}

TEST_P(DeterminismTest, ThroughLowerTiers) {
  const TemporaryFolder folder;
  for (const bool disk : {false, true}) {
    SCOPED_TRACE(disk ? "disk" : "host");
    ModelOptions model = Model(11);
    // Tiers hold full blocks, and of large ones there are hardly any.
    const bool must_hit =
        !has_many_groups_ && !(has_states_ && most_block_ >= 128);
    model.host_cache_bytes = (disk ? 8 : 64) * (block_bytes_ + 1024);
    if (has_states_) model.host_cache_bytes *= 2;
    if (disk) {
      model.disk_cache_folder = folder.path();
      model.disk_cache_bytes = 64 << 20;
    }
    uint64_t hits = 0;
    // The second engine finds what the first left on the disk.
    for (int engine = 0; engine < (disk ? 2 : 1); ++engine) {
      EngineHarness harness(path_, {}, model);
      ASSERT_TRUE(harness.ok());
      if (engine > 0) WaitUntilFound(folder.path(), harness);
      for (int round = 0; round < 2; ++round) {
        for (size_t i = 0; i < requests_.size(); ++i) {
          SCOPED_TRACE(::testing::Message() << "request " << i);
          ExpectSame(harness.RunAlone(requests_[i]), want(i));
        }
      }
      ExpectAllSame(harness.RunTogether(requests_));
      const auto count = [&] {
        const EngineMetrics metrics = harness.Metrics();
        return disk
                   ? metrics.tier_disk_hit_blocks + metrics.tier_disk_read_bytes
                   : metrics.tier_host_hit_blocks;
      };
      hits = count();
      EXPECT_EQ(harness.BlocksUsed(), 0u);
    }
    if (must_hit) {
      EXPECT_GT(hits, 0u);
    }
  }
}

TEST_P(DeterminismTest, WithinTimeBudgets) {
  constexpr struct {
    uint64_t budget_us;
    int64_t tpot_us;
  } kTimes[] = {{1, 0}, {1, 1}, {60, 0}, {500, 1}, {20000, 0}};
  for (const auto& [budget_us, tpot_us] : kTimes) {
    SCOPED_TRACE(::testing::Message()
                 << budget_us << " us, tpot " << tpot_us << " us");
    EngineOptions options;
    options.scheduler.tpot_target_us = tpot_us;
    options.scheduler.starvation_us = 2000;
    EngineHarness harness(path_, options, Model(20));
    ASSERT_TRUE(harness.ok());
    ExpectAllSame(harness.RunTogether(requests_, budget_us));
  }
}

// What a scheduler does, of more families.
class ScheduledTest : public DeterminismTest {};

TEST_P(ScheduledTest, InChunksAndBlocksOfAnySize) {
  struct Size {
    int32_t batch, running, chunk;
    int block;
  };
  for (const Size size : {Size{1, 1, 0, 16}, Size{5, 2, 3, 1}, Size{7, 4, 0, 5},
                          Size{16, 4, 1, 8}, Size{33, 3, 20, 32},
                          Size{64, 4, 0, 128}, Size{512, 256, 17, 16}}) {
    SCOPED_TRACE(::testing::Message() << "batch " << size.batch << " chunk "
                                      << size.chunk << " block " << size.block);
    if (GetParam().chunk % size.block != 0) continue;
    EngineOptions options;
    options.scheduler.max_batch_tokens = size.batch;
    options.scheduler.max_running = size.running;
    options.scheduler.max_prefill_chunk = size.chunk;
    ModelOptions model = Model();
    model.kv_block_size = size.block;
    EngineHarness harness(path_, options, model);
    ASSERT_TRUE(harness.ok());
    ExpectAllSame(harness.RunTogether(requests_));
  }
}

TEST_P(ScheduledTest, PreemptedAndEvicted) {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 24;
  options.scheduler.max_running = 8;
  // The longest has 129 tokens with KV: 9 blocks and one for a copy.
  EngineHarness harness(path_, options, Model(10));
  ASSERT_TRUE(harness.ok());
  std::vector<RequestOptions> twice = requests_;
  twice.insert(twice.end(), requests_.begin(), requests_.end());
  const std::vector<Outcome> outcomes = harness.RunTogether(twice);
  ExpectAllSame({outcomes.begin(), outcomes.begin() + 4});
  ExpectAllSame({outcomes.begin() + 4, outcomes.end()});
  const EngineMetrics metrics = harness.Metrics();
  // Few blocks, each for many tokens: the next waits instead.
  if (!has_states_) {
    EXPECT_GT(metrics.preemptions_recompute, 0u);
  }
  EXPECT_GT(metrics.evicted_blocks, 0u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST_P(ScheduledTest, CutAndResumed) {
  EngineHarness harness(path_, {}, Model());
  ASSERT_TRUE(harness.ok());
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "request " << i);
    const SessionId session = *harness.runner().CreateSession();
    Outcome outcome = Begin(harness, session, i, 1);
    for (const int64_t more : {3, 1, 5}) {
      RequestOptions options = requests_[i];
      options.tokens.clear();
      options.resume = true;
      options.max_tokens = more;
      AppendOutcome(harness.Run(session, options), &outcome);
    }
    ExpectSame(GoOn(harness, session, i, outcome), want(i));
    harness.runner().ReleaseSession(session);
  }
}

TEST_P(ScheduledTest, InEveryOrderOfPriorities) {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 20;
  options.scheduler.max_running = 2;
  std::vector<RequestOptions> requests = requests_;
  std::vector<int32_t> priorities = {0, 1, 2, 3};
  std::mt19937 random(4);
  for (int order = 0; order < 4; ++order) {
    EngineHarness harness(path_, options, Model(12));
    ASSERT_TRUE(harness.ok());
    for (size_t i = 0; i < requests.size(); ++i)
      requests[i].priority = priorities[i];
    ExpectAllSame(harness.RunTogether(requests));
    std::shuffle(priorities.begin(), priorities.end(), random);
  }
}

// Kinds of cache that few families have are not tried again where tests take
// long.
std::vector<DeterminismCase> DeterminismCases() {
  std::vector<DeterminismCase> cases(std::begin(kDeterminismCases),
                                     std::end(kDeterminismCases));
  if (!kSanitized) {
    cases.insert(cases.end(), {{"hy_v4", "hy_v4"},
                               {"mistral_large4", "mistral_large4"},
                               {"minimax_m3", "minimax_m3"},
                               {"kimi_linear", "kimi_linear"}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, DeterminismTest,
                         ::testing::ValuesIn(DeterminismCases()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

// With every kind of layer, and with mixtures of every way to route.
std::vector<DeterminismCase> ScheduledCases() {
  std::vector<DeterminismCase> cases = DeterminismCases();
  if (!kSanitized) {
    cases.insert(cases.end(), {{"gpt_oss", "gpt_oss"},
                               {"qwen3_moe", "qwen3_moe"},
                               {"minimax", "minimax"},
                               {"nemotron_h", "nemotron_h"},
                               {"falcon_h1", "falcon_h1"},
                               {"glm5_next", "glm5_next"},
                               {"linear_attn", "linear_attn"},
                               {"mamba", "mamba"},
                               {"rwkv7", "rwkv7"}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, ScheduledTest,
                         ::testing::ValuesIn(ScheduledCases()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace inlay
