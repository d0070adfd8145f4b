// indexer, the scalar reference row: one key after another, sums in double.
#include <algorithm>
#include <array>

#include "kernels/indexer/indexer.h"
#include "kernels/indexer/top_keys.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

float Score(const IndexerDesc& desc, const float* q, const float* weights,
            const float* key) {
  double score = 0.0;
  for (int h = 0; h < desc.num_heads; ++h, q += desc.head_dim) {
    double dot = 0.0;
    for (int d = 0; d < desc.head_dim; ++d) dot += double{q[d]} * key[d];
    score += weights[h] * std::max(dot, 0.0);
  }
  return static_cast<float>(score);
}

// What query `index` of `sequence` sees.
void SelectKeys(const IndexerDesc& desc, const IndexerParams& params,
                const AttentionSequence& sequence, int64_t index) {
  const int64_t row = sequence.q_begin + index;
  const int64_t seen = int64_t{sequence.kv_len} - sequence.q_len + index + 1;
  const int64_t count = seen / desc.key_tokens;
  const int block_size = params.kv.block_size;
  int32_t* const selection = params.selection + row * desc.width();
  if (desc.adds_partial) {
    SelectPartial(sequence.blocks, block_size, seen, desc.key_tokens,
                  selection + std::min<int64_t>(count, desc.top_k));
  }
  if (count <= desc.top_k) {
    return SelectAll(sequence.blocks, block_size, count, selection);
  }
  TopKeys top(desc.top_k);
  std::array<float, kMaxIndexHeadDim> key;
  for (int32_t t = 0; t < count; ++t) {
    DecodeKvRow(
        desc.kv,
        params.kv.KeyRow(sequence.blocks[t / block_size], 0, t % block_size),
        desc.head_dim, key.data());
    top.Add(Score(desc, params.q.row<float>(row),
                  params.weights.row<float>(row), key.data()),
            t);
  }
  top.Take(sequence.blocks, block_size, selection);
}

}  // namespace

absl::Status RunIndexerCpuScalar(const IndexerDesc& desc,
                                 const IndexerParams& params, Stream& stream) {
  for (const AttentionSequence& sequence : params.sequences) {
    stream.thread_pool()->ParallelFor(sequence.q_len, 1,
                                      [&](int64_t begin, int64_t end) {
                                        for (int64_t i = begin; i < end; ++i) {
                                          SelectKeys(desc, params, sequence, i);
                                        }
                                      });
  }
  return absl::OkStatus();
}

}  // namespace inlay
