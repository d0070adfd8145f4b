// The passes of logit_blocks.h on four-lane vectors of the compiler (GCC and
// Clang lower them to SSE2, NEON or scalar code): -O2 leaves such loops scalar,
// and one fixed lane order gives the same sums on every machine.
#include "kernels/sample/logit_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/sample/sample_math.h"

namespace inlay {
namespace {

using F32x4 = float __attribute__((vector_size(16)));
using I32x4 = int32_t __attribute__((vector_size(16)));
using U32x4 = uint32_t __attribute__((vector_size(16)));
using F64x2 = double __attribute__((vector_size(16)));
using U64x2 = uint64_t __attribute__((vector_size(16)));

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

inline F32x4 Broadcast(float v) { return F32x4{v, v, v, v}; }

inline F32x4 Load(const float* p) {
  F32x4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline void Store(F32x4 v, float* p) { std::memcpy(p, &v, sizeof(v)); }

inline F32x4 Max(F32x4 a, F32x4 b) { return a > b ? a : b; }

inline F32x4 KeepWhere(I32x4 mask, F32x4 v) { return (F32x4)(mask & (I32x4)v); }

inline float MaxLane(F32x4 v) {
  return std::max(std::max(v[0], v[1]), std::max(v[2], v[3]));
}

// exp(z) for z <= 0; 0 where 2^n would come near the subnormals.
inline F32x4 Exp(F32x4 z) {
  const I32x4 alive = z >= Broadcast(kLowestExponent);
  z = Max(z, Broadcast(kLowestExponent));
  F32x4 shifted;
  const F32x4 e = ExpFraction(z, &shifted, Broadcast);
  const U32x4 power = ((U32x4)shifted - kRoundBits + kExponentBias)
                      << kMantissaBits;
  return KeepWhere(alive, e * (F32x4)power);
}

// Adds four weights in fixed point to the sum of those before. The bits of
// kMassRound are added with each and must be taken off in the end.
inline void AddFixed(F32x4 w, U64x2& even, U64x2& odd) {
  const F64x2 low = {double{w[0]}, double{w[1]}};
  const F64x2 high = {double{w[2]}, double{w[3]}};
  even += (U64x2)(low + kMassRound);
  odd += (U64x2)(high + kMassRound);
}

inline F32x4 Weight(F32x4 x, WeightScale scale) {
  return Exp((x - scale.max) * scale.inverse_temperature);
}

inline F32x4 FilteredWeight(F32x4 x, WeightScale scale, WeightFilter filter) {
  const F32x4 w = Weight(x, scale);
  const I32x4 kept =
      (x >= Broadcast(filter.min_logit)) & (w >= Broadcast(filter.min_weight));
  return KeepWhere(kept, w);
}

// Calls visit(pointer to kLogitBlock logits, index of the block); the last,
// partial block is padded with -inf, which neither wins a maximum nor weighs.
template <typename Visit>
inline void ForEachBlock(absl::Span<const float> logits, Visit visit) {
  const int64_t size = static_cast<int64_t>(logits.size());
  const int64_t whole = size / kLogitBlock;
  for (int64_t b = 0; b < whole; ++b) {
    visit(logits.data() + b * kLogitBlock, b);
  }
  if (size % kLogitBlock != 0) {
    float padded[kLogitBlock];
    std::fill_n(padded, kLogitBlock, -kInf);
    std::copy(logits.begin() + whole * kLogitBlock, logits.end(), padded);
    visit(padded, whole);
  }
}

// As visit(pointer to 4, pointer to 4) over in and out, padding the last group.
template <typename Map>
inline void ForEachGroup(const float* in, int64_t count, float* out, Map map) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) Store(map(Load(in + i)), out + i);
  if (i < count) {
    float group[4] = {-kInf, -kInf, -kInf, -kInf};
    std::copy(in + i, in + count, group);
    Store(map(Load(group)), group);
    std::copy_n(group, count - i, out + i);
  }
}

}  // namespace

LogitBlocks ScanLogits(absl::Span<const float> logits) {
  LogitBlocks blocks;
  blocks.block_max.resize((logits.size() + kLogitBlock - 1) / kLogitBlock);
  blocks.max = -kInf;
  I32x4 valid = {-1, -1, -1, -1};
  ForEachBlock(logits, [&](const float* p, int64_t b) {
    F32x4 even = Broadcast(-kInf), odd = Broadcast(-kInf);
    for (int64_t i = 0; i < kLogitBlock; i += 8) {
      const F32x4 x = Load(p + i), y = Load(p + i + 4);
      // False for NaN and +inf, true for -inf.
      valid &= (x <= Broadcast(kMaxFloat)) & (y <= Broadcast(kMaxFloat));
      even = Max(x, even);
      odd = Max(y, odd);
    }
    const float max = MaxLane(Max(even, odd));
    blocks.block_max[b] = max;
    blocks.max = std::max(blocks.max, max);
  });
  blocks.valid = (valid[0] & valid[1] & valid[2] & valid[3]) != 0;
  return blocks;
}

int64_t FirstInvalidLogit(absl::Span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] <= kMaxFloat)) return static_cast<int64_t>(i);
  }
  return -1;
}

int32_t ArgMax(absl::Span<const float> logits, const LogitBlocks& blocks) {
  const auto block =
      std::find(blocks.block_max.begin(), blocks.block_max.end(), blocks.max);
  const auto first =
      logits.begin() + (block - blocks.block_max.begin()) * kLogitBlock;
  return static_cast<int32_t>(std::find(first, logits.end(), blocks.max) -
                              logits.begin());
}

float LowerBoundOfTop(const LogitBlocks& blocks, int64_t count) {
  if (count > static_cast<int64_t>(blocks.block_max.size())) return -kMaxFloat;
  std::vector<float> maxima = blocks.block_max;
  const auto nth = maxima.begin() + (count - 1);
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<float>());
  return std::max(*nth, -kMaxFloat);
}

void Weights(const float* logits, int64_t count, WeightScale scale,
             float* out) {
  ForEachGroup(logits, count, out, [&](F32x4 x) { return Weight(x, scale); });
}

void FilteredWeights(const float* logits, int64_t count, WeightScale scale,
                     WeightFilter filter, float* out) {
  ForEachGroup(logits, count, out,
               [&](F32x4 x) { return FilteredWeight(x, scale, filter); });
}

double MassValue(uint64_t mass) {
  return static_cast<double>(mass) / (uint64_t{1} << kMassBits);
}

uint64_t MassOf(absl::Span<const float> logits, const LogitBlocks& blocks,
                WeightScale scale, WeightFilter filter,
                std::vector<uint64_t>* masses) {
  if (masses != nullptr) masses->assign(blocks.block_max.size(), 0);
  uint64_t total = 0;
  ForEachBlock(logits, [&](const float* p, int64_t b) {
    if (blocks.block_max[b] < filter.min_logit) return;
    U64x2 even = {0, 0}, odd = {0, 0};
    for (int64_t i = 0; i < kLogitBlock; i += 4) {
      AddFixed(FilteredWeight(Load(p + i), scale, filter), even, odd);
    }
    const uint64_t mass = (even[0] + even[1]) + (odd[0] + odd[1]) -
                          kLogitBlock * DoubleBits(kMassRound);
    if (masses != nullptr) (*masses)[b] = mass;
    total += mass;
  });
  return total;
}

}  // namespace inlay
