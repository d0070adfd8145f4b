// GGUF files that QuantizeModel writes of families with experts, latents and
// recurrent layers: the reference's outputs, what llama.cpp's converter would
// have written, and what rounding may do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "core/formats/gguf.h"
#include "core/formats/gguf_files.h"
#include "core/formats/stored_tensor.h"
#include "core/model/load_model.h"
#include "core/quantize/quantize.h"
#include "kernels/quant/quant.h"
#include "memory/mapped_file.h"
#include "tests/core/model/gguf_golden.h"
#include "tests/core/quantize/family_files.h"
#include "tests/support/gguf_from_published.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::vector<float> Decoded(const WeightSource& source, const WeightInfo& info) {
  std::vector<std::byte> bytes(info.bytes);
  EXPECT_TRUE(source.Read(info, 0, absl::MakeSpan(bytes)).ok());
  const BlockCodec* codec = FindBlockCodec(info.dtype);
  int64_t count = 1;
  for (const int64_t size : info.shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  if (codec != nullptr) {
    codec->decode(bytes.data(),
                  count / GetFormatInfo(info.dtype).block_elements,
                  values.data());
    return values;
  }
  // Experts by token.
  for (size_t i = 0; info.dtype == DType::kI32 && i < values.size(); ++i) {
    int32_t number;
    std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
    values[i] = static_cast<float>(number);
  }
  if (info.dtype == DType::kI32) return values;
  const std::string text(reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = FloatFrom(text, info.dtype, i);
  }
  return values;
}

class GgufFamilies : public GgufGoldenModel {
 protected:
  FamilyFiles files_;
};

TEST_P(GgufFamilies, GoldensInF32) {
  const ModelFiles written =
      files_.OpenFile(files_.Write(Open(GetParam(), "config.json"), "f32"));
  ASSERT_NE(written.weights, nullptr);
  CheckGoldens(written);
}

// Each number is within half a step of the f32 file's: of f16, or of an 8-bit
// code at the row's largest magnitude with a scale in f16.
TEST_P(GgufFamilies, RoundingIsTheTypes) {
  const ModelFiles published = Open(GetParam(), "config.json");
  const ModelFiles exact = files_.OpenFile(files_.Write(published, "f32"));
  for (const char* type : {"f16", "q8_0"}) {
    SCOPED_TRACE(type);
    const ModelFiles rounded = files_.OpenFile(files_.Write(published, type));
    ASSERT_EQ(rounded.weights->weights().size(),
              exact.weights->weights().size());
    int rounds = 0;
    for (const WeightInfo& info : rounded.weights->weights()) {
      SCOPED_TRACE(info.name);
      const WeightInfo* other = exact.weights->Find(info.name);
      ASSERT_NE(other, nullptr);
      ASSERT_EQ(info.shape, other->shape);
      rounds += info.dtype != DType::kF32 && info.dtype != DType::kI32 ? 1 : 0;
      const std::vector<float> got = Decoded(*rounded.weights, info);
      const std::vector<float> wanted = Decoded(*exact.weights, *other);
      const auto width = static_cast<size_t>(info.shape.back());
      for (size_t row = 0; row < got.size(); row += width) {
        float most = 0;
        for (size_t i = row; i < row + width; ++i) {
          most = std::max(most, std::fabs(wanted[i]));
        }
        const float step = info.dtype == DType::kQ8_0  ? most / 127.0f
                           : info.dtype == DType::kF16 ? most * 0x1p-10f
                                                       : 0.0f;
        // Half a step, and what rounding the scale to f16 (2^-11) makes of 127
        // steps.
        for (size_t i = row; i < row + width; ++i) {
          ASSERT_NEAR(got[i], wanted[i], step * (0.5f + 0x1p-4f)) << i - row;
        }
      }
    }
    EXPECT_GE(rounds, 5);
  }
}

// By key: the type and the bytes of what it says. Of tensors that are no
// weights: their factors.
std::map<std::string, std::string> Metadata(const std::string& path) {
  const std::string bytes = *ReadWholeFile(path, 64 << 20);
  const auto header = ParseGgufHeader(
      {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
      bytes.size());
  EXPECT_TRUE(header.ok()) << header.status();
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : header->entries) {
    metadata[std::string(key)] =
        std::string(GgufTypeName(value.type)) +
        std::string(reinterpret_cast<const char*>(value.data.data()),
                    value.data.size());
  }
  for (const GgufTensor& tensor : header->tensors) {
    if (tensor.info.name.rfind("rope_f", 0) != 0) continue;
    metadata[tensor.info.name] = bytes.substr(tensor.offset, tensor.info.bytes);
  }
  return metadata;
}

// A file of the type is written as it is, whatever its tensors are made of, and
// says the same.
TEST_P(GgufFamilies, FilesAreCopied) {
  const std::string path =
      files_.Write(Open(GetParam(), "config.json"), "q8_0");
  const auto metadata = Metadata(path);
  const ModelFiles first = files_.OpenFile(path);
  ASSERT_NE(first.weights, nullptr);
  QuantizeReport report;
  const std::string copy = files_.Write(first, "q8_0", &report);
  // Qwen3-Next's with projections apart is Qwen 3.5's graph, and written so.
  if (std::string(GetParam()) != "qwen3_next") {
    auto copied = Metadata(copy);
    // Widths of what no layer has.
    std::erase_if(copied, [&](const auto& entry) {
      return entry.first.ends_with("feed_forward_length") &&
             !metadata.contains(entry.first);
    });
    EXPECT_EQ(copied, metadata);
  }
  const ModelFiles second = files_.OpenFile(copy);
  for (const QuantizedTensor& tensor : report.tensors) {
    EXPECT_LT(tensor.error, 1e-6) << tensor.name;
  }
  ASSERT_EQ(first.weights->weights().size(), second.weights->weights().size());
  for (const WeightInfo& info : first.weights->weights()) {
    const WeightInfo* other = second.weights->Find(info.name);
    ASSERT_NE(other, nullptr) << info.name;
    EXPECT_EQ(info.dtype, other->dtype) << info.name;
    const auto got = Decoded(*second.weights, *other);
    const auto wanted = Decoded(*first.weights, info);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], wanted[i], 1e-6 * std::fabs(wanted[i])) << info.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GgufFamilies,
    ::testing::Values(
        "mixtral", "qwen3_moe", "gpt_oss", "glm4_moe", "minimax_m2",
        "granitemoehybrid", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3",
        "deepseek_v32", "glm_moe_dsa", "qwen3_next", "qwen3_5_text",
        "qwen3_5_moe_text", "gemma3n_text", "gemma4_text", "gemma4_moe_text",
        "lfm2", "falcon_h1", "mamba2", "mamba", "jamba", "nemotron_h",
        "nemotron_h_latent", "kimi_linear", "gpt_neox", "olmo3",
        "glm4_moe_lite", "minicpm3", "lfm2_moe", "olmoe", "seed_oss",
        "ernie4_5", "ernie4_5_moe", "granitemoe", "ministral3", "cohere",
        "dots1", "arcee", "phi", "nemotron", "olmo", "stablelm", "stablelm_12b",
        "cohere_plus", "falcon", "falcon_40b", "bloom", "mpt", "gpt_bigcode",
        "gpt_bigcode_mha", "exaone_moe", "exaone", "hunyuan_v1_dense",
        "hunyuan_v1_moe", "jais2", "mistral4", "dbrx", "apertus", "glm",
        "cohere2_moe", "mimo_v2_flash", "mellum", "hy_v3", "laguna",
        "solar_open", "youtu", "internlm3", "sarvam_moe", "iquestcoder",
        "internlm2", "minicpm", "orion", "deepseek", "deepseek_ocr2",
        "muse_glimmer", "nemotron_nas", "granite_swa", "minimax_m3",
        "deepseek_v4", "step3p5", "baichuan", "baichuan2_13b", "qwen",
        "smallthinker", "bailing_moe", "openelm", "grove_moe", "arctic", "plm",
        "rwkv7"),
    [](const auto& info) { return std::string(info.param); });

// Names, shapes and values against the converter's, from its description
// (gguf_from_published.h). Granite's and Falcon H1's are in
// gguf_hybrid_golden_test.cc.
class ConverterTensors : public GgufFamilies {};

TEST_P(ConverterTensors, AreWritten) {
  const ModelFiles published = Open(GetParam(), "config.json");
  const auto file = OpenGgufFiles(files_.Write(published, "f32"), {});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto arch = FindGgufArchOf(published.config);
  ASSERT_TRUE(arch.ok()) << arch.status();
  const Json config = WithUsualNames(published.config, (*arch)->name);
  const auto size = [&](const char* key) {
    return config.contains(key) ? config[key].get<int64_t>() : 0;
  };
  LatentShape latent;
  if (config.contains("kv_lora_rank")) {
    latent = {size("qk_nope_head_dim"), size("v_head_dim")};
  }
  LinearShape linear;
  if (config.contains("linear_num_key_heads")) {
    linear = {size("linear_num_key_heads"), size("linear_num_value_heads"),
              size("linear_key_head_dim"), size("linear_value_head_dim")};
  }
  auto tensors = GgufTensorsFrom(
      *published.weights, **arch, static_cast<int>(size("num_hidden_layers")),
      size("num_attention_heads"), size("num_key_value_heads"), latent, linear);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  size_t extra = 0;
  for (const GgufTensor& tensor : file->files[0].header.tensors) {
    extra += tensor.info.name.starts_with("rope_") ? 1 : 0;
  }
  EXPECT_EQ(file->files[0].header.tensors.size(), tensors->size() + extra);
  for (GgufTensorData& want : *tensors) {
    SCOPED_TRACE(want.name);
    const GgufTensor* got = file->FindTensor(want.name);
    ASSERT_NE(got, nullptr);
    const bool is_scalar = want.name.ends_with(".ssm_a") &&
                           want.shape.size() == 1 &&
                           !(*arch)->name.starts_with("qwen3");
    if (is_scalar) want.shape.push_back(1);
    EXPECT_EQ(got->info.shape, want.shape);
    ASSERT_EQ(got->info.dtype, DType::kF32);
    std::string bytes(got->info.bytes, '\0');
    ASSERT_TRUE(
        file->files[0]
            .Read(got->offset,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                 bytes.size()))
            .ok());
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      const float wanted = FloatFrom(want.bytes, want.dtype, i);
      ASSERT_NEAR(FloatFrom(bytes, DType::kF32, i), wanted,
                  0x1p-22 * std::fabs(wanted))
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ConverterTensors,
    ::testing::Values(
        "mixtral", "qwen3_moe", "gpt_oss", "glm4_moe", "minimax_m2",
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa",
        "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text",
        "gemma4_moe_text", "lfm2", "mamba2", "mamba", "jamba", "nemotron_h",
        "nemotron_h_latent", "kimi_linear", "gpt_neox", "olmo3",
        "glm4_moe_lite", "lfm2_moe", "olmoe", "seed_oss", "ernie4_5",
        "ernie4_5_moe", "ministral3", "cohere", "dots1", "arcee", "phi",
        "nemotron", "olmo", "stablelm", "stablelm_12b", "cohere_plus", "falcon",
        "falcon_40b", "bloom", "mpt", "gpt_bigcode", "gpt_bigcode_mha",
        "exaone_moe", "exaone", "hunyuan_v1_dense", "hunyuan_v1_moe", "jais2",
        "mistral4", "dbrx", "apertus", "glm", "cohere2_moe", "mimo_v2_flash",
        "mellum", "hy_v3", "laguna", "solar_open", "youtu", "internlm3",
        "sarvam_moe", "iquestcoder", "minicpm", "orion", "deepseek",
        "deepseek_ocr2", "step3p5", "baichuan", "baichuan2_13b", "qwen",
        "smallthinker", "bailing_moe", "arctic"),
    [](const auto& info) { return std::string(info.param); });

// --- Shapes that no golden model has.

// `base` with `changes`, and weights that are no multiples of one another.
ModelFiles Random(const std::string& base, const Json& changes,
                  Device& device) {
  ModelFiles files = Open(base, "config.json");
  files.config.update(changes);
  files.random = RandomWeights{DType::kF32};
  files.weights = nullptr;
  const auto planned = PlanWeights(files, device);
  EXPECT_TRUE(planned.ok()) << planned.status();
  files.random.reset();
  auto weights = std::make_shared<MemoryWeights>(true);
  std::mt19937 rng(29);
  std::normal_distribution<float> normal;
  for (const PlannedWeight& weight : *planned) {
    size_t count = 1;
    for (const int64_t size : weight.shape) count *= static_cast<size_t>(size);
    std::vector<float> values(count);
    for (float& value : values) {
      const float drawn = 0.1f * normal(rng);
      value = weight.vector == VectorKind::kScale ? 1.0f + drawn : drawn;
    }
    weights->Add(weight.name, DType::kF32, weight.shape, values.data());
  }
  files.weights = weights;
  files.directory.clear();
  return files;
}

struct Variant {
  const char* name;
  const char* base;
  const char* changes;

  friend void PrintTo(const Variant& test, std::ostream* out) {
    *out << test.name;
  }
};

class FamilyLogits : public ::testing::Test {
 protected:
  std::vector<float> Logits(const ModelFiles& files) {
    std::vector<float> all;
    ModelLoadOptions options;
    options.forced_kernels["gemm"] = "cpu_simd";
    const auto model = LoadModel(files, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return all;
    ModelHarness harness(**model, *device_, 64);
    const auto logits = harness.Run(harness.AddSequence(64),
                                    {5, 9, 33, 2, 71, 8, 100, 41, 41, 17}, 64);
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return all;
    for (const auto& row : *logits) {
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  FamilyFiles files_;
  std::unique_ptr<Device> device_ = *CreateCpuDevice(2, 0);
};

class FamilyVariants : public FamilyLogits,
                       public ::testing::WithParamInterface<Variant> {};

TEST_P(FamilyVariants, ComesBackTheSame) {
  const ModelFiles source = Random(
      GetParam().base, *ParseJson(GetParam().changes, "changes"), *device_);
  const std::vector<float> wanted = Logits(source);
  const std::vector<float> got =
      Logits(files_.OpenFile(files_.Write(source, "f32")));
  ASSERT_EQ(got.size(), wanted.size());
  ASSERT_FALSE(got.empty());
  double square = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    square += double{wanted[i]} * wanted[i];
    worst = std::max(worst, std::fabs(double{got[i]} - wanted[i]));
  }
  const double rms = std::sqrt(square / static_cast<double>(got.size()));
  EXPECT_GT(rms, 0);
  EXPECT_LT(worst / rms, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Models, FamilyVariants,
    ::testing::Values(
        Variant{"qwen2_moe", "qwen2_moe", R"({"mlp_only_layers": []})"},
        Variant{"llama4", "llama4_text", kPublishedLlama4},
        Variant{"gemma4_flat", "gemma4_text",
                R"({"rope_parameters": {"rope_type": "proportional",
                        "rope_theta": 5e4, "partial_rotary_factor": 0.5},
                    "rope_local_base_freq": 500.0})"},
        Variant{"gemma4_outer", "gemma4_text",
                R"({"rope_parameters": null, "rope_theta": 5e4,
                    "rope_local_base_freq": 500.0})"},
        Variant{"gemma4_nested", "gemma4_text",
                R"({"rope_theta": 5e4, "rope_parameters": {
                        "full_attention": {}, "sliding_attention": {}}})"},
        Variant{"qwen35_turned", "qwen3_5_text",
                R"({"linear_num_key_heads": 3, "linear_num_value_heads": 6})"},
        Variant{"qwen35moe_turned", "qwen3_5_moe_text",
                R"({"linear_num_key_heads": 2, "linear_num_value_heads": 6})"},
        Variant{"granite_dense", "granitemoehybrid",
                R"({"num_local_experts": 0})"},
        Variant{"granite_without_mixers", "granitemoehybrid",
                R"({"layer_types": ["attention", "attention"],
                    "position_embedding_type": "rope"})"},
        Variant{"granite_without_shared", "granitemoehybrid",
                R"({"shared_intermediate_size": 0})"},
        Variant{"falcon_auto", "falcon_h1",
                R"({"mamba_d_ssm": null, "mamba_d_head": "auto"})"},
        Variant{"falcon_tied", "falcon_h1", R"({"tie_word_embeddings": true})"},
        Variant{"falcon_normed", "falcon_h1",
                R"({"mamba_rms_norm": true, "mamba_n_groups": 2})"},
        Variant{"nemotron_dense", "nemotron_h",
                R"({"hybrid_override_pattern": "M-*-"})"},
        Variant{"nemotron_experts", "nemotron_h",
                R"({"hybrid_override_pattern": "ME*E"})"},
        Variant{"nemotron_list", "nemotron_h",
                R"({"layers_block_type": ["mamba", "moe", "attention", "moe"],
                    "hybrid_override_pattern": null})"},
        Variant{"kimi_names", "kimi_linear",
                R"({"num_experts_per_tok": 3, "n_shared_experts": 2,
                    "norm_topk_prob": true, "moe_renormalize": false})"},
        Variant{"kimi_query_rank", "kimi_linear", R"({"q_lora_rank": 32})"},
        Variant{"deepseek_v2_greedy", "deepseek_v2",
                R"({"topk_method": "greedy"})"},
        Variant{"falcon_mamba", "falcon_mamba", R"({"mixer_rms_eps": 1e-6})"},
        Variant{"mamba_auto", "mamba",
                R"({"time_step_rank": "auto", "intermediate_size": null})"},
        Variant{"jamba_dense", "jamba",
                R"({"num_experts": 1, "num_experts_per_tok": 1})"},
        Variant{"jamba_without_attention", "jamba",
                R"({"attn_layer_period": 8, "attn_layer_offset": 4})"},
        Variant{"afmoe", "afmoe", R"({"layer_types": null})"},
        Variant{"phimoe", "phimoe", R"({"router_jitter_noise": 0.01})"},
        Variant{"cohere_layers", "cohere2_moe",
                R"({"num_hidden_layers": 6, "layer_types": null,
                    "sliding_window": 5, "rms_norm_eps": 1e-5,
                    "expert_selection_fn": "softmax",
                    "num_shared_experts": 2})"},
        Variant{"cohere_without_shared", "cohere2_moe",
                R"({"num_shared_experts": 0, "norm_topk_prob": false,
                    "mlp_layer_types": ["sparse", "sparse"],
                    "shared_expert_combination_strategy": "sum"})"},
        Variant{"mimo_layers", "mimo_v2_flash",
                R"({"num_hidden_layers": 7, "hybrid_layer_pattern": null,
                    "moe_layer_freq": null, "sliding_window_size": 4,
                    "attention_value_scale": null,
                    "add_full_attention_sink_bias": true})"},
        Variant{"mimo_sparse", "mimo_v2_flash",
                R"({"moe_layer_freq": [1, 0], "hybrid_layer_pattern": [1, 1],
                    "sliding_window": 4, "sliding_window_size": null,
                    "add_swa_attention_sink_bias": false})"},
        Variant{"mellum_bases", "mellum",
                R"({"sliding_window": 4, "rope_theta": 5.0,
                    "rope_parameters": {"full_attention": {
                        "rope_type": "default", "rope_theta": 300.0}}})"},
        Variant{"mellum_full", "mellum", R"({"layer_types": null})"},
        Variant{"laguna_elements", "laguna",
                R"({"gating": "per-element", "num_hidden_layers": 5,
                    "num_attention_heads_per_layer": [1, 2, 3, 2, 1],
                    "sliding_window": 4, "mlp_layer_types": null,
                    "layer_types": ["full_attention", "sliding_attention",
                        "full_attention", "sliding_attention",
                        "full_attention"],
                    "rope_parameters": {"full_attention": {},
                        "sliding_attention": {"partial_rotary_factor": 0.5,
                            "rope_theta": 300.0}}})"},
        Variant{"laguna_full", "laguna",
                R"({"layer_types": null, "rope_parameters": null,
                    "sliding_window": 0,
                    "num_attention_heads_per_layer": null,
                    "mlp_layer_types": ["sparse", "sparse"],
                    "moe_routed_scaling_factor": null})"},
        Variant{"hy_experts", "hy_v3",
                R"({"mlp_layer_types": ["sparse", "dense"],
                    "num_shared_experts": 2, "router_scaling_factor": null})"},
        Variant{"ling_2", "sarvam_moe",
                R"({"architectures": ["BailingMoeV2ForCausalLM"],
                    "model_type": "bailing_moe", "rope_theta": 600000.0,
                    "partial_rotary_factor": 0.5})"},
        Variant{"granite_moe_windows", "granitemoe_swa",
                R"({"layer_rope_theta": [0, 500.0], "sliding_window": 4})"},
        Variant{"granite_without_rope", "granite_swa",
                R"({"layer_rope_theta": [0, 0], "layer_types": null,
                    "sliding_window": 4})"},
        Variant{"deci_heads", "nemotron_nas",
                R"({"block_configs": null, "intermediate_size": 48,
                    "num_key_value_heads_per_layer": [1, 2, 2, 1],
                    "attention_bias": true, "mlp_bias": true})"},
        Variant{"deci_kv_heads", "nemotron_nas",
                R"({"block_configs": null, "intermediate_size": 48,
                    "num_key_value_heads": 1})"},
        Variant{"deci_head_dim", "nemotron_nas", R"({"head_dim": 12})"},
        Variant{"minimax_01", "minimax",
                R"({"full_attn_alpha_factor": 2.5,
                    "linear_attn_alpha_factor": 2.5, "mlp_alpha_factor": 2.5,
                    "full_attn_beta_factor": 1.0,
                    "linear_attn_beta_factor": 1.0, "mlp_beta_factor": 1.0,
                    "partial_rotary_factor": 0.5})"},
        Variant{"v4_layers", "deepseek_v4",
                R"({"num_hidden_layers": 4, "compress_ratios": null,
                    "layer_types": ["heavily_compressed_attention",
                        "sliding_attention", "compressed_sparse_attention",
                        "compressed_sparse_attention"],
                    "num_hash_layers": 0, "norm_topk_prob": false,
                    "mlp_layer_types": ["moe", "moe", "moe", "moe"],
                    "rope_scaling": null, "n_shared_experts": 2,
                    "rope_parameters": {
                        "main": {"rope_theta": 500.0},
                        "compress": {"rope_type": "yarn", "factor": 2.0,
                            "rope_theta": 900.0,
                            "original_max_position_embeddings": 32}}})"},
        Variant{"m3_names", "minimax_m3",
                R"({"num_hidden_layers": 3, "sparse_attention_config": null,
                    "moe_layer_freq": null, "index_n_heads": 2,
                    "index_head_dim": 24, "index_block_size": 2,
                    "index_topk_blocks": 2, "index_local_blocks": 1,
                    "layer_types": ["full_attention", "minimax_m3_sparse",
                        "minimax_m3_sparse"],
                    "mlp_layer_types": ["dense", "sparse", "sparse"],
                    "shared_intermediate_size": 16,
                    "tie_word_embeddings": false})"},
        Variant{"neox_one_stream", "gpt_neox",
                R"({"use_parallel_residual": false})"}),
    [](const auto& info) { return std::string(info.param.name); });

// A tied head that is stored and differs, and one that is stored alone.
TEST_F(FamilyLogits, StoredHeadsOfTiedModels) {
  for (const char* base : {"llama2", "falcon_h1"}) {
    for (const char* missing : {"", "model.embed_tokens.weight"}) {
      SCOPED_TRACE(::testing::Message() << base << ' ' << missing);
      ModelFiles source = Random(base, Json::object(), *device_);
      source.config["tie_word_embeddings"] = true;
      auto weights = std::make_shared<MemoryWeights>(true);
      for (const WeightInfo& info : source.weights->weights()) {
        if (info.name == missing) continue;
        weights->Add(info, source.weights->Mapped(info));
      }
      source.weights = weights;
      const ModelFiles file = files_.OpenFile(files_.Write(source, "f32"));
      const bool is_one = *missing != '\0' && base != std::string("falcon_h1");
      EXPECT_EQ(file.config["tie_word_embeddings"], is_one);
      EXPECT_THAT(
          Logits(file),
          ::testing::Pointwise(::testing::FloatNear(1e-3f), Logits(source)));
    }
  }
}

// Published blocks of gpt-oss's experts are copied: the bits of its logits.
TEST_F(FamilyLogits, PublishedBlocksAreCopied) {
  const auto source =
      OpenModelFiles(TestData() + "/quantized/gpt_oss_mxfp4", {});
  ASSERT_TRUE(source.ok()) << source.status();
  QuantizeOptions options;
  options.type = "mxfp4";
  options.tensor_types = {"*self_attn*=bf16", "*embed*=bf16", "lm_head*=bf16"};
  const auto report = QuantizeModel(*source, options, files_.Path("blocks"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(Logits(files_.OpenFile(files_.Path("blocks"))), Logits(*source));
}

}  // namespace
}  // namespace inlay
