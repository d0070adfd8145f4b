// kv_write and the codec of KV rows: what decodes is within the derived error
// of what was encoded; every row of the table, on every SIMD target, writes the
// same bytes and no others; what is not finite stays so.
#include "kernels/kv_write/kv_write.h"

#include <algorithm>
#include <functional>

#include "kernels/kv_write/kv_row.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::GetFloat;
using ::inlay::testing::kKvTypes;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::PutFloat;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

constexpr DType kQuantised[] = {DType::kI8, DType::kF8E4M3, DType::kKvQ4};
constexpr int kHeadDims[] = {1, 3, 4, 7, 20, 31, 32, 33, 64, 80, 96, 128, 257};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

std::vector<float> RoundTrip(DType kv, const std::vector<float>& x) {
  const auto dim = static_cast<int>(x.size());
  // Guards either side: the codec writes its row and nothing else.
  const size_t bytes = KvRowBytes(kv, dim);
  std::vector<std::byte> memory(bytes + 32, std::byte{0xee});
  EncodeKvRow(kv, x.data(), dim, memory.data() + 16);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(memory[i], std::byte{0xee});
    EXPECT_EQ(memory[bytes + 16 + i], std::byte{0xee});
  }
  std::vector<float> back(x.size() + 1, -1.0f);
  DecodeKvRow(kv, memory.data() + 16, dim, back.data());
  EXPECT_EQ(back.back(), -1.0f);
  back.pop_back();
  return back;
}

// The most that element i of a decoded row may be off.
double Bound(DType kv, const std::vector<float>& x, size_t i) {
  constexpr double kLeast = kKvLeastScale;
  double most = 0.0;
  for (const float v : x) most = std::max(most, std::abs(double{v}));
  const double magnitude = std::abs(double{x[i]});
  if (kv == DType::kI8) {
    // Half a step; scale, inverse and product are rounded (a code is at most
    // 127), and so is what is decoded.
    return std::max(most / 127, kLeast) * (0.5 + 4 * 127 * kUnitF32) +
           magnitude * kUnitF32 + kTiny;
  }
  if (kv == DType::kF8E4M3) {
    // Three mantissa bits, half a step: 2^-4; subnormals: half of 2^-9 times a
    // scale of at most 2 most / 448. Scaling is exact.
    return std::max(magnitude / 16, std::max(2 * most / 448, kLeast) * 0x1p-10);
  }
  const size_t begin = i / kKvQ4Group * kKvQ4Group;
  const size_t end = std::min(begin + kKvQ4Group, x.size());
  double low = x[begin];
  double high = low;
  for (size_t j = begin; j < end; ++j) {
    low = std::min(low, double{x[j]});
    high = std::max(high, double{x[j]});
  }
  // `least` in bf16 is at most 2^-7 of itself lower; the scale in bf16 at most
  // 2^-7 higher. Half a step, and the roundings: of the difference and the
  // quotient (relative), of the sum that decodes.
  const double range = high - low + std::abs(low) * 0x1p-7;
  const double step = std::max(range / 15, kLeast) * (1 + 0x1p-7);
  return step * (0.5 + 6 * 15 * kUnitF32) +
         2 * (std::abs(low) + range) * kUnitF32 + 0x1p-126;
}

void CheckRow(DType kv, const std::vector<float>& x) {
  const std::vector<float> back = RoundTrip(kv, x);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(std::isfinite(back[i])) << DTypeName(kv) << " " << x[i];
    ASSERT_LE(std::abs(double{back[i]} - double{x[i]}), Bound(kv, x, i))
        << DTypeName(kv) << " head_dim " << x.size() << " element " << i << ": "
        << x[i] << " -> " << back[i];
  }
}

using Draw = std::function<float(std::mt19937&, size_t)>;

// Rows of every kind: ordinary, offset, constant, with an outlier, over all
// magnitudes, huge, tiny and subnormal.
const std::vector<std::pair<const char*, Draw>>& Draws() {
  static const auto* const kDraws = new std::
      vector<std::
                 pair<
                     const char*, Draw>>{{"normal",
                                          [](std::mt19937& rng, size_t) {
                                            return std::normal_distribution<
                                                float>()(rng);
                                          }},
                                         {"offset",
                                          [](std::mt19937& rng, size_t) {
                                            return -100.0f +
                                                   std::normal_distribution<
                                                       float>()(rng);
                                          }},
                                         {"constant",
                                          [](std::mt19937&, size_t) {
                                            return 0.1f;
                                          }},
                                         {"zero",
                                          [](std::mt19937&, size_t i) {
                                            return i % 2 ? 0.0f : -0.0f;
                                          }},
                                         {"outlier",
                                          [](std::mt19937& rng, size_t i) {
                                            return i == 2
                                                       ? 400.0f
                                                       : std::
                                                             normal_distribution<
                                                                 float>()(rng);
                                          }},
                                         {"magnitudes",
                                          [](std::mt19937& rng, size_t) {
                                            const float x = std::ldexp(
                                                1.0f + static_cast<float>(
                                                           rng() % 997) /
                                                           997,
                                                static_cast<int>(rng() % 60) -
                                                    30);
                                            return rng() % 2 == 0 ? x : -x;
                                          }},
                                         {"huge",
                                          [](std::mt19937& rng, size_t) {
                                            const float x =
                                                std::nextafter(0x1p126f, 0.0f);
                                            return rng() % 2 == 0 ? x : -x;
                                          }},
                                         {"tiny",
                                          [](std::mt19937& rng, size_t) {
                                            return std::ldexp(
                                                static_cast<float>(rng() %
                                                                   1000) -
                                                    500,
                                                -130);
                                          }},
                                         {"subnormal",
                                          [](std::mt19937& rng, size_t) {
                                            return kTiny * (static_cast<float>(
                                                                rng() % 100) -
                                                            50);
                                          }}};
  return *kDraws;
}

TEST(KvRowTest, RoundTripsWithinTheBound) {
  std::mt19937 rng(1);
  for (const DType kv : kQuantised) {
    for (const auto& [name, draw] : Draws()) {
      SCOPED_TRACE(name);
      for (const int dim : kHeadDims) {
        for (int repeat = 0; repeat < 20; ++repeat) {
          std::vector<float> x(static_cast<size_t>(dim));
          for (size_t i = 0; i < x.size(); ++i) x[i] = draw(rng, i);
          CheckRow(kv, x);
        }
      }
    }
  }
}

// The extremes keep the ends of the code range: nothing wraps around.
TEST(KvRowTest, EveryMantissaOfTheLargest) {
  for (uint32_t mantissa = 0; mantissa < 0x800000; mantissa += 0x1ff) {
    const auto most = std::bit_cast<float>(0x3f800000u | mantissa);
    for (const DType kv : kQuantised) {
      CheckRow(kv, {most, -most, most / 2, 0.0f});
    }
  }
}

TEST(KvRowTest, F8ScalesAreTheLeastPowersOfTwoThatFit) {
  for (uint32_t bits = 0; bits < kKvNotFiniteBits; bits += 0x3ff7) {
    const auto most = std::bit_cast<float>(bits);
    const KvScale scale = KvF8Scale(most);
    int exponent;
    ASSERT_EQ(std::frexp(scale.scale, &exponent), 0.5f);
    ASSERT_EQ(scale.scale * scale.inverse, 1.0f);
    ASSERT_LE(most * scale.inverse, 448.0f) << most;
    if (scale.scale > kKvLeastScale) {
      ASSERT_GT(most * scale.inverse, 224.0f) << most;
    }
  }
}

TEST(KvRowTest, WhatIsNotFiniteMakesTheRowNan) {
  for (const DType kv : kQuantised) {
    for (const float bad : {kKvNan, -kKvNan, kInf, -kInf, 0x1p126f, -0x1.8p127f,
                            std::numeric_limits<float>::max()}) {
      for (const size_t at : {0, 5, 39}) {
        std::vector<float> x(40, 1.0f);
        x[at] = bad;
        for (const float v : RoundTrip(kv, x)) {
          ASSERT_TRUE(std::isnan(v)) << DTypeName(kv) << " " << bad;
        }
      }
    }
  }
}

// Writes k and v with one row of the table into a poisoned cache.
std::vector<std::byte> Write(const KvWriteRow& row, const KvWriteDesc& desc,
                             const KvLayout& layout, TestMatrix& k,
                             TestMatrix& v, const std::vector<int64_t>& slots,
                             TestCpu& cpu) {
  std::vector<std::byte> storage(layout.block_bytes() * 4, std::byte{0xee});
  const KvLayerView view = layout.LayerView(1, storage.data());
  const KvWriteParams params{k.view(), v.view(), view, slots.data()};
  EXPECT_TRUE(row.run(desc, params, *cpu.stream).ok());
  return storage;
}

std::vector<std::byte> Wanted(const KvWriteDesc& desc, const KvLayout& layout,
                              const TestMatrix& k, const TestMatrix& v,
                              const std::vector<int64_t>& slots) {
  std::vector<std::byte> want(layout.block_bytes() * 4, std::byte{0xee});
  const KvLayerView view = layout.LayerView(1, want.data());
  const auto put = [&](const TestMatrix& from, size_t t, int h, std::byte* to) {
    std::vector<float> x;
    for (int d = 0; d < desc.head_dim; ++d) {
      x.push_back(from(static_cast<int64_t>(t), h * desc.head_dim + d));
    }
    EncodeKvRow(desc.kv, x.data(), desc.head_dim, to);
  };
  for (size_t t = 0; t < slots.size(); ++t) {
    const auto slot = static_cast<int>(slots[t] % layout.block_size());
    for (int h = 0; h < desc.num_kv_heads; ++h) {
      put(k, t, h, view.KeyRow(slots[t] / layout.block_size(), h, slot));
      put(v, t, h, view.ValueRow(slots[t] / layout.block_size(), h, slot));
    }
  }
  return want;
}

// Rows of every kind, with every kind of special value among them.
void FillHard(TestMatrix& matrix, int head_dim, std::mt19937& rng) {
  const float kSpecial[] = {
      kKvNan,    -kKvNan,   kInf,
      -kInf,     0x1p126f,  -0.0f,
      kTiny,     65504.0f,  65519.9f,
      65520.0f,  0x1p-14f,  0x1.ffcp-15f,
      0x1p-24f,  0x1p-25f,  448.0f,
      464.0f,    3.39e38f,  -3.39e38f,
      0x1.01p0f, 0x1.03p0f, -std::bit_cast<float>(0x7f800001u)};
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); c += head_dim) {
      const Draw& draw = Draws()[rng() % Draws().size()].second;
      for (int d = 0; d < head_dim; ++d) {
        matrix.Set(r, c + d, draw(rng, static_cast<size_t>(d)));
      }
      if (rng() % 3 == 0) {
        matrix.Set(r, c + static_cast<int64_t>(rng()) % head_dim,
                   kSpecial[rng() % std::size(kSpecial)]);
      }
    }
  }
}

TEST(KvWriteTest, EveryRowAndTargetWritesTheSameBytes) {
  TestCpu cpu(2);
  const std::vector<int64_t> slots = {5, 0, 31, 16, 17, 18, 7, 8, 9, 24, 30};
  OnEverySimdTarget([&] {
    std::mt19937 rng(3);
    for (const DType kv : kKvTypes) {
      for (const int dim : kHeadDims) {
        const KvWriteDesc desc{3, dim, kv, DType::kF32};
        const KvLayout layout({{3, dim}, {3, dim}}, kv, 8);
        TestMatrix k(DType::kF32, 11, 3 * dim, 3);
        TestMatrix v(DType::kF32, 11, 3 * dim);
        FillHard(k, dim, rng);
        FillHard(v, dim, rng);
        const auto want = Wanted(desc, layout, k, v, slots);
        ForEachCpuRow(KvWriteTable(), desc, cpu, [&](const KvWriteRow& row) {
          const auto got = Write(row, desc, layout, k, v, slots, cpu);
          EXPECT_TRUE(got == want) << DTypeName(kv) << " head_dim " << dim;
        });
      }
    }
  });
}

// What lies behind the keys is left alone.
TEST(KvWriteTest, KeysOnly) {
  TestCpu cpu(2);
  const std::vector<int64_t> slots = {5, 0, 31, 16, 7};
  OnEverySimdTarget([&] {
    std::mt19937 rng(5);
    for (const DType kv : kKvTypes) {
      KvWriteDesc desc{1, 48, kv, DType::kF32};
      desc.keys_only = true;
      const KvLayout layout({{1, 48, 0, 32}, {1, 48, 0, 32}}, kv, 8);
      TestMatrix k(DType::kF32, 5, 48, 3);
      FillHard(k, 48, rng);
      // Values lie where keys do.
      const auto want = Wanted(desc, layout, k, k, slots);
      ForEachCpuRow(KvWriteTable(), desc, cpu, [&](const KvWriteRow& row) {
        std::vector<std::byte> got(layout.block_bytes() * 4, std::byte{0xee});
        KvWriteParams params;
        params.k = k.view();
        params.kv = layout.LayerView(1, got.data());
        params.slots = slots.data();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        EXPECT_TRUE(got == want) << DTypeName(kv);
      });
    }
  });
}

// Against the conversions themselves, not against the codec.
TEST(KvWriteTest, PlainFormatsRoundEachElement) {
  TestCpu cpu(1);
  std::mt19937 rng(4);
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
    const KvWriteDesc desc{1, 20, kv, DType::kF32};
    const KvLayout layout({{1, 20}, {1, 20}}, kv, 8);
    TestMatrix k(DType::kF32, 1, 20);
    TestMatrix v(DType::kF32, 1, 20);
    k.Randomize(rng);
    v.Randomize(rng);
    ForEachCpuRow(KvWriteTable(), desc, cpu, [&](const KvWriteRow& row) {
      auto got = Write(row, desc, layout, k, v, {9}, cpu);
      const KvLayerView view = layout.LayerView(1, got.data());
      for (int d = 0; d < 20; ++d) {
        std::byte want[4];
        PutFloat(kv, want, 0, k(0, d));
        EXPECT_EQ(GetFloat(kv, view.KeyRow(1, 0, 1), d), GetFloat(kv, want, 0));
        PutFloat(kv, want, 0, v(0, d));
        EXPECT_EQ(GetFloat(kv, view.ValueRow(1, 0, 1), d),
                  GetFloat(kv, want, 0));
      }
    });
  }
}

// 16-bit conversions: each vector lane on a sweep of float32's bits.
TEST(KvWriteTest, NarrowsASweepOfAllFloats) {
  TestCpu cpu(1);
  constexpr int kDim = 256;
  OnEverySimdTarget([&] {
    for (const DType kv : {DType::kF16, DType::kBF16}) {
      const KvWriteDesc desc{1, kDim, kv, DType::kF32};
      const KvLayout layout({{1, kDim}, {1, kDim}}, kv, 8);
      uint32_t bits = 0;
      for (int turn = 0; turn < 256; ++turn) {
        TestMatrix k(DType::kF32, 1, kDim);
        for (int d = 0; d < kDim; ++d, bits += 0xfff1) {
          k.Set(0, d, std::bit_cast<float>(bits));
        }
        const auto want = Wanted(desc, layout, k, k, {9});
        ForEachCpuRow(KvWriteTable(), desc, cpu, [&](const KvWriteRow& row) {
          ASSERT_TRUE(Write(row, desc, layout, k, k, {9}, cpu) == want)
              << DTypeName(kv) << " before bits " << bits;
        });
      }
    }
  });
}

TEST(KvWriteTest, RefusesWhatIsNoCacheFormat) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  for (const DType kv : kKvTypes) {
    EXPECT_TRUE(Select("kv_write", KvWriteTable(),
                       KvWriteDesc{1, 8, kv, DType::kF32}, cpu)
                    .ok());
  }
  EXPECT_FALSE(Select("kv_write", KvWriteTable(),
                      KvWriteDesc{1, 8, DType::kI32, DType::kF32}, cpu)
                   .ok());
}

}  // namespace
}  // namespace inlay
