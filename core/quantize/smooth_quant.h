// SmoothQuant: factors for a layer's inputs that share the spread of inputs out
// between them and the weights, so that both round well to 8 bits. Knows no
// models.
// Source: Xiao et al., SmoothQuant (arXiv:2211.10438), section 4.
#ifndef INLAY_CORE_QUANTIZE_SMOOTH_QUANT_H_
#define INLAY_CORE_QUANTIZE_SMOOTH_QUANT_H_

#include <vector>

#include "absl/types/span.h"

namespace inlay {

// [inputs]: what to multiply columns by, and to divide inputs by: inputs^alpha
// / weights^(1 - alpha), of the largest magnitudes of inputs and of columns; 1
// where one of the two is 0. alpha from 0 to 1.
std::vector<float> SmoothScales(absl::Span<const float> inputs,
                                absl::Span<const float> weights, float alpha);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_SMOOTH_QUANT_H_
