// Names of tensors of MiniMax-01 and M3 in GGUF files (gguf_arch.h). M3's norms
// have the 1 added that the network adds. Source: llama.cpp's converter
// (tensor_mapping.py, conversion/minimax.py).
#ifndef INLAY_CORE_FORMATS_GGUF_MINIMAX_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_MINIMAX_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

// Lightning attention's output has the name of attention's.
inline constexpr GgufName kMiniMax01[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
    {"blk.#.attn_gate", "model.layers.#.self_attn.output_gate"},
    {"blk.#.attn_norm_2", "model.layers.#.self_attn.norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.out_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.w1"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.w3"},
    {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.w2"},
};

inline constexpr GgufName kMiniMaxM3[] = {
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
    {"blk.#.indexer.q_proj", "model.layers.#.self_attn.index_q_proj"},
    {"blk.#.indexer.k_proj", "model.layers.#.self_attn.index_k_proj"},
    {"blk.#.indexer.q_norm", "model.layers.#.self_attn.index_q_norm",
     GgufLayout::kPlusOne},
    {"blk.#.indexer.k_norm", "model.layers.#.self_attn.index_k_norm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm",
     GgufLayout::kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate"},
    {"blk.#.exp_probs_b.bias",
     "model.layers.#.block_sparse_moe.e_score_correction_bias",
     GgufLayout::kWhole},
    {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.w1"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.w3"},
    {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.w2"},
    {"blk.#.ffn_gate_shexp",
     "model.layers.#.block_sparse_moe.shared_experts.gate_proj"},
    {"blk.#.ffn_up_shexp",
     "model.layers.#.block_sparse_moe.shared_experts.up_proj"},
    {"blk.#.ffn_down_shexp",
     "model.layers.#.block_sparse_moe.shared_experts.down_proj"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_MINIMAX_NAMES_H_
