// What a launch of linear_chain_sm90.cuh is told, and how its shared memory is
// cut. Host and device.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_SHAPE_H_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_SHAPE_H_

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/status/status.h"
#include "kernels/cuda_divisor.h"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/linear_chain/linear_chain.h"
#include "kernels/sample/host_device.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kChainWarps = 16;
inline constexpr int kChainThreads = 32 * kChainWarps;
// Four more warps, of which one copies: registers are given back by four.
inline constexpr int kChainBlock = kChainThreads + 128;
// Rows of x: three columns of an mma's result each. More were slower than the
// products apart.
inline constexpr int kChainRows = 2;
inline constexpr int kMostChainRing = 16;
// Units of a place of the ring, which are copied at once: one for each warp, or
// where that would be more than 17 KB for half or a quarter of the warps.
INLAY_HOST_DEVICE constexpr int ChainPlaceUnits(int most_unit_bytes) {
  return most_unit_bytes > 2200   ? kChainWarps / 4
         : most_unit_bytes > 1100 ? kChainWarps / 2
                                  : kChainWarps;
}
// Weights that are 16-bit floats and lie as in files: a unit of a tile in
// shared memory, two boxes of 64 columns (gemm/tensor_map.h).
inline constexpr int kPlainUnitBytes = kQuantRows * kQuantColumns * 2;
inline constexpr int kPlainBoxes = kQuantColumns / 64;
// Bytes of copies under way, about: with more the memory gives no more, and
// what blocks say to each other takes longer. A round of many units has more.
inline constexpr int kFewUnderWay = 34 << 10;
inline constexpr int kMostUnderWay = 40 << 10;
// The same of floats, whose bytes are what bounds a stage.
inline constexpr int kFewPlainUnderWay = 64 << 10;
inline constexpr int kMostPlainUnderWay = 96 << 10;
inline constexpr int kManyChainUnits = 16 * kChainWarps;
// A block's tiles between two meetings of its warps where a stage is alone:
// each has a place for its sums, which the ring has not.
inline constexpr int kMostRoundTiles = 16;
inline constexpr uint32_t kChainBarriers = kMostChainRing * 16;  // bytes

// How numbers of x lie in shared memory (chain_unit.cuh).
enum class ChainX : uint8_t {
  kDigits,      // of 8 bits, in planes
  kNeighbours,  // the same, columns in the order of codes that are looked up
  kFloats,      // of 16 bits, as ChainForm::Number
};
INLAY_HOST_DEVICE constexpr int ChainPlanes(ChainX x) {
  return x == ChainX::kFloats ? 1 : 3;
}
// Of a unit of 128 columns in a plane.
INLAY_HOST_DEVICE constexpr int ChainPlaneBytes(ChainX x) {
  return x == ChainX::kFloats ? 2 * kQuantColumns : kQuantColumns;
}

// What has to be known of a unit of a row of x, in float32: what its digits are
// multiplied by, and where weights have minima or an offset its groups' sums;
// those of four groups begin 16 bytes on.
INLAY_HOST_DEVICE constexpr int ChainFactsOfX(QuantCodes codes, int group,
                                              bool has_min) {
  if (!has_min && codes != QuantCodes::kLinear4) return 1;
  return group == kQuantColumns ? 2 : 8;
}

// The levels of codes that are looked up, as integers of 7 bits: levels are
// these times `one`, those of the second half of codes times -`one`. Of kFloats
// lower bytes of f16, then upper ones.
struct ChainLevels {
  uint32_t bytes[8];
  float one;
};
ChainLevels ChainLevelsOf(const QuantForm& form, ChainX x);

// `count` things shared out, neighbours together, the first ones having one
// more.
struct ChainCut {
  INLAY_HOST_DEVICE int First(int share) const {
    return share * each + (share < rest ? share : rest);
  }
  int count;
  int each;
  int rest;
};
inline ChainCut CutChain(int count, int shares) {
  return {count, count / shares, count % shares};
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
  // Where x or hidden, and y, are handed on, and bytes from row to row
  // (ChainHandedAt); negative: nowhere.
  int from;
  int from_stride;
  int to;
  int to_stride;
  float epsilon;
  float mean;  // 1 / k
  int n;       // outputs: half the rows of w where gated
  int k;
  int units;
  ChainCut jobs;    // tiles of 16 outputs to blocks; of same_x from the last on
  float limit;      // of functions that have one
  uint16_t rounds;  // in which a block does its jobs
  uint16_t round_jobs;  // at most
  uint8_t under_way;    // copies
  uint8_t box_units;    // that a tensor copy brings
  bool second;          // its weights lie as ChainForms::Second
  bool same_x;          // x is that of the stage before
  bool gated;
  bool float_y;  // y is float32; otherwise x's type
  Activation function;
};

// Of a mixture's experts: at most, a token's, and logits of it that a block
// gives.
inline constexpr int kMostChainExperts = 16;
inline constexpr int kMostChainLogits = 4;
inline constexpr int kMostChainGroups = 32;

// Tokens' choice of experts, and the stages that are theirs. A slot is a token
// and one of its experts, slot t * top_k + r that of rank r; behind them all is
// a shared expert.
struct ChainMixture {
  INLAY_HOST_DEVICE bool has_shared() const { return shared_tiles > 0; }
  INLAY_HOST_DEVICE int parts() const { return slots + (has_shared() ? 1 : 0); }
  // Of what an expert's inputs give, and what fills up its last unit.
  INLAY_HOST_DEVICE int columns() const {
    return input_tiles.divisor() * kQuantRows;
  }
  INLAY_HOST_DEVICE int padding() const {
    return output_units.divisor() * kQuantColumns - columns();
  }
  // Of x of experts' outputs a row has units of its own slots and, behind them,
  // a shared expert's. Where there it has unit `unit` of K, which is slot
  // `slot`'s; negative: another row has it.
  INLAY_HOST_DEVICE int UnitOfRow(int row, int unit, int slot) const {
    const int first = slot == slots ? slots - top_k : row * top_k;
    const bool is_own =
        slot == slots || (slot >= first && slot < first + top_k);
    return is_own ? unit - first * output_units.divisor() : -1;
  }
  // With that of the shared expert's gate.
  INLAY_HOST_DEVICE int logit_count() const {
    return num_experts + (shared_gate != nullptr ? 1 : 0);
  }

  const void* router;  // [num_experts, k]
  const float* bias;
  const float* correction;
  const void* shared_gate;       // [k], or null
  const uint8_t* shared_input;   // tiles
  const uint8_t* shared_output;  // tiles
  int logits;                    // handed on, [m][logit_count()]: ChainHandedAt
  float scale;
  int num_experts;
  int top_k;
  LaunchDivisor input_tiles;   // an expert's gates, and ups
  LaunchDivisor output_units;  // an expert's, of K; the last may be filled up
  int shared_tiles;            // of gates, and of ups; 0: there is none
  int shared_bytes;            // of a tile of shared_output
  int8_t input;     // the stage; that of their outputs follows. -1: none
  uint8_t slots;    // m * top_k
  uint8_t sharers;  // threads that find an expert's rank, a power of two
  // Of experts, and of those such that are chosen from.
  uint8_t num_groups;
  uint8_t top_groups;
  bool two_of_group : 1;  // GroupScore
  bool float_router : 1;
  bool sigmoid : 1;
  bool normalised : 1;
};

// A unit of K of experts' outputs: whose it is, and its place in the expert's.
struct ChainExpertUnit {
  INLAY_HOST_DEVICE ChainExpertUnit(const ChainMixture& mixture, int unit)
      : slot(mixture.output_units.Quotient(unit)) {
    if (slot > mixture.slots) slot = mixture.slots;
    own = unit - slot * mixture.output_units.divisor();
  }
  int slot;
  int own;
};

// Factors of rows of a block's tiles of experts' outputs, at most.
INLAY_HOST_DEVICE inline int ChainRowFactors(const ChainStage& outputs,
                                             const ChainMixture& mixture) {
  return outputs.round_jobs * mixture.parts() * kQuantRows;
}

// What a block's threads tell each other of it; behind it keys of 64 bits by
// expert, then logits in float32, [m][num_experts].
struct ChainChoice {
  uint64_t made;  // barrier: experts are known
  // The warps' shares of the block's logits.
  float shares[kChainRows][kMostChainLogits][kChainWarps];
  int experts[kChainRows * kMostChainExperts];   // by slot
  float chosen[kChainRows * kMostChainExperts];  // their logits
  // By slot, then a shared one's of each row.
  float weights[kChainRows * kMostChainExperts + kChainRows];
};

// Byte offsets in shared memory. Before them: full and empty barriers of the
// ring's places, ChainShape.
struct ChainPlaces {
  uint32_t squares;      // [2][kChainRows][warps] float32: of hidden
  uint32_t partials[2];  // [tiles][ChainPartials] float32, in turns
  uint32_t choice;       // ChainChoice, where there are experts
  // [tiles of their outputs][parts][16] float32: factors of rows; behind them
  // as many biases, where outputs have some
  uint32_t factors;
  uint32_t facts;  // [units][m][ChainFactsOfX] float32
  // [m][ChainPlanes][x_stride bytes]; behind it, where rows have slots of
  // their own, a unit of zeros
  uint32_t x;
  uint32_t ring;  // [places][ChainPlaceUnits] units
  uint32_t x_stride;
  uint32_t bytes;  // of all
};

// Sums of a tile: [warps][m][16], and a gap that keeps tiles apart in banks.
INLAY_HOST_DEVICE constexpr int ChainPartials(int m) {
  return kChainWarps * m * kQuantRows + kQuantRows;
}

// What blocks hand on, in device memory; behind it two buffers, in turns
// kChainHandedBytes of each.
struct alignas(128) ChainExchange {
  uint32_t launches;  // that are complete
  uint32_t handed;    // bytes that the last of them handed on
  uint32_t ended;     // blocks of this launch
};
inline constexpr int kChainHandedBytes = 512;  // a unit of hidden
// Where byte `at` of the first buffer lies.
INLAY_HOST_DEVICE constexpr int ChainHandedAt(int at) {
  return at + (at & -kChainHandedBytes);
}

struct ChainShape {
  ChainStage stages[kMostChainStages];
  float* hidden;
  int64_t hidden_stride;    // elements
  ChainExchange* exchange;  // null: of one stage
  uint32_t handed;          // bytes, of all that is handed on
  int count;                // of stages
  int m;
  int ring;  // places
  ChainPlaces at;
  ChainMixture mixture;
  ChainLevels levels;
};

// Of weights as they lie in files: a stage's, and a shared expert's.
struct ChainMaps {
  CUtensorMap stages[kMostChainStages];
  CUtensorMap shared[2];  // inputs, outputs
};

// How the weights of a chain's stages lie. Served by LaunchChain*.
struct ChainFormPair {
  bool is_plain;  // as in files; `first` and `second` say nothing then
  QuantForm first;
  QuantForm second;  // `first` where all lie alike
  bool is_mixed;
  ChainX x;
};
inline bool SameForm(const QuantForm& a, const QuantForm& b) {
  return a.codes == b.codes && a.group == b.group && a.has_min == b.has_min &&
         std::equal(std::begin(a.levels), std::end(a.levels), b.levels);
}
// Of stages that are quantised; false: no kernel serves them together.
bool FormsOfChain(const LinearChainDesc& desc, ChainFormPair& forms);

// Fills what of `shape` follows from the shapes of the stages, m rows of x and
// the number of blocks: how work and shared memory are cut. False: they do not
// fit.
bool PlaceChain(const LinearChainDesc& desc, int m, int blocks,
                ChainShape& shape);

#define INLAY_CHAIN_LAUNCH(name)                         \
  absl::Status name(const ChainShape& shape, DType type, \
                    const ChainFormPair& forms, CudaStream& stream)
INLAY_CHAIN_LAUNCH(LaunchChainLinear4);  // linear_chain_linear4_sm90.cu
INLAY_CHAIN_LAUNCH(LaunchChainLinear6);  // linear_chain_linear6_sm90.cu
INLAY_CHAIN_LAUNCH(LaunchChainInt8);     // linear_chain_int8_sm90.cu
INLAY_CHAIN_LAUNCH(LaunchChainTable4);   // linear_chain_table4_sm90.cu
INLAY_CHAIN_LAUNCH(LaunchChainFloats);   // linear_chain_floats_sm90.cu
INLAY_CHAIN_LAUNCH(LaunchChainMixed);    // linear_chain_mixed_sm90.cu
#undef INLAY_CHAIN_LAUNCH
// linear_chain_plain_sm90.cu
absl::Status LaunchChainPlain(const ChainShape& shape, const ChainMaps& maps,
                              DType type, CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_SHAPE_H_
