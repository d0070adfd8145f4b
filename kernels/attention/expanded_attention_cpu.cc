// expanded_attention, the scalar reference row: a head's keys and values of a
// sequence, then one query at a time, softmax in two passes; all sums in
// double. Allocates: models on CPU do not run it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/expanded_attention.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

class Head {
 public:
  Head(const ExpandedAttentionDesc& desc, const ExpandedAttentionParams& params,
       const AttentionSequence& sequence, int head)
      : desc_(desc), params_(params), sequence_(sequence), head_(head) {}

  void Run() {
    Expand();
    for (int64_t i = 0; i < sequence_.q_len; ++i) RunQuery(i);
  }

 private:
  const float* Matrix(const HeadMatrices& matrices) const {
    return reinterpret_cast<const float*>(
        matrices.base + static_cast<size_t>(head_) * matrices.stride_bytes);
  }

  void Expand() {
    const auto rank = static_cast<size_t>(desc_.rank);
    const auto key_dim = static_cast<size_t>(desc_.key_dim);
    const auto head_dim = static_cast<size_t>(desc_.head_dim());
    const auto value_dim = static_cast<size_t>(desc_.value_dim);
    const auto count = static_cast<size_t>(sequence_.kv_len);
    keys_.resize(count * head_dim);
    values_.resize(count * value_dim);
    std::vector<float> row(static_cast<size_t>(params_.kv.head_dim));
    const float* up_keys = Matrix(params_.keys);
    const float* up_values = Matrix(params_.values);
    for (size_t t = 0; t < count; ++t) {
      const auto position = static_cast<int>(t);
      const std::byte* stored =
          params_.kv.KeyRow(sequence_.blocks[position / params_.kv.block_size],
                            0, position % params_.kv.block_size);
      DecodeKvRow(desc_.kv, stored, params_.kv.head_dim, row.data());
      double* key = &keys_[t * head_dim];
      for (size_t j = 0; j < rank; ++j) {
        for (size_t d = 0; d < key_dim; ++d) {
          key[d] += double{up_keys[j * key_dim + d]} * row[j];
        }
      }
      std::copy(row.begin() + desc_.rank, row.end(), key + key_dim);
      double* value = &values_[t * value_dim];
      for (size_t d = 0; d < value_dim; ++d) {
        for (size_t j = 0; j < rank; ++j) {
          value[d] += double{up_values[d * rank + j]} * row[j];
        }
      }
    }
  }

  void RunQuery(int64_t index) {
    const int64_t row = sequence_.q_begin + index;
    const int64_t end = sequence_.kv_len - sequence_.q_len + index + 1;
    const auto head_dim = static_cast<size_t>(desc_.head_dim());
    const auto value_dim = static_cast<size_t>(desc_.value_dim);
    const float* q =
        params_.q.row<float>(row) + static_cast<size_t>(head_) * head_dim;
    weights_.assign(static_cast<size_t>(end), 0.0);
    double max = -std::numeric_limits<double>::infinity();
    for (size_t t = 0; t < weights_.size(); ++t) {
      for (size_t d = 0; d < head_dim; ++d) {
        weights_[t] += keys_[t * head_dim + d] * q[d];
      }
      weights_[t] *= desc_.scale;
      max = std::max(max, weights_[t]);
    }
    double sum = 0.0;
    std::vector<double> out(value_dim);
    for (size_t t = 0; t < weights_.size(); ++t) {
      const double weight = std::exp(weights_[t] - max);
      sum += weight;
      for (size_t d = 0; d < value_dim; ++d) {
        out[d] += weight * values_[t * value_dim + d];
      }
    }
    float* to =
        params_.out.row<float>(row) + static_cast<size_t>(head_) * value_dim;
    for (size_t d = 0; d < value_dim; ++d) {
      to[d] = static_cast<float>(out[d] / sum);
    }
  }

  const ExpandedAttentionDesc& desc_;
  const ExpandedAttentionParams& params_;
  const AttentionSequence& sequence_;
  int head_;
  std::vector<double> keys_;
  std::vector<double> values_;
  std::vector<double> weights_;
};

}  // namespace

absl::Status RunExpandedAttentionCpuScalar(
    const ExpandedAttentionDesc& desc, const ExpandedAttentionParams& params,
    Stream& stream) {
  for (const AttentionSequence& sequence : params.sequences) {
    if (sequence.q_len == 0) continue;
    stream.thread_pool()->ParallelFor(
        desc.num_heads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t h = begin; h < end; ++h) {
            Head(desc, params, sequence, static_cast<int>(h)).Run();
          }
        });
  }
  return absl::OkStatus();
}

}  // namespace inlay
