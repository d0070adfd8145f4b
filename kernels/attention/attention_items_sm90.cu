// attention on Hopper, a plan's items: few rows against many keys, where only
// the time to read the cache counts.
//
// Grid: AttentionPlanShape::grid CTAs (one a multiprocessor), each with a list
// of items of equal total length. CTA: four warps. Of every four tiles of
// kTileKeys keys a warp takes one (by absolute position), with a softmax and a
// numerator of its own (16 rows x head_dim, m16n8k16, float32 accumulators, in
// registers), so that none waits for another before a chunk's end; there they
// merge through shared memory into FoldedRows. Each warp loads its own tiles by
// cp.async into its own ring, across the borders of chunks and items: loads
// never pause. (The copy engine took 100 clocks for a box of 16 rows, one after
// another: two thirds of the bandwidth.)
// Barriers: cp.async groups within a warp; full of each query buffer (all
// threads' copies); __syncthreads at merges, which also says that the queries
// of the item before have been read.
// Shared memory: rings [4 warps][kStages] | two query buffers | merge [4 warps]
// [8 rows][head_dim + 8] floats, whose padding puts four rows side by side in
// the banks | Head.
// Roofline: memory bandwidth; 64 to 130 KB in flight a multiprocessor.
#include <algorithm>

#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/sm90_ops.h"
#include "memory/device/cuda_status.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kAttentionItemRows;
constexpr int kSharedMost = 227 * 1024;
constexpr int kQueryBuffers = 2;
constexpr int kMergeRows = 8;
// The first items of a CTA wait in shared memory.
constexpr int kItemsAtHand = 16;

template <int kDim>
struct Head {
  uint64_t query_full[kQueryBuffers];
  AttentionItem items[kItemsAtHand];
  float2 sums[kWarps][kRows];  // maximum and sum, for merging
  int flag;
};

template <int kDim>
struct Plan {
  static constexpr int kSlabs = (kDim + kSlabColumns - 1) / kSlabColumns;
  static constexpr int kTileKeys = kDim <= 64 ? 64 : kDim <= 128 ? 32 : 16;
  static constexpr int kSlabBytes = kTileKeys * kSlabRowBytes;
  static constexpr int kStageBytes = 2 * kSlabs * kSlabBytes;
  static constexpr int kQuerySlabBytes = kRows * kSlabRowBytes;
  static constexpr int kQueryBytes = kSlabs * kQuerySlabBytes;
  static constexpr int kMergeStride = kDim + 8;
  static constexpr int kMergeFloats = kWarps * kMergeRows * kMergeStride;
  static constexpr int kFixedBytes = 1024 + kQueryBuffers * kQueryBytes +
                                     kMergeFloats * 4 +
                                     static_cast<int>(sizeof(Head<kDim>));
  static constexpr int kStages =
      (kSharedMost - kFixedBytes) / (kWarps * kStageBytes);
  static constexpr int kSharedBytes =
      kFixedBytes + kWarps * kStages * kStageBytes;
  static_assert(kStages >= 2);
  // Of 255 registers; otherwise queries are read again for each tile.
  static constexpr bool kKeepQueries = kDim <= 96;
};

// The parts of shared memory.
template <int kDim>
struct Shared {
  using P = Plan<kDim>;
  __device__ explicit Shared(unsigned char* base) {
    const uint32_t at = sm90::SharedAddress(base);
    unsigned char* aligned = base + ((1024 - at % 1024) % 1024);
    rings = sm90::SharedAddress(aligned);
    queries = rings + kWarps * P::kStages * P::kStageBytes;
    merge = reinterpret_cast<float*>(aligned +
                                     kWarps * P::kStages * P::kStageBytes +
                                     kQueryBuffers * P::kQueryBytes);
    head = reinterpret_cast<Head<kDim>*>(merge + P::kMergeFloats);
  }
  uint32_t rings;
  uint32_t queries;
  float* merge;
  Head<kDim>* head;
};

// The CTA's items, [begin, end) of the plan's.
template <int kDim>
struct Items {
  const AttentionItem* all;
  const AttentionItem* at_hand;
  int begin;
  int end;

  __device__ const AttentionItem& operator[](int i) const {
    return i - begin < kItemsAtHand ? at_hand[i - begin] : all[i];
  }
};

// The first of `warp`'s tiles from `tile` on.
__device__ inline int FirstTile(int tile, int warp) {
  return tile + (warp - tile % kWarps + kWarps) % kWarps;
}

// A warp's tiles of all items, one after another, into its ring.
template <int kDim>
class Loader {
 public:
  using P = Plan<kDim>;
  __device__ Loader(const AttentionItemArgs& args, const Items<kDim>& items,
                    uint32_t ring, int warp, int lane)
      : args_(args),
        items_(items),
        ring_(ring),
        warp_(warp),
        lane_(lane),
        item_(items.begin - 1) {
#pragma unroll
    for (int i = 0; i < kPeriod; ++i) {
      const int row = (i * 32 + lane) / kChunks;
      const int chunk = (i * 32 + lane) % kChunks;
      to_[i] = chunk / 8 * P::kSlabBytes + row * kSlabRowBytes +
               ((chunk ^ row) % 8) * 16;
    }
  }

  // Begins to load the next tile, if there is one; a group in any case.
  __device__ void Next() {
    while (item_ < items_.end && tile_ >= last_) NextItem();
    if (item_ < items_.end) {
      LoadTile();
      tile_ += kWarps;
    }
    sm90::CommitCopies();
    stage_ = stage_ + 1 == P::kStages ? 0 : stage_ + 1;
  }

 private:
  static constexpr int kHalves = P::kTileKeys / 16;  // cache blocks hold whole
                                                     // sixteens
  static constexpr int kChunks = kDim / 8;           // of 16 bytes, in a row
  static constexpr int kTilesCached = 32 / kHalves;
  // After so many copies of 32 lanes, rows are whole, and a power of two.
  static constexpr int kPeriod = kChunks % 5 == 0   ? 5
                                 : kChunks % 3 == 0 ? 3
                                                    : 1;
  static constexpr int kPeriodRows = 32 * kPeriod / kChunks;

  __device__ void NextItem() {
    if (++item_ == items_.end) return;
    const AttentionItem& item = items_[item_];
    tile_ = FirstTile(item.key_begin / P::kTileKeys, warp_);
    last_ = (item.key_end + P::kTileKeys - 1) / P::kTileKeys;
    cached_ = 0;
  }

  // Where the sixteens of this warp's next tiles lie, one a lane.
  __device__ void FindBlocks() {
    const AttentionItem& item = items_[item_];
    const int key = (tile_ + lane_ / kHalves * kWarps) * P::kTileKeys +
                    lane_ % kHalves * 16;
    // Blocks that no row sees may not exist any more.
    seen_ = key < item.key_end && key + 16 > item.key_begin;
    offset_ = 0;
    if (seen_) {
      const int in_sequence = key / args_.kv.block_size;
      const int slot = key - in_sequence * args_.kv.block_size;
      offset_ =
          args_.blocks[item.blocks_begin + in_sequence] *
              args_.kv.block_stride_bytes +
          (int64_t{item.kv_head} * args_.kv.block_size + slot) * (2 * kDim);
    }
  }

  __device__ void LoadTile() {
    if (cached_ == 0) {
      FindBlocks();
      cached_ = kTilesCached;
    }
    const int first = (kTilesCached - cached_) * kHalves;
    --cached_;
    const uint32_t stage = ring_ + stage_ * P::kStageBytes;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int64_t offset = __shfl_sync(0xffffffffu, offset_, first + half);
      if (!__shfl_sync(0xffffffffu, seen_, first + half)) continue;
      const std::byte* from = args_.kv.base.base + offset + lane_ * 16;
      const std::byte* keys = from + args_.kv.k_offset_bytes;
      const std::byte* values = from + args_.kv.v_offset_bytes;
      // The rows of sixteen slots of a head are contiguous. Stages are aligned
      // to the swizzle, so that bits 4 to 6 of an address are its own.
#pragma unroll
      for (int i = 0; i < kChunks / 2; ++i) {
        const int row = half * 16 + i / kPeriod * kPeriodRows;
        const uint32_t to =
            ((stage + to_[i % kPeriod]) ^ (row % 8 * 16)) + row * kSlabRowBytes;
        sm90::CopyAsync16(to, keys + i * 512);
        sm90::CopyAsync16(to + P::kSlabs * P::kSlabBytes, values + i * 512);
      }
    }
  }

  const AttentionItemArgs& args_;
  const Items<kDim>& items_;
  uint32_t ring_;
  int warp_;
  int lane_;
  int item_;
  int tile_ = 0;
  int last_ = 0;
  int cached_ = 0;  // tiles whose blocks are at hand, the next one's first
  int stage_ = 0;
  int64_t offset_ = 0;
  bool seen_ = false;
  uint32_t to_[kPeriod];  // in a stage, of the first rows
};

// A warp.
template <typename T, int kDim>
class Worker {
 public:
  using P = Plan<kDim>;
  using Folded = FoldedRows<kThreads, kDim>;

  __device__ Worker(const AttentionItemArgs& args, const Items<kDim>& items,
                    const Shared<kDim>& shared)
      : args_(args),
        items_(items),
        shared_(shared),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        ring_(shared.rings + warp_ * P::kStages * P::kStageBytes),
        loader_(args, items, ring_, warp_, lane_) {}

  __device__ void Run() {
    if (items_.begin == items_.end) return;
    LoadQueries(items_.begin);
    for (int i = 1; i < P::kStages; ++i) loader_.Next();
    for (int i = items_.begin; i < items_.end; ++i) RunItem(items_[i], i);
  }

 private:
  static constexpr int kSteps = kDim / 16;  // of k in q k^T
  static constexpr int kKeyBlocks = P::kTileKeys / 8;
  static constexpr int kColumnBlocks = kDim / 8;

  __device__ void RunItem(const AttentionItem& item, int index) {
    const int ordinal = index - items_.begin;
    const int buffer = ordinal % kQueryBuffers;
    queries_ = shared_.queries + buffer * P::kQueryBytes;
    sm90::Wait(&shared_.head->query_full[buffer],
               static_cast<uint32_t>(ordinal / kQueryBuffers) & 1);
    if constexpr (P::kKeepQueries) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) LoadQuery(s, q_[s]);
    }
    // The other buffer's item has been merged: nobody reads it any more.
    if (index + 1 < items_.end) LoadQueries(index + 1);
    const int g = lane_ / 4;
    seen_[0] = KeysOfRow(args_, item, item.row_begin + g);
    seen_[1] = KeysOfRow(args_, item, item.row_begin + g + 8);
    const int last_row = item.row_begin + item.num_rows - 1;
    all_seen_ = {KeysOfRow(args_, item, last_row).x,
                 KeysOfRow(args_, item, item.row_begin).y};
    const int last_tile = (item.key_end + P::kTileKeys - 1) / P::kTileKeys;
    const int first_chunk = item.key_begin / item.chunk;
    const int tiles_a_chunk = item.chunk / P::kTileKeys;
    Folded folded(static_cast<int>(threadIdx.x));
    int tile = FirstTile(item.key_begin / P::kTileKeys, warp_);
    for (int c = first_chunk; c * tiles_a_chunk < last_tile; ++c) {
      const int chunk_end = min(last_tile, (c + 1) * tiles_a_chunk);
      Clear();
      for (; tile < chunk_end; tile += kWarps) {
        RunTile(item, tile * P::kTileKeys);
      }
      if (item.first_chunk > 0) folded.Clear();
      Merge(item, folded);
      if (item.first_chunk > 0 && folded.row() < item.num_rows) {
        folded.StorePartial(args_, item.slot_here + c - first_chunk);
      }
    }
    FinishItem(args_, item, folded, static_cast<int>(threadIdx.x),
               &shared_.head->flag, Sync);
    // Rows that do not exist were skipped; what follows is for whole warps.
    __syncwarp();
  }

  __device__ static void Sync() { __syncthreads(); }

  // All threads; columns and rows that do not exist are zeros.
  __device__ void LoadQueries(int index) {
    const AttentionItem& item = items_[index];
    const int buffer = (index - items_.begin) % kQueryBuffers;
    const uint32_t to = shared_.queries + buffer * P::kQueryBytes;
    constexpr int kChunks = kDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks;
         i += kThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const bool valid = row < item.num_rows;
      const int of_sequence = item.row_begin + (valid ? row : 0);
      const char* from =
          static_cast<const char*>(args_.q) +
          (item.q_begin + of_sequence / args_.group) * args_.q_stride +
          2 * HeadOffset(args_, item, of_sequence) + chunk * 16;
      sm90::CopyAsync16OrZeros(to + chunk / 8 * P::kQuerySlabBytes +
                                   row * kSlabRowBytes +
                                   ((chunk ^ row) % 8) * 16,
                               from, valid);
    }
    sm90::ArriveAfterCopies(&shared_.head->query_full[buffer]);
  }

  __device__ void LoadQuery(int step, uint32_t (&q)[4]) const {
    // Matrices: rows 0-7 and 8-15 of the first 8 columns, then of the next.
    const int row = lane_ % 16;
    const int chunk = 2 * step + lane_ / 16;
    sm90::LoadMatrix4(q, queries_ + chunk / 8 * P::kQuerySlabBytes +
                             row * kSlabRowBytes +
                             ((chunk % 8) ^ (row % 8)) * 16);
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
  }

  // The next tile of the ring, keys [begin, begin + kTileKeys).
  __device__ void RunTile(const AttentionItem& item, int begin) {
    sm90::WaitCopies<P::kStages - 2>();
    // Of all lanes; and all have read the tile before, whose stage is next.
    __syncwarp();
    loader_.Next();
    const uint32_t keys = ring_ + stage_ * P::kStageBytes;
    stage_ = stage_ + 1 == P::kStages ? 0 : stage_ + 1;
    float s[kKeyBlocks][4] = {};
    MultiplyKeys(keys, s);
    const bool masked =
        begin < all_seen_.x || begin + P::kTileKeys > all_seen_.y;
    Softmax(begin, masked, s);
    const uint32_t values = keys + P::kSlabs * P::kSlabBytes;
    if (masked) {
      MultiplyValues<true>(item, begin, values, s);
    } else {
      MultiplyValues<false>(item, begin, values, s);
    }
  }

  __device__ void MultiplyKeys(uint32_t keys, float (&s)[kKeyBlocks][4]) {
    // Matrices: 8 keys x the step's first and last 8 columns, then the next 8.
    const uint32_t from = keys + (lane_ / 16 * 8 + lane_ % 8) * kSlabRowBytes +
                          (lane_ / 8 % 2 ^ lane_ % 8) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[4];
      if constexpr (P::kKeepQueries) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[i] = q_[step][i];
      } else {
        LoadQuery(step, q);
      }
#pragma unroll
      for (int pair = 0; pair < kKeyBlocks / 2; ++pair) {
        uint32_t k[4];
        sm90::LoadMatrix4(k, (from ^ (2 * step % 8 * 16)) +
                                 step / 4 * P::kSlabBytes +
                                 pair * 16 * kSlabRowBytes);
        sm90::Mma16816<T>(s[2 * pair], q, k[0], k[1]);
        sm90::Mma16816<T>(s[2 * pair + 1], q, k[2], k[3]);
      }
    }
  }

  // Scores to weights; rescales what is there where a maximum grows.
  __device__ void Softmax(int begin, bool masked, float (&s)[kKeyBlocks][4]) {
    float top[2] = {m_[0], m_[1]};
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[j][i] = ScaledScore(args_, s[j][i]);
        if (masked) {
          const int key = begin + 8 * j + lane_ % 4 * 2 + i % 2;
          const int2 seen = seen_[i / 2];
          if (key < seen.x || key >= seen.y) s[j][i] = -INFINITY;
        }
        top[i / 2] = fmaxf(top[i / 2], s[j][i]);
      }
    }
    float rescale[2];
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      base[r] = top[r] == -INFINITY ? 0.0f : top[r];
      rescale[r] = Exp2(m_[r] - base[r]);
      m_[r] = top[r];
      l_[r] *= rescale[r];
    }
    if (__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
      for (auto& block : o_) {
#pragma unroll
        for (int i = 0; i < 4; ++i) block[i] *= rescale[i / 2];
      }
    }
#pragma unroll
    for (auto& block : s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        block[i] = Exp2(block[i] - base[i / 2]);
        l_[i / 2] += block[i];
      }
    }
  }

  // kMasked: values of keys outside the item count as zeros: nobody says what
  // lies there, and zero times NaN is NaN.
  template <bool kMasked>
  __device__ void MultiplyValues(const AttentionItem& item, int begin,
                                 uint32_t values,
                                 const float (&s)[kKeyBlocks][4]) {
    const uint32_t from = values +
                          (lane_ / 8 % 2 * 8 + lane_ % 8) * kSlabRowBytes +
                          (lane_ / 16 ^ lane_ % 8) * 16;
#pragma unroll
    for (int k16 = 0; k16 < P::kTileKeys / 16; ++k16) {
      const uint32_t p[4] = {
          sm90::Pack<T>(s[2 * k16][0], s[2 * k16][1]),
          sm90::Pack<T>(s[2 * k16][2], s[2 * k16][3]),
          sm90::Pack<T>(s[2 * k16 + 1][0], s[2 * k16 + 1][1]),
          sm90::Pack<T>(s[2 * k16 + 1][2], s[2 * k16 + 1][3])};
      uint32_t mask[2] = {0xffffffffu, 0xffffffffu};
      if constexpr (kMasked) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = begin + 16 * k16 + i / 2 * 8 + lane_ % 4 * 2 + i % 2;
          if (key < item.key_begin || key >= item.key_end) {
            mask[i / 2] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
          }
        }
      }
#pragma unroll
      for (int pair = 0; pair < kColumnBlocks / 2; ++pair) {
        uint32_t v[4];
        sm90::LoadMatrix4Transposed(v, (from ^ (2 * pair % 8 * 16)) +
                                           pair / 4 * P::kSlabBytes +
                                           k16 * 16 * kSlabRowBytes);
        if constexpr (kMasked) {
#pragma unroll
          for (int i = 0; i < 4; ++i) v[i] &= mask[i % 2];
        }
        sm90::Mma16816<T>(o_[2 * pair], p, v[0], v[1]);
        sm90::Mma16816<T>(o_[2 * pair + 1], p, v[2], v[3]);
      }
    }
  }

  // The chunk's results of all warps, in their order, into `folded`.
  __device__ void Merge(const AttentionItem& item, Folded& folded) {
#pragma unroll
    for (float& l : l_) {
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
    }
    if (lane_ % 4 == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shared_.head->sums[warp_][lane_ / 4 + kMergeRows * r] = {m_[r], l_[r]};
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (r * kMergeRows >= item.num_rows) continue;
      const int g = lane_ / 4;
      float* row = shared_.merge + (warp_ * kMergeRows + g) * P::kMergeStride +
                   lane_ % 4 * 2;
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j) {
        *reinterpret_cast<float2*>(row + 8 * j) = {o_[j][2 * r],
                                                   o_[j][2 * r + 1]};
      }
      Sync();
      if (folded.row() / kMergeRows == r && folded.row() < item.num_rows) {
        FoldMerged(folded);
      }
      Sync();  // before the next are written
    }
  }

  __device__ void FoldMerged(Folded& folded) {
    float top = -INFINITY;
    float2 sums[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
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
        shared_.merge + folded.row() % kMergeRows * P::kMergeStride;
    folded.Fold(top, l, [&](int pair) {
      const float* at = from + folded.column(pair);
      float2 o = {0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float2 x = *reinterpret_cast<const float2*>(
            at + w * kMergeRows * P::kMergeStride);
        o.x = __fmaf_rn(sums[w].x, x.x, o.x);
        o.y = __fmaf_rn(sums[w].x, x.y, o.y);
      }
      return o;
    });
  }

  const AttentionItemArgs& args_;
  const Items<kDim>& items_;
  const Shared<kDim>& shared_;
  int warp_;
  int lane_;
  uint32_t ring_;
  Loader<kDim> loader_;
  uint32_t queries_ = 0;
  int stage_ = 0;
  int2 seen_[2];   // keys that the thread's rows see
  int2 all_seen_;  // keys that all rows see
  uint32_t q_[P::kKeepQueries ? kSteps : 1][4];
  float m_[2];
  float l_[2];  // this thread's part
  float o_[kColumnBlocks][4];
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionItems(const __grid_constant__ AttentionItemArgs args) {
  extern __shared__ unsigned char memory[];
  const Shared<kDim> shared(memory);
  const Items<kDim> items = {args.items, shared.head->items,
                             args.cta_items[blockIdx.x],
                             args.cta_items[blockIdx.x + 1]};
  constexpr int kParts = sizeof(AttentionItem) / sizeof(int4);
  const int parts = min(kItemsAtHand, items.end - items.begin) * kParts;
  if (static_cast<int>(threadIdx.x) < parts) {
    reinterpret_cast<int4*>(shared.head->items)[threadIdx.x] =
        reinterpret_cast<const int4*>(args.items + items.begin)[threadIdx.x];
  }
  if (threadIdx.x == 0) {
    for (uint64_t& full : shared.head->query_full) {
      sm90::InitBarrier(&full, kThreads);
    }
  }
  __syncthreads();
  Worker<T, kDim>(args, items, shared).Run();
}

template <typename T, int kDim>
absl::Status Launch(const AttentionDesc& desc, const AttentionParams& params,
                    cudaStream_t stream) {
  constexpr int kBytes = Plan<kDim>::kSharedBytes;
  INLAY_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(AttentionItems<T, kDim>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "attention: asking for shared memory"));
  AttentionItems<T, kDim>
      <<<params.plan->shape.grid, kThreads, kBytes, stream>>>(
          MakeAttentionItemArgs(desc, params));
  return CudaLaunchStatus("attention (items)");
}

template <typename T>
absl::Status LaunchFor(const AttentionDesc& desc, const AttentionParams& params,
                       cudaStream_t stream) {
  switch (desc.head_dim) {
    case 64:
      return Launch<T, 64>(desc, params, stream);
    case 80:
      return Launch<T, 80>(desc, params, stream);
    case 96:
      return Launch<T, 96>(desc, params, stream);
    case 128:
      return Launch<T, 128>(desc, params, stream);
    case 192:
      return Launch<T, 192>(desc, params, stream);
    default:
      return Launch<T, 256>(desc, params, stream);
  }
}

}  // namespace

absl::Status LaunchAttentionItemsSm90(const AttentionDesc& desc,
                                      const AttentionParams& params,
                                      cudaStream_t stream) {
  return desc.kv == DType::kF16
             ? LaunchFor<__half>(desc, params, stream)
             : LaunchFor<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
