#include "core/formats/gguf_family_defaults.h"

namespace inlay {
namespace {

constexpr GgufFamilyDefaults kFamilyDefaults[] = {
    {"gemma", 256},
    {"gemma2", 256},
    {"gemma3_text", 256, 1e6},
    {"gemma3n_text", 256, 1e6},
    {"qwen3", 128},
    {"glm4", 128, 1e4, 0.5, 1.5625e-7},
    {"smollm3", 0, 2e6},
    {"phi3", 0, 1e4, 1.0, 1e-5},
    {"olmo2", 0, 1e4, 1.0, 1e-5},
    {"olmo3", 0, 1e4, 1.0, 1e-5},
    {"exaone4", 0, 1e4, 1.0, 1e-5},
    {"exaone_moe", 0, 1e4, 1.0, 1e-5},
    {"starcoder2", 0, 1e4, 1.0, 1e-5},
    {"cohere2", 0, 1e4, 1.0, 1e-5},
    {"cohere2_moe", 128, 1e4, 1.0, 1e-5},
    {"mimo_v2_flash", 192, 5e6, 0.334, 1e-5},
    {"mellum", 128, 5e5},
    {"laguna", 128, 5e5},
    {"step3p5", 128, 1e4, 1.0, 1e-5},
    {"hy_v3", 128, 11158840.0, 1.0, 1e-5},
    {"solar_open", 128, 1e6, 1.0, 1e-5},
    {"sarvam_moe", 64, 8e6},
    {"bailing_moe"},
    {"bailing_moe_v2", 64, 8e6},
    {"iquestcoder", 128, 1e4, 1.0, 1e-5},
    {"mixtral", 0, 1e6, 1.0, 1e-5},
    {"qwen", 128},
    {"internlm3", 128, 1e4, 1.0, 1e-5},
    {"orion", 0, 1e4, 1.0, 1e-5},
    {"gpt_oss", 64, 150000.0, 1.0, 1e-5},
    {"glm4_moe", 128, 1e4, 0.5, 1e-5},
    {"minimax_m2", 128, 5e6},
    {"llama4_text", 128, 5e5, 1.0, 1e-5},
    {"qwen3_next", 256, 1e4, 0.25},
    {"qwen3_5_text", 256, 1e4, 0.25},
    {"qwen3_5_moe_text", 256, 1e4, 0.25},
    {"lfm2", 0, 1e6, 1.0, 1e-5},
    {"falcon_h1", 0, 1e4, 1.0, 1e-5},
    {"nemotron_h", 128, 1e4, 1.0, 1e-5},
    {"kimi_linear", 0, 1e4, 1.0, 1e-5},
    {"glm_moe_dsa", 0, 1e4, 1.0, 1e-5},
    {"gpt_neox", 0, 1e4, 0.25, 1e-5},
    {"glm4_moe_lite", 0, 1e4, 1.0, 1e-5},
    {"minicpm3", 0, 1e4, 1.0, 1e-5},
    {"ministral3", 128, 1e6, 1.0, 1e-5},
    {"cohere", 0, 5e5, 1.0, 1e-5},
    {"lfm2_moe", 0, 1e6, 1.0, 1e-5},
    {"olmoe", 0, 1e4, 1.0, 1e-5},
    {"seed_oss", 128},
    {"ernie4_5", 128, 5e5, 1.0, 1e-5},
    {"ernie4_5_moe", 0, 5e5, 1.0, 1e-5},
    {"arcee", 0, 1e4, 1.0, 1e-5},
    {"phi", 0, 1e4, 0.5, 1e-5},
    {"nemotron", 0, 1e4, 0.5, 1e-5},
    {"olmo", 0, 1e4, 1.0, 1e-5},
    {"stablelm", 0, 1e4, 0.25, 1e-5},
    {"hunyuan_v1_dense", 0, 1e4, 1.0, 1e-5},
    {"hunyuan_v1_moe", 0, 1e4, 1.0, 1e-5},
    {"exaone", 0, 5e5, 1.0, 1e-5},
    {"jais2", 0, 1e4, 1.0, 1e-5},
    {"apertus", 0, 1.2e7, 1.0, 1e-5},
    {"phimoe", 0, 1e6, 1.0, 1e-5},
    {"glm", 128, 1e4, 0.5, 1.5625e-7},
    {"granite_swa", 0, 1e4, 1.0, 1e-5},
    {"deepseek_v4", 512, 1e4, 0.125},
    {"minimax", 0, 1e6, 1.0, 1e-5},
    {"minimax_m3_vl_text", 128, 5e6},
    {"openelm", 128},
    {"arctic", 0, 1e6, 1.0, 1e-5},
    {"plm", 0, 1e5},
    {"smallthinker", 128, 1e6},
    {"afmoe", 128, 1e4, 1.0, 1e-5},
    {"muse_glimmer_text", 128, 1e4, 1.0, 1e-5},
};

}  // namespace

GgufFamilyDefaults GgufDefaultsOf(std::string_view model_type) {
  for (const GgufFamilyDefaults& row : kFamilyDefaults) {
    if (row.model_type == model_type) return row;
  }
  return {model_type};
}

}  // namespace inlay
