// attention: every row against a float64 softmax over ragged batches; bit
// equality over chunkings, batches and thread counts; what is not finite and
// what is refused.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu_float.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/attention_cpu_util.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kKvTypes;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::cpu::Desc;
using ::inlay::testing::cpu::Problem;
using ::inlay::testing::cpu::SequenceShape;

const std::vector<SequenceShape> kRagged = {
    {1, 1}, {1, 37}, {5, 5}, {7, 70}, {1, 64}, {1, 65}, {0, 12}, {33, 47}};

TEST(AttentionTest, MatchesFloat64OverHeadDimsAndTypes) {
  TestCpu cpu(2);
  unsigned seed = 1;
  for (const int head_dim : {32, 64, 80, 96, 128, 256, 20, 7}) {
    for (const DType kv : kKvTypes) {
      SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << " "
                                        << DTypeName(kv) << " seed " << seed);
      Problem(Desc(4, 2, head_dim, kv), kRagged, seed % 2 == 0 ? 16 : 32, seed)
          .Check(cpu);
      ++seed;
    }
  }
}

// Values that are a part of the keys' rows: DeepSeek's sizes, and others. Of
// DeepSeek's a tile has 16 keys, a task 16 rows.
TEST(AttentionTest, MatchesFloat64WhereValuesLieInKeys) {
  TestCpu cpu(2);
  const std::vector<SequenceShape> few = {{1, 37}, {2, 34}, {3, 3}};
  constexpr int kDims[][2] = {{576, 512}, {48, 32}, {40, 40}, {23, 7}, {80, 1}};
  unsigned seed = 1;
  for (const auto& [head_dim, value_dim] : kDims) {
    for (const DType kv : kKvTypes) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " value_dim " << value_dim
                   << " " << DTypeName(kv) << " seed " << seed);
      const bool large = head_dim > 500;
      AttentionDesc desc = Desc(large ? 19 : 6, 1, head_dim, kv);
      desc.value_dim = value_dim;
      Problem(desc, large ? few : kRagged, seed % 2 == 0 ? 16 : 32, seed)
          .Check(cpu);
      ++seed;
    }
  }
}

TEST(AttentionTest, MatchesFloat64OverGroupsAndBlockSizes) {
  TestCpu cpu(3);
  for (int group = 1; group <= 8; ++group) {
    for (const int block_size : {16, 32, 5}) {
      SCOPED_TRACE(::testing::Message()
                   << "group " << group << " block size " << block_size);
      Problem(Desc(2 * group, 2, 32, DType::kBF16), {{1, 100}, {19, 33}},
              block_size, static_cast<unsigned>(group))
          .Check(cpu);
    }
  }
}

TEST(AttentionTest, WindowsAtTheirEdges) {
  TestCpu cpu(2);
  for (const int window : {1, 2, 15, 16, 17, 63, 64, 65, 128, 1000}) {
    SCOPED_TRACE(::testing::Message() << "window " << window);
    AttentionDesc desc = Desc(2, 1, 32);
    desc.window = window;
    Problem(desc, {{1, 200}, {90, 210}, {64, 64}}, 16,
            static_cast<unsigned>(window))
        .Check(cpu);
  }
}

TEST(AttentionTest, EverySimdTarget) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    AttentionDesc desc = Desc(6, 2, 80, DType::kBF16);
    desc.softcap = 20.0f;
    desc.window = 50;
    Problem(desc, kRagged, 16, 8).Check(cpu);
    Problem(Desc(3, 3, 20, DType::kF16), kRagged, 16, 9).Check(cpu);
    Problem(Desc(5, 1, 64), kRagged, 32, 10).Check(cpu);
    for (const DType kv : {DType::kF32, DType::kI8, DType::kKvQ4}) {
      AttentionDesc latent = Desc(5, 1, 88, kv);
      latent.value_dim = 52;
      Problem(latent, kRagged, 16, 13).Check(cpu);
    }
    for (const DType kv : {DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
      Problem(Desc(2, 1, 64, kv), kRagged, 16, 11).Check(cpu);
      Problem(Desc(2, 1, 80, kv), kRagged, 16, 12).Check(cpu);
    }
  });
}

TEST(AttentionTest, SoftcapSinksAndBidirectional) {
  TestCpu cpu(2);
  AttentionDesc desc = Desc(4, 2, 64, DType::kBF16);
  desc.softcap = 3.0f;
  Problem capped(desc, kRagged, 16, 1);
  capped.Check(cpu);
  desc.softcap = 50.0f;
  Problem gemma(desc, kRagged, 16, 1);
  gemma.Check(cpu);
  desc = Desc(4, 2, 64);
  Problem sinks(desc, kRagged, 16, 2);
  sinks.set_sinks(true);
  sinks.Check(cpu);
  desc.window = 9;
  Problem sink_window(desc, {{40, 150}}, 16, 3);
  sink_window.set_sinks(true);
  sink_window.Check(cpu);
  desc = Desc(4, 4, 48);
  desc.causal = false;
  Problem encoder(desc, {{40, 40}, {3, 90}}, 16, 4);
  encoder.Check(cpu);
}

TEST(AttentionTest, Alibi) {
  TestCpu cpu(2);
  for (const int heads : {2, 6, 8}) {
    Problem problem(Desc(heads, 2, 40, DType::kBF16), kRagged, 16,
                    static_cast<unsigned>(heads));
    problem.set_alibi();
    problem.Check(cpu);
  }
  AttentionDesc desc = Desc(4, 1, 64);
  desc.causal = false;
  Problem encoder(desc, {{40, 40}, {3, 90}}, 16, 4);
  encoder.set_alibi();
  encoder.Check(cpu);
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  TestCpu cpu(1);
  AttentionDesc desc = Desc(2, 1, 32);
  desc.scale = 20.0f;
  Problem(desc, {{3, 150}}, 16, 1).Check(cpu);
}

// The same query must give the same bits decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(AttentionTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 135;  // two tiles of keys and some
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  for (const DType kv :
       {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
    for (const int window : {0, 70, -1}) {
      // Each window with some of the types, all types with values in keys.
      if (window == 0 && (kv == DType::kI8 || kv == DType::kKvQ4)) continue;
      if (window > 0 && (kv == DType::kBF16 || kv == DType::kF8E4M3)) continue;
      // -1: none, and values in keys' rows.
      AttentionDesc desc = Desc(6, window < 0 ? 1 : 2, 40, kv);
      desc.window = std::max(window, 0);
      desc.value_dim = window < 0 ? 24 : 0;
      desc.softcap = window > 0 ? 30.0f : 0.0f;
      Problem problem(desc, {{kLength, kLength}, {9, 80}}, 16, 5);
      ForEachCpuRow(
          AttentionTable(), desc, cpus[0], [&](const AttentionRow& row) {
            TestMatrix whole = problem.NewOutput();
            const AttentionParams params = problem.Params(whole);
            ASSERT_TRUE(row.run(desc, params, *cpus[1].stream).ok());
            int turn = 0;
            for (const int chunk : {1, 3, 16, 64, 67}) {
              TestMatrix chunked = problem.NewOutput();
              AttentionParams part = problem.Params(chunked);
              for (int begin = 0; begin < kLength; begin += chunk) {
                AttentionSequence sequence = params.sequences[0];
                sequence.q_begin = begin;
                sequence.q_len = std::min(chunk, kLength - begin);
                sequence.kv_len = begin + sequence.q_len;
                part.sequences = absl::MakeConstSpan(&sequence, 1);
                ASSERT_TRUE(row.run(desc, part, *cpus[turn++ % 3].stream).ok());
              }
              for (int r = 0; r < kLength; ++r) {
                ASSERT_EQ(whole.RowBits(r), chunked.RowBits(r))
                    << "row " << r << " in chunks of " << chunk;
              }
            }
          });
    }
  }
}

// The request that such a row belongs to must end with an error, not with
// words: NaN has to come out at the end.
TEST(AttentionTest, ARowThatIsNotFiniteGivesNan) {
  TestCpu cpu(1);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity()};
  for (const DType kv : kKvTypes) {
    for (const float value : bad) {
      for (const bool in_key : {true, false}) {
        const AttentionDesc desc = Desc(2, 1, 40, kv);
        KvLayout layout({{1, 40}}, kv, 16);
        std::vector<std::byte> storage(5 * layout.block_bytes());
        const KvLayerView view = layout.LayerView(0, storage.data());
        std::vector<float> row(40, 0.5f);
        for (int t = 0; t < 80; ++t) {
          row[7] = t == 33 && in_key ? value : 0.5f;
          EncodeKvRow(kv, row.data(), 40, view.KeyRow(t / 16, 0, t % 16));
          row[7] = t == 33 && !in_key ? value : 0.5f;
          EncodeKvRow(kv, row.data(), 40, view.ValueRow(t / 16, 0, t % 16));
        }
        TestMatrix q(DType::kF32, 1, 80);
        std::mt19937 rng(1);
        q.Randomize(rng);
        const int32_t blocks[] = {0, 1, 2, 3, 4};
        const AttentionSequence sequence{0, 1, 80, blocks};
        ForEachCpuRow(AttentionTable(), desc, cpu,
                      [&](const AttentionRow& kernel) {
                        TestMatrix out(DType::kF32, 1, 80);
                        out.Set(0, 7, 0.0f);
                        AttentionParams params;
                        params.q = q.view();
                        params.out = out.view();
                        params.kv = view;
                        params.sequences = absl::MakeConstSpan(&sequence, 1);
                        ASSERT_TRUE(kernel.run(desc, params, *cpu.stream).ok());
                        // Plain formats keep an infinity, which a softmax may
                        // survive.
                        if (std::isnan(value) || !IsPlainFloat(kv)) {
                          EXPECT_TRUE(std::isnan(out(0, 7))) << DTypeName(kv);
                          EXPECT_TRUE(std::isnan(out(0, 47))) << DTypeName(kv);
                        }
                      });
      }
    }
  }
}

#if INLAY_HAS_CUDA
// Code of Hopper's own instructions is no part of what newer GPUs can run: for
// them PTX of compute_90 has what compute capability 8.0 can, too.
TEST(AttentionTest, OtherGpusThanHopperTakeOtherRows) {
  const auto row_of = [](const AttentionDesc& desc, int sm) {
    DeviceInfo gpu{DeviceKind::kCuda, "gpu"};
    gpu.sm = sm;
    const auto row = Select("attention", AttentionTable(), desc, gpu);
    EXPECT_TRUE(row.ok()) << sm << " " << row.status();
    return row.ok() ? (*row)->name : "";
  };
  AttentionDesc desc = Desc(32, 8, 128);
  desc.activation = desc.kv = DType::kBF16;
  AttentionDesc latent = Desc(16, 1, 576);
  latent.activation = latent.kv = DType::kBF16;
  latent.value_dim = 512;
  for (const int sm : {80, 86, 89, 90, 100, 103, 110, 120, 121}) {
    const bool hopper = sm == 90;
    EXPECT_EQ(row_of(desc, sm), hopper ? "cuda_sm90" : "cuda_mma") << sm;
    EXPECT_EQ(row_of(latent, sm), hopper ? "cuda_latent" : "cuda_plain") << sm;
  }
  for (const int what : {0, 1, 2, 3}) {
    AttentionDesc other = desc;
    if (what == 0) other.head_dim = 72;
    if (what == 1) other.kv = DType::kF16;
    if (what == 2) other.selects = 256;
    if (what == 3) other.activation = other.kv = DType::kF32;
    EXPECT_EQ(row_of(other, 89), "cuda_plain") << what;
  }
}
#endif

TEST(AttentionTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  AttentionDesc desc = Desc(4, 2, 64);
  EXPECT_TRUE(Select("attention", AttentionTable(), desc, cpu).ok());
  const auto refused = [&](const AttentionDesc& bad) {
    return !Select("attention", AttentionTable(), bad, cpu).ok();
  };
  EXPECT_TRUE(refused(Desc(4, 3, 64)));
  EXPECT_TRUE(refused(Desc(4, 2, 577)));
  AttentionDesc latent = Desc(4, 1, 64);
  latent.value_dim = 65;
  EXPECT_TRUE(refused(latent));
  latent.value_dim = 64;
  EXPECT_FALSE(refused(latent));
  for (const AttentionRow& row : AttentionTable()) {
    if (row.device != DeviceKind::kCuda) continue;
    AttentionDesc beyond = latent;
    beyond.activation = beyond.kv = DType::kBF16;
    beyond.value_dim = 65;
    DeviceInfo hopper{DeviceKind::kCuda, "gpu"};
    hopper.sm = 90;
    EXPECT_NE(row.refuses(beyond, hopper), nullptr);
  }
  EXPECT_TRUE(refused(Desc(4, 2, 64, DType::kI32)));
  desc.causal = false;
  desc.window = 4;
  EXPECT_TRUE(refused(desc));

  Problem problem(Desc(4, 2, 32), {{2, 20}}, 16, 1);
  TestMatrix out = problem.NewOutput();
  const AttentionParams good = problem.Params(out);
  EXPECT_TRUE(ValidateAttention(problem.desc(), good).ok());
  AttentionSequence sequence = good.sequences[0];
  AttentionParams bad = good;
  bad.sequences = absl::MakeConstSpan(&sequence, 1);
  sequence.kv_len = 1;
  EXPECT_EQ(ValidateAttention(problem.desc(), bad).message(),
            "attention: kv_len is 1; expected 2 to 2147483647");
  sequence = good.sequences[0];
  sequence.q_len = 3;
  EXPECT_FALSE(ValidateAttention(problem.desc(), bad).ok());
  bad = good;
  bad.kv.head_dim = 31;
  EXPECT_FALSE(ValidateAttention(problem.desc(), bad).ok());
  bad = good;
  bad.kv.value_dim = 16;
  EXPECT_FALSE(ValidateAttention(problem.desc(), bad).ok());
  bad = good;
  bad.out = bad.q;
  EXPECT_FALSE(ValidateAttention(problem.desc(), bad).ok());
}

}  // namespace
}  // namespace inlay
