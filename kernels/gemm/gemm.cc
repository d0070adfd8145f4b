#include "kernels/gemm/gemm.h"

#include <limits>

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "kernels/validate.h"
#include "memory/status.h"

#if INLAY_HAS_CUDA
#include "kernels/rounding/rounding_cuda.h"
#endif

namespace inlay {

// gemm_cpu_simd.cc
size_t GemmCpuSimdWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCpuSimd(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream);
absl::Status RunGemmCpuScalar(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream);  // gemm_cpu.cc

#if defined(__x86_64__)
// gemm_cpu_packed.cc
const char* GemmCpuPackedRefuses(const GemmDesc& desc);
const WeightPacking<GemmDesc>* GemmCpuPacking(const GemmDesc& desc);
size_t GemmCpuPackedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCpuPacked(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream);
// gemm_cpu_amx.cc
const char* GemmCpuAmxRefuses(const GemmDesc& desc);
size_t GemmCpuAmxWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCpuAmx(const GemmDesc& desc, const GemmParams& params,
                           Stream& stream);
// gemm_cpu_bf16.cc
const char* GemmCpuBf16Refuses(const GemmDesc& desc);
size_t GemmCpuBf16WorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCpuBf16(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream);
// gemm_cpu_packed_amx.cc
const char* GemmCpuPackedAmxRefuses(const GemmDesc& desc);
absl::Status RunGemmCpuPackedAmx(const GemmDesc& desc, const GemmParams& params,
                                 Stream& stream);
// gemm_cpu_packed_avx_vnni.cc
const char* GemmCpuPackedAvxVnniRefuses(const GemmDesc& desc);
absl::Status RunGemmCpuPackedAvxVnni(const GemmDesc& desc,
                                     const GemmParams& params, Stream& stream);
// gemm_cpu_packed_bf16.cc
const char* GemmCpuPackedBf16Refuses(const GemmDesc& desc);
size_t GemmCpuPackedBf16WorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCpuPackedBf16(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream);
// gemm_cpu_packed_vnni.cc
const char* GemmCpuPackedVnniRefuses(const GemmDesc& desc);
absl::Status RunGemmCpuPackedVnni(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream);
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
// gemm_cuda_fp8.cc
const WeightPacking<GemmDesc>* GemmCudaRoundsPacking(const GemmDesc& desc);
RowRounding GemmCudaFp8Rounding(const GemmDesc& desc, int64_t m);
size_t GemmCudaFp8WorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCudaFp8(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream);
// gemm_cuda_int8.cc
RowRounding GemmCudaInt8Rounding(const GemmDesc& desc, int64_t m);
size_t GemmCudaInt8WorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCudaInt8(const GemmDesc& desc, const GemmParams& params,
                             Stream& stream);
RowRounding GemmCudaInt8Sm90Rounding(const GemmDesc& desc, int64_t m);
size_t GemmCudaInt8Sm90WorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCudaInt8Sm90(const GemmDesc& desc, const GemmParams& params,
                                 Stream& stream);
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
const char* AmxRefuses(const GemmDesc& desc, const DeviceInfo&) {
  return desc.permuted ? kNoPermutation : GemmCpuAmxRefuses(desc);
}
const char* Bf16Refuses(const GemmDesc& desc, const DeviceInfo&) {
  return desc.permuted ? kNoPermutation : GemmCpuBf16Refuses(desc);
}
constexpr int64_t kLargeWeights = 1 << 20;
const char* AmxLeaves(const GemmDesc& desc, const DeviceInfo& device) {
  return desc.n * desc.k <= kLargeWeights ? "one row of x is faster elsewhere"
                                          : AmxRefuses(desc, device);
}
// Of small models, which stay in the caches. Their heads may have many rows.
bool IsSmall(const GemmDesc& desc) {
  return desc.n * desc.k < kLargeWeights || desc.k < 512;
}
// Small weights, too, which have time for an exact x, and f16 that it rounds.
// Zen 4 issues its products as often as FMAs, Golden Cove a quarter as often.
const char* Bf16Leaves(const GemmDesc& desc, const DeviceInfo& device) {
  if (!__builtin_cpu_is("amd")) return "float32 is faster on this processor";
  if (desc.weight != DType::kBF16 && !desc.fits_bf16) {
    return "rounds weights that bf16 does not hold";
  }
  return IsSmall(desc) ? "small weights have time for an exact x"
                       : Bf16Refuses(desc, device);
}
const char* PackedRefuses(const GemmDesc& desc, const DeviceInfo&) {
  return GemmCpuPackedRefuses(desc);
}
const char* PackedBf16Refuses(const GemmDesc& desc, const DeviceInfo&) {
  return GemmCpuPackedBf16Refuses(desc);
}
const char* PackedBf16Leaves(const GemmDesc& desc, const DeviceInfo&) {
  if (!__builtin_cpu_is("amd")) return "float32 is faster on this processor";
  return IsSmall(desc) ? "small weights have time for an exact x"
                       : GemmCpuPackedBf16Refuses(desc);
}
const char* PackedAmxRefuses(const GemmDesc& desc, const DeviceInfo&) {
  return GemmCpuPackedAmxRefuses(desc);
}
const char* PackedAvxVnniRefuses(const GemmDesc& desc, const DeviceInfo&) {
  return GemmCpuPackedAvxVnniRefuses(desc);
}
const char* PackedVnniRefuses(const GemmDesc& desc, const DeviceInfo&) {
  return GemmCpuPackedVnniRefuses(desc);
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

// Rows that round x to 8 bits where there are many of it.
const char* CudaRoundsRefuses(const GemmDesc& desc, const DeviceInfo& device) {
  if (desc.activation != DType::kF16 && desc.activation != DType::kBF16) {
    return "x must be f16 or bf16";
  }
  if (desc.batch_invariant) {
    return "the number of rows chooses the precision of x";
  }
  if (desc.permuted) return kNoPermutation;
  if (desc.k % 128 != 0) return "k must be a multiple of 128";
  RoundingDesc rounding;
  rounding.width = desc.k;
  rounding.input = rounding.activation = desc.activation;
  if (const char* why = RoundingCudaRefuses(rounding)) return why;
  return CudaQuantisedRefuses(desc, device);
}

const char* CudaFp8Refuses(const GemmDesc& desc, const DeviceInfo& device) {
  if (desc.weight != DType::kF8_G32 && desc.weight != DType::kF8_G128) {
    return "weights must be f8_g32 or f8_g128";
  }
  if (device.sm != 90) return "the scales are for compute capability 9.0";
  return CudaRoundsRefuses(desc, device);
}

const char* CudaInt8Refuses(const GemmDesc& desc, const DeviceInfo& device) {
  if (desc.weight != DType::kI8_G128) return "weights must be i8_g128";
  if (desc.n % 4 != 0) return "n must be a multiple of 4";
  return CudaRoundsRefuses(desc, device);
}

const char* CudaInt8Sm90Refuses(const GemmDesc& desc,
                                const DeviceInfo& device) {
  return device.sm != 90 ? "for compute capability 9.0"
                         : CudaInt8Refuses(desc, device);
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
    // Round x where its rows are many: only for who asks for them by name.
    {"cuda_fp8", DeviceKind::kCuda, 90, CudaFp8Refuses,
     GemmCudaFp8WorkspaceBytes, RunGemmCudaFp8, GemmCudaRoundsPacking},
    {"cuda_int8", DeviceKind::kCuda, 90, CudaInt8Sm90Refuses,
     GemmCudaInt8Sm90WorkspaceBytes, RunGemmCudaInt8Sm90,
     GemmCudaRoundsPacking},
    {"cuda_int8", DeviceKind::kCuda, 80, CudaInt8Refuses,
     GemmCudaInt8WorkspaceBytes, RunGemmCudaInt8, GemmCudaRoundsPacking},
#endif
#if defined(__x86_64__)
    {"cpu_amx", DeviceKind::kCpu, 0, AmxLeaves, GemmCpuAmxWorkspaceBytes,
     RunGemmCpuAmx},
    {"cpu_bf16", DeviceKind::kCpu, 0, Bf16Leaves, GemmCpuBf16WorkspaceBytes,
     RunGemmCpuBf16},
    {"cpu_packed_amx", DeviceKind::kCpu, 0, PackedAmxRefuses,
     GemmCpuPackedWorkspaceBytes, RunGemmCpuPackedAmx, GemmCpuPacking},
    {"cpu_packed_bf16", DeviceKind::kCpu, 0, PackedBf16Leaves,
     GemmCpuPackedBf16WorkspaceBytes, RunGemmCpuPackedBf16, GemmCpuPacking},
    {"cpu_packed_vnni", DeviceKind::kCpu, 0, PackedVnniRefuses,
     GemmCpuPackedWorkspaceBytes, RunGemmCpuPackedVnni, GemmCpuPacking},
    {"cpu_packed_avx_vnni", DeviceKind::kCpu, 0, PackedAvxVnniRefuses,
     GemmCpuPackedWorkspaceBytes, RunGemmCpuPackedAvxVnni, GemmCpuPacking},
    {"cpu_packed", DeviceKind::kCpu, 0, PackedRefuses,
     GemmCpuPackedWorkspaceBytes, RunGemmCpuPacked, GemmCpuPacking},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, SimdRefuses, GemmCpuSimdWorkspaceBytes,
     RunGemmCpuSimd},
#if defined(__x86_64__)
    // What these leave above, for who asks for them by name.
    {"cpu_amx", DeviceKind::kCpu, 0, AmxRefuses, GemmCpuAmxWorkspaceBytes,
     RunGemmCpuAmx},
    {"cpu_bf16", DeviceKind::kCpu, 0, Bf16Refuses, GemmCpuBf16WorkspaceBytes,
     RunGemmCpuBf16},
    {"cpu_packed_bf16", DeviceKind::kCpu, 0, PackedBf16Refuses,
     GemmCpuPackedBf16WorkspaceBytes, RunGemmCpuPackedBf16, GemmCpuPacking},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunGemmCpuScalar},
};

}  // namespace

absl::Span<const GemmRow> GemmTable() { return kRows; }

RowRounding GemmRounding([[maybe_unused]] const GemmRow& row,
                         [[maybe_unused]] const GemmDesc& desc,
                         [[maybe_unused]] int64_t m) {
#if INLAY_HAS_CUDA
  if (row.run == RunGemmCudaFp8) return GemmCudaFp8Rounding(desc, m);
  if (row.run == RunGemmCudaInt8) return GemmCudaInt8Rounding(desc, m);
  if (row.run == RunGemmCudaInt8Sm90) return GemmCudaInt8Sm90Rounding(desc, m);
#endif
  return RowRounding::kNone;
}

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
