// wkv7 on CPU: every row against float64; results that do not depend, to the
// bit, on how sequences are cut and on what runs beside them.
#include "kernels/linear_attention/wkv7.h"

#include <algorithm>
#include <string>

#include "tests/support/kernel_test_util.h"
#include "tests/support/simd_target_loop.h"
#include "tests/support/wkv7_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::States;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::WkvCases;
using ::inlay::testing::WkvExpected;
using ::inlay::testing::WkvInputs;
using ::inlay::testing::WkvReference;

std::string WkvName(const Wkv7Desc& desc) {
  return std::to_string(desc.num_heads) + " heads of " +
         std::to_string(desc.head_dim) + (desc.mixes ? ", v mixed" : "");
}

TEST(Wkv7Test, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 2 * kStateBlock + 3;
  for (const Wkv7Desc& desc : WkvCases(DType::kF32)) {
    SCOPED_TRACE(WkvName(desc));
    WkvInputs in(desc, kTokens, 7);
    const WkvExpected want = WkvReference(desc, in);
    const int64_t width = in.r.cols();
    const auto at = [&](const std::vector<double>& values) {
      return [&values, width](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * width + c)];
      };
    };
    const auto check = [&](const Wkv7Row& row) {
      // Apart, and in the place of what it reads.
      for (int place = 0; place < 5; ++place) {
        WkvInputs own = in;
        TestMatrix apart(DType::kF32, kTokens, width, 2);
        TestMatrix& y = place == 0 ? apart : *own.rows()[place - 1];
        States states(Wkv7StateFloats(desc), 8);
        States::Sequence sequence;
        states.Add(sequence, 0, kTokens);
        Wkv7Params params = own.Params(desc, 0, kTokens);
        params.state = states.Take();
        params.y = y.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        ExpectClose(y, at(want.y), at(want.tolerance));
      }
    };
    OnEverySimdTarget([&] { ForEachCpuRow(Wkv7Table(), desc, cpu, check); });
  }
}

// Cut anywhere, and two sequences at once, the second a token behind: the same
// bits, and the same states at the ends of blocks.
TEST(Wkv7Test, ChunksAndBatchesAreExact) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 3 * kStateBlock + 1;
  for (const Wkv7Desc& desc : WkvCases(DType::kF32)) {
    SCOPED_TRACE(WkvName(desc));
    WkvInputs in(desc, 2 * kTokens, 11);
    const int64_t width = in.r.cols();
    for (TestMatrix* matrix : in.rows()) {
      for (int64_t r = 0; r < kTokens; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          matrix->Set(kTokens + r, c, (*matrix)(r, c));
        }
      }
    }
    ForEachCpuRow(Wkv7Table(), desc, cpu, [&](const Wkv7Row& row) {
      States states(Wkv7StateFloats(desc), 128);
      const auto run = [&](int64_t first, int64_t count, TestMatrix& y) {
        Wkv7Params params = in.Params(desc, first, count);
        params.state = states.Take();
        params.y = y.view().RowSlice(first, count);
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      };
      TestMatrix y(DType::kF32, kTokens, width);
      States::Sequence whole;
      states.Add(whole, 0, kTokens);
      run(0, kTokens, y);
      for (const int64_t chunk : {1, 5, 8}) {
        States::Sequence cut;
        TestMatrix got(DType::kF32, kTokens, width);
        for (int64_t first = 0; first < kTokens; first += chunk) {
          const int64_t count = std::min(chunk, kTokens - first);
          states.Add(cut, 0, count);
          run(first, count, got);
        }
        for (int64_t r = 0; r < kTokens; ++r) {
          ASSERT_EQ(got.RowBits(r), y.RowBits(r)) << "chunk " << chunk;
        }
        for (size_t b = 0; b < whole.blocks.size(); ++b) {
          ASSERT_EQ(states.State(cut.blocks[b]), states.State(whole.blocks[b]));
        }
      }
      States::Sequence first, second;
      TestMatrix both(DType::kF32, 2 * kTokens, width);
      states.Add(first, 0, kTokens);
      states.Add(second, kTokens, kTokens - 1);
      run(0, 2 * kTokens - 1, both);
      for (int64_t r = 0; r < kTokens; ++r) {
        ASSERT_EQ(both.RowBits(r), y.RowBits(r));
        if (r + 1 == kTokens) continue;
        ASSERT_EQ(both.RowBits(kTokens + r), y.RowBits(r));
      }
    });
  }
}

}  // namespace
}  // namespace inlay
