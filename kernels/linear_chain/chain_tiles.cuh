// Which tiles of a stage's weights a block has.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_

#include "kernels/linear_chain/chain_shape.h"

namespace inlay {

// A block's tiles of a stage, or of one of its rounds, one after another, where
// gated gate and up of a job in turn.
struct ChainTiles {
  __device__ explicit ChainTiles(const ChainStage& stage)
      : first_job(stage.jobs.First(Share(stage))),
        jobs(stage.jobs.First(Share(stage) + 1) - first_job),
        count(stage.gated ? 2 * jobs : jobs) {}
  __device__ ChainTiles(const ChainStage& stage, int round)
      : ChainTiles(stage) {
    const int begin = min(round * stage.round_jobs, jobs);
    first_job += begin;
    jobs = min(jobs - begin, stage.round_jobs);
    count = stage.gated ? 2 * jobs : jobs;
  }
  // Blocks that have one more of a stage have one less of what follows on it.
  __device__ static int Share(const ChainStage& stage) {
    return static_cast<int>(stage.same_x ? gridDim.x - 1 - blockIdx.x
                                         : blockIdx.x);
  }
  // Of all of w.
  __device__ int Number(const ChainStage& stage, int tile) const {
    return stage.gated
               ? first_job + tile / 2 + (tile % 2 == 1 ? stage.jobs.count : 0)
               : first_job + tile;
  }
  __device__ const uint8_t* At(const ChainStage& stage, int tile) const {
    return stage.w + Number(stage, tile) * stage.tile_bytes;
  }
  int first_job;
  int jobs;
  int count;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_
