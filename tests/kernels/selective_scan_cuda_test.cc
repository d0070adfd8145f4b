// The CUDA rows of selective_scan: against float64, and to the bit the same
// however sequences are cut and whatever runs beside them.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/linear_attention/selective_scan.h"
#include "tests/support/cuda_state_test_util.h"
#include "tests/support/selective_scan_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::DeviceStates;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::Expected;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::Rounding;
using ::inlay::testing::ScanCases;
using ::inlay::testing::ScanInputs;
using ::inlay::testing::ScanReference;
using ::inlay::testing::ScanRoundings;
using ::inlay::testing::States;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

class DeviceScan {
 public:
  explicit DeviceScan(const ScanInputs& in)
      : x_(in.x),
        z_(in.z),
        step_(in.step),
        b_(in.b),
        c_(in.c),
        rates_(in.rates),
        skip_(in.skip) {}

  // Rows [first, first + count) into those of y.
  SelectiveScanParams Params(int64_t first, int64_t count, CudaTestMatrix& y) {
    const auto rows = [&](CudaTestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    SelectiveScanParams params;
    params.x = rows(x_);
    params.step = rows(step_);
    params.b = rows(b_);
    params.c = rows(c_);
    params.z = rows(z_);
    params.rates = rates_.floats();
    params.skip = skip_.floats();
    params.y = rows(y);
    return params;
  }

  CudaTestMatrix& z() { return z_; }

 private:
  CudaTestMatrix x_, z_, step_, b_, c_, rates_, skip_;
};

TEST(SelectiveScanCudaTest, MatchesFloat64HoweverItIsCut) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  // More than a block's tokens, runs that end within and at fours of them.
  constexpr int64_t kTokens = 5 * kStateBlock + 6;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const SelectiveScanDesc& desc : ScanCases(dtype)) {
      SCOPED_TRACE(::testing::Message()
                   << desc.channels << " channels, states of "
                   << desc.state_size << " " << DTypeName(dtype));
      const ScanInputs in(desc, kTokens, 21);
      const Expected want = ScanReference(desc, in);
      const auto index = [&](int64_t r, int64_t c) {
        return static_cast<size_t>(r * desc.channels + c);
      };
      const double roundings = ScanRoundings(desc, kTokens);
      ForEachCudaRow(
          SelectiveScanTable(), desc, cuda, [&](const SelectiveScanRow& row) {
            DeviceStates states(SelectiveScanStateFloats(desc), 160);
            std::vector<TestMatrix> results;
            std::vector<std::string> ends;
            for (const int64_t chunk : {kTokens, int64_t{1}, int64_t{6}}) {
              DeviceScan scan(in);
              States::Sequence sequence;
              CudaTestMatrix apart(dtype, kTokens, desc.channels, 8);
              CudaTestMatrix& y = chunk == 6 ? scan.z() : apart;
              for (int64_t first = 0; first < kTokens; first += chunk) {
                const int64_t count = std::min(chunk, kTokens - first);
                states.host().Add(sequence, 0, count);
                SelectiveScanParams params = scan.Params(first, count, y);
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
                  return roundings * want.magnitude[index(r, c)] +
                         Rounding(dtype, want.y[index(r, c)]) + 1e-30;
                });
            for (int64_t r = 0; r < kTokens; ++r) {
              ASSERT_EQ(results[1].RowBits(r), results[0].RowBits(r)) << r;
              ASSERT_EQ(results[2].RowBits(r), results[0].RowBits(r)) << r;
            }
            for (size_t i = 0; i < ends.size(); ++i) {
              ASSERT_EQ(ends[i], ends[i % (ends.size() / 3)]) << i;
            }
          });
    }
  }
}

// Two sequences of other lengths, a plan with room for more, rows of nobody.
TEST(SelectiveScanCudaTest, SequencesSideBySide) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kRows = 100, kFirst = 37, kSecond = 50;
  const SelectiveScanDesc desc = {200, 16, DType::kBF16};
  const ScanInputs in(desc, kRows, 31);
  ForEachCudaRow(
      SelectiveScanTable(), desc, cuda, [&](const SelectiveScanRow& row) {
        DeviceScan scan(in);
        DeviceStates states(SelectiveScanStateFloats(desc), 64);
        const TestMatrix before(desc.activation, kRows, desc.channels, 8);
        CudaTestMatrix both(before), apart(before);
        States::Sequence first, second;
        states.host().Add(first, 0, kFirst);
        states.host().Add(second, kFirst, kSecond);
        SelectiveScanParams params = scan.Params(0, kRows, both);
        params.state = states.Take(kRows, 4);
        ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        const TestMatrix want = both.Download();
        for (const auto& [begin, count] :
             {std::pair{int64_t{0}, kFirst}, {kFirst, kSecond}}) {
          States::Sequence sequence;
          states.host().Add(sequence, 0, count);
          params = scan.Params(begin, count, apart);
          params.state = states.Take(count);
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
          const States::Sequence& whole = begin == 0 ? first : second;
          for (size_t b = 0; b < whole.blocks.size(); ++b) {
            ASSERT_EQ(states.State(sequence.blocks[b]),
                      states.State(whole.blocks[b]));
          }
        }
        const TestMatrix& got = apart.Download();
        for (int64_t r = 0; r < kRows; ++r) {
          ASSERT_EQ(want.RowBits(r), got.RowBits(r)) << r;
          if (r < kFirst + kSecond) continue;
          ASSERT_EQ(want.RowBits(r), before.RowBits(r)) << r;
        }
      });
}

// A token of each of so many sequences that a block takes several, some of them
// missing, twice: each has the bits that it has as the only one.
TEST(SelectiveScanCudaTest, ManySequencesOfOneToken) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  constexpr int64_t kSequences = 600, kSteps = 2;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int size : {16, 7}) {
      SCOPED_TRACE(::testing::Message() << size << " " << DTypeName(dtype));
      const SelectiveScanDesc desc = {200, size, dtype};
      const ScanInputs in(desc, kSequences * kSteps, 41);
      ForEachCudaRow(
          SelectiveScanTable(), desc, cuda, [&](const SelectiveScanRow& row) {
            DeviceScan scan(in);
            DeviceStates states(SelectiveScanStateFloats(desc), 4 * 600 + 64);
            CudaTestMatrix all(dtype, kSequences * kSteps, desc.channels, 8);
            std::vector<States::Sequence> sequences(kSequences);
            for (int64_t step = 0; step < kSteps; ++step) {
              for (int64_t s = 0; s < kSequences; ++s) {
                states.host().Add(sequences[static_cast<size_t>(s)], s, 1);
              }
              SelectiveScanParams params =
                  scan.Params(step * kSequences, kSequences, all);
              params.state = states.Take(kSequences, kSequences + 5);
              ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
            }
            const TestMatrix got = all.Download();
            for (const int64_t s : {int64_t{0}, int64_t{301}, kSequences - 1}) {
              CudaTestMatrix alone(dtype, kSequences * kSteps, desc.channels,
                                   8);
              States::Sequence sequence;
              for (int64_t step = 0; step < kSteps; ++step) {
                const int64_t at = step * kSequences + s;
                states.host().Add(sequence, 0, 1);
                SelectiveScanParams params = scan.Params(at, 1, alone);
                params.state = states.Take(1);
                ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                ASSERT_EQ(alone.Download().RowBits(at), got.RowBits(at)) << s;
              }
              ASSERT_EQ(states.State(sequence.blocks.back()),
                        states.State(
                            sequences[static_cast<size_t>(s)].blocks.back()));
            }
          });
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
