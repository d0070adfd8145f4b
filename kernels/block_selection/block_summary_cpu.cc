// block_summary, the CPU row: one block of one KV head after another. Plain
// loops: a block is summarised once, when its last key is there.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/block_selection/block_hash.h"
#include "kernels/block_selection/block_summary.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

constexpr int kLloydRounds = 3;
constexpr uint16_t kNanBF16 = 0x7fc0;

// The bf16 next to x that is not above it, or not below it.
uint16_t RoundTowards(float x, bool up) {
  if (std::isnan(x)) return kNanBF16;
  const auto bits = std::bit_cast<uint32_t>(x);
  const bool is_negative = bits >> 31 != 0;
  // Away from zero; what fits is left as it is.
  return static_cast<uint16_t>((up != is_negative ? bits + 0xffffu : bits) >>
                               16);
}

class Block {
 public:
  Block(const BlockSummaryDesc& desc, const BlockSummaryParams& params)
      : desc_(desc), params_(params), dim_(desc.head_dim) {}

  // That whose last slot is `last`, of KV head `head`.
  void Summarise(int64_t last, int head) {
    const KvLayerView& kv = params_.keys;
    const int64_t block = last / kv.block_size;
    const int first = static_cast<int>(last % kv.block_size) - kSelectBlock + 1;
    for (int t = 0; t < kSelectBlock; ++t) {
      DecodeKvRow(desc_.kv, kv.KeyRow(block, head, first + t), dim_,
                  keys_ + t * dim_);
    }
    std::byte* const to = params_.summaries.KeyRow(block, head, first);
    switch (desc_.method) {
      case BlockMethod::kBounds:
        return Bounds(to);
      case BlockMethod::kKMeans:
        return KMeans(to);
      case BlockMethod::kLsh:
        return Hashes(to);
      case BlockMethod::kNone:
        return;
    }
  }

 private:
  const float* Key(int t) const { return keys_ + t * dim_; }

  void Bounds(std::byte* to) const {
    uint16_t bounds[2 * kMaxSummaryHeadDim];
    for (int d = 0; d < dim_; ++d) {
      float least = Key(0)[d], most = least;
      for (int t = 1; t < kSelectBlock; ++t) {
        const float x = Key(t)[d];
        // NaN stays: it compares with nothing.
        if (std::isnan(x)) least = most = x;
        if (x < least) least = x;
        if (x > most) most = x;
      }
      bounds[d] = RoundTowards(least, false);
      bounds[dim_ + d] = RoundTowards(most, true);
    }
    std::memcpy(to, bounds, sizeof(uint16_t) * 2 * static_cast<size_t>(dim_));
  }

  // Begins with the key that is farthest from all keys' mean and the one that
  // is farthest from that. A cluster that loses all of its keys stays where it
  // was.
  void KMeans(std::byte* to) {
    int of[kSelectBlock] = {};
    Means(of);
    for (int c = 0; c < kCentroids; ++c) {
      std::copy_n(Key(FarthestFrom(centroids_)), dim_, centroids_ + c * dim_);
    }
    for (int round = 0; round < kLloydRounds; ++round) {
      for (int t = 0; t < kSelectBlock; ++t) of[t] = Nearest(Key(t));
      Means(of);
    }
    uint16_t rounded[kCentroids * kMaxSummaryHeadDim];
    for (int i = 0; i < kCentroids * dim_; ++i) {
      rounded[i] = F32ToBF16(centroids_[i]);
    }
    std::memcpy(to, rounded,
                sizeof(uint16_t) * static_cast<size_t>(kCentroids * dim_));
  }

  void Means(const int* of) {
    for (int c = 0; c < kCentroids; ++c) {
      const auto count =
          static_cast<float>(std::count(of, of + kSelectBlock, c));
      if (count == 0.0f) continue;
      float* const sum = centroids_ + c * dim_;
      std::fill_n(sum, dim_, 0.0f);
      for (int t = 0; t < kSelectBlock; ++t) {
        if (of[t] != c) continue;
        for (int d = 0; d < dim_; ++d) sum[d] += Key(t)[d];
      }
      for (int d = 0; d < dim_; ++d) sum[d] /= count;
    }
  }

  float Distance(const float* a, const float* b) const {
    float distance = 0.0f;
    for (int d = 0; d < dim_; ++d) {
      const float way = a[d] - b[d];
      distance += way * way;
    }
    return distance;
  }

  // Of equal ones the first.
  int FarthestFrom(const float* point) const {
    int farthest = 0;
    for (int t = 1; t < kSelectBlock; ++t) {
      if (Distance(Key(t), point) > Distance(Key(farthest), point)) {
        farthest = t;
      }
    }
    return farthest;
  }

  // Of equal ones the first.
  int Nearest(const float* key) const {
    int nearest = 0;
    for (int c = 1; c < kCentroids; ++c) {
      if (Distance(key, centroids_ + c * dim_) <
          Distance(key, centroids_ + nearest * dim_)) {
        nearest = c;
      }
    }
    return nearest;
  }

  void Hashes(std::byte* to) {
    uint64_t words[kHashWords][kSelectBlock];
    for (int t = 0; t < kSelectBlock; ++t) {
      uint64_t of_key[kHashWords];
      HashVector(Key(t), dim_, centroids_, of_key);
      for (int w = 0; w < kHashWords; ++w) words[w][t] = of_key[w];
    }
    std::memcpy(to, words, sizeof(words));
  }

  const BlockSummaryDesc& desc_;
  const BlockSummaryParams& params_;
  int dim_;
  float keys_[kSelectBlock * kMaxSummaryHeadDim];
  float centroids_[kCentroids * kMaxSummaryHeadDim];  // or a rotation's space
};

}  // namespace

absl::Status RunBlockSummaryCpu(const BlockSummaryDesc& desc,
                                const BlockSummaryParams& params,
                                Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.tokens * desc.num_kv_heads, kSelectBlock,
      [&](int64_t begin, int64_t end) {
        Block block(desc, params);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t slot = params.slots[i / desc.num_kv_heads];
          if (slot % kSelectBlock != kSelectBlock - 1) continue;
          block.Summarise(slot, static_cast<int>(i % desc.num_kv_heads));
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
