// Tables of gguf_arch.cc: tensors of families that are Llama under names of
// their own, or with other MLPs.
// Source: llama.cpp's converter (conversion/internlm.py, deepseek.py,
// qwen.py).
#ifndef INLAY_CORE_FORMATS_GGUF_LLAMA_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_LLAMA_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

// q, k and v as core/formats/head_source.h presents them.
inline constexpr GgufName kInternLm2[] = {
    {"token_embd", "model.tok_embeddings"},
    {"output_norm", "model.norm"},
    {"output", "output"},
    {"blk.#.attn_norm", "model.layers.#.attention_norm"},
    {"blk.#.attn_q", "model.layers.#.attention.q_proj", GgufLayout::kQueryRows},
    {"blk.#.attn_k", "model.layers.#.attention.k_proj", GgufLayout::kKeyRows},
    {"blk.#.attn_v", "model.layers.#.attention.v_proj"},
    {"blk.#.attn_output", "model.layers.#.attention.wo"},
    {"blk.#.ffn_norm", "model.layers.#.ffn_norm"},
    {"blk.#.ffn_gate", "model.layers.#.feed_forward.w1"},
    {"blk.#.ffn_up", "model.layers.#.feed_forward.w3"},
    {"blk.#.ffn_down", "model.layers.#.feed_forward.w2"},
};

// The gate of Qwen 1's MLP is its second matrix.
inline constexpr GgufName kQwen1[] = {
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn"},
    {"blk.#.attn_output", "transformer.h.#.attn.c_proj"},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_gate", "transformer.h.#.mlp.w2"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.w1"},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj"},
};

// q, k and v, and gate and up, as core/formats/head_source.h presents them.
inline constexpr GgufName kOpenElm[] = {
    {"token_embd", "transformer.token_embeddings"},
    {"output_norm", "transformer.norm"},
    {"output", "transformer.classifier"},
    {"blk.#.attn_norm", "transformer.layers.#.attn_norm"},
    {"blk.#.attn_qkv", "transformer.layers.#.attn.qkv_proj"},
    {"blk.#.attn_q_norm", "transformer.layers.#.attn.q_norm"},
    {"blk.#.attn_k_norm", "transformer.layers.#.attn.k_norm"},
    {"blk.#.attn_output", "transformer.layers.#.attn.out_proj"},
    {"blk.#.ffn_norm", "transformer.layers.#.ffn_norm"},
    {"blk.#.ffn_gate", "transformer.layers.#.ffn.gate_proj"},
    {"blk.#.ffn_up", "transformer.layers.#.ffn.up_proj"},
    {"blk.#.ffn_down", "transformer.layers.#.ffn.proj_2"},
};

// Keys and values of the latent stay one matrix.
inline constexpr GgufName kPlm[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_kv_a_mqa", "model.layers.#.self_attn.kv_a_proj_with_mqa"},
    {"blk.#.attn_kv_a_norm", "model.layers.#.self_attn.kv_a_layernorm"},
    {"blk.#.attn_kv_b", "model.layers.#.self_attn.kv_b_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

// Files of Granite SWA have experts' gates and what these gate in one tensor or
// apart, as is written, and those of the shared one in one.
inline constexpr GgufName kGraniteSwa[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", GgufLayout::kQueryRows},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", GgufLayout::kKeyRows},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.attn_sinks", "model.layers.#.self_attn.sinks",
     GgufLayout::kBareName},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.router"},
    {"blk.#.ffn_gate_up_exps",
     "model.layers.#.block_sparse_moe.experts.gate_up_proj",
     GgufLayout::kBareName},
    {"blk.#.ffn_gate_exps",
     "model.layers.#.block_sparse_moe.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.up_proj"},
    {"blk.#.ffn_down_exps",
     "model.layers.#.block_sparse_moe.experts.down_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.shared_mlp.input_linear"},
    {"blk.#.ffn_down_shexp", "model.layers.#.shared_mlp.output_linear"},
};

inline constexpr GgufName kDeepseek[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", GgufLayout::kQueryRows},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", GgufLayout::kKeyRows},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_experts.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_experts.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_experts.down_proj"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_LLAMA_NAMES_H_
