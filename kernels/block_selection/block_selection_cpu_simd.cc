// block_selection, the vector row. A task is one query and KV head: what the
// group's heads ask for is made into one vector (bounds: the positive and the
// negative parts of their sum; k-means: their sum) or into words (LSH), and
// blocks are scored some at a time. Where there are few tasks, each is several,
// a range of blocks each, whose best meet again in the workspace: the best of
// all are the same. A block's score is the same in every range, batch and
// chunk: a dot product has one accumulator vector and one lane-sum tree.
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

// So few tasks are cut into up to kParts ranges of at least kLeastPart blocks.
constexpr int64_t kFewTasks = 32;
constexpr int kParts = 8;
constexpr int64_t kLeastPart = 64;

struct Part {
  int64_t count;  // of entries that a range has left in the workspace
};

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

  HWY_NOINLINE void RunPart(const AttentionSequence& sequence, int64_t index,
                            int head, int part, Part& to, uint64_t* entries) {
    const BlockChoice choice(desc_, params_, sequence, index, head);
    const int64_t count = choice.end() - kSinkBlocks;
    const int64_t parts =
        HWY_MIN(int64_t{kParts}, (count + kLeastPart - 1) / kLeastPart);
    to.count = 0;
    if (choice.selects_all() || part >= parts) return;
    top_.Clear();
    ScoreRange(choice, head, kSinkBlocks + count * part / parts,
               kSinkBlocks + count * (part + 1) / parts);
    to.count = top_.TakeEntries(entries);
  }

  HWY_NOINLINE void Join(const AttentionSequence& sequence, int64_t index,
                         int head, const Part* parts, const uint64_t* entries) {
    const BlockChoice choice(desc_, params_, sequence, index, head);
    if (choice.selects_all()) return choice.SelectAllBlocks();
    top_.Clear();
    for (int i = 0; i < kParts; ++i) {
      top_.AddEntries(entries + int64_t{i} * Entries(desc_), parts[i].count);
    }
    choice.Select(top_);
  }

  static int Entries(const BlockSelectionDesc& desc) {
    return desc.num_blocks - kForcedBlocks;
  }

 private:
  const float* Query(const BlockChoice& choice, int head) const {
    return params_.q.row<float>(choice.row) +
           int64_t{head} * group_ * desc_.head_dim;
  }

  // Adds blocks [begin, end) to top_.
  void ScoreRange(const BlockChoice& choice, int head, int64_t begin,
                  int64_t end) {
    if (desc_.method == BlockMethod::kLsh) {
      return HashRange(choice, head, begin, end);
    }
    const int dim = desc_.head_dim;
    const bool bounds = desc_.method == BlockMethod::kBounds;
    SumHeads(Query(choice, head), bounds);
    // Rows of as many elements: a block's bounds are one, its centroids two.
    const int width = bounds ? 2 * dim : dim;
    const int blocks = bounds ? kRows : kRows / kCentroids;
    for (int64_t b = begin; b < end; b += blocks) {
      const std::byte* rows[kRows];
      float dots[kRows];
      for (int i = 0; i < kRows; ++i) {
        const int64_t block =
            HWY_MIN(b + (bounds ? i : i / kCentroids), end - 1);
        rows[i] = choice.Summary(params_.summaries, head, block);
        if (!bounds) rows[i] += i % kCentroids * 2 * dim;
      }
      Prefetch(choice, head, b + kAhead, blocks, end);
      Dots(rows, width, dots);
      for (int i = 0; i < blocks && b + i < end; ++i) {
        const float score = bounds ? dots[i] : Most(dots + i * kCentroids);
        top_.Add(score, static_cast<int32_t>(b + i));
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

  void Prefetch(const BlockChoice& choice, int head, int64_t first, int count,
                int64_t end) const {
    for (int64_t b = first; b < HWY_MIN(first + count, end); ++b) {
      const std::byte* at = choice.Summary(params_.summaries, head, b);
      for (size_t i = 0; i < bytes_; i += 64) hwy::Prefetch(at + i);
    }
  }

  // sum_ = the sum of the group's queries; with `bounds` each one's negative
  // elements, and behind them its positive ones.
  HWY_NOINLINE void SumHeads(const float* q, bool bounds) {
    const int dim = desc_.head_dim;
    std::memset(sum_, 0, sizeof(float) * static_cast<size_t>(2 * dim));
    for (int h = 0; h < group_; ++h, q += dim) {
      for (int d = 0; d < dim; ++d) {
        if (!bounds) {
          sum_[d] += q[d];
        } else if (q[d] > 0.0f) {
          sum_[dim + d] += q[d];
        } else {
          sum_[d] += q[d];
        }
      }
    }
  }

  // dots[0 .. kRows) = sum_ . rows[..], of `width` elements.
  HWY_NOINLINE void Dots(const std::byte* const* rows, int width, float* dots) {
    const DF d;
    const hwy::bfloat16_t* row[kRows];
    for (int i = 0; i < kRows; ++i) {
      row[i] = reinterpret_cast<const hwy::bfloat16_t*>(rows[i]);
    }
    VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    const auto count = static_cast<size_t>(width);
    for (; i + kLanes <= count; i += kLanes) {
      const VF x = hn::LoadU(d, sum_ + i);
      s0 = hn::MulAdd(x, LoadWide(row[0] + i), s0);
      s1 = hn::MulAdd(x, LoadWide(row[1] + i), s1);
      s2 = hn::MulAdd(x, LoadWide(row[2] + i), s2);
      s3 = hn::MulAdd(x, LoadWide(row[3] + i), s3);
    }
    if (const size_t rest = count - i; rest > 0) {
      const VF x = LoadWideTail(sum_ + i, rest);
      s0 = hn::MulAdd(x, LoadWideTail(row[0] + i, rest), s0);
      s1 = hn::MulAdd(x, LoadWideTail(row[1] + i, rest), s1);
      s2 = hn::MulAdd(x, LoadWideTail(row[2] + i, rest), s2);
      s3 = hn::MulAdd(x, LoadWideTail(row[3] + i, rest), s3);
    }
    StoreSums4(s0, s1, s2, s3, dots);
  }

  void HashRange(const BlockChoice& choice, int head, int64_t begin,
                 int64_t end) {
    const float* q = Query(choice, head);
    for (int h = 0; h < group_; ++h, q += desc_.head_dim) {
      HashVector(q, desc_.head_dim, sum_, words_[h]);
    }
    for (int64_t b = begin; b < end; ++b) {
      Prefetch(choice, head, b + kAhead, 1, end);
      top_.Add(HashScore(choice.Summary(params_.summaries, head, b)),
               static_cast<int32_t>(b));
    }
  }

  // Each head's most like key, the equal bits added up: an integer.
  HWY_INLINE float HashScore(const std::byte* summary) const {
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
          const auto word = hn::Set(d, words_[h][w]);
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
  size_t bytes_;                     // of a summary
  HWY_ALIGN float sum_[kMostWidth];  // or a rotation's space
  uint64_t words_[kMaxSelectingGroup][kHashWords];
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

// Each task in parts, and then each as a whole.
void RunInParts(const BlockSelectionDesc& desc,
                const BlockSelectionParams& params, int64_t tasks,
                ThreadPool& pool) {
  auto* const parts = static_cast<Part*>(params.workspace);
  auto* const entries = reinterpret_cast<uint64_t*>(parts + kFewTasks * kParts);
  const int64_t room = Runner::Entries(desc);
  pool.ParallelFor(tasks * kParts, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    Runner runner(desc, params);
    for (int64_t i = begin; i < end; ++i) {
      ForTasks(desc, params, i / kParts, i / kParts + 1,
               [&](const AttentionSequence& sequence, int64_t query, int head) {
                 runner.RunPart(sequence, query, head,
                                static_cast<int>(i % kParts), parts[i],
                                entries + i * room);
               });
    }
  });
  pool.ParallelFor(tasks, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
    Runner runner(desc, params);
    int64_t i = begin;
    ForTasks(desc, params, begin, end,
             [&](const AttentionSequence& sequence, int64_t query, int head) {
               runner.Join(sequence, query, head, parts + i * kParts,
                           entries + i * kParts * room);
               ++i;
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

// Of every part that there may be a count; then room for as many entries as
// compete.
size_t BlockSelectionCpuSimdBytes(const BlockSelectionDesc& desc, int64_t) {
  namespace target = HWY_NAMESPACE::block_selection;
  const auto entries = static_cast<size_t>(target::Runner::Entries(desc));
  return static_cast<size_t>(target::kFewTasks * target::kParts) *
         (sizeof(target::Part) + sizeof(uint64_t) * entries);
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
