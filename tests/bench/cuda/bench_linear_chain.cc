// linear_chain: what Llama-3-8B computes between two attentions (o, gate and
// up, down, the next layer's q, k and v), in one launch and op by op: time of a
// layer, share of the copy bandwidth; the same of each of them, and the head,
// by themselves; and Qwen3-30B-A3B's, of which the MLP is a mixture of experts,
// in one launch, one token. Launches follow each other in a graph, each with
// weights that are in no cache.
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "kernels/gemm/quantised/pack.h"
#include "kernels/linear_chain/linear_chain.h"
#include "kernels/quant/quant.h"
#include "kernels/rms_norm/rms_norm.h"
#include "memory/status.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

constexpr int64_t kWidth = 4096;
constexpr int64_t kInner = 14336;
constexpr int64_t kQkv = 6144;
constexpr int64_t kVocab = 128256;
constexpr DType kType = DType::kBF16;
constexpr size_t kPoolBytes = size_t{1200} << 20;
constexpr int kLayers = 32;

LinearChainDesc DescOf(DType weight) {
  LinearChainDesc desc;
  desc.stages.resize(4);
  desc.stages[0].gemm = {kWidth, kWidth, weight, kType, DType::kF32};
  desc.stages[0].adds = true;
  desc.stages[1].gemm = {2 * kInner, kWidth, weight, kType, kType};
  desc.stages[1].normalised = true;
  desc.stages[1].gated = true;
  desc.stages[2].gemm = {kWidth, kInner, weight, kType, DType::kF32};
  desc.stages[2].adds = true;
  desc.stages[3].gemm = {kQkv, kWidth, weight, kType, kType};
  desc.stages[3].normalised = true;
  return desc;
}

// A stage of the chain, or behind its last the head.
LinearChainDesc AloneDesc(DType weight, size_t stage) {
  LinearChainDesc desc = DescOf(weight);
  if (stage < desc.stages.size()) {
    std::swap(desc.stages[0], desc.stages[stage]);
    desc.stages.resize(1);
    return desc;
  }
  desc.stages.resize(1);
  desc.stages[0] = {};
  desc.stages[0].gemm = {kVocab, kWidth, weight, kType, DType::kF32};
  return desc;
}
constexpr const char* kAlone[] = {"o", "gate_up", "down", "qkv", "head"};

// Qwen3-30B-A3B's.
LinearChainDesc MixtureDesc(DType weight) {
  constexpr int64_t kHidden = 2048, kExpert = 768;
  LinearChainDesc desc = DescOf(weight);
  desc.stages[0].gemm.n = kHidden;
  desc.stages[1].gemm.n = 2 * kExpert;
  desc.stages[1].gemm.k = kHidden;
  desc.stages[1].experts = ChainExperts::kInput;
  desc.stages[2].gemm.n = kHidden;
  desc.stages[2].gemm.k = kExpert;
  desc.stages[2].experts = ChainExperts::kOutput;
  desc.stages[3].gemm.n = 5120;
  desc.stages[3].gemm.k = kHidden;
  desc.routing.num_experts = 128;
  desc.routing.top_k = 8;
  desc.routing.normalised = true;
  desc.router = kType;
  return desc;
}

// Matrices of a stage, and those that a token asks for.
int MatricesOf(const LinearChainDesc& desc, const LinearChainStage& stage) {
  return stage.experts == ChainExperts::kNone ? 1 : desc.routing.num_experts;
}
int ReadOf(const LinearChainDesc& desc, const LinearChainStage& stage) {
  return stage.experts == ChainExperts::kNone ? 1 : desc.routing.top_k;
}

size_t BytesOf(const GemmDesc& gemm) {
  return static_cast<size_t>(
      QuantBytes(QuantFormOf(gemm.weight), gemm.n, gemm.k));
}

double BytesOf(const LinearChainDesc& desc) {
  double bytes = 0;
  for (const LinearChainStage& stage : desc.stages) {
    bytes += static_cast<double>(BytesOf(stage.gemm)) * ReadOf(desc, stage);
  }
  return bytes;
}

class Layers {
 public:
  explicit Layers(Bench& bench)
      : bench_(bench),
        weights_(kPoolBytes),
        x_(1 << 20),
        hidden_(1 << 20),
        y_(2 << 20),
        normalised_(1 << 20),
        inner_(1 << 20),
        workspace_(size_t{64} << 20),
        exchange_(1 << 20),
        router_(1 << 20) {
    device_.kind = DeviceKind::kCuda;
    device_.name = "cuda";
    device_.sm = bench.stream.sm();
    device_.num_sms = bench.stream.num_sms();
    x_.Randomize(kType, 1);
    router_.Randomize(kType, 2);
    Require(cudaMemset(hidden_.data(), 0, hidden_.bytes()));
    Require(cudaMemset(exchange_.data(), 0, exchange_.bytes()));
  }

  // Random codes; scales and minima are whatever they are, finite.
  void Fill(DType weight) {
    const QuantForm form = QuantFormOf(weight);
    std::mt19937 rng(1);
    const auto unit = static_cast<size_t>(QuantUnitBytes(form));
    const auto codes = static_cast<size_t>(QuantCodeBytes(form.codes));
    std::vector<uint8_t> bytes(unit * 4096);
    for (size_t i = 0; i < bytes.size(); ++i) {
      // Scales of 2^-10 or so.
      bytes[i] = static_cast<uint8_t>(i % unit < codes ? rng()
                                      : i % 2 != 0     ? 0x14
                                                       : rng());
    }
    for (size_t done = 0; done < kPoolBytes; done += bytes.size()) {
      Require(cudaMemcpy(weights_.data() + done, bytes.data(),
                         std::min(bytes.size(), kPoolBytes - done),
                         cudaMemcpyHostToDevice));
    }
  }

  LinearChainParams Params(const LinearChainDesc& desc, int64_t m, int layer) {
    size_t layer_bytes = 0;
    for (const LinearChainStage& stage : desc.stages) {
      layer_bytes +=
          BytesOf(stage.gemm) * static_cast<size_t>(MatricesOf(desc, stage));
    }
    LinearChainParams params;
    params.x = MatrixView(x_.data(), kType, m, desc.stages.front().gemm.k);
    params.hidden = MatrixView(hidden_.data(), DType::kF32, m, kWidth);
    params.exchange = exchange_.data();
    params.router = MatrixView(router_.data(), desc.router,
                               desc.routing.num_experts, kWidth);
    std::byte* at = weights_.data() + static_cast<size_t>(layer) %
                                          (kPoolBytes / layer_bytes) *
                                          layer_bytes;
    for (const LinearChainStage& stage : desc.stages) {
      LinearChainParams::Stage& with = params.stages.emplace_back();
      with.w = MatrixView(at, stage.gemm.weight, stage.gemm.n, stage.gemm.k);
      with.epsilon = 1e-5f;
      at += BytesOf(stage.gemm) * static_cast<size_t>(MatricesOf(desc, stage));
      if (stage.gated) {
        with.y = MatrixView(inner_.data(), kType, m,
                            stage.gemm.n / 2 * ReadOf(desc, stage));
      } else if (!stage.adds) {
        with.y = MatrixView(y_.data(), stage.gemm.output, m, stage.gemm.n);
      }
    }
    return params;
  }

  double Chain(const LinearChainDesc& desc, int64_t m) {
    auto row = Select("linear_chain", LinearChainTable(), desc, device_);
    Require(row.status());
    return GraphSeconds(bench_, kLayers, [&](int layer) {
      return (*row)->run(desc, Params(desc, m, layer), bench_.stream);
    });
  }

  double Apart(const LinearChainDesc& desc, int64_t m) {
    return GraphSeconds(bench_, kLayers, [&](int layer) {
      const LinearChainParams params = Params(desc, m, layer);
      TensorView x = params.x;
      for (size_t s = 0; s < desc.stages.size(); ++s) {
        INLAY_RETURN_IF_ERROR(
            RunApart(desc.stages[s], params.stages[s], params.hidden, x));
      }
      return absl::OkStatus();
    });
  }

 private:
  template <typename Row, typename Desc, typename Params>
  absl::Status Run(std::string_view op, absl::Span<const Row> table,
                   const Desc& desc, const Params& params) {
    INLAY_ASSIGN_OR_RETURN(const auto* row, Select(op, table, desc, device_));
    return row->run(desc, params, bench_.stream);
  }

  absl::Status RunApart(const LinearChainStage& stage,
                        const LinearChainParams::Stage& with,
                        const TensorView& hidden, TensorView& x) {
    const GemmDesc& gemm = stage.gemm;
    if (stage.normalised) {
      x = MatrixView(normalised_.data(), kType, hidden.rows(), gemm.k);
      INLAY_RETURN_IF_ERROR(Run(
          "rms_norm", RmsNormTable(), RmsNormDesc{gemm.k, DType::kF32, kType},
          RmsNormParams{hidden, with.norm_weight, with.epsilon, x}));
    }
    GemmParams params;
    params.x = x;
    params.w = with.w;
    params.y = stage.adds
                   ? hidden
                   : MatrixView(y_.data(), gemm.output, hidden.rows(), gemm.n);
    if (stage.adds) params.residual = hidden;
    params.workspace = workspace_.data();
    INLAY_RETURN_IF_ERROR(Run("gemm", GemmTable(), gemm, params));
    x = with.y;
    if (!stage.gated) return absl::OkStatus();
    return Run("activation", ActivationTable(),
               ActivationDesc{stage.function, true, gemm.n / 2, kType},
               ActivationParams{params.y, with.y});
  }

  Bench& bench_;
  DeviceInfo device_;
  DeviceMemory weights_, x_, hidden_, y_, normalised_, inner_, workspace_,
      exchange_, router_;
};

}  // namespace

void BenchLinearChain(Bench& bench) {
  if (bench.stream.sm() != 90 || !bench.Wants("linear_chain")) return;
  Layers layers(bench);
  for (const DType weight :
       {DType::kU4_G128, DType::kQ4_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
        DType::kMXFP4, DType::kQ8_0}) {
    layers.Fill(weight);
    const auto print = [&](const char* what, const LinearChainDesc& desc) {
      for (const int64_t m : {1, 2}) {
        const double apart = layers.Apart(desc, m);
        const double chain = layers.Chain(desc, m);
        std::printf(
            "linear_chain %-8s %-7s %d rows: %.1f us, %.0f %% of copy; apart "
            "%.1f us, %.2f times\n",
            std::string(DTypeName(weight)).c_str(), what, static_cast<int>(m),
            1e6 * chain, 1e-7 * BytesOf(desc) / chain / bench.copy_gbps,
            1e6 * apart, apart / chain);
      }
    };
    print("layer", DescOf(weight));
    for (size_t i = 0; i < std::size(kAlone); ++i) {
      print(kAlone[i], AloneDesc(weight, i));
    }
    const LinearChainDesc mixture = MixtureDesc(weight);
    const double seconds = layers.Chain(mixture, 1);
    std::printf("linear_chain %-8s mixture 1 row: %.1f us, %.0f %% of copy\n",
                std::string(DTypeName(weight)).c_str(), 1e6 * seconds,
                1e-7 * BytesOf(mixture) / seconds / bench.copy_gbps);
  }
}

}  // namespace inlay::bench
