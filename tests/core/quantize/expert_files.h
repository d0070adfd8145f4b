// What tests of methods on mixtures of experts share: what layers of a model
// read, how far logits are off, and a model whose experts' inputs have
// outliers. Header only.
#ifndef INLAY_TESTS_CORE_QUANTIZE_EXPERT_FILES_H_
#define INLAY_TESTS_CORE_QUANTIZE_EXPERT_FILES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "core/quantize/row_reader.h"
#include "kernels/cpu_float.h"
#include "tests/core/quantize/quantized_files.h"
#include "tests/support/memory_weights.h"
#include "tests/support/sanitized.h"

namespace inlay {

using Rows = std::vector<std::vector<float>>;

// A type of folder for each method and layout.
inline constexpr std::pair<const char*, QuantizeMethod> kFolderTypes[] = {
    {"u4_g32", QuantizeMethod::kGptq},
    {"i8_channel", QuantizeMethod::kGptq},
    {"awq_g32", QuantizeMethod::kAwq},
    {"w8a8_int8", QuantizeMethod::kSmoothQuant},
    {"w8a8_fp8_static", QuantizeMethod::kSmoothQuant}};

// Rounding to nearest, and the methods that are held against it; sanitized, one
// of them, in turn.
inline std::vector<QuantizeMethod> NearestAnd(
    std::initializer_list<QuantizeMethod> methods, size_t turn) {
  std::vector<QuantizeMethod> tried = {QuantizeMethod::kNearest};
  size_t i = 0;
  for (const QuantizeMethod method : methods) {
    if (::inlay::testing::TriedWith(turn, i++, methods.size())) {
      tried.push_back(method);
    }
  }
  return tried;
}

// All rows that layers read, by their names.
class InputRecorder : public InputObserver {
 public:
  void OnInput(std::string_view layer, const TensorView& x) override {
    Rows& to = rows[std::string(layer)];
    for (int64_t i = 0; i < x.rows(); ++i) {
      const float* row = x.row<const float>(i);
      to.emplace_back(row, row + x.cols());
    }
  }
  std::map<std::string, Rows> rows;
};

// Sum of squares of the outputs x m^T.
inline double Energy(const Rows& x, const std::vector<float>& m) {
  double energy = 0;
  for (const std::vector<float>& row : x) {
    for (size_t first = 0; first < m.size(); first += row.size()) {
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i) sum += row[i] * m[first + i];
      energy += sum * sum;
    }
  }
  return energy;
}

inline std::vector<float> Minus(std::vector<float> a,
                                const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

class ExpertsTest : public QuantizedFiles {
 protected:
  static ModelFiles Open(const std::string& path) {
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : ModelFiles();
  }
  std::vector<float> Values(const ModelFiles& files, const std::string& name) {
    const WeightInfo* info = files.weights->Find(name);
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) return {};
    auto reader = RowReader::Create(*files.weights, *info, GgufLayout::kSame,
                                    {}, *stream_->thread_pool());
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<float> values(
        static_cast<size_t>(reader->rows() * reader->row_elements()));
    EXPECT_TRUE(reader->Read(0, reader->rows(), values.data()).ok());
    return values;
  }
  // What layers read of tokens, and the logits, all in float32; or by the
  // kernels that calibration has.
  Rows Run(const ModelFiles& files, const TokenSequences& sequences,
           InputRecorder* recorder, bool as_calibration = false) {
    ModelLoadOptions options;
    options.fused = false;
    options.input_observer = recorder;
    if (!as_calibration) {
      options.forced_kernels["gemm"] = "cpu_simd";
      options.forced_kernels["expert_linear"] = "cpu_simd";
    }
    const auto model = LoadModel(files, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    Rows all;
    if (!model.ok()) return all;
    ModelHarness harness(**model, *device_, 512);
    for (const auto& tokens : sequences) {
      const auto logits = harness.Run(harness.AddSequence(64), tokens, 64);
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (logits.ok()) all.insert(all.end(), logits->begin(), logits->end());
    }
    return all;
  }
  // Of half of the tokens, relative to the logits': those whose choice of
  // experts a little rounding changes are far off whatever rounds.
  double LogitsError(const std::string& path, const Rows& wanted,
                     const TokenSequences& sequences) {
    const Rows got = Run(Open(path), sequences, nullptr);
    EXPECT_EQ(got.size(), wanted.size());
    std::vector<double> errors;
    for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
      double difference = 0, norm = 0;
      for (size_t j = 0; j < got[i].size(); ++j) {
        difference += std::pow(double{got[i][j]} - wanted[i][j], 2);
        norm += std::pow(double{wanted[i][j]}, 2);
      }
      errors.push_back(std::sqrt(difference / norm));
    }
    std::sort(errors.begin(), errors.end());
    return errors.empty() ? 1e9 : errors[errors.size() / 2];
  }
  // Other tokens than those of Options.
  static TokenSequences Others(int count) {
    TokenSequences others = Sequences(count, 50, 320);
    for (auto& tokens : others) {
      for (int32_t& token : tokens) token = (token * 7 + 31) % 320;
    }
    return others;
  }
  // The model with a few channels of what experts read far larger than the
  // others, and a part that all tokens share; routers see what they saw.
  ModelFiles WithOutliers(const std::string& model) {
    ModelFiles files = Open(Golden(model));
    auto weights = std::make_shared<MemoryWeights>(true);
    constexpr float kOutlier = 16.0f;
    const auto is_outlier = [](size_t i) { return i % 23 == 5; };
    for (const WeightInfo& info : files.weights->weights()) {
      const std::string& name = info.name;
      const bool is_norm = name.ends_with("post_attention_layernorm.weight") ||
                           name.ends_with("ffn_norm.weight");
      const bool is_router = name.ends_with(".gate.weight");
      const bool is_embedding = name.ends_with("embed_tokens.weight") ||
                                name.ends_with("embed.weight");
      if (!is_norm && !is_router && !is_embedding) {
        std::vector<std::byte> bytes(info.bytes);
        EXPECT_TRUE(files.weights->Read(info, 0, absl::MakeSpan(bytes)).ok());
        weights->Add(info, bytes.data());
        continue;
      }
      std::vector<float> values = Values(files, name);
      const auto width = static_cast<size_t>(info.shape.back());
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t channel = i % width;
        if (is_embedding) {
          values[i] += 0.04f * (channel % 3 == 0 ? 1.0f : -0.5f);
        } else if (is_outlier(channel)) {
          values[i] *= is_norm ? kOutlier : 1 / kOutlier;
        }
      }
      std::vector<std::byte> bytes(info.bytes);
      for (size_t i = 0; i < values.size(); ++i) {
        StoreFloat(info.dtype, bytes.data(), static_cast<int64_t>(i),
                   values[i]);
      }
      weights->Add(info, bytes.data());
    }
    files.weights = std::move(weights);
    return files;
  }
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_QUANTIZE_EXPERT_FILES_H_
