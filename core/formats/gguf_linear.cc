#include "core/formats/gguf_linear.h"

#include <string>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kDefaultInterval = 4;

// A Mamba 2 mixer's sizes, as keys and tensors say them.
struct Mixer {
  int64_t heads = 0;
  int64_t width = 0;  // of all heads
  int64_t groups = 0;
  int64_t state_size = 0;
  int64_t taps = 0;
  bool conv_bias = false;
  bool bias = false;
  bool norm = false;
};

absl::StatusOr<Mixer> ReadMixer(const GgufFiles& files,
                                const GgufArchKeys& keys,
                                const GgufSizes& sizes) {
  Mixer mixer;
  for (const auto& [key, to] : {std::pair{"ssm.time_step_rank", &mixer.heads},
                                {"ssm.inner_size", &mixer.width},
                                {"ssm.group_count", &mixer.groups},
                                {"ssm.state_size", &mixer.state_size},
                                {"ssm.conv_kernel", &mixer.taps}}) {
    INLAY_ASSIGN_OR_RETURN(*to,
                           keys.Required(key, keys.Int(key, 1, kMaxGgufSize)));
  }
  if (mixer.width % mixer.heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "%s is %d, allowed: a divisor of the width %d",
        keys.Name("ssm.time_step_rank"), mixer.heads, mixer.width));
  }
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const auto has = [&](const char* name) {
      return files.FindTensor(FormattedString("blk.%d.%s", i, name)) != nullptr;
    };
    mixer.conv_bias |= has("ssm_conv1d.bias");
    mixer.bias |= has("ssm_in.bias");
    mixer.norm |= has("ssm_norm.weight");
  }
  return mixer;
}

// As Granite and Falcon H1 spell them.
void SetMixer(const Mixer& mixer, Json* config) {
  (*config)["mamba_n_heads"] = mixer.heads;
  (*config)["mamba_d_head"] = mixer.width / mixer.heads;
  (*config)["mamba_n_groups"] = mixer.groups;
  (*config)["mamba_d_state"] = mixer.state_size;
  (*config)["mamba_d_conv"] = mixer.taps;
  (*config)["mamba_conv_bias"] = mixer.conv_bias;
  (*config)["mamba_proj_bias"] = mixer.bias;
}

// How many times the residual stream the mixer is wide.
absl::StatusOr<int64_t> Expansion(const GgufArchKeys& keys,
                                  const GgufSizes& sizes, const Mixer& mixer) {
  if (mixer.width % sizes.hidden == 0) return mixer.width / sizes.hidden;
  return absl::InvalidArgumentError(
      FormattedString("%s is %d, allowed: a multiple of the %d of %s",
                      keys.Name("ssm.inner_size"), mixer.width, sizes.hidden,
                      keys.Name("embedding_length")));
}

// A bool for each layer, or every which layer attends.
absl::Status ReadLayers(const GgufArchKeys& keys, const GgufSizes& sizes,
                        Json* config) {
  constexpr char kRecurrent[] = "attention.recurrent_layers";
  INLAY_ASSIGN_OR_RETURN(
      const auto interval,
      keys.Int("full_attention_interval", 1, kMaxGgufLayers));
  (*config)["full_attention_interval"] = interval.value_or(kDefaultInterval);
  const GgufValue* recurrent = keys.Find(kRecurrent);
  if (recurrent == nullptr) return absl::OkStatus();
  if (!recurrent->is_array || recurrent->type != GgufType::kBool ||
      recurrent->count < static_cast<uint64_t>(sizes.layers)) {
    return absl::InvalidArgumentError(
        FormattedString("%s: %d values, allowed: a bool for each of %d layers",
                        keys.Name(kRecurrent), recurrent->count, sizes.layers));
  }
  Json types = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    types.push_back(recurrent->data[static_cast<size_t>(i)] == std::byte{0}
                        ? "full_attention"
                        : "linear_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufLinear(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  const auto required = [&](const char* key) {
    return keys.Required(key, keys.Int(key, 1, kMaxGgufSize));
  };
  INLAY_ASSIGN_OR_RETURN(const int64_t taps, required("ssm.conv_kernel"));
  INLAY_ASSIGN_OR_RETURN(const int64_t key_dim, required("ssm.state_size"));
  INLAY_ASSIGN_OR_RETURN(const int64_t key_heads, required("ssm.group_count"));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, required("ssm.time_step_rank"));
  INLAY_ASSIGN_OR_RETURN(const int64_t width, required("ssm.inner_size"));
  if (heads % key_heads != 0 || width % heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "%s is %d, allowed: a multiple of the %d key heads that divides the "
        "width %d",
        keys.Name("ssm.time_step_rank"), heads, key_heads, width));
  }
  (*config)["linear_conv_kernel_dim"] = taps;
  (*config)["linear_key_head_dim"] = key_dim;
  (*config)["linear_num_key_heads"] = key_heads;
  (*config)["linear_num_value_heads"] = heads;
  (*config)["linear_value_head_dim"] = width / heads;
  (*config)["attention_bias"] = false;
  if (keys.arch() == "qwen3next") {
    bool is_apart = true;
    for (int64_t i = 0; i < sizes.layers; ++i) {
      is_apart &= files.FindTensor(
                      FormattedString("blk.%d.ssm_in.weight", i)) == nullptr;
    }
    if (is_apart) {
      (*config)["architectures"] = {"Qwen3_5MoeForCausalLM"};
      (*config)["model_type"] = "qwen3_5_moe_text";
    }
  }
  return ReadLayers(keys, sizes, config);
}

absl::Status ReadGgufKimi(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config) {
  constexpr char kTaps[] = "ssm.conv_kernel";
  constexpr char kHeadDim[] = "kda.head_dim";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t taps,
      keys.Required(kTaps, keys.Int(kTaps, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      keys.Required(kHeadDim, keys.Int(kHeadDim, 1, kMaxGgufSize)));
  int64_t heads = sizes.heads;
  Json attends = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const GgufTensor* beta =
        files.FindTensor(FormattedString("blk.%d.ssm_beta.weight", i));
    if (beta != nullptr) heads = beta->info.shape.front();
    // Counted from 1.
    if (sizes.attends.empty() || sizes.attends[static_cast<size_t>(i)]) {
      attends.push_back(i + 1);
    }
  }
  (*config)["linear_attn_config"] = {{"short_conv_kernel_size", taps},
                                     {"head_dim", head_dim},
                                     {"num_heads", heads},
                                     {"full_attn_layers", std::move(attends)}};
  return absl::OkStatus();
}

absl::Status ReadGgufNemotron(const GgufFiles& files, const GgufArchKeys& keys,
                              const GgufSizes& sizes, Json* config) {
  constexpr char kLatent[] = "moe_latent_size";
  INLAY_ASSIGN_OR_RETURN(const auto latent, keys.Int(kLatent, 0, kMaxGgufSize));
  if (latent.value_or(0) > 0) (*config)[kLatent] = *latent;
  const auto required = [&](const char* key) {
    return keys.Required(key, keys.Int(key, 1, kMaxGgufSize));
  };
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, required("ssm.time_step_rank"));
  INLAY_ASSIGN_OR_RETURN(const int64_t width, required("ssm.inner_size"));
  INLAY_ASSIGN_OR_RETURN((*config)["n_groups"], required("ssm.group_count"));
  INLAY_ASSIGN_OR_RETURN((*config)["ssm_state_size"],
                         required("ssm.state_size"));
  INLAY_ASSIGN_OR_RETURN((*config)["conv_kernel"], required("ssm.conv_kernel"));
  (*config)["mamba_num_heads"] = heads;
  (*config)["mamba_head_dim"] = width / heads;
  bool conv_bias = false, attention_bias = false, mlp_bias = false;
  std::string pattern;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const auto find = [&](const char* name) {
      return files.FindTensor(FormattedString("blk.%d.%s", i, name));
    };
    conv_bias |= find("ssm_conv1d.bias") != nullptr;
    attention_bias |= find("attn_q.bias") != nullptr;
    mlp_bias |= find("ffn_up.bias") != nullptr;
    const GgufTensor* up = find("ffn_up.weight");
    if (up != nullptr) {
      (*config)["intermediate_size"] = up->info.shape.front();
    }
    pattern += find("ssm_in.weight") != nullptr         ? 'M'
               : find("attn_q.weight") != nullptr       ? '*'
               : find("ffn_gate_inp.weight") != nullptr ? 'E'
                                                        : '-';
  }
  (*config)["hybrid_override_pattern"] = pattern;
  (*config)["use_conv_bias"] = conv_bias;
  (*config)["attention_bias"] = attention_bias;
  (*config)["mlp_bias"] = mlp_bias;
  return keys.CopyNumber("attention.layer_norm_rms_epsilon",
                         "layer_norm_epsilon", config);
}

absl::Status ReadGgufMamba2(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const Mixer mixer, ReadMixer(files, keys, sizes));
  INLAY_ASSIGN_OR_RETURN((*config)["expand"], Expansion(keys, sizes, mixer));
  (*config)["num_hidden_layers"] = sizes.layers;
  (*config)["hidden_size"] = sizes.hidden;
  (*config)["num_heads"] = mixer.heads;
  (*config)["head_dim"] = mixer.width / mixer.heads;
  (*config)["n_groups"] = mixer.groups;
  (*config)["state_size"] = mixer.state_size;
  (*config)["conv_kernel"] = mixer.taps;
  (*config)["use_conv_bias"] = mixer.conv_bias;
  (*config)["use_bias"] = mixer.bias;
  return keys.CopyNumber("attention.layer_norm_rms_epsilon",
                         "layer_norm_epsilon", config);
}

absl::Status ReadGgufFalconH1(const GgufFiles& files, const GgufArchKeys& keys,
                              const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const Mixer mixer, ReadMixer(files, keys, sizes));
  SetMixer(mixer, config);
  (*config)["mamba_d_ssm"] = mixer.width;
  (*config)["mamba_rms_norm"] = mixer.norm;
  (*config)["mamba_norm_before_gate"] = false;
  (*config)["projectors_bias"] =
      files.FindTensor("blk.0.ssm_out.bias") != nullptr;
  (*config)["attention_bias"] =
      files.FindTensor("blk.0.attn_q.bias") != nullptr;
  (*config)["mlp_bias"] = files.FindTensor("blk.0.ffn_gate.bias") != nullptr;
  return absl::OkStatus();
}

absl::Status ReadGgufGraniteHybrid(const GgufFiles& files,
                                   const GgufArchKeys& keys,
                                   const GgufSizes& sizes, Json* config) {
  Json types = Json::array();
  bool has_mixers = false, has_bias = false;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool attends =
        sizes.attends.empty() || sizes.attends[static_cast<size_t>(i)];
    types.push_back(attends ? "attention" : "mamba");
    has_mixers |= !attends;
    has_bias |=
        files.FindTensor(FormattedString("blk.%d.attn_q.bias", i)) != nullptr;
  }
  (*config)["layer_types"] = std::move(types);
  (*config)["attention_bias"] = has_bias;
  INLAY_ASSIGN_OR_RETURN(const auto rotates,
                         keys.Bool("rope.scaling.finetuned"));
  (*config)["position_embedding_type"] =
      rotates.value_or(true) ? "rope" : "nope";
  INLAY_ASSIGN_OR_RETURN(const auto experts,
                         keys.Int("expert_count", 0, kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(
      const auto shared,
      keys.Int("expert_shared_feed_forward_length", 0, kMaxGgufSize));
  const bool is_dense = experts.value_or(0) == 0;
  // gguf_experts.h says the number where there are some.
  if (is_dense) (*config)["num_local_experts"] = 0;
  (*config)["shared_intermediate_size"] =
      is_dense ? sizes.inner : shared.value_or(0);
  (*config)["shared_mlp_apart"] = true;
  if (!has_mixers) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const Mixer mixer, ReadMixer(files, keys, sizes));
  SetMixer(mixer, config);
  INLAY_ASSIGN_OR_RETURN((*config)["mamba_expand"],
                         Expansion(keys, sizes, mixer));
  return absl::OkStatus();
}

}  // namespace inlay
