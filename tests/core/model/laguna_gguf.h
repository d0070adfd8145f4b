// The keys that llama.cpp's converter (conversion/laguna.py) writes of Laguna
// alone, for written_gguf.h.
#ifndef INLAY_TESTS_CORE_MODEL_LAGUNA_GGUF_H_
#define INLAY_TESTS_CORE_MODEL_LAGUNA_GGUF_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/formats/gguf_writer.h"
#include "core/json/json.h"

namespace inlay {

// The converter leaves out the pattern of windows.
inline void SetLagunaKeys(const Json& config, GgufWriter* writer,
                          std::vector<absl::Status>* all) {
  const std::vector<int32_t> heads = config["num_attention_heads_per_layer"];
  const Json& types = config["mlp_layer_types"];
  const std::byte yes{1};
  all->push_back(writer->SetI32s("laguna.attention.head_count", heads));
  all->push_back(writer->SetU32(
      "laguna.leading_dense_block_count",
      static_cast<uint32_t>(std::count(types.begin(), types.end(), "dense"))));
  all->push_back(
      writer->SetF32("laguna.expert_weights_scale",
                     config["moe_routed_scaling_factor"].get<float>()));
  all->push_back(writer->Set("laguna.expert_weights_norm",
                             {GgufType::kBool, false, 1, {&yes, 1}}));
  all->push_back(writer->SetU32("laguna.expert_gating_func", 2));
  all->push_back(writer->SetU32("laguna.rope.dimension_count_swa",
                                config["head_dim"].get<uint32_t>()));
  all->push_back(
      writer->SetF32("laguna.rope.scaling.yarn_beta_fast",
                     config["rope_scaling"]["beta_fast"].get<float>()));
}

// config.json with full layers' rope where that of all layers is.
inline void SpreadRopes(Json* config) {
  const Json ropes = (*config)["rope_parameters"];
  const Json& full = ropes["full_attention"];
  config->erase("rope_parameters");
  (*config)["rope_scaling"] = full;
  (*config)["rope_theta"] = full["rope_theta"];
  (*config)["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"];
  if (full.contains("partial_rotary_factor")) {
    (*config)["partial_rotary_factor"] = full["partial_rotary_factor"];
  }
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_LAGUNA_GGUF_H_
