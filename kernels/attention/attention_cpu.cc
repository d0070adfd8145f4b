// attention, biased_attention and disentangled_attention, the scalar reference
// rows: one query of one head at a time, softmax in two passes, all sums in
// double.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/attention/disentangled_attention.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

class Query {
 public:
  Query(const AttentionDesc& desc, const AttentionParams& params,
        const ScoreBias& bias, const RelativeRows& relative,
        const AttentionSequence& sequence, int64_t index, int head)
      : desc_(desc),
        params_(params),
        bias_(bias),
        relative_(relative),
        sequence_(sequence),
        head_(head),
        kv_head_(head / (desc.num_heads / desc.num_kv_heads)),
        row_(sequence.q_begin + index),
        position_(int64_t{sequence.kv_len} - sequence.q_len + index),
        keys_(KeysOfQuery(desc, params, sequence, index)) {}

  void Run() const {
    const float sink = params_.sinks != nullptr
                           ? params_.sinks[head_]
                           : -std::numeric_limits<float>::infinity();
    double max = sink;
    for (int64_t t = keys_.begin; t < keys_.end; ++t) {
      if (Sees(t)) max = std::max(max, Score(t));
    }
    double sum = params_.sinks != nullptr ? std::exp(sink - max) : 0.0;
    std::array<double, kMaxAttentionHeadDim> values = {};
    for (int64_t t = keys_.begin; t < keys_.end; ++t) {
      if (!Sees(t)) continue;
      const double weight = std::exp(Score(t) - max);
      sum += weight;
      const Place at = PlaceOf(t);
      const Row value = Decode(params_.kv.ValueRow(at.block, kv_head_, at.slot),
                               desc_.out_dim());
      for (size_t d = 0; d < static_cast<size_t>(desc_.out_dim()); ++d) {
        values[d] += weight * value[d];
      }
    }
    if (sum == 0.0) sum = 1.0;  // of nothing: zeros
    float* out = params_.out.row<float>(row_) + head_ * desc_.out_dim();
    for (int d = 0; d < desc_.out_dim(); ++d) {
      out[d] = static_cast<float>(values[static_cast<size_t>(d)] / sum);
    }
  }

 private:
  using Row = std::array<float, kMaxAttentionHeadDim>;

  // The first `count` elements of a row.
  Row Decode(const std::byte* bytes, int count) const {
    Row row;
    DecodeKvRow(desc_.kv, bytes, count, row.data());
    return row;
  }
  bool Sees(int64_t t) const {
    return params_.mask == nullptr || params_.mask->BitOf(keys_, t);
  }
  struct Place {
    int64_t block;
    int slot;
  };
  // Of key t.
  Place PlaceOf(int64_t t) const {
    const int size = params_.kv.block_size;
    if (desc_.selects > 0) {
      const int unit = desc_.mix.block;
      const int64_t row = row_ * desc_.num_kv_heads + kv_head_;
      const int64_t block =
          params_.selection[row * (desc_.selects / unit) + t / unit];
      const int64_t slot = block * unit + t % unit;
      return {slot / size, static_cast<int>(slot % size)};
    }
    return {sequence_.blocks[t / size], static_cast<int>(t % size)};
  }

  double Score(int64_t t) const {
    const float* q = params_.q.row<float>(row_) + head_ * desc_.head_dim;
    const Place at = PlaceOf(t);
    const Row key =
        Decode(params_.kv.KeyRow(at.block, kv_head_, at.slot), desc_.head_dim);
    double dot = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      dot += static_cast<double>(q[d]) * key[static_cast<size_t>(d)];
    }
    if (relative_.rows != nullptr) dot += RelativeDots(t, q, key);
    double score = dot * desc_.scale;
    if (desc_.softcap > 0.0f) {
      score = desc_.softcap * std::tanh(score / desc_.softcap);
    }
    if (bias_.values != nullptr) {
      const int64_t distance =
          std::clamp<int64_t>(t - position_, -bias_.reach, bias_.reach);
      score += bias_.values[int64_t{head_} * (2 * bias_.reach + 1) +
                            bias_.reach + distance];
    }
    if (params_.alibi_slopes == nullptr) return score;
    return score - params_.alibi_slopes[head_] *
                       static_cast<double>(std::abs(t - position_));
  }

  double RelativeDots(int64_t t, const float* q, const Row& key) const {
    const int64_t distance =
        std::clamp<int64_t>(position_ - t, -relative_.reach, relative_.reach);
    const int64_t row = relative_.rows[relative_.reach + distance];
    const int64_t first = int64_t{head_} * desc_.head_dim;
    double dot = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      if (!relative_.keys.empty()) {
        dot += static_cast<double>(q[d]) *
               relative_.keys.row<float>(row)[first + d];
      }
      if (!relative_.queries.empty()) {
        dot += static_cast<double>(key[static_cast<size_t>(d)]) *
               relative_.queries.row<float>(row)[first + d];
      }
    }
    return dot;
  }

  const AttentionDesc& desc_;
  const AttentionParams& params_;
  const ScoreBias& bias_;
  const RelativeRows& relative_;
  const AttentionSequence& sequence_;
  int head_;
  int kv_head_;
  int64_t row_;
  int64_t position_;
  AttentionRowKeys keys_;
};

void Run(const AttentionDesc& desc, const AttentionParams& params,
         const ScoreBias& bias, const RelativeRows& relative, Stream& stream) {
  for (const AttentionSequence& sequence : params.sequences) {
    stream.thread_pool()->ParallelFor(
        int64_t{sequence.q_len} * desc.num_heads, 1,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            Query(desc, params, bias, relative, sequence, i / desc.num_heads,
                  static_cast<int>(i % desc.num_heads))
                .Run();
          }
        });
  }
}

}  // namespace

absl::Status RunAttentionCpuScalar(const AttentionDesc& desc,
                                   const AttentionParams& params,
                                   Stream& stream) {
  Run(desc, params, ScoreBias(), RelativeRows(), stream);
  return absl::OkStatus();
}

absl::Status RunBiasedAttentionCpuScalar(const AttentionDesc& desc,
                                         const BiasedAttentionParams& params,
                                         Stream& stream) {
  Run(desc, params.attention, params.bias, RelativeRows(), stream);
  return absl::OkStatus();
}

absl::Status RunDisentangledAttentionCpuScalar(
    const AttentionDesc& desc, const DisentangledAttentionParams& params,
    Stream& stream) {
  Run(desc, params.attention, ScoreBias(), params.relative, stream);
  return absl::OkStatus();
}

}  // namespace inlay
