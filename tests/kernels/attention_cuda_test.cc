// attention's CUDA rows against a float64 softmax: ragged batches, every
// format, group, head_dim, window and block size; slots that nobody wrote hold
// NaN, outputs start as NaN; and the same bits in every batch.
#if INLAY_HAS_CUDA
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "kernels/attention/attention_plan.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/attention_mask_util.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMask;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

struct SequenceShape {
  int q_len;
  int kv_len;
  // The first so many keys, in whole blocks, are those of sequence `leader`.
  int leader = -1;
  int shared = 0;
};

// Close to N(0, 1), and quick: sums of four bytes.
class Normal {
 public:
  explicit Normal(unsigned seed) : bits_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float operator()() {
    bits_ ^= bits_ << 13;
    bits_ ^= bits_ >> 7;
    bits_ ^= bits_ << 17;
    int sum = -510;
    for (int i = 0; i < 4; ++i) {
      sum += static_cast<int>(bits_ >> (16 + 8 * i) & 0xff);
    }
    return static_cast<float>(sum) / 147.8f;
  }

 private:
  uint64_t bits_;
};

class Problem {
 public:
  Problem(const AttentionDesc& desc, std::vector<SequenceShape> shapes,
          int block_size, unsigned seed, std::vector<TestMask> masks = {})
      : desc_(desc),
        shapes_(std::move(shapes)),
        masks_(std::move(masks)),
        rng_(seed),
        normal_(seed),
        layout_({{3, 16}, {desc.num_kv_heads, desc.head_dim}}, desc.kv,
                block_size) {
    int32_t tokens = 0;
    int32_t blocks = 1;  // block 0 belongs to nobody
    for (const SequenceShape& shape : shapes_) tokens += shape.q_len;
    std::vector<int32_t> ids;
    for (const SequenceShape& shape : shapes_) {
      for (int i = shape.shared / block_size; i * block_size < shape.kv_len;
           ++i) {
        ids.push_back(blocks++);
      }
    }
    std::shuffle(ids.begin(), ids.end(), rng_);
    int32_t begin = 0;
    size_t next = 0;
    tables_.resize(shapes_.size());
    for (size_t s = 0; s < shapes_.size(); ++s) {
      const auto count = static_cast<size_t>(
          (shapes_[s].kv_len + block_size - 1) / block_size);
      const auto shared = static_cast<size_t>(shapes_[s].shared / block_size);
      if (shared > 0) {
        const auto& theirs = tables_[static_cast<size_t>(shapes_[s].leader)];
        tables_[s].assign(theirs.begin(),
                          theirs.begin() + static_cast<ptrdiff_t>(shared));
      }
      tables_[s].insert(
          tables_[s].end(), ids.begin() + static_cast<ptrdiff_t>(next),
          ids.begin() + static_cast<ptrdiff_t>(next + count - shared));
      next += count - shared;
      // Blocks that the window has passed, or that a mask does not reach, are
      // gone.
      const std::pair<int, int> seen = SeenOf(s);
      for (int b = 0; b < static_cast<int>(count); ++b) {
        if ((b + 1) * block_size <= seen.first ||
            b * block_size > seen.second) {
          tables_[s][static_cast<size_t>(b)] = 1 << 29;
        }
      }
      sequences_.push_back(
          {begin, shapes_[s].q_len, shapes_[s].kv_len, tables_[s].data()});
      begin += shapes_[s].q_len;
    }
    // All ones is NaN, as an element and as a scale.
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks),
                    std::byte{0xff});
    q_ = TestMatrix(desc.activation, tokens, desc.num_heads * desc.head_dim, 8);
    q_.Randomize(rng_, 2.0f);
    WriteCache();
    for (int h = 0; h < desc.num_heads; ++h) sinks_.push_back(normal_());
  }

  void set_sinks(bool on) { with_sinks_ = on; }
  // CTAs; fewer make sharing worth while where there is little to share.
  void set_grid(int grid) { grid_ = grid; }
  // How many items of shared keys the last Run() had.
  int shared_items() const { return shared_items_; }
  void set_alibi() {
    slopes_.resize(static_cast<size_t>(desc_.num_heads));
    FillAlibiSlopes(desc_.num_heads, slopes_.data());
  }
  const std::vector<AttentionSequence>& sequences() const { return sequences_; }

  // Runs `row` over `sequences` of this problem, `times` times.
  TestMatrix Run(const AttentionRow& row, TestCuda& gpu,
                 absl::Span<const AttentionSequence> sequences,
                 bool batch_invariant = true, int times = 1,
                 bool graph = false) {
    TestMatrix out(desc_.activation, q_.rows(), q_.cols(), 8);
    CudaBytes cache(storage_.data(), storage_.size());
    CudaBytes q(q_.view().data, q_.view().bytes());
    CudaBytes result(out.view().data, out.view().bytes());
    CudaBytes sinks(sinks_.data(), sinks_.size() * sizeof(float));
    CudaBytes slopes(slopes_.data(), slopes_.size() * sizeof(float));
    AttentionPlanShape shape = MakeAttentionPlanShape(
        row, desc_, layout_.block_size(), gpu.stream->num_sms());
    shape.batch_invariant = batch_invariant;
    if (grid_ > 0) shape.grid = grid_;
    if (!slopes_.empty()) shape.prefix_units = 0;
    const absl::StatusOr<AttentionMask> compiled = CompileMask(sequences);
    const AttentionMask* mask = masks_.empty() ? nullptr : &*compiled;
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences, mask);
    limits.graph = graph;
    if (graph) limits.sequences += 3;
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes);
    AttentionPlan plan =
        BuildAttentionPlan(shape, limits, sequences, image.data(), mask);
    const auto* items = reinterpret_cast<const AttentionItem*>(
        image.data() + plan.layout.items);
    const int num_items = reinterpret_cast<const int32_t*>(
        image.data() + plan.layout.cta_items)[shape.grid];
    shared_items_ = static_cast<int>(
        std::count_if(items, items + num_items,
                      [](const auto& item) { return item.num_units > 0; }));
    CudaBytes device_plan(image.data(), plan.used_bytes);
    plan.device = device_plan.as<std::byte>();
    std::vector<std::byte> poison(
        AttentionWorkspaceBytes(shape, limits.sequences, limits.tokens),
        std::byte{0xff});
    CudaBytes workspace(poison.data(), poison.size());
    AttentionParams params;
    params.q = q_.view();
    params.q.data = q.as<std::byte>();
    params.out = out.view();
    params.out.data = result.as<std::byte>();
    params.kv = layout_.LayerView(1, cache.as<std::byte>());
    params.sequences = sequences;
    params.workspace = workspace.as<void>();
    params.plan = &plan;
    if (with_sinks_) params.sinks = sinks.as<float>();
    if (!slopes_.empty()) params.alibi_slopes = slopes.as<float>();
    for (int i = 0; i < times; ++i) {
      const absl::Status status = row.run(desc_, params, *gpu.stream);
      EXPECT_TRUE(status.ok()) << status;
    }
    result.Download(out.view().data);
    return out;
  }

  void Check(TestCuda& gpu) {
    ComputeReference();
    ForEachCudaRow(AttentionTable(), desc_, gpu, [&](const AttentionRow& row) {
      // Twice: the second time finds the counters that the first left.
      const TestMatrix out = Run(row, gpu, sequences_, true, 2);
      Compare(out, row.name != "cuda_plain");
    });
  }

  // `rounds_weights`: the row rounds weights to the cache's format.
  void Compare(const TestMatrix& out, bool rounds_weights) {
    const auto at = [&](const std::vector<double>& values, int64_t r,
                        int64_t c) {
      return values[static_cast<size_t>(r * out.cols() + c)];
    };
    const double unit = rounds_weights ? UnitOf(desc_.kv) : 0.0;
    ExpectClose(
        out, [&](int64_t r, int64_t c) { return at(want_, r, c); },
        [&](int64_t r, int64_t c) {
          return at(tolerance_, r, c) + unit * at(magnitude_, r, c) +
                 UnitOf(desc_.activation) *
                     (std::abs(at(want_, r, c)) + at(tolerance_, r, c) +
                      unit * at(magnitude_, r, c)) +
                 // Below 2^-14, f16 has an absolute error: weights, outputs.
                 (rounds_weights && desc_.kv == DType::kF16
                      ? 0x1p-25 * at(spread_, r, c)
                      : 0.0) +
                 (desc_.activation == DType::kF16 ? 0x1p-25 : 0.0);
        });
  }

  void ComputeReference();

 private:
  // The first key that any query of sequence s sees, and the last.
  std::pair<int, int> SeenOf(size_t s) const {
    const int q_len = shapes_[s].q_len;
    const int kv_len = shapes_[s].kv_len;
    if (!masks_.empty()) return SeenKeys(masks_[s], desc_, q_len, kv_len);
    const int first = kv_len - q_len + 1 - desc_.window;
    return {desc_.window > 0 ? std::max(0, first) : 0, kv_len - 1};
  }

  absl::StatusOr<AttentionMask> CompileMask(
      absl::Span<const AttentionSequence> sequences) const {
    std::vector<AttentionMaskSpec> specs;
    if (masks_.empty()) return AttentionMask();
    for (const TestMask& mask : masks_) specs.push_back(mask.Spec());
    auto mask = CompileAttentionMask(desc_, sequences, specs);
    EXPECT_TRUE(mask.ok()) << mask.status();
    return mask;
  }

  bool Sees(size_t s, int position, int t) const {
    return masks_.empty() || masks_[s].Sees(desc_, position, t);
  }

  void WriteCache() {
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    std::vector<float> row(static_cast<size_t>(desc_.head_dim));
    for (size_t s = 0; s < shapes_.size(); ++s) {
      const std::pair<int, int> seen = SeenOf(s);
      const int own = shapes_[s].shared / view.block_size * view.block_size;
      for (int t = std::max(own, seen.first); t <= seen.second; ++t) {
        const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
        for (int h = 0; h < desc_.num_kv_heads; ++h) {
          for (std::byte* to : {view.KeyRow(block, h, t % view.block_size),
                                view.ValueRow(block, h, t % view.block_size)}) {
            for (float& x : row) x = normal_();
            EncodeKvRow(desc_.kv, row.data(), desc_.head_dim, to);
          }
        }
      }
    }
  }

  void ReferenceHead(size_t s, int kv_head);

  AttentionDesc desc_;
  std::vector<SequenceShape> shapes_;
  std::vector<TestMask> masks_;  // of each sequence, or none
  std::mt19937 rng_;
  Normal normal_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_;
  std::vector<float> sinks_;
  std::vector<float> slopes_;
  bool with_sinks_ = false;
  int grid_ = 0;
  int shared_items_ = 0;
  std::vector<double> want_;
  std::vector<double> tolerance_;
  std::vector<double> magnitude_;  // sum of weight * |value|
  std::vector<double> spread_;     // sum of |value| over keys, over the sum
};

void Problem::ReferenceHead(size_t s, int kv_head) {
  const KvLayerView view = layout_.LayerView(1, storage_.data());
  const auto dim = static_cast<size_t>(desc_.head_dim);
  const int length = shapes_[s].kv_len;
  std::vector<float> keys(dim * static_cast<size_t>(length));
  std::vector<float> values(keys.size());
  for (int t = 0; t < length; ++t) {
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    if (block == 1 << 29) continue;
    const size_t at = dim * static_cast<size_t>(t);
    DecodeKvRow(desc_.kv, view.KeyRow(block, kv_head, t % view.block_size),
                desc_.head_dim, &keys[at]);
    DecodeKvRow(desc_.kv, view.ValueRow(block, kv_head, t % view.block_size),
                desc_.head_dim, &values[at]);
  }
  const int group = desc_.num_heads / desc_.num_kv_heads;
  std::vector<double> scores(static_cast<size_t>(length));
  for (int i = 0; i < shapes_[s].q_len * group; ++i) {
    const int row = sequences_[s].q_begin + i / group;
    const int head = kv_head * group + i % group;
    const int position = length - shapes_[s].q_len + i / group;
    const bool masked = !masks_.empty();
    const int end = desc_.causal && !masked ? position + 1 : length;
    const int begin =
        desc_.window > 0 && !masked ? std::max(0, end - desc_.window) : 0;
    const double sink = with_sinks_ ? sinks_[static_cast<size_t>(head)]
                                    : -std::numeric_limits<double>::infinity();
    double max = sink;
    double score_error = 0.0;
    std::vector<double> q(dim);
    for (size_t d = 0; d < dim; ++d) {
      q[d] = q_(row, head * desc_.head_dim + static_cast<int64_t>(d));
    }
    for (int t = begin; t < end; ++t) {
      scores[static_cast<size_t>(t)] = -std::numeric_limits<double>::infinity();
      if (!Sees(s, position, t)) continue;
      const float* key = &keys[dim * static_cast<size_t>(t)];
      double dot = 0.0;
      double magnitude = 0.0;
      for (size_t d = 0; d < dim; ++d) {
        dot += q[d] * key[d];
        magnitude += std::abs(q[d] * key[d]);
      }
      double score = dot * desc_.scale;
      if (desc_.softcap > 0) {
        score = desc_.softcap * std::tanh(score / desc_.softcap);
      }
      double alibi_error = 0.0;
      if (!slopes_.empty()) {
        // Slopes in units of log 2; distances as the sum of two products with
        // one of at most 128.
        const double slope = slopes_[static_cast<size_t>(head)];
        score += slope * (t - position);
        alibi_error = 4 * slope * (std::abs(t - position) + 256);
      }
      scores[static_cast<size_t>(t)] = score;
      max = std::max(max, score);
      // head_dim multiply-adds in any order, scaling; the hyperbolic tangent
      // has a few units of its own, of one.
      score_error = std::max(
          score_error,
          kUnitF32 * ((desc_.head_dim + 4) * magnitude * desc_.scale +
                      12 * desc_.softcap + 4 * std::abs(score) + alibi_error));
    }
    if (std::isinf(max)) continue;  // sees nothing: zeros
    score_error += kUnitF32 * 4 * std::abs(max);
    double sum = with_sinks_ ? std::exp(sink - max) : 0.0;
    std::vector<double> o(dim);
    std::vector<double> magnitudes(dim);
    std::vector<double> plain(dim);
    for (int t = begin; t < end; ++t) {
      if (!Sees(s, position, t)) continue;
      const double p = std::exp(scores[static_cast<size_t>(t)] - max);
      sum += p;
      const float* value = &values[dim * static_cast<size_t>(t)];
      for (size_t d = 0; d < dim; ++d) {
        o[d] += p * value[d];
        magnitudes[d] += p * std::abs(value[d]);
        plain[d] += std::abs(value[d]);
      }
    }
    for (size_t d = 0; d < dim; ++d) {
      const size_t at =
          static_cast<size_t>(row * q_.cols() + head * desc_.head_dim) + d;
      want_[at] = o[d] / sum;
      magnitude_[at] = magnitudes[d] / sum;
      spread_[at] = plain[d] / sum;
      // Errors of the scores enter numerator and denominator as relative
      // errors; so do each 2^x (2^-22) and the roundings of either sum (worst
      // case: as many as keys, capped where pairwise merging bounds them).
      tolerance_[at] =
          magnitude_[at] *
              (2 * score_error +
               kUnitF32 * (2.0 * std::min(end - begin, 2048) + 64)) +
          1e-30;
    }
  }
}

void Problem::ComputeReference() {
  const auto size = static_cast<size_t>(q_.rows() * q_.cols());
  want_.assign(size, 0.0);
  tolerance_.assign(size, 1e-30);
  magnitude_.assign(size, 0.0);
  spread_.assign(size, 0.0);
  const size_t heads = static_cast<size_t>(desc_.num_kv_heads);
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
       ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < shapes_.size() * heads; at = next++) {
        ReferenceHead(at / heads, static_cast<int>(at % heads));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

AttentionDesc Desc(int heads, int kv_heads, int head_dim, DType activation,
                   DType kv) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.activation = activation;
  desc.kv = kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return desc;
}

AttentionDesc Desc(int heads, int kv_heads, int head_dim, DType dtype) {
  return Desc(heads, kv_heads, head_dim, dtype, dtype);
}

class AttentionCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    INLAY_REQUIRE_CUDA();
    gpu_ = std::make_unique<TestCuda>();
  }
  std::unique_ptr<TestCuda> gpu_;
};

const std::vector<SequenceShape> kRagged = {
    {1, 1},   {1, 37},   {5, 5},     {7, 70}, {1, 64},   {1, 65}, {0, 12},
    {33, 47}, {1, 3000}, {130, 130}, {2, 2},  {70, 333}, {3, 900}};

TEST_F(AttentionCudaTest, MatchesFloat64OverHeadDimsAndTypes) {
  unsigned seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 192, 256, 32, 8, 72}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " " << DTypeName(dtype)
                   << " seed " << seed);
      Problem(Desc(4, 2, head_dim, dtype), kRagged, seed % 2 == 0 ? 16 : 32,
              seed)
          .Check(*gpu_);
      ++seed;
    }
  }
}

TEST_F(AttentionCudaTest, EveryCacheFormatFromEveryActivation) {
  unsigned seed = 100;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                         DType::kF8E4M3, DType::kKvQ4}) {
    for (const DType activation : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(activation) << " " << DTypeName(kv));
      Problem(Desc(6, 2, 40, activation, kv), kRagged, 16, seed++).Check(*gpu_);
      Problem(Desc(4, 4, 128, activation, kv), {{1, 200}, {9, 40}}, 48, seed++)
          .Check(*gpu_);
    }
  }
}

// Caches of bytes where queries are of 16 bits: a kernel of their own.
TEST_F(AttentionCudaTest, EightBitCaches) {
  unsigned seed = 200;
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
      for (const DType activation : {DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << head_dim << " " << DTypeName(activation)
                     << " " << DTypeName(kv));
        AttentionDesc desc =
            Desc(seed % 3 == 0 ? 16 : 4, 2, head_dim, activation, kv);
        if (seed % 4 == 1) desc.window = 37;
        if (seed % 4 == 2) desc.softcap = 20.0f;
        Problem problem(desc, kRagged, seed % 2 == 0 ? 16 : 48, seed);
        problem.set_sinks(seed % 4 == 3);
        problem.Check(*gpu_);
        ++seed;
      }
    }
  }
}

TEST_F(AttentionCudaTest, GroupsAndBlockSizes) {
  constexpr int kBlockSizes[] = {16, 48, 64, 128, 256};
  int i = 0;
  for (const int group : {1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 71}) {
    for (const auto& [kv_heads, head_dim] : {std::pair{1, 64}, {2, 128}}) {
      const int block_size = kBlockSizes[i++ % 5];
      SCOPED_TRACE(::testing::Message()
                   << "group " << group << " block size " << block_size);
      Problem(Desc(kv_heads * group, kv_heads, head_dim, DType::kBF16),
              {{1, 700}, {19, 33}, {100, 350}}, block_size,
              static_cast<unsigned>(group))
          .Check(*gpu_);
    }
  }
}

TEST_F(AttentionCudaTest, WindowsAtTheirEdges) {
  int i = 0;
  for (const int window : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000}) {
    for (const int head_dim : {i % 2 == 0 ? 64 : 256, 128}) {
      ++i;
      SCOPED_TRACE(::testing::Message()
                   << "window " << window << " head_dim " << head_dim);
      AttentionDesc desc = Desc(8, 2, head_dim, DType::kBF16);
      desc.window = window;
      Problem(desc, {{1, 200}, {90, 210}, {64, 64}, {150, 1200}, {1, 2000}}, 16,
              static_cast<unsigned>(window))
          .Check(*gpu_);
    }
  }
}

TEST_F(AttentionCudaTest, SoftcapSinksAndBidirectional) {
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    AttentionDesc desc = Desc(4, 2, head_dim, DType::kBF16);
    desc.softcap = 3.0f;
    Problem(desc, kRagged, 16, 1).Check(*gpu_);
    desc.softcap = 50.0f;
    desc.window = 40;
    Problem(desc, kRagged, 16, 1).Check(*gpu_);
    desc = Desc(16, 2, head_dim, DType::kF16);
    Problem sinks(desc, kRagged, 16, 2);
    sinks.set_sinks(true);
    sinks.Check(*gpu_);
    desc.window = 9;
    Problem sink_window(desc, {{40, 150}, {1, 90}, {200, 700}}, 16, 3);
    sink_window.set_sinks(true);
    sink_window.Check(*gpu_);
    desc = Desc(4, 4, head_dim, DType::kBF16);
    desc.causal = false;
    Problem encoder(desc, {{40, 40}, {3, 90}, {300, 300}, {129, 513}}, 16, 4);
    encoder.Check(*gpu_);
  }
}

TEST_F(AttentionCudaTest, Alibi) {
  unsigned seed = 300;
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    AttentionDesc desc = Desc(12, 2, head_dim, DType::kBF16);
    Problem problem(desc, kRagged, 16, seed++);
    problem.set_alibi();
    problem.Check(*gpu_);
    desc = Desc(4, 4, head_dim, DType::kF16);
    desc.window = 70;
    desc.softcap = 20.0f;
    Problem window(desc, kRagged, 32, seed++);
    window.set_alibi();
    window.set_sinks(true);
    window.Check(*gpu_);
    desc = Desc(8, 1, head_dim == 80 ? 64 : head_dim, DType::kBF16,
                DType::kF8E4M3);
    Problem bytes(desc, kRagged, 16, seed++);
    bytes.set_alibi();
    bytes.Check(*gpu_);
  }
}

// Masks of all kinds over ragged batches, with all else that a row does; many
// queries, and some tiles, see nothing.
TEST_F(AttentionCudaTest, RandomMasks) {
  const std::vector<SequenceShape> shapes = {
      {1, 70}, {30, 30},   {0, 9},   {25, 150},  {190, 700},
      {2, 64}, {400, 400}, {1, 900}, {130, 131}, {5, 2000}};
  for (unsigned seed = 1; seed <= 36; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    constexpr int kDims[] = {64, 128, 256, 80, 192, 96};
    constexpr DType kCaches[] = {DType::kBF16, DType::kBF16, DType::kI8};
    const int head_dim = kDims[seed % 6];
    AttentionDesc desc =
        Desc(4 * (1 + static_cast<int>(seed % 2)), seed % 4 == 0 ? 4 : 1,
             head_dim, DType::kBF16, kCaches[seed % 3]);
    if (seed % 7 == 0) desc.kv = desc.activation = DType::kF16;
    if (seed % 4 == 1) desc.window = 1 + static_cast<int>(rng() % 300);
    desc.causal = seed % 4 != 2;
    if (seed % 5 == 0) desc.softcap = 4.0f;
    std::vector<TestMask> masks;
    for (const SequenceShape& shape : shapes) {
      masks.push_back(TestMask::Random(rng, shape.q_len, shape.kv_len));
    }
    Problem problem(desc, shapes, seed % 2 == 0 ? 16 : 64, seed, masks);
    problem.set_sinks(seed % 6 == 0);
    if (seed % 5 == 1) problem.set_alibi();
    problem.Check(*gpu_);
  }
}

// Tiles and items of which no row sees anything, between others.
TEST_F(AttentionCudaTest, WhatSeesNothingGivesZeros) {
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    std::mt19937 rng(8);
    const std::vector<SequenceShape> shapes = {{200, 200}, {1, 50},  {150, 300},
                                               {2, 90},    {90, 90}, {1, 70}};
    std::vector<TestMask> masks(6);
    for (const size_t s : {0, 1, 3}) {
      masks[s].Blocks(rng, shapes[s].kv_len, 1, 1, 0);
    }
    masks[2].Blocks(rng, 300, 70, 64, 50);
    for (const bool sinks : {false, true}) {
      Problem problem(Desc(4, 1, head_dim, DType::kBF16), shapes, 16, 8, masks);
      problem.set_sinks(sinks);
      problem.Check(*gpu_);
    }
  }
}

// What masks are for, in sizes of their own: packed documents, a long prefix,
// blocks of 64, and a tree of drafts.
TEST_F(AttentionCudaTest, MasksOfEachKind) {
  for (const int head_dim : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim);
    std::mt19937 rng(7);
    const std::vector<SequenceShape> shapes = {
        {1500, 1500}, {700, 900}, {1100, 1100}, {24, 1000}};
    std::vector<TestMask> masks(4);
    masks[0].Documents(rng, 1500, 200);
    masks[1].Prefix(800);
    masks[2].Blocks(rng, 1100, 128, 64, 30);
    masks[3].Blocks(rng, 1000, 1, 1, 95);
    for (const bool causal : {true, false}) {
      AttentionDesc desc = Desc(8, 2, head_dim, DType::kBF16);
      desc.causal = causal;
      Problem(desc, shapes, 16, 7, masks).Check(*gpu_);
    }
  }
}

TEST_F(AttentionCudaTest, LargeScoresDoNotOverflow) {
  AttentionDesc desc = Desc(2, 1, 128, DType::kF16);
  desc.scale = 20.0f;
  Problem(desc, {{3, 150}, {100, 350}}, 16, 1).Check(*gpu_);
}

TEST_F(AttentionCudaTest, LongContexts) {
  Problem(Desc(16, 2, 128, DType::kF16), {{1, 131072}}, 16, 1).Check(*gpu_);
  Problem(Desc(8, 8, 64, DType::kBF16), {{1, 20000}, {1, 50000}, {1, 13}}, 32,
          2)
      .Check(*gpu_);
  Problem(Desc(4, 1, 128, DType::kBF16), {{70, 30000}, {1, 9000}}, 64, 3)
      .Check(*gpu_);
}

// Two groups, rests from one key to many, and some of no group.
std::vector<SequenceShape> Sharing() {
  std::vector<SequenceShape> shapes = {{1, 2000}, {1, 300}, {1, 1500}};
  for (int i = 0; i < 9; ++i) {
    shapes.push_back({1, 1281 + (i < 4 ? i : 111 * i), 0, 1280});
    shapes.push_back({i % 4 == 3 ? 3 : 1, 1029 + 40 * i, 2, 1024});
  }
  shapes.push_back({70, 1400, 0, 1280});  // may be tiles
  shapes.push_back({1, 900, 0, 192});
  shapes.push_back({0, 1400, 0, 1280});
  return shapes;
}

TEST_F(AttentionCudaTest, SharedKeysOverHeadDimsAndTypes) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 300;
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " " << DTypeName(dtype));
      AttentionDesc desc = Desc(8, 2, head_dim, dtype);
      if (seed % 3 == 1) desc.softcap = 20.0f;
      Problem problem(desc, Sharing(), seed % 4 < 2 ? 16 : 64, seed);
      problem.set_sinks(seed % 3 == 2);
      problem.set_grid(seed % 5 == 0 ? 0 : 20);
      problem.ComputeReference();
      const AttentionRow& row = AttentionTable()[0];
      problem.Compare(problem.Run(row, *gpu_, problem.sequences(), true, 3),
                      true);
      EXPECT_TRUE(seed % 5 == 0 || problem.shared_items() > 0);
      ++seed;
    }
  }
}

TEST_F(AttentionCudaTest, SharedKeysOfAnyNumberOfSequences) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  unsigned seed = 400;
  const AttentionRow& row = AttentionTable()[0];
  for (const int group : {1, 3, 4, 7, 8, 12, 16, 20, 71}) {
    for (const int count : {2, 3, 17, 64}) {
      if (count * group > 600) continue;
      SCOPED_TRACE(::testing::Message()
                   << "group " << group << ", " << count << " sequences");
      const int shared = count < 4 ? 4096 : 1024;
      std::vector<SequenceShape> shapes = {{1, 40}, {1, shared + 76}};
      for (int i = 1; i < count; ++i) {
        shapes.push_back({1, shared + 1 + 7 * i, 1, shared});
      }
      Problem problem(
          Desc(2 * group, 2, group % 2 == 0 ? 128 : 64, DType::kBF16), shapes,
          16, seed++);
      problem.set_grid(count < 4 ? 6 : 20);
      problem.ComputeReference();
      problem.Compare(problem.Run(row, *gpu_, problem.sequences()), true);
      EXPECT_GT(problem.shared_items(), 0);
    }
  }
}

// Shared keys in many chunks, so that those fold in groups; and own keys too.
TEST_F(AttentionCudaTest, LongSharedKeys) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  const AttentionRow& row = AttentionTable()[0];
  for (const auto& [heads, kv_heads] : {std::pair{4, 1}, {16, 2}}) {
    for (const int own : {100, 9000}) {
      std::vector<SequenceShape> shapes = {{1, 20000 + own}};
      for (int i = 1; i < 6; ++i) {
        shapes.push_back({1, 20000 + own + 100 * i, 0, 20000});
      }
      Problem problem(Desc(heads, kv_heads, 128, DType::kBF16), shapes, 16, 8);
      problem.ComputeReference();
      problem.Compare(problem.Run(row, *gpu_, problem.sequences(), true, 2),
                      true);
      EXPECT_GT(problem.shared_items(), 16);
    }
  }
}

// Bidirectional queries share as well; windows and caches of bytes do not.
TEST_F(AttentionCudaTest, SharingWithOtherFeatures) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  const AttentionRow& row = AttentionTable()[0];
  for (int what = 0; what < 3; ++what) {
    AttentionDesc desc =
        Desc(8, 2, 128, DType::kBF16, what == 2 ? DType::kI8 : DType::kBF16);
    desc.causal = what != 0;
    if (what == 1) desc.window = 1100;
    std::vector<SequenceShape> shapes = Sharing();
    // Blocks that a window has passed are gone, for all.
    if (what == 1) shapes.erase(shapes.begin() + 3, shapes.end());
    Problem problem(desc, shapes, 16, 9);
    problem.set_grid(20);
    problem.ComputeReference();
    problem.Compare(problem.Run(row, *gpu_, problem.sequences(), true, 2),
                    true);
    EXPECT_EQ(problem.shared_items() > 0, what == 0);
  }
}

// The same bits each time and in graphs; and whoever shares nothing has the
// bits that it has alone.
TEST_F(AttentionCudaTest, SharingChangesNothingForOthers) {
  if (gpu_->info.sm < 90) GTEST_SKIP() << "needs compute capability 9.0";
  const std::vector<SequenceShape> shapes = Sharing();
  Problem problem(Desc(8, 2, 128, DType::kBF16), shapes, 16, 10);
  std::vector<AttentionSequence> decode;
  for (const AttentionSequence& sequence : problem.sequences()) {
    if (sequence.q_len <= 1) decode.push_back(sequence);
  }
  const AttentionRow& row = AttentionTable()[0];
  problem.set_grid(20);
  const TestMatrix once = problem.Run(row, *gpu_, decode);
  ASSERT_GT(problem.shared_items(), 0);
  const TestMatrix again = problem.Run(row, *gpu_, decode, true, 5);
  const TestMatrix graph = problem.Run(row, *gpu_, decode, true, 1, true);
  for (const AttentionSequence& sequence : decode) {
    if (sequence.q_len == 0) continue;
    EXPECT_EQ(once.RowBits(sequence.q_begin), again.RowBits(sequence.q_begin));
    EXPECT_EQ(once.RowBits(sequence.q_begin), graph.RowBits(sequence.q_begin));
  }
  for (const size_t s : {size_t{1}, shapes.size() - 2}) {
    const auto r = problem.sequences()[s].q_begin;
    const TestMatrix alone =
        problem.Run(row, *gpu_, {&problem.sequences()[s], 1});
    EXPECT_EQ(once.RowBits(r), alone.RowBits(r)) << s;
  }
}

// Many items a CTA, whole and cut, of few rows.
TEST_F(AttentionCudaTest, LargeBatches) {
  std::mt19937 rng(3);
  for (const auto& [group, head_dim] :
       {std::pair{1, 64}, {1, 256}, {3, 128}, {8, 64}, {8, 256}}) {
    std::vector<SequenceShape> shapes;
    for (int i = 0; i < 150; ++i) {
      const int q_len = rng() % 8 == 0 ? 2 : 1;
      shapes.push_back({q_len, q_len + static_cast<int>(rng() % 400)});
    }
    SCOPED_TRACE(::testing::Message()
                 << "group " << group << " head_dim " << head_dim);
    Problem(Desc(4 * group, 4, head_dim, DType::kBF16), shapes, 16, 9)
        .Check(*gpu_);
  }
}

// The same bits alone and in any batch; and where keys are cut anywhere, still
// the right numbers. Graph plans are no different.
TEST_F(AttentionCudaTest, AQueryDependsOnNothingBesideItsSequence) {
  std::vector<SequenceShape> shapes;
  std::mt19937 rng(7);
  for (int i = 0; i < 16; ++i) {
    shapes.push_back({1, static_cast<int>(1 + rng() % 4000)});
  }
  shapes.push_back({1, 20000});
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kF32}) {
    for (const int window : {0, 700}) {
      AttentionDesc desc =
          Desc(8, 2, 128, kv == DType::kF32 ? kv : DType::kBF16, kv);
      desc.window = window;
      Problem problem(desc, shapes, 16, 5);
      problem.ComputeReference();
      ForEachCudaRow(
          AttentionTable(), desc, *gpu_, [&](const AttentionRow& row) {
            const bool rounds = row.name != "cuda_plain";
            const TestMatrix whole =
                problem.Run(row, *gpu_, problem.sequences(), true, 3);
            problem.Compare(whole, rounds);
            problem.Compare(
                problem.Run(row, *gpu_, problem.sequences(), false, 3), rounds);
            const TestMatrix graph =
                problem.Run(row, *gpu_, problem.sequences(), true, 1, true);
            for (size_t s = 0; s < shapes.size(); s += 5) {
              const TestMatrix alone =
                  problem.Run(row, *gpu_, {&problem.sequences()[s], 1});
              const auto r = static_cast<int64_t>(s);
              ASSERT_EQ(whole.RowBits(r), alone.RowBits(r)) << "sequence " << s;
              ASSERT_EQ(whole.RowBits(r), graph.RowBits(r)) << "sequence " << s;
            }
          });
    }
  }
}

}  // namespace
}  // namespace inlay
#endif  // INLAY_HAS_CUDA
