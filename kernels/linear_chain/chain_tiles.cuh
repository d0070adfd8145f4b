// Which tiles of a stage's weights a block has, and where they lie.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_

#include "kernels/linear_chain/chain_shape.h"

namespace inlay {

// A tile by its number in its matrix: a stage's, or where the stage is of
// experts, a shared one's.
struct ChainTile {
  int number;
  bool shared;
};

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
  __device__ ChainTile Tile(const ChainStage& stage, int tile) const {
    return {Number(stage, tile), false};
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
  __device__ ChainTile Input(int tile) const {
    const Place at(*this, tile / 2);
    const bool is_up = tile % 2 == 1;
    if (at.slot == mixture_.slots) {
      return {at.own + (is_up ? mixture_.shared_tiles : 0), true};
    }
    return {FirstTile(at.slot) + at.own +
                (is_up ? mixture_.input_tiles.divisor() : 0),
            false};
  }
  __device__ const uint8_t* InputAt(int tile) const {
    const ChainTile at = Input(tile);
    return (at.shared ? mixture_.shared_input : stage_.w) +
           at.number * stage_.tile_bytes;
  }
  // Whether the block's `job`-th gate is of row m of x.
  __device__ bool IsOf(int job, int m) const {
    const Place at(*this, job);
    return at.slot == mixture_.slots || at.slot / mixture_.top_k == m;
  }
  // Of the block's `job`-th gate; slots: the shared expert's.
  __device__ int Slot(int job) const { return Place(*this, job).slot; }
  // Where in the biases of all experts the output of row `row` of gate tile
  // `tile` has its own; negative: a shared expert has none.
  __device__ int64_t Bias(int tile, int row) const {
    const Place at(*this, tile / 2);
    if (at.slot == mixture_.slots) return -1;
    return int64_t{FirstTile(at.slot) + at.own} * kQuantRows + row;
  }
  // Of the outputs of slot `slot`'s expert.
  __device__ ChainTile Output(int tile, int slot) const {
    const int own = tiles_.first_job + tile;
    if (slot == mixture_.slots) return {own, true};
    return {experts_[slot] * (stage_.n / kQuantRows) + own, false};
  }
  __device__ const uint8_t* OutputAt(int tile, int slot) const {
    const ChainTile at = Output(tile, slot);
    return at.shared ? mixture_.shared_output +
                           int64_t{at.number} * mixture_.shared_bytes
                     : stage_.w + at.number * stage_.tile_bytes;
  }

 private:
  // Of the block's `job`-th gate: whose it is, and its number there.
  struct Place {
    __device__ Place(const ChainExpertTiles& of, int job) {
      job += of.tiles_.first_job;
      slot = min(of.mixture_.input_tiles.Quotient(job), of.mixture_.slots);
      own = job - slot * of.mixture_.input_tiles.divisor();
    }
    int slot;
    int own;
  };
  __device__ int FirstTile(int slot) const {
    return experts_[slot] * (2 * mixture_.input_tiles.divisor());
  }
  const ChainStage& stage_;
  const ChainMixture& mixture_;
  const ChainTiles& tiles_;
  const int* experts_;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_TILES_CUH_
