// RoundsInputs: an observer of a model on the CPU that rounds what its layers
// read, as a checkpoint of 8-bit activations asks for it. Header only.
#ifndef INLAY_TESTS_CORE_MODEL_ROUNDS_INPUTS_H_
#define INLAY_TESTS_CORE_MODEL_ROUNDS_INPUTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/expert_inputs.h"
#include "core/model/model.h"
#include "kernels/cpu_float.h"
#include "kernels/rounding/rounding.h"

namespace inlay {

// Writes codes * scales over what quantised layers read.
class RoundsInputs : public InputObserver {
 public:
  RoundsInputs(RowRounding rounding, Stream& stream)
      : rounding_(rounding), stream_(stream) {}
  // In place of a token's own scale: of each layer.
  void UseScales(std::map<std::string, float> scales) {
    scales_ = std::move(scales);
  }

  void OnInput(std::string_view layer, const TensorView& x) override {
    if (!IsRounded(layer)) return;
    // Layers that read the same x are told of apart: it is rounded once for
    // each, from what it was.
    std::vector<float> now = Copy(x);
    const std::vector<float>& from = now == rounded_ ? kept_ : now;
    std::vector<float> rounded =
        scales_.empty() ? ByToken(from, x.rows(), x.cols())
                        : ByScale(from, scales_.at(std::string(layer)));
    for (size_t i = 0; i < from.size(); ++i) {
      off_ += std::pow(double{rounded[i]} - from[i], 2);
      all_ += std::pow(double{from[i]}, 2);
    }
    for (int64_t r = 0; r < x.rows(); ++r) {
      std::copy_n(rounded.begin() + r * x.cols(), x.cols(), x.row<float>(r));
    }
    if (now != rounded_) kept_ = std::move(now);
    rounded_ = std::move(rounded);
  }

  // Of experts alone, all rows that any of them reads.
  void UseExperts() { experts_ = true; }

  // How far inputs were moved, of their own size.
  double moved() const { return std::sqrt(off_ / all_); }

 private:
  bool IsRounded(std::string_view layer) const {
    return experts_ ? layer.ends_with(kAllExperts) : layer.ends_with("_proj");
  }

  static std::vector<float> Copy(const TensorView& x) {
    std::vector<float> values;
    for (int64_t r = 0; r < x.rows(); ++r) {
      const auto* row = x.row<const float>(r);
      values.insert(values.end(), row, row + x.cols());
    }
    return values;
  }

  static std::vector<float> ByScale(std::vector<float> x, float scale) {
    for (float& value : x) {
      value = F8E4M3ToF32(F32ToF8E4M3(value / scale)) * scale;
    }
    return x;
  }

  // The last group of columns may be short: the rest is 0.
  std::vector<float> ByToken(const std::vector<float>& x, int64_t rows,
                             int64_t cols) const {
    const int64_t width =
        (cols + kRoundingGroup - 1) / kRoundingGroup * kRoundingGroup;
    std::vector<float> padded(static_cast<size_t>(rows * width));
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(x.begin() + r * cols, cols, padded.begin() + r * width);
    }
    std::vector<uint8_t> codes(padded.size());
    std::vector<float> scales(
        static_cast<size_t>(RoundingScales(rounding_, rows, width)));
    // The scalar row takes float32 too, which no model asks of it.
    RoundingDesc desc;
    desc.width = width;
    desc.input = DType::kF32;
    RoundingParams params;
    params.rounding = rounding_;
    params.x = MatrixView(reinterpret_cast<std::byte*>(padded.data()),
                          DType::kF32, rows, width);
    params.codes = MatrixView(reinterpret_cast<std::byte*>(codes.data()),
                              RoundingDType(rounding_), rows, width);
    params.scales = scales.data();
    EXPECT_TRUE(RoundingTable().back().run(desc, params, stream_).ok());
    std::vector<float> rounded(x.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const uint8_t code = codes[static_cast<size_t>(r * width + c)];
        const int64_t scale = rounding_ == RowRounding::kFp8Groups
                                  ? c / kRoundingGroup * rows + r
                                  : r;
        rounded[static_cast<size_t>(r * cols + c)] =
            (rounding_ == RowRounding::kInt8Rows
                 ? static_cast<float>(static_cast<int8_t>(code))
                 : F8E4M3ToF32(code)) *
            scales[static_cast<size_t>(scale)];
      }
    }
    return rounded;
  }

  RowRounding rounding_;
  Stream& stream_;
  bool experts_ = false;
  std::map<std::string, float> scales_;
  std::vector<float> kept_, rounded_;
  double off_ = 0, all_ = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_ROUNDS_INPUTS_H_
