// The CUDA rows of wkv7: against float64, and to the bit the same however
// sequences are cut and whatever runs beside them.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/linear_attention/wkv7.h"
#include "tests/support/cuda_state_test_util.h"
#include "tests/support/wkv7_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::Rounding;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::WkvCases;
using ::inlay::testing::WkvExpected;
using ::inlay::testing::WkvInputs;
using ::inlay::testing::WkvReference;

class DeviceWkv {
 public:
  explicit DeviceWkv(const WkvInputs& in)
      : r_(in.r),
        k_(in.k),
        v_(in.v),
        g_(in.g),
        first_v_(in.first_v),
        decay_(in.decay),
        rate_(in.rate),
        mix_(in.mix),
        k_scale_(in.k_scale),
        k_rate_(in.k_rate),
        bonus_(in.bonus),
        norm_weight_(in.norm_weight),
        norm_bias_(in.norm_bias) {}

  // Rows [first, first + count) into those of y.
  Wkv7Params Params(const Wkv7Desc& desc, int64_t first, int64_t count,
                    CudaTestMatrix& y) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    Wkv7Params params;
    params.r = rows(r_);
    params.k = rows(k_);
    params.v = rows(v_);
    params.g = rows(g_);
    params.decay = rows(decay_);
    params.rate = rows(rate_);
    if (desc.mixes) {
      params.first_v = rows(first_v_);
      params.mix = rows(mix_);
    }
    params.k_scale = k_scale_.floats();
    params.k_rate = k_rate_.floats();
    params.bonus = bonus_.floats();
    params.norm_weight = norm_weight_.floats();
    params.norm_bias = norm_bias_.floats();
    params.epsilon = WkvInputs::kEpsilon;
    params.y = rows(y);
    return params;
  }

  CudaTestMatrix& r() { return r_; }
  CudaTestMatrix& g() { return g_; }

 private:
  CudaTestMatrix r_, k_, v_, g_, first_v_, decay_, rate_, mix_;
  CudaTestMatrix k_scale_, k_rate_, bonus_, norm_weight_, norm_bias_;
};

TEST(Wkv7CudaTest, MatchesFloat64HoweverItIsCut) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  // Runs that end within and at the tokens that a block takes at once.
  constexpr int64_t kTokens = 3 * kStateBlock + 6;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Wkv7Desc& desc : WkvCases(dtype)) {
      SCOPED_TRACE(::testing::Message()
                   << desc.num_heads << " heads of " << desc.head_dim << " "
                   << DTypeName(dtype) << " mixes " << desc.mixes);
      const WkvInputs in(desc, kTokens, 21);
      const WkvExpected want = WkvReference(desc, in);
      const int64_t width = in.r.cols();
      const auto index = [&](int64_t r, int64_t c) {
        return static_cast<size_t>(r * width + c);
      };
      ForEachCudaRow(Wkv7Table(), desc, cuda, [&](const Wkv7Row& row) {
        DeviceStates states(Wkv7StateFloats(desc), 160);
        std::vector<TestMatrix> results;
        std::vector<std::string> ends;
        for (const int64_t chunk :
             {kTokens, int64_t{1}, int64_t{6}, int64_t{13}}) {
          DeviceWkv wkv(in);
          States::Sequence sequence;
          CudaTestMatrix apart(dtype, kTokens, width, 8);
          // Apart, and in the place of what it reads.
          CudaTestMatrix& y = chunk == 6    ? wkv.g()
                              : chunk == 13 ? wkv.r()
                                            : apart;
          for (int64_t first = 0; first < kTokens; first += chunk) {
            const int64_t count = std::min(chunk, kTokens - first);
            states.host().Add(sequence, 0, count);
            Wkv7Params params = wkv.Params(desc, first, count, y);
            params.state = states.Take(count);
            ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
          }
          results.push_back(y.Download());
          for (const int32_t block : sequence.blocks) {
            ends.push_back(states.State(block));
          }
        }
        ExpectClose(
            results[0],
            [&](int64_t r, int64_t c) { return want.y[index(r, c)]; },
            [&](int64_t r, int64_t c) {
              return want.tolerance[index(r, c)] +
                     Rounding(dtype, want.y[index(r, c)]);
            });
        for (int64_t r = 0; r < kTokens; ++r) {
          for (size_t i = 1; i < results.size(); ++i) {
            ASSERT_EQ(results[i].RowBits(r), results[0].RowBits(r)) << r;
          }
        }
        const size_t blocks = ends.size() / results.size();
        for (size_t i = 0; i < ends.size(); ++i) {
          ASSERT_EQ(ends[i], ends[i % blocks]) << i;
        }
      });
    }
  }
}

// Two sequences of other lengths, a plan with room for more, rows of nobody;
// each has the bits that it has as the only one.
TEST(Wkv7CudaTest, SequencesSideBySide) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kRows = 60, kFirst = 37, kSecond = 1;
  for (const Wkv7Desc& desc : WkvCases(DType::kBF16)) {
    SCOPED_TRACE(::testing::Message() << desc.head_dim);
    const WkvInputs in(desc, kRows, 31);
    ForEachCudaRow(Wkv7Table(), desc, cuda, [&](const Wkv7Row& row) {
      DeviceWkv wkv(in);
      DeviceStates states(Wkv7StateFloats(desc), 64);
      const TestMatrix before(desc.activation, kRows, in.r.cols(), 8);
      CudaTestMatrix both(before), apart(before);
      States::Sequence first, second;
      states.host().Add(first, 0, kFirst);
      states.host().Add(second, kFirst, kSecond);
      Wkv7Params params = wkv.Params(desc, 0, kRows, both);
      params.state = states.Take(kRows, 4);
      ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
      const TestMatrix want = both.Download();
      for (const auto& [begin, count] :
           {std::pair{int64_t{0}, kFirst}, {kFirst, kSecond}}) {
        States::Sequence sequence;
        states.host().Add(sequence, 0, count);
        params = wkv.Params(desc, begin, count, apart);
        params.state = states.Take(count);
        ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        const States::Sequence& whole = begin == 0 ? first : second;
        for (size_t b = 0; b < whole.blocks.size(); ++b) {
          ASSERT_EQ(states.State(sequence.blocks[b]),
                    states.State(whole.blocks[b]));
        }
      }
      const TestMatrix got = apart.Download();
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_EQ(want.RowBits(r), got.RowBits(r)) << r;
        if (r < kFirst + kSecond) continue;
        ASSERT_EQ(want.RowBits(r), before.RowBits(r)) << r;
      }
    });
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
