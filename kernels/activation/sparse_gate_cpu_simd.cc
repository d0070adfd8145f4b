// sparse_gate, the vector row: a thread a row, which is read three times.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/sparse_gate_cpu_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/activation/sparse_gate.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace sparse_gate {

float Sum(const float* x, size_t count) {
  const DF d;
  VF sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum = hn::Add(LoadWide(x + i), sum);
  if (i < count) sum = hn::Add(LoadWideTail(x + i, count - i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

float SumOfSquares(const float* x, size_t count, float mean) {
  const DF d;
  const VF middle = hn::Set(d, mean);
  VF sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF off = hn::Sub(LoadWide(x + i), middle);
    sum = hn::MulAdd(off, off, sum);
  }
  float rest = 0.0f;
  for (; i < count; ++i) rest += (x[i] - mean) * (x[i] - mean);
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

// NaN stays: it is not below the cut.
HWY_INLINE VF CutOff(VF x, VF cut) {
  const VF left = hn::Sub(x, cut);
  return hn::IfThenZeroElse(hn::Le(left, hn::Zero(DF())), left);
}

void RunRow(float* x, size_t width, float deviations) {
  const auto count = static_cast<float>(width);
  const float mean = Sum(x, width) / count;
  const float deviation = std::sqrt(SumOfSquares(x, width, mean) / count);
  const VF cut = hn::Set(DF(), mean + deviations * deviation);
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    hn::StoreU(CutOff(LoadWide(x + i), cut), DF(), x + i);
  }
  if (const size_t rest = width - i; rest != 0) {
    StoreTail(CutOff(LoadWideTail(x + i, rest), cut), x + i, rest);
  }
}

}  // namespace sparse_gate

void RunSparseGate(const SparseGateDesc& desc, const SparseGateParams& params,
                   ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t row = begin; row < end; ++row) {
                       sparse_gate::RunRow(params.x.row<float>(row),
                                           static_cast<size_t>(desc.width),
                                           params.deviations);
                     }
                   });
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunSparseGate);

absl::Status RunSparseGateCpuSimd(const SparseGateDesc& desc,
                                  const SparseGateParams& params,
                                  Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunSparseGate)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
