#include "kernels/kv_compress/kv_compress.h"

#include <bit>

#include "kernels/cpu_float.h"
#include "kernels/validate.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunKvCompressCpu(const KvCompressDesc& desc,
                              const KvCompressParams& params,
                              Stream& stream);  // kv_compress_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunKvCompressCuda(const KvCompressDesc& desc,
                               const KvCompressParams& params,
                               Stream& stream);  // kv_compress_cuda.cu
#endif

namespace {

const char* CpuRefuses(const KvCompressDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  return ValidateKvCompress(desc).ok()
             ? nullptr
             : "head_dim or row_tokens is out of range";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const KvCompressDesc& desc, const DeviceInfo& device) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (desc.head_dim % 4 != 0) return "head_dim must be a multiple of 4";
  KvCompressDesc rest = desc;
  rest.activation = DType::kF32;
  return CpuRefuses(rest, device);
}
#endif

constexpr KvCompressRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunKvCompressCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunKvCompressCpu},
};

}  // namespace

absl::Span<const KvCompressRow> KvCompressTable() { return kRows; }

absl::Status ValidateKvCompress(const KvCompressDesc& desc) {
  constexpr char kOp[] = "kv_compress";
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "head_dim", desc.head_dim, 1, kMaxAttentionHeadDim));
  INLAY_RETURN_IF_ERROR(
      CheckRange(kOp, "row_tokens", desc.row_tokens, 1, kMaxRowTokens));
  if (std::has_single_bit(static_cast<unsigned>(desc.row_tokens))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "%s: row_tokens is %d; expected a power of two", kOp, desc.row_tokens));
}

}  // namespace inlay
