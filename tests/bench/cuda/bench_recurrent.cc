// What recurrent layers consist of, at the sizes of Qwen3-Next-80B, Mamba2 2.7B
// and Kimi Linear 48B (a decay a channel), and plain linear attention with a
// feature map and a normaliser at Kimi's: a token of 1 and of 64 sequences, a
// prompt of 8,192; the selective scan at Falcon Mamba 7B's, beside its
// exponentials a second, wkv7 at RWKV-7 2.9B's and rg_lru at RecurrentGemma
// 2B's. Time in a graph, GB/s of what must be read and written, and its share
// of the copy bandwidth.
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/rg_lru.h"
#include "kernels/linear_attention/selective_scan.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"
#include "kernels/linear_attention/state_plan.h"
#include "kernels/linear_attention/wkv7.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

constexpr int64_t kMostTokens = 8192;
constexpr int64_t kMostDecays = 4096;  // of a token
constexpr int64_t kMostHeads = 128;
constexpr int64_t kMostChannels = 12288;  // of a convolution
constexpr int kBlock = 1024;              // tokens a state

struct Shape {
  const char* name;
  LinearAttentionDesc rule;
  ShortConvDesc conv;  // without taps: neither convolution nor gates
  GatedNormDesc norm;
};

LinearAttentionDesc RuleOf(int heads, int key_heads, int value_dim,
                           StateDecay decay, bool delta) {
  LinearAttentionDesc desc;
  desc.num_heads = heads;
  desc.num_key_heads = key_heads;
  desc.key_dim = 128;
  desc.value_dim = value_dim;
  desc.decay = decay;
  desc.delta = delta;
  desc.activation = DType::kBF16;
  return desc;
}

std::vector<Shape> Shapes() {
  Shape qwen;
  qwen.name = "qwen3_next";
  qwen.rule = RuleOf(32, 16, 128, StateDecay::kHead, true);
  qwen.conv = {8192, 4, true, DType::kBF16};
  qwen.norm.width = 128;
  qwen.norm.groups = 32;
  qwen.norm.shared_weight = true;
  qwen.norm.activation = DType::kBF16;
  Shape mamba;
  mamba.name = "mamba2";
  mamba.rule = RuleOf(80, 1, 64, StateDecay::kHead, false);
  mamba.conv = {5376, 4, true, DType::kBF16};
  mamba.norm.width = 5120;
  mamba.norm.gate_first = true;
  mamba.norm.activation = DType::kBF16;
  Shape kimi = qwen;
  kimi.name = "kimi";
  kimi.rule = RuleOf(32, 32, 128, StateDecay::kChannel, true);
  kimi.conv.channels = 12288;
  Shape linear = qwen;
  linear.name = "linear";
  linear.rule = RuleOf(32, 32, 128, StateDecay::kNone, false);
  linear.rule.feature_map = FeatureMap::kEluPlusOne;
  linear.rule.normalised = true;
  linear.rule.epsilon = 1e-6f;
  linear.conv.num_taps = 0;
  return {qwen, mamba, kimi, linear};
}

template <typename Row, typename Desc>
const Row& RowOf(const Bench& bench, absl::Span<const Row> table,
                 const Desc& desc) {
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  auto row = Select("op", table, desc, device);
  Require(row.status());
  return **row;
}

// A step: `tokens` of each of some sequences, which go on from a state if it is
// one. A sequence's blocks are its source and those that it writes. As many
// layers as calls in a graph, so that the level-2 cache has forgotten a state
// when it comes round again.
class Step {
 public:
  Step(int64_t sequences, int64_t tokens, int64_t state_floats, int layers)
      : sequences_(sequences),
        rows_(sequences * tokens),
        layer_bytes_((state_floats * 4 + 63) / 64 * 64),
        blocks_((tokens + kBlock - 1) / kBlock + 1),
        pool_(static_cast<size_t>(layer_bytes_ * layers * sequences * blocks_)),
        image_(StatePlanBytes(sequences, rows_)) {
    Require(cudaMemset(pool_.data(), 0, pool_.bytes()));
    view_.base = pool_.data();
    view_.block_stride_bytes = layer_bytes_ * layers;
    view_.block_size = kBlock;
    std::vector<std::vector<int32_t>> tables;
    std::vector<AttentionSequence> entries;
    std::vector<int32_t> sources;
    for (int64_t s = 0; s < sequences; ++s) {
      auto& table = tables.emplace_back();
      for (int64_t b = 1; b < blocks_; ++b) {
        table.push_back(static_cast<int32_t>(s * blocks_ + b));
      }
      sources.push_back(static_cast<int32_t>(s * blocks_));
      entries.push_back({static_cast<int32_t>(s * tokens),
                         static_cast<int32_t>(tokens),
                         static_cast<int32_t>(tokens), table.data()});
    }
    std::vector<std::byte> image(image_.bytes());
    plan_ = BuildStatePlan(entries, sources.data(), kBlock, sequences, rows_,
                           image.data(), image_.data());
    Require(cudaMemcpy(image_.data(), image.data(), image.size(),
                       cudaMemcpyHostToDevice));
  }

  int64_t rows() const { return rows_; }
  // States read and written.
  int64_t states() const { return sequences_ * blocks_; }
  StateParams Params(int layer) const {
    StateParams params;
    params.state = view_;
    params.state.offset_bytes = layer * layer_bytes_;
    params.plan = &plan_;
    return params;
  }

 private:
  const int64_t sequences_;
  const int64_t rows_;
  const int64_t layer_bytes_;
  const int64_t blocks_;
  DeviceMemory pool_;
  DeviceMemory image_;
  KvStateView view_;
  StatePlan plan_;
};

class Section {
 public:
  explicit Section(Bench& bench)
      : bench_(bench),
        x_(size_t{kMostTokens} * 3 * 8192 * 2),
        y_(size_t{kMostTokens} * kMostChannels * 2),
        gates_(size_t{kMostTokens} * (kMostDecays + kMostHeads) * 4),
        floats_(size_t{4} * kMostChannels * 4) {
    x_.Randomize(DType::kBF16, 1);
    Require(cudaMemset(gates_.data(), 0, gates_.bytes()));
    Require(cudaMemset(floats_.data(), 0, floats_.bytes()));
  }

  void Run(const Shape& shape) {
    for (const auto& [sequences, tokens] :
         {std::pair{int64_t{1}, int64_t{1}}, {64, 1}, {1, kMostTokens}}) {
      std::printf("%-10s %2d x %4d", shape.name, static_cast<int>(sequences),
                  static_cast<int>(tokens));
      Rule(shape.rule, sequences, tokens);
      if (shape.conv.num_taps > 0) {
        Conv(shape.conv, sequences, tokens);
        Gates(shape.rule, sequences * tokens);
      }
      Norm(shape.norm, sequences * tokens);
      std::printf("\n");
    }
  }

  // x and z as the layer has them: z beside what was x, x convolved; y in its
  // place.
  void Scan(int64_t sequences, int64_t tokens) const {
    const SelectiveScanDesc desc = {8192, 16, DType::kBF16};
    const int calls = sequences > 1 ? 4 : 20;
    const int64_t floats = SelectiveScanStateFloats(desc);
    const Step step(sequences, tokens, floats, calls);
    const int64_t rows = step.rows(), width = desc.channels;
    const DeviceMemory steps(static_cast<size_t>(4 * rows * width));
    Require(cudaMemset(steps.data(), 0, steps.bytes()));
    SelectiveScanParams params;
    params.x = params.y = Of(y_, 0, rows, width, width);
    params.z = Of(x_, width, rows, width, 2 * width);
    params.step = MatrixView(steps.data(), DType::kF32, rows, width);
    params.b = Of(x_, 256, rows, 16, 320);
    params.c = Of(x_, 272, rows, 16, 320);
    const DeviceMemory table(static_cast<size_t>(4 * floats));
    Require(cudaMemset(table.data(), 0, table.bytes()));
    params.rates = params.skip = reinterpret_cast<const float*>(table.data());
    const auto& row = RowOf(bench_, SelectiveScanTable(), desc);
    const double seconds = GraphSeconds(bench_, calls, [&](int i) {
      params.state = step.Params(i);
      return row.run(desc, params, bench_.stream);
    });
    const auto bytes = static_cast<double>(step.states() * floats * 4 +
                                           rows * (10 * width + 64));
    std::printf("%-10s %2d x %4d  scan %8.2f us %5.0f GB/s %5.0f Gexp/s\n",
                "falcon_mamba", static_cast<int>(sequences),
                static_cast<int>(tokens), 1e6 * seconds, 1e-9 * bytes / seconds,
                1e-9 * static_cast<double>(rows * floats) / seconds);
  }

  void Wkv(int64_t sequences, int64_t tokens) const {
    const Wkv7Desc desc = {40, 64, true, DType::kBF16};
    const int calls = sequences > 1 ? 4 : 20;
    const int64_t floats = Wkv7StateFloats(desc);
    const Step step(sequences, tokens, floats, calls);
    const int64_t rows = step.rows();
    const int64_t width = int64_t{desc.num_heads} * desc.head_dim;
    Wkv7Params params;
    params.r = Of(x_, 0, rows, width, 3 * width);
    params.k = Of(x_, width, rows, width, 3 * width);
    params.v = Of(x_, 2 * width, rows, width, 3 * width);
    params.g = params.first_v = params.r;
    params.y = Of(y_, 0, rows, width, width);
    params.decay = params.rate = params.mix = Floats(0, rows, width);
    params.k_scale = params.k_rate = params.bonus = params.norm_weight =
        params.norm_bias = reinterpret_cast<const float*>(floats_.data());
    params.epsilon = 1e-5f;
    const auto& row = RowOf(bench_, Wkv7Table(), desc);
    std::printf("%-10s %2d x %4d", "rwkv7", static_cast<int>(sequences),
                static_cast<int>(tokens));
    Report("wkv7", calls,
           static_cast<double>(step.states() * floats * 4 + rows * 24 * width),
           [&](int i) {
             params.state = step.Params(i);
             return row.run(desc, params, bench_.stream);
           });
    std::printf("\n");
  }

  void Lru(int64_t sequences, int64_t tokens) const {
    const RgLruDesc desc = {2560, DType::kBF16};
    constexpr int kCalls = 20;
    const Step step(sequences, tokens, RgLruStateFloats(desc), kCalls);
    const int64_t rows = step.rows(), width = desc.channels;
    RgLruParams params;
    params.x = Of(x_, 0, rows, width, 2 * width);
    params.z = Of(x_, width, rows, width, 2 * width);
    params.input = params.recurrence = Floats(0, rows, width);
    params.rates = reinterpret_cast<const float*>(floats_.data());
    params.y = Of(y_, 0, rows, width, width);
    const auto& row = RowOf(bench_, RgLruTable(), desc);
    std::printf("%-10s %2d x %4d", "griffin", static_cast<int>(sequences),
                static_cast<int>(tokens));
    Report("rg_lru", kCalls,
           static_cast<double>(step.states() * width * 4 + rows * 14 * width),
           [&](int i) {
             params.state = step.Params(i);
             return row.run(desc, params, bench_.stream);
           });
    std::printf("\n");
  }

 private:
  TensorView Of(const DeviceMemory& memory, int64_t first, int64_t rows,
                int64_t width, int64_t stride) const {
    TensorView view =
        MatrixView(memory.data() + 2 * first, DType::kBF16, rows, width);
    view.row_stride_bytes = static_cast<size_t>(2 * stride);
    return view;
  }
  TensorView Floats(int64_t first, int64_t rows, int64_t width) const {
    return MatrixView(gates_.data() + 4 * first, DType::kF32, rows, width);
  }

  template <typename Fn>
  void Report(const char* name, int calls, double bytes, Fn run) const {
    const double seconds = GraphSeconds(bench_, calls, run);
    const double gbps = 1e-9 * bytes / seconds;
    std::printf("  %s %8.2f us %5.0f GB/s %3.0f %%", name, 1e6 * seconds, gbps,
                100 * gbps / bench_.copy_gbps);
  }

  // q, k and v side by side as the convolution gives them, y in the place of v.
  void Rule(const LinearAttentionDesc& desc, int64_t sequences,
            int64_t tokens) const {
    const int calls = sequences > 1 ? 4 : 20;
    const int64_t floats = LinearAttentionStateFloats(desc);
    const Step step(sequences, tokens, floats, calls);
    const int64_t keys = int64_t{desc.num_key_heads} * desc.key_dim;
    const int64_t values = int64_t{desc.num_heads} * desc.value_dim;
    const int64_t stride = 2 * keys + values;
    const int64_t rows = step.rows();
    LinearAttentionParams params;
    params.q = Of(x_, 0, rows, keys, stride);
    params.k = Of(x_, keys, rows, keys, stride);
    params.v = Of(x_, 2 * keys, rows, values, stride);
    params.y = Of(y_, 0, rows, values, values);
    int64_t decays = 0, betas = 0;
    if (desc.decay != StateDecay::kNone) {
      decays = Decays(desc) * desc.num_heads;
      betas = desc.num_heads;
      params.decay = Floats(0, rows, decays);
      params.beta = Floats(kMostTokens * kMostDecays, rows, betas);
    }
    const auto& row = RowOf(bench_, LinearAttentionTable(), desc);
    const DeviceMemory workspace(
        row.workspace_bytes == nullptr ? 16 : row.workspace_bytes(desc, rows));
    params.workspace = workspace.data();
    Report("rule", calls,
           static_cast<double>(
               step.states() * floats * 4 +
               rows * (2 * (stride + values) + 4 * (decays + betas))),
           [&](int i) {
             params.state = step.Params(i);
             return row.run(desc, params, bench_.stream);
           });
  }

  void Conv(const ShortConvDesc& desc, int64_t sequences,
            int64_t tokens) const {
    const int calls = 20;
    const int64_t floats = ShortConvStateFloats(desc);
    const Step step(sequences, tokens, floats, calls);
    ShortConvParams params;
    params.x = Of(x_, 0, step.rows(), desc.channels, desc.channels);
    params.y = Of(y_, 0, step.rows(), desc.channels, desc.channels);
    params.taps = reinterpret_cast<const float*>(floats_.data());
    const auto& row = RowOf(bench_, ShortConvTable(), desc);
    Report("conv", calls,
           static_cast<double>(step.states() * floats * 4 +
                               step.rows() * 4 * desc.channels),
           [&](int i) {
             params.state = step.Params(i);
             return row.run(desc, params, bench_.stream);
           });
  }

  static int64_t Decays(const LinearAttentionDesc& desc) {
    return desc.decay == StateDecay::kChannel ? desc.key_dim : 1;
  }

  void Gates(const LinearAttentionDesc& rule, int64_t rows) const {
    const int64_t heads = rule.num_heads;
    StateGatesDesc desc;
    desc.num_heads = heads;
    desc.channels = Decays(rule);
    desc.activation = DType::kBF16;
    const int64_t width = heads * desc.channels;
    StateGatesParams params;
    params.x = Of(x_, 0, rows, width, width + heads);
    params.b = Of(x_, width, rows, heads, width + heads);
    params.bias = params.a_log = reinterpret_cast<const float*>(floats_.data());
    params.decay = Floats(0, rows, width);
    params.beta = Floats(kMostTokens * kMostDecays, rows, heads);
    const auto& row = RowOf(bench_, StateGatesTable(), desc);
    Report("gates", 20, static_cast<double>(rows * (6 * width + 6 * heads)),
           [&](int) { return row.run(desc, params, bench_.stream); });
  }

  void Norm(const GatedNormDesc& desc, int64_t rows) const {
    const int64_t width = desc.groups * desc.width;
    GatedNormParams params;
    params.x = Of(x_, 0, rows, width, width);
    params.z = Of(x_, kMostTokens * 8192, rows, width, width);
    params.y = Of(y_, 0, rows, width, width);
    params.weight = reinterpret_cast<const float*>(floats_.data());
    params.epsilon = 1e-6f;
    const auto& row = RowOf(bench_, GatedNormTable(), desc);
    Report("norm", 20, static_cast<double>(rows * width * 6),
           [&](int) { return row.run(desc, params, bench_.stream); });
  }

  Bench& bench_;
  DeviceMemory x_;
  DeviceMemory y_;
  DeviceMemory gates_;
  DeviceMemory floats_;
};

}  // namespace

void BenchRecurrent(Bench& bench) {
  if (!bench.Wants("recurrent")) return;
  std::printf("recurrent    sequences x tokens\n");
  Section section(bench);
  for (const Shape& shape : Shapes()) section.Run(shape);
  for (const auto& [sequences, tokens] : {std::pair{int64_t{1}, int64_t{1}},
                                          {8, 1},
                                          {64, 1},
                                          {1, 512},
                                          {1, 2048},
                                          {4, 2048},
                                          {1, 8192}}) {
    section.Scan(sequences, tokens);
    section.Wkv(sequences, tokens);
    section.Lru(sequences, tokens);
  }
}

}  // namespace inlay::bench
