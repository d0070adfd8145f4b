// linear_chain: every stage against a float64 product of what the stages before
// gave; equal bits of a token in every batch, call and graph; what it refuses.
#if INLAY_HAS_CUDA

#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/base/casts.h"
#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/linear_chain.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/linear_chain_util.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

constexpr DType kFormats[] = {
    DType::kU4_G128, DType::kQ4_0,    DType::kQ4_K,  DType::kQ8_0,
    DType::kI8_G32,  DType::kI8_G128, DType::kQ6_K,  DType::kQ5_K,
    DType::kQ5_0,    DType::kIQ4_XS,  DType::kMXFP4, DType::kNVFP4,
    DType::kF8_G128, DType::kF8_G32,  DType::kNF4,   DType::kBNB_FP4};

// `of_stage`: of o, gate and up, down, q and k, v. The last two are columns of
// one matrix.
LinearChainDesc Mixture(const DType (&of_stage)[5], DType type, int64_t heads,
                        int64_t width, int64_t inner, int64_t qk, int64_t v) {
  LinearChainDesc desc =
      BetweenAttentions(of_stage[0], type, heads, width, inner, qk);
  desc.stages.push_back(desc.stages.back());
  desc.stages.back().gemm.n = v;
  desc.stages.back().same_x = true;
  for (size_t s = 0; s < desc.stages.size(); ++s) {
    desc.stages[s].gemm.weight = of_stage[s];
  }
  return desc;
}

constexpr DType kQ4 = DType::kQ4_K, kQ5 = DType::kQ5_K, kQ6 = DType::kQ6_K;
constexpr DType kQ8 = DType::kQ8_0, kMx = DType::kMXFP4;
constexpr DType kMixtures[][5] = {
    {kQ4, kQ4, kQ6, kQ4, kQ6},  // q4_k_m
    {kQ5, kQ5, kQ6, kQ5, kQ6},  // q5_k_m
    {kQ4, kQ4, kQ5, kQ4, kQ5},  // q4_k_s
    {kQ6, kQ4, kQ4, kQ6, kQ4}, {kQ6, kQ6, kQ6, kQ6, kQ6},
    {kQ8, kMx, kMx, kQ8, kQ8},  // as gpt-oss
    {kMx, kQ8, kMx, kMx, kQ8},
};

bool Equal(const TestMatrix& a, int64_t row_a, const TestMatrix& b,
           int64_t row_b) {
  return a.RowBits(row_a) == b.RowBits(row_b);
}

TEST(LinearChainCudaTest, StagesMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 1;
  // heads, width, inner, qkv: less work than warps, some rounds, odd widths,
  // more than one round of gate and up.
  constexpr int64_t kShapes[][4] = {
      {256, 512, 256, 300}, {1280, 768, 2304, 1111}, {512, 256, 21504, 20000}};
  for (const auto& [heads, width, inner, qkv] : kShapes) {
    for (const DType weight : kFormats) {
      // Large ones take the host long.
      if (inner > 20000 && weight != DType::kQ4_0) continue;
      const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
      SCOPED_TRACE(::testing::Message() << DTypeName(weight) << " x "
                                        << DTypeName(type) << " seed " << seed);
      const int64_t m = inner > 20000 ? 1 : 2;
      TestChain chain(cuda,
                      BetweenAttentions(weight, type, heads, width, inner, qkv),
                      m, seed++);
      ASSERT_GE(LinearChainRows(chain.desc, cuda.info), m);
      ChainOutcome before;
      before.hidden = chain.hidden;
      for (size_t s = 0; s < chain.desc.stages.size(); ++s) {
        const ChainOutcome after = chain.Run(s + 1, 0, m);
        if (HasFatalFailure()) return;
        chain.Check(s, before, after);
        before = after;
      }
    }
  }
}

TEST(LinearChainCudaTest, StagesOfTwoFormatsMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 100;
  // More and fewer tiles of v than of q and k: blocks that have v's alone make
  // their x.
  constexpr int64_t kColumns[][2] = {{512, 300}, {48, 4000}};
  for (const auto& mixture : kMixtures) {
    for (const auto& [qk, v] : kColumns) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
      TestChain chain(cuda, Mixture(mixture, type, 1280, 768, 2304, qk, v), 2,
                      seed++);
      ASSERT_EQ(LinearChainRows(chain.desc, cuda.info), 2);
      ChainOutcome before;
      before.hidden = chain.hidden;
      for (size_t s = 0; s < chain.desc.stages.size(); ++s) {
        const ChainOutcome after = chain.Run(s + 1, 0, 2);
        if (HasFatalFailure()) return;
        chain.Check(s, before, after);
        before = after;
      }
      for (int64_t r = 0; r < 2; ++r) {
        const ChainOutcome alone = chain.Run(5, r, 1);
        ASSERT_TRUE(Equal(before.hidden, r, alone.hidden, r)) << r;
        ASSERT_TRUE(Equal(before.y[3], r, alone.y[3], 0)) << r;
        ASSERT_TRUE(Equal(before.y[4], r, alone.y[4], 0)) << r;
      }
      const ChainOutcome calls = chain.Run(5, 0, 2, 20);
      const ChainOutcome graph = chain.Run(5, 0, 2, 20, true);
      for (int64_t r = 0; r < 2; ++r) {
        ASSERT_TRUE(Equal(calls.hidden, r, graph.hidden, r));
        ASSERT_TRUE(Equal(calls.y[4], r, graph.y[4], r));
      }
    }
  }
}

// A linear layer alone, as a model's head: y in float32, more tiles a block
// than sums have room for at once, an odd number of rows of w.
TEST(LinearChainCudaTest, OneStageMatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 50;
  for (const DType weight : kFormats) {
    for (const int64_t k : {256, 2304}) {
      // Large ones take the host long.
      const int64_t n = k == 256 ? 80003 : 515;
      SCOPED_TRACE(::testing::Message() << DTypeName(weight) << " k " << k);
      LinearChainDesc desc;
      desc.stages.resize(1);
      desc.stages[0].gemm = {n, k, weight, DType::kBF16, DType::kF32};
      TestChain chain(cuda, desc, 2, seed++);
      ASSERT_EQ(chain.Row().refuses(desc, cuda.info), nullptr);
      EXPECT_EQ(LinearChainExchangeBytes(desc), 0u);
      const ChainOutcome both = chain.Run(1, 0, 2);
      if (HasFatalFailure()) return;
      ChainOutcome before;
      before.hidden = chain.hidden;
      chain.Check(0, before, both);
      for (int64_t r = 0; r < 2; ++r) {
        ASSERT_TRUE(Equal(both.y[0], r, chain.Run(1, r, 1).y[0], 0)) << r;
      }
    }
  }
}

TEST(LinearChainCudaTest, TokensHaveTheirBits) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  for (const DType weight :
       {DType::kU4_G128, DType::kQ8_0, DType::kF8_G128, DType::kNF4}) {
    TestChain chain(
        cuda, BetweenAttentions(weight, DType::kBF16, 2048, 2048, 5632, 2560),
        2, 7);
    const int64_t most = LinearChainRows(chain.desc, cuda.info);
    ASSERT_EQ(most, 2);
    const ChainOutcome all = chain.Run(4, 0, most);
    for (int64_t r = 0; r < most; ++r) {
      const ChainOutcome alone = chain.Run(4, r, 1);
      ASSERT_TRUE(Equal(all.hidden, r, alone.hidden, r)) << r;
      ASSERT_TRUE(Equal(all.y[1], r, alone.y[1], 0)) << r;
      ASSERT_TRUE(Equal(all.y[3], r, alone.y[3], 0)) << r;
    }
    // Calls one after another, which add up in hidden; the same as a graph.
    const ChainOutcome calls = chain.Run(4, 0, 2, 20);
    for (int again = 0; again < 3; ++again) {
      const ChainOutcome graph = chain.Run(4, 0, 2, 20, true);
      for (int64_t r = 0; r < 2; ++r) {
        ASSERT_TRUE(Equal(calls.hidden, r, graph.hidden, r));
        ASSERT_TRUE(Equal(calls.y[3], r, graph.y[3], r));
      }
    }
  }
}

// What one launch handed on is not there for those after it, whatever they hand
// on themselves.
TEST(LinearChainCudaTest, ChainsTakeTurnsInOneExchange) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  const auto between = [](int64_t width, int64_t inner) {
    return BetweenAttentions(DType::kU4_G128, DType::kBF16, width, width, inner,
                             width + 512);
  };
  TestChain large(cuda, between(2048, 5632), 2, 11);
  TestChain small(cuda, between(512, 1408), 2, 12);
  struct Launch {
    TestChain& chain;
    size_t stages;
    int64_t rows;
  };
  const Launch launches[] = {{large, 4, 2}, {small, 4, 1}, {large, 4, 1},
                             {large, 2, 2}, {small, 3, 2}, {large, 4, 2},
                             {small, 4, 1}, {small, 4, 2}, {large, 3, 1}};
  std::vector<ChainOutcome> alone;
  for (const Launch& launch : launches) {
    alone.push_back(launch.chain.Run(launch.stages, 0, launch.rows));
  }
  small.ShareExchange(large);
  for (int again = 0; again < 3; ++again) {
    for (size_t i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE(i);
      const Launch& launch = launches[i];
      const ChainOutcome got = launch.chain.Run(launch.stages, 0, launch.rows);
      for (int64_t r = 0; r < launch.rows; ++r) {
        ASSERT_TRUE(Equal(got.hidden, r, alone[i].hidden, r));
        ASSERT_TRUE(Equal(got.y[1], r, alone[i].y[1], r));
      }
    }
  }
}

// Whatever its bits are: those of words that are not there yet are a NaN's.
TEST(LinearChainCudaTest, NanIsHandedOn) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  for (const DType weight : {DType::kU4_G128, DType::kF8_G128}) {
    TestChain chain(
        cuda, BetweenAttentions(weight, DType::kBF16, 512, 512, 1408, 1024), 2,
        13);
    const ChainOutcome good = chain.Run(4, 0, 2);
    for (const uint32_t bits : {0xffffffffu, 0x7fffffffu, 0x7fc00000u}) {
      chain.hidden.Set(0, 5, absl::bit_cast<float>(bits));
      const ChainOutcome got = chain.Run(4, 0, 2);
      EXPECT_TRUE(std::isnan(got.hidden(0, 5)));
      EXPECT_TRUE(std::isnan(got.y[3](0, 0)));
      EXPECT_TRUE(Equal(got.hidden, 1, good.hidden, 1));
      EXPECT_TRUE(Equal(got.y[3], 1, good.y[3], 1));
    }
  }
}

TEST(LinearChainCudaTest, OneStageServesTheRowsThatPay) {
  if (LinearChainTable().empty()) GTEST_SKIP() << "no rows";
  DeviceInfo hopper{DeviceKind::kCuda, "cuda", 90};
  hopper.num_sms = 132;
  LinearChainDesc desc;
  desc.stages.resize(1);
  desc.stages[0].gemm = {4096, 4096, DType::kU4_G128, DType::kBF16,
                         DType::kF32};
  EXPECT_EQ(LinearChainRows(desc, hopper), 2);
  desc.stages[0].gemm.k = 14336;
  EXPECT_EQ(LinearChainRows(desc, hopper), 1);
}

// Where a place of the ring is half of a tile's units, it is always the same
// half: a wait for a place's next copy tells it from the one before only where
// the same warps have waited for that.
TEST(LinearChainCudaTest, PlacesAreAlwaysOfTheSameWarps) {
  if (LinearChainTable().empty()) GTEST_SKIP() << "no rows";
  std::vector<DType> formats(std::begin(kFormats), std::end(kFormats));
  formats.push_back(DType::kBF16);
  for (const DType weight : formats) {
    const int units = ChainPlaceUnits(IsBlockFormat(weight)
                                          ? QuantUnitBytes(QuantFormOf(weight))
                                          : kPlainUnitBytes);
    for (const int64_t inner : {512, 5632, 11008, 14336, 18944, 28672}) {
      for (int m = 1; m <= kChainRows; ++m) {
        ChainShape shape;
        const auto desc =
            BetweenAttentions(weight, DType::kBF16, 4096, 4096, inner, 6144);
        if (!PlaceChain(desc, m, 132, shape)) continue;
        EXPECT_EQ(shape.ring * units % kChainWarps, 0);
        EXPECT_GE(shape.ring * units, 2 * kChainWarps);
        EXPECT_LE(shape.at.bytes, 227u << 10);
      }
    }
  }
}

TEST(LinearChainCudaTest, RefusesWhatItHasNoCodeFor) {
  if (LinearChainTable().empty()) GTEST_SKIP() << "no rows";
  DeviceInfo hopper{DeviceKind::kCuda, "cuda", 90};
  hopper.num_sms = 132;
  const LinearChainRow& row = LinearChainTable().front();
  const auto good = [] {
    return BetweenAttentions(DType::kU4_G128, DType::kBF16, 4096, 4096, 14336,
                             6144);
  };
  EXPECT_EQ(row.refuses(good(), hopper), nullptr);
  EXPECT_EQ(LinearChainRows(good(), hopper), 2);
  // A slice of a GPU: a block has more tiles, and a place for each.
  DeviceInfo slice = hopper;
  slice.num_sms = 1;
  EXPECT_EQ(LinearChainRows(good(), slice), 0);
  EXPECT_NE(row.refuses(good(), slice), nullptr);
  // One with more tiles than a stage counts.
  const auto rows_of = [&](int64_t qkv) {
    return LinearChainRows(
        BetweenAttentions(DType::kU4_G128, DType::kBF16, 128, 128, 128, qkv),
        slice);
  };
  EXPECT_EQ(rows_of(128), 2);
  EXPECT_EQ(rows_of(int64_t{1} << 20), 0);
  // Rows that have no room.
  LinearChainDesc wide = good();
  wide.stages[1].gemm.n = 2 * 40960;
  wide.stages[2].gemm.k = 40960;
  EXPECT_EQ(LinearChainRows(wide, hopper), 1);
  wide.stages[1].gemm.n = 2 * 65536;
  wide.stages[2].gemm.k = 65536;
  EXPECT_EQ(LinearChainRows(wide, hopper), 0);
  EXPECT_NE(row.refuses(wide, hopper), nullptr);
  EXPECT_NE(row.refuses(good(), {DeviceKind::kCuda, "cuda", 80}), nullptr);
  EXPECT_NE(row.refuses(LinearChainDesc(), hopper), nullptr);
  const auto refuses = [&](size_t stage, auto change) {
    LinearChainDesc desc = good();
    change(desc.stages[stage]);
    return row.refuses(desc, hopper) != nullptr;
  };
  const auto refuses_of = [&](const DType(&weights)[5]) {
    const LinearChainDesc desc =
        Mixture(weights, DType::kBF16, 4096, 4096, 14336, 5120, 1024);
    return row.refuses(desc, hopper) != nullptr;
  };
  EXPECT_TRUE(refuses(2, [](auto& s) { s.gemm.weight = DType::kQ4_0; }));
  EXPECT_TRUE(refuses(0, [](auto& s) { s.gemm.weight = DType::kBF16; }));
  EXPECT_TRUE(refuses_of(
      {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16}));
  EXPECT_TRUE(refuses(0, [](auto& s) { s.gemm.weight = DType::kQ6_K; }));
  EXPECT_TRUE(refuses(0, [](auto& s) { s.gemm.weight = DType::kQ2_K; }));
  // Products of floats beside such of integers.
  EXPECT_TRUE(refuses_of({kMx, kMx, DType::kNF4, kMx, kMx}));
  EXPECT_TRUE(refuses_of({DType::kNF4, kQ8, DType::kNF4, kQ8, kQ8}));
  EXPECT_TRUE(refuses_of({DType::kF8_G32, kQ8, kQ8, kQ8, kQ8}));
  EXPECT_TRUE(refuses(0, [](auto& s) { s.same_x = true; }));
  EXPECT_TRUE(refuses(1, [](auto& s) { s.same_x = true; }));
  EXPECT_TRUE(refuses(1, [](auto& s) { s.gemm.permuted = true; }));
  EXPECT_TRUE(refuses(3, [](auto& s) { s.gemm.batch_invariant = true; }));
  EXPECT_TRUE(refuses(1, [](auto& s) { s.gemm.activation = DType::kF16; }));
  EXPECT_TRUE(refuses(0, [](auto& s) { s.gemm.activation = DType::kF32; }));
  EXPECT_TRUE(refuses(1, [](auto& s) { s.gemm.n = 28664; }));
  const auto clamped = [&](float limit) {
    return refuses(1, [limit](auto& s) {
      s.function = Activation::kClampedSilu;
      s.limit = limit;
    });
  };
  EXPECT_FALSE(clamped(7.0f));
  EXPECT_TRUE(clamped(0.0f));
  EXPECT_TRUE(refuses(2, [](auto& s) { s.gemm.n = 2048; }));
  EXPECT_TRUE(refuses(1, [](auto& s) { s.normalised = false; }));
  EXPECT_TRUE(refuses(2, [](auto& s) { s.gemm.k = int64_t{1} << 40; }));
  // Of mixtures.
  const auto refuses_mixture = [&](size_t stage, auto change) {
    LinearChainDesc desc =
        Mixture(kMixtures[0], DType::kBF16, 4096, 4096, 14336, 5120, 1024);
    change(desc.stages[stage]);
    return row.refuses(desc, hopper) != nullptr;
  };
  for (const auto& mixture : kMixtures) {
    const LinearChainDesc desc =
        Mixture(mixture, DType::kBF16, 4096, 4096, 14336, 5120, 1024);
    EXPECT_FALSE(refuses_of(mixture));
    EXPECT_EQ(LinearChainRows(desc, hopper), 2);
  }
  EXPECT_TRUE(refuses_mixture(0, [](auto& s) { s.gemm.weight = kQ5; }));
  EXPECT_TRUE(
      refuses_mixture(2, [](auto& s) { s.gemm.weight = DType::kQ8_0; }));
  EXPECT_TRUE(refuses_mixture(4, [](auto& s) { s.normalised = false; }));
  EXPECT_TRUE(refuses_mixture(4, [](auto& s) { s.gemm.k = 2048; }));
  EXPECT_TRUE(refuses_mixture(4, [](auto& s) { s.adds = true; }));
  EXPECT_TRUE(refuses_mixture(3, [](auto& s) { s.same_x = true; }));
  // Only the last may give float32.
  EXPECT_FALSE(refuses(3, [](auto& s) { s.gemm.output = DType::kF32; }));
  EXPECT_TRUE(refuses(1, [](auto& s) { s.gemm.output = DType::kF32; }));
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
