// moe_router's CUDA rows: what is normalised and logits against float64,
// experts and slots against what the CPU's moe_routing makes of those logits;
// outputs start as NaN; and the same bits whatever the other tokens are.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "kernels/moe/router.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/moe_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kBestOfGroup;
using ::inlay::testing::kRoutings;
using ::inlay::testing::kSigmoidScore;
using ::inlay::testing::kSoftmaxScore;
using ::inlay::testing::kTwoOfGroup;
using ::inlay::testing::Rounding;
using ::inlay::testing::Routed;
using ::inlay::testing::RouteOnCpu;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr float kEpsilon = 1e-5f;

struct Types {
  DType activation;
  DType weight;
};
constexpr Types kTypes[] = {{DType::kBF16, DType::kBF16},
                            {DType::kBF16, DType::kF32},
                            {DType::kF16, DType::kF16}};

// A router's weights, and what it gives for any tokens.
class Problem {
 public:
  Problem(const RoutingDesc& routing, int64_t width, Types types,
          unsigned options, TestCuda& cuda)
      : cuda_(cuda),
        rng_(options + static_cast<unsigned>(routing.num_experts + width)),
        norm_(Draw(DType::kF32, 1, width, 1.0f)),
        w_(Draw(types.weight, routing.num_experts, width,
                2.0f / std::sqrt(static_cast<float>(width)))),
        bias_(Draw(DType::kF32, 1, routing.num_experts, 0.5f)),
        correction_(Draw(DType::kF32, 1, routing.num_experts, 0.1f)),
        has_norm_(options % 2 == 0),
        has_bias_(options / 2 % 2 == 1),
        is_corrected_(options / 4 % 2 == 1 &&
                      routing.score != RoutingScore::kSoftmax) {
    desc.routing = routing;
    desc.width = width;
    desc.weight = types.weight;
    desc.activation = types.activation;
  }

  struct Result {
    TestMatrix normalised;
    TestMatrix logits;
    Routed routed;
  };

  TestMatrix Hidden(int64_t tokens) {
    return Draw(DType::kF32, tokens, desc.width, 3.0f);
  }

  Result Run(const MoeRouterRow& row, const TestMatrix& hidden) {
    const int64_t tokens = hidden.rows();
    CudaTestMatrix device_hidden(hidden), device_norm(norm_), device_w(w_),
        device_bias(bias_), device_correction(correction_);
    CudaTestMatrix normalised(desc.activation, tokens, desc.width, 8);
    CudaTestMatrix logits(DType::kF32, tokens, desc.routing.num_experts, 4);
    Routed routed(desc.routing, tokens);
    const CudaBytes experts(routed.experts), weights(routed.weights),
        offsets(routed.offsets), slots(routed.slots);
    MoeRouterParams params;
    params.hidden = device_hidden.view();
    params.norm = has_norm_ ? device_norm.floats() : nullptr;
    params.epsilon = kEpsilon;
    params.normalised = normalised.view();
    params.w = device_w.view();
    params.bias = has_bias_ ? device_bias.floats() : nullptr;
    params.routed.logits = logits.view();
    params.routed.correction =
        is_corrected_ ? device_correction.floats() : nullptr;
    params.routed.experts = experts.as<int32_t>();
    params.routed.weights = weights.as<float>();
    params.routed.offsets = offsets.as<int32_t>();
    params.routed.slots = slots.as<int32_t>();
    EXPECT_TRUE(row.run(desc, params, *cuda_.stream).ok());
    experts.Download(routed.experts.data());
    weights.Download(routed.weights.data());
    offsets.Download(routed.offsets.data());
    slots.Download(routed.slots.data());
    return {normalised.Download(), logits.Download(), std::move(routed)};
  }

  void ExpectNormalised(const TestMatrix& hidden, const Result& got) {
    EXPECT_TRUE(got.normalised.PaddingIsPoisoned());
    for (int64_t t = 0; t < hidden.rows(); ++t) {
      double squares = 0.0;
      for (int64_t i = 0; i < desc.width; ++i) {
        squares += double{hidden(t, i)} * hidden(t, i);
      }
      const double factor =
          1.0 / std::sqrt(squares / static_cast<double>(desc.width) + kEpsilon);
      for (int64_t i = 0; i < desc.width; ++i) {
        const double want =
            hidden(t, i) * factor * (has_norm_ ? norm_(0, i) : 1.0f);
        // The factor's sum of squares and its own operations in float32, and
        // one rounding to the activations' type.
        const double most = Rounding(desc.activation, want) +
                            std::abs(want) * 0x1p-24 *
                                (static_cast<double>(desc.width) / 16.0 + 32.0);
        ASSERT_NEAR(got.normalised(t, i), want, most) << t << ", " << i;
      }
    }
  }

  // Products of what was stored.
  void ExpectLogits(const Result& got) {
    EXPECT_TRUE(got.logits.PaddingIsPoisoned());
    for (int64_t t = 0; t < got.logits.rows(); ++t) {
      for (int64_t e = 0; e < desc.routing.num_experts; ++e) {
        double want = has_bias_ ? bias_(0, e) : 0.0f;
        double sum = std::abs(want);
        for (int64_t i = 0; i < desc.width; ++i) {
          const double product = double{got.normalised(t, i)} * w_(e, i);
          want += product;
          sum += std::abs(product);
        }
        // A warp adds up to 48 mma's, whose sums are cut off at 2^-22 of what
        // is largest; then both warps and 16 slices.
        ASSERT_NEAR(got.logits(t, e), want, sum * 66 * 0x1p-22)
            << t << ", " << e;
      }
    }
  }

  void ExpectRouted(Result& got) {
    const Routed want =
        RouteOnCpu(desc.routing, got.logits,
                   is_corrected_ ? correction_.floats() : nullptr);
    EXPECT_EQ(got.routed.experts, want.experts);
    EXPECT_EQ(got.routed.offsets, want.offsets);
    EXPECT_EQ(got.routed.slots, want.slots);
    for (size_t i = 0; i < want.weights.size(); ++i) {
      if (std::isnan(want.weights[i])) {
        EXPECT_TRUE(std::isnan(got.routed.weights[i])) << i;
      } else {
        // Rounded from float64 on both sides.
        EXPECT_NEAR(got.routed.weights[i], want.weights[i],
                    0x1p-23 * std::abs(want.weights[i]))
            << i;
      }
    }
  }

  void ExpectAll(const TestMatrix& hidden, Result& got) {
    ExpectNormalised(hidden, got);
    ExpectLogits(got);
    ExpectRouted(got);
  }

  // All groups have the same experts, so that they are equally good.
  void RepeatGroups() {
    const int size = desc.routing.num_experts / desc.routing.num_groups;
    for (int64_t e = size; e < desc.routing.num_experts; ++e) {
      bias_.Set(0, e, bias_(0, e % size));
      correction_.Set(0, e, correction_(0, e % size));
      for (int64_t i = 0; i < desc.width; ++i) w_.Set(e, i, w_(e % size, i));
    }
  }

  MoeRouterDesc desc;

 private:
  TestMatrix Draw(DType type, int64_t rows, int64_t cols, float deviation) {
    TestMatrix matrix(type, rows, cols, 8);
    matrix.Randomize(rng_, deviation);
    return matrix;
  }

  TestCuda& cuda_;
  std::mt19937 rng_;
  TestMatrix norm_, w_, bias_, correction_;
  bool has_norm_, has_bias_, is_corrected_;
};

TEST(MoeRouterCudaTest, MatchesFloat64AndTheCpusRouting) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned options = 0;
  for (const RoutingDesc& routing : kRoutings) {
    for (const int64_t width : {16, 256, 2048, 2064, 4096}) {
      for (const Types types : kTypes) {
        Problem problem(routing, width, types, options, cuda);
        constexpr int64_t kTokens[] = {1, 3, 16, 17, 40, 64};
        const int64_t tokens = std::min(kTokens[options++ % std::size(kTokens)],
                                        MoeRouterTokens(problem.desc));
        if (routing.top_k > 16 || MoeRouterTable().front().refuses(
                                      problem.desc, cuda.info) != nullptr) {
          continue;
        }
        SCOPED_TRACE(::testing::Message()
                     << routing.num_experts << " experts, " << routing.top_k
                     << " chosen, width " << width << ", tokens " << tokens
                     << ", options " << options - 1);
        const TestMatrix hidden = problem.Hidden(tokens);
        ForEachCudaRow(MoeRouterTable(), problem.desc, cuda,
                       [&](const MoeRouterRow& row) {
                         Problem::Result got = problem.Run(row, hidden);
                         problem.ExpectAll(hidden, got);
                       });
        if (HasFailure()) return;
      }
    }
  }
}

// Weights that do not lie in shared memory: whole pieces of them and others,
// slices without columns, tiles that are not full, rings with and without room
// for all.
TEST(MoeRouterCudaTest, StreamsWhatDoesNotFit) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr RoutingDesc kGroups = {256, 8, kSigmoidScore, true,
                                   8,   4, kTwoOfGroup,   2.5f};
  constexpr RoutingDesc kFew = {24, 4, kSoftmaxScore, true, 3, 2, kBestOfGroup};
  const struct {
    RoutingDesc routing;
    int64_t width;
    int types;  // of kTypes
    int64_t tokens;
  } kShapes[] = {
      {kGroups, 7168, 0, 3},
      {kGroups, 7168, 1, 9},
      {kGroups, 7168, 2, 33},
      {{384, 8, kSigmoidScore, true}, 7168, 0, 17},
      {{160, 6, kSoftmaxScore, false, 8, 3, kBestOfGroup}, 5120, 1, 4},
      {{512, 10, kSoftmaxScore, true}, 2048, 0, 18},
      {{512, 16, kSigmoidScore, false}, 16, 1, 2},
      {{128, 8, kSoftmaxScore, true}, 4096, 1, 1},
      {kFew, 5136, 0, 64},
      {kFew, 8192, 1, 64},
  };
  unsigned options = 0;
  for (const auto& shape : kShapes) {
    Problem problem(shape.routing, shape.width, kTypes[shape.types], options++,
                    cuda);
    ASSERT_LE(shape.tokens, MoeRouterTokens(problem.desc));
    SCOPED_TRACE(::testing::Message()
                 << shape.routing.num_experts << " experts, width "
                 << shape.width << ", options " << options - 1);
    const TestMatrix hidden = problem.Hidden(shape.tokens);
    ForEachCudaRow(MoeRouterTable(), problem.desc, cuda,
                   [&](const MoeRouterRow& row) {
                     Problem::Result got = problem.Run(row, hidden);
                     problem.ExpectAll(hidden, got);
                   });
    if (HasFailure()) return;
  }
}

TEST(MoeRouterCudaTest, OfEqualGroupsTakesTheFirst) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const size_t routing : {6, 7}) {
    for (const int64_t width : {512, 5120}) {
      Problem problem(kRoutings[routing], width, kTypes[0], 7, cuda);
      problem.RepeatGroups();
      const TestMatrix hidden = problem.Hidden(5);
      ForEachCudaRow(MoeRouterTable(), problem.desc, cuda,
                     [&](const MoeRouterRow& row) {
                       Problem::Result got = problem.Run(row, hidden);
                       problem.ExpectRouted(got);
                       const int64_t most = problem.desc.routing.top_groups *
                                            problem.desc.routing.num_experts /
                                            problem.desc.routing.num_groups;
                       for (const int32_t e : got.routed.experts) {
                         EXPECT_LT(e, most);
                       }
                     });
    }
  }
}

// What models have: none of these is refused.
TEST(MoeRouterCudaTest, ServesPublishedShapes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr struct {
    int experts, top_k;
    int64_t width;
    DType weight;
    int num_groups, top_groups;
  } kShapes[] = {
      {128, 8, 2048, DType::kBF16, 1, 1}, {128, 8, 2048, DType::kF32, 1, 1},
      {128, 8, 4096, DType::kBF16, 1, 1}, {32, 4, 2880, DType::kBF16, 1, 1},
      {128, 4, 2880, DType::kBF16, 1, 1}, {8, 2, 4096, DType::kBF16, 1, 1},
      {60, 4, 2048, DType::kBF16, 1, 1},  {32, 4, 2880, DType::kF32, 1, 1},
      {160, 6, 5120, DType::kBF16, 8, 3}, {256, 8, 7168, DType::kBF16, 8, 4},
      {256, 8, 7168, DType::kF32, 8, 4},  {384, 8, 7168, DType::kBF16, 1, 1},
      {160, 8, 5120, DType::kBF16, 1, 1}, {256, 8, 6144, DType::kBF16, 1, 1},
      {128, 8, 4096, DType::kF32, 1, 1},  {512, 10, 2048, DType::kBF16, 1, 1},
  };
  for (const auto& shape : kShapes) {
    MoeRouterDesc desc;
    desc.routing.num_experts = shape.experts;
    desc.routing.top_k = shape.top_k;
    desc.routing.num_groups = shape.num_groups;
    desc.routing.top_groups = shape.top_groups;
    desc.width = shape.width;
    desc.weight = shape.weight;
    desc.activation = DType::kBF16;
    EXPECT_EQ(MoeRouterTable().front().refuses(desc, cuda.info), nullptr)
        << shape.experts << " experts, width " << shape.width;
  }
}

// Weights that stream serve models where that was measured.
TEST(MoeRouterCudaTest, ServesAsManyTokensAsPay) {
  if (MoeRouterTable().empty()) GTEST_SKIP() << "no rows";
  const auto pays = [](int experts, int64_t width, DType weight) {
    MoeRouterDesc desc;
    desc.routing = {experts, 8};
    desc.width = width;
    desc.weight = weight;
    desc.activation = DType::kBF16;
    return MoeRouterTokensThatPay(desc);
  };
  EXPECT_EQ(pays(32, 2880, DType::kBF16), 64);
  EXPECT_EQ(pays(32, 2880, DType::kF32), 64);
  EXPECT_EQ(pays(128, 2048, DType::kBF16), 32);
  EXPECT_EQ(pays(256, 7168, DType::kBF16), 32);
  EXPECT_EQ(pays(256, 7168, DType::kF32), 64);
  EXPECT_EQ(pays(384, 7168, DType::kBF16), 32);
  EXPECT_EQ(pays(512, 2048, DType::kBF16), 16);
}

TEST(MoeRouterCudaTest, TokensAreTheirOwn) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 37;
  constexpr int64_t kBroken = 5;
  for (const int64_t width : {2048, 2880, 7168}) {  // the last one streams
    const RoutingDesc& routing = kRoutings[width == 7168 ? 7 : 3];
    Problem problem(routing, width, kTypes[0], 0, cuda);
    ASSERT_LE(kTokens, MoeRouterTokens(problem.desc));
    ForEachCudaRow(
        MoeRouterTable(), problem.desc, cuda, [&](const MoeRouterRow& row) {
          TestMatrix hidden = problem.Hidden(kTokens);
          hidden.Set(kBroken, 7, std::numeric_limits<float>::quiet_NaN());
          Problem::Result all = problem.Run(row, hidden);
          problem.ExpectRouted(all);
          for (const int64_t t : {0, 4, 6, 15, 16, 36}) {
            TestMatrix one(DType::kF32, 1, width, 8);
            for (int64_t i = 0; i < width; ++i) one.Set(0, i, hidden(t, i));
            const Problem::Result alone = problem.Run(row, one);
            EXPECT_EQ(alone.normalised.RowBits(0), all.normalised.RowBits(t));
            EXPECT_EQ(alone.logits.RowBits(0), all.logits.RowBits(t));
            EXPECT_FALSE(std::isnan(all.logits(t, 0)));
          }
          EXPECT_TRUE(std::isnan(all.logits(kBroken, 0)));
        });
  }
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
