// What config.json's keys make of families with experts, latent attention or
// recurrent layers, as transformers 5 and the published code have it; found by
// tests/reference.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/decoder_spec.h"
#include "core/model/load_model.h"

namespace inlay {
namespace {

Json MixedConfig(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"vocab_size", 40},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"moe_intermediate_size", 24},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"max_position_embeddings", 64}};
}

absl::StatusOr<DecoderSpec> MixedSpec(const Json& config) {
  static Device* const device = CreateCpuDevice(1, 0)->release();
  ModelFiles files;
  files.config = config;
  files.random = RandomWeights{};
  return DescribeDecoder(files, *device);
}

template <typename Part>
const Part& PartOf(const DecoderSpec& spec, size_t layer, size_t block = 0) {
  return std::get<Part>(spec.layers[layer].blocks[block].part);
}

// Heads of 8, 64 wide together.
Json MambaConfig(const std::string& architecture, int groups) {
  Json config = MixedConfig(architecture);
  for (const char* key : {"num_heads", "mamba_n_heads", "mamba_num_heads",
                          "mamba_d_head", "mamba_head_dim"}) {
    config[key] = 8;
  }
  if (architecture == "Mamba2ForCausalLM") config["head_dim"] = 8;
  config["mamba_d_ssm"] = 64;
  config["mamba_n_groups"] = config["n_groups"] = groups;
  config["hybrid_override_pattern"] = "ME*-";
  return config;
}

// Mamba-Codestral has 8 groups.
TEST(ConfigMixed, GatedNormsAreOfGroups) {
  for (const char* name :
       {"Mamba2ForCausalLM", "GraniteMoeHybridForCausalLM"}) {
    for (const int groups : {1, 4}) {
      const auto spec = MixedSpec(MambaConfig(name, groups));
      ASSERT_TRUE(spec.ok()) << name << ": " << spec.status();
      EXPECT_EQ(PartOf<MambaSpec>(*spec, 0).norm_groups, groups) << name;
    }
  }
}

}  // namespace
}  // namespace inlay
