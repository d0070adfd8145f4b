// The CUDA rows of state_gates, gated_norm and columns: types, widths with and
// without vectors, strides, in place.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/columns/columns.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/state_gates.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::RandomMatrix;
using ::inlay::testing::Rounding;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

void TestStateGates(const TestCuda& cuda, bool delta, float bound,
                    DType dtype) {
  StateGatesDesc desc;
  desc.bound = bound;
  desc.num_heads = 70;
  desc.channels = delta ? 5 : 1;
  desc.activation = dtype;
  if (!delta) {
    desc.x_scale = 0.5f;
    desc.least = 0.1f;
    desc.most = 2.0f;
  }
  const int64_t width = desc.num_heads * desc.channels;
  TestMatrix x = RandomMatrix(dtype, 4, width, 1, 2, 3.0f);
  x.Set(0, 0, 200.0f);  // where e^x overflows
  x.Set(0, width - 1, -200.0f);
  const TestMatrix b = RandomMatrix(dtype, 4, desc.num_heads, 2);
  const TestMatrix bias = RandomMatrix(DType::kF32, 1, width, 3);
  const TestMatrix a_log = RandomMatrix(DType::kF32, 1, desc.num_heads, 4);
  const auto raw = [&](int64_t r, int64_t c) {
    return double{desc.x_scale} * x(r, c) + bias(0, c);
  };
  const auto step = [&](int64_t r, int64_t c) {
    const double soft =
        raw(r, c) > 100 ? raw(r, c) : std::log1p(std::exp(raw(r, c)));
    return std::clamp<double>(soft, desc.least, desc.most);
  };
  const auto rate = [&](int64_t c) {
    return std::exp(double{a_log(0, c / desc.channels)});
  };
  const auto share = [&](int64_t r, int64_t c) {
    return 1.0 / (1.0 + std::exp(-rate(c) * raw(r, c)));
  };
  const auto decay = [&](int64_t r, int64_t c) {
    return std::exp(bound < 0 ? bound * share(r, c) : -rate(c) * step(r, c));
  };
  const auto beta = [&](int64_t r, int64_t c) {
    return delta ? 1.0 / (1.0 + std::exp(-double{b(r, c)})) : step(r, c);
  };
  // A step errs by its exponential and logarithm, 2 units in the last place
  // each, their sum and two roundings of what its exponent is made of, which
  // count by their size; so does the decay's exponent: rate, 2 units, step and
  // their product.
  const auto exponent = [&](int64_t r, int64_t c) {
    return std::abs(double{desc.x_scale} * x(r, c)) + std::abs(bias(0, c));
  };
  const auto step_tolerance = [&](int64_t r, int64_t c) {
    return step(r, c) * kUnitF32 * (8 + 2 * exponent(r, c)) + 1e-37;
  };
  // With a bound: its share errs by a few units in the last place, and by what
  // its exponent does, which counts by the share's own slope.
  const auto decay_tolerance = [&](int64_t r, int64_t c) {
    if (bound < 0) {
      const double slope = 1 - share(r, c);
      return decay(r, c) * kUnitF32 *
                 (8 - bound * share(r, c) *
                          (8 + 8 * slope * rate(c) * (1 + exponent(r, c)))) +
             1e-37;
    }
    return decay(r, c) * (8 * kUnitF32 * (1 + rate(c) * step(r, c)) +
                          rate(c) * step_tolerance(r, c)) +
           1e-37;
  };
  const auto beta_tolerance = [&](int64_t r, int64_t c) {
    return delta ? beta(r, c) * kUnitF32 * 8 + 1e-37 : step_tolerance(r, c);
  };
  ForEachCudaRow(StateGatesTable(), desc, cuda, [&](const StateGatesRow& row) {
    CudaTestMatrix device_x(x), device_b(b), device_bias(bias),
        device_a_log(a_log);
    CudaTestMatrix decays(DType::kF32, 4, width, 1);
    CudaTestMatrix betas(DType::kF32, 4, desc.num_heads, 1);
    StateGatesParams params;
    params.x = device_x.view();
    if (delta) params.b = device_b.view();
    params.bias = device_bias.floats();
    params.a_log = device_a_log.floats();
    params.decay = decays.view();
    params.beta = betas.view();
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    ExpectClose(decays.Download(), decay, decay_tolerance);
    ExpectClose(betas.Download(), beta, beta_tolerance);
    if (dtype != DType::kF32 || !delta) return;
    params.decay = params.x;
    params.beta = params.b;
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    for (int64_t r = 0; r < 4; ++r) {
      EXPECT_EQ(device_x.Download().RowBits(r), decays.Download().RowBits(r));
      EXPECT_EQ(device_b.Download().RowBits(r), betas.Download().RowBits(r));
    }
  });
}

TEST(StateGatesCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const auto& [delta, bound] :
         {std::pair{false, 0.0f}, {true, 0.0f}, {true, -5.0f}}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " delta "
                                        << delta << " bound " << bound);
      TestStateGates(cuda, delta, bound, dtype);
    }
  }
}

void TestGatedNorm(const TestCuda& cuda, const GatedNormDesc& desc) {
  const int64_t width = desc.width;
  const int64_t all = desc.groups * width;
  const DType dtype = desc.activation;
  // Vectors can be read where the width allows it.
  const int64_t pad = width % 8 == 0 ? 8 : 3;
  const TestMatrix x = RandomMatrix(dtype, 4, all, 1, pad);
  const TestMatrix z =
      RandomMatrix(dtype, 4, desc.group_gates ? desc.groups : all, 2, pad);
  const TestMatrix weight = RandomMatrix(DType::kF32, 1, all, 3);
  const auto f = [&](int64_t r, int64_t c) {
    const double v =
        double{desc.gate_scale} * z(r, desc.group_gates ? c / width : c);
    const double sigmoid = 1.0 / (1.0 + std::exp(-v));
    return desc.gate == GateFunction::kNone       ? 1.0
           : desc.gate == GateFunction::kSilu     ? v * sigmoid
           : desc.gate == GateFunction::kSoftplus ? std::log1p(std::exp(v))
                                                  : sigmoid;
  };
  std::vector<double> norms;
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t g = 0; g < desc.groups; ++g) {
      double squares = 0.0;
      for (int64_t i = g * width; i < (g + 1) * width; ++i) {
        const double v = x(r, i) * (desc.gate_first ? f(r, i) : 1.0);
        squares += v * v;
      }
      norms.push_back(desc.normalise
                          ? 1.0 /
                                std::sqrt(squares / static_cast<double>(width) +
                                          double{1e-4f})
                          : 1.0);
    }
  }
  const auto want = [&](int64_t r, int64_t c) {
    return x(r, c) * f(r, c) *
           norms[static_cast<size_t>(r * desc.groups + c / width)] *
           weight(0, desc.shared_weight ? c % width : c);
  };
  // As on CPU (linear_attention_test.cc); then rounded.
  const auto tolerance = [&](int64_t r, int64_t c) {
    return std::abs(want(r, c)) * kUnitF32 *
               (static_cast<double>(width) / 2 + 32) +
           Rounding(dtype, want(r, c)) + 1e-30;
  };
  ForEachCudaRow(GatedNormTable(), desc, cuda, [&](const GatedNormRow& row) {
    CudaTestMatrix device_x(x), device_z(z), device_weight(weight);
    CudaTestMatrix y(dtype, 4, all, 2 * pad);
    GatedNormParams params;
    params.x = device_x.view();
    if (desc.gate != GateFunction::kNone) params.z = device_z.view();
    params.weight = device_weight.floats();
    params.epsilon = 1e-4f;
    params.y = y.view();
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    ExpectClose(y.Download(), want, tolerance);
    params.y = params.x;
    ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
    for (int64_t r = 0; r < 4; ++r) {
      EXPECT_EQ(device_x.Download().RowBits(r), y.Download().RowBits(r));
    }
  });
}

TEST(GatedNormCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const int64_t width : {1, 7, 33, 128, 512, 1000, 1033, 9000}) {
      for (const GateFunction gate :
           {GateFunction::kNone, GateFunction::kSilu, GateFunction::kSigmoid,
            GateFunction::kSoftplus}) {
        for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7, 8, 11}) {
          GatedNormDesc desc;
          desc.width = width;
          desc.groups = 3;
          desc.gate = gate;
          desc.gate_scale = 0.7f;
          desc.gate_first = (flags & 1) != 0;
          desc.normalise = (flags & 2) != 0;
          desc.shared_weight = (flags & 4) != 0;
          desc.group_gates = (flags & 8) != 0;
          desc.activation = dtype;
          SCOPED_TRACE(::testing::Message()
                       << width << " " << DTypeName(dtype) << " gate "
                       << static_cast<int>(gate) << " flags " << flags);
          TestGatedNorm(cuda, desc);
        }
      }
    }
  }
}

// Many groups are read twice, few once.
TEST(GatedNormCudaTest, RowsDoNotDependOnHowManyThereAre) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kMany = 2600;
  constexpr int64_t kFew = 3;
  for (const int64_t width : {128, 520}) {
    SCOPED_TRACE(width);
    GatedNormDesc desc;
    desc.width = width;
    desc.groups = 2;
    desc.gate_first = true;
    desc.activation = DType::kBF16;
    const int64_t all = desc.groups * width;
    CudaTestMatrix x(RandomMatrix(desc.activation, kMany, all, 1, 8));
    CudaTestMatrix z(RandomMatrix(desc.activation, kMany, all, 2, 8));
    CudaTestMatrix weight(RandomMatrix(DType::kF32, 1, all, 3, 0));
    ForEachCudaRow(GatedNormTable(), desc, cuda, [&](const GatedNormRow& row) {
      const auto run = [&](int64_t first, int64_t count) {
        CudaTestMatrix y(desc.activation, count, all, 8);
        GatedNormParams params;
        params.x = x.view().RowSlice(first, count);
        params.z = z.view().RowSlice(first, count);
        params.weight = weight.floats();
        params.epsilon = 1e-5f;
        params.y = y.view();
        EXPECT_TRUE(row.run(desc, params, *cuda.stream).ok());
        return y.Download();
      };
      const TestMatrix many = run(0, kMany);
      for (const int64_t first : {int64_t{0}, kMany - kFew}) {
        const TestMatrix few = run(first, kFew);
        for (int64_t r = 0; r < kFew; ++r) {
          EXPECT_EQ(few.RowBits(r), many.RowBits(first + r)) << first + r;
        }
      }
    });
  }
}

// Runs at any columns and at multiples of 16 bytes; more than a launch takes.
TEST(ColumnsCudaTest, TakesRunsInOrder) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const int32_t size : {1, 3, 8, 264}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << size);
      const int32_t count = size < 10 ? 600 : 5;
      std::vector<ColumnRun> runs;
      std::vector<int64_t> from;
      for (int32_t i = 0; i < count; ++i) {
        // The last first, every other one left out.
        runs.push_back({2 * size * (count - 1 - i), size});
        for (int32_t c = 0; c < size; ++c) {
          from.push_back(runs.back().first + c);
        }
      }
      TestMatrix x = RandomMatrix(dtype, 5, 2 * size * count, 1, 8);
      CudaTestMatrix device_x(x);
      const ColumnsDesc desc{dtype};
      ForEachCudaRow(ColumnsTable(), desc, cuda, [&](const ColumnsRow& row) {
        CudaTestMatrix y(dtype, 5, static_cast<int64_t>(from.size()), 16);
        ColumnsParams params;
        params.x = device_x.view();
        params.runs = runs;
        params.y = y.view();
        ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        ExpectClose(
            y.Download(),
            [&](int64_t r, int64_t c) {
              return double{x(r, from[static_cast<size_t>(c)])};
            },
            [](int64_t, int64_t) { return 1e-30; });
      });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
