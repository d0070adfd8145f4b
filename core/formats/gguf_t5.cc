#include "core/formats/gguf_t5.h"

#include <string>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kBuckets[] = "attention.relative_buckets_count";
constexpr char kNumBuckets[] = "relative_attention_num_buckets";
constexpr char kEpsilon[] = "layer_norm_epsilon";
constexpr char kRmsEpsilon[] = "attention.layer_norm_rms_epsilon";
constexpr char kProjection[] = "feed_forward_proj";
constexpr char kFunction[] = "dense_act_fn";
constexpr char kPositions[] = "n_positions";
constexpr int64_t kTrainedPositions = 512;

// Files have no key for it: llama.cpp's is GELU by tanh with a gate and ReLU
// without.
absl::Status CheckActivation(const GgufKeyWriter& keys) {
  const bool is_t5 = keys.model_type() == "t5";
  INLAY_ASSIGN_OR_RETURN(
      const std::string projection,
      JsonString(keys.config(), kProjection, is_t5 ? "relu" : "gated-gelu"));
  INLAY_ASSIGN_OR_RETURN(const bool gated,
                         JsonBool(keys.config(), "is_gated_act",
                                  projection.starts_with("gated-")));
  const std::string usual = projection == "gated-gelu"
                                ? "gelu_new"
                                : projection.substr(projection.find('-') + 1);
  INLAY_ASSIGN_OR_RETURN(const std::string function,
                         JsonString(keys.config(), kFunction, usual));
  const bool is_said =
      gated ? function == "gelu_new" || function == "gelu_pytorch_tanh"
            : function == "relu";
  if (is_said) return absl::OkStatus();
  return function == usual ? keys.NotSaid(kProjection, projection)
                           : keys.NotSaid(kFunction, function);
}

}  // namespace

bool IsGgufT5(std::string_view arch) {
  return arch == "t5" || arch == "t5encoder";
}

bool IsGgufT5Decoder(std::string_view arch, std::string_view tensor) {
  return IsGgufT5(arch) &&
         (tensor.starts_with("dec.") || tensor == "output.weight");
}

absl::Status ReadGgufT5(const GgufFiles& files, const GgufArchKeys& keys,
                        const GgufSizes& sizes, Json* config) {
  if (sizes.kv_heads != sizes.heads) {
    return absl::UnimplementedError(
        FormattedString("%d heads with %d of keys, allowed: as many of both",
                        sizes.heads, sizes.kv_heads));
  }
  for (const auto& [from, to] :
       {std::pair{"hidden_size", "d_model"}, std::pair{"head_dim", "d_kv"},
        std::pair{"num_hidden_layers", "num_layers"},
        std::pair{"num_attention_heads", "num_heads"},
        std::pair{"intermediate_size", "d_ff"},
        std::pair{"max_position_embeddings", kPositions}}) {
    (*config)[to] = (*config)[from];
    config->erase(from);
  }
  for (const char* none :
       {"num_key_value_heads", "rms_norm_eps", "rope_theta"}) {
    config->erase(none);
  }
  const auto has = [&](const char* tensor) {
    return files.FindTensor(tensor) != nullptr;
  };
  if (has("enc.blk.1.attn_rel_b.weight")) {
    (*config)["architectures"] = {"UMT5EncoderModel"};
    (*config)["model_type"] = "umt5";
  }
  (*config)[kProjection] =
      has("enc.blk.0.ffn_gate.weight") ? "gated-gelu" : "relu";
  INLAY_ASSIGN_OR_RETURN(
      (*config)[kNumBuckets],
      keys.Required(kBuckets, keys.Int(kBuckets, 1, kMaxGgufSize)));
  return keys.CopyNumber(kRmsEpsilon, kEpsilon, config);
}

absl::Status SetGgufT5(GgufKeyWriter& keys, GgufConfigTensors* tensors) {
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(keys.AnyOf({"num_layers", "num_hidden_layers"}),
                    "block_count")
          .status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(keys.AnyOf({"d_model", "hidden_size"}), "embedding_length")
          .status());
  INLAY_RETURN_IF_ERROR(keys.CopySize("d_ff", "feed_forward_length").status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(kPositions, "context_length", kTrainedPositions).status());
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      keys.CopySize(keys.AnyOf({"num_heads", "num_attention_heads"}),
                    "attention.head_count"));
  tensors->heads = {heads, heads};
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      keys.CopySize(keys.AnyOf({"d_kv", "head_dim"}), "attention.key_length"));
  INLAY_RETURN_IF_ERROR(keys.SetU32("attention.value_length", head_dim));
  INLAY_RETURN_IF_ERROR(keys.CopySize(kNumBuckets, kBuckets, 32).status());
  INLAY_RETURN_IF_ERROR(keys.Expect("relative_attention_max_distance", 128));
  // Its converter does not say so, and llama.cpp's server then masks what
  // comes after a token.
  INLAY_RETURN_IF_ERROR(keys.SetBool("attention.causal", false));
  // The converter writes both.
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber(kEpsilon, "attention.layer_norm_epsilon", 1e-6));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(kEpsilon, kRmsEpsilon, 1e-6));
  return CheckActivation(keys);
}

}  // namespace inlay
