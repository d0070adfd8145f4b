// attention: every row against a float64 softmax over ragged batches; bit
// equality over chunkings, batches and thread counts; slots that nobody wrote
// hold NaN.
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/kv_write/kv_write.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::PutFloat;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

struct SequenceShape {
  int q_len;
  int kv_len;
};

// A cache in which each sequence's blocks are scattered, and its queries.
class Problem {
 public:
  Problem(const AttentionDesc& desc, std::vector<SequenceShape> shapes,
          int block_size, unsigned seed)
      : desc_(desc),
        shapes_(std::move(shapes)),
        rng_(seed),
        layout_({{3, 16}, {desc.num_kv_heads, desc.head_dim}}, desc.kv,
                block_size) {
    int32_t tokens = 0;
    int32_t blocks = 1;  // block 0 belongs to nobody
    for (const SequenceShape& shape : shapes_) {
      std::vector<int32_t> table;
      for (int i = 0; i * block_size < shape.kv_len; ++i) {
        table.push_back(blocks++);
      }
      std::shuffle(table.begin(), table.end(), rng_);
      tables_.push_back(std::move(table));
      tokens += shape.q_len;
    }
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks));
    const auto elements =
        static_cast<int64_t>(storage_.size() / RowBytes(desc.kv, 1));
    for (int64_t i = 0; i < elements; ++i) {
      PutFloat(desc.kv, storage_.data(), i,
               std::numeric_limits<float>::quiet_NaN());
    }
    q_ = TestMatrix(DType::kF32, tokens, desc.num_heads * desc.head_dim, 5);
    q_.Randomize(rng_, 2.0f);
    WriteCache();
    std::normal_distribution<float> normal;
    for (int h = 0; h < desc.num_heads; ++h) sinks_.push_back(normal(rng_));
  }

  AttentionParams Params(TestMatrix& out) {
    AttentionParams params;
    params.q = q_.view();
    params.out = out.view();
    params.kv = View();
    int32_t begin = 0;
    sequences_.clear();
    for (size_t s = 0; s < shapes_.size(); ++s) {
      sequences_.push_back(
          {begin, shapes_[s].q_len, shapes_[s].kv_len, tables_[s].data()});
      begin += shapes_[s].q_len;
    }
    params.sequences = sequences_;
    if (with_sinks_) params.sinks = sinks_.data();
    return params;
  }

  void ComputeReference();
  void Check(TestCpu& cpu);

  const AttentionDesc& desc() const { return desc_; }
  void set_sinks(bool on) { with_sinks_ = on; }
  TestMatrix NewOutput() const {
    return TestMatrix(DType::kF32, q_.rows(), q_.cols(), 2);
  }

 private:
  KvLayerView View() { return layout_.LayerView(1, storage_.data()); }

  void WriteCache() {
    const KvLayerView view = View();
    std::normal_distribution<float> normal;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      for (int t = 0; t < shapes_[s].kv_len; ++t) {
        const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
        for (int h = 0; h < desc_.num_kv_heads; ++h) {
          for (int d = 0; d < desc_.head_dim; ++d) {
            PutFloat(desc_.kv, view.KeyRow(block, h, t % view.block_size), d,
                     normal(rng_));
            PutFloat(desc_.kv, view.ValueRow(block, h, t % view.block_size), d,
                     normal(rng_));
          }
        }
      }
    }
  }

  void ReferenceQuery(size_t s, int row, int index, int head);

  AttentionDesc desc_;
  std::vector<SequenceShape> shapes_;
  std::mt19937 rng_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_;
  std::vector<float> sinks_;
  bool with_sinks_ = false;
  std::vector<double> want_;
  std::vector<double> tolerance_;
};

void Problem::ReferenceQuery(size_t s, int row, int index, int head) {
  const KvLayerView view = View();
  const int kv_head = head / (desc_.num_heads / desc_.num_kv_heads);
  const int position = shapes_[s].kv_len - shapes_[s].q_len + index;
  std::vector<double> scores(static_cast<size_t>(shapes_[s].kv_len),
                             -std::numeric_limits<double>::infinity());
  double max = with_sinks_ ? sinks_[static_cast<size_t>(head)]
                           : -std::numeric_limits<double>::infinity();
  double score_error = 0.0;
  for (int t = 0; t < shapes_[s].kv_len; ++t) {
    if (desc_.causal && t > position) continue;
    if (desc_.window > 0 && t <= position - desc_.window) continue;
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    const std::byte* key = view.KeyRow(block, kv_head, t % view.block_size);
    double dot = 0.0;
    double magnitude = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      const double product = double{q_(row, head * desc_.head_dim + d)} *
                             testing::GetFloat(desc_.kv, key, d);
      dot += product;
      magnitude += std::abs(product);
    }
    double score = dot * desc_.scale;
    if (desc_.softcap > 0) {
      score = desc_.softcap * std::tanh(score / desc_.softcap);
    }
    scores[static_cast<size_t>(t)] = score;
    max = std::max(max, score);
    // head_dim fused multiply-adds in any order, the scale, and the softcap
    // (whose slope is at most 1, with a few roundings of its own), the
    // subtraction of the maximum.
    score_error =
        std::max(score_error,
                 kUnitF32 * ((desc_.head_dim + 2) * magnitude * desc_.scale +
                             6 * desc_.softcap + 2 * std::abs(score)));
  }
  score_error += kUnitF32 * 2 * std::abs(max);
  double sum =
      with_sinks_ ? std::exp(sinks_[static_cast<size_t>(head)] - max) : 0.0;
  for (const double score : scores) sum += std::exp(score - max);
  for (int d = 0; d < desc_.head_dim; ++d) {
    double value = 0.0;
    double magnitude = 0.0;
    for (int t = 0; t < shapes_[s].kv_len; ++t) {
      const double p = std::exp(scores[static_cast<size_t>(t)] - max) / sum;
      if (p == 0.0) continue;
      const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
      const double v = testing::GetFloat(
          desc_.kv, view.ValueRow(block, kv_head, t % view.block_size), d);
      value += p * v;
      magnitude += p * std::abs(v);
    }
    want_.push_back(value);
    // Errors of the scores enter numerator and denominator as relative errors;
    // so do each exp (3 units) and the kv_len roundings of either sum, the
    // rescalings and the division.
    tolerance_.push_back(magnitude * (2 * score_error +
                                      kUnitF32 * (2 * shapes_[s].kv_len + 24)) +
                         1e-30);
  }
}

void Problem::ComputeReference() {
  want_.clear();
  tolerance_.clear();
  int row = 0;
  for (size_t s = 0; s < shapes_.size(); ++s) {
    for (int i = 0; i < shapes_[s].q_len; ++i, ++row) {
      for (int head = 0; head < desc_.num_heads; ++head) {
        ReferenceQuery(s, row, i, head);
      }
    }
  }
}

void Problem::Check(TestCpu& cpu) {
  ComputeReference();
  ForEachCpuRow(AttentionTable(), desc_, cpu, [&](const AttentionRow& row) {
    TestMatrix out = NewOutput();
    const AttentionParams params = Params(out);
    ASSERT_TRUE(ValidateAttention(desc_, params).ok());
    ASSERT_TRUE(row.run(desc_, params, *cpu.stream).ok());
    const auto at = [&](const std::vector<double>& values) {
      return [&](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * out.cols() + c)];
      };
    };
    ExpectClose(out, at(want_), at(tolerance_));
  });
}

AttentionDesc Desc(int heads, int kv_heads, int head_dim,
                   DType kv = DType::kF32) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.kv = kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return desc;
}

const std::vector<SequenceShape> kRagged = {
    {1, 1}, {1, 37}, {5, 5}, {7, 70}, {1, 64}, {1, 65}, {0, 12}, {33, 47}};

TEST(AttentionTest, MatchesFloat64OverHeadDimsAndTypes) {
  TestCpu cpu(2);
  unsigned seed = 1;
  for (const int head_dim : {32, 64, 80, 96, 128, 256, 20, 7}) {
    for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << " "
                                        << DTypeName(kv) << " seed " << seed);
      Problem(Desc(4, 2, head_dim, kv), kRagged, seed % 2 == 0 ? 16 : 32, seed)
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

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  TestCpu cpu(1);
  AttentionDesc desc = Desc(2, 1, 32);
  desc.scale = 20.0f;
  Problem(desc, {{3, 150}}, 16, 1).Check(cpu);
}

// The same query must give the same bits decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(AttentionTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 150;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  for (const DType kv : {DType::kF32, DType::kBF16}) {
    for (const int window : {0, 70}) {
      AttentionDesc desc = Desc(6, 2, 40, kv);
      desc.window = window;
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

TEST(AttentionTest, KvWriteFillsWhatAttentionReads) {
  TestCpu cpu(2);
  std::mt19937 rng(3);
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) {
    const KvWriteDesc desc{3, 20, kv, DType::kF32};
    KvLayout layout({{3, 20}, {3, 20}}, kv, 8);
    TestMatrix k(DType::kF32, 11, 60, 3);
    TestMatrix v(DType::kF32, 11, 60);
    k.Randomize(rng);
    v.Randomize(rng);
    const std::vector<int64_t> slots = {5, 0, 31, 16, 17, 18, 7, 8, 9, 24, 30};
    ForEachCpuRow(KvWriteTable(), desc, cpu, [&](const KvWriteRow& row) {
      std::vector<std::byte> storage(layout.block_bytes() * 4, std::byte{0xee});
      const KvLayerView view = layout.LayerView(1, storage.data());
      const KvWriteParams params{k.view(), v.view(), view, slots.data()};
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      std::vector<std::byte> want(storage.size(), std::byte{0xee});
      const KvLayerView wanted = layout.LayerView(1, want.data());
      for (int64_t t = 0; t < 11; ++t) {
        const int64_t slot = slots[static_cast<size_t>(t)];
        for (int h = 0; h < 3; ++h) {
          for (int d = 0; d < 20; ++d) {
            PutFloat(kv, wanted.KeyRow(slot / 8, h, static_cast<int>(slot % 8)),
                     d, k(t, h * 20 + d));
            PutFloat(kv,
                     wanted.ValueRow(slot / 8, h, static_cast<int>(slot % 8)),
                     d, v(t, h * 20 + d));
          }
        }
      }
      EXPECT_TRUE(storage == want) << DTypeName(kv);
    });
  }
}

TEST(AttentionTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  AttentionDesc desc = Desc(4, 2, 64);
  EXPECT_TRUE(Select("attention", AttentionTable(), desc, cpu).ok());
  const auto refused = [&](const AttentionDesc& bad) {
    return !Select("attention", AttentionTable(), bad, cpu).ok();
  };
  EXPECT_TRUE(refused(Desc(4, 3, 64)));
  EXPECT_TRUE(refused(Desc(4, 2, 513)));
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
  bad.out = bad.q;
  EXPECT_FALSE(ValidateAttention(problem.desc(), bad).ok());
}

}  // namespace
}  // namespace inlay
