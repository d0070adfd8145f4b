// Checkpoints that hold q, k and v in one tensor head by head, or an MLP's two
// matrices with the gate last, as a WeightSource with one matrix each. Source:
// transformers' gpt_neox, gpt_neox_japanese, persimmon, bloom, deberta, falcon,
// gpt_bigcode, codegen, gte; conversion_mapping.py for sarvam_moe, lara_mini
// and axk2; llama.cpp's converter for internlm2.
#ifndef INLAY_CORE_FORMATS_HEAD_SOURCE_H_
#define INLAY_CORE_FORMATS_HEAD_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// `config`: config.json. By its model_type,
//   gpt_neox, bloom  P.query_key_value  [heads * (q, k, v) * head_dim]
//   deberta          P.in_proj          the same; "P.q_bias" and "P.v_bias" are
//                                       "P.q_proj.bias" and "P.v_proj.bias"
//   gpt_neox_japanese, persimmon
//                    the same; of the first "P.dense_bias" is "P.dense.bias"
//   falcon           P.query_key_value  the same without multi_query; with
//                    new_decoder_architecture [kv_heads * (queries of the
//                    head of keys, k, v) * head_dim]
//   internlm2        P.wqkv             the same as the latter
//   gpt_bigcode      P.c_attn           as gpt_neox's, without multi_query
//   baichuan         P.W_pack           [q, k, v]
//   openelm          P.qkv_proj         [q, k, v], as many heads as the layer
//                                       has
//   codegen          P.qkv_proj         [4 * (q, v, k) * hidden_size / 4]
//   sarvam_moe, bailing_moe, bailing_moe_v2
//                    P.query_key_value  [(heads, kv_heads, kv_heads) *
//                    head_dim]
// being rows of a weight and a bias, become "P.q_proj", "P.k_proj" and
// "P.v_proj" (each with the input_permutation, where there is one); and of
//   gte, new         P.up_gate_proj     [up, gate]
// come "P.up_proj" and "P.gate_proj"; and of
//   openelm          P.ffn.proj_1       [gate, up]
// come "P.ffn.gate_proj" and "P.ffn.up_proj"; and of
//   bert             P.up_gated_layer   [up, gate]  (JinaBERT's for code)
// "P.up_layer" and "P.gate_layer"; and of
//   lara_mini        P.linear_attn.in_proj  [q, k, v; z; b; a]
// "P.linear_attn.in_proj_qkv", "_z", "_b" and "_a"; and of
//   axk2             P.self_attn.q_b_proj  [heads * (queries, gates)]
// "P.self_attn.q_proj" and "P.self_attn.gate_proj". All other tensors pass
// through; where there is no such tensor, `stored` comes back. INVALID_ARGUMENT
// where rows are not whole parts of all heads.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentHeads(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_HEAD_SOURCE_H_
