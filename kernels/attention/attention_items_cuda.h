// What CUDA kernels that run AttentionItems share: the arguments, which keys a
// row sees, and the folding of partial results. A partial result of a row is
// (m, l, o): the largest score in units of log 2, the sum of 2^(score - m), and
// the values weighted so. Folding is not associative in floating point, so all
// of it happens in Fold(), chunks within groups and then groups, in the order
// of the keys: results do not depend on which CTA ran which chunk. Source:
// FlashAttention-2 (arXiv:2307.08691), lean attention (arXiv:2405.10480).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_CUDA_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_CUDA_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/attention/attention_plan.h"
#include "kernels/cuda_divisor.h"

namespace inlay {

inline constexpr float kLog2E = 1.4426950408889634f;

// What a mask and ALiBi say; all null where there is neither.
struct AttentionMaskArgs {
  const AttentionRowKeys* rows = nullptr;  // by row of q
  const uint32_t* bits = nullptr;
  const float* alibi_slopes = nullptr;
};

// Of a launch; its kernels without a mask and ALiBi know nothing of them.
inline bool HasMask(const AttentionParams& params) {
  return params.plan->masked || params.alibi_slopes != nullptr;
}
AttentionMaskArgs MakeAttentionMaskArgs(const AttentionParams& params);

struct AttentionItemArgs {
  const int32_t* cta_items;
  const AttentionItem* items;
  const int32_t* blocks;
  int32_t* arrivals;
  int cta_slots;       // the first slots are the CTAs', so many for each
  int item_rows;       // AttentionPlanShape's
  float* partials;     // slots of item_rows x (value_dim + 2)
  const float* sinks;  // or null
  const void* q;       // rows of num_heads * head_dim, q_stride bytes apart
  void* out;           // rows of num_heads * value_dim
  int64_t q_stride;
  int64_t out_stride;
  KvLayerView kv;
  LaunchDivisor block_slots;  // by kv.block_size
  int64_t kv_row_bytes;
  DType activation;
  int head_dim;
  int value_dim;
  int group;
  int window;
  bool causal;
  bool leaves_out;  // AttentionPlanShape's
  float scale;
  float softcap;
  AttentionMaskArgs mask;
  const int32_t* selection;  // as AttentionParams has it; or null
  int selected_blocks;       // of a row of it
  int select_shift;          // blocks are of 1 << select_shift keys
};

// What AttentionParams and AttentionPlan say, for a launch.
AttentionItemArgs MakeAttentionItemArgs(const AttentionDesc& desc,
                                        const AttentionParams& params);

#ifdef __CUDACC__

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// `score` (a dot product) in units of log 2, where there is a softcap.
__device__ inline float CappedScore(const AttentionItemArgs& args,
                                    float score) {
  // tanh(x) = 1 - 2 / (1 + e^2x), absolute error a few 2^-24.
  const float x = score * (args.scale / args.softcap);
  const float tanh = 1.0f - __fdividef(2.0f, 1.0f + Exp2(x * (2 * kLog2E)));
  return args.softcap * kLog2E * tanh;
}

__device__ inline float ScaledScore(const AttentionItemArgs& args,
                                    float score) {
  if (args.softcap <= 0.0f) return score * (args.scale * kLog2E);
  return CappedScore(args, score);
}

// Keys [begin, end) that row `row` (of the sequence) of `item` sees.
__device__ inline int2 KeysOfRow(const AttentionItemArgs& args,
                                 const AttentionItem& item, int row) {
  const int token = row / args.group;
  const int end =
      args.causal ? item.kv_len - item.q_len + token + 1 : item.kv_len;
  return {args.window > 0 ? max(0, end - args.window) : 0, end};
}

// The same with a mask, where there is one. Of a row that does not exist:
// anything.
__device__ inline AttentionRowKeys MaskedKeysOfRow(
    const AttentionItemArgs& args, const AttentionItem& item, int row) {
  if (args.mask.rows != nullptr) {
    const int token = min(row / args.group, item.q_len - 1);
    const int4 keys = __ldg(reinterpret_cast<const int4*>(args.mask.rows) +
                            item.q_begin + token);
    return {keys.x, keys.y, keys.z, keys.w};
  }
  const int2 keys = KeysOfRow(args, item, row);
  return {keys.x, keys.y, -1, 0};
}

// Block of the cache, and offset in it, of key `key` of the item's sequence:
// where keys are selected, of those. In two steps, for who asks ahead: what is
// found at AddressOfPlace() says where the key is.
__device__ inline const int32_t* AddressOfPlace(const AttentionItemArgs& args,
                                                const AttentionItem& item,
                                                int key) {
  if (args.selection == nullptr) {
    return args.blocks + item.blocks_begin + args.block_slots.Quotient(key);
  }
  const int64_t row =
      int64_t{item.q_begin} * args.kv.num_kv_heads + item.kv_head;
  return args.selection + row * args.selected_blocks +
         (key >> args.select_shift);
}
__device__ inline int2 PlaceFound(const AttentionItemArgs& args, int found,
                                  int key) {
  const LaunchDivisor& slots = args.block_slots;
  if (args.selection == nullptr) {
    return {found, slots.Remainder(key, slots.Quotient(key))};
  }
  const int shift = args.select_shift;
  const int slot = (found << shift) + (key & ((1 << shift) - 1));
  const int block = slots.Quotient(slot);
  return {block, slots.Remainder(slot, block)};
}
__device__ inline int2 PlaceOfKey(const AttentionItemArgs& args,
                                  const AttentionItem& item, int key) {
  return PlaceFound(args, *AddressOfPlace(args, item, key), key);
}

// Of a key in [row.begin, row.end).
__device__ inline bool BitOf(const AttentionMaskArgs& args,
                             const AttentionRowKeys& row, int key) {
  if (row.bits < 0) return true;
  const int bit = key >> row.key_shift;
  return (__ldg(args.bits + row.bits + bit / 32) >> bit % 32 & 1) != 0;
}

// ALiBi: what row `row`'s scores fall by from key to key, in units of log 2.
__device__ inline float SlopeOf(const AttentionItemArgs& args,
                                const AttentionItem& item, int row) {
  if (args.mask.alibi_slopes == nullptr) return 0.0f;
  return kLog2E *
         args.mask.alibi_slopes[item.kv_head * args.group + row % args.group];
}
__device__ inline int PositionOf(const AttentionItemArgs& args,
                                 const AttentionItem& item, int row) {
  return item.kv_len - item.q_len + row / args.group;
}

// Where in a token's row of q the row's head begins, each of `dim` elements.
__device__ inline int64_t HeadOffset(const AttentionItemArgs& args,
                                     const AttentionItem& item, int row,
                                     int dim) {
  return int64_t{item.kv_head * args.group + row % args.group} * dim;
}

// Counts `count` in; what the counter was. What this thread, and others up to a
// barrier, wrote before is seen by who comes later, and theirs here after.
__device__ inline int AddArrivals(int* counter, int count) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count)
               : "memory");
  return before;
}

// Counts `count` of `all` in; whether nobody else comes, and then the counter
// is zero for the next launch.
__device__ inline bool Arrive(int* counter, int count, int all) {
  if (AddArrivals(counter, count) + count != all) return false;
  *counter = 0;
  return true;
}

// The rows of an item spread over kThreads threads (of `thread`): each has one
// row, or none, and every lanes-th four of its columns. value_dim is kDim where
// kExact, else at most that; a multiple of 4. Where kInShared, the sums are in
// shared memory (kSharedQuads at `shared`), so that a loop over keys has the
// registers. kMayBeEmpty: a row may have seen nothing.
template <int kThreads, int kDim, bool kExact, bool kInShared, bool kMayBeEmpty>
class FoldedRows {
 public:
  // Where an item has as many rows as it may.
  static constexpr int kLeastLanes = kThreads / kAttentionItemRows;
  static constexpr int kQuads = (kDim / 4 + kLeastLanes - 1) / kLeastLanes;
  static constexpr int kSharedQuads = kInShared ? kQuads * kThreads : 0;

  __device__ FoldedRows(int thread, int num_rows, float4* shared) {
    if constexpr (kInShared) shared_ = shared + thread;
    lanes_ = kThreads;
    for (int rows = 1; rows < num_rows; rows *= 2) lanes_ /= 2;
    row_ = thread / lanes_;
    lane_ = thread % lanes_;
    mine_ = row_ < num_rows;
    Clear();
  }

  __device__ void Clear() {
    m_ = -INFINITY;
    l_ = 0.0f;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) Sum(i) = {0.0f, 0.0f, 0.0f, 0.0f};
  }

  __device__ int row() const { return row_; }
  __device__ bool mine() const { return mine_; }  // the row exists
  __device__ int column(int quad) const { return 4 * (quad * lanes_ + lane_); }
  // o(quad) gives float4. Everything is rounded where it says so: the compiler
  // must not fuse differently from one use to the next.
  template <typename Values>
  __device__ void Fold(int value_dim, float m, float l, Values o) {
    const float top = fmaxf(m_, m);
    const float base = top == -INFINITY ? 0.0f : top;
    const float mine = Exp2(m_ - base);
    const float theirs = Exp2(m - base);
    m_ = top;
    l_ = __fmaf_rn(l_, mine, __fmul_rn(l, theirs));
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (column(i) >= value_dim) break;
      const float4 value = o(i);
      float4 sum = Sum(i);
      sum.x = __fmaf_rn(sum.x, mine, __fmul_rn(value.x, theirs));
      sum.y = __fmaf_rn(sum.y, mine, __fmul_rn(value.y, theirs));
      sum.z = __fmaf_rn(sum.z, mine, __fmul_rn(value.z, theirs));
      sum.w = __fmaf_rn(sum.w, mine, __fmul_rn(value.w, theirs));
      Sum(i) = sum;
    }
  }

  // What follows is for threads whose row exists.

  // The item's rows are a slot's from `slot_row` on.
  __device__ void StorePartial(const AttentionItemArgs& args, int slot,
                               int slot_row) {
    const int row = slot_row + row_;
    float* to = Partial(args, slot);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (column(i) >= ValueDim(args)) break;
      __stcg(reinterpret_cast<float4*>(to + row * ValueDim(args) + column(i)),
             Sum(i));
    }
    if (lane_ == 0) {
      float* ml = to + kAttentionItemRows * ValueDim(args) + 2 * row;
      __stcg(reinterpret_cast<float2*>(ml), float2{m_, l_});
    }
  }

  // What is here becomes `count` partial results, folded. Loads a few ahead of
  // the arithmetic; further ahead, and the loop over keys spills.
  __device__ void FoldPartials(const AttentionItemArgs& args, int slot,
                               int slot_row, int count) {
    constexpr int kAhead = kQuads <= 4 ? 4 : kQuads <= 8 ? 2 : 1;
    const int dim = ValueDim(args);
    const int stride = kAttentionItemRows * (dim + 2);
    const int row = slot_row + row_;
    const float* sums =
        Partial(args, slot) + kAttentionItemRows * dim + 2 * row;
    const float* values = Partial(args, slot) + row * dim + 4 * lane_;
    Clear();
#pragma unroll 1
    for (int begin = 0; begin < count; begin += kAhead) {
      float2 ml[kAhead];
      float4 o[kAhead][kQuads];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        if (begin + s >= count) break;
        ml[s] = __ldcg(reinterpret_cast<const float2*>(sums + s * stride));
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
          if (column(i) >= dim) break;
          o[s][i] = __ldcg(reinterpret_cast<const float4*>(values + s * stride +
                                                           4 * i * lanes_));
        }
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        if (begin + s >= count) break;
        Fold(dim, ml[s].x, ml[s].y, [&](int i) { return o[s][i]; });
      }
      sums += kAhead * stride;
      values += kAhead * stride;
    }
  }

  // Divides by the sum (the head's sink included) and writes the rows out.
  __device__ void WriteOut(const AttentionItemArgs& args,
                           const AttentionItem& item) {
    const int row = item.row_begin + row_;
    if (args.sinks != nullptr) {
      const float sink =
          args.sinks[item.kv_head * args.group + row % args.group];
      Fold(ValueDim(args), sink * kLog2E, 1.0f, [](int) {
        return float4{0.0f, 0.0f, 0.0f, 0.0f};
      });
    }
    const float inverse = kMayBeEmpty && l_ == 0.0f ? 0.0f : __frcp_rn(l_);
    auto* out = static_cast<char*>(args.out) +
                (item.q_begin + row / args.group) * args.out_stride;
    const int64_t offset = HeadOffset(args, item, row, args.value_dim);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (column(i) >= ValueDim(args)) break;
      const int64_t at = offset + column(i);
      const float4 sum = Sum(i);
      const float2 low = {sum.x * inverse, sum.y * inverse};
      const float2 high = {sum.z * inverse, sum.w * inverse};
      if (args.activation == DType::kF32) {
        *reinterpret_cast<float4*>(out + 4 * at) = {low.x, low.y, high.x,
                                                    high.y};
        continue;
      }
      uint2 bits;
      if (args.activation == DType::kF16) {
        reinterpret_cast<__half2&>(bits.x) = __float22half2_rn(low);
        reinterpret_cast<__half2&>(bits.y) = __float22half2_rn(high);
      } else {
        reinterpret_cast<__nv_bfloat162&>(bits.x) = __float22bfloat162_rn(low);
        reinterpret_cast<__nv_bfloat162&>(bits.y) = __float22bfloat162_rn(high);
      }
      *reinterpret_cast<uint2*>(out + 2 * at) = bits;
    }
  }

 private:
  __device__ static int ValueDim(const AttentionItemArgs& args) {
    return kExact ? kDim : args.value_dim;
  }
  __device__ float4& Sum(int quad) {
    if constexpr (kInShared) {
      return shared_[quad * kThreads];
    } else {
      return o_[quad];
    }
  }
  __device__ static float* Partial(const AttentionItemArgs& args, int slot) {
    return args.partials +
           int64_t{slot} * kAttentionItemRows * (ValueDim(args) + 2);
  }

  int lanes_;  // a row
  int row_;
  int lane_;
  bool mine_;
  float m_;
  float l_;
  float4* shared_ = nullptr;
  float4 o_[kInShared ? 1 : kQuads];
};

// Folds the chunks of one item as they come, and with the other items of the
// same rows. `sync` is a barrier of the calling threads, `thread` 0 to kThreads
// - 1 among them, `flag` one shared int, `shared` as Rows has it. Chunks of a
// group that lies in one item fold here; of others each leaves a partial
// result, and who finishes the group's last item folds them. Groups do the
// same, in turn.
template <typename Rows, typename Sync>
class ItemFold {
 public:
  __device__ ItemFold(const AttentionItemArgs& args, const AttentionItem& item,
                      int thread, int* flag, float4* shared, Sync sync)
      : args_(args),
        item_(item),
        thread_(thread),
        flag_(flag),
        sync_(sync),
        rows_(thread, item.num_rows, shared),
        chunk_(item.first_chunk) {}

  // Around each of the item's chunks, which must be folded into rows().
  __device__ void BeginChunk() {
    if ((chunk_ & (Group() - 1)) == 0 || !IsHere()) rows_.Clear();
  }
  __device__ Rows& rows() { return rows_; }
  __device__ void EndChunk() {
    const bool here = IsHere();
    const int chunk = chunk_++;
    const bool ends =
        (chunk_ & (Group() - 1)) == 0 || chunk_ == item_.num_chunks;
    if (here && (!ends || NumGroups() == 1)) return;
    const int slot = here ? GroupSlots() + chunk / Group() : item_.slot + chunk;
    groups_done_ += here ? 1 : 0;
    if (rows_.mine()) rows_.StorePartial(args_, slot, item_.slot_row);
  }

  // After the last chunk.
  __device__ void Finish() {
    const bool whole = item_.slot < 0;
    bool complete = whole && NumGroups() == 1;
    const int ends = whole ? 0 : ArriveAtGroups();
#pragma unroll 1
    for (int step = 0; step < 3 && !complete; ++step) {
      int slot = GroupSlots();
      int count = NumGroups();
      const int group = (step == 0 ? item_.first_chunk : End() - 1) / Group();
      if (step < 2) {
        if ((ends >> step & 1) == 0) continue;
        slot = item_.slot + group * Group();
        count = ChunksOf(group);
        ++groups_done_;
      } else if (!whole && !ArriveAtRows()) {
        return;
      }
      complete = step == 2 || NumGroups() == 1;
      if (!rows_.mine()) continue;
      rows_.FoldPartials(args_, slot, item_.slot_row, count);
      if (!complete) {
        rows_.StorePartial(args_, GroupSlots() + group, item_.slot_row);
      }
    }
    if (complete && rows_.mine()) rows_.WriteOut(args_, item_);
  }

 private:
  // What follows from the item is not kept: registers are for its keys.

  __device__ int Group() const {  // chunks
    return item_.num_chunks <= kAttentionFewChunks ? kAttentionFewChunks
                                                   : kAttentionFoldGroup;
  }
  __device__ int NumGroups() const {
    return item_.num_chunks <= kAttentionFewChunks
               ? 1
               : (item_.num_chunks + kAttentionFoldGroup - 1) /
                     kAttentionFoldGroup;
  }
  __device__ int ChunksOf(int group) const {
    return min(Group(), item_.num_chunks - group * Group());
  }
  __device__ int End() const {  // of the item's chunks
    return item_.first_chunk + (item_.key_end - 1) / item_.chunk -
           item_.key_begin / item_.chunk + 1;
  }
  // Where the groups' partial results are.
  __device__ int GroupSlots() const {
    return item_.slot < 0 ? static_cast<int>(blockIdx.x) * args_.cta_slots
                          : item_.slot + item_.num_chunks;
  }
  // Whether all chunks of chunk_'s group are the item's.
  __device__ bool IsHere() const {
    const int begin = chunk_ & -Group();
    return item_.slot < 0 || (begin >= item_.first_chunk &&
                              min(begin + Group(), item_.num_chunks) <= End());
  }

  // Counts its chunks in for the groups it shares; of which it is the last: 1
  // the first group, 2 the last.
  __device__ int ArriveAtGroups() {
    const int first = item_.first_chunk / Group();
    const int last = (End() - 1) / Group();
    const int in_first = min(End(), (first + 1) * Group()) - item_.first_chunk;
    const int in_last = End() - last * Group();
    sync_();
    if (thread_ == 0) {
      int* arrivals = args_.arrivals + item_.arrival + 1;
      int ends = 0;
      if (in_first < ChunksOf(first) &&
          Arrive(arrivals + first, in_first, ChunksOf(first))) {
        ends += 1;
      }
      if (last > first && in_last < ChunksOf(last) &&
          Arrive(arrivals + last, in_last, ChunksOf(last))) {
        ends += 2;
      }
      *flag_ = ends;
    }
    sync_();
    return *flag_;
  }

  // Counts the groups in that are done here; whether they are the rows' last.
  __device__ bool ArriveAtRows() {
    if (NumGroups() == 1 || groups_done_ == 0) return false;
    sync_();
    if (thread_ == 0) {
      *flag_ = Arrive(args_.arrivals + item_.arrival, groups_done_, NumGroups())
                   ? 1
                   : 0;
    }
    sync_();
    return *flag_ != 0;
  }

  const AttentionItemArgs& args_;
  const AttentionItem& item_;
  int thread_;
  int* flag_;
  Sync sync_;
  Rows rows_;
  int chunk_;  // the next
  int groups_done_ = 0;
};

#endif  // __CUDACC__

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_ITEMS_CUDA_H_
