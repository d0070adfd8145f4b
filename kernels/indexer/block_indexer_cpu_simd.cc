// block_indexer, the vector row. A step's queries are taken some at a time: the
// blocks of each are cut into ranges, which threads score for all heads, a tile
// of keys widened once for these, and the scores meet in the workspace; then a
// task is one query and head, whose best blocks are looked for. A score is the
// same in every batch and chunk: a dot product has one accumulator vector and
// one lane-sum tree.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/indexer/block_indexer_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/indexer/block_query.h"
#include "kernels/simd_float-inl.h"
#include "kernels/simd_kv_row-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace block_indexer {

constexpr int kKeys = 16;  // of a tile
// Rows are widened two vectors at a time.
constexpr int kPair = 2 * static_cast<int>(kLanes);
constexpr int64_t kQueries = 32;  // at a time
constexpr int64_t kParts = 8;     // ranges of a query's blocks

// Scores of a query's blocks for one head.
int64_t ScoresOfHead(const BlockIndexerDesc& desc) { return desc.max_blocks(); }

class Scorer {
 public:
  explicit Scorer(const BlockIndexerDesc& desc)
      : desc_(desc), padded_((desc.head_dim + kPair - 1) / kPair * kPair) {}

  // Blocks [begin, end) of the query, for each head, to scores[head][block].
  HWY_NOINLINE void Run(const BlockQuery& query, int64_t begin, int64_t end,
                        float* scores) {
    const int64_t room = ScoresOfHead(desc_);
    for (int64_t b = begin; b < end; ++b) {
      for (int h = 0; h < desc_.num_heads; ++h) {
        scores[h * room + b] = -std::numeric_limits<float>::infinity();
      }
      for (int first = 0; first < desc_.block; first += kKeys) {
        const int count = HWY_MIN(desc_.block - first, kKeys);
        LoadKeysOf(query, b * desc_.block + first, count);
        for (int h = 0; h < desc_.num_heads; ++h) {
          float& score = scores[h * room + b];
          score = HWY_MAX(score, BestOf(query, h, count));
        }
      }
    }
  }

 private:
  template <DType kKv>
  HWY_NOINLINE void LoadKeys(const BlockQuery& query, int64_t first,
                             int count) {
    for (int i = 0; i < count; ++i) {
      WidenKvRow<kKv>(query.Key(first + i), static_cast<size_t>(desc_.head_dim),
                      keys_ + i * padded_, static_cast<size_t>(padded_));
    }
    // Keys are scored four at a time; those that are not there repeat the last.
    for (int i = count; i < (count + 3) / 4 * 4; ++i) {
      std::memcpy(keys_ + i * padded_, keys_ + (count - 1) * padded_,
                  sizeof(float) * static_cast<size_t>(padded_));
    }
  }

  HWY_INLINE void LoadKeysOf(const BlockQuery& query, int64_t first,
                             int count) {
    switch (desc_.kv) {
      case DType::kF16:
        return LoadKeys<DType::kF16>(query, first, count);
      case DType::kBF16:
        return LoadKeys<DType::kBF16>(query, first, count);
      case DType::kI8:
        return LoadKeys<DType::kI8>(query, first, count);
      case DType::kF8E4M3:
        return LoadKeys<DType::kF8E4M3>(query, first, count);
      case DType::kKvQ4:
        return LoadKeys<DType::kKvQ4>(query, first, count);
      default:
        return LoadKeys<DType::kF32>(query, first, count);
    }
  }

  // Of the keys that are loaded, for one head.
  HWY_NOINLINE float BestOf(const BlockQuery& query, int head, int count) {
    const DF d;
    WidenRow(
        query.params.q.row<float>(query.row) + int64_t{head} * desc_.head_dim,
        static_cast<size_t>(desc_.head_dim), q_, static_cast<size_t>(padded_));
    float best = -std::numeric_limits<float>::infinity();
    for (int t = 0; t < count; t += 4) {
      const float* k0 = keys_ + t * padded_;
      const float* k1 = k0 + padded_;
      const float* k2 = k1 + padded_;
      const float* k3 = k2 + padded_;
      VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
      for (int i = 0; i < padded_; i += static_cast<int>(kLanes)) {
        const VF x = hn::Load(d, q_ + i);
        s0 = hn::MulAdd(x, hn::Load(d, k0 + i), s0);
        s1 = hn::MulAdd(x, hn::Load(d, k1 + i), s1);
        s2 = hn::MulAdd(x, hn::Load(d, k2 + i), s2);
        s3 = hn::MulAdd(x, hn::Load(d, k3 + i), s3);
      }
      float dots[4];
      StoreSums4(s0, s1, s2, s3, dots);
      for (const float dot : dots) best = HWY_MAX(best, dot);
    }
    return best;
  }

  const BlockIndexerDesc& desc_;
  int padded_;
  HWY_ALIGN float keys_[kKeys * kMaxIndexHeadDim];
  HWY_ALIGN float q_[kMaxIndexHeadDim];
};

// fn(query, its number) of queries [begin, end) of the step.
template <typename Fn>
void ForQueries(const BlockIndexerDesc& desc, const BlockIndexerParams& params,
                int64_t begin, int64_t end, Fn fn) {
  int64_t base = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    for (int64_t i = HWY_MAX(begin - base, int64_t{0});
         i < HWY_MIN(end - base, int64_t{sequence.q_len}); ++i) {
      fn(BlockQuery(desc, params, sequence, i), base + i);
    }
    base += sequence.q_len;
    if (base >= end) return;
  }
}

}  // namespace block_indexer

// Queries [first, first + count) of the step.
void RunBlockIndexer(const BlockIndexerDesc& desc,
                     const BlockIndexerParams& params, int64_t first,
                     int64_t count, ThreadPool& pool) {
  using namespace block_indexer;  // NOLINT: its own file's
  auto* const scores = static_cast<float*>(params.workspace);
  const int64_t heads = desc.num_heads;
  const int64_t room = ScoresOfHead(desc);
  pool.ParallelFor(count * kParts, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    Scorer scorer(desc);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = first + i / kParts;
      const int64_t part = i % kParts;
      ForQueries(desc, params, number, number + 1,
                 [&](const BlockQuery& query, int64_t) {
                   if (query.selects_all() || query.places() == 0) return;
                   scorer.Run(query, query.end() * part / kParts,
                              query.end() * (part + 1) / kParts,
                              scores + (number - first) * heads * room);
                 });
    }
  });
  pool.ParallelFor(count * heads, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    TopKeys top(desc.selects - desc.neighbours);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = first + i / heads;
      const int head = static_cast<int>(i % heads);
      ForQueries(desc, params, number, number + 1,
                 [&](const BlockQuery& query, int64_t) {
                   if (query.selects_all()) return query.SelectAllBlocks(head);
                   top.Clear();
                   for (int64_t b = 0; query.places() > 0 && b < query.end();
                        ++b) {
                     top.Add(scores[i * room + b], static_cast<int32_t>(b));
                   }
                   query.Select(head, top);
                 });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunBlockIndexer);

size_t BlockIndexerCpuSimdBytes(const BlockIndexerDesc& desc,
                                int64_t max_rows) {
  namespace target = HWY_NAMESPACE::block_indexer;
  return static_cast<size_t>(HWY_MIN(max_rows, target::kQueries) *
                             desc.num_heads * target::ScoresOfHead(desc)) *
         sizeof(float);
}

absl::Status RunBlockIndexerCpuSimd(const BlockIndexerDesc& desc,
                                    const BlockIndexerParams& params,
                                    Stream& stream) {
  int64_t queries = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    queries += sequence.q_len;
  }
  constexpr int64_t kStep = HWY_NAMESPACE::block_indexer::kQueries;
  for (int64_t first = 0; first < queries; first += kStep) {
    HWY_DYNAMIC_DISPATCH(RunBlockIndexer)
    (desc, params, first, HWY_MIN(kStep, queries - first),
     *stream.thread_pool());
  }
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
