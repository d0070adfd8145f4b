#include "core/formats/gguf_selective.h"

#include <algorithm>
#include <string>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What llama.cpp wants of families without a length.
constexpr int64_t kAnyContext = 1 << 20;
constexpr double kFalconEpsilon = 1e-6;

struct MixerNames {
  const char* state;
  const char* taps;
  const char* rank;
  const char* conv_bias;
  const char* bias;
};
constexpr MixerNames kMambaNames = {
    "state_size", "conv_kernel", "time_step_rank", "use_conv_bias", "use_bias"};
constexpr MixerNames kJambaNames = {"mamba_d_state", "mamba_d_conv",
                                    "mamba_dt_rank", "mamba_conv_bias",
                                    "mamba_proj_bias"};

bool HasTensor(const GgufFiles& files, int64_t layer, const char* name) {
  return files.FindTensor(FormattedString("blk.%d.%s", layer, name)) != nullptr;
}

absl::Status ReadMixer(const GgufFiles& files, const GgufArchKeys& keys,
                       const GgufSizes& sizes, const MixerNames& names,
                       Json* config) {
  for (const auto& [key, to] : {std::pair{"ssm.state_size", names.state},
                                {"ssm.conv_kernel", names.taps},
                                {"ssm.time_step_rank", names.rank}}) {
    INLAY_ASSIGN_OR_RETURN((*config)[to],
                           keys.Required(key, keys.Int(key, 1, kMaxGgufSize)));
  }
  bool conv_bias = false, bias = false;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    conv_bias |= HasTensor(files, i, "ssm_conv1d.bias");
    bias |= HasTensor(files, i, "ssm_in.bias");
  }
  (*config)[names.conv_bias] = conv_bias;
  (*config)[names.bias] = bias;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MixerWidth(const GgufArchKeys& keys) {
  constexpr char kWidth[] = "ssm.inner_size";
  return keys.Required(kWidth, keys.Int(kWidth, 1, kMaxGgufSize));
}

// Which layers are of a kind, as Jamba's config.json says it: one in so many,
// from one on.
absl::Status SetEvery(const std::vector<bool>& layers, const std::string& kind,
                      Json* config) {
  const auto count = std::ssize(layers);
  const auto next = [&](int64_t from) -> int64_t {
    return std::find(layers.begin() + from, layers.end(), true) -
           layers.begin();
  };
  const int64_t first = next(0);
  // Of one layer, or of none.
  const int64_t second = first < count ? next(first + 1) : count;
  const int64_t period = second < count ? second - first : count + 1;
  for (int64_t i = 0; i < count; ++i) {
    if (layers[static_cast<size_t>(i)] == (i % period == first)) continue;
    return absl::UnimplementedError(FormattedString(
        "layer %d: the layers of kind \"%s\" are not every %d-th from layer %d "
        "on",
        i, kind, period, first));
  }
  (*config)[kind + "_layer_period"] = period;
  (*config)[kind + "_layer_offset"] = first;
  return absl::OkStatus();
}

absl::Status SetMixer(const MixerNames& names, int64_t hidden,
                      GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(names.state, "ssm.state_size", 16).status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(names.taps, "ssm.conv_kernel", 4).status());
  const Json* rank = JsonFind(keys.config(), names.rank);
  if (rank == nullptr || *rank == "auto") {
    return keys.SetU32("ssm.time_step_rank", (hidden + 15) / 16);
  }
  return keys.CopySize(names.rank, "ssm.time_step_rank").status();
}

}  // namespace

absl::Status ReadGgufMamba(const GgufFiles& files, const GgufArchKeys& keys,
                           const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto normalises, keys.Bool("ssm.dt_b_c_rms"));
  if (normalises.value_or(false)) {
    (*config)["architectures"] = {"FalconMambaForCausalLM"};
    (*config)["model_type"] = "falcon_mamba";
    (*config)["mixer_rms_eps"] = kFalconEpsilon;
  }
  (*config)["num_hidden_layers"] = sizes.layers;
  (*config)["hidden_size"] = sizes.hidden;
  INLAY_ASSIGN_OR_RETURN((*config)["intermediate_size"], MixerWidth(keys));
  INLAY_RETURN_IF_ERROR(ReadMixer(files, keys, sizes, kMambaNames, config));
  return keys.CopyNumber("attention.layer_norm_rms_epsilon",
                         "layer_norm_epsilon", config);
}

absl::Status ReadGgufJamba(const GgufFiles& files, const GgufArchKeys& keys,
                           const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t width, MixerWidth(keys));
  if (width % sizes.hidden != 0) {
    return absl::InvalidArgumentError(
        FormattedString("%s is %d, allowed: a multiple of the %d of %s",
                        keys.Name("ssm.inner_size"), width, sizes.hidden,
                        keys.Name("embedding_length")));
  }
  (*config)["mamba_expand"] = width / sizes.hidden;
  INLAY_RETURN_IF_ERROR(ReadMixer(files, keys, sizes, kJambaNames, config));
  std::vector<bool> attends, mixes;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    attends.push_back(sizes.attends.empty() ||
                      sizes.attends[static_cast<size_t>(i)]);
    mixes.push_back(HasTensor(files, i, "ffn_gate_inp.weight"));
  }
  constexpr char kExperts[] = "expert_count";
  INLAY_ASSIGN_OR_RETURN(const auto experts,
                         keys.Int(kExperts, 0, kMaxGgufSize));
  (*config)["num_experts"] = std::max<int64_t>(experts.value_or(1), 1);
  INLAY_RETURN_IF_ERROR(SetEvery(attends, "attn", config));
  return SetEvery(mixes, "expert", config);
}

absl::Status SetGgufMamba(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.CheckActivation("hidden_act", {"silu", "swish"}));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_hidden_layers", "block_count").status());
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                         keys.CopySize("hidden_size", "embedding_length"));
  INLAY_RETURN_IF_ERROR(keys.SetU32("context_length", kAnyContext));
  INLAY_RETURN_IF_ERROR(keys.SetU32("feed_forward_length", 0));
  INLAY_RETURN_IF_ERROR(keys.SetU32("attention.head_count", 0));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(
      "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5));
  INLAY_ASSIGN_OR_RETURN(const int64_t expand, keys.Size("expand", 2));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("intermediate_size", "ssm.inner_size", expand * hidden)
          .status());
  const bool normalises = keys.model_type() == "falcon_mamba";
  if (normalises) {
    INLAY_RETURN_IF_ERROR(keys.Expect("mixer_rms_eps", kFalconEpsilon));
  }
  INLAY_RETURN_IF_ERROR(keys.SetBool("ssm.dt_b_c_rms", normalises));
  return SetMixer(kMambaNames, hidden, keys);
}

absl::Status SetGgufJamba(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden, keys.Size("hidden_size"));
  INLAY_ASSIGN_OR_RETURN(const int64_t expand, keys.Size("mamba_expand", 2));
  INLAY_RETURN_IF_ERROR(keys.SetU32("ssm.inner_size", expand * hidden));
  return SetMixer(kJambaNames, hidden, keys);
}

absl::StatusOr<std::vector<bool>> JambaAttendingLayers(
    const GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(const int64_t period,
                         keys.Size("attn_layer_period", 8));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t offset,
      JsonInt(keys.config(), "attn_layer_offset", 4, 0, kMaxGgufLayers));
  std::vector<bool> attends;
  for (int64_t i = 0; i < layers; ++i) attends.push_back(i % period == offset);
  return attends;
}

}  // namespace inlay
