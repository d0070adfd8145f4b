// block_selection, the scalar reference row: one block after another, sums in
// double.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/block_selection/block_choice.h"
#include "kernels/block_selection/block_hash.h"
#include "kernels/block_selection/block_selection.h"
#include "kernels/cpu_float.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

class Scorer {
 public:
  // Of the group whose queries begin at `q`.
  Scorer(const BlockSelectionDesc& desc, const float* q)
      : desc_(desc), q_(q), group_(desc.num_heads / desc.num_kv_heads) {
    if (desc.method != BlockMethod::kLsh) return;
    float space[kMaxSummaryHeadDim];
    for (int h = 0; h < group_; ++h) {
      HashVector(q + h * desc.head_dim, desc.head_dim, space, words_[h]);
    }
  }

  float Score(const std::byte* summary) const {
    switch (desc_.method) {
      case BlockMethod::kBounds:
        return Bounds(summary);
      case BlockMethod::kKMeans:
        return KMeans(summary);
      default:
        return Lsh(summary);
    }
  }

 private:
  // The heads' upper bounds of q . key, added up.
  float Bounds(const std::byte* summary) const {
    double score = 0.0;
    const int dim = desc_.head_dim;
    for (int h = 0; h < group_; ++h) {
      for (int d = 0; d < dim; ++d) {
        const float x = q_[h * dim + d];
        // The bound of the dimension.
        const int at = x > 0.0f ? dim + d : d;
        score += double{x} * LoadFloat(DType::kBF16, summary, at);
      }
    }
    return static_cast<float>(score);
  }

  // The nearer centroid of the heads' sum.
  float KMeans(const std::byte* summary) const {
    double best = -std::numeric_limits<double>::infinity();
    const int dim = desc_.head_dim;
    for (int c = 0; c < kCentroids; ++c) {
      double dot = 0.0;
      for (int h = 0; h < group_; ++h) {
        for (int d = 0; d < dim; ++d) {
          dot += double{q_[h * dim + d]} *
                 LoadFloat(DType::kBF16, summary, c * dim + d);
        }
      }
      if (!(dot <= best)) best = dot;
    }
    return static_cast<float>(best);
  }

  // Each head's most like key, the equal bits added up.
  float Lsh(const std::byte* summary) const {
    uint64_t words[kHashWords][kSelectBlock];
    std::memcpy(words, summary, sizeof(words));
    int score = 0;
    for (int h = 0; h < group_; ++h) {
      int least = kHashBits;
      for (int t = 0; t < kSelectBlock; ++t) {
        int different = 0;
        for (int w = 0; w < kHashWords; ++w) {
          different += std::popcount(words_[h][w] ^ words[w][t]);
        }
        least = std::min(least, different);
      }
      score += kHashBits - least;
    }
    return static_cast<float>(score);
  }

  const BlockSelectionDesc& desc_;
  const float* q_;
  int group_;
  uint64_t words_[kMaxSelectingGroup][kHashWords];
};

}  // namespace

absl::Status RunBlockSelectionCpuScalar(const BlockSelectionDesc& desc,
                                        const BlockSelectionParams& params,
                                        Stream& stream) {
  const int64_t heads = desc.num_kv_heads;
  const int64_t group_dim =
      int64_t{desc.num_heads / desc.num_kv_heads} * desc.head_dim;
  for (const AttentionSequence& sequence : params.sequences) {
    stream.thread_pool()->ParallelFor(
        sequence.q_len * heads, 1, [&](int64_t begin, int64_t end) {
          TopKeys top(desc.num_blocks - kForcedBlocks);
          for (int64_t i = begin; i < end; ++i) {
            const int head = static_cast<int>(i % heads);
            const BlockChoice choice(desc, params, sequence, i / heads, head);
            if (choice.selects_all()) {
              choice.SelectAllBlocks();
              continue;
            }
            const Scorer scorer(
                desc, params.q.row<float>(choice.row) + head * group_dim);
            top.Clear();
            for (int64_t b = kSinkBlocks; b < choice.end(); ++b) {
              top.Add(scorer.Score(choice.Summary(params.summaries, head, b)),
                      static_cast<int32_t>(b));
            }
            choice.Select(top);
          }
        });
  }
  return absl::OkStatus();
}

}  // namespace inlay
