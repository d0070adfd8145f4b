// The tables of gguf_arch.cc for the plain decoders that came before Llama's
// names, and for what gguf_names.h has no room for. Source: llama.cpp's
// converter (tensor_mapping.py, conversion/*.py).
#ifndef INLAY_CORE_FORMATS_GGUF_GPT_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_GPT_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

inline constexpr GgufName kGpt2[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn", GgufLayout::kTransposed},
    {"blk.#.attn_output", "transformer.h.#.attn.c_proj",
     GgufLayout::kTransposed},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc", GgufLayout::kTransposed},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj", GgufLayout::kTransposed},
};

// q, k and v one after another (gguf_parts.h takes them apart), where the
// published tensor has them head by head; so have Falcon and BLOOM.
inline constexpr GgufName kGptNeox[] = {
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
    {"blk.#.attn_norm", "gpt_neox.layers.#.input_layernorm"},
    {"blk.#.attn_qkv", "gpt_neox.layers.#.attention.qkv_proj"},
    {"blk.#.attn_output", "gpt_neox.layers.#.attention.dense"},
    {"blk.#.ffn_norm", "gpt_neox.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "gpt_neox.layers.#.mlp.dense_h_to_4h"},
    {"blk.#.ffn_down", "gpt_neox.layers.#.mlp.dense_4h_to_h"},
};

// Layers with two norms: that of the MLP is attn_norm (gguf_parts.h gives it
// its name back).
inline constexpr GgufName kFalcon[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.input_layernorm"},
    {"blk.#.attn_norm", "transformer.h.#.ln_mlp"},
    {"blk.#.attn_norm_2", "transformer.h.#.ln_attn"},
    {"blk.#.attn_qkv", "transformer.h.#.self_attention.query_key_value"},
    {"blk.#.attn_output", "transformer.h.#.self_attention.dense"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.dense_h_to_4h"},
    {"blk.#.ffn_down", "transformer.h.#.mlp.dense_4h_to_h"},
};

inline constexpr GgufName kBloom[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.input_layernorm"},
    {"blk.#.attn_qkv", "transformer.h.#.self_attention.query_key_value"},
    {"blk.#.attn_output", "transformer.h.#.self_attention.dense"},
    {"blk.#.ffn_norm", "transformer.h.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.dense_h_to_4h"},
    {"blk.#.ffn_down", "transformer.h.#.mlp.dense_4h_to_h"},
};

inline constexpr GgufName kMpt[] = {
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.norm_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.blocks.#.norm_1"},
    {"blk.#.attn_qkv", "transformer.blocks.#.attn.Wqkv"},
    {"blk.#.attn_output", "transformer.blocks.#.attn.out_proj"},
    {"blk.#.ffn_norm", "transformer.blocks.#.norm_2"},
    {"blk.#.ffn_up", "transformer.blocks.#.ffn.up_proj"},
    {"blk.#.ffn_down", "transformer.blocks.#.ffn.down_proj"},
};

inline constexpr GgufName kDbrx[] = {
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.norm_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.blocks.#.norm_attn_norm.norm_1"},
    {"blk.#.attn_qkv", "transformer.blocks.#.norm_attn_norm.attn.Wqkv"},
    {"blk.#.attn_output", "transformer.blocks.#.norm_attn_norm.attn.out_proj"},
    {"blk.#.attn_output_norm", "transformer.blocks.#.norm_attn_norm.norm_2"},
    {"blk.#.ffn_gate_inp", "transformer.blocks.#.ffn.router.layer"},
    {"blk.#.ffn_gate_exps", "transformer.blocks.#.ffn.experts.w1"},
    {"blk.#.ffn_up_exps", "transformer.blocks.#.ffn.experts.v1"},
    {"blk.#.ffn_down_exps", "transformer.blocks.#.ffn.experts.w2"},
};

inline constexpr GgufName kStarcoder[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn"},
    {"blk.#.attn_output", "transformer.h.#.attn.c_proj"},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc"},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj"},
};

// EXAONE 3 and 3.5, Llama's network.
inline constexpr GgufName kExaone[] = {
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_q", "transformer.h.#.attn.attention.q_proj"},
    {"blk.#.attn_k", "transformer.h.#.attn.attention.k_proj"},
    {"blk.#.attn_v", "transformer.h.#.attn.attention.v_proj"},
    {"blk.#.attn_output", "transformer.h.#.attn.attention.out_proj"},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_gate", "transformer.h.#.mlp.c_fc_0"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc_1"},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj"},
};

// GLM-4-9B: files have q, k and v joined, or apart.
inline constexpr GgufName kChatGlm[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

// Ling 2's; Sarvam 30B has them, too.
inline constexpr GgufName kBailingMoe2[] = {
    {"token_embd", "model.word_embeddings"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_qkv", "model.layers.#.attention.query_key_value"},
    {"blk.#.attn_q_norm", "model.layers.#.attention.query_layernorm"},
    {"blk.#.attn_k_norm", "model.layers.#.attention.key_layernorm"},
    {"blk.#.attn_output", "model.layers.#.attention.dense"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.gate"},
    {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.expert_bias",
     GgufLayout::kWhole},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_experts.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_experts.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_experts.down_proj"},
};

// Ling 1's: q, k and v apart, rows of q and k turned.
inline constexpr GgufName kBailingMoe[] = {
    {"token_embd", "model.word_embeddings"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.attention.q_proj", GgufLayout::kQueryRows},
    {"blk.#.attn_k", "model.layers.#.attention.k_proj", GgufLayout::kKeyRows},
    {"blk.#.attn_v", "model.layers.#.attention.v_proj"},
    {"blk.#.attn_output", "model.layers.#.attention.dense"},
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

inline constexpr GgufName kAfmoe[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_gate", "model.layers.#.self_attn.gate_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_norm", "model.layers.#.pre_mlp_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.router.gate"},
    {"blk.#.exp_probs_b.bias", "model.layers.#.mlp.expert_bias",
     GgufLayout::kWhole},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_experts.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_experts.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_experts.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_mlp_layernorm"},
};

// Phi-3.5-MoE.
inline constexpr GgufName kPhimoe[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.w1"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.w3"},
    {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.w2"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_GPT_NAMES_H_
