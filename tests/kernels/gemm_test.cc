// gemm: every row against a float64 product; bit equality over batch sizes and
// thread counts.
#include "kernels/gemm/gemm.h"

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/kernel_test_util.h"
#include "tests/support/sanitized.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

constexpr DType kWeights[] = {DType::kF32, DType::kF16, DType::kBF16};

struct GemmProblem {
  GemmProblem(int64_t m, int64_t n, int64_t k, DType weight, unsigned seed,
              int64_t pad = 0)
      : desc{n, k, weight, DType::kF32},
        rng(seed),
        x(DType::kF32, m, k, pad),
        w(weight, n, k, pad),
        bias(DType::kF32, 1, n),
        residual(DType::kF32, m, n, pad) {
    x.Randomize(rng);
    w.Randomize(rng);
    bias.Randomize(rng);
    residual.Randomize(rng);
  }

  GemmParams Params(TestMatrix& y, bool extras) {
    GemmParams params;
    params.x = x.view();
    params.w = w.view();
    params.y = y.view();
    if (extras) {
      params.bias = bias.floats();
      params.residual = residual.view();
    }
    return params;
  }

  // y of `row`; its workspace is NaN.
  absl::Status Run(const GemmRow& row, GemmParams params, const TestCpu& cpu) {
    const size_t bytes = row.workspace_bytes == nullptr
                             ? 0
                             : row.workspace_bytes(desc, params.x.rows());
    TestMatrix workspace(DType::kF32, 1, static_cast<int64_t>(bytes / 4), 16);
    params.workspace = workspace.view().data;
    const absl::Status status = row.run(desc, params, *cpu.stream);
    EXPECT_TRUE(workspace.PaddingIsPoisoned());
    return status;
  }

  GemmDesc desc;
  std::mt19937 rng;
  TestMatrix x, w, bias, residual;
};

struct ExactSums {
  std::vector<double> want, tolerance, without_low;
};

// `rounded`: of x and w rounded to bf16.
ExactSums Float64(const GemmProblem& problem, bool extras, bool rounded) {
  const int64_t m = problem.x.rows();
  const int64_t n = problem.desc.n;
  const int64_t k = problem.desc.k;
  const auto value = [rounded](float v) {
    return double{rounded ? BF16ToF32(F32ToBF16(v)) : v};
  };
  ExactSums reference;
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (int64_t i = 0; i < k; ++i) {
        const double product = value(problem.x(r, i)) * value(problem.w(c, i));
        sum += product;
        magnitude += std::abs(product);
      }
      if (extras) {
        sum += double{problem.bias(0, c)} + problem.residual(r, c);
        magnitude +=
            std::abs(problem.bias(0, c)) + std::abs(problem.residual(r, c));
      }
      reference.want.push_back(sum);
      // Any order of k fused multiply-adds and two additions errs by at most
      // (k + 2) roundings of a partial sum, each at most `magnitude`.
      reference.tolerance.push_back(static_cast<double>(k + 3) * kUnitF32 *
                                    magnitude);
      // cpu_amx leaves out the low 3 bits of an f16 weight (7/1024 of it) times
      // the low half of x (2^-8), which ends at 2^-17 of x.
      reference.without_low.push_back(reference.tolerance.back() +
                                      9 * 0x1p-18 * magnitude);
    }
  }
  return reference;
}

void CheckAgainstFloat64(GemmProblem& problem, bool extras, TestCpu& cpu) {
  const int64_t m = problem.x.rows();
  const int64_t n = problem.desc.n;
  const ExactSums exact = Float64(problem, extras, false);
  const ExactSums rounded = Float64(problem, extras, true);
  ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
    TestMatrix y(DType::kF32, m, n, 3);
    const GemmParams params = problem.Params(y, extras);
    ASSERT_TRUE(ValidateGemm(problem.desc, params).ok());
    ASSERT_TRUE(problem.Run(row, params, cpu).ok());
    const auto at = [&](const std::vector<double>& values) {
      return [&values, n](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * n + c)];
      };
    };
    const ExactSums& reference = row.name == "cpu_bf16" ? rounded : exact;
    const bool low =
        row.name != "cpu_amx" || problem.desc.weight != DType::kF16;
    ExpectClose(y, at(reference.want),
                at(low ? reference.tolerance : reference.without_low));
  });
}

TEST(GemmTest, MatchesFloat64OverShapesAndTypes) {
  TestCpu cpu(2);
  constexpr int64_t kShapes[][3] = {
      {1, 1, 1},     {1, 4, 8},    {1, 5, 7},     {2, 3, 9},      {3, 17, 31},
      {4, 48, 64},   {5, 25, 33},  {6, 7, 100},   {7, 49, 15},    {8, 24, 512},
      {9, 23, 513},  {17, 50, 65}, {33, 31, 129}, {130, 26, 40},  {3, 9, 1100},
      {6, 30, 1031}, {1, 128, 96}, {5, 130, 353}, {40, 129, 300}, {3, 9, 2100},
      {20, 35, 4111}};
  unsigned seed = 1;
  for (const auto& [m, n, k] : kShapes) {
    for (const DType weight : kWeights) {
      SCOPED_TRACE(::testing::Message()
                   << "m " << m << " n " << n << " k " << k << " "
                   << DTypeName(weight) << " seed " << seed);
      GemmProblem problem(m, n, k, weight, seed, seed % 3);
      CheckAgainstFloat64(problem, seed % 2 == 0, cpu);
      ++seed;
    }
  }
}

TEST(GemmTest, SweepsRemaindersOfKAndN) {
  TestCpu cpu(1);
  OnEverySimdTarget([&] {
    for (int64_t k = 1; k <= 35; ++k) {
      const int64_t n = 1 + k % 9;
      const int64_t m = 1 + 7 * k % 40;
      SCOPED_TRACE(::testing::Message()
                   << "m " << m << " n " << n << " k " << k);
      GemmProblem problem(m, n, k, kWeights[k % 3], static_cast<unsigned>(k),
                          1);
      CheckAgainstFloat64(problem, true, cpu);
    }
  });
}

// Whole tiles of rows, and one more or less.
TEST(GemmTest, EveryNumberOfRows) {
  TestCpu cpu(2);
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 63, 64, 65, 127,
                          128, 129, 256, 257}) {
    for (const DType weight : kWeights) {
      SCOPED_TRACE(::testing::Message()
                   << "m " << m << " " << DTypeName(weight));
      GemmProblem problem(m, 19, 75, weight, static_cast<unsigned>(m), 1);
      CheckAgainstFloat64(problem, true, cpu);
    }
  }
}

TEST(GemmTest, ARowDependsOnNothingBesideIt) {
  constexpr int64_t kRows = 67;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  // The last: streams of whole steps of 16 rows (gemm_cpu_amx.cc), and rows
  // that fill none.
  constexpr int64_t kShapes[][2] = {
      {53, 61}, {53, 520}, {53, 1100}, {53, 2061}, {330, 416}};
  for (const auto& shape : kShapes) {
    const int64_t n = shape[0], k = shape[1];
    for (const DType weight : kWeights) {
      GemmProblem problem(kRows, n, k, weight, 7);
      ForEachCpuRow(GemmTable(), problem.desc, cpus[0],
                    [&](const GemmRow& row) {
                      TestMatrix alone(DType::kF32, kRows, n);
                      for (int64_t r = 0; r < kRows; ++r) {
                        GemmParams params = problem.Params(alone, true);
                        params.x = params.x.RowSlice(r, 1);
                        params.y = params.y.RowSlice(r, 1);
                        params.residual = params.residual.RowSlice(r, 1);
                        ASSERT_TRUE(problem.Run(row, params, cpus[0]).ok());
                      }
                      for (int64_t m = 2; m <= kRows; m += m < 10 ? 1 : 19) {
                        TestCpu& cpu = cpus[m % 3];
                        TestMatrix together(DType::kF32, kRows, n);
                        GemmParams params = problem.Params(together, true);
                        params.x = params.x.RowSlice(0, m);
                        params.y = params.y.RowSlice(0, m);
                        params.residual = params.residual.RowSlice(0, m);
                        ASSERT_TRUE(problem.Run(row, params, cpu).ok());
                        for (int64_t r = 0; r < m; ++r) {
                          ASSERT_EQ(alone.RowBits(r), together.RowBits(r))
                              << "row " << r << " of " << m << ", n " << n
                              << ", k " << k << ", " << DTypeName(weight);
                        }
                      }
                    });
    }
  }
}

// gemm_cpu_amx_f16.cc has the same sums by vectors for few rows of x and by
// tiles for more: with numbers that underflow and overflow on the way, too.
TEST(GemmTest, AnyBatchHasTheSameBitsWhateverItsNumbers) {
  constexpr int64_t kRows = 35;
  // Around two rows and groups of 16, which tiles and vectors take; with them
  // the rest of kRows has 1 to 15 rows.
  constexpr int64_t kBatches[] = {1, 2, 3, 5, 13, 16, 17, 18, 32, 33, 35};
  TestCpu cpu(2);
  // Steps of 32 elements and blocks of 512, whole and not.
  constexpr int64_t kShapes[][2] = {{19, 32},   {64, 480},  {33, 512},
                                    {17, 517},  {70, 1023}, {48, 1504},
                                    {129, 544}, {16, 1536}};
  // x: tiny products, such that cancel and such that are lost; huge ones.
  constexpr float kScales[] = {1.0f, 0x1p-116f, 0x1p-122f, 0x1p-126f, 0x1p118f};
  unsigned seed = 1;
  for (size_t s = 0; s < std::size(kShapes); ++s) {
    const int64_t n = kShapes[s][0], k = kShapes[s][1];
    for (size_t i = 0; i < std::size(kScales); ++i) {
      if (!::inlay::testing::TriedWith(s, i, std::size(kScales))) continue;
      const float scale = kScales[i];
      SCOPED_TRACE(::testing::Message()
                   << "n " << n << " k " << k << " scale " << scale);
      GemmProblem problem(kRows, n, k, DType::kF16, seed++);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < k; ++i) {
          problem.x.Set(r, i, problem.x(r, i) * scale);
        }
      }
      ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
        TestMatrix alone(DType::kF32, kRows, n);
        for (const int64_t m : kBatches) {
          TestMatrix y(DType::kF32, kRows, n);
          for (int64_t r = 0; r < kRows; r += m) {
            const int64_t count = std::min(m, kRows - r);
            GemmParams params = problem.Params(y, false);
            params.x = params.x.RowSlice(r, count);
            params.y = params.y.RowSlice(r, count);
            ASSERT_TRUE(problem.Run(row, params, cpu).ok());
          }
          if (m == 1) alone = y;
          for (int64_t r = 0; r < kRows; ++r) {
            if (alone.RowBits(r) == y.RowBits(r)) continue;
            for (int64_t c = 0; c < n; ++c) {
              // Of NaN the bits are not promised.
              if (std::isnan(alone(r, c)) && std::isnan(y(r, c))) continue;
              ASSERT_EQ(std::bit_cast<uint32_t>(alone(r, c)),
                        std::bit_cast<uint32_t>(y(r, c)))
                  << row.name << " row " << r << " by " << m;
            }
          }
        }
      });
    }
  }
}

// More rows than the 256 of gemm_cpu_amx.cc's blocks, more k than the 2048 of
// panels and not in steps of 32, whole panels of n and others.
TEST(GemmTest, LargeBatchesMatchSmallOnes) {
  constexpr int64_t kRows = 275;
  constexpr int64_t kN = 70;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  GemmProblem problem(kRows, kN, 2093, DType::kBF16, 11);
  const auto compare = [&](const GemmRow& row) {
    TestMatrix reference(DType::kF32, kRows, kN);
    for (int64_t r = 0; r < kRows; r += 3) {
      GemmParams params = problem.Params(reference, false);
      params.x = params.x.RowSlice(r, std::min<int64_t>(3, kRows - r));
      params.y = params.y.RowSlice(r, std::min<int64_t>(3, kRows - r));
      ASSERT_TRUE(problem.Run(row, params, cpus[1]).ok());
    }
    for (TestCpu& cpu : cpus) {
      TestMatrix y(DType::kF32, kRows, kN);
      ASSERT_TRUE(problem.Run(row, problem.Params(y, false), cpu).ok());
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_EQ(reference.RowBits(r), y.RowBits(r)) << "row " << r;
      }
    }
  };
  ForEachCpuRow(GemmTable(), problem.desc, cpus[0], compare);
  // The others have no code of a target.
  OnEverySimdTarget([&] {
    ForEachCpuRow(GemmTable(), problem.desc, cpus[0], [&](const GemmRow& row) {
      if (row.name == "cpu_simd") compare(row);
    });
  });
}

// More sums than gemm_cpu_amx.cc keeps at once, of more rows than go over a
// panel.
TEST(GemmTest, VeryLargeBatchesMatchLargeOnes) {
  constexpr int64_t kRows = 2100;
  constexpr int64_t kN = 1040;
  TestCpu cpus[] = {TestCpu(1), TestCpu(3)};
  for (const DType weight : {DType::kF16, DType::kBF16}) {
    GemmProblem problem(kRows, kN, 5, weight, 13);
    ForEachCpuRow(GemmTable(), problem.desc, cpus[0], [&](const GemmRow& row) {
      TestMatrix reference(DType::kF32, kRows, kN);
      for (int64_t r = 0; r < kRows; r += 50) {
        GemmParams params = problem.Params(reference, false);
        params.x = params.x.RowSlice(r, 50);
        params.y = params.y.RowSlice(r, 50);
        ASSERT_TRUE(problem.Run(row, params, cpus[1]).ok());
      }
      for (TestCpu& cpu : cpus) {
        TestMatrix y(DType::kF32, kRows, kN);
        ASSERT_TRUE(problem.Run(row, problem.Params(y, false), cpu).ok());
        for (int64_t r = 0; r < kRows; ++r) {
          ASSERT_EQ(reference.RowBits(r), y.RowBits(r)) << "row " << r;
        }
      }
    });
  }
}

// gemm_cpu_bf16.cc stores more than a megabyte of y past the caches, where it
// lies on lines of theirs.
TEST(GemmTest, LargeOutputsMatchSmallOnes) {
  constexpr int64_t kRows = 270;
  constexpr int64_t kN = 1040;
  TestCpu cpus[] = {TestCpu(1), TestCpu(3)};
  GemmProblem problem(kRows, kN, 200, DType::kBF16, 17);
  ForEachCpuRow(GemmTable(), problem.desc, cpus[0], [&](const GemmRow& row) {
    if (row.name != "cpu_bf16") return;
    TestMatrix reference(DType::kF32, kRows, kN);
    for (int64_t r = 0; r < kRows; r += 30) {
      GemmParams params = problem.Params(reference, true);
      params.x = params.x.RowSlice(r, 30);
      params.y = params.y.RowSlice(r, 30);
      params.residual = params.residual.RowSlice(r, 30);
      ASSERT_TRUE(problem.Run(row, params, cpus[1]).ok());
    }
    for (TestCpu& cpu : cpus) {
      // On a line's begin, and on none.
      for (const size_t off : {0u, 1u}) {
        std::vector<float> storage(kRows * kN + 17);
        void* y = storage.data();
        size_t space = storage.size() * sizeof(float);
        y = static_cast<float*>(
                std::align(64, kRows * kN * sizeof(float), y, space)) +
            off;
        TestMatrix unused(DType::kF32, kRows, kN);
        GemmParams params = problem.Params(unused, true);
        std::memcpy(y, problem.residual.floats(), kRows * kN * sizeof(float));
        params.residual = params.y = MatrixView(y, DType::kF32, kRows, kN);
        ASSERT_TRUE(problem.Run(row, params, cpu).ok());
        for (int64_t r = 0; r < kRows; ++r) {
          ASSERT_EQ(0, std::memcmp(reference.RowBits(r).data(),
                                   params.y.row<float>(r), kN * sizeof(float)))
              << "row " << r;
        }
      }
    }
  });
}

TEST(GemmTest, ResidualMayBeTheOutput) {
  TestCpu cpu(2);
  for (const int64_t m : {1, 4, 9}) {
    GemmProblem problem(m, 33, 40, DType::kBF16, 5);
    ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
      TestMatrix apart(DType::kF32, m, 33);
      ASSERT_TRUE(problem.Run(row, problem.Params(apart, true), cpu).ok());
      TestMatrix in_place = problem.residual;
      GemmParams params = problem.Params(in_place, true);
      params.residual = in_place.view();
      ASSERT_TRUE(problem.Run(row, params, cpu).ok());
      for (int64_t r = 0; r < m; ++r) {
        EXPECT_EQ(apart.RowBits(r), in_place.RowBits(r));
      }
    });
  }
}

TEST(GemmTest, AnEmptyBatchIsNoWork) {
  TestCpu cpu(2);
  GemmProblem problem(1, 8, 8, DType::kF32, 1);
  ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
    TestMatrix y(DType::kF32, 1, 8);
    GemmParams params = problem.Params(y, false);
    params.x.dims[0] = params.y.dims[0] = 0;
    ASSERT_TRUE(problem.Run(row, params, cpu).ok());
    EXPECT_TRUE(std::isnan(y(0, 0)));
  });
}

TEST(GemmTest, InfinityAndNanStayInTheirRow) {
  TestCpu cpu(2);
  for (int i = 0; i < 4; ++i) {
    const int64_t m = i % 2 == 0 ? 6 : 40;
    const DType weight = i < 2 ? DType::kBF16 : DType::kF16;
    GemmProblem problem(m, 12, 21, weight, 3);
    problem.x.Set(2, 20, std::numeric_limits<float>::quiet_NaN());
    problem.x.Set(4, 3, std::numeric_limits<float>::infinity());
    // Its high half alone is infinity.
    problem.x.Set(5, 8, std::bit_cast<float>(0xff800001u));
    ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
      TestMatrix y(DType::kF32, m, 12);
      ASSERT_TRUE(problem.Run(row, problem.Params(y, false), cpu).ok());
      for (int64_t c = 0; c < 12; ++c) {
        EXPECT_TRUE(std::isnan(y(2, c)));
        EXPECT_TRUE(std::isinf(y(4, c)));
        EXPECT_TRUE(std::isnan(y(5, c)));
        for (int64_t r = 0; r < m; ++r) {
          if (r == 2 || r == 4 || r == 5) continue;
          EXPECT_TRUE(std::isfinite(y(r, c)));
        }
      }
    });
  }
}

// Alone, too, where gemm_cpu_amx_f16.cc goes by vectors.
TEST(GemmTest, InfinityTimesInfinityIsNoNumberOfFinite) {
  TestCpu cpu(1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t m : {1, 2, 7}) {
    GemmProblem problem(m, 20, 600, DType::kF16, 23);
    for (int64_t r = 0; r < m; ++r) problem.x.Set(r, 599, kInfinity);
    problem.w.Set(3, 599, -kInfinity);
    problem.w.Set(4, 599, 0x1p-24f);
    problem.w.Set(5, 599, 0.0f);
    ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
      TestMatrix y(DType::kF32, m, 20);
      ASSERT_TRUE(problem.Run(row, problem.Params(y, false), cpu).ok());
      for (int64_t r = 0; r < m; ++r) {
        EXPECT_FALSE(std::isfinite(y(r, 3))) << row.name;
        EXPECT_EQ(y(r, 4), kInfinity) << row.name;
        EXPECT_TRUE(std::isnan(y(r, 5))) << row.name;
      }
    });
  }
}

// Denormal numbers of f16, of which bf16 has more exponents than f16.
TEST(GemmTest, TinyWeightsCount) {
  TestCpu cpu(2);
  for (const int64_t m : {1, 5, 40}) {
    for (const int64_t n : {12, 64}) {
      GemmProblem problem(m, n, 96, DType::kF16, 17);
      for (int64_t c = 0; c < n; ++c) {
        for (int64_t i = 0; i < 96; ++i) {
          problem.w.Set(
              c, i, static_cast<float>((c * 96 + i) % 2047 - 1023) * 0x1p-24f);
        }
      }
      CheckAgainstFloat64(problem, false, cpu);
    }
  }
}

TEST(GemmTest, InfiniteWeightsAndNanStayInTheirColumn) {
  TestCpu cpu(2);
  for (const DType weight : kWeights) {
    for (const int64_t m : {1, 2, 5, 40}) {
      GemmProblem problem(m, 70, 64, weight, 19);
      for (int64_t r = 0; r < m; ++r) {
        // Numbers whose low bits are 0, and others.
        problem.x.Set(r, 9, r % 2 == 0 ? 1.0f : -0.3f);
        problem.x.Set(r, 63, 0x1.fffffep3f);
      }
      problem.w.Set(2, 9, std::numeric_limits<float>::infinity());
      problem.w.Set(3, 63, -std::numeric_limits<float>::infinity());
      problem.w.Set(69, 1, std::numeric_limits<float>::quiet_NaN());
      ForEachCpuRow(GemmTable(), problem.desc, cpu, [&](const GemmRow& row) {
        SCOPED_TRACE(::testing::Message()
                     << row.name << " m " << m << " " << DTypeName(weight));
        TestMatrix y(DType::kF32, m, 70);
        ASSERT_TRUE(problem.Run(row, problem.Params(y, false), cpu).ok());
        for (int64_t r = 0; r < m; ++r) {
          const float infinity = std::numeric_limits<float>::infinity();
          EXPECT_EQ(y(r, 2), r % 2 == 0 ? infinity : -infinity);
          EXPECT_EQ(y(r, 3), -infinity);
          EXPECT_TRUE(std::isnan(y(r, 69)));
          for (int64_t c = 4; c < 69; ++c) EXPECT_TRUE(std::isfinite(y(r, c)));
        }
      });
    }
  }
}

TEST(GemmTest, RefusesWhatItCannotCompute) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  const GemmDesc bf16_activation{8, 8, DType::kBF16, DType::kBF16};
  const auto refused = Select("gemm", GemmTable(), bf16_activation, cpu);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(refused.status().message().find("activations must be f32"),
            absl::string_view::npos);
  const GemmDesc integers{8, 8, DType::kI8, DType::kF32};
  EXPECT_FALSE(Select("gemm", GemmTable(), integers, cpu).ok());
  const GemmDesc plain{8, 8, DType::kBF16, DType::kF32};
  EXPECT_EQ((*Select("gemm", GemmTable(), plain, cpu, "cpu_scalar"))->name,
            "cpu_scalar");
  EXPECT_FALSE(Select("gemm", GemmTable(), plain, cpu, "no such row").ok());
}

std::string_view Chosen(int64_t n, DType weight, std::string_view forced = {},
                        int64_t k = 1024, bool fits_bf16 = false) {
  GemmDesc desc{n, k, weight, DType::kF32};
  desc.fits_bf16 = fits_bf16;
  const auto row = Select("gemm", GemmTable(), desc,
                          DeviceInfo{DeviceKind::kCpu, "cpu"}, forced);
  return row.ok() ? (*row)->name : "none";
}

TEST(GemmTest, SmallWeightsAreLeftToLaterRows) {
  EXPECT_EQ(Chosen(1023, DType::kBF16), "cpu_simd");
  EXPECT_EQ(Chosen(4096, DType::kBF16, {}, 256), "cpu_simd");
  if (Chosen(1024, DType::kBF16, "cpu_amx") == "none") {
    GTEST_SKIP() << "needs AMX";
  }
  EXPECT_EQ(Chosen(1025, DType::kBF16), "cpu_amx");
  EXPECT_EQ(Chosen(1024, DType::kF16), "cpu_simd");
  EXPECT_EQ(Chosen(1025, DType::kF16), "cpu_amx");
}

TEST(GemmTest, OnlyWhoAsksHasItsWeightsRounded) {
  EXPECT_NE(Chosen(1024, DType::kF16), "cpu_bf16");
  EXPECT_EQ(Chosen(1024, DType::kF32, "cpu_bf16"), "none");
  if (Chosen(1, DType::kBF16, "cpu_bf16") == "none") {
    GTEST_SKIP() << "needs AVX512_BF16";
  }
  EXPECT_EQ(Chosen(1, DType::kF16, "cpu_bf16"), "cpu_bf16");
#if defined(__x86_64__)
  if (Chosen(1024, DType::kBF16, "cpu_amx") == "none") {
    EXPECT_EQ(Chosen(1024, DType::kBF16),
              __builtin_cpu_is("amd") ? "cpu_bf16" : "cpu_simd");
    // Nothing is rounded there.
    EXPECT_EQ(Chosen(1024, DType::kF16, {}, 1024, /*fits_bf16=*/true),
              __builtin_cpu_is("amd") ? "cpu_bf16" : "cpu_simd");
    EXPECT_EQ(Chosen(1023, DType::kF16, {}, 1024, true), "cpu_simd");
  }
#endif
}

#if defined(__x86_64__)
// The fastest that the machine has.
TEST(GemmTest, QuantisedWeightsGoByTheWidestInstructions) {
  std::string_view first = "cpu_simd";
  for (const std::string_view row : {"cpu_packed", "cpu_packed_avx_vnni",
                                     "cpu_packed_vnni", "cpu_packed_amx"}) {
    if (Chosen(8, DType::kQ4_0, row) != "none") first = row;
  }
  EXPECT_EQ(Chosen(8, DType::kQ4_0), first);
}
#endif

TEST(GemmTest, ValidationNamesTheMisfit) {
  GemmProblem problem(3, 8, 16, DType::kF32, 1);
  TestMatrix y(DType::kF32, 3, 8);
  const GemmParams good = problem.Params(y, true);
  EXPECT_TRUE(ValidateGemm(problem.desc, good).ok());
  const auto message = [&](const GemmParams& params) {
    return std::string(ValidateGemm(problem.desc, params).message());
  };
  GemmParams bad = good;
  bad.w.dims[1] = 15;
  EXPECT_EQ(message(bad),
            "gemm: w is rank 2, [8, 15]; expected rank 2, [8, 16]");
  bad = good;
  bad.y.dtype = DType::kF16;
  EXPECT_EQ(message(bad), "gemm: y is f16; expected f32");
  bad = good;
  bad.residual.dims[0] = 2;
  EXPECT_NE(message(bad).find("residual"), std::string::npos);
  bad = good;
  bad.w.row_stride_bytes = 63;
  EXPECT_NE(message(bad).find("expected at least 64"), std::string::npos);
  bad = good;
  bad.y = MatrixView(bad.x.data, DType::kF32, 3, 8);
  EXPECT_NE(message(bad).find("overlaps"), std::string::npos);
}

}  // namespace
}  // namespace inlay
