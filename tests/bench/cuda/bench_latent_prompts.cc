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
constexpr int kBlock = 16;

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
  Prompt(const Bench& bench, const ExpandedDims& dims, int heads, int q_len,
         int kv_len)
      : bench_(bench),
        dims_(dims),
        heads_(heads),
        q_len_(q_len),
        layout_({{1, row_dim(), 0, dims.rank}}, kType, kBlock),
        cache_(layout_.block_bytes() *
               static_cast<size_t>((kv_len + kBlock - 1) / kBlock)),
        matrices_(stride() * static_cast<size_t>(heads)),
        q_(Rows16(q_len, int64_t{heads} * head_dim())),
        out_(Rows16(q_len, int64_t{heads} * dims.value_dim)) {
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
    desc_.head_dim = row_dim();
    desc_.value_dim = dims_.rank;
    desc_.kv = desc_.activation = kType;
    desc_.scale = 1.0f / std::sqrt(static_cast<float>(head_dim()));
  }

  AttentionPlanShape Shape(int64_t room) const {
    AttentionPlanShape shape = MakeAttentionPlanShape(
        Chosen(Select("attention", AttentionTable(), desc_, Hopper())), desc_,
        kBlock, bench_.stream.num_sms());
    if (room > 0) {
      LetExpand(dims_, shape);
      shape.unpack_bytes = room;
    }
    return shape;
  }

  bool Chooses() const { return Expands(Shape(kExpandBytes), sequence_); }

  int row_dim() const { return dims_.rank + dims_.rope_dim; }
  int head_dim() const { return dims_.key_dim + dims_.rope_dim; }

  // Attention alone, and one of the two products around it.
  std::pair<double, double> Absorbed() const {
    const int64_t rows = int64_t{q_len_} * heads_;
    const DeviceMemory absorbed(Rows16(rows, row_dim()));
    const DeviceMemory context(Rows16(rows, dims_.rank));
    const AttentionPlanShape shape = Shape(0);
    const Uploaded plan(shape, sequence_);
    const DeviceMemory workspace(AttentionWorkspaceBytes(shape, 1, q_len_));
    AttentionParams params;
    params.q = MatrixView(absorbed.data(), kType, q_len_, heads_ * row_dim());
    params.out = MatrixView(context.data(), kType, q_len_, heads_ * dims_.rank);
    params.kv = layout_.LayerView(0, cache_.data());
    params.plan = &plan.plan;
    params.workspace = workspace.data();
    const AttentionRow& row =
        Chosen(Select("attention", AttentionTable(), desc_, Hopper()));
    ExpertLinearDesc product;
    product.num_experts = product.top_k = heads_;
    product.row_a_slot = true;
    product.gemm.activation = product.gemm.output = product.gemm.weight = kType;
    product.gemm.n = dims_.rank;
    product.gemm.k = dims_.key_dim;
    const ExpertLinearRow& linear =
        Chosen(Select("expert_linear", ExpertLinearTable(), product, Hopper()));
    ExpertLinearParams up;
    up.x = MatrixView(q_.data(), kType, rows, head_dim());
    up.x.dims[1] = dims_.key_dim;
    up.w.base = matrices_.data();
    up.w.stride_bytes = stride();
    up.y = MatrixView(absorbed.data(), kType, rows, row_dim());
    up.y.dims[1] = dims_.rank;
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
    desc.rank = dims_.rank;
    desc.key_dim = dims_.key_dim;
    desc.rope_dim = dims_.rope_dim;
    desc.value_dim = dims_.value_dim;
    desc.block_size = kBlock;
    desc.kv = desc.weight = desc.activation = kType;
    desc.scale = desc_.scale;
    ExpandedAttentionParams params;
    params.q = MatrixView(q_.data(), kType, q_len_, heads_ * head_dim());
    params.out =
        MatrixView(out_.data(), kType, q_len_, heads_ * dims_.value_dim);
    params.kv = layout_.LayerView(0, cache_.data());
    params.keys = {matrices_.data(), stride()};
    params.values = {matrices_.data() + key_bytes(), stride()};
    params.plan = &plan.plan;
    params.workspace = workspace.data();
    const ExpandedAttentionRow& row = Chosen(
        Select("expanded_attention", ExpandedAttentionTable(), desc, Hopper()));
    return bench_.Seconds(
        [&](int) { Require(row.run(desc, params, bench_.stream)); });
  }

 private:
  size_t key_bytes() const { return Rows16(dims_.rank, dims_.key_dim); }
  size_t stride() const {
    return key_bytes() + Rows16(dims_.rank, dims_.value_dim);
  }

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
  ExpandedDims dims_;
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

void Compare(const Bench& bench, const ExpandedDims& dims, int heads, int q_len,
             int kv_len) {
  const Prompt prompt(bench, dims, heads, q_len, kv_len);
  const auto [attention, product] = prompt.Absorbed();
  const double pairs = q_len * (kv_len - (q_len - 1) / 2.0) * heads;
  const double flops =
      2.0 * pairs * (prompt.head_dim() + dims.value_dim) +
      2.0 * kv_len * heads * dims.rank * (dims.key_dim + dims.value_dim);
  const double absorbed = attention + 2 * product;
  std::printf(
      "latent  %d + %d, %d: %3d heads, %5d of %5d: absorbed %8.1f us "
      "(attention %8.1f, "
      "%4.0f "
      "TFLOP/s, products 2 x %7.1f); expanded",
      dims.key_dim, dims.rope_dim, dims.value_dim, heads, q_len, kv_len,
      1e6 * absorbed, 1e6 * attention,
      1e-12 * 2 * pairs * (prompt.row_dim() + dims.rank) / attention,
      1e6 * product);
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
  struct Case {
    ExpandedDims dims;
    int heads;
  };
  for (const auto& [dims, heads] : {Case{kExpandedDims[0], 16},
                                    {kExpandedDims[0], 128},
                                    {kExpandedDims[1], 20},
                                    {kExpandedDims[1], 64},
                                    {kExpandedDims[2], 40}}) {
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
      Compare(bench, dims, heads, q_len, kv_len);
    }
  }
}

}  // namespace inlay::bench
