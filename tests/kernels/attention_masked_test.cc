// attention under masks: every row against a float64 softmax over what a
// boolean matrix shows, patterns against the same; bit equality over chunkings.
#include <algorithm>
#include <random>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_pattern.h"
#include "tests/support/attention_cpu_util.h"
#include "tests/support/attention_mask_util.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/sanitized.h"
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

// Masks of all kinds over ragged batches, with all else that a row does; many
// queries see nothing.
TEST(AttentionTest, RandomMasks) {
  TestCpu cpu(2);
  const int seeds = ::inlay::testing::FewerWhenSanitized(40);
  for (unsigned seed = 1; seed <= static_cast<unsigned>(seeds); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    AttentionDesc desc = Desc(4, seed % 2 == 0 ? 1 : 4, 24,
                              seed % 3 == 0 ? DType::kI8 : DType::kF32);
    if (seed % 4 == 1) desc.window = 1 + static_cast<int>(rng() % 90);
    desc.causal = seed % 4 != 2;
    if (seed % 5 == 0) desc.softcap = 4.0f;
    const std::vector<SequenceShape> shapes = {{1, 70},   {30, 30},  {0, 9},
                                               {25, 150}, {90, 200}, {2, 64}};
    std::vector<TestMask> masks;
    for (const SequenceShape& shape : shapes) {
      masks.push_back(TestMask::Random(rng, shape.q_len, shape.kv_len));
    }
    Problem problem(desc, shapes, 16, seed, masks);
    problem.set_sinks(seed % 6 == 0);
    if (seed % 3 == 1) problem.set_alibi();
    problem.Check(cpu);
  }
}

TEST(AttentionTest, MasksOnEverySimdTarget) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    std::mt19937 rng(5);
    const AttentionDesc desc = Desc(6, 2, 20);
    std::vector<TestMask> masks(2);
    masks[0].Prefix(40).Blocks(rng, 90, 8, 4, 70);
    masks[1].Documents(rng, 130, 30);
    Problem problem(desc, {{60, 90}, {130, 130}}, 16, 5, masks);
    problem.set_alibi();
    problem.Check(cpu);
  });
}

// Against the dense product under the same pattern as a boolean matrix.
TEST(AttentionTest, PatternsAgainstMaskedDense) {
  TestCpu cpu(2);
  for (const char* text :
       {"block=16,window=32,global=16", "block=64,window=64,random=64",
        "block=32,segment=96,dilated=128,dilation=64", "block=128,stride=256",
        "block=16,random=32,window=48,seed=4",
        "block=16,segment=80,global=80,context=160"}) {
    const auto pattern = ParseAttentionPattern(text);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(::testing::Message() << text << " causal " << causal);
      AttentionDesc desc = Desc(4, 2, 24);
      desc.causal = causal;
      const std::vector<SequenceShape> shapes = {
          {1, 333}, {200, 200}, {70, 410}};
      std::vector<TestMask> masks;
      for (const SequenceShape& shape : shapes) {
        masks.emplace_back().Pattern(*pattern, causal, shape.kv_len);
      }
      Problem(desc, shapes, 16, 3, masks).Check(cpu);
    }
  }
}

// The same query, however it was chunked, where a mask hides keys from it.
TEST(AttentionTest, AMaskedQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 150;
  TestCpu cpu(2);
  std::mt19937 rng(6);
  const AttentionDesc desc = Desc(6, 2, 40, DType::kBF16);
  std::vector<TestMask> masks(1);
  // Its first chunk holds all of the prefix.
  masks[0].Prefix(40).Blocks(rng, kLength, 16, 32, 60);
  Problem problem(desc, {{kLength, kLength}}, 16, 5, masks);
  ForEachCpuRow(AttentionTable(), desc, cpu, [&](const AttentionRow& row) {
    TestMatrix whole = problem.NewOutput();
    const AttentionParams params = problem.Params(whole);
    ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
    for (const int chunk : {50, 67}) {
      TestMatrix chunked = problem.NewOutput();
      AttentionParams part = params;
      part.out = chunked.view();
      for (int begin = 0; begin < kLength; begin += chunk) {
        AttentionSequence sequence = params.sequences[0];
        sequence.q_begin = begin;
        sequence.q_len = std::min(chunk, kLength - begin);
        sequence.kv_len = begin + sequence.q_len;
        part.sequences = absl::MakeConstSpan(&sequence, 1);
        const AttentionMaskSpec spec = masks[0].Spec();
        const auto mask =
            CompileAttentionMask(desc, part.sequences, {&spec, 1});
        ASSERT_TRUE(mask.ok()) << mask.status();
        part.mask = &*mask;
        ASSERT_TRUE(row.run(desc, part, *cpu.stream).ok());
      }
      for (int r = 0; r < kLength; ++r) {
        ASSERT_EQ(whole.RowBits(r), chunked.RowBits(r))
            << "row " << r << " in chunks of " << chunk;
      }
    }
  });
}

}  // namespace
}  // namespace inlay
