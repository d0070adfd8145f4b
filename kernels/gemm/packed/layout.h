// How quantised weights lie for gemm_cpu_packed*.cc: interleaved so that a
// vector of eight lanes holds eight rows of w, and no sum ever crosses lanes.
//
//   strip  8 rows of w (kStripRows), all of k; the last one is filled up with
//          zeros. Strips follow each other.
//   step   32 elements of k (kStep) of a strip; a format's block is one or
//          several steps behind a header (its Header).
//   tile   4 elements of k of a strip: 32 codes, code of row r and element e at
//          byte 4 r + e. Eight tiles make a step.
//   plane  some bits of the codes of a step: kBits of each, 8 / kBits
//          consecutive tiles sharing 32 bytes, the first in the low bits.
#ifndef INLAY_KERNELS_GEMM_PACKED_LAYOUT_H_
#define INLAY_KERNELS_GEMM_PACKED_LAYOUT_H_

#include <cstdint>
#include <cstring>

#define INLAY_INLINE inline __attribute__((always_inline))

namespace inlay::packed {

inline constexpr int kStripRows = 8;
inline constexpr int kStep = 32;
inline constexpr int kTiles = 8;
inline constexpr int kTileBytes = 32;
// Rounded rows of x fill up to a multiple of so many at most.
inline constexpr int kRowsUnit = 2;

template <int kBits>
struct Plane {
  static constexpr int kBytes = kBits * kTileBytes;
  // Where tile `t` lies: byte and bit.
  static constexpr int ByteOf(int t) { return t * kBits / 8 * kTileBytes; }
  static constexpr int ShiftOf(int t) { return t * kBits % 8; }
};

// Codes of kLow + kHigh bits in two planes, the low bits first; kHigh may be 0.
template <int kLow, int kHigh>
struct Planes {
  static constexpr int kLowBits = kLow;
  static constexpr int kHighBits = kHigh;
  static constexpr int kLowBytes = Plane<kLow>::kBytes;
  static constexpr int kBytes = kLowBytes + kHigh * kTileBytes;

  // The code of row `row` and element `i` of the step at `p`, whose bits are
  // zero so far.
  static void Put(uint8_t* p, int row, int i, uint32_t code) {
    const int tile = i / 4;
    uint8_t* byte = p + 4 * row + i % 4;
    constexpr uint32_t kLowMask = (1u << kLow) - 1;
    byte[Plane<kLow>::ByteOf(tile)] |=
        static_cast<uint8_t>((code & kLowMask) << Plane<kLow>::ShiftOf(tile));
    if constexpr (kHigh > 0) {
      byte[kLowBytes + Plane<kHigh>::ByteOf(tile)] |=
          static_cast<uint8_t>(code >> kLow << Plane<kHigh>::ShiftOf(tile));
    }
  }
};

// One of a row's values in a vector of eight.
template <typename T>
void PutLane(uint8_t* p, int row, T value) {
  std::memcpy(p + static_cast<size_t>(row) * sizeof(T), &value, sizeof(T));
}

}  // namespace inlay::packed

#endif  // INLAY_KERNELS_GEMM_PACKED_LAYOUT_H_
