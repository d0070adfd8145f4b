// disentangled_attention: CPU rows against a float64 softmax, with distances
// that share rows and some that are out of reach, with one table and with both;
// the same bits in every chunking, and attention's own where tables are zeros.
#include "kernels/attention/disentangled_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/attention_cpu_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::RelativeTables;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::cpu::Desc;
using ::inlay::testing::cpu::Problem;
using ::inlay::testing::cpu::SequenceShape;

const std::vector<SequenceShape> kWholeAndPart = {
    {1, 1}, {40, 40}, {3, 90}, {70, 160}};

TEST(DisentangledAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    unsigned seed = 1;
    for (const int reach : {0, 1, 5, 70, 400}) {
      for (const RelativeTables tables :
           {RelativeTables::kBoth, RelativeTables::kKeys,
            RelativeTables::kQueries}) {
        // Of heads whose rows are no whole vectors, too.
        AttentionDesc desc = Desc(3, 3, 20 + 4 * static_cast<int>(seed % 7));
        desc.causal = seed % 4 == 0;
        Problem problem(desc, kWholeAndPart, 16, seed);
        problem.set_relative(reach, static_cast<int>(seed % 3) * 6, tables);
        problem.Check(cpu);
        ++seed;
      }
    }
  });
}

TEST(DisentangledAttentionTest, BesideEverythingElse) {
  TestCpu cpu(2);
  AttentionDesc desc = Desc(4, 4, 40, DType::kBF16);
  desc.softcap = 5.0f;
  desc.window = 30;
  Problem capped(desc, kWholeAndPart, 16, 1);
  capped.set_relative(20, 4);
  capped.set_sinks(true);
  capped.Check(cpu);
  desc = Desc(2, 2, 64, DType::kI8);
  desc.causal = false;
  Problem bytes(desc, kWholeAndPart, 32, 2);
  bytes.set_relative(33, 8);
  bytes.Check(cpu);
  std::mt19937 rng(5);
  std::vector<TestMask> masks(2);
  masks[0].Reach(9);
  masks[1].Blocks(rng, 160, 16, 16, 40);
  desc = Desc(2, 2, 32);
  desc.causal = false;
  Problem masked(desc, {{90, 90}, {70, 160}}, 16, 3, masks);
  masked.set_relative(50, 50);
  masked.Check(cpu);
}

// Which of two neighbours a query looks at is the sign of the distance: the row
// of the key before it, or of that behind it.
TEST(DisentangledAttentionTest, DistancesHaveASign) {
  TestCpu cpu(1);
  AttentionDesc desc = Desc(1, 1, 16);
  desc.causal = false;
  Problem problem(desc, {{9, 9}}, 16, 1);
  TestMatrix probe = problem.NewOutput();
  const KvLayerView kv = problem.Params(probe).kv;
  const int32_t block = problem.Params(probe).sequences[0].blocks[0];
  // Keys are ones; the row of distance -1 (the key behind) has the sum 1600.
  for (int t = 0; t < 9; ++t) {
    auto* key = reinterpret_cast<float*>(kv.KeyRow(block, 0, t));
    std::fill_n(key, 16, 1.0f);
  }
  std::vector<float> queries(5 * 16);
  std::fill_n(queries.begin() + 16, 16, 100.0f);
  const std::vector<int32_t> rows = {0, 1, 2, 3, 4};
  RelativeRows relative;
  relative.queries = MatrixView(reinterpret_cast<std::byte*>(queries.data()),
                                DType::kF32, 5, 16);
  relative.rows = rows.data();
  relative.reach = 2;
  ForEachCpuRow(DisentangledAttentionTable(), desc, cpu,
                [&](const DisentangledAttentionRow& row) {
                  TestMatrix out = problem.NewOutput();
                  const DisentangledAttentionParams params = {
                      problem.Params(out), relative};
                  ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                  for (int r = 0; r < 8; ++r) {
                    const auto* value = reinterpret_cast<const float*>(
                        kv.ValueRow(block, 0, r + 1));
                    for (int d = 0; d < 16; ++d) {
                      EXPECT_EQ(out(r, d), value[d]) << r;
                    }
                  }
                });
}

TEST(DisentangledAttentionTest, ZerosHaveAttentionsBits) {
  TestCpu cpu(2);
  AttentionDesc desc = Desc(4, 4, 40);
  desc.causal = false;
  Problem problem(desc, kWholeAndPart, 16, 4);
  std::vector<float> zeros(4 * 40);
  const std::vector<int32_t> rows(3);
  RelativeRows relative;
  relative.keys = relative.queries = MatrixView(
      reinterpret_cast<std::byte*>(zeros.data()), DType::kF32, 1, 4 * 40);
  relative.rows = rows.data();
  relative.reach = 1;
  for (const DisentangledAttentionRow& row : DisentangledAttentionTable()) {
    if (row.device != DeviceKind::kCpu) continue;
    for (const AttentionRow& plain : AttentionTable()) {
      if (plain.name != row.name) continue;
      TestMatrix with = problem.NewOutput();
      const DisentangledAttentionParams params = {problem.Params(with),
                                                  relative};
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      TestMatrix without = problem.NewOutput();
      ASSERT_TRUE(plain.run(desc, problem.Params(without), *cpu.stream).ok());
      for (int64_t r = 0; r < with.rows(); ++r) {
        ASSERT_EQ(with.RowBits(r), without.RowBits(r)) << row.name << " " << r;
      }
    }
  }
}

TEST(DisentangledAttentionTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 135;  // two tiles of keys and some
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  const AttentionDesc desc = Desc(2, 2, 40);
  Problem problem(desc, {{kLength, kLength}, {9, 80}}, 16, 5);
  problem.set_relative(21, 7);
  ForEachCpuRow(
      DisentangledAttentionTable(), desc, cpus[0],
      [&](const DisentangledAttentionRow& row) {
        TestMatrix whole = problem.NewOutput();
        const DisentangledAttentionParams params = {problem.Params(whole),
                                                    problem.relative()};
        ASSERT_TRUE(row.run(desc, params, *cpus[1].stream).ok());
        int turn = 0;
        for (const int chunk : {1, 3, 16, 64, 67}) {
          TestMatrix chunked = problem.NewOutput();
          DisentangledAttentionParams part = {problem.Params(chunked),
                                              problem.relative()};
          for (int begin = 0; begin < kLength; begin += chunk) {
            AttentionSequence sequence = params.attention.sequences[0];
            sequence.q_begin = begin;
            sequence.q_len = std::min(chunk, kLength - begin);
            sequence.kv_len = begin + sequence.q_len;
            part.attention.sequences = absl::MakeConstSpan(&sequence, 1);
            ASSERT_TRUE(row.run(desc, part, *cpus[turn++ % 3].stream).ok());
          }
          for (int r = 0; r < kLength; ++r) {
            ASSERT_EQ(whole.RowBits(r), chunked.RowBits(r))
                << "row " << r << " in chunks of " << chunk;
          }
        }
      });
}

TEST(DisentangledAttentionTest, RefusesWhatItHasNot) {
  const AttentionDesc desc = Desc(2, 2, 32);
  Problem problem(desc, {{5, 5}}, 16, 1);
  problem.set_relative(4, 4);
  TestMatrix out = problem.NewOutput();
  const DisentangledAttentionParams good = {problem.Params(out),
                                            problem.relative()};
  EXPECT_TRUE(ValidateDisentangledAttention(desc, good).ok());
  const auto expect_bad = [&](const DisentangledAttentionParams& params,
                              const AttentionDesc& of) {
    EXPECT_EQ(ValidateDisentangledAttention(of, params).code(),
              absl::StatusCode::kInvalidArgument);
  };
  DisentangledAttentionParams params = good;
  params.relative.rows = nullptr;
  expect_bad(params, desc);
  params = good;
  params.relative.keys = params.relative.queries = TensorView();
  expect_bad(params, desc);
  params.relative.queries = good.relative.queries;
  EXPECT_TRUE(ValidateDisentangledAttention(desc, params).ok());
  params = good;
  params.relative.keys = params.relative.keys.RowSlice(0, 5);
  expect_bad(params, desc);
  params = good;
  params.relative.queries.dims[1] = 48;
  expect_bad(params, desc);
  params = good;
  params.relative.keys.dtype = DType::kBF16;
  expect_bad(params, desc);
  params = good;
  params.relative.reach = -1;
  expect_bad(params, desc);
  params = good;
  const float slopes[2] = {};
  params.attention.alibi_slopes = slopes;
  expect_bad(params, desc);
  params = good;
  params.attention.q = {};
  expect_bad(params, desc);
  const TestCpu cpu(1);
  AttentionDesc selects = desc;
  selects.selects = 4;
  AttentionDesc shared = desc;
  shared.num_kv_heads = 1;
  AttentionDesc latent = desc;
  latent.value_dim = 16;
  for (const DisentangledAttentionRow& row : DisentangledAttentionTable()) {
    for (const AttentionDesc& other : {selects, shared, latent}) {
      EXPECT_NE(row.refuses(other, cpu.device->info()), nullptr) << row.name;
    }
  }
}

}  // namespace
}  // namespace inlay
