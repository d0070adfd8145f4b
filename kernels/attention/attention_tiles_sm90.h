// attention on Hopper, a plan's tiles: many rows against many keys, where the
// matrix units are what counts. The kernel; attention_tiles_d*_sm90.cu each
// compile it for one head_dim. Source: FlashAttention-3 (arXiv:2407.08608).
//
// Grid: one CTA a multiprocessor; CTAs take (tile, kv head) after (tile, kv
// head) off a counter, the longest first. A tile's rows are tokens x the query
// heads of one KV head, 64 for each computing warpgroup. CTA: warpgroup 0
// loads (one warp of it), the others compute.
//   load     warp 0 takes the next tile and loads its queries, then keys from
//            the last block to the first; warp 1 loads values. By the copy
//            engine into rings; a box is 64 columns x BoxRows() slots of one
//            cache block, and a lane issues one box
//   compute  per block of kKeys: scores by wgmma (64 x kKeys, operands in
//   shared
//            memory), softmax in registers, numerator by wgmma (weights in
//            registers as the left operand). The next scores are in the matrix
//            units while the softmax runs, and warpgroups take turns to issue
//            (named barriers 2 ..), so that one's softmax falls into the
//            other's matrix time.
// In pieces (kPieces, AttentionPlanShape::piece_keys) a tile's keys are gone
// through as several tiles' would be, and results fold
// (attention_tiles_pieces_sm90.h); warpgroups without rows only keep the turns.
// Registers: numerator and scores in float32, weights in the cache's format.
// Barriers: full/empty of each stage of keys and of values; full/empty of the
// queries, which also hand over the tile itself.
// Shared memory: queries [slab][rows][128 B] | keys, values
// [stage][slab][kKeys] [128 B] | Head. Roofline: the matrix units; 2^x takes
// half as long as they do at head_dim 128, and as long at 64.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_TILES_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_TILES_SM90_H_

#include <algorithm>

#include "kernels/attention/attention_tiles_load_sm90.h"
#include "kernels/attention/attention_tiles_rows.h"
#include "kernels/attention/wgmma_sm90.h"
#include "kernels/cuda_launch.cuh"
#include "memory/status.h"

namespace inlay::tiles_sm90 {

constexpr int kTurnBarrier = 2;  // + the computing warpgroup
constexpr int kClearBarrier = 6;

// A thread of a computing warpgroup; it has two rows, r = 0 and 1.
template <typename T, int kDim, bool kMasked, int kValueDim = kDim,
          int kRopeDim = 0, bool kPieces = false>
class Worker {
 public:
  using S = Shape<kDim, kValueDim, kRopeDim>;
  using Scores = sm90::Wgmma<T, S::kKeys>;
  using Values = sm90::Wgmma<T, kValueDim>;
  using Rows = TileRows<TileArgs, S::kKeys, kMasked>;

  __device__ Worker(const TileArgs& args, const TileMask& mask,
                    const Shared<kDim, kValueDim, kRopeDim>& shared, int group)
      : args_(args),
        mask_(mask),
        shared_(shared),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
        lane_(thread_ % 32) {}

  __device__ void Run() {
    if (group_ == S::kGroups - 1) PassTurn();
    for (uint32_t phase = 0;; phase ^= 1) {
      sm90::Wait(&shared_.head->query_full, phase);
      head_ = shared_.head->head;
      if (head_ < 0) break;
      tile_ = shared_.head->tile;
      RunTile();
    }
  }

 private:
  static constexpr int kScoreRegisters = S::kKeys / 2;
  static constexpr int kOutRegisters = kValueDim / 2;

  __device__ void TakeTurn() const {
    sm90::SyncNamed(kTurnBarrier + group_, 2 * kWarpgroup);
  }
  __device__ void PassTurn() const {
    sm90::ArriveNamed(kTurnBarrier + (group_ + 1) % S::kGroups, 2 * kWarpgroup);
  }

  __device__ void RunTile() {
    FindRows();
    float o[kOutRegisters];
    if constexpr (S::kKeepQueries) {
      KeepQueries();
      ReleaseQueries();
    }
    if constexpr (kPieces) {
      if (!RunPieces(o)) return;
    } else {
      KeyWalk<S::kKeys, kMasked> walk(tile_, mask_);
      if (kMasked && walk.done()) return WriteNothing(o);
      Attend(walk, o);
    }
    WriteOut(o);
  }

  // Leaves the rows' results in o and sums; whether they are to be written.
  __device__ bool RunPieces(float (&o)[kOutRegisters]) {
    const int rows = tile_.num_tokens * args_.group;
    const int warp = group_ * 4 + thread_ / 32;
    const float scale = rows_.Scale(args_, mask_);
    const bool exists[2] = {Row(0) < rows, Row(1) < rows};
    const PieceSlot<kValueDim> own(
        args_.pieces.own +
        (static_cast<int>(blockIdx.x) * (S::kRows / 16) + warp) *
            PieceSlot<kValueDim>::kBytes);
    PieceSums total = {};
    const int keys = args_.pieces.keys;
    const int first = tile_.key_begin / keys;
    const int last = (tile_.key_end - 1) / keys;
#pragma unroll 1
    for (int piece = last; piece >= first; --piece) {
      PieceWalk<S::kKeys> walk(tile_, piece * keys, (piece + 1) * keys);
      if (group_ * 64 >= rows) {
        KeepTurns(walk);
        continue;
      }
      Clear();
      Attend(walk, o);
      const PieceSums part = {{m_[0], m_[1]}, {l_[0], l_[1]}};
      if (piece == last) {
        total = part;
      } else {
        const PieceFactors factors(total, part, scale);
        own.ForEach(exists, [&](int i, int r, float x) {
          o[i] = factors.Fold(r, x, o[i]);
        });
      }
      if (piece > first) own.Store(o, total, exists);
    }
    if (warp * 16 >= rows) return false;
    if (tile_.pieces > 1) {
      const PieceRows<kValueDim> pieces(args_.pieces, tile_, head_, rows, warp);
      if (!pieces.Finish(o, total, exists, scale)) return false;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_[r] = total.m[r];
      l_[r] = total.l[r];
    }
    return true;
  }

  // What Attend does but for the work.
  __device__ void KeepTurns(PieceWalk<S::kKeys>& walk) {
    bool begun = false;
    for (; !walk.done(); walk.Next()) {
      if (begun) ClearUnseenValues(walk.before());
      sm90::Wait(&shared_.head->key_full[keys_.stage], keys_.phase);
      TakeTurn();
      PassTurn();
      Release(shared_.head->key_empty, keys_);
      if (!S::kKeepQueries && walk.last()) ReleaseQueries();
      if (begun) ReleaseValues();
      begun = true;
    }
    ClearUnseenValues(walk.before());
    ReleaseValues();
  }
  __device__ void ReleaseValues() {
    sm90::Wait(&shared_.head->value_full[values_.stage], values_.phase);
    Release(shared_.head->value_empty, values_);
  }

  // Scores, weights and the numerator of the walk's keys.
  template <typename Walk>
  __device__ __forceinline__ void Attend(Walk& walk,
                                         float (&o)[kOutRegisters]) {
    float s[kScoreRegisters];
    uint32_t p[S::kKeys / 16][4];
    auto seen = rows_.Look(args_, mask_, walk.partial());
    sm90::Wait(&shared_.head->key_full[keys_.stage], keys_.phase);
    TakeTurn();
    sm90::WgmmaFence();
    IssueScores(s);
    sm90::WgmmaCommit();
    PassTurn();
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(s);
    Release(shared_.head->key_empty, keys_);
    if (!S::kKeepQueries && walk.last()) ReleaseQueries();
    Softmax(walk, seen, s, nullptr);
    PackWeights(s, p);
    bool begun = false;
    for (walk.Next(); !walk.done(); walk.Next()) {
      ClearUnseenValues(walk.before());  // not in a turn: all warpgroups meet
      seen = rows_.Look(args_, mask_, walk.partial());
      sm90::Wait(&shared_.head->key_full[keys_.stage], keys_.phase);
      TakeTurn();
      sm90::WgmmaFence();
      IssueScores(s);
      sm90::WgmmaCommit();
      sm90::Wait(&shared_.head->value_full[values_.stage], values_.phase);
      sm90::WgmmaFence();
      sm90::PinRegisters(o);
      IssueValues(o, p, begun);
      sm90::WgmmaCommit();
      PassTurn();
      sm90::WgmmaWait<1>();
      sm90::PinRegisters(s);
      Release(shared_.head->key_empty, keys_);
      if (!S::kKeepQueries && walk.last()) ReleaseQueries();
      float rescale[2];
      Softmax(walk, seen, s, rescale);
      sm90::WgmmaWait<0>();
      sm90::PinRegisters(o);
      Release(shared_.head->value_empty, values_);
      if (__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < kOutRegisters; ++i) o[i] *= rescale[i / 2 % 2];
      }
      PackWeights(s, p);
      begun = true;
    }
    ClearUnseenValues(walk.before());
    sm90::Wait(&shared_.head->value_full[values_.stage], values_.phase);
    sm90::WgmmaFence();
    sm90::PinRegisters(o);
    IssueValues(o, p, begun);
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
    sm90::PinRegisters(o);
    Release(shared_.head->value_empty, values_);
    SumOverQuads();
  }

  // What this thread's rows are and see.
  __device__ void FindRows() {
    rows_.Find(args_, mask_, tile_, head_, group_ * 64, Row(0));
    Clear();
  }
  __device__ void Clear() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_[r] = -INFINITY;
      l_[r] = 0.0f;
    }
  }
  __device__ void SumOverQuads() {
#pragma unroll
    for (float& l : l_) {
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
    }
  }
  __device__ int Row(int r) const {
    return group_ * 64 + thread_ / 32 * 16 + lane_ / 4 + 8 * r;
  }

  template <int kStages>
  __device__ void Release(uint64_t* empty, Cursor<kStages>& at) {
    if (thread_ == 0) sm90::Arrive(&empty[at.stage]);
    at.Next();
  }
  __device__ void ReleaseQueries() { sm90::Arrive(&shared_.head->query_empty); }

  __device__ uint32_t QueryAddress() const {
    return sm90::SharedAddress(shared_.queries) + group_ * 64 * kSlabRowBytes;
  }

  // Matrices: rows 0-7 and 8-15 of the warp, of the step's first 8 columns,
  // then of the next.
  __device__ void KeepQueries() {
    const int row = thread_ / 32 * 16 + lane_ % 16;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int chunk = 2 * step + lane_ / 16;
      sm90::LoadMatrix4(q_[step],
                        QueryAddress() + step / 4 * S::kQuerySlabBytes +
                            row * kSlabRowBytes + ((chunk ^ row) % 8) * 16);
    }
  }

  __device__ void IssueScores(float (&s)[kScoreRegisters]) const {
    const uint64_t k = sm90::MatrixDescriptor(
        sm90::SharedAddress(shared_.keys) + keys_.stage * S::kBlockBytes);
    sm90::PinRegisters(s);
    if constexpr (S::kKeepQueries) {
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        Scores::template Issue<0>(s, q_[step],
                                  k + StepOffset(step, S::kSlabBytes),
                                  step == 0 ? 0 : 1);
      }
    } else {
      const uint64_t q = sm90::MatrixDescriptor(QueryAddress());
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        Scores::Issue(s, q + StepOffset(step, S::kQuerySlabBytes),
                      k + StepOffset(step, S::kSlabBytes), step == 0 ? 0 : 1);
      }
    }
  }
  // What 16 columns more add to a descriptor.
  __device__ static constexpr uint64_t StepOffset(int step, int slab_bytes) {
    return static_cast<uint64_t>(step / 4 * slab_bytes + step % 4 * 32) >> 4;
  }

  __device__ void IssueValues(float (&o)[kOutRegisters],
                              const uint32_t (&p)[S::kKeys / 16][4],
                              bool begun) const {
    const uint64_t v = sm90::MatrixDescriptor(
        sm90::SharedAddress(shared_.values) + values_.stage * S::kValueBytes,
        S::kSlabBytes);
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
      Values::template Issue<1>(o, p[step],
                                v + step * (16 * kSlabRowBytes >> 4),
                                step > 0 || begun ? 1 : 0);
    }
  }

  // Values of keys that no row of the tile sees count as zeros: nobody says
  // what lies there, and zero times NaN is NaN. All warpgroups together.
  __device__ void ClearUnseenValues(int n) const {
    const int begin = max(0, tile_.key_begin - n * S::kKeys);
    const int end = min(S::kKeys, tile_.key_end - n * S::kKeys);
    if (begin == 0 && end == S::kKeys) return;
    sm90::Wait(&shared_.head->value_full[values_.stage], values_.phase);
    unsigned char* block = shared_.values + values_.stage * S::kValueBytes;
    for (int i = group_ * kWarpgroup + thread_; i < S::kKeys * 8;
         i += S::kGroups * kWarpgroup) {
      const int row = i / 8;
      if (row >= begin && row < end) continue;
#pragma unroll
      for (int slab = 0; slab < S::kValueSlabs; ++slab) {
        *reinterpret_cast<uint4*>(block + slab * S::kSlabBytes + i * 16) = {
            0, 0, 0, 0};
      }
    }
    sm90::FenceAsyncProxy();
    sm90::SyncNamed(kClearBarrier, S::kGroups * kWarpgroup);
  }

  // Scores of the walk's block to weights. `rescale`: what the rows' numerators
  // must be multiplied with; null where there is none yet.
  template <typename Walk>
  __device__ void Softmax(const Walk& walk, const typename Rows::Seen& seen,
                          float (&s)[kScoreRegisters], float* rescale) {
    tiles::CapScores(args_, s);
    rows_.Apply(args_, mask_, seen, lane_, walk.block() * S::kKeys,
                walk.partial(), s);
    tiles::MakeWeights(rows_.Scale(args_, mask_), s, m_, l_, rescale);
  }

  __device__ static void PackWeights(const float (&s)[kScoreRegisters],
                                     uint32_t (&p)[S::kKeys / 16][4]) {
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        p[i][j] = sm90::Pack<T>(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
      }
    }
  }

  // Of a tile that no block of keys belongs to: zeros.
  __device__ void WriteNothing(float (&o)[kOutRegisters]) {
    if (!S::kKeepQueries) ReleaseQueries();
#pragma unroll
    for (float& x : o) x = 0.0f;
    WriteOut(o);
  }

  __device__ void WriteOut(const float (&o)[kOutRegisters]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      tiles::WriteRow<T, kMasked, kValueDim>(args_, mask_, rows_, tile_, head_,
                                             Row(r), r, lane_, m_[r], l_[r], o);
    }
  }

  const TileArgs& args_;
  const TileMask& mask_;
  const Shared<kDim, kValueDim, kRopeDim>& shared_;
  int group_;
  int thread_;
  int lane_;
  int head_ = 0;
  AttentionTile tile_;
  Rows rows_;
  uint32_t q_[S::kKeepQueries ? kDim / 16 : 1][4];
  float m_[2];  // in units of the scores
  float l_[2];  // this thread's part, until SumOverQuads
  Cursor<S::kStages> keys_;
  Cursor<S::kStages> values_;
};

// kMasked: there is a mask, or ALiBi; not with kPieces.
template <typename T, int kDim, bool kMasked, int kValueDim = kDim,
          int kRopeDim = 0, bool kPieces = false>
__global__ void __launch_bounds__(Shape<kDim, kValueDim, kRopeDim>::kThreads, 1)
    AttentionTiles(
        const __grid_constant__ TileArgs args,
        const __grid_constant__ MapsOf<kDim, kValueDim, kRopeDim> maps,
        const __grid_constant__ TileMask mask) {
  LetNextBegin();
  extern __shared__ unsigned char memory[];
  using S = Shape<kDim, kValueDim, kRopeDim>;
  const Shared<kDim, kValueDim, kRopeDim> shared(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      sm90::InitBarrier(&shared.head->key_full[i], 1);
      sm90::InitBarrier(&shared.head->key_empty[i], S::kGroups);
      sm90::InitBarrier(&shared.head->value_full[i], 1);
      sm90::InitBarrier(&shared.head->value_empty[i], S::kGroups);
    }
    sm90::InitBarrier(&shared.head->query_full, 1);
    // All who read the tile: those who compute, and warp 1.
    sm90::InitBarrier(&shared.head->query_empty, S::kGroups * kWarpgroup + 32);
    sm90::FenceBarrierInit();
  }
  __syncthreads();
  WaitForPrevious();
  if (threadIdx.x < kWarpgroup) {
    sm90::LowerRegisters<S::kLoadRegisters>();
    if (threadIdx.x < 32) {
      Loader<kDim, kMasked, kValueDim, kRopeDim>(args, maps, mask, shared)
          .RunKeys();
    } else if (threadIdx.x < 64) {
      Loader<kDim, kMasked, kValueDim, kRopeDim>(args, maps, mask, shared)
          .RunValues();
    }
  } else {
    sm90::RaiseRegisters<S::kComputeRegisters>();
    const int group = __shfl_sync(
        0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup - 1, 0);
    Worker<T, kDim, kMasked, kValueDim, kRopeDim, kPieces>(args, mask, shared,
                                                           group)
        .Run();
  }
}

inline TileArgs MakeTileArgs(const AttentionDesc& desc,
                             const AttentionParams& params, int box_rows) {
  const AttentionPlan& plan = *params.plan;
  TileArgs args;
  args.tiles =
      reinterpret_cast<const AttentionTile*>(plan.device + plan.layout.tiles);
  args.blocks =
      reinterpret_cast<const int32_t*>(plan.device + plan.layout.blocks);
  args.counters =
      reinterpret_cast<int32_t*>(plan.device + plan.layout.counters);
  args.sinks = params.sinks;
  args.out = params.out.data;
  args.out_stride = static_cast<int64_t>(params.out.row_stride_bytes);
  args.num_tiles = plan.num_tiles;
  args.num_kv_heads = desc.num_kv_heads;
  args.group = plan.shape.group;
  args.tile_tokens = plan.shape.tile_tokens;
  args.block_size = params.kv.block_size;
  args.box_rows = box_rows;
  args.window = desc.window;
  args.causal = desc.causal;
  args.score_scale = desc.softcap > 0.0f ? 1.0f : desc.scale * kLog2E;
  args.softcap = desc.softcap * kLog2E;
  args.cap_scale =
      desc.softcap > 0.0f ? 2 * kLog2E * desc.scale / desc.softcap : 0.0f;
  if (plan.shape.piece_keys > 0) {
    args.pieces.keys = plan.shape.piece_keys;
    args.pieces.count = args.counters + 2;
    args.pieces.arrivals = args.counters + 3;
    args.pieces.own = static_cast<unsigned char*>(params.workspace);
    const int own = AttentionTileRows(desc.head_dim) / kAttentionItemRows;
    args.pieces.slots =
        args.pieces.own + static_cast<size_t>(own * plan.shape.grid) *
                              AttentionPieceSlotBytes(desc.head_dim);
  }
  return args;
}

inline TileMask MakeTileMask(const AttentionParams& params) {
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
  const int box_rows = BoxRows(params.kv.block_size, S::kKeys);
  INLAY_ASSIGN_OR_RETURN(const KvTensorMaps kv,
                         MakeKvTensorMaps(params.kv, box_rows));
  INLAY_ASSIGN_OR_RETURN(
      const CUtensorMap q,
      MakeQueryTensorMap(params.q, desc, params.plan->shape.tile_tokens));
  const Maps maps = {q, kv.k, kv.v};
  constexpr int kBytes = SharedBytes<kDim>();
  static_assert(kBytes <= kSharedMost);
  const bool pieces = params.plan->shape.piece_keys > 0;
  if (pieces && HasMask(params)) {
    return absl::InvalidArgumentError(
        "attention: the plan has pieces; expected none with a mask or ALiBi "
        "(AttentionPlanShape::piece_keys 0)");
  }
  const int grid = pieces ? params.plan->shape.grid
                          : std::min(stream.num_sms(), params.plan->num_tiles *
                                                           desc.num_kv_heads);
  return LaunchCuda("attention (tiles)", stream,
                    {grid, S::kThreads, static_cast<size_t>(kBytes)},
                    pieces ? AttentionTiles<T, kDim, false, kDim, 0, true>
                    : HasMask(params) ? AttentionTiles<T, kDim, true>
                                      : AttentionTiles<T, kDim, false>,
                    MakeTileArgs(desc, params, box_rows), maps,
                    MakeTileMask(params));
}

// The plan's tiles, for the head_dim that a file is compiled for.
template <int kDim>
absl::Status LaunchDim(const AttentionDesc& desc, const AttentionParams& params,
                       CudaStream& stream) {
  return desc.kv == DType::kF16
             ? Launch<__half, kDim>(desc, params, stream)
             : Launch<__nv_bfloat16, kDim>(desc, params, stream);
}

}  // namespace inlay::tiles_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_TILES_SM90_H_
