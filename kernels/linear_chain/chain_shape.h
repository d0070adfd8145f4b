// What a launch of linear_chain_sm90.cuh is told, and how its shared memory is
// cut. Host and device.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_SHAPE_H_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/linear_chain/linear_chain.h"
#include "kernels/sample/host_device.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kChainWarps = 16;
inline constexpr int kChainThreads = 32 * kChainWarps;
// Rows of x: columns of an mma's result that are kept. More were slower than
// the products apart.
inline constexpr int kChainRows = 2;
inline constexpr int kMostChainRing = 8;  // places of a warp's ring

// `count` things shared out to `shares`, neighbours together, the first ones
// having one more.
struct ChainCut {
  INLAY_HOST_DEVICE int First(int share) const {
    return share * each + (share < rest ? share : rest);
  }
  int count;
  int shares;
  int each;
  int rest;
};
inline ChainCut CutChain(int count, int shares) {
  return {count, shares, count / shares, count % shares};
}

struct ChainStage {
  const uint8_t* w;
  const float* bias;
  const float* norm_weight;
  const void* x;  // null: the norm of hidden
  void* y;        // null: hidden
  int64_t x_stride;
  int64_t y_stride;
  int64_t tile_bytes;
  float epsilon;
  int n;  // outputs: half the rows of w where gated
  int k;
  int units;
  ChainCut jobs;  // tiles of 16 outputs to blocks
  bool gated;
  Activation function;
};

// Byte offsets in shared memory.
struct ChainPlaces {
  uint32_t sums;      // [kChainRows][32] float32: of squares
  uint32_t starts;    // [slots] uint16: where a tile's first partial sum is
  uint32_t partials;  // [warps][pieces][16][kChainRows] float32
  uint32_t x_sums;    // [groups of K][kChainRows] float32
  uint32_t x;         // [m][x_stride bytes]
  uint32_t rings;     // [warps][ring][stage_bytes]
  uint32_t x_stride;
  uint32_t bytes;  // of all
};

struct ChainShape {
  ChainStage stages[kMostChainStages];
  float* hidden;
  int64_t hidden_stride;  // elements
  uint32_t* barrier;
  int count;  // of stages
  int m;
  int ring;         // places of a warp's ring
  int place_units;  // units of a place
  int pieces;       // of tiles that a warp has in a stage, at most
  ChainPlaces at;
};

// Fills what of `shape` follows from the shapes of the stages, m rows of x and
// the number of blocks: how work and shared memory are cut. False: they do not
// fit.
bool PlaceChain(const LinearChainDesc& desc, int m, int blocks,
                ChainShape& shape);

#define INLAY_CHAIN_LAUNCH(name)                         \
  absl::Status name(const ChainShape& shape, DType type, \
                    const QuantForm& form, CudaStream& stream)
INLAY_CHAIN_LAUNCH(LaunchChainLinear4);  // linear_chain_linear4_sm90.cu
INLAY_CHAIN_LAUNCH(LaunchChainInt8);     // linear_chain_int8_sm90.cu
#undef INLAY_CHAIN_LAUNCH

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_SHAPE_H_
