// How numbers are handed from block to block.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_INPUT_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_INPUT_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_unit.cuh"

namespace inlay {

// Words that are handed on. Each is read and written whole (PTX ISA, "Memory
// Consistency Model": relaxed, scope gpu).
__device__ inline uint64_t Tagged(uint32_t bits, uint32_t tag) {
  return uint64_t{tag} << 32 | bits;
}
__device__ inline bool HasTag(uint64_t word, uint32_t tag) {
  return static_cast<uint32_t>(word >> 32) == tag;
}
__device__ inline void HandOn(uint64_t* to, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(word)
               : "memory");
}
__device__ inline void ReadHandedOn(const uint64_t* from, uint64_t& word) {
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];"
               : "=l"(word)
               : "l"(from)
               : "memory");
}
__device__ inline void ReadHandedOn(const uint64_t* from, uint64_t& first,
                                    uint64_t& second) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
}

// A lane's four numbers of a unit of a row of x, columns as in StoreChainX.
// kHidden: of hidden, a number a word; otherwise two of T.
template <typename T, bool kHidden>
class ChainInput {
 public:
  // Begins to read. `column`: the lane's first.
  __device__ void Begin(const ChainStage& stage, const ChainShape& shape, int r,
                        int column, uint32_t tag) {
    is_there_ = column < stage.k;
    from_ = nullptr;
    if (!is_there_) return;
    if (stage.from != nullptr) {
      from_ =
          stage.from + (int64_t{r} * stage.k + column) / (kHidden ? 1 : kPair);
      Read();
    } else if constexpr (kHidden) {
      const float* at = shape.hidden + r * shape.hidden_stride + column;
      const float2 first = __ldcg(reinterpret_cast<const float2*>(at));
      const float2 second = __ldcg(reinterpret_cast<const float2*>(at + kNext));
      words_[0] = Tagged(__float_as_uint(first.x), tag);
      words_[1] = Tagged(__float_as_uint(first.y), tag);
      words_[2] = Tagged(__float_as_uint(second.x), tag);
      words_[3] = Tagged(__float_as_uint(second.y), tag);
    } else {
      const auto* at = reinterpret_cast<const uint32_t*>(
          static_cast<const T*>(stage.x) + r * stage.x_stride + column);
      words_[0] = Tagged(__ldcg(at), tag);
      words_[1] = Tagged(__ldcg(at + kNext / kPair), tag);
    }
  }
  // Waits for what is handed on. Zeros behind the last column.
  __device__ void Take(uint32_t tag, float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = 0.0f;
    if (!is_there_) return;
    if (from_ != nullptr) {
      while (!IsThere(tag)) Read();
    }
    if constexpr (kHidden) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = __uint_as_float(static_cast<uint32_t>(words_[i]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 pair = WidenPair<T>(static_cast<uint32_t>(words_[i]));
        x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
      }
    }
  }

 private:
  static constexpr int kPair = 2;
  static constexpr int kNext = 8;  // columns from the first two to the others
  __device__ void Read() {
    if constexpr (kHidden) {
      ReadHandedOn(from_, words_[0], words_[1]);
      ReadHandedOn(from_ + kNext, words_[2], words_[3]);
    } else {
      ReadHandedOn(from_, words_[0]);
      ReadHandedOn(from_ + kNext / kPair, words_[1]);
    }
  }
  __device__ bool IsThere(uint32_t tag) const {
    bool all = true;
#pragma unroll
    for (int i = 0; i < (kHidden ? 4 : 2); ++i) {
      all = all && HasTag(words_[i], tag);
    }
    return all;
  }

  const uint64_t* from_;
  uint64_t words_[kHidden ? 4 : 2];
  bool is_there_;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_INPUT_CUH_
