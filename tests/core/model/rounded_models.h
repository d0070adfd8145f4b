// A model whose weights are in some format beside the same one with what those
// stand for in float32: runs both and compares.
#ifndef INLAY_TESTS_CORE_MODEL_ROUNDED_MODELS_H_
#define INLAY_TESTS_CORE_MODEL_ROUNDED_MODELS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "memory/status.h"
#include "tests/core/model/golden_models.h"

namespace inlay {

struct RoundedFiles {
  ModelFiles rounded;
  ModelFiles wide;
  int layers = 0;  // rounded ones
};

inline constexpr int64_t kWholePrompt = int64_t{1} << 20;

// Logits of a prompt of 40 tokens, so many at a time; `gemm`: the rows of gemm
// and expert_linear, or null.
inline absl::StatusOr<ModelHarness::Logits> RunRounded(const ModelFiles& files,
                                                       Device& device,
                                                       const char* gemm,
                                                       int64_t chunk) {
  ModelLoadOptions options;
  if (gemm != nullptr) {
    options.forced_kernels["gemm"] = gemm;
    options.forced_kernels["expert_linear"] = gemm;
  }
  INLAY_ASSIGN_OR_RETURN(const auto model, LoadModel(files, device, options));
  std::vector<int32_t> prompt;
  const auto tokens =
      static_cast<int32_t>(std::min<int64_t>(model->info().vocab_size, 300));
  for (int32_t i = 0; i < 40; ++i) prompt.push_back(i * 37 % tokens);
  ModelHarness harness(*model, device, 40);
  return harness.Run(harness.AddSequence(40), prompt, chunk);
}

// Differences, of the deviation of `want`.
struct LogitError {
  double worst = 0;
  double mean = 0;  // square
};

inline LogitError ErrorOf(const ModelHarness::Logits& want,
                          const ModelHarness::Logits& got) {
  double sum = 0, squares = 0, count = 0;
  LogitError error;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      const double off = std::fabs(double{want[i][j]} - got[i][j]);
      error.worst = std::isnan(off) ? INFINITY : std::max(error.worst, off);
      error.mean += off * off;
      sum += want[i][j];
      squares += double{want[i][j]} * want[i][j];
      ++count;
    }
  }
  const double deviation =
      std::sqrt(squares / count - sum / count * sum / count);
  return {error.worst / deviation, std::sqrt(error.mean / count) / deviation};
}

// Scalar and plain SIMD rows keep activations in float32. Chosen ones round
// them to 8 bits or, on a GPU, to bf16: a hundredth or two a layer and product
// as quantized_golden_test.cc has it, here of all positions. A scale that is
// another's moves the logits by more than the whole.
inline void ExpectRunsAsWide(
    const std::string& name, const RoundedFiles& files,
    std::initializer_list<int64_t> cpu_chunks = {kWholePrompt},
    std::initializer_list<int64_t> gpu_chunks = {kWholePrompt}) {
  constexpr double kRounded = 0.1;
  const auto cpu = *CreateCpuDevice(2, 0);
  const auto want = RunRounded(files.wide, *cpu, "cpu_scalar", kWholePrompt);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto compare = [&](Device& device, const char* gemm, int64_t chunk) {
    const auto got = RunRounded(files.rounded, device, gemm, chunk);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->size(), want->size());
    const LogitError error = ErrorOf(*want, *got);
    if (gemm == nullptr) {
      EXPECT_LT(error.mean, kRounded);
    } else {
      EXPECT_LT(error.worst, kTolerance) << gemm;
    }
    std::printf("%-20s %-10s chunks of %2d: max %.1e, mean %.1e on %s\n",
                name.c_str(), gemm == nullptr ? "chosen" : gemm,
                static_cast<int>(std::min<int64_t>(chunk, 40)), error.worst,
                error.mean, device.info().name.c_str());
  };
  for (const char* gemm : {"cpu_scalar", "cpu_simd"}) {
    compare(*cpu, gemm, kWholePrompt);
  }
  for (const int64_t chunk : cpu_chunks) compare(*cpu, nullptr, chunk);
  const auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) return;
  for (const int64_t chunk : gpu_chunks) compare(**gpu, nullptr, chunk);
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_ROUNDED_MODELS_H_
