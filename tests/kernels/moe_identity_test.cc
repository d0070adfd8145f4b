// Experts without matrices: they give back what they read, and products of the
// others leave them alone.
#include <cmath>
#include <random>
#include <vector>

#include "kernels/moe/expert_linear.h"
#include "kernels/moe/identity.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/moe_test_util.h"
#if INLAY_HAS_CUDA
#include "tests/support/expert_problem.h"
#endif

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::Routed;
using ::inlay::testing::RouteOnCpu;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
#if INLAY_HAS_CUDA
using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpertProblem;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::TestCuda;
#endif

// Of 7 experts so many have matrices: more than a token goes to, and fewer.
constexpr int kAll = 7;
constexpr int kWithMatrices[] = {5, 2};

bool IsPoisoned(const TestMatrix& y, int64_t row) {
  for (int64_t c = 0; c < y.cols(); ++c) {
    if (!std::isnan(y(row, c))) return false;
  }
  return true;
}

std::vector<int32_t> RandomExperts(int64_t slots, std::mt19937& rng) {
  std::vector<int32_t> experts;
  for (int64_t s = 0; s < slots; ++s) {
    experts.push_back(static_cast<int32_t>(rng() % kAll));
  }
  return experts;
}

void CheckIdentity(const TestMatrix& x, const std::vector<int32_t>& experts,
                   const MoeIdentityDesc& desc, const TestMatrix& y) {
  for (int64_t s = 0; s < y.rows(); ++s) {
    if (experts[static_cast<size_t>(s)] < desc.num_experts) {
      ASSERT_TRUE(IsPoisoned(y, s)) << "slot " << s;
      continue;
    }
    for (int64_t c = 0; c < y.cols(); ++c) {
      ASSERT_EQ(y(s, c), x(s / desc.top_k, c))
          << "slot " << s << " column " << c;
    }
  }
  EXPECT_TRUE(y.PaddingIsPoisoned());
}

TEST(MoeIdentityTest, GivesBackWhatItReads) {
  TestCpu cpu(2);
  std::mt19937 rng(4);
  for (const int64_t tokens : {0, 1, 40}) {
    for (const int64_t width : {1, 9, 64}) {
      for (const int matrices : kWithMatrices) {
        const MoeIdentityDesc desc = {width, 3, matrices};
        TestMatrix x(DType::kF32, tokens, width, 2);
        x.Randomize(rng);
        const std::vector<int32_t> experts = RandomExperts(3 * tokens, rng);
        ForEachCpuRow(MoeIdentityTable(), desc, cpu,
                      [&](const MoeIdentityRow& row) {
                        TestMatrix y(DType::kF32, 3 * tokens, width, 1);
                        const MoeIdentityParams params = {
                            x.view(), experts.data(), y.view()};
                        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                        CheckIdentity(x, experts, desc, y);
                      });
      }
    }
  }
}

// Products of those that have matrices are as if all had: few slots, many, and
// one token's.
TEST(MoeIdentityTest, ProductsLeaveThemAlone) {
  TestCpu cpu(2);
  std::mt19937 rng(4);
  const GemmDesc gemm = {24, 32, DType::kF32};
  std::vector<TestMatrix> matrices;
  std::vector<const std::byte*> each;
  for (int e = 0; e < kAll; ++e) {
    matrices.emplace_back(DType::kF32, gemm.n, gemm.k).Randomize(rng);
  }
  for (TestMatrix& matrix : matrices) each.push_back(matrix.view().data);
  for (const int64_t tokens : {1, 4, 60}) {
    SCOPED_TRACE(tokens);
    TestMatrix logits(DType::kF32, tokens, kAll);
    logits.Randomize(rng);
    const Routed routed = RouteOnCpu({kAll, 3}, logits, nullptr);
    TestMatrix x(DType::kF32, tokens, gemm.k, 4);
    x.Randomize(rng);
    for (const int with_matrices : kWithMatrices) {
      const ExpertLinearDesc desc = {gemm, with_matrices, 3};
      ForEachCpuRow(
          ExpertLinearTable(), desc, cpu, [&](const ExpertLinearRow& row) {
            if (ExpertPacking(row, gemm) != nullptr) return;
            const auto run = [&](int num_experts) {
              ExpertLinearDesc own = desc;
              own.num_experts = num_experts;
              std::vector<std::byte> workspace(
                  row.workspace_bytes(own, tokens));
              TestMatrix y(DType::kF32, 3 * tokens, gemm.n, 1);
              ExpertLinearParams params;
              params.x = x.view();
              params.w.each = each.data();
              params.experts = routed.experts.data();
              params.offsets = routed.offsets.data();
              params.slots = routed.slots.data();
              params.y = y.view();
              params.workspace = workspace.data();
              EXPECT_TRUE(row.run(own, params, *cpu.stream).ok());
              return y;
            };
            const TestMatrix y = run(with_matrices);
            const TestMatrix all = run(kAll);
            for (int64_t s = 0; s < y.rows(); ++s) {
              if (routed.experts[static_cast<size_t>(s)] < with_matrices) {
                ASSERT_EQ(y.RowBits(s), all.RowBits(s)) << "slot " << s;
              } else {
                ASSERT_TRUE(IsPoisoned(y, s)) << "slot " << s;
              }
            }
          });
    }
  }
}

#if INLAY_HAS_CUDA

TEST(MoeIdentityCudaTest, GivesBackWhatItReads) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  std::mt19937 rng(4);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t width : {1, 9, 64, 4104}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(type) << " " << width);
      constexpr int64_t kTokens = 30;
      for (const int matrices : kWithMatrices) {
        const MoeIdentityDesc desc = {width, 3, matrices, type};
        TestMatrix x(type, kTokens, width, 8);
        x.Randomize(rng);
        const std::vector<int32_t> experts = RandomExperts(3 * kTokens, rng);
        CudaTestMatrix device_x(x);
        const CudaBytes device_experts(experts);
        ForEachCudaRow(
            MoeIdentityTable(), desc, cuda, [&](const MoeIdentityRow& row) {
              CudaTestMatrix y(DType::kF32, 3 * kTokens, width, 4);
              const MoeIdentityParams params = {
                  device_x.view(), device_experts.as<int32_t>(), y.view()};
              ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
              CheckIdentity(x, experts, desc, y.Download());
            });
      }
    }
  }
}

// |a - b| / |b| of a row.
double RowError(const TestMatrix& a, const TestMatrix& b, int64_t row) {
  double difference = 0, norm = 0;
  for (int64_t c = 0; c < b.cols(); ++c) {
    difference += std::pow(double{a(row, c)} - b(row, c), 2);
    norm += std::pow(double{b(row, c)}, 2);
  }
  return std::sqrt(difference / norm);
}

// Rows that round x, too. How many experts there are decides among kernels
// whose sums and roundings differ: with fewer than a token goes to, those
// without batch_invariant are near.
TEST(MoeIdentityCudaTest, ProductsLeaveThemAlone) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  const DType kTypes[][2] = {
      {DType::kF32, DType::kF32},      {DType::kF32, DType::kBF16},
      {DType::kBF16, DType::kBF16},    {DType::kQ4_K, DType::kBF16},
      {DType::kU4_G128, DType::kBF16}, {DType::kF8_G128, DType::kBF16},
      {DType::kI8_G128, DType::kBF16}};
  const auto check = [&](const ExpertLinearDesc& all, int matrices,
                         bool same_bits, int64_t tokens) {
    ExpertLinearDesc desc = all;
    desc.num_experts = matrices;
    ExpertProblem problem(cuda, all, tokens, kAll, seed++);
    ForEachCudaRow(
        ExpertLinearTable(), desc, cuda, [&](const ExpertLinearRow& row) {
          const TestMatrix whole = problem.Run(row);
          const TestMatrix y = problem.RunAs(desc, row);
          for (int64_t s = 0; s < problem.num_slots(); ++s) {
            if (problem.ExpertOf(s) >= matrices) {
              ASSERT_TRUE(IsPoisoned(y, s)) << "slot " << s;
            } else if (same_bits) {
              ASSERT_EQ(y.RowBits(s), whole.RowBits(s)) << "slot " << s;
            } else {
              ASSERT_LT(RowError(y, whole, s), 0.1) << "slot " << s;
            }
          }
        });
  };
  for (const auto& [weight, type] : kTypes) {
    // One token; few slots an expert, some and many.
    for (const int64_t tokens : {1, 5, 30, 400}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " tokens " << tokens << " a slot "
                     << row_a_slot << " seed " << seed);
        ExpertLinearDesc all = {
            {64, 256, weight, type, DType::kF32}, kAll, 3, row_a_slot};
        check(all, 5, true, tokens);
        check(all, 2, false, tokens);
        all.gemm.batch_invariant = true;
        check(all, 2, true, tokens);
      }
    }
  }
}

#endif  // INLAY_HAS_CUDA

}  // namespace
}  // namespace inlay
