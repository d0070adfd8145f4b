// Names of DeepSeek-V4's tensors in GGUF files (gguf_arch.h), whose checkpoints
// have names of their own. Source: llama.cpp's converter
// (conversion/deepseek.py) and its names (gguf-py/gguf/constants.py).
#ifndef INLAY_CORE_FORMATS_GGUF_DEEPSEEK4_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_DEEPSEEK4_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

// Corrections are the router's bias, which has its row before that.
inline constexpr GgufName kDeepseek4[] = {
    {"token_embd", "embed"},
    {"output_norm", "norm"},
    {"output", "head"},
    {"output_hc_fn", "hc_head_fn", GgufLayout::kBareName},
    {"output_hc_base", "hc_head_base", GgufLayout::kBareName},
    {"output_hc_scale", "hc_head_scale", GgufLayout::kBareName},
    {"blk.#.hc_attn_fn", "layers.#.hc_attn_fn", GgufLayout::kBareName},
    {"blk.#.hc_attn_base", "layers.#.hc_attn_base", GgufLayout::kBareName},
    {"blk.#.hc_attn_scale", "layers.#.hc_attn_scale", GgufLayout::kBareName},
    {"blk.#.hc_ffn_fn", "layers.#.hc_ffn_fn", GgufLayout::kBareName},
    {"blk.#.hc_ffn_base", "layers.#.hc_ffn_base", GgufLayout::kBareName},
    {"blk.#.hc_ffn_scale", "layers.#.hc_ffn_scale", GgufLayout::kBareName},
    {"blk.#.attn_norm", "layers.#.attn_norm"},
    {"blk.#.attn_sinks", "layers.#.attn.attn_sink", GgufLayout::kBareName},
    {"blk.#.attn_q_a", "layers.#.attn.wq_a"},
    {"blk.#.attn_q_b", "layers.#.attn.wq_b"},
    {"blk.#.attn_q_a_norm", "layers.#.attn.q_norm"},
    {"blk.#.attn_kv", "layers.#.attn.wkv"},
    {"blk.#.attn_kv_a_norm", "layers.#.attn.kv_norm"},
    {"blk.#.attn_output_a", "layers.#.attn.wo_a"},
    {"blk.#.attn_output_b", "layers.#.attn.wo_b"},
    {"blk.#.attn_compressor_ape", "layers.#.attn.compressor.ape",
     GgufLayout::kBareName},
    {"blk.#.attn_compressor_kv", "layers.#.attn.compressor.wkv"},
    {"blk.#.attn_compressor_gate", "layers.#.attn.compressor.wgate"},
    {"blk.#.attn_compressor_norm", "layers.#.attn.compressor.norm"},
    {"blk.#.indexer.attn_q_b", "layers.#.attn.indexer.wq_b"},
    {"blk.#.indexer.proj", "layers.#.attn.indexer.weights_proj"},
    {"blk.#.indexer_compressor_ape", "layers.#.attn.indexer.compressor.ape",
     GgufLayout::kBareName},
    {"blk.#.indexer_compressor_kv", "layers.#.attn.indexer.compressor.wkv"},
    {"blk.#.indexer_compressor_gate", "layers.#.attn.indexer.compressor.wgate"},
    {"blk.#.indexer_compressor_norm", "layers.#.attn.indexer.compressor.norm"},
    {"blk.#.ffn_norm", "layers.#.ffn_norm"},
    {"blk.#.exp_probs_b.bias", "layers.#.ffn.gate.bias", GgufLayout::kWhole},
    {"blk.#.ffn_gate_inp", "layers.#.ffn.gate"},
    {"blk.#.ffn_gate_tid2eid", "layers.#.ffn.gate.tid2eid",
     GgufLayout::kBareName},
    {"blk.#.ffn_gate_exps", "layers.#.ffn.experts.w1"},
    {"blk.#.ffn_up_exps", "layers.#.ffn.experts.w3"},
    {"blk.#.ffn_down_exps", "layers.#.ffn.experts.w2"},
    {"blk.#.ffn_gate_shexp", "layers.#.ffn.shared_experts.w1"},
    {"blk.#.ffn_up_shexp", "layers.#.ffn.shared_experts.w3"},
    {"blk.#.ffn_down_shexp", "layers.#.ffn.shared_experts.w2"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_DEEPSEEK4_NAMES_H_
