// What reads and writes blocks beside the codecs, over all codes and
// sub-scales: the packed rows of gemm on the CPU, the elements of blocks as
// devices read them (gemm/quantised/blocks.h), and the grids' packing. And
// plain floats, all 65,536 of both types.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/pack.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/row_floats.h"
#include "tests/support/chosen_blocks.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/quant_layouts.h"
#include "tests/support/rounded_levels.h"
#include "tests/support/sanitized.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockLayout;
using ::inlay::testing::ChosenBlock;
using ::inlay::testing::F16Of;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kSanitized;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::PackedLevelError;
using ::inlay::testing::QuantLevelError;
using ::inlay::testing::ScaleType;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::WithEveryCodec;

double BF16Of(uint32_t bits) {
  const int exponent = bits >> 7 & 255;
  const int mantissa = bits & 127;
  double value = exponent == 0 ? std::ldexp(mantissa, -133)
                               : std::ldexp(128 + mantissa, exponent - 134);
  if (exponent == 255) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> 15 != 0 ? -value : value;
}

TEST(QuantDecodersTest, EveryFloatOf16Bits) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  OnEverySimdTarget([&] {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<float> values(all.size());
      WidenFloats(dtype, reinterpret_cast<const std::byte*>(all.data()), 65536,
                  values.data());
      int wrong = 0;
      for (uint32_t i = 0; i < 65536; ++i) {
        const auto want =
            static_cast<float>(dtype == DType::kF16 ? F16Of(i) : BF16Of(i));
        if (want != want) {
          wrong += values[i] == values[i];
        } else {
          wrong += std::bit_cast<uint32_t>(values[i]) !=
                   std::bit_cast<uint32_t>(want);
        }
      }
      EXPECT_EQ(wrong, 0) << DTypeName(dtype);
    }
  });
}

// Blocks in which all codes meet all sub-scales, and these all minima.
struct SweptBlocks {
  explicit SweptBlocks(
      const BlockCodec& codec,
      const std::function<void(const ChosenBlock&)>& each = nullptr)
      : codec(codec), block(codec) {
    const BlockLayout& layout = block.layout();
    const auto fields = static_cast<int>(layout.codes.size());
    const int subs = std::max(1, static_cast<int>(layout.subs.size()));
    // So that each sub-block has each sub-scale.
    const bool has_mins = !layout.sub_mins.empty();
    const bool is_f32 = layout.type == ScaleType::kF32;
    // Fields of a sub-block have neighbouring codes; of codewords all fields'
    // are enough.
    const bool words = layout.codes[0].elements.size() > 1;
    const int code_step = words ? fields : std::max(1, fields / subs);
    const bool is_e4m3 = std::isnan(layout.level(block.codes() - 1, 0));
    int next = 0;
    for (int code = 0; code < block.codes(); code += code_step) {
      for (int sub = 0; sub < block.subs(); sub += has_mins ? subs : 1) {
        for (int min = 0; min < block.sub_mins(); ++min, ++next) {
          block.SetCodes(code, 5 * next);
          // Times the zeros of x NaN would be in all of y.
          for (int f = 0; is_e4m3 && f < fields; ++f) {
            if (((code + f) & 127) == 127)
              block.SetCode(static_cast<size_t>(f), 0);
          }
          block.SetSubs(sub, min);
          constexpr uint32_t kF16[] = {0x3c00, 0x3555, 0xa9f1, 0x1c03};
          constexpr uint32_t kF32[] = {0x3f800000, 0x3eaaaaab, 0xbd3f1234,
                                       0x3b8123ff};
          const int i = next % 4;
          const bool is_e8m0 = layout.type == ScaleType::kE8M0;
          block.SetScale(is_e8m0  ? 120 + static_cast<uint32_t>(i)
                         : is_f32 ? kF32[i]
                                  : kF16[i]);
          block.SetMin(is_f32 ? kF32[(i + 1) % 4] : kF16[(i + 1) % 4]);
          bytes.insert(bytes.end(), block.bytes(),
                       block.bytes() + layout.bytes);
          for (int e = 0; e < layout.elements; ++e) {
            magnitude.push_back(block.Magnitude(e));
          }
          ++count;
          if (each != nullptr) each(block);
        }
      }
    }
    values.resize(static_cast<size_t>(count * layout.elements));
    codec.decode(bytes.data(), count, values.data());
  }

  const BlockCodec& codec;
  ChosenBlock block;
  int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<float> values;
  // What is added up to a value.
  std::vector<double> magnitude;
};

// x times n blocks, packed.
TestMatrix RunPacked(const GemmRow& row, const GemmDesc& desc, TestMatrix& x,
                     const std::vector<std::byte>& blocks, const TestCpu& cpu) {
  const auto align = [](std::vector<std::byte>& bytes) {
    return bytes.data() + 63 -
           (reinterpret_cast<uintptr_t>(bytes.data()) + 63) % 64;
  };
  const WeightPacking<GemmDesc>& packing = *row.packing(desc);
  std::vector<std::byte> packed(packing.bytes(desc) + 64);
  packing.pack(desc, blocks.data(), 0, desc.n, align(packed));
  TestMatrix y(DType::kF32, x.rows(), desc.n);
  GemmParams params;
  params.x = x.view();
  params.w = MatrixView(align(packed), desc.weight, desc.n, desc.k);
  params.y = y.view();
  std::vector<std::byte> workspace(row.workspace_bytes(desc, x.rows()) + 64);
  params.workspace = align(workspace);
  EXPECT_TRUE(row.run(desc, params, *cpu.stream).ok());
  return y;
}

// x has 127 in one place of each row: the one value that 8 bits and a scale of
// 1 hold as it is, so that y is 127 times a weight. Levels may lie from an
// offset on, which is subtracted apart: twice the largest level times the scale
// is rounded, once it is, and so is what is left. (A minimum takes the offset's
// place.) Up to two products make the scale and two the weight.
TEST(QuantDecodersTest, PackedRowsDecodeEveryCode) {
  TestCpu cpu(2);
  WithEveryCodec([&](const BlockCodec& codec) {
    const SweptBlocks swept(codec);
    const int64_t k = swept.block.layout().elements;
    const int64_t n = swept.count;
    const GemmDesc desc{n, k, codec.dtype, DType::kF32};
    // Of a level that is rounded: a part of the block's largest.
    const double level_error = 1.001 * PackedLevelError(codec.dtype);
    std::vector<double> most(static_cast<size_t>(n));
    for (size_t at = 0; at < swept.values.size(); ++at) {
      double& of_block = most[at / static_cast<size_t>(k)];
      of_block = std::max(of_block, std::abs(double{swept.values[at]}));
    }
    TestMatrix x(DType::kF32, k, k);
    for (int64_t r = 0; r < k; ++r) {
      for (int64_t c = 0; c < k; ++c) x.Set(r, c, r == c ? 127.0f : 0.0f);
    }
    ForEachCpuRow(GemmTable(), desc, cpu, [&](const GemmRow& row) {
      if (row.packing == nullptr) return;
      const TestMatrix y = RunPacked(row, desc, x, swept.bytes, cpu);
      int64_t wrong = 0;
      std::string first;
      for (int64_t r = 0; r < k; ++r) {
        for (int64_t c = 0; c < n; ++c) {
          const auto at = static_cast<size_t>(c * k + r);
          const double want = 127.0 * swept.values[at];
          const double tolerance =
              127.0 * 1.01 * kUnitF32 *
                  (3.0 * swept.magnitude[at] + 5.0 * std::abs(want / 127.0)) +
              127.0 * level_error * most[static_cast<size_t>(c)];
          if (std::abs(y(r, c) - want) <= tolerance) continue;
          ++wrong;
          if (!first.empty()) continue;
          first = absl::StrCat("row ", c, " element ", r, ": ", y(r, c) / 127.0,
                               ", expected ", want / 127.0);
        }
      }
      EXPECT_EQ(wrong, 0) << "of " << k * n << ", the first: " << first;
    });
  });
}

// The same with all scales, a row of w each, of one code and another; those
// that are infinite or NaN make all of y so.
TEST(QuantDecodersTest, PackedRowsTakeEveryScale) {
  TestCpu cpu(2);
  int formats = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    ChosenBlock block(codec);
    const BlockLayout& layout = block.layout();
    if (layout.type == ScaleType::kF32) return;
    ++formats;
    const bool is_one = layout.type == ScaleType::kOne;
    const int scales = is_one ? block.subs() : block.scales();
    const int step = layout.elements == 256 ? 31 : kSanitized ? 5 : 1;
    const int64_t k = layout.elements;
    constexpr int64_t kRows = 3;
    std::vector<std::byte> bytes;
    std::vector<double> magnitude;
    int64_t n = 0;
    for (int i = 0; i < scales; i += step, ++n) {
      if (n % 16 == 0) block.SetCodes(static_cast<int>(n / 16), 0);
      block.SetSubs(i, i / 7);
      block.SetScale(block.ScaleBits(i));
      block.SetMin(block.ScaleBits((i * 5 + 1) % scales));
      bytes.insert(bytes.end(), block.bytes(), block.bytes() + layout.bytes);
      for (int64_t r = 0; r < kRows; ++r) {
        magnitude.push_back(block.Magnitude(static_cast<int>(r * 11)));
      }
    }
    std::vector<float> values(static_cast<size_t>(n * k));
    codec.decode(bytes.data(), n, values.data());
    TestMatrix x(DType::kF32, kRows, k);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < k; ++c) x.Set(r, c, c == 11 * r ? 127.0f : 0.0f);
    }
    const GemmDesc desc{n, k, codec.dtype, DType::kF32};
    ForEachCpuRow(GemmTable(), desc, cpu, [&](const GemmRow& row) {
      if (row.packing == nullptr) return;
      const TestMatrix y = RunPacked(row, desc, x, bytes, cpu);
      int64_t wrong = 0;
      std::string first;
      for (int64_t c = 0; c < n; ++c) {
        for (int64_t r = 0; r < kRows; ++r) {
          const float value = values[static_cast<size_t>(c * k + 11 * r)];
          const double size = magnitude[static_cast<size_t>(c * kRows + r)];
          const double want = 127.0 * value;
          const double tolerance =
              127.0 * 1.01 * kUnitF32 * (3.0 * size + 5.0 * std::abs(value)) +
              0x1p-140;
          // Of e8m0 the last exponents times 127 are too large.
          const bool is_finite = std::isfinite(size) && size < 0x1p118;
          if (is_finite ? std::abs(y(r, c) - want) <= tolerance
                        : size < 0x1p128 || !std::isfinite(y(r, c))) {
            continue;
          }
          ++wrong;
          if (!first.empty()) continue;
          first = absl::StrCat("row ", c, " element ", r * 11, ": ",
                               y(r, c) / 127.0, ", expected ", value);
        }
      }
      EXPECT_EQ(wrong, 0) << "of " << n * kRows << ", the first: " << first;
    });
  });
  EXPECT_EQ(formats, 23);
}

// scale * level + min, to the bit where there is no minimum. Forms with one
// have levels around zero, so that it takes up half their range: it is rounded,
// so are the product, the sum, and both of the codec's. bnb_fp4's levels are
// integers of 192, by which the scale is divided in two roundings.
TEST(QuantDecodersTest, ElementsOfBlocksAreTheCodecs) {
  WithEveryCodec([](const BlockCodec& codec) {
    const SweptBlocks swept(codec);
    const auto elements = static_cast<size_t>(swept.block.layout().elements);
    const auto bytes = static_cast<size_t>(swept.block.layout().bytes);
    const QuantForm form = QuantFormOf(codec.dtype);
    const QuantGrid grid = QuantGridOf(codec.dtype);
    const double level_error = QuantLevelError(codec.dtype);
    const bool exact =
        !form.has_min && level_error == 0.0 && codec.dtype != DType::kBNB_FP4;
    int64_t wrong = 0;
    std::string first;
    for (size_t at = 0; at < swept.values.size(); ++at) {
      const auto* block = reinterpret_cast<const uint8_t*>(
          swept.bytes.data() + at / elements * bytes);
      const auto e = static_cast<int>(at % elements);
      const QuantScale scale = QuantScaleOf(codec.dtype, block, e);
      const float level =
          QuantLevel(form, QuantCodeOf(codec.dtype, block, e, grid.levels));
      const auto product = static_cast<float>(double{scale.scale} * level);
      const auto got = form.has_min
                           ? static_cast<float>(double{product} + scale.min)
                           : product;
      const float want = swept.values[at];
      const double tolerance =
          1.01 * kUnitF32 * (3.0 * swept.magnitude[at] + 2.0 * std::abs(want)) +
          level_error * std::abs(scale.scale);
      if (exact ? got == want : std::abs(double{got} - want) <= tolerance) {
        continue;
      }
      ++wrong;
      if (!first.empty()) continue;
      first = absl::StrCat("block ", at / elements, " element ", e, ": ", got,
                           ", expected ", want);
    }
    EXPECT_EQ(wrong, 0) << "of " << swept.values.size()
                        << ", the first: " << first;
  });
}

// Grids write each level and each sub-scale where the layout has them: the same
// bytes.
TEST(QuantDecodersTest, GridsPackEveryCode) {
  int grids = 0;
  WithEveryCodec([&](const BlockCodec& codec) {
    const BlockGrid* grid = codec.grid;
    if (grid == nullptr) return;
    ++grids;
    int64_t wrong = 0, count = 0;
    std::vector<int8_t> levels(static_cast<size_t>(grid->elements));
    std::vector<std::byte> packed(static_cast<size_t>(grid->block_bytes));
    const SweptBlocks swept(codec, [&](const ChosenBlock& block) {
      GridScales scales;
      scales.scale[0] = static_cast<float>(block.scale());
      scales.min[0] = static_cast<float>(block.min());
      scales.block_scale = F32ToF16(static_cast<float>(block.scale()));
      scales.block_min =
          F32ToF16(static_cast<float>(block.min() * block.layout().min_factor));
      for (size_t j = 0; j < block.sub_scales().size(); ++j) {
        scales.sub_scales[j] = static_cast<int8_t>(block.sub_scales()[j]);
        scales.sub_mins[j] = static_cast<uint8_t>(block.sub_minima()[j]);
      }
      for (size_t i = 0; i < levels.size(); ++i) {
        levels[i] = static_cast<int8_t>(block.levels()[i]);
      }
      grid->pack(scales, levels.data(), packed.data());
      wrong += std::memcmp(packed.data(), block.bytes(), packed.size()) != 0;
      ++count;
    });
    EXPECT_EQ(wrong, 0) << "of " << count;
    EXPECT_GT(count, 0);
  });
  EXPECT_EQ(grids, 16);
}

}  // namespace
}  // namespace inlay
