// expert_linear's kernel for some slots an expert (expert_streamed_sm90.cuh).
#if INLAY_HAS_CUDA

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/moe/routing.h"
#include "memory/device/cuda_stream.h"
#include "tests/support/expert_problem.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

bool IsStreamed(const TestCuda& cuda, const ExpertLinearDesc& desc,
                int64_t tokens) {
  return cuda.info.sm == 90 && ExpertRowsAreSome(desc, tokens * desc.top_k);
}

// Pieces of 8 and of 16 slots, experts without a slot, units that K does not
// fill, alone and together. A round has one pair where there are as many
// multiprocessors as Hopper has.
TEST(MoeCudaTest, SomeSlotsOfEveryBlockFormat) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    const int64_t block = GetFormatInfo(codec->dtype).block_elements;
    for (const int64_t columns : {1, 600}) {
      const int64_t k = (columns + block - 1) / block * block;
      // Few columns: tokens in turn.
      const std::vector<int64_t> turns =
          columns == 1 ? std::vector<int64_t>{std::array{1, 7, 24}[seed % 3]}
                       : std::vector<int64_t>{1, 24};
      for (const int64_t tokens : turns) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        const int64_t n = columns == 1 ? 480 : 32;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(codec->dtype) << " x " << DTypeName(type)
                     << " n " << n << " k " << k << " tokens " << tokens
                     << " seed " << seed);
        const ExpertLinearDesc desc = {
            {n, k, codec->dtype, type, seed % 3 != 0 ? DType::kF32 : type},
            5,
            2,
            seed % 4 < 2};
        ASSERT_TRUE(IsStreamed(cuda, desc, tokens) || cuda.info.sm != 90);
        ExpertProblem problem(cuda, desc, tokens, 4, seed);
        ForEachCudaRow(
            ExpertLinearTable(), desc, cuda, [&](const ExpertLinearRow& row) {
              const TestMatrix y = problem.Run(row);
              problem.Check(y);
              const TestMatrix apart = problem.RunApart(row);
              for (int64_t s = 0; s < problem.num_slots(); ++s) {
                ASSERT_EQ(apart.RowBits(s), y.RowBits(s)) << "slot " << s;
              }
              ExpertLinearDesc invariant = desc;
              invariant.gemm.batch_invariant = true;
              const TestMatrix together = problem.RunAs(invariant, row);
              problem.Check(together);
              for (const int64_t t : {int64_t{0}, tokens - 1}) {
                const TestMatrix alone = problem.RunAlone(row, t, &invariant);
                for (int64_t r = 0; r < 2; ++r) {
                  EXPECT_EQ(alone.RowBits(r), together.RowBits(2 * t + r)) << t;
                }
              }
            });
        ++seed;
      }
    }
  }
}

// As many pairs a round as there are warps, and fewer, on 132 multiprocessors;
// blocks whose share ends within a piece, and begins there.
TEST(MoeCudaTest, RoundsOfManyPairs) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 30;
  unsigned seed = 1;
  for (const DType weight : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0,
                             DType::kU4_G128, DType::kF8_G128, DType::kMXFP4}) {
    for (const auto& [experts, n, k] :
         {std::array<int64_t, 3>{64, 1024, 256}, {32, 512, 768}}) {
      const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(weight) << " x " << DTypeName(type) << ", "
                   << experts << " experts, n " << n << " seed " << seed);
      const int num_experts = static_cast<int>(experts);
      const ExpertLinearDesc desc = {
          {n, k, weight, type, DType::kF32}, num_experts, 4};
      ASSERT_TRUE(IsStreamed(cuda, desc, kTokens) || cuda.info.sm != 90);
      ExpertProblem problem(cuda, desc, kTokens, num_experts, seed++);
      const ExpertLinearRow& row = ExpertRowNamed("cuda_quantised");
      const TestMatrix y = problem.Run(row);
      problem.Check(y);
      const TestMatrix apart = problem.RunApart(row);
      for (int64_t s = 0; s < problem.num_slots(); ++s) {
        ASSERT_EQ(apart.RowBits(s), y.RowBits(s)) << "slot " << s;
      }
    }
  }
}

// The same with pieces of 16 slots, and in the order of batch_invariant.
TEST(MoeCudaTest, RoundsOfLargePieces) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 60;
  unsigned seed = 7;
  for (const DType weight : {DType::kQ4_K, DType::kU4_G128, DType::kF8_G128}) {
    const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
    SCOPED_TRACE(::testing::Message() << DTypeName(weight) << " x "
                                      << DTypeName(type) << " seed " << seed);
    const ExpertLinearDesc desc = {
        {512, 768, weight, type, DType::kF32}, 32, 4};
    ASSERT_TRUE(IsStreamed(cuda, desc, kTokens) || cuda.info.sm != 90);
    ExpertProblem problem(cuda, desc, kTokens, 32, seed++);
    const ExpertLinearRow& row = ExpertRowNamed("cuda_quantised");
    const TestMatrix y = problem.Run(row);
    problem.Check(y);
    const TestMatrix apart = problem.RunApart(row);
    ExpertLinearDesc invariant = desc;
    invariant.gemm.batch_invariant = true;
    const TestMatrix together = problem.RunAs(invariant, row);
    problem.Check(together);
    for (int64_t s = 0; s < problem.num_slots(); ++s) {
      ASSERT_EQ(apart.RowBits(s), y.RowBits(s)) << "slot " << s;
    }
    for (const int64_t t : {int64_t{0}, kTokens - 1}) {
      const TestMatrix alone = problem.RunAlone(row, t, &invariant);
      for (int64_t r = 0; r < 4; ++r) {
        EXPECT_EQ(alone.RowBits(r), together.RowBits(4 * t + r)) << t;
      }
    }
  }
}

// Outputs ask for weights before gates and ups have ended (where a block of
// these has: two find no room on a multiprocessor). Tokens go to other experts
// each time, and lists of slots lie where the last ones did.
TEST(MoeCudaTest, OutputsFollowInputsAtOnce) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  constexpr int kExperts = 64, kTopK = 4, kTurns = 60;
  constexpr int64_t kTokens = 30, kWidth = 256, kHidden = 512;
  constexpr size_t kRoutings = 5;
  std::mt19937 rng(3);
  const ExpertLinearDesc input = {
      {2 * kWidth, kHidden, DType::kU4_G128, DType::kBF16, DType::kBF16},
      kExperts,
      kTopK,
      false,
      true};
  const ExpertLinearDesc output = {
      {kHidden, kWidth, DType::kU4_G128, DType::kBF16, DType::kF32},
      kExperts,
      kTopK,
      true};
  ASSERT_TRUE(IsStreamed(cuda, input, kTokens));
  ASSERT_TRUE(IsStreamed(cuda, output, kTokens));
  const Experts inputs(input, rng), outputs(output, rng);
  const CudaBytes input_bytes(inputs.bytes()), output_bytes(outputs.bytes());
  TestMatrix x(DType::kBF16, kTokens, kHidden);
  x.Randomize(rng);
  CudaTestMatrix device_x(x);
  std::vector<std::unique_ptr<CudaTestMatrix>> logits;
  for (size_t i = 0; i < kRoutings; ++i) {
    TestMatrix random(DType::kF32, kTokens, kExperts);
    random.Randomize(rng);
    logits.push_back(std::make_unique<CudaTestMatrix>(random));
  }
  const std::vector<int32_t> zeros(kTokens * kTopK + kExperts + 1);
  const CudaBytes experts(zeros), weights(zeros), offsets(zeros), slots(zeros);
  const RoutingDesc routing = {kExperts, kTopK};
  const auto router = Select("moe_routing", RoutingTable(), routing, cuda.info);
  ASSERT_TRUE(router.ok());
  CudaTestMatrix inner(DType::kBF16, kTokens * kTopK, 2 * kWidth);
  const ExpertLinearRow& row = ExpertRowNamed("cuda_quantised");
  // `waits`: outputs for the end of gates and ups.
  const auto run = [&](size_t i, CudaTestMatrix& y, bool waits) {
    RoutingParams routed;
    routed.logits = logits[i]->view();
    routed.experts = experts.as<int32_t>();
    routed.weights = weights.as<float>();
    routed.offsets = offsets.as<int32_t>();
    routed.slots = slots.as<int32_t>();
    EXPECT_TRUE((*router)->run(routing, routed, *cuda.stream).ok());
    ExpertLinearParams params;
    params.x = device_x.view();
    params.w.base = input_bytes.as<std::byte>();
    params.w.stride_bytes = inputs.stride();
    params.experts = routed.experts;
    params.offsets = routed.offsets;
    params.slots = routed.slots;
    params.y = inner.view();
    EXPECT_TRUE(row.run(input, params, *cuda.stream).ok());
    CudaStream& stream = CudaStream::Of(*cuda.stream);
    EXPECT_TRUE(stream.last_waited_first());
    if (waits) stream.set_last_waited_first(false);
    params.x = inner.view();
    params.x.dims[1] = kWidth;
    params.w.base = output_bytes.as<std::byte>();
    params.w.stride_bytes = outputs.stride();
    params.y = y.view();
    EXPECT_TRUE(row.run(output, params, *cuda.stream).ok());
  };
  std::vector<TestMatrix> wanted;
  for (size_t i = 0; i < kRoutings; ++i) {
    CudaTestMatrix y(DType::kF32, kTokens * kTopK, kHidden);
    run(i, y, true);
    wanted.push_back(y.Download());
  }
  std::vector<std::unique_ptr<CudaTestMatrix>> results;
  for (int turn = 0; turn < kTurns; ++turn) {
    results.push_back(std::make_unique<CudaTestMatrix>(
        DType::kF32, kTokens * kTopK, kHidden));
  }
  for (size_t turn = 0; turn < kTurns; ++turn) {
    run(turn % kRoutings, *results[turn], false);
  }
  for (size_t turn = 0; turn < kTurns; ++turn) {
    SCOPED_TRACE(turn);
    const TestMatrix y = results[turn]->Download();
    for (int64_t s = 0; s < kTokens * kTopK; ++s) {
      ASSERT_EQ(y.RowBits(s), wanted[turn % kRoutings].RowBits(s)) << s;
    }
  }
}

// The bits are those of product and activation apart, whichever kernel makes
// the product.
TEST(MoeCudaTest, GatedExpertsHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const DType weight : {DType::kQ4_0, DType::kQ4_K, DType::kU4_G128,
                             DType::kQ6_K, DType::kQ8_0, DType::kMXFP4}) {
    for (const Activation function :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSilu,
          Activation::kLimitedSilu, Activation::kCappedSilu}) {
      for (const int64_t tokens : {1, 9, 30, 90}) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " x " << DTypeName(type)
                     << " function " << static_cast<int>(function) << " tokens "
                     << tokens << " seed " << seed);
        // Rows of gates that are no multiple of 32, and that are.
        const int64_t width = seed % 3 != 0 ? 72 : 256;
        ExpertLinearDesc desc = {{2 * width, 256, weight, type, type}, 6, 2};
        ExpertProblem problem(cuda, desc, tokens, 5, seed++);
        const ExpertLinearRow& row = ExpertRowNamed("cuda_quantised");
        const TestMatrix apart = problem.RunActivated(row, function);
        desc.gated = true;
        desc.function = function;
        desc.limit = kTestLimit;
        ASSERT_EQ(row.refuses(desc, cuda.info), nullptr);
        const TestMatrix together = problem.RunAs(desc, row);
        for (int64_t s = 0; s < problem.num_slots(); ++s) {
          for (int64_t c = 0; c < width; ++c) {
            ASSERT_EQ(together(s, c), apart(s, c)) << s << ", " << c;
          }
        }
      }
    }
  }
}

// A row of x that is not a number spoils its own slots alone.
TEST(MoeCudaTest, NanStaysInItsSlots) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t k : {512, 544}) {
    const ExpertLinearDesc desc = {
        {64, k, DType::kQ4_0, DType::kBF16, DType::kF32}, 3, 2};
    for (const int64_t tokens : {5, 12}) {
      ExpertProblem problem(cuda, desc, tokens, 3, 11);
      const ExpertLinearRow& row = ExpertRowNamed("cuda_quantised");
      const TestMatrix before = problem.Run(row);
      problem.Spoil(2);
      const TestMatrix after = problem.Run(row);
      for (int64_t s = 0; s < problem.num_slots(); ++s) {
        if (s / 2 == 2) {
          EXPECT_TRUE(std::isnan(after(s, 0))) << s;
        } else {
          EXPECT_EQ(after.RowBits(s), before.RowBits(s)) << s;
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
