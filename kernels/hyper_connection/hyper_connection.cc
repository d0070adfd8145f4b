#include "kernels/hyper_connection/hyper_connection.h"

#include <cmath>
#include <limits>

#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

// hyper_connection_cpu_simd.cc
absl::Status RunHyperMixCpuSimd(const HyperMixDesc& desc,
                                const HyperMixParams& params, Stream& stream);
absl::Status RunHyperSpreadCpuSimd(const HyperSpreadDesc& desc,
                                   const HyperSpreadParams& params,
                                   Stream& stream);
// hyper_connection_cpu.cc
absl::Status RunHyperMixCpuScalar(const HyperMixDesc& desc,
                                  const HyperMixParams& params, Stream& stream);
absl::Status RunHyperSpreadCpuScalar(const HyperSpreadDesc& desc,
                                     const HyperSpreadParams& params,
                                     Stream& stream);

#if INLAY_HAS_CUDA
// hyper_connection_cuda.cu
absl::Status RunHyperMixCuda(const HyperMixDesc& desc,
                             const HyperMixParams& params, Stream& stream);
absl::Status RunHyperSpreadCuda(const HyperSpreadDesc& desc,
                                const HyperSpreadParams& params,
                                Stream& stream);
#endif

namespace {

constexpr char kOutOfRange[] = "a number is out of range";

const char* MixRefuses(const HyperMixDesc& desc, const DeviceInfo&) {
  return ValidateHyperMix(desc).ok() ? nullptr : kOutOfRange;
}

const char* SpreadRefuses(const HyperSpreadDesc& desc, const DeviceInfo&) {
  return ValidateHyperSpread(desc).ok() ? nullptr : kOutOfRange;
}

constexpr HyperMixRow kMixRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, MixRefuses, nullptr, RunHyperMixCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, MixRefuses, nullptr, RunHyperMixCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, MixRefuses, nullptr,
     RunHyperMixCpuScalar},
};

constexpr HyperSpreadRow kSpreadRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, SpreadRefuses, nullptr, RunHyperSpreadCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, SpreadRefuses, nullptr,
     RunHyperSpreadCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, SpreadRefuses, nullptr,
     RunHyperSpreadCpuScalar},
};

absl::Status CheckStreams(const char* op, int num_streams, int64_t width) {
  INLAY_RETURN_IF_ERROR(
      CheckRange(op, "num_streams", num_streams, 1, kMaxHyperStreams));
  return CheckRange(op, "width", width, 1, std::numeric_limits<int32_t>::max());
}

}  // namespace

absl::Span<const HyperMixRow> HyperMixTable() { return kMixRows; }
absl::Span<const HyperSpreadRow> HyperSpreadTable() { return kSpreadRows; }

absl::Status ValidateHyperMix(const HyperMixDesc& desc) {
  constexpr char kOp[] = "hyper_mix";
  INLAY_RETURN_IF_ERROR(CheckStreams(kOp, desc.num_streams, desc.width));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "rounds", desc.rounds, 1, kMaxHyperRounds));
  if (desc.averages && !desc.only_mixes) {
    return absl::InvalidArgumentError(
        "hyper_mix: averages is true; expected false but where only_mixes");
  }
  if (!std::isfinite(desc.magnitude)) {
    return absl::InvalidArgumentError(FormattedString(
        "hyper_mix: magnitude is %g; expected finite", desc.magnitude));
  }
  if (std::isfinite(desc.epsilon) && desc.epsilon >= 0.0f &&
      std::isfinite(desc.norm_epsilon) && desc.norm_epsilon >= 0.0f) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "%s: epsilon is %g and norm_epsilon %g; expected finite, >= 0", kOp,
      desc.epsilon, desc.norm_epsilon));
}

absl::Status ValidateHyperSpread(const HyperSpreadDesc& desc) {
  return CheckStreams("hyper_spread", desc.num_streams, desc.width);
}

}  // namespace inlay
