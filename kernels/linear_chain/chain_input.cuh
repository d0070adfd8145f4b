// How numbers are handed from block to block.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_INPUT_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_INPUT_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_unit.cuh"

namespace inlay {

// What is handed on lies in one of two buffers, which launches take in turns
// (ChainHandedAt). A word of 32 bits is not there while it is zero, so that a
// number needs no tag beside it; each launch makes zeros of what the one
// before it handed on. Numbers have all bits inverted: the one that would be
// zero then is a NaN, for which another stands. Each word is read and written
// whole (PTX ISA, "Memory Consistency Model": relaxed, scope gpu; a vector is
// several words in any order).
__device__ inline void HandOn(uint32_t* to, uint32_t bits) {
  constexpr uint32_t kNan = 0x7fffffffu;  // of two 16-bit floats, too
  const uint32_t word = ~(bits == 0xffffffffu ? kNan : bits);
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(word)
               : "memory");
}
__device__ inline void ReadHandedOn(const uint32_t* from, uint32_t& word) {
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];"
               : "=r"(word)
               : "l"(from)
               : "memory");
}
__device__ inline void ReadHandedOn(const uint8_t* from, uint32_t (&words)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "l"(from)
               : "memory");
}
__device__ inline void ReadHandedOn(const uint8_t* from, uint32_t (&words)[4]) {
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(from)
               : "memory");
}

// What launch number `launch` hands on begins here.
__device__ inline uint8_t* ChainHandedOn(ChainExchange* exchange,
                                         uint32_t launch) {
  return reinterpret_cast<uint8_t*>(exchange + 1) +
         launch % 2 * kChainHandedBytes;
}

// Zeros in place of what the launch before handed on, `bytes` of it, so that
// the next one finds nothing there. `other`: where that begins. All threads
// that multiply call it.
__device__ inline void ForgetHandedOn(uint8_t* other, uint32_t bytes) {
  constexpr int kEach = 16;
  const uint32_t stride = gridDim.x * kChainThreads * kEach;
  for (uint32_t at = (threadIdx.x / 32 * gridDim.x + blockIdx.x) * 32 * kEach +
                     threadIdx.x % 32 * kEach;
       at < bytes; at += stride) {
    *reinterpret_cast<uint4*>(other + ChainHandedAt(at)) = uint4{};
  }
}

// A lane's four numbers of a unit of a row of x, columns as in StoreChainX.
// kHidden: of hidden, float32; otherwise T.
template <typename T, bool kHidden>
class ChainInput {
 public:
  // Begins to read. `column`: the lane's first.
  __device__ void Begin(const ChainStage& stage, const ChainShape& shape, int r,
                        int column, const uint8_t* handed) {
    is_there_ = column < stage.k;
    from_ = nullptr;
    if (!is_there_) return;
    if (stage.from >= 0) {
      const auto lane = static_cast<int>(threadIdx.x) % 32;
      from_ = handed + ChainHandedAt(stage.from + r * stage.from_stride +
                                     (column / kQuantColumns * 32 + lane) *
                                         static_cast<int>(sizeof(words_)));
      Read();
    } else if constexpr (kHidden) {
      const float* at = shape.hidden + r * shape.hidden_stride + column;
      const float2 first = __ldcg(reinterpret_cast<const float2*>(at));
      const float2 second = __ldcg(reinterpret_cast<const float2*>(at + kNext));
      words_[0] = ~__float_as_uint(first.x);
      words_[1] = ~__float_as_uint(first.y);
      words_[2] = ~__float_as_uint(second.x);
      words_[3] = ~__float_as_uint(second.y);
    } else {
      const auto* at = reinterpret_cast<const uint32_t*>(
          static_cast<const T*>(stage.x) + r * stage.x_stride + column);
      words_[0] = ~__ldcg(at);
      words_[1] = ~__ldcg(at + kNext / 2);
    }
  }
  // Waits for what is handed on. Zeros behind the last column.
  // Who has several asks again for one at a time: for all at once a layer takes
  // 4 % longer, as what is asked for in vain holds up what is written.
  __device__ void Take(float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = 0.0f;
    if (!is_there_) return;
    if (from_ != nullptr) {
      while (!HasAll()) Read();
    }
    if constexpr (kHidden) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(~words_[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 pair = WidenPair<T>(~words_[i]);
        x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
      }
    }
  }

 private:
  static constexpr int kNext = 8;  // columns from the first two to the others
  __device__ void Read() { ReadHandedOn(from_, words_); }
  __device__ bool HasAll() const {
    bool all = true;
#pragma unroll
    for (const uint32_t word : words_) all = all && word != 0;
    return all;
  }

  const uint8_t* from_;
  uint32_t words_[kHidden ? 4 : 2];
  bool is_there_;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_INPUT_CUH_
