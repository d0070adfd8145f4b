// selective_scan on CPU: every row against float64; results that do not depend,
// to the bit, on how sequences are cut and on what runs beside them.
#include "kernels/linear_attention/selective_scan.h"

#include <algorithm>

#include "tests/support/kernel_test_util.h"
#include "tests/support/selective_scan_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::Expected;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::ScanCases;
using ::inlay::testing::ScanInputs;
using ::inlay::testing::ScanReference;
using ::inlay::testing::ScanRoundings;
using ::inlay::testing::States;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

std::string Name(const SelectiveScanDesc& desc) {
  return std::to_string(desc.channels) + " channels, states of " +
         std::to_string(desc.state_size);
}

TEST(SelectiveScanTest, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 2 * kStateBlock + 3;
  for (const SelectiveScanDesc& desc : ScanCases(DType::kF32)) {
    SCOPED_TRACE(Name(desc));
    ScanInputs in(desc, kTokens, 7);
    const Expected want = ScanReference(desc, in);
    const auto at = [&](const std::vector<double>& values) {
      return [&values, &desc](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * desc.channels + c)];
      };
    };
    const double roundings = ScanRoundings(desc, kTokens);
    const auto check = [&](const SelectiveScanRow& row) {
      // Apart from x and z, and in the place of either.
      for (int place = 0; place < 3; ++place) {
        ScanInputs own = in;
        TestMatrix apart(DType::kF32, kTokens, desc.channels, 2);
        TestMatrix& y = place == 0 ? apart : place == 1 ? own.x : own.z;
        States states(SelectiveScanStateFloats(desc), 8);
        States::Sequence sequence;
        states.Add(sequence, 0, kTokens);
        SelectiveScanParams params = own.Params(0, kTokens);
        params.state = states.Take();
        params.y = y.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        ExpectClose(y, at(want.y), [&](int64_t r, int64_t c) {
          return roundings * at(want.magnitude)(r, c) + 1e-30;
        });
      }
    };
    OnEverySimdTarget(
        [&] { ForEachCpuRow(SelectiveScanTable(), desc, cpu, check); });
  }
}

// Cut anywhere, and two sequences at once, the second a token behind: the same
// bits, and the same states at the ends of blocks.
TEST(SelectiveScanTest, ChunksAndBatchesAreExact) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 3 * kStateBlock + 1;
  for (const SelectiveScanDesc& desc : ScanCases(DType::kF32)) {
    SCOPED_TRACE(Name(desc));
    ScanInputs in(desc, 2 * kTokens, 11);
    for (TestMatrix* matrix : {&in.x, &in.z, &in.step, &in.b, &in.c}) {
      for (int64_t r = 0; r < kTokens; ++r) {
        for (int64_t c = 0; c < matrix->cols(); ++c) {
          matrix->Set(kTokens + r, c, (*matrix)(r, c));
        }
      }
    }
    ForEachCpuRow(
        SelectiveScanTable(), desc, cpu, [&](const SelectiveScanRow& row) {
          States states(SelectiveScanStateFloats(desc), 128);
          const auto run = [&](int64_t first, int64_t count, TestMatrix& y) {
            SelectiveScanParams params = in.Params(first, count);
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
              ASSERT_EQ(states.State(cut.blocks[b]),
                        states.State(whole.blocks[b]));
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
