// CUDA rows of attention over selected blocks, against dense attention of the
// same row over a cache that the blocks were copied to.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "kernels/block_selection/block_summary.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kKvTypes[] = {DType::kF32, DType::kF16,    DType::kBF16,
                              DType::kI8,  DType::kF8E4M3, DType::kKvQ4};

// Queries of one sequence, the blocks that each of them and each KV head sees,
// and the same keys as dense sequences of one query each.
class SelectedBlocks {
 public:
  SelectedBlocks(const AttentionDesc& desc, int queries, int length,
                 int block_size, unsigned seed)
      : desc_(desc),
        queries_(queries),
        start_(length - queries),
        rng_(seed),
        layout_({{2, 24}, {desc.num_kv_heads, desc.head_dim}}, desc.kv,
                block_size),
        gathered_layout_({{desc.num_kv_heads, desc.head_dim}}, desc.kv,
                         kSelectBlock),
        q_(desc.activation, queries, desc.num_heads * desc.head_dim, 8) {
    EXPECT_EQ(gathered_layout_.block_size(), kSelectBlock);
    q_.Randomize(rng_);
    std::vector<int32_t> table;
    for (int i = 0; i * block_size < length; ++i) table.push_back(i + 1);
    std::shuffle(table.begin(), table.end(), rng_);
    // What nobody wrote is NaN.
    storage_.resize(layout_.block_bytes() * (table.size() + 1),
                    std::byte{0xff});
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(desc.head_dim));
    for (int t = 0; t < length; ++t) {
      const int32_t block = table[static_cast<size_t>(t / block_size)];
      for (int head = 0; head < desc.num_kv_heads; ++head) {
        for (float& x : row) x = normal(rng_);
        EncodeKvRow(desc.kv, row.data(), desc.head_dim,
                    view.KeyRow(block, head, t % block_size));
        for (float& x : row) x = normal(rng_);
        EncodeKvRow(desc.kv, row.data(), desc.head_dim,
                    view.ValueRow(block, head, t % block_size));
      }
    }
    Draw(table, view);
  }

  const TestMatrix& q() const { return q_; }
  int queries() const { return queries_; }

  // `dense`: the gathered keys, by the same row.
  TestMatrix Run(const AttentionRow& row, const TestCuda& cuda, bool dense,
                 bool whole_rows, bool graph) {
    AttentionDesc desc = desc_;
    std::vector<AttentionSequence> sequences(static_cast<size_t>(queries_));
    const AttentionSequence all = {0, queries_, start_ + queries_, nullptr};
    EXPECT_EQ(SplitIntoQueries(absl::MakeConstSpan(&all, 1), desc.selects,
                               sequences.data(), desc.mix),
              queries_);
    if (dense) {
      desc.selects = 0;
      desc.mix = {};
      for (size_t i = 0; i < sequences.size(); ++i) {
        sequences[i].blocks = gathered_tables_[i].data();
      }
    }
    const KvLayout& layout = dense ? gathered_layout_ : layout_;
    AttentionPlanShape shape = MakeAttentionPlanShape(
        row, desc, layout.block_size(), cuda.stream->num_sms());
    EXPECT_TRUE(dense || (shape.tile_tokens == 0 && shape.prefix_units == 0 &&
                          shape.unpack_bytes == 0));
    shape.prefix_units = 0;
    shape.whole_rows = whole_rows;
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences);
    limits.graph = graph;
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes + 64);
    const size_t skip = -reinterpret_cast<uintptr_t>(image.data()) % 64;
    AttentionPlan plan =
        BuildAttentionPlan(shape, limits, sequences, image.data() + skip);
    const CudaBytes device_plan(image.data() + skip, plan.used_bytes);
    plan.device = device_plan.as<std::byte>();
    const CudaBytes cache(dense ? gathered_ : storage_);
    const CudaBytes q(q_.view().data, q_.view().bytes());
    const CudaBytes selected(selection_);
    const CudaBytes workspace(
        AttentionWorkspaceBytes(shape, limits.sequences, limits.tokens) + 64);
    TestMatrix out(desc.activation, queries_, desc.num_heads * desc.head_dim,
                   8);
    const CudaBytes result(out.view().data, out.view().bytes());
    AttentionParams params;
    params.q = q_.view();
    params.q.data = q.as<std::byte>();
    params.out = out.view();
    params.out.data = result.as<std::byte>();
    params.kv = layout.LayerView(dense ? 0 : 1, cache.as<std::byte>());
    params.workspace = workspace.as<void>();
    params.plan = &plan;
    if (!dense) params.selection = selected.as<int32_t>();
    EXPECT_TRUE(ValidateAttention(desc, params).ok());
    // Twice: the second time finds the counters that the first left.
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = row.run(desc, params, *cuda.stream);
      EXPECT_TRUE(status.ok()) << status;
    }
    result.Download(out.view().data);
    return out;
  }

 private:
  // Each query's own block and some before it, and copies of their keys.
  void Draw(const std::vector<int32_t>& table, const KvLayerView& view) {
    const int most = desc_.selects / kSelectBlock;
    const int units = view.block_size / kSelectBlock;
    const int heads = desc_.num_kv_heads;
    const auto row = static_cast<size_t>(most);
    selection_.assign(static_cast<size_t>(queries_ * heads) * row, -1);
    gathered_.assign(gathered_layout_.block_bytes() *
                         static_cast<size_t>(queries_ * most + 1),
                     std::byte{0xff});
    const KvLayerView to = gathered_layout_.LayerView(0, gathered_.data());
    const auto bytes = static_cast<size_t>(view.row_bytes()) * kSelectBlock;
    for (int i = 0; i < queries_; ++i) {
      const int own = (start_ + i) / kSelectBlock;
      const int count = std::min(own, most - 1);
      auto& blocks = gathered_tables_.emplace_back();
      for (int j = 0; j <= count; ++j) blocks.push_back(1 + i * most + j);
      for (int head = 0; head < heads; ++head) {
        std::vector<int> drawn(static_cast<size_t>(own));
        for (int b = 0; b < own; ++b) drawn[static_cast<size_t>(b)] = b;
        std::shuffle(drawn.begin(), drawn.end(), rng_);
        drawn.resize(static_cast<size_t>(count));
        std::sort(drawn.begin(), drawn.end());
        drawn.push_back(own);
        for (size_t j = 0; j < drawn.size(); ++j) {
          const int32_t block = table[static_cast<size_t>(drawn[j] / units)];
          const int unit = drawn[j] % units;
          selection_[static_cast<size_t>(i * heads + head) * row + j] =
              block * units + unit;
          std::memcpy(to.KeyRow(blocks[j], head, 0),
                      view.KeyRow(block, head, unit * kSelectBlock), bytes);
          std::memcpy(to.ValueRow(blocks[j], head, 0),
                      view.ValueRow(block, head, unit * kSelectBlock), bytes);
        }
      }
    }
  }

  AttentionDesc desc_;
  int queries_;
  int start_;  // position of the first query
  std::mt19937 rng_;
  KvLayout layout_;
  KvLayout gathered_layout_;
  TestMatrix q_;
  std::vector<std::byte> storage_;
  std::vector<std::byte> gathered_;
  std::vector<int32_t> selection_;
  std::vector<std::vector<int32_t>> gathered_tables_;
};

// Which dense attention is tested against float64 elsewhere. cuda_plain has the
// same bits, as it is the same kernel; the others are two kernels, in which the
// compiler may fuse sums differently: a few units of float32 before they are
// rounded to the activations' type, once each.
void ExpectDense(const AttentionDesc& desc, int queries, int length,
                 int block_size, const TestCuda& cuda, unsigned seed) {
  SelectedBlocks problem(desc, queries, length, block_size, seed);
  ForEachCudaRow(AttentionTable(), desc, cuda, [&](const AttentionRow& row) {
    for (const bool whole_rows : {false, true}) {
      const TestMatrix want = problem.Run(row, cuda, true, whole_rows, false);
      const TestMatrix got =
          problem.Run(row, cuda, false, whole_rows, !whole_rows);
      const double unit = UnitOf(desc.activation);
      ExpectClose(
          got, [&](int64_t r, int64_t c) { return double{want(r, c)}; },
          [&](int64_t r, int64_t c) {
            if (row.name == "cuda_plain") return 1e-30;
            // Of values of about 1, weighted: a sum of head_dim products of
            // magnitudes by scale of about 1, and sums over some hundred keys,
            // a rounding each, in numerator and denominator.
            return 2 * unit * std::abs(double{want(r, c)}) + 1000 * kUnitF32;
          });
    }
  });
}

TEST(SelectedBlocksCudaTest, AreDenseAttentionOverTheirKeys) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  unsigned seed = 1;
  for (const int head_dim : {64, 80, 96, 128, 192, 256, 48, 320}) {
    for (const DType activation : kFloats) {
      for (const DType kv : kKvTypes) {
        const int group = 1 + static_cast<int>(seed * 7 % 20);
        SCOPED_TRACE(::testing::Message()
                     << head_dim << " " << DTypeName(activation) << " "
                     << DTypeName(kv) << " group " << group << " seed "
                     << seed);
        AttentionDesc desc;
        desc.num_kv_heads = 2;
        desc.num_heads = 2 * group;
        desc.head_dim = head_dim;
        desc.activation = activation;
        desc.kv = kv;
        desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
        desc.selects = 6 * kSelectBlock;
        desc.mix.block = kSelectBlock;
        ExpectDense(desc, 3, 300 + static_cast<int>(seed % 17),
                    seed % 2 == 0 ? 16 : 64, cuda, seed);
        ++seed;
      }
    }
  }
}

// From one key to more than a CTA does alone; few queries and many.
TEST(SelectedBlocksCudaTest, OfAnyLength) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    for (const auto& [queries, length, selects] : {std::tuple{1, 1, 64},
                                                   {16, 16, 64},
                                                   {40, 64, 64},
                                                   {1, 65, 2048},
                                                   {1, 9000, 2048},
                                                   {3, 9000, 4096},
                                                   {60, 3000, 1024},
                                                   {200, 400, 128},
                                                   {1, 20000, 16384}}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(kv) << " " << queries
                                        << " of " << length << ", " << selects);
      AttentionDesc desc;
      desc.num_kv_heads = 8;
      desc.num_heads = 32;
      desc.head_dim = 128;
      desc.activation = DType::kBF16;
      desc.kv = kv;
      desc.scale = 0.088f;
      desc.selects = selects;
      desc.mix.block = kSelectBlock;
      ExpectDense(desc, queries, length, 16, cuda,
                  static_cast<unsigned>(length));
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
