// expert_linear for some slots an expert with packed quantised weights
// (gemm/quantised/layout.h) and x of 16 bits on Hopper: weights go through a
// ring, those of an expert once for up to 8 or 16 of its slots. Included by the
// expert_streamed_*_sm90.cu, each of which instantiates some forms.
//
// Mapping: the slots of each expert are cut into pieces; each piece multiplies
// all pairs of tiles of 16 rows of w (neighbours, or gates with their ups). The
// pairs of all pieces, one piece after another, are shared out evenly among the
// blocks, one a multiprocessor. A block takes some pairs at a time, a round, of
// one piece or of two that follow each other: `shares` of its warps a pair,
// each of which has the units of K that are its own modulo `shares`; one of
// them finishes the pair, and nobody waits for other pairs. One warp copies
// weights, a group of units of all the round's pairs by tensor copies of two,
// and one x, that group of each of the pieces' rows. Where experts' matrices
// lie apart, some of them in host memory, a lane copies a tile.
//
// Arithmetic: gemm/quantised/product_unit_sm90.cuh, K ascending, shares
// ascending, times the rows' factors. What a slot gives depends on its row of
// x, its expert and the number of shares, to the bit.
//
// Shared memory: barriers; for each expert how many pieces are before it, and
// its first slot; sums of shares [2][pairs of a round][shares - 1][2][x tiles
// of 8 rows][lane][4], those of rounds in turn; the ring.
//
// Barriers (mbarriers): full a place, of two warps' copies; empty a place, of
// the warps that multiply. Named barrier 1 + p: the warps that share the p-th
// pair.
//
// Overlap: where the kernel before is one of these (gates and ups), weights are
// asked for before its end is awaited.
//
// Roofline: the bytes of the experts that are asked for over the copy
// bandwidth. README.md: how far off.
#ifndef INLAY_KERNELS_MOE_EXPERT_STREAMED_SM90_CUH_
#define INLAY_KERNELS_MOE_EXPERT_STREAMED_SM90_CUH_

#include "kernels/activation/activation.cuh"
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/product_unit_sm90.cuh"
#include "kernels/moe/expert_streamed_shape.h"

namespace inlay {
namespace {

// Offsets in shared memory; behind the tables comes the ring.
struct ExpertStreamedHead {
  static constexpr uint32_t kFull = 0;
  static constexpr uint32_t kEmpty = kFull + 8 * kMostExpertPlaces;
  static constexpr uint32_t kWarpSums = kEmpty + 8 * kMostExpertPlaces;
  static constexpr uint32_t kTables = kWarpSums + 4 * 32;
};

// Tables [num_experts + 1] in shared memory.
struct ExpertPieces {
  const int* before;  // pieces before the expert's
  const int* first;   // slots before the expert's
};

// Fills the tables: all threads of the block call it. The end of the work that
// listed slots has been awaited, or shape.listed.
template <int kTiles>
__device__ ExpertPieces ListExpertPieces(const ExpertStreamedShape& shape,
                                         uint8_t* shared) {
  constexpr int kPieceRows = 8 * kTiles;
  constexpr unsigned kAll = 0xffffffffu;
  auto* sums = reinterpret_cast<int*>(shared + ExpertStreamedHead::kWarpSums);
  auto* before = reinterpret_cast<int*>(shared + ExpertStreamedHead::kTables);
  int* first = before + shape.num_experts + 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  // A thread has experts side by side.
  const int share =
      (shape.num_experts + kExpertStreamThreads - 1) / kExpertStreamThreads;
  const int begin =
      min(static_cast<int>(threadIdx.x) * share, shape.num_experts);
  const int end = min(begin + share, shape.num_experts);
  int own = 0;
  int slot = __ldcg(shape.offsets + begin);
#pragma unroll 1
  for (int e = begin; e < end; ++e) {
    first[e] = slot;
    const int next = __ldcg(shape.offsets + e + 1);
    before[e] = own;
    own += (next - slot + kPieceRows - 1) / kPieceRows;
    slot = next;
  }
  if (end == shape.num_experts) first[shape.num_experts] = slot;
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  int base = sum - own;
  for (int w = 0; w < warp; ++w) base += sums[w];
#pragma unroll 1
  for (int e = begin; e < end; ++e) before[e] += base;
  if (end == shape.num_experts) before[shape.num_experts] = base + own;
  __syncthreads();
  return {before, first};
}

// Of a round: `pairs` pairs from `pair` on times the slots
// [first, first + rows) of the listed ones.
struct ExpertPart {
  int expert;
  int first;
  int rows;
  int pair;
  int pairs;
};

// Pairs of one piece and, where it ends, of the next.
struct ExpertRound {
  __device__ int pairs() const { return one.pairs + two.pairs; }
  __device__ int rows() const { return one.rows + two.rows; }
  __device__ ExpertPart part(bool second) const { return second ? two : one; }
  // Where the second part of weights begins: tensor copies go to multiples of
  // 128 bytes.
  __device__ int second_bytes(int pair_bytes) const {
    return (one.pairs * pair_bytes + 127) / 128 * 128;
  }
  ExpertPart one;
  ExpertPart two;  // no pairs and no rows: there is none
};

// The rounds of a block, in turn: the same for all its threads.
class ExpertRounds {
 public:
  __device__ ExpertRounds(const ExpertStreamedShape& shape, int piece_rows,
                          const ExpertPieces& pieces)
      : shape_(shape), piece_rows_(piece_rows), pieces_(pieces) {
    const int64_t all = int64_t{pieces.before[shape.num_experts]} * shape.pairs;
    next_ = all * blockIdx.x / gridDim.x;
    end_ = all * (blockIdx.x + 1) / gridDim.x;
  }
  __device__ bool Next(ExpertRound& round) {
    if (next_ >= end_) return false;
    const auto left = static_cast<int>(end_ - next_);
    const int rounds = (left + shape_.round_pairs - 1) / shape_.round_pairs;
    const int pairs = (left + rounds - 1) / rounds;
    round.one = Take(pairs);
    round.two =
        pairs > round.one.pairs ? Take(pairs - round.one.pairs) : ExpertPart{};
    return true;
  }

 private:
  // The next pairs, `most` or what there is of their piece.
  __device__ ExpertPart Take(int most) {
    ExpertPart part;
    const int piece = static_cast<int>(next_ / shape_.pairs);
    part.pair = static_cast<int>(next_ - int64_t{piece} * shape_.pairs);
    part.pairs = min(most, shape_.pairs - part.pair);
    next_ += part.pairs;
    // The last expert with no more than `piece` pieces before it.
    int low = 0, high = shape_.num_experts;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (pieces_.before[middle] <= piece) {
        low = middle;
      } else {
        high = middle;
      }
    }
    part.expert = low;
    part.first =
        pieces_.first[low] + (piece - pieces_.before[low]) * piece_rows_;
    part.rows = min(piece_rows_, pieces_.first[low + 1] - part.first);
    return part;
  }

  const ExpertStreamedShape& shape_;
  int piece_rows_;
  ExpertPieces pieces_;
  int64_t next_;
  int64_t end_;
};

__device__ inline void CopyExpertPairs(uint32_t to, const CUtensorMap& map,
                                       int row, int pair, uint32_t barrier,
                                       uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes.L2::cache_hint [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(pair), "r"(barrier), "l"(policy)
      : "memory");
}

// Where an expert's matrix is, from the first's.
__device__ inline int64_t ExpertAt(const ExpertStreamedShape& shape,
                                   int expert) {
  return shape.table == nullptr ? expert * shape.expert_bytes
                                : __ldcg(shape.table + expert);
}

// The thread that copies weights.
__device__ inline void FeedExpertWeights(const ExpertStreamedShape& shape,
                                         const ExpertStreamedMaps& maps,
                                         ExpertRounds rounds, uint32_t base) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  const int pair_bytes = 2 * shape.shares * shape.unit_bytes;
  const int step = shape.shares * shape.unit_rows;
  RingTurn turn;
  ExpertRound round;
#pragma unroll 1
  while (rounds.Next(round)) {
#pragma unroll 1
    for (int group = 0; group < shape.groups; ++group) {
      const uint32_t full = base + ExpertStreamedHead::kFull + 8 * turn.stage;
      Await(base + ExpertStreamedHead::kEmpty + 8 * turn.stage,
            turn.parity ^ 1);
      Expect(full, round.pairs() * pair_bytes);
      const uint32_t weights = base + shape.ring +
                               turn.stage * shape.place_bytes +
                               2 * shape.x_bytes;
      const auto copy = [&](const ExpertPart& part, uint32_t to) {
        const int first = part.expert * shape.expert_step + part.pair;
        int pair = 0;
#pragma unroll
        for (int i = kExpertBoxes - 1; i >= 0; --i) {
#pragma unroll 1
          for (; part.pairs - pair >= 1 << i; pair += 1 << i) {
            CopyExpertPairs(to, maps.w[i], group * step, first + pair, full,
                            policy);
            to += pair_bytes << i;
          }
        }
      };
      copy(round.one, weights);
      copy(round.two, weights + round.second_bytes(pair_bytes));
      turn.Next(shape.places);
    }
  }
}

// The warp that copies weights where matrices lie apart: a lane a tile.
__device__ inline void FeedExpertTiles(const ExpertStreamedShape& shape,
                                       const std::byte* w, ExpertRounds rounds,
                                       uint32_t base) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group_bytes = shape.shares * shape.unit_bytes;
  RingTurn turn;
  ExpertRound round;
#pragma unroll 1
  while (rounds.Next(round)) {
    const int tiles = 2 * round.pairs();
    const bool second = lane / 2 >= round.one.pairs;
    const ExpertPart part = round.part(second);
    const int own = lane - (second ? 2 * round.one.pairs : 0);
    const int tile =
        (part.pair + own / 2) * shape.pair_tile + lane % 2 * shape.other_tile;
    const int at =
        own * group_bytes + (second ? round.second_bytes(2 * group_bytes) : 0);
    const std::byte* from = w + ExpertAt(shape, part.expert) +
                            tile * shape.tile_bytes + kQuantHeadBytes;
#pragma unroll 1
    for (int group = 0; group < shape.groups; ++group) {
      const uint32_t full = base + ExpertStreamedHead::kFull + 8 * turn.stage;
      const int bytes = min(shape.shares, shape.units - group * shape.shares) *
                        shape.unit_bytes;
      Await(base + ExpertStreamedHead::kEmpty + 8 * turn.stage,
            turn.parity ^ 1);
      if (lane == 0) Expect(full, tiles * bytes);
      __syncwarp();
      if (lane < tiles) {
        CopyRow(base + shape.ring + turn.stage * shape.place_bytes +
                    2 * shape.x_bytes + at,
                from + int64_t{group} * group_bytes, bytes, full);
      }
      turn.Next(shape.places);
    }
  }
}

// The warp that copies x, a lane a row: half of the lanes those of each piece.
template <typename T>
__device__ void FeedExpertRows(const ExpertStreamedShape& shape,
                               const CudaMatrix<const T>& x,
                               ExpertRounds rounds, uint32_t base) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int at = lane % kMostPieceRows;
  RingTurn turn;
  ExpertRound round;
#pragma unroll 1
  while (rounds.Next(round)) {
    const ExpertPart part = round.part(lane >= kMostPieceRows);
    const bool exists = at < part.rows;
    const T* row = nullptr;
    if (exists) {
      const int slot = shape.slots[part.first + at];
      row = x.row(shape.row_a_slot ? slot : slot / shape.top_k);
    }
#pragma unroll 1
    for (int group = 0; group < shape.groups; ++group) {
      const uint32_t full = base + ExpertStreamedHead::kFull + 8 * turn.stage;
      const uint32_t to = base + shape.ring + turn.stage * shape.place_bytes +
                          lane / kMostPieceRows * shape.x_bytes +
                          at * shape.x_row_bytes;
      const int first = group * shape.shares * kQuantColumns;
      const int columns = min(shape.shares * kQuantColumns, shape.k - first);
      Await(base + ExpertStreamedHead::kEmpty + 8 * turn.stage,
            turn.parity ^ 1);
      if (columns % kQuantColumns != 0) {
        // Weights are zeros there, and so must x be: not what was there.
        if (exists) {
          for (int c = columns; c % kQuantColumns != 0; c += 8) {
            asm volatile(
                "st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + 2 * c),
                "r"(0)
                : "memory");
          }
        }
        // Before copies that come to the same place later.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
      }
      if (lane == 0) Expect(full, round.rows() * columns * 2);
      __syncwarp();
      if (exists) CopyRow(to, row + first, columns * 2, full);
      turn.Next(shape.places);
    }
  }
}

// What ldmatrix of a lane needs of x in a place.
struct ExpertStreamedX {
  __device__ uint32_t At(int t, int product) const {
    return place + t * 8 * row_bytes + product * 32;
  }
  uint32_t place;  // of the unit, and the lane's row and 16 bytes
  int row_bytes;
};

// The warps that share a pair.
struct ExpertTeam {
  __device__ explicit ExpertTeam(const ExpertStreamedShape& shape)
      : shares(shape.shares),
        pair(static_cast<int>(threadIdx.x) / 32 / shares),
        share(static_cast<int>(threadIdx.x) / 32 % shares) {}

  // Adds up what the shares have, for the first of them. `turn`: 0 and 1 in
  // turn, of the team's own pairs: when one is written again the team has met
  // since the first share read it.
  template <int kTiles>
  __device__ void AddUp(uint32_t parts, int turn, int pairs,
                        QuantSums<kTiles>& sums) const {
    constexpr int kWarpBytes = kTiles * 1024;
    const uint32_t at = parts +
                        (turn * pairs + pair) * (shares - 1) * kWarpBytes +
                        threadIdx.x % 32 * 16;
    if (share > 0) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const float(&v)[4] = sums.v[i / kTiles][i % kTiles];
        asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(
                         at + (share - 1) * kWarpBytes + i * 512),
                     "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                     : "memory");
      }
    }
    asm volatile("bar.sync %0, %1;" ::"r"(1 + pair), "r"(32 * shares)
                 : "memory");
    if (share > 0) return;
#pragma unroll 1
    for (int s = 0; s < shares - 1; ++s) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        float(&v)[4] = sums.v[i / kTiles][i % kTiles];
        const uint4 part = LoadShared16(at + s * kWarpBytes + i * 512);
        v[0] += __uint_as_float(part.x);
        v[1] += __uint_as_float(part.y);
        v[2] += __uint_as_float(part.z);
        v[3] += __uint_as_float(part.w);
      }
    }
  }
  int shares;
  int pair;   // of a round
  int share;  // of its K
};

// Finishes a pair.
template <typename T, int kTiles>
__device__ void FinishExpertPair(const ExpertStreamedShape& shape, int expert,
                                 int pair, const QuantSums<kTiles>& sums,
                                 const float (&factors)[2][2],
                                 const int (&slots)[kTiles][2],
                                 const float* bias, const TensorView& y) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = pair * shape.pair_tile * kQuantRows + lane / 4;
  const int other = shape.other_tile * kQuantRows;
  float added[2][2] = {};
  if (bias != nullptr) {
    const int rows = shape.gated ? 2 * shape.n : shape.n;
    const float* of = bias + int64_t{expert} * rows + first;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) added[r][i] = of[r * other + 8 * i];
    }
  }
  const auto store = [&](int slot, int column, float value) {
    if (shape.narrow) {
      CudaMatrix<T>(y).row(slot)[column] = FromFloat<T>(value);
    } else {
      CudaMatrix<float>(y).row(slot)[column] = value;
    }
  };
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    float v[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[r][i] = fmaf(sums.v[r][t][i], factors[r][i / 2], added[r][i / 2]);
        // As between the ops apart.
        if (shape.gated) v[r][i] = ToFloat(FromFloat<T>(v[r][i]));
      }
    }
    if (shape.gated) ApplyGated(shape.function, shape.limit, v[0], v[1]);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int slot = slots[t][m];
      if (slot < 0) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        store(slot, first + 8 * i, v[0][2 * i + m]);
        if (!shape.gated) store(slot, first + other + 8 * i, v[1][2 * i + m]);
      }
    }
  }
}

template <class Form, typename T, int kTiles>
__global__ void __launch_bounds__(kExpertStreamThreads, 1)
    ExpertStreamed(const __grid_constant__ ExpertStreamedMaps maps,
                   CudaMatrix<const T> x, const std::byte* __restrict__ w,
                   const float* bias, const __grid_constant__ TensorView y,
                   const __grid_constant__ LevelBytes levels,
                   const __grid_constant__ ExpertStreamedShape shape) {
  extern __shared__ __align__(1024) uint8_t expert_shared[];
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(expert_shared));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x < static_cast<unsigned>(shape.places)) {
    InitBarrier(base + ExpertStreamedHead::kFull + 8 * threadIdx.x, 2);
    InitBarrier(base + ExpertStreamedHead::kEmpty + 8 * threadIdx.x,
                kExpertStreamWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (!shape.listed) WaitForPrevious();
  ExpertRounds rounds(shape, 8 * kTiles,
                      ListExpertPieces<kTiles>(shape, expert_shared));
  if (warp == kExpertStreamWarps) {
    if (shape.table != nullptr) {
      FeedExpertTiles(shape, w, rounds, base);
    } else if (lane == 0) {
      FeedExpertWeights(shape, maps, rounds, base);
    }
    return;
  }
  WaitForPrevious();
  LetNextBegin();
  if (warp > kExpertStreamWarps) {
    FeedExpertRows<T>(shape, x, rounds, base);
    return;
  }
  const ExpertTeam team(shape);
  const int pair_bytes = 2 * shape.shares * shape.unit_bytes;
  int parts_turn = 0;
  RingTurn turn;
  ExpertRound round;
#pragma unroll 1
  while (rounds.Next(round)) {
    const bool exists = team.pair < round.pairs();
    const bool second = team.pair >= round.one.pairs;
    const ExpertPart part = round.part(second);
    const int own = team.pair - (second ? round.one.pairs : 0);
    const int pair = part.pair + own;
    const int weights =
        own * pair_bytes + (second ? round.second_bytes(pair_bytes) : 0);
    float factors[2][2];
    int slots[kTiles][2];  // of the lane's rows; -1: there is none
    if (exists && team.share == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int tile = pair * shape.pair_tile + r * shape.other_tile;
        const auto* head = reinterpret_cast<const float*>(
            w + ExpertAt(shape, part.expert) + tile * shape.tile_bytes);
        // Not what the first-level cache has of a slot's expert before.
        factors[r][0] = __ldcg(head + lane / 4);
        factors[r][1] = __ldcg(head + lane / 4 + 8);
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int row = t * 8 + lane % 4 * 2 + m;
          slots[t][m] = row < part.rows ? shape.slots[part.first + row] : -1;
        }
      }
    }
    QuantSums<kTiles> sums;
#pragma unroll 1
    for (int group = 0; group < shape.groups; ++group) {
      const uint32_t place = shape.ring + turn.stage * shape.place_bytes;
      Await(base + ExpertStreamedHead::kFull + 8 * turn.stage, turn.parity);
      if (exists && group * shape.shares + team.share < shape.units) {
        const uint8_t* units[2];
        units[0] = expert_shared + place + 2 * shape.x_bytes + weights +
                   team.share * shape.unit_bytes;
        units[1] = units[0] + shape.shares * shape.unit_bytes;
        const ExpertStreamedX at = {
            base + place + (second ? shape.x_bytes : 0) +
                lane % 8 * shape.x_row_bytes + lane / 8 * 16 +
                team.share * kQuantColumns * 2,
            shape.x_row_bytes};
        MultiplyQuantUnit<Form, T, kTiles>(units, at, levels, sums);
      }
      __syncwarp();
      if (lane == 0) Arrive(base + ExpertStreamedHead::kEmpty + 8 * turn.stage);
      turn.Next(shape.places);
    }
    if (!exists) continue;
    if (shape.shares > 1) {
      team.AddUp(base + shape.parts, parts_turn, shape.round_pairs, sums);
      parts_turn ^= 1;
    }
    if (team.share == 0) {
      FinishExpertPair<T, kTiles>(shape, part.expert, pair, sums, factors,
                                  slots, bias, y);
    }
  }
}

template <class Form, typename T, int kTiles>
absl::Status LaunchExpertStreamedTiles(const ExpertLinearParams& params,
                                       const ExpertStreamedMaps& maps,
                                       const QuantForm& form,
                                       const ExpertStreamedShape& shape,
                                       CudaStream& stream) {
  CudaGrid grid;
  grid.blocks = stream.num_sms();
  grid.threads = kExpertStreamThreads;
  grid.shared_bytes = shape.shared_bytes;
  grid.waits_first = true;
  return LaunchCuda("expert_linear", stream, grid,
                    ExpertStreamed<Form, T, kTiles>, maps,
                    CudaMatrix<const T>(params.x), params.w.base, params.bias,
                    params.y, LevelBytesOf<T>(form), shape);
}

}  // namespace

template <class Form>
absl::Status LaunchExpertStreamed(const ExpertLinearParams& params,
                                  const ExpertStreamedMaps& maps,
                                  const QuantForm& form, int row_tiles,
                                  const ExpertStreamedShape& shape,
                                  CudaStream& stream) {
  const auto launch = [&]<typename T>(T) {
    return row_tiles == 1 ? LaunchExpertStreamedTiles<Form, T, 1>(
                                params, maps, form, shape, stream)
                          : LaunchExpertStreamedTiles<Form, T, 2>(
                                params, maps, form, shape, stream);
  };
  return params.x.dtype == DType::kF16 ? launch(__half())
                                       : launch(__nv_bfloat16());
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_STREAMED_SM90_CUH_
