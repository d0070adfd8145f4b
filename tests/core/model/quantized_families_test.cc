// Every family with quantised weights on a CPU: the rows that are chosen give
// the same bits whole and in chunks, with matrices that read the same as one
// and apart, near those of the scalar ones; tokens of mixtures go to the same
// experts, each to some of them.
#include "tests/core/model/quantized_families.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace inlay {
namespace {

// Rows round activations to 8 bits in blocks of 32, by steps of 1/127 of the
// largest, which is some 2.5 deviations: an error of a step / sqrt(12).
constexpr double kInt8Inputs = 2.5 / 127 / 3.464;

class QuantizedFamily : public ::testing::TestWithParam<const char*> {
 protected:
  static void Check(const Json& config, DType dtype) {
    const DrawnFamily drawn = DrawFamily(config, dtype);
    const FamilyReference reference(drawn);
    const auto chosen = RunFamily(drawn.files, nullptr, {1 << 20, 5});
    ASSERT_EQ(chosen[0].size(), FamilyPrompt().size());
    EXPECT_TRUE(chosen[0] == chosen[1]) << "chunks";
    ExpertChoices choices(drawn.files, FamilyPrompt().size());
    const auto apart = RunFamily(drawn.files, nullptr, {1 << 20, 1}, &choices);
    EXPECT_TRUE(apart[0] == chosen[0]) << "apart";
    EXPECT_TRUE(apart[1] == chosen[0]) << "apart, one by one";
    EXPECT_TRUE(choices.tokens() == reference.choices.tokens()) << "experts";
    const LogitErrors errors = ErrorsOf(chosen[0], reference.want);
    const LogitErrors& moved = reference.moved;
    ExpectRounded(errors, moved, kInt8Inputs);
    EXPECT_GT(drawn.share, 0.85);
    std::printf(
        "%-18s %-4s in %3.0f %%, logits off by %.1e, at most %.1e; rounded to "
        "bf16 %.1e, %.1e\n",
        GetParam(), std::string(DTypeName(dtype)).c_str(), 100 * drawn.share,
        errors.rms, errors.worst, moved.rms, moved.worst);
  }
};

TEST_P(QuantizedFamily, BlocksOf32) {
  Check(InWholeBlocks(WithAllKeys(Open(GetParam(), "config.json").config)),
        DType::kQ8_0);
}

TEST_P(QuantizedFamily, BlocksOf256) {
  Check(WithAllKeys(Wider(Open(GetParam(), "config.json").config)),
        DType::kQ4_K);
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedFamily,
                         ::testing::ValuesIn(kDecoderNames),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
