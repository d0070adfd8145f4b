// Whole models whose recurrence goes by chunks on a GPU ("cuda_chunks", which
// prompts in bf16 take): prompts whole, cut up, found in the cache and forked,
// against the same model token by token.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/model/drawn_weights.h"
#include "core/model/load_model.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::Outcome;
using testing::RandomTokens;
using testing::TokenRequest;

// Keys that chunks take, and else as narrow as can be. Every token goes to all
// experts: which they choose would hide what is computed.
struct Hybrid {
  const char* name;
  const char* config;
};

void PrintTo(const Hybrid& hybrid, std::ostream* out) { *out << hybrid.name; }

constexpr Hybrid kHybrids[] = {
    {"gated_delta", R"({"architectures": ["Qwen3NextForCausalLM"],
      "model_type": "qwen3_next", "vocab_size": 320, "hidden_size": 128,
      "num_hidden_layers": 4, "full_attention_interval": 4,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
      "max_position_embeddings": 1024, "partial_rotary_factor": 0.25,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_value_head_dim": 64, "linear_num_key_heads": 1,
      "linear_num_value_heads": 2, "intermediate_size": 128,
      "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
      "num_experts": 2, "num_experts_per_tok": 2, "norm_topk_prob": true,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
    {"kimi_delta", R"({"architectures": ["KimiLinearForCausalLM"],
      "model_type": "kimi_linear", "vocab_size": 320, "hidden_size": 128,
      "num_hidden_layers": 4, "num_attention_heads": 2,
      "num_key_value_heads": 2, "kv_lora_rank": 32, "q_lora_rank": null,
      "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
      "linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3],
        "head_dim": 128, "num_heads": 2, "short_conv_kernel_size": 4},
      "model_max_length": 1024, "intermediate_size": 128,
      "moe_intermediate_size": 64, "num_experts": 2,
      "num_experts_per_token": 2, "num_shared_experts": 1,
      "first_k_dense_replace": 1, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false})"},
    {"mamba", R"({"architectures": ["Mamba2ForCausalLM"],
      "model_type": "mamba2", "vocab_size": 320, "hidden_size": 128,
      "num_hidden_layers": 2, "state_size": 128, "num_heads": 4,
      "head_dim": 64, "expand": 2, "n_groups": 1, "conv_kernel": 4,
      "use_bias": false, "use_conv_bias": false, "hidden_act": "silu",
      "layer_norm_epsilon": 1e-6, "tie_word_embeddings": false})"}};

// What is drawn forgets within a few tokens, and hardly lets through what comes
// in. These decay by about 1/60 a token.
void LetReachBack(const WeightInfo& info, std::vector<std::byte>* bytes) {
  const auto ends = [&](const char* end) { return info.name.ends_with(end); };
  const bool is_taps = info.name.find("conv1d") != std::string::npos;
  const size_t count = info.bytes / (info.dtype == DType::kF32 ? 4 : 2);
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    if (ends("A_log")) {
      value = 0;
    } else if (ends("dt_bias")) {
      value = -5.0f + static_cast<float>(i % 5) / 2;
    } else if (ends(".D")) {
      value = 0.02f;
    } else if (!is_taps) {
      continue;
    }
    if (info.dtype == DType::kF32) {
      float* const at = reinterpret_cast<float*>(bytes->data()) + i;
      *at = is_taps ? 25 * *at : value;
    } else {
      auto* const at = reinterpret_cast<uint16_t*>(bytes->data()) + i;
      *at = F32ToBF16(is_taps ? 25 * BF16ToF32(*at) : value);
    }
  }
}

void WriteModel(const std::string& config, const TempFolder& folder) {
  ModelFiles files;
  files.config = *ParseJson(config, "config.json");
  files.random = RandomWeights{DType::kBF16, 5};
  const auto device = *CreateCpuDevice(1, 0);
  const auto planned = PlanWeights(files, *device);
  ASSERT_TRUE(planned.ok()) << planned.status();
  const auto pool = *ThreadPool::Create(1);
  const auto drawn = *MakeDrawnWeights(*files.random, *planned, *pool);
  Json header = Json::object();
  std::string data;
  for (const WeightInfo& info : drawn->weights()) {
    std::vector<std::byte> bytes(info.bytes);
    ASSERT_TRUE(drawn->Read(info, 0, absl::MakeSpan(bytes)).ok());
    LetReachBack(info, &bytes);
    header[info.name] = {
        {"dtype", info.dtype == DType::kF32 ? "F32" : "BF16"},
        {"shape", info.shape},
        {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsFile(DumpJson(header)) + data);
}

// By position.
using Rows = std::map<int64_t, std::vector<float>>;

RequestOptions AllLogits(const std::vector<int32_t>& tokens) {
  RequestOptions options = TokenRequest(tokens, 0);
  options.logits = LogitsMode::kAll;
  return options;
}

Rows RowsOf(const Outcome& outcome) {
  return {outcome.logits.begin(), outcome.logits.end()};
}

// Root mean square of the difference where `got` has any, over the deviation of
// all that is wanted.
double Distance(const Rows& got, const Rows& want) {
  double off = 0, sum = 0, squares = 0;
  size_t compared = 0, all = 0;
  for (const auto& [position, row] : want) {
    const auto found = got.find(position);
    for (size_t i = 0; i < row.size(); ++i) {
      sum += row[i];
      squares += double{row[i]} * row[i];
      ++all;
      if (found == got.end()) continue;
      off += std::pow(double{found->second[i]} - row[i], 2);
      ++compared;
    }
  }
  const double n = static_cast<double>(all);
  const double variance = squares / n - sum / n * sum / n;
  return compared == 0
             ? INFINITY
             : std::sqrt(off / static_cast<double>(compared) / variance);
}

class CudaChunksTest : public ::testing::TestWithParam<Hybrid> {
 protected:
  void SetUp() override {
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
    const int sm = (*device)->info().sm;
    if (sm != 80 && sm != 90 && sm != 100) {
      GTEST_SKIP() << "chunks need a data centre's GPU";
    }
    WriteModel(GetParam().config, folder_);
  }

  // Of an engine with steps of so many tokens, by the row of that name.
  std::unique_ptr<EngineHarness> Make(int32_t batch, const char* row) const {
    EngineOptions options;
    options.backend = Backend::kCuda;
    options.scheduler.max_batch_tokens = batch;
    options.scheduler.max_running = 8;
    ModelOptions model;
    if (row != nullptr) model.kernels = std::string("linear_attention=") + row;
    return std::make_unique<EngineHarness>(folder_.path(), options, model);
  }
  Rows Run(int32_t batch, const char* row) const {
    const auto harness = Make(batch, row);
    return harness->ok() ? RowsOf(harness->RunAlone(AllLogits(tokens_)))
                         : Rows();
  }

  TempFolder folder_;
  const std::vector<int32_t> tokens_ = RandomTokens(1, 400);
  const std::vector<int32_t> first_{tokens_.begin(), tokens_.begin() + 256};
  const std::vector<int32_t> rest_{tokens_.begin() + 256, tokens_.end()};
};

// The recurrence's outputs err by at most 5.2e-3 of their root mean square
// where they go by chunks, and by 1.7e-3, the rounding of y, token by token
// (kernels/linear_attention/README.md). All else is rounded alike, so logits
// are off float32's by at most 5.2 / 1.7 times as much.
TEST_P(CudaChunksTest, AsNearAsRoundingSays) {
  const Rows want =
      RowsOf(EngineHarness(folder_.path()).RunAlone(AllLogits(tokens_)));
  ASSERT_EQ(want.size(), tokens_.size());
  const Rows by_token = Run(512, "cuda");
  ASSERT_EQ(by_token.size(), tokens_.size());
  const double rounding = Distance(by_token, want);
  EXPECT_GT(rounding, 0);
  EXPECT_LT(rounding, 0.1);
  const double limit = 5.2 / 1.7 * rounding;
  const auto check = [&](const char* what, const Rows& got) {
    const double distance = Distance(got, want);
    EXPECT_LT(distance, limit) << what;
    std::printf("%-12s %-8s %.2e, token by token %.2e\n", GetParam().name, what,
                distance, rounding);
  };
  const Rows whole = Run(512, nullptr);
  check("whole", whole);
  // Of the steps here it is chunks that ran, and they alone make a difference.
  EXPECT_TRUE(whole == Run(512, "cuda_chunks"));
  EXPECT_FALSE(whole == by_token);
  EXPECT_TRUE(Run(48, nullptr) == Run(48, "cuda"));
  check("pieces", Run(150, nullptr));

  const auto harness = Make(512, nullptr);
  ASSERT_TRUE(harness->ok());
  ModelRunner& runner = harness->runner();
  const SessionId session = *runner.CreateSession();
  harness->Run(session, AllLogits(first_));
  const Outcome found = harness->RunAlone(AllLogits(tokens_));
  EXPECT_GE(found.finish.cached_tokens, 128u);
  EXPECT_LE(found.logits.size(), tokens_.size() - 128);
  check("found", RowsOf(found));

  const SessionId fork = *runner.Fork(session);
  RequestOptions go_on = AllLogits(rest_);
  const RequestId ids[] = {*runner.Submit(session, go_on),
                           *runner.Submit(fork, go_on)};
  harness->RunAll();
  for (const RequestId id : ids) {
    Outcome outcome;
    harness->Drain(id, outcome);
    EXPECT_GE(outcome.logits.size(), 1u);
    check("fork", RowsOf(outcome));
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaChunksTest, ::testing::ValuesIn(kHybrids),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace inlay
