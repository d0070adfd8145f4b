// Hyper-connections: a residual stream that is several, which each part of a
// layer reads as one and whose output it gives back to all. Sources:
// Hyper-Connections (arXiv:2409.19606); manifold-constrained ones, whose
// matrix is doubly stochastic by Sinkhorn-Knopp (arXiv:2512.24880), as
// DeepSeek-V4's published code has them. Independent ones, without the matrix,
// and the mean of all streams at the end: transformers' HYV4HyperConnection and
// Glm5NextTextHyperHead.
//
// Of a token's streams h[0 .. n), one after another a row of n * width:
//   f = fn h / rms(h)                     fn h is a product of gemm
//   a = sigmoid(scale[0] f[0 .. n) + base[0 .. n)) + epsilon
//   b = magnitude sigmoid(scale[1] f[n .. 2n) + base[n .. 2n))
//   c = sinkhorn(softmax of rows(scale[2] f[2n ..) + base[2n ..)) + epsilon)
//   hyper_mix     x = sum over j of a[j] h[j]
//   hyper_spread  h[k] = b[k] y + sum over j of c[j][k] h[j], y made of x
// c is n by n, row by row; sinkhorn divides columns and then rows by their sum
// + epsilon, in turns, columns first and last. Where streams are independent, c
// is the identity, and b has epsilon added, too.
#ifndef INLAY_KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_H_
#define INLAY_KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

// A warp has the matrix, an element a lane.
inline constexpr int kMaxHyperStreams = 5;
inline constexpr int kMaxHyperRounds = 1000;

struct HyperMixDesc {
  int num_streams = 0;
  int64_t width = 0;  // of one stream
  // Columns of the sums over columns; the rows' are one fewer.
  int rounds = 20;
  float epsilon = 0.0f;
  float norm_epsilon = 0.0f;
  float magnitude = 2.0f;
  bool independent = false;
  // There is a alone (what follows the last layer).
  bool only_mixes = false;
  // Of only_mixes: a is 1 / n, and there are no products.
  bool averages = false;

  // Rows of fn.
  int num_outputs() const {
    if (averages) return 0;
    if (only_mixes) return num_streams;
    return (independent ? 2 : 2 + num_streams) * num_streams;
  }
  // What HyperMixParams::weights has a token.
  int num_weights() const {
    return (independent ? 1 : 1 + num_streams) * num_streams;
  }
};

// All of it float32.
struct HyperMixParams {
  TensorView streams;  // [tokens, num_streams * width]
  // [tokens, num_outputs()]: fn h. Unused, as base and scale are, where
  // desc.averages.
  TensorView products;
  const float* base = nullptr;   // [num_outputs()]
  const float* scale = nullptr;  // of a, b and c, those that there are
  TensorView x;                  // [tokens, width]
  // [tokens, num_weights()]: b, then c if there is one; not where only_mixes.
  float* weights = nullptr;

  const float* ProductsOf(const HyperMixDesc& desc, int64_t token) const {
    return desc.averages ? nullptr : products.row<float>(token);
  }
  float* WeightsOf(const HyperMixDesc& desc, int64_t token) const {
    return weights == nullptr ? nullptr : weights + token * desc.num_weights();
  }
};

struct HyperSpreadDesc {
  int num_streams = 0;
  int64_t width = 0;
  bool independent = false;  // h[k] += b[k] y

  int num_weights() const {
    return (independent ? 1 : 1 + num_streams) * num_streams;
  }
};

struct HyperSpreadParams {
  TensorView y;                    // [tokens, width] f32
  const float* weights = nullptr;  // of HyperMixParams
  TensorView streams;  // [tokens, num_streams * width] f32, in place
};

using HyperMixRow = KernelRow<HyperMixDesc, HyperMixParams>;
using HyperSpreadRow = KernelRow<HyperSpreadDesc, HyperSpreadParams>;

// A token's results depend on its own rows only. Rows of matrices may be
// strided.
absl::Span<const HyperMixRow> HyperMixTable();
absl::Span<const HyperSpreadRow> HyperSpreadTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateHyperMix(const HyperMixDesc& desc);
absl::Status ValidateHyperSpread(const HyperSpreadDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_H_
