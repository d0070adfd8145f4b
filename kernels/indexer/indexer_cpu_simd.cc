// indexer, the vector row. A task is one query: its heads meet a tile of keys,
// widened once for all of them, and what the tile's keys score goes to the
// best so far. Where there are few queries, each is several tasks, a range of
// keys each, whose best meet again in the workspace: the best of all are the
// same. A score is the same in every tile, batch and chunk: a dot product has
// one accumulator vector and one lane-sum tree, heads are added up in their
// order.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/indexer/indexer_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/indexer/indexer.h"
#include "kernels/indexer/top_keys.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_kv_row-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace indexer {

constexpr int kKeys = 32;  // of a tile; a multiple of every vector's lanes
// Rows are widened two vectors at a time.
constexpr int kPair = 2 * static_cast<int>(kLanes);
constexpr int kHeads = 3;  // that meet four keys at a time

// So few queries are cut into up to kParts ranges of at least kLeastPart keys.
constexpr int64_t kFewQueries = 16;
constexpr int kParts = 16;
constexpr int64_t kLeastPart = 128;

// How many entries a range has left in the workspace.
struct Part {
  int64_t count;
};

class Runner {
 public:
  Runner(const IndexerDesc& desc, const IndexerParams& params)
      : desc_(desc),
        params_(params),
        padded_((desc.head_dim + kPair - 1) / kPair * kPair),
        top_(desc.top_k) {}

  // Query `index` of `sequence`.
  HWY_NOINLINE void Run(const AttentionSequence& sequence, int64_t index) {
    const int64_t count = NumKeys(sequence, index);
    if (count > desc_.top_k) {
      top_.Clear();
      ScoreRange(sequence, index, 0, count);
    }
    Select(sequence, index);
  }

  // The best of the keys that are part `part` of the query's, to `to`.
  HWY_NOINLINE void RunPart(const AttentionSequence& sequence, int64_t index,
                            int part, Part& to, uint64_t* entries) {
    const int64_t count = NumKeys(sequence, index);
    const int64_t parts =
        HWY_MIN(int64_t{kParts}, (count + kLeastPart - 1) / kLeastPart);
    to.count = 0;
    if (count <= desc_.top_k || part >= parts) return;
    top_.Clear();
    ScoreRange(sequence, index, count * part / parts,
               count * (part + 1) / parts);
    to.count = top_.TakeEntries(entries);
  }

  // Query `index`, of the best of its parts.
  HWY_NOINLINE void Join(const AttentionSequence& sequence, int64_t index,
                         const Part* parts, const uint64_t* entries) {
    top_.Clear();
    for (int i = 0; i < kParts; ++i) {
      top_.AddEntries(entries + int64_t{i} * desc_.top_k, parts[i].count);
    }
    Select(sequence, index);
  }

 private:
  static int64_t Seen(const AttentionSequence& sequence, int64_t index) {
    return int64_t{sequence.kv_len} - sequence.q_len + index + 1;
  }
  int64_t NumKeys(const AttentionSequence& sequence, int64_t index) const {
    return Seen(sequence, index) / desc_.key_tokens;
  }

  // Adds keys [begin, end) of the query to top_.
  void ScoreRange(const AttentionSequence& sequence, int64_t index,
                  int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t += kKeys) {
      const auto keys = static_cast<int>(HWY_MIN(end - t, int64_t{kKeys}));
      LoadKeysOf(sequence, t, keys);
      ScoreKeys(sequence.q_begin + index, keys);
      for (int i = 0; i < keys; ++i) {
        top_.Add(scores_[i], static_cast<int32_t>(t + i));
      }
    }
  }

  // Of all keys, or of those in top_ where there are too many.
  void Select(const AttentionSequence& sequence, int64_t index) {
    const int64_t count = NumKeys(sequence, index);
    int32_t* const selection =
        params_.selection + (sequence.q_begin + index) * desc_.width();
    if (desc_.adds_partial) {
      SelectPartial(sequence.blocks, params_.kv.block_size,
                    Seen(sequence, index), desc_.key_tokens,
                    selection + HWY_MIN(count, int64_t{desc_.top_k}));
    }
    if (count <= desc_.top_k) {
      return SelectAll(sequence.blocks, params_.kv.block_size, count,
                       selection);
    }
    top_.Take(sequence.blocks, params_.kv.block_size, selection);
  }

  template <DType kKv>
  HWY_NOINLINE void LoadKeys(const AttentionSequence& sequence, int64_t first,
                             int count) {
    const KvLayerView& kv = params_.kv;
    for (int i = 0; i < count; ++i) {
      const int64_t t = first + i;
      const std::byte* row = kv.KeyRow(sequence.blocks[t / kv.block_size], 0,
                                       static_cast<int>(t % kv.block_size));
      WidenKvRow<kKv>(row, static_cast<size_t>(desc_.head_dim),
                      keys_ + i * padded_, static_cast<size_t>(padded_));
    }
    // Keys are scored four at a time.
    const int rest = -count & 3;
    std::memset(keys_ + count * padded_, 0,
                sizeof(float) * static_cast<size_t>(rest * padded_));
  }

  HWY_INLINE void LoadKeysOf(const AttentionSequence& sequence, int64_t first,
                             int count) {
    switch (desc_.kv) {
      case DType::kF16:
        return LoadKeys<DType::kF16>(sequence, first, count);
      case DType::kBF16:
        return LoadKeys<DType::kBF16>(sequence, first, count);
      case DType::kI8:
        return LoadKeys<DType::kI8>(sequence, first, count);
      case DType::kF8E4M3:
        return LoadKeys<DType::kF8E4M3>(sequence, first, count);
      case DType::kKvQ4:
        return LoadKeys<DType::kKvQ4>(sequence, first, count);
      default:
        return LoadKeys<DType::kF32>(sequence, first, count);
    }
  }

  // dots_[0 .. kCount)[t .. t + 4) = q . k
  template <int kCount>
  HWY_INLINE void DotTile(int t) {
    const DF d;
    const float* k0 = keys_ + t * padded_;
    const float* k1 = k0 + padded_;
    const float* k2 = k1 + padded_;
    const float* k3 = k2 + padded_;
    VF sums[kCount][4];
    for (auto& of_head : sums) {
      for (VF& sum : of_head) sum = hn::Zero(d);
    }
    for (int i = 0; i < padded_; i += static_cast<int>(kLanes)) {
      const VF y0 = hn::Load(d, k0 + i), y1 = hn::Load(d, k1 + i);
      const VF y2 = hn::Load(d, k2 + i), y3 = hn::Load(d, k3 + i);
      for (int h = 0; h < kCount; ++h) {
        const VF x = hn::Load(d, heads_ + h * padded_ + i);
        sums[h][0] = hn::MulAdd(x, y0, sums[h][0]);
        sums[h][1] = hn::MulAdd(x, y1, sums[h][1]);
        sums[h][2] = hn::MulAdd(x, y2, sums[h][2]);
        sums[h][3] = hn::MulAdd(x, y3, sums[h][3]);
      }
    }
    for (int h = 0; h < kCount; ++h) {
      StoreSums4(sums[h][0], sums[h][1], sums[h][2], sums[h][3],
                 dots_ + h * kKeys + t);
    }
  }

  // Heads [first, first + kCount) of query `row`: scores_ += weight * max(dot,
  // 0).
  template <int kCount>
  HWY_NOINLINE void AddHeads(int64_t row, int first, int count) {
    const DF d;
    const float* q =
        params_.q.row<float>(row) + int64_t{first} * desc_.head_dim;
    for (int h = 0; h < kCount; ++h) {
      WidenRow(q + int64_t{h} * desc_.head_dim,
               static_cast<size_t>(desc_.head_dim), heads_ + h * padded_,
               static_cast<size_t>(padded_));
    }
    for (int t = 0; t < count; t += 4) DotTile<kCount>(t);
    const float* weights = params_.weights.row<float>(row) + first;
    for (int h = 0; h < kCount; ++h) {
      const VF weight = hn::Set(d, weights[h]);
      for (int t = 0; t < kKeys; t += static_cast<int>(kLanes)) {
        const VF dot = hn::Max(hn::Load(d, dots_ + h * kKeys + t), hn::Zero(d));
        hn::Store(hn::MulAdd(weight, dot, hn::Load(d, scores_ + t)), d,
                  scores_ + t);
      }
    }
  }

  // Of the tile's first `count` keys; what is behind them is any number.
  void ScoreKeys(int64_t row, int count) {
    std::memset(scores_, 0, sizeof(scores_));
    int h = 0;
    for (; h + kHeads <= desc_.num_heads; h += kHeads) {
      AddHeads<kHeads>(row, h, count);
    }
    switch (desc_.num_heads - h) {
      case 2:
        return AddHeads<2>(row, h, count);
      case 1:
        return AddHeads<1>(row, h, count);
    }
  }

  const IndexerDesc& desc_;
  const IndexerParams& params_;
  int padded_;
  HWY_ALIGN float keys_[kKeys * kMaxIndexHeadDim];
  HWY_ALIGN float heads_[kHeads * kMaxIndexHeadDim];
  HWY_ALIGN float dots_[kHeads * kKeys] = {};
  HWY_ALIGN float scores_[kKeys];
  TopKeys top_;
};

// Calls fn(sequence, query of it) for queries [begin, end) of the step, the
// dearest first, so that threads finish together: within a sequence those are
// its last.
template <typename Fn>
void ForQueries(const IndexerParams& params, int64_t begin, int64_t end,
                Fn fn) {
  int64_t base = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    for (int64_t i = HWY_MAX(begin - base, int64_t{0});
         i < HWY_MIN(end - base, int64_t{sequence.q_len}); ++i) {
      fn(sequence, sequence.q_len - 1 - i);
    }
    base += sequence.q_len;
    if (base >= end) return;
  }
}

// Each query in parts, and then each as a whole.
void RunInParts(const IndexerDesc& desc, const IndexerParams& params,
                int64_t queries, ThreadPool& pool) {
  auto* const parts = static_cast<Part*>(params.workspace);
  auto* const entries =
      reinterpret_cast<uint64_t*>(parts + kFewQueries * kParts);
  pool.ParallelFor(
      queries * kParts, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
        Runner runner(desc, params);
        for (int64_t i = begin; i < end; ++i) {
          ForQueries(params, i / kParts, i / kParts + 1,
                     [&](const AttentionSequence& sequence, int64_t query) {
                       runner.RunPart(sequence, query,
                                      static_cast<int>(i % kParts), parts[i],
                                      entries + i * desc.top_k);
                     });
        }
      });
  pool.ParallelFor(queries, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    Runner runner(desc, params);
    int64_t i = begin;
    ForQueries(params, begin, end,
               [&](const AttentionSequence& sequence, int64_t query) {
                 runner.Join(sequence, query, parts + i * kParts,
                             entries + i * kParts * desc.top_k);
                 ++i;
               });
  });
}

}  // namespace indexer

void RunIndexer(const IndexerDesc& desc, const IndexerParams& params,
                ThreadPool& pool) {
  int64_t queries = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    queries += sequence.q_len;
  }
  if (queries <= indexer::kFewQueries) {
    return indexer::RunInParts(desc, params, queries, pool);
  }
  pool.ParallelFor(queries, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    indexer::Runner runner(desc, params);
    indexer::ForQueries(params, begin, end,
                        [&](const AttentionSequence& sequence, int64_t query) {
                          runner.Run(sequence, query);
                        });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunIndexer);

// Of every part that there may be a count; then room for as many entries as are
// selected.
size_t IndexerCpuSimdBytes(const IndexerDesc& desc, int64_t) {
  namespace target = HWY_NAMESPACE::indexer;
  const size_t part_bytes =
      sizeof(target::Part) + sizeof(uint64_t) * static_cast<size_t>(desc.top_k);
  return static_cast<size_t>(target::kFewQueries * target::kParts) * part_bytes;
}

absl::Status RunIndexerCpuSimd(const IndexerDesc& desc,
                               const IndexerParams& params, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunIndexer)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
