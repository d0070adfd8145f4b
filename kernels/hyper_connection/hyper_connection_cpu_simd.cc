// hyper_mix and hyper_spread, the vector rows. The squares are in one
// accumulator a lane; streams are added up in their order.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/hyper_connection/hyper_connection_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/hyper_connection/hyper_weights.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace hyper_connection {

float MeanSquare(const float* h, size_t count) {
  const DF d;
  VF squares = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF v = LoadWide(h + i);
    squares = hn::MulAdd(v, v, squares);
  }
  if (i < count) {
    const VF v = LoadWideTail(h + i, count - i);
    squares = hn::MulAdd(v, v, squares);
  }
  return hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(count);
}

// Calls run(column, load, store) for each vector of a row of `width` columns,
// where load and store take addresses of the first column.
template <typename Run>
HWY_INLINE void ForColumns(size_t width, const Run& run) {
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    run(
        i, [](const float* p) HWY_ATTR { return LoadWide(p); },
        [](VF v, float* p) HWY_ATTR { hn::StoreU(v, DF(), p); });
  }
  if (const size_t rest = width - i; rest != 0) {
    run(
        i, [rest](const float* p) HWY_ATTR { return LoadWideTail(p, rest); },
        [rest](VF v, float* p) HWY_ATTR { StoreTail(v, p, rest); });
  }
}

void MixRow(const HyperMixDesc& desc, const HyperMixParams& params,
            int64_t row) {
  const DF d;
  const int n = desc.num_streams;
  const auto width = static_cast<size_t>(desc.width);
  const float* h = params.streams.row<float>(row);
  const double mean = MeanSquare(h, static_cast<size_t>(n) * width);
  double a[kMaxHyperStreams];
  HyperWeights(desc, params, params.ProductsOf(desc, row),
               1.0 / std::sqrt(mean + desc.norm_epsilon), a,
               params.WeightsOf(desc, row));
  float* x = params.x.row<float>(row);
  ForColumns(width,
             [&](size_t i, const auto& load, const auto& store) HWY_ATTR {
               VF sum = hn::Zero(d);
               for (int j = 0; j < n; ++j) {
                 const VF factor = hn::Set(d, static_cast<float>(a[j]));
                 sum = hn::MulAdd(
                     factor, load(h + static_cast<size_t>(j) * width + i), sum);
               }
               store(sum, x + i);
             });
}

void SpreadRow(const HyperSpreadDesc& desc, const HyperSpreadParams& params,
               int64_t row) {
  const DF d;
  const int n = desc.num_streams;
  const auto width = static_cast<size_t>(desc.width);
  const float* y = params.y.row<float>(row);
  const float* b = params.weights + row * desc.num_weights();
  const float* c = b + n;
  float* h = params.streams.row<float>(row);
  ForColumns(width,
             [&](size_t i, const auto& load, const auto& store) HWY_ATTR {
               const VF given = load(y + i);
               if (desc.independent) {
                 for (int k = 0; k < n; ++k) {
                   float* own = h + static_cast<size_t>(k) * width + i;
                   store(hn::MulAdd(hn::Set(d, b[k]), given, load(own)), own);
                 }
                 return;
               }
               VF sums[kMaxHyperStreams];
               for (int k = 0; k < n; ++k) {
                 sums[k] = hn::Mul(hn::Set(d, b[k]), given);
               }
               for (int j = 0; j < n; ++j) {
                 const VF own = load(h + static_cast<size_t>(j) * width + i);
                 for (int k = 0; k < n; ++k) {
                   sums[k] = hn::MulAdd(hn::Set(d, c[j * n + k]), own, sums[k]);
                 }
               }
               for (int k = 0; k < n; ++k) {
                 store(sums[k], h + static_cast<size_t>(k) * width + i);
               }
             });
}

}  // namespace hyper_connection

void RunHyperMix(const HyperMixDesc& desc, const HyperMixParams& params,
                 ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       hyper_connection::MixRow(desc, params, row);
                     }
                   });
}

void RunHyperSpread(const HyperSpreadDesc& desc,
                    const HyperSpreadParams& params, ThreadPool& pool) {
  pool.ParallelFor(params.y.rows(), 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       hyper_connection::SpreadRow(desc, params, row);
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunHyperMix);
HWY_EXPORT(RunHyperSpread);

absl::Status RunHyperMixCpuSimd(const HyperMixDesc& desc,
                                const HyperMixParams& params, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunHyperMix)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

absl::Status RunHyperSpreadCpuSimd(const HyperSpreadDesc& desc,
                                   const HyperSpreadParams& params,
                                   Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunHyperSpread)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
