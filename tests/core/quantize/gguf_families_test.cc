// GGUF files that QuantizeModel writes of families with experts, latents and
// recurrent layers: the reference's outputs, what llama.cpp's converter would
// have written, and what rounding may do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "core/formats/gguf_files.h"
#include "core/formats/stored_tensor.h"
#include "core/model/load_model.h"
#include "core/quantize/quantize.h"
#include "kernels/quant/quant.h"
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
      rounds += info.dtype != DType::kF32 ? 1 : 0;
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
    EXPECT_GE(rounds, 6);
  }
}

// A file of the type is written as it is, whatever its tensors are made of.
TEST_P(GgufFamilies, FilesAreCopied) {
  const ModelFiles first =
      files_.OpenFile(files_.Write(Open(GetParam(), "config.json"), "q8_0"));
  ASSERT_NE(first.weights, nullptr);
  QuantizeReport report;
  const ModelFiles second =
      files_.OpenFile(files_.Write(first, "q8_0", &report));
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
    ::testing::Values("mixtral", "qwen3_moe", "gpt_oss", "glm4_moe",
                      "minimax_m2", "granitemoehybrid", "deepseek_v2",
                      "deepseek_v2_lite", "deepseek_v3", "deepseek_v32",
                      "glm_moe_dsa", "qwen3_next", "qwen3_5_text",
                      "qwen3_5_moe_text", "gemma4_text", "gemma4_moe_text",
                      "lfm2", "falcon_h1", "mamba2", "nemotron_h",
                      "kimi_linear", "gpt_neox", "olmo3", "glm4_moe_lite",
                      "minicpm3", "lfm2_moe", "olmoe", "seed_oss", "ernie4_5",
                      "ernie4_5_moe", "granitemoe", "ministral3", "cohere",
                      "dots1", "arcee", "phi", "nemotron", "olmo", "stablelm"),
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
  const Json& config = published.config;
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
    ::testing::Values("mixtral", "qwen3_moe", "gpt_oss", "glm4_moe",
                      "minimax_m2", "deepseek_v2", "deepseek_v3",
                      "deepseek_v32", "glm_moe_dsa", "qwen3_next",
                      "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text",
                      "gemma4_moe_text", "lfm2", "mamba2", "nemotron_h",
                      "kimi_linear", "gpt_neox", "olmo3", "glm4_moe_lite",
                      "lfm2_moe", "olmoe", "seed_oss", "ernie4_5",
                      "ernie4_5_moe", "ministral3", "cohere", "dots1", "arcee",
                      "phi", "nemotron", "olmo", "stablelm"),
    [](const auto& info) { return std::string(info.param); });

// --- Keys, as the converter sets them.

template <typename T>
Json Numbers(const GgufValue& value) {
  Json list = Json::array();
  for (size_t i = 0; i < value.count; ++i) {
    T number;
    std::memcpy(&number, value.data.data() + i * sizeof(T), sizeof(T));
    list.push_back(number);
  }
  return value.is_array ? list : list[0];
}

Json JsonOf(const GgufValue& value) {
  switch (value.type) {
    case GgufType::kU32:
      return Numbers<uint32_t>(value);
    case GgufType::kI32:
      return Numbers<int32_t>(value);
    case GgufType::kF32:
      return Numbers<float>(value);
    case GgufType::kBool:
      return Numbers<bool>(value);
    default:
      return Json();
  }
}

struct Keys {
  const char* model;
  const char* arch;
  const char* keys;
  const char* changes = "{}";  // of the golden model's config.json
};
constexpr Keys kKeys[] = {
    {"mixtral", "llama", R"({"block_count": 2, "expert_count": 4,
        "expert_used_count": 2, "feed_forward_length": 64,
        "rope.dimension_count": 16})"},
    {"qwen3_moe", "qwen3moe", R"({"block_count": 2, "context_length": 512,
        "embedding_length": 64, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.head_count_kv": 2,
        "attention.key_length": 32, "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": 0.001, "rope.freq_base": 10000.0,
        "expert_count": 8, "expert_used_count": 2,
        "expert_feed_forward_length": 32})"},
    {"gpt_oss", "gpt-oss", R"({"attention.sliding_window": 32,
        "expert_feed_forward_length": 32, "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64})"},
    {"glm4_moe", "glm4moe", R"({"rope.dimension_count": 16, "expert_count": 8,
        "expert_feed_forward_length": 32, "expert_shared_count": 1,
        "leading_dense_block_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 1.0, "expert_weights_norm": true})"},
    {"deepseek_v2", "deepseek2", R"({"expert_gating_func": 1,
        "expert_group_count": 4, "expert_group_used_count": 2,
        "expert_weights_scale": 4.0, "vocab_size": 320})"},
    {"deepseek_v3", "deepseek2", R"({"attention.head_count": 4,
        "attention.head_count_kv": 1, "leading_dense_block_count": 1,
        "attention.q_lora_rank": 32, "attention.kv_lora_rank": 32,
        "attention.key_length": 48, "attention.value_length": 32,
        "attention.key_length_mla": 48, "attention.value_length_mla": 32,
        "expert_feed_forward_length": 32, "expert_count": 8,
        "expert_shared_count": 2, "expert_weights_scale": 2.5,
        "expert_weights_norm": true, "expert_gating_func": 2,
        "expert_group_count": 2, "expert_group_used_count": 1,
        "rope.dimension_count": 16, "rope.scaling.factor": 4.0,
        "rope.scaling.yarn_log_multiplier": 0.1})"},
    {"glm_moe_dsa", "glm-dsa", R"({"attention.indexer.head_count": 16,
        "attention.indexer.key_length": 32, "attention.indexer.top_k": 16,
        "attention.indexer.types": [true, false, true],
        "leading_dense_block_count": 2})"},
    {"qwen3_5_moe_text", "qwen35moe", R"({"ssm.conv_kernel": 4,
        "ssm.state_size": 16, "ssm.group_count": 1, "ssm.time_step_rank": 2,
        "ssm.inner_size": 64, "full_attention_interval": 2,
        "attention.recurrent_layers": [true, false],
        "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0],
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 32})"},
    {"gemma4_text", "gemma4", R"({"attention.shared_kv_layers": 2,
        "embedding_length_per_layer_input": 32,
        "attention.sliding_window_pattern": [true, false, true, false],
        "attention.key_length": 64, "attention.value_length": 64,
        "attention.key_length_swa": 32, "attention.value_length_swa": 32,
        "feed_forward_length": [32, 32, 64, 64], "rope.dimension_count": 64,
        "rope.dimension_count_swa": 32, "rope.freq_base": 100000.0,
        "rope.freq_base_swa": 10000.0, "final_logit_softcapping": 5.0})"},
    {"granitemoehybrid", "granitehybrid", R"({"ssm.conv_kernel": 4,
        "ssm.state_size": 16, "ssm.group_count": 1, "ssm.inner_size": 128,
        "ssm.time_step_rank": 4, "attention.head_count_kv": [0, 1],
        "expert_shared_feed_forward_length": 64, "attention.scale": 0.3,
        "embedding_scale": 6.0, "residual_scale": 0.5, "logit_scale": 3.0,
        "rope.scaling.finetuned": false})"},
    {"lfm2", "lfm2", R"({"shortconv.l_cache": 3, "feed_forward_length": 64,
        "attention.head_count_kv": [0, 1, 0], "vocab_size": 320,
        "attention.layer_norm_rms_epsilon": 0.001})"},
    {"falcon_h1", "falcon-h1", R"({"ssm.inner_size": 64, "ssm.state_size": 32,
        "ssm.time_step_rank": 4, "ssm.group_count": 1, "ssm.conv_kernel": 4,
        "feed_forward_length": 32, "attention.head_count_kv": 1})"},
    {"mamba2", "mamba2", R"({"feed_forward_length": 0,
        "attention.head_count": 0, "context_length": 1048576,
        "ssm.inner_size": 128, "ssm.state_size": 32, "ssm.group_count": 2,
        "ssm.time_step_rank": 4})"},
    {"nemotron_h", "nemotron_h_moe", R"({"attention.key_length": 32,
        "attention.head_count_kv": [0, 0, 1, 0],
        "attention.layer_norm_epsilon": 0.001, "expert_shared_count": 1,
        "expert_shared_feed_forward_length": 64,
        "expert_weights_norm": true, "expert_weights_scale": 2.5})"},
    {"kimi_linear", "kimi-linear", R"({"kda.head_dim": 32, "ssm.conv_kernel": 4,
        "attention.head_count_kv": [0, 0, 0, 1], "expert_shared_count": 1,
        "attention.kv_lora_rank": 32, "rope.dimension_count": 16,
        "leading_dense_block_count": 1})"},
    {"qwen3_next", "qwen3next", R"({"ssm.conv_kernel": 4, "ssm.state_size": 32,
        "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128,
        "full_attention_interval": 4, "rope.dimension_count": 8,
        "expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 64})"},
    {"minimax_m2", "minimax-m2", R"({"expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": 32, "expert_gating_func": 2,
        "rope.dimension_count": 16, "attention.key_length": 32})"},
    {"deepseek_v32", "deepseek32", R"({"attention.indexer.head_count": 16,
        "attention.indexer.key_length": 32, "attention.indexer.top_k": 16,
        "attention.kv_lora_rank": 32, "expert_shared_count": 2,
        "expert_gating_func": 2, "leading_dense_block_count": 1})"},
    {"gpt_neox", "gptneox", R"({"attention.head_count": 2,
        "feed_forward_length": 96, "use_parallel_residual": true,
        "attention.layer_norm_epsilon": 0.001, "rope.dimension_count": 8})"},
    {"llama4_text", "llama4", R"({"expert_count": 4, "expert_used_count": 1,
        "expert_feed_forward_length": 32, "feed_forward_length": 64,
        "interleave_moe_layer_step": 2})",
     kPublishedLlama4},
    {"glm4_moe_lite", "deepseek2", R"({"leading_dense_block_count": 1,
        "expert_count": 4, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_norm": true, "attention.key_length_mla": 32})"},
    {"minicpm3", "minicpm3", R"({"attention.head_count_kv": 1,
        "attention.q_lora_rank": 32, "attention.kv_lora_rank": 32,
        "attention.key_length": 32, "rope.dimension_count": 16,
        "rope.scaling.original_context_length": 64})"},
    {"lfm2_moe", "lfm2moe", R"({"attention.head_count_kv": [0, 1, 0],
        "shortconv.l_cache": 3, "leading_dense_block_count": 2,
        "expert_count": 4, "expert_used_count": 2, "expert_gating_func": 2,
        "expert_feed_forward_length": 32, "vocab_size": 320})"},
    {"olmoe", "olmoe", R"({"expert_count": 4, "expert_used_count": 2,
        "feed_forward_length": 32, "attention.head_count_kv": 1})"},
    {"seed_oss", "seed_oss", R"({"attention.key_length": 16,
        "feed_forward_length": 64, "rope.freq_base": 10000000.0})"},
    {"ernie4_5_moe", "ernie4_5-moe", R"({"expert_count": 4,
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_shared_count": 2, "expert_shared_feed_forward_length": 64,
        "leading_dense_block_count": 1, "interleave_moe_layer_step": 1})"},
    {"ministral3", "mistral3", R"({"attention.key_length": 16,
        "attention.temperature_scale": 0.5, "rope.scaling.factor": 4.0,
        "rope.scaling.yarn_log_multiplier": 1.0,
        "rope.scaling.original_context_length": 32})"},
    {"cohere", "command-r", R"({"logit_scale": 0.25,
        "attention.layer_norm_epsilon": 0.001})"},
    {"phi", "phi2", R"({"rope.dimension_count": 8,
        "attention.layer_norm_epsilon": 0.001})"},
    {"nemotron", "nemotron", R"({"rope.dimension_count": 8,
        "attention.layer_norm_epsilon": 0.001})"},
    {"stablelm", "stablelm", R"({"rope.dimension_count": 8,
        "attention.layer_norm_epsilon": 0.001,
        "use_parallel_residual": false})"},
    {"dots1", "dots1", R"({"leading_dense_block_count": 0,
        "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 2.5, "expert_weights_norm": true})"},
    {"granitemoe", "granitemoe", R"({"expert_count": 4, "expert_used_count": 2,
        "feed_forward_length": 32, "attention.scale": 0.3})"},
    {"olmo3", "olmo2", R"({"attention.sliding_window": 32,
        "attention.sliding_window_pattern": [true, true, false],
        "rope.freq_base": 500000.0, "rope.scaling.factor": 8.0,
        "rope.scaling.yarn_attn_factor": 1.2079})"},
    // What config.json leaves open.
    {"qwen3_5_text", "qwen35", R"({"rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0]})",
     R"({"head_dim": 256, "rope_parameters": null,
         "partial_rotary_factor": 0.25})"},
    {"glm4_moe", "glm4moe", R"({"expert_shared_count": 1})",
     R"({"n_shared_experts": null})"},
    {"deepseek_v2", "deepseek2", R"({"expert_shared_count": 2})",
     R"({"n_shared_experts": null})"},
    {"falcon_h1", "falcon-h1", R"({"ssm.inner_size": 192})",
     R"({"mamba_d_ssm": null, "mamba_expand": 3, "mamba_d_head": "auto"})"},
    {"granitemoehybrid", "granitehybrid", R"({"ssm.inner_size": 128})",
     R"({"mamba_d_head": "auto"})"},
    // Kimi's own names win, and are nobody else's.
    {"kimi_linear", "kimi-linear", R"({"context_length": 512,
        "expert_used_count": 2, "expert_shared_count": 1,
        "expert_group_count": 1, "expert_weights_norm": false})",
     R"({"max_position_embeddings": 64, "num_experts_per_tok": 3,
         "n_shared_experts": 2, "n_group": 2, "norm_topk_prob": true,
         "moe_renormalize": false})"},
    {"glm4_moe", "glm4moe", R"({"expert_weights_norm": true})",
     R"({"norm_topk_prob": null, "moe_renormalize": false})"}};

TEST(ConverterKeys, AreSet) {
  const FamilyFiles files;
  for (const Keys& row : kKeys) {
    SCOPED_TRACE(row.model);
    ModelFiles published = Open(row.model, "config.json");
    published.config.update(*ParseJson(row.changes, "changes"));
    const std::string path = files.Path("keys");
    ASSERT_TRUE(files.SetKeys(published, path).ok());
    const auto file = OpenGgufFiles(path, {});
    ASSERT_TRUE(file.ok()) << file.status();
    const Json wanted = *ParseJson(row.keys, row.model);
    for (const auto& [key, value] : wanted.items()) {
      SCOPED_TRACE(key);
      const GgufValue* found =
          file->header().Find(std::string(row.arch) + "." + key);
      ASSERT_NE(found, nullptr);
      const Json got = JsonOf(*found);
      if (value.is_number_float()) {
        EXPECT_EQ(found->type, GgufType::kF32);
        EXPECT_EQ(got.get<float>(), value.get<float>());
      } else {
        EXPECT_EQ(got, value);
      }
    }
  }
}

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
