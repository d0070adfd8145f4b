// Known answers of Philox 4x32-10 from the Random123 distribution
// (kat_vectors).
#include "kernels/sample/philox.h"

#include "gtest/gtest.h"

namespace inlay {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_TRUE(Philox4x32({{0, 0, 0, 0}}, 0, 0) ==
              (PhiloxWords{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  EXPECT_TRUE(Philox4x32({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u) ==
              (PhiloxWords{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  EXPECT_TRUE(Philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                         0xa4093822, 0x299f31d0) ==
              (PhiloxWords{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST(Philox, DrawIsTheFirstTwoWords) {
  EXPECT_EQ(DrawBits(0, 0), 0x6627e8d5e169c58dull);
}

TEST(Philox, DrawReadsAllBitsOfSeedAndIndex) {
  const uint64_t base = DrawBits(1, 1);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(DrawBits(1 ^ (1ull << bit), 1), base) << "seed bit " << bit;
    EXPECT_NE(DrawBits(1, 1 ^ (1ull << bit)), base) << "index bit " << bit;
  }
}

}  // namespace
}  // namespace inlay
