// The families with weights drawn in a block format: what the tests of both
// devices share.
#ifndef INLAY_TESTS_CORE_MODEL_QUANTIZED_FAMILIES_H_
#define INLAY_TESTS_CORE_MODEL_QUANTIZED_FAMILIES_H_

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "tests/core/model/golden_models.h"
#include "tests/core/model/routed_models.h"

namespace inlay {

// Keys of a configuration's widths; and of numbers of heads, which are more
// then and not larger, so that what is said of one head stays as it is.
inline constexpr const char* kWidths[] = {"hidden_size",
                                          "n_embd",
                                          "word_embed_proj_dim",
                                          "ffn_dim",
                                          "ffn_hidden_size",
                                          "n_inner",
                                          "d_model",
                                          "intermediate_size",
                                          "intermediate_size_mlp",
                                          "dense_intermediate_size",
                                          "block_ff_dim",
                                          "conv_dim",
                                          "mamba_d_ssm",
                                          "mamba_dt_rank",
                                          "laurel_rank",
                                          "hidden_size_per_layer_input",
                                          "time_step_rank",
                                          "adapter_rank",
                                          "gated_norm_rank",
                                          "moe_intermediate_size",
                                          "expert_ffn_hidden_size",
                                          "moe_ffn_hidden_size",
                                          "parallel_expert_intermediate_size",
                                          "model_dim",
                                          "shared_intermediate_size",
                                          "shared_expert_intermediate_size",
                                          "moe_shared_expert_intermediate_size",
                                          "share_expert_dim",
                                          "moe_latent_size",
                                          "kv_lora_rank",
                                          "q_lora_rank",
                                          "o_lora_rank",
                                          "decay_low_rank_dim",
                                          "a_low_rank_dim",
                                          "v_low_rank_dim",
                                          "gate_low_rank_dim"};
inline constexpr const char* kHeads[] = {"num_attention_heads",
                                         "num_key_value_heads",
                                         "num_global_key_value_heads",
                                         "num_kv_heads",
                                         "n_head",
                                         "n_heads",
                                         "num_heads",
                                         "attention_heads",
                                         "swa_num_attention_heads",
                                         "swa_num_key_value_heads",
                                         "mamba_n_heads",
                                         "mamba_num_heads",
                                         "n_mamba_heads",
                                         "linear_num_key_heads",
                                         "linear_num_value_heads"};

// Every token sees all keys: those that are selected would change with
// roundings, and are the goldens' matter. A selection is by pairs of tokens, so
// that no embedding puts all of it far from where it changes, as
// routed_models.h does with experts.
inline Json WithAllKeys(Json config) {
  if (config.contains("index_topk")) config["index_topk"] = 256;
  if (config.contains("sparse_attention_config")) {
    config["sparse_attention_config"]["sparse_topk_blocks"] = 64;
  }
  return config;
}

// Widths that are no whole blocks of 32 grow to one more.
inline Json InWholeBlocks(Json config) {
  for (const char* key : kWidths) {
    if (!config.contains(key) || !config[key].is_number_integer()) continue;
    config[key] = (config[key].get<int64_t>() + 31) / 32 * 32;
  }
  // Each matrix has half of it.
  if (config["model_type"] == "qwen") config["intermediate_size"] = 64;
  if (config["model_type"] == "openelm") config["ffn_dim_divisor"] = 32;
  // Half of it, and a head's part of the other.
  if (config["model_type"] == "recurrent_gemma") {
    config["intermediate_size"] = config["lru_width"] = 64;
  }
  // Three heads of 16.
  if (config["model_type"] == "baichuan") config["num_attention_heads"] = 4;
  if (config.contains("attention_other_setting")) {
    config["attention_other_setting"]["num_attention_heads"] = 4;
  }
  return config;
}

// Wide enough for blocks of 256 in most of its matrices.
inline Json Wider(Json config) {
  constexpr int64_t kWidth = 256;
  const auto multiply = [](Json& sizes, const char* key, int64_t factor) {
    if (sizes.contains(key) && sizes[key].is_number_integer()) {
      sizes[key] = sizes[key].get<int64_t>() * factor;
    }
  };
  const int64_t hidden = config[config.contains("n_embd")      ? "n_embd"
                                : config.contains("d_model")   ? "d_model"
                                : config.contains("model_dim") ? "model_dim"
                                                               : "hidden_size"];
  for (const char* key : kHeads) multiply(config, key, kWidth / hidden);
  for (const char* key :
       {"num_attention_heads_per_layer", "num_query_heads", "num_kv_heads"}) {
    if (!config.contains(key) || !config[key].is_array()) continue;
    for (Json& heads : config[key]) {
      heads = heads.get<int64_t>() * (kWidth / hidden);
    }
  }
  if (config.contains("sparse_attention_config")) {
    multiply(config["sparse_attention_config"], "sparse_num_index_heads",
             kWidth / hidden);
  }
  if (config.contains("attention_other_setting")) {
    multiply(config["attention_other_setting"], "num_attention_heads",
             kWidth / hidden);
  }
  if (config.contains("linear_attn_config")) {
    multiply(config["linear_attn_config"], "num_heads", kWidth / hidden);
  }
  if (config["model_type"] == "baichuan") config["num_attention_heads"] = 16;
  // One for all heads.
  if (config["model_type"] == "deepseek_v4") config["num_key_value_heads"] = 1;
  for (const char* key : kWidths) {
    if (config.contains(key) && config[key].is_number_integer()) {
      config[key] = kWidth;
    }
  }
  if (config.contains("value_dim")) config["value_dim"] = kWidth;  // RWKV-7's
  if (config["model_type"] == "qwen") config["intermediate_size"] = 2 * kWidth;
  if (config["model_type"] == "openelm") {
    config["ffn_multipliers"] = {1.0, 2.0};
  }
  if (config["model_type"] == "recurrent_gemma") {
    config["intermediate_size"] = config["lru_width"] = 2 * kWidth;
  }
  return config;
}

// Drawn in `dtype`, and in q8_0 what has rows that are no whole blocks.
struct DrawnFamily {
  ModelFiles files;
  double share = 0;  // of the matrices' elements that are in `dtype`
};

inline DrawnFamily DrawFamily(const Json& config, DType dtype) {
  DrawnFamily drawn;
  drawn.files.config = config;
  drawn.files.random = RandomWeights{DType::kF32, 7};
  const auto device = *CreateCpuDevice(1, 0);
  const auto planned = PlanWeights(drawn.files, *device);
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (!planned.ok()) return drawn;
  RandomWeights random{dtype, 7};
  double all = 0, in_format = 0;
  for (const PlannedWeight& weight : *planned) {
    if (weight.vector.has_value()) continue;
    double elements = 1;
    for (const int64_t size : weight.shape) {
      elements *= static_cast<double>(size);
    }
    all += elements;
    if (weight.shape.back() % GetFormatInfo(dtype).block_elements == 0) {
      in_format += elements;
    } else {
      random.overrides.push_back({weight.name, DType::kQ8_0});
    }
  }
  drawn.files = DrawModel(config, random);
  drawn.share = in_format / all;
  return drawn;
}

// Of `got` off `want`, over the deviation of `want`: root mean square and
// worst. NaN counts as infinite.
struct LogitErrors {
  double rms = INFINITY;
  double worst = INFINITY;
};

inline LogitErrors ErrorsOf(const ModelHarness::Logits& got,
                            const ModelHarness::Logits& want) {
  double sum = 0, squares = 0, off = 0, worst = 0;
  size_t count = 0;
  if (got.size() != want.size()) return {};
  for (size_t t = 0; t < want.size(); ++t) {
    for (size_t i = 0; i < want[t].size(); ++i) {
      const double difference = std::fabs(double{got[t][i]} - want[t][i]);
      if (std::isnan(difference)) return {};
      sum += want[t][i];
      squares += double{want[t][i]} * want[t][i];
      off += difference * difference;
      worst = std::max(worst, difference);
      ++count;
    }
  }
  const double n = static_cast<double>(std::max<size_t>(count, 1));
  const double deviation = std::sqrt(squares / n - sum / n * sum / n);
  return {std::sqrt(off / n) / deviation, worst / deviation};
}

inline std::vector<int32_t> FamilyPrompt() {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 14; ++i) prompt.push_back(i * 37 % 112);
  return prompt;
}

// Logits on a CPU by the rows of that name, once for each way to cut the
// prompt. With an observer matrices that read the same are apart.
inline std::vector<ModelHarness::Logits> RunFamily(
    const ModelFiles& files, const char* row,
    const std::vector<int64_t>& chunks = {1 << 20},
    InputObserver* observer = nullptr) {
  ModelLoadOptions options;
  options.input_observer = observer;
  options.fused = observer == nullptr;
  if (row != nullptr) {
    options.forced_kernels["gemm"] = row;
    options.forced_kernels["expert_linear"] = row;
  }
  const auto device = Cpu();
  const auto model = LoadModel(files, *device, options);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<ModelHarness::Logits> all(chunks.size());
  if (!model.ok()) return all;
  for (size_t i = 0; i < chunks.size(); ++i) {
    all[i] = RunChunks(**model, *device, FamilyPrompt(), chunks[i]);
  }
  return all;
}

// How far the family's logits move when its matrices are rounded to bf16, in
// float32 arithmetic. The elements' errors are of root mean square kBf16Move of
// themselves: 2^-8 / sqrt(3), less as mantissas are 1 to 2. Independent errors
// of what matrices read and make move logits like errors of the matrices.
inline constexpr double kBf16Move = 0.735 * 0x1p-8 / 1.732;
inline LogitErrors MovedByBf16(const Json& config,
                               InputObserver* observer = nullptr) {
  const auto run = [&](DType dtype) {
    const ModelFiles files = DrawModel(config, RandomWeights{dtype, 7});
    return RunFamily(files, "cpu_simd", {1 << 20}, observer)[0];
  };
  const auto exact = run(DType::kF32);
  return ErrorsOf(run(DType::kBF16), exact);
}

// Of a model that is drawn: float32 arithmetic on its weights, how far its
// logits move by bf16, and that where tokens go to experts is the same with
// other weights but for routers and embeddings: far from where roundings, which
// are smaller, change it.
struct FamilyReference {
  explicit FamilyReference(const DrawnFamily& drawn)
      : choices(drawn.files, FamilyPrompt().size()),
        want(RunFamily(drawn.files, "cpu_scalar", {1 << 20}, &choices)[0]) {
    ExpertChoices others(drawn.files, FamilyPrompt().size());
    moved = MovedByBf16(drawn.files.config, &others);
    EXPECT_TRUE(others.tokens() == choices.tokens()) << "other draws";
    choices.ExpectChoices();
  }
  ExpertChoices choices;
  ModelHarness::Logits want;
  LogitErrors moved;
};

// `error`: of the root mean square of what is rounded, for each matrix. Other
// weights are drawn than MovedByBf16() draws, and the worst is one of a few
// thousand: half as much and as much again is allowed.
inline void ExpectRounded(const LogitErrors& got, const LogitErrors& moved,
                          double error) {
  EXPECT_LT(got.rms, 1.5 * moved.rms * error / kBf16Move);
  EXPECT_LT(got.worst, 2 * moved.worst * error / kBf16Move);
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_QUANTIZED_FAMILIES_H_
