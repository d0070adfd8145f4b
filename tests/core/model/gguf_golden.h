// A GGUF file's model against the golden outputs, on the CPU and where there is
// a GPU there too: what the tests of files that the converter made and of files
// that are written here share.
#ifndef INLAY_TESTS_CORE_MODEL_GGUF_GOLDEN_H_
#define INLAY_TESTS_CORE_MODEL_GGUF_GOLDEN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tests/core/model/golden_models.h"

namespace inlay {

class GgufGoldenModel : public GoldenModel {
 protected:
  void CheckGoldens(const ModelFiles& files) {
    CheckGoldensOn(*device_, files);
    const auto gpu = CreateCudaDevice(0, 0);
    if (!gpu.ok()) return;
    ModelFiles widened = files;  // computed in float32 throughout
    widened.weights = Widened(*files.weights);
    CheckGoldensOn(**gpu, widened);
  }

 private:
  void CheckGoldensOn(Device& device, const ModelFiles& files) {
    SCOPED_TRACE(device.info().name);
    auto model = LoadModel(files, device, {});
    ASSERT_TRUE(model.ok()) << model.status();
    double worst = 0;
    for (const GoldenCase& golden : cases_) {
      SCOPED_TRACE(golden.name);
      ModelHarness harness(**model, device, FinalLength(golden));
      const int sequence = harness.AddSequence(FinalLength(golden));
      const auto logits = harness.Run(sequence, golden.input_ids, 1 << 20);
      ASSERT_TRUE(logits.ok()) << logits.status();
      const double error = GoldenError(golden, *logits);
      EXPECT_LT(error, kTolerance);
      worst = std::max(worst, error);
      const auto greedy =
          harness.Greedy(sequence, logits->back(), kGreedySteps);
      ASSERT_TRUE(greedy.ok()) << greedy.status();
      EXPECT_EQ(*greedy, golden.greedy);
    }
    std::printf("%-18s GGUF max error / logit_std %.2e on %s\n", GetParam(),
                worst, device.info().name.c_str());
  }
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_GGUF_GOLDEN_H_
