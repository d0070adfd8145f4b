#include "core/formats/gguf_gpt.h"

#include <string>
#include <tuple>
#include <utility>

#include "core/formats/gguf_rope_writer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kGptEpsilon[] = "attention.layer_norm_epsilon";
constexpr char kKvHeads[] = "attention.head_count_kv";
constexpr char kClip[] = "attention.clamp_kqv";
constexpr char kAlibi[] = "attention.max_alibi_bias";

absl::Status ReadMpt(const GgufArchKeys& keys, const GgufSizes& sizes,
                     Json* config) {
  if (sizes.kv_heads != sizes.heads) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: %d, as many as heads of queries",
                        keys.Name(kKvHeads), sizes.kv_heads, sizes.heads));
  }
  INLAY_ASSIGN_OR_RETURN(const auto bias, keys.Number(kAlibi));
  INLAY_ASSIGN_OR_RETURN(const auto clip, keys.Number(kClip));
  Json attention = {{"alibi", bias.value_or(0.0) > 0.0}};
  if (bias.value_or(0.0) > 0.0) attention["alibi_bias_max"] = *bias;
  if (clip.value_or(0.0) > 0.0) attention["clip_qkv"] = *clip;
  (*config)["attn_config"] = std::move(attention);
  return absl::OkStatus();
}

absl::Status ReadStarcoder(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config) {
  if (sizes.kv_heads != 1 && sizes.kv_heads != sizes.heads) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d, allowed: 1 or %d, as many as heads of queries",
        keys.Name(kKvHeads), sizes.kv_heads, sizes.heads));
  }
  (*config)["multi_query"] = sizes.kv_heads == 1;
  (*config)["n_inner"] = sizes.inner;
  return absl::OkStatus();
}

// What config.json calls the sizes.
struct GptNames {
  const char* layers;
  const char* hidden;
  const char* heads;
  const char* positions;
  int64_t default_positions = 2048;
};

GptNames GptNamesOf(const GgufKeyWriter& keys) {
  const auto any = [&](const char* own, const char* usual) {
    return keys.AnyOf({own, usual});
  };
  const bool is_falcon = keys.arch() == "falcon";
  if (is_falcon || keys.arch() == "bloom") {
    return {
        any(is_falcon ? "num_hidden_layers" : "n_layer", "num_hidden_layers"),
        any("n_embed", "hidden_size"),
        any(is_falcon ? "num_attention_heads" : "n_head",
            "num_attention_heads"),
        any(is_falcon ? "max_position_embeddings" : "seq_length",
            "max_position_embeddings")};
  }
  if (keys.arch() == "mpt" || keys.arch() == "dbrx") {
    return {any("n_layers", "num_hidden_layers"), any("d_model", "hidden_size"),
            any("n_heads", "num_attention_heads"),
            any("max_seq_len", "max_position_embeddings")};
  }
  return {any("n_layer", "num_hidden_layers"), any("n_embd", "hidden_size"),
          any("n_head", "num_attention_heads"),
          any("n_positions", "max_position_embeddings"), 1024};
}

// How many heads keys have. UNIMPLEMENTED for what files cannot say.
absl::StatusOr<int64_t> FalconKvHeads(const GgufKeyWriter& keys,
                                      int64_t heads) {
  INLAY_RETURN_IF_ERROR(keys.CheckActivation("activation", {"gelu"}));
  INLAY_RETURN_IF_ERROR(keys.Expect("alibi", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool parallel,
                         JsonFlag(keys.config(), "parallel_attn", true));
  if (!parallel) return keys.NotSaid("parallel_attn", parallel);
  INLAY_ASSIGN_OR_RETURN(
      const bool grouped,
      JsonFlag(keys.config(), "new_decoder_architecture", false));
  INLAY_ASSIGN_OR_RETURN(const bool multi_query,
                         JsonFlag(keys.config(), "multi_query", true));
  if (!grouped && multi_query) return 1;
  return keys.Size("num_kv_heads", heads);
}

absl::Status CheckMpt(GgufKeyWriter& keys) {
  const Json none = Json::object();
  const Json* found = JsonFind(keys.config(), "attn_config");
  const Json& attention = found == nullptr ? none : *found;
  INLAY_ASSIGN_OR_RETURN(const bool alibi, JsonFlag(attention, "alibi", true));
  INLAY_ASSIGN_OR_RETURN(
      const double bias,
      JsonNumber(attention, "alibi_bias_max", 8.0, 0.0, 1e9));
  INLAY_RETURN_IF_ERROR(keys.SetF32(kAlibi, alibi ? bias : 0.0));
  INLAY_ASSIGN_OR_RETURN(const double clip,
                         JsonNumber(attention, "clip_qkv", 0.0, 0.0, 1e9));
  if (clip > 0.0) {
    INLAY_RETURN_IF_ERROR(keys.SetF32(kClip, clip));
  }
  const Json* scale = JsonFind(attention, "softmax_scale");
  return scale == nullptr ? absl::OkStatus()
                          : keys.NotSaid("softmax_scale", *scale);
}

// Its experts' keys, too.
absl::StatusOr<int64_t> SetDbrx(GgufKeyWriter& keys) {
  const Json none = Json::object();
  const Json* found = JsonFind(keys.config(), "attn_config");
  const Json& attention = found == nullptr ? none : *found;
  found = JsonFind(keys.config(), "ffn_config");
  const Json& ffn = found == nullptr ? none : *found;
  constexpr char kOrder[] = "moe_normalize_expert_weights";
  const Json order = ffn.is_object() ? ffn.value(kOrder, Json(1.0)) : Json(1.0);
  if (order != 1.0) return keys.NotSaid(kOrder, order);
  const Json* activation = JsonFind(ffn, "ffn_act_fn");
  if (activation != nullptr) {
    INLAY_ASSIGN_OR_RETURN(const std::string name,
                           JsonString(*activation, "name", "silu"));
    if (name != "silu") return keys.NotSaid("ffn_act_fn", *activation);
  }
  INLAY_ASSIGN_OR_RETURN(const double clip,
                         JsonNumber(attention, "clip_qkv", 0.0, 0.0, 1e9));
  if (clip > 0.0) INLAY_RETURN_IF_ERROR(keys.SetF32(kClip, clip));
  for (const auto& [from, to, fallback] :
       {std::tuple{"moe_num_experts", "expert_count", 4},
        std::tuple{"moe_top_k", "expert_used_count", 1},
        std::tuple{"ffn_hidden_size", "feed_forward_length", 3584}}) {
    INLAY_ASSIGN_OR_RETURN(const int64_t value,
                           JsonInt(ffn, from, fallback, 1, kMaxGgufSize));
    INLAY_RETURN_IF_ERROR(keys.SetU32(to, value));
  }
  return JsonInt(attention, "kv_n_heads", 1, 1, kMaxGgufSize);
}

absl::StatusOr<int64_t> CheckedKvHeads(GgufKeyWriter& keys, int64_t heads) {
  if (keys.arch() == "falcon") return FalconKvHeads(keys, heads);
  if (keys.arch() == "bloom") return heads;
  if (keys.arch() == "dbrx") return SetDbrx(keys);
  if (keys.arch() == "mpt") {
    INLAY_RETURN_IF_ERROR(CheckMpt(keys));
    return heads;
  }
  INLAY_RETURN_IF_ERROR(keys.CheckActivation(
      "activation_function", {"gelu_pytorch_tanh", "gelu_new"}));
  INLAY_RETURN_IF_ERROR(keys.Expect("scale_attn_weights", true));
  INLAY_ASSIGN_OR_RETURN(const bool multi_query,
                         JsonBool(keys.config(), "multi_query", true));
  return multi_query ? 1 : heads;
}

}  // namespace

bool IsGgufGpt(std::string_view arch) {
  return arch == "falcon" || arch == "bloom" || arch == "mpt" ||
         arch == "starcoder" || arch == "dbrx";
}

absl::Status ReadGgufGpt(const GgufFiles& files, const GgufArchKeys& keys,
                         const GgufSizes& sizes, Json* config) {
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber(kGptEpsilon, "layer_norm_epsilon", config));
  if (keys.arch() == "mpt") return ReadMpt(keys, sizes, config);
  if (keys.arch() == "dbrx") {  // gguf_experts.h has the rest
    INLAY_ASSIGN_OR_RETURN(const auto clip, keys.Number(kClip));
    (*config)["attn_config"] = {{"kv_n_heads", sizes.kv_heads}};
    if (clip.value_or(0.0) > 0.0) (*config)["attn_config"]["clip_qkv"] = *clip;
    return absl::OkStatus();
  }
  if (keys.arch() == "starcoder") return ReadStarcoder(keys, sizes, config);
  if (keys.arch() == "bloom") return absl::OkStatus();
  (*config)["new_decoder_architecture"] = true;
  (*config)["num_kv_heads"] = sizes.kv_heads;
  (*config)["ffn_hidden_size"] = sizes.inner;
  const bool has_two = files.FindTensor("blk.0.attn_norm_2.weight") != nullptr;
  (*config)["num_ln_in_parallel_attn"] = has_two ? 2 : 1;
  return absl::OkStatus();
}

absl::Status SetGgufGpt(GgufKeyWriter& keys, GgufConfigTensors* tensors) {
  const GptNames names = GptNamesOf(keys);
  INLAY_RETURN_IF_ERROR(keys.CopySize(names.layers, "block_count").status());
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                         keys.CopySize(names.hidden, "embedding_length"));
  INLAY_ASSIGN_OR_RETURN(const int64_t positions,
                         keys.CopySize(names.positions, "context_length",
                                       names.default_positions));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         keys.CopySize(names.heads, "attention.head_count"));
  int64_t inner = 4 * hidden;
  if (keys.arch() == "falcon") {
    INLAY_ASSIGN_OR_RETURN(inner, keys.Size("ffn_hidden_size", inner));
  }
  if (keys.arch() == "starcoder") {
    INLAY_ASSIGN_OR_RETURN(inner, keys.Size("n_inner", inner));
  }
  const bool is_dbrx = keys.arch() == "dbrx";
  if (!is_dbrx) {
    INLAY_RETURN_IF_ERROR(keys.SetU32("feed_forward_length", inner));
  }
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("layer_norm_epsilon", kGptEpsilon, 1e-5));
  INLAY_ASSIGN_OR_RETURN(const int64_t kv_heads, CheckedKvHeads(keys, heads));
  INLAY_RETURN_IF_ERROR(keys.SetU32(kKvHeads, kv_heads));
  tensors->heads = {heads, kv_heads};
  if (keys.arch() != "falcon" && !is_dbrx) return absl::OkStatus();
  GgufRopeShape shape{hidden / heads, positions};
  const Json* attention = JsonFind(keys.config(), "attn_config");
  if (is_dbrx && attention != nullptr) {
    INLAY_ASSIGN_OR_RETURN(shape.theta, JsonNumber(*attention, "rope_theta",
                                                   shape.theta, 1.0, 1e15));
  }
  return SetGgufRope(keys.config(), std::string(keys.arch()), shape,
                     &keys.writer(), tensors);
}

}  // namespace inlay
