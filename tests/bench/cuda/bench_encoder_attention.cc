// attention, biased_attention (MPNet, T5) and disentangled_attention (DeBERTa)
// over whole texts, both ways, by every CUDA row that serves: time a layer, and
// TFLOP/s of the scores and values alone, which is what all three have.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/attention/biased_attention.h"
#include "kernels/attention/disentangled_attention.h"
#include "memory/kv/kv_layout.h"
#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {
namespace {

constexpr int kBlockSize = 16;
constexpr int kReach = 511;  // positions of the models' texts
constexpr int kRelativeRows = 512;

// Texts of one length, with their keys in a cache of blocks.
class Texts {
 public:
  Texts(int count, int length, int heads, int head_dim)
      : count_(count),
        length_(length),
        layout_({{heads, head_dim, 0, 0}}, DType::kBF16, kBlockSize),
        blocks_((length + kBlockSize - 1) / kBlockSize),
        cache_(layout_.block_bytes() * static_cast<size_t>(count * blocks_)),
        q_(size_t{2} * static_cast<size_t>(count) *
           static_cast<size_t>(length * heads * head_dim)),
        out_(q_.bytes()) {
    cache_.Randomize(DType::kBF16, 1);
    q_.Randomize(DType::kBF16, 2);
    desc.num_heads = desc.num_kv_heads = heads;
    desc.head_dim = head_dim;
    desc.kv = desc.activation = DType::kBF16;
    desc.causal = false;
    desc.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    for (int text = 0; text < count; ++text) {
      auto& table = tables_.emplace_back();
      for (int i = 0; i < blocks_; ++i) table.push_back(text * blocks_ + i);
      sequences_.push_back({text * length, length, length, table.data()});
    }
  }

  // With a plan of the shape, which live until the next call.
  AttentionParams Params(const AttentionPlanShape& shape) {
    const AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences_);
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes);
    plan_ = BuildAttentionPlan(shape, limits, sequences_, image.data());
    image_ = std::make_unique<DeviceMemory>(image.size());
    Require(cudaMemcpy(image_->data(), image.data(), plan_.used_bytes,
                       cudaMemcpyHostToDevice));
    plan_.device = image_->data();
    const int64_t tokens = int64_t{count_} * length_;
    workspace_ = std::make_unique<DeviceMemory>(
        AttentionWorkspaceBytes(shape, count_, tokens));
    AttentionParams params;
    const int64_t width = int64_t{desc.num_heads} * desc.head_dim;
    params.q = MatrixView(q_.data(), DType::kBF16, tokens, width);
    params.out = MatrixView(out_.data(), DType::kBF16, tokens, width);
    params.kv = layout_.LayerView(0, cache_.data());
    params.plan = &plan_;
    params.workspace = workspace_->data();
    return params;
  }

  void Report(const char* op, std::string_view row, double seconds) const {
    const double flops =
        4.0 * count_ * length_ * length_ * desc.num_heads * desc.head_dim;
    std::printf(
        "texts   %2d x %4d, %2d heads of %3d  %-13s %-10s %9.1f us %5.0f "
        "TFLOP/s\n",
        count_, length_, desc.num_heads, desc.head_dim, op, row.data(),
        1e6 * seconds, 1e-12 * flops / seconds);
  }

  AttentionDesc desc;

 private:
  const int count_;
  const int length_;
  KvLayout layout_;
  int blocks_;
  DeviceMemory cache_;
  DeviceMemory q_;
  DeviceMemory out_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  std::unique_ptr<DeviceMemory> image_;
  std::unique_ptr<DeviceMemory> workspace_;
  AttentionPlan plan_;
};

// Every row of a table that serves on the device: run(row).
template <typename Row, typename Fn>
void ForEachRow(const Bench& bench, absl::Span<const Row> table,
                const AttentionDesc& desc, Fn run) {
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  for (const Row& row : table) {
    const auto selected = Select("op", table, desc, device, row.name);
    if (selected.ok()) run(**selected);
  }
}

void Measure(const Bench& bench, int count, int length, int heads,
             int head_dim) {
  Texts texts(count, length, heads, head_dim);
  const AttentionDesc& desc = texts.desc;
  const int sms = bench.stream.num_sms();
  ForEachRow(bench, AttentionTable(), desc, [&](const AttentionRow& row) {
    const AttentionParams params =
        texts.Params(MakeAttentionPlanShape(row, desc, kBlockSize, sms));
    texts.Report("attention", row.name, bench.Seconds([&](int) {
      Require(row.run(desc, params, bench.stream));
    }));
  });

  DeviceMemory numbers(sizeof(float) * static_cast<size_t>(heads) *
                       (2 * kReach + 1));
  Require(cudaMemset(numbers.data(), 0, numbers.bytes()));
  ForEachRow(
      bench, BiasedAttentionTable(), desc, [&](const BiasedAttentionRow& row) {
        BiasedAttentionParams params;
        params.attention = texts.Params(
            MakeBiasedAttentionPlanShape(row, desc, kBlockSize, sms));
        params.bias = {reinterpret_cast<const float*>(numbers.data()), kReach};
        texts.Report("biased", row.name, bench.Seconds([&](int) {
          Require(row.run(desc, params, bench.stream));
        }));
      });

  const int64_t width = int64_t{heads} * head_dim;
  DeviceMemory rows(static_cast<size_t>(2 * kRelativeRows * width));
  rows.Randomize(DType::kBF16, 3);
  std::vector<int32_t> row_of;
  for (int d = -kReach; d <= kReach; ++d) row_of.push_back((d + kReach) / 2);
  DeviceMemory list(row_of.size() * sizeof(int32_t));
  Require(cudaMemcpy(list.data(), row_of.data(), list.bytes(),
                     cudaMemcpyHostToDevice));
  ForEachRow(
      bench, DisentangledAttentionTable(), desc,
      [&](const DisentangledAttentionRow& row) {
        DisentangledAttentionParams params;
        params.attention = texts.Params(
            MakeDisentangledAttentionPlanShape(row, desc, kBlockSize, sms));
        params.relative.keys = params.relative.queries =
            MatrixView(rows.data(), DType::kBF16, kRelativeRows, width);
        params.relative.rows = reinterpret_cast<const int32_t*>(list.data());
        params.relative.reach = kReach;
        texts.Report("disentangled", row.name, bench.Seconds([&](int) {
          Require(row.run(desc, params, bench.stream));
        }));
      });
}

}  // namespace

void BenchEncoderAttention(Bench& bench) {
  if (!bench.Wants("attention_texts")) return;
  Measure(bench, 1, 512, 12, 64);
  Measure(bench, 64, 512, 12, 64);   // base models
  Measure(bench, 64, 128, 16, 64);   // large ones
  Measure(bench, 64, 512, 16, 128);  // heads of T5's 11b
}

}  // namespace inlay::bench
