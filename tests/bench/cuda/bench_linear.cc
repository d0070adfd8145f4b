// gemm: Llama-3-8B's layers in bf16. Few rows: our kernel beside cuBLASLt, in
// GB/s of the weights and as a share of the copy bandwidth; many: cuBLASLt
// through our row, TFLOP/s. Calls follow each other in a graph, each with
// weights that are in no cache.
#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/many_rows_cuda.h"
#include "kernels/gemm/skinny_cuda.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_kv/rope_kv.h"
#include "memory/status.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

struct Layer {
  const char* name;
  int64_t n;
  int64_t k;
  DType output;
  bool residual;
};

constexpr Layer kLayers[] = {
    {"qkv", 6144, 4096, DType::kBF16, false},
    {"o", 4096, 4096, DType::kF32, true},
    {"gate_up", 28672, 4096, DType::kBF16, false},
    {"down", 4096, 14336, DType::kF32, true},
    {"head", 128256, 4096, DType::kF32, false},
};

// Twenty times the second-level cache.
constexpr size_t kPoolBytes = size_t{1200} << 20;
constexpr int kCalls = 40;

struct Memory {
  Memory()
      : weights(kPoolBytes),
        x(size_t{64} << 20),
        y(size_t{1} << 30),
        workspace(size_t{64} << 20) {
    weights.Randomize(DType::kBF16, 1);
    x.Randomize(DType::kBF16, 2);
  }
  GemmParams Params(const Layer& layer, int64_t m, int call) {
    const size_t bytes =
        RowBytes(DType::kBF16, static_cast<size_t>(layer.k * layer.n));
    const size_t places = std::max<size_t>(1, kPoolBytes / bytes);
    GemmParams params;
    params.x = MatrixView(x.data(), DType::kBF16, m, layer.k);
    params.w =
        MatrixView(weights.data() + static_cast<size_t>(call) % places * bytes,
                   DType::kBF16, layer.n, layer.k);
    params.y = MatrixView(y.data(), layer.output, m, layer.n);
    if (layer.residual) params.residual = params.y;
    params.workspace = workspace.data();
    return params;
  }
  DeviceMemory weights, x, y, workspace;
};

GemmDesc DescOf(const Layer& layer) {
  return {layer.n, layer.k, DType::kBF16, DType::kBF16, layer.output};
}

const GemmRow& RowOf(const Bench& bench, const Layer& layer,
                     std::string_view name) {
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  auto row = Select("gemm", GemmTable(), DescOf(layer), device, name);
  Require(row.status());
  return **row;
}

// GB/s of the weights by shared memory and stages loaded at once.
void Plans(Bench& bench, Memory& memory) {
  constexpr int kShared[] = {64, 75, 113, 200};
  constexpr int kStages[] = {4, 5, 6, 8, 12, 20};
  std::printf("GB/s in 64 | 75 | 113 | 200 KB with 4 5 6 8 12 20 stages\n");
  for (const Layer& layer : kLayers) {
    const GemmDesc desc = DescOf(layer);
    const double bytes = 2.0 * static_cast<double>(layer.n * layer.k);
    for (const int64_t m : {1, 8}) {
      std::printf("%-8s %3d", layer.name, static_cast<int>(m));
      for (const int shared_kb : kShared) {
        std::printf(" |");
        for (const int stages : kStages) {
          GemvPlan plan = PlanGemv(layer.n, layer.k, bench.stream.num_sms());
          plan.shared_bytes = shared_kb << 10;
          plan.in_flight = stages;
          if (BulkGemvStages(desc, m, plan) < std::min(stages, 20)) {
            std::printf("    -");
            continue;
          }
          const double seconds = GraphSeconds(bench, kCalls, [&](int i) {
            return RunBulkGemv(desc, memory.Params(layer, m, i), plan, {},
                               bench.stream);
          });
          std::printf(" %4.0f", 1e-9 * bytes / seconds);
        }
      }
      std::printf("\n");
    }
  }
}

// The kernel for some dozen rows beside those for fewer and for more.
void SkinnyRows(Bench& bench, Memory& memory) {
  std::printf("%-8s %3s %9s %9s %9s\n", "us", "m", "skinny", "gemv", "cublas");
  for (const Layer& layer : kLayers) {
    const GemmDesc desc = DescOf(layer);
    for (const int64_t m : {1, 2, 4, 8, 16, 32, 48, 64}) {
      const auto time = [&](const auto& run) {
        return 1e6 * GraphSeconds(bench, kCalls, [&](int i) {
                 return run(memory.Params(layer, m, i));
               });
      };
      const auto time_row = [&](std::string_view name) {
        return time([&](const GemmParams& params) {
          return RowOf(bench, layer, name).run(desc, params, bench.stream);
        });
      };
      const double skinny = time([&](const GemmParams& params) {
        return RunSkinnyGemm(desc, params, {}, bench.stream);
      });
      std::printf("%-8s %3d %9.2f %9.2f %9.2f\n", layer.name,
                  static_cast<int>(m), skinny, time_row("cuda_gemv"),
                  time_row("cuda_cublaslt"));
    }
  }
}

// The kernel for many rows in one order, what batch-invariant models take (64
// rows at a time where that is faster), one algorithm of cuBLASLt's, and its
// best.
void OneOrder(Bench& bench, Memory& memory) {
  std::printf("%-8s %5s %9s %9s %9s %9s %8s %8s\n", "us", "m", "one order",
              "taken", "one algo", "cublas", "TFLOP/s", "cublas");
  for (const Layer& layer : kLayers) {
    GemmDesc desc = DescOf(layer);
    for (const int64_t m : {65, 128, 192, 256, 384, 512, 1024, 2048}) {
      const int calls = m < 512 ? 16 : 8;
      const auto time = [&](const auto& run) {
        return 1e6 * GraphSeconds(bench, calls, [&](int i) {
                 return run(memory.Params(layer, m, i));
               });
      };
      const double ours = time([&](const GemmParams& params) {
        return RunManyRowsGemm(desc, params, bench.stream);
      });
      const double taken = time([&](const GemmParams& params) {
        return RunGemmInOneOrder(desc, params, bench.stream);
      });
      double cublas[2];
      for (const bool invariant : {false, true}) {
        desc.batch_invariant = invariant;
        cublas[invariant] = time([&](const GemmParams& params) {
          return RowOf(bench, layer, "cuda_cublaslt")
              .run(desc, params, bench.stream);
        });
      }
      const double tflop = 2e-6 * static_cast<double>(m * layer.n * layer.k);
      std::printf("%-8s %5d %9.2f %9.2f %9.2f %9.2f %8.1f %8.1f\n", layer.name,
                  static_cast<int>(m), ours, taken, cublas[1], cublas[0],
                  tflop / ours, tflop / cublas[0]);
    }
  }
}

void FewRows(Bench& bench, Memory& memory) {
  std::printf("%-8s %3s %9s %7s %6s %9s %7s\n", "linear", "m", "us", "GB/s",
              "%copy", "cublas us", "ratio");
  for (const Layer& layer : kLayers) {
    const GemmDesc desc = DescOf(layer);
    const double bytes = 2.0 * static_cast<double>(layer.n * layer.k);
    for (const int64_t m : {1, 2, 4, 8, 12, 16, 24, 32, 48, 64}) {
      const auto time = [&](std::string_view name) {
        const GemmRow& row = RowOf(bench, layer, name);
        return GraphSeconds(bench, kCalls, [&](int i) {
          return row.run(desc, memory.Params(layer, m, i), bench.stream);
        });
      };
      const double ours = time("cuda");
      const double cublas = time("cuda_cublaslt");
      const double rate = 1e-9 * bytes / ours;
      std::printf("%-8s %3d %9.2f %7.0f %6.1f %9.2f %7.2f\n", layer.name,
                  static_cast<int>(m), 1e6 * ours, rate,
                  100 * rate / bench.copy_gbps, 1e6 * cublas, cublas / ours);
    }
  }
}

void ManyRows(Bench& bench, Memory& memory) {
  std::printf("%-8s %5s %9s %8s\n", "linear", "m", "us", "TFLOP/s");
  for (const Layer& layer : kLayers) {
    const GemmDesc desc = DescOf(layer);
    const GemmRow& row = RowOf(bench, layer, "cuda");
    for (const int64_t m : {32, 48, 64, 256, 2048}) {
      const double seconds = GraphSeconds(bench, 8, [&](int i) {
        return row.run(desc, memory.Params(layer, m, i), bench.stream);
      });
      std::printf("%-8s %5d %9.2f %8.1f\n", layer.name, static_cast<int>(m),
                  1e6 * seconds,
                  2e-12 * static_cast<double>(m * layer.n * layer.k) / seconds);
    }
  }
}

// What a layer's decode step consists of but for attention, one after the other
// as they depend on each other: the ops apart, and fused.
class Chain {
 public:
  Chain(Bench& bench, Memory& memory) : bench_(bench), memory_(memory) {
    const std::vector<int64_t> slots(8, 0);
    Require(
        cudaMemcpy(slots_.data(), slots.data(), 64, cudaMemcpyHostToDevice));
    Require(cudaMemset(zeros_.data(), 0, zeros_.bytes()));
  }

  // How the products are cut: KB of shared memory of qkv, o, gate_up and down
  // (0: as planned), stages loaded at once.
  struct Variant {
    const char* name;
    int shared[4];
    int stages;
  };
  static constexpr Variant kVariants[] = {
      {"planned", {0, 0, 0, 0}, 0},
      {"200 KB of 20", {200, 200, 200, 200}, 20},
      {"113 KB of 6", {113, 113, 113, 113}, 6}};

  void Report(int64_t m) {
    constexpr int kLayersAGraph = 16;
    const auto print = [&](const char* name, double seconds) {
      std::printf(" %s %.1f", name, 1e6 * seconds);
    };
    std::printf("us of a layer without attention, m %d:", static_cast<int>(m));
    print("ops apart", GraphSeconds(bench_, kLayersAGraph,
                                    [&](int i) { return Apart(m, i); }));
    for (const Variant& variant : kVariants) {
      variant_ = variant;
      std::printf(" | %s:", variant.name);
      print("products", GraphSeconds(bench_, kLayersAGraph,
                                     [&](int i) { return Products(m, i); }));
      for (const bool normalised : {false, true}) {
        if (normalised && m > 1) continue;  // one row at a time
        print(normalised ? "all fused" : "norms apart",
              GraphSeconds(bench_, kLayersAGraph,
                           [&](int i) { return Fused(m, i, normalised); }));
      }
    }
    std::printf("\n");
  }

 private:
  static constexpr int64_t kHidden = 4096;
  static constexpr int64_t kWidth = 14336;

  TensorView At(size_t offset, DType dtype, int64_t m, int64_t cols) const {
    return MatrixView(memory_.x.data() + offset, dtype, m, cols);
  }
  TensorView hidden(int64_t m) const { return At(0, DType::kF32, m, kHidden); }
  TensorView x(int64_t m) const {
    return At(1 << 20, DType::kBF16, m, kHidden);
  }
  TensorView qkv(int64_t m) const { return At(2 << 20, DType::kBF16, m, 6144); }
  TensorView inner(int64_t m) const {
    return At(3 << 20, DType::kBF16, m, 2 * kWidth);
  }
  const float* floats() const {
    return reinterpret_cast<const float*>(zeros_.data());
  }

  GemmParams Params(int layer, int64_t m, int call, const TensorView& from,
                    const TensorView& to) const {
    GemmParams params = memory_.Params(kLayers[layer], m, call);
    params.x = from;
    params.y = to;
    params.residual = kLayers[layer].residual ? to : TensorView();
    return params;
  }
  absl::Status Product(int layer, int64_t m, int call, const TensorView& from,
                       const TensorView& to) {
    return RowOf(bench_, kLayers[layer], "cuda_gemv")
        .run(DescOf(kLayers[layer]), Params(layer, m, call, from, to),
             bench_.stream);
  }
  template <typename Row, typename Desc, typename Params>
  absl::Status Run(absl::Span<const Row> table, const Desc& desc,
                   const Params& params) {
    const DeviceInfo device{DeviceKind::kCuda, "cuda", bench_.stream.sm()};
    auto row = Select("op", table, desc, device);
    Require(row.status());
    return (*row)->run(desc, params, bench_.stream);
  }

  absl::Status Varied(int layer, int64_t m, const GemmParams& params,
                      const GemvFusion& fusion) {
    const Layer& l = kLayers[layer];
    GemvPlan plan = PlanGemv(l.n, l.k, bench_.stream.num_sms());
    const int planned = plan.shared_bytes;
    if (variant_.stages > 0) plan.in_flight = variant_.stages;
    if (variant_.shared[layer] > 0) {
      plan.shared_bytes = variant_.shared[layer] << 10;
    }
    if (BulkGemvStages(DescOf(l), m, plan) < 3) plan.shared_bytes = planned;
    return RunBulkGemv(DescOf(l), params, plan, fusion, bench_.stream);
  }

  absl::Status Products(int64_t m, int i) {
    const TensorView act = MatrixView(inner(m).data, DType::kBF16, m, kWidth);
    INLAY_RETURN_IF_ERROR(Varied(0, m, Params(0, m, i, x(m), qkv(m)), {}));
    INLAY_RETURN_IF_ERROR(Varied(1, m, Params(1, m, i, x(m), hidden(m)), {}));
    INLAY_RETURN_IF_ERROR(Varied(2, m, Params(2, m, i, x(m), inner(m)), {}));
    return Varied(3, m, Params(3, m, i, act, hidden(m)), {});
  }

  absl::Status Norm(int64_t m) {
    return Run(RmsNormTable(), RmsNormDesc{kHidden, DType::kF32, DType::kBF16},
               RmsNormParams{hidden(m), floats(), 1e-5f, x(m)});
  }

  absl::Status Apart(int64_t m, int i) {
    INLAY_RETURN_IF_ERROR(Norm(m));
    INLAY_RETURN_IF_ERROR(Product(0, m, i, x(m), qkv(m)));
    TensorView heads = qkv(m);
    heads.dims[1] = 5120;
    INLAY_RETURN_IF_ERROR(
        Run(RopeTable(), RopeDesc{40, 128, 128, RopeStyle::kHalf, DType::kBF16},
            RopeParams{heads, floats(), floats()}));
    TensorView k = qkv(m), v = k;
    k.dims[1] = v.dims[1] = 1024;
    k.data += 8192;
    v.data += 10240;
    INLAY_RETURN_IF_ERROR(
        Run(KvWriteTable(), KvWriteDesc{8, 128, DType::kBF16, DType::kBF16},
            KvWriteParams{k, v, kv_.LayerView(0, memory_.y.data()), slots()}));
    INLAY_RETURN_IF_ERROR(Product(1, m, i, x(m), hidden(m)));
    INLAY_RETURN_IF_ERROR(Norm(m));
    INLAY_RETURN_IF_ERROR(Product(2, m, i, x(m), inner(m)));
    TensorView act = inner(m);
    act.dims[1] = kWidth;
    INLAY_RETURN_IF_ERROR(
        Run(ActivationTable(),
            ActivationDesc{Activation::kSilu, true, kWidth, DType::kBF16},
            ActivationParams{inner(m), act}));
    return Product(3, m, i, act, hidden(m));
  }

  absl::Status Fused(int64_t m, int i, bool normalised) {
    GemvFusion norm;
    norm.normalise = normalised;
    norm.norm_weight = floats();
    norm.epsilon = 1e-5f;
    GemvFusion gate = norm;
    gate.gated = true;
    const TensorView in = normalised ? hidden(m) : x(m);
    if (!normalised) INLAY_RETURN_IF_ERROR(Norm(m));
    INLAY_RETURN_IF_ERROR(Varied(0, m, Params(0, m, i, in, qkv(m)), norm));
    RopeKvParams rope;
    rope.qkv = qkv(m);
    rope.cos = rope.sin = floats();
    rope.kv = kv_.LayerView(0, memory_.y.data());
    rope.slots = slots();
    INLAY_RETURN_IF_ERROR(
        Run(RopeKvTable(),
            RopeKvDesc{32, 8, 128, 128, RopeStyle::kHalf, false, false,
                       DType::kBF16, DType::kBF16},
            rope));
    INLAY_RETURN_IF_ERROR(Varied(1, m, Params(1, m, i, x(m), hidden(m)), {}));
    if (!normalised) INLAY_RETURN_IF_ERROR(Norm(m));
    const TensorView act = MatrixView(inner(m).data, DType::kBF16, m, kWidth);
    INLAY_RETURN_IF_ERROR(Varied(2, m, Params(2, m, i, in, act), gate));
    return Varied(3, m, Params(3, m, i, act, hidden(m)), {});
  }

  const int64_t* slots() const {
    return reinterpret_cast<const int64_t*>(slots_.data());
  }

  Bench& bench_;
  Memory& memory_;
  Variant variant_ = kVariants[0];
  const KvLayout kv_{{{8, 128}}, DType::kBF16, 16};
  DeviceMemory slots_{64};
  DeviceMemory zeros_{1 << 20};
};

}  // namespace

void BenchLinear(Bench& bench) {
  const bool plans = bench.Wants("linear_plans");
  const bool skinny = bench.Wants("linear_skinny");
  const bool table = bench.Wants("linear_table");
  const bool chain = bench.Wants("linear_chain");
  const bool one_order = bench.Wants("linear_one_order");
  if (!plans && !skinny && !table && !chain && !one_order) return;
  const absl::Status cublas = PrepareGemmCuda(bench.stream);
  if (!cublas.ok()) {
    std::printf("linear: %s\n", std::string(cublas.message()).c_str());
    return;
  }
  Memory memory;
  if (plans) Plans(bench, memory);
  if (skinny) SkinnyRows(bench, memory);
  if (one_order) OneOrder(bench, memory);
  if (table) {
    FewRows(bench, memory);
    ManyRows(bench, memory);
  }
  if (!chain) return;
  Chain layers(bench, memory);
  for (const int64_t m : {1, 2, 4, 8}) layers.Report(m);
}

}  // namespace inlay::bench
