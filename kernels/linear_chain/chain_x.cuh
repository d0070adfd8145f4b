// How a warp makes its part of a stage's x of what blocks hand on, or of what
// came before the launch.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_X_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_X_CUH_

#include "kernels/linear_chain/chain_input.cuh"
#include "kernels/linear_chain/chain_routing.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_unit.cuh"

namespace inlay {

// The warp's units of x into shared memory; of hidden times the norm's weights,
// and the sums of its squares to `squares`. kExperts: with the router's product
// where the stage is that of the experts' inputs; where it is that of their
// outputs their columns count by their weights. `part`: what of them it is.
template <class Form, typename T, int kRows, bool kHidden, bool kExperts>
__device__ void MakeChainX(const ChainStage& stage, ChainExperts part,
                           const ChainShape& shape, const uint8_t* handed,
                           uint8_t* shared, float* squares) {
  auto& choice = *reinterpret_cast<ChainChoice*>(shared + shape.at.choice);
  const bool routes = kExperts && kHidden && part == ChainExperts::kInput;
  const bool weighs = kExperts && !kHidden && part == ChainExperts::kOutput;
  const ChainRouter<T> router(shape.mixture, stage.k);
  float logits[kRows][kMostChainLogits] = {};
  constexpr int kEarlyLogits = 2;  // whose weights are read before x is there
  // Units. With more in chains of mixtures registers would go to memory.
  constexpr int kAtOnce = kExperts && kHidden   ? 1
                          : kExperts || kHidden ? 2 / kRows
                                                : 2;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* facts = reinterpret_cast<float*>(shared + shape.at.facts);
  const int own = lane / 4 * 16 + lane % 4 * 2;  // column of a unit
  float sums[kRows] = {};
  const int count = (stage.units - warp + kChainWarps - 1) / kChainWarps;
  // Blocks begin at different units of what all of them read, so that not all
  // ask for the same lines. Of hidden, squares are added up in one order.
  const int turn =
      kHidden || count <= 0 ? 0 : static_cast<int>(blockIdx.x) % count;
  const auto unit_of = [&](int i) {
    const int turned = i + turn < count ? i + turn : i + turn - count;
    return i < count ? warp + turned * kChainWarps : stage.units;
  };
#pragma unroll 1
  for (int first = 0; first < count; first += kAtOnce) {
    ChainInput<T, kHidden> in[kAtOnce][kRows];
    float2 weight[kAtOnce][2];
    float routed[kAtOnce][kEarlyLogits][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = unit_of(first + i) * kQuantColumns + own;
      // Of experts' columns each row has its own slots', and a shared one's.
      int slot = shape.mixture.slots;
      bool is_column = true;  // and does not fill up a unit
      if (weighs) {
        const ChainExpertUnit unit(shape.mixture, unit_of(first + i));
        slot = unit.slot;
        is_column = slot == shape.mixture.slots ||
                    unit.own * kQuantColumns + own < shape.mixture.columns();
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool has = is_column && (kRows == 1 || !weighs ||
                                       shape.mixture.UnitOfRow(
                                           r, unit_of(first + i), slot) >= 0);
        in[i][r].Begin(stage, shape, r, has ? column : stage.k, handed);
      }
      weight[i][0] = weight[i][1] = make_float2(1.0f, 1.0f);
      if (kHidden && stage.norm_weight != nullptr && column < stage.k) {
        const float* at = stage.norm_weight + column;
        weight[i][0] = *reinterpret_cast<const float2*>(at);
        weight[i][1] = *reinterpret_cast<const float2*>(at + 8);
      }
      if (routes) {
#pragma unroll
        for (int l = 0; l < kEarlyLogits; ++l) {
          router.Load(l, column, routed[i][l]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int unit = unit_of(first + i);
      if (unit >= stage.units) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float* const own_facts = facts + (unit * kRows + r) * Form::kFactsOfX;
        int place = unit;  // among the row's
        float counts = 1.0f;
        if (weighs) {
          const int slot = ChainExpertUnit(shape.mixture, unit).slot;
          place = shape.mixture.UnitOfRow(r, unit, slot);
          if (kRows > 1 && place < 0) {
            if (lane < Form::kFactsOfX) own_facts[lane] = 0.0f;
            continue;
          }
          counts =
              choice.weights[slot == shape.mixture.slots ? slot + r : slot];
        }
        float x[4], late[4];
        in[i][r].Take(x);
        __syncwarp();
        if constexpr (kHidden) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sums[r] = fmaf(x[j], x[j], sums[r]);
            x[j] *= j % 2 == 0 ? weight[i][j / 2].x : weight[i][j / 2].y;
          }
        }
        if (routes) {
#pragma unroll
          for (int l = 0; l < kMostChainLogits; ++l) {
            if (l >= kEarlyLogits) {
              if (!router.Has(l)) break;
              router.Load(l, unit * kQuantColumns + own, late);
            }
            const float(&w)[4] = l < kEarlyLogits ? routed[i][l] : late;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              logits[r][l] = fmaf(x[j], w[j], logits[r][l]);
            }
          }
        }
        StoreChainX<Form>(shared + shape.at.x +
                              r * ChainPlanes(Form::kX) * shape.at.x_stride +
                              place * ChainPlaneBytes(Form::kX),
                          shape.at.x_stride, own_facts, x, counts);
      }
    }
  }
  if constexpr (kHidden) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(sums[r]);
      if (lane == 0) squares[r * kChainWarps + warp] = sum;
    }
  }
  if (routes) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      ChainRouter<T>::Store(choice.shares[r], logits[r]);
    }
  }
  __syncwarp();
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_X_CUH_
