// linear_quantised: Llama-3-8B's layers with quantised weights beside those in
// bf16 of the same run: time, GB/s of the packed bytes and as a share of the
// copy bandwidth, bf16's time over ours. Calls follow each other in a graph,
// each with weights that are in no cache. "linear_quantised_plans": how the
// best ways of cutting compare with the one that is taken.
// "linear_quantised_one_order": where the batch must not tell. "linear_codes":
// x rounded to codes of 8 bits beside x as it is.
#include <random>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/many_rows_packed_cuda.h"
#include "kernels/gemm/quantised/pack.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"
#include "tests/bench/cuda/cuda_graph.h"
#include "tests/bench/cuda/packed_weights.h"

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
    // Down of models of other sizes: 1B, 14B, 70B.
    {"down1", 2048, 8192, DType::kF32, true},
    {"down14", 5120, 13824, DType::kF32, true},
    {"down70", 8192, 28672, DType::kF32, true},
};
constexpr int kBlockLayers = 4;  // the first: of a block of 8B
constexpr DType kFormats[] = {DType::kU4_G128, DType::kQ4_0, DType::kQ4_K,
                              DType::kQ6_K,    DType::kQ8_0, DType::kF8_G128,
                              DType::kIQ4_NL};
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

constexpr size_t kPoolBytes = size_t{1200} << 20;
constexpr int kCalls = 40;

struct Memory {
  Memory()
      : weights(kPoolBytes),
        x(size_t{64} << 20),
        y(size_t{512} << 20),
        workspace(size_t{256} << 20) {
    x.Randomize(DType::kBF16, 2);
  }
  GemmParams Params(const Layer& layer, DType dtype, size_t bytes, int64_t m,
                    int call) {
    const size_t places = std::max<size_t>(1, kPoolBytes / bytes);
    GemmParams params;
    params.x = MatrixView(x.data(), DType::kBF16, m, layer.k);
    params.w =
        MatrixView(weights.data() + static_cast<size_t>(call) % places * bytes,
                   dtype, layer.n, layer.k);
    params.y = MatrixView(y.data(), layer.output, m, layer.n);
    if (layer.residual) params.residual = params.y;
    params.workspace = workspace.data();
    return params;
  }
  DeviceMemory weights, x, y, workspace;
};

GemmDesc DescOf(const Layer& layer, DType dtype) {
  return {layer.n, layer.k, dtype, DType::kBF16, layer.output};
}

double Bytes(const Layer& layer, DType dtype) {
  return dtype == DType::kBF16 ? 2.0 * static_cast<double>(layer.n * layer.k)
                               : static_cast<double>(QuantBytes(
                                     QuantFormOf(dtype), layer.n, layer.k));
}

double Time(Bench& bench, Memory& memory, const Layer& layer, DType dtype,
            int64_t m, bool batch_invariant = false) {
  GemmDesc desc = DescOf(layer, dtype);
  desc.batch_invariant = batch_invariant;
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  auto row = Select("gemm", GemmTable(), desc, device);
  Require(row.status());
  const auto bytes = static_cast<size_t>(Bytes(layer, dtype));
  return GraphSeconds(bench, m > 64 ? 10 : kCalls, [&](int i) {
    return (*row)->run(desc, memory.Params(layer, dtype, bytes, m, i),
                       bench.stream);
  });
}

void Table(Bench& bench, Memory& memory) {
  for (const Layer& layer : kLayers) {
    double plain[std::size(kRows)];
    memory.weights.Randomize(DType::kBF16, 1);
    std::printf("%-8s bf16     us", layer.name);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      plain[i] = Time(bench, memory, layer, DType::kBF16, kRows[i]);
      std::printf(" %d: %.1f", static_cast<int>(kRows[i]), 1e6 * plain[i]);
    }
    std::printf("\n");
    for (const DType dtype : kFormats) {
      FillPacked(dtype, layer.k, memory.weights);
      std::printf("%-8s %-8s us,%%copy,ratio", layer.name,
                  std::string(DTypeName(dtype)).c_str());
      for (size_t i = 0; i < std::size(kRows); ++i) {
        const double seconds = Time(bench, memory, layer, dtype, kRows[i]);
        const double rate = 1e-9 * Bytes(layer, dtype) / seconds;
        std::printf(" %d: %.1f,%.0f,%.2f", static_cast<int>(kRows[i]),
                    1e6 * seconds, 100 * rate / bench.copy_gbps,
                    plain[i] / seconds);
      }
      std::printf("\n");
    }
  }
}

// us of the plan taken, then of the best of all.
void Plans(Bench& bench, Memory& memory, const Layer& layer, DType dtype,
           int64_t m) {
  constexpr size_t kShown = 6;
  constexpr int kMostShares = 14;
  const QuantForm form = QuantFormOf(dtype);
  const GemmDesc desc = DescOf(layer, dtype);
  const auto bytes = static_cast<size_t>(Bytes(layer, dtype));
  const int x_tiles = m <= 8 ? 1 : m <= 16 ? 2 : 4;
  const int sms = bench.stream.num_sms();
  struct Tried {
    StreamedPlan plan;
    double seconds;
  };
  const auto timed = [&](const StreamedPlan& plan) {
    return Tried{plan, GraphSeconds(bench, 24, [&](int i) {
                   return RunQuantisedStreamed(
                       desc, memory.Params(layer, dtype, bytes, m, i), form,
                       plan, bench.stream);
                 })};
  };
  const auto print = [](const Tried& tried) {
    const StreamedPlan& p = tried.plan;
    std::printf(" | %.2f c%d s%d u%d r%d p%d", 1e6 * tried.seconds, p.cluster,
                p.shares, p.place_units, p.rounds, p.places);
  };
  std::vector<Tried> all;
  for (const int cluster : {1, 2, 4}) {
    for (const int units : {1, 2}) {
      for (int shares = 1; shares <= kMostShares; ++shares) {
        StreamedPlan plan;
        plan.x_tiles = x_tiles;
        plan.cluster = cluster;
        plan.place_units = units;
        plan.shares = shares;
        if (FitStreamedPlan(form, layer.n, layer.k, sms, plan) &&
            plan.shares == shares) {
          all.push_back(timed(plan));
        }
      }
    }
  }
  std::sort(all.begin(), all.end(), [](const Tried& a, const Tried& b) {
    return a.seconds < b.seconds;
  });
  std::printf("%-8s %-7s %2d:", layer.name,
              std::string(DTypeName(dtype)).c_str(), static_cast<int>(m));
  print(timed(PlanStreamed(form, layer.n, layer.k, x_tiles, sms)));
  std::printf(" || best of %d", static_cast<int>(all.size()));
  for (size_t i = 0; i < std::min(kShown, all.size()); ++i) print(all[i]);
  std::printf("\n");
}

// "linear_quantised_wide", 17 and more rows: us of bf16, of the plan taken
// (columns, splits), of all plans.
void WidePlans(Bench& bench, Memory& memory, const Layer& layer,
               const std::vector<DType>& formats) {
  constexpr int64_t kWideBatches[] = {32, 64, 128, 256, 512};
  double plain[std::size(kWideBatches)];
  memory.weights.Randomize(DType::kBF16, 1);
  for (size_t i = 0; i < std::size(kWideBatches); ++i) {
    plain[i] = Time(bench, memory, layer, DType::kBF16, kWideBatches[i]);
  }
  for (const DType dtype : formats) {
    FillPacked(dtype, layer.k, memory.weights);
    const QuantForm form = QuantFormOf(dtype);
    const GemmDesc desc = DescOf(layer, dtype);
    const auto bytes = static_cast<size_t>(Bytes(layer, dtype));
    for (size_t i = 0; i < std::size(kWideBatches); ++i) {
      const int64_t m = kWideBatches[i];
      const int sms = bench.stream.num_sms();
      const auto time = [&](const WidePlan& plan) {
        return GraphSeconds(bench, m > 64 ? 10 : kCalls, [&](int call) {
          return RunQuantisedWide(desc,
                                  memory.Params(layer, dtype, bytes, m, call),
                                  form, plan, bench.stream);
        });
      };
      const WidePlan usual = PlanWide(form, layer.n, layer.k, m, sms);
      const double seconds = time(usual);
      std::printf("%-8s %-7s %3d: bf16 %.1f; %.1f, %.2f (%d/%d) |", layer.name,
                  std::string(DTypeName(dtype)).c_str(), static_cast<int>(m),
                  1e6 * plain[i], 1e6 * seconds, plain[i] / seconds,
                  usual.columns, usual.splits);
      for (const int columns : {64, 128}) {
        if (columns > 2 * m) continue;
        for (const int splits : {1, 2, 4, 8}) {
          WidePlan plan;
          plan.columns = columns;
          plan.splits = splits;
          FitWidePlan(form, layer.n, layer.k, m, sms, plan);
          std::printf(" %d/%d w%d x%d %.1f", columns, splits, plan.w_stages,
                      plan.x_stages, 1e6 * time(plan));
        }
      }
      std::printf("\n");
    }
  }
}

// "linear_quantised_one_order": us of what batch-invariant models take, of the
// kernels that they choose among, of what others take, of bf16 in one order.
void OneOrder(Bench& bench, Memory& memory, const Layer& layer) {
  constexpr int64_t kBatches[] = {1, 8, 16, 32, 64, 128, 256, 512, 2048};
  double plain[std::size(kBatches)];
  memory.weights.Randomize(DType::kBF16, 1);
  for (size_t i = 0; i < std::size(kBatches); ++i) {
    plain[i] = Time(bench, memory, layer, DType::kBF16, kBatches[i], true);
  }
  for (const DType dtype : {DType::kU4_G128, DType::kQ4_K, DType::kQ8_0}) {
    FillPacked(dtype, layer.k, memory.weights);
    const QuantForm form = QuantFormOf(dtype);
    const GemmDesc desc = DescOf(layer, dtype);
    const auto bytes = static_cast<size_t>(Bytes(layer, dtype));
    StreamedPlans plans;
    if (!PlanStreamedInOneOrder(form, layer.n, layer.k, bench.stream.num_sms(),
                                plans)) {
      continue;
    }
    for (size_t i = 0; i < std::size(kBatches); ++i) {
      const int64_t m = kBatches[i];
      const auto time = [&](const auto& run) {
        return 1e6 * GraphSeconds(bench, m > 64 ? 8 : kCalls, [&](int call) {
                 return run(memory.Params(layer, dtype, bytes, m, call));
               });
      };
      const StreamedPlan& plan = plans.For(m);
      const double some = m > 32 ? 0.0 : time([&](const GemmParams& params) {
        return RunQuantisedStreamed(desc, params, form, plan, bench.stream);
      });
      const double many = time([&](const GemmParams& params) {
        return RunManyRowsPacked(desc, params, form, plan, bench.stream);
      });
      std::printf(
          "%-8s %-7s c%d s%d u%d %4d: %.1f (some %.1f, many %.1f, %.0f "
          "TFLOP/s), else %.1f, bf16 %.1f\n",
          layer.name, std::string(DTypeName(dtype)).c_str(), plan.cluster,
          plan.shares, plan.place_units, static_cast<int>(m),
          1e6 * Time(bench, memory, layer, dtype, m, true), some, many,
          2e-6 * static_cast<double>(m * layer.n * layer.k) / many,
          1e6 * Time(bench, memory, layer, dtype, m), 1e6 * plain[i]);
    }
  }
}

// "linear_codes", weights of 8 bits: us of bf16, of x as it is, of x rounded
// and multiplied as codes, of that product alone by the plan taken and by all.
void CodesPlans(Bench& bench, Memory& memory, const Layer& layer) {
  constexpr int64_t kBatches[] = {24, 32, 64, 128, 256, 512, 1024};
  constexpr int kGraphCalls = 10;
  double plain[std::size(kBatches)];
  memory.weights.Randomize(DType::kBF16, 1);
  for (size_t i = 0; i < std::size(kBatches); ++i) {
    plain[i] = Time(bench, memory, layer, DType::kBF16, kBatches[i]);
  }
  const struct {
    DType dtype;
    ScaleReach reach;
    const char* name;
  } kinds[] = {{DType::kF8_G128, ScaleReach::kRow, "e4m3 rows"},
               {DType::kF8_G128, ScaleReach::kBlock, "e4m3 blocks"},
               {DType::kI8_G128, ScaleReach::kRow, "int8"}};
  for (const auto& kind : kinds) {
    const bool whole = kind.dtype == DType::kI8_G128;
    FillPacked(kind.dtype, layer.k, memory.weights);
    const QuantForm form = QuantFormOf(kind.dtype);
    GemmDesc desc = DescOf(layer, kind.dtype);
    desc.scale_reach = kind.reach;
    const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
    const auto row = Select("gemm", GemmTable(), desc, device,
                            whole ? "cuda_int8" : "cuda_fp8");
    Require(row.status());
    const auto bytes = static_cast<size_t>(Bytes(layer, kind.dtype));
    for (size_t i = 0; i < std::size(kBatches); ++i) {
      const int64_t m = kBatches[i];
      const int sms = bench.stream.num_sms();
      const double as_it_is = Time(bench, memory, layer, kind.dtype, m);
      const double rounded = GraphSeconds(bench, kGraphCalls, [&](int call) {
        return (*row)->run(desc,
                           memory.Params(layer, kind.dtype, bytes, m, call),
                           bench.stream);
      });
      const auto time = [&](const WidePlan& plan) {
        return GraphSeconds(bench, kGraphCalls, [&](int call) {
          GemmParams params = memory.Params(layer, kind.dtype, bytes, m, call);
          params.x = MatrixView(
              memory.x.data(), whole ? DType::kI8 : DType::kF8E4M3, m, layer.k);
          params.x_scales = reinterpret_cast<float*>(memory.workspace.data());
          return RunQuantisedWide(desc, params, form, plan, bench.stream);
        });
      };
      const WidePlan usual = PlanWide(form, layer.n, layer.k, m, sms, true);
      const double alone = time(usual);
      std::printf(
          "%-8s %-11s %4d: bf16 %.1f; x as it is %.1f, %.2f; rounded %.1f, "
          "%.2f; codes %.1f (%d/%d), %.0f TFLOP/s |",
          layer.name, kind.name, static_cast<int>(m), 1e6 * plain[i],
          1e6 * as_it_is, plain[i] / as_it_is, 1e6 * rounded,
          plain[i] / rounded, 1e6 * alone, usual.columns, usual.splits,
          2e-12 * static_cast<double>(m * layer.n * layer.k) / alone);
      WidePlan plan;
      plan.codes = true;
      for (plan.columns = 64; plan.columns <= 128; plan.columns *= 2) {
        if (plan.columns > 2 * m) continue;
        for (plan.splits = 1; plan.splits <= 4; plan.splits *= 2) {
          FitWidePlan(form, layer.n, layer.k, m, sms, plan);
          std::printf(" %d/%d %.1f", plan.columns, plan.splits,
                      1e6 * time(plan));
        }
      }
      std::printf("\n");
    }
  }
}

}  // namespace

void BenchLinearQuantised(Bench& bench) {
  const bool table = bench.Wants("linear_quantised_table");
  const bool plans = bench.Wants("linear_quantised_plans");
  const bool wide = bench.Wants("linear_quantised_wide");
  const bool codes = bench.Wants("linear_codes");
  const bool one_order = bench.Wants("linear_quantised_one_order");
  if (!table && !plans && !wide && !codes && !one_order) return;
  Memory memory;
  if (one_order) {
    Require(PrepareGemmCuda(bench.stream));
    for (int i = 0; i < kBlockLayers; ++i) OneOrder(bench, memory, kLayers[i]);
  }
  if (codes) {
    Require(PrepareGemmCuda(bench.stream));
    for (const Layer& layer : kLayers) {
      if (layer.n <= 28672 && layer.n * layer.k >= (16 << 20)) {
        CodesPlans(bench, memory, layer);
      }
    }
  }
  if (wide) {
    Require(PrepareGemmCuda(bench.stream));
    for (const Layer& layer : kLayers) {
      WidePlans(bench, memory, layer, {DType::kU4_G128, DType::kQ8_0});
    }
  }
  if (table) {
    Require(PrepareGemmCuda(bench.stream));
    Table(bench, memory);
  }
  if (!plans) return;
  for (const DType dtype : {DType::kU4_G128, DType::kQ4_K}) {
    for (const Layer& layer : kLayers) {
      FillPacked(dtype, layer.k, memory.weights);
      for (const int64_t m : {4, 8, 16, 32}) {
        if (dtype == DType::kQ4_K && m != 16) continue;
        Plans(bench, memory, layer, dtype, m);
      }
    }
  }
}

}  // namespace inlay::bench
