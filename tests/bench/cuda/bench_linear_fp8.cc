// linear_fp8: Llama-3-8B's layers with e4m3 weights and many rows of x beside
// cuBLASLt in bf16 of the same run: TFLOP/s of the product alone and of all
// that the row "cuda_fp8" does (x to e4m3, weights unpacked, product), by how
// far scales reach; and of all that "cuda_int8" does with int8 weights.
#include <cstring>
#include <random>
#include <vector>

#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/fp8_cuda.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rounding/rounding_cuda.h"
#include "memory/status.h"
#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {
namespace {

struct Layer {
  const char* name;
  int64_t n;
  int64_t k;
  DType output;
};

constexpr Layer kLayers[] = {
    {"qkv", 6144, 4096, DType::kBF16},
    {"o", 4096, 4096, DType::kF32},
    {"gate_up", 28672, 4096, DType::kBF16},
    {"down", 4096, 14336, DType::kF32},
};
constexpr int64_t kRows[] = {2048, 8192};
constexpr ScaleReach kReaches[] = {ScaleReach::kRow, ScaleReach::kBlock,
                                   ScaleReach::kGroup};

struct Memory {
  Memory()
      : weights(size_t{256} << 20),
        x(size_t{8192} * 14336 * 2),
        y(size_t{8192} * 28672 * 2),
        workspace(size_t{640} << 20) {
    x.Randomize(DType::kBF16, 2);
  }
  // A tile of random codes of f8_g128 or i8_g128 over and over; its scales are
  // all 1, minima 0.
  void Fill(const Layer& layer, DType dtype) {
    const QuantMatrix matrix(dtype, layer.k);
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, 100.0f);
    const size_t block = static_cast<size_t>(matrix.block_bytes);
    const size_t head = block - 128;
    std::vector<std::byte> rows(
        static_cast<size_t>(kQuantRows * layer.k / 128) * block);
    const float one = 1.0f;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % block == 0) std::memcpy(&rows[i], &one, sizeof(one));
      if (i % block < head) continue;
      rows[i] = dtype == DType::kI8_G128 ? static_cast<std::byte>(rng())
                                         : std::byte{F32ToF8E4M3(normal(rng))};
    }
    std::vector<std::byte> tile(
        static_cast<size_t>(QuantTileBytes(matrix.form, layer.k)));
    PackQuantised(matrix, rows.data(), 0, kQuantRows, tile.data());
    for (int64_t t = 0; t < layer.n / kQuantRows; ++t) {
      Require(cudaMemcpy(weights.data() + static_cast<size_t>(t) * tile.size(),
                         tile.data(), tile.size(), cudaMemcpyHostToDevice));
    }
  }
  DeviceMemory weights, x, y, workspace;
};

struct Times {
  double product = 0.0;
  double unpack = 0.0;
  double quantise = 0.0;
  double whole = 0.0;
};

GemmParams Params(Memory& memory, const Layer& layer, int64_t m) {
  GemmParams params;
  params.x = MatrixView(memory.x.data(), DType::kBF16, m, layer.k);
  params.w =
      MatrixView(memory.weights.data(), DType::kF8_G128, layer.n, layer.k);
  params.y = MatrixView(memory.y.data(), layer.output, m, layer.n);
  if (layer.output == DType::kF32) params.residual = params.y;
  params.workspace = memory.workspace.data();
  return params;
}

Times TimesOf(Bench& bench, Memory& memory, CublasLt& cublas,
              const Layer& layer, int64_t m, ScaleReach reach) {
  Times times;
  const QuantMatrix matrix(DType::kF8_G128, layer.k);
  GemmDesc desc{layer.n, layer.k, DType::kF8_G128, DType::kBF16, layer.output};
  desc.scale_reach = reach;
  GemmParams params = Params(memory, layer, m);
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  const auto row = Select("gemm", GemmTable(), desc, device, "cuda_fp8");
  Require(row.status());
  times.whole = bench.Seconds(
      [&](int) { Require((*row)->run(desc, params, bench.stream)); }, 3);
  std::byte* at = memory.workspace.data() + CublasLt::kWorkspaceBytes;
  const auto part = [&](int64_t bytes) {
    std::byte* here = at;
    at += (bytes + 255) / 256 * 256;
    return here;
  };
  std::byte* w_codes = part(layer.n * layer.k);
  std::byte* x_codes = part(m * layer.k);
  auto* w_scales = reinterpret_cast<float*>(
      part(4 * Fp8WeightScales(reach, layer.n, layer.k)));
  auto* x_scales = reinterpret_cast<float*>(part(4 * m * QuantUnits(layer.k)));
  times.unpack = bench.Seconds(
      [&](int) {
        Require(RunUnpackCodes(matrix, memory.weights.data(), 0, layer.n, reach,
                               w_codes, w_scales, bench.stream));
      },
      3);
  RoundingDesc plain;
  plain.width = layer.k;
  RoundingParams round;
  round.rounding = reach == ScaleReach::kRow ? RowRounding::kFp8Rows
                                             : RowRounding::kFp8Groups;
  round.x = params.x;
  round.codes = MatrixView(x_codes, DType::kF8E4M3, m, layer.k);
  round.scales = x_scales;
  times.quantise = bench.Seconds(
      [&](int) { Require(RunRoundingCuda(plain, round, bench.stream)); }, 3);
  const Fp8Scales scales = {reach, w_scales, x_scales};
  desc.weight = desc.activation = DType::kF8E4M3;
  params.x = MatrixView(x_codes, DType::kF8E4M3, m, layer.k);
  params.w = MatrixView(w_codes, DType::kF8E4M3, layer.n, layer.k);
  times.product = bench.Seconds(
      [&](int) { Require(cublas.Run(desc, params, bench.stream, &scales)); },
      3);
  return times;
}

double WholeOfInt8(Bench& bench, Memory& memory, const Layer& layer,
                   int64_t m) {
  GemmDesc desc{layer.n, layer.k, DType::kI8_G128, DType::kBF16, layer.output};
  desc.scale_reach = ScaleReach::kRow;
  GemmParams params = Params(memory, layer, m);
  params.w.dtype = desc.weight;
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  const auto row = Select("gemm", GemmTable(), desc, device, "cuda_int8");
  Require(row.status());
  return bench.Seconds(
      [&](int) { Require((*row)->run(desc, params, bench.stream)); }, 3);
}

double Plain(Bench& bench, Memory& memory, CublasLt& cublas, const Layer& layer,
             int64_t m, DeviceMemory& weights) {
  const GemmDesc desc{layer.n, layer.k, DType::kBF16, DType::kBF16,
                      layer.output};
  GemmParams params = Params(memory, layer, m);
  params.w = MatrixView(weights.data(), DType::kBF16, layer.n, layer.k);
  return bench.Seconds(
      [&](int) { Require(cublas.Run(desc, params, bench.stream)); }, 3);
}

}  // namespace

void BenchLinearFp8(Bench& bench) {
  if (!bench.Wants("linear_fp8")) return;
  const auto cublas = CublasLtOf(bench.stream);
  Require(cublas.status());
  Memory memory;
  DeviceMemory plain_weights(size_t{256} << 20);
  plain_weights.Randomize(DType::kBF16, 1);
  constexpr const char* kNames[] = {"group", "block", "row"};
  double sums[std::size(kRows)][5] = {};
  for (const Layer& layer : kLayers) {
    memory.Fill(layer, DType::kF8_G128);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      const int64_t m = kRows[i];
      const double flops = 2.0 * static_cast<double>(m * layer.n * layer.k);
      const double plain =
          Plain(bench, memory, **cublas, layer, m, plain_weights);
      sums[i][0] += plain;
      std::printf("%-8s m %5d bf16 %7.1f us %5.0f TFLOP/s", layer.name,
                  static_cast<int>(m), 1e6 * plain, 1e-12 * flops / plain);
      for (size_t j = 0; j < std::size(kReaches); ++j) {
        const Times t = TimesOf(bench, memory, **cublas, layer, m, kReaches[j]);
        sums[i][1 + j] += t.whole;
        std::printf(" | %s %.0f TFLOP/s, x %.1f, w %.1f, all %.1f us, %.2fx",
                    kNames[static_cast<int>(kReaches[j])],
                    1e-12 * flops / t.product, 1e6 * t.quantise, 1e6 * t.unpack,
                    1e6 * t.whole, plain / t.whole);
      }
      std::printf("\n");
    }
    memory.Fill(layer, DType::kI8_G128);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      const double whole = WholeOfInt8(bench, memory, layer, kRows[i]);
      sums[i][4] += whole;
      std::printf("%-8s m %5d int8 all %.1f us\n", layer.name,
                  static_cast<int>(kRows[i]), 1e6 * whole);
    }
  }
  for (size_t i = 0; i < std::size(kRows); ++i) {
    std::printf(
        "all four, m %5d: bf16 %8.1f us, row %.2fx, block %.2fx, "
        "group %.2fx, int8 %.2fx\n",
        static_cast<int>(kRows[i]), 1e6 * sums[i][0], sums[i][0] / sums[i][1],
        sums[i][0] / sums[i][2], sums[i][0] / sums[i][3],
        sums[i][0] / sums[i][4]);
  }
}

}  // namespace inlay::bench
