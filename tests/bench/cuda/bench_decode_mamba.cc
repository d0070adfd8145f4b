// decode_mamba beside what it stands for, the ops between a Mamba 2 layer's
// products, one token a sequence: layers one after another in a graph, each
// with states of its own, as many as a model has. GB/s of states read and
// written.
#include <vector>

#include "kernels/linear_attention/state_plan.h"
#include "tests/bench/cuda/cuda_graph.h"
#include "tests/support/decode_mamba_util.h"

namespace inlay::bench {
namespace {

using ::inlay::testing::DecodeMambaDescOf;
using ::inlay::testing::MambaShape;
using ::inlay::testing::RunMambaApart;

constexpr int kBlock = 1024;  // tokens a state

class Run {
 public:
  Run(const Bench& bench, const MambaShape& shape, int64_t sequences)
      : bench_(bench),
        shape_(shape),
        desc_(DecodeMambaDescOf(shape)),
        rows_(sequences),
        layers_(sequences < 8 ? 24 : 4),
        conv_floats_((ShortConvStateFloats(desc_.conv) + 15) / 16 * 16),
        layer_bytes_(4 *
                     (conv_floats_ + LinearAttentionStateFloats(desc_.scan))),
        states_(static_cast<size_t>(2 * sequences * layers_ * layer_bytes_)),
        image_(StatePlanBytes(sequences, rows_)),
        projected_(static_cast<size_t>(2 * rows_ * width())),
        mixed_(static_cast<size_t>(2 * rows_ * shape.channels())),
        gates_(static_cast<size_t>(8 * rows_ * shape.num_heads)),
        floats_(static_cast<size_t>(16 * shape.channels())) {
    Require(cudaMemset(states_.data(), 0, states_.bytes()));
    floats_.Randomize(DType::kBF16, 2);  // as float32, no less
    projected_.Randomize(DType::kBF16, 1);
    view_.base = states_.data();
    view_.block_stride_bytes = layers_ * layer_bytes_;
    view_.block_size = kBlock;
    MakePlan();
  }

  // Of a device that has no row for all of it, the norm apart.
  double Together() const {
    DecodeMambaDesc desc = desc_;
    if (!Select("op", DecodeMambaTable(), desc, device()).ok()) {
      desc.finishes = false;
    }
    const DecodeMambaRow& row = DecodeMambaTable().front();
    return GraphSeconds(bench_, layers_, [&](int i) -> absl::Status {
      const DecodeMambaParams params = Params(i);
      INLAY_RETURN_IF_ERROR(row.run(desc, params, bench_.stream));
      return desc.finishes ? absl::OkStatus() : Finish(params);
    });
  }

  double Apart() const {
    const int64_t heads = shape_.num_heads;
    const TensorView decay =
        MatrixView(gates_.data(), DType::kF32, rows_, heads);
    const TensorView step = MatrixView(gates_.data() + 4 * rows_ * heads,
                                       DType::kF32, rows_, heads);
    return GraphSeconds(bench_, layers_, [&](int i) {
      return RunMambaApart(desc_, Params(i), Mixed(), decay, step, device(),
                           bench_.stream);
    });
  }

  // Of a layer's states, read and written.
  double bytes() const {
    return 2.0 * static_cast<double>(rows_ * layer_bytes_);
  }

 private:
  DeviceInfo device() const {
    return {DeviceKind::kCuda, "cuda", bench_.stream.sm()};
  }
  // z, v, k, q and dt.
  int64_t width() const {
    return (shape_.inner() + shape_.channels() + shape_.num_heads + 63) / 64 *
           64;
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

  absl::Status Finish(const DecodeMambaParams& params) const {
    GatedNormParams norm;
    norm.x = norm.y = params.y;
    norm.z = params.z;
    norm.weight = params.norm;
    norm.epsilon = params.epsilon;
    INLAY_ASSIGN_OR_RETURN(
        const auto* row,
        Select("gated_norm", GatedNormTable(), desc_.norm, device()));
    return row->run(desc_.norm, norm, bench_.stream);
  }

  void MakePlan() {
    std::vector<int32_t> sources, blocks;
    std::vector<AttentionSequence> entries;
    for (int32_t s = 0; s < rows_; ++s) {
      sources.push_back(2 * s);
      blocks.push_back(2 * s + 1);
    }
    for (int32_t s = 0; s < rows_; ++s) {
      entries.push_back({s, 1, 1, &blocks[static_cast<size_t>(s)]});
    }
    std::vector<std::byte> image(image_.bytes());
    plan_ = BuildStatePlan(entries, sources.data(), kBlock, rows_, rows_,
                           image.data(), image_.data());
    Require(cudaMemcpy(image_.data(), image.data(), image.size(),
                       cudaMemcpyHostToDevice));
  }

  DecodeMambaParams Params(int layer) const {
    const int64_t inner = shape_.inner();
    DecodeMambaParams params;
    params.z = Columns(0, inner);
    params.x = Columns(inner, shape_.channels());
    params.dt = Columns(inner + shape_.channels(), shape_.num_heads);
    params.taps = params.conv_bias = params.dt_bias = params.a_log =
        params.skip = reinterpret_cast<const float*>(floats_.data());
    if (shape_.norm_groups > 0) params.norm = params.skip;
    params.epsilon = 1e-5f;
    params.conv_state.state = view_;
    params.conv_state.state.offset_bytes = layer * layer_bytes_;
    params.conv_state.plan = &plan_;
    params.state = params.conv_state;
    params.state.state.offset_bytes += 4 * conv_floats_;
    params.y = Mixed();
    params.y.dims[1] = inner;
    return params;
  }

  const Bench& bench_;
  const MambaShape shape_;
  const DecodeMambaDesc desc_;
  const int64_t rows_;
  const int layers_;
  const int64_t conv_floats_;
  const int64_t layer_bytes_;
  DeviceMemory states_, image_, projected_, mixed_, gates_, floats_;
  KvStateView view_;
  StatePlan plan_;
};

}  // namespace

void BenchDecodeMamba(Bench& bench) {
  if (!bench.Wants("decode_mamba")) return;
  std::printf("decode_mamba sequences, us a layer\n");
  constexpr DType kType = DType::kBF16;
  for (const auto& [name, shape] :
       {std::pair{"falcon-h1-7b",
                  MambaShape{24, 1, 256, 128, kType, 0, true, 0.2f}},
        {"falcon-h1-1.5b", MambaShape{48, 1, 256, 64, kType, 0, true, 0.2f}},
        {"granite-h-micro", MambaShape{64, 1, 128, 64, kType, 1}},
        {"granite-h-small", MambaShape{128, 1, 128, 64, kType, 1}},
        {"nemotron-h-8b", MambaShape{128, 8, 128, 64, kType, 8}},
        {"nemotron-nano-9b", MambaShape{128, 8, 128, 80, kType, 8}},
        {"nemotron-3-nano", MambaShape{64, 8, 128, 64, kType, 8}}}) {
    for (const int sequences : {1, 2, 4, 8, 16, 64}) {
      const Run run(bench, shape, sequences);
      const double together = run.Together();
      std::printf("%-16s %2d  %7.2f (%4.0f GB/s), apart %7.2f\n", name,
                  sequences, 1e6 * together, 1e-9 * run.bytes() / together,
                  1e6 * run.Apart());
    }
  }
}

}  // namespace inlay::bench
