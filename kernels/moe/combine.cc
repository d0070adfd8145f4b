#include "kernels/moe/combine.h"

namespace inlay {

absl::Status RunMoeCombineCpuSimd(const MoeCombineDesc& desc,
                                  const MoeCombineParams& params,
                                  Stream& stream);  // combine_cpu_simd.cc
absl::Status RunMoeCombineCpuScalar(const MoeCombineDesc& desc,
                                    const MoeCombineParams& params,
                                    Stream& stream);  // combine_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunMoeCombineCuda(const MoeCombineDesc& desc,
                               const MoeCombineParams& params,
                               Stream& stream);  // combine_cuda.cu
#endif

namespace {

constexpr MoeCombineRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, nullptr, nullptr, RunMoeCombineCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, nullptr, nullptr, RunMoeCombineCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, nullptr, nullptr,
     RunMoeCombineCpuScalar},
};

}  // namespace

absl::Span<const MoeCombineRow> MoeCombineTable() { return kRows; }

}  // namespace inlay
