// The tables of gguf_arch.cc for encoders; gguf_names.h has the others. Source:
// llama.cpp's converter (tensor_mapping.py, conversion/bert.py, gemma.py and
// t5.py).
#ifndef INLAY_CORE_FORMATS_GGUF_ENCODER_NAMES_H_
#define INLAY_CORE_FORMATS_GGUF_ENCODER_NAMES_H_

#include "core/formats/gguf_arch.h"

namespace inlay::gguf_names {

// Of a classifier files have what stands before the last product as "cls": the
// pooler, which llama.cpp's converter drops.
inline constexpr GgufName kBert[] = {
    {"token_embd", "bert.embeddings.word_embeddings"},
    {"position_embd", "bert.embeddings.position_embeddings"},
    {"token_types", "bert.embeddings.token_type_embeddings"},
    {"token_embd_norm", "bert.embeddings.LayerNorm"},
    {"blk.#.attn_q", "bert.encoder.layer.#.attention.self.query"},
    {"blk.#.attn_k", "bert.encoder.layer.#.attention.self.key"},
    {"blk.#.attn_v", "bert.encoder.layer.#.attention.self.value"},
    {"blk.#.attn_output", "bert.encoder.layer.#.attention.output.dense"},
    {"blk.#.attn_output_norm",
     "bert.encoder.layer.#.attention.output.LayerNorm"},
    {"blk.#.ffn_up", "bert.encoder.layer.#.intermediate.dense"},
    {"blk.#.ffn_down", "bert.encoder.layer.#.output.dense"},
    {"blk.#.layer_output_norm", "bert.encoder.layer.#.output.LayerNorm"},
    {"cls", "bert.pooler.dense"},
    {"cls.output", "classifier"},
};

// Positions begin with the first token's (core/quantize/file_tensors.cc).
inline constexpr GgufName kRoberta[] = {
    {"token_embd", "roberta.embeddings.word_embeddings"},
    {"position_embd", "roberta.embeddings.position_embeddings"},
    {"token_types", "roberta.embeddings.token_type_embeddings"},
    {"token_embd_norm", "roberta.embeddings.LayerNorm"},
    {"blk.#.attn_q", "roberta.encoder.layer.#.attention.self.query"},
    {"blk.#.attn_k", "roberta.encoder.layer.#.attention.self.key"},
    {"blk.#.attn_v", "roberta.encoder.layer.#.attention.self.value"},
    {"blk.#.attn_output", "roberta.encoder.layer.#.attention.output.dense"},
    {"blk.#.attn_output_norm",
     "roberta.encoder.layer.#.attention.output.LayerNorm"},
    {"blk.#.ffn_up", "roberta.encoder.layer.#.intermediate.dense"},
    {"blk.#.ffn_down", "roberta.encoder.layer.#.output.dense"},
    {"blk.#.layer_output_norm", "roberta.encoder.layer.#.output.LayerNorm"},
    {"cls", "classifier.dense"},
    {"cls.output", "classifier.out_proj"},
};

inline constexpr GgufName kDistilBert[] = {
    {"token_embd", "distilbert.embeddings.word_embeddings"},
    {"position_embd", "distilbert.embeddings.position_embeddings"},
    {"token_embd_norm", "distilbert.embeddings.LayerNorm"},
    {"blk.#.attn_q", "distilbert.transformer.layer.#.attention.q_lin"},
    {"blk.#.attn_k", "distilbert.transformer.layer.#.attention.k_lin"},
    {"blk.#.attn_v", "distilbert.transformer.layer.#.attention.v_lin"},
    {"blk.#.attn_output", "distilbert.transformer.layer.#.attention.out_lin"},
    {"blk.#.attn_output_norm", "distilbert.transformer.layer.#.sa_layer_norm"},
    {"blk.#.ffn_up", "distilbert.transformer.layer.#.ffn.lin1"},
    {"blk.#.ffn_down", "distilbert.transformer.layer.#.ffn.lin2"},
    {"blk.#.layer_output_norm",
     "distilbert.transformer.layer.#.output_layer_norm"},
};

inline constexpr GgufName kNomicBert[] = {
    {"token_embd", "embeddings.word_embeddings"},
    {"token_types", "embeddings.token_type_embeddings"},
    {"token_embd_norm", "emb_ln"},
    {"blk.#.attn_qkv", "encoder.layers.#.attn.Wqkv"},
    {"blk.#.attn_output", "encoder.layers.#.attn.out_proj"},
    {"blk.#.attn_output_norm", "encoder.layers.#.norm1"},
    {"blk.#.ffn_up", "encoder.layers.#.mlp.fc11"},
    {"blk.#.ffn_gate", "encoder.layers.#.mlp.fc12"},
    {"blk.#.ffn_down", "encoder.layers.#.mlp.fc2"},
    {"blk.#.layer_output_norm", "encoder.layers.#.norm2"},
};

// Converters drop the bias of experts' sums.
inline constexpr GgufName kNomicBertMoe[] = {
    {"token_embd", "embeddings.word_embeddings"},
    {"token_types", "embeddings.token_type_embeddings"},
    {"token_embd_norm", "emb_ln"},
    {"blk.#.attn_qkv", "encoder.layers.#.attn.Wqkv"},
    {"blk.#.attn_output", "encoder.layers.#.attn.out_proj"},
    {"blk.#.attn_output_norm", "encoder.layers.#.norm1"},
    {"blk.#.ffn_up", "encoder.layers.#.mlp.fc1"},
    {"blk.#.ffn_down", "encoder.layers.#.mlp.fc2"},
    {"blk.#.ffn_gate_inp", "encoder.layers.#.mlp.router.layer"},
    {"blk.#.ffn_up_exps", "encoder.layers.#.mlp.experts.w1"},
    {"blk.#.ffn_down_exps", "encoder.layers.#.mlp.experts.w2"},
    {"blk.#.layer_output_norm", "encoder.layers.#.norm2"},
};

// JinaBERT's. Of two rows with one name files have the first: what the tensor
// is its shape, and those beside it, say (core/model/arch/jina_bert.cc).
inline constexpr GgufName kJinaBertV2[] = {
    {"token_embd", "bert.embeddings.word_embeddings"},
    {"token_types", "bert.embeddings.token_type_embeddings"},
    {"token_embd_norm", "bert.embeddings.LayerNorm"},
    {"blk.#.attn_q", "bert.encoder.layer.#.attention.self.query"},
    {"blk.#.attn_k", "bert.encoder.layer.#.attention.self.key"},
    {"blk.#.attn_v", "bert.encoder.layer.#.attention.self.value"},
    {"blk.#.attn_q_norm", "bert.encoder.layer.#.attention.self.layer_norm_q"},
    {"blk.#.attn_k_norm", "bert.encoder.layer.#.attention.self.layer_norm_k"},
    {"blk.#.attn_output", "bert.encoder.layer.#.attention.output.dense"},
    {"blk.#.attn_output_norm",
     "bert.encoder.layer.#.attention.output.LayerNorm"},
    {"blk.#.attn_norm_2", "bert.encoder.layer.#.layer_norm_1"},
    {"blk.#.ffn_gate", "bert.encoder.layer.#.mlp.gate_layer"},
    {"blk.#.ffn_up", "bert.encoder.layer.#.mlp.up_layer"},
    {"blk.#.ffn_up", "bert.encoder.layer.#.mlp.gated_layers"},
    {"blk.#.ffn_down", "bert.encoder.layer.#.mlp.wo"},
    {"blk.#.ffn_down", "bert.encoder.layer.#.mlp.down_layer"},
    {"blk.#.layer_output_norm", "bert.encoder.layer.#.mlp.layernorm"},
    {"blk.#.layer_output_norm", "bert.encoder.layer.#.layer_norm_2"},
};

inline constexpr GgufName kJinaBertV3[] = {
    {"token_embd", "roberta.embeddings.word_embeddings"},
    {"token_types", "roberta.embeddings.token_type_embeddings"},
    {"token_embd_norm", "roberta.emb_ln"},
    {"blk.#.attn_qkv", "roberta.encoder.layers.#.mixer.Wqkv"},
    {"blk.#.attn_output", "roberta.encoder.layers.#.mixer.out_proj"},
    {"blk.#.attn_output_norm", "roberta.encoder.layers.#.norm1"},
    {"blk.#.ffn_up", "roberta.encoder.layers.#.mlp.fc1"},
    {"blk.#.ffn_down", "roberta.encoder.layers.#.mlp.fc2"},
    {"blk.#.layer_output_norm", "roberta.encoder.layers.#.norm2"},
};

inline constexpr GgufName kEuroBert[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

inline constexpr GgufName kModernBert[] = {
    {"token_embd", "model.embeddings.tok_embeddings"},
    {"token_embd_norm", "model.embeddings.norm"},
    {"output_norm", "model.final_norm"},
    {"blk.#.attn_norm", "model.layers.#.attn_norm"},
    {"blk.#.attn_qkv", "model.layers.#.attn.Wqkv"},
    {"blk.#.attn_output", "model.layers.#.attn.Wo"},
    {"blk.#.ffn_norm", "model.layers.#.mlp_norm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.Wi"},
    {"blk.#.ffn_down", "model.layers.#.mlp.Wo"},
    {"cls", "head.dense"},
    {"cls.norm", "head.norm"},
    {"cls.output", "classifier"},
};

// Gemma 3's, and sentence-transformers' Dense modules.
inline constexpr GgufName kGemmaEmbedding[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", GgufLayout::kPlusOne},
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
    {"dense_2", "2_Dense.linear"},
    {"dense_3", "3_Dense.linear"},
};

// The encoder; of files of "t5" nothing else is read.
inline constexpr GgufName kT5[] = {
    {"token_embd", "shared"},
    {"token_embd", "encoder.embed_tokens"},
    {"token_embd", "decoder.embed_tokens"},
    {"enc.output_norm", "encoder.final_layer_norm"},
    {"enc.blk.#.attn_norm", "encoder.block.#.layer.0.layer_norm"},
    {"enc.blk.#.attn_q", "encoder.block.#.layer.0.SelfAttention.q"},
    {"enc.blk.#.attn_k", "encoder.block.#.layer.0.SelfAttention.k"},
    {"enc.blk.#.attn_v", "encoder.block.#.layer.0.SelfAttention.v"},
    {"enc.blk.#.attn_o", "encoder.block.#.layer.0.SelfAttention.o"},
    {"enc.blk.#.attn_rel_b",
     "encoder.block.#.layer.0.SelfAttention.relative_attention_bias"},
    {"enc.blk.#.ffn_norm", "encoder.block.#.layer.1.layer_norm"},
    {"enc.blk.#.ffn_gate", "encoder.block.#.layer.1.DenseReluDense.wi_0"},
    {"enc.blk.#.ffn_up", "encoder.block.#.layer.1.DenseReluDense.wi_1"},
    {"enc.blk.#.ffn_up", "encoder.block.#.layer.1.DenseReluDense.wi"},
    {"enc.blk.#.ffn_down", "encoder.block.#.layer.1.DenseReluDense.wo"},
};

}  // namespace inlay::gguf_names

#endif  // INLAY_CORE_FORMATS_GGUF_ENCODER_NAMES_H_
