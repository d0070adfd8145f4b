// block_selection, the vector row. What the heads of a group ask for is made
// into one vector (bounds: the positive and the negative parts of their sum;
// k-means: their sum) or into words (LSH), and blocks are scored some at a
// time. A task is one query and KV head. Where there are few tasks, a query's
// blocks are cut into ranges instead, each scored for all KV heads, whose
// summaries lie side by side, and the scores meet in the workspace. A block's
// score is the same either way, in every batch and chunk: a dot product has one
// accumulator vector and one lane-sum tree.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_selection/block_selection_cpu_simd.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/block_selection/block_choice.h"
#include "kernels/block_selection/block_hash.h"
#include "kernels/block_selection/block_selection.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace block_selection {

constexpr int kRows = 4;  // of summaries that are multiplied at a time
// What is asked for ahead of its use, in blocks.
constexpr int kAhead = 8;
constexpr int kMostWidth = 2 * kMaxSummaryHeadDim;

// Of so few tasks the queries are cut into kParts ranges of blocks.
constexpr int64_t kFewTasks = 32;
constexpr int kParts = 16;
constexpr int kHeadTile = 8;  // KV heads whose queries are kept at a time

// Scores of one task: of every block that a sequence may have.
int64_t ScoresOfTask(const BlockSelectionDesc& desc) {
  return (desc.max_keys + kSelectBlock - 1) / kSelectBlock;
}

class Runner {
 public:
  Runner(const BlockSelectionDesc& desc, const BlockSelectionParams& params)
      : desc_(desc),
        params_(params),
        group_(desc.num_heads / desc.num_kv_heads),
        bytes_(BlockSummaryBytes(desc.method, desc.head_dim)),
        top_(desc.num_blocks - kForcedBlocks) {}

  HWY_NOINLINE void Run(const AttentionSequence& sequence, int64_t index,
                        int head) {
    const BlockChoice choice(desc_, params_, sequence, index, head);
    if (choice.selects_all()) return choice.SelectAllBlocks();
    top_.Clear();
    ScoreRange(choice, head, kSinkBlocks, choice.end());
    choice.Select(top_);
  }

  // Scores part `part` of the query's blocks, for every KV head, to
  // scores[head][block].
  HWY_NOINLINE void RunPart(const AttentionSequence& sequence, int64_t index,
                            int part, float* scores) {
    const int64_t room = ScoresOfTask(desc_);
    const BlockChoice choice(desc_, params_, sequence, index, 0);
    if (choice.selects_all()) return;
    const int64_t count = choice.end() - kSinkBlocks;
    const int64_t begin = kSinkBlocks + count * part / kParts;
    const int64_t end = kSinkBlocks + count * (part + 1) / kParts;
    for (int head = 0; head < desc_.num_kv_heads; head += kHeadTile) {
      const int heads = HWY_MIN(kHeadTile, desc_.num_kv_heads - head);
      for (int h = 0; h < heads; ++h) Load(choice, head + h, h);
      for (int64_t b = begin; b < end; b += step()) {
        for (int h = 0; h < heads; ++h) {
          Prefetch(choice, head + h, b + kAhead, end);
        }
        for (int h = 0; h < heads; ++h) {
          float of[kRows];
          Score(choice, head + h, h, b, end, of);
          for (int i = 0; i < step() && b + i < end; ++i) {
            scores[(head + h) * room + b + i] = of[i];
          }
        }
      }
    }
  }

  HWY_NOINLINE void Choose(const AttentionSequence& sequence, int64_t index,
                           int head, const float* scores) {
    const BlockChoice choice(desc_, params_, sequence, index, head);
    if (choice.selects_all()) return choice.SelectAllBlocks();
    top_.Clear();
    for (int64_t b = kSinkBlocks; b < choice.end(); ++b) {
      top_.Add(scores[b], static_cast<int32_t>(b));
    }
    choice.Select(top_);
  }

 private:
  bool hashes() const { return desc_.method == BlockMethod::kLsh; }
  bool bounds() const { return desc_.method == BlockMethod::kBounds; }
  // Blocks that are scored at a time: a block's bounds are one row of twice
  // head_dim, its centroids are rows of head_dim.
  int step() const {
    return hashes() ? 1 : bounds() ? kRows : kRows / kCentroids;
  }

  // What KV head `head` of the query asks for, into place `at`.
  HWY_NOINLINE void Load(const BlockChoice& choice, int head, int at) {
    const float* q = params_.q.row<float>(choice.row) +
                     int64_t{head} * group_ * desc_.head_dim;
    if (!hashes()) return SumHeads(q, sums_[at]);
    for (int h = 0; h < group_; ++h, q += desc_.head_dim) {
      HashVector(q, desc_.head_dim, sums_[at], words_[at][h]);
    }
  }

  // Of blocks [b, b + step()), of which those from `end` on count for nothing.
  void Score(const BlockChoice& choice, int head, int at, int64_t b,
             int64_t end, float* scores) {
    const KvLayerView& summaries = params_.summaries;
    if (hashes()) {
      scores[0] = HashScore(choice.Summary(summaries, head, b), words_[at]);
      return;
    }
    const int dim = desc_.head_dim;
    const std::byte* rows[kRows];
    float dots[kRows];
    for (int i = 0; i < kRows; ++i) {
      const int64_t block =
          HWY_MIN(b + (bounds() ? i : i / kCentroids), end - 1);
      rows[i] = choice.Summary(summaries, head, block);
      if (!bounds()) rows[i] += i % kCentroids * 2 * dim;
    }
    Dots(rows, sums_[at], bounds() ? 2 * dim : dim, dots);
    for (int i = 0; i < step(); ++i) {
      scores[i] = bounds() ? dots[i] : Most(dots + i * kCentroids);
    }
  }

  // Adds blocks [begin, end) to top_.
  void ScoreRange(const BlockChoice& choice, int head, int64_t begin,
                  int64_t end) {
    Load(choice, head, 0);
    for (int64_t b = begin; b < end; b += step()) {
      Prefetch(choice, head, b + kAhead, end);
      float scores[kRows];
      Score(choice, head, 0, b, end, scores);
      for (int i = 0; i < step() && b + i < end; ++i) {
        top_.Add(scores[i], static_cast<int32_t>(b + i));
      }
    }
  }

  // NaN, if one is.
  static float Most(const float* dots) {
    float most = dots[0];
    for (int i = 1; i < kCentroids; ++i) {
      if (!(dots[i] <= most)) most = dots[i];
    }
    return most;
  }

  // Of blocks [b, b + step()).
  void Prefetch(const BlockChoice& choice, int head, int64_t b,
                int64_t end) const {
    for (const int64_t last = HWY_MIN(b + step(), end); b < last; ++b) {
      const std::byte* at = choice.Summary(params_.summaries, head, b);
      for (size_t i = 0; i < bytes_; i += 64) hwy::Prefetch(at + i);
    }
  }

  // The sum of the group's queries; of bounds each one's negative elements, and
  // behind them its positive ones.
  void SumHeads(const float* q, float* sum) const {
    const int dim = desc_.head_dim;
    std::memset(sum, 0, sizeof(float) * static_cast<size_t>(2 * dim));
    for (int h = 0; h < group_; ++h, q += dim) {
      for (int d = 0; d < dim; ++d) {
        sum[bounds() && q[d] > 0.0f ? dim + d : d] += q[d];
      }
    }
  }

  // dots[0 .. kRows) = sum . rows[..], of `width` elements.
  static HWY_NOINLINE void Dots(const std::byte* const* rows, const float* sum,
                                int width, float* dots) {
    const DF d;
    const hwy::bfloat16_t* row[kRows];
    for (int i = 0; i < kRows; ++i) {
      row[i] = reinterpret_cast<const hwy::bfloat16_t*>(rows[i]);
    }
    VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    const auto count = static_cast<size_t>(width);
    for (; i + kLanes <= count; i += kLanes) {
      const VF x = hn::LoadU(d, sum + i);
      s0 = hn::MulAdd(x, LoadWide(row[0] + i), s0);
      s1 = hn::MulAdd(x, LoadWide(row[1] + i), s1);
      s2 = hn::MulAdd(x, LoadWide(row[2] + i), s2);
      s3 = hn::MulAdd(x, LoadWide(row[3] + i), s3);
    }
    if (const size_t rest = count - i; rest > 0) {
      const VF x = LoadWideTail(sum + i, rest);
      s0 = hn::MulAdd(x, LoadWideTail(row[0] + i, rest), s0);
      s1 = hn::MulAdd(x, LoadWideTail(row[1] + i, rest), s1);
      s2 = hn::MulAdd(x, LoadWideTail(row[2] + i, rest), s2);
      s3 = hn::MulAdd(x, LoadWideTail(row[3] + i, rest), s3);
    }
    StoreSums4(s0, s1, s2, s3, dots);
  }

  // Each head's most like key, the equal bits added up: an integer.
  HWY_INLINE float HashScore(const std::byte* summary,
                             const uint64_t (*words)[kHashWords]) const {
    const hn::CappedTag<uint64_t, kSelectBlock> d;
    constexpr size_t kStep = hn::MaxLanes(d);
    HWY_ALIGN uint64_t keys[kHashWords * kSelectBlock];
    std::memcpy(keys, summary, sizeof(keys));
    int score = 0;
    for (int h = 0; h < group_; ++h) {
      auto least = hn::Set(d, uint64_t{kHashBits});
      for (size_t t = 0; t < kSelectBlock; t += kStep) {
        auto count = hn::Zero(d);
        for (size_t w = 0; w < kHashWords; ++w) {
          const auto word = hn::Set(d, words[h][w]);
          const auto key = hn::Load(d, keys + w * kSelectBlock + t);
          count = hn::Add(count, hn::PopulationCount(hn::Xor(word, key)));
        }
        least = hn::Min(least, count);
      }
      HWY_ALIGN uint64_t lanes[kStep];
      hn::Store(least, d, lanes);
      uint64_t bits = kHashBits;
      for (const uint64_t lane : lanes) bits = HWY_MIN(bits, lane);
      score += kHashBits - static_cast<int>(bits);
    }
    return static_cast<float>(score);
  }

  const BlockSelectionDesc& desc_;
  const BlockSelectionParams& params_;
  int group_;
  size_t bytes_;                                 // of a summary
  HWY_ALIGN float sums_[kHeadTile][kMostWidth];  // or a rotation's space
  uint64_t words_[kHeadTile][kMaxSelectingGroup][kHashWords];
  TopKeys top_;
};

// Calls fn(sequence, query, KV head) for tasks [begin, end) of the step, the
// dearest first, so that threads finish together: within a sequence those are
// its last queries.
template <typename Fn>
void ForTasks(const BlockSelectionDesc& desc,
              const BlockSelectionParams& params, int64_t begin, int64_t end,
              Fn fn) {
  const int64_t heads = desc.num_kv_heads;
  int64_t base = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    const int64_t count = sequence.q_len * heads;
    for (int64_t i = HWY_MAX(begin - base, int64_t{0});
         i < HWY_MIN(end - base, count); ++i) {
      fn(sequence, sequence.q_len - 1 - i / heads, static_cast<int>(i % heads));
    }
    base += count;
    if (base >= end) return;
  }
}

// Scores of each query in parts, and then each task.
void RunInParts(const BlockSelectionDesc& desc,
                const BlockSelectionParams& params, int64_t tasks,
                ThreadPool& pool) {
  auto* const scores = static_cast<float*>(params.workspace);
  const int64_t heads = desc.num_kv_heads;
  const int64_t room = ScoresOfTask(desc);
  pool.ParallelFor(
      tasks / heads * kParts, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
        Runner runner(desc, params);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t task = i / kParts * heads;
          ForTasks(desc, params, task, task + 1,
                   [&](const AttentionSequence& sequence, int64_t query, int) {
                     runner.RunPart(sequence, query,
                                    static_cast<int>(i % kParts),
                                    scores + task * room);
                   });
        }
      });
  pool.ParallelFor(tasks, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    Runner runner(desc, params);
    int64_t i = begin;
    ForTasks(desc, params, begin, end,
             [&](const AttentionSequence& sequence, int64_t query, int head) {
               runner.Choose(sequence, query, head, scores + i++ * room);
             });
  });
}

}  // namespace block_selection

void RunBlockSelection(const BlockSelectionDesc& desc,
                       const BlockSelectionParams& params, ThreadPool& pool) {
  int64_t tasks = 0;
  for (const AttentionSequence& sequence : params.sequences) {
    tasks += int64_t{sequence.q_len} * desc.num_kv_heads;
  }
  if (tasks <= block_selection::kFewTasks) {
    return block_selection::RunInParts(desc, params, tasks, pool);
  }
  pool.ParallelFor(tasks, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    block_selection::Runner runner(desc, params);
    block_selection::ForTasks(
        desc, params, begin, end,
        [&](const AttentionSequence& sequence, int64_t query, int head) {
          runner.Run(sequence, query, head);
        });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunBlockSelection);

size_t BlockSelectionCpuSimdBytes(const BlockSelectionDesc& desc, int64_t) {
  namespace target = HWY_NAMESPACE::block_selection;
  return static_cast<size_t>(target::kFewTasks * target::ScoresOfTask(desc)) *
         sizeof(float);
}

absl::Status RunBlockSelectionCpuSimd(const BlockSelectionDesc& desc,
                                      const BlockSelectionParams& params,
                                      Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunBlockSelection)
  (desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
