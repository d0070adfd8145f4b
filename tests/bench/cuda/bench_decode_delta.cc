// decode_delta beside what it stands for, the five ops between a DeltaNet
// layer's products: layers one after another in a graph, each with states of
// its own, as many as a model has. GB/s of states read and written.
#include <cmath>
#include <vector>

#include "kernels/linear_attention/state_plan.h"
#include "tests/bench/cuda/cuda_graph.h"
#include "tests/support/decode_delta_util.h"

namespace inlay::bench {
namespace {

using ::inlay::testing::DecodeDeltaDescOf;
using ::inlay::testing::DeltaShape;
using ::inlay::testing::RunDeltaApart;

constexpr int kBlock = 1024;  // tokens a state

class Run {
 public:
  Run(const Bench& bench, const DeltaShape& shape, int64_t sequences,
      int64_t tokens)
      : bench_(bench),
        shape_(shape),
        desc_(DecodeDeltaDescOf(shape)),
        rows_(sequences * tokens),
        layers_(sequences < 8 ? 24 : 4),
        conv_floats_((ShortConvStateFloats(desc_.conv) + 15) / 16 * 16),
        layer_bytes_(4 *
                     (conv_floats_ + LinearAttentionStateFloats(desc_.rule))),
        states_(static_cast<size_t>(2 * sequences * layers_ * layer_bytes_)),
        image_(StatePlanBytes(sequences, rows_)),
        projected_(static_cast<size_t>(2 * rows_ * width())),
        mixed_(static_cast<size_t>(2 * rows_ * shape.channels())),
        gates_(static_cast<size_t>(4 * rows_ *
                                   (shape.decays() + shape.num_heads))),
        floats_(static_cast<size_t>(16 * shape.channels())) {
    Require(cudaMemset(states_.data(), 0, states_.bytes()));
    floats_.Randomize(DType::kBF16, 2);  // as float32, no less
    projected_.Randomize(DType::kBF16, 1);
    view_.base = states_.data();
    view_.block_stride_bytes = layers_ * layer_bytes_;
    view_.block_size = kBlock;
    MakePlan(sequences, tokens);
  }

  double Together() const {
    const DecodeDeltaRow& row = DecodeDeltaTable().front();
    return GraphSeconds(bench_, layers_, [&](int i) {
      return row.run(desc_, Params(i), bench_.stream);
    });
  }

  double Apart() const {
    const DeviceInfo device{DeviceKind::kCuda, "cuda", bench_.stream.sm()};
    const int64_t decays = shape_.decays();
    const TensorView decay =
        MatrixView(gates_.data(), DType::kF32, rows_, decays);
    const TensorView beta = MatrixView(gates_.data() + 4 * rows_ * decays,
                                       DType::kF32, rows_, shape_.num_heads);
    return GraphSeconds(bench_, layers_, [&](int i) {
      return RunDeltaApart(desc_, Params(i), Mixed(), decay, beta, device,
                           bench_.stream);
    });
  }

  // Of a layer's states, read and written.
  double bytes() const {
    return 2.0 * static_cast<double>(plan_.sequences * layer_bytes_);
  }

 private:
  // q, k, v, z, b and a.
  int64_t width() const {
    return (shape_.channels() + shape_.values() + shape_.num_heads +
            shape_.decays() + 63) /
           64 * 64;
  }
  TensorView Columns(int64_t first, int64_t count) const {
    TensorView view =
        MatrixView(projected_.data() + 2 * first, DType::kBF16, rows_, count);
    view.row_stride_bytes = static_cast<size_t>(2 * width());
    return view;
  }
  TensorView Mixed() const {
    return MatrixView(mixed_.data(), DType::kBF16, rows_, shape_.channels());
  }

  void MakePlan(int64_t sequences, int64_t tokens) {
    std::vector<int32_t> sources, blocks;
    std::vector<AttentionSequence> entries;
    for (int64_t s = 0; s < sequences; ++s) {
      sources.push_back(static_cast<int32_t>(2 * s));
      blocks.push_back(static_cast<int32_t>(2 * s + 1));
    }
    for (int64_t s = 0; s < sequences; ++s) {
      entries.push_back(
          {static_cast<int32_t>(s * tokens), static_cast<int32_t>(tokens),
           static_cast<int32_t>(tokens), &blocks[static_cast<size_t>(s)]});
    }
    std::vector<std::byte> image(image_.bytes());
    plan_ = BuildStatePlan(entries, sources.data(), kBlock, sequences, rows_,
                           image.data(), image_.data());
    Require(cudaMemcpy(image_.data(), image.data(), image.size(),
                       cudaMemcpyHostToDevice));
  }

  DecodeDeltaParams Params(int layer) const {
    const int64_t values = shape_.values();
    const int64_t first_b = shape_.channels() + values;
    DecodeDeltaParams params;
    params.x = Columns(0, shape_.channels());
    params.z = Columns(shape_.channels(), values);
    params.b = Columns(first_b, shape_.num_heads);
    params.a = Columns(first_b + shape_.num_heads, shape_.decays());
    params.taps = params.lengths = params.bias = params.a_log = params.norm =
        reinterpret_cast<const float*>(floats_.data());
    params.length_epsilon = params.norm_epsilon = 1e-6f;
    params.conv_state.state = view_;
    params.conv_state.state.offset_bytes = layer * layer_bytes_;
    params.conv_state.plan = &plan_;
    params.state = params.conv_state;
    params.state.state.offset_bytes += 4 * conv_floats_;
    params.y = Mixed();
    params.y.data +=
        RowBytes(DType::kBF16, static_cast<size_t>(2 * shape_.keys()));
    params.y.dims[1] = values;
    return params;
  }

  const Bench& bench_;
  const DeltaShape shape_;
  const DecodeDeltaDesc desc_;
  const int64_t rows_;
  const int layers_;
  const int64_t conv_floats_;
  const int64_t layer_bytes_;
  DeviceMemory states_, image_, projected_, mixed_, gates_, floats_;
  KvStateView view_;
  StatePlan plan_;
};

}  // namespace

void BenchDecodeDelta(Bench& bench) {
  if (!bench.Wants("decode_delta")) return;
  std::printf("decode_delta sequences x tokens, us a layer\n");
  for (const auto& [name, shape] :
       {std::pair{"qwen3.5", DeltaShape{32, 16, 128, 128, false, DType::kBF16}},
        {"kimi", DeltaShape{32, 32, 128, 128, true, DType::kBF16}}}) {
    for (const auto& [sequences, tokens] : {std::pair{1, 1},
                                            {2, 1},
                                            {4, 1},
                                            {8, 1},
                                            {16, 1},
                                            {64, 1},
                                            {1, 2},
                                            {1, 4},
                                            {1, 8},
                                            {4, 4}}) {
      const Run run(bench, shape, sequences, tokens);
      const double together = run.Together();
      std::printf("%-8s %2d x %d  %7.2f (%4.0f GB/s), apart %7.2f\n", name,
                  sequences, tokens, 1e6 * together,
                  1e-9 * run.bytes() / together, 1e6 * run.Apart());
    }
  }
}

}  // namespace inlay::bench
