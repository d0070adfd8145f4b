// How quantised weights lie in a GPU's memory: a few forms stand for all block
// formats, arranged as the tensor cores' operands, so that a lane's 16 bytes
// are its codes. Shared by host and devices. Knows no files' blocks (blocks.h)
// and no kernels.
//
// A matrix [n, k] is tiles of 16 rows, one after another: rows may be added or
// taken away 16 at a time. A tile is 16 float32 factors of its rows, then units
// of 128 columns. A unit is its codes, then its groups' scales:
//
//   value = factor[row] * (scale * level(code) + min)
//
// scale and min are f16, rounded once; factors are powers of two, of nvfp4_f32
// times the factor that a row's blocks repeat, that bring the largest of them
// in a row near 2^13, so that small ones are still normal. Rows and columns
// beyond the matrix are zeros.
//
// Source of the operands' arrangement: PTX ISA, "Matrix fragments for
// mma.m16n8k16". Of 16 columns lane 4 g + t has four registers of two columns
// 2 t, 2 t + 1: register 0 of row g, 1 of row g + 8, 2 and 3 of the same rows
// and columns 8 further.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_LAYOUT_H_
#define INLAY_KERNELS_GEMM_QUANTISED_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/sample/host_device.h"
#include "memory/dtype.h"

namespace inlay {

enum class QuantCodes : uint8_t {
  kLinear4,  // level = code - 8
  kLinear6,  // level = code - 32
  kTable4,   // level = levels[code]
  kInt8,     // level = code, signed
  kE4M3,     // level = the float
};

struct QuantForm {
  QuantCodes codes = QuantCodes::kLinear4;
  uint8_t group = 32;  // columns with one scale: 16, 32 or 128
  bool has_min = false;
  float levels[16] = {};  // that bf16 and f16 hold
};

// The form of a block format.
QuantForm QuantFormOf(DType dtype);

inline constexpr int kQuantRows = 16;      // of a tile
inline constexpr int kQuantColumns = 128;  // of a unit
inline constexpr int kQuantHeadBytes = kQuantRows * 4;

INLAY_HOST_DEVICE constexpr int QuantCodeBytes(QuantCodes codes) {
  constexpr int kElements = kQuantRows * kQuantColumns;
  return codes == QuantCodes::kInt8 || codes == QuantCodes::kE4M3 ? kElements
         : codes == QuantCodes::kLinear6 ? kElements * 6 / 8
                                         : kElements / 2;
}
INLAY_HOST_DEVICE constexpr int QuantUnitBytes(QuantCodes codes, int group,
                                               bool has_min) {
  return QuantCodeBytes(codes) +
         kQuantColumns / group * kQuantRows * (has_min ? 4 : 2);
}
INLAY_HOST_DEVICE inline int QuantUnitBytes(const QuantForm& form) {
  return QuantUnitBytes(form.codes, form.group, form.has_min);
}
INLAY_HOST_DEVICE inline int64_t QuantUnits(int64_t k) {
  return (k + kQuantColumns - 1) / kQuantColumns;
}
INLAY_HOST_DEVICE inline int64_t QuantTileBytes(const QuantForm& form,
                                                int64_t k) {
  return kQuantHeadBytes + QuantUnits(k) * QuantUnitBytes(form);
}
INLAY_HOST_DEVICE inline int64_t QuantBytes(const QuantForm& form, int64_t n,
                                            int64_t k) {
  return (n + kQuantRows - 1) / kQuantRows * QuantTileBytes(form, k);
}

// Where in a unit the scale of a row's group lies; its min is 4 bytes on. A
// lane has those of rows g and g + 8 together.
INLAY_HOST_DEVICE inline int QuantScaleAt(const QuantForm& form, int row,
                                          int group) {
  return QuantCodeBytes(form.codes) +
         (group * 8 + row % 8) * (form.has_min ? 8 : 4) + row / 8 * 2;
}

// Where a code is in its operand.
struct QuantPlace {
  INLAY_HOST_DEVICE QuantPlace(int row, int column)
      : product(column / 16),
        lane(row % 8 * 4 + column % 8 / 2),
        reg(row / 8 + column % 16 / 8 * 2),
        half(column % 2) {}
  int product;  // 16 columns
  int lane;
  int reg;
  int half;  // of the register
};

// The bits of a unit that hold the code of (row, column), or the lower four of
// six: bits [shift, ..) of byte `byte`.
struct QuantBits {
  int byte;
  int shift;
};
INLAY_HOST_DEVICE inline QuantBits QuantCodeAt(QuantCodes codes, int row,
                                               int column) {
  const QuantPlace at(row, column);
  if (codes == QuantCodes::kInt8 || codes == QuantCodes::kE4M3) {
    // Pieces of 32 columns, 16 bytes a lane.
    return {at.product / 2 * 512 + at.lane * 16 + at.product % 2 * 8 +
                at.reg / 2 * 4 + at.reg % 2 + at.half * 2,
            0};
  }
  // Pieces of 64 columns, 16 bytes a lane: a word of 8 nibbles for 16 columns.
  // Nibbles r and r + 4 make register r; of tables, whose bytes are looked up
  // four at a time, neighbours do, those of registers 0, 2, 1, 3: a row's are
  // looked up together.
  const int nibble = codes == QuantCodes::kTable4
                         ? (at.reg % 2 * 2 + at.reg / 2) * 2 + at.half
                         : at.reg + at.half * 4;
  return {at.product / 4 * 512 + at.lane * 16 + at.product % 4 * 4 + nibble / 2,
          nibble % 2 * 4};
}
// The upper two bits of six: 16 bytes a lane behind the nibbles, a word for 32
// columns.
INLAY_HOST_DEVICE inline QuantBits QuantHighAt(int row, int column) {
  const QuantPlace at(row, column);
  const int field = at.product % 2 * 4 + at.reg;
  return {1024 + at.lane * 16 + at.product / 2 * 4 + at.half * 2 + field / 4,
          field % 4 * 2};
}

INLAY_HOST_DEVICE inline int QuantCode(QuantCodes codes, const uint8_t* unit,
                                       int row, int column) {
  const QuantBits at = QuantCodeAt(codes, row, column);
  if (codes == QuantCodes::kInt8 || codes == QuantCodes::kE4M3) {
    return unit[at.byte];
  }
  int code = unit[at.byte] >> at.shift & 15;
  if (codes == QuantCodes::kLinear6) {
    const QuantBits high = QuantHighAt(row, column);
    code |= (unit[high.byte] >> high.shift & 3) << 4;
  }
  return code;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_LAYOUT_H_
