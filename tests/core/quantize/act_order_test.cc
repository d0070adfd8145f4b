// Files of models whose columns have orders of their own are those of the same
// models without.
#include <gtest/gtest.h>

#include <string>

#include "core/quantize/quantize.h"
#include "tests/core/quantize/expert_files.h"
#include "tests/support/ordered_columns.h"

namespace inlay {
namespace {

using ::inlay::testing::GateOrders;
using ::inlay::testing::WithOrders;

bool IsLinear(const std::string& name) {
  return name.find("embed") == name.npos && name.find("norm") == name.npos;
}

TEST_F(ExpertsTest, ActOrderIsGone) {
  const std::string folder = folder_ + "/model";
  for (const char* model : {"mixtral", "falcon"}) {
    ModelFiles files = Open(Golden(model));
    TokenSequences tokens = Others(1);
    for (int32_t& token : tokens.front()) token %= 128;
    const Rows wanted = Run(files, tokens, nullptr);
    const auto plain = files.weights;
    std::string bytes;
    for (const bool ordered : {false, true}) {
      SCOPED_TRACE(::testing::Message() << model << " ordered " << ordered);
      if (ordered) {
        files.weights = WithOrders(*plain, IsLinear, GateOrders::kApart);
      }
      QuantizeOptions options = Options("q8_0", QuantizeMethod::kNearest);
      ASSERT_TRUE(QuantizeModel(files, options, Out()).ok());
      const std::string got = FileBytes(Out());
      EXPECT_TRUE(got == bytes || !ordered);
      bytes = got;
      // Calibration runs the model that is read; one expert at a time has room.
      options = Options("i8_g32", QuantizeMethod::kGptq);
      options.calibration_sequences = Sequences(3, 20, 128);
      options.expert_bytes = 1;
      std::filesystem::remove_all(folder);
      const auto report = QuantizeModel(files, options, folder);
      ASSERT_TRUE(report.ok()) << report.status();
      // As in mixtures_test.cc; matrices in another order move logits by their
      // deviation.
      EXPECT_LT(LogitsError(folder, wanted, tokens), 0.1);
    }
  }
}

}  // namespace
}  // namespace inlay
