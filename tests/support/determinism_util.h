// The same requests of every model, and what each gives alone, in one piece,
// with all memory: what tests hold all else against, to the last bit. Header
// only.
#ifndef INLAY_TESTS_SUPPORT_DETERMINISM_UTIL_H_
#define INLAY_TESTS_SUPPORT_DETERMINISM_UTIL_H_

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/small_tokens.h"

namespace inlay::testing {

struct DeterminismCase {
  const char* name;
  const char* model;
  DType kv_dtype = DType::kF32;
  int chunk = 0;  // of attention: whole KV blocks
  Backend backend = Backend::kCpu;
};

inline void PrintTo(const DeterminismCase& test, std::ostream* out) {
  *out << test.name;
}

// Those that all tests of determinism run.
inline const DeterminismCase kDeterminismCases[] = {
    {"llama3", "llama3"},
    {"llama3_i8", "llama3", DType::kI8},
    {"mistral", "mistral"},
    {"gemma2", "gemma2"},
    {"gemma3_text_f16", "gemma3_text", DType::kF16},
    {"gpt2", "gpt2"},
    {"cohere2", "cohere2"},
    {"exaone4_i8", "exaone4", DType::kI8},
    {"llama4_text", "llama4_text", DType::kF32, 32},
    {"opt", "opt"},
    {"phi3_longrope", "phi3_longrope"},
    {"deepseek_v2_lite_i8", "deepseek_v2_lite", DType::kI8},
    {"deepseek_v3", "deepseek_v3"},
    {"deepseek_v32", "deepseek_v32"},
    {"deepseek_v4", "deepseek_v4"},
    {"deepseek_v4_rates_i8", "deepseek_v4_rates", DType::kI8},
    {"glm_moe_dsa_i8", "glm_moe_dsa", DType::kI8},
    {"lfm2", "lfm2"},
    {"mamba2", "mamba2"},
    {"recurrent_gemma", "recurrent_gemma"},
    {"qwen3_next_i8", "qwen3_next", DType::kI8},
    {"qwen3_5_moe_text", "qwen3_5_moe_text"},
    {"gemma4_text", "gemma4_text"},
    {"gemma4_moe_text_i8", "gemma4_moe_text", DType::kI8}};

inline RequestOptions GreedyRequest(size_t prompt, int64_t max_tokens) {
  RequestOptions options = TokenRequest(
      SmallTokens(static_cast<uint32_t>(prompt), prompt), max_tokens);
  options.sampling.num_logprobs = 2;
  return options;
}

inline RequestOptions SampledRequest(size_t prompt, int64_t max_tokens) {
  RequestOptions options = GreedyRequest(prompt, max_tokens);
  options.sampling.temperature = 0.9f;
  options.sampling.top_p = 0.95f;
  options.sampling.seed = 1000 + prompt;
  return options;
}

// Greedy and sampled ones of both rope regimes (phi3_longrope: 64 tokens); the
// model of the shortest context, gpt2, has 176.
inline std::vector<RequestOptions> DeterminismRequests() {
  std::vector<RequestOptions> requests = {
      GreedyRequest(45, 19), SampledRequest(66, 24), SampledRequest(7, 12),
      GreedyRequest(100, 30)};
  requests[1].sampling.repetition_penalty = 1.2f;
  requests[1].sampling.frequency_penalty = 0.3f;
  requests[1].sampling.presence_penalty = 0.2f;
  requests[1].sampling.penalty_last_n = 40;
  requests[2].sampling.top_k = 20;
  requests[2].sampling.min_p = 0.01f;
  requests[2].sampling.frequency_penalty = 0.5f;
  return requests;
}

inline void AppendOutcome(const Outcome& more, Outcome* outcome) {
  outcome->tokens.insert(outcome->tokens.end(), more.tokens.begin(),
                         more.tokens.end());
  outcome->logprobs.insert(outcome->logprobs.end(), more.logprobs.begin(),
                           more.logprobs.end());
}

inline void ExpectSame(const Outcome& got, const Outcome& want) {
  EXPECT_TRUE(got.finish.status.ok()) << got.finish.status;
  EXPECT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    ASSERT_EQ(got.logprobs[i].token, want.logprobs[i].token) << i;
    ASSERT_EQ(got.logprobs[i].logprob, want.logprobs[i].logprob) << i;
  }
}

class DeterminismTest : public ::testing::TestWithParam<DeterminismCase> {
 protected:
  // What each request gives alone, in one piece, with all memory.
  struct Reference {
    std::vector<Outcome> outcomes;
    uint64_t block_bytes = 0;  // of 16 tokens
    bool has_states = false;
    int most_block = 0;   // tokens of a block
    int state_block = 0;  // tokens from state to state
    bool has_many_groups = false;
  };

  void SetUp() override {
    if (GetParam().backend == Backend::kCuda) {
      const auto device = CreateCudaDevice(0, 0);
      if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
    }
    static std::map<std::pair<Backend, std::string>, Reference> references;
    Reference& reference = references[{GetParam().backend, GetParam().name}];
    if (reference.outcomes.empty()) MakeReference(&reference);
    want_ = &reference.outcomes;
    block_bytes_ = reference.block_bytes;
    has_states_ = reference.has_states;
    most_block_ = reference.most_block;
    state_block_ = reference.state_block;
    has_many_groups_ = reference.has_many_groups;
  }

  void MakeReference(Reference* reference) const {
    EngineOptions options = Options();
    options.num_threads = 1;
    // Nothing of one serves another: their prompts begin differently.
    EngineHarness harness(path_, options, Model());
    ASSERT_TRUE(harness.ok());
    for (const RequestOptions& request : requests_) {
      reference->outcomes.push_back(harness.RunAlone(request));
      EXPECT_EQ(reference->outcomes.back().finish.cached_tokens, 0u);
    }
    const KvLayout& layout = harness.runner().loaded().kv_layout;
    reference->block_bytes = 16 * layout.bytes_per_token();
    reference->has_states = layout.has_states();
    reference->most_block = layout.max_block_size();
    reference->state_block =
        static_cast<int>(layout.groups().back().block_size);
    reference->has_many_groups = layout.num_groups() > 2;
    // Ten are what the longest request needs, and little more; also where
    // groups are so many that their blocks count more than their tokens.
    if (layout.has_states() || reference->has_many_groups) {
      reference->block_bytes =
          static_cast<uint64_t>(KvBlocksFor(140, layout.groups()) + 3) *
          layout.block_bytes() / 10;
    }
  }

  // Of an engine whose tokens do not depend on how they are computed.
  static EngineOptions Options() {
    EngineOptions options;
    options.backend = GetParam().backend;
    options.batch_invariant = GetParam().backend == Backend::kCuda;
    return options;
  }

  // States are there where blocks and sequences end, so that less may be
  // cached than of KV: recurrent_test.cc says how much.
  void ExpectCached(const Outcome& outcome, uint64_t tokens) const {
    if (has_states_) {
      const auto block = static_cast<uint64_t>(state_block_);
      EXPECT_LE(outcome.finish.cached_tokens, tokens);
      EXPECT_GE(outcome.finish.cached_tokens, tokens / block * block);
    } else if (GetParam().backend == Backend::kCuda) {
      EXPECT_LE(outcome.finish.cached_tokens, tokens);
      EXPECT_GT(outcome.finish.cached_tokens, 0u);
    } else {
      EXPECT_EQ(outcome.finish.cached_tokens, tokens);
    }
  }

  // `blocks` of KV cache; 0: plenty.
  ModelOptions Model(uint64_t blocks = 0) const {
    ModelOptions options;
    if (GetParam().backend == Backend::kCpu) {
      options.kv_dtype = GetParam().kv_dtype;
    }
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
    AppendOutcome(rest, &whole);
    whole.finish = rest.finish;
    return whole;
  }

  const std::string path_ = GoldenModel(GetParam().model);
  const std::vector<RequestOptions> requests_ = DeterminismRequests();
  const std::vector<Outcome>* want_ = nullptr;
  uint64_t block_bytes_ = 0;
  bool has_states_ = false;
  int most_block_ = 0;
  int state_block_ = 0;
  bool has_many_groups_ = false;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_DETERMINISM_UTIL_H_
