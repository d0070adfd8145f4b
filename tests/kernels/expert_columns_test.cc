// Rows of x in the order that each expert's matrix has its columns in.
#include "kernels/moe/expert_columns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/kernel_test_util.h"
#if INLAY_HAS_CUDA
#include "tests/support/cuda_test_util.h"
#endif

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
#if INLAY_HAS_CUDA
using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::TestCuda;
#endif

struct ColumnsProblem {
  ColumnsProblem(const ExpertColumnsDesc& desc, int64_t tokens, bool all,
                 unsigned seed)
      : desc(desc),
        slots(tokens * desc.top_k),
        x(desc.activation, desc.row_a_slot ? slots : tokens, desc.width, 4) {
    std::mt19937 rng(seed);
    x.Randomize(rng);
    for (int e = 0; e < desc.num_experts; ++e) {
      const auto begin = static_cast<ptrdiff_t>(orders.size());
      orders.resize(orders.size() + static_cast<size_t>(desc.width));
      std::iota(orders.begin() + begin, orders.end(), 0);
      std::shuffle(orders.begin() + begin, orders.end(), rng);
    }
    // One more than have matrices.
    const auto known = static_cast<uint32_t>(desc.num_experts) + 1;
    for (int64_t s = 0; !all && s < slots; ++s) {
      experts.push_back(static_cast<int32_t>(rng() % known));
    }
  }

  void Check(const TestMatrix& y) const {
    for (int64_t s = 0; s < slots; ++s) {
      const auto expert = static_cast<int64_t>(
          experts.empty() ? s % desc.top_k : experts[static_cast<size_t>(s)]);
      for (int64_t j = 0; j < desc.width; ++j) {
        if (expert >= desc.num_experts) {
          ASSERT_TRUE(std::isnan(y(s, j))) << "slot " << s;
          continue;
        }
        const int64_t row = desc.row_a_slot ? s : s / desc.top_k;
        const int32_t column =
            orders[static_cast<size_t>(expert * desc.width + j)];
        ASSERT_EQ(y(s, j), x(row, column)) << "slot " << s << " column " << j;
      }
    }
    EXPECT_TRUE(y.PaddingIsPoisoned());
  }

  ExpertColumnsDesc desc;
  int64_t slots;
  TestMatrix x;
  std::vector<int32_t> orders;
  std::vector<int32_t> experts;  // empty: each token goes to all
};

// `run(problem)`: with widths that are whole vectors and not, rows a token and
// a slot, experts listed and not.
template <typename Run>
void ForEachColumnsProblem(DType activation, const Run& run) {
  unsigned seed = 1;
  for (const int64_t width : {1, 7, 64, 1104}) {
    for (const int64_t tokens : {0, 1, 20}) {
      for (const bool row_a_slot : {false, true}) {
        for (const bool all : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << DTypeName(activation) << " width " << width
                       << " tokens " << tokens << " a slot " << row_a_slot
                       << " all " << all << " seed " << seed);
          run(ColumnsProblem({width, all ? 3 : 5, 3, row_a_slot, activation},
                             tokens, all, seed++));
        }
      }
    }
  }
}

TEST(ExpertColumnsTest, MovesBits) {
  TestCpu cpu(2);
  ForEachColumnsProblem(DType::kF32, [&](ColumnsProblem problem) {
    ForEachCpuRow(
        ExpertColumnsTable(), problem.desc, cpu,
        [&](const ExpertColumnsRow& row) {
          TestMatrix y(DType::kF32, problem.slots, problem.desc.width, 4);
          ExpertColumnsParams params;
          params.x = problem.x.view();
          params.orders = problem.orders.data();
          params.experts =
              problem.experts.empty() ? nullptr : problem.experts.data();
          params.y = y.view();
          ASSERT_TRUE(row.run(problem.desc, params, *cpu.stream).ok());
          problem.Check(y);
        });
  });
}

#if INLAY_HAS_CUDA

TEST(ExpertColumnsCudaTest, MovesBits) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    ForEachColumnsProblem(type, [&](ColumnsProblem problem) {
      if (problem.slots == 0) return;
      CudaTestMatrix x(problem.x);
      const CudaBytes orders(problem.orders);
      std::vector<int32_t> listed = problem.experts;
      listed.push_back(0);  // not empty
      const CudaBytes experts(listed);
      ForEachCudaRow(
          ExpertColumnsTable(), problem.desc, cuda,
          [&](const ExpertColumnsRow& row) {
            CudaTestMatrix y(type, problem.slots, problem.desc.width, 8);
            ExpertColumnsParams params;
            params.x = x.view();
            params.orders = orders.as<int32_t>();
            params.experts =
                problem.experts.empty() ? nullptr : experts.as<int32_t>();
            params.y = y.view();
            ASSERT_TRUE(row.run(problem.desc, params, *cuda.stream).ok());
            problem.Check(y.Download());
          });
    });
  }
}

#endif  // INLAY_HAS_CUDA

}  // namespace
}  // namespace inlay
