#include "kernels/decode_attention/decode_attention.h"

#include <iterator>

#if INLAY_HAS_CUDA
#include "kernels/decode_attention/decode_attention_sm90.h"
#endif

namespace inlay {

#if INLAY_HAS_CUDA
namespace {

const char* Sm90Refuses(const DecodeAttentionDesc& desc,
                        const DeviceInfo& device) {
  const AttentionDesc& attention = desc.attention;
  const RopeKvDesc& rope = desc.rope_kv;
  if (device.sm != 90) return "written for compute capability 9.0";
  if (attention.activation != DType::kF16 &&
      attention.activation != DType::kBF16) {
    return "activations must be f16 or bf16";
  }
  if (attention.kv != attention.activation) {
    return "the cache must be of the activations' type";
  }
  if (attention.head_dim != 64 && attention.head_dim != 128) {
    return "head_dim must be 64 or 128";
  }
  if (rope.rotary_dim != attention.head_dim) return "heads are turned whole";
  if (rope.q_norm != rope.k_norm) return "norms of both q and k, or none";
  if (attention.num_heads / attention.num_kv_heads > kDecodeGroup) {
    return "at most 8 query heads a KV head";
  }
  if (attention.softcap > 0.0f || attention.value_dim > 0 ||
      attention.selects > 0 || !attention.causal) {
    return "takes no softcap, latent rows, selected keys or order but causal";
  }
  return DecodeAttentionLimits(desc, device)[0].rows > 0
             ? nullptr
             : "KV heads find no room";
}

constexpr DecodeAttentionRow kRows[] = {{"cuda_sm90", DeviceKind::kCuda, 90,
                                         Sm90Refuses, nullptr,
                                         RunDecodeAttentionSm90}};

}  // namespace

absl::Span<const DecodeAttentionRow> DecodeAttentionTable() { return kRows; }

std::array<AttentionPlanShape::Few, 3> DecodeAttentionLimits(
    const DecodeAttentionDesc& desc, const DeviceInfo& device) {
  // Of each block of a cluster (README.md).
  constexpr int32_t kKeys = 384;
  std::array<AttentionPlanShape::Few, 3> few = {};
  static_assert(std::size(kDecodeClusters) == 3);
  for (size_t i = 0; i < few.size(); ++i) {
    const int cluster = kDecodeClusters[i];
    few[i].keys = kKeys * cluster;
    const int64_t heads = desc.attention.num_kv_heads;
    while (
        DecodeClusterFits(cluster, (few[i].rows + 1) * heads, device.num_sms)) {
      ++few[i].rows;
    }
  }
  return few;
}
#else
absl::Span<const DecodeAttentionRow> DecodeAttentionTable() { return {}; }
std::array<AttentionPlanShape::Few, 3> DecodeAttentionLimits(
    const DecodeAttentionDesc&, const DeviceInfo&) {
  return {};
}
#endif

}  // namespace inlay
