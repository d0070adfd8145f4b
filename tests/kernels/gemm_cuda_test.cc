// gemm's CUDA rows against a float64 product; bit equality over batch sizes
// where it is promised; graphs.
#if INLAY_HAS_CUDA

#include <numeric>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/many_rows_cuda.h"
#include "kernels/gemm/skinny_cuda.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::Rounding;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

TestMatrix Random(DType dtype, int64_t rows, int64_t cols, unsigned seed,
                  int64_t pad = 0) {
  std::mt19937 rng(seed);
  TestMatrix matrix(dtype, rows, cols, pad);
  matrix.Randomize(rng);
  return matrix;
}

struct Problem {
  Problem(const GemmDesc& desc, int64_t m, unsigned seed, int64_t pad)
      : desc(desc),
        x(Random(desc.activation, m, desc.k, seed, pad)),
        w(Random(desc.weight, desc.n, desc.k, seed + 1, pad)),
        bias(Random(DType::kF32, 1, desc.n, seed + 2)),
        residual(Random(desc.output, m, desc.n, seed + 3, pad)),
        device_x(x),
        device_w(w),
        device_bias(bias),
        device_residual(residual) {}

  GemmParams Params(const TensorView& y, bool with_bias, bool with_residual) {
    GemmParams params;
    params.x = device_x.view();
    params.w = device_w.view();
    params.y = y;
    if (with_bias) params.bias = device_bias.floats();
    if (with_residual) params.residual = device_residual.view();
    return params;
  }

  GemmDesc desc;
  TestMatrix x, w, bias, residual;
  CudaTestMatrix device_x, device_w, device_bias, device_residual;
};

struct Reference {
  std::vector<double> want;
  std::vector<double> tolerance;
};

std::vector<float> Floats(const TestMatrix& matrix) {
  std::vector<float> floats;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); ++c) {
      floats.push_back(matrix(r, c));
    }
  }
  return floats;
}

Reference ReferenceOf(const Problem& problem, bool with_bias,
                      bool with_residual) {
  const std::vector<float> x = Floats(problem.x);
  const std::vector<float> w = Floats(problem.w);
  const auto k = static_cast<size_t>(problem.desc.k);
  Reference reference;
  for (int64_t r = 0; r < problem.x.rows(); ++r) {
    for (int64_t c = 0; c < problem.desc.n; ++c) {
      const float* a = &x[static_cast<size_t>(r) * k];
      const float* b = &w[static_cast<size_t>(c) * k];
      double sum = 0.0;
      double magnitude = 0.0;
      for (size_t i = 0; i < k; ++i) {
        const double product = double{a[i]} * b[i];
        sum += product;
        magnitude += std::abs(product);
      }
      const double bias = with_bias ? problem.bias(0, c) : 0.0f;
      const double added = with_residual ? problem.residual(r, c) : 0.0f;
      sum += bias + added;
      magnitude += std::abs(bias) + std::abs(added);
      reference.want.push_back(sum);
      // Any order of k sums errs by at most as many roundings of a partial sum;
      // tensor cores cut off where others round: twice that. Where something is
      // added cuBLAS may round the product or the addend to y's type before.
      const bool adds = with_bias || with_residual;
      reference.tolerance.push_back(
          2 * static_cast<double>(k + 3) * kUnitF32 * magnitude +
          (adds ? 2 : 1) * Rounding(problem.desc.output, sum) +
          (adds ? Rounding(problem.desc.output, bias + added) : 0.0));
    }
  }
  return reference;
}

void CheckRows(const GemmDesc& desc, int64_t m, unsigned seed, int64_t pad,
               bool with_bias, bool with_residual, TestCuda& cuda) {
  SCOPED_TRACE(::testing::Message()
               << "m " << m << " n " << desc.n << " k " << desc.k << " "
               << DTypeName(desc.weight) << " " << DTypeName(desc.activation)
               << " " << DTypeName(desc.output) << " pad " << pad << " seed "
               << seed);
  Problem problem(desc, m, seed, pad);
  const Reference reference = ReferenceOf(problem, with_bias, with_residual);
  const auto at = [&](const std::vector<double>& values) {
    return [&values, n = desc.n](int64_t r, int64_t c) {
      return values[static_cast<size_t>(r * n + c)];
    };
  };
  ForEachCudaRow(GemmTable(), desc, cuda, [&](const GemmRow& row) {
    CudaTestMatrix y(desc.output, m, desc.n, pad);
    const GemmParams params =
        problem.Params(y.view(), with_bias, with_residual);
    ASSERT_TRUE(ValidateGemm(desc, params).ok());
    const absl::Status status = row.run(desc, params, *cuda.stream);
    // cuBLAS has no algorithm for odd strides of 16-bit types, or is absent.
    if (row.name == "cuda_cublaslt" &&
        (status.code() == absl::StatusCode::kUnimplemented ||
         status.code() == absl::StatusCode::kFailedPrecondition)) {
      return;
    }
    ASSERT_TRUE(status.ok()) << status;
    ExpectClose(y.Download(), at(reference.want), at(reference.tolerance));
  });
}

constexpr DType kTypes[][3] = {
    {DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF32},
    {DType::kF32, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kF32, DType::kF32},
};

TEST(GemmCudaTest, MatchesFloat64OverShapesAndTypes) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kShapes[][3] = {
      {1, 1, 1},     {1, 5, 7},      {2, 16, 32},    {3, 17, 31},
      {7, 49, 15},   {8, 24, 512},   {9, 23, 520},   {17, 50, 72},
      {33, 31, 129}, {130, 64, 40},  {5, 100, 1104}, {16, 130, 2048},
      {4, 70, 2056}, {1, 2200, 264}, {40, 300, 264}};
  unsigned seed = 1;
  for (const auto& [m, n, k] : kShapes) {
    for (const auto& [weight, activation, output] : kTypes) {
      CheckRows({n, k, weight, activation, output}, m, seed,
                seed % 3 == 0 ? 8 : seed % 3 - 1, seed % 2 == 0, seed % 5 < 2,
                cuda);
      ++seed;
    }
  }
}

TEST(GemmCudaTest, SweepsRemaindersOfKAndN) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (int64_t k = 8; k <= 8 * 36; k += 8) {
    const int64_t m = 1 + k / 8 % 19;
    const auto& [weight, activation, output] = kTypes[k / 8 % 4];
    CheckRows({1 + k / 8 % 37, k, weight, activation, output}, m,
              static_cast<unsigned>(k), 8, true, true, cuda);
  }
}

// Whole tiles of rows, and one more or less, where kernels take turns.
TEST(GemmCudaTest, EveryNumberOfRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t m :
       {1,  2,  3,  4,  5,  6,  7,  8,   9,   15,  16,  17,  31, 32,
        33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    for (int i = 0; i < 2; ++i) {
      // Each type with odd and even numbers.
      const auto& [weight, activation, output] = kTypes[(m / 2 + 2 * i) % 4];
      CheckRows({72, 264, weight, activation, output}, m,
                static_cast<unsigned>(m), 8, i == 0, i == 1, cuda);
    }
  }
}

// K in clusters of one to eight blocks, and more tiles than one group.
TEST(GemmCudaTest, LargeMatrices) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kShapes[][3] = {{1, 4112, 4096},  {8, 272, 14336},
                                    {11, 2100, 4096}, {3, 17000, 512},
                                    {2, 200, 28672},  {16, 160, 8192}};
  unsigned seed = 100;
  for (const auto& [m, n, k] : kShapes) {
    CheckRows({n, k, DType::kBF16, DType::kBF16, DType::kF32}, m, seed, 0,
              false, true, cuda);
    CheckRows({n, k, DType::kF16, DType::kF16, DType::kF16}, m, seed + 5, 8,
              true, false, cuda);
    seed += 10;
  }
}

// As CheckRows, of one kernel.
template <typename Run>
void CheckKernel(Problem& problem, const Reference& reference, Run run) {
  const int64_t n = problem.desc.n;
  CudaTestMatrix y(problem.desc.output, problem.x.rows(), n, 4);
  const absl::Status status = run(problem.Params(y.view(), true, true));
  ASSERT_TRUE(status.ok()) << status;
  const auto at = [&](const std::vector<double>& values) {
    return [&values, n](int64_t r, int64_t c) {
      return values[static_cast<size_t>(r * n + c)];
    };
  };
  ExpectClose(y.Download(), at(reference.want), at(reference.tolerance));
}

TEST(GemmCudaTest, EveryPlanGivesTheProduct) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const GemmDesc desc{1000, 1088, DType::kBF16, DType::kBF16, DType::kF32};
  for (const int64_t m : {1, 3, 8}) {
    Problem problem(desc, m, 5, 0);
    const Reference reference = ReferenceOf(problem, true, true);
    CheckKernel(problem, reference, [&](const GemmParams& params) {
      return RunRingGemv(desc, params, *cuda.stream);
    });
    if (cuda.info.sm < 90) continue;
    for (const int cluster : {2, 4, 8}) {
      for (const int num_clusters : {1, 3, 16, 63}) {
        for (const int consumers : {4, 8}) {
          for (const int shared_bytes : {100 << 10, 113 << 10, 200 << 10}) {
            GemvPlan plan;
            plan.cluster = cluster;
            plan.num_clusters = num_clusters;
            plan.consumers = consumers;
            plan.shared_bytes = shared_bytes;
            plan.in_flight = num_clusters == 3 ? 1 : consumers == 4 ? 3 : 20;
            SCOPED_TRACE(::testing::Message()
                         << m << " rows, " << num_clusters << " clusters of "
                         << cluster << ", " << consumers << " consumers, "
                         << shared_bytes << " bytes, " << plan.in_flight
                         << " stages at once");
            CheckKernel(problem, reference, [&](const GemmParams& params) {
              return RunBulkGemv(desc, params, plan, {}, *cuda.stream);
            });
          }
        }
      }
    }
  }
}

// Blocks without a part of K among them, tiles that w ends within, and sums
// that are handed over many times.
TEST(GemmCudaTest, SomeDozenRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "the kernel is for Hopper";
  constexpr int64_t kShapes[][2] = {
      {1000, 1088}, {9000, 128}, {2050, 64}, {7, 4096}};
  unsigned seed = 1;
  for (const auto& [n, k] : kShapes) {
    for (const int64_t m : {1, 8, 9, 16, 17, 32, 33, 50, 64}) {
      const auto& [weight, activation, output] = kTypes[seed % 4];
      const GemmDesc desc{n, k, weight, activation, output};
      Problem problem(desc, m, seed, seed % 2 * 8);
      const Reference reference = ReferenceOf(problem, true, true);
      SCOPED_TRACE(::testing::Message()
                   << m << " rows, " << n << " x " << k << ", seed " << seed);
      CheckKernel(problem, reference, [&](const GemmParams& params) {
        return RunSkinnyGemm(desc, params, {}, *cuda.stream);
      });
      ++seed;
    }
  }
}

// More tiles than blocks and fewer, an odd number of them, tiles that w or x
// ends within, a K of one step: the product, and the bits that some dozen rows
// have, also where the residual is y.
TEST(GemmCudaTest, ManyRowsInOneOrder) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "the kernel is for Hopper";
  constexpr int64_t kShapes[][3] = {{1000, 1088, 65},  {9000, 128, 200},
                                    {2050, 64, 129},   {7, 4096, 400},
                                    {4096, 192, 1000}, {384, 512, 64}};
  unsigned seed = 1;
  for (const auto& [n, k, m] : kShapes) {
    for (const auto& [weight, activation, output] : kTypes) {
      const GemmDesc desc{n, k, weight, activation, output};
      if (weight == DType::kF32 || weight != activation) continue;
      Problem problem(desc, m, seed, seed % 2 * 8);
      const Reference reference = ReferenceOf(problem, true, true);
      SCOPED_TRACE(::testing::Message()
                   << m << " rows, " << n << " x " << k << ", seed " << seed);
      CheckKernel(problem, reference, [&](const GemmParams& params) {
        return RunManyRowsGemm(desc, params, *cuda.stream);
      });
      CudaTestMatrix many(output, m, n), few(output, m, n);
      ASSERT_TRUE(RunManyRowsGemm(desc, problem.Params(many.view(), true, true),
                                  *cuda.stream)
                      .ok());
      const GemmParams all = problem.Params(few.view(), true, true);
      for (int64_t first = 0; first < m;) {
        const int64_t count = std::min<int64_t>(m - first, 1 + first % 64);
        GemmParams part = all;
        part.x = all.x.RowSlice(first, count);
        part.y = all.y.RowSlice(first, count);
        part.residual = all.residual.RowSlice(first, count);
        ASSERT_TRUE(RunSkinnyGemm(desc, part, {}, *cuda.stream).ok());
        first += count;
      }
      CudaTestMatrix in_place(problem.residual);
      GemmParams params = problem.Params(in_place.view(), true, false);
      params.residual = params.y;
      ASSERT_TRUE(RunManyRowsGemm(desc, params, *cuda.stream).ok());
      const TestMatrix want = few.Download();
      const TestMatrix got = many.Download();
      const TestMatrix added = in_place.Download();
      for (int64_t r = 0; r < m; ++r) {
        ASSERT_EQ(want.RowBits(r), got.RowBits(r)) << "row " << r;
        ASSERT_EQ(want.RowBits(r), added.RowBits(r)) << "row " << r;
      }
      ++seed;
    }
  }
}

// A row alone against the same among `counts` others, bit for bit.
void CheckInvariance(const GemmDesc& desc, std::string_view name,
                     const std::vector<int64_t>& counts) {
  TestCuda cuda;
  const int64_t rows = counts.back();
  Problem problem(desc, rows, 7, 0);
  const auto row = Select("gemm", GemmTable(), desc, cuda.info, name);
  ASSERT_TRUE(row.ok()) << row.status();
  const auto bytes = (*row)->workspace_bytes;
  const CudaBytes workspace(
      std::vector<std::byte>(bytes == nullptr ? 0 : bytes(desc, rows)));
  const auto run = [&](CudaTestMatrix& y, int64_t first, int64_t count) {
    GemmParams params = problem.Params(y.view(), true, true);
    params.x = params.x.RowSlice(first, count);
    params.y = params.y.RowSlice(first, count);
    params.residual = params.residual.RowSlice(first, count);
    params.workspace = workspace.as<void>();
    ASSERT_TRUE((*row)->run(desc, params, *cuda.stream).ok());
  };
  CudaTestMatrix alone(desc.output, rows, desc.n);
  for (int64_t r = 0; r < rows; r += 1 + r / 16) run(alone, r, 1);
  const TestMatrix want = alone.Download();
  for (const int64_t m : counts) {
    CudaTestMatrix together(desc.output, rows, desc.n);
    run(together, 0, m);
    const TestMatrix& got = together.Download();
    for (int64_t r = 0; r < m; r += 1 + r / 16) {
      ASSERT_EQ(want.RowBits(r), got.RowBits(r))
          << "row " << r << " of " << m << ", k " << desc.k << ", "
          << DTypeName(desc.weight) << " " << DTypeName(desc.output);
    }
  }
}

TEST(GemmCudaTest, ARowDependsOnNothingBesideIt) {
  INLAY_REQUIRE_CUDA();
  std::vector<int64_t> few(20);
  std::iota(few.begin(), few.end(), 2);
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{300, 4096}, {96, 1000}, {64, 14336}}) {
    for (const auto& [weight, activation, output] : kTypes) {
      GemmDesc desc{n, k, weight, activation, output};
      CheckInvariance(desc, "cuda_gemv", few);
      desc.batch_invariant = true;
      CheckInvariance(desc, "cuda", {2, 8, 9, 16, 64, 65, 130, 700});
    }
  }
  // As many tiles as the device has multiprocessors, and more.
  for (const int64_t n : {4096, 28672}) {
    GemmDesc desc{n, 4096, DType::kBF16, DType::kBF16, DType::kBF16};
    desc.batch_invariant = true;
    CheckInvariance(desc, "cuda", {2, 8, 33, 64, 100, 256, 1000});
  }
}

TEST(GemmCudaTest, ResidualMayBeTheOutput) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  ASSERT_TRUE(PrepareGemmCuda(*cuda.stream).ok());
  for (const int64_t m : {1, 9, 40}) {
    for (const auto& [weight, activation, output] : kTypes) {
      const GemmDesc desc{72, 264, weight, activation, output};
      Problem problem(desc, m, 3, 0);
      const Reference reference = ReferenceOf(problem, true, true);
      ForEachCudaRow(GemmTable(), desc, cuda, [&](const GemmRow& row) {
        CudaTestMatrix apart(output, m, 72);
        const absl::Status status = row.run(
            desc, problem.Params(apart.view(), true, true), *cuda.stream);
        if (absl::IsUnimplemented(status)) return;  // of cuBLAS
        ASSERT_TRUE(status.ok()) << status;
        CudaTestMatrix in_place(problem.residual);
        GemmParams params = problem.Params(in_place.view(), true, true);
        params.residual = params.y;
        ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        const TestMatrix want = apart.Download();
        const TestMatrix& got = in_place.Download();
        for (int64_t r = 0; r < m; ++r) {
          // cuBLAS may choose another algorithm: the strides differ.
          if (row.name == "cuda_gemv") {
            EXPECT_EQ(want.RowBits(r), got.RowBits(r));
          }
          for (int64_t c = 0; c < 72; ++c) {
            EXPECT_NEAR(
                want(r, c), got(r, c),
                2 * reference.tolerance[static_cast<size_t>(r * 72 + c)]);
          }
        }
      });
    }
  }
}

// Layers that depend on each other, each overlapping the one before: in a graph
// the same bits as one after the other with waiting in between.
TEST(GemmCudaTest, ChainsInGraphs) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kWidth = 2048;
  constexpr int kLayers = 12;
  const GemmDesc desc{kWidth, kWidth, DType::kF16, DType::kF16, DType::kF16};
  for (const int64_t m : {1, 6, 48}) {
    Problem problem(desc, m, 11, 0);
    // Products shrink back to the size of x: nothing overflows.
    for (int64_t r = 0; r < kWidth; ++r) {
      for (int64_t c = 0; c < kWidth; ++c) {
        problem.w.Set(r, c, problem.w(r, c) / 45.0f);
      }
    }
    CudaTestMatrix w(problem.w);
    CudaTestMatrix states[2] = {CudaTestMatrix(problem.x),
                                CudaTestMatrix(problem.x)};
    const auto row = Select("gemm", GemmTable(), desc, cuda.info);
    ASSERT_TRUE(row.ok());
    const auto run = [&](int layer, CudaTestMatrix* state) {
      GemmParams params;
      params.x = state[layer % 2].view();
      params.w = w.view();
      params.y = state[1 - layer % 2].view();
      return (*row)->run(desc, params, *cuda.stream);
    };
    for (int i = 0; i < kLayers; ++i) {
      ASSERT_TRUE(run(i, states).ok());
      ASSERT_TRUE(cuda.stream->Synchronize().ok());
    }
    const TestMatrix want = states[0].Download();
    CudaTestMatrix again[2] = {CudaTestMatrix(problem.x),
                               CudaTestMatrix(problem.x)};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_EQ(cudaStreamBeginCapture(cuda.stream->handle(),
                                     cudaStreamCaptureModeGlobal),
              cudaSuccess);
    for (int i = 0; i < kLayers; ++i) ASSERT_TRUE(run(i, again).ok());
    ASSERT_EQ(cudaStreamEndCapture(cuda.stream->handle(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec, cuda.stream->handle()), cudaSuccess);
    const TestMatrix& got = again[0].Download();
    for (int64_t r = 0; r < m; ++r) EXPECT_EQ(want.RowBits(r), got.RowBits(r));
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
}

TEST(GemmCudaTest, AnEmptyBatchIsNoWork) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const GemmDesc desc{8, 8, DType::kBF16, DType::kBF16, DType::kF32};
  Problem problem(desc, 1, 1, 0);
  ForEachCudaRow(GemmTable(), desc, cuda, [&](const GemmRow& row) {
    CudaTestMatrix y(DType::kF32, 1, 8);
    GemmParams params = problem.Params(y.view(), false, false);
    params.x.dims[0] = params.y.dims[0] = 0;
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    EXPECT_TRUE(std::isnan(y.Download()(0, 0)));
  });
}

TEST(GemmCudaTest, InfinityAndNanStayInTheirRow) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const GemmDesc desc{40, 72, DType::kBF16, DType::kBF16, DType::kF32};
  Problem problem(desc, 6, 3, 0);
  problem.x.Set(2, 20, std::numeric_limits<float>::quiet_NaN());
  problem.x.Set(4, 3, std::numeric_limits<float>::infinity());
  CudaTestMatrix x(problem.x);
  ForEachCudaRow(GemmTable(), desc, cuda, [&](const GemmRow& row) {
    CudaTestMatrix y(DType::kF32, 6, 40);
    GemmParams params = problem.Params(y.view(), false, false);
    params.x = x.view();
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    const TestMatrix& got = y.Download();
    for (int64_t c = 0; c < 40; ++c) {
      EXPECT_TRUE(std::isnan(got(2, c)));
      EXPECT_TRUE(std::isinf(got(4, c)));
      for (const int64_t r : {0, 1, 3, 5}) {
        EXPECT_TRUE(std::isfinite(got(r, c)));
      }
    }
  });
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
