// The CUDA rows of rg_lru: against float64, and to the bit the same however
// sequences are cut and whatever runs beside them.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear_attention/rg_lru.h"
#include "tests/support/cuda_state_test_util.h"
#include "tests/support/rg_lru_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::LruCases;
using ::inlay::testing::LruExpected;
using ::inlay::testing::LruInputs;
using ::inlay::testing::LruReference;
using ::inlay::testing::Rounding;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

class DeviceLru {
 public:
  explicit DeviceLru(const LruInputs& in)
      : x_(in.x),
        z_(in.z),
        input_(in.input),
        recurrence_(in.recurrence),
        rates_(in.rates) {}

  // Rows [first, first + count) into those of y.
  RgLruParams Params(int64_t first, int64_t count, CudaTestMatrix& y) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    RgLruParams params;
    params.x = rows(x_);
    params.z = rows(z_);
    params.input = rows(input_);
    params.recurrence = rows(recurrence_);
    params.rates = rates_.floats();
    params.y = rows(y);
    return params;
  }

  CudaTestMatrix& x() { return x_; }
  CudaTestMatrix& z() { return z_; }

 private:
  CudaTestMatrix x_, z_, input_, recurrence_, rates_;
};

TEST(RgLruCudaTest, MatchesFloat64HoweverItIsCut) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  // Chunks that end within, at and beyond the tokens that a block takes at
  // once, and single tokens, which have a block of their own kind.
  constexpr int64_t kTokens = 18 * kStateBlock + 6;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const RgLruDesc& desc : LruCases(dtype)) {
      SCOPED_TRACE(::testing::Message()
                   << desc.channels << " channels " << DTypeName(dtype));
      const LruInputs in(desc, kTokens, 21);
      const LruExpected want = LruReference(desc, in);
      const auto index = [&](int64_t r, int64_t c) {
        return static_cast<size_t>(r * desc.channels + c);
      };
      ForEachCudaRow(RgLruTable(), desc, cuda, [&](const RgLruRow& row) {
        DeviceStates states(RgLruStateFloats(desc), 400);
        std::vector<TestMatrix> results;
        std::vector<std::string> ends;
        for (const int64_t chunk :
             {kTokens, int64_t{1}, int64_t{6}, int64_t{64}, int64_t{71}}) {
          DeviceLru lru(in);
          States::Sequence sequence;
          CudaTestMatrix apart(dtype, kTokens, desc.channels, 8);
          // Apart, and in the place of what it reads.
          CudaTestMatrix& y = chunk == 6    ? lru.z()
                              : chunk == 71 ? lru.x()
                                            : apart;
          for (int64_t first = 0; first < kTokens; first += chunk) {
            const int64_t count = std::min(chunk, kTokens - first);
            states.host().Add(sequence, 0, count);
            RgLruParams params = lru.Params(first, count, y);
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
TEST(RgLruCudaTest, SequencesSideBySide) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kRows = 90, kFirst = 67, kSecond = 1;
  for (const RgLruDesc& desc : LruCases(DType::kBF16)) {
    SCOPED_TRACE(::testing::Message() << desc.channels);
    const LruInputs in(desc, kRows, 31);
    ForEachCudaRow(RgLruTable(), desc, cuda, [&](const RgLruRow& row) {
      DeviceLru lru(in);
      DeviceStates states(RgLruStateFloats(desc), 64);
      const TestMatrix before(desc.activation, kRows, desc.channels, 8);
      CudaTestMatrix both(before), apart(before);
      States::Sequence first, second;
      states.host().Add(first, 0, kFirst);
      states.host().Add(second, kFirst, kSecond);
      RgLruParams params = lru.Params(0, kRows, both);
      params.state = states.Take(kRows, 4);
      ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
      const TestMatrix want = both.Download();
      for (const auto& [begin, count] :
           {std::pair{int64_t{0}, kFirst}, {kFirst, kSecond}}) {
        States::Sequence sequence;
        states.host().Add(sequence, 0, count);
        params = lru.Params(begin, count, apart);
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
