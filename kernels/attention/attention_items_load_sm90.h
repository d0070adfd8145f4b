// What a CTA of attention's items (attention_items_sm90.h) has in shared
// memory, and how a warp loads its tiles into its ring.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_LOAD_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_LOAD_SM90_H_

#include <algorithm>
#include <climits>

#include "kernels/attention/attention_shared_sm90.h"
#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/sm90_ops.h"

namespace inlay::items_sm90 {

constexpr int kRows = kAttentionItemRows;
// Of shared memory: what Hopper gives a CTA, and what every GPU does.
constexpr int kSharedMost = 227 * 1024;
constexpr int kSharedAnywhere = 99 * 1024;
constexpr int kQueryBuffers = 2;
// Rows of an item that a thread of a product has one of, twice.
constexpr int kHalfRows = kRows / 2;
constexpr int kMostStages = 8;
// The first items of a CTA wait in shared memory.
constexpr int kItemsAtHand = 16;
// Beyond this, the loop over keys needs the registers of what is folded.
constexpr int kMostDimInRegisters = 128;

// sm90::Wait(), on older GPUs too: they have no instruction that sleeps.
__device__ inline void WaitAnywhere(uint64_t* barrier, uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "again:\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n"
      "}\n" ::"r"(sm90::SharedAddress(barrier)),
      "r"(parity)
      : "memory");
#else
  sm90::Wait(barrier, parity);
#endif
}

template <int kWarps>
struct Head {
  uint64_t query_full[kQueryBuffers];
  AttentionItem items[kItemsAtHand];
  float2 sums[kWarps][kRows];  // maximum and sum, for merging
  int stages[kWarps];          // of the rings, where shared keys begin
  int flag;
};

template <typename Format>
struct Plan {
  static constexpr int kDim = Format::kDim;
  static constexpr int kWarps = Format::kWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kSplit = Format::kSplit;
  static constexpr int kTeams = kWarps / kSplit;
  static constexpr int kTileKeys = Format::kTileKeys;
  using Rows =
      FoldedRows<kThreads, kDim, true, (kDim / kSplit > kMostDimInRegisters),
                 Format::kHasMask>;
  static constexpr int kStageBytes = Format::kStageBytes;
  static constexpr int kQueryBytes = Format::kQueryBytes;
  static constexpr int kPartQueryBytes = kQueryBytes / kSplit;
  static constexpr int kMergeRows = Format::kMergeRows;
  static constexpr int kMergeStride = kDim + 8;
  static constexpr int kMergeFloats =
      std::max(kTeams * kMergeRows * kMergeStride,
               Format::kSharesKeys ? kWarps* kQueryBytes / 4 : 0);
  // A warp's part of a tile's scores; there is room for two.
  static constexpr int kScorePairs = kSplit > 1 ? kTileKeys / 8 * 64 : 0;
  static constexpr int kFixedBytes =
      1024 + kQueryBuffers * kQueryBytes + kMergeFloats * 4 +
      Rows::kSharedQuads * 16 + 2 * kWarps * kScorePairs * 8 +
      static_cast<int>(sizeof(Head<kWarps>));
  static constexpr int kStages =
      std::min(kMostStages,
               (Format::kSharedBudget - kFixedBytes) / (kWarps * kStageBytes));
  static constexpr int kSharedBytes =
      kFixedBytes + kWarps * kStages * kStageBytes;
  static_assert(kStages >= (Format::kSharesKeys ? 2 * kSplit : 2));
};

// The parts of shared memory.
template <typename Format>
struct Shared {
  using P = Plan<Format>;
  __device__ explicit Shared(unsigned char* base) {
    const uint32_t at = sm90::SharedAddress(base);
    unsigned char* aligned = base + ((1024 - at % 1024) % 1024);
    rings = sm90::SharedAddress(aligned);
    queries = rings + P::kWarps * P::kStages * P::kStageBytes;
    merge = reinterpret_cast<float*>(aligned +
                                     P::kWarps * P::kStages * P::kStageBytes +
                                     kQueryBuffers * P::kQueryBytes);
    folded = reinterpret_cast<float4*>(merge + P::kMergeFloats);
    scores = reinterpret_cast<float2*>(folded + P::Rows::kSharedQuads);
    head = reinterpret_cast<Head<P::kWarps>*>(scores +
                                              2 * P::kWarps * P::kScorePairs);
  }
  uint32_t rings;
  uint32_t queries;
  float* merge;
  float4* folded;
  float2* scores;
  Head<P::kWarps>* head;
};

// The CTA's items, [begin, end) of the plan's.
struct Items {
  const AttentionItem* all;
  const AttentionItem* at_hand;
  int begin;
  int end;

  __device__ const AttentionItem& operator[](int i) const {
    return i - begin < kItemsAtHand ? at_hand[i - begin] : all[i];
  }
};

// The first of `team`'s tiles from `tile` on.
template <int kTeams>
__device__ inline int FirstTile(int tile, int team) {
  return tile + (team - tile % kTeams + kTeams) % kTeams;
}

// A warp's parts of its team's tiles of all items, one after another, into its
// ring.
template <typename Format>
class Loader {
 public:
  using P = Plan<Format>;
  __device__ Loader(const AttentionItemArgs& args, const Items& items,
                    uint32_t ring, int warp, int lane)
      : args_(args),
        items_(items),
        ring_(ring),
        team_(warp / P::kSplit),
        lane_(lane),
        item_(items.begin - 1),
        copier_(lane, warp % P::kSplit) {}

  // Reads what of the plan the first Next() needs.
  __device__ void Prepare() {
    FindTile();
    if (item_ == items_.end || Format::kSelectsKeys) return;
    FindBlocks();
    cached_ = kTilesCached;
  }

  // Whether the step, which writes KV at its queries' positions, leaves the
  // next tile as it is.
  __device__ bool NextIsOld() const { return tile_ < old_; }

  // Begins to load the next tile, if there is one; a group in any case.
  __device__ void Next() {
    if (item_ < items_.end) {
      LoadTile();
      tile_ += P::kTeams;
      FindTile();
    }
    sm90::CommitCopies();
    stage_ = stage_ + 1 == P::kStages ? 0 : stage_ + 1;
  }

 private:
  static constexpr int kHalves = P::kTileKeys / 16;  // cache blocks hold whole
                                                     // sixteens
  static constexpr int kTilesCached = 32 / kHalves;

  __device__ void FindTile() {
    while (item_ < items_.end && tile_ >= last_) NextItem();
  }

  __device__ void NextItem() {
    if (++item_ == items_.end) return;
    const AttentionItem& item = items_[item_];
    const bool waits = Format::kSelectsKeys || args_.leaves_out;
    old_ = waits ? 0 : (item.kv_len - item.q_len) / P::kTileKeys;
    tile_ = FirstTile<P::kTeams>(item.key_begin / P::kTileKeys, team_);
    last_ = (item.key_end + P::kTileKeys - 1) / P::kTileKeys;
    cached_ = 0;
    if constexpr (Format::kSharesKeys) {
      if (item.num_units == 0) return;
      // From the first on, and as many in each ring: some are not there.
      const int first = item.key_begin / P::kTileKeys;
      if (!waits) old_ = INT_MAX;
      tile_ = first + team_;
      last_ = first + (last_ - first + P::kTeams - 1) / P::kTeams * P::kTeams;
    }
  }

  // Where the sixteens of this warp's next tiles lie, one a lane.
  __device__ void FindBlocks() {
    const AttentionItem& item = items_[item_];
    const int key = (tile_ + lane_ / kHalves * P::kTeams) * P::kTileKeys +
                    lane_ % kHalves * 16;
    // Blocks that no row sees may not exist any more.
    seen_ = key < item.key_end && key + 16 > item.key_begin;
    offset_ = 0;
    if constexpr (Format::kSelectsKeys) {
      if (!seen_) return;
      const int2 place = PlaceOfKey(args_, item, key);
      offset_ = place.x * args_.kv.block_stride_bytes +
                (int64_t{item.kv_head} * args_.kv.block_size + place.y) *
                    Format::kRowBytes;
    } else if (seen_) {
      const int in_sequence = args_.block_slots.Quotient(key);
      const int slot = args_.block_slots.Remainder(key, in_sequence);
      offset_ = args_.blocks[item.blocks_begin + in_sequence] *
                    args_.kv.block_stride_bytes +
                (int64_t{item.kv_head} * args_.kv.block_size + slot) *
                    Format::kRowBytes;
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
      const std::byte* from = args_.kv.base.base + offset;
      copier_.Copy(stage, half, from + args_.kv.k_offset_bytes,
                   from + args_.kv.v_offset_bytes);
    }
  }

  const AttentionItemArgs& args_;
  const Items& items_;
  uint32_t ring_;
  int team_;
  int lane_;
  int item_;
  int tile_ = 0;
  int last_ = 0;
  int old_ = 0;     // tiles before this one the step leaves as they are
  int cached_ = 0;  // tiles whose blocks are at hand, the next one's first
  int stage_ = 0;
  int64_t offset_ = 0;
  bool seen_ = false;
  typename Format::Copier copier_;
};

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_LOAD_SM90_H_
