// Problems of attention for tests of CUDA rows: ragged batches over a paged
// cache in which slots that nobody wrote hold NaN, a run of a row over them,
// and a float64 softmax with the errors that float32 arithmetic may make.
// Header only; there is something in it only where the CUDA backend is built.
#ifndef INLAY_TESTS_SUPPORT_ATTENTION_CUDA_UTIL_H_
#define INLAY_TESTS_SUPPORT_ATTENTION_CUDA_UTIL_H_

#if INLAY_HAS_CUDA

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/attention/attention_gather.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/biased_attention.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/attention_mask_util.h"
#include "tests/support/cuda_test_util.h"
#include "tests/support/relative_rows_util.h"

namespace inlay::testing {

struct SequenceShape {
  int q_len;
  int kv_len;
  // The first so many keys, in whole blocks, are those of sequence `leader`.
  int leader = -1;
  int shared = 0;
};

// Close to N(0, 1), and quick: sums of four bytes.
class ByteNormal {
 public:
  explicit ByteNormal(unsigned seed) : bits_(seed * 0x9e3779b97f4a7c15u + 1) {}
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

class AttentionProblem {
 public:
  AttentionProblem(const AttentionDesc& desc, std::vector<SequenceShape> shapes,
                   int block_size, unsigned seed,
                   std::vector<TestMask> masks = {}, float value_scale = 1.0f)
      : desc_(desc),
        shapes_(std::move(shapes)),
        masks_(std::move(masks)),
        rng_(seed),
        normal_(seed),
        layout_(
            {{3, 16}, {desc.num_kv_heads, desc.head_dim, 0, desc.value_dim}},
            desc.kv, block_size) {
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
    WriteCache(value_scale);
    for (int h = 0; h < desc.num_heads; ++h) sinks_.push_back(normal_());
  }

  void set_sinks(bool on) { with_sinks_ = on; }
  // Plans have SeenBlocks of the masks.
  void set_gathers() { gathers_ = true; }
  // CTAs; fewer make sharing worth while where there is little to share.
  void set_grid(int grid) { grid_ = grid; }
  // Plans are of pieces.
  void set_pieces(bool on) { pieces_ = on; }
  // How many items of shared keys the last Run() had.
  int shared_items() const { return shared_items_; }
  // Room for what tiles over bytes unpack.
  void set_unpack_bytes(int64_t bytes) { unpack_bytes_ = bytes; }
  // How many turns the last Run() took to unpack, and the sequences of tiles.
  size_t rounds() const { return rounds_; }
  int64_t num_unpacked() const {
    return std::count(unpacked_.begin(), unpacked_.end(), true);
  }
  void set_alibi() {
    slopes_.resize(static_cast<size_t>(desc_.num_heads));
    FillAlibiSlopes(desc_.num_heads, slopes_.data());
  }
  // biased_attention's, drawn.
  void set_bias(int reach) {
    reach_ = reach;
    bias_.resize(static_cast<size_t>(desc_.num_heads * (2 * reach + 1)));
    for (float& x : bias_) x = 2.0f * normal_();
  }
  // disentangled_attention's, drawn; rows lie 16 elements further apart than
  // they are long.
  void set_relative(int reach, int exact,
                    RelativeTables tables = RelativeTables::kBoth) {
    relative_ = TestRelativeRows(desc_, reach, exact, tables, 16, 99);
  }
  // Key `t` of sequence s and all KV heads, or its value, has a NaN.
  void SetNan(size_t s, int t, bool in_key) {
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    std::vector<float> row(static_cast<size_t>(desc_.head_dim), 0.5f);
    row[7] = std::numeric_limits<float>::quiet_NaN();
    const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
    const int slot = t % view.block_size;
    for (int h = 0; h < desc_.num_kv_heads; ++h) {
      EncodeKvRow(
          desc_.kv, row.data(), desc_.head_dim,
          in_key ? view.KeyRow(block, h, slot) : view.ValueRow(block, h, slot));
    }
  }
  const std::vector<AttentionSequence>& sequences() const { return sequences_; }

  // Runs `row`, of attention or of an op with more in its scores, over
  // `sequences` of this problem, `times` times.
  template <typename Row>
  TestMatrix Run(const Row& row, TestCuda& gpu,
                 absl::Span<const AttentionSequence> sequences,
                 bool batch_invariant = true, int times = 1,
                 bool graph = false) {
    TestMatrix out(desc_.activation, q_.rows(), out_cols(), 8);
    CudaBytes cache(storage_.data(), storage_.size());
    CudaBytes q(q_.view().data, q_.view().bytes());
    CudaBytes result(out.view().data, out.view().bytes());
    CudaBytes sinks(sinks_.data(), sinks_.size() * sizeof(float));
    CudaBytes slopes(slopes_.data(), slopes_.size() * sizeof(float));
    CudaBytes bias(bias_.data(), bias_.size() * sizeof(float));
    const DeviceRelative relative(relative_);
    Planned planned = MakePlan(row, gpu, sequences, batch_invariant, graph);
    AttentionPlan& plan = planned.plan;
    const auto* items = reinterpret_cast<const AttentionItem*>(
        planned.image.data() + plan.layout.items);
    const int num_items = reinterpret_cast<const int32_t*>(
        planned.image.data() + plan.layout.cta_items)[plan.shape.grid];
    shared_items_ = static_cast<int>(
        std::count_if(items, items + num_items,
                      [](const auto& item) { return item.num_units > 0; }));
    rounds_ = plan.rounds.size();
    CudaBytes device_plan(planned.image.data(), plan.used_bytes);
    plan.device = device_plan.as<std::byte>();
    const CudaBytes workspace(AttentionWorkspaceBytes(
        plan.shape, planned.limits.sequences, planned.limits.tokens));
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
      const absl::Status status =
          RunRow(row, params, bias_.empty() ? nullptr : bias.as<float>(),
                 relative.view, gpu);
      EXPECT_TRUE(status.ok()) << status;
    }
    result.Download(out.view().data);
    return out;
  }

  void Check(TestCuda& gpu) {
    const auto check = [&](const auto& row) {
      ComputeReference(row, gpu);
      // Twice: the second time finds the counters that the first left.
      const TestMatrix out = Run(row, gpu, sequences_, true, 2);
      Compare(out, row.name != "cuda_plain");
    };
    if (!relative_.empty()) {
      ForEachCudaRow(DisentangledAttentionTable(), desc_, gpu, check);
    } else if (bias_.empty()) {
      ForEachCudaRow(AttentionTable(), desc_, gpu, check);
    } else {
      ForEachCudaRow(BiasedAttentionTable(), desc_, gpu, check);
    }
  }

  // `rounds_weights`: the row multiplies values by weights that it rounded
  // (ReferenceRow).
  void Compare(const TestMatrix& out, bool rounds_weights) {
    const auto at = [&](const std::vector<double>& values, int64_t r,
                        int64_t c) {
      return values[static_cast<size_t>(r * out.cols() + c)];
    };
    const double rounds = rounds_weights ? 1.0 : 0.0;
    ExpectClose(
        out, [&](int64_t r, int64_t c) { return at(want_, r, c); },
        [&](int64_t r, int64_t c) {
          const double error =
              at(tolerance_, r, c) + rounds * at(rounding_, r, c);
          return error +
                 UnitOf(desc_.activation) *
                     (std::abs(at(want_, r, c)) + error) +
                 // Below 2^-14, f16 has an absolute error.
                 (desc_.activation == DType::kF16 ? 0x1p-25 : 0.0);
        });
  }

  // What `row` should compute of all sequences.
  template <typename Row>
  void ComputeReference(const Row& row, TestCuda& gpu) {
    ComputeReference(FindUnpacked(row, gpu));
  }

 private:
  // The relative rows there, if there are any.
  struct DeviceRelative {
    explicit DeviceRelative(TestRelativeRows host)
        : keys(host.keys.view().data, host.keys.view().bytes()),
          queries(host.queries.view().data, host.queries.view().bytes()),
          rows(host.rows.data(), host.rows.size() * sizeof(int32_t)) {
      view = host.view();
      if (host.has_keys()) view.keys.data = keys.as<std::byte>();
      if (host.has_queries()) view.queries.data = queries.as<std::byte>();
      view.rows = rows.as<int32_t>();
    }
    CudaBytes keys;
    CudaBytes queries;
    CudaBytes rows;
    RelativeRows view;
  };

  AttentionPlanShape ShapeOf(const AttentionRow& row, TestCuda& gpu) const {
    return MakeAttentionPlanShape(row, desc_, layout_.block_size(),
                                  gpu.stream->num_sms());
  }
  AttentionPlanShape ShapeOf(const BiasedAttentionRow& row,
                             TestCuda& gpu) const {
    return MakeBiasedAttentionPlanShape(row, desc_, layout_.block_size(),
                                        gpu.stream->num_sms());
  }
  AttentionPlanShape ShapeOf(const DisentangledAttentionRow& row,
                             TestCuda& gpu) const {
    return MakeDisentangledAttentionPlanShape(row, desc_, layout_.block_size(),
                                              gpu.stream->num_sms());
  }
  absl::Status RunRow(const AttentionRow& row, const AttentionParams& params,
                      const float* /*bias*/, const RelativeRows& /*relative*/,
                      TestCuda& gpu) const {
    return row.run(desc_, params, *gpu.stream);
  }
  absl::Status RunRow(const BiasedAttentionRow& row,
                      const AttentionParams& params, const float* bias,
                      const RelativeRows& /*relative*/, TestCuda& gpu) const {
    return row.run(desc_, {params, {bias, reach_}}, *gpu.stream);
  }
  absl::Status RunRow(const DisentangledAttentionRow& row,
                      const AttentionParams& params, const float* /*bias*/,
                      const RelativeRows& relative, TestCuda& gpu) const {
    return row.run(desc_, {params, relative}, *gpu.stream);
  }
  int64_t out_cols() const {
    return int64_t{desc_.num_heads} * desc_.out_dim();
  }
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

  // Values are within f16's range whatever their scale.
  void WriteCache(float value_scale) {
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    std::vector<float> row(static_cast<size_t>(desc_.head_dim));
    for (size_t s = 0; s < shapes_.size(); ++s) {
      const std::pair<int, int> seen = SeenOf(s);
      const int own = shapes_[s].shared / view.block_size * view.block_size;
      for (int t = std::max(own, seen.first); t <= seen.second; ++t) {
        const int block = tables_[s][static_cast<size_t>(t / view.block_size)];
        for (int h = 0; h < desc_.num_kv_heads; ++h) {
          for (float& x : row) x = normal_();
          EncodeKvRow(desc_.kv, row.data(), desc_.head_dim,
                      view.KeyRow(block, h, t % view.block_size));
          if (desc_.value_dim > 0) continue;
          for (float& x : row) {
            x = std::clamp(value_scale * normal_(), -65504.0f, 65504.0f);
          }
          EncodeKvRow(desc_.kv, row.data(), desc_.head_dim,
                      view.ValueRow(block, h, t % view.block_size));
        }
      }
    }
  }

  // Keys and values of a sequence's KV head, as the row has them.
  struct DecodedHead {
    std::vector<float> keys;
    std::vector<float> values;
    std::vector<double> key_norms;
    std::vector<double> value_tops;  // largest magnitudes
    bool unpacked = false;           // to 16 bits, for tiles
  };

  // A plan and its image.
  struct Planned {
    std::vector<std::byte> image;
    AttentionPlanLimits limits;
    AttentionPlan plan;
  };
  template <typename Row>
  Planned MakePlan(const Row& row, TestCuda& gpu,
                   absl::Span<const AttentionSequence> sequences,
                   bool batch_invariant, bool graph) const;
  // Sequences whose keys and values are rounded to the queries' type: tiles
  // over caches of bytes. Code and scale make the same float32 here and there,
  // and both round it to nearest even, so the reference computes with what the
  // kernel has, and nothing is added to the tolerance.
  template <typename Row>
  std::vector<bool> FindUnpacked(const Row& row, TestCuda& gpu) const;
  void ComputeReference(const std::vector<bool>& unpacked);
  float Rounded(float x) const;
  void DecodeHead(size_t s, int kv_head, DecodedHead& head) const;
  // What rounding weights adds to an output's error, before the division by
  // their sum: of each weight, times its value; of each value; and besides.
  struct WeightRounding {
    double of_each;
    double of_values;
    double of_all;
  };
  WeightRounding RoundingOfWeights(const std::vector<int>& seen,
                                   const std::vector<double>& weights,
                                   const DecodedHead& head) const;
  void ReferenceToken(size_t s, int kv_head, int token,
                      const DecodedHead& head);
  // `seen`: keys that the row sees.
  void ReferenceRow(int row, int query_head, int position,
                    const std::vector<int>& seen, const DecodedHead& head);

  AttentionDesc desc_;
  std::vector<SequenceShape> shapes_;
  std::vector<TestMask> masks_;  // of each sequence, or none
  std::mt19937 rng_;
  ByteNormal normal_;
  KvLayout layout_;
  std::vector<std::byte> storage_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_;
  std::vector<float> sinks_;
  std::vector<float> slopes_;
  std::vector<float> bias_;  // of each head and distance
  int reach_ = 0;
  TestRelativeRows relative_;
  bool with_sinks_ = false;
  bool gathers_ = false;
  bool pieces_ = false;
  int grid_ = 0;
  int shared_items_ = 0;
  int64_t unpack_bytes_ = int64_t{16} << 20;
  size_t rounds_ = 0;
  std::vector<bool> unpacked_;  // that the reference was computed for
  std::vector<double> want_;
  std::vector<double> tolerance_;
  std::vector<double> magnitude_;  // sum of weight * |value|
  std::vector<double> rounding_;
};

template <typename Row>
AttentionProblem::Planned AttentionProblem::MakePlan(
    const Row& row, TestCuda& gpu,
    absl::Span<const AttentionSequence> sequences, bool batch_invariant,
    bool graph) const {
  AttentionPlanShape shape = ShapeOf(row, gpu);
  shape.batch_invariant = batch_invariant;
  if (grid_ > 0) shape.grid = grid_;
  if (!slopes_.empty() || pieces_) shape.prefix_units = 0;
  if (pieces_) shape.piece_keys = AttentionPieceKeys(shape);
  if (shape.unpack_bytes > 0) shape.unpack_bytes = unpack_bytes_;
  const absl::StatusOr<AttentionMask> compiled = CompileMask(sequences);
  const AttentionMask* mask = masks_.empty() ? nullptr : &*compiled;
  ::inlay::SeenBlocks seen;
  if (gathers_) {
    seen.Gather(sequences, shape.block_size, *compiled);
    sequences = seen.sequences();
    mask = &seen.mask();
  }
  Planned planned;
  planned.limits = AttentionPlanLimitsOf(shape, sequences, mask);
  planned.limits.graph = graph;
  if (graph) planned.limits.sequences += 3;
  planned.image.resize(LayOutAttentionPlan(shape, planned.limits).bytes);
  planned.plan = BuildAttentionPlan(shape, planned.limits, sequences,
                                    planned.image.data(), mask);
  return planned;
}

template <typename Row>
std::vector<bool> AttentionProblem::FindUnpacked(const Row& row,
                                                 TestCuda& gpu) const {
  std::vector<bool> unpacked(shapes_.size());
  const Planned planned = MakePlan(row, gpu, sequences_, true, false);
  if (planned.plan.rounds.empty()) return unpacked;
  const auto* tiles = reinterpret_cast<const AttentionTile*>(
      planned.image.data() + planned.plan.layout.tiles);
  for (int i = 0; i < planned.plan.num_tiles; ++i) {
    const auto owner = std::find_if(
        sequences_.begin(), sequences_.end(),
        [&](const AttentionSequence& sequence) {
          return tiles[i].q_row >= sequence.q_begin &&
                 tiles[i].q_row < sequence.q_begin + sequence.q_len;
        });
    unpacked[static_cast<size_t>(owner - sequences_.begin())] = true;
  }
  return unpacked;
}

inline AttentionDesc Desc(int heads, int kv_heads, int head_dim,
                          DType activation, DType kv) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.activation = activation;
  desc.kv = kv;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return desc;
}

inline AttentionDesc Desc(int heads, int kv_heads, int head_dim, DType dtype) {
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

inline const std::vector<SequenceShape> kRagged = {
    {1, 1},   {1, 37},   {5, 5},     {7, 70}, {1, 64},   {1, 65}, {0, 12},
    {33, 47}, {1, 3000}, {130, 130}, {2, 2},  {70, 333}, {3, 900}};

}  // namespace inlay::testing

#include "tests/support/attention_cuda_reference_inl.h"

#endif  // INLAY_HAS_CUDA

#endif  // INLAY_TESTS_SUPPORT_ATTENTION_CUDA_UTIL_H_
