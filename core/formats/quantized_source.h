// A quantised Hugging Face checkpoint as a WeightSource of block formats:
// dispatch by method, and the presented names. Knows nothing of kernels.
#ifndef INLAY_CORE_FORMATS_QUANTIZED_SOURCE_H_
#define INLAY_CORE_FORMATS_QUANTIZED_SOURCE_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// `quantization_config`: that object of config.json, or the same from `place`.
// `stored`: the tensors of the files. Methods: auto-round, awq, bitnet,
// bitsandbytes, compressed-tensors, fbgemm_fp8, fp8, gptq, modelopt, quark,
// torchao; mxfp4, whose experts expert_source.h has presented before.
//
// Each quantised linear layer L becomes one tensor "L.weight", [n, k] row-major
// in u4_g32, u4_g128, i8_g32, i8_g128, f8_g32, f8_g128, nf4, bnb_fp4 or
// nvfp4_f32 (quantized_layer.h), and, where its columns had to be sorted by
// group, "L.input_permutation", i32 [k]: column j of the weight multiplies
// input permutation[j]. The tensors that make it up are gone. All others pass
// through, mapped where they were.
//
// Weights are exact: scale * code + min differs from the checkpoint's
// scale * (code - zero) by rounding in float32 at most. How activations were
// to be rounded ("input_activations", input_scale) is checked and not kept, but
// for WeightInfo::input_codes.
//
// Converted tensors are never mapped; reading converts whole rows: cheapest in
// pieces of many rows, front to back. INVALID_ARGUMENT or NOT_FOUND for what
// contradicts itself, UNIMPLEMENTED for what is not supported; both name it.
absl::StatusOr<std::shared_ptr<const WeightSource>> OpenQuantized(
    const Json& quantization_config, std::shared_ptr<const WeightSource> stored,
    std::string_view place = kConfigSettings);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_QUANTIZED_SOURCE_H_
