// Mixtures of experts whose layers are quantised with act order, columns in the
// order of their groups: what the tests of both devices share.
#ifndef INLAY_TESTS_CORE_MODEL_ACT_ORDER_MODELS_H_
#define INLAY_TESTS_CORE_MODEL_ACT_ORDER_MODELS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/formats/quantized_source.h"
#include "tests/core/model/quantized_families.h"
#include "tests/core/model/rounded_models.h"
#include "tests/support/ordered_columns.h"

namespace inlay {

using ::inlay::testing::GateOrders;

inline constexpr int64_t kGroup = 32;

// Matrices of experts and, as they are loaded alike, of layers in groups.
inline bool IsOfExperts(const std::string& name) {
  if (name.find("router") != name.npos) return false;
  for (const char* part : {".experts.", ".wo_a.", ".rg_lru."}) {
    if (name.find(part) != name.npos) return true;
  }
  return false;
}

// Adds an i32 matrix [rows, columns] of words of eight fields: field `f` of
// word (r, c) is field_at(r, c, f).
template <typename FieldAt>
void AddNibbles(MemoryWeights& weights, const std::string& name, int64_t rows,
                int64_t columns, const FieldAt& field_at) {
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      uint32_t word = 0;
      for (int f = 0; f < 8; ++f) {
        word |= static_cast<uint32_t>(field_at(r, c, f)) << (4 * f);
      }
      words.push_back(word);
    }
  }
  weights.Add(name, DType::kI32, {rows, columns}, words.data());
}

// What a layer of random codes is in a method's layout, and stands for.
struct DrawnLayer {
  int64_t n, k;
  std::vector<int> codes;      // [n, k], 0 to 15
  std::vector<float> scales;   // [n, groups]; code 8 is 0
  std::vector<int32_t> index;  // [k]: groups
  int64_t groups() const { return k / kGroup; }

  DrawnLayer(int64_t n, int64_t k, uint32_t seed) : n(n), k(k) {
    std::mt19937 rng(seed);
    for (int64_t i = 0; i < n * k; ++i) {
      codes.push_back(static_cast<int>(rng() % 16));
    }
    // Exact in f16; outputs are about as large as inputs.
    for (int64_t i = 0; i < n * groups(); ++i) {
      scales.push_back(static_cast<float>(128 + rng() % 128) * 0x1p-13f);
    }
    for (int64_t i = 0; i < k; ++i) {
      index.push_back(static_cast<int32_t>(i / kGroup));
    }
  }
  int Code(int64_t o, int64_t i) const {
    return codes[static_cast<size_t>(o * k + i)];
  }
  float Scale(int64_t o, int64_t g) const {
    return scales[static_cast<size_t>(o * groups() + g)];
  }
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t o = 0; o < n; ++o) {
      for (int64_t i = 0; i < k; ++i) {
        values.push_back(static_cast<float>(Code(o, i) - 8) *
                         Scale(o, index[static_cast<size_t>(i)]));
      }
    }
    return values;
  }
  void AddGptq(MemoryWeights& to, const std::string& layer) const {
    AddNibbles(to, layer + ".qweight", k / 8, n,
               [&](int64_t w, int64_t o, int f) { return Code(o, w * 8 + f); });
    AddNibbles(to, layer + ".qzeros", groups(), n / 8,
               [](int64_t, int64_t, int) { return 7; });
    std::vector<uint16_t> turned;
    for (int64_t g = 0; g < groups(); ++g) {
      for (int64_t o = 0; o < n; ++o) turned.push_back(F32ToF16(Scale(o, g)));
    }
    to.Add(layer + ".scales", DType::kF16, {groups(), n}, turned.data());
    to.Add(layer + ".g_idx", DType::kI32, {k}, index.data());
  }
  void AddCompressed(MemoryWeights& to, const std::string& layer) const {
    AddNibbles(to, layer + ".weight_packed", n, k / 8,
               [&](int64_t o, int64_t w, int f) { return Code(o, w * 8 + f); });
    const int64_t shape[] = {n, k};
    to.Add(layer + ".weight_shape", DType::kI64, {2}, shape);
    to.Add(layer + ".weight_scale", DType::kF32, {n, groups()}, scales.data());
    to.Add(layer + ".weight_g_idx", DType::kI32, {k}, index.data());
  }
};

inline const Json kGptq = {{"quant_method", "gptq"},
                           {"bits", 4},
                           {"group_size", kGroup},
                           {"desc_act", true},
                           {"sym", true}};
inline const Json kCompressed = {{"quant_method", "compressed-tensors"},
                                 {"format", "pack-quantized"},
                                 {"config_groups",
                                  {{"group_0",
                                    {{"targets", {"Linear"}},
                                     {"weights",
                                      {{"num_bits", 4},
                                       {"type", "int"},
                                       {"symmetric", true},
                                       {"strategy", "group"},
                                       {"group_size", kGroup},
                                       {"actorder", "group"}}}}}}}};

// Mixtral, routed by kind, in which routers and embeddings alone are not
// quantised; an expert in four keeps its columns' order.
inline RoundedFiles DrawMixtral(const Json& settings, GateOrders gates) {
  RoundedFiles files;
  files.wide.config = Open("mixtral", "config.json").config;
  // Widths of their own, so that one is not taken for another.
  files.wide.config["intermediate_size"] = 96;
  files.rounded.config = files.wide.config;
  ModelFiles drawn = files.wide;
  drawn.random = RandomWeights{DType::kF32, 5};
  const auto planned = PlanWeights(drawn, *Cpu(1));
  EXPECT_TRUE(planned.ok()) << planned.status();
  auto rounded = std::make_shared<MemoryWeights>(true);
  auto wide = std::make_shared<MemoryWeights>(true);
  uint32_t seed = 1;
  for (const PlannedWeight& weight : *planned) {
    const bool is_plain = weight.vector.has_value() ||
                          weight.name.find("embed") != std::string::npos ||
                          weight.name.ends_with(".gate.weight");
    if (is_plain) {
      std::vector<float> values(static_cast<size_t>(weight.shape[0]), 1.0f);
      if (weight.name.ends_with(".gate.weight")) {
        values = KindRouter({weight.name, weight.shape[0], weight.shape[1]}, 2);
      } else if (!weight.vector.has_value()) {
        values = KindEmbedding(weight.shape[0], weight.shape[1]);
      }
      for (MemoryWeights* to : {rounded.get(), wide.get()}) {
        to->Add(weight.name, DType::kF32, weight.shape, values.data());
      }
      continue;
    }
    const std::string layer =
        weight.name.substr(0, weight.name.rfind(".weight"));
    DrawnLayer own(weight.shape[0], weight.shape[1], seed++);
    if (layer.find(".experts.2.") == layer.npos) {
      const std::vector<int32_t> order =
          ::inlay::testing::OrderOf(layer, own.k, gates);
      std::vector<int32_t> moved(own.index.size());
      for (size_t i = 0; i < moved.size(); ++i) {
        moved[static_cast<size_t>(order[i])] = own.index[i];
      }
      own.index = moved;
    }
    if (settings["quant_method"] == "gptq") {
      own.AddGptq(*rounded, layer);
    } else {
      own.AddCompressed(*rounded, layer);
    }
    wide->Add(weight.name, DType::kF32, weight.shape, own.Values().data());
    ++files.layers;
  }
  files.wide.weights = wide;
  auto opened = OpenQuantized(settings, rounded);
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (opened.ok()) files.rounded.weights = *opened;
  return files;
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_ACT_ORDER_MODELS_H_
