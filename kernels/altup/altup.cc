#include "kernels/altup/altup.h"

#include <cmath>
#include <limits>

#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

// altup_cpu_simd.cc
absl::Status RunAltUpPredictCpuSimd(const AltUpDesc& desc,
                                    const AltUpPredictParams& params,
                                    Stream& stream);
absl::Status RunAltUpCorrectCpuSimd(const AltUpDesc& desc,
                                    const AltUpCorrectParams& params,
                                    Stream& stream);
// altup_cpu.cc
absl::Status RunAltUpPredictCpuScalar(const AltUpDesc& desc,
                                      const AltUpPredictParams& params,
                                      Stream& stream);
absl::Status RunAltUpCorrectCpuScalar(const AltUpDesc& desc,
                                      const AltUpCorrectParams& params,
                                      Stream& stream);
absl::Status RunAltUpAddCpuScalar(const AltUpDesc& desc,
                                  const AltUpAddParams& params, Stream& stream);
absl::Status RunMatchMagnitudeCpuScalar(const MatchMagnitudeDesc& desc,
                                        const MatchMagnitudeParams& params,
                                        Stream& stream);

#if INLAY_HAS_CUDA
// altup_cuda.cu
absl::Status RunAltUpPredictCuda(const AltUpDesc& desc,
                                 const AltUpPredictParams& params,
                                 Stream& stream);
absl::Status RunAltUpCorrectCuda(const AltUpDesc& desc,
                                 const AltUpCorrectParams& params,
                                 Stream& stream);
absl::Status RunAltUpAddCuda(const AltUpDesc& desc,
                             const AltUpAddParams& params, Stream& stream);
absl::Status RunMatchMagnitudeCuda(const MatchMagnitudeDesc& desc,
                                   const MatchMagnitudeParams& params,
                                   Stream& stream);
#endif

namespace {

const char* Refuses(const AltUpDesc& desc, const DeviceInfo&) {
  return ValidateAltUp(desc).ok() ? nullptr : "a number is out of range";
}

constexpr AltUpPredictRow kPredictRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunAltUpPredictCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, Refuses, nullptr, RunAltUpPredictCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr,
     RunAltUpPredictCpuScalar},
};

constexpr AltUpCorrectRow kCorrectRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunAltUpCorrectCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, Refuses, nullptr, RunAltUpCorrectCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr,
     RunAltUpCorrectCpuScalar},
};

constexpr AltUpAddRow kAddRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, Refuses, nullptr, RunAltUpAddCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, Refuses, nullptr, RunAltUpAddCpuScalar},
};

constexpr MatchMagnitudeRow kMatchRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, nullptr, nullptr, RunMatchMagnitudeCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, nullptr, nullptr,
     RunMatchMagnitudeCpuScalar},
};

}  // namespace

absl::Span<const AltUpPredictRow> AltUpPredictTable() { return kPredictRows; }
absl::Span<const AltUpCorrectRow> AltUpCorrectTable() { return kCorrectRows; }
absl::Span<const AltUpAddRow> AltUpAddTable() { return kAddRows; }
absl::Span<const MatchMagnitudeRow> MatchMagnitudeTable() { return kMatchRows; }

absl::Status ValidateAltUp(const AltUpDesc& desc) {
  constexpr char kOp[] = "altup";
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "num_streams", desc.num_streams, 1, kMaxAltUpStreams));
  INLAY_RETURN_IF_ERROR(CheckRange(kOp, "width", desc.width, 1,
                                   std::numeric_limits<int32_t>::max()));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "active", desc.active, 0, desc.num_streams - 1));
  if (std::isfinite(desc.norm_epsilon) && desc.norm_epsilon >= 0.0f) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "%s: norm_epsilon is %g; expected finite, >= 0", kOp, desc.norm_epsilon));
}

}  // namespace inlay
