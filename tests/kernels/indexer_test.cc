// indexer: every row against a sort of all scores; bit equality over chunkings,
// batches and thread counts; ties; slots that nobody wrote hold NaN. And
// attention over what is selected.
#include "kernels/indexer/indexer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernels/attention/attention.h"
#include "kernels/indexer/score_order.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/indexer_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::IndexerProblem;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

const std::vector<IndexerProblem::Shape> kRagged = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 65}};

IndexerDesc Desc(int heads, int head_dim, int top_k, DType kv = DType::kF32) {
  IndexerDesc desc;
  desc.num_heads = heads;
  desc.head_dim = head_dim;
  desc.top_k = top_k;
  desc.kv = kv;
  return desc;
}

// Every row of the table gives what the problem's own sort gives, within what
// rounding of scores may change.
void Check(IndexerProblem& problem, TestCpu& cpu) {
  ForEachCpuRow(
      IndexerTable(), problem.desc(), cpu, [&](const IndexerRow& row) {
        std::vector<int32_t> selection = problem.NewSelection();
        ASSERT_TRUE(row.run(problem.desc(), problem.Params(selection.data()),
                            *cpu.stream)
                        .ok());
        problem.Expect(selection);
      });
}

TEST(IndexerTest, SelectsTheBestOverSizesAndTypes) {
  TestCpu cpu(2);
  unsigned seed = 1;
  for (const int head_dim : {32, 128, 20, 7, 256}) {
    for (const DType kv : kKvTypes) {
      for (const int top_k : {1, 16, 40}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " " << DTypeName(kv)
                     << " top_k " << top_k << " seed " << seed);
        const int heads = 1 + static_cast<int>(seed * 5 % 17);
        IndexerProblem problem(Desc(heads, head_dim, top_k, kv), kRagged,
                               seed % 2 == 0 ? 16 : 32, seed);
        Check(problem, cpu);
        ++seed;
      }
    }
  }
}

TEST(IndexerTest, EverySimdTarget) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    for (const DType kv : {DType::kF32, DType::kBF16, DType::kKvQ4}) {
      IndexerProblem problem(Desc(5, 20, 24, kv), kRagged, 16, 3);
      Check(problem, cpu);
      IndexerProblem wide(Desc(64, 128, 24, kv), kRagged, 16, 4);
      Check(wide, cpu);
    }
  });
}

// Integers so small that every sum is exact: scores tie often, and all rows and
// the sort must agree on every key.
TEST(IndexerTest, OfEqualScoresTheLowerPositionIsSelected) {
  TestCpu cpu(2);
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " seed " << seed);
      IndexerProblem problem(Desc(4, 12, 30, kv), kRagged, 16, seed);
      problem.UseIntegers(2);
      Check(problem, cpu);
      EXPECT_GT(problem.ties(), 10);
    }
  }
}

// More keys than are kept beside the best, in the order that is worst and in
// the one that is best; and nothing but ties.
TEST(IndexerTest, ManyKeys) {
  TestCpu cpu(2);
  for (const int step : {1, -1, 0}) {
    SCOPED_TRACE(step);
    IndexerProblem problem(Desc(1, 1, 100), {{3, 9000}}, 16, 1);
    problem.UseRamp(step);
    Check(problem, cpu);
  }
  IndexerProblem most(Desc(2, 8, kMaxIndexTopK), {{2, kMaxIndexTopK + 3000}},
                      16, 1);
  Check(most, cpu);
}

// The same query selects the same keys decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(IndexerTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 150;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  for (const DType kv : kKvTypes) {
    IndexerProblem problem(Desc(7, 40, 20, kv), {{kLength, kLength}, {9, 80}},
                           16, 5);
    ForEachCpuRow(
        IndexerTable(), problem.desc(), cpus[0], [&](const IndexerRow& row) {
          std::vector<int32_t> whole = problem.NewSelection();
          const IndexerParams params = problem.Params(whole.data());
          ASSERT_TRUE(row.run(problem.desc(), params, *cpus[1].stream).ok());
          int turn = 0;
          for (const int chunk : {1, 3, 16, 67}) {
            std::vector<int32_t> chunked = problem.NewSelection();
            IndexerParams part = problem.Params(chunked.data());
            const AttentionSequence all = part.sequences[0];
            for (int begin = 0; begin < kLength; begin += chunk) {
              AttentionSequence sequence = all;
              sequence.q_begin = begin;
              sequence.q_len = std::min(chunk, kLength - begin);
              sequence.kv_len = begin + sequence.q_len;
              part.sequences = absl::MakeConstSpan(&sequence, 1);
              ASSERT_TRUE(
                  row.run(problem.desc(), part, *cpus[turn++ % 3].stream).ok());
            }
            const auto end = whole.begin() + int64_t{kLength} * 20;
            EXPECT_TRUE(std::equal(whole.begin(), end, chunked.begin()))
                << "in chunks of " << chunk;
          }
        });
  }
}

// Whatever the numbers are, slots are those of the query's own keys, each once.
TEST(IndexerTest, WhatIsNotFiniteSelectsKeysToo) {
  TestCpu cpu(2);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    for (const bool in_key : {true, false}) {
      IndexerProblem problem(Desc(4, 16, 20), {{9, 90}}, 16, 2);
      problem.Spoil(value, in_key);
      ForEachCpuRow(
          IndexerTable(), problem.desc(), cpu, [&](const IndexerRow& row) {
            std::vector<int32_t> selection = problem.NewSelection();
            ASSERT_TRUE(row.run(problem.desc(),
                                problem.Params(selection.data()), *cpu.stream)
                            .ok());
            problem.ExpectOwnKeys(selection);
          });
    }
  }
}

TEST(IndexerTest, OrderOfScores) {
  const float ascending[] = {-std::numeric_limits<float>::infinity(),
                             -3e38f,
                             -1.0f,
                             -1e-45f,
                             0.0f,
                             1e-45f,
                             1.0f,
                             1.0000001f,
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()};
  const auto order = [](float score) {
    return ScoreOrder(std::bit_cast<uint32_t>(score));
  };
  for (size_t i = 1; i < std::size(ascending); ++i) {
    EXPECT_LT(order(ascending[i - 1]), order(ascending[i])) << i;
  }
  EXPECT_EQ(order(-0.0f), order(0.0f));
  EXPECT_EQ(order(-std::numeric_limits<float>::quiet_NaN()),
            order(std::numeric_limits<float>::quiet_NaN()));
}

TEST(IndexerTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  const auto served = [&](const IndexerDesc& desc) {
    return Select("indexer", IndexerTable(), desc, cpu).ok();
  };
  EXPECT_TRUE(served(Desc(64, 128, 2048)));
  EXPECT_FALSE(served(Desc(0, 128, 2048)));
  EXPECT_FALSE(served(Desc(kMaxIndexHeads + 1, 128, 2048)));
  EXPECT_FALSE(served(Desc(64, kMaxIndexHeadDim + 1, 2048)));
  EXPECT_FALSE(served(Desc(64, 128, kMaxIndexTopK + 1)));
  EXPECT_FALSE(served(Desc(64, 128, 0)));
  EXPECT_FALSE(served(Desc(64, 128, 2048, DType::kI32)));
  EXPECT_EQ(ValidateIndexer(Desc(64, 128, 0)).message(),
            "indexer: top_k is 0; expected 1 to 8192");
}

// Attention over the keys that a selection names.
class Selected {
 public:
  Selected(const AttentionDesc& desc, int q_len, int kv_len, int block_size)
      : desc_(desc),
        q_len_(q_len),
        kv_len_(kv_len),
        layout_({{desc.num_kv_heads, desc.head_dim, 0, desc.value_dim}},
                desc.kv, block_size),
        blocks_(static_cast<size_t>((kv_len + block_size - 1) / block_size)) {
    std::mt19937 rng(9);
    std::iota(blocks_.begin(), blocks_.end(), 1);
    std::shuffle(blocks_.begin(), blocks_.end(), rng);
    storage_.resize(layout_.block_bytes() * (blocks_.size() + 1),
                    std::byte{0xff});
    const KvLayerView kv = View();
    std::normal_distribution<float> normal;
    for (int t = 0; t < kv_len; ++t) {
      const int block = blocks_[static_cast<size_t>(t / block_size)];
      for (int h = 0; h < desc.num_kv_heads; ++h) {
        for (std::byte* to : {kv.KeyRow(block, h, t % block_size),
                              kv.ValueRow(block, h, t % block_size)}) {
          std::vector<float> row(static_cast<size_t>(desc.head_dim));
          for (float& x : row) x = normal(rng);
          EncodeKvRow(desc.kv, row.data(), desc.head_dim, to);
        }
      }
    }
    q_ = TestMatrix(DType::kF32, q_len, desc.num_heads * desc.head_dim, 3);
    q_.Randomize(rng, 2.0f);
  }

  KvLayerView View() { return layout_.LayerView(0, storage_.data()); }
  AttentionParams Params(TestMatrix& out) {
    AttentionParams params;
    params.q = q_.view();
    params.out = out.view();
    params.kv = View();
    sequence_ = {0, q_len_, kv_len_, blocks_.data()};
    params.sequences = absl::MakeConstSpan(&sequence_, 1);
    return params;
  }
  TestMatrix NewOutput() const {
    return TestMatrix(DType::kF32, q_len_, desc_.num_heads * desc_.out_dim());
  }
  int32_t Slot(int position) {
    const int size = View().block_size;
    return blocks_[static_cast<size_t>(position / size)] * size +
           position % size;
  }
  // Of query i: some of the keys that it sees, ascending.
  std::vector<int> Draw(int i, std::mt19937& rng) const {
    std::vector<int> all(static_cast<size_t>(kv_len_ - q_len_ + i + 1));
    std::iota(all.begin(), all.end(), 0);
    std::vector<int> drawn;
    std::sample(all.begin(), all.end(), std::back_inserter(drawn),
                desc_.selects, rng);
    return drawn;
  }
  double Score(int i, int head, int position) {
    const KvLayerView kv = View();
    std::vector<float> key(static_cast<size_t>(desc_.head_dim));
    const int kv_head = head / (desc_.num_heads / desc_.num_kv_heads);
    const int slot = Slot(position);
    DecodeKvRow(desc_.kv,
                kv.KeyRow(slot / kv.block_size, kv_head, slot % kv.block_size),
                desc_.head_dim, key.data());
    double dot = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      dot += double{q_(i, head * desc_.head_dim + d)} *
             key[static_cast<size_t>(d)];
    }
    return dot * desc_.scale;
  }
  std::vector<float> Value(int head, int position) {
    const KvLayerView kv = View();
    std::vector<float> value(static_cast<size_t>(desc_.head_dim));
    const int slot = Slot(position);
    DecodeKvRow(desc_.kv,
                kv.ValueRow(slot / kv.block_size,
                            head / (desc_.num_heads / desc_.num_kv_heads),
                            slot % kv.block_size),
                desc_.head_dim, value.data());
    return value;
  }

 private:
  AttentionDesc desc_;
  int q_len_;
  int kv_len_;
  KvLayout layout_;
  std::vector<int32_t> blocks_;
  std::vector<std::byte> storage_;
  AttentionSequence sequence_;
  TestMatrix q_;
};

AttentionDesc LatentDesc(int heads, int head_dim, int value_dim, DType kv) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = 1;
  desc.head_dim = head_dim;
  desc.value_dim = value_dim;
  desc.kv = kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return desc;
}

// A selection of everything gives the bits of attention over everything.
TEST(SelectedAttentionTest, AllKeysAreDenseAttention) {
  TestCpu cpu(2);
  for (const DType kv : kKvTypes) {
    for (const int heads : {3, 20, 128}) {
      AttentionDesc dense = LatentDesc(heads, heads == 128 ? 576 : 40,
                                       heads == 128 ? 512 : 24, kv);
      AttentionDesc desc = dense;
      desc.selects = 80;
      Selected problem(desc, 30, 80, 16);
      std::vector<int32_t> selection(30 * 80);
      for (int i = 0; i < 30; ++i) {
        for (int t = 0; t < 51 + i; ++t) {
          selection[static_cast<size_t>(i * 80 + t)] = problem.Slot(t);
        }
      }
      ForEachCpuRow(AttentionTable(), desc, cpu, [&](const AttentionRow& row) {
        TestMatrix want = problem.NewOutput();
        TestMatrix got = problem.NewOutput();
        ASSERT_TRUE(row.run(dense, problem.Params(want), *cpu.stream).ok());
        AttentionParams params = problem.Params(got);
        params.selection = selection.data();
        ASSERT_TRUE(ValidateAttention(desc, params).ok());
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int i = 0; i < 30; ++i) {
          ASSERT_EQ(want.RowBits(i), got.RowBits(i)) << "query " << i;
        }
      });
    }
  }
}

TEST(SelectedAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int kQueries = 9, kKeys = 300;
  for (const DType kv : kKvTypes) {
    for (const int selects : {1, 70, 296}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " of " << selects);
      AttentionDesc desc = LatentDesc(19, 40, 24, kv);
      desc.selects = selects;
      Selected problem(desc, kQueries, kKeys, 32);
      std::mt19937 rng(7);
      std::vector<int32_t> selection(static_cast<size_t>(kQueries * selects),
                                     -1);
      std::vector<std::vector<int>> drawn;
      for (int i = 0; i < kQueries; ++i) {
        drawn.push_back(problem.Draw(i, rng));
        for (size_t t = 0; t < drawn.back().size(); ++t) {
          selection[static_cast<size_t>(i * selects) + t] =
              problem.Slot(drawn.back()[t]);
        }
      }
      ForEachCpuRow(AttentionTable(), desc, cpu, [&](const AttentionRow& row) {
        TestMatrix out = problem.NewOutput();
        AttentionParams params = problem.Params(out);
        params.selection = selection.data();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int i = 0; i < kQueries; ++i) {
          for (int head = 0; head < desc.num_heads; ++head) {
            double sum = 0.0;
            std::vector<double> want(24);
            for (const int t : drawn[static_cast<size_t>(i)]) {
              // Scores are a few units, so none overflows.
              const double weight = std::exp(problem.Score(i, head, t));
              const std::vector<float> value = problem.Value(head, t);
              sum += weight;
              for (size_t d = 0; d < 24; ++d) want[d] += weight * value[d];
            }
            for (size_t d = 0; d < 24; ++d) {
              // Values are below 5, scores below 2^4 in sums of 40 products:
              // errors of some 2^-24 * 40 * 2^4 each, doubled by the softmax.
              ASSERT_NEAR(out(i, head * 24 + static_cast<int64_t>(d)),
                          want[d] / sum, 5 * 2 * kUnitF32 * 40 * 16)
                  << i << " " << head << " " << d;
            }
          }
        }
      });
    }
  }
}

TEST(SelectedAttentionTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  AttentionDesc desc = LatentDesc(4, 40, 24, DType::kF32);
  desc.selects = 8;
  EXPECT_TRUE(Select("attention", AttentionTable(), desc, cpu).ok());
  Selected problem(desc, 2, 20, 16);
  TestMatrix out = problem.NewOutput();
  AttentionParams params = problem.Params(out);
  EXPECT_EQ(ValidateAttention(desc, params).message(),
            "attention: keys are selected, and there is no selection");
  std::vector<int32_t> selection(16, problem.Slot(0));
  params.selection = selection.data();
  EXPECT_TRUE(ValidateAttention(desc, params).ok());
  const float slopes[4] = {};
  params.alibi_slopes = slopes;
  EXPECT_FALSE(ValidateAttention(desc, params).ok());
  params.alibi_slopes = nullptr;
  for (const bool window : {true, false}) {
    AttentionDesc bad = desc;
    bad.window = window ? 4 : 0;
    bad.causal = window;
    EXPECT_FALSE(ValidateAttention(bad, params).ok());
    EXPECT_FALSE(Select("attention", AttentionTable(), bad, cpu).ok());
  }
}

}  // namespace
}  // namespace inlay
