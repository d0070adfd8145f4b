// The tables of gguf_arch.cc for Gemmas and Muse Glimmer; gguf_names.h has the
// others. Source:
// llama.cpp's converter (tensor_mapping.py, conversion/gemma.py).
#ifndef INLAY_CORE_FORMATS_GGUF_GEMMA_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_GEMMA_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

inline constexpr GgufName kGemma[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", GgufLayout::kPlusOne},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm", GgufLayout::kPlusOne},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

// Gemma 2 has no norms on q and k, and no file with them.
inline constexpr GgufName kGemma2And3[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", GgufLayout::kPlusOne},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm", GgufLayout::kPlusOne},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm",
     GgufLayout::kPlusOne},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm",
     GgufLayout::kPlusOne},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm",
     GgufLayout::kPlusOne},
};

// Its last norm is as it is; those of q and k are of files alone.
inline constexpr GgufName kMuseGlimmer[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm", GgufLayout::kPlusOne},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", GgufLayout::kQueryRows},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", GgufLayout::kKeyRows},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_gate", "model.layers.#.self_attn.gate_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm",
     GgufLayout::kPlusOne},
};

// Norms as they are, unlike Gemma 3's. Some layers have no values, or neither
// keys nor values.
inline constexpr GgufName kGemma3n[] = {
    {"token_embd", "model.embed_tokens"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"},
    // Inputs per layer.
    {"blk.#.inp_gate", "model.layers.#.per_layer_input_gate"},
    {"blk.#.proj", "model.layers.#.per_layer_projection"},
    {"blk.#.post_norm", "model.layers.#.post_per_layer_input_norm"},
    // Several residual streams; what stands beside attention.
    {"altup_proj", "model.altup_projections"},
    {"altup_unembd_proj", "model.altup_unembed_projections"},
    {"blk.#.altup_router", "model.layers.#.altup.modality_router"},
    {"blk.#.altup_router_norm", "model.layers.#.altup.router_norm"},
    {"blk.#.altup_predict_coef", "model.layers.#.altup.prediction_coefs"},
    {"blk.#.altup_correct_coef", "model.layers.#.altup.correction_coefs"},
    {"blk.#.altup_correct_scale", "model.layers.#.altup.correct_output_scale",
     GgufLayout::kBareName},
    {"blk.#.laurel_l", "model.layers.#.laurel.linear_left"},
    {"blk.#.laurel_r", "model.layers.#.laurel.linear_right"},
    {"blk.#.laurel_post_norm", "model.layers.#.laurel.post_laurel_norm"},
};

inline constexpr GgufName kGemma4[] = {
    {"token_embd", "model.embed_tokens"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"},
    {"blk.#.layer_output_scale", "model.layers.#.layer_scalar",
     GgufLayout::kBareName},
    // Inputs per layer.
    {"blk.#.inp_gate", "model.layers.#.per_layer_input_gate"},
    {"blk.#.proj", "model.layers.#.per_layer_projection"},
    {"blk.#.post_norm", "model.layers.#.post_per_layer_input_norm"},
    // Experts beside the MLP.
    {"blk.#.pre_ffw_norm_2", "model.layers.#.pre_feedforward_layernorm_2"},
    {"blk.#.post_ffw_norm_1", "model.layers.#.post_feedforward_layernorm_1"},
    {"blk.#.post_ffw_norm_2", "model.layers.#.post_feedforward_layernorm_2"},
    {"blk.#.ffn_gate_inp", "model.layers.#.router.proj"},
    {"blk.#.ffn_gate_inp.scale", "model.layers.#.router.scale",
     GgufLayout::kWhole},
    {"blk.#.ffn_down_exps.scale", "model.layers.#.router.per_expert_scale",
     GgufLayout::kWhole},
    {"blk.#.ffn_gate_exps", "model.layers.#.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.experts.up_proj"},
    {"blk.#.ffn_gate_up_exps", "model.layers.#.experts.gate_up_proj",
     GgufLayout::kBareName},
    {"blk.#.ffn_down_exps", "model.layers.#.experts.down_proj"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_GEMMA_NAMES_H_
