// The CUDA rows of short_conv: against float64, and to the bit the same however
// sequences are cut.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>

#include "kernels/linear_attention/short_conv.h"
#include "tests/support/cuda_state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::RandomMatrix;
using ::inlay::testing::Rounding;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

struct ConvCase {
  int64_t channels;
  int taps;
  bool gated;
  DType dtype;
};

struct ConvInputs {
  ConvInputs(const ConvCase& test, int64_t tokens)
      : x(RandomMatrix(test.dtype, tokens, test.channels, 1, Pad(test))),
        before(RandomMatrix(test.dtype, tokens, test.channels, 2, Pad(test))),
        after(RandomMatrix(test.dtype, tokens, test.channels, 3, Pad(test))),
        taps(RandomMatrix(DType::kF32, test.taps, test.channels, 4, 0)),
        bias(RandomMatrix(DType::kF32, 1, test.channels, 5, 0)) {}
  // Rows that vectors can be read from, where their width allows it.
  static int64_t Pad(const ConvCase& test) {
    return test.channels % 8 == 0 ? 8 : 3;
  }
  TestMatrix x, before, after, taps, bias;
};

class DeviceConv {
 public:
  DeviceConv(const ConvCase& test, const ConvInputs& in)
      : test_(test),
        x_(in.x),
        before_(in.before),
        after_(in.after),
        taps_(in.taps),
        bias_(in.bias) {}

  // Rows [first, first + count) into y, whose rows are the output's gates where
  // there are some.
  ShortConvParams Params(int64_t first, int64_t count, CudaTestMatrix& y) {
    ShortConvParams params;
    params.x = x_.view().RowSlice(first, count);
    params.y = y.view().RowSlice(first, count);
    if (test_.gated) {
      params.input_gate = before_.view().RowSlice(first, count);
      params.output_gate = params.y;
    } else {
      params.bias = bias_.floats();
    }
    params.taps = taps_.floats();
    return params;
  }

 private:
  const ConvCase test_;
  CudaTestMatrix x_, before_, after_, taps_, bias_;
};

ShortConvDesc DescOf(const ConvCase& test) {
  return {test.channels, test.taps, !test.gated, test.dtype};
}

TEST(ShortConvCudaTest, MatchesFloat64HoweverItIsCut) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kTokens = 2 * kStateBlock + 5;
  std::vector<ConvCase> cases;
  for (const DType dtype : kFloats) {
    for (const int64_t channels : {1, 7, 64, 259, 1064}) {
      for (const int taps : {2, 3, 4, 5, 8}) {
        for (const bool gated : {false, true}) {
          cases.push_back({channels, taps, gated, dtype});
        }
      }
    }
  }
  for (const ConvCase& test : cases) {
    SCOPED_TRACE(::testing::Message()
                 << test.channels << " channels, " << test.taps
                 << " taps, gated " << test.gated << " "
                 << DTypeName(test.dtype));
    const ConvInputs in(test, kTokens);
    const auto terms = [&](int64_t r, int64_t c, bool magnitude) {
      const auto of = [&](double v) { return magnitude ? std::abs(v) : v; };
      double sum = test.gated ? 0.0 : of(in.bias(0, c));
      for (int j = 0; j < test.taps; ++j) {
        const int64_t row = r - test.taps + 1 + j;
        if (row < 0) continue;
        const double gate = test.gated ? in.before(row, c) : 1.0;
        sum += of(in.x(row, c) * gate * in.taps(j, c));
      }
      return sum;
    };
    const auto want = [&](int64_t r, int64_t c) {
      const double sum = terms(r, c, false);
      return test.gated ? sum * in.after(r, c) : sum / (1.0 + std::exp(-sum));
    };
    // As on CPU (linear_attention_test.cc); then rounded.
    const auto tolerance = [&](int64_t r, int64_t c) {
      return kUnitF32 * (test.taps + 12) * 1.2 * terms(r, c, true) *
                 (test.gated ? std::abs(in.after(r, c)) : 1.0) +
             Rounding(test.dtype, want(r, c)) + 1e-30;
    };
    const ShortConvDesc desc = DescOf(test);
    ForEachCudaRow(ShortConvTable(), desc, cuda, [&](const ShortConvRow& row) {
      DeviceConv conv(test, in);
      DeviceStates states(ShortConvStateFloats(desc), 128);
      std::vector<TestMatrix> results;
      std::vector<std::string> ends;
      for (const int64_t chunk : {kTokens, int64_t{1}, int64_t{6}}) {
        States::Sequence sequence;
        CudaTestMatrix y(
            test.gated ? in.after
                       : TestMatrix(test.dtype, kTokens, test.channels, 8));
        for (int64_t first = 0; first < kTokens; first += chunk) {
          const int64_t count = std::min(chunk, kTokens - first);
          states.host().Add(sequence, 0, count);
          ShortConvParams params = conv.Params(first, count, y);
          params.state = states.Take(count);
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        }
        results.push_back(y.Download());
        for (const int32_t block : sequence.blocks) {
          ends.push_back(states.State(block));
        }
      }
      ExpectClose(results[0], want, tolerance);
      for (int64_t r = 0; r < kTokens; ++r) {
        EXPECT_EQ(results[1].RowBits(r), results[0].RowBits(r));
        EXPECT_EQ(results[2].RowBits(r), results[0].RowBits(r));
      }
      for (size_t i = 0; i < ends.size(); ++i) {
        EXPECT_EQ(ends[i], ends[i % (ends.size() / 3)]);
      }
    });
  }
}

// Prompts long enough that a thread takes several rows, of one sequence or of
// two, and rows of nobody behind them.
TEST(ShortConvCudaTest, LongPromptsSideBySide) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kRows = 12000, kFirst = 5003, kSecond = 6001;
  for (const int taps : {3, 8}) {
    const ConvCase test{64, taps, true, DType::kBF16};
    const ConvInputs in(test, kRows);
    const ShortConvDesc desc = DescOf(test);
    ForEachCudaRow(ShortConvTable(), desc, cuda, [&](const ShortConvRow& row) {
      DeviceConv conv(test, in);
      DeviceStates states(ShortConvStateFloats(desc), 4000);
      CudaTestMatrix both(in.after), apart(in.after);
      States::Sequence first, second;
      states.host().Add(first, 0, kFirst);
      states.host().Add(second, kFirst, kSecond);
      ShortConvParams params = conv.Params(0, kRows, both);
      params.state = states.Take(kRows, 4);
      ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
      const TestMatrix want = both.Download();
      for (auto [begin, count] :
           {std::pair{int64_t{0}, kFirst}, {kFirst, kSecond}}) {
        States::Sequence sequence;
        for (int64_t r = 0; r < count; r += 411) {
          const int64_t rows = std::min<int64_t>(411, count - r);
          states.host().Add(sequence, 0, rows);
          params = conv.Params(begin + r, rows, apart);
          params.state = states.Take(rows);
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        }
        const States::Sequence& whole = begin == 0 ? first : second;
        for (size_t b = 0; b < whole.blocks.size(); b += 37) {
          ASSERT_EQ(states.State(sequence.blocks[b]),
                    states.State(whole.blocks[b]));
        }
        ASSERT_EQ(states.State(sequence.blocks.back()),
                  states.State(whole.blocks.back()));
      }
      const TestMatrix& got = apart.Download();
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_EQ(want.RowBits(r), got.RowBits(r)) << r;
      }
      for (int64_t r = kFirst + kSecond; r < kRows; ++r) {
        ASSERT_EQ(want.RowBits(r), in.after.RowBits(r)) << r;
      }
    });
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
