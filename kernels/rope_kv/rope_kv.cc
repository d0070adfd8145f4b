#include "kernels/rope_kv/rope_kv.h"

#include "kernels/cpu_float.h"

namespace inlay {

#if INLAY_HAS_CUDA
absl::Status RunRopeKvCuda(const RopeKvDesc& desc, const RopeKvParams& params,
                           Stream& stream);  // rope_kv_cuda.cu

namespace {

const char* CudaRefuses(const RopeKvDesc& desc, const DeviceInfo&) {
  if (!IsPlainFloat(desc.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (!IsKvFormat(desc.kv)) {
    return "the cache must be f32, f16, bf16, i8, f8_e4m3 or kv_q4";
  }
  if (desc.rotary_dim < 0 || desc.rotary_dim % 2 != 0 ||
      desc.rotary_dim > desc.head_dim) {
    return "rotary_dim must be even and at most head_dim";
  }
  // Wider heads are normalised by a block in rms_norm.
  return desc.head_dim > 512 ? "head_dim must be at most 512" : nullptr;
}

constexpr RopeKvRow kRows[] = {
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunRopeKvCuda}};

}  // namespace

absl::Span<const RopeKvRow> RopeKvTable() { return kRows; }
#else
absl::Span<const RopeKvRow> RopeKvTable() { return {}; }
#endif

}  // namespace inlay
