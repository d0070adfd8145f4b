// moe_combine, the vector row. Bound by memory: each x is read once.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/combine_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/moe/combine.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace moe_combine {

// Rows are cut into spans, so that one token still feeds every thread.
constexpr int64_t kSpan = 1024;

struct Row {
  const MoeCombineDesc& desc;
  const MoeCombineParams& params;
  int64_t token;
  float gate;

  // Columns [i, i + count), count <= kLanes; whole vectors where kFull.
  template <bool kFull>
  HWY_INLINE void Columns(int64_t i, size_t count) const {
    const DF d;
    const auto load = [&](const float* p) HWY_ATTR {
      return kFull ? LoadWide(p) : LoadWideTail(p, count);
    };
    VF sum = hn::Zero(d);
    for (int r = 0; r < desc.top_k; ++r) {
      const int64_t slot = token * desc.top_k + r;
      sum = hn::MulAdd(hn::Set(d, params.weights[slot]),
                       load(params.x.row<float>(slot) + i), sum);
    }
    if (desc.shared) {
      sum = hn::MulAdd(hn::Set(d, gate),
                       load(params.shared.row<float>(token) + i), sum);
    }
    if (!params.residual.empty()) {
      sum = hn::Add(sum, load(params.residual.row<float>(token) + i));
    }
    float* y = params.y.row<float>(token) + i;
    if constexpr (kFull) {
      hn::StoreU(sum, d, y);
    } else {
      StoreTail(sum, y, count);
    }
  }
};

void RunSpan(const Row& row, int64_t begin, int64_t end) {
  constexpr auto kWhole = static_cast<int64_t>(kLanes);
  int64_t i = begin;
  for (; i + kWhole <= end; i += kWhole) row.Columns<true>(i, kLanes);
  if (i < end) row.Columns<false>(i, static_cast<size_t>(end - i));
}

}  // namespace moe_combine

void RunMoeCombine(const MoeCombineDesc& desc, const MoeCombineParams& params,
                   ThreadPool& pool) {
  using moe_combine::kSpan;
  const int64_t spans = (desc.width + kSpan - 1) / kSpan;
  pool.ParallelFor(
      params.y.rows() * spans, 8, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t token = i / spans;
          const float gate =
              desc.gated
                  ? 1.0f / (1.0f + std::exp(-*params.gate.row<float>(token)))
                  : 1.0f;
          const int64_t first = i % spans * kSpan;
          moe_combine::RunSpan({desc, params, token, gate}, first,
                               HWY_MIN(first + kSpan, desc.width));
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunMoeCombine);

absl::Status RunMoeCombineCpuSimd(const MoeCombineDesc& desc,
                                  const MoeCombineParams& params,
                                  Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunMoeCombine)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
