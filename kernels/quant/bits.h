// Codes of fewer than 8 bits in bytes. All formats arrange them alike, with
// widths and runs of their own: kCount elements in runs of kRun; run r lies in
// the kRun bytes from (r / (8 / kBits)) * kRun on, an element a byte, at bit
// kBits * (r % (8 / kBits)).
#ifndef INLAY_KERNELS_QUANT_BITS_H_
#define INLAY_KERNELS_QUANT_BITS_H_

#include <cstdint>
#include <cstring>

namespace inlay {

// Sets bits [kFrom, kFrom + kBits) of every code. From bit 0 on it overwrites
// the codes, else it adds to them.
template <int kBits, int kRun, int kCount, int kFrom = 0, typename Code>
inline void UnpackBits(const uint8_t* packed, Code* codes) {
  constexpr int kRunsOfByte = 8 / kBits;
  static_assert(kCount % (kRun * kRunsOfByte) == 0);
  if constexpr (kFrom == 0) std::memset(codes, 0, kCount * sizeof(Code));
  for (int r = 0; r < kCount / kRun; ++r) {
    const uint8_t* bytes = packed + r / kRunsOfByte * kRun;
    const int shift = kBits * (r % kRunsOfByte);
    for (int i = 0; i < kRun; ++i) {
      codes[r * kRun + i] |=
          static_cast<Code>((bytes[i] >> shift & ((1 << kBits) - 1)) << kFrom);
    }
  }
}

// The way back: takes bits [kFrom, kFrom + kBits) of every code.
template <int kBits, int kRun, int kCount, int kFrom = 0, typename Code>
inline void PackBits(const Code* codes, uint8_t* packed) {
  constexpr int kRunsOfByte = 8 / kBits;
  static_assert(kCount % (kRun * kRunsOfByte) == 0);
  std::memset(packed, 0, kCount / kRunsOfByte);
  for (int r = 0; r < kCount / kRun; ++r) {
    uint8_t* bytes = packed + r / kRunsOfByte * kRun;
    const int shift = kBits * (r % kRunsOfByte);
    for (int i = 0; i < kRun; ++i) {
      bytes[i] |= static_cast<uint8_t>(
          (codes[r * kRun + i] >> kFrom & ((1 << kBits) - 1)) << shift);
    }
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_BITS_H_
