// Experts that no token goes to, on a GPU, by the kernels for one token and
// two, for few and for many: alone and as stages of chains. What steps of one
// token then ask of memory: `bench_cuda experts`.
#include "tests/core/model/idle_experts.h"

namespace inlay {
namespace {

class IdleExpertsCuda : public ::testing::TestWithParam<const char*> {};

TEST_P(IdleExpertsCuda, ArePartOfNothing) {
  const auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    for (const char* chain : {"", "apart"}) {
      SCOPED_TRACE(chain);
      ModelLoadOptions options;
      if (*chain != 0) options.forced_kernels["linear_chain"] = chain;
      ExpectIdleExpertsUnused(GetParam(), dtype, **gpu, options,
                              {1, 2, 5, 1 << 20});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, IdleExpertsCuda,
    ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss",
                      "llama4_text", "deepseek_v3", "qwen3_next", "nemotron_h"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace inlay
