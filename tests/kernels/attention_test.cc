// attention: every row against a float64 softmax over ragged batches; bit
// equality over chunkings, batches and thread counts; slots that nobody wrote
// hold NaN.
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_pattern.h"
#include "kernels/cpu_float.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/attention_mask_util.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;

struct SequenceShape {
  int q_len;
  int kv_len;
};

// A cache in which each sequence's blocks are scattered, and its queries.
class Problem {
 public:
  Problem(const AttentionDesc& desc, std::vector<SequenceShape> shapes,
          int block_size, unsigned seed, std::vector<TestMask> masks = {})
      : desc_(desc),
        shapes_(std::move(shapes)),
        masks_(std::move(masks)),
        rng_(seed),
        layout_(
            {{3, 16}, {desc.num_kv_heads, desc.head_dim, 0, desc.value_dim}},
            desc.kv, block_size) {
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
    // All ones is NaN, as an element and as a scale.
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks),
                    std::byte{0xff});
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
    if (!slopes_.empty()) params.alibi_slopes = slopes_.data();
    if (!masks_.empty()) {
      std::vector<AttentionMaskSpec> specs;
      for (const TestMask& mask : masks_) specs.push_back(mask.Spec());
      auto mask = CompileAttentionMask(desc_, sequences_, specs);
      EXPECT_TRUE(mask.ok()) << mask.status();
      mask_ = *std::move(mask);
      params.mask = &mask_;
    }
    return params;
  }

  void ComputeReference();
  void Check(TestCpu& cpu);

  const AttentionDesc& desc() const { return desc_; }
  void set_sinks(bool on) { with_sinks_ = on; }
  void set_alibi() {
    slopes_.resize(static_cast<size_t>(desc_.num_heads));
    FillAlibiSlopes(desc_.num_heads, slopes_.data());
  }
  TestMatrix NewOutput() const {
    return TestMatrix(DType::kF32, q_.rows(), desc_.num_heads * desc_.out_dim(),
                      2);
  }

 private:
  KvLayerView View() { return layout_.LayerView(1, storage_.data()); }

  void WriteCache() {
    const KvLayerView view = View();
    std::normal_distribution<float> normal;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      // What lies outside of what a mask shows stays NaN.
      std::pair<int, int> seen{0, shapes_[s].kv_len - 1};
      if (!masks_.empty()) {
        seen = SeenKeys(masks_[s], desc_, shapes_[s].q_len, shapes_[s].kv_len);
      }
      for (int t = seen.first; t <= seen.second; ++t) {
        const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
        for (int h = 0; h < desc_.num_kv_heads; ++h) {
          for (std::byte* to : {view.KeyRow(block, h, t % view.block_size),
                                view.ValueRow(block, h, t % view.block_size)}) {
            std::vector<float> row(static_cast<size_t>(desc_.head_dim));
            for (float& x : row) x = normal(rng_);
            EncodeKvRow(desc_.kv, row.data(), desc_.head_dim, to);
          }
        }
      }
    }
  }

  void ReferenceQuery(size_t s, int row, int index, int head);
  // The boolean matrix.
  bool Sees(size_t s, int position, int t) const {
    static const TestMask no_mask;
    return (masks_.empty() ? no_mask : masks_[s]).Sees(desc_, position, t);
  }
  std::vector<float> Decode(const std::byte* row) const {
    std::vector<float> x(static_cast<size_t>(desc_.head_dim));
    DecodeKvRow(desc_.kv, row, desc_.head_dim, x.data());
    return x;
  }

  AttentionDesc desc_;
  std::vector<SequenceShape> shapes_;
  std::vector<TestMask> masks_;  // of each sequence, or none
  std::mt19937 rng_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_;
  std::vector<float> sinks_;
  std::vector<float> slopes_;
  AttentionMask mask_;
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
    if (!Sees(s, position, t)) continue;
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    const std::vector<float> key =
        Decode(view.KeyRow(block, kv_head, t % view.block_size));
    double dot = 0.0;
    double magnitude = 0.0;
    for (int d = 0; d < desc_.head_dim; ++d) {
      const double product = double{q_(row, head * desc_.head_dim + d)} *
                             key[static_cast<size_t>(d)];
      dot += product;
      magnitude += std::abs(product);
    }
    double score = dot * desc_.scale;
    if (desc_.softcap > 0) {
      score = desc_.softcap * std::tanh(score / desc_.softcap);
    }
    if (!slopes_.empty()) {
      score += double{slopes_[static_cast<size_t>(head)]} * (t - position);
    }
    scores[static_cast<size_t>(t)] = score;
    max = std::max(max, score);
    // head_dim fused multiply-adds in any order, the scale, and the softcap
    // (whose slope is at most 1, with a few roundings of its own), adding
    // ALiBi's term, the subtraction of the maximum.
    score_error =
        std::max(score_error,
                 kUnitF32 * ((desc_.head_dim + 2) * magnitude * desc_.scale +
                             6 * desc_.softcap + 2 * std::abs(score)));
  }
  const bool sees_nothing = std::isinf(max);
  if (sees_nothing) max = 0.0;
  score_error += kUnitF32 * 2 * std::abs(max);
  double sum =
      with_sinks_ ? std::exp(sinks_[static_cast<size_t>(head)] - max) : 0.0;
  for (const double score : scores) sum += std::exp(score - max);
  std::vector<double> values(static_cast<size_t>(desc_.out_dim()));
  std::vector<double> magnitudes(values.size());
  for (int t = 0; t < shapes_[s].kv_len; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t)] - max) / sum;
    if (sees_nothing || p == 0.0) continue;
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    const std::vector<float> v =
        Decode(view.ValueRow(block, kv_head, t % view.block_size));
    for (size_t d = 0; d < values.size(); ++d) {
      values[d] += p * v[d];
      magnitudes[d] += p * std::abs(v[d]);
    }
  }
  for (size_t d = 0; d < values.size(); ++d) {
    want_.push_back(values[d]);
    // Errors of the scores enter numerator and denominator as relative errors;
    // so do each exp (3 units) and the kv_len roundings of either sum, the
    // rescalings and the division.
    tolerance_.push_back(
        magnitudes[d] *
            (2 * score_error + kUnitF32 * (2 * shapes_[s].kv_len + 24)) +
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

constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

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

// Values that are a part of the keys' rows: DeepSeek's sizes, and others.
TEST(AttentionTest, MatchesFloat64WhereValuesLieInKeys) {
  TestCpu cpu(2);
  constexpr int kDims[][2] = {{576, 512}, {48, 32}, {40, 40}, {23, 7}, {80, 1}};
  unsigned seed = 1;
  for (const auto& [head_dim, value_dim] : kDims) {
    for (const DType kv : kKvTypes) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " value_dim " << value_dim
                   << " " << DTypeName(kv) << " seed " << seed);
      AttentionDesc desc = Desc(head_dim > 500 ? 19 : 6, 1, head_dim, kv);
      desc.value_dim = value_dim;
      Problem(desc, kRagged, seed % 2 == 0 ? 16 : 32, seed).Check(cpu);
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

// Masks of all kinds over ragged batches, with all else that a row does; many
// queries see nothing.
TEST(AttentionTest, RandomMasks) {
  TestCpu cpu(2);
  for (unsigned seed = 1; seed <= 40; ++seed) {
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
        "block=16,random=32,window=48,seed=4"}) {
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

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  TestCpu cpu(1);
  AttentionDesc desc = Desc(2, 1, 32);
  desc.scale = 20.0f;
  Problem(desc, {{3, 150}}, 16, 1).Check(cpu);
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

// The same query must give the same bits decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(AttentionTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 150;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  for (const DType kv :
       {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
    for (const int window : {0, 70, -1}) {
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
    EXPECT_NE(row.refuses(beyond, {DeviceKind::kCuda, "gpu"}), nullptr);
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
