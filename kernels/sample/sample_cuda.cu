// sample on CUDA. A cluster of blocks a row (cuda_cluster, compute capability
// 9.0) or one block a row (cuda_plain).
//
// Mapping: the row is cut into one slice a block, a slice into one chunk a
// warp, all in ascending token id; lanes take four logits in turn. In clusters
// the slice lies in shared memory, so that device memory is read once; a lone
// block reads its row again for each pass.
//
// Each pass ends in sums or maxima over the row: shuffles, shared memory, and
// between blocks stores into each other's shared memory (Exchange). Thresholds
// of top-k and top-p are found by histograms over the ordered bits of the
// logits, 2048 bins at a time, from the largest down: three levels at most,
// fewer as a rule, since a bin that is kept whole ends the search.
//
// Shared memory: Shared (25 KB) and the slice. Accumulation: integers
// (sample_math.h). Bound: at batch 64 of a 128k vocabulary one reading of the
// logits, 34 MB; at batch 1 the latency of about ten exchanges.
#include <cfloat>
#include <cstdint>

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/sample/philox.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_math.h"
#include "kernels/sample/sample_row.cuh"

namespace inlay {
namespace sample {
namespace {

// A key below which all of `count` tokens together weigh at most the 1 - p that
// top-p drops: each weighs less than (1 - p) * mass / count, of which half a
// unit of fixed point is for rounding; the margin covers the error of the
// weights and of the logarithm.
__device__ inline uint32_t LowerKeyOfTopP(float p, uint64_t mass,
                                          uint64_t count,
                                          const Weigher& weigher) {
  const double units = (1 - static_cast<double>(p)) *
                           static_cast<double>(mass) /
                           static_cast<double>(count) -
                       0.5;
  if (units <= 0) return kLowestKey;
  const float z =
      __logf(static_cast<float>(units) / (uint64_t{1} << kMassBits)) - 1e-2f;
  const double low =
      weigher.max + static_cast<double>(z) / weigher.inverse_temperature;
  return low < -FLT_MAX ? kLowestKey : KeyOf(static_cast<float>(low));
}

// What the first pass over a row finds.
struct Largest {
  int32_t code;   // below 0: there is nothing to choose from
  int32_t token;  // the lowest id of the largest logit
  uint32_t key;   // of the largest logit
  uint32_t low;  // the least of the chunks' maxima: NumChunks() tokens reach it
  uint64_t count;  // tokens with a finite logit
};

// Top-k, then top-p over what is left.
template <int kCluster, bool kResident>
__device__ Cut Truncate(Row<kCluster, kResident>& row,
                        const SampleOptions& options, const Weigher& weigher,
                        const Largest& largest) {
  Cut cut;
  const auto k = static_cast<uint64_t>(options.top_k);
  if (k > 0 && k < largest.count) {
    const uint32_t low = k > row.NumChunks() ? kLowestKey : largest.low;
    cut = row.template FindCut<false>(low, largest.key, k, weigher);
  }
  if (options.top_p < 1) {
    const bool drops = cut.ties != ~uint64_t{0};
    uint64_t mass = 0;
    row.ForEach([&](uint32_t, float x) {
      const uint32_t key = KeyOf(x);
      if (drops ? key > cut.key : key >= cut.key) mass += weigher.Mass(x);
    });
    mass = row.Reduce({0, mass, 0}).sum;
    if (drops) mass += cut.ties * weigher.Mass(LogitOf(cut.key));
    if (cut.key == kLowestKey) {
      cut.key = LowerKeyOfTopP(options.top_p, mass, largest.count, weigher);
    }
    // Ties that top-k dropped are among the keys, but at their end, beyond the
    // target.
    cut = row.template FindCut<true>(cut.key, largest.key,
                                     TopPTarget(options.top_p, mass), weigher);
  }
  if (cut.ties != ~uint64_t{0}) {
    const uint64_t ties = cut.ties;
    const uint32_t tie = cut.key;
    cut.last = row.Broadcast(row.FindInOrder(
        [&](uint32_t, float x) { return uint64_t{KeyOf(x) == tie}; },
        [&](uint64_t) { return ties - 1; }));
  }
  return cut;
}

// `scan`: what each thread has found.
template <int kCluster, bool kResident>
__device__ Largest FindLargest(Row<kCluster, kResident>& row,
                               const Scan& scan) {
  uint64_t chunk_best = scan.best;
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    chunk_best =
        Greater(chunk_best, __shfl_xor_sync(kAllLanes, chunk_best, lane));
  }
  const Totals totals = row.Reduce(
      {scan.best,
       scan.count | uint64_t{scan.invalid} << 32 | uint64_t{scan.finite} << 48,
       row.HasLogits() ? kNoLimit - (chunk_best >> 32) : 0});
  Largest largest;
  largest.key = static_cast<uint32_t>(totals.most >> 32);
  largest.token =
      static_cast<int32_t>(kNoLimit - static_cast<uint32_t>(totals.most));
  largest.low =
      max(static_cast<uint32_t>(kNoLimit - totals.most_too), kLowestKey);
  largest.count = totals.sum & 0xffffffffu;
  const bool invalid = (totals.sum >> 32 & 0xffff) != 0;
  const bool finite = totals.sum >> 48 != 0;
  largest.code = invalid || !finite   ? kSampleNotFinite
                 : largest.count == 0 ? kSampleNothingLeft
                                      : 0;
  return largest;
}

template <int kCluster, bool kResident>
__global__ void __launch_bounds__(kThreads)
    Sample(CudaMatrix<float> logits, const SampleOptions* all_options,
           const LogitEdit* edits, const uint32_t* masks, int32_t* tokens,
           uint32_t vocab, uint32_t chunk) {
#if __CUDA_ARCH__ < 900
  if constexpr (kCluster > 1) return;
#endif
  extern __shared__ float4 slice[];
  __shared__ Shared<kCluster> shared;
  WaitForPrevious();
  LetNextBegin();
  const unsigned index = blockIdx.x / kCluster;
  const SampleOptions options = all_options[index];
  const bool first = blockIdx.x % kCluster == 0 && threadIdx.x == 0;
  if (options.temperature < 0) {
    if (first) tokens[index] = kSampleLeftOut;
    return;
  }
  Row<kCluster, kResident> row(
      logits.row(index), reinterpret_cast<float*>(slice), shared, vocab, chunk);
  Scan scan = row.Read(
      options.first_mask_word < 0 ? nullptr : masks + options.first_mask_word);
  row.Edit(options, edits + options.first_edit, scan);

  const Largest largest = FindLargest(row, scan);
  if (largest.code < 0 || options.temperature == 0) {
    if (first) tokens[index] = largest.code < 0 ? largest.code : largest.token;
    return;
  }
  const Weigher weigher = {
      LogitOf(largest.key),
      InverseTemperature(RoundedFloat{options.temperature}).value};
  const Cut cut = Truncate(row, options, weigher, largest);
  const uint64_t bits = DrawBits(options.seed, options.index);
  const uint32_t token = row.FindInOrder(
      [&](uint32_t id, float x) {
        if (!cut.Keeps(KeyOf(x), id)) return uint64_t{0};
        const float weight = weigher.Weight(x);
        return weight >= options.min_p ? FixedWeight(weight) : uint64_t{0};
      },
      [&](uint64_t total) { return ScaleDraw(bits, total); });
  if (token != kNoLimit) tokens[index] = static_cast<int32_t>(token);
}

template <int kCluster, bool kResident>
absl::Status Launch(const SampleDesc& desc, const SampleParams& params,
                    Stream& stream) {
  constexpr int64_t kChunks = int64_t{kCluster} * kWarps;
  const int64_t chunk = (desc.vocab + kChunks * kLanesStep - 1) /
                        (kChunks * kLanesStep) * kLanesStep;
  const CudaGrid grid = {
      params.logits.rows() * kCluster, kThreads,
      kResident ? static_cast<size_t>(kWarps * chunk) * sizeof(float) : 0,
      kCluster};
  return LaunchCuda(
      "launching sample", CudaStream::Of(stream), grid,
      Sample<kCluster, kResident>, CudaMatrix<float>(params.logits),
      params.options, params.edits, params.masks, params.tokens,
      static_cast<uint32_t>(desc.vocab), static_cast<uint32_t>(chunk));
}

}  // namespace
}  // namespace sample

absl::Status RunSampleCuda(const SampleDesc& desc, const SampleParams& params,
                           Stream& stream) {
  return sample::Launch<sample::kBlocks, true>(desc, params, stream);
}

absl::Status RunSampleCudaPlain(const SampleDesc& desc,
                                const SampleParams& params, Stream& stream) {
  return sample::Launch<1, false>(desc, params, stream);
}

}  // namespace inlay
