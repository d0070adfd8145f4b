// attention's items on Hopper: the rows of several sequences that share keys. A
// warp has a unit of them; what it computed goes to memory and, in order with
// what the sequences' own items leave there, is folded by whoever comes last:
// here, or ItemFold there, with the same arithmetic in the same order. A piece
// of attention_items_sm90.h, for caches of 16 bits.
//
// Registers: the unit's (m, l, o) as the matrix instructions have them: a lane
// has rows lane / 4 and lane / 4 + 8, and of each 8 columns lane % 4 * 2 and
// the next. Memory order: all lanes' results, fence, the warp's barrier, then
// the lane that counts; who counts last reads past the first-level cache.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_SHARED_SM90_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_SHARED_SM90_H_

#include "kernels/attention/attention_items_cuda.h"
#include "kernels/attention/sm90_ops.h"

namespace inlay::items_sm90 {

template <typename Format>
class SharedUnit {
 public:
  using T = typename Format::T;
  static constexpr int kDim = Format::kDim;
  static constexpr int kColumnBlocks = kDim / 8;
  static constexpr uint32_t kAll = 0xffffffffu;
  using Maxima = float (&)[2];
  using Values = float (&)[kColumnBlocks][4];

  __device__ SharedUnit(const AttentionItemArgs& args,
                        const AttentionItem& item, int unit, int lane)
      : args_(args),
        item_(item),
        unit_(reinterpret_cast<const AttentionUnit*>(args.blocks +
                                                     item.units_begin) +
              unit),
        slot_(item.slot + unit * item.unit_slots),
        lane_(lane) {}

  // The whole warp; rows that do not exist are zeros.
  __device__ void LoadQueries(uint32_t to) const {
    constexpr int kChunks = kDim / 8;
    for (int i = lane_; i < kAttentionItemRows * kChunks; i += 32) {
      const int row = i / kChunks;
      const int of = unit_->rows[row];
      uint4 x = {0, 0, 0, 0};
      if (of >= 0) {
        const char* from = static_cast<const char*>(args_.q) +
                           of / args_.group * args_.q_stride + 2 * Column(of);
        x = *reinterpret_cast<const uint4*>(from + i % kChunks * 16);
      }
      sm90::StoreShared16(to + Format::QueryOffset(row, i % kChunks), x);
    }
    __syncwarp();
  }

  // What the item's keys gave; `l` is whole in each lane.
  __device__ void Store(const float (&m)[2], const float (&l)[2],
                        const float (&o)[kColumnBlocks][4]) const {
    float* to = Partial(slot_ + item_.first_chunk);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      Format::StoreRow(o, r, to + row * kDim, lane_);
      if (lane_ % 4 == 0) {
        *reinterpret_cast<float2*>(to + kAttentionItemRows * kDim + 2 * row) = {
            m[r], l[r]};
      }
    }
  }

  // Counts that in, and finishes the rows that were waiting for nothing else.
  // The arguments are room to do so.
  __device__ void Finish(Maxima m, Maxima l, Values o) const {
    const int row = lane_ % 16;
    const int chunks = item_.num_chunks + unit_->own_chunks[row];
    const bool few = chunks <= kAttentionFewChunks;
    const int size = few ? kAttentionFewChunks : kAttentionFoldGroup;
    const int group = item_.first_chunk / size;
    const int in_group = min(size, chunks - group * size);
    const uint32_t firsts = unit_->firsts;
    const uint32_t up_to = firsts & ((2u << row) - 1);
    const bool counts = lane_ < 16 && (firsts >> row & 1) != 0;
    int* counters =
        args_.arrivals + item_.arrival +
        (unit_->members_before + __popc(up_to) - 1) * item_.member_counters;
    uint32_t done = CountIn(counts, counters + 1 + group, in_group);
    if (done == 0) return;
    const bool exists = unit_->rows[row] >= 0;
    const int first = 31 - __clz(static_cast<int>(up_to));
    bool mine = exists && (done >> first & 1) != 0;
    Fold(slot_ + group * size, mine ? in_group : 0, m, l, o);
    WriteOut(mine && few, m, l, o);
    const bool more = mine && !few;
    if (!__any_sync(kAll, more)) return;
    StoreGroup(more, slot_ + chunks + group, m, l, o);
    const int groups = (chunks + kAttentionFoldGroup - 1) / kAttentionFoldGroup;
    done = CountIn(counts && more, counters, groups);
    if (done == 0) return;
    mine = more && (done >> first & 1) != 0;
    Fold(slot_ + chunks, mine ? groups : 0, m, l, o);
    WriteOut(mine, m, l, o);
  }

 private:
  __device__ float* Partial(int slot) const {
    return args_.partials + int64_t{slot} * kAttentionItemRows * (kDim + 2);
  }

  // In a row of q and of the output, where the values of unit row `of` begin.
  __device__ int64_t Column(int of) const {
    return int64_t{item_.kv_head * args_.group + of % args_.group} * kDim;
  }

  // Of the lanes that count, which are the last of `all` to come. What all
  // lanes wrote before is seen by who comes later, and theirs after this.
  __device__ uint32_t CountIn(bool counts, int* counter, int all) const {
    __syncwarp();
    const bool last = counts && Arrive(counter, 1, all);
    __syncwarp();
    return __ballot_sync(kAll, last);
  }

  // m, l and o become `count` partial results from `slot` on, folded; `slot`
  // and `count` are those of row lane % 16. As FoldedRows::Fold().
  __device__ void Fold(int slot, int count, Maxima m, Maxima l,
                       Values o) const {
    int first[2];
    int counts[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      first[r] = __shfl_sync(kAll, slot, lane_ / 4 + 8 * r);
      counts[r] = __shfl_sync(kAll, count, lane_ / 4 + 8 * r);
      m[r] = -INFINITY;
      l[r] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kColumnBlocks; ++j) {
#pragma unroll
      for (float& x : o[j]) x = 0.0f;
    }
    const int most = __reduce_max_sync(kAll, count);
#pragma unroll 1
    for (int s = 0; s < most; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (s >= counts[r]) continue;
        const int row = lane_ / 4 + 8 * r;
        const float* from = Partial(first[r] + s);
        const float2 ml = __ldcg(reinterpret_cast<const float2*>(
            from + kAttentionItemRows * kDim + 2 * row));
        from += row * kDim + lane_ % 4 * 2;
        float2 values[kColumnBlocks];
#pragma unroll
        for (int j = 0; j < kColumnBlocks; ++j) {
          values[j] = __ldcg(reinterpret_cast<const float2*>(from + 8 * j));
        }
        FoldRow(r, ml, values, m, l, o);
      }
    }
  }

  __device__ void FoldRow(int r, float2 ml, const float2 (&v)[kColumnBlocks],
                          Maxima m, Maxima l, Values o) const {
    const float top = fmaxf(m[r], ml.x);
    const float base = top == -INFINITY ? 0.0f : top;
    const float mine = Exp2(m[r] - base);
    const float theirs = Exp2(ml.x - base);
    m[r] = top;
    l[r] = __fmaf_rn(l[r], mine, __fmul_rn(ml.y, theirs));
#pragma unroll
    for (int j = 0; j < kColumnBlocks; ++j) {
      o[j][2 * r] = __fmaf_rn(o[j][2 * r], mine, __fmul_rn(v[j].x, theirs));
      o[j][2 * r + 1] =
          __fmaf_rn(o[j][2 * r + 1], mine, __fmul_rn(v[j].y, theirs));
    }
  }

  // Rows whose lane says so.
  __device__ void StoreGroup(bool stores, int slot, Maxima m, Maxima l,
                             Values o) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      const int to_slot = __shfl_sync(kAll, slot, row);
      if (__shfl_sync(kAll, stores ? 1 : 0, row) == 0) continue;
      float* to = Partial(to_slot);
      Format::StoreRow(o, r, to + row * kDim, lane_);
      if (lane_ % 4 != 0) continue;
      *reinterpret_cast<float2*>(to + kAttentionItemRows * kDim + 2 * row) = {
          m[r], l[r]};
    }
  }

  // The same; divides by the sum, the head's sink included.
  __device__ void WriteOut(bool writes, Maxima m, Maxima l, Values o) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_ / 4 + 8 * r;
      if (__shfl_sync(kAll, writes ? 1 : 0, row) == 0) continue;
      const int of = unit_->rows[row];
      if (args_.sinks != nullptr) {
        const float sink =
            args_.sinks[item_.kv_head * args_.group + of % args_.group];
        const float2 none[kColumnBlocks] = {};
        FoldRow(r, {sink * kLog2E, 1.0f}, none, m, l, o);
      }
      const float inverse = __frcp_rn(l[r]);
      char* out = static_cast<char*>(args_.out) +
                  of / args_.group * args_.out_stride +
                  2 * (Column(of) + lane_ % 4 * 2);
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j) {
        *reinterpret_cast<uint32_t*>(out + 16 * j) =
            sm90::Pack<T>(o[j][2 * r] * inverse, o[j][2 * r + 1] * inverse);
      }
    }
  }

  const AttentionItemArgs& args_;
  const AttentionItem& item_;
  const AttentionUnit* unit_;
  int slot_;
  int lane_;
};

}  // namespace inlay::items_sm90

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_SHARED_SM90_H_
