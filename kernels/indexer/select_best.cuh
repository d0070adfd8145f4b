// The best of many scores, chosen by one CTA: radix select. What the scores'
// orders (score_order.h) have in common at their top is skipped; of the rest
// the wanted-th largest is found 8 bits at a time, by a histogram of the orders
// that agree in the bits before, until what is left is wanted whole. Then
// everything above it, and the first of what equals it, is handed out in the
// order of positions.
//
// A warp has a run of positions, 32 at a time; the first kSelectKept of a
// thread stay in registers. Shared memory: SelectShared. Barriers:
// __syncthreads. Knows no tensors.
#ifndef INLAY_KERNELS_INDEXER_SELECT_BEST_CUH_
#define INLAY_KERNELS_INDEXER_SELECT_BEST_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/indexer/score_order.h"

namespace inlay {

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectWarps = kSelectThreads / 32;
inline constexpr int kSelectKept = 16;
inline constexpr int kSelectBits = 8;
inline constexpr int kSelectBins = 1 << kSelectBits;

struct SelectShared {
  int bins[kSelectWarps][kSelectBins];
  uint32_t differing[kSelectWarps];
  int greater[kSelectWarps];
  int equal[kSelectWarps];
  uint32_t known;
  int wanted;
  int left;
};

// All threads of a CTA of kSelectThreads make one and call it.
class BestSelector {
 public:
  // 1 <= wanted <= count.
  __device__ BestSelector(const float* scores, int count, int wanted,
                          SelectShared& shared)
      : scores_(scores),
        count_(count),
        rounds_((count + kSelectThreads - 1) / kSelectThreads),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        first_(warp_ * rounds_ * 32 + lane_),
        wanted_(wanted),
        shared_(shared) {
#pragma unroll
    for (int i = 0; i < kSelectKept; ++i) {
      kept_[i] = i < rounds_ ? Load(first_ + 32 * i) : 0;
    }
  }

  // Calls emit(place, key) for each key selected: place 0 is the first of them.
  template <typename Emit>
  __device__ void Run(Emit emit) {
    SkipCommonBits();
    while (shift_ > 0 && !Refine()) {
    }
    HandOut(emit);
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;

  // Of a key that is not there: anything.
  __device__ uint32_t Load(int key) const {
    return key < count_ ? ScoreOrder(__float_as_uint(scores_[key])) : 0;
  }

  // fn(key, order) of the thread's keys, whole warps together; keys from count_
  // on are not there.
  template <typename Fn>
  __device__ void ForEach(Fn fn) const {
#pragma unroll
    for (int i = 0; i < kSelectKept; ++i) {
      if (i < rounds_) fn(first_ + 32 * i, kept_[i]);
    }
#pragma unroll 1
    for (int i = kSelectKept; i < rounds_; ++i) {
      fn(first_ + 32 * i, Load(first_ + 32 * i));
    }
  }

  // Orders agree in the bits above `shift_`, which are `known_`.
  __device__ void SkipCommonBits() {
    const uint32_t some = Load(0);
    uint32_t differing = 0;
    ForEach([&](int key, uint32_t order) {
      if (key < count_) differing |= order ^ some;
    });
    differing = __reduce_or_sync(kAll, differing);
    if (lane_ == 0) shared_.differing[warp_] = differing;
    __syncthreads();
    differing = __reduce_or_sync(
        kAll, lane_ < kSelectWarps ? shared_.differing[lane_] : 0);
    shift_ = 32 - __clz(static_cast<int>(differing));
    known_ = shift_ == 32 ? 0 : some >> shift_;
  }

  // Finds the next bits of the wanted-th largest order among those that begin
  // with known_; whether all that begin so now are wanted.
  __device__ bool Refine() {
    const int bits = min(shift_, kSelectBits);
    const int below = shift_ - bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int i = static_cast<int>(threadIdx.x); i < kSelectWarps * kSelectBins;
         i += kSelectThreads) {
      (&shared_.bins[0][0])[i] = 0;
    }
    __syncthreads();
    int* const bins = shared_.bins[warp_];
    ForEach([&](int key, uint32_t order) {
      const bool counts =
          key < count_ && (shift_ == 32 || order >> shift_ == known_);
      const int digit = counts ? static_cast<int>(order >> below & mask) : -1;
      const unsigned same = __match_any_sync(kAll, digit);
      if (counts && lane_ == __ffs(static_cast<int>(same)) - 1) {
        bins[digit] += __popc(same);
      }
      __syncwarp();
    });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSelectBins;
         i += kSelectThreads) {
      int sum = 0;
#pragma unroll
      for (int w = 0; w < kSelectWarps; ++w) sum += shared_.bins[w][i];
      shared_.bins[0][i] = sum;
    }
    __syncthreads();
    if (warp_ == 0) FindDigit(bits);
    __syncthreads();
    known_ = shared_.known;
    wanted_ = shared_.wanted;
    shift_ = below;
    return shared_.left == wanted_;
  }

  // One warp: the bin in which the wanted-th from the top is.
  __device__ void FindDigit(int bits) const {
    constexpr int kOfLane = kSelectBins / 32;
    int counts[kOfLane];
    int own = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      counts[i] = shared_.bins[0][lane_ * kOfLane + i];
      own += counts[i];
    }
    int from_here = own;  // and above
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_down_sync(kAll, from_here, step);
      if (lane_ + step < 32) from_here += other;
    }
    int wanted = wanted_ - (from_here - own);
    if (wanted <= 0 || wanted > own) return;
    bool found = false;
#pragma unroll
    for (int i = kOfLane - 1; i >= 0; --i) {
      if (found) continue;
      if (wanted > counts[i]) {
        wanted -= counts[i];
        continue;
      }
      found = true;
      shared_.known =
          known_ << bits | static_cast<uint32_t>(lane_ * kOfLane + i);
      shared_.wanted = wanted;
      shared_.left = counts[i];
    }
  }

  __device__ bool Greater(int key, uint32_t order) const {
    return key < count_ && order >> shift_ > known_;
  }
  __device__ bool Equal(int key, uint32_t order) const {
    return key < count_ && order >> shift_ == known_;
  }

  template <typename Emit>
  __device__ void HandOut(Emit emit) const {
    int greater = 0;
    int equal = 0;
    ForEach([&](int key, uint32_t order) {
      greater += Greater(key, order) ? 1 : 0;
      equal += Equal(key, order) ? 1 : 0;
    });
    greater = __reduce_add_sync(kAll, greater);
    equal = __reduce_add_sync(kAll, equal);
    if (lane_ == 0) {
      shared_.greater[warp_] = greater;
      shared_.equal[warp_] = equal;
    }
    __syncthreads();
    // Of the warps before.
    greater =
        __reduce_add_sync(kAll, lane_ < warp_ ? shared_.greater[lane_] : 0);
    equal = __reduce_add_sync(kAll, lane_ < warp_ ? shared_.equal[lane_] : 0);
    const unsigned lanes_before = (1u << lane_) - 1;
    ForEach([&](int key, uint32_t order) {
      const bool is_greater = Greater(key, order);
      const bool is_equal = Equal(key, order);
      const unsigned all_greater = __ballot_sync(kAll, is_greater);
      const unsigned all_equal = __ballot_sync(kAll, is_equal);
      const int equal_here = equal + __popc(all_equal & lanes_before);
      if (is_greater || (is_equal && equal_here < wanted_)) {
        emit(greater + __popc(all_greater & lanes_before) +
                 min(equal_here, wanted_),
             key);
      }
      greater += __popc(all_greater);
      equal += __popc(all_equal);
    });
  }

  const float* scores_;
  int count_;
  int rounds_;
  int warp_;
  int lane_;
  int first_;
  int wanted_;  // of the orders that begin with known_
  int shift_ = 32;
  uint32_t known_ = 0;
  SelectShared& shared_;
  uint32_t kept_[kSelectKept];
};

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_SELECT_BEST_CUH_
