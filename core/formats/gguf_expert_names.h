// The tables of gguf_arch.cc for mixtures that came late: what GGUF files call
// their tensors. Source: llama.cpp's converter (tensor_mapping.py,
// conversion/*.py).
#ifndef INLAY_CORE_FORMATS_GGUF_EXPERT_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_EXPERT_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

inline constexpr GgufName kLaguna[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_gate", "model.layers.#.self_attn.g_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.gate"},
    {"blk.#.exp_probs_b.bias",
     "model.layers.#.mlp.experts.e_score_correction_bias", GgufLayout::kWhole},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_expert.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_expert.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_expert.down_proj"},
};

// Of Step 3.5; norms have their 1.
inline constexpr GgufName kStep35[] = {
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
    {"blk.#.attn_gate", "model.layers.#.self_attn.g_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.moe.gate"},
    {"blk.#.exp_probs_b.bias", "model.layers.#.moe.router_bias",
     GgufLayout::kWhole},
    {"blk.#.ffn_gate_exps", "model.layers.#.moe.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.moe.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.moe.experts.down_proj"},
    {"blk.#.ffn_gate_shexp", "model.layers.#.share_expert.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.share_expert.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.share_expert.down_proj"},
};

inline constexpr GgufName kSmallThinker[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.primary_router"},
    {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.gate"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.up"},
    {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.down"},
};

// Experts of groups are "chunk" ones.
inline constexpr GgufName kGroveMoe[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_chexps", "model.layers.#.mlp.chunk_experts.gate_proj"},
    {"blk.#.ffn_up_chexps", "model.layers.#.mlp.chunk_experts.up_proj"},
    {"blk.#.ffn_down_chexps", "model.layers.#.mlp.chunk_experts.down_proj"},
};

// The MLP beside the experts has the usual names.
inline constexpr GgufName kArctic[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", GgufLayout::kQueryRows},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", GgufLayout::kKeyRows},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.residual_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.residual_mlp.w1"},
    {"blk.#.ffn_up", "model.layers.#.residual_mlp.w3"},
    {"blk.#.ffn_down", "model.layers.#.residual_mlp.w2"},
    {"blk.#.ffn_norm_exps", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.w1"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.w3"},
    {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.w2"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_EXPERT_NAMES_H_
