// Whether selections of blocks find the keys that matter, at lengths that no
// model here was trained for: 8B's heads (8 KV heads of 128, 4 queries each),
// keys and queries of normally distributed numbers, and in every KV head one
// key more at a random place, which one of the four queries asks for: their
// product, scaled, is what the first column says (a random one is normally
// distributed, with a deviation of 1). Printed are the key's share of its
// query's weight and how many of such keys are among what is selected; "best":
// were those blocks selected that have the most weight, summed over a KV head's
// queries.
//
//   bench_selection_recall [threads]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/block_selection/block_selection.h"
#include "kernels/kv_write/kv_row.h"
#include "memory/device/device.h"

namespace inlay {
namespace {

constexpr int kKvHeads = 8, kGroup = 4, kDim = 128;
constexpr int kTurns = 4;
constexpr double kScale = 0.08838834764831845;  // 1 / sqrt(kDim)

using Row = std::array<float, kDim>;

// One sequence, its query and, in each KV head, the key that is asked for.
struct Problem {
  Problem(int length, double product, std::mt19937& rng) : keys(kKvHeads) {
    std::normal_distribution<float> normal;
    for (Row& row : q) {
      for (float& x : row) x = normal(rng);
    }
    for (int head = 0; head < kKvHeads; ++head) {
      std::vector<Row>& rows = keys[static_cast<size_t>(head)];
      rows.resize(static_cast<size_t>(length));
      for (Row& row : rows) {
        for (float& x : row) x = normal(rng);
      }
      // Neither in the first block nor in the last two, which all see.
      const int at =
          kSelectBlock + static_cast<int>(rng() % (length - 3 * kSelectBlock));
      const Row& asks = q[static_cast<size_t>(head * kGroup)];
      Row& key = keys[head][static_cast<size_t>(at)];
      const double now = Product(asks, key);
      const double wanted = product / kScale;
      const double length2 = Product(asks, asks);
      for (size_t d = 0; d < kDim; ++d) {
        key[d] += static_cast<float>((wanted - now) / length2) * asks[d];
      }
      wanted_key[static_cast<size_t>(head)] = at;
    }
  }

  static double Product(const Row& a, const Row& b) {
    double sum = 0.0;
    for (size_t d = 0; d < kDim; ++d) sum += double{a[d]} * b[d];
    return sum;
  }

  std::vector<double> Weights(int head, const Row& query) const {
    std::vector<double> weights;
    weights.reserve(keys[head].size());
    for (const Row& key : keys[head]) {
      weights.push_back(std::exp(kScale * Product(query, key)));
    }
    return weights;
  }

  std::array<Row, kKvHeads * kGroup> q;
  std::vector<std::vector<Row>> keys;  // [kKvHeads][length]
  std::array<int, kKvHeads> wanted_key;
};

using Blocks = std::vector<int32_t>;  // positions / kSelectBlock

// Whether the head's key is among them: 1 or 0.
int Holds(const Problem& problem, int head, const Blocks& blocks) {
  const int wanted =
      problem.wanted_key[static_cast<size_t>(head)] / kSelectBlock;
  return std::count(blocks.begin(), blocks.end(), wanted) > 0 ? 1 : 0;
}

// What the op selects for the sequence's last token.
std::vector<Blocks> Select(const Problem& problem, BlockMethod method,
                           int num_blocks, Stream& stream,
                           const DeviceInfo& info) {
  const auto length = static_cast<int>(problem.keys[0].size());
  const KvLayerShape shape = {kKvHeads, kDim};
  const KvLayout layout({shape, BlockSummaryShape(method, shape, DType::kF32)},
                        DType::kF32, kSelectBlock);
  const int blocks = length / kSelectBlock;
  std::vector<std::byte> cache(layout.block_bytes() *
                               static_cast<size_t>(blocks));
  const KvLayerView keys = layout.LayerView(0, cache.data());
  std::vector<int64_t> slots(static_cast<size_t>(length));
  std::iota(slots.begin(), slots.end(), 0);
  for (int i = 0; i < length; ++i) {
    for (int head = 0; head < kKvHeads; ++head) {
      EncodeKvRow(DType::kF32,
                  problem.keys[head][static_cast<size_t>(i)].data(), kDim,
                  keys.KeyRow(i / kSelectBlock, head, i % kSelectBlock));
    }
  }
  const BlockSummaryDesc summary = {method, kKvHeads, kDim, DType::kF32};
  BlockSummaryParams summarise;
  summarise.keys = keys;
  summarise.summaries = layout.LayerView(1, cache.data());
  summarise.tokens = length;
  summarise.slots = slots.data();
  (*inlay::Select("block_summary", BlockSummaryTable(), summary, info))
      ->run(summary, summarise, stream)
      .IgnoreError();

  BlockSelectionDesc desc;
  desc.method = method;
  desc.num_heads = kKvHeads * kGroup;
  desc.num_kv_heads = kKvHeads;
  desc.head_dim = kDim;
  desc.max_keys = length;
  desc.num_blocks = num_blocks;
  const BlockSelectionRow& row =
      **inlay::Select("block_selection", BlockSelectionTable(), desc, info);
  std::vector<uint64_t> workspace(row.workspace_bytes(desc, 1) / 8 + 1);
  std::vector<int32_t> selection(static_cast<size_t>(kKvHeads * num_blocks));
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  const AttentionSequence sequence = {0, 1, length, table.data()};
  Row q[kKvHeads * kGroup];
  std::copy(problem.q.begin(), problem.q.end(), q);
  BlockSelectionParams params;
  params.q = MatrixView(q[0].data(), DType::kF32, 1, kKvHeads * kGroup * kDim);
  params.summaries = layout.LayerView(1, cache.data());
  params.sequences = absl::MakeConstSpan(&sequence, 1);
  params.selection = selection.data();
  params.workspace = workspace.data();
  row.run(desc, params, stream).IgnoreError();
  std::vector<Blocks> of_heads;
  for (int head = 0; head < kKvHeads; ++head) {
    const auto begin = selection.begin() + head * num_blocks;
    of_heads.emplace_back(begin, begin + num_blocks);
  }
  return of_heads;
}

Blocks Best(const std::vector<double>& weights, int num_blocks) {
  std::vector<double> sums(weights.size() / kSelectBlock);
  for (size_t i = 0; i < weights.size(); ++i) {
    sums[i / kSelectBlock] += weights[i];
  }
  Blocks blocks(sums.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  std::partial_sort(blocks.begin(), blocks.begin() + num_blocks, blocks.end(),
                    [&](int32_t a, int32_t b) {
                      return sums[static_cast<size_t>(a)] >
                             sums[static_cast<size_t>(b)];
                    });
  blocks.resize(static_cast<size_t>(num_blocks));
  return blocks;
}

void Run(int length, double product, Stream& stream, const DeviceInfo& info) {
  constexpr BlockMethod kMethods[] = {BlockMethod::kBounds,
                                      BlockMethod::kKMeans, BlockMethod::kLsh};
  constexpr int kNumBlocks = 2048 / kSelectBlock;
  std::mt19937 rng(7);
  int found[3] = {}, best = 0;
  double share = 0.0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const Problem problem(length, product, rng);
    std::vector<std::vector<Blocks>> selected;
    for (const BlockMethod method : kMethods) {
      selected.push_back(Select(problem, method, kNumBlocks, stream, info));
    }
    for (int head = 0; head < kKvHeads; ++head) {
      std::vector<double> asks, all;
      for (int i = 0; i < kGroup; ++i) {
        std::vector<double> weights = problem.Weights(
            head, problem.q[static_cast<size_t>(head * kGroup + i)]);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        all.resize(weights.size());
        for (size_t k = 0; k < weights.size(); ++k) {
          weights[k] /= sum;
          all[k] += weights[k];
        }
        if (i == 0) asks = std::move(weights);
      }
      share += asks[static_cast<size_t>(
          problem.wanted_key[static_cast<size_t>(head)])];
      for (size_t m = 0; m < 3; ++m) {
        found[m] +=
            Holds(problem, head, selected[m][static_cast<size_t>(head)]);
      }
      best += Holds(problem, head, Best(all, kNumBlocks));
    }
  }
  constexpr int kKeys = kTurns * kKvHeads;
  std::printf(
      "%6d keys, product %4.1f, %4.1f %% of the weight: found by bounds %5.1f "
      "%%, kmeans %5.1f, lsh %5.1f, best %5.1f\n",
      length, product, 100.0 * share / kKeys, 100.0 * found[0] / kKeys,
      100.0 * found[1] / kKeys, 100.0 * found[2] / kKeys, 100.0 * best / kKeys);
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  auto device = CreateCpuDevice(threads, 0);
  if (!device.ok()) return 1;
  auto stream = (*device)->CreateStream();
  if (!stream.ok()) return 1;
  for (const int length : {65536, 131072}) {
    for (const double product : {8.0, 10.0, 12.0}) {
      Run(length, product, **stream, (*device)->info());
    }
  }
  return 0;
}

}  // namespace
}  // namespace inlay

int main(int argc, char** argv) { return inlay::Main(argc, argv); }
