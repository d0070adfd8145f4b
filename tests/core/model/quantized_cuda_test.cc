// Models of quantised weights on a GPU: packed while they are loaded, and
// against the CPU's float32 arithmetic on the weights they stand for.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "kernels/quant/quant.h"
#include "tests/core/model/golden_models.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

// What layers hand on is rounded to bf16, unit roundoff 2^-9, some ten times a
// layer: in these models of few and narrow layers the logits move by a few
// hundredths of their deviation. A wrong scale or row moves them by more than
// the whole.
constexpr double kRounded = 0.15;

// Grouped queries; rows that all formats divide; a head of its own or none.
std::string Config(bool tied) {
  return std::string(R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 300, "hidden_size": 256, "intermediate_size": 512,
      "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 128,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": )") +
         (tied ? "true}" : "false}");
}

// Every token goes to all experts: their choice is the goldens' matter. A
// shared one behind a gate, and a layer without experts.
constexpr char kExpertsConfig[] = R"({
      "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
      "vocab_size": 300, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 128,
      "num_experts": 4, "num_experts_per_tok": 4, "norm_topk_prob": true,
      "moe_intermediate_size": 256, "shared_expert_intermediate_size": 512,
      "mlp_only_layers": [1], "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})";

class QuantizedCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = CreateCudaDevice(0, 0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU";
    gpu_ = *std::move(gpu);
  }

  // Logits of the prompt, once for each way to cut it into chunks; beside
  // `company` more sequences with the same prompt, where it is not cut.
  static std::vector<ModelHarness::Logits> Run(
      const ModelFiles& files, Device& device,
      const std::vector<int32_t>& prompt, const std::vector<int64_t>& chunks,
      const char* gemm, bool round_inputs = true, int company = 0) {
    std::vector<ModelHarness::Logits> all(chunks.size());
    ModelLoadOptions options;
    options.round_inputs = round_inputs;
    if (gemm != nullptr) {
      options.forced_kernels["gemm"] = gemm;
      options.forced_kernels["expert_linear"] = gemm;
    }
    auto model = LoadModel(files, device, options);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return all;
    const auto length = static_cast<int64_t>(prompt.size());
    ModelHarness harness(
        **model, device,
        (2 + company) * length * static_cast<int64_t>(chunks.size()));
    for (size_t i = 0; i < chunks.size(); ++i) {
      std::vector<ModelHarness::Chunk> whole;
      for (int s = 0; s <= company; ++s) {
        whole.push_back({harness.AddSequence(length), prompt});
      }
      auto logits = company > 0 && chunks[i] >= length
                        ? harness.Forward(whole)
                        : harness.Run(whole[0].sequence, prompt, chunks[i]);
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (logits.ok()) logits->resize(prompt.size());
      if (logits.ok()) all[i] = *std::move(logits);
    }
    return all;
  }

  // Where the GPU has a kernel for them.
  bool HasChains(const ModelFiles& files) {
    auto model = LoadModel(files, *gpu_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() &&
           ((*model)->ExchangeBytes() > 0 || gpu_->info().sm != 90);
  }

  // The largest difference, of the deviation of `want`; NaN counts as infinite.
  static double Worst(const ModelHarness::Logits& want,
                      const ModelHarness::Logits& got) {
    EXPECT_EQ(want.size(), got.size());
    double sum = 0, squares = 0, worst = 0;
    size_t count = 0;
    for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
      for (size_t j = 0; j < want[i].size(); ++j) {
        sum += want[i][j];
        squares += double{want[i][j]} * want[i][j];
        const double difference = std::fabs(double{want[i][j]} - got[i][j]);
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
        ++count;
      }
    }
    const double n = static_cast<double>(std::max<size_t>(count, 1));
    return count == 0 ? INFINITY
                      : worst / std::sqrt(squares / n - sum / n * sum / n);
  }

  std::unique_ptr<Device> gpu_;
  std::unique_ptr<Device> cpu_ = *CreateCpuDevice(2, 0);
};

// Each format, drawn alike on both devices: one row at a time and two (chains
// of layers in one launch), few and many.
TEST_F(QuantizedCudaTest, EveryFormatAsOnTheCpu) {
  constexpr int64_t kWhole = 1 << 20;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 70; ++i) prompt.push_back(i * 37 % 300);
  for (const BlockCodec* codec : BlockCodecs()) {
    for (const bool tied : {false, true}) {
      if (tied && codec->dtype != DType::kQ4_0 && codec->dtype != DType::kQ6_K)
        continue;
      SCOPED_TRACE(DTypeName(codec->dtype));
      ModelFiles files;
      auto config = ParseJson(Config(tied), "config.json");
      ASSERT_TRUE(config.ok());
      files.config = *config;
      files.random = RandomWeights{codec->dtype, 7};
      const auto want = Run(files, *cpu_, prompt, {kWhole}, "cpu_scalar");
      const auto got =
          Run(files, *gpu_, prompt, {1, 2, 3, 12, kWhole}, nullptr);
      std::printf("%-8s %s max error / logit_std",
                  std::string(DTypeName(codec->dtype)).c_str(),
                  tied ? "tied" : "    ");
      for (const ModelHarness::Logits& logits : got) {
        const double worst = Worst(want[0], logits);
        EXPECT_LT(worst, kRounded);
        std::printf(" %.1e", worst);
      }
      std::printf("\n");
    }
  }
}

// Layers of several formats: chains of two, of which q, k and v may be one, two
// or three stages, and what no chain takes.
TEST_F(QuantizedCudaTest, MixturesAsOnTheCpu) {
  constexpr int64_t kWhole = 1 << 20;
  const struct {
    DType dtype;
    std::vector<TensorOverride> overrides;
  } kCases[] = {
      {DType::kQ4_K, {{"*v_proj*", DType::kQ6_K}, {"*down_p*", DType::kQ6_K}}},
      {DType::kQ5_K, {{"*1.*v_proj*", DType::kQ6_K}}},
      {DType::kQ4_K, {{"*q_proj*", DType::kQ5_K}, {"*o_proj*", DType::kQ5_K}}},
      {DType::kQ6_K, {{"*k_proj*", DType::kQ4_K}}},
      {DType::kQ8_0, {{"*v_proj*", DType::kBF16}}},
      {DType::kQ4_K, {{"*k_proj*", DType::kQ6_K}, {"*v_proj*", DType::kQ8_0}}},
      {DType::kBF16, {{"*q_proj*", DType::kF16}, {"*down_p*", DType::kQ4_0}}},
  };
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 70; ++i) prompt.push_back(i * 37 % 300);
  for (const auto& [dtype, overrides] : kCases) {
    SCOPED_TRACE(::testing::Message()
                 << DTypeName(dtype) << " but " << overrides.front().pattern);
    ModelFiles files;
    files.config = *ParseJson(Config(false), "config.json");
    files.random = RandomWeights{dtype, 7, overrides};
    const auto want = Run(files, *cpu_, prompt, {kWhole}, "cpu_scalar");
    const auto got = Run(files, *gpu_, prompt, {1, 2, 3, 12, kWhole}, nullptr);
    for (const ModelHarness::Logits& logits : got) {
      EXPECT_LT(Worst(want[0], logits), kRounded);
    }
  }
}

TEST_F(QuantizedCudaTest, ExpertsInEveryFormatAsOnTheCpu) {
  constexpr int64_t kWhole = 1 << 20;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 70; ++i) prompt.push_back(i * 37 % 300);
  ModelFiles files;
  files.config = *ParseJson(kExpertsConfig, "config.json");
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    files.random = RandomWeights{codec->dtype, 7};
    const auto want = Run(files, *cpu_, prompt, {kWhole}, "cpu_scalar");
    const auto got = Run(files, *gpu_, prompt, {1, 3, 12, kWhole}, nullptr);
    std::printf("%-8s experts max error / logit_std",
                std::string(DTypeName(codec->dtype)).c_str());
    for (const ModelHarness::Logits& logits : got) {
      const double worst = Worst(want[0], logits);
      EXPECT_LT(worst, kRounded);
      std::printf(" %.1e", worst);
    }
    std::printf("\n");
  }
}

// Mixtures as stages of a chain, of layers or by themselves, for one token and
// two.
TEST_F(QuantizedCudaTest, ChainsOfExpertsAsOnTheCpu) {
  constexpr int64_t kWhole = 1 << 20;
  const std::string common = R"(
      "vocab_size": 300, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 128,
      "num_experts_per_tok": 4, "norm_topk_prob": true, "hidden_act": "silu",
      "moe_intermediate_size": 256, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false, )";
  const std::string plain = common + R"(
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "num_experts": 4, "head_dim": 64, "mlp_only_layers": []})";
  const std::string gated = common + R"(
      "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
      "num_experts": 4, "shared_expert_intermediate_size": 512,
      "mlp_only_layers": []})";
  const std::string sigmoid = common + R"(
      "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe",
      "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
      "topk_group": 1, "routed_scaling_factor": 1.5, "head_dim": 64,
      "first_k_dense_replace": 0, "use_qk_norm": true})";
  constexpr DType kQ4 = DType::kQ4_K, kFloat = DType::kF32;
  const struct {
    const char* what;
    const std::string& config;
    DType dtype;
    DType down;       // experts'
    DType attention;  // its projections
    DType router;
  } kCases[] = {
      {"plain", plain, DType::kU4_G128, DType::kU4_G128, DType::kU4_G128,
       DType::kBF16},
      {"plain", plain, kQ4, DType::kQ6_K, kQ4, kFloat},
      {"plain", plain, kQ4, kQ4, DType::kBF16, DType::kBF16},
      {"plain", plain, DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
      {"gated", gated, DType::kBF16, DType::kBF16, DType::kBF16, kFloat},
      {"sigmoid", sigmoid, DType::kF8_G128, DType::kF8_G128, DType::kF8_G128,
       DType::kBF16},
      {"gated", gated, DType::kQ8_0, DType::kQ8_0, DType::kQ8_0, kFloat},
      {"gated", gated, kQ4, DType::kQ6_K, DType::kQ5_K, DType::kBF16},
      {"sigmoid", sigmoid, DType::kQ4_0, DType::kQ4_0, DType::kQ4_0, kFloat},
      {"sigmoid", sigmoid, DType::kQ6_K, DType::kQ6_K, DType::kQ8_0, kFloat},
  };
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 30; ++i) prompt.push_back(i * 37 % 300);
  for (const auto& [what, config, dtype, down, attention, router] : kCases) {
    SCOPED_TRACE(::testing::Message()
                 << what << " " << DTypeName(dtype) << ", attention "
                 << DTypeName(attention));
    ModelFiles files;
    files.config = *ParseJson("{" + config, "config.json");
    files.random = RandomWeights{dtype,
                                 7,
                                 {{"*mlp.gate.*", router},
                                  {"*shared_expert_gate*", router},
                                  {"*down_proj*", down},
                                  {"*self_attn*", attention}}};
    EXPECT_TRUE(HasChains(files));
    const auto want = Run(files, *cpu_, prompt, {kWhole}, "cpu_scalar");
    const auto got = Run(files, *gpu_, prompt, {1, 2, kWhole}, nullptr);
    for (const ModelHarness::Logits& logits : got) {
      EXPECT_LT(Worst(want[0], logits), kRounded);
    }
  }
}

TEST_F(QuantizedCudaTest, GptOssGolden) {
  const std::string directory = TestData() + "/quantized/gpt_oss_mxfp4";
  const auto files = OpenModelFiles(directory, {});
  ASSERT_TRUE(files.ok()) << files.status();
  PositionsWithin positions;
  for (const GoldenCase& golden : ReadGolden(directory)) {
    for (const ModelHarness::Logits& logits :
         Run(*files, *gpu_, golden.input_ids, {1, 5, 1 << 20}, nullptr)) {
      positions.Add(golden, logits, kRounded);
    }
  }
  EXPECT_GE(positions.share(), kMostPositions);
  std::printf("gpt_oss_mxfp4      %.0f %% within %.2f\n",
              100 * positions.share(), kRounded);
}

// Checkpoints, act order among them, against the reference's outputs.
TEST_F(QuantizedCudaTest, Goldens) {
  for (const char* name :
       {"awq_int4", "bnb_fp4", "bnb_int8", "bnb_nf4", "ct_fp8_channel",
        "ct_fp8_tensor", "ct_int8_w8a8", "ct_w4a16", "fp8_block", "gptq_int4",
        "gptq_int4_actorder", "torchao_fp8", "torchao_int4", "torchao_int8"}) {
    SCOPED_TRACE(name);
    const std::string directory = TestData() + "/quantized/" + name;
    const auto files = OpenModelFiles(directory, {});
    ASSERT_TRUE(files.ok()) << files.status();
    double worst = 0;
    // The goldens keep activations.
    for (const GoldenCase& golden : ReadGolden(directory)) {
      for (const ModelHarness::Logits& logits :
           Run(*files, *gpu_, golden.input_ids, {1, 5, 1 << 20}, nullptr,
               false)) {
        worst = std::max(worst, GoldenError(golden, logits));
      }
    }
    EXPECT_LT(worst, kRounded);
    std::printf("%-18s max error / logit_std %.2e\n", name, worst);
  }
}

// Inputs in int8 where the checkpoint says so and rows are many; few rows keep
// them. The reference's own logits move by 0.038 of their deviation when its
// weights change by 3e-7, as inputs then round to other steps, and by 0.11 for
// rounding inputs at all.
TEST_F(QuantizedCudaTest, Int8InputsAsTheCheckpointSays) {
  const std::string directory = TestData() + "/quantized/ct_int8_w8a8";
  const auto files = OpenModelFiles(directory, {});
  ASSERT_TRUE(files.ok()) << files.status();
  const GoldenCase golden = ReadGolden(directory).back();
  constexpr int kCompany = 3;
  ASSERT_GT((1 + kCompany) * golden.input_ids.size(), 512u);
  ASSERT_FALSE(golden.rounded_logits.empty());
  const std::vector<int64_t> chunks = {5, 1, 1 << 20};
  const auto got =
      Run(*files, *gpu_, golden.input_ids, chunks, nullptr, true, kCompany);
  const auto kept =
      Run(*files, *gpu_, golden.input_ids, chunks, nullptr, false, kCompany);
  EXPECT_TRUE(got[0] == kept[0]);
  EXPECT_TRUE(got[1] == kept[1]);
  EXPECT_FALSE(got[2] == kept[2]);
  EXPECT_TRUE(HasChains(*files));
  ASSERT_EQ(got[2].size(), golden.input_ids.size());
  const std::vector<float>& last = got[2].back();
  double worst = 0, product = 0, squares = 0, wanted = 0;
  for (size_t i = 0; i < last.size(); ++i) {
    const double want = golden.rounded_logits[i];
    worst = std::max(worst, std::fabs(last[i] - want) / golden.logit_std);
    product += last[i] * want;
    squares += double{last[i]} * last[i];
    wanted += want * want;
  }
  EXPECT_LT(worst, kRounded);
  EXPECT_GT(product / std::sqrt(squares * wanted), 0.998);
  std::printf("inputs in int8: max error / logit_std %.2e\n", worst);
}

// The same in e4m3, by groups of columns, where k is whole groups of them.
TEST_F(QuantizedCudaTest, Fp8InputsAsTheCheckpointSays) {
  if (gpu_->info().sm != 90) GTEST_SKIP() << "for compute capability 9.0";
  const std::string directory = TestData() + "/quantized/fp8_block";
  const auto files = OpenModelFiles(directory, {});
  ASSERT_TRUE(files.ok()) << files.status();
  const GoldenCase golden = ReadGolden(directory).back();
  const auto company =
      static_cast<int>(512 / golden.input_ids.size() / 4 * 4 + 3);
  const std::vector<int64_t> chunks = {5, 1, 1 << 20};
  const auto got =
      Run(*files, *gpu_, golden.input_ids, chunks, nullptr, true, company);
  const auto kept =
      Run(*files, *gpu_, golden.input_ids, chunks, nullptr, false, company);
  EXPECT_TRUE(got[0] == kept[0]);
  EXPECT_TRUE(got[1] == kept[1]);
  EXPECT_FALSE(got[2] == kept[2]);
  ASSERT_EQ(got[2].size(), kept[2].size());
  double off = 0, all = 0;
  for (size_t row = 0; row < kept[2].size(); ++row) {
    for (size_t i = 0; i < kept[2][row].size(); ++i) {
      off += std::pow(double{got[2][row][i]} - kept[2][row][i], 2);
      all += std::pow(double{kept[2][row][i]}, 2);
    }
  }
  // Rounding moves a product by 2.5 % of itself; layers add up.
  EXPECT_LT(std::sqrt(off / all), 0.1);
  std::printf("inputs in e4m3: logits move by %.2e of themselves\n",
              std::sqrt(off / all));
}

// By the token, whether the checkpoint does so or has a scale of its own, which
// gives way: products of packed codes, and by cuBLASLt. What layers hand on is
// bf16, so that inputs near the middle between two codes round otherwise than
// the reference's: to the last layer the roundings are half independent. With a
// scale of its own they are so throughout (rounded_inputs_test).
TEST_F(QuantizedCudaTest, Fp8InputsByTheToken) {
  if (gpu_->info().sm != 90) GTEST_SKIP() << "for compute capability 9.0";
  const auto distance = [](const std::vector<float>& a,
                           const std::vector<float>& b) {
    double squares = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      squares += std::pow(double{a[i]} - b[i], 2);
    }
    return std::sqrt(squares);
  };
  for (const char* name : {"ct_fp8_channel", "ct_fp8_tensor"}) {
    SCOPED_TRACE(name);
    const bool by_token = std::string(name) == "ct_fp8_channel";
    const std::string directory = TestData() + "/quantized/" + name;
    const auto files = OpenModelFiles(directory, {});
    ASSERT_TRUE(files.ok()) << files.status();
    const GoldenCase golden = ReadGolden(directory).back();
    ASSERT_FALSE(golden.rounded_logits.empty());
    const double asked = distance(golden.rounded_logits, golden.logits.back());
    for (const int company : {0, 4}) {
      SCOPED_TRACE(company);
      const std::vector<int64_t> chunks = {5, 1 << 20};
      const auto got =
          Run(*files, *gpu_, golden.input_ids, chunks, nullptr, true, company);
      const auto kept =
          Run(*files, *gpu_, golden.input_ids, chunks, nullptr, false, company);
      EXPECT_TRUE(got[0] == kept[0]);  // few rows
      ASSERT_EQ(got[1].size(), golden.input_ids.size());
      ASSERT_EQ(kept[1].size(), golden.input_ids.size());
      const double moved = distance(got[1].back(), kept[1].back());
      EXPECT_GT(moved, asked / 2);
      EXPECT_LT(moved, asked * 2);
      const double apart = distance(got[1].back(), golden.rounded_logits);
      EXPECT_LT(apart, std::sqrt(2.0) * (by_token ? 1.0 : 1.5) * asked);
      std::printf("%-15s %d rows: moved %.2f, apart %.2f of what is asked\n",
                  name,
                  static_cast<int>(golden.input_ids.size()) * (1 + company),
                  moved / asked, apart / asked);
    }
  }
}

}  // namespace
}  // namespace inlay
