// Weights packed for GPUs (kernels/gemm/quantised): the reference packer
// against the codecs, and places of codes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "kernels/gemm/quantised/pack.h"
#include "tests/support/chosen_blocks.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/rounded_levels.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::ChosenBlock;
using ::inlay::testing::kSanitized;
using ::inlay::testing::QuantLevelError;
using ::inlay::testing::RandomBlocks;
using ::inlay::testing::ScaleType;
using ::inlay::testing::WithEveryCodec;

// Every element has bits of its own, and they lie among the codes.
TEST(QuantisedPackTest, PlacesAreApart) {
  for (const QuantCodes codes :
       {QuantCodes::kLinear4, QuantCodes::kLinear6, QuantCodes::kTable4,
        QuantCodes::kInt8, QuantCodes::kE4M3}) {
    const bool bytes = codes == QuantCodes::kInt8 || codes == QuantCodes::kE4M3;
    std::set<int> bits;
    size_t want = 0;
    const auto put = [&](QuantBits at, int count) {
      for (int i = 0; i < count; ++i) bits.insert(at.byte * 8 + at.shift + i);
      want += static_cast<size_t>(count);
    };
    for (int r = 0; r < kQuantRows; ++r) {
      for (int c = 0; c < kQuantColumns; ++c) {
        put(QuantCodeAt(codes, r, c), bytes ? 8 : 4);
        if (codes == QuantCodes::kLinear6) put(QuantHighAt(r, c), 2);
      }
    }
    EXPECT_EQ(bits.size(), want);
    EXPECT_EQ(want, static_cast<size_t>(QuantCodeBytes(codes)) * 8);
    EXPECT_EQ(*bits.rbegin(), QuantCodeBytes(codes) * 8 - 1);
  }
}

// f16 rounds scale and min, each by half a unit of its last place at most;
// below its normal numbers by 2^-25, where the largest of a row is at least
// 2^13: by 2^-38 of that, times a level of at most 128 (of e4m3 448) and once
// more for min, below 2^-29. Of nf4 levels are rounded as well.
TEST(QuantisedPackTest, UnpacksToWhatTheCodecDecodes) {
  std::mt19937 rng(1);
  for (const BlockCodec* codec : BlockCodecs()) {
    SCOPED_TRACE(DTypeName(codec->dtype));
    const FormatInfo& format = GetFormatInfo(codec->dtype);
    constexpr int64_t kRows = 37;
    const int64_t blocks = format.block_elements == 256 ? 3 : 13;
    const int64_t k = blocks * format.block_elements;
    const QuantMatrix matrix(codec->dtype, k);
    const auto rows = RandomBlocks(*codec, kRows * blocks, rng);
    std::vector<float> want(static_cast<size_t>(kRows * k));
    codec->decode(rows.data(), kRows * blocks, want.data());
    std::vector<std::byte> packed(
        static_cast<size_t>(QuantBytes(matrix.form, kRows, k)),
        std::byte{0xff});
    // In two pieces, as a loader may.
    const size_t row_bytes = RowBytes(codec->dtype, static_cast<size_t>(k));
    PackQuantised(matrix, rows.data(), 0, 16, packed.data());
    PackQuantised(matrix, rows.data() + 16 * row_bytes, 16, kRows - 16,
                  packed.data());
    std::vector<float> got(static_cast<size_t>(k));
    for (int64_t r = 0; r < kRows; ++r) {
      UnpackQuantisedRow(matrix, packed.data(), r, got.data());
      float most = 0.0f;
      for (int64_t c = 0; c < k; ++c) {
        most = std::max(most, std::abs(want[static_cast<size_t>(r * k + c)]));
      }
      for (int64_t c = 0; c < k; ++c) {
        const float expected = want[static_cast<size_t>(r * k + c)];
        const auto* block = reinterpret_cast<const uint8_t*>(rows.data());
        const QuantScale scale =
            matrix.Scale(block, r, c / matrix.form.group * matrix.form.group);
        const float unit = std::abs(expected - scale.min) + std::abs(scale.min);
        const double levels =
            QuantLevelError(codec->dtype) * double{std::abs(scale.scale)};
        ASSERT_NEAR(got[static_cast<size_t>(c)], expected,
                    0x1.01p-11f * unit + 0x1p-29f * most + 1.001 * levels)
            << "row " << r << " column " << c;
      }
    }
  }
}

// Where all blocks of a row repeat one factor, f16 holds their own scales, so
// that nothing is rounded but the product with the factor.
TEST(QuantisedPackTest, FactorsOfRowsCostNothing) {
  std::mt19937 rng(2);
  const BlockCodec& codec = *FindBlockCodec(DType::kNVFP4_F32);
  constexpr int64_t kRows = 20;
  constexpr int64_t kBlocks = 5;
  constexpr int64_t kColumns = kBlocks * 64;
  const QuantMatrix matrix(codec.dtype, kColumns);
  for (const float factor : {1.0f, 0.3f, -7.7e-5f, 3.3e-20f, 1.1e20f}) {
    SCOPED_TRACE(factor);
    std::vector<std::byte> rows(kRows * kBlocks * 40);
    for (std::byte& byte : rows) byte = static_cast<std::byte>(rng());
    for (size_t b = 0; b < rows.size(); b += 40) {
      std::memcpy(&rows[b], &factor, sizeof(factor));
    }
    std::vector<float> want(kRows * kColumns);
    codec.decode(rows.data(), kRows * kBlocks, want.data());
    std::vector<std::byte> packed(
        static_cast<size_t>(QuantBytes(matrix.form, kRows, kColumns)));
    PackQuantised(matrix, rows.data(), 0, kRows, packed.data());
    std::vector<float> got(kColumns);
    for (int64_t r = 0; r < kRows; ++r) {
      UnpackQuantisedRow(matrix, packed.data(), r, got.data());
      for (size_t c = 0; c < got.size(); ++c) {
        const float expected = want[static_cast<size_t>(r * kColumns) + c];
        ASSERT_NEAR(got[c], expected, 0x1p-22f * std::abs(expected))
            << "row " << r << " column " << c;
      }
    }
  }
}

// Scales that are f16, e8m0 or ue4m3 lose nothing by a power of two, the least
// ones and what is not finite included: all of them, each with as many codes as
// a block has elements.
TEST(QuantisedPackTest, EveryScaleOfOneIsKept) {
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    ChosenBlock block(codec);
    const auto& layout = block.layout();
    const bool has_subs = !layout.subs.empty();
    if (layout.type == ScaleType::kF32 || !layout.min.empty() ||
        has_subs != (layout.type == ScaleType::kOne)) {
      return;
    }
    ++formats;
    const int scales = has_subs ? block.subs() : block.scales();
    const int step = layout.elements == 256 ? 29 : kSanitized ? 5 : 1;
    std::vector<std::byte> rows;
    int64_t n = 0;
    for (int i = 0; i < scales; i += step, ++n) {
      if (n % 16 == 0) block.SetCodes(static_cast<int>(n / 16) % 16, 0);
      block.SetSubs(i, 0);
      block.SetScale(block.ScaleBits(i));
      rows.insert(rows.end(), block.bytes(), block.bytes() + layout.bytes);
    }
    const int64_t k = layout.elements;
    std::vector<float> want(static_cast<size_t>(n * k)), got(want.size());
    codec.decode(rows.data(), n, want.data());
    const QuantMatrix matrix(codec.dtype, k);
    std::vector<std::byte> packed(
        static_cast<size_t>(QuantBytes(matrix.form, n, k)));
    PackQuantised(matrix, rows.data(), 0, n, packed.data());
    int64_t wrong = 0, first = -1;
    for (int64_t r = 0; r < n; ++r) {
      UnpackQuantisedRow(matrix, packed.data(), r, got.data() + r * k);
      for (int64_t c = r * k; c < (r + 1) * k; ++c) {
        const auto at = static_cast<size_t>(c);
        if (got[at] == want[at] ||
            (std::isnan(got[at]) && std::isnan(want[at]))) {
          continue;
        }
        if (wrong++ == 0) first = c;
      }
    }
    ASSERT_EQ(wrong, 0) << "row " << first / k << " column " << first % k
                        << ": " << got[static_cast<size_t>(first)]
                        << ", expected " << want[static_cast<size_t>(first)];
  });
  EXPECT_EQ(formats, 8);
}

}  // namespace
}  // namespace inlay
