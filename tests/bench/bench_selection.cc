// What a decode step of one layer takes where blocks of keys are selected, and
// where all are seen: 8B's heads (32 over 8 of 128), one query, on the CPU.
// With one thread the clock is the thread's own, which stands still while
// others have the core.
//
//   bench_selection [threads]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/block_selection/block_selection.h"
#include "memory/device/device.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

constexpr int kBlock = 16;

double NowUs(bool alone) {
  timespec now;
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return 1e6 * static_cast<double>(now.tv_sec) +
         1e-3 * static_cast<double>(now.tv_nsec);
}

struct Bench {
  Device& device;
  Stream& stream;

  template <typename Fn>
  double BestUs(Fn fn) const {
    const bool alone = stream.thread_pool()->num_threads() == 1;
    double best = 1e30;
    for (int i = 0; i < 10; ++i) {
      const double begin = NowUs(alone);
      fn();
      best = std::min(best, NowUs(alone) - begin);
    }
    return best;
  }
};

void Run(Bench bench, DType kv, int kv_len, int64_t tokens) {
  const DeviceInfo info = bench.device.info();
  constexpr int kHeads = 32, kKvHeads = 8, kDim = 128;
  constexpr BlockMethod kMethods[] = {BlockMethod::kBounds,
                                      BlockMethod::kKMeans, BlockMethod::kLsh};
  const KvLayerShape keys = {kKvHeads, kDim};
  std::vector<float> q(kHeads * kDim), out(q.size());
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (float& x : q) x = normal(rng);
  const TensorView queries =
      MatrixView(q.data(), DType::kF32, 1, kHeads * kDim);
  const TensorView outputs =
      MatrixView(out.data(), DType::kF32, 1, kHeads * kDim);
  double dense = 0.0;
  for (const BlockMethod method : kMethods) {
    const KvLayout layout({keys, BlockSummaryShape(method, keys, kv)}, kv,
                          kBlock);
    const int blocks = kv_len / kBlock;
    std::vector<uint16_t> cache(layout.block_bytes() / 2 *
                                static_cast<size_t>(blocks));
    uint32_t state = 1;
    // Small numbers of either type, of which none is like its neighbours.
    for (uint16_t& x : cache)
      x = static_cast<uint16_t>(0x3c00 +
                                (state = state * 1664525 + 1013904223) % 0x2ff);
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i);
    std::shuffle(table.begin(), table.end(), rng);
    const AttentionSequence sequence = {0, 1, kv_len, table.data()};
    const auto view = [&](int layer) {
      return layout.LayerView(layer,
                              reinterpret_cast<std::byte*>(cache.data()));
    };

    AttentionDesc attention;
    attention.num_heads = kHeads;
    attention.num_kv_heads = kKvHeads;
    attention.head_dim = kDim;
    attention.kv = kv;
    attention.scale = 0.088f;
    AttentionParams params;
    params.q = queries;
    params.out = outputs;
    params.sequences = absl::MakeConstSpan(&sequence, 1);
    const auto attend = [&] {
      const AttentionRow& row =
          **Select("attention", AttentionTable(), attention, info);
      return bench.BestUs([&] {
        params.kv = view(0);
        row.run(attention, params, bench.stream).IgnoreError();
      });
    };
    if (method == kMethods[0]) {
      dense = attend();
      std::printf("%s kv %6d dense %9.0f us\n",
                  std::string(DTypeName(kv)).c_str(), kv_len, dense);
    }

    BlockSelectionDesc select;
    select.method = method;
    select.num_heads = kHeads;
    select.num_kv_heads = kKvHeads;
    select.head_dim = kDim;
    select.max_keys = kv_len;
    select.num_blocks = static_cast<int>(tokens / kSelectBlock);
    const BlockSelectionRow& select_row =
        **Select("block_selection", BlockSelectionTable(), select, info);
    std::vector<uint64_t> workspace(
        select_row.workspace_bytes(select, 1) / sizeof(uint64_t) + 1);
    std::vector<int32_t> selection(
        static_cast<size_t>(kKvHeads * select.num_blocks));
    BlockSelectionParams choose;
    choose.q = queries;
    choose.sequences = params.sequences;
    choose.selection = selection.data();
    choose.workspace = workspace.data();
    const double selects = bench.BestUs([&] {
      choose.summaries = view(1);
      select_row.run(select, choose, bench.stream).IgnoreError();
    });

    attention.selects = static_cast<int>(tokens);
    attention.mix.block = kSelectBlock;
    params.selection = selection.data();
    const double attends = attend();

    BlockSummaryDesc summary = {method, kKvHeads, kDim, kv};
    const BlockSummaryRow& summary_row =
        **Select("block_summary", BlockSummaryTable(), summary, info);
    const int64_t slot = kSelectBlock - 1;
    BlockSummaryParams summarise;
    summarise.keys = view(0);
    summarise.summaries = view(1);
    summarise.tokens = 1;
    summarise.slots = &slot;
    const double summarises = bench.BestUs([&] {
      summary_row.run(summary, summarise, bench.stream).IgnoreError();
    }) / kSelectBlock;
    const double all = selects + attends + summarises;
    std::printf(
        "  %-12s summaries %5.1f us a token, selection %7.0f us, attention "
        "%6.0f us: %.1f times\n",
        FormatBlockSelection({method, tokens}).c_str(), summarises, selects,
        attends, dense / all);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  auto device = CreateCpuDevice(threads, 0);
  if (!device.ok()) return 1;
  auto stream = (*device)->CreateStream();
  if (!stream.ok()) return 1;
  for (const int kv_len : {16384, 65536, 131072}) {
    for (const DType kv : {DType::kBF16, DType::kF32}) {
      Run({**device, **stream}, kv, kv_len, 2048);
    }
  }
  return 0;
}

}  // namespace
}  // namespace inlay

int main(int argc, char** argv) { return inlay::Main(argc, argv); }
