// What a row of each KV format looks like. Pure functions of the format; knows
// no blocks.
//
// A row is the head_dim elements of one token and head, KvRowBytes() long, in
// one of six formats (multi-byte values as the machine has them):
//
//   f32, f16, bf16  | x0 | x1 | ... |
//   i8, f8_e4m3     | scale, f32 | c0 | c1 | ... | zeros to a multiple of 4 |
//                   x = c * scale; f8_e4m3 scales are powers of two
//   kv_q4           | group 0 | group 1 | ... |  of 32 elements, 20 bytes each
//     group         | scale, bf16 | least, bf16 | b0 | b1 | ... | b15 |
//                   x = c * scale + least; b[j] holds element j of the group
//                   in bits 0-3 and element j + 16 in bits 4-7; a short last
//                   group is filled with its last element
//
// Scales are NaN in a row that had something that is not finite: all of it
// reads as NaN. Codec: kernels/kv_write/kv_row.h.
#ifndef INLAY_MEMORY_KV_KV_FORMAT_H_
#define INLAY_MEMORY_KV_KV_FORMAT_H_

#include <cstddef>

#include "memory/dtype.h"

namespace inlay {

inline constexpr int kKvQ4Group = 32;
inline constexpr int kKvScaleBytes = 4;  // ahead of i8 and f8_e4m3 codes

// Whether a cache can have this format.
constexpr bool IsKvFormat(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI8:
    case DType::kF8E4M3:
    case DType::kKvQ4:
      return true;
    default:
      return false;
  }
}

// Bytes of one row, a multiple of the alignment of what is in it. `dtype` must
// be a KV format.
constexpr size_t KvRowBytes(DType dtype, int head_dim) {
  const auto dim = static_cast<size_t>(head_dim);
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return 2 * dim;
    case DType::kI8:
    case DType::kF8E4M3:
      return kKvScaleBytes + (dim + 3) / 4 * 4;
    case DType::kKvQ4:
      return (dim + kKvQ4Group - 1) / kKvQ4Group * (4 + kKvQ4Group / 2);
    default:
      return 4 * dim;
  }
}

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_KV_FORMAT_H_
