// gemm: Llama-3-8B's layers in bf16. Few rows: our kernel beside cuBLASLt, in
// GB/s of the weights and as a share of the copy bandwidth; many: cuBLASLt
// through our row, TFLOP/s. Calls follow each other in a graph, each with
// weights that are in no cache.
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemv_cuda.h"
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

// GB/s of the weights by consumers and shared memory, two blocks a cluster.
void Plans(Bench& bench, Memory& memory) {
  constexpr int kShared[] = {64, 80, 96, 113, 144, 176, 208, 226};
  std::printf(
      "GB/s, 4 consumers | 8, each with 64 80 96 113 144 176 208 226 KB\n");
  for (const Layer& layer : kLayers) {
    const GemmDesc desc = DescOf(layer);
    const double bytes = 2.0 * static_cast<double>(layer.n * layer.k);
    for (const int64_t m : {1, 8}) {
      std::printf("%-8s %3d", layer.name, static_cast<int>(m));
      for (const int consumers : {4, 8}) {
        if (consumers == 8) std::printf(" |");
        for (const int shared_kb : kShared) {
          GemvPlan plan = PlanGemv(layer.n, layer.k, m, bench.stream.num_sms());
          plan.consumers = consumers;
          plan.shared_bytes = shared_kb << 10;
          if (BulkGemvStages(desc, m, plan) < 3) {
            std::printf("     -");
            continue;
          }
          const double seconds = GraphSeconds(bench, kCalls, [&](int i) {
            return RunBulkGemv(desc, memory.Params(layer, m, i), plan,
                               bench.stream);
          });
          std::printf(" %5.0f", 1e-9 * bytes / seconds);
        }
      }
      std::printf("\n");
    }
  }
}

void FewRows(Bench& bench, Memory& memory) {
  std::printf("%-8s %3s %9s %7s %6s %9s %7s\n", "linear", "m", "us", "GB/s",
              "%copy", "cublas us", "ratio");
  for (const Layer& layer : kLayers) {
    const GemmDesc desc = DescOf(layer);
    const double bytes = 2.0 * static_cast<double>(layer.n * layer.k);
    for (const int64_t m : {1, 2, 4, 8, 16}) {
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
    for (const int64_t m : {32, 64, 256, 2048}) {
      const double seconds = GraphSeconds(bench, 8, [&](int i) {
        return row.run(desc, memory.Params(layer, m, i), bench.stream);
      });
      std::printf("%-8s %5d %9.2f %8.1f\n", layer.name, static_cast<int>(m),
                  1e6 * seconds,
                  2e-12 * static_cast<double>(m * layer.n * layer.k) / seconds);
    }
  }
}

// The products of a layer's decode step one after the other, as they depend on
// each other: what memory gives when nothing but weights is read.
void WholeLayers(Bench& bench, Memory& memory) {
  for (const int64_t m : {1, 8}) {
    double bytes = 0.0;
    for (int l = 0; l < 4; ++l)
      bytes += 2.0 * static_cast<double>(kLayers[l].n * kLayers[l].k);
    const double seconds = GraphSeconds(bench, 16, [&](int i) {
      for (int l = 0; l < 4; ++l) {
        const Layer& layer = kLayers[l];
        INLAY_RETURN_IF_ERROR(
            RowOf(bench, layer, "cuda_gemv")
                .run(DescOf(layer), memory.Params(layer, m, i), bench.stream));
      }
      return absl::OkStatus();
    });
    std::printf("a layer's four products, m %d: %.2f us, %.0f GB/s\n",
                static_cast<int>(m), 1e6 * seconds, 1e-9 * bytes / seconds);
  }
}

}  // namespace

void BenchLinear(Bench& bench) {
  if (!bench.Wants("linear")) return;
  const absl::Status cublas = PrepareGemmCuda(bench.stream);
  if (!cublas.ok()) {
    std::printf("linear: %s\n", std::string(cublas.message()).c_str());
    return;
  }
  Memory memory;
  Plans(bench, memory);
  FewRows(bench, memory);
  WholeLayers(bench, memory);
  ManyRows(bench, memory);
}

}  // namespace inlay::bench
