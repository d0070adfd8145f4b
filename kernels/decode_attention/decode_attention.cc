#include "kernels/decode_attention/decode_attention.h"

#include <iterator>
#include <tuple>

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
  return DecodeAttentionLimits(desc, device)[1].rows > 0
             ? nullptr
             : "KV heads find no room";
}

constexpr DecodeAttentionRow kRows[] = {{"cuda_sm90", DeviceKind::kCuda, 90,
                                         Sm90Refuses, nullptr,
                                         RunDecodeAttentionSm90}};

}  // namespace

absl::Span<const DecodeAttentionRow> DecodeAttentionTable() { return kRows; }

DecodeAttentionSteps DecodeAttentionLimits(const DecodeAttentionDesc& desc,
                                           const DeviceInfo& device) {
  DecodeAttentionSteps few = {};
  static_assert(std::size(kDecodeCuts) == std::tuple_size_v<decltype(few)>);
  for (size_t i = 0; i < few.size(); ++i) {
    const DecodeCut& cut = kDecodeCuts[i];
    few[i].keys = cut.keys;
    few[i].shares = i < kDecodeSharedCuts;
    const int64_t heads = desc.attention.num_kv_heads;
    while (DecodeCutFits(cut, (few[i].rows + 1) * heads, device.num_sms)) {
      ++few[i].rows;
    }
  }
  return few;
}
#else
absl::Span<const DecodeAttentionRow> DecodeAttentionTable() { return {}; }
DecodeAttentionSteps DecodeAttentionLimits(const DecodeAttentionDesc&,
                                           const DeviceInfo&) {
  return {};
}
#endif

}  // namespace inlay
