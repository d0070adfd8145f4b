// attention on Hopper, a plan's items: few rows against many keys, where only
// the time to read the cache counts. The frame, which
// attention_items_launch_sm90.h launches; formats of the cache are
// attention_items_16bit_sm90.h, attention_items_i8_sm90.h and
// attention_items_f8_sm90.h. With less shared memory every GPU's, from sm_80 on
// (attention_items_mma.cu).
//
// Grid: AttentionPlanShape::grid CTAs (one a multiprocessor), each with a list
// of items of equal total length. CTA: four or eight warps. Of as many tiles of
// kTileKeys keys a warp takes one (by absolute position), with a softmax and a
// numerator of its own (16 rows x head_dim, matrix instructions, float32, in
// registers), so that none waits for another before a chunk's end; there they
// merge through shared memory into FoldedRows. Where head_dim is too large for
// that, a tile is for a team of two warps: each multiplies half of the columns
// of keys and queries, adds the other's part of the scores to its own, makes
// the same weights and sums its columns. Each warp loads its own tiles, or its
// part of its team's, by cp.async into its own ring, across the borders of
// chunks and items: loads never pause. (The copy engine took 100 clocks for a
// box of 16 rows, one after another: two thirds of the bandwidth.) The plan is
// read, and the ring filled with keys and values of earlier steps
// (AttentionPlanShape::leaves_out: none are known to be), while the kernel
// before still runs. An item of shared keys has a unit of rows for each warp,
// and all warps go through the tiles of all rings together: no merge, and a
// barrier of the CTA for as many tiles as warps. Barriers: cp.async groups
// within a warp; a named one of a team, at scores and where its rings are
// shared; full of each query buffer (all threads' copies); __syncthreads at
// merges, which also says that the queries of the item before have been read.
// Shared memory: rings [warps][kStages] | two query buffers | merge [teams]
// [kMergeRows][head_dim + 8] floats, whose padding puts four rows side by side
// in the banks | FoldedRows' sums | scores of teams' warps, twice | Head.
// Roofline: memory bandwidth; 64 to 130 KB in flight a multiprocessor.
// Format: what a tile of keys and values looks like.
//   T, kDim, kWarps, kTileKeys, kStageBytes, kQueryBytes, kRowBytes (in the
//   cache), kSharedBudget (bytes of shared memory), kMergeRows (at a time)
//   kSplit  warps that share a tile, each with kDim / kSplit columns.
//       kStageBytes is what one of them loads
//   kBytes  products and softmax are the format's: below
//   kHasMask  there is a mask, or ALiBi. Of the type, so that the two kernels
//       share no function: a second caller changes what is inlined
//   kSharesKeys  there are items of shared keys too, kWarps units each; of the
//       type for the same reason. Not with kHasMask
//   kSelectsKeys  queries see selected blocks, of a multiple of sixteen keys;
//       of the type too. A selection is of this step, so that nothing is read
//       while the kernel before runs. With neither of the other two
//   Copier(lane, part).Copy(stage, half, keys, values)  sixteen slots' rows,
//       or the part's share of them, whole warp, cp.async
//   QueryOffset(row, chunk)  of 16 bytes of a row, in a query buffer
//   Queries  what a lane keeps of the queries; Load(address, lane, few): no
//       more than eight rows
//   KeyOf(lane, j, i)  the key of score s[j][i] in the tile
//   MultiplyKeys, MultiplyValues<kMasked>  as Worker calls them; where kBytes
//       MultiplyKeys<kHalves>, AddValues<kHalves>, and Sums: what else belongs
//       to the numerator
//   StoreRow(o, r, row, lane)  a lane's part of numerator row r
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_SM90_H_

#include "kernels/attention/attention_items_load_sm90.h"
#include "kernels/attention/attention_shared_sm90.h"
#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "kernels/cuda_launch.cuh"

namespace inlay::items_sm90 {

// A warp.
template <typename Format>
class Worker {
 public:
  using P = Plan<Format>;
  using T = typename Format::T;
  using Rows = typename P::Rows;

  __device__ Worker(const AttentionItemArgs& args, const Items& items,
                    const Shared<Format>& shared)
      : args_(args),
        items_(items),
        shared_(shared),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0)),
        team_(warp_ / P::kSplit),
        part_(warp_ % P::kSplit),
        lane_(static_cast<int>(threadIdx.x) % 32),
        ring_(shared.rings + warp_ * P::kStages * P::kStageBytes),
        loader_(args, items, ring_, warp_, lane_) {}

  __device__ void Run() {
    loader_.Prepare();
    Load(/*old=*/true);
    WaitForPrevious();
    if (items_.begin == items_.end) return;
    LoadQueries(items_.begin);
    Load(/*old=*/false);
#pragma unroll 1
    for (int i = items_.begin; i < items_.end; ++i) {
      if constexpr (Format::kSharesKeys) {
        if (items_[i].num_units > 0) {
          RunShared(items_[i], i);
          continue;
        }
      }
      RunItem(items_[i], i);
    }
  }

 private:
  static constexpr int kKeyBlocks = P::kTileKeys / 8;
  static constexpr int kColumnBlocks = P::kDim / P::kSplit / 8;
  // A unit of shared keys has all columns.
  static constexpr int kSumBlocks =
      Format::kSharesKeys ? P::kDim / 8 : kColumnBlocks;
  static constexpr bool kMasked = Format::kHasMask;
  // Of shared keys: tiles of a ring a barrier, and tiles whose arithmetic is
  // one piece, for it is what takes the time there: chains of few instructions
  // at once would wait for each other.
  static constexpr int kTogether = P::kSplit;
  static constexpr int kTilesAtOnce =
      P::kDim <= 192 ? 64 / P::kTileKeys : 32 / P::kTileKeys;

  // Fills the ring but for a stage; as far as keys and values are old, which
  // need not wait for the kernel before.
  __device__ void Load(bool old) {
#pragma unroll 1
    while (loaded_ < P::kStages - 1 && (!old || loader_.NextIsOld())) {
      loader_.Next();
      ++loaded_;
    }
  }

  __device__ void RunItem(const AttentionItem& item, int index) {
    const int ordinal = index - items_.begin;
    const int buffer = ordinal % kQueryBuffers;
    queries_at_ =
        shared_.queries + buffer * P::kQueryBytes + part_ * P::kPartQueryBytes;
    WaitAnywhere(&shared_.head->query_full[buffer],
                 static_cast<uint32_t>(ordinal / kQueryBuffers) & 1);
    few_ = item.num_rows <= kHalfRows;
    queries_.Load(queries_at_, lane_, few_);
    // The other buffer's item has been merged: nobody reads it any more.
    if (index + 1 < items_.end) LoadQueries(index + 1);
    FindSeen(item);
    const int last_tile = (item.key_end + P::kTileKeys - 1) / P::kTileKeys;
    const int tiles_a_chunk = item.chunk / P::kTileKeys;
    const auto sync = [] { __syncthreads(); };
    ItemFold<Rows, decltype(sync)> fold(
        args_, item, static_cast<int>(threadIdx.x), &shared_.head->flag,
        shared_.folded, sync);
    int tile = FirstTile<P::kTeams>(item.key_begin / P::kTileKeys, team_);
    for (int c = item.key_begin / item.chunk; c * tiles_a_chunk < last_tile;
         ++c) {
      const int chunk_end = min(last_tile, (c + 1) * tiles_a_chunk);
      Clear();
#pragma unroll 1
      for (; tile < chunk_end; tile += P::kTeams) {
        RunTile(item, tile * P::kTileKeys);
      }
      fold.BeginChunk();
      Merge(item, fold.rows());
      fold.EndChunk();
    }
    fold.Finish();
    // Rows that do not exist were skipped; what follows is for whole warps.
    __syncwarp();
  }

  __device__ void FindSeen(const AttentionItem& item) {
    const int g = lane_ / 4;
    if constexpr (!kMasked) {
      seen_[0] = KeysOfRow(args_, item, item.row_begin + g);
      seen_[1] = KeysOfRow(args_, item, item.row_begin + g + 8);
      const int last_row = item.row_begin + item.num_rows - 1;
      all_seen_ = {KeysOfRow(args_, item, last_row).x,
                   KeysOfRow(args_, item, item.row_begin).y};
    } else {
      all_seen_ = {0, INT_MAX};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = item.row_begin + min(g + 8 * r, item.num_rows - 1);
        const AttentionRowKeys keys = MaskedKeysOfRow(args_, item, row);
        seen_[r] = {keys.begin, keys.end};
        bits_[r] = keys.bits;
        // Rows that see nothing have 0.
        key_shift_ = max(r == 0 ? 0 : key_shift_, keys.key_shift);
        slope_[r] = SlopeOf(args_, item, row);
        position_[r] = PositionOf(args_, item, row);
        all_seen_.x = max(all_seen_.x, keys.begin);
        all_seen_.y = min(all_seen_.y, keys.bits < 0 ? keys.end : 0);
      }
#pragma unroll
      for (int i = 4; i < 32; i *= 2) {
        all_seen_.x =
            max(all_seen_.x, __shfl_xor_sync(0xffffffffu, all_seen_.x, i));
        all_seen_.y =
            min(all_seen_.y, __shfl_xor_sync(0xffffffffu, all_seen_.y, i));
      }
    }
  }

  // Whether the thread's row r sees `key`.
  __device__ bool Sees(int r, int key) const {
    if (key < seen_[r].x || key >= seen_[r].y) return false;
    if constexpr (!kMasked) return true;
    return BitOf(args_.mask, {0, 0, bits_[r], key_shift_}, key);
  }

  // Shared keys: each warp's rows against the tiles of all rings. Queries lie
  // where warps merge otherwise, which nobody does here.
  __device__ void RunShared(const AttentionItem& item, int index) {
    const int ordinal = index - items_.begin;
    WaitAnywhere(&shared_.head->query_full[ordinal % kQueryBuffers],
                 static_cast<uint32_t>(ordinal / kQueryBuffers) & 1);
    if (index + 1 < items_.end) LoadQueries(index + 1);
    const bool mine = warp_ < item.num_units;
    const SharedUnit<Format> unit(args_, item, mine ? warp_ : 0, lane_);
    queries_at_ = sm90::SharedAddress(shared_.merge) + warp_ * P::kQueryBytes;
    if (mine) {
      unit.LoadQueries(queries_at_);
      queries_.Load(queries_at_, lane_, false);
    }
    if (lane_ == 0) shared_.head->stages[warp_] = stage_;
    Clear();
    int turn = 0;  // stages since
    for (int begin = item.key_begin; begin < item.key_end;
         begin += kTogether * P::kTeams * P::kTileKeys) {
      sm90::WaitCopies<P::kStages - 2 * kTogether>();
      // Of all warps; and all have read the tiles before, whose stages are
      // next. Before the first there is but the one that is always free.
      __syncthreads();
      const bool first = begin == item.key_begin;
      for (int i = first ? kTogether - 1 : 0; i < kTogether; ++i) {
        loader_.Next();
      }
#pragma unroll 1
      for (int t = 0; t < kTogether * P::kTeams && mine; t += kTilesAtOnce) {
        if (begin + t * P::kTileKeys >= item.key_end) break;
        AttendAll(t % P::kTeams, (turn + t / P::kTeams) % P::kStages);
      }
      turn = (turn + kTogether) % P::kStages;
      stage_ = (stage_ + kTogether) % P::kStages;
    }
    if (mine) {
      SumOverQuads();
      unit.Store(m_, l_, o_);
    }
    __syncthreads();  // before the rings, or queries, are written again
    for (int i = 1; i < kTogether; ++i) loader_.Next();
    if (mine) unit.Finish(m_, l_, o_);
  }

  // Tiles of keys that all rows see, in the rings of teams `first` on, `turn`
  // stages behind where the item began. Shared keys are whole 64: so are these.
  __device__ void AttendAll(int first, int turn) {
    using Block = float(&)[kKeyBlocks][4];
    using Columns = float(&)[kColumnBlocks][4];
    uint32_t stages[kTilesAtOnce * P::kSplit];
    float s[kTilesAtOnce * kKeyBlocks][4] = {};
#pragma unroll
    for (int i = 0; i < kTilesAtOnce * P::kSplit; ++i) {
      const int warp = first * P::kSplit + i;
      int stage = shared_.head->stages[warp] + turn;
      stage -= stage >= P::kStages ? P::kStages : 0;
      stages[i] = shared_.rings + (warp * P::kStages + stage) * P::kStageBytes;
      Format::MultiplyKeys(
          queries_, queries_at_ + i % P::kSplit * P::kPartQueryBytes, stages[i],
          lane_, reinterpret_cast<Block>(s[i / P::kSplit * kKeyBlocks]));
    }
    Softmax<kSumBlocks>(0, false, s);
#pragma unroll
    for (int i = 0; i < kTilesAtOnce * P::kSplit; ++i) {
      Format::template MultiplyValues<false>(
          0, P::kTileKeys, stages[i], lane_,
          reinterpret_cast<Block>(s[i / P::kSplit * kKeyBlocks]),
          reinterpret_cast<Columns>(o_[i % P::kSplit * kColumnBlocks]));
    }
  }

  // All threads; columns and rows that do not exist are zeros.
  __device__ void LoadQueries(int index) {
    const AttentionItem& item = items_[index];
    const int buffer = (index - items_.begin) % kQueryBuffers;
    if constexpr (Format::kSharesKeys) {
      if (item.num_units > 0) {
        // Theirs are loaded when it is their turn.
        sm90::Arrive(&shared_.head->query_full[buffer]);
        return;
      }
    }
    const uint32_t to = shared_.queries + buffer * P::kQueryBytes;
    constexpr int kChunks = P::kDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks;
         i += P::kThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const bool valid = row < item.num_rows;
      const int of_sequence = item.row_begin + (valid ? row : 0);
      const char* from =
          static_cast<const char*>(args_.q) +
          (item.q_begin + of_sequence / args_.group) * args_.q_stride +
          2 * HeadOffset(args_, item, of_sequence, args_.head_dim) + chunk * 16;
      sm90::CopyAsync16OrZeros(to + Format::QueryOffset(row, chunk), from,
                               valid);
    }
    sm90::ArriveAfterCopies(&shared_.head->query_full[buffer]);
  }

  __device__ void Clear() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m_[r] = -INFINITY;
      l_[r] = 0.0f;
    }
#pragma unroll
    for (auto& block : o_) {
#pragma unroll
      for (float& x : block) x = 0.0f;
    }
    if constexpr (Format::kBytes) sums_ = {};
  }

  // The next tile of the ring, keys [begin, begin + kTileKeys).
  __device__ void RunTile(const AttentionItem& item, int begin) {
    sm90::WaitCopies<P::kStages - 2>();
    // Of all lanes; and all have read the tile before, whose stage is next.
    if constexpr (Format::kBytes && P::kSplit > 1) {
      SyncTeam();
    } else {
      __syncwarp();
    }
    loader_.Next();
    const uint32_t stage = ring_ + stage_ * P::kStageBytes;
    stage_ = stage_ + 1 == P::kStages ? 0 : stage_ + 1;
    const bool masked =
        begin < all_seen_.x || begin + P::kTileKeys > all_seen_.y;
    if constexpr (!Format::kBytes) {
      Attend(item, begin, masked, stage);
    } else if (few_) {
      AttendBytes<1>(item, begin, masked);
    } else {
      AttendBytes<2>(item, begin, masked);
    }
  }

  __device__ void Attend(const AttentionItem& item, int begin, bool masked,
                         uint32_t stage) {
    float s[kKeyBlocks][4] = {};
    Format::MultiplyKeys(queries_, queries_at_, stage, lane_, s);
    if constexpr (P::kSplit > 1) AddOtherPart<2>(s);
    Softmax<kColumnBlocks>(begin, masked, s);
    auto& o = reinterpret_cast<float(&)[kColumnBlocks][4]>(o_);
    if (masked) {
      Format::template MultiplyValues<true>(
          item.key_begin - begin, item.key_end - begin, stage, lane_, s, o);
    } else {
      Format::template MultiplyValues<false>(0, P::kTileKeys, stage, lane_, s,
                                             o);
    }
  }

  // Rows g alone, or g + 8 too.
  template <int kHalves>
  __device__ void AttendBytes(const AttentionItem& item, int begin,
                              bool masked) {
    // Of a team, the first warp has the keys and the second the values.
    const int stage = (stage_ == 0 ? P::kStages : stage_) - 1;
    const uint32_t keys =
        shared_.rings +
        (team_ * P::kSplit * P::kStages + stage) * P::kStageBytes;
    const uint32_t values =
        keys +
        (P::kSplit == 1 ? Format::kTileBytes : P::kStages * P::kStageBytes);
    float s[kKeyBlocks][2 * kHalves];
    Format::template MultiplyKeys<kHalves>(queries_, keys, part_, lane_, s);
    if constexpr (P::kSplit > 1) AddOtherPart<kHalves>(s);
    float top[kHalves];
#pragma unroll
    for (float& t : top) t = -INFINITY;
    FinishScores(begin, masked, s, top);
    Format::template AddValues<kHalves>(
        masked, {item.key_begin - begin, item.key_end - begin}, values, part_,
        lane_, s, top, m_, l_, o_, sums_);
  }

  // Whole warps: a named barrier counts them, and threads may come apart.
  __device__ void SyncTeam() const {
    __syncwarp();
    sm90::SyncNamed(1 + team_, 32 * P::kSplit);
  }

  // The team's other warp has the other columns' part of the scores. Two rooms
  // in turn: it may still read the one before.
  template <int kHalves>
  __device__ void AddOtherPart(float (&s)[kKeyBlocks][2 * kHalves]) {
    static_assert(P::kSplit == 2);
    turn_ ^= 1;
    const auto room = [&](int warp) {
      return shared_.scores + (2 * warp + turn_) * P::kScorePairs + lane_;
    };
    float2* mine = room(warp_);
#pragma unroll
    for (int i = 0; i < kKeyBlocks * kHalves; ++i) {
      const float* x = &s[i / kHalves][i % kHalves * 2];
      mine[32 * i] = {x[0], x[1]};
    }
    SyncTeam();
    const float2* theirs = room(warp_ ^ 1);
#pragma unroll
    for (int i = 0; i < kKeyBlocks * kHalves; ++i) {
      const float2 x = theirs[32 * i];
      s[i / kHalves][i % kHalves * 2] += x.x;
      s[i / kHalves][i % kHalves * 2 + 1] += x.y;
    }
  }

  // Out of the loop over scores: branches there take a tenth of the time that
  // arithmetic bounds.
  template <int kBlocks>
  __device__ void ScaleScores(float (&s)[kBlocks][4]) const {
    if (args_.softcap > 0.0f) {
#pragma unroll
      for (auto& block : s) {
#pragma unroll
        for (float& x : block) x = CappedScore(args_, x);
      }
      return;
    }
    const float scale = args_.scale * kLog2E;
#pragma unroll
    for (auto& block : s) {
#pragma unroll
      for (float& x : block) x *= scale;
    }
  }

  // Scores in units of log 2, -INFINITY where a row does not see the key;
  // `top` becomes the largest of it and a row's.
  template <int kHalves, int kBlocks>
  __device__ void FinishScores(int begin, bool masked,
                               float (&s)[kBlocks][2 * kHalves],
                               float (&top)[kHalves]) const {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        if constexpr (!Format::kSharesKeys) {
          s[j][i] = ScaledScore(args_, s[j][i]);
        }
        if constexpr (kMasked) {
          const int off = begin + Format::KeyOf(lane_, j, i) - position_[i / 2];
          s[j][i] =
              fmaf(slope_[i / 2], -fabsf(static_cast<float>(off)), s[j][i]);
        }
        if (masked) {
          const int key = begin + Format::KeyOf(lane_, j, i);
          if (!Sees(i / 2, key)) s[j][i] = -INFINITY;
        }
        top[i / 2] = fmaxf(top[i / 2], s[j][i]);
      }
    }
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
    }
  }

  // Scores to weights; rescales what is there where a maximum grows.
  template <int kSums, int kBlocks>
  __device__ void Softmax(int begin, bool masked, float (&s)[kBlocks][4]) {
    float top[2] = {m_[0], m_[1]};
    if constexpr (Format::kSharesKeys) ScaleScores(s);
    FinishScores(begin, masked, s, top);
    float rescale[2];
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      base[r] = top[r] == -INFINITY ? 0.0f : top[r];
      rescale[r] = Exp2(m_[r] - base[r]);
      m_[r] = top[r];
      l_[r] *= rescale[r];
    }
    if (__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
      for (int j = 0; j < kSums; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o_[j][i] *= rescale[i / 2];
      }
    }
#pragma unroll
    for (auto& block : s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        block[i] = Exp2(__fsub_rn(block[i], base[i / 2]));
        l_[i / 2] += block[i];
      }
    }
  }

  // The chunk's results of all warps, in their order, into `folded`.
  __device__ void Merge(const AttentionItem& item, Rows& folded) {
    SumOverQuads();
    if constexpr (Format::kBytes) sums_.Finish(o_);
    const int g = lane_ / 4;
    if (lane_ % 4 == 0 && part_ == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shared_.head->sums[team_][g + kHalfRows * r] = {m_[r], l_[r]};
      }
    }
#pragma unroll
    for (int first = 0; first < kRows; first += P::kMergeRows) {
      if (first >= item.num_rows) continue;
      const int r = first / kHalfRows;
      const int at = g - first % kHalfRows;
      if (at >= 0 && at < P::kMergeRows && r * kHalfRows + g < item.num_rows) {
        float* row = shared_.merge +
                     (team_ * P::kMergeRows + at) * P::kMergeStride +
                     part_ * (P::kDim / P::kSplit);
        Format::StoreRow(reinterpret_cast<float(&)[kColumnBlocks][4]>(o_), r,
                         row, lane_);
      }
      __syncthreads();
      if (folded.row() / P::kMergeRows == first / P::kMergeRows &&
          folded.mine()) {
        FoldMerged(folded);
      }
      __syncthreads();  // before the next are written
    }
  }

  __device__ void SumOverQuads() {
#pragma unroll
    for (float& l : l_) {
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
    }
  }

  __device__ void FoldMerged(Rows& folded) {
    float top = -INFINITY;
    float2 sums[P::kTeams];
#pragma unroll
    for (int w = 0; w < P::kTeams; ++w) {
      sums[w] = shared_.head->sums[w][folded.row()];
      top = fmaxf(top, sums[w].x);
    }
    const float base = top == -INFINITY ? 0.0f : top;
    float l = 0.0f;
#pragma unroll
    for (float2& sum : sums) {
      sum.x = Exp2(sum.x - base);
      l = __fmaf_rn(sum.x, sum.y, l);
    }
    const float* from =
        shared_.merge + folded.row() % P::kMergeRows * P::kMergeStride;
    folded.Fold(P::kDim, top, l, [&](int quad) {
      const float* at = from + folded.column(quad);
      float4 o = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < P::kTeams; ++w) {
        const float4 x = *reinterpret_cast<const float4*>(
            at + w * P::kMergeRows * P::kMergeStride);
        o.x = __fmaf_rn(sums[w].x, x.x, o.x);
        o.y = __fmaf_rn(sums[w].x, x.y, o.y);
        o.z = __fmaf_rn(sums[w].x, x.z, o.z);
        o.w = __fmaf_rn(sums[w].x, x.w, o.w);
      }
      return o;
    });
  }

  const AttentionItemArgs& args_;
  const Items& items_;
  const Shared<Format>& shared_;
  int warp_;
  int team_;
  int part_;
  int lane_;
  uint32_t ring_;
  Loader<Format> loader_;
  uint32_t queries_at_ = 0;
  int stage_ = 0;
  int loaded_ = 0;
  int2 seen_[2];   // keys that the thread's rows see
  int2 all_seen_;  // keys that all rows see
  // As AttentionRowKeys has them, where kMasked.
  int bits_[kMasked ? 2 : 1];
  int key_shift_;
  float slope_[kMasked ? 2 : 1];  // in units of log 2
  int position_[kMasked ? 2 : 1];
  bool few_;  // rows: there are none of g + 8
  typename Format::Queries queries_;
  typename Format::Sums sums_;
  float m_[2];
  float l_[2];  // this thread's part
  float o_[kSumBlocks][4];
  int turn_ = 0;  // of rooms for scores
};

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_SM90_H_
