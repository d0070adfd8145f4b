// Experts that no token goes to, on a CPU, packed as its rows want them; that
// files' own pages are not read: active_experts_test.cc.
#include "tests/core/model/idle_experts.h"

namespace inlay {
namespace {

TEST(IdleExpertsTest, ArePartOfNothing) {
  const auto cpu = Cpu();
  ExpectIdleExpertsUnused("mixtral", DType::kQ8_0, *cpu, {}, {1, 1 << 20});
  ExpectIdleExpertsUnused("gpt_oss", DType::kQ4_K, *cpu, {}, {1, 1 << 20});
}

}  // namespace
}  // namespace inlay
