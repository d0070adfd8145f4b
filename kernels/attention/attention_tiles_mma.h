// attention on GPUs without Hopper's instructions (compute capability 8.0 and
// newer), a plan's tiles: many rows against many keys, where the matrix units
// are what counts. The kernel; attention_tiles_d*_mma.cu each compile it for
// one head_dim. Source: FlashAttention-2 (arXiv:2307.08691).
//
// Grid: a CTA a (tile, KV head), the longest first, as AttentionPlan has them:
// the device deals them out as multiprocessors become free. A tile's rows are
// tokens x the query heads of one KV head, so that no KV is read twice for a
// group. CTA: 128 rows; four warps of 32 (head_dim to 128), or eight of 16.
// Per block of kKeys keys, from the last to the first:
//   scores     m16n8k16, operands by ldmatrix: queries (kept in registers but
//              at head_dim 128), keys; softmax in registers
//   numerator  m16n8k16 of the weights, which are in the registers where they
//              belong, and of the values, by ldmatrix.trans
// Loads: a ring of stages, each the keys of a block or its values, filled by
// cp.async kStages - 1 of them ahead; a warp brings some rows of each.
// Barriers: __syncthreads before each stage is read, which also says that the
// one before has been: it is filled again right behind.
// Shared memory: 32 to 96 KB: one CTA fits where there are 100 KB, two of heads
// up to 128 where there are 164 (to 96: 100), as registers do, so that one's
// softmax falls into the other's products. Accumulation: float32.
// Roofline: a warp with 32 rows does four products for each ldmatrix of keys or
// values: of 64 keys at head_dim 128 a multiprocessor's shared memory takes
// 1280 cycles for four warps, its matrix units 2048 on an A100 and some 1640 on
// an H100 (mma.sync gets two thirds of wgmma's rate there), the softmax 500 in
// each of four schedulers, which two CTAs overlap. With 16 rows shared memory
// takes as long as an A100's matrix units do.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_MMA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_MMA_H_

#include <algorithm>
#include <type_traits>

#include "kernels/attention/attention_tiles_load_mma.h"
#include "kernels/attention/attention_tiles_rows.h"
#include "kernels/cuda_launch.cuh"
#include "memory/status.h"

namespace inlay::tiles_mma {

// What a thread's two rows of a fragment see without a mask (as
// tiles::TileRows). Ends of rows are found where a block needs them: registers
// are the products'.
template <int kKeys, int kWarpRows>
class PlainRows {
 public:
  // first_row: the warp's; row: the thread's first.
  __device__ void Find(const Args& args, const TileMask&,
                       const AttentionTile& tile, int, int first_row, int row) {
    const int rows = tile.num_tokens * args.group;
    base_ = args.causal ? tile.position + 1 : tile.key_end;
    row_ = row;
    first_end_ = EndOf(args, first_row);
    last_end_ = EndOf(args, min(first_row + kWarpRows, rows) - 1);
    if (first_row >= rows) last_end_ = 0;
  }
  __device__ float Scale(const Args& args, const TileMask&) const {
    return args.score_scale;
  }
  struct Seen {};
  __device__ Seen Look(const Args&, const TileMask&, bool) const { return {}; }
  // Whether any of the warp's rows sees a key of the block that begins there.
  __device__ bool SeesAny(const Args& args, int begin) const {
    return begin < last_end_ &&
           (args.window == 0 || begin + kKeys > first_end_ - args.window);
  }
  __device__ void Apply(const Args& args, const TileMask&, Seen, int lane,
                        int begin, bool, float (&s)[kKeys / 2]) const {
    if (begin + kKeys <= first_end_ &&
        (args.window == 0 || begin >= last_end_ - args.window)) {
      return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int end = EndOf(args, row_ + 8 * r) - begin - lane % 4 * 2;
      const int first = args.window > 0 ? end - args.window : -kKeys;
#pragma unroll
      for (int i = 2 * r; i < kKeys / 2; i += i % 2 == 0 ? 1 : 3) {
        const int key = i / 4 * 8 + i % 2;
        if (key < first || key >= end) s[i] = -INFINITY;
      }
    }
  }

 private:
  // Behind the last key that a row of the tile sees.
  __device__ int EndOf(const Args& args, int row) const {
    return args.causal ? base_ + args.group_rows.Quotient(row) : base_;
  }

  int base_;  // of row 0
  int row_;
  int first_end_;  // of the warp's first row
  int last_end_;   // of its last that exists; 0: none does
};

// A thread; of each of its warp's fragments of 16 rows it has two.
template <typename T, int kDim, bool kMasked>
class Worker {
 public:
  using S = Shape<kDim>;
  using Rows =
      std::conditional_t<kMasked, tiles::TileRows<Args, S::kKeys, true>,
                         PlainRows<S::kKeys, S::kWarpRows>>;

  __device__ Worker(const Args& args, const TileMask& mask,
                    const AttentionTile& tile, int head, uint32_t memory)
      : args_(args),
        mask_(mask),
        tile_(tile),
        head_(head),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        ring_(memory),
        along_(Place(lane_ % 16, lane_ / 16)),
        across_(Place(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2)) {}

  __device__ void Run() {
    float o[S::kFragments][kDim / 2];
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (float& x : o[f]) x = 0.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        m_[f][r] = -INFINITY;
        l_[f][r] = 0.0f;
      }
      rows_[f].Find(args_, mask_, tile_, head_, warp_ * S::kWarpRows, Row(f));
    }
    Attend(o);
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float l = l_[f][r];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        tiles::WriteRow<T, kMasked, kDim>(args_, mask_, rows_[f], tile_, head_,
                                          Row(f) + 8 * r, r, lane_, m_[f][r], l,
                                          o[f]);
      }
    }
  }

 private:
  using Scores = float[S::kFragments][S::kKeys / 2];
  using Weights = uint32_t[S::kFragments][S::kKeys / 16][4];
  using Sums = float[S::kFragments][kDim / 2];
  static constexpr int kAhead = S::kStages - 1;
  // Stages asked for before queries have passed through the ring.
  static constexpr int kFirst = std::min(kAhead, S::kFreeStages);

  // Of fragment f; the other is 8 rows on.
  __device__ int Row(int f) const {
    return warp_ * S::kWarpRows + f * 16 + lane_ / 4;
  }

  // What of a matrix in shared memory this lane tells ldmatrix: row `row`, the
  // first or second of two chunks.
  __device__ static uint32_t Place(int row, int half) {
    return static_cast<uint32_t>(row * S::kRowBytes +
                                 16 * (half ^ S::Swizzle(row)));
  }
  // The same of the 16 columns `step` of rows from 16 `rows` on.
  __device__ static uint32_t At(uint32_t matrix, int rows, int step) {
    const int inside = 32 * step % S::kSpanBytes;
    return (matrix ^ static_cast<uint32_t>(inside)) +
           static_cast<uint32_t>(32 * step - inside + rows * 16 * S::kRowBytes);
  }

  // Whether the warp has something to do with the block.
  __device__ bool Sees(int block) const {
    if constexpr (kMasked) {
      return warp_ * S::kWarpRows < tile_.num_tokens * args_.group;
    } else {
      return rows_[0].SeesAny(args_, block * S::kKeys);
    }
  }

  __device__ __forceinline__ void Attend(Sums& o) {
    KeyWalk<S::kKeys, kMasked> walk(tile_, mask_);
    if (kMasked && walk.done()) return;
    Loader<kDim, kMasked> loader(args_, mask_, tile_, head_, warp_, lane_,
                                 ring_);
    Begin(loader);
    at_ = 0;
    free_ = kAhead * S::kStageBytes;
#pragma unroll 1
    for (; !walk.done(); walk.Next()) {
      const bool sees = Sees(walk.block());
      Weights p;
      const uint32_t keys = NextStage<kAhead % 2 == 0>(loader);
      if (sees) {
        Scores s;
        MakeScores(keys, s);
        Softmax(walk.block() * S::kKeys, walk.partial(), s, o);
        Pack(s, p);
      }
      const uint32_t values = NextStage<kAhead % 2 != 0>(loader);
      if (sees) AddValues(values, p, o);
    }
  }

  // Asks for queries and the first stages.
  __device__ __forceinline__ void Begin(Loader<kDim, kMasked>& loader) {
    const uint32_t queries =
        ring_ +
        (S::kKeepQueries ? S::kFreeStages * S::kStageBytes : S::kRingBytes);
    BringQueries<kDim>(args_, tile_, head_, warp_, lane_, queries);
    BringFirst<0, kFirst>(loader);
    queries_ = queries + along_ +
               static_cast<uint32_t>(warp_ * S::kWarpRows * S::kRowBytes);
    if constexpr (S::kKeepQueries) {
      sm90::WaitCopies<kFirst>();
      __syncwarp();  // a warp's queries are its own
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) LoadQueries(step, q_[step]);
      __syncthreads();
      BringFirst<kFirst, kAhead>(loader);
    }
  }
  template <int kFrom, int kTo>
  __device__ __forceinline__ void BringFirst(Loader<kDim, kMasked>& loader) {
#pragma unroll
    for (int stage = kFrom; stage < kTo; ++stage) {
      if (stage % 2 == 0) {
        loader.BringKeys(stage * S::kStageBytes);
      } else {
        loader.BringValues(stage * S::kStageBytes);
      }
    }
  }

  // Waits for the next stage, and has the one before filled again. kOfKeys: by
  // keys.
  template <bool kOfKeys>
  __device__ __forceinline__ uint32_t NextStage(Loader<kDim, kMasked>& loader) {
    sm90::WaitCopies<kAhead - 1>();
    __syncthreads();
    if constexpr (kOfKeys) {
      loader.BringKeys(free_);
    } else {
      loader.BringValues(free_);
    }
    const uint32_t stage = at_;
    free_ = stage;
    at_ = stage == kAhead * S::kStageBytes ? 0 : stage + S::kStageBytes;
    return ring_ + stage;
  }

  __device__ __forceinline__ void LoadQueries(
      int step, uint32_t (&q)[S::kFragments][4]) const {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
      sm90::LoadMatrix4(q[f], At(queries_, f, step));
    }
  }

  __device__ static void MultiplyAdd(float* sums, const uint32_t (&a)[4],
                                     uint32_t b0, uint32_t b1) {
    sm90::Mma16816<T>(*reinterpret_cast<float(*)[4]>(sums), a, b0, b1);
  }

  // Matrices: keys 0-7 of the step's first 8 columns, of the next; keys 8-15.
  __device__ __forceinline__ void MakeScores(uint32_t keys, Scores& s) {
    keys += across_;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (float& x : s[f]) x = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t(&q)[S::kFragments][4] = q_[S::kKeepQueries ? step : 0];
      if constexpr (!S::kKeepQueries) LoadQueries(step, q);
#pragma unroll
      for (int pair = 0; pair < S::kKeys / 16; ++pair) {
        uint32_t k[4];
        sm90::LoadMatrix4(k, At(keys, pair, step));
#pragma unroll
        for (int f = 0; f < S::kFragments; ++f) {
          MultiplyAdd(&s[f][8 * pair], q[f], k[0], k[1]);
          MultiplyAdd(&s[f][8 * pair + 4], q[f], k[2], k[3]);
        }
      }
    }
  }

  // Scores of keys from `begin` on to weights; o is rescaled where a maximum
  // has grown. Step by step for all fragments: what is between two branches is
  // what the compiler can interleave.
  __device__ __forceinline__ void Softmax(int begin, bool partial, Scores& s,
                                          Sums& o) {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) tiles::CapScores(args_, s[f]);
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
      rows_[f].Apply(args_, mask_, rows_[f].Look(args_, mask_, partial), lane_,
                     begin, partial, s[f]);
    }
    float rescale[S::kFragments][2];
    bool changes = false;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
      tiles::MakeWeights(rows_[f].Scale(args_, mask_), s[f], m_[f], l_[f],
                         rescale[f]);
      changes = changes || rescale[f][0] != 1.0f || rescale[f][1] != 1.0f;
    }
    if (!__any_sync(0xffffffffu, changes)) return;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i) o[f][i] *= rescale[f][i / 2 % 2];
    }
  }

  // What the scores' instruction leaves in a lane is what the numerator's takes
  // from it.
  __device__ static void Pack(const Scores& s, Weights& p) {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int i = 0; i < S::kKeys / 16; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          p[f][i][j] =
              sm90::Pack<T>(s[f][8 * i + 2 * j], s[f][8 * i + 2 * j + 1]);
        }
      }
    }
  }

  // Matrices, transposed: keys 0-7 of the 16 columns' first 8, keys 8-15; of
  // the next.
  __device__ __forceinline__ void AddValues(uint32_t values, const Weights& p,
                                            Sums& o) const {
    values += along_;
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
#pragma unroll
      for (int pair = 0; pair < kDim / 16; ++pair) {
        uint32_t v[4];
        sm90::LoadMatrix4Transposed(v, At(values, step, pair));
#pragma unroll
        for (int f = 0; f < S::kFragments; ++f) {
          MultiplyAdd(&o[f][8 * pair], p[f][step], v[0], v[1]);
          MultiplyAdd(&o[f][8 * pair + 4], p[f][step], v[2], v[3]);
        }
      }
    }
  }

  const Args& args_;
  const TileMask& mask_;
  const AttentionTile& tile_;
  int head_;
  int warp_;
  int lane_;
  uint32_t ring_;
  // Of the lane, in a matrix: of queries and values; of keys.
  uint32_t along_;
  uint32_t across_;
  uint32_t queries_ = 0;  // the lane's place
  uint32_t at_ = 0;       // the next stage; bytes from ring_ on
  uint32_t free_ = 0;     // the one to be filled
  Rows rows_[S::kFragments];
  uint32_t q_[S::kKeepQueries ? kDim / 16 : 1][S::kFragments][4];
  float m_[S::kFragments][2];  // in units of the scores
  float l_[S::kFragments][2];  // this thread's part
};

// kMasked: there is a mask, or ALiBi.
template <typename T, int kDim, bool kMasked>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, Shape<kDim>::kCtas)
    AttentionTiles(const __grid_constant__ Args args,
                   const __grid_constant__ TileMask mask) {
  LetNextBegin();
  extern __shared__ __align__(128) unsigned char memory[];
  using S = Shape<kDim>;
  WaitForPrevious();
  auto* tile = reinterpret_cast<AttentionTile*>(memory + S::kTileAt);
  const int block = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) *tile = args.tiles[block / args.num_kv_heads];
  __syncthreads();
  Worker<T, kDim, kMasked>(args, mask, *tile, block % args.num_kv_heads,
                           sm90::SharedAddress(memory))
      .Run();
}

inline Args MakeArgs(const AttentionDesc& desc, const AttentionParams& params) {
  const AttentionPlan& plan = *params.plan;
  const KvLayerView& kv = params.kv;
  const auto bytes = [](std::byte* at) {
    return reinterpret_cast<const unsigned char*>(at);
  };
  Args args;
  args.tiles =
      reinterpret_cast<const AttentionTile*>(plan.device + plan.layout.tiles);
  args.blocks =
      reinterpret_cast<const int32_t*>(plan.device + plan.layout.blocks);
  args.sinks = params.sinks;
  args.q = bytes(params.q.data);
  args.out = params.out.data;
  args.keys = bytes(kv.base.base + kv.k_offset_bytes);
  args.to_values = kv.v_offset_bytes - kv.k_offset_bytes;
  args.block_stride = kv.block_stride_bytes;
  args.head_stride = kv.block_size * kv.row_bytes();
  args.q_stride = static_cast<int64_t>(params.q.row_stride_bytes);
  args.out_stride = static_cast<int64_t>(params.out.row_stride_bytes);
  args.block_slots = LaunchDivisor(kv.block_size);
  args.num_kv_heads = desc.num_kv_heads;
  args.group = plan.shape.group;
  args.group_rows = LaunchDivisor(plan.shape.group);
  args.window = desc.window;
  args.causal = desc.causal;
  const bool caps = desc.softcap > 0.0f;
  args.score_scale = caps ? 1.0f : desc.scale * kLog2E;
  args.softcap = desc.softcap * kLog2E;
  args.cap_scale = caps ? 2 * kLog2E * desc.scale / desc.softcap : 0.0f;
  return args;
}

inline TileMask MakeMask(const AttentionParams& params) {
  const AttentionPlan& plan = *params.plan;
  TileMask mask;
  mask.mask = MakeAttentionMaskArgs(params);
  if (plan.masked) {
    mask.runs = reinterpret_cast<const AttentionKeyRun*>(plan.device +
                                                         plan.layout.runs);
  }
  return mask;
}

template <typename T, int kDim>
absl::Status Launch(const AttentionDesc& desc, const AttentionParams& params,
                    CudaStream& stream) {
  using S = Shape<kDim>;
  static_assert(S::kBytes <= kSharedMost);
  const int64_t grid = int64_t{params.plan->num_tiles} * desc.num_kv_heads;
  return LaunchCuda("attention (tiles)", stream,
                    {grid, S::kThreads, static_cast<size_t>(S::kBytes)},
                    HasMask(params) ? AttentionTiles<T, kDim, true>
                                    : AttentionTiles<T, kDim, false>,
                    MakeArgs(desc, params), MakeMask(params));
}

// The plan's tiles, for the head_dim that a file is compiled for.
template <int kDim>
absl::Status LaunchDim(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  return desc.kv == DType::kF16
             ? Launch<__half, kDim>(desc, params, stream)
             : Launch<__nv_bfloat16, kDim>(desc, params, stream);
}

}  // namespace inlay::tiles_mma

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_MMA_H_
