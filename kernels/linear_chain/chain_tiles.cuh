// Which tiles of a stage's weights a block has, and where they lie.
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

// Where the tiles of a stage of experts lie, once these are chosen.
class ChainExpertTiles {
 public:
  __device__ ChainExpertTiles(const ChainStage& stage,
                              const ChainMixture& mixture,
                              const ChainTiles& tiles, const int* experts)
      : stage_(stage), mixture_(mixture), tiles_(tiles), experts_(experts) {}

  // Of their inputs. A block's tiles are gates and ups in turn.
  __device__ const uint8_t* Input(int tile) const {
    const int job = tiles_.first_job + tile / 2;
    const int rank = job / mixture_.input_tiles;
    const int own = job - rank * mixture_.input_tiles +
                    (tile % 2 == 1 ? mixture_.input_tiles : 0);
    return At(int64_t{experts_[rank]} * (2 * mixture_.input_tiles) + own);
  }
  // Where in the biases of all experts the output of row `row` of gate tile
  // `tile` has its own.
  __device__ int64_t Bias(int tile, int row) const {
    const int job = tiles_.first_job + tile / 2;
    const int rank = job / mixture_.input_tiles;
    return (int64_t{experts_[rank]} * (2 * mixture_.input_tiles) + job -
            rank * mixture_.input_tiles) *
               kQuantRows +
           row;
  }
  // Of the outputs of the expert of rank `rank`.
  __device__ const uint8_t* Output(int tile, int rank) const {
    return At(int64_t{experts_[rank]} * mixture_.output_tiles +
              tiles_.first_job + tile);
  }

 private:
  __device__ const uint8_t* At(int64_t tile) const {
    return stage_.w + tile * stage_.tile_bytes;
  }
  const ChainStage& stage_;
  const ChainMixture& mixture_;
  const ChainTiles& tiles_;
  const int* experts_;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_
