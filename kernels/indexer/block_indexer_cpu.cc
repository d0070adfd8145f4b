// block_indexer, the scalar reference row: one key after another, sums in
// double.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/indexer/block_query.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

float BlockScore(const BlockQuery& query, const float* q, int64_t block) {
  const int dim = query.desc.head_dim;
  std::array<float, kMaxIndexHeadDim> key;
  double best = -std::numeric_limits<double>::infinity();
  for (int t = 0; t < query.desc.block; ++t) {
    DecodeKvRow(query.desc.kv, query.Key(block * query.desc.block + t), dim,
                key.data());
    double dot = 0.0;
    for (int d = 0; d < dim; ++d) {
      dot += double{q[d]} * key[static_cast<size_t>(d)];
    }
    best = std::max(best, dot);
  }
  return static_cast<float>(best);
}

void SelectBlocks(const BlockQuery& query, int head) {
  if (query.selects_all()) return query.SelectAllBlocks(head);
  const float* q = query.params.q.row<float>(query.row) +
                   int64_t{head} * query.desc.head_dim;
  TopKeys top(query.places());
  for (int64_t b = 0; query.places() > 0 && b < query.end(); ++b) {
    top.Add(BlockScore(query, q, b), static_cast<int32_t>(b));
  }
  query.Select(head, top);
}

}  // namespace

absl::Status RunBlockIndexerCpuScalar(const BlockIndexerDesc& desc,
                                      const BlockIndexerParams& params,
                                      Stream& stream) {
  const int64_t heads = desc.num_heads;
  for (const AttentionSequence& sequence : params.sequences) {
    stream.thread_pool()->ParallelFor(
        sequence.q_len * heads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            SelectBlocks(BlockQuery(desc, params, sequence, i / heads),
                         static_cast<int>(i % heads));
          }
        });
  }
  return absl::OkStatus();
}

}  // namespace inlay
