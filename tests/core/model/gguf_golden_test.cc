// Models through GGUF against the reference's outputs. The files are written
// here, as llama.cpp's converter writes them, of the checkpoints in
// tests/data/models.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/core/model/written_gguf.h"

namespace inlay {
namespace {

TEST_P(WrittenGguf, Goldens) {
  static const std::map<std::string, std::string> kArchs = {
      {"llama2", "llama"},
      {"llama_tied_bias", "llama"},
      {"mistral", "llama"},
      {"llama_rope_linear", "llama"},
      {"qwen2", "qwen2"},
      {"qwen2_yarn", "qwen2"},
      {"qwen3", "qwen3"},
      {"gemma2", "gemma2"},
      {"gemma3_text", "gemma3"},
      {"gemma3n_text", "gemma3n"},
      {"mixtral", "llama"},
      {"qwen2_moe", "qwen2moe"},
      {"qwen3_moe", "qwen3moe"},
      {"gpt_oss", "gpt-oss"},
      {"glm4_moe", "glm4moe"},
      {"minimax_m2", "minimax-m2"},
      {"llama4_text", "llama4"},
      {"gpt_neox", "gptneox"},
      {"deepseek_v2", "deepseek2"},
      {"deepseek_v2_lite", "deepseek2"},
      {"deepseek_v3", "deepseek2"},
      {"deepseek_v32", "deepseek32"},
      {"glm_moe_dsa", "glm-dsa"},
      {"qwen3_next", "qwen3next"},
      {"qwen3_5_text", "qwen35"},
      {"qwen3_5_moe_text", "qwen35moe"},
      {"olmo3", "olmo2"},
      {"lfm2", "lfm2"},
      {"kimi_linear", "kimi-linear"},
      {"nemotron_h", "nemotron_h_moe"},
      {"nemotron_h_latent", "nemotron_h_moe"},
      {"glm4_moe_lite", "deepseek2"},
      {"lfm2_moe", "lfm2moe"},
      {"olmoe", "olmoe"},
      {"seed_oss", "seed_oss"},
      {"ernie4_5", "ernie4_5"},
      {"ernie4_5_moe", "ernie4_5-moe"},
      {"ministral3", "mistral3"},
      {"cohere", "command-r"},
      {"dots1", "dots1"},
      {"deepseek_ocr2", "deepseek2-ocr"},
      {"muse_glimmer", "muse-glimmer"},
      {"arcee", "arcee"},
      {"phi", "phi2"},
      {"nemotron", "nemotron"},
      {"olmo", "olmo"},
      {"stablelm", "stablelm"},
      {"stablelm_12b", "stablelm"},
      {"cohere_plus", "command-r"},
      {"falcon", "falcon"},
      {"falcon_40b", "falcon"},
      {"bloom", "bloom"},
      {"mpt", "mpt"},
      {"gpt_bigcode", "starcoder"},
      {"gpt_bigcode_mha", "starcoder"},
      {"exaone_moe", "exaone-moe"},
      {"exaone", "exaone"},
      {"hunyuan_v1_dense", "hunyuan-dense"},
      {"hunyuan_v1_moe", "hunyuan-moe"},
      {"jais2", "jais2"},
      {"mistral4", "mistral4"},
      {"dbrx", "dbrx"},
      {"apertus", "apertus"},
      {"phimoe", "phimoe"},
      {"afmoe", "afmoe"},
      {"glm", "chatglm"},
      {"cohere2_moe", "cohere2moe"},
      {"mimo_v2_flash", "mimo2"},
      {"mellum", "mellum"},
      {"laguna", "laguna"},
      {"hy_v3", "hy_v3"},
      {"solar_open", "glm4moe"},
      {"sarvam_moe", "bailingmoe2"},
      {"iquestcoder", "llama"},
      {"youtu", "deepseek2"},
      {"internlm3", "llama"},
      {"internlm2", "internlm2"},
      {"orion", "orion"},
      {"deepseek", "deepseek"}};
  const absl::Status written =
      Write(Open(GetParam(), "config.json"), kArchs.at(GetParam()));
  ASSERT_TRUE(written.ok()) << written;
  auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  // What the format has no keys for.
  const Json published = Open(GetParam(), "config.json").config;
  for (const char* key : {"mlp_only_layers", "attention_chunk_size",
                          "no_rope_layer_interval", "floor_scale", "attn_scale",
                          "router_jitter_noise", "sliding_window_size"}) {
    if (published.contains(key)) files->config[key] = published[key];
  }
  if (published["model_type"] == "afmoe") {
    files->config["layer_types"] = published["layer_types"];
  }
  CheckGoldens(*files);
}

INSTANTIATE_TEST_SUITE_P(
    Models, WrittenGguf,
    ::testing::Values(
        "llama2", "llama_tied_bias", "llama_rope_linear", "mistral", "qwen2",
        "qwen2_yarn", "qwen3", "gemma2", "gemma3_text", "gemma3n_text",
        "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "glm4_moe",
        "minimax_m2", "llama4_text", "gpt_neox", "deepseek_v2",
        "deepseek_v2_lite", "deepseek_v3", "deepseek_v32", "glm_moe_dsa",
        "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo3", "lfm2",
        "kimi_linear", "nemotron_h", "nemotron_h_latent", "glm4_moe_lite",
        "lfm2_moe", "olmoe", "seed_oss", "ernie4_5", "ernie4_5_moe",
        "ministral3", "cohere", "dots1", "arcee", "phi", "nemotron", "olmo",
        "stablelm", "stablelm_12b", "cohere_plus", "falcon", "falcon_40b",
        "bloom", "mpt", "gpt_bigcode", "gpt_bigcode_mha", "exaone_moe",
        "exaone", "hunyuan_v1_dense", "hunyuan_v1_moe", "jais2", "mistral4",
        "dbrx", "apertus", "phimoe", "afmoe", "glm", "cohere2_moe",
        "mimo_v2_flash", "mellum", "hy_v3", "laguna", "solar_open", "youtu",
        "internlm3", "sarvam_moe", "iquestcoder", "internlm2", "orion",
        "deepseek", "deepseek_ocr2", "muse_glimmer"),
    [](const auto& info) { return std::string(info.param); });

// llama.cpp's names for text models of Qwen's multimodal ones, and what says
// that a file is of GLM-4V.
class MultimodalGguf : public WrittenGguf {};

TEST_P(MultimodalGguf, Goldens) {
  static const std::map<std::string, std::string> kArchs = {
      {"qwen2", "qwen2vl"}, {"qwen3", "qwen3vl"}, {"qwen3_moe", "qwen3vlmoe"}};
  const ModelFiles published = Open(GetParam(), "config.json");
  sections_ = {2, 3, 3, 0};
  ASSERT_TRUE(Write(published, kArchs.at(GetParam())).ok());
  auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  if (published.config.contains("mlp_only_layers")) {
    files->config["mlp_only_layers"] = published.config["mlp_only_layers"];
  }
  CheckGoldens(*files);
  // Positions of a fourth row are none of a text's.
  sections_ = {2, 2, 2, 2};
  ASSERT_TRUE(Write(published, kArchs.at(GetParam())).ok());
  EXPECT_EQ(OpenModelFiles(path_, {}).status().code(),
            absl::StatusCode::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(Models, MultimodalGguf,
                         ::testing::Values("qwen2", "qwen3", "qwen3_moe"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Files of converters before tensors came apart: kv_b of latent attention, qkvz
// of Qwen 3 Next, q, k and v of GLM-4.
class OldGguf : public WrittenGguf {};

TEST_P(OldGguf, Goldens) {
  const bool is_qwen = GetParam() == std::string("qwen3_next");
  const bool is_glm = GetParam() == std::string("glm");
  const absl::Status written = Write(Open(GetParam(), "config.json"),
                                     is_qwen  ? "qwen3next"
                                     : is_glm ? "chatglm"
                                              : "deepseek2",
                                     true);
  ASSERT_TRUE(written.ok()) << written;
  const auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_NE(files->weights->Find(
                is_qwen  ? "model.layers.0.linear_attn.in_proj_qkvz.weight"
                : is_glm ? "model.layers.0.self_attn.q_proj.bias"
                         : "model.layers.0.self_attn.kv_b_proj.weight"),
            nullptr);
  CheckGoldens(*files);
}

INSTANTIATE_TEST_SUITE_P(Models, OldGguf,
                         ::testing::Values("deepseek_v2", "deepseek_v2_lite",
                                           "deepseek_v3", "qwen3_next", "glm"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Blocks of the two matrices of the latent are what they decode to.
class RoundedLatentGguf : public WrittenGguf {};

TEST_P(RoundedLatentGguf, IsWhatItDecodesTo) {
  std::vector<ModelHarness::Logits> logits;
  round_latent_ = true;
  for (const bool in_blocks : {false, true}) {
    store_rounded_ = in_blocks;
    const absl::Status written =
        Write(Open(GetParam(), "config.json"), "deepseek2");
    ASSERT_TRUE(written.ok()) << written;
    const auto files = OpenModelFiles(path_, {});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(
        files->weights->Find("model.layers.0.self_attn.k_b_proj.weight")->dtype,
        in_blocks ? DType::kQ8_0 : DType::kF32);
    ModelLoadOptions load;  // no rounding of inputs
    load.forced_kernels["expert_linear"] = "cpu_scalar";
    const auto model = LoadModel(*files, *device_, load);
    ASSERT_TRUE(model.ok()) << model.status();
    logits.push_back(RunWhole(**model)[0]);
  }
  double worst = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    for (size_t j = 0; j < logits[0][i].size(); ++j) {
      worst =
          std::max<double>(worst, std::fabs(logits[0][i][j] - logits[1][i][j]));
    }
  }
  EXPECT_LT(worst, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Models, RoundedLatentGguf,
                         ::testing::Values("deepseek_v2", "deepseek_v3"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Of several key heads, whose value heads change places; Qwen 3 Next is the
// network of Qwen 3.5 with experts.
class TurnedGguf : public WrittenGguf {};

TEST_P(TurnedGguf, Goldens) {
  const absl::Status written =
      Write(Open(GetParam(), "config.json"), "qwen35moe");
  ASSERT_TRUE(written.ok()) << written;
  const auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  CheckGoldens(*files);
}

INSTANTIATE_TEST_SUITE_P(Models, TurnedGguf, ::testing::Values("qwen3_next"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
