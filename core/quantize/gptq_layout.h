// GptqLayout: groups of ours as the tensors that GPTQ checkpoints have
// (core/formats/gptq.cc describes them; zeros are stored less 1). Pure
// functions.
#ifndef INLAY_CORE_QUANTIZE_GPTQ_LAYOUT_H_
#define INLAY_CORE_QUANTIZE_GPTQ_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/dtype.h"

namespace inlay {

struct GptqTensors {
  std::vector<uint32_t> codes;   // qweight [k * bits / 32, n]
  std::vector<uint32_t> zeros;   // qzeros [groups, n * bits / 32]
  std::vector<uint16_t> scales;  // f16 [groups, n]
  std::vector<int32_t> groups;   // g_idx [k]
};

// 4 or 8 of u4_g* and i8_g*.
int GptqBits(DType dtype);
// Whether words hold whole rows and columns of such a layer.
bool FitsGptqLayout(DType dtype, int64_t n, int64_t k);

// `rows`: [n, k] in blocks of `dtype`, made on its grid (whole zero points from
// 1 up, scales of f16).
GptqTensors ToGptqTensors(absl::Span<const std::byte> rows, DType dtype,
                          int64_t n, int64_t k);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_GPTQ_LAYOUT_H_
