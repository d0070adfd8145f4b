// router: moe_router beside the ops it stands for, rms_norm, gemm and
// moe_routing: us. Each call has weights that are in no cache; code is.
#include <algorithm>
#include <string>

#include "kernels/gemm/gemm.h"
#include "kernels/moe/router.h"
#include "kernels/rms_norm/rms_norm.h"
#include "memory/status.h"
#include "tests/bench/cuda/cuda_graph.h"

namespace inlay::bench {
namespace {

struct Shape {
  const char* name;
  int64_t width;
  RoutingDesc routing;
};
constexpr RoutingScore kSigmoid = RoutingScore::kSigmoid;
constexpr Shape kShapes[] = {
    {"qwen3-30b-a3b", 2048, {128, 8, RoutingScore::kSoftmax, true}},
    {"gpt-oss-20b", 2880, {32, 4, RoutingScore::kSoftmax, true}},
    {"minimax-m2", 3072, {256, 8, kSigmoid, true}},
    {"glm-4.5-air", 4096, {128, 8, kSigmoid, true}},
    {"qwen3-next", 2048, {512, 10, RoutingScore::kSoftmax, true}},
    {"glm-4.5", 5120, {160, 8, kSigmoid, true}},
    {"deepseek-v3",
     7168,
     {256, 8, kSigmoid, true, 8, 4, GroupScore::kTopTwo, 2.5f}},
    {"kimi-k2", 7168, {384, 8, kSigmoid, true}},
};
constexpr int64_t kTokens[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int64_t kMostTokens = 64;
constexpr size_t kPoolBytes = size_t{600} << 20;
constexpr int kCalls = 24;

struct Memory {
  Memory() : weights(kPoolBytes), x(size_t{8} << 20), y(size_t{16} << 20) {
    weights.Randomize(DType::kBF16, 1);
    x.Randomize(DType::kBF16, 2);
  }
  DeviceMemory weights, x, y;
  DeviceMemory workspace{size_t{64} << 20};
};

template <typename Row, typename Desc>
const Row& RowOf(const Bench& bench, const char* op,
                 absl::Span<const Row> table, const Desc& desc) {
  DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  device.num_sms = bench.stream.num_sms();
  auto row = Select(op, table, desc, device);
  Require(row.status());
  return **row;
}

void Time(Bench& bench, Memory& memory, const Shape& shape, DType weight) {
  const int64_t experts = shape.routing.num_experts;
  MoeRouterDesc desc{shape.routing, shape.width, weight, DType::kBF16};
  const RmsNormDesc norm{shape.width, DType::kF32, DType::kBF16};
  const GemmDesc gemm{experts, shape.width, weight, DType::kBF16, DType::kF32};
  const auto& fused = RowOf(bench, "moe_router", MoeRouterTable(), desc);
  const auto& norm_row = RowOf(bench, "rms_norm", RmsNormTable(), norm);
  const auto& gemm_row = RowOf(bench, "gemm", GemmTable(), gemm);
  const auto& routing_row =
      RowOf(bench, "moe_routing", RoutingTable(), shape.routing);
  const size_t bytes =
      RowBytes(weight, static_cast<size_t>(experts * shape.width));
  const size_t places = kPoolBytes / bytes;
  std::printf("%-14s %-5s", shape.name, weight == DType::kF32 ? "f32" : "bf16");
  for (const int64_t tokens : kTokens) {
    if (tokens > MoeRouterTokens(desc)) break;
    MoeRouterParams params;
    params.hidden =
        MatrixView(memory.x.data(), DType::kF32, tokens, shape.width);
    params.norm = reinterpret_cast<const float*>(memory.x.data()) + (1 << 20);
    params.epsilon = 1e-5f;
    params.normalised =
        MatrixView(memory.y.data(), DType::kBF16, tokens, shape.width);
    std::byte* rest = memory.y.data() + (kMostTokens << 15);
    const auto take = [&](int64_t count) {
      std::byte* own = rest;
      rest += (count * 4 + 255) / 256 * 256;
      return own;
    };
    RoutingParams& routed = params.routed;
    routed.logits =
        MatrixView(take(tokens * experts), DType::kF32, tokens, experts);
    const int64_t slots = tokens * shape.routing.top_k;
    routed.experts = reinterpret_cast<int32_t*>(take(slots));
    routed.weights = reinterpret_cast<float*>(take(slots));
    routed.offsets = reinterpret_cast<int32_t*>(take(experts + 1));
    routed.slots = reinterpret_cast<int32_t*>(take(slots));
    const auto place = [&](int call) {
      params.w = MatrixView(
          memory.weights.data() + static_cast<size_t>(call) % places * bytes,
          weight, experts, shape.width);
    };
    const double one = GraphSeconds(bench, kCalls, [&](int call) {
      place(call);
      return fused.run(desc, params, bench.stream);
    });
    const double apart = GraphSeconds(bench, kCalls, [&](int call) {
      place(call);
      INLAY_RETURN_IF_ERROR(norm_row.run(
          norm, {params.hidden, params.norm, params.epsilon, params.normalised},
          bench.stream));
      GemmParams product;
      product.x = params.normalised;
      product.w = params.w;
      product.y = routed.logits;
      product.workspace = memory.workspace.data();
      INLAY_RETURN_IF_ERROR(gemm_row.run(gemm, product, bench.stream));
      return routing_row.run(shape.routing, routed, bench.stream);
    });
    std::printf("  %5.1f (%5.1f)", 1e6 * one, 1e6 * apart);
  }
  std::printf("\n");
}

}  // namespace

void BenchRouter(Bench& bench) {
  if (!bench.Wants("router")) return;
  std::printf("router       us, and of the ops apart, of 1 2 4 .. 64 tokens\n");
  Memory memory;
  for (const Shape& shape : kShapes) {
    for (const DType weight : {DType::kBF16, DType::kF32}) {
      Time(bench, memory, shape, weight);
    }
  }
}

}  // namespace inlay::bench
