// AltUp: a residual stream that is several, of which a layer reads and writes
// one: before it all are predicted, after it all are corrected by what the
// layer changed. Sources: Alternating Updates (arXiv:2301.13310), as
// transformers' Gemma3nTextAltUp has it.
//
// Of a token's streams h[0 .. n), one after another a row of n * width, the
// active one being h[a], and of what a layer made of that, x:
//   m(v) = tanh(router (norm(v) / width))    n numbers, RMSNorm with weights
//   altup_predict  h[k] += sum over j of (coefs m(h[a]))[k n + j] h[j]
//                  x = h[a]
//   altup_correct  h[k] += (1 + (coefs m(x))[k]) (x - h[a]), of h before
//                  x = h[a] * scale
//   altup_add      h[k] += y for k > 0
// At both ends of the network:
//   match_magnitude  y = x * rms(target) / sqrt(max(mean of x^2, epsilon)), or
//                    added to y
#ifndef INLAY_KERNELS_ALTUP_ALTUP_H_
#define INLAY_KERNELS_ALTUP_ALTUP_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxAltUpStreams = 8;

// All of it is float32. Rows of matrices may be strided; a token's results
// depend on its own rows only.
struct AltUpDesc {
  int num_streams = 0;
  int64_t width = 0;  // of one stream
  int active = 0;
  float norm_epsilon = 0.0f;
};

// What altup_predict and altup_correct make numbers of a token with.
struct AltUpRouter {
  const float* matrix = nullptr;  // [num_streams, width]
  const float* norm = nullptr;    // [width]
  // [num_streams^2, num_streams] to predict, [num_streams, num_streams] to
  // correct.
  const float* coefs = nullptr;
};

struct AltUpPredictParams {
  TensorView streams;  // [tokens, num_streams * width], in place
  AltUpRouter router;
  TensorView x;  // [tokens, width]
};

struct AltUpCorrectParams {
  TensorView streams;  // [tokens, num_streams * width], in place
  AltUpRouter router;
  const float* scale = nullptr;  // [width]; null: 1
  TensorView x;                  // [tokens, width], in place
};

struct AltUpAddParams {
  TensorView y;        // [tokens, width]
  TensorView streams;  // [tokens, num_streams * width], in place
};

struct MatchMagnitudeDesc {
  int64_t width = 0;
  float epsilon = 0.0f;
};

struct MatchMagnitudeParams {
  TensorView x;       // [tokens, width]
  TensorView target;  // [tokens, width]
  TensorView y;       // [tokens, width]; may be x itself
  bool accumulate = false;
};

using AltUpPredictRow = KernelRow<AltUpDesc, AltUpPredictParams>;
using AltUpCorrectRow = KernelRow<AltUpDesc, AltUpCorrectParams>;
using AltUpAddRow = KernelRow<AltUpDesc, AltUpAddParams>;
using MatchMagnitudeRow = KernelRow<MatchMagnitudeDesc, MatchMagnitudeParams>;
absl::Span<const AltUpPredictRow> AltUpPredictTable();
absl::Span<const AltUpCorrectRow> AltUpCorrectTable();
absl::Span<const AltUpAddRow> AltUpAddTable();
absl::Span<const MatchMagnitudeRow> MatchMagnitudeTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateAltUp(const AltUpDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_ALTUP_ALTUP_H_
