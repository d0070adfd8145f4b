// Layers in AutoAWQ's layouts, of whichever method's settings. Of a layer with
// k inputs and n outputs, "gemm":
//   qweight i32 [k, n / 8]        outputs packed into words
//   qzeros  i32 [groups, n / 8]   likewise
//   scales  [groups, n]
// field f of word c holds output 8 c + {0, 2, 4, 6, 1, 3, 5, 7}[f], or as AMD
// Quark says "order", 8 c + f, and its symmetric ones are two's complement;
// "gemv":
//   qweight i32 [n, k / 8]        inputs packed into words, lowest field first
//   qzeros  i32 [n, words]        groups likewise
//   scales  [n, 8 words]
// where words is groups / 8, rounded up, to twice or four times as coarse where
// groups have 64 or 32 inputs; what is left over is 0.
//
//   weight[o][i] = scales[g][o] * (code[i][o] - zero[g][o])
//   g = i / group_size
//
// Source: the file layouts of github.com/casper-hansen/AutoAWQ (WQLinear_GEMM
// and WQLinear_GEMV, calculate_zeros_width) and of PyPI's amd-quark
// (quark/torch/utils/pack.py).
#ifndef INLAY_CORE_FORMATS_AWQ_LAYER_H_
#define INLAY_CORE_FORMATS_AWQ_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/input_major_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/weight_source.h"

namespace inlay {

// Of "gemm".
struct AwqScheme {
  LayerChoices choices;    // bits: 4 alone
  bool in_order = false;   // fields lie as their outputs do
  bool is_signed = false;  // codes and zero points
};

// One layer. Checks its tensors: "<layer><codes>" and those of `names`.
absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeAwqLayer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const std::string& codes, const InputMajorNames& names,
    const AwqScheme& scheme);

// Every layer that has a "qweight", with its tensors.
absl::Status AddAwqLayers(const std::shared_ptr<const WeightSource>& stored,
                          const AwqScheme& scheme, QuantizedLayers& found);
absl::Status AddAwqGemvLayers(const std::shared_ptr<const WeightSource>& stored,
                              const LayerChoices& choices,
                              QuantizedLayers& found);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_AWQ_LAYER_H_
