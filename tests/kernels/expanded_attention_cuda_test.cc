// expanded_attention on CUDA: tiles over keys and values made of latents, held
// against float64; ragged batches, cache blocks of all sizes, rounds and turns
// of heads that small rooms force, which change no bit.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/expanded_attention.h"
#include "tests/support/attention_cuda_util.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ByteNormal;
using ::inlay::testing::CudaBytes;
using ::inlay::testing::ForEachInParallel;
using ::inlay::testing::GetFloat;
using ::inlay::testing::PutFloat;
using ::inlay::testing::SequenceShape;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

class Problem {
 public:
  Problem(const ExpandedDims& dims, int heads, DType dtype,
          std::vector<SequenceShape> shapes, int block_size, unsigned seed)
      : dims_(dims),
        shapes_(std::move(shapes)),
        normal_(seed),
        layout_({{3, 16}, {1, dims.rank + dims.rope_dim, 0, dims.rank}}, dtype,
                block_size) {
    desc_.num_heads = heads;
    desc_.rank = dims.rank;
    desc_.key_dim = dims.key_dim;
    desc_.rope_dim = dims.rope_dim;
    desc_.value_dim = dims.value_dim;
    desc_.block_size = layout_.block_size();
    desc_.kv = desc_.weight = desc_.activation = dtype;
    desc_.scale = 1.0f / std::sqrt(static_cast<float>(desc_.head_dim()));
    MakeCache(seed);
    MakeMatrices();
    int32_t tokens = 0;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      sequences_.push_back(
          {tokens, shapes_[s].q_len, shapes_[s].kv_len, tables_[s].data()});
      tokens += shapes_[s].q_len;
    }
    q_ = TestMatrix(dtype, tokens, int64_t{heads} * desc_.head_dim(), 8);
    for (int64_t r = 0; r < q_.rows(); ++r) {
      for (int64_t c = 0; c < q_.cols(); ++c) q_.Set(r, c, normal_());
    }
  }

  void set_room(int64_t bytes) { room_ = bytes; }
  size_t rounds() const { return rounds_; }
  size_t num_expanded() const {
    return static_cast<size_t>(
        std::count(expanded_.begin(), expanded_.end(), true));
  }
  const std::vector<AttentionSequence>& sequences() const { return sequences_; }
  int64_t head_bytes() const {
    return int64_t{desc_.block_size} * ExpandedRowBytes(dims_);
  }

  // Twice: the second time finds what the first left.
  TestMatrix Run(TestCuda& gpu, absl::Span<const AttentionSequence> sequences) {
    AttentionPlanShape shape;
    shape.num_kv_heads = 1;
    shape.group = desc_.num_heads;
    shape.head_dim = dims_.rank + dims_.rope_dim;
    shape.block_size = desc_.block_size;
    // Few heads of short sequences pay where there are no multiprocessors to
    // leave idle. Launches have those that there are.
    shape.grid = 1;
    LetExpand(dims_, shape);
    shape.unpack_bytes = room_;
    const AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences);
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes + 64);
    auto* aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<uintptr_t>(image.data()) + 63) / 64 * 64);
    AttentionPlan plan = BuildAttentionPlan(shape, limits, sequences, aligned);
    rounds_ = plan.rounds.size();
    expanded_.assign(static_cast<size_t>(q_.rows()), false);
    const auto* tiles =
        reinterpret_cast<const AttentionTile*>(aligned + plan.layout.tiles);
    for (int i = 0; i < plan.num_tiles; ++i) {
      std::fill_n(expanded_.begin() + tiles[i].q_row, tiles[i].num_tokens,
                  true);
    }
    CudaBytes device_plan(aligned, plan.used_bytes);
    plan.device = device_plan.as<std::byte>();
    const CudaBytes workspace(plan.unpacked_bytes + 1024);
    CudaBytes cache(storage_.data(), storage_.size());
    CudaBytes matrices(matrices_);
    CudaBytes q(q_.view().data, q_.view().bytes());
    TestMatrix out(desc_.activation, q_.rows(),
                   int64_t{desc_.num_heads} * dims_.value_dim, 8);
    CudaBytes result(out.view().data, out.view().bytes());
    ExpandedAttentionParams params;
    params.q = q_.view();
    params.q.data = q.as<std::byte>();
    params.out = out.view();
    params.out.data = result.as<std::byte>();
    params.kv = layout_.LayerView(1, cache.as<std::byte>());
    params.keys = {matrices.as<std::byte>(), stride()};
    params.values = {matrices.as<std::byte>() + key_bytes(), stride()};
    params.sequences = sequences;
    params.plan = &plan;
    params.workspace = workspace.as<void>();
    EXPECT_TRUE(ValidateExpandedAttention(desc_, params).ok());
    const auto row =
        Select("expanded_attention", ExpandedAttentionTable(), desc_, gpu.info);
    EXPECT_TRUE(row.ok()) << row.status();
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = (*row)->run(desc_, params, *gpu.stream);
      EXPECT_TRUE(status.ok()) << status;
    }
    result.Download(out.view().data);
    // Behind what the plan says is nothing.
    std::vector<uint8_t> used(plan.unpacked_bytes + 1024);
    workspace.Download(used.data());
    EXPECT_TRUE(std::all_of(used.end() - 1024, used.end(),
                            [](uint8_t x) { return x == 0xff; }));
    return out;
  }

  // Of what the last Run() expanded.
  void Compare(const TestMatrix& out) {
    struct Row {
      std::vector<double> want, magnitude;
    };
    const auto heads = static_cast<size_t>(desc_.num_heads);
    std::vector<Row> rows(static_cast<size_t>(q_.rows()) * heads);
    ForEachInParallel(shapes_.size() * heads, [&](size_t i) {
      const size_t s = i / heads, h = i % heads;
      if (shapes_[s].q_len == 0 ||
          !expanded_[static_cast<size_t>(sequences_[s].q_begin)]) {
        return;
      }
      const Head head = ExpandHead(s, h);
      for (int n = 0; n < shapes_[s].q_len; ++n) {
        const auto at = static_cast<size_t>(sequences_[s].q_begin + n);
        Row& row = rows[at * heads + h];
        Reference(s, h, n, head, row.want, row.magnitude);
      }
    });
    // Weights and outputs are rounded. The reference rounds keys and values as
    // the kernel does, but sums before that are in float32 there: one in five
    // hundred or less is rounded the other way, two units off. Of a score's 128
    // products by scale these are 6 * sqrt(128 / 500) * 2 units * scale = 0.44
    // units, in numerator and denominator. Scores' sums of 192 products in
    // float32, whose magnitudes by scale are about 1, err by 1.1e-5 at worst:
    // 2e-5 in both. f16's own error below 2^-14, 2^-25, is within 1e-6.
    const double unit = UnitOf(desc_.activation);
    double worst = 0;
    std::string report;
    for (int64_t r = 0; r < out.rows(); ++r) {
      for (int64_t c = 0; c < out.cols(); ++c) {
        const double got = out(r, c);
        if (!expanded_[static_cast<size_t>(r)]) {
          ASSERT_TRUE(std::isnan(got)) << "wrote row " << r;
          continue;
        }
        const Row& row = rows[static_cast<size_t>(r) * heads +
                              static_cast<size_t>(c / dims_.value_dim)];
        const auto d = static_cast<size_t>(c % dims_.value_dim);
        const double tolerance = row.magnitude[d] * (2.0 * unit + 2e-5) +
                                 unit * std::abs(row.want[d]) + 1e-6;
        const double ratio = std::abs(got - row.want[d]) / tolerance;
        if (ratio <= worst) continue;  // NaN goes on
        worst = std::isnan(ratio) ? INFINITY : ratio;
        report = "row " + std::to_string(r) + " column " + std::to_string(c) +
                 ": " + std::to_string(got) + ", expected " +
                 std::to_string(row.want[d]);
        if (std::isinf(worst)) break;
      }
    }
    EXPECT_LE(worst, 1.0) << report;
    EXPECT_TRUE(out.PaddingIsPoisoned());
  }

 private:
  size_t key_bytes() const {
    return static_cast<size_t>(2 * dims_.rank * dims_.key_dim);
  }
  size_t value_bytes() const {
    return static_cast<size_t>(2 * dims_.rank * dims_.value_dim);
  }
  // As aligned heads lie.
  size_t stride() const { return key_bytes() + value_bytes() + 64; }

  void MakeCache(unsigned seed) {
    const int size = desc_.block_size;
    std::vector<int32_t> ids;
    int32_t blocks = 1;  // block 0 belongs to nobody
    for (const SequenceShape& shape : shapes_) {
      for (int i = 0; i * size < shape.kv_len; ++i) ids.push_back(blocks++);
    }
    std::mt19937 rng(seed);
    std::shuffle(ids.begin(), ids.end(), rng);
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks),
                    std::byte{0xff});  // NaN
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    size_t next = 0;
    for (const SequenceShape& shape : shapes_) {
      auto& table = tables_.emplace_back();
      for (int i = 0; i * size < shape.kv_len; ++i)
        table.push_back(ids[next++]);
      for (int t = 0; t < shape.kv_len; ++t) {
        std::byte* row =
            view.KeyRow(table[static_cast<size_t>(t / size)], 0, t % size);
        for (int d = 0; d < dims_.rank + dims_.rope_dim; ++d) {
          PutFloat(desc_.kv, row, d, normal_());
        }
      }
    }
  }
  void MakeMatrices() {
    matrices_.resize(stride() * static_cast<size_t>(desc_.num_heads), 0xff);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dims_.rank));
    for (size_t h = 0; h < static_cast<size_t>(desc_.num_heads); ++h) {
      auto* head = reinterpret_cast<std::byte*>(&matrices_[h * stride()]);
      for (size_t i = 0; i < (key_bytes() + value_bytes()) / 2; ++i) {
        PutFloat(desc_.weight, head, static_cast<int64_t>(i),
                 scale * normal_());
      }
    }
  }

  float Rounded(double x) const {
    std::byte bytes[4];
    PutFloat(desc_.activation, bytes, 0, static_cast<float>(x));
    return GetFloat(desc_.activation, bytes, 0);
  }

  struct Head {
    std::vector<float> keys;  // [kv_len][key_dim + rope_dim]
    std::vector<float> values;
  };
  Head ExpandHead(size_t s, size_t h) const {
    const KvLayerView view =
        layout_.LayerView(1, const_cast<std::byte*>(storage_.data()));
    const auto* bytes =
        reinterpret_cast<const std::byte*>(&matrices_[h * stride()]);
    const auto rank = static_cast<size_t>(dims_.rank);
    const auto key_dim = static_cast<size_t>(dims_.key_dim);
    const auto value_dim = static_cast<size_t>(dims_.value_dim);
    std::vector<double> keys_of(rank * key_dim), values_of(rank * value_dim);
    for (size_t i = 0; i < keys_of.size(); ++i) {
      keys_of[i] = GetFloat(desc_.weight, bytes, static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < values_of.size(); ++i) {
      values_of[i] =
          GetFloat(desc_.weight, bytes + key_bytes(), static_cast<int64_t>(i));
    }
    Head head;
    for (int t = 0; t < shapes_[s].kv_len; ++t) {
      const std::byte* row =
          view.KeyRow(tables_[s][static_cast<size_t>(t / desc_.block_size)], 0,
                      t % desc_.block_size);
      std::vector<double> key(key_dim);
      std::vector<double> latent(rank);
      for (size_t j = 0; j < rank; ++j) {
        latent[j] = GetFloat(desc_.kv, row, static_cast<int64_t>(j));
        for (size_t d = 0; d < key_dim; ++d) {
          key[d] += keys_of[j * key_dim + d] * latent[j];
        }
      }
      for (const double x : key) head.keys.push_back(Rounded(x));
      for (int d = dims_.rank; d < dims_.rank + dims_.rope_dim; ++d) {
        head.keys.push_back(GetFloat(desc_.kv, row, d));
      }
      for (size_t d = 0; d < value_dim; ++d) {
        double sum = 0;
        for (size_t j = 0; j < rank; ++j) {
          sum += values_of[d * rank + j] * latent[j];
        }
        head.values.push_back(Rounded(sum));
      }
    }
    return head;
  }

  void Reference(size_t s, size_t h, int n, const Head& head,
                 std::vector<double>& want,
                 std::vector<double>& magnitude) const {
    const int64_t row = sequences_[s].q_begin + n;
    const auto head_dim = static_cast<size_t>(desc_.head_dim());
    const auto value_dim = static_cast<size_t>(dims_.value_dim);
    const auto end =
        static_cast<size_t>(shapes_[s].kv_len - shapes_[s].q_len + n + 1);
    std::vector<double> q(head_dim);
    for (size_t d = 0; d < head_dim; ++d) {
      q[d] = q_(row, static_cast<int64_t>(h * head_dim + d));
    }
    std::vector<double> weights(end);
    double max = -INFINITY;
    for (size_t t = 0; t < end; ++t) {
      for (size_t d = 0; d < head_dim; ++d) {
        weights[t] += q[d] * head.keys[t * head_dim + d];
      }
      weights[t] *= desc_.scale;
      max = std::max(max, weights[t]);
    }
    double sum = 0;
    for (double& x : weights) sum += x = std::exp(x - max);
    want.assign(value_dim, 0.0);
    magnitude.assign(value_dim, 0.0);
    for (size_t t = 0; t < end; ++t) {
      for (size_t d = 0; d < value_dim; ++d) {
        const double x = weights[t] / sum * head.values[t * value_dim + d];
        want[d] += x;
        magnitude[d] += std::abs(x);
      }
    }
  }

  ExpandedAttentionDesc desc_;
  ExpandedDims dims_;
  std::vector<SequenceShape> shapes_;
  ByteNormal normal_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<uint8_t> matrices_;  // of a head its keys', then its values'
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_;
  int64_t room_ = kExpandBytes;
  size_t rounds_ = 0;
  std::vector<bool> expanded_;  // rows of q
};

class ExpandedAttentionCudaTest
    : public ::testing::TestWithParam<ExpandedDims> {
 protected:
  void SetUp() override {
    INLAY_REQUIRE_CUDA();
    gpu_ = std::make_unique<TestCuda>();
    if (gpu_->info.sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  }
  std::unique_ptr<TestCuda> gpu_;
};

// Prompts whole and in chunks, beside what is too little.
const std::vector<SequenceShape> kPrompts = {
    {1, 700}, {150, 150}, {300, 410}, {0, 33},    {20, 20},
    {70, 70}, {260, 515}, {64, 64},   {129, 129}, {128, 128}};

TEST_P(ExpandedAttentionCudaTest, BlockSizesAndTypes) {
  unsigned seed = 1;
  for (const int block_size : {16, 32, 48, 64, 128, 256}) {
    for (const int heads : {1, 4}) {
      SCOPED_TRACE(::testing::Message()
                   << "block size " << block_size << " heads " << heads);
      Problem problem(GetParam(), heads,
                      seed % 3 == 0 ? DType::kF16 : DType::kBF16, kPrompts,
                      block_size, seed);
      ++seed;
      const TestMatrix out = problem.Run(*gpu_, problem.sequences());
      EXPECT_EQ(problem.rounds(), 1);
      EXPECT_GE(problem.num_expanded(), 300 + 260);
      problem.Compare(out);
    }
  }
}

TEST_P(ExpandedAttentionCudaTest, RoundsAndTurnsChangeNothing) {
  Problem problem(GetParam(), 16, DType::kBF16, kPrompts, 16, 7);
  const TestMatrix whole = problem.Run(*gpu_, problem.sequences());
  const size_t expanded = problem.num_expanded();
  problem.Compare(whole);
  EXPECT_EQ(problem.rounds(), 1);
  // Blocks of one head. The longest sequence has 33, and all together 92.
  size_t most_rounds = 0;
  for (const int blocks : {1000, 300, 100, 60, 40, 33}) {
    SCOPED_TRACE(::testing::Message() << "room for " << blocks << " blocks");
    problem.set_room(blocks * problem.head_bytes());
    const TestMatrix out = problem.Run(*gpu_, problem.sequences());
    most_rounds = std::max(most_rounds, problem.rounds());
    problem.Compare(out);
    if (problem.num_expanded() != expanded) continue;
    for (int64_t r = 0; r < out.rows(); ++r) {
      ASSERT_EQ(out.RowBits(r), whole.RowBits(r)) << "row " << r;
    }
  }
  EXPECT_GE(most_rounds, 3);
}

TEST_P(ExpandedAttentionCudaTest, APromptDependsOnNothingBesideItself) {
  Problem problem(GetParam(), 4, DType::kBF16, kPrompts, 16, 9);
  problem.set_room(60 * problem.head_bytes());
  const TestMatrix whole = problem.Run(*gpu_, problem.sequences());
  for (const AttentionSequence& sequence : problem.sequences()) {
    if (sequence.q_len == 0) continue;
    const TestMatrix alone = problem.Run(*gpu_, {&sequence, 1});
    for (int i = 0; i < sequence.q_len; ++i) {
      ASSERT_EQ(whole.RowBits(sequence.q_begin + i),
                alone.RowBits(sequence.q_begin + i));
    }
  }
}

TEST_P(ExpandedAttentionCudaTest, LongPrompts) {
  Problem whole(GetParam(), 2, DType::kBF16, {{2100, 2100}, {1, 3000}}, 16, 6);
  whole.Compare(whole.Run(*gpu_, whole.sequences()));
  EXPECT_EQ(whole.num_expanded(), 2100);
  Problem chunk(GetParam(), 2, DType::kF16, {{400, 8000}, {700, 5000}}, 64, 6);
  chunk.set_room(8000 * ExpandedRowBytes(GetParam()) + 100000);
  chunk.Compare(chunk.Run(*gpu_, chunk.sequences()));
  EXPECT_EQ(chunk.num_expanded(), 1100);
  EXPECT_EQ(chunk.rounds(), 2);
}

// More tiles and heads than multiprocessors.
TEST_P(ExpandedAttentionCudaTest, ManyHeads) {
  Problem problem(GetParam(), 128, DType::kBF16, {{300, 300}, {200, 260}}, 16,
                  3);
  problem.Compare(problem.Run(*gpu_, problem.sequences()));
  EXPECT_EQ(problem.num_expanded(), 500);
}

INSTANTIATE_TEST_SUITE_P(Dims, ExpandedAttentionCudaTest,
                         ::testing::ValuesIn(kExpandedDims),
                         [](const auto& info) {
                           return "Keys" + std::to_string(info.param.key_dim) +
                                  "Values" +
                                  std::to_string(info.param.value_dim);
                         });

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
