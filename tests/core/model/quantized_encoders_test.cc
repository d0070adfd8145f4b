// Every encoder with quantised weights on a CPU: by the rows that are chosen
// states have the same bits alone and beside others, with matrices that read
// the same as one and apart, near those of the scalar ones.
#include "tests/core/model/quantized_encoders.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/support/sanitized.h"

namespace inlay {
namespace {

// As quantized_families_test.cc has it.
constexpr double kInt8States = 2.5 / 127 / 3.464;

class TellsNobody : public InputObserver {
 public:
  void OnInput(std::string_view, const TensorView&) override {}
};

class QuantizedEncoder : public ::testing::TestWithParam<const char*> {
 protected:
  static void Check(const Json& config, DType dtype, double least_share) {
    const DrawnFamily drawn = DrawFamily(config, dtype);
    const auto chosen = RunTexts(drawn.files, nullptr);
    ASSERT_EQ(chosen.size(), EncoderTexts().size());
    if (::inlay::testing::kSanitized) return;  // the rest is arithmetic
    const auto scalar = RunTexts(drawn.files, "cpu_scalar");
    TellsNobody nobody;
    EXPECT_TRUE(RunTexts(drawn.files, nullptr, &nobody) == chosen) << "apart";
    const LogitErrors errors = ErrorsOf(Joined(chosen), Joined(scalar));
    const LogitErrors moved = StatesMovedByBf16(config, false);
    ExpectRounded(errors, moved, kInt8States);
    EXPECT_GT(errors.rms, 0.0) << "inputs are not rounded";
    EXPECT_GT(drawn.share, least_share);
    std::printf(
        "%-27s %-4s in %3.0f %%, states off by %.1e, at most %.1e; rounded to "
        "bf16 %.1e, %.1e\n",
        GetParam(), std::string(DTypeName(dtype)).c_str(), 100 * drawn.share,
        errors.rms, errors.worst, moved.rms, moved.worst);
  }
};

TEST_P(QuantizedEncoder, BlocksOf32) {
  Check(QuantizedEncoderConfig(GetParam(), 64), DType::kQ8_0, 0.95);
}

class QuantizedWideEncoder : public QuantizedEncoder {};

TEST_P(QuantizedWideEncoder, BlocksOf256) {
  Check(QuantizedEncoderConfig(GetParam(), 256), DType::kQ4_K, 0.85);
}

// One of each way to be built; on a GPU all are of that width.
constexpr const char* kWideEncoders[] = {"bert",       "gemma3_embedding",
                                         "gte_labels", "nomic_bert_moe",
                                         "t5_encoder", "deberta_v3_labels"};

INSTANTIATE_TEST_SUITE_P(Models, QuantizedEncoder,
                         ::testing::ValuesIn(kEncoderNames),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

INSTANTIATE_TEST_SUITE_P(Models, QuantizedWideEncoder,
                         ::testing::ValuesIn(kWideEncoders),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
