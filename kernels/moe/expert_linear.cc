#include "kernels/moe/expert_linear.h"

#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"
#if INLAY_HAS_CUDA
#include "kernels/rounding/rounding_cuda.h"
#endif

namespace inlay {

// expert_linear_cpu.cc
const GemmRow* GemmRowNamed(std::string_view name);
const GemmRow* FirstGemmRowNamed(std::string_view name);
size_t ExpertLinearCpuBytes(const GemmRow& row, const ExpertLinearDesc& desc,
                            int64_t max_tokens);
absl::Status RunExpertLinearCpu(const GemmRow& row,
                                const ExpertLinearDesc& desc,
                                const ExpertLinearParams& params,
                                Stream& stream);

#if INLAY_HAS_CUDA
// expert_linear_grouped.cc
size_t ExpertLinearGroupedBytes(const ExpertLinearDesc& desc,
                                int64_t max_tokens);
// expert_linear_wide_sm90.cu
size_t ExpertLinearWideBytes(const ExpertLinearDesc& desc, int64_t max_tokens);
// expert_linear_cuda.cc
absl::Status RunExpertLinearCuda(const ExpertLinearDesc& desc,
                                 const ExpertLinearParams& params,
                                 Stream& stream);
absl::Status RunExpertLinearCudaQuantised(const ExpertLinearDesc& desc,
                                          const ExpertLinearParams& params,
                                          Stream& stream);
absl::Status RunExpertLinearCudaRounds(const ExpertLinearDesc& desc,
                                       const ExpertLinearParams& params,
                                       Stream& stream);
// expert_codes.cc
RowRounding ExpertCodesRounding(const ExpertLinearDesc& desc, int64_t slots);
size_t ExpertCodesBytes(const ExpertLinearDesc& desc, int64_t max_tokens);
#endif

namespace {

constexpr char kAmx[] = "cpu_amx";
constexpr char kBf16[] = "cpu_bf16";
constexpr char kPackedAmx[] = "cpu_packed_amx";
constexpr char kPackedAvxVnni[] = "cpu_packed_avx_vnni";
constexpr char kPackedBf16[] = "cpu_packed_bf16";
constexpr char kPackedVnni[] = "cpu_packed_vnni";
constexpr char kPacked[] = "cpu_packed";
constexpr char kSimd[] = "cpu_simd";
constexpr char kScalar[] = "cpu_scalar";
constexpr char kNoGates[] = "makes gates and ups, not what becomes of them";

template <const char* kName,
          const GemmRow* (*kFind)(std::string_view) = GemmRowNamed>
const char* Refuses(const ExpertLinearDesc& desc, const DeviceInfo& device) {
  const GemmRow* row = kFind(kName);
  if (row == nullptr) return "this build's gemm has no such row";
  if (desc.gemm.permuted) return "takes no permutation of x";
  if (desc.gated) return kNoGates;
  return row->refuses(desc.gemm, device);
}

template <const char* kName>
size_t Bytes(const ExpertLinearDesc& desc, int64_t max_tokens) {
  return ExpertLinearCpuBytes(*GemmRowNamed(kName), desc, max_tokens);
}

template <const char* kName>
absl::Status Run(const ExpertLinearDesc& desc, const ExpertLinearParams& params,
                 Stream& stream) {
  return RunExpertLinearCpu(*GemmRowNamed(kName), desc, params, stream);
}

template <const char* kName>
constexpr ExpertLinearRow kCpuRow = {
    kName, DeviceKind::kCpu, 0, Refuses<kName>, Bytes<kName>, Run<kName>};
// Leaves to later rows what gemm leaves.
template <const char* kName>
constexpr ExpertLinearRow kChosenCpuRow = {
    kName,        DeviceKind::kCpu, 0, Refuses<kName, FirstGemmRowNamed>,
    Bytes<kName>, Run<kName>};

// As gemm does; small weights it keeps, which are most of experts'.
const char* AmxLeaves(const ExpertLinearDesc& desc, const DeviceInfo& device) {
  return desc.gemm.weight == DType::kF16 ? "one row of x is faster elsewhere"
                                         : Refuses<kAmx>(desc, device);
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const ExpertLinearDesc& desc, const DeviceInfo&) {
  const GemmDesc& gemm = desc.gemm;
  if (desc.gated) return kNoGates;
  if (!IsPlainFloat(gemm.weight) || !IsPlainFloat(gemm.activation)) {
    return "weights and x must be f32, f16 or bf16";
  }
  if (gemm.output != DType::kF32 && gemm.output != gemm.activation) {
    return "y must be f32 or of the type of x";
  }
  return gemm.permuted ? "takes no permutation of x" : nullptr;
}

const char* CudaQuantisedRefuses(const ExpertLinearDesc& desc,
                                 const DeviceInfo&) {
  const GemmDesc& gemm = desc.gemm;
  if (!IsBlockFormat(gemm.weight)) return "weights must be a block format";
  if (gemm.activation != DType::kF16 && gemm.activation != DType::kBF16) {
    return "x must be f16 or bf16";
  }
  if (gemm.output != DType::kF32 && gemm.output != gemm.activation) {
    return "y must be f32 or of the type of x";
  }
  if (desc.gated && (gemm.output != gemm.activation || gemm.n % 2 != 0)) {
    return "gates and ups must be as many and of the type of x";
  }
  if (gemm.k % GetFormatInfo(gemm.weight).block_elements != 0) {
    return "k must be a multiple of the format's block";
  }
  return gemm.permuted ? "takes no permutation of x" : nullptr;
}

// Rows that round x to 8 bits where there are many slots.
const char* CudaRoundsRefuses(const ExpertLinearDesc& desc,
                              const DeviceInfo& device) {
  const GemmDesc& gemm = desc.gemm;
  if (device.sm != 90) return "for compute capability 9.0";
  if (gemm.batch_invariant) {
    return "the number of slots chooses the precision of x";
  }
  if (gemm.k % 128 != 0) return "k must be a multiple of 128";
  RoundingDesc rounding;
  rounding.width = gemm.k;
  rounding.input = rounding.activation = gemm.activation;
  if (const char* why = RoundingCudaRefuses(rounding)) return why;
  return CudaQuantisedRefuses(desc, device);
}

const char* CudaFp8Refuses(const ExpertLinearDesc& desc,
                           const DeviceInfo& device) {
  return desc.gemm.weight != DType::kF8_G128 ? "weights must be f8_g128"
                                             : CudaRoundsRefuses(desc, device);
}

const char* CudaInt8Refuses(const ExpertLinearDesc& desc,
                            const DeviceInfo& device) {
  return desc.gemm.weight != DType::kI8_G128 ? "weights must be i8_g128"
                                             : CudaRoundsRefuses(desc, device);
}
#endif

constexpr ExpertLinearRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, ExpertLinearWideBytes,
     RunExpertLinearCuda},
    {"cuda_quantised", DeviceKind::kCuda, 80, CudaQuantisedRefuses,
     ExpertLinearGroupedBytes, RunExpertLinearCudaQuantised},
    // Round x where slots are many: only for who asks for them by name.
    {"cuda_fp8", DeviceKind::kCuda, 90, CudaFp8Refuses, ExpertCodesBytes,
     RunExpertLinearCudaRounds},
    {"cuda_int8", DeviceKind::kCuda, 90, CudaInt8Refuses, ExpertCodesBytes,
     RunExpertLinearCudaRounds},
#endif
    {kAmx, DeviceKind::kCpu, 0, AmxLeaves, Bytes<kAmx>, Run<kAmx>},
    kChosenCpuRow<kBf16>,
    kCpuRow<kPackedAmx>,
    kChosenCpuRow<kPackedBf16>,
    kCpuRow<kPackedVnni>,
    kCpuRow<kPackedAvxVnni>,
    kCpuRow<kPacked>,
    kCpuRow<kSimd>,
    kCpuRow<kAmx>,
    kCpuRow<kBf16>,
    kCpuRow<kPackedBf16>,
    kCpuRow<kScalar>,
};

}  // namespace

absl::Span<const ExpertLinearRow> ExpertLinearTable() { return kRows; }

RowRounding ExpertRounding([[maybe_unused]] const ExpertLinearRow& row,
                           [[maybe_unused]] const ExpertLinearDesc& desc,
                           [[maybe_unused]] int64_t slots) {
#if INLAY_HAS_CUDA
  if (row.run == RunExpertLinearCudaRounds) {
    return ExpertCodesRounding(desc, slots);
  }
#endif
  return RowRounding::kNone;
}

const WeightPacking<GemmDesc>* ExpertPacking(const ExpertLinearRow& row,
                                             const GemmDesc& desc) {
  const GemmRow* gemm = GemmRowNamed(row.name);
  return gemm == nullptr || gemm->packing == nullptr ? nullptr
                                                     : gemm->packing(desc);
}

}  // namespace inlay
