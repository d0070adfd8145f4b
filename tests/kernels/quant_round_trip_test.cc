// Encoders given what their formats can hold: the same values come back.
//
// Every format has other blocks that say the same, and its encoder looks for
// scales, so that this holds where they can be found: a block (a sub-block) has
// the extreme codes that its scale (and minimum) follows from, its largest
// sub-scale is the format's, and what it decodes to is not rounded. That is
// what encoders write, but for the largest sub-scale of values that do not fill
// the range.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/quant/quant.h"
#include "tests/support/chosen_blocks.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/quant_layouts.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockLayout;
using ::inlay::testing::ChosenBlock;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::ScaleType;
using ::inlay::testing::WithEveryCodec;

// Codes that no encoder writes: q8_0's range has as many steps on both sides,
// ternary formats three levels, and e4m3 a NaN.
bool IsWritten(DType dtype, int code, double level) {
  if (dtype == DType::kQ8_0) return code != 128;
  if (dtype == DType::kTQ2_0) return code != 3;
  return !std::isnan(level);
}

struct CodecRoundTrip {
  explicit CodecRoundTrip(const BlockCodec& codec)
      : codec(codec), block(codec) {
    const BlockLayout& layout = block.layout();
    is_of_words = layout.codes[0].elements.size() > 1;
    if (!is_of_words) {
      for (int code = 0; code < block.codes(); ++code) {
        const double level = layout.level(code, 0);
        if (!IsWritten(codec.dtype, code, level)) continue;
        written.push_back(code);
        if (level < layout.level(least, 0)) least = code;
        if (level > layout.level(most, 0)) most = code;
      }
      // One of two equal extremes.
      extreme = layout.level(most, 0) > -layout.level(least, 0) ? most : least;
    }
    for (int bits = 0; bits < block.subs(); ++bits) {
      const double sub = std::abs(layout.sub(bits));
      // The negative one of two equally large.
      if (sub > std::abs(layout.sub(largest_sub))) largest_sub = bits;
    }
    values.resize(static_cast<size_t>(layout.elements));
    again = values;
    bytes.resize(static_cast<size_t>(layout.bytes));
  }

  // Codes from the t-th on, with the extremes in each sub-block.
  void SetCodes(int t) {
    const size_t count = block.layout().codes.size();
    const size_t subs = std::max<size_t>(1, block.layout().subs.size());
    const size_t size = count / subs;
    for (size_t f = 0; f < count; ++f) {
      const size_t at = (static_cast<size_t>(t) + f) % written.size();
      block.SetCode(f, written[at]);
    }
    const bool has_min = !block.layout().min.empty();
    for (size_t j = 0; j < subs; ++j) {
      const size_t at = static_cast<size_t>(t) % size;
      block.SetCode(j * size + at, has_min ? least : extreme);
      if (has_min) block.SetCode(j * size + (at + 1) % size, most);
    }
  }
  void SetSubs(int i) {
    if (block.layout().subs.empty()) return;
    block.SetSubs(i, i / 5);
    const int count = static_cast<int>(block.layout().subs.size());
    block.SetSub(static_cast<size_t>(i % count), largest_sub);
    if (block.layout().sub_mins.empty()) return;
    block.SetSubMin(static_cast<size_t>(i / 2 % count), block.sub_mins() - 1);
  }

  // The values may be off by `units` of float32 of the largest.
  void Check(double units) {
    codec.decode(block.bytes(), 1, values.data());
    codec.encode(values.data(), 1, bytes.data());
    codec.decode(bytes.data(), 1, again.data());
    double largest = 0.0;
    for (const float value : values) {
      largest = std::max(largest, std::abs(double{value}));
    }
    int off = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(double{again[i]} - double{values[i]});
      if (!(error <= units * kUnitF32 * largest)) off = static_cast<int>(i);
    }
    ++checked;
    if (off < 0) return;
    ++wrong;
    if (!first.empty()) return;
    first = "element " + std::to_string(off) + ": " +
            std::to_string(again[static_cast<size_t>(off)]) + ", expected " +
            std::to_string(values[static_cast<size_t>(off)]) + ", block";
    for (int i = 0; i < block.layout().bytes; ++i) {
      first += " " + std::to_string(static_cast<int>(block.bytes()[i]));
    }
  }
  void Expect(int64_t least_checked) const {
    EXPECT_EQ(wrong, 0) << "of " << checked << ", the first: " << first;
    EXPECT_GE(checked, least_checked);
  }

  const BlockCodec& codec;
  ChosenBlock block;
  bool is_of_words = false;
  std::vector<int> written;
  int least = 0, most = 0, extreme = 0, largest_sub = 0;
  std::vector<float> values, again;
  std::vector<std::byte> bytes;
  int64_t checked = 0, wrong = 0;
  std::string first;
};

// All scales of f16 that the encoder may write with all codes.
TEST(QuantRoundTripTest, ScalesInF16ComeBack) {
  const int kStep = ::inlay::testing::kSanitized ? 9 : 1;
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    CodecRoundTrip trip(codec);
    const BlockLayout& layout = trip.block.layout();
    if (layout.type != ScaleType::kF16 || !layout.signs.empty()) return;
    ++formats;
    const bool has_min = !layout.min.empty();
    for (int t = 0; t < trip.block.codes(); ++t) {
      if (trip.is_of_words) {
        trip.block.SetCodes(t, 0);
      } else {
        trip.SetCodes(t);
      }
      for (int bits = t; bits < 65536; bits += trip.block.codes() * kStep) {
        // Finite; with a minimum positive.
        if ((bits & 0x7c00) == 0x7c00 || (has_min && bits > 32767)) continue;
        const auto scale = static_cast<uint32_t>(bits);
        trip.block.SetScale(scale);
        // Of the same exponent or beside it: all sums are exact in float32.
        uint32_t min = (scale & 0x7fff) + (scale * 37 & 0x7ff);
        if (min >= 0x7c00) min = scale & 0x7fff;
        if (has_min && layout.min_factor > 0.0) min |= (scale & 1) << 15;
        trip.block.SetMin(min);
        trip.SetSubs(bits / 3);
        trip.Check(0.0);
      }
    }
    // Of each code's scales the last may be left out.
    trip.Expect((has_min ? 31744 : 63488) / kStep -
                (kStep > 1 ? trip.block.codes() : 0));
  });
  EXPECT_EQ(formats, 14);
}

// 2^127 and 2^126 times 6 are infinite.
TEST(QuantRoundTripTest, ExponentsComeBack) {
  CodecRoundTrip trip(*FindBlockCodec(DType::kMXFP4));
  for (int t = 0; t < 16; ++t) {
    trip.SetCodes(t);
    for (uint32_t bits = 0; bits < 253; ++bits) {
      trip.block.SetScale(bits);
      trip.Check(0.0);
    }
  }
  trip.Expect(16 * 253);
}

// Each sub-block has a scale of its own, whatever the others have.
TEST(QuantRoundTripTest, ScalesInE4M3ComeBack) {
  CodecRoundTrip trip(*FindBlockCodec(DType::kNVFP4));
  for (int t = 0; t < 16; ++t) {
    trip.SetCodes(t);
    for (int bits = 0; bits < 256; ++bits) {
      for (int j = 0; j < 4; ++j) {
        trip.block.SetSub(static_cast<size_t>(j), (bits * (2 * j + 1)) % 256);
      }
      trip.Check(0.0);
    }
  }
  trip.Expect(16 * 256);
}

// How far values may be off, in units of float32 of the largest. Each has been
// rounded when it was decoded, and is so again.
//   f8: 448 * scale on the way, and the same / 448.
//   nvfp4_f32: factor * 224, that * 12, and that / 2688; factor * sub-scale is
//   rounded in both decodings, too.
//   u4, i8, of |most| + |least|, which is at most twice the largest: both ends
//   are off by 2 (product and sum), and values between them as much; ends / n,
//   their difference and what n steps make of it: 2; product and sum of the
//   least code, of the values' own, and of those that they were: 2 each.
// Levels of nf4 and bnb_fp4 reach to 1, so that the scale is a value.
double FloatUnits(DType dtype) {
  switch (dtype) {
    case DType::kNF4:
    case DType::kBNB_FP4:
      return 0.0;
    case DType::kF8_G32:
      return 4.01;
    case DType::kNVFP4_F32:
      return 7.01;
    default:
      return 20.01;
  }
}

// Exponents from 2^-100 to 2^100. Scales of 11 bits leave all of f8's and
// nvfp4's steps exact; groups of 128 in f8 have powers of two.
TEST(QuantRoundTripTest, ScalesInFloat32ComeBack) {
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    CodecRoundTrip trip(codec);
    const BlockLayout& layout = trip.block.layout();
    if (layout.type != ScaleType::kF32) return;
    ++formats;
    const int step = trip.block.codes() > 16 ? 131 : 13;
    for (int t = 0; t < static_cast<int>(trip.written.size()); ++t) {
      trip.SetCodes(t);
      for (int i = 27 * 128 + t % step; i < 227 * 128; i += step) {
        for (const bool is_short : {false, true}) {
          uint32_t bits = trip.block.ScaleBits(i);
          if (is_short) bits &= 0xffffe000;
          if (codec.dtype == DType::kF8_G128) bits &= 0xff800000;
          const bool exact =
              codec.dtype == DType::kF8_G128 ||
              (is_short && codec.dtype != DType::kU4_G32 && layout.min.empty());
          trip.block.SetScale(bits);
          // Some codes' distance from zero.
          const float min = std::bit_cast<float>(bits) *
                            static_cast<float>(i % 301 - 150) * 0.17f;
          trip.block.SetMin(std::bit_cast<uint32_t>(min));
          trip.SetSubs(i);
          trip.Check(exact ? 0.0 : FloatUnits(codec.dtype));
        }
      }
    }
    trip.Expect(60000);
  });
  EXPECT_EQ(formats, 9);
}

// All codewords of iq2 and iq3, one of the largest magnitude in each
// sub-block. iq1 promises no such thing: shift and codewords are chosen at
// scales below the one that gives the largest value the largest level, which
// is where Gaussian values have theirs.
TEST(QuantRoundTripTest, CodewordsComeBack) {
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    CodecRoundTrip trip(codec);
    ChosenBlock& block = trip.block;
    const BlockLayout& layout = block.layout();
    if (layout.signs.empty() || block.signs() == 2) return;
    ++formats;
    const auto size = static_cast<int>(layout.codes[0].elements.size());
    const auto has = [&](int code, double level) {
      for (int i = 0; i < size; ++i) {
        if (layout.level(code, i) == level) return true;
      }
      return false;
    };
    double largest = 0.0;
    for (int code = 0; code < block.codes(); ++code) {
      for (int i = 0; i < size; ++i) {
        largest = std::max(largest, layout.level(code, i));
      }
    }
    std::vector<int> with_largest;
    for (int code = 0; code < block.codes(); ++code) {
      if (has(code, largest)) with_largest.push_back(code);
    }
    const size_t fields = layout.codes.size();
    const size_t of_sub = fields / layout.subs.size();
    int t = 0;
    for (int first = 0; first < block.codes();
         first += static_cast<int>(fields / 2)) {
      for (const uint32_t scale : {0x3c00u, 0x1a2bu, 0x6155u, 0x0777u}) {
        std::vector<int> codes;
        for (size_t f = 0; f < fields; ++f) {
          codes.push_back((first + static_cast<int>(f)) % block.codes());
        }
        for (size_t f = 0; f < fields; f += of_sub) {
          const size_t at = f + static_cast<size_t>(t) % of_sub;
          codes[at] =
              with_largest[(f + static_cast<size_t>(t)) % with_largest.size()];
        }
        for (size_t f = 0; f < fields; ++f) block.SetCode(f, codes[f]);
        for (size_t g = 0; g < layout.signs.size(); ++g) {
          block.SetSign(g, (5 * t + 11 * static_cast<int>(g)) % block.signs());
        }
        block.SetScale(scale);
        trip.SetSubs(t);
        trip.Check(0.0);
        ++t;
      }
    }
    trip.Expect(32);
  });
  EXPECT_EQ(formats, 5);
}

}  // namespace
}  // namespace inlay
