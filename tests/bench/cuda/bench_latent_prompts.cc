// Prompts of latent attention: the absorbed form (queries through the keys'
// matrices, items, sums of latents through the values') beside the expanded one
// (heads' keys and values, tiles), in rooms of several sizes; which of them the
// plan chooses.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/attention_unpack.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/moe/expert_linear.h"
#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {
namespace {

constexpr DType kType = DType::kBF16;
constexpr int kRow = kExpandedRank + kExpandedRopeDim;
constexpr int kHeadDim = kExpandedKeyDim + kExpandedRopeDim;
constexpr int kBlock = 16;
constexpr size_t kMatrix = size_t{2} * kExpandedRank * kExpandedKeyDim;

template <typename Row>
const Row& Chosen(absl::StatusOr<const Row*> row) {
  Require(row.status());
  return **row;
}

DeviceInfo Hopper() {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.sm = 90;
  return info;
}

size_t Rows16(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols * 2);
}

// Of one sequence.
class Prompt {
 public:
  Prompt(const Bench& bench, int heads, int q_len, int kv_len)
      : bench_(bench),
        heads_(heads),
        q_len_(q_len),
        layout_({{1, kRow, 0, kExpandedRank}}, kType, kBlock),
        cache_(layout_.block_bytes() *
               static_cast<size_t>((kv_len + kBlock - 1) / kBlock)),
        matrices_(2 * kMatrix * static_cast<size_t>(heads)),
        q_(Rows16(q_len, int64_t{heads} * kHeadDim)),
        out_(Rows16(q_len, int64_t{heads} * kExpandedValueDim)) {
    cache_.Randomize(kType, 1);
    matrices_.Randomize(kType, 2);
    q_.Randomize(kType, 3);
    table_.resize(static_cast<size_t>((kv_len + kBlock - 1) / kBlock));
    std::iota(table_.begin(), table_.end(), 0);
    std::mt19937 rng(4);
    std::shuffle(table_.begin(), table_.end(), rng);
    sequence_ = {0, q_len, kv_len, table_.data()};
    desc_.num_heads = heads;
    desc_.num_kv_heads = 1;
    desc_.head_dim = kRow;
    desc_.value_dim = kExpandedRank;
    desc_.kv = desc_.activation = kType;
    desc_.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  }

  AttentionPlanShape Shape(int64_t room) const {
    AttentionPlanShape shape = MakeAttentionPlanShape(
        Chosen(Select("attention", AttentionTable(), desc_, Hopper())), desc_,
        kBlock, bench_.stream.num_sms());
    if (room > 0) {
      LetExpand(shape);
      shape.unpack_bytes = room;
    }
    return shape;
  }

  bool Chooses() const { return Expands(Shape(kExpandBytes), sequence_); }

  // Attention alone, and one of the two products around it.
  std::pair<double, double> Absorbed() const {
    const int64_t rows = int64_t{q_len_} * heads_;
    const DeviceMemory absorbed(Rows16(rows, kRow));
    const DeviceMemory context(Rows16(rows, kExpandedRank));
    const AttentionPlanShape shape = Shape(0);
    const Uploaded plan(shape, sequence_);
    const DeviceMemory workspace(AttentionWorkspaceBytes(shape, 1, q_len_));
    AttentionParams params;
    params.q = MatrixView(absorbed.data(), kType, q_len_, heads_ * kRow);
    params.out =
        MatrixView(context.data(), kType, q_len_, heads_ * kExpandedRank);
    params.kv = layout_.LayerView(0, cache_.data());
    params.plan = &plan.plan;
    params.workspace = workspace.data();
    const AttentionRow& row =
        Chosen(Select("attention", AttentionTable(), desc_, Hopper()));
    ExpertLinearDesc product;
    product.num_experts = product.top_k = heads_;
    product.row_a_slot = true;
    product.gemm.activation = product.gemm.output = product.gemm.weight = kType;
    product.gemm.n = kExpandedRank;
    product.gemm.k = kExpandedKeyDim;
    const ExpertLinearRow& linear =
        Chosen(Select("expert_linear", ExpertLinearTable(), product, Hopper()));
    ExpertLinearParams up;
    up.x = MatrixView(q_.data(), kType, rows, kHeadDim);
    up.x.dims[1] = kExpandedKeyDim;
    up.w.base = matrices_.data();
    up.w.stride_bytes = 2 * kMatrix;
    up.y = MatrixView(absorbed.data(), kType, rows, kRow);
    up.y.dims[1] = kExpandedRank;
    up.workspace = workspace.data();
    const double products = bench_.Seconds(
        [&](int) { Require(linear.run(product, up, bench_.stream)); });
    const double attention = bench_.Seconds(
        [&](int) { Require(row.run(desc_, params, bench_.stream)); });
    return {attention, products};
  }

  // All of it; 0 where the plan does not expand in so much room.
  double Expanded(int64_t room) const {
    const AttentionPlanShape shape = Shape(room);
    // As the plan would be if it always paid: a host without multiprocessors
    // to leave idle.
    AttentionPlanShape always = shape;
    always.grid = 1;
    const Uploaded plan(always, sequence_);
    if (plan.plan.num_tiles == 0) return 0.0;
    const DeviceMemory workspace(plan.plan.unpacked_bytes);
    ExpandedAttentionDesc desc;
    desc.num_heads = heads_;
    desc.rank = kExpandedRank;
    desc.key_dim = kExpandedKeyDim;
    desc.rope_dim = kExpandedRopeDim;
    desc.value_dim = kExpandedValueDim;
    desc.block_size = kBlock;
    desc.kv = desc.weight = desc.activation = kType;
    desc.scale = desc_.scale;
    ExpandedAttentionParams params;
    params.q = MatrixView(q_.data(), kType, q_len_, heads_ * kHeadDim);
    params.out =
        MatrixView(out_.data(), kType, q_len_, heads_ * kExpandedValueDim);
    params.kv = layout_.LayerView(0, cache_.data());
    params.keys = {matrices_.data(), 2 * kMatrix};
    params.values = {matrices_.data() + kMatrix, 2 * kMatrix};
    params.plan = &plan.plan;
    params.workspace = workspace.data();
    const ExpandedAttentionRow& row = Chosen(
        Select("expanded_attention", ExpandedAttentionTable(), desc, Hopper()));
    return bench_.Seconds(
        [&](int) { Require(row.run(desc, params, bench_.stream)); });
  }

 private:
  struct Uploaded {
    Uploaded(const AttentionPlanShape& shape,
             const AttentionSequence& sequence) {
      const AttentionPlanLimits limits =
          AttentionPlanLimitsOf(shape, {&sequence, 1});
      std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes);
      plan = BuildAttentionPlan(shape, limits, {&sequence, 1}, image.data());
      memory = std::make_unique<DeviceMemory>(image.size());
      Require(cudaMemcpy(memory->data(), image.data(), plan.used_bytes,
                         cudaMemcpyHostToDevice));
      plan.device = memory->data();
    }
    AttentionPlan plan;
    std::unique_ptr<DeviceMemory> memory;
  };

  const Bench& bench_;
  int heads_;
  int q_len_;
  KvLayout layout_;
  DeviceMemory cache_;
  DeviceMemory matrices_;
  DeviceMemory q_;
  DeviceMemory out_;
  std::vector<int32_t> table_;
  AttentionSequence sequence_;
  AttentionDesc desc_;
};

void Compare(const Bench& bench, int heads, int q_len, int kv_len) {
  const Prompt prompt(bench, heads, q_len, kv_len);
  const auto [attention, product] = prompt.Absorbed();
  const double pairs = q_len * (kv_len - (q_len - 1) / 2.0) * heads;
  const double flops =
      2.0 * pairs * (kHeadDim + kExpandedValueDim) +
      2.0 * kv_len * heads * 2 * kExpandedRank * kExpandedKeyDim;
  const double absorbed = attention + 2 * product;
  std::printf(
      "latent  %3d heads, %5d of %5d: absorbed %8.1f us (attention %8.1f, "
      "%4.0f "
      "TFLOP/s, products 2 x %7.1f); expanded",
      heads, q_len, kv_len, 1e6 * absorbed, 1e6 * attention,
      1e-12 * 2 * pairs * (kRow + kExpandedRank) / attention, 1e6 * product);
  for (const int room : {128, 32, 512}) {
    const double seconds = prompt.Expanded(int64_t{room} << 20);
    if (seconds == 0.0) {
      std::printf(" %d MB -;", room);
      continue;
    }
    std::printf(" %d MB %8.1f us %4.0f TFLOP/s %4.2fx;", room, 1e6 * seconds,
                1e-12 * flops / seconds, absorbed / seconds);
  }
  std::printf(" the plan %s\n", prompt.Chooses() ? "expands" : "absorbs");
  std::fflush(stdout);
}

}  // namespace

void BenchLatentPrompts(Bench& bench) {
  if (!bench.Wants("latent_prompts")) return;
  for (const int heads : {16, 128}) {
    for (const auto& [q_len, kv_len] : {std::pair{256, 256},
                                        {512, 512},
                                        {2048, 2048},
                                        {8192, 8192},
                                        {128, 8192},
                                        {256, 8192},
                                        {512, 4944},
                                        {512, 8192},
                                        {2048, 8192},
                                        {512, 32768},
                                        {2048, 32768}}) {
      Compare(bench, heads, q_len, kv_len);
    }
  }
}

}  // namespace inlay::bench
