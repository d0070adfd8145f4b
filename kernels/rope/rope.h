// rope: rotary position embedding in place (Su et al., arXiv:2104.09864), from
// a table of cosines and sines that a step fills once for all layers that share
// its frequencies.
#ifndef INLAY_KERNELS_ROPE_ROPE_H_
#define INLAY_KERNELS_ROPE_ROPE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

// Which dimensions turn together: kHalf pairs i with i + rotary_dim / 2 (Llama
// as Hugging Face stores it), kInterleaved pairs 2i with 2i + 1 (GLM, Cohere).
// Dimensions outside [first, first + rotary_dim) are left alone.
enum class RopeStyle : uint8_t { kHalf, kInterleaved };

struct RopeDesc {
  int num_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;  // even, first + rotary_dim <= head_dim
  RopeStyle style = RopeStyle::kHalf;
  DType activation = DType::kF32;
  int first = 0;  // of a head's dimensions, where those that turn begin
};

struct RopeParams {
  TensorView x;  // [tokens, num_heads * head_dim], rows may be strided; rotated
                 // in place
  const float* cos = nullptr;  // [tokens, rotary_dim / 2], dense
  const float* sin = nullptr;  // the same
};

using RopeRow = KernelRow<RopeDesc, RopeParams>;
absl::Span<const RopeRow> RopeTable();

// Fills cos and sin [tokens, pairs] with cos and sin of float(position *
// inv_freq), times `scale` (YaRN's attention factor), where positions are
// rounded down to multiples of `step`. The product is rounded to
// float32 first, as the reference implementations do. Host code: both arrays
// are in host memory.
void FillRopeAngles(absl::Span<const int32_t> positions,
                    absl::Span<const float> inv_freq, float scale, float* cos,
                    float* sin, int32_t step = 1);

// The same on a CUDA device: all arrays are in its memory; queued on `stream`.
// Sines and cosines within two units in the last place.
absl::Status FillRopeAnglesCuda(const int32_t* positions, int64_t tokens,
                                const float* inv_freq, int64_t pairs,
                                float scale, float* cos, float* sin,
                                Stream& stream, int32_t step = 1);

}  // namespace inlay

#endif  // INLAY_KERNELS_ROPE_ROPE_H_
