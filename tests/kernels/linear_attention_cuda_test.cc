// The CUDA rows of linear_attention: against float64, and to the bit the same
// however sequences are cut, whatever runs beside them, and in steps of fixed
// size.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "tests/support/cuda_state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DeviceInputs;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::Expected;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::Inputs;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::LinearAttentionCase;
using ::inlay::testing::LinearAttentionCases;
using ::inlay::testing::Name;
using ::inlay::testing::Reference;
using ::inlay::testing::Rounding;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

// Those of the CPU, and the shapes of real models: rows read four elements at a
// time, several blocks a head.
std::vector<LinearAttentionCase> Cases(DType activation) {
  std::vector<LinearAttentionCase> cases = LinearAttentionCases();
  for (const bool delta : {false, true}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{128, 128}, {64, 72}, {128, 64}, {256, 64}}) {
      LinearAttentionDesc desc;
      desc.num_heads = 4;
      desc.num_key_heads = 1;
      desc.key_dim = key_dim;
      desc.value_dim = value_dim;
      desc.decay = key_dim == 128 && value_dim == 64 ? StateDecay::kChannel
                                                     : StateDecay::kHead;
      desc.delta = delta;
      cases.push_back({desc, true, !delta});
    }
  }
  for (LinearAttentionCase& test : cases) test.desc.activation = activation;
  return cases;
}

TEST(LinearAttentionCudaTest, MatchesFloat64) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const LinearAttentionCase& test : Cases(dtype)) {
      SCOPED_TRACE(Name(test));
      constexpr int64_t kTokens = 2 * kStateBlock + 3;
      const Inputs in(test, kTokens, 7, dtype);
      const Expected want = Reference(test, in);
      const int64_t width = in.v.cols();
      const auto at = [&](const std::vector<double>& values) {
        return [&values, width](int64_t r, int64_t c) {
          return values[static_cast<size_t>(r * width + c)];
        };
      };
      // As on CPU; y by the delta rule is two sums over keys, and k q another.
      const double roundings =
          kUnitF32 *
          (3.0 * static_cast<double>(test.desc.key_dim) + 4.0 * kTokens + 8);
      const auto tolerance = [&](int64_t r, int64_t c) {
        return roundings * at(want.magnitude)(r, c) +
               Rounding(dtype, at(want.y)(r, c)) + 1e-30;
      };
      ForEachCudaRow(
          LinearAttentionTable(), test.desc, cuda,
          [&](const LinearAttentionRow& row) {
            DeviceInputs device(in);
            DeviceStates states(LinearAttentionStateFloats(test.desc), 8);
            States::Sequence sequence;
            states.host().Add(sequence, 0, kTokens);
            CudaTestMatrix y(dtype, kTokens, width, 4);
            LinearAttentionParams params =
                device.Params(test, 0, kTokens, y.view());
            params.state = states.Take(kTokens);
            ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
            ExpectClose(y.Download(), at(want.y), tolerance);
            // In the place of v.
            DeviceStates others(LinearAttentionStateFloats(test.desc), 8);
            States::Sequence other;
            others.host().Add(other, 0, kTokens);
            params = device.Params(test, 0, kTokens, device.v.view());
            params.state = others.Take(kTokens);
            ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
            const TestMatrix& again = device.v.Download();
            for (int64_t r = 0; r < kTokens; ++r) {
              ASSERT_EQ(again.RowBits(r), y.Download().RowBits(r));
            }
            EXPECT_TRUE(again.PaddingIsPoisoned());
            for (size_t b = 0; b < sequence.blocks.size(); ++b) {
              ASSERT_EQ(states.State(sequence.blocks[b]),
                        others.State(other.blocks[b]));
            }
          });
    }
  }
}

TEST(LinearAttentionCudaTest, ChunksAreExact) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const LinearAttentionCase& test : Cases(dtype)) {
      SCOPED_TRACE(Name(test));
      constexpr int64_t kTokens = 3 * kStateBlock + 1;
      DeviceInputs in(Inputs(test, kTokens, 11, dtype));
      const int64_t width = int64_t{test.desc.num_heads} * test.desc.value_dim;
      ForEachCudaRow(
          LinearAttentionTable(), test.desc, cuda,
          [&](const LinearAttentionRow& row) {
            DeviceStates states(LinearAttentionStateFloats(test.desc), 128);
            States::Sequence whole;
            CudaTestMatrix y(dtype, kTokens, width);
            states.host().Add(whole, 0, kTokens);
            LinearAttentionParams params =
                in.Params(test, 0, kTokens, y.view());
            params.state = states.Take(kTokens);
            ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
            for (const int64_t chunk : {1, 5, 8, 11}) {
              States::Sequence cut;
              CudaTestMatrix got(dtype, kTokens, width);
              for (int64_t first = 0; first < kTokens; first += chunk) {
                const int64_t count = std::min(chunk, kTokens - first);
                states.host().Add(cut, 0, count);
                params = in.Params(test, first, count,
                                   got.view().RowSlice(first, count));
                params.state = states.Take(count);
                ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
              }
              const TestMatrix& bits = got.Download();
              for (int64_t r = 0; r < kTokens; ++r) {
                ASSERT_EQ(bits.RowBits(r), y.Download().RowBits(r))
                    << "chunk " << chunk << " row " << r;
              }
              for (size_t b = 0; b < whole.blocks.size(); ++b) {
                ASSERT_EQ(states.State(cut.blocks[b]),
                          states.State(whole.blocks[b]));
              }
            }
          });
    }
  }
}

// Sequences enough for blocks of another shape, in a step of fixed size that
// has room for more: all have the bits of one alone, and rows of nobody are
// left alone.
TEST(LinearAttentionCudaTest, ManySequencesInAStepOfFixedSize) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 3, kSequences = 150, kRows = 480;
  for (const LinearAttentionCase& test : Cases(DType::kBF16)) {
    SCOPED_TRACE(Name(test));
    const Inputs one(test, kTokens, 5, DType::kBF16);
    const int64_t width = one.v.cols();
    // The same tokens again and again; poison behind them.
    Inputs many = one;
    for (auto [to, from] : {std::pair{&many.q, &one.q},
                            {&many.k, &one.k},
                            {&many.v, &one.v},
                            {&many.decay, &one.decay},
                            {&many.beta, &one.beta}}) {
      *to = TestMatrix(
          from == &one.decay || from == &one.beta ? DType::kF32 : DType::kBF16,
          kRows, from->cols(), 4);
      for (int64_t r = 0; r < kSequences * kTokens; ++r) {
        for (int64_t c = 0; c < from->cols(); ++c) {
          to->Set(r, c, (*from)(r % kTokens, c));
        }
      }
    }
    DeviceInputs alone(one), all(many);
    ForEachCudaRow(LinearAttentionTable(), test.desc, cuda,
                   [&](const LinearAttentionRow& row) {
                     DeviceStates states(LinearAttentionStateFloats(test.desc),
                                         kSequences + 2);
                     States::Sequence first;
                     CudaTestMatrix y(DType::kBF16, kTokens, width);
                     states.host().Add(first, 0, kTokens);
                     LinearAttentionParams params =
                         alone.Params(test, 0, kTokens, y.view());
                     params.state = states.Take(kTokens);
                     ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
                     std::vector<States::Sequence> sequences(kSequences);
                     for (int64_t s = 0; s < kSequences; ++s) {
                       states.host().Add(sequences[static_cast<size_t>(s)],
                                         s * kTokens, kTokens);
                     }
                     CudaTestMatrix got(DType::kBF16, kRows, width);
                     const std::string nobody = got.Download().RowBits(0);
                     params = all.Params(test, 0, kRows, got.view());
                     params.state = states.Take(kRows, kSequences + 10);
                     ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
                     const TestMatrix& bits = got.Download();
                     const TestMatrix& want = y.Download();
                     for (int64_t r = 0; r < kRows; ++r) {
                       ASSERT_EQ(bits.RowBits(r),
                                 r < kSequences * kTokens
                                     ? want.RowBits(r % kTokens)
                                     : nobody)
                           << r;
                     }
                     const std::string state = states.State(first.blocks[0]);
                     for (const States::Sequence& sequence : sequences) {
                       ASSERT_EQ(states.State(sequence.blocks[0]), state);
                     }
                   });
  }
}

// One decay a head for all tokens, as lightning attention has it.
TEST(LinearAttentionCudaTest, AViewOfOneRowServesAllTokens) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  LinearAttentionCase test = LinearAttentionCases()[0];
  test.desc.decay = StateDecay::kHead;
  Inputs in(test, 5, 3);
  for (int64_t r = 1; r < 5; ++r) {
    for (int64_t c = 0; c < in.decay.cols(); ++c) {
      in.decay.Set(r, c, in.decay(0, c));
    }
  }
  DeviceInputs device(in);
  ForEachCudaRow(
      LinearAttentionTable(), test.desc, cuda,
      [&](const LinearAttentionRow& row) {
        CudaTestMatrix each(DType::kF32, 5, in.v.cols());
        CudaTestMatrix one(DType::kF32, 5, in.v.cols());
        for (const bool fixed : {false, true}) {
          DeviceStates states(LinearAttentionStateFloats(test.desc), 4);
          States::Sequence sequence;
          states.host().Add(sequence, 0, 5);
          LinearAttentionParams params =
              device.Params(test, 0, 5, (fixed ? one : each).view());
          if (fixed) params.decay.row_stride_bytes = 0;
          params.state = states.Take(5);
          ASSERT_TRUE(row.run(test.desc, params, *cuda.stream).ok());
          EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        }
        for (int64_t r = 0; r < 5; ++r) {
          EXPECT_EQ(one.Download().RowBits(r), each.Download().RowBits(r));
        }
      });
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
