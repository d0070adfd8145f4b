// biased_attention: CPU rows against a float64 softmax, with tables that reach
// as far as keys are, less far and nowhere; the same bits in every chunking,
// and attention's own where the bias is nothing.
#include "kernels/attention/biased_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "tests/support/attention_cpu_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::cpu::Desc;
using ::inlay::testing::cpu::Problem;
using ::inlay::testing::cpu::SequenceShape;

const std::vector<SequenceShape> kTexts = {
    {1, 1}, {40, 40}, {3, 90}, {70, 160}};

TEST(BiasedAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    unsigned seed = 1;
    for (const int reach : {0, 1, 5, 19, 70, 159, 400, kMaxBiasReach}) {
      for (const bool causal : {false, true}) {
        AttentionDesc desc =
            Desc(4, seed % 3 == 0 ? 2 : 4, 24 + 8 * (seed % 6));
        desc.causal = causal;
        Problem problem(desc, kTexts, 16, seed);
        problem.set_bias(reach);
        problem.Check(cpu);
        ++seed;
      }
    }
  });
}

TEST(BiasedAttentionTest, BesideEverythingElse) {
  TestCpu cpu(2);
  AttentionDesc desc = Desc(4, 2, 40, DType::kBF16);
  desc.softcap = 5.0f;
  desc.window = 30;
  Problem capped(desc, kTexts, 16, 1);
  capped.set_bias(20);
  capped.set_sinks(true);
  capped.Check(cpu);
  desc = Desc(3, 1, 56, DType::kI8);
  desc.value_dim = 24;
  Problem latent(desc, kTexts, 32, 2);
  latent.set_bias(33);
  latent.Check(cpu);
  // Windows both ways, and blocks.
  std::mt19937 rng(5);
  std::vector<TestMask> masks(2);
  masks[0].Reach(9);
  masks[1].Blocks(rng, 160, 16, 16, 40);
  desc = Desc(2, 2, 32);
  desc.causal = false;
  Problem masked(desc, {{90, 90}, {70, 160}}, 16, 3, masks);
  masked.set_bias(50);
  masked.Check(cpu);
}

// Scores far apart: the bias decides, and is not lost in the maximum.
TEST(BiasedAttentionTest, LargeBiasChoosesOneKey) {
  TestCpu cpu(1);
  AttentionDesc desc = Desc(1, 1, 32);
  desc.causal = false;
  constexpr int kReach = 3;
  // Of the key two places on, or of those too far on.
  std::vector<float> bias = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 9000.0f, 8000.0f};
  Problem problem(desc, {{9, 9}}, 16, 1);
  TestMatrix probe = problem.NewOutput();
  const KvLayerView kv = problem.Params(probe).kv;
  const int32_t block = problem.Params(probe).sequences[0].blocks[0];
  ForEachCpuRow(
      BiasedAttentionTable(), desc, cpu, [&](const BiasedAttentionRow& row) {
        TestMatrix out = problem.NewOutput();
        const BiasedAttentionParams params = {problem.Params(out),
                                              {bias.data(), kReach}};
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int r = 0; r < 7; ++r) {
          const auto* value =
              reinterpret_cast<const float*>(kv.ValueRow(block, 0, r + 2));
          for (int d = 0; d < 32; ++d) EXPECT_EQ(out(r, d), value[d]) << r;
        }
      });
}

TEST(BiasedAttentionTest, NoBiasHasAttentionsBits) {
  TestCpu cpu(2);
  AttentionDesc desc = Desc(4, 2, 40);
  desc.causal = false;
  Problem problem(desc, kTexts, 16, 4);
  const std::vector<float> zeros(4 * (2 * 7 + 1));
  for (const BiasedAttentionRow& row : BiasedAttentionTable()) {
    if (row.device != DeviceKind::kCpu) continue;
    for (const AttentionRow& plain : AttentionTable()) {
      if (plain.name != row.name) continue;
      TestMatrix with = problem.NewOutput();
      const BiasedAttentionParams params = {problem.Params(with),
                                            {zeros.data(), 7}};
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      TestMatrix without = problem.NewOutput();
      ASSERT_TRUE(plain.run(desc, problem.Params(without), *cpu.stream).ok());
      for (int64_t r = 0; r < with.rows(); ++r) {
        ASSERT_EQ(with.RowBits(r), without.RowBits(r)) << row.name << " " << r;
      }
    }
  }
}

TEST(BiasedAttentionTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 135;  // two tiles of keys and some
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  const AttentionDesc desc = Desc(6, 2, 40);
  Problem problem(desc, {{kLength, kLength}, {9, 80}}, 16, 5);
  problem.set_bias(21);
  ForEachCpuRow(
      BiasedAttentionTable(), desc, cpus[0],
      [&](const BiasedAttentionRow& row) {
        TestMatrix whole = problem.NewOutput();
        const BiasedAttentionParams params = {problem.Params(whole),
                                              problem.bias()};
        ASSERT_TRUE(row.run(desc, params, *cpus[1].stream).ok());
        int turn = 0;
        for (const int chunk : {1, 3, 16, 64, 67}) {
          TestMatrix chunked = problem.NewOutput();
          BiasedAttentionParams part = {problem.Params(chunked),
                                        problem.bias()};
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

TEST(BiasedAttentionTest, RefusesWhatItHasNot) {
  AttentionDesc desc = Desc(2, 2, 32);
  Problem problem(desc, {{5, 5}}, 16, 1);
  problem.set_bias(4);
  TestMatrix out = problem.NewOutput();
  const BiasedAttentionParams good = {problem.Params(out), problem.bias()};
  EXPECT_TRUE(ValidateBiasedAttention(desc, good).ok());
  const auto expect_bad = [&](const BiasedAttentionParams& params) {
    EXPECT_EQ(ValidateBiasedAttention(desc, params).code(),
              absl::StatusCode::kInvalidArgument);
  };
  BiasedAttentionParams params = good;
  params.bias.values = nullptr;
  expect_bad(params);
  params = good;
  params.bias.reach = -1;
  expect_bad(params);
  params.bias.reach = kMaxBiasReach + 1;
  expect_bad(params);
  params = good;
  const float slopes[2] = {};
  params.attention.alibi_slopes = slopes;
  expect_bad(params);
  params = good;
  params.attention.q = {};
  expect_bad(params);
  AttentionDesc selects = desc;
  selects.selects = 4;
  const TestCpu cpu(1);
  for (const BiasedAttentionRow& row : BiasedAttentionTable()) {
    EXPECT_NE(row.refuses(selects, cpu.device->info()), nullptr) << row.name;
  }
}

#if INLAY_HAS_CUDA
// What cuda_mma counts on: items of up to 64 rows with all the keys they see,
// each row of each head in one of them.
TEST(BiasedAttentionTest, PlansOfWholeRows) {
  AttentionDesc desc = Desc(3, 3, 64, DType::kBF16);
  desc.activation = DType::kBF16;
  desc.causal = false;
  const auto table = BiasedAttentionTable();
  const auto row = std::find_if(
      table.begin(), table.end(),
      [](const auto& candidate) { return candidate.name == "cuda_mma"; });
  ASSERT_NE(row, table.end());
  const std::vector<int32_t> blocks(100);
  const std::vector<AttentionSequence> texts = {{0, 1, 1, blocks.data()},
                                                {1, 64, 64, blocks.data()},
                                                {65, 0, 9, blocks.data()},
                                                {65, 130, 130, blocks.data()},
                                                {195, 3, 500, blocks.data()}};
  for (const int num_sms : {1, 7, 132}) {
    const AttentionPlanShape shape =
        MakeBiasedAttentionPlanShape(*row, desc, 16, num_sms);
    EXPECT_EQ(shape.grid, 3 * num_sms);
    const AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, texts);
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes);
    const AttentionPlan plan =
        BuildAttentionPlan(shape, limits, texts, image.data());
    EXPECT_TRUE(plan.run_items);
    EXPECT_EQ(plan.num_tiles, 0);
    const auto* lists =
        reinterpret_cast<const int32_t*>(image.data() + plan.layout.cta_items);
    const auto* items = reinterpret_cast<const AttentionItem*>(
        image.data() + plan.layout.items);
    EXPECT_EQ(lists[0], 0);
    std::vector<int> seen(3 * 198);
    for (int i = 0; i < lists[shape.grid]; ++i) {
      const AttentionItem& item = items[i];
      EXPECT_LE(item.num_rows, 64);
      EXPECT_EQ(item.slot, -1);
      EXPECT_EQ(item.num_units, 0);
      EXPECT_EQ(item.key_begin, 0);
      EXPECT_EQ(item.key_end, item.kv_len);
      for (int r = 0; r < item.num_rows; ++r) {
        const int token = item.q_begin + item.row_begin + r;
        ++seen[static_cast<size_t>(item.kv_head * 198 + token)];
      }
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}
#endif

}  // namespace
}  // namespace inlay
