// Runs a test on every SIMD target that this machine has and our kernels are
// compiled for, not only on the best.
#ifndef INLAY_TESTS_SUPPORT_SIMD_TARGET_LOOP_H_
#define INLAY_TESTS_SUPPORT_SIMD_TARGET_LOOP_H_

#include "kernels/simd_targets.h"
// The list of targets depends on the definition above.
#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace inlay::testing {

template <typename Test>
void OnEverySimdTarget(Test test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    test();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_SIMD_TARGET_LOOP_H_
