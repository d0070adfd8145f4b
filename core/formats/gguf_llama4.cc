#include "core/formats/gguf_llama4.h"

#include <cstddef>
#include <vector>

#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kExpertsWithoutNorms = 128;

bool IsList(const Json* value) { return value != nullptr && value->is_array(); }

absl::Status CheckLists(const GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t step,
                         keys.Size("interleave_moe_layer_step", 1));
  const Json* ropes = JsonFind(keys.config(), "no_rope_layers");
  bool is_usual = true;
  for (size_t i = 0; IsList(ropes) && i < ropes->size(); ++i) {
    is_usual &= (*ropes)[i] == ((i + 1) % 4 != 0 ? 1 : 0);
  }
  const Json* types = JsonFind(keys.config(), "layer_types");
  for (size_t i = 0; IsList(types) && i < types->size(); ++i) {
    is_usual &= ((*types)[i] == "chunked_attention") == ((i + 1) % 4 != 0);
  }
  const Json* sparse = JsonFind(keys.config(), "moe_layers");
  if (IsList(sparse)) {
    INLAY_ASSIGN_OR_RETURN(const int64_t layers,
                           keys.Size("num_hidden_layers"));
    is_usual &= static_cast<int64_t>(sparse->size()) == layers / step;
  }
  for (size_t i = 0; IsList(sparse) && i < sparse->size(); ++i) {
    is_usual &= (*sparse)[i] == (static_cast<int64_t>(i) + 1) * step - 1;
  }
  if (is_usual) return absl::OkStatus();
  return absl::UnimplementedError(
      "config.json: no_rope_layers, layer_types or moe_layers are not at "
      "equal distances, which a GGUF file of \"llama4\" cannot say");
}

}  // namespace

absl::Status ReadGgufLlama4(const GgufArchKeys& keys, const GgufSizes& sizes,
                            Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto window,
                         keys.Int("attention.sliding_window", 0, kMaxGgufSize));
  if (window.has_value() && *window == 0) {
    (*config)["attention_chunk_size"] = Json();
    (*config)["no_rope_layers"] =
        std::vector<int>(static_cast<size_t>(sizes.layers), 1);
  }
  INLAY_ASSIGN_OR_RETURN(const auto experts,
                         keys.Int("expert_count", 0, kMaxGgufSize));
  (*config)["use_qk_norm"] = experts != kExpertsWithoutNorms;
  constexpr char kStep[] = "interleave_moe_layer_step";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t step,
      keys.Required(kStep, keys.Int(kStep, 1, kMaxGgufLayers)));
  (*config)["interleave_moe_layer_step"] = step;
  (*config)["intermediate_size_mlp"] = sizes.inner;
  return absl::OkStatus();
}

absl::Status SetGgufLlama4(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("attn_temperature_tuning", true));
  INLAY_RETURN_IF_ERROR(keys.Expect("attn_scale", 0.1));
  INLAY_RETURN_IF_ERROR(keys.Expect("floor_scale", 8192));
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_chunk_size", 8192));
  INLAY_RETURN_IF_ERROR(keys.Expect("no_rope_layer_interval", 4));
  INLAY_RETURN_IF_ERROR(CheckLists(keys));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t experts,
      keys.Size(keys.AnyOf({"num_experts", "num_local_experts"})));
  INLAY_RETURN_IF_ERROR(
      keys.Expect("use_qk_norm", experts != kExpertsWithoutNorms));
  if (!keys.Has("use_qk_norm") && experts == kExpertsWithoutNorms) {
    return keys.Size("use_qk_norm").status();
  }
  if (keys.IsNull("attention_chunk_size")) {
    return absl::UnimplementedError(
        "config.json: attention_chunk_size is null, which a GGUF file of "
        "\"llama4\" cannot say");
  }
  return keys
      .CopySize("interleave_moe_layer_step", "interleave_moe_layer_step", 1)
      .status();
}

}  // namespace inlay
