// rounding: rows as codes of 8 bits and their scales, for products of codes by
// codes (gemm/FP8.md); of x itself, or of what a norm or a gated activation
// makes of it, in one pass. What is rounded to codes is first rounded to
// RoundingDesc::activation, so that codes are those of the ops apart.
#ifndef INLAY_KERNELS_ROUNDING_ROUNDING_H_
#define INLAY_KERNELS_ROUNDING_ROUNDING_H_

#include <cstddef>
#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

// Codes, and what has one scale.
//   kFp8*      e4m3: a scale is the largest magnitude / 448. An infinity makes
//              all of a scale's codes NaN, a NaN its own.
//   kInt8Rows  a scale is the largest magnitude / 127 ("per-token" of
//              SmoothQuant, arXiv:2211.10438, and of compressed-tensors); what
//              is not finite makes the row's scale NaN.
// Codes are x * (448 or 127 / the largest), to nearest even.
enum class RowRounding : uint8_t { kNone, kFp8Rows, kFp8Groups, kInt8Rows };

// Columns that share a scale of kFp8Groups.
inline constexpr int64_t kRoundingGroup = 128;

constexpr DType RoundingDType(RowRounding rounding) {
  return rounding == RowRounding::kInt8Rows ? DType::kI8 : DType::kF8E4M3;
}
// Floats of the scales: a row each, or kFp8Groups [width / 128, rows].
constexpr int64_t RoundingScales(RowRounding rounding, int64_t rows,
                                 int64_t width) {
  return rounding == RowRounding::kFp8Groups ? rows * (width / kRoundingGroup)
                                             : rows;
}

enum class RoundingSource : uint8_t {
  kPlain,       // x
  kRmsNorm,     // rms_norm of x
  kActivation,  // gated: f(gate) * up
};

struct RoundingDesc {
  RoundingSource source = RoundingSource::kPlain;
  int64_t width = 0;                // of codes, a multiple of 128
  DType input = DType::kBF16;       // of x
  DType activation = DType::kBF16;  // f16 or bf16; x's but of kRmsNorm
  // Of kActivation, as ActivationDesc has them.
  Activation function = Activation::kSilu;
  float limit = 0.0f;
};

struct RoundingParams {
  RowRounding rounding = RowRounding::kFp8Rows;
  // [rows, width], of kActivation twice as wide (gate first); rows may be
  // strided and lie on multiples of 16 bytes.
  TensorView x;
  // Of kRmsNorm, as RmsNormParams has them; 16-byte aligned.
  const float* weight = nullptr;
  float epsilon = 0.0f;
  // [rows, width] of RoundingDType(rounding), rows on multiples of 16 bytes.
  // May be x's memory where rows begin where x's do.
  TensorView codes;
  float* scales = nullptr;
};

// What a product reads.
struct RoundedRows {
  TensorView codes;
  const float* scales = nullptr;
};

using RoundingRow = KernelRow<RoundingDesc, RoundingParams>;
absl::Span<const RoundingRow> RoundingTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_ROUNDING_ROUNDING_H_
