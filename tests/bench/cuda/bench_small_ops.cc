// The small ops at Llama-3-8B's sizes, expert_columns at Qwen3-30B-A3B's (8 of
// 128 experts a token, 2,048 columns): time in a graph, GB/s of what must be
// read and written.
#include "kernels/activation/activation.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/moe/expert_columns.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/rope_kv/rope_kv.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

constexpr int64_t kRows[] = {1, 8, 64, 8192};
constexpr int64_t kMostRows = 8192;

template <typename Row, typename Desc>
const Row& RowOf(const Bench& bench, absl::Span<const Row> table,
                 const Desc& desc) {
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  auto row = Select("op", table, desc, device);
  Require(row.status());
  return **row;
}

// run(rows, params memory) for each number of rows.
template <typename Fn>
void Report(const Bench& bench, const char* name, double bytes_a_row, Fn run) {
  std::printf("%-12s", name);
  for (const int64_t rows : kRows) {
    const double seconds =
        GraphSeconds(bench, 20, [&](int) { return run(rows); });
    std::printf("  %8.2f us %5.0f", 1e6 * seconds,
                1e-9 * bytes_a_row * static_cast<double>(rows) / seconds);
  }
  std::printf("\n");
}

}  // namespace

void BenchSmallOps(Bench& bench) {
  if (!bench.Wants("small")) return;
  std::printf("small ops    us and GB/s for 1, 8, 64, 8192 rows\n");
  DeviceMemory x(size_t{kMostRows} * 28672 * 2);
  DeviceMemory y(size_t{kMostRows} * 28672 * 2);
  x.Randomize(DType::kBF16, 1);
  Require(cudaMemset(y.data(), 0, y.bytes()));
  auto* const floats = reinterpret_cast<const float*>(y.data());
  Stream& stream = bench.stream;

  const RmsNormDesc norm{4096, DType::kF32, DType::kBF16};
  const auto& norm_row = RowOf(bench, RmsNormTable(), norm);
  Report(bench, "rms_norm", 4096 * 6, [&](int64_t rows) {
    return norm_row.run(norm,
                        {MatrixView(x.data(), DType::kF32, rows, 4096), floats,
                         1e-5f, MatrixView(y.data(), DType::kBF16, rows, 4096)},
                        stream);
  });
  const ActivationDesc silu{Activation::kSilu, true, 14336, DType::kBF16};
  const auto& silu_row = RowOf(bench, ActivationTable(), silu);
  Report(bench, "swiglu", 14336 * 6, [&](int64_t rows) {
    return silu_row.run(silu,
                        {MatrixView(x.data(), DType::kBF16, rows, 28672),
                         MatrixView(y.data(), DType::kBF16, rows, 14336)},
                        stream);
  });
  const RopeDesc rope{40, 128, 128, RopeStyle::kHalf, DType::kBF16};
  const auto& rope_row = RowOf(bench, RopeTable(), rope);
  Report(bench, "rope q+k", 5120 * 4 + 512, [&](int64_t rows) {
    return rope_row.run(
        rope, {MatrixView(x.data(), DType::kBF16, rows, 5120), floats, floats},
        stream);
  });
  const EmbeddingDesc embedding{4096, DType::kBF16, DType::kF32};
  const auto& embedding_row = RowOf(bench, EmbeddingTable(), embedding);
  DeviceMemory ids(size_t{kMostRows} * 8);
  Require(cudaMemset(ids.data(), 0, ids.bytes()));
  Report(bench, "embedding", 4096 * 6, [&](int64_t rows) {
    return embedding_row.run(
        embedding,
        {MatrixView(x.data(), DType::kBF16, 1, 4096),
         reinterpret_cast<const int32_t*>(ids.data()), 1.0f, false,
         MatrixView(y.data(), DType::kF32, rows, 4096)},
        stream);
  });
  std::vector<int64_t> slots(kMostRows);
  for (int64_t i = 0; i < kMostRows; ++i) {
    slots[static_cast<size_t>(i)] = i;
  }
  Require(cudaMemcpy(ids.data(), slots.data(), ids.bytes(),
                     cudaMemcpyHostToDevice));
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kKvQ4}) {
    const KvWriteDesc write{8, 128, kv, DType::kBF16};
    const auto& write_row = RowOf(bench, KvWriteTable(), write);
    const KvLayout layout({{8, 128}}, kv, 16);
    const double bytes =
        2.0 * (1024 * 2 + 8 * static_cast<double>(KvRowBytes(kv, 128)));
    Report(
        bench,
        kv == DType::kBF16 ? "kv bf16"
        : kv == DType::kI8 ? "kv i8"
                           : "kv q4",
        bytes, [&](int64_t rows) {
          const TensorView k = MatrixView(x.data(), DType::kBF16, rows, 1024);
          return write_row.run(write,
                               {k, k, layout.LayerView(0, y.data()),
                                reinterpret_cast<const int64_t*>(ids.data())},
                               stream);
        });
  }
  constexpr int kTopK = 8;
  constexpr int kExperts = 128;
  constexpr int64_t kWidth = 2048;
  std::vector<int32_t> numbers(kExperts * kWidth);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int32_t>(i * 1223 % kWidth);  // 1,223 is odd
  }
  DeviceMemory orders(numbers.size() * 4);
  Require(cudaMemcpy(orders.data(), numbers.data(), orders.bytes(),
                     cudaMemcpyHostToDevice));
  numbers.resize(kMostRows * kTopK);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int32_t>(i * 37 % kExperts);
  }
  DeviceMemory experts(numbers.size() * 4);
  Require(cudaMemcpy(experts.data(), numbers.data(), experts.bytes(),
                     cudaMemcpyHostToDevice));
  const ExpertColumnsDesc sorted{kWidth, kExperts, kTopK, false, DType::kBF16};
  const auto& sorted_row = RowOf(bench, ExpertColumnsTable(), sorted);
  // Orders of few slots come from memory, of many from the caches.
  Report(bench, "expert cols", kWidth * (2 + kTopK * (2 + 4)),
         [&](int64_t rows) {
           return sorted_row.run(
               sorted,
               {MatrixView(x.data(), DType::kBF16, rows, kWidth),
                reinterpret_cast<const int32_t*>(orders.data()),
                reinterpret_cast<const int32_t*>(experts.data()),
                MatrixView(y.data(), DType::kBF16, rows * kTopK, kWidth)},
               stream);
         });
  for (const bool norms : {false, true}) {
    const RopeKvDesc fused{
        32,    8,     128,          128,         RopeStyle::kHalf,
        norms, norms, DType::kBF16, DType::kBF16};
    const auto& fused_row = RowOf(bench, RopeKvTable(), fused);
    const KvLayout layout({{8, 128}}, DType::kBF16, 16);
    Report(bench, norms ? "norm+rope+kv" : "rope+kv", 2.0 * 6144 * 2 + 512,
           [&](int64_t rows) {
             RopeKvParams params;
             params.qkv = MatrixView(x.data(), DType::kBF16, rows, 6144);
             params.cos = params.sin = floats;
             params.kv = layout.LayerView(0, y.data());
             params.slots = reinterpret_cast<const int64_t*>(ids.data());
             return fused_row.run(fused, params, stream);
           });
  }
}

}  // namespace inlay::bench
