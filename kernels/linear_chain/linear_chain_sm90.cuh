// linear_chain over packed quantised weights on Hopper, for up to kChainRows
// rows of x. Included by the linear_chain_*_sm90.cu, each of which instantiates
// some forms.
//
// Mapping: a block of 16 warps on every multiprocessor, all there at once, and
// one more warp that copies. A job is a tile of 16 rows of w (two where gated:
// gate and up); a block has neighbouring jobs. Of every tile a warp multiplies
// the units of K whose number is its own modulo 16, so that it needs no more of
// x than it makes for itself. The warps' sums meet in shared memory, where
// threads finish outputs: the one time in a stage that a block's warps meet. A
// stage that is alone has rounds, as many as it takes to have room for sums.
//
// Weights: one thread copies, units of a tile for 16 or 8 warps, in the order
// in which warps multiply, and on through the stages to come, whatever they
// wait for. So memory is read while a stage ends and the next one's x is made.
//
// Between stages outputs are handed on as words that are zero until they are
// there (chain_input.cuh). There is no other order between blocks: a fence
// would wait for all copies that are under way. The launch is cooperative: it
// fails rather than wait for blocks that have no room.
//
// Arithmetic: chain_unit.cuh. The norm's factor multiplies sums of products, so
// that x waits for nothing but hidden; the normalised row is not rounded to 16
// bits between. Sums of squares and of products are added warp by warp, in
// ascending order, then bias and residual. What a row gives does not depend on
// the rows beside it.
//
// Mixtures of experts (ChainMixture): a stage over gates and ups of all slots,
// and one whose K is all slots' columns; which experts, chain_routing.cuh. Who
// copies waits for that choice, once.
//
// Roofline: the packed bytes over the copy bandwidth. README.md: how far off.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_SM90_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_SM90_CUH_

#include <type_traits>

#include "kernels/cuda_launch.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/linear_chain/chain_finish.cuh"
#include "kernels/linear_chain/chain_input.cuh"
#include "kernels/linear_chain/chain_routing.cuh"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/chain_tiles.cuh"
#include "kernels/linear_chain/chain_unit.cuh"
#include "kernels/linear_chain/chain_x.cuh"

namespace inlay {
namespace {

// Tiles that a warp multiplies at once: they share what is loaded of x. With
// experts two would leave registers to memory, which takes long beside copies.
template <bool kExperts>
constexpr int kChainTiles = kExperts ? 1 : 2;

// What experts have of stage s.
template <bool kExperts>
__device__ inline ChainExperts PartOf(const ChainShape& shape, int s) {
  if (!kExperts || shape.mixture.input < 0) return ChainExperts::kNone;
  return s == shape.mixture.input       ? ChainExperts::kInput
         : s == shape.mixture.input + 1 ? ChainExperts::kOutput
                                        : ChainExperts::kNone;
}

// Weights to a place of the ring.
__device__ inline void CopyUnits(uint32_t to, const uint8_t* from,
                                 uint32_t bytes, uint32_t barrier,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
      "L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// What weights are copied by: addresses of packed ones are in ChainShape.
struct NoChainMaps {};
template <class Forms>
using ChainMapsOf =
    std::conditional_t<Forms::First::kPlain, ChainMaps, NoChainMaps>;

// The thread that copies: all units of the block's tiles, stage by stage.
template <class Forms, bool kAlone, bool kExperts>
__device__ void FeedRing(const ChainShape& shape,
                         const ChainMapsOf<Forms>& maps, ChainChoice* choice,
                         uint32_t ring, uint32_t full, uint32_t empty) {
  constexpr bool kPlain = Forms::First::kPlain;
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  RingTurn turn, arrived;
  int under_way = 0;
#pragma unroll 1
  for (int s = 0; s < (kAlone ? 1 : shape.count); ++s) {
    const ChainStage& stage = shape.stages[s];
    const int units = stage.units, most = stage.under_way;
    const int unit_bytes = Forms::kMixed && stage.second
                               ? Forms::Second::kUnitBytes
                               : Forms::First::kUnitBytes;
    const ChainExperts part_of = PartOf<kExperts>(shape, s);
    if (part_of == ChainExperts::kInput) {
      Await(static_cast<uint32_t>(__cvta_generic_to_shared(&choice->made)), 0);
    }
#pragma unroll 1
    for (int round = 0; round < (kAlone ? stage.rounds : 1); ++round) {
      const ChainTiles tiles =
          kAlone ? ChainTiles(stage, round) : ChainTiles(stage);
#pragma unroll 1
      for (int tile = 0; tile < tiles.count; tile += kChainTiles<kExperts>) {
#pragma unroll 1
        for (int first = 0; first < units; first += kChainWarps) {
#pragma unroll 1
          for (int i = tile; i < min(tile + kChainTiles<kExperts>, tiles.count);
               ++i) {
#pragma unroll
            for (int part = 0; part < Forms::kParts; ++part) {
              const int begin = first + part * Forms::kPlaceUnits;
              int count = max(min(units - begin, Forms::kPlaceUnits), 0);
              if (kPlain) {
                count = (count + stage.box_units - 1) / stage.box_units *
                        stage.box_units;
              }
              const auto bytes = static_cast<uint32_t>(count * unit_bytes);
              const uint32_t barrier = full + 8 * turn.stage;
              for (; under_way >= most; --under_way) {
                Await(full + 8 * arrived.stage, arrived.parity);
                arrived.Next(shape.ring);
              }
              ++under_way;
              Await(empty + 8 * turn.stage, turn.parity ^ 1);
              Expect(barrier, bytes);
              const uint32_t to = ring + turn.stage * Forms::kPlaceBytes;
              // Of `tile`, to the place's units from `at` on.
              const auto copy_boxes = [&](const ChainTile& tile, int at,
                                          int unit, int units_of_tile) {
                if constexpr (kPlain) {
                  const CUtensorMap& map =
                      tile.shared
                          ? maps.shared[part_of == ChainExperts::kOutput]
                          : maps.stages[s];
#pragma unroll 1
                  for (int u = 0; u < units_of_tile; u += stage.box_units) {
                    CopyBox(to + (at + u) * unit_bytes, map,
                            tile.number * kQuantRows, (unit + u) * kPlainBoxes,
                            barrier);
                  }
                }
              };
              if (part_of == ChainExperts::kOutput) {
                // Units of several experts, each's neighbours in one copy.
                const ChainExpertTiles at(stage, shape.mixture, tiles,
                                          choice->experts);
                const int end = min(begin + Forms::kPlaceUnits, units);
#pragma unroll 1
                for (int unit = begin; unit < end;) {
                  const ChainExpertUnit first_of(shape.mixture, unit);
                  const int left =
                      first_of.slot == shape.mixture.slots
                          ? end - unit
                          : shape.mixture.output_units.divisor() - first_of.own;
                  const int of_tile = min(left, end - unit);
                  if constexpr (kPlain) {
                    copy_boxes(at.Output(i, first_of.slot), unit - begin,
                               first_of.own, of_tile);
                  } else {
                    CopyUnits(to + (unit - begin) * unit_bytes,
                              at.OutputAt(i, first_of.slot) + kQuantHeadBytes +
                                  first_of.own * unit_bytes,
                              of_tile * unit_bytes, barrier, policy);
                  }
                  unit += of_tile;
                }
              } else if (kPlain) {
                const ChainExpertTiles at(stage, shape.mixture, tiles,
                                          choice->experts);
                copy_boxes(part_of == ChainExperts::kInput
                               ? at.Input(i)
                               : tiles.Tile(stage, i),
                           0, begin, count);
              } else if (Forms::kParts == 1 || bytes > 0) {
                const uint8_t* from;
                if (part_of == ChainExperts::kInput) {
                  from = ChainExpertTiles(stage, shape.mixture, tiles,
                                          choice->experts)
                             .InputAt(i);
                } else {
                  from = tiles.At(stage, i);
                }
                CopyUnits(to, from + kQuantHeadBytes + begin * unit_bytes,
                          bytes, barrier, policy);
              }
              turn.Next(shape.ring);
            }
          }
        }
      }
    }
  }
}

// A warp's products, of weights that lie as Form, one of Forms. kExperts: rows
// of w have factors of their own in units of different experts, `factors`;
// null: none.
template <class Forms, class Form, int kRows, bool kExperts>
class ChainProducts {
 public:
  __device__ ChainProducts(const ChainStage& stage, const ChainShape& shape,
                           uint32_t base, const float* factors)
      : mixture_(shape.mixture),
        levels_(shape.levels),
        row_factors_(factors),
        units_(stage.units),
        ring_(shape.ring),
        base_(base),
        places_(base + shape.at.ring +
                warp() % Forms::kPlaceUnits * Form::kUnitBytes),
        facts_(base + shape.at.facts + row() * Forms::kFactsOfX * 4 +
               warp() * kFactBytes) {
    // Columns of products that are nobody's are the first's.
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t plane = lane % 4 < kPlanes ? lane % 4 : 0;
    x_ = base + shape.at.x + lane / 8 * 16;
    zeros_ = x_ + kRows * kPlanes * shape.at.x_stride;
    x_ += warp() * kPlaneBytes +
          (RowRead() * kPlanes + plane) * shape.at.x_stride;
  }

  // The warp's units of kTiles tiles, whose places begin at `turn`, and the
  // sums of each to `partials`.
  // `tile`: the first's number, of the block's.
  template <int kTiles>
  __device__ void Run(int tile, RingTurn& turn, float* partials) const {
    ChainSums sums[kTiles];
#pragma unroll 1
    for (int first = 0; first < units_; first += kChainWarps) {
      uint32_t w[kTiles];
      const RingTurn begin = turn;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const RingTurn own = OwnPart(turn);
        w[i] = places_ + own.stage * Forms::kPlaceBytes;
        Await(base_ + 8 * own.stage, own.parity);
        NextTile(turn);
      }
      if (first + static_cast<int>(warp()) < units_) {
        const ChainUnitOfX<Form> x(XOf(first), facts_ + first * kFactBytes);
        const int unit = first + static_cast<int>(warp());
        if constexpr (kTiles == 2) {
          const ChainUnit<Form> one(w[0]), two(w[1]);
          one.AddTo(x, levels_, sums[0], Rows(tile, unit));
          two.AddTo(x, levels_, sums[1], Rows(tile + 1, unit));
        } else {
          const ChainUnit<Form> one(w[0]);
          one.AddTo(x, levels_, sums[0], Rows(tile, unit));
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        RingTurn done = begin;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          Arrive(base_ + 8 * (kMostChainRing + OwnPart(done).stage));
          NextTile(done);
        }
      }
    }
    const bool stores = threadIdx.x % 2 == 0 && threadIdx.x % 4 / 2 < kRows;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const float2 total = sums[i].template Total<Form>(levels_);
      if (!stores) continue;
      float* to = partials + i * ChainPartials(kRows) +
                  (warp() * kRows + row()) * kQuantRows + threadIdx.x % 32 / 4;
      to[0] = total.x;
      to[8] = total.y;
    }
  }

 private:
  // Where ldmatrix finds the lane's part of the warp's unit of x, of 16 from
  // `first` on.
  __device__ uint32_t XOf(int first) const {
    if (kExperts && kRows > 1 && row_factors_ != nullptr) {
      const int unit = first + static_cast<int>(warp());
      const int slot = ChainExpertUnit(mixture_, unit).slot;
      const int of_row = mixture_.UnitOfRow(RowRead(), unit, slot);
      if (of_row < 0) return zeros_;
      first += of_row - unit;
    }
    return x_ + first * kPlaneBytes;
  }
  // Factors of the lane's rows of w.
  __device__ float2 Rows(int tile, int unit) const {
    if (!kExperts || Form::kPlain || row_factors_ == nullptr) {
      return {1.0f, 1.0f};
    }
    const int slot = ChainExpertUnit(mixture_, unit).slot;
    const float* at = row_factors_ +
                      (tile * mixture_.parts() + slot) * kQuantRows +
                      threadIdx.x % 32 / 4;
    return {at[0], at[8]};
  }
  // Of a tile whose places begin at `turn`, the warp's.
  __device__ RingTurn OwnPart(RingTurn turn) const {
    if (Forms::kParts > 1)
      Pass(static_cast<int>(warp()) / Forms::kPlaceUnits, turn);
    return turn;
  }
  __device__ void NextTile(RingTurn& turn) const { Pass(Forms::kParts, turn); }
  // At most a whole ring.
  __device__ void Pass(int places, RingTurn& turn) const {
    turn.stage += places;
    if (turn.stage >= ring_) {
      turn.stage -= ring_;
      turn.parity ^= 1;
    }
  }
  static constexpr uint32_t kPlanes = ChainPlanes(Form::kX);
  static constexpr uint32_t kPlaneBytes = ChainPlaneBytes(Form::kX);
  static constexpr uint32_t kFactBytes = kRows * Forms::kFactsOfX * 4;
  __device__ static uint32_t warp() { return threadIdx.x / 32; }
  // Of x, of which the lane gives ldmatrix an address.
  __device__ static int RowRead() {
    return static_cast<int>(threadIdx.x % 8 / 4 % kRows);
  }
  // Of x, that the lane has in products.
  __device__ static uint32_t row() { return threadIdx.x % 4 / 2 % kRows; }

  const ChainMixture& mixture_;
  LevelsOf<Form> levels_;
  const float* row_factors_;
  int units_;
  int ring_;
  uint32_t base_;
  uint32_t places_;
  uint32_t facts_;
  uint32_t x_;
  uint32_t zeros_;
};

// The warp's units of the block's tiles, its sums of each to `partials`.
template <class Forms, class Form, int kRows, bool kExperts>
__device__ void MultiplyChain(const ChainStage& stage, const ChainShape& shape,
                              const ChainTiles& tiles, uint32_t base,
                              const float* factors, RingTurn& turn,
                              float* partials) {
  const ChainProducts<Forms, Form, kRows, kExperts> products(stage, shape, base,
                                                             factors);
  constexpr int kTiles = kChainTiles<kExperts>;
  int left = tiles.count;
#pragma unroll 1
  for (; left >= kTiles; left -= kTiles) {
    products.template Run<kTiles>(tiles.count - left, turn, partials);
    partials += kTiles * ChainPartials(kRows);
  }
  if (left > 0) products.template Run<1>(tiles.count - left, turn, partials);
}

// With more, chains of 4 bits leave registers to memory.
static_assert(sizeof(ChainShape) % 8 == 0 && sizeof(ChainShape) <= 1024);

// kRows: of x. kAlone: one stage. kExperts: some may be a mixture's.
template <class Forms, typename T, int kRows, bool kAlone, bool kExperts>
__global__ void __launch_bounds__(kChainBlock, 1)
    LinearChain(const __grid_constant__ ChainShape given,
                const __grid_constant__ ChainMapsOf<Forms> maps) {
  extern __shared__ __align__(1024) uint8_t chain_shared[];
  const auto base =
      static_cast<uint32_t>(__cvta_generic_to_shared(chain_shared));
  if (threadIdx.x >= kChainThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    const uint32_t full = base, empty = base + kMostChainRing * 8;
    if (threadIdx.x == kChainThreads) {
#pragma unroll 1
      for (int i = 0; i < given.ring; ++i) {
        InitBarrier(full + 8 * i, 1);
        InitBarrier(empty + 8 * i, Forms::kPlaceUnits);
      }
      if (kExperts) InitBarrier(base + given.at.choice, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // The others wait for the barriers; who copies waits for nobody.
    __syncwarp();
    asm volatile("bar.arrive 2, %0;" ::"n"(kChainBlock) : "memory");
    if (threadIdx.x == kChainThreads) {
      FeedRing<Forms, kAlone, kExperts>(
          given, maps,
          reinterpret_cast<ChainChoice*>(chain_shared + given.at.choice),
          base + given.at.ring, full, empty);
    }
    return;
  }
  LetNextBegin();
  // A stage's description would come from memory when the stage begins.
  auto* const words =
      reinterpret_cast<uint32_t*>(chain_shared + kChainBarriers);
  constexpr int kLine = 16;  // words, of a warp: it reads one at a time
  static_assert(sizeof(ChainShape) / 4 <= kChainWarps * kLine);
#pragma unroll
  for (int i = 0; i < kLine; ++i) {
    const unsigned word = threadIdx.x / 32 * kLine + i;
    if (word < sizeof(ChainShape) / 4 && threadIdx.x % 32 == i) {
      words[word] = reinterpret_cast<const uint32_t*>(&given)[word];
    }
  }
  const ChainShape& shape = *reinterpret_cast<const ChainShape*>(words);
  asm volatile("bar.sync 2, %0;" ::"n"(kChainBlock) : "memory");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
  WaitForPrevious();
  uint8_t* handed = nullptr;
  if constexpr (!kAlone) {
    const uint32_t launches = __ldcg(&shape.exchange->launches);
    handed = ChainHandedOn(shape.exchange, launches);
    ForgetHandedOn(ChainHandedOn(shape.exchange, launches + 1),
                   __ldcg(&shape.exchange->handed));
  }
  // In chains of 4 bits the loop over rounds, which runs once, makes code that
  // is 2 % faster; in those of 8 bits it is slower.
  using First = typename Forms::First;
  constexpr bool kRounds = kAlone || (First::kNibbles && !kExperts);
  auto& choice =
      *reinterpret_cast<ChainChoice*>(chain_shared + shape.at.choice);
  auto* const factors =
      reinterpret_cast<float*>(chain_shared + shape.at.factors);
  constexpr ChainX kX = First::kX;
  if (kExperts && kRows > 1 && threadIdx.x < ChainPlaneBytes(kX) / 4) {
    *reinterpret_cast<uint32_t*>(chain_shared + shape.at.x +
                                 kRows * ChainPlanes(kX) * shape.at.x_stride +
                                 threadIdx.x * 4) = 0;
  }
  RingTurn turn;
  bool has_x = false;  // the stage's
  unsigned made = 0;   // x, so far
#pragma unroll 1
  for (int s = 0; s < (kAlone ? 1 : shape.count); ++s) {
    const ChainStage& stage = shape.stages[s];
    const ChainExperts part = PartOf<kExperts>(shape, s);
    has_x = has_x && stage.same_x;
#pragma unroll 1
    for (int round = 0; round < (kRounds ? stage.rounds : 1); ++round) {
      const ChainTiles tiles =
          kRounds ? ChainTiles(stage, round) : ChainTiles(stage);
      // Whoever has nothing to do with the inputs of experts gives logits and
      // has to know the choice.
      if (tiles.jobs == 0 && part != ChainExperts::kInput) {
        // Others of the block may still read what the next stage overwrites.
        ChainMeet();
        continue;
      }
      if (!has_x) ++made;
      auto* const squares =
          reinterpret_cast<float*>(chain_shared + shape.at.squares) +
          made % 2 * (kChainRows * kChainWarps);
      auto* const partials = reinterpret_cast<float*>(
          chain_shared + shape.at.partials[(s + round) % 2]);
      ChainFinish<T, kRows, First::kPlain, kExperts> finish(
          stage, shape, tiles, part, choice, factors);
      if (part != ChainExperts::kInput) finish.Begin();
      if (has_x) {
        // Made for a round or a stage before.
      } else if (stage.x == nullptr) {
        MakeChainX<First, T, kRows, true, kExperts>(stage, part, shape, handed,
                                                    chain_shared, squares);
      } else {
        MakeChainX<First, T, kRows, false, kExperts>(stage, part, shape, handed,
                                                     chain_shared, squares);
      }
      has_x = true;
      if (part == ChainExperts::kInput) {
        ChooseExperts<kRows>(stage, shape.mixture, squares, handed, choice);
        finish.Begin();
        PrepareOutputs<kRows, First::kPlain>(shape.stages[s + 1], shape.mixture,
                                             handed, choice, factors);
      }
      const float* const row_factors =
          part == ChainExperts::kOutput ? factors : nullptr;
      if (Forms::kMixed && stage.second) {
        MultiplyChain<Forms, typename Forms::Second, kRows, kExperts>(
            stage, shape, tiles, base, row_factors, turn, partials);
      } else {
        MultiplyChain<Forms, First, kRows, kExperts>(
            stage, shape, tiles, base, row_factors, turn, partials);
      }
      if (part == ChainExperts::kInput) AwaitRowFactors();
      ChainMeet();
      finish.Run(partials, squares, handed);
    }
  }
  if (kAlone) return;
  // Each block has read what the last of all writes for the next launch.
  ChainMeet();
  if (threadIdx.x == 0) {
    ChainExchange* const exchange = shape.exchange;
    if (atomicInc(&exchange->ended, gridDim.x - 1) == gridDim.x - 1) {
      exchange->launches = __ldcg(&exchange->launches) + 1;
      exchange->handed = shape.handed;
    }
  }
}

// Cooperative where blocks wait for each other: all are there at once, or the
// launch fails. It may begin before the kernel before it has ended, as those of
// LaunchCuda.
template <class Forms, typename T, int kRows, bool kAlone, bool kExperts>
absl::Status LaunchChainRows(const ChainShape& shape,
                             const ChainMapsOf<Forms>& maps,
                             CudaStream& stream) {
  constexpr char kWhat[] = "linear_chain";
  stream.set_last_waited_first(false);
  const auto kernel = LinearChain<Forms, T, kRows, kAlone, kExperts>;
  INLAY_RETURN_IF_ERROR(AllowShared(
      kWhat, reinterpret_cast<const void*>(kernel), shape.at.bytes));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(stream.num_sms()));
  config.blockDim = dim3(kChainBlock);
  config.dynamicSmemBytes = shape.at.bytes;
  config.stream = stream.handle();
  config.attrs = attributes;
  config.numAttrs = kAlone ? 1 : 2;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, shape, maps), kWhat);
}

template <class Forms, typename T, bool kAlone, bool kExperts>
absl::Status LaunchChainTyped(const ChainShape& shape,
                              const ChainMapsOf<Forms>& maps,
                              CudaStream& stream) {
  return shape.m == 1 ? LaunchChainRows<Forms, T, 1, kAlone, kExperts>(
                            shape, maps, stream)
                      : LaunchChainRows<Forms, T, kChainRows, kAlone, kExperts>(
                            shape, maps, stream);
}

template <class Forms, typename T>
absl::Status LaunchChainStages(const ChainShape& shape, CudaStream& stream) {
  if (shape.mixture.input >= 0) {
    return LaunchChainTyped<Forms, T, false, true>(shape, {}, stream);
  }
  if constexpr (!Forms::kMixed) {
    if (shape.count == 1) {
      return LaunchChainTyped<Forms, T, true, false>(shape, {}, stream);
    }
  }
  return LaunchChainTyped<Forms, T, false, false>(shape, {}, stream);
}

}  // namespace

template <class First, class Second = First>
absl::Status LaunchChain(const ChainShape& shape, DType type,
                         CudaStream& stream) {
  using Forms = ChainForms<First, Second>;
  return type == DType::kF16
             ? LaunchChainStages<Forms, __half>(shape, stream)
             : LaunchChainStages<Forms, __nv_bfloat16>(shape, stream);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_LINEAR_CHAIN_SM90_CUH_
