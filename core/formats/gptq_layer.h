// Layers in GPTQ's layout, of whichever method's settings. Of a layer with k
// inputs and n outputs:
//   qweight i32 [k * bits / 32, n]        inputs in words, lowest field first
//   qzeros  i32 [groups, n * bits / 32]   outputs likewise
//   scales      [groups, n]
//   g_idx   i32 [k]                       each input's group; absent: in order
//
//   weight[o][i] = scales[g][o] * (code[i][o] - zero[g][o]),  g = g_idx[i]
//
// Fields of 3, 5, 6 and 7 bits go on from a word into the next: 32 of them are
// `bits` words. Of up to 4 bits they become u4, exactly; of more, i8.
// Files of version 1 store zeros less 1: of fields that fill words their
// writer takes 0x11111111 (of 4 bits) from every word, so adding that to the
// word undoes it.
// Source: the file layout of github.com/AutoGPTQ/AutoGPTQ (QuantLinear),
// github.com/ModelCloud/GPTQModel (formats v1 and v2) and
// github.com/intel/auto-round (qlinear_torch.py, bit_packing.py).
#ifndef INLAY_CORE_FORMATS_GPTQ_LAYER_H_
#define INLAY_CORE_FORMATS_GPTQ_LAYER_H_

#include <memory>

#include "absl/status/status.h"
#include "core/formats/input_major_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct GptqScheme {
  LayerChoices choices;
  bool act_order = false;       // every layer has its g_idx
  bool zeros_less_one = false;  // version 1
};

// Every layer that has a "qweight", with its tensors.
absl::Status AddGptqLayers(const std::shared_ptr<const WeightSource>& stored,
                           const GptqScheme& scheme, QuantizedLayers& found);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GPTQ_LAYER_H_
