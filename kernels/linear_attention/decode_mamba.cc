#include "kernels/linear_attention/decode_mamba.h"

#include "kernels/cpu_float.h"

namespace inlay {

#if INLAY_HAS_CUDA
absl::Status RunDecodeMambaCuda(const DecodeMambaDesc& desc,
                                const DecodeMambaParams& params,
                                Stream& stream);  // decode_mamba_cuda.cu

namespace {

const char* NormRefuses(const DecodeMambaDesc& desc, const DeviceInfo& device) {
  const GatedNormDesc& norm = desc.norm;
  if (norm.gate == GateFunction::kNone || norm.group_gates ||
      norm.shared_weight) {
    return "norms must be gated, each channel with a weight";
  }
  if (!norm.normalise) return nullptr;
  if (device.sm < 90) return "norms need clusters of blocks";
  const int64_t slab = DecodeMambaSlab(desc.scan);
  if (norm.width % desc.scan.value_dim != 0 ||
      norm.width > slab * kDecodeMambaCluster) {
    return "a norm's heads must fit into a cluster of 16 blocks";
  }
  // Blocks tell each other by instructions that a lone one does not have.
  if (norm.width < 2 * slab) return "a norm must be of two blocks or more";
  return nullptr;
}

const char* CudaRefuses(const DecodeMambaDesc& desc, const DeviceInfo& device) {
  const LinearAttentionDesc& scan = desc.scan;
  if (!IsPlainFloat(scan.activation)) {
    return "activations must be f32, f16 or bf16";
  }
  if (scan.delta || scan.normalised || scan.decay != StateDecay::kHead ||
      scan.feature_map != FeatureMap::kNone || desc.gates.channels != 1) {
    return "written for Mamba 2's recurrence";
  }
  if (desc.conv.num_taps != 4 || !desc.conv.silu) {
    return "written for 4 taps and SiLU";
  }
  const bool small = scan.key_dim <= 32 && scan.key_dim % 8 == 0;
  if (!small && scan.key_dim != 128 && scan.key_dim != 256) {
    return "keys must have 8, 16, 24, 32, 128 or 256 elements";
  }
  if (scan.value_dim % (scan.key_dim == 256 ? 64 : 16) != 0) {
    return "values must have 16 n elements, 64 n where keys have 256";
  }
  return desc.finishes ? NormRefuses(desc, device) : nullptr;
}

constexpr DecodeMambaRow kRows[] = {
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunDecodeMambaCuda}};

}  // namespace

absl::Span<const DecodeMambaRow> DecodeMambaTable() { return kRows; }
#else
absl::Span<const DecodeMambaRow> DecodeMambaTable() { return {}; }
#endif

}  // namespace inlay
