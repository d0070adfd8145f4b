// kv_compress on CPU, the only row: one row in row_tokens tokens is little
// beside the products that make its values and gates. Sums in double.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/kv_compress/kv_compress.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

using Row = std::array<float, kMaxAttentionHeadDim>;

// One pass: a sum, and what it is a multiple of.
struct Pool {
  std::array<double, kMaxAttentionHeadDim> most, sum, weights;

  void Clear(int dim) {
    std::fill_n(most.begin(), dim, -HUGE_VAL);
    std::fill_n(sum.begin(), dim, 0.0);
    std::fill_n(weights.begin(), dim, 0.0);
  }
  void Add(size_t d, double gate, double value) {
    // A NaN is more than any number, and stays.
    const double top = gate < most[d] ? most[d] : gate;
    const double keep = most[d] == top ? 1.0 : std::exp(most[d] - top);
    const double weight = std::exp(gate - top);
    most[d] = top;
    sum[d] = sum[d] * keep + weight * value;
    weights[d] = weights[d] * keep + weight;
  }
};

void Compress(const KvCompressDesc& desc, const KvCompressParams& params,
              const AttentionSequence& sequence, int64_t index) {
  const int64_t position = int64_t{sequence.kv_len} - sequence.q_len + index;
  float* y = params.y.row<float>(sequence.q_begin + index);
  if ((position + 1) % desc.row_tokens != 0) {
    std::fill_n(y, desc.head_dim, 0.0f);
    return;
  }
  const KvLayerView& kv = params.kv;
  Pool pool;
  pool.Clear(desc.head_dim);
  Row values, gates;
  const int64_t own = position + 1 - desc.row_tokens;  // the first of these
  const int64_t first = desc.overlaps && own > 0 ? own - desc.row_tokens : own;
  for (int64_t p = first; p <= position; ++p) {
    const int head = desc.overlaps && p >= own ? 1 : 0;
    const int64_t block = sequence.blocks[p / kv.block_size];
    const auto slot = static_cast<int>(p % kv.block_size);
    DecodeKvRow(desc.kv, kv.KeyRow(block, head, slot), desc.head_dim,
                values.data());
    DecodeKvRow(desc.kv, kv.ValueRow(block, head, slot), desc.head_dim,
                gates.data());
    const float* bias =
        params.bias +
        (p % desc.row_tokens * desc.num_heads() + head) * desc.head_dim;
    for (size_t d = 0; d < static_cast<size_t>(desc.head_dim); ++d) {
      pool.Add(d, double{gates[d]} + bias[d], values[d]);
    }
  }
  for (size_t d = 0; d < static_cast<size_t>(desc.head_dim); ++d) {
    y[d] = static_cast<float>(pool.sum[d] / pool.weights[d]);
  }
}

}  // namespace

absl::Status RunKvCompressCpu(const KvCompressDesc& desc,
                              const KvCompressParams& params, Stream& stream) {
  for (const AttentionSequence& sequence : params.sequences) {
    stream.thread_pool()->ParallelFor(sequence.q_len, desc.row_tokens,
                                      [&](int64_t begin, int64_t end) {
                                        for (int64_t i = begin; i < end; ++i) {
                                          Compress(desc, params, sequence, i);
                                        }
                                      });
  }
  return absl::OkStatus();
}

}  // namespace inlay
