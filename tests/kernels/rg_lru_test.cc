// rg_lru on CPU: every row against float64; results that do not depend, to the
// bit, on how sequences are cut and on what runs beside them.
#include "kernels/linear_attention/rg_lru.h"

#include <algorithm>

#include "tests/support/kernel_test_util.h"
#include "tests/support/rg_lru_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::LruCases;
using ::inlay::testing::LruExpected;
using ::inlay::testing::LruInputs;
using ::inlay::testing::LruReference;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::States;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

TEST(RgLruTest, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 2 * kStateBlock + 3;
  for (const RgLruDesc& desc : LruCases(DType::kF32)) {
    SCOPED_TRACE(desc.channels);
    LruInputs in(desc, kTokens, 7);
    const LruExpected want = LruReference(desc, in);
    const auto at = [&](const std::vector<double>& values) {
      return [&](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * desc.channels + c)];
      };
    };
    const auto check = [&](const RgLruRow& row) {
      // Apart, and in the place of what it reads.
      for (int place = 0; place < 3; ++place) {
        LruInputs own = in;
        TestMatrix apart(DType::kF32, kTokens, desc.channels, 2);
        TestMatrix& y = place == 0 ? apart : place == 1 ? own.x : own.z;
        States states(RgLruStateFloats(desc), 8);
        States::Sequence sequence;
        states.Add(sequence, 0, kTokens);
        RgLruParams params = own.Params(0, kTokens);
        params.state = states.Take();
        params.y = y.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        ExpectClose(y, at(want.y), at(want.tolerance));
      }
    };
    OnEverySimdTarget([&] { ForEachCpuRow(RgLruTable(), desc, cpu, check); });
  }
}

// Cut anywhere, and two sequences at once, the second a token behind: the same
// bits, and the same states at the ends of blocks.
TEST(RgLruTest, ChunksAndBatchesAreExact) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 3 * kStateBlock + 1;
  for (const RgLruDesc& desc : LruCases(DType::kF32)) {
    SCOPED_TRACE(desc.channels);
    LruInputs in(desc, 2 * kTokens, 11);
    for (TestMatrix* matrix : in.rows()) {
      for (int64_t r = 0; r < kTokens; ++r) {
        for (int64_t c = 0; c < desc.channels; ++c) {
          matrix->Set(kTokens + r, c, (*matrix)(r, c));
        }
      }
    }
    ForEachCpuRow(RgLruTable(), desc, cpu, [&](const RgLruRow& row) {
      States states(RgLruStateFloats(desc), 128);
      const auto run = [&](int64_t first, int64_t count, TestMatrix& y) {
        RgLruParams params = in.Params(first, count);
        params.state = states.Take();
        params.y = y.view().RowSlice(first, count);
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      };
      TestMatrix y(DType::kF32, kTokens, desc.channels);
      States::Sequence whole;
      states.Add(whole, 0, kTokens);
      run(0, kTokens, y);
      for (const int64_t chunk : {1, 5, 8}) {
        States::Sequence cut;
        TestMatrix got(DType::kF32, kTokens, desc.channels);
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
      TestMatrix both(DType::kF32, 2 * kTokens, desc.channels);
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
