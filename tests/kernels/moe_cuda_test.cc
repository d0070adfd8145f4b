// Mixtures of experts on CUDA: sums against the CPU's rows, experts' products
// against float64, in all formats.
#if INLAY_HAS_CUDA

#include <cmath>
#include <random>
#include <utility>

#include "kernels/moe/combine.h"
#include "tests/support/expert_problem.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

void CheckRows(TestCuda& cuda, const ExpertLinearDesc& desc, int64_t tokens,
               int idle, unsigned seed) {
  ExpertProblem problem(cuda, desc, tokens, idle, seed);
  ForEachCudaRow(ExpertLinearTable(), desc, cuda,
                 [&](const ExpertLinearRow& row) {
                   // Those have a test of their own.
                   if (ExpertRounding(row, desc, problem.num_slots()) !=
                       RowRounding::kNone) {
                     return;
                   }
                   const TestMatrix y = problem.Run(row);
                   problem.Check(y);
                   const TestMatrix apart = problem.RunApart(row);
                   for (int64_t s = 0; s < problem.num_slots(); ++s) {
                     ASSERT_EQ(apart.RowBits(s), y.RowBits(s)) << "slot " << s;
                   }
                 });
}

TEST(MoeCudaTest, PlainWeightsMatchFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  const DType kTypes[][2] = {{DType::kBF16, DType::kBF16},
                             {DType::kF16, DType::kF16},
                             {DType::kF32, DType::kF32},
                             {DType::kBF16, DType::kF32}};
  for (const auto& [weight, type] : kTypes) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{33, 47},
                               {16, 32},
                               {70, 288},
                               {129, 1056}}) {
      for (const int64_t tokens : {1, 2, 9, 40, 150}) {
        for (const bool row_a_slot : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << DTypeName(weight) << " x " << DTypeName(type) << " n "
                       << n << " k " << k << " tokens " << tokens << " a slot "
                       << row_a_slot << " seed " << seed);
          const DType output = row_a_slot ? DType::kF32 : type;
          CheckRows(cuda, {{n, k, weight, type, output}, 5, 2, row_a_slot},
                    tokens, 4, seed++);
        }
      }
    }
  }
}

// Each token's rows go to every expert (heads of latent attention).
TEST(MoeCudaTest, EveryExpert) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  const DType kTypes[][2] = {{DType::kBF16, DType::kBF16},
                             {DType::kF32, DType::kF32},
                             {DType::kF32, DType::kBF16}};
  for (const auto& [weight, type] : kTypes) {
    for (const int64_t tokens : {1, 2, 8, 9, 13, 100}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " x " << DTypeName(type)
                     << " tokens " << tokens << " a slot " << row_a_slot);
        CheckRows(cuda, {{48, 96, weight, type, type}, 5, 5, row_a_slot},
                  tokens, 0, seed++);
      }
    }
  }
}

// More experts than a warp has lanes, most of them without a token.
TEST(MoeCudaTest, ManyExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t tokens : {1, 3, 70}) {
    SCOPED_TRACE(tokens);
    CheckRows(cuda, {{40, 64, DType::kBF16, DType::kBF16}, 130, 8}, tokens, 117,
              7);
    CheckRows(cuda, {{40, 64, DType::kF32, DType::kF32}, 130, 8}, tokens, 99,
              8);
  }
}

TEST(MoeCudaTest, EveryBlockFormatMatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    const int64_t block = GetFormatInfo(codec->dtype).block_elements;
    for (const int64_t columns : {1, 300}) {
      const int64_t k = (columns + block - 1) / block * block;
      for (const int64_t tokens : {1, 6, 60, 300}) {
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(codec->dtype) << " x " << DTypeName(type)
                     << " k " << k << " tokens " << tokens << " seed " << seed);
        CheckRows(cuda,
                  {{columns == 1 ? 16 : 53, k, codec->dtype, type,
                    seed % 3 != 0 ? DType::kF32 : type},
                   4,
                   2,
                   seed % 2 != 0},
                  tokens, 3, seed);
        ++seed;
      }
    }
  }
}

// Several blocks of rows and pieces of slots an expert, and experts without a
// slot between them.
TEST(MoeCudaTest, ManySlotsOfQuantisedExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const DType weight :
       {DType::kQ4_K, DType::kQ8_0, DType::kQ6_K, DType::kIQ4_NL,
        DType::kU4_G128, DType::kF8_G128, DType::kMXFP4}) {
    for (const int64_t tokens : {100, 700}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " tokens " << tokens << " a slot "
                     << row_a_slot << " seed " << seed);
        const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
        CheckRows(cuda,
                  {{272, 768, weight, type, row_a_slot ? DType::kF32 : type},
                   37,
                   5,
                   row_a_slot},
                  tokens, tokens == 100 ? 7 : 36, seed);
        ++seed;
      }
    }
  }
}

TEST(MoeCudaTest, ManySlotsOf16BitExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{128, 264}, {2096, 72}, {515, 136}}) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(type) << " n " << n << " k " << k
                     << " a slot " << row_a_slot << " seed " << seed);
        const GemmDesc gemm = {n, k, type, type,
                               row_a_slot ? DType::kF32 : type};
        // 60 to 160 slots an expert: one or two tiles of rows, or less.
        CheckRows(cuda, {gemm, 11, 5, row_a_slot}, row_a_slot ? 198 : 200, 9,
                  seed);
        CheckRows(cuda, {gemm, 3, 3, row_a_slot}, row_a_slot ? 130 : 30, 0,
                  seed++);
      }
    }
  }
}

TEST(MoeCudaTest, BatchInvariantRowsHaveTheSameBitsAlone) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType weight : {DType::kBF16, DType::kF32, DType::kQ4_K}) {
    SCOPED_TRACE(DTypeName(weight));
    const DType type = weight == DType::kF32 ? weight : DType::kBF16;
    ExpertLinearDesc desc = {{48, 512, weight, type, DType::kF32}, 3, 2};
    desc.gemm.batch_invariant = true;
    ExpertProblem problem(cuda, desc, 120, 3, 5);
    ForEachCudaRow(
        ExpertLinearTable(), desc, cuda, [&](const ExpertLinearRow& row) {
          const TestMatrix together = problem.Run(row);
          for (const int64_t t : {0, 1, 57, 119}) {
            const TestMatrix alone = problem.RunAlone(row, t);
            for (int64_t r = 0; r < 2; ++r) {
              EXPECT_EQ(alone.RowBits(r), together.RowBits(2 * t + r)) << t;
            }
          }
        });
  }
}

TEST(MoeCudaTest, CombineMatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t width : {1, 8, 40, 101, 3000}) {
    for (const MoeCombineDesc& desc :
         {MoeCombineDesc{width, 1}, MoeCombineDesc{width, 3, true, false},
          MoeCombineDesc{width, 8, true, true}}) {
      SCOPED_TRACE(::testing::Message() << "width " << width);
      constexpr int64_t kTokens = 5;
      std::mt19937 rng(3);
      const auto random = [&](int64_t rows, int64_t cols, int64_t pad) {
        TestMatrix matrix(DType::kF32, rows, cols, pad);
        matrix.Randomize(rng);
        return matrix;
      };
      TestMatrix x = random(kTokens * desc.top_k, width, 4);
      TestMatrix weights = random(kTokens, desc.top_k, 0);
      TestMatrix shared = random(kTokens, width, 4);
      TestMatrix gate = random(kTokens, 1, 0);
      TestMatrix residual = random(kTokens, width, 4);
      const auto sum = [&](int64_t t, int64_t c, bool magnitude) {
        const auto term = [&](double v) { return magnitude ? std::abs(v) : v; };
        double total = term(residual(t, c));
        for (int r = 0; r < desc.top_k; ++r) {
          total += term(double{weights(t, r)} * x(t * desc.top_k + r, c));
        }
        const double factor =
            desc.gated ? 1 / (1 + std::exp(-double{gate(t, 0)})) : 1.0;
        return total + (desc.shared ? term(factor * shared(t, c)) : 0.0);
      };
      CudaTestMatrix device_x(x), device_weights(weights),
          device_shared(shared), device_gate(gate);
      ForEachCudaRow(
          MoeCombineTable(), desc, cuda, [&](const MoeCombineRow& row) {
            CudaTestMatrix y(residual);  // in place
            MoeCombineParams params;
            params.x = device_x.view();
            params.weights = device_weights.floats();
            if (desc.shared) params.shared = device_shared.view();
            if (desc.gated) params.gate = device_gate.view();
            params.residual = params.y = y.view();
            ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
            // A rounding a term, and six for the gate.
            ExpectClose(
                y.Download(),
                [&](int64_t t, int64_t c) { return sum(t, c, false); },
                [&](int64_t t, int64_t c) {
                  return (desc.top_k + 8) * kUnitF32 * sum(t, c, true);
                });
          });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
