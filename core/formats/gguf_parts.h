// GGUF files whose tensors hold several published ones one after another, or in
// another order than gguf_source.h undoes, as a WeightSource with the ones that
// the model wants. Knows nothing of networks.
// Source: llama.cpp's converter (conversion/*.py).
#ifndef INLAY_CORE_FORMATS_GGUF_PARTS_H_
#define INLAY_CORE_FORMATS_GGUF_PARTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// `config`: config.json. `stored`: as gguf_source.h presents it. By model_type:
//   gpt_neox, bloom, falcon, gpt_bigcode, glm: P.JOINED [q's rows, k's, v's],
//     named as GgufJoinedQkv() says, becomes "P.q_proj", "P.k_proj" and
//     "P.v_proj"; biases likewise
//   falcon with two norms: P.input_layernorm becomes "P.ln_mlp"
//   gemma3n_text: P.weight [count, n, k] becomes "P.N.weight"
//   stablelm: P.norms [heads, n] becomes a vector "P.norms.N" of each head
//   qwen3_5_moe_text (of Qwen 3 Next): P.in_proj_ba, for each key head b and a
//     of its value heads, becomes "P.in_proj_b" and "P.in_proj_a"
//   qwen3_5_text, qwen3_5_moe_text: P.turned.NAME, whose value heads lie by
//     their place among those of a key head, becomes P.NAME, with those of a
//     key head side by side. out_proj's columns have that order: where its
//     blocks are wider than a head they stay, and
//     "P.out_proj.input_permutation" says so (quantized_source.h).
//   rwkv7: gguf_rwkv.h
// All others pass through; where there is no such tensor, `stored` comes back.
// INVALID_ARGUMENT where rows do not divide.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGgufParts(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_PARTS_H_
