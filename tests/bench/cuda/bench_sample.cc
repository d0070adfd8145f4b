// Sampling from a 128k vocabulary: time in a graph for 1, 8 and 64 rows.
#include <random>

#include "kernels/sample/sample.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

constexpr int64_t kVocab = 128256;
constexpr int64_t kRows = 64;
// Copies that are used in turn: more than the L2 cache holds.
constexpr int64_t kCopies = 4;

std::vector<float> Logits(bool peaked) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, peaked ? 2.2f : 1.0f);
  std::exponential_distribution<float> tail(0.5f);
  std::vector<float> row(kVocab);
  for (float& x : row) x = normal(rng);
  for (int i = 0; peaked && i < 2000; ++i) {
    row[rng() % kVocab] = 4 + tail(rng);
  }
  std::vector<float> all;
  for (int64_t r = 0; r < kRows * kCopies; ++r) {
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

struct Case {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
};
constexpr Case kCases[] = {
    {"greedy", 0, 0, 1, 0},
    {"temperature", 1, 0, 1, 0},
    {"top_k 40", 1, 40, 1, 0},
    {"top_k 1000", 1, 1000, 1, 0},
    {"top_p 0.95", 1, 0, 0.95f, 0},
    {"top_k 40, top_p 0.95", 0.8f, 40, 0.95f, 0},
    {"min_p 0.05", 1, 0, 1, 0.05f},
};

}  // namespace

void BenchSample(Bench& bench) {
  if (!bench.Wants("sample")) return;
  std::printf("sample, 128256 logits a row: us for 1, 8, 64 rows\n");
  DeviceMemory logits(size_t{kRows} * kCopies * kVocab * sizeof(float));
  DeviceMemory options(kRows * sizeof(SampleOptions));
  DeviceMemory tokens(kRows * sizeof(int32_t));
  for (const bool peaked : {true, false}) {
    const std::vector<float> host = Logits(peaked);
    Require(cudaMemcpy(logits.data(), host.data(), logits.bytes(),
                       cudaMemcpyHostToDevice));
    for (const SampleRow& row : SampleTable()) {
      if (row.device != DeviceKind::kCuda) continue;
      for (const Case& c : kCases) {
        std::vector<SampleOptions> rows(kRows);
        for (int64_t r = 0; r < kRows; ++r) {
          rows[static_cast<size_t>(r)] = {c.temperature, c.top_k, c.top_p,
                                          c.min_p};
          rows[static_cast<size_t>(r)].index = static_cast<uint64_t>(r);
        }
        Require(cudaMemcpy(options.data(), rows.data(), options.bytes(),
                           cudaMemcpyHostToDevice));
        std::printf("%-7s %-13s %-22s", peaked ? "peaked" : "flat",
                    std::string(row.name).c_str(), c.name);
        for (const int64_t count : {1, 8, 64}) {
          const double seconds = GraphSeconds(bench, 20, [&](int i) {
            const size_t first = static_cast<size_t>(i % kCopies * kRows) *
                                 kVocab * sizeof(float);
            return row.run(
                {kVocab},
                {MatrixView(logits.data() + first, DType::kF32, count, kVocab),
                 reinterpret_cast<const SampleOptions*>(options.data()),
                 nullptr, nullptr, reinterpret_cast<int32_t*>(tokens.data())},
                bench.stream);
          });
          std::printf("  %8.2f", 1e6 * seconds);
        }
        std::printf("\n");
      }
    }
  }
}

}  // namespace inlay::bench
