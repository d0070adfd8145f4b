// Every codec of formats.def against its published definition
// (quant_layouts.h), over all values of every factor.
//
// A value is ((scale * sub) * level) + min * sub_min, and no factor is decoded
// with an eye to another. What could be wrong is how a factor is read, of which
// all its values tell, at every place that it has, and how two that meet are
// multiplied. So all scales meet all codes (at some sub-scales), all sub-scales
// and minima all codes (at some scales), all minima some scales, and all
// codewords all signs. Wherever the scale is f16, e8m0 or ue4m3 products are
// exact (11 bits of it, 8 of the sub-scale, at most 8 of the level, but 3 where
// there are 8 of the former), and a minimum's, too: float32 rounds the sum
// alone. Scales in float32 are taken as they lie; of these all upper halves are
// tried, and so each exponent and all that is special.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/quant/iq_grids.h"
#include "kernels/quant/quant.h"
#include "tests/support/chosen_blocks.h"
#include "tests/support/quant_layouts.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockBits;
using ::inlay::testing::BlockLayout;
using ::inlay::testing::ChosenBlock;
using ::inlay::testing::CodeField;
using ::inlay::testing::LayoutOf;
using ::inlay::testing::ScaleType;
using ::inlay::testing::WithEveryCodec;

// Other builds prove the arithmetic.
const int kSweepStep = ::inlay::testing::kSanitized ? 9 : 1;

// A few that are ordinary, negative, the least, the largest, and below normal
// ones.
std::vector<uint32_t> SomeNumbers(ScaleType type) {
  if (type == ScaleType::kF32) {
    return {0x3f800000, 0xbeb33333, 1, 0x7f7fffff, 0x80001234, 0x3a83126f};
  }
  return {0x3c00, 0xb59a, 1, 0x7bff, 0x83ff, 0x1419};
}

TEST(QuantExhaustiveTest, EveryBitIsOfOneNumber) {
  WithEveryCodec([](const BlockCodec& codec) {
    const BlockLayout layout = LayoutOf(codec.dtype);
    std::vector<int> uses(static_cast<size_t>(layout.bytes) * 8);
    std::vector<int> coded(static_cast<size_t>(layout.elements));
    const auto use = [&](const BlockBits& bits) {
      for (const int bit : bits) ++uses.at(static_cast<size_t>(bit));
    };
    use(layout.scale);
    use(layout.min);
    for (const BlockBits& bits : layout.subs) use(bits);
    for (const BlockBits& bits : layout.sub_mins) use(bits);
    for (const CodeField& field : layout.signs) use(field.bits);
    for (const CodeField& field : layout.codes) {
      use(field.bits);
      for (const int e : field.elements) ++coded.at(static_cast<size_t>(e));
    }
    EXPECT_EQ(uses, std::vector<int>(uses.size(), 1));
    EXPECT_EQ(coded, std::vector<int>(coded.size(), 1));
  });
}

template <typename Grid>
uint32_t CodebookCrc(const Grid& grid) {  // zlib's
  uint32_t crc = ~0u;
  for (const auto& codeword : grid.codewords) {
    for (const int8_t level : codeword) {
      crc ^= static_cast<uint8_t>(level);
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
      }
    }
  }
  return ~crc;
}

// zlib.crc32 of gguf 0.19.0's (PyPI) gguf.quants.<format>.grid as int8.
TEST(QuantExhaustiveTest, CodebooksAreThePublishedOnes) {
  EXPECT_EQ(CodebookCrc(kIq2XxsGrid), 0x9924ff02u);
  EXPECT_EQ(CodebookCrc(kIq2XsGrid), 0xfa1e1bfdu);
  EXPECT_EQ(CodebookCrc(kIq2SGrid), 0x25ae5bf1u);
  EXPECT_EQ(CodebookCrc(kIq3XxsGrid), 0x07ba9ed0u);
  EXPECT_EQ(CodebookCrc(kIq3SGrid), 0xf576e4f3u);
  EXPECT_EQ(CodebookCrc(kIq1Grid), 0xb85e6ccfu);
}

// QLoRA's quantiles, from 1 - 0.9677083 to 0.9677083, 8 from zero up and 7
// down, as parts of the largest. They were published in float32 as computed in
// it: within two of its steps below 1.
TEST(QuantExhaustiveTest, LevelsOfNf4AreQuantiles) {
  const auto quantile = [](double share) {
    double low = 0.0, high = 8.0;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2.0;
      const bool below = std::erfc(-middle / std::sqrt(2.0)) / 2.0 < share;
      (below ? low : high) = middle;
    }
    return low;
  };
  const double most = quantile(0.9677083);
  for (int i = 0; i < 16; ++i) {
    const int steps = i < 7 ? 7 : 8;  // of a half
    const double share = 0.5 + 0.4677083 * std::abs(i - 7) / steps;
    const double level = quantile(share) / most * (i < 7 ? -1.0 : 1.0);
    EXPECT_NEAR(::inlay::testing::kPublishedNf4[i], i == 7 ? 0.0 : level,
                0x1p-23)
        << i;
  }
}

// Where more codes are than a block has elements, it takes several. Of
// codewords and of bytes of digits one block is all levels.
TEST(QuantExhaustiveTest, AllScalesMeetAllCodes) {
  WithEveryCodec([](const BlockCodec& codec) {
    ChosenBlock block(codec);
    const auto fields = static_cast<int>(block.layout().codes.size());
    const bool words = block.layout().codes[0].elements.size() > 1;
    const int period = words ? block.codes() : std::min(block.codes(), fields);
    const std::vector<uint32_t> mins = SomeNumbers(block.layout().type);
    for (int code = 0; code < block.codes(); ++code) {
      block.SetCodes(code, 5 * code);
      for (int i = code % period; i < block.scales();
           i += period * kSweepStep) {
        block.SetScale(block.ScaleBits(i));
        block.SetMin(mins[static_cast<size_t>(i / period) % mins.size()]);
        block.SetSubs(i / 7, i / 3);
        block.Check();
      }
    }
    block.Expect(int64_t{block.scales()} * block.layout().elements /
                 kSweepStep);
  });
}

TEST(QuantExhaustiveTest, AllMinimaMeetAllCodes) {
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    ChosenBlock block(codec);
    if (block.layout().min.empty()) return;
    ++formats;
    const auto fields = static_cast<int>(block.layout().codes.size());
    const int period = std::min(block.codes(), fields);
    const std::vector<uint32_t> scales = SomeNumbers(block.layout().type);
    for (int code = 0; code < block.codes(); ++code) {
      block.SetCodes(code, 0);
      for (int i = code % period; i < block.scales();
           i += period * kSweepStep) {
        block.SetMin(block.ScaleBits(i));
        block.SetScale(scales[static_cast<size_t>(i / period) % scales.size()]);
        block.SetSubs(i / 3, i / 7);
        block.Check();
      }
    }
    block.Expect(65536 * block.layout().elements / kSweepStep);
  });
  EXPECT_EQ(formats, 9);
}

// In every sub-block, at every element.
TEST(QuantExhaustiveTest, AllSubScalesMeetAllMinimaAndCodes) {
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    ChosenBlock block(codec);
    if (block.layout().subs.empty()) return;
    ++formats;
    const std::vector<uint32_t> scales = SomeNumbers(block.layout().type);
    const int pairs = block.subs() * block.sub_mins();
    for (const bool ordinary : {true, false}) {
      size_t next = 0;
      for (int code = 0; code < block.codes(); ++code) {
        block.SetCodes(code, 3 * code);
        for (int i = code % kSweepStep; i < pairs; i += kSweepStep) {
          block.SetSubs(i % block.subs(), i / block.subs());
          block.SetScale(ordinary ? scales[0] : scales[next % 6]);
          block.SetMin(ordinary ? scales[0] : scales[next / 2 % 6]);
          ++next;
          block.Check();
        }
      }
    }
    block.Expect(int64_t{2} * pairs * block.codes() / kSweepStep);
  });
  EXPECT_EQ(formats, 15);
}

TEST(QuantExhaustiveTest, AllCodewordsMeetAllSigns) {
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    ChosenBlock block(codec);
    if (block.layout().signs.empty()) return;
    ++formats;
    const auto fields = static_cast<int>(block.layout().codes.size());
    block.SetScale(0x3c00);
    block.SetSubs(0, 0);
    for (int code = 0; code < block.codes(); code += fields) {
      for (int sign = 0; sign < block.signs(); ++sign) {
        block.SetCodes(code, sign);
        block.Check();
      }
    }
    block.Expect(int64_t{256} * block.signs() * block.codes() / fields);
  });
  EXPECT_EQ(formats, 7);
}

// Neighbours that are alike above are apart here.
TEST(QuantExhaustiveTest, RandomNumbersEverywhere) {
  WithEveryCodec([](const BlockCodec& codec) {
    ChosenBlock block(codec);
    const BlockLayout& layout = block.layout();
    std::mt19937 rng(3);
    const auto below = [&](int count) {
      return static_cast<int>(rng() % static_cast<unsigned>(count));
    };
    for (int b = 0; b < 256; ++b) {
      for (size_t f = 0; f < layout.codes.size(); ++f) {
        block.SetCode(f, below(block.codes()));
      }
      for (size_t f = 0; f < layout.signs.size(); ++f) {
        block.SetSign(f, below(block.signs()));
      }
      for (size_t j = 0; j < layout.subs.size(); ++j) {
        block.SetSub(j, below(block.subs()));
      }
      for (size_t j = 0; j < layout.sub_mins.size(); ++j) {
        block.SetSubMin(j, below(block.sub_mins()));
      }
      block.SetScale(block.ScaleBits(below(block.scales())));
      block.SetMin(block.ScaleBits(below(block.scales())));
      block.Check();
    }
    block.Expect(256 * layout.elements);
  });
}

}  // namespace
}  // namespace inlay
