// linear_chain with a mixture of experts: every stage against float64, experts
// those that the CPU's routing chooses and all others NaN; equal bits call by
// call and in graphs; a NaN stays in its row; what it refuses.
#if INLAY_HAS_CUDA

#include <cmath>
#include <iterator>
#include <limits>

#include "kernels/linear_chain/chain_shape.h"
#include "kernels/linear_chain/linear_chain.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/linear_chain_util.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

struct MixtureShape {
  int64_t heads, width, inner, qkv;  // `inner` of one expert
  RoutingDesc routing;
  int64_t shared = 0;
  bool shared_gated = false;
  Activation function = Activation::kSilu;  // limits are 1.5
  bool outputs_biased = false;
};

// What lies between two attentions where the MLP is a mixture.
LinearChainDesc WithExperts(DType weight, DType outputs, DType type,
                            DType router, const MixtureShape& shape) {
  LinearChainDesc desc = BetweenAttentions(weight, type, shape.heads,
                                           shape.width, shape.inner, shape.qkv);
  desc.stages[1].experts = ChainExperts::kInput;
  desc.stages[1].function = shape.function;
  desc.stages[1].limit = 1.5f;
  desc.stages[2].experts = ChainExperts::kOutput;
  desc.stages[2].gemm.weight = outputs;
  desc.outputs_biased = shape.outputs_biased;
  desc.routing = shape.routing;
  desc.router = router;
  desc.shared_width = shape.shared;
  desc.shared_gated = shape.shared_gated;
  return desc;
}

constexpr RoutingScore kSoftmax = RoutingScore::kSoftmax;
constexpr RoutingScore kSigmoid = RoutingScore::kSigmoid;
constexpr Activation kClamped = Activation::kClampedSilu;
constexpr Activation kLimited = Activation::kLimitedSilu;
constexpr Activation kCapped = Activation::kCappedSilu;
constexpr GroupScore kBest = GroupScore::kMax;
constexpr GroupScore kTwo = GroupScore::kTopTwo;
// Experts with less work than there are blocks; with outputs of several units
// and more tiles than blocks; more experts than blocks; one of one; as of
// gpt-oss, units that are not full, with biases and limits.
const MixtureShape kShapes[] = {
    {256, 512, 128, 300, {8, 2, kSoftmax, true}},
    {1280, 2304, 384, 431, {20, 4, kSoftmax, false}},
    {512, 512, 384, 640, {128, 8, kSoftmax, true, 1, 1, kBest, 1.5f}},
    {256, 256, 128, 256, {200, 16, kSigmoid, true, 1, 1, kBest, 2.5f}},
    {256, 256, 1280, 256, {1, 1, kSigmoid, false}},
    {512, 512, 256, 256, {264, 8, kSoftmax, true}, 256, true},
    {256, 256, 128, 256, {512, 10, kSoftmax, true}, 512, true},
    {512, 768, 256, 384, {16, 2, kSigmoid, true}, 640},
    {256, 352, 224, 256, {8, 3, kSoftmax, true}, 0, false, kClamped, true},
    {256, 320, 160, 288, {12, 4, kSoftmax, true}, 128, false, kLimited, true},
    {256, 320, 192, 300, {6, 3, kSoftmax, true}, 128, false, kClamped, true},
    {512, 512, 2400, 512, {5, 2, kSoftmax, true}, 0, false, kClamped},
    {256, 320, 160, 288, {12, 4, kSigmoid, true}, 0, false, kCapped},
};
// Groups, smaller and larger than a warp, and more than there are warps.
const MixtureShape kGroupShapes[] = {
    {256, 256, 128, 256, {64, 8, kSigmoid, true, 8, 4, kTwo, 2.5f}, 256},
    {256, 256, 128, 256, {40, 6, kSoftmax, false, 8, 3, kBest, 16.0f}, 256},
    {256, 256, 128, 256, {80, 4, kSigmoid, true, 2, 1, kTwo}},
    {256, 256, 128, 256, {20, 3, kSigmoid, false, 20, 7, kTwo}},
};

void CheckStages(TestChain& chain) {
  const int64_t m = chain.x.rows();
  ChainOutcome before;
  before.hidden = chain.hidden;
  // The experts' stages run together.
  for (size_t s = 0; s < chain.desc.stages.size(); ++s) {
    if (s == 1) chain.PoisonIdle(s, before.hidden);
    const ChainOutcome after =
        s == 1 ? chain.Run(3, 0, m) : chain.Run(s + 1, 0, m);
    if (::testing::Test::HasFatalFailure()) return;
    chain.Check(s, before, after);
    if (s == 1) before.y = after.y;
    if (s != 1) before = after;
  }
}

// Of inputs and outputs.
constexpr DType kFormats[][2] = {
    {DType::kU4_G128, DType::kU4_G128}, {DType::kQ4_0, DType::kQ4_0},
    {DType::kQ4_K, DType::kQ4_K},       {DType::kQ4_K, DType::kQ6_K},
    {DType::kQ4_K, DType::kQ5_K},       {DType::kQ5_K, DType::kQ6_K},
    {DType::kQ5_K, DType::kQ5_K},       {DType::kQ6_K, DType::kQ6_K},
    {DType::kMXFP4, DType::kMXFP4},     {DType::kNVFP4, DType::kNVFP4},
    {DType::kMXFP4, DType::kQ8_0},      {DType::kQ8_0, DType::kMXFP4},
    {DType::kQ8_0, DType::kQ8_0},       {DType::kI8_G128, DType::kI8_G128},
    {DType::kF8_G128, DType::kF8_G128}, {DType::kF8_G32, DType::kF8_G32},
    {DType::kNF4, DType::kNF4},         {DType::kBF16, DType::kBF16},
    {DType::kF16, DType::kF16}};

// Whether shape `i` is tried with formats `f`: those that fit many shapes with
// a third of them, for the host takes long.
bool IsTried(size_t i, size_t f) {
  const MixtureShape& shape = kShapes[i];
  for (const DType dtype : kFormats[f]) {
    const int64_t block =
        IsBlockFormat(dtype) ? GetFormatInfo(dtype).block_elements : 64;
    if (shape.width % block != 0 || shape.inner % block != 0 ||
        shape.shared % block != 0) {
      return false;
    }
  }
  const DType weight = kFormats[f][0];
  const bool is_picky =
      IsBlockFormat(weight) && GetFormatInfo(weight).block_elements == 256;
  return is_picky || (i + f) % 3 == 0;
}

class LinearChainExpertsOfShapeCudaTest
    : public ::testing::TestWithParam<size_t> {};

TEST_P(LinearChainExpertsOfShapeCudaTest, StagesMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 1;  // another one for each shape and formats
  for (size_t i = 0; i <= GetParam(); ++i) {
    const MixtureShape& shape = kShapes[i];
    for (size_t f = 0; f < std::size(kFormats); ++f) {
      if (!IsTried(i, f)) continue;
      const unsigned own = seed++;
      if (i != GetParam()) continue;
      const auto& [weight, outputs] = kFormats[f];
      const DType type = !IsBlockFormat(weight) ? weight
                         : own % 2 != 0         ? DType::kBF16
                                                : DType::kF16;
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(weight) << " " << shape.routing.num_experts
                   << " experts, seed " << own);
      TestChain chain(cuda,
                      WithExperts(weight, outputs, type,
                                  own % 3 == 0 ? DType::kF32 : type, shape),
                      own % 4 < 2 ? 2 : 1, own);
      chain.corrects = own % 2 == 0 && shape.routing.score == kSigmoid;
      ASSERT_EQ(LinearChainRows(chain.desc, cuda.info), 2);
      CheckStages(chain);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearChainExpertsOfShapeCudaTest,
                         ::testing::Range<size_t>(0, std::size(kShapes)));

TEST(LinearChainExpertsCudaTest, ChoosesFromTheBestGroups) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 1;
  for (const MixtureShape& shape : kGroupShapes) {
    for (const int64_t rows : {1, 2}) {
      const DType weight = seed % 2 == 0 ? DType::kQ8_0 : DType::kU4_G128;
      SCOPED_TRACE(::testing::Message()
                   << shape.routing.num_experts << " experts, seed " << seed);
      TestChain chain(
          cuda, WithExperts(weight, weight, DType::kBF16, DType::kBF16, shape),
          rows, seed);
      chain.corrects = seed % 3 != 0 && shape.routing.score == kSigmoid;
      ++seed;
      ASSERT_EQ(LinearChainRows(chain.desc, cuda.info), 2);
      CheckStages(chain);
      if (HasFailure()) return;
    }
  }
}

TEST(LinearChainExpertsCudaTest, CallsAndGraphsHaveTheSameBits) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  // Qwen3-30B-A3B's, with fewer experts.
  const MixtureShape shape = {4096, 2048, 768, 5120, {32, 8, kSoftmax, true}};
  constexpr DType kFormats[][2] = {{DType::kQ4_K, DType::kQ6_K},
                                   {DType::kBF16, DType::kBF16}};
  for (const auto& [weight, outputs] : kFormats) {
    TestChain chain(
        cuda, WithExperts(weight, outputs, DType::kBF16, DType::kF32, shape), 2,
        7);
    for (const int64_t rows : {1, 2}) {
      const int64_t first = 2 - rows;
      const ChainOutcome calls = chain.Run(4, first, rows, 20);
      for (int again = 0; again < 3; ++again) {
        const ChainOutcome graph = chain.Run(4, first, rows, 20, true);
        for (int64_t r = 0; r < rows; ++r) {
          EXPECT_EQ(calls.hidden.RowBits(first + r),
                    graph.hidden.RowBits(first + r));
          EXPECT_EQ(calls.y[1].RowBits(r), graph.y[1].RowBits(r));
          EXPECT_EQ(calls.y[3].RowBits(r), graph.y[3].RowBits(r));
        }
      }
    }
  }
}

// What is wrong with a token ends with it: its weights are NaN, and its slots'
// columns are columns of the other row, too.
TEST(LinearChainExpertsCudaTest, NanStaysInItsRow) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  for (const RoutingScore score : {kSoftmax, kSigmoid}) {
    const MixtureShape shape = {256, 512, 256, 256, {8, 2, score, true},
                                256, true};
    const DType weight = score == kSigmoid ? DType::kBF16 : DType::kQ4_K;
    TestChain chain(
        cuda, WithExperts(weight, weight, DType::kBF16, DType::kBF16, shape), 2,
        11);
    const ChainOutcome want = chain.Run(4, 0, 2);
    for (int64_t bad = 0; bad < 2; ++bad) {
      const float good = chain.hidden(bad, 5);
      chain.hidden.Set(bad, 5, std::numeric_limits<float>::quiet_NaN());
      const ChainOutcome got = chain.Run(4, 0, 2);
      chain.hidden.Set(bad, 5, good);
      EXPECT_TRUE(std::isnan(got.y[3](bad, 0)));
      const int64_t other = 1 - bad;
      EXPECT_EQ(want.hidden.RowBits(other), got.hidden.RowBits(other));
      EXPECT_EQ(want.y[1].RowBits(other), got.y[1].RowBits(other));
      EXPECT_EQ(want.y[3].RowBits(other), got.y[3].RowBits(other));
    }
  }
}

TEST(LinearChainExpertsCudaTest, RefusesWhatItHasNoCodeFor) {
  if (LinearChainTable().empty()) GTEST_SKIP() << "no rows";
  DeviceInfo hopper{DeviceKind::kCuda, "cuda", 90};
  hopper.num_sms = 132;
  const LinearChainRow& row = LinearChainTable().front();
  const auto good = [] {
    return WithExperts(DType::kQ4_K, DType::kQ6_K, DType::kBF16, DType::kBF16,
                       {4096, 2048, 768, 5120, {128, 8, kSoftmax, true}});
  };
  EXPECT_EQ(row.refuses(good(), hopper), nullptr);
  EXPECT_EQ(LinearChainRows(good(), hopper), 2);
  // Two rows of large experts in levels do not pay.
  const MixtureShape large = {4096, 2880, 2880, 5120, {32, 4, kSoftmax, true}};
  const auto rows = [&](DType weight) {
    return LinearChainRows(
        WithExperts(weight, weight, DType::kBF16, DType::kBF16, large), hopper);
  };
  EXPECT_EQ(rows(DType::kMXFP4), 1);
  EXPECT_EQ(rows(DType::kQ4_0), 2);
  const auto refuses = [&](auto change) {
    LinearChainDesc desc = good();
    change(desc);
    return row.refuses(desc, hopper) != nullptr;
  };
  EXPECT_TRUE(refuses([](auto& d) { d.stages.resize(2); }));
  EXPECT_TRUE(refuses([](auto& d) { d.stages.erase(d.stages.begin() + 1); }));
  EXPECT_TRUE(
      refuses([](auto& d) { d.stages[2].experts = ChainExperts::kNone; }));
  EXPECT_TRUE(
      refuses([](auto& d) { d.stages[1].experts = ChainExperts::kNone; }));
  EXPECT_TRUE(refuses([](auto& d) { d.stages[1].gated = false; }));
  EXPECT_TRUE(refuses([](auto& d) { d.stages[2].gemm.k = 512; }));
  const auto with_inner = [](auto& d, int64_t inner) {
    d.stages[1].gemm.n = 2 * inner;
    d.stages[2].gemm.k = inner;
  };
  EXPECT_FALSE(refuses([&](auto& d) { with_inner(d, 800); }));
  EXPECT_TRUE(refuses([&](auto& d) { with_inner(d, 808); }));
  // Floats: of another type, beside codes, rows of half a copy's columns.
  const auto with_weights = [](auto& d, DType dtype) {
    for (LinearChainStage& stage : d.stages) stage.gemm.weight = dtype;
  };
  EXPECT_FALSE(refuses([&](auto& d) { with_weights(d, DType::kBF16); }));
  EXPECT_TRUE(refuses([&](auto& d) { with_weights(d, DType::kF16); }));
  EXPECT_TRUE(refuses([&](auto& d) {
    with_weights(d, DType::kBF16);
    d.stages[3].gemm.weight = DType::kQ4_K;
  }));
  EXPECT_TRUE(refuses([&](auto& d) {
    with_weights(d, DType::kBF16);
    with_inner(d, 800);
  }));
  EXPECT_TRUE(refuses([](auto& d) { d.router = DType::kF16; }));
  EXPECT_TRUE(refuses([](auto& d) { d.routing.top_k = 17; }));
  EXPECT_TRUE(refuses([](auto& d) { d.routing.num_experts = 513; }));
  EXPECT_TRUE(refuses([](auto& d) { d.shared_width = 100; }));
  EXPECT_TRUE(refuses([](auto& d) { d.shared_gated = true; }));
  EXPECT_TRUE(refuses([](auto& d) { d.routing.num_experts = 7; }));
  EXPECT_TRUE(refuses([](auto& d) { d.routing.hashed = true; }));
  EXPECT_TRUE(refuses([](auto& d) { d.routing.scales_experts = true; }));
  const auto with_groups = [](auto& d, int groups, GroupScore score) {
    d.routing.num_groups = groups;
    d.routing.group_score = score;
  };
  EXPECT_FALSE(refuses([&](auto& d) { with_groups(d, 4, kBest); }));
  EXPECT_TRUE(refuses([&](auto& d) { with_groups(d, 4, kTwo); }));
  EXPECT_TRUE(refuses([&](auto& d) {
    with_groups(d, 64, kBest);
    d.routing.top_groups = 8;
  }));
  EXPECT_TRUE(
      refuses([](auto& d) { d.routing.score = RoutingScore::kSqrtSoftplus; }));
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
