// Mixtures of experts whose checkpoints hold one tensor for all experts, as a
// WeightSource with one matrix an expert. Knows nothing of architectures but
// how their files lay experts out.
// Sources: transformers' modules of the families named here; gpt-oss's
// published files (mxfp4: OCP Microscaling Formats specification 1.0).
#ifndef INLAY_CORE_FORMATS_EXPERT_SOURCE_H_
#define INLAY_CORE_FORMATS_EXPERT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// More in one tensor are refused.
inline constexpr int64_t kMaxStoredExperts = 4096;
// And more tensors in all, where there are experts: one takes some 400 bytes,
// and 4 of the file. Published models have up to some 70,000.
inline constexpr size_t kMaxExpertTensors = size_t{1} << 19;

// `config`: config.json. `stored`: the tensors of the files. What becomes
// "P.experts.N.gate_proj.weight" [w, h], ".up_proj.weight" [w, h] and
// ".down_proj.weight" [h, w]:
//   P.experts.gate_up_proj [experts, 2 w, h]    gate's rows, then up's
//   P.experts.down_proj [experts, h, w]
//   P.block_sparse_moe.input_linear.weight and .output_linear.weight
//     (Granite): the same shapes; "P.block_sparse_moe.experts.N..."; JetMoE's
//     P.mlp.input_linear.weight and .output_linear.weight likewise
//   the same names with _scale_inv [experts, 1, 1] or [experts, blocks of rows,
//     of columns] beside e4m3 (FP8)            as ".weight_scale_inv"
// and where model_type is "gpt_oss", whose gate and up take turns:
//   P.experts.gate_up_proj [experts, h, 2 w], P.experts.down_proj
//     [experts, w, h]                           inputs by outputs
//   the same names with _bias                   as ".bias"
//   with _blocks [experts, outputs, inputs / 32, 16] and _scales
//     [experts, outputs, inputs / 32]           mxfp4 (quant_method "mxfp4")
// and where it is "llama4_text", gate's columns, then up's:
//   P.experts.gate_up_proj [experts, h, 2 w], P.experts.down_proj
//     [experts, w, h]                           inputs by outputs
// and where it is "step3p5", as "P.moe.experts.N.gate_proj.weight" and so on:
//   P.moe.gate_proj.weight [experts, w, h], .up_proj.weight, and
//   .down_proj.weight
//     [experts, h, w], those with .weight_scale_inv likewise
// and where it is "aria_text", in the same way:
//   P.experts.fc1.weight [experts, h, 2 w], P.experts.fc2.weight
//     [experts, w, h]
// and where it is "dbrx" or "nomic_bert", as "P.experts.N.w1.weight" [w, h],
// ".v1.weight" and ".w2.weight" [h, w]:
//   P.experts.mlp.w1, .v1 (DBRX) and .w2 [experts * w, h]
// and where a multimodal model's text is "ernie4_5_vl_moe_text" (`text`), of
//   P.moe_statics.e_score_correction_bias [2, experts]
// the first row; and where it is "qwen3_vl_moe_text", either
// of the two, by where hidden_size is, and from stacks, one for each matrix, as
// GGUF files have them:
//   P.experts.NAME.weight [experts, n, k]         "P.experts.N.NAME.weight"
//   P.experts.NAME.bias [experts, n]              "P.experts.N.NAME.bias"
// All others pass through; where there is no such tensor, `stored` comes back.
// Rows that lie side by side stay mapped. INVALID_ARGUMENT or NOT_FOUND for
// what contradicts itself, RESOURCE_EXHAUSTED for too many.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentExperts(
    const Json& config, std::shared_ptr<const WeightSource> stored,
    std::string_view text = {});

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_EXPERT_SOURCE_H_
