// Matrices rounded to NVFP4, as ModelOpt does it (a factor of the tensor in
// float32, a scale of 16 columns in e4m3, codes in e2m1), and what checkpoints
// and GGUF files make of them. Uses nothing of kernels/quant.
#ifndef INLAY_TESTS_SUPPORT_NVFP4_TENSORS_H_
#define INLAY_TESTS_SUPPORT_NVFP4_TENSORS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/memory_weights.h"

namespace inlay {

struct Nvfp4Matrix {
  int64_t rows = 0;
  int64_t cols = 0;  // a multiple of 16
  float factor = 1.0f;
  std::vector<uint8_t> scales;  // e4m3, [rows][cols / 16]
  std::vector<uint8_t> codes;   // e2m1, [rows][cols]

  // OCP's definitions; neither infinite nor NaN.
  static double E4M3(int bits) {
    const int exponent = bits >> 3 & 15;
    return exponent == 0 ? std::ldexp(bits & 7, -9)
                         : std::ldexp(8 + (bits & 7), exponent - 10);
  }
  static double E2M1(int code) {
    constexpr double kLevels[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    return code < 8 ? kLevels[code] : -kLevels[code - 8];
  }

  // The code below `count` whose level is nearest.
  static int Nearest(double value, int count, double (*level)(int)) {
    int best = 0;
    for (int code = 1; code < count; ++code) {
      if (std::fabs(level(code) - value) < std::fabs(level(best) - value)) {
        best = code;
      }
    }
    return best;
  }

  // The factor that brings the largest scale to 448.
  static float FactorOf(const std::vector<float>& values) {
    float most = 0;
    for (const float value : values) most = std::max(most, std::fabs(value));
    return most / (448.0f * 6.0f);
  }

  // `factor`: at least FactorOf(values).
  static Nvfp4Matrix Round(const std::vector<float>& values, int64_t cols,
                           float factor) {
    Nvfp4Matrix matrix;
    matrix.cols = cols;
    matrix.rows = static_cast<int64_t>(values.size()) / cols;
    matrix.factor = factor;
    for (size_t first = 0; first < values.size(); first += 16) {
      double group_most = 0;
      for (size_t i = 0; i < 16; ++i) {
        group_most = std::max(group_most, std::fabs(double{values[first + i]}));
      }
      const int scale =
          Nearest(group_most / 6.0 / double{matrix.factor}, 0x7f, E4M3);
      matrix.scales.push_back(static_cast<uint8_t>(scale));
      const double unit = E4M3(scale) * double{matrix.factor};
      for (size_t i = 0; i < 16; ++i) {
        matrix.codes.push_back(static_cast<uint8_t>(
            unit == 0 ? 0 : Nearest(values[first + i] / unit, 16, E2M1)));
      }
    }
    return matrix;
  }

  std::vector<float> Values() const {
    std::vector<float> values;
    for (size_t i = 0; i < codes.size(); ++i) {
      values.push_back(static_cast<float>(
          E2M1(codes[i]) * E4M3(scales[i / 16]) * double{factor}));
    }
    return values;
  }

  // Of GGUF: 4 scales, then 8 bytes for 16 columns, the first 8 in the low
  // nibbles; 64 columns a block.
  std::string GgufBlocks() const {
    std::string out;
    for (size_t first = 0; first < codes.size(); first += 64) {
      out.append(reinterpret_cast<const char*>(&scales[first / 16]), 4);
      for (size_t group = first; group < first + 64; group += 16) {
        for (size_t i = group; i < group + 8; ++i) {
          out.push_back(static_cast<char>(codes[i] | codes[i + 8] << 4));
        }
      }
    }
    return out;
  }

  // Of checkpoints: neighbours in a byte, the first in the low nibble.
  std::vector<uint8_t> Pairs() const {
    std::vector<uint8_t> pairs;
    for (size_t i = 0; i < codes.size(); i += 2) {
      pairs.push_back(static_cast<uint8_t>(codes[i] | codes[i + 1] << 4));
    }
    return pairs;
  }

  // As a layer of ModelOpt's checkpoints, or of compressed-tensors'.
  void AddTo(MemoryWeights& weights, const std::string& layer,
             bool is_modelopt) const {
    const std::string suffix = is_modelopt ? ".weight" : ".weight_packed";
    weights.Add(layer + suffix, DType::kU8, {rows, cols / 2}, Pairs().data());
    weights.Add(layer + ".weight_scale", DType::kF8E4M3, {rows, cols / 16},
                scales.data());
    const float input = 0.01f;
    if (is_modelopt) {
      weights.Add(layer + ".weight_scale_2", DType::kF32, {}, &factor);
      weights.Add(layer + ".input_scale", DType::kF32, {}, &input);
      return;
    }
    const float inverse = 1.0f / factor;
    weights.Add(layer + ".weight_global_scale", DType::kF32, {1}, &inverse);
    weights.Add(layer + ".input_global_scale", DType::kF32, {1}, &input);
  }
};

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_NVFP4_TENSORS_H_
