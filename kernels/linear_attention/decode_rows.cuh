// What decode_delta and decode_mamba share: rows as they lie in memory,
// rounding to their type, the size of their convolutions.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_DECODE_ROWS_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_DECODE_ROWS_CUH_

#include <type_traits>

#include "kernels/cuda_float.cuh"

namespace inlay {
namespace {

constexpr int kTaps = 4;
constexpr int kVector = 4;  // channels a thread of those that convolve

template <typename T>
__device__ float RoundTo(float x) {
  return ToFloat(FromFloat<T>(x));
}

// Neighbours of a row, as they lie in memory until they are needed.
template <typename T, int kCount>
class Raw {
 public:
  __device__ void Load(const T* from) {
    bits_ = *reinterpret_cast<const Bits*>(from);
  }
  __device__ float operator[](int i) const {
    return ToFloat(reinterpret_cast<const T*>(&bits_)[i]);
  }

 private:
  static constexpr size_t kBytes = kCount * sizeof(T);
  using Word = std::conditional_t<kBytes == 2, uint16_t, uint32_t>;
  using Bits =
      std::conditional_t<kBytes <= 4, Word,
                         std::conditional_t<kBytes == 8, uint2, uint4>>;
  Bits bits_;
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_DECODE_ROWS_CUH_
