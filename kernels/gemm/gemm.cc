#include "kernels/gemm/gemm.h"

#include <limits>

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "kernels/validate.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunGemmCpuSimd(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream);  // gemm_cpu_simd.cc
absl::Status RunGemmCpuScalar(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream);  // gemm_cpu.cc

#if defined(__x86_64__)
// gemm_cpu_packed.cc
const char* GemmCpuPackedRefuses(const GemmDesc& desc);
const WeightPacking<GemmDesc>* GemmCpuPacking(const GemmDesc& desc);
size_t GemmCpuPackedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCpuPacked(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream);
#endif

#if INLAY_HAS_CUDA
// gemm_cuda.cc
absl::Status RunGemmCuda(const GemmDesc& desc, const GemmParams& params,
                         Stream& stream);
absl::Status RunGemmCudaGemv(const GemmDesc& desc, const GemmParams& params,
                             Stream& stream);
absl::Status RunGemmCudaCublasLt(const GemmDesc& desc, const GemmParams& params,
                                 Stream& stream);
size_t GemmCudaWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
// gemm_cuda_quantised.cc
const WeightPacking<GemmDesc>* GemmCudaPacking(const GemmDesc& desc);
size_t GemmCudaQuantisedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCudaQuantised(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream);
#endif

namespace {

constexpr char kNoPermutation[] = "takes no permutation of x";

const char* CpuRefuses(const GemmDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32 || desc.output != DType::kF32) {
    return "activations must be f32";
  }
  if (!IsPlainFloat(desc.weight) && !IsBlockFormat(desc.weight)) {
    return "weights must be f32, f16, bf16 or a block format";
  }
  if (desc.k % GetFormatInfo(desc.weight).block_elements != 0) {
    return "k must be a multiple of the format's block";
  }
  return nullptr;
}

const char* SimdRefuses(const GemmDesc& desc, const DeviceInfo& device) {
  return desc.permuted ? kNoPermutation : CpuRefuses(desc, device);
}

#if defined(__x86_64__)
const char* PackedRefuses(const GemmDesc& desc, const DeviceInfo&) {
  return GemmCpuPackedRefuses(desc);
}
#endif

#if INLAY_HAS_CUDA
const char* CudaRefuses(const GemmDesc& desc, const DeviceInfo&) {
  if (desc.permuted) return kNoPermutation;
  if (!IsPlainFloat(desc.weight) || !IsPlainFloat(desc.activation)) {
    return "weights and x must be f32, f16 or bf16";
  }
  if (desc.output != DType::kF32 && desc.output != desc.activation) {
    return "y must be f32 or of the type of x";
  }
  return nullptr;
}

const char* CudaQuantisedRefuses(const GemmDesc& desc, const DeviceInfo&) {
  if (!IsBlockFormat(desc.weight)) return "weights must be a block format";
  if (!IsPlainFloat(desc.activation)) return "x must be f32, f16 or bf16";
  if (desc.output != DType::kF32 && desc.output != desc.activation) {
    return "y must be f32 or of the type of x";
  }
  if (desc.k % GetFormatInfo(desc.weight).block_elements != 0) {
    return "k must be a multiple of the format's block";
  }
  return nullptr;
}

const char* CublasRefuses(const GemmDesc& desc, const DeviceInfo& device) {
  if (desc.weight != desc.activation) {
    return "weights and x must be of one type";
  }
  return CudaRefuses(desc, device);
}
#endif

constexpr GemmRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, GemmCudaWorkspaceBytes,
     RunGemmCuda},
    {"cuda_gemv", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunGemmCudaGemv},
    {"cuda_cublaslt", DeviceKind::kCuda, 80, CublasRefuses,
     GemmCudaWorkspaceBytes, RunGemmCudaCublasLt},
    {"cuda_quantised", DeviceKind::kCuda, 80, CudaQuantisedRefuses,
     GemmCudaQuantisedWorkspaceBytes, RunGemmCudaQuantised, GemmCudaPacking},
#endif
#if defined(__x86_64__)
    {"cpu_packed", DeviceKind::kCpu, 0, PackedRefuses,
     GemmCpuPackedWorkspaceBytes, RunGemmCpuPacked, GemmCpuPacking},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, SimdRefuses, nullptr, RunGemmCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunGemmCpuScalar},
};

}  // namespace

absl::Span<const GemmRow> GemmTable() { return kRows; }

absl::Status ValidateGemm(const GemmDesc& desc, const GemmParams& params) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  INLAY_RETURN_IF_ERROR(CheckRange("gemm", "n", desc.n, 1, kMost));
  INLAY_RETURN_IF_ERROR(CheckRange("gemm", "k", desc.k, 1, kMost));
  const int64_t m = params.x.rows();
  INLAY_RETURN_IF_ERROR(
      CheckMatrix("gemm", "x", params.x, m, desc.k, desc.activation));
  INLAY_RETURN_IF_ERROR(
      CheckMatrix("gemm", "w", params.w, desc.n, desc.k, desc.weight));
  INLAY_RETURN_IF_ERROR(
      CheckMatrix("gemm", "y", params.y, m, desc.n, desc.output));
  if (!params.residual.empty()) {
    INLAY_RETURN_IF_ERROR(CheckMatrix("gemm", "residual", params.residual, m,
                                      desc.n, desc.output));
  }
  if (Overlap(params.x, params.y)) {
    return absl::InvalidArgumentError("gemm: y overlaps x");
  }
  return absl::OkStatus();
}

#if !INLAY_HAS_CUDA
absl::Status PrepareGemmCuda(Stream&) {
  return absl::UnimplementedError("gemm: this build has no CUDA");
}
#endif

}  // namespace inlay
