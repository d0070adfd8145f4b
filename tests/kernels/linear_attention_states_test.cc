// linear_attention where states are larger than caches: the same bits.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/linear_attention/linear_attention.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/state_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::Inputs;
using ::inlay::testing::kStateBlock;
using ::inlay::testing::LinearAttentionCase;
using ::inlay::testing::LinearAttentionCases;
using ::inlay::testing::States;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

// Blocks that are megabytes apart are written past the caches.
TEST(LinearAttentionTest, LargeStatesAreExact) {
  constexpr int64_t kApart = int64_t{4} << 20;
  constexpr int kBlocks = 12;
  constexpr int64_t kTokens = kStateBlock + 3;
  TestCpu cpu(2);
  std::vector<std::byte> memory(static_cast<size_t>(kApart * kBlocks) + 64);
  void* start = memory.data();
  size_t room = memory.size();
  auto* const base =
      static_cast<std::byte*>(std::align(64, room - 64, start, room));
  for (const LinearAttentionCase& test : LinearAttentionCases()) {
    Inputs in(test, kTokens, 7);
    const int64_t floats = LinearAttentionStateFloats(test.desc);
    ASSERT_LE(4 * floats, kApart);
    ForEachCpuRow(
        LinearAttentionTable(), test.desc, cpu,
        [&](const LinearAttentionRow& row) {
          States states(floats, kBlocks), apart(floats, kBlocks);
          States::Sequence sequence, other;
          TestMatrix y(DType::kF32, kTokens, in.v.cols());
          TestMatrix got(DType::kF32, kTokens, in.v.cols());
          // To the middle of a block, one token, and beyond it.
          for (int64_t first = 0; const int64_t count : {5, 1, 1, 4}) {
            for (const bool far : {false, true}) {
              States& pool = far ? apart : states;
              pool.Add(far ? other : sequence, 0, count);
              LinearAttentionParams params =
                  in.Params(test, first, count,
                            (far ? got : y).view().RowSlice(first, count));
              params.state = pool.Take();
              if (far) {
                params.state.state.base = base;
                params.state.state.block_stride_bytes = kApart;
                params.state.state.offset_bytes = 0;
              }
              ASSERT_TRUE(row.run(test.desc, params, *cpu.stream).ok());
            }
            first += count;
          }
          for (int64_t r = 0; r < kTokens; ++r) {
            ASSERT_EQ(got.RowBits(r), y.RowBits(r)) << "row " << r;
          }
          for (const int32_t block : sequence.blocks) {
            const auto* state =
                reinterpret_cast<const char*>(base + block * kApart);
            ASSERT_TRUE(states.State(block).starts_with(
                std::string(state, static_cast<size_t>(4 * floats))))
                << "block " << block;
          }
        });
  }
}

}  // namespace
}  // namespace inlay
