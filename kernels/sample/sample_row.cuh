// One row of logits as one of its blocks sees it: passes over it, thresholds,
// the search for a place in ascending token id. Knows no options but edits.
#ifndef INLAY_KERNELS_SAMPLE_SAMPLE_ROW_CUH_
#define INLAY_KERNELS_SAMPLE_SAMPLE_ROW_CUH_

#include <cfloat>
#include <cstdint>

#include "kernels/cuda_float.cuh"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_math.h"
#include "kernels/sample/sample_peers.cuh"

namespace inlay::sample {

// Unsigned order of these is the order of the floats; 0 and -0 are equal.
__device__ inline uint32_t KeyOf(float x) {
  const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ inline float LogitOf(uint32_t key) {
  return __uint_as_float(key ^ ((key >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

inline constexpr uint32_t kLowestKey = 0x00800000u;  // of -FLT_MAX

struct Weigher {
  float max;
  float inverse_temperature;

  __device__ float Weight(float x) const {
    const float z = __fmul_rn(__fsub_rn(x, max), inverse_temperature);
    if (!(z >= kLowestExponent)) return 0.0f;
    RoundedFloat shifted;
    const RoundedFloat e = ExpFraction(RoundedFloat{z}, &shifted,
                                       [](float c) { return RoundedFloat{c}; });
    const uint32_t power =
        (__float_as_uint(shifted.value) - kRoundBits + kExponentBias)
        << kMantissaBits;
    return __fmul_rn(e.value, __uint_as_float(power));
  }
  __device__ uint64_t Mass(float x) const { return FixedWeight(Weight(x)); }
};

// Which tokens stay: key > this one, or equal to it and id <= last.
struct Cut {
  uint32_t key = kLowestKey;
  uint32_t last = kNoLimit;
  uint64_t ties = ~uint64_t{0};  // how many of key; all: none is dropped

  __device__ bool Keeps(uint32_t k, uint32_t id) const {
    return k > key || (k == key && id <= last);
  }
};

// What is known of some logits.
struct Scan {
  bool invalid = false;  // one is NaN or +inf
  bool finite = false;   // before mask and edits
  uint64_t best = 0;   // key of the largest and, for ties, inverted id; 0: none
  uint64_t count = 0;  // of finite ones

  __device__ void Add(uint32_t id, float x) {
    best = Greater(best, uint64_t{KeyOf(x)} << 32 | (kNoLimit - id));
    ++count;
  }
};

// One row as one of its blocks sees it. All threads of all blocks of the row
// call each member function that is not said to be a thread's own.
template <int kCluster, bool kResident>
class Row {
 public:
  using Peer = Peers<kCluster>;

  // kResident: `slice` is this block's shared memory for kWarps * chunk
  // floats; otherwise the row itself is used.
  __device__ Row(float* logits, float* slice, Shared<kCluster>& shared,
                 uint32_t vocab, uint32_t chunk)
      : logits_(logits),
        slice_(slice),
        shared_(shared),
        vocab_(vocab),
        rank_(Peer::Rank()),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    slice_begin_ = static_cast<uint32_t>(rank_) * kWarps * chunk;
    slice_end_ = slice_begin_ + kWarps * chunk;
    begin_ = slice_begin_ + warp_ * chunk;
    end_ = min(begin_ + chunk, vocab_);
    vector_ = reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  }

  // Reads the row once; masked tokens become -inf. This thread's own part of
  // what is found.
  __device__ Scan Read(const uint32_t* mask) {
    Scan scan;
#pragma unroll 4
    for (uint32_t id = begin_ + lane_ * 4; id < end_; id += kLanesStep) {
      float x[4];
      FourOfRow(id, x);
      const uint32_t allowed =
          mask == nullptr ? 0xfu : mask[id / 32] >> (id % 32);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scan.invalid |= !(x[j] <= FLT_MAX);
        scan.finite |= x[j] >= -FLT_MAX;
        const bool masked = (allowed >> j & 1) == 0;
        if (masked) x[j] = -INFINITY;
        if (!kResident && masked && id + j < vocab_) logits_[id + j] = x[j];
        if (x[j] >= -FLT_MAX) scan.Add(id + j, x[j]);
      }
      if constexpr (kResident) {
        *reinterpret_cast<float4*>(slice_ + (id - slice_begin_)) =
            make_float4(x[0], x[1], x[2], x[3]);
      }
    }
    // Of all blocks: from here on they write to each other, so each must have
    // begun.
    Peer::Sync();
    return scan;
  }

  // Brings `scan` up to date.
  __device__ void Edit(const SampleOptions& options, const LogitEdit* edits,
                       Scan& scan) {
    if (options.num_edits == 0) return;
    for (int i = threadIdx.x; i < options.num_edits; i += kThreads) {
      const LogitEdit edit = edits[i];
      const auto id = static_cast<uint32_t>(edit.token);
      if (id < slice_begin_ || id >= slice_end_ || id >= vocab_) continue;
      float* logit = kResident ? slice_ + (id - slice_begin_) : logits_ + id;
      *logit = EditedLogit(RoundedFloat{*logit}, edit, options).value;
    }
    __syncthreads();
    scan.best = 0;
    scan.count = 0;
    ForEach([&](uint32_t id, float x) { scan.Add(id, x); });
  }

  // Calls fn(id, logit) for this thread's own part, in no order.
  template <typename Fn>
  __device__ void ForEach(Fn fn) const {
#pragma unroll 2
    for (uint32_t id = begin_ + lane_ * 4; id < end_; id += kLanesStep) {
      float x[4];
      Four(id, x);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (x[j] >= -FLT_MAX) fn(id + j, x[j]);
      }
    }
  }

  // Over all threads of the row.
  __device__ Totals Reduce(Totals totals) {
    totals.AddLanes();
    if (lane_ == 0) {
      shared_.warp[0][warp_] = totals.most;
      shared_.warp[1][warp_] = totals.sum;
      shared_.warp[2][warp_] = totals.most_too;
    }
    __syncthreads();
    if (warp_ == 0) {
      totals = {0, 0, 0};
      if (lane_ < kWarps) {
        totals = {shared_.warp[0][lane_], shared_.warp[1][lane_],
                  shared_.warp[2][lane_]};
      }
      totals.AddLanes();
      Send(0, totals.most);
      Send(1, totals.sum);
      Send(2, totals.most_too);
    }
    Peer::Sync();
    totals = {0, 0, 0};
    for (int r = 0; r < kCluster; ++r) {
      totals.Add({Received(0, r), Received(1, r), Received(2, r)});
    }
    turn_ ^= 1;
    return totals;
  }

  // The warps' part of the row: whether there are logits in it.
  __device__ bool HasLogits() const { return begin_ < vocab_; }
  // The number of chunks with logits.
  __device__ uint32_t NumChunks() const {
    const uint32_t chunk = (slice_end_ - slice_begin_) / kWarps;
    return (vocab_ + chunk - 1) / chunk;
  }

  // The key in which the running sum from the largest key down reaches
  // `target`, of keys in [low, high]: of their number, or by mass. All of them
  // together reach it; target > 0. What is kept of ties is counted only.
  template <bool kByMass>
  __device__ Cut FindCut(uint32_t low, uint32_t high, uint64_t target,
                         const Weigher& weigher) {
    uint64_t above = 0;
    while (true) {
      const uint32_t span = high - low;
      const int bits = 32 - __clz(static_cast<int>(span));
      const int shift = bits > kBinBits ? bits - kBinBits : 0;
      FillBins<kByMass>(low, high, shift, weigher);
      FindBin<kByMass>(above, target);
      const auto bin = static_cast<uint32_t>(shared_.found[0]);
      above = shared_.found[1];
      const uint64_t count = shared_.found[2];
      const uint64_t mass = shared_.found[3];
      if (bin < span >> shift) low = high - ((bin + 1) << shift) + 1;
      high -= bin << shift;
      if (above + mass == target || count == 1) return {low};
      if (shift > 0) continue;
      // `count` equal logits.
      const uint64_t need = target - above;
      const uint64_t each = mass / count;
      const uint64_t ties = (need + each - 1) / each;
      return {low, kNoLimit, ties < count ? ties : ~uint64_t{0}};
    }
  }

  // The lowest id at which the running sum of value(id, logit), in ascending
  // id, exceeds target_of(total): on the one thread of the row that finds it;
  // elsewhere kNoLimit. target_of(total) < total.
  template <typename Value, typename TargetOf>
  __device__ uint32_t FindInOrder(Value value, TargetOf target_of) {
    uint64_t mine = 0;
    ForEach([&](uint32_t id, float x) { mine += value(id, x); });
    Totals totals = {0, mine, 0};
    totals.AddLanes();
    if (lane_ == 0) shared_.warp[0][warp_] = totals.sum;
    __syncthreads();
    uint64_t before = 0;
    uint64_t block = 0;
    for (int w = 0; w < kWarps; ++w) {
      const uint64_t sum = shared_.warp[0][w];
      if (w < warp_) before += sum;
      block += sum;
    }
    if (warp_ == 0) Send(0, block);
    Peer::Sync();
    uint64_t total = 0;
    for (int r = 0; r < kCluster; ++r) {
      if (r < rank_) before += Received(0, r);
      total += Received(0, r);
    }
    turn_ ^= 1;
    const uint64_t target = target_of(total);
    if (target < before || target - before >= totals.sum) return kNoLimit;
    return FindInChunk(value, target - before);
  }

  // From the one thread that passes something other than kNoLimit to all.
  __device__ uint32_t Broadcast(uint32_t value) {
    if (value != kNoLimit) {
      for (int r = 0; r < kCluster; ++r) {
        Peer::Store(&shared_.found[0], r, uint64_t{value});
      }
    }
    Peer::Sync();
    return static_cast<uint32_t>(shared_.found[0]);
  }

 private:
  __device__ void FourOfRow(uint32_t id, float (&x)[4]) const {
    if (vector_ && id + 4 <= vocab_) {
      LoadFloats<4>(logits_ + id, x);
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[j] = id + j < vocab_ ? logits_[id + j] : -INFINITY;
    }
  }

  __device__ void Four(uint32_t id, float (&x)[4]) const {
    if constexpr (kResident) {
      LoadFloats<4>(slice_ + (id - slice_begin_), x);
    } else {
      FourOfRow(id, x);
    }
  }

  // Lanes 0 to kCluster - 1 of one warp, all of which have `value`.
  __device__ void Send(int slot, uint64_t value) {
    if (lane_ < kCluster) {
      Peer::Store(&shared_.exchange[turn_][slot][rank_], lane_, value);
    }
  }
  __device__ uint64_t Received(int slot, int rank) const {
    return shared_.exchange[turn_][slot][rank];
  }

  template <bool kByMass>
  __device__ void FillBins(uint32_t low, uint32_t high, int shift,
                           const Weigher& weigher) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) {
      shared_.count[i] = 0;
      if (kByMass) shared_.mass[i] = 0;
    }
    __syncthreads();
    ForEach([&](uint32_t, float x) {
      const uint32_t key = KeyOf(x);
      if (key < low || key > high) return;
      const uint32_t bin = (high - key) >> shift;
      atomicAdd(&shared_.count[bin], 1u);
      if constexpr (kByMass) {
        atomicAdd(reinterpret_cast<unsigned long long*>(&shared_.mass[bin]),
                  static_cast<unsigned long long>(weigher.Mass(x)));
      }
    });
    Peer::Sync();
  }

  // The bin in which `above` and the bins' sums reach `target`: into found of
  // all blocks go bin, sum before it, its count, its sum. Each block adds up
  // its share of the bins.
  template <bool kByMass>
  __device__ void FindBin(uint64_t above, uint64_t target) {
    constexpr int kShare = kBins / kCluster;
    constexpr int kEach = kShare > kThreads ? kShare / kThreads : 1;
    uint64_t counts[kEach] = {};
    uint64_t sums[kEach] = {};
    uint64_t sum = 0;
    const int first = rank_ * kShare + static_cast<int>(threadIdx.x) * kEach;
    if (threadIdx.x * kEach < kShare) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int r = 0; r < kCluster; ++r) {
          counts[i] += Peer::Load(&shared_.count[first + i], r);
          if (kByMass) sums[i] += Peer::Load(&shared_.mass[first + i], r);
        }
        if (!kByMass) sums[i] = counts[i];
        sum += sums[i];
      }
    }
    const uint64_t up_to = SumUpToLane(sum);
    if (lane_ == 31) shared_.warp[0][warp_] = up_to;
    __syncthreads();
    uint64_t before = above + up_to - sum;
    uint64_t block = 0;
    for (int w = 0; w < kWarps; ++w) {
      const uint64_t other = shared_.warp[0][w];
      if (w < warp_) before += other;
      block += other;
    }
    if (warp_ == 0) Send(0, block);
    Peer::Sync();
    for (int r = 0; r < rank_; ++r) before += Received(0, r);
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (before < target && before + sums[i] >= target) {
        for (int r = 0; r < kCluster; ++r) {
          Peer::Store(&shared_.found[0], r, static_cast<uint64_t>(first + i));
          Peer::Store(&shared_.found[1], r, before);
          Peer::Store(&shared_.found[2], r, counts[i]);
          Peer::Store(&shared_.found[3], r, sums[i]);
        }
      }
      before += sums[i];
    }
    Peer::Sync();
  }

  // A warp's: the lowest id of its chunk at which the running sum exceeds
  // `target`, on the lane that finds it.
  template <typename Value>
  __device__ uint32_t FindInChunk(Value value, uint64_t target) const {
    for (uint32_t first = begin_; first < end_; first += kLanesStep) {
      const uint32_t id = first + lane_ * 4;
      float x[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
      if (id < end_) Four(id, x);
      uint64_t values[4];
      uint64_t sum = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        values[j] = x[j] >= -FLT_MAX ? value(id + j, x[j]) : 0;
        sum += values[j];
      }
      const uint64_t up_to = SumUpToLane(sum);
      const uint64_t step = __shfl_sync(kAllLanes, up_to, 31);
      if (step <= target) {
        target -= step;
        continue;
      }
      if (up_to <= target || up_to - sum > target) return kNoLimit;
      uint64_t running = up_to - sum;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        running += values[j];
        if (running > target) return id + j;
      }
    }
    return kNoLimit;
  }

  float* logits_;
  float* slice_;
  Shared<kCluster>& shared_;
  uint32_t vocab_;
  int rank_;
  int warp_;
  int lane_;
  bool vector_;  // the row begins on 16 bytes
  uint32_t slice_begin_;
  uint32_t slice_end_;
  uint32_t begin_;  // of this warp's chunk
  uint32_t end_;
  int turn_ = 0;  // of exchange
};

}  // namespace inlay::sample

#endif  // INLAY_KERNELS_SAMPLE_SAMPLE_ROW_CUH_
