// decode_attention beside what it stands for, rope_kv and attention: layers of
// one or few sequences one after another in a graph, each with a cache of its
// own.
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "kernels/decode_attention/decode_attention.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

constexpr int kLayers = 32;
constexpr int kBlockSize = 16;
constexpr DType kType = DType::kBF16;

class Run {
 public:
  Run(const Bench& bench, int rows, int keys, int heads, int kv_heads,
      int head_dim)
      : bench_(bench),
        rows_(rows),
        keys_(keys),
        layout_(std::vector<KvLayerShape>(kLayers, {kv_heads, head_dim}), kType,
                kBlockSize),
        table_blocks_((keys + kBlockSize - 1) / kBlockSize),
        cache_(layout_.block_bytes() *
               static_cast<size_t>(rows * table_blocks_)),
        qkv_(static_cast<size_t>(rows * (heads + 2 * kv_heads) * head_dim) * 2),
        out_(static_cast<size_t>(rows * heads * head_dim) * 2),
        angles_(static_cast<size_t>(rows * head_dim / 2) * sizeof(float)),
        slots_(static_cast<size_t>(rows) * sizeof(int64_t)),
        desc_(DescOf(heads, kv_heads, head_dim)) {
    cache_.Randomize(kType, 1);
    qkv_.Randomize(kType, 2);
    Require(cudaMemset(angles_.data(), 0, angles_.bytes()));
    MakePlan();
    workspace_ = std::make_unique<DeviceMemory>(
        AttentionWorkspaceBytes(plan_.shape, rows, rows));
  }

  double Together() {
    return GraphSeconds(bench_, kLayers, [&](int i) {
      DecodeAttentionParams params;
      params.rope_kv = Fused(i);
      params.out = Out();
      params.plan = &plan_;
      return DecodeAttentionTable().front().run(desc_, params, bench_.stream);
    });
  }

  double Apart() {
    return GraphSeconds(bench_, kLayers, [&](int i) {
      const RopeKvParams fused = Fused(i);
      Require(RopeKvTable().front().run(desc_.rope_kv, fused, bench_.stream));
      AttentionParams params;
      params.q = fused.qkv;
      params.out = Out();
      params.q.dims[1] = params.out.dims[1];
      params.kv = fused.kv;
      params.plan = &plan_;
      params.workspace = workspace_->data();
      return AttentionTable().front().run(desc_.attention, params,
                                          bench_.stream);
    });
  }

  double bytes() const {
    return 4.0 * rows_ * keys_ * desc_.attention.num_kv_heads *
           desc_.attention.head_dim;
  }

 private:
  static DecodeAttentionDesc DescOf(int heads, int kv_heads, int head_dim) {
    DecodeAttentionDesc desc;
    desc.rope_kv = {heads, kv_heads, head_dim, head_dim, RopeStyle::kHalf,
                    false, false,    kType,    kType};
    desc.attention.num_heads = heads;
    desc.attention.num_kv_heads = kv_heads;
    desc.attention.head_dim = head_dim;
    desc.attention.kv = desc.attention.activation = kType;
    desc.attention.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    return desc;
  }

  void MakePlan() {
    DeviceInfo info;
    info.kind = DeviceKind::kCuda;
    info.sm = 90;
    info.num_sms = bench_.stream.num_sms();
    AttentionPlanShape shape = MakeAttentionPlanShape(
        AttentionTable().front(), desc_.attention, kBlockSize, info.num_sms);
    shape.few = DecodeAttentionLimits(desc_, info);
    for (auto& few : shape.few) few.keys = 1 << 20;
    std::vector<int32_t> table(static_cast<size_t>(rows_ * table_blocks_));
    std::iota(table.begin(), table.end(), 0);
    std::vector<AttentionSequence> sequences;
    std::vector<int64_t> slots;
    for (int r = 0; r < rows_; ++r) {
      const int32_t* own = table.data() + r * table_blocks_;
      sequences.push_back({r, 1, keys_, own});
      slots.push_back(int64_t{own[table_blocks_ - 1]} * kBlockSize +
                      (keys_ - 1) % kBlockSize);
    }
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences);
    limits.graph = true;
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes + 64);
    auto* aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<uintptr_t>(image.data()) + 63) / 64 * 64);
    plan_ = BuildAttentionPlan(shape, limits, sequences, aligned);
    image_ = std::make_unique<DeviceMemory>(plan_.used_bytes);
    Require(cudaMemcpy(image_->data(), aligned, plan_.used_bytes,
                       cudaMemcpyHostToDevice));
    Require(cudaMemcpy(slots_.data(), slots.data(), slots_.bytes(),
                       cudaMemcpyHostToDevice));
    plan_.device = image_->data();
  }

  RopeKvParams Fused(int layer) {
    RopeKvParams params;
    const int width =
        (desc_.attention.num_heads + 2 * desc_.attention.num_kv_heads) *
        desc_.attention.head_dim;
    params.qkv = MatrixView(qkv_.data(), kType, rows_, width);
    params.cos = params.sin = reinterpret_cast<const float*>(angles_.data());
    params.kv = layout_.LayerView(layer, cache_.data());
    params.slots = reinterpret_cast<const int64_t*>(slots_.data());
    return params;
  }
  TensorView Out() {
    return MatrixView(out_.data(), kType, rows_,
                      desc_.attention.num_heads * desc_.attention.head_dim);
  }

  const Bench& bench_;
  int rows_;
  int keys_;
  KvLayout layout_;
  int table_blocks_;
  DeviceMemory cache_, qkv_, out_, angles_, slots_;
  DecodeAttentionDesc desc_;
  AttentionPlan plan_;
  std::unique_ptr<DeviceMemory> image_, workspace_;
};

}  // namespace

void BenchDecodeAttention(Bench& bench) {
  if (!bench.Wants("decode_attention")) return;
  std::printf(
      "\ndecode_attention, bf16, us a layer: together, rope_kv and attention, "
      "a plain read of the keys and values\n");
  struct Shape {
    int heads, kv_heads, head_dim;
  };
  for (const Shape& shape : {Shape{32, 8, 128}, Shape{32, 4, 128},
                             Shape{32, 8, 64}, Shape{16, 2, 128}}) {
    for (const int rows : {1, 2, 3, 4, 6, 8, 16}) {
      if (rows * shape.kv_heads > bench.stream.num_sms()) continue;
      for (const int keys : {64, 256, 512, 768, 1024, 1536, 2048, 3072, 4096}) {
        Run run(bench, rows, keys, shape.heads, shape.kv_heads, shape.head_dim);
        std::printf("  %d/%d x %d, %d x %5d: %6.2f %6.2f %6.2f\n", shape.heads,
                    shape.kv_heads, shape.head_dim, rows, keys,
                    1e6 * run.Together(), 1e6 * run.Apart(),
                    1e6 * bench.ReadSeconds(run.bytes()));
      }
    }
  }
}

}  // namespace inlay::bench
