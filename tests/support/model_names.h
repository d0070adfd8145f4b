// The decoders of tests/data/models by name, once, for the tests of all
// families. families_test holds these lists against the folder: a model that is
// in none of them, or in one too few, fails there.
#ifndef INLAY_TESTS_SUPPORT_MODEL_NAMES_H_
#define INLAY_TESTS_SUPPORT_MODEL_NAMES_H_

namespace inlay {

// All that have outputs of the reference beside them.
inline constexpr const char* kDecoderNames[] = {"llama2",
                                                "llama3",
                                                "llama_tied_bias",
                                                "llama_rope_linear",
                                                "llama_bf16",
                                                "mistral",
                                                "qwen2",
                                                "qwen2_yarn",
                                                "qwen3",
                                                "gemma",
                                                "gemma2",
                                                "gemma3_text",
                                                "gemma4_text",
                                                "gemma4_moe_text",
                                                "phi3",
                                                "phi3_longrope",
                                                "gpt2",
                                                "mixtral",
                                                "qwen2_moe",
                                                "qwen3_moe",
                                                "gpt_oss",
                                                "glm4_moe",
                                                "olmo2",
                                                "olmo3",
                                                "granite",
                                                "starcoder2",
                                                "glm4",
                                                "smollm3",
                                                "exaone4",
                                                "cohere2",
                                                "opt",
                                                "gpt_neox",
                                                "minimax",
                                                "minimax_m2",
                                                "llama4_text",
                                                "deepseek_v2",
                                                "deepseek_v2_lite",
                                                "deepseek_v3",
                                                "deepseek_v32",
                                                "deepseek_v4",
                                                "deepseek_v4_rates",
                                                "glm_moe_dsa",
                                                "lfm2",
                                                "mamba2",
                                                "qwen3_next",
                                                "qwen3_5_text",
                                                "qwen3_5_moe_text",
                                                "falcon_h1",
                                                "granitemoehybrid",
                                                "nemotron_h",
                                                "kimi_linear",
                                                "linear_attn",
                                                "linear_attn_relu",
                                                "glm4_moe_lite",
                                                "minicpm3",
                                                "lfm2_moe",
                                                "olmoe",
                                                "seed_oss",
                                                "ernie4_5",
                                                "ernie4_5_moe",
                                                "granitemoe",
                                                "ministral3",
                                                "mistral4",
                                                "cohere",
                                                "dots1",
                                                "exaone_moe"};

// Those with layers that keep a state.
inline constexpr const char* kRecurrentNames[] = {"lfm2",
                                                  "mamba2",
                                                  "qwen3_next",
                                                  "qwen3_5_text",
                                                  "qwen3_5_moe_text",
                                                  "falcon_h1",
                                                  "granitemoehybrid",
                                                  "nemotron_h",
                                                  "minimax",
                                                  "kimi_linear",
                                                  "linear_attn",
                                                  "linear_attn_relu",
                                                  "lfm2_moe"};

// Those with experts.
inline constexpr const char* kMixtureNames[] = {
    "mixtral",      "qwen2_moe",         "qwen3_moe",        "gpt_oss",
    "glm4_moe",     "minimax",           "minimax_m2",       "llama4_text",
    "deepseek_v2",  "deepseek_v2_lite",  "deepseek_v3",      "deepseek_v32",
    "deepseek_v4",  "deepseek_v4_rates", "glm_moe_dsa",      "gemma4_moe_text",
    "qwen3_next",   "qwen3_5_moe_text",  "granitemoehybrid", "nemotron_h",
    "kimi_linear",  "glm4_moe_lite",     "lfm2_moe",         "olmoe",
    "ernie4_5_moe", "granitemoe",        "mistral4",         "dots1",
    "exaone_moe"};

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_MODEL_NAMES_H_
