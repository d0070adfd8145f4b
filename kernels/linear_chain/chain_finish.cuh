// How a block finishes a stage's outputs.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_FINISH_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_FINISH_CUH_

#include "kernels/activation/activation.cuh"
#include "kernels/linear_chain/chain_input.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_tiles.cuh"

namespace inlay {

// What finishes a round's outputs: factors, bias, activation, and where they
// go. kChainSharers neighbouring lanes have an output, each a part of the
// warps' sums; the first of them has the rest. What that needs from memory is
// read before the products.
inline constexpr int kChainSharers = 4;

// kPlain: weights have no factors of rows. kExperts: of stages that may be of
// experts. `choice`: of them, if it is; the
// factors of the rows of their outputs, `factors`, are in the sums already, the
// biases behind them are not.
template <typename T, int kRows, bool kPlain, bool kExperts>
class ChainFinish {
 public:
  __device__ ChainFinish(const ChainStage& stage, const ChainShape& shape,
                         const ChainTiles& tiles, ChainExperts part,
                         const ChainChoice& choice, const float* factors)
      : stage_(stage),
        shape_(shape),
        tiles_(tiles),
        part_(part),
        choice_(choice),
        factors_(factors) {}
  // Begins to read.
  __device__ void Begin() {
    const Output own = OutputOf(static_cast<int>(threadIdx.x));
    if (own.is_there) first_ = FactsOf(own);
  }
  // `squares`: the warps', of hidden.
  __device__ void Run(const float* partials, const float* squares,
                      uint8_t* handed) const {
    const int threads = tiles_.jobs * (kRows * kQuantRows * kChainSharers);
    // By whole warps.
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < (threads + 31) / 32 * 32;
         i += kChainThreads) {
      const Output out = OutputOf(i);
      float norm = 1.0f;
      if (stage_.x == nullptr) {
        norm = rsqrtf(fmaf(Shared(squares + out.m * kChainWarps, 1),
                           stage_.mean, stage_.epsilon));
      }
      float value, up = 0.0f;
      if (stage_.gated) {
        value = Sum(partials, 2 * out.job, out);
        up = Sum(partials, 2 * out.job + 1, out);
      } else {
        value = Sum(partials, out.job, out);
      }
      const Facts facts = i < kChainThreads ? first_
                          : out.is_there    ? FactsOf(out)
                                            : Facts{};
      value = fmaf(value * facts.factor.x, norm, facts.added.x);
      if (stage_.gated) {
        value = Gate(value, fmaf(up * facts.factor.y, norm, facts.added.y));
      }
      Store(out, value, handed);
    }
  }

 private:
  struct Output {
    bool is_there;  // and this lane the one that stores it
    int job;
    int m;
    int row;  // of the tile
    int n;
  };
  // What is multiplied by and added, of gate and up.
  struct Facts {
    float2 factor;
    float2 added;
  };
  // Jobs beyond the block's are its last: all lanes add up something.
  __device__ Output OutputOf(int i) const {
    Output out;
    const bool stores = i % kChainSharers == 0;
    i /= kChainSharers;
    out.row = i % kQuantRows;
    out.m = i / kQuantRows % kRows;
    out.job = i / (kQuantRows * kRows);
    out.n = (tiles_.first_job + out.job) * kQuantRows + out.row;
    out.is_there = stores && out.job < tiles_.jobs && out.n < stage_.n;
    if (kExperts && kRows > 1 && part_ == ChainExperts::kInput) {
      out.is_there = out.is_there && OfExperts().IsOf(out.job, out.m);
    }
    out.job = min(out.job, tiles_.jobs - 1);
    return out;
  }
  __device__ float* Hidden(const Output& out) const {
    return shape_.hidden + out.m * shape_.hidden_stride + out.n;
  }
  __device__ ChainExpertTiles OfExperts() const {
    return {stage_, shape_.mixture, tiles_, choice_.experts};
  }
  __device__ float FactorOf(const Output& out, int tile) const {
    if (kPlain) return 1.0f;
    const uint8_t* at;
    if (kExperts && part_ == ChainExperts::kOutput) return 1.0f;
    if (kExperts && part_ == ChainExperts::kInput) {
      at = OfExperts().InputAt(tile);
    } else {
      at = tiles_.At(stage_, tile);
    }
    return reinterpret_cast<const float*>(at)[out.row];
  }
  __device__ Facts FactsOf(const Output& out) const {
    Facts facts = {};
    if (stage_.gated) {
      facts.factor.x = FactorOf(out, 2 * out.job);
      facts.factor.y = FactorOf(out, 2 * out.job + 1);
    } else {
      facts.factor.x = FactorOf(out, out.job);
    }
    if (stage_.bias != nullptr) {
      if (kExperts && part_ == ChainExperts::kOutput) {
        facts.added.x = WeighedBias(out);
      } else if (kExperts && part_ == ChainExperts::kInput) {
        const int64_t gate = OfExperts().Bias(2 * out.job, out.row);
        if (gate >= 0) {
          facts.added.x = stage_.bias[gate];
          facts.added.y =
              stage_.bias[gate +
                          shape_.mixture.input_tiles.divisor() * kQuantRows];
        }
      } else {
        facts.added.x = stage_.bias[out.n];
        if (stage_.gated) facts.added.y = stage_.bias[stage_.n + out.n];
      }
    }
    // This thread's own, where this launch wrote it.
    if (stage_.y == nullptr) facts.added.x += __ldcg(Hidden(out));
    return facts;
  }
  // The sum of the token's experts'.
  __device__ float WeighedBias(const Output& out) const {
    const ChainMixture& mixture = shape_.mixture;
    const int first = out.m * mixture.top_k;
    const float* at = factors_ + ChainRowFactors(stage_, mixture) +
                      (out.job * mixture.parts() + first) * kQuantRows +
                      out.row;
    float sum = 0.0f;
#pragma unroll 1
    for (int rank = 0; rank < mixture.top_k; ++rank) {
      sum = fmaf(choice_.weights[first + rank], at[rank * kQuantRows], sum);
    }
    return sum;
  }
  // Of kChainWarps numbers, `stride` apart: a lane adds up its share in
  // ascending order, then lanes theirs.
  __device__ static float Shared(const float* at, int stride) {
    constexpr int kShare = kChainWarps / kChainSharers;
    at += static_cast<int>(threadIdx.x) % kChainSharers * kShare * stride;
    float sum = at[0];
#pragma unroll
    for (int i = 1; i < kShare; ++i) sum += at[i * stride];
#pragma unroll
    for (int lanes = 1; lanes < kChainSharers; lanes *= 2) {
      sum += __shfl_xor_sync(kChainLanes, sum, lanes);
    }
    return sum;
  }
  __device__ static float Sum(const float* partials, int tile,
                              const Output& out) {
    return Shared(
        partials + tile * ChainPartials(kRows) + out.m * kQuantRows + out.row,
        kRows * kQuantRows);
  }
  // Rounded as between the ops apart.
  __device__ float Gate(float gate, float up) const {
    gate = ToFloat(FromFloat<T>(gate));
    up = ToFloat(FromFloat<T>(up));
    float v[1] = {gate};
    const float ups[1] = {up};
    ApplyGated(stage_.function, stage_.limit, v, ups);
    return v[0];
  }
  // Columns lie as lanes read them (ChainInput), four of 16 a lane:
  // StoreChainX. Experts' begin at whole units.
  template <typename Number>
  __device__ uint32_t* HandedAt(const Output& out, uint8_t* handed) const {
    int column =
        out.n - out.row + out.row % 8 / 2 * 4 + out.row / 8 * 2 + out.row % 2;
    if (kExperts && part_ == ChainExperts::kInput) {
      column += OfExperts().Slot(out.job) * shape_.mixture.padding();
    }
    return reinterpret_cast<uint32_t*>(
        handed + ChainHandedAt(stage_.to + out.m * stage_.to_stride +
                               column * static_cast<int>(sizeof(Number))));
  }
  // All lanes of a warp call it.
  __device__ void Store(const Output& out, float value, uint8_t* handed) const {
    if (stage_.y == nullptr) {
      if (!out.is_there) return;
      if (stage_.to >= 0) {
        HandOn(HandedAt<float>(out, handed), __float_as_uint(value));
      }
      *Hidden(out) = value;
      return;
    }
    const float right = __shfl_down_sync(kChainLanes, value, kChainSharers);
    if (!out.is_there) return;
    if (stage_.to >= 0 && out.row % 2 == 0) {
      HandOn(HandedAt<T>(out, handed), NarrowPair<T>(value, right));
    }
    const int64_t at = out.m * stage_.y_stride + out.n;
    if (stage_.float_y) {
      static_cast<float*>(stage_.y)[at] = value;
    } else {
      static_cast<T*>(stage_.y)[at] = FromFloat<T>(value);
    }
  }

  const ChainStage& stage_;
  const ChainShape& shape_;
  const ChainTiles& tiles_;
  ChainExperts part_;
  const ChainChoice& choice_;
  const float* factors_;
  Facts first_ = {};
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_FINISH_CUH_
