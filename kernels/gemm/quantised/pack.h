// Blocks of files packed as GPUs want them (layout.h), and back. The host's way
// is the reference; the device's gives the same bytes.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PACK_H_
#define INLAY_KERNELS_GEMM_QUANTISED_PACK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/quantised/blocks.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/dtype.h"

namespace inlay {

// A matrix of a block format whose rows are packed.
struct QuantMatrix {
  QuantMatrix(DType dtype, int64_t k)
      : dtype(dtype),
        k(k),
        form(QuantFormOf(dtype)),
        block_elements(GetFormatInfo(dtype).block_elements),
        block_bytes(GetFormatInfo(dtype).block_bytes) {}
  DType dtype;
  int64_t k;
  QuantForm form;
  int block_elements;
  int block_bytes;

  INLAY_HOST_DEVICE const uint8_t* Block(const uint8_t* rows, int64_t row,
                                         int64_t column) const {
    return rows +
           (row * (k / block_elements) + column / block_elements) * block_bytes;
  }
  // Of the group that begins at `column`; NaN where one of its e4m3 codes is.
  INLAY_HOST_DEVICE QuantScale Scale(const uint8_t* rows, int64_t row,
                                     int64_t column) const {
    if (column >= k) return {0.0f, 0.0f};
    const uint8_t* block = Block(rows, row, column);
    const auto i = static_cast<int>(column % block_elements);
    QuantScale scale = QuantScaleOf(dtype, block, i);
    if (form.codes == QuantCodes::kE4M3) {
      for (int j = i; j < i + form.group; ++j) {
        if ((QuantCodeOf(dtype, block, j, nullptr) & 0x7f) == 0x7f) {
          scale.scale = quant_blocks::FloatOfBits(0x7fc00000u);
        }
      }
    }
    return scale;
  }
  // The factor that a row's blocks repeat, of formats that have one: what they
  // have as a rule, all of them that of the first.
  INLAY_HOST_DEVICE float RowFactor(const uint8_t* rows, int64_t row) const {
    if (dtype != DType::kNVFP4_F32) return 1.0f;
    const float factor = quant_blocks::Float(Block(rows, row, 0));
    return factor < 0.0f ? -factor : factor;
  }
  INLAY_HOST_DEVICE int Code(const uint8_t* rows, int64_t row, int64_t column,
                             const int8_t* grid) const {
    if (column >= k) return 0;
    return QuantCodeOf(dtype, Block(rows, row, column),
                       static_cast<int>(column % block_elements), grid);
  }
};

// The larger magnitude of the two; of what is not finite: 0.
INLAY_HOST_DEVICE inline float QuantMagnitude(QuantScale scale) {
  float most = 0.0f;
  for (float x : {scale.scale, scale.min}) {
    x = x < 0.0f ? -x : x;
    if (x > most && x <= 3.402823466e38f) most = x;
  }
  return most;
}
// What divides scales of a row whose largest is `most`, and its inverse: a
// power of two, times the factor that the row's blocks repeat. That leaves f16
// the blocks' own scales, exactly, so where it cannot be theirs it is left out.
struct QuantFactor {
  float factor;
  float inverse;
};
INLAY_HOST_DEVICE inline QuantFactor QuantFactorOf(float most,
                                                   float row_factor) {
  if (!(most > 0.0f)) return {1.0f, 1.0f};
  const float scale = most / row_factor;
  // ue4m3's halves: from 2^-10 to 224.
  const bool is_theirs =
      row_factor >= 0x1p-90f && scale >= 0x1p-11f && scale <= 256.0f;
  if (!is_theirs) row_factor = 1.0f;
  if (is_theirs) most = scale;
#ifdef __CUDA_ARCH__
  const uint32_t bits = __float_as_uint(most);
#else
  const auto bits = std::bit_cast<uint32_t>(most);
#endif
  int exponent = static_cast<int>(bits >> 23) - 127 - 13;
  if (exponent < -126) exponent = -126;
  const float factor =
      row_factor *
      quant_blocks::FloatOfBits(static_cast<uint32_t>(exponent + 127) << 23);
  return {factor, 1.0f / factor};
}

// Rows [first, first + count) of a matrix: `rows` holds them one after another.
// first is a multiple of kQuantRows, and so is count, but at the matrix's end,
// whose last tile is filled up with zeros. Different ranges may run at once.
void PackQuantised(const QuantMatrix& matrix, const std::byte* rows,
                   int64_t first, int64_t count, std::byte* packed);
// The values of one row, k floats.
void UnpackQuantisedRow(const QuantMatrix& matrix, const std::byte* packed,
                        int64_t row, float* values);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PACK_H_
