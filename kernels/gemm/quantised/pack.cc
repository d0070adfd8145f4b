#include "kernels/gemm/quantised/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/quant/fp4.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/nf4/nf4.h"

namespace inlay {
namespace {

QuantForm Form(QuantCodes codes, int group, bool has_min) {
  QuantForm form;
  form.codes = codes;
  form.group = static_cast<uint8_t>(group);
  form.has_min = has_min;
  return form;
}

template <typename Level, size_t kCount>
QuantForm Table(int group, const Level (&levels)[kCount]) {
  QuantForm form = Form(QuantCodes::kTable4, group, false);
  std::copy_n(levels, kCount, form.levels);
  return form;
}

// Magnitudes and their negatives.
template <size_t kCount>
QuantForm Signed(int group, const int8_t (&magnitudes)[kCount]) {
  QuantForm form = Form(QuantCodes::kTable4, group, false);
  for (size_t i = 0; i < kCount; ++i) {
    form.levels[i] = magnitudes[i];
    form.levels[i + kCount] = static_cast<float>(-magnitudes[i]);
  }
  return form;
}

// Each rounded to bf16.
QuantForm RoundedTable(int group, const BlockLevels& levels) {
  QuantForm form = Table(group, levels);
  for (float& level : form.levels) level = BF16ToF32(F32ToBF16(level));
  return form;
}

constexpr int8_t kIq2Magnitudes[] = {8, 25, 43};
constexpr int8_t kIq3XxsMagnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SMagnitudes[] = {1, 3, 5, 7, 9, 11, 13, 15};
// Eight times level and shift.
constexpr int8_t kIq1Sums[] = {-9, -7, -1, 1, 7, 9};

template <typename Grid>
void CopyGrid(const Grid& grid, QuantGrid& to) {
  static_assert(sizeof(grid.codewords) <= sizeof(to.levels));
  std::memcpy(to.levels, grid.codewords.data(), sizeof(grid.codewords));
}

void PackTile(const QuantMatrix& matrix, const uint8_t* rows, int64_t count,
              const int8_t* grid, uint8_t* tile) {
  const QuantForm& form = matrix.form;
  std::memset(tile, 0, static_cast<size_t>(QuantTileBytes(form, matrix.k)));
  for (int r = 0; r < kQuantRows; ++r) {
    float most = 0.0f;
    for (int64_t c = 0; r < count && c < matrix.k; c += form.group) {
      most = std::max(most, QuantMagnitude(matrix.Scale(rows, r, c)));
    }
    const QuantFactor factor =
        QuantFactorOf(most, r < count ? matrix.RowFactor(rows, r) : 1.0f);
    std::memcpy(tile + r * 4, &factor.factor, 4);
    if (r >= count) continue;
    for (int64_t c = 0; c < matrix.k; ++c) {
      uint8_t* unit =
          tile + kQuantHeadBytes + c / kQuantColumns * QuantUnitBytes(form);
      const auto column = static_cast<int>(c % kQuantColumns);
      const int code = matrix.Code(rows, r, c, grid);
      const QuantBits at = QuantCodeAt(form.codes, r, column);
      const bool six = form.codes == QuantCodes::kLinear6;
      unit[at.byte] |=
          static_cast<uint8_t>((six ? code & 15 : code) << at.shift);
      if (six) {
        const QuantBits high = QuantHighAt(r, column);
        unit[high.byte] |= static_cast<uint8_t>(code >> 4 << high.shift);
      }
      if (c % form.group != 0) continue;
      const QuantScale scale = matrix.Scale(rows, r, c);
      uint8_t* to = unit + QuantScaleAt(form, r, column / form.group);
      const uint16_t scale_bits = F32ToF16(scale.scale * factor.inverse);
      const uint16_t min_bits = F32ToF16(scale.min * factor.inverse);
      std::memcpy(to, &scale_bits, 2);
      if (form.has_min) std::memcpy(to + 4, &min_bits, 2);
    }
  }
}

}  // namespace

QuantForm QuantFormOf(DType dtype) {
  using enum QuantCodes;
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kU4_G32:
      return Form(kLinear4, 32, true);
    case DType::kU4_G128:
      return Form(kLinear4, 128, true);
    case DType::kQ2_K:
      return Form(kLinear4, 16, true);
    case DType::kQ3_K:
      return Form(kLinear4, 16, false);
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return Form(kLinear6, 32, true);
    case DType::kQ6_K:
      return Form(kLinear6, 16, false);
    case DType::kQ8_0:
      return Form(kInt8, 32, false);
    case DType::kI8_G32:
      return Form(kInt8, 32, true);
    case DType::kI8_G128:
      return Form(kInt8, 128, true);
    case DType::kF8_G32:
      return Form(kE4M3, 32, false);
    case DType::kF8_G128:
      return Form(kE4M3, 128, false);
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return Table(32, kIq4Levels);
    case DType::kMXFP4:
      return Table(32, kE2M1Doubled);
    case DType::kNVFP4:
    case DType::kNVFP4_F32:
      return Table(16, kE2M1Doubled);
    case DType::kNF4:
      return RoundedTable(32, kNf4Levels);
    case DType::kBNB_FP4:
      return Table(32, kBnbFp4Whole);
    case DType::kIQ2_XXS:
      return Signed(32, kIq2Magnitudes);
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return Signed(16, kIq2Magnitudes);
    case DType::kIQ3_XXS:
      return Signed(32, kIq3XxsMagnitudes);
    case DType::kIQ3_S:
      return Signed(32, kIq3SMagnitudes);
    case DType::kIQ1_S:
      return Table(32, kIq1Sums);
    case DType::kIQ1_M:
      return Table(16, kIq1Sums);
    default:  // q4_0 and the ternary ones
      return Form(kLinear4, 32, false);
  }
}

QuantGrid QuantGridOf(DType dtype) {
  QuantGrid grid = {};
  switch (dtype) {
    case DType::kIQ2_XXS:
      CopyGrid(kIq2XxsGrid, grid);
      break;
    case DType::kIQ2_XS:
      CopyGrid(kIq2XsGrid, grid);
      break;
    case DType::kIQ2_S:
      CopyGrid(kIq2SGrid, grid);
      break;
    case DType::kIQ3_XXS:
      CopyGrid(kIq3XxsGrid, grid);
      break;
    case DType::kIQ3_S:
      CopyGrid(kIq3SGrid, grid);
      break;
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      CopyGrid(kIq1Grid, grid);
      break;
    default:
      break;
  }
  return grid;
}

void PackQuantised(const QuantMatrix& matrix, const std::byte* rows,
                   int64_t first, int64_t count, std::byte* packed) {
  const QuantGrid grid = QuantGridOf(matrix.dtype);
  const int64_t tile_bytes = QuantTileBytes(matrix.form, matrix.k);
  const auto row_bytes = static_cast<int64_t>(
      RowBytes(matrix.dtype, static_cast<size_t>(matrix.k)));
  for (int64_t r = 0; r < count; r += kQuantRows) {
    PackTile(matrix, reinterpret_cast<const uint8_t*>(rows + r * row_bytes),
             count - r, grid.levels,
             reinterpret_cast<uint8_t*>(packed +
                                        (first + r) / kQuantRows * tile_bytes));
  }
}

void UnpackQuantisedRow(const QuantMatrix& matrix, const std::byte* packed,
                        int64_t row, float* values) {
  const QuantForm& form = matrix.form;
  const auto* tile = reinterpret_cast<const uint8_t*>(packed) +
                     row / kQuantRows * QuantTileBytes(form, matrix.k);
  const auto r = static_cast<int>(row % kQuantRows);
  const float factor = quant_blocks::Float(tile + r * 4);
  for (int64_t c = 0; c < matrix.k; ++c) {
    const uint8_t* unit =
        tile + kQuantHeadBytes + c / kQuantColumns * QuantUnitBytes(form);
    const auto column = static_cast<int>(c % kQuantColumns);
    const uint8_t* at = unit + QuantScaleAt(form, r, column / form.group);
    const int code = QuantCode(form.codes, unit, r, column);
    const float min = form.has_min ? quant_blocks::Half(at + 4) : 0.0f;
    values[c] =
        factor * (quant_blocks::Half(at) * QuantLevel(form, code) + min);
  }
}

}  // namespace inlay
