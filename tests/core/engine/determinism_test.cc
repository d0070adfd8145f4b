// The same request gives the same tokens, to the last bit of their
// log-probabilities: alone or among others, however its prompt is cut up,
// whatever was cached, evicted, preempted, saved or taken away meanwhile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;
using Bytes = std::vector<std::byte>;

struct Case {
  const char* name;
  const char* model;
  DType kv_dtype = DType::kF32;
  int chunk = 0;  // of attention: whole KV blocks
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

RequestOptions Greedy(size_t prompt, int64_t max_tokens) {
  RequestOptions options = TokenRequest(
      RandomTokens(static_cast<uint32_t>(prompt), prompt), max_tokens);
  options.sampling.num_logprobs = 2;
  return options;
}

RequestOptions Sampled(size_t prompt, int64_t max_tokens) {
  RequestOptions options = Greedy(prompt, max_tokens);
  options.sampling.temperature = 0.9f;
  options.sampling.top_p = 0.95f;
  options.sampling.seed = 1000 + prompt;
  return options;
}

// Greedy and sampled ones of both rope regimes (phi3_longrope: 64 tokens); the
// model of the shortest context, gpt2, has 176.
std::vector<RequestOptions> Requests() {
  std::vector<RequestOptions> requests = {Greedy(45, 19), Sampled(66, 24),
                                          Sampled(7, 12), Greedy(100, 30)};
  requests[1].sampling.repetition_penalty = 1.2f;
  requests[1].sampling.frequency_penalty = 0.3f;
  requests[1].sampling.presence_penalty = 0.2f;
  requests[1].sampling.penalty_last_n = 40;
  requests[2].sampling.top_k = 20;
  requests[2].sampling.min_p = 0.01f;
  requests[2].sampling.frequency_penalty = 0.5f;
  return requests;
}

void Append(const Outcome& more, Outcome* outcome) {
  outcome->tokens.insert(outcome->tokens.end(), more.tokens.begin(),
                         more.tokens.end());
  outcome->logprobs.insert(outcome->logprobs.end(), more.logprobs.begin(),
                           more.logprobs.end());
}

void ExpectSame(const Outcome& got, const Outcome& want) {
  EXPECT_TRUE(got.finish.status.ok()) << got.finish.status;
  EXPECT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    ASSERT_EQ(got.logprobs[i].token, want.logprobs[i].token) << i;
    ASSERT_EQ(got.logprobs[i].logprob, want.logprobs[i].logprob) << i;
  }
}

class DeterminismTest : public ::testing::TestWithParam<Case> {
 protected:
  // What each request gives alone, in one piece, with all memory.
  struct Reference {
    std::vector<Outcome> outcomes;
    uint64_t block_bytes = 0;  // of 16 tokens
    bool has_states = false;
    int most_block = 0;  // tokens of a block
    bool has_many_groups = false;
  };

  DeterminismTest() {
    static std::map<std::string, Reference> references;
    Reference& reference = references[GetParam().name];
    if (reference.outcomes.empty()) {
      EngineOptions options;
      options.num_threads = 1;
      // Nothing of one serves another: their prompts begin differently.
      EngineHarness harness(path_, options, Model());
      for (const RequestOptions& request : requests_) {
        reference.outcomes.push_back(harness.RunAlone(request));
        EXPECT_EQ(reference.outcomes.back().finish.cached_tokens, 0u);
        const KvLayout& layout = harness.runner().loaded().kv_layout;
        reference.block_bytes = 16 * layout.bytes_per_token();
        reference.has_states = layout.has_states();
        reference.most_block = layout.max_block_size();
        reference.has_many_groups = layout.num_groups() > 2;
        // Ten are what the longest request needs, and little more; also where
        // groups are so many that their blocks count more than their tokens.
        if (layout.has_states() || reference.has_many_groups) {
          reference.block_bytes =
              static_cast<uint64_t>(KvBlocksFor(140, layout.groups()) + 3) *
              layout.block_bytes() / 10;
        }
      }
    }
    want_ = &reference.outcomes;
    block_bytes_ = reference.block_bytes;
    has_states_ = reference.has_states;
    most_block_ = reference.most_block;
    has_many_groups_ = reference.has_many_groups;
  }

  // States are there where blocks and sequences end, so that less may be
  // cached than of KV: recurrent_test.cc says how much.
  void ExpectCached(const Outcome& outcome, uint64_t tokens) const {
    if (has_states_) {
      EXPECT_LE(outcome.finish.cached_tokens, tokens);
    } else {
      EXPECT_EQ(outcome.finish.cached_tokens, tokens);
    }
  }

  // `blocks` of KV cache; 0: plenty.
  ModelOptions Model(uint64_t blocks = 0) const {
    ModelOptions options;
    options.kv_dtype = GetParam().kv_dtype;
    options.kv_budget_bytes = blocks * block_bytes_;
    return options;
  }

  void ExpectAllSame(const std::vector<Outcome>& outcomes) const {
    for (size_t i = 0; i < requests_.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      ExpectSame(outcomes[i % outcomes.size()], want(i));
    }
  }
  const Outcome& want(size_t i) const { return (*want_)[i]; }

  // The first `count` generated tokens of request i, in `session`.
  Outcome Begin(EngineHarness& harness, SessionId session, size_t i,
                int64_t count) const {
    RequestOptions options = requests_[i];
    options.max_tokens = count;
    return harness.Run(session, options);
  }
  // The rest of them, after `begun`.
  Outcome GoOn(EngineHarness& harness, SessionId session, size_t i,
               const Outcome& begun) const {
    RequestOptions options = requests_[i];
    options.tokens.clear();
    options.max_tokens -= static_cast<int64_t>(begun.tokens.size());
    options.resume = true;
    Outcome whole = begun;
    const Outcome rest = harness.Run(session, options);
    Append(rest, &whole);
    whole.finish = rest.finish;
    return whole;
  }

  const std::string path_ = GoldenModel(GetParam().model);
  const std::vector<RequestOptions> requests_ = Requests();
  const std::vector<Outcome>* want_ = nullptr;
  uint64_t block_bytes_ = 0;
  bool has_states_ = false;
  int most_block_ = 0;
  bool has_many_groups_ = false;
};

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

TEST_P(DeterminismTest, InChunksAndBlocksOfAnySize) {
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

TEST_P(DeterminismTest, PreemptedAndEvicted) {
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
    harness.RunAlone(TokenRequest(RandomTokens(seed, 120), 20));
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Outcome got = harness.RunAlone(requests_[i]);
    ExpectSame(got, want(i));
    EXPECT_LT(got.finish.cached_tokens, Reusable(requests_[i]));
  }
}

TEST_P(DeterminismTest, ForkedAndRewound) {
  EngineHarness harness(path_, {}, Model());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t>& prompt = requests_[3].tokens;
  for (const size_t cut : {1, 16, 29, 70, 99}) {
    SCOPED_TRACE(::testing::Message() << "cut at " << cut);
    const auto at = prompt.begin() + static_cast<std::ptrdiff_t>(cut);
    const SessionId session = *runner.CreateSession();
    harness.Run(session, TokenRequest({prompt.begin(), at}, 0));
    const SessionId fork = *runner.Fork(session);
    RequestOptions rest = requests_[3];
    rest.tokens.assign(at, prompt.end());
    // At the same time.
    const RequestId first = *runner.Submit(session, rest);
    const RequestId second = *runner.Submit(fork, rest);
    harness.RunAll();
    for (const RequestId request : {first, second}) {
      Outcome outcome;
      harness.Drain(request, outcome);
      ExpectSame(outcome, want(3));
    }
    ASSERT_TRUE(runner.Rewind(fork, cut).ok());
    ExpectSame(harness.Run(fork, rest), want(3));
    // What the other session's log has too is kept, where it is.
    RequestOptions replace = requests_[3];
    replace.mode = InputMode::kReplace;
    ASSERT_TRUE(runner.Rewind(session, cut / 2).ok());
    ExpectSame(harness.Run(session, replace), want(3));
    runner.ReleaseSession(session);
    runner.ReleaseSession(fork);
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST_P(DeterminismTest, CutAndResumed) {
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
      Append(harness.Run(session, options), &outcome);
    }
    ExpectSame(GoOn(harness, session, i, outcome), want(i));
    harness.runner().ReleaseSession(session);
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

Bytes Save(ModelRunner& runner, SessionId session) {
  Bytes bytes;
  const absl::Status status =
      runner.Save(session, [&](absl::Span<const std::byte> piece) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

TEST_P(DeterminismTest, SavedAndRestored) {
  EngineHarness source(path_, {}, Model());
  ASSERT_TRUE(source.ok());
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "request " << i);
    const SessionId session = *source.runner().CreateSession();
    const Outcome begun = Begin(source, session, i, 6);
    const Bytes saved = Save(source.runner(), session);
    const uint64_t log = requests_[i].tokens.size() + 6;

    const auto resume = [&](EngineHarness& harness, const Bytes& bytes) {
      const auto restored = harness.runner().Restore(bytes);
      EXPECT_TRUE(restored.ok()) << restored.status();
      if (!restored.ok()) return ModelRunner::Restored();
      EXPECT_EQ(restored->num_tokens, log);
      ExpectSame(GoOn(harness, restored->session, i, begun), want(i));
      harness.runner().ReleaseSession(restored->session);
      return *restored;
    };
    // Where it was computed, and is still cached.
    EXPECT_EQ(resume(source, saved).num_kv_tokens, log - 1);
    {
      EngineHarness fresh(path_, {}, Model());
      const auto restored = resume(fresh, saved);
      EXPECT_EQ(restored.num_kv_tokens, log - 1);
      EXPECT_EQ(restored.note, "");
      EXPECT_EQ(fresh.BlocksUsed(), 0u);
    }
    {  // Its KV damaged from the middle on.
      EngineHarness fresh(path_, {}, Model());
      Bytes damaged = saved;
      damaged[saved.size() / 2] ^= std::byte{1};
      const auto restored = resume(fresh, damaged);
      EXPECT_LT(restored.num_kv_tokens, log - 1);
      EXPECT_NE(restored.note, "");
    }
    {  // No room at all: another session has all blocks set aside.
      EngineHarness fresh(path_, {}, Model(10));
      const SessionId greedy = *fresh.runner().CreateSession();
      const int64_t most = fresh.runner().kv_capacity_tokens() - 10;
      const auto quote = fresh.runner().Quote(
          greedy, TokenRequest(RandomTokens(1, 10), most), true);
      ASSERT_TRUE(quote.ok()) << quote.status();
      const auto restored = fresh.runner().Restore(saved);
      ASSERT_TRUE(restored.ok());
      EXPECT_LT(restored->num_kv_tokens, log - 1);
      EXPECT_NE(restored->note, "");
      fresh.runner().ReleaseSession(greedy);
      ExpectSame(GoOn(fresh, restored->session, i, begun), want(i));
    }
    source.runner().ReleaseSession(session);
  }
  EXPECT_EQ(source.BlocksUsed(), 0u);
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

TEST_P(DeterminismTest, ThroughLowerTiers) {
  const TemporaryFolder folder;
  for (const bool disk : {false, true}) {
    SCOPED_TRACE(disk ? "disk" : "host");
    ModelOptions model = Model(11);
    // Tiers hold full blocks, and of states there are few, and of large blocks.
    const bool must_hit = !(has_states_ || has_many_groups_) ||
                          (has_states_ && !disk && most_block_ <= 128);
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
      // A disk that is busy with others' work may not keep up at first.
      for (int round = 0; must_hit && hits == 0 && round < 200; ++round) {
        for (size_t i = 0; i < requests_.size(); ++i)
          ExpectSame(harness.RunAlone(requests_[i]), want(i));
        hits = count();
      }
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

TEST_P(DeterminismTest, InEveryOrderOfPriorities) {
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

INSTANTIATE_TEST_SUITE_P(
    Models, DeterminismTest,
    ::testing::Values(
        Case{"llama3", "llama3"}, Case{"llama3_i8", "llama3", DType::kI8},
        Case{"mistral", "mistral"}, Case{"gemma2", "gemma2"},
        Case{"gemma3_text_f16", "gemma3_text", DType::kF16},
        Case{"gpt2", "gpt2"}, Case{"cohere2", "cohere2"},
        Case{"exaone4_i8", "exaone4", DType::kI8},
        Case{"llama4_text", "llama4_text", DType::kF32, 32}, Case{"opt", "opt"},
        Case{"phi3_longrope", "phi3_longrope"},
        Case{"deepseek_v2_lite_i8", "deepseek_v2_lite", DType::kI8},
        Case{"deepseek_v3", "deepseek_v3"},
        Case{"deepseek_v32", "deepseek_v32"},
        Case{"deepseek_v4", "deepseek_v4"},
        Case{"deepseek_v4_rates_i8", "deepseek_v4_rates", DType::kI8},
        Case{"glm_moe_dsa_i8", "glm_moe_dsa", DType::kI8}, Case{"lfm2", "lfm2"},
        Case{"mamba2", "mamba2"},
        Case{"qwen3_next_i8", "qwen3_next", DType::kI8},
        Case{"qwen3_5_moe_text", "qwen3_5_moe_text"},
        Case{"gemma4_text", "gemma4_text"},
        Case{"gemma4_moe_text_i8", "gemma4_moe_text", DType::kI8}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace inlay
