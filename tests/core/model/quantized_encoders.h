// Encoders with weights drawn in a block format, as quantized_families.h has
// it: what the tests of both devices share.
#ifndef INLAY_TESTS_CORE_MODEL_QUANTIZED_ENCODERS_H_
#define INLAY_TESTS_CORE_MODEL_QUANTIZED_ENCODERS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/core/model/quantized_families.h"

namespace inlay {

// All widths are `width`, a multiple of what heads have; heads are more and not
// larger. Embeddings that are narrower than the network have half of it.
inline Json EncoderOfWidth(Json config, int64_t width) {
  const auto number = [&](const char* key) {
    return config.contains(key) ? config[key].get<int64_t>() : 0;
  };
  std::string hidden = "hidden_size";
  for (const char* key : {"dim", "n_embd", "d_model"}) {
    if (config.contains(key)) hidden = key;
  }
  const int64_t old_width = number(hidden.c_str());
  for (const char* key : {"num_attention_heads", "n_heads", "n_head",
                          "num_heads", "num_key_value_heads"}) {
    if (!config.contains(key)) continue;
    // T5's heads are of any width.
    config[key] = config.contains("d_kv") ? width / number("d_kv")
                                          : number(key) * width / old_width;
  }
  for (const char* key : {"embedding_size", "input_embedding_size"}) {
    if (config.contains(key)) {
      config[key] = number(key) < old_width ? width / 2 : width;
    }
  }
  for (const char* key : {"intermediate_size", "hidden_dim", "n_inner", "d_ff",
                          "pooler_hidden_size"}) {
    if (config.contains(key)) config[key] = width;
  }
  config[hidden] = width;
  return config;
}

inline Json QuantizedEncoderConfig(const char* name, int64_t width) {
  return EncoderOfWidth(Open(name, "config.json").config, width);
}

// Texts to run beside each other.
inline std::vector<std::vector<int32_t>> EncoderTexts() {
  std::vector<std::vector<int32_t>> texts;
  for (const int32_t length : {9, 1, 14, 5}) {
    std::vector<int32_t>& text = texts.emplace_back();
    for (int32_t i = 0; i < length; ++i) {
      text.push_back((length + i * 37) % 41 + 4);
    }
  }
  return texts;
}

// States of each text's tokens, all in one Forward or each alone.
inline std::vector<ModelHarness::Logits> RunTexts(const Model& model,
                                                  Device& device,
                                                  bool together) {
  const auto texts = EncoderTexts();
  ModelHarness harness(model, device, 1024);
  std::vector<ModelHarness::Chunk> chunks;
  for (const std::vector<int32_t>& text : texts) {
    const auto length = static_cast<int64_t>(text.size());
    chunks.push_back({harness.AddSequence(length), text});
  }
  std::vector<ModelHarness::Logits> all;
  if (!together) {
    for (const ModelHarness::Chunk& chunk : chunks) {
      auto states = harness.Forward({chunk});
      EXPECT_TRUE(states.ok()) << states.status();
      if (!states.ok()) return all;
      all.push_back(*std::move(states));
    }
    return all;
  }
  const auto states = harness.Forward(chunks);
  EXPECT_TRUE(states.ok()) << states.status();
  if (!states.ok()) return all;
  auto row = states->begin();
  for (const std::vector<int32_t>& text : texts) {
    const auto length = static_cast<ptrdiff_t>(text.size());
    all.emplace_back(row, row + length);
    row += length;
  }
  return all;
}

// On a CPU, as RunFamily(): each alone and, to the bit the same, all together.
inline std::vector<ModelHarness::Logits> RunTexts(
    const ModelFiles& files, const char* row,
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
  if (!model.ok()) return {};
  auto together = RunTexts(**model, *device, true);
  if (row == nullptr) {
    EXPECT_TRUE(RunTexts(**model, *device, false) == together) << "batched";
  }
  return together;
}

// All texts' states behind each other.
inline ModelHarness::Logits Joined(
    const std::vector<ModelHarness::Logits>& texts) {
  ModelHarness::Logits all;
  for (const ModelHarness::Logits& text : texts) {
    all.insert(all.end(), text.begin(), text.end());
  }
  return all;
}

// Tables that tokens, positions and kinds of them look up.
inline bool IsLookup(std::string_view name) {
  if (name.find("project") != name.npos || name.find("mapping") != name.npos) {
    return false;
  }
  return name.find("embed") != name.npos || name == "shared.weight";
}

// As MovedByBf16(), of states; with and without the tables' own rounding, which
// is most of it where a norm follows each sum.
inline LogitErrors StatesMovedByBf16(const Json& config, bool with_tables) {
  const ModelFiles files = DrawModel(config, RandomWeights{DType::kF32, 7});
  const auto exact = RunTexts(files, "cpu_simd");
  RandomWeights rounded{DType::kBF16, 7};
  if (!with_tables) {
    const auto device = Cpu(1);
    const auto planned = PlanWeights(files, *device);
    EXPECT_TRUE(planned.ok()) << planned.status();
    if (!planned.ok()) return {};
    for (const PlannedWeight& weight : *planned) {
      if (!IsLookup(weight.name)) continue;
      rounded.overrides.push_back({weight.name, DType::kF32});
    }
    EXPECT_FALSE(rounded.overrides.empty());
  }
  return ErrorsOf(Joined(RunTexts(DrawModel(config, rounded), "cpu_simd")),
                  Joined(exact));
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_QUANTIZED_ENCODERS_H_
