// kv_compress against a float64 softmax, kv_select against the rows that the
// layout has; chunks; rows that are of several tokens.
#include "kernels/kv_compress/kv_compress.h"

#include <vector>

#include "kernels/kv_compress/kv_select.h"
#include "kernels/kv_write/kv_write.h"
#include "tests/support/compress_util.h"
#include "tests/support/kernel_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CompressProblem;
using ::inlay::testing::CompressShapes;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kKvTypes;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::SelectProblem;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

const CompressShapes kRaggedPools = {{1, 1},  {1, 8},   {5, 5}, {7, 170},
                                     {1, 64}, {33, 97}, {0, 9}, {130, 130}};

TEST(KvCompressTest, PoolsAsASoftmaxDoes) {
  TestCpu cpu;
  unsigned seed = 1;
  for (const DType kv : kKvTypes) {
    for (const int row_tokens : {2, 4, 16, 128}) {
      for (const bool overlaps : {false, true}) {
        const KvCompressDesc desc = {32, row_tokens, overlaps, kv};
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(kv) << " " << row_tokens << " seed " << seed);
        CompressProblem problem(desc, kRaggedPools, seed % 2 == 0 ? 16 : 32,
                                seed);
        ++seed;
        ForEachCpuRow(
            KvCompressTable(), desc, cpu, [&](const KvCompressRow& row) {
              TestMatrix y = problem.NewOutput();
              ASSERT_TRUE(row.run(desc, problem.Params(y), *cpu.stream).ok());
              problem.Expect(y, kUnitF32);
            });
      }
    }
  }
}

TEST(KvCompressTest, ChunksAndThreadsChangeNothing) {
  TestCpu cpu(3);
  const KvCompressDesc desc = {24, 4, true, DType::kBF16};
  CompressProblem problem(desc, {{61, 61}}, 16, 7);
  for (const KvCompressRow& row : KvCompressTable()) {
    if (row.device != DeviceKind::kCpu) continue;
    TestMatrix whole = problem.NewOutput(), parts = problem.NewOutput();
    ASSERT_TRUE(row.run(desc, problem.Params(whole), *cpu.stream).ok());
    for (int begin = 0; begin < 61; begin += 7) {
      KvCompressParams params = problem.Params(parts);
      AttentionSequence sequence = params.sequences.front();
      sequence.q_begin = begin;
      sequence.q_len = std::min(7, 61 - begin);
      sequence.kv_len = begin + sequence.q_len;
      params.sequences = absl::MakeConstSpan(&sequence, 1);
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
    }
    for (int64_t t = 0; t < 61; ++t) {
      EXPECT_EQ(whole.RowBits(t), parts.RowBits(t)) << t;
    }
  }
}

TEST(KvCompressTest, NumbersOutOfRangeAreNamed) {
  EXPECT_TRUE(ValidateKvCompress({32, 4}).ok());
  for (const KvCompressDesc& desc :
       {KvCompressDesc{0, 4}, KvCompressDesc{32, 0}, KvCompressDesc{32, 6},
        KvCompressDesc{32, 2 * kMaxRowTokens}}) {
    EXPECT_EQ(ValidateKvCompress(desc).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(ValidateKvSelect({1, 4, 1}).ok());
  for (const KvSelectDesc& desc :
       {KvSelectDesc{0, 4, 1}, KvSelectDesc{1, 0, 1}, KvSelectDesc{1, 4, 0}}) {
    EXPECT_EQ(ValidateKvSelect(desc).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(KvSelectTest, NamesTheRowsOfTwoLayers) {
  TestCpu cpu;
  unsigned seed = 1;
  for (const DType kv : kKvTypes) {
    for (const int row_tokens : {4, 16, 128}) {
      for (const int most : {1, 8, 64}) {
        for (const bool is_chosen : {false, true}) {
          // All compressed keys, where nobody has chosen.
          if (!is_chosen && 170 / row_tokens > most) continue;
          KvSelectDesc desc = {12, row_tokens, most, is_chosen};
          SCOPED_TRACE(::testing::Message()
                       << DTypeName(kv) << " " << row_tokens << " " << most
                       << " seed " << seed);
          ForEachCpuRow(
              KvSelectTable(), desc, cpu, [&](const KvSelectRow& row) {
                SelectProblem problem(desc, kRaggedPools, kv, seed);
                ASSERT_TRUE(row.run(desc, problem.Params(), *cpu.stream).ok());
                problem.Expect(problem.selection());
              });
          ++seed;
        }
      }
    }
  }
}

// Of row_tokens tokens the last one's row is written, and no other.
TEST(KvWriteTest, RowsOfSeveralTokens) {
  TestCpu cpu;
  constexpr int kRowTokens = 4;
  KvLayout layout({{1, 8, 0, 8, kRowTokens}}, DType::kF32, 16);
  ASSERT_EQ(layout.LayerView(0, nullptr).block_size, 4);
  KvWriteDesc desc;
  desc.num_kv_heads = 1;
  desc.head_dim = 8;
  desc.keys_only = true;
  desc.row_tokens = kRowTokens;
  std::mt19937 rng(1);
  TestMatrix k(DType::kF32, 16, 8);
  k.Randomize(rng);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < 16; ++t) slots.push_back(16 + t);  // block 1
  ForEachCpuRow(KvWriteTable(), desc, cpu, [&](const KvWriteRow& row) {
    std::vector<float> cache(3 * layout.block_bytes() / sizeof(float), -7.0f);
    KvWriteParams params;
    params.k = k.view();
    params.kv = layout.LayerView(0, reinterpret_cast<std::byte*>(cache.data()));
    params.slots = slots.data();
    ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
    int written = 0;
    for (const float x : cache) written += x != -7.0f ? 1 : 0;
    EXPECT_EQ(written, 4 * 8);
    for (int r = 0; r < 4; ++r) {
      const auto* got =
          reinterpret_cast<const float*>(params.kv.KeyRow(1, 0, r));
      for (int d = 0; d < 8; ++d) EXPECT_EQ(got[d], k(4 * r + 3, d));
    }
  });
}

}  // namespace
}  // namespace inlay
