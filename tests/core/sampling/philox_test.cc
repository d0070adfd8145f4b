// Known answers of Philox 4x32-10 from the Random123 distribution
// (kat_vectors).
#include "core/sampling/philox.h"

#include "gtest/gtest.h"

namespace inlay {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformUsesTheFirstTwoWordsAsOne53BitFraction) {
  EXPECT_EQ(UniformOf(0, 0),
            static_cast<double>(0x6627e8d5e169c58dull >> 11) / (1ull << 53));
}

TEST(Philox, UniformReadsAllBitsOfSeedAndIndex) {
  const double base = UniformOf(1, 1);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(UniformOf(1 ^ (1ull << bit), 1), base) << "seed bit " << bit;
    EXPECT_NE(UniformOf(1, 1 ^ (1ull << bit)), base) << "index bit " << bit;
  }
}

}  // namespace
}  // namespace inlay
