// experts: gates and ups with their activation and outputs of mixtures of
// quantised experts, by each kernel of expert_linear: us, and of the fastest
// GB/s of the experts that are asked for as a share of the copy bandwidth.
// Tokens choose experts at random, each call with other weights that are in no
// cache.
#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/gemm/quantised/pack.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/quant/quant.h"
#include "memory/status.h"
#include "tests/bench/cuda/cuda_graph.h"
#include "tests/bench/cuda/packed_weights.h"

namespace inlay::bench {
namespace {

struct Mixture {
  const char* name;
  int experts;
  int top_k;
  int64_t hidden;
  int64_t width;
};
constexpr Mixture kMixtures[] = {{"qwen3-30b-a3b", 128, 8, 2048, 768},
                                 {"mixtral-8x7b", 8, 2, 4096, 14336},
                                 {"gpt-oss-20b", 32, 4, 2880, 2880},
                                 {"qwen3-next", 512, 10, 2048, 512}};
constexpr DType kFormats[] = {DType::kU4_G128, DType::kQ4_K, DType::kMXFP4,
                              DType::kQ6_K, DType::kQ8_0};
constexpr int64_t kTokens[] = {1, 2, 4, 8, 16, 32, 64, 128};
constexpr size_t kPoolBytes = size_t{1600} << 20;
constexpr int kCalls = 24;

// What routing gives of tokens that choose evenly.
struct Choice {
  Choice(const Mixture& mixture, int64_t tokens, unsigned seed)
      : lists(static_cast<size_t>(mixture.experts + 1 +
                                  2 * tokens * mixture.top_k) *
              sizeof(int32_t)) {
    std::mt19937 rng(seed);
    std::vector<int32_t> all(static_cast<size_t>(mixture.experts));
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::vector<int32_t>> slots_of(all.size());
    std::vector<int32_t> host(all.size() + 1);
    std::vector<int32_t> slots;
    for (int64_t t = 0; t < tokens; ++t) {
      std::shuffle(all.begin(), all.end(), rng);
      for (int r = 0; r < mixture.top_k; ++r) {
        const int32_t e = all[static_cast<size_t>(r)];
        slots_of[static_cast<size_t>(e)].push_back(
            static_cast<int32_t>(t * mixture.top_k + r));
        experts.push_back(e);
      }
    }
    for (size_t e = 0; e < all.size(); ++e) {
      active += slots_of[e].empty() ? 0 : 1;
      slots.insert(slots.end(), slots_of[e].begin(), slots_of[e].end());
      host[e + 1] = static_cast<int32_t>(slots.size());
    }
    num_experts = all.size();
    host.insert(host.end(), slots.begin(), slots.end());
    host.insert(host.end(), experts.begin(), experts.end());
    Require(cudaMemcpy(lists.data(), host.data(), host.size() * sizeof(int32_t),
                       cudaMemcpyHostToDevice));
  }
  void Fill(ExpertLinearParams& params) const {
    params.offsets = reinterpret_cast<const int32_t*>(lists.data());
    params.slots = params.offsets + num_experts + 1;
    params.experts = params.slots + experts.size();
  }
  DeviceMemory lists;
  size_t num_experts;
  std::vector<int32_t> experts;
  int active = 0;
};

struct Memory {
  Memory()
      : weights(kPoolBytes),
        x(size_t{64} << 20),
        y(size_t{128} << 20),
        workspace(size_t{64} << 20) {
    x.Randomize(DType::kBF16, 2);
  }
  DeviceMemory weights, x, y, workspace;
};

// A layer's gates and ups, or its outputs.
void Time(Bench& bench, Memory& memory, const Mixture& mixture, DType dtype,
          bool outputs) {
  ExpertLinearDesc desc;
  desc.gemm = outputs ? GemmDesc{mixture.hidden, mixture.width, dtype,
                                 DType::kBF16, DType::kF32}
                      : GemmDesc{2 * mixture.width, mixture.hidden, dtype,
                                 DType::kBF16, DType::kBF16};
  if (desc.gemm.k % GetFormatInfo(dtype).block_elements != 0) return;
  desc.num_experts = mixture.experts;
  desc.top_k = mixture.top_k;
  desc.row_a_slot = outputs;
  FillPacked(dtype, desc.gemm.k, memory.weights);
  const QuantForm form = QuantFormOf(dtype);
  const auto expert =
      static_cast<size_t>(QuantBytes(form, desc.gemm.n, desc.gemm.k));
  const size_t layer = expert * static_cast<size_t>(mixture.experts);
  const size_t places = std::max<size_t>(1, kPoolBytes / layer);
  const DeviceInfo device{DeviceKind::kCuda, "cuda", bench.stream.sm()};
  const auto activation = Select("activation", ActivationTable(),
                                 ActivationDesc{.function = Activation::kSilu,
                                                .gated = true,
                                                .width = mixture.width,
                                                .activation = DType::kBF16},
                                 device);
  Require(activation.status());
  std::printf("%-14s %-8s %-7s", mixture.name,
              std::string(DTypeName(dtype)).c_str(),
              outputs ? "outputs" : "gates");
  for (const int64_t tokens : kTokens) {
    std::deque<Choice> choices;
    double active = 0.0;
    for (unsigned i = 0; i < 8; ++i) {
      choices.emplace_back(mixture, tokens, 7 * i + 1);
      active += choices.back().active / 8.0;
    }
    const auto time = [&](bool gated, auto run) {
      ExpertLinearDesc own = desc;
      own.gated = gated && !outputs;
      return GraphSeconds(bench, kCalls, [&](int call) -> absl::Status {
        const auto i = static_cast<size_t>(call);
        ExpertLinearParams params;
        params.x =
            MatrixView(memory.x.data(), DType::kBF16,
                       outputs ? tokens * mixture.top_k : tokens, desc.gemm.k);
        params.y = MatrixView(memory.y.data(), desc.gemm.output,
                              tokens * mixture.top_k, desc.gemm.n);
        params.w.base = memory.weights.data() + i % places * layer;
        params.w.stride_bytes = expert;
        params.workspace = memory.workspace.data();
        choices[i % choices.size()].Fill(params);
        INLAY_RETURN_IF_ERROR(run(own, params, bench.stream));
        if (outputs || own.gated) return absl::OkStatus();
        ActivationParams activate;
        activate.x = activate.y = params.y;
        activate.y.dims[1] = mixture.width;
        return (*activation)
            ->run({Activation::kSilu, true, mixture.width, DType::kBF16},
                  activate, bench.stream);
      });
    };
    const double few = time(false, RunExpertLinearQuantisedFew);
    const double grouped =
        tokens >= 16 ? time(false, RunExpertLinearGrouped) : 1.0;
    const double streamed = time(true, RunExpertStreamed);
    const double best = std::min({few, grouped, streamed});
    std::printf(" | %d: %.1f %.1f %.1f, %.0f%%", static_cast<int>(tokens),
                1e6 * few, grouped < 1.0 ? 1e6 * grouped : 0.0, 1e6 * streamed,
                100.0 * active * static_cast<double>(expert) * 1e-9 / best /
                    bench.copy_gbps);
  }
  std::printf("\n");
}

// Prompts of weights of 8 bits: x as it is, x rounded by the op, and before it.
struct Rounded {
  const char* name;
  DType dtype;
  ScaleReach reach;
};
constexpr Rounded kRounded[] = {
    {"f8_g128 rows", DType::kF8_G128, ScaleReach::kRow},
    {"f8_g128 groups", DType::kF8_G128, ScaleReach::kGroup},
    {"i8_g128 rows", DType::kI8_G128, ScaleReach::kRow}};
constexpr int64_t kPromptTokens[] = {512, 1024, 2048, 8192};

void TimePrompts(Bench& bench, const Mixture& mixture, const Rounded& rounded,
                 bool outputs) {
  ExpertLinearDesc desc;
  desc.gemm = outputs ? GemmDesc{mixture.hidden, mixture.width, rounded.dtype,
                                 DType::kBF16, DType::kF32}
                      : GemmDesc{2 * mixture.width, mixture.hidden,
                                 rounded.dtype, DType::kBF16, DType::kBF16};
  desc.gemm.scale_reach = rounded.reach;
  desc.num_experts = mixture.experts;
  desc.top_k = mixture.top_k;
  desc.row_a_slot = outputs;
  const auto expert = static_cast<size_t>(
      QuantBytes(QuantFormOf(rounded.dtype), desc.gemm.n, desc.gemm.k));
  const size_t layer = expert * static_cast<size_t>(mixture.experts);
  const size_t places = std::max<size_t>(1, kPoolBytes / layer);
  const DeviceMemory weights(places * layer);
  FillPacked(rounded.dtype, desc.gemm.k, weights);
  const int64_t most = kPromptTokens[std::size(kPromptTokens) - 1];
  const int64_t slots = most * mixture.top_k;
  DeviceMemory x(static_cast<size_t>((outputs ? slots : most) * desc.gemm.k) *
                 2);
  x.Randomize(DType::kBF16, 2);
  const DeviceMemory y(static_cast<size_t>(slots * desc.gemm.n) * 4);
  const DeviceMemory workspace(ExpertCodesBytes(desc, most));
  const DeviceMemory scales(static_cast<size_t>(slots * desc.gemm.k / 128) * 4);
  std::printf("%-14s %-14s %-7s", mixture.name, rounded.name,
              outputs ? "outputs" : "gates");
  for (const int64_t tokens : kPromptTokens) {
    std::deque<Choice> choices;
    for (unsigned i = 0; i < 4; ++i) {
      choices.emplace_back(mixture, tokens, 7 * i + 1);
    }
    const auto time = [&](bool given, auto run) {
      return bench.Seconds([&](int call) {
        const auto i = static_cast<size_t>(call);
        ExpertLinearParams params;
        params.x =
            MatrixView(x.data(), DType::kBF16,
                       outputs ? tokens * mixture.top_k : tokens, desc.gemm.k);
        if (given) {
          params.x.dtype =
              RoundingDType(ExpertCodesRounding(desc, tokens * mixture.top_k));
          params.x.row_stride_bytes /= 2;
          params.x_scales = reinterpret_cast<const float*>(scales.data());
        }
        params.y = MatrixView(y.data(), desc.gemm.output,
                              tokens * mixture.top_k, desc.gemm.n);
        params.w.base = weights.data() + i % places * layer;
        params.w.stride_bytes = expert;
        params.workspace = workspace.data();
        choices[i % choices.size()].Fill(params);
        Require(run(desc, params, bench.stream));
      });
    };
    const double grouped = time(false, RunExpertLinearGrouped);
    const double codes = time(false, RunExpertCodes);
    const double given = time(true, RunExpertCodes);
    const double flops = 2e-12 * static_cast<double>(tokens * mixture.top_k) *
                         static_cast<double>(desc.gemm.n * desc.gemm.k);
    std::printf(" | %d: %.0f %.0f %.0f, %.2f, %.0f", static_cast<int>(tokens),
                1e6 * grouped, 1e6 * codes, 1e6 * given, grouped / codes,
                flops / given);
  }
  std::printf("\n");
}

}  // namespace

void BenchExpertPrompts(Bench& bench) {
  if (!bench.Wants("expert_prompts")) return;
  std::printf(
      "\nexpert_prompts: tokens: us with x as it is, rounded, rounded before; "
      "times as fast; TFLOP/s of the last\n");
  for (const Mixture& mixture : {kMixtures[0], kMixtures[1], kMixtures[3]}) {
    for (const Rounded& rounded : kRounded) {
      for (const bool outputs : {false, true}) {
        TimePrompts(bench, mixture, rounded, outputs);
      }
    }
  }
}

void BenchExperts(Bench& bench) {
  if (!bench.Wants("experts")) return;
  std::printf(
      "\nexperts: tokens: us of few slots' kernel, of many slots', streamed, "
      "%% "
      "of copy of the fastest\n");
  Memory memory;
  for (const Mixture& mixture : kMixtures) {
    for (const DType dtype : kFormats) {
      for (const bool outputs : {false, true}) {
        Time(bench, memory, mixture, dtype, outputs);
      }
    }
  }
}

}  // namespace inlay::bench
