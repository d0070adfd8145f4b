// expert_linear's rows that round x: products of codes by codes
// (expert_codes_sm90.cu) against float64 ones of the weights and of x as the
// op `rounding` rounds it on the CPU; when they are taken; x that is rounded
// before; experts in host memory; numbers that are not finite.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/rounding/rounding_cuda.h"
#include "tests/support/expert_problem.h"

namespace inlay {
namespace {

using namespace ::inlay::testing;  // NOLINT

// Of a piece of rows, a step within one, and of both sides.
const std::vector<int> kCounts = {0,   1,   127, 128, 129, 0,  191, 192,
                                  193, 385, 31,  32,  33,  64, 65,  3};

std::string_view RowOf(DType weight) {
  return weight == DType::kI8_G128 ? "cuda_int8" : "cuda_fp8";
}

// Blocks of one format whose rows have one scale each, but for powers of two,
// or, `groups`, a scale a block.
std::vector<std::byte> Blocks(DType dtype, int64_t n, int64_t k, bool groups,
                              std::mt19937& rng) {
  const auto bytes = static_cast<size_t>(GetFormatInfo(dtype).block_bytes);
  const bool whole = dtype == DType::kI8_G128;
  std::uniform_real_distribution<float> scales(0.5f, 1.0f);
  std::normal_distribution<float> normal(0.0f, whole ? 40.0f : 100.0f);
  std::vector<std::byte> out(static_cast<size_t>(n * k / 128) * bytes);
  std::byte* block = out.data();
  for (int64_t r = 0; r < n; ++r) {
    const float of_row = scales(rng);
    for (int64_t b = 0; b < k / 128; ++b, block += bytes) {
      float scale = groups ? scales(rng) : of_row;
      if (!whole) scale = std::ldexp(scale, -static_cast<int>(rng() % 3));
      std::memcpy(block, &scale, sizeof(scale));
      for (int64_t i = 0; i < 128; ++i) {
        const float value = normal(rng);
        block[static_cast<int64_t>(bytes) - 128 + i] =
            whole ? static_cast<std::byte>(
                        static_cast<int8_t>(std::clamp(value, -127.0f, 127.0f)))
                  : std::byte{F32ToF8E4M3(value)};
      }
    }
  }
  return out;
}

class CodesProblem {
 public:
  CodesProblem(TestCuda& cuda, const ExpertLinearDesc& own,
               const std::vector<int>& counts, bool groups, unsigned seed)
      : desc(own), cuda_(cuda), row_(ExpertRowNamed(RowOf(own.gemm.weight))) {
    std::mt19937 rng(seed);
    const GemmDesc& gemm = desc.gemm;
    for (size_t e = 0; e < counts.size(); ++e) {
      experts_.insert(experts_.end(), static_cast<size_t>(counts[e]),
                      static_cast<int32_t>(e));
    }
    EXPECT_EQ(num_slots() % desc.top_k, 0);
    std::shuffle(experts_.begin(), experts_.end(), rng);
    slots_.resize(experts_.size());
    std::iota(slots_.begin(), slots_.end(), 0);
    std::stable_sort(slots_.begin(), slots_.end(), [&](int32_t a, int32_t b) {
      return experts_[static_cast<size_t>(a)] <
             experts_[static_cast<size_t>(b)];
    });
    offsets_.resize(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), offsets_.begin() + 1);
    const QuantMatrix matrix(gemm.weight, gemm.k);
    values_.resize(counts.size() * static_cast<size_t>(gemm.n * gemm.k));
    for (size_t e = 0; e < counts.size(); ++e) {
      const auto rows = Blocks(gemm.weight, gemm.n, gemm.k, groups, rng);
      std::vector<std::byte> packed(
          static_cast<size_t>(QuantBytes(matrix.form, gemm.n, gemm.k)));
      PackQuantised(matrix, rows.data(), 0, gemm.n, packed.data());
      for (int64_t r = 0; r < gemm.n; ++r) {
        UnpackQuantisedRow(
            matrix, packed.data(), r,
            values_.data() + (static_cast<int64_t>(e) * gemm.n + r) * gemm.k);
      }
      packed_.insert(packed_.end(), packed.begin(), packed.end());
    }
    x = TestMatrix(gemm.activation,
                   num_slots() / (desc.row_a_slot ? 1 : desc.top_k), gemm.k, 8);
    x.Randomize(rng);
    bias_ = TestMatrix(DType::kF32, desc.num_experts, gemm.n);
    bias_.Randomize(rng);
    Inspect();
  }

  int64_t num_slots() const { return static_cast<int64_t>(experts_.size()); }
  RowRounding rounding() const {
    return ExpertRounding(row_, desc, num_slots());
  }

  struct How {
    bool apart = false;           // here and there (ExpertsApart)
    bool rounded_before = false;  // x is codes
  };
  TestMatrix Run(How how) { return RunRow(row_, how); }
  TestMatrix Run() { return RunRow(row_, {}); }

  TestMatrix RunRow(const ExpertLinearRow& row, How how) {
    const CudaBytes weights(packed_), experts(experts_), offsets(offsets_),
        slots(slots_);
    std::optional<ExpertsApart> scattered;
    CudaTestMatrix device_x(x), device_bias(bias_);
    CudaTestMatrix y(desc.gemm.output, num_slots(), desc.gemm.n, y_padding);
    ExpertLinearParams params;
    params.x = device_x.view();
    params.w.base = weights.as<std::byte>();
    params.w.stride_bytes = packed_.size() / (offsets_.size() - 1);
    if (how.apart) {
      scattered.emplace(packed_, desc.num_experts);
      params.w.base = scattered->base();
      params.w.table = scattered->table();
    }
    params.bias = device_bias.floats();
    params.experts = experts.as<int32_t>();
    params.offsets = offsets.as<int32_t>();
    params.slots = slots.as<int32_t>();
    params.y = y.view();
    const CudaBytes workspace(
        row.workspace_bytes(desc, num_slots() / desc.top_k) + 16);
    params.workspace = workspace.as<void>();
    const int64_t rows = params.x.rows();
    const CudaBytes codes(static_cast<size_t>(rows * desc.gemm.k));
    const CudaBytes scales(static_cast<size_t>(
        4 * RoundingScales(RowRounding::kFp8Groups, rows, desc.gemm.k)));
    if (how.rounded_before) {
      RoundingParams round;
      round.rounding = rounding();
      round.x = params.x;
      round.codes =
          MatrixView(codes.as<std::byte>(), RoundingDType(round.rounding), rows,
                     desc.gemm.k);
      round.scales = scales.as<float>();
      EXPECT_TRUE(
          RunRoundingCuda(Plain(), round, CudaStream::Of(*cuda_.stream)).ok());
      params.x = round.codes;
      params.x_scales = round.scales;
    }
    const absl::Status status = row.run(desc, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return y.Download();
  }

  // Against x rounded; how far rounding x moved the products, of their size.
  double Check(const TestMatrix& y) {
    const std::vector<double> rounded = Rounded();
    const GemmDesc& gemm = desc.gemm;
    std::vector<double> want, most;
    double moved = 0.0, all = 0.0;
    for (int64_t s = 0; s < num_slots(); ++s) {
      const int64_t r = desc.row_a_slot ? s : s / desc.top_k;
      const int64_t e = experts_[static_cast<size_t>(s)];
      std::vector<double> plain(static_cast<size_t>(gemm.k));
      for (int64_t i = 0; i < gemm.k; ++i) {
        plain[static_cast<size_t>(i)] = x(r, i);
      }
      for (int64_t c = 0; c < gemm.n; ++c) {
        const float* w = values_.data() + (e * gemm.n + c) * gemm.k;
        const double* codes = rounded.data() + r * gemm.k;
        double sum = 0.0, exact = 0.0, size = 0.0;
        for (int64_t i = 0; i < gemm.k; ++i) {
          const double product = codes[i] * w[i];
          sum += product;
          size += std::abs(product);
          exact += plain[static_cast<size_t>(i)] * w[i];
        }
        moved += (sum - exact) * (sum - exact);
        all += exact * exact;
        const double bias = bias_(e, c);
        want.push_back(sum + bias);
        // e4m3: the tensor cores cut products and sums to some 13 bits within
        // 32 columns; codes below the normal numbers lost half a step. int8:
        // the sum, three products of scales and the bias are rounded.
        most.push_back(
            (gemm.weight == DType::kI8_G128 ? 4 * kUnitF32 * std::abs(sum)
                                            : 0x1p-12 * size) +
            2 * kUnitF32 * std::abs(bias) + Rounding(gemm.output, sum + bias));
      }
    }
    const auto at = [&](int64_t s, int64_t c) {
      return static_cast<size_t>(s * gemm.n + c);
    };
    ExpectClose(
        y, [&](int64_t s, int64_t c) { return want[at(s, c)]; },
        [&](int64_t s, int64_t c) { return most[at(s, c)]; });
    return std::sqrt(moved / all);
  }

  ExpertLinearDesc desc;
  TestMatrix x;
  int64_t y_padding = 8;

 private:
  RoundingDesc Plain() const {
    RoundingDesc plain;
    plain.width = desc.gemm.k;
    plain.input = plain.activation = desc.gemm.activation;
    return plain;
  }

  // What the weights say of their scales.
  void Inspect() {
    const WeightPacking<GemmDesc>& packing = *ExpertPacking(row_, desc.gemm);
    GemmDesc all = desc.gemm;
    all.n *= desc.num_experts;
    if (desc.gemm.n % kQuantRows != 0) all.n = desc.gemm.n;  // the first
    const CudaBytes weights(packed_);
    EXPECT_TRUE(
        packing.inspect(all, weights.as<std::byte>(), *cuda_.stream).ok());
    desc.gemm.scale_reach = all.scale_reach;
  }

  // Codes times scales.
  std::vector<double> Rounded() {
    TestCpu cpu;
    const int64_t rows = x.view().rows(), k = desc.gemm.k;
    std::vector<uint8_t> codes(static_cast<size_t>(rows * k));
    std::vector<float> scales(
        static_cast<size_t>(RoundingScales(rounding(), rows, k)));
    RoundingParams params;
    params.rounding = rounding();
    params.x = x.view();
    params.codes = MatrixView(reinterpret_cast<std::byte*>(codes.data()),
                              RoundingDType(params.rounding), rows, k);
    params.scales = scales.data();
    EXPECT_TRUE(RoundingTable().back().run(Plain(), params, *cpu.stream).ok());
    std::vector<double> out;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < k; ++c) {
        const uint8_t code = codes[static_cast<size_t>(r * k + c)];
        const int64_t scale =
            params.rounding == RowRounding::kFp8Groups ? c / 128 * rows + r : r;
        out.push_back(double{params.rounding == RowRounding::kInt8Rows
                                 ? static_cast<float>(static_cast<int8_t>(code))
                                 : F8E4M3ToF32(code)} *
                      scales[static_cast<size_t>(scale)]);
      }
    }
    return out;
  }

  TestCuda& cuda_;
  const ExpertLinearRow& row_;
  std::vector<int32_t> experts_, offsets_, slots_;
  std::vector<float> values_;
  std::vector<std::byte> packed_;
  TestMatrix bias_;
};

void ExpectSameBits(const TestMatrix& a, const TestMatrix& b) {
  ASSERT_EQ(a.rows(), b.rows());
  for (int64_t s = 0; s < a.rows(); ++s) {
    ASSERT_EQ(a.RowBits(s), b.RowBits(s)) << "slot " << s;
  }
}

struct Kind {
  DType weight;
  bool groups;
  RowRounding rounding;
};
constexpr Kind kKinds[] = {
    {DType::kF8_G128, false, RowRounding::kFp8Rows},
    {DType::kF8_G128, true, RowRounding::kFp8Groups},
    {DType::kI8_G128, false, RowRounding::kInt8Rows},
};

TEST(ExpertCodesCudaTest, MatchesFloat64OfRoundedInputs) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  unsigned seed = 1;
  for (const Kind& kind : kKinds) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{144, 128},
                               {48, 768},
                               {53, 128},
                               {256, 256}}) {
      const DType type = seed % 2 != 0 ? DType::kBF16 : DType::kF16;
      const DType output = seed % 3 != 0 ? type : DType::kF32;
      const bool row_a_slot = seed % 4 < 2;
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(kind.weight) << " groups " << kind.groups
                   << " n " << n << " k " << k << " x " << DTypeName(type)
                   << " y " << DTypeName(output) << " a slot " << row_a_slot
                   << " seed " << seed);
      CodesProblem problem(
          cuda, {{n, k, kind.weight, type, output}, 16, 2, row_a_slot}, kCounts,
          kind.groups, seed);
      // One group is one scale a row.
      ASSERT_EQ(problem.rounding(), kind.groups && k == 128
                                        ? RowRounding::kFp8Rows
                                        : kind.rounding);
      if (seed % 5 == 0) problem.y_padding = 3;
      const TestMatrix y = problem.Run();
      const double moved = problem.Check(y);
      // A step of e4m3 is 1/8 of a binade's least value, one of int8 1/127 of
      // a row's largest magnitude: errors of 2.5 % and some 0.7 %.
      if (kind.weight == DType::kF8_G128) {
        EXPECT_GT(moved, 0.015);
        EXPECT_LT(moved, 0.03);
      } else {
        EXPECT_GT(moved, 0.003);
        EXPECT_LT(moved, 0.02);
      }
      ExpectSameBits(problem.Run({.apart = true}), y);
      ExpectSameBits(problem.Run({.rounded_before = true}), y);
      ++seed;
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Many experts without a slot, more than lanes, and all slots one's.
TEST(ExpertCodesCudaTest, ManyExperts) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  for (const bool one : {false, true}) {
    SCOPED_TRACE(one);
    std::vector<int> counts(70, one ? 0 : 21);
    for (size_t e = 0; e < counts.size() && !one; e += 3) counts[e] = 0;
    counts[67] = one ? 1420 : 800;
    if (std::accumulate(counts.begin(), counts.end(), 0) % 2 != 0) ++counts[69];
    CodesProblem problem(
        cuda, {{32, 256, DType::kF8_G128, DType::kBF16, DType::kF32}, 70, 2},
        counts, true, 3);
    ASSERT_EQ(problem.rounding(), RowRounding::kFp8Groups);
    problem.Check(problem.Run());
  }
}

// The bits are those of product and activation apart.
TEST(ExpertCodesCudaTest, GatedExpertsHaveTheBitsOfTheOpsApart) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  constexpr int64_t kWidth = 64;
  CodesProblem problem(
      cuda,
      {{2 * kWidth, 256, DType::kI8_G128, DType::kBF16, DType::kBF16}, 16, 2},
      kCounts, false, 9);
  CudaTestMatrix y(problem.Run());
  const ActivationDesc desc = {Activation::kClampedSilu, true, kWidth,
                               DType::kBF16, kTestLimit};
  ActivationParams params = {y.view(), y.view()};
  params.y.dims[1] = kWidth;
  const auto chosen = Select("activation", ActivationTable(), desc, cuda.info);
  ASSERT_TRUE(chosen.ok());
  ASSERT_TRUE((*chosen)->run(desc, params, *cuda.stream).ok());
  const TestMatrix apart = y.Download();
  problem.desc.gated = true;
  problem.desc.function = desc.function;
  problem.desc.limit = kTestLimit;
  const TestMatrix together = problem.Run();
  for (int64_t s = 0; s < problem.num_slots(); ++s) {
    for (int64_t c = 0; c < kWidth; ++c) {
      ASSERT_EQ(together(s, c), apart(s, c)) << s << ", " << c;
    }
  }
}

// Few slots, and int8 whose rows have several scales: x stays as it is.
TEST(ExpertCodesCudaTest, KeepsInputsElsewhere) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  const auto expect_kept = [&](DType weight, const std::vector<int>& counts,
                               bool groups) {
    CodesProblem problem(cuda,
                         {{48, 256, weight, DType::kBF16, DType::kF32},
                          static_cast<int>(counts.size()),
                          2},
                         counts, groups, 5);
    ASSERT_EQ(problem.rounding(), RowRounding::kNone);
    ExpectSameBits(problem.Run(),
                   problem.RunRow(ExpertRowNamed("cuda_quantised"), {}));
  };
  expect_kept(DType::kF8_G128, {20, 3, 0, 37, 20}, false);
  expect_kept(DType::kI8_G128, {120, 31, 0, 237, 20}, true);
}

// A row of x that is not a number spoils its own slots alone.
TEST(ExpertCodesCudaTest, NanStaysInItsSlots) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  if (cuda.info.sm != 90) GTEST_SKIP() << "a kernel of compute capability 9.0";
  for (const Kind& kind : kKinds) {
    CodesProblem problem(
        cuda, {{32, 256, kind.weight, DType::kBF16, DType::kF32}, 3, 2},
        {90, 0, 30}, kind.groups, 11);
    const TestMatrix before = problem.Run();
    problem.x.Set(7, 200, std::nanf(""));
    const TestMatrix after = problem.Run();
    for (int64_t s = 0; s < problem.num_slots(); ++s) {
      if (s / 2 == 7) {
        EXPECT_TRUE(std::isnan(after(s, 0))) << s;
      } else {
        EXPECT_EQ(after.RowBits(s), before.RowBits(s)) << s;
      }
    }
  }
}

// Needs no device: which descriptions the rows serve.
TEST(ExpertCodesTest, WhatIsRounded) {
  const DeviceInfo hopper = {DeviceKind::kCuda, "cuda", 90};
  const DeviceInfo ampere = {DeviceKind::kCuda, "cuda", 80};
  ExpertLinearDesc desc = {
      {1536, 2048, DType::kF8_G128, DType::kBF16, DType::kBF16}, 128, 8};
  const ExpertLinearRow& fp8 = ExpertRowNamed("cuda_fp8");
  const ExpertLinearRow& int8 = ExpertRowNamed("cuda_int8");
  EXPECT_EQ(fp8.refuses(desc, hopper), nullptr);
  EXPECT_NE(fp8.refuses(desc, ampere), nullptr);
  EXPECT_NE(int8.refuses(desc, hopper), nullptr);
  // Not the row that comes first.
  const auto first = Select("expert_linear", ExpertLinearTable(), desc, hopper);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->name, "cuda_quantised");
  EXPECT_EQ(ExpertRounding(**first, desc, 1 << 20), RowRounding::kNone);
  const auto refused = [&](auto change) {
    ExpertLinearDesc changed = desc;
    change(changed);
    return fp8.refuses(changed, hopper) != nullptr;
  };
  EXPECT_TRUE(refused([](auto& d) { d.gemm.batch_invariant = true; }));
  EXPECT_TRUE(refused([](auto& d) { d.gemm.k = 2048 + 64; }));
  EXPECT_TRUE(refused([](auto& d) { d.gemm.k = 1 << 17; }));
  EXPECT_TRUE(refused([](auto& d) { d.gemm.permuted = true; }));
  EXPECT_TRUE(refused([](auto& d) { d.gemm.weight = DType::kF8_G32; }));
  const int64_t few = kSomeExpertRows * desc.num_experts;
  EXPECT_EQ(ExpertRounding(fp8, desc, few), RowRounding::kNone);
  EXPECT_EQ(ExpertRounding(fp8, desc, few + 1), RowRounding::kFp8Groups);
  desc.gemm.scale_reach = ScaleReach::kRow;
  EXPECT_EQ(ExpertRounding(fp8, desc, few + 1), RowRounding::kFp8Rows);
  desc.gemm.weight = DType::kI8_G128;
  EXPECT_EQ(int8.refuses(desc, hopper), nullptr);
  EXPECT_EQ(ExpertRounding(int8, desc, few + 1), RowRounding::kInt8Rows);
  desc.gemm.scale_reach = ScaleReach::kBlock;
  EXPECT_EQ(ExpertRounding(int8, desc, few + 1), RowRounding::kNone);
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
