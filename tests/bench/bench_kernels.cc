// Times the CPU kernels against ceilings measured in the same run: read and
// copy bandwidth, and the rate of fused multiply-adds, with as many threads.
// Absolute numbers are noise on shared machines; the percentages are the
// result. With one thread the clock is the thread's own, which stands still
// while others have the core. Usage: bench_kernels [threads] [substring of the
// cases to run] [row of gemm to force]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_pattern.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/quant/quant.h"
#include "memory/device/device.h"
#include "memory/device/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inlay {
namespace {

struct Ceilings {
  double read_bytes_per_s = 0.0;
  double copy_bytes_per_s = 0.0;
  double flops_per_s = 0.0;
};

struct Bench {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Ceilings ceilings;
  std::string_view filter;
  std::string_view gemm_row;
};

double Now(bool alone) {
  timespec now;
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// The best of several runs: what the machine can do when nobody interferes.
template <typename Fn>
double BestSeconds(const ThreadPool& pool, Fn fn) {
  const bool alone = pool.num_threads() == 1;
  double best = 1e30;
  double spent = 0.0;
  for (int i = 0; i < 3 || (spent < 0.4 && i < 500); ++i) {
    const double start = Now(alone);
    fn();
    const double s = Now(alone) - start;
    best = std::min(best, s);
    spent += s;
  }
  return best;
}

#if defined(__x86_64__)
// Ten independent chains hide the latency of four cycles at two a cycle.
__attribute__((target("avx2,fma"))) double FmaLoop(int64_t rounds, float seed) {
  __m256 chain[10];
  for (__m256& c : chain) c = _mm256_set1_ps(seed);
  const __m256 a = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) chain[j] = _mm256_fmadd_ps(chain[j], a, a);
  }
  __m256 sum = chain[0];
  for (int j = 1; j < 10; ++j) sum = _mm256_add_ps(sum, chain[j]);
  return static_cast<double>(_mm256_cvtss_f32(sum));
}
#endif

volatile double sink;

double MeasureFlops(ThreadPool& pool) {
#if defined(__x86_64__)
  constexpr int64_t kRounds = 10000;
  const int64_t chunks = 4 * pool.num_threads();
  const double s = BestSeconds(pool, [&] {
    pool.ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        sink = FmaLoop(kRounds, static_cast<float>(i));
      }
    });
  });
  return static_cast<double>(chunks * kRounds) * 10 * 16 / s;
#else
  static_cast<void>(pool);
  return 0.0;
#endif
}

void MeasureBandwidth(ThreadPool& pool, Ceilings& ceilings) {
  // Windows of 8 MB in turn over 256 MB: short enough to fall between two
  // interruptions, cold every time.
  constexpr size_t kWords = size_t{32} << 20;
  constexpr size_t kWindow = size_t{1} << 20;
  constexpr int64_t kChunk = 1 << 12;
  std::vector<uint64_t> from(kWords, 1);
  std::vector<uint64_t> to(kWords);
  size_t turn = 0;
  const auto run = [&](auto body) {
    return BestSeconds(pool, [&] {
      const size_t base = turn++ % (kWords / kWindow) * kWindow;
      pool.ParallelFor(kWindow / kChunk, 1, [&](int64_t begin, int64_t end) {
        body(&from[base + static_cast<size_t>(begin * kChunk)],
             &to[base + static_cast<size_t>(begin * kChunk)],
             static_cast<size_t>((end - begin) * kChunk));
      });
    });
  };
  const double copy_s =
      run([](const uint64_t* source, uint64_t* target, size_t words) {
        std::memcpy(target, source, words * 8);
      });
  const double read_s =
      run([](const uint64_t* source, uint64_t*, size_t words) {
        // Asked for 2 KB ahead: what finds streams by itself leaves half of
        // memory's rate on some processors.
        constexpr size_t kAhead = 256;
        uint64_t sum[8] = {};
        for (size_t i = 0; i < words; i += 8) {
          if (i + kAhead < words) __builtin_prefetch(source + i + kAhead);
          for (size_t j = 0; j < 8; ++j) sum[j] |= source[i + j];
        }
        sink = static_cast<double>(sum[0] | sum[1] | sum[2] | sum[3] | sum[4] |
                                   sum[5] | sum[6] | sum[7]);
      });
  ceilings.copy_bytes_per_s = kWindow * 16.0 / copy_s;
  ceilings.read_bytes_per_s = kWindow * 8.0 / read_s;
}

void Report(const Bench& bench, const std::string& name, double seconds,
            double bytes, double flops) {
  std::printf("%-52s %10.1f us %8.1f GB/s (%3.0f%%) %8.1f GFLOP/s (%3.0f%%)\n",
              name.c_str(), seconds * 1e6, bytes / seconds * 1e-9,
              100 * bytes / seconds / bench.ceilings.read_bytes_per_s,
              flops / seconds * 1e-9,
              100 * flops / seconds / bench.ceilings.flops_per_s);
}

// As devices allocate.
template <typename T>
T* Aligned(std::vector<T>& values) {
  const auto address = reinterpret_cast<uintptr_t>(values.data());
  return values.data() + (Device::kAlignment - address % Device::kAlignment) %
                             Device::kAlignment / sizeof(T);
}

void FillRandom(std::vector<float>& values) {
  std::mt19937 rng(1);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 1000;
  }
}

void BenchGemm(Bench& bench, std::string_view model, int64_t n, int64_t k,
               DType weight) {
  const std::string shape = std::string("gemm ") + std::string(model) + " " +
                            std::string(DTypeName(weight)) + " n " +
                            std::to_string(n) + " k " + std::to_string(k);
  if (shape.find(bench.filter) == std::string::npos) return;
  const GemmDesc desc{n, k, weight, DType::kF32};
  const auto selected =
      Select("gemm", GemmTable(), desc, bench.device->info(), bench.gemm_row);
  if (!selected.ok()) return;
  const GemmRow& row = **selected;
  // Bytes as in the file, which is what must be read; packed may be more.
  const size_t bytes = RowBytes(weight, static_cast<size_t>(n * k));
  const size_t stride =
      row.packing == nullptr ? bytes : row.packing(desc)->bytes(desc);
  // Enough copies of the weights that none is found in cache.
  const size_t copies = std::max<size_t>(1, (size_t{192} << 20) / stride);
  std::vector<uint16_t> w((stride + 1) / 2 * copies + Device::kAlignment,
                          0x3c3c);
  std::vector<std::byte> workspace(
      Device::kAlignment +
      (row.workspace_bytes == nullptr ? 0 : row.workspace_bytes(desc, 512)));
  std::vector<float> x(static_cast<size_t>(512 * k));
  FillRandom(x);
  std::vector<float> y(static_cast<size_t>(512 * n));
  for (const int64_t m : {1, 2, 4, 8, 64, 512}) {
    size_t turn = 0;
    const double s = BestSeconds(*bench.stream->thread_pool(), [&] {
      GemmParams params;
      params.x = MatrixView(x.data(), DType::kF32, m, k);
      params.w =
          MatrixView(Aligned(w) + turn++ % copies * (stride / 2), weight, n, k);
      params.workspace = Aligned(workspace);
      params.y = MatrixView(y.data(), DType::kF32, m, n);
      row.run(desc, params, *bench.stream).IgnoreError();
    });
    Report(bench, shape + " m " + std::to_string(m), s,
           static_cast<double>(bytes),
           2.0 * static_cast<double>(m) * static_cast<double>(n * k));
  }
}

void BenchAttention(Bench& bench, std::string_view name, AttentionDesc desc,
                    int batch, int q_len, int kv_len,
                    const std::string& pattern_text = "") {
  const std::string label =
      std::string("attention ") + std::string(name) + " " +
      std::string(DTypeName(desc.kv)) + " batch " + std::to_string(batch) +
      " q " + std::to_string(q_len) + " kv " + std::to_string(kv_len) +
      (pattern_text.empty() ? "" : " " + pattern_text);
  if (label.find(bench.filter) == std::string::npos) return;
  constexpr int kBlock = 16;
  const int blocks = (kv_len + kBlock - 1) / kBlock;
  // Several layers, so that the cache of one is cold when its turn comes.
  constexpr int kLayers = 4;
  const KvLayout layout(
      std::vector<KvLayerShape>(kLayers, {desc.num_kv_heads, desc.head_dim}),
      desc.kv, kBlock);
  std::vector<uint16_t> cache(
      layout.block_bytes() / 2 * static_cast<size_t>(blocks * batch), 0x3c3c);
  std::vector<int32_t> table(static_cast<size_t>(blocks * batch));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i);
  std::mt19937 rng(1);
  std::shuffle(table.begin(), table.end(), rng);
  std::vector<AttentionSequence> sequences;
  for (int b = 0; b < batch; ++b) {
    sequences.push_back(
        {b * q_len, q_len, kv_len, &table[static_cast<size_t>(b * blocks)]});
  }
  const int64_t width = int64_t{desc.num_heads} * desc.head_dim;
  std::vector<float> q(static_cast<size_t>(batch * q_len * width));
  FillRandom(q);
  std::vector<float> out(q.size());
  const AttentionRow& row =
      **Select("attention", AttentionTable(), desc, bench.device->info());
  const AttentionPattern pattern = *ParseAttentionPattern(pattern_text);
  std::vector<AttentionPatternRows> rows;
  std::vector<AttentionMaskSpec> specs;
  rows.reserve(sequences.size());
  for (const AttentionSequence& sequence : sequences) {
    rows.emplace_back(pattern, true, sequence);
    specs.push_back(rows.back().Spec());
  }
  const AttentionMask mask = *CompileAttentionMask(desc, sequences, specs);
  int layer = 0;
  const double s = BestSeconds(*bench.stream->thread_pool(), [&] {
    AttentionParams params;
    if (pattern.any()) params.mask = &mask;
    params.q = MatrixView(q.data(), DType::kF32, batch * q_len, width);
    params.out = MatrixView(out.data(), DType::kF32, batch * q_len, width);
    params.kv = layout.LayerView(layer++ % kLayers,
                                 reinterpret_cast<std::byte*>(cache.data()));
    params.sequences = sequences;
    row.run(desc, params, *bench.stream).IgnoreError();
  });
  double seen = q_len * (kv_len - (q_len - 1) / 2.0) * batch;
  double share = 1.0;
  if (pattern.any()) {
    double shown = 0.0;
    for (const AttentionRowKeys& row : mask.rows) {
      for (int64_t k = row.begin; k < row.end; ++k) shown += mask.BitOf(row, k);
    }
    share = shown / seen;
    seen = shown;
    std::printf("keeps %4.1f %%: ", 100.0 * share);
  }
  Report(bench, label, s,
         share * static_cast<double>(layout.block_bytes()) / kLayers * blocks *
             batch,
         4.0 * seen * static_cast<double>(width));
}

// A prompt of one sequence, through as many layers in turn as leave none of
// their states in a cache.
struct StateStep {
  static constexpr int kBlock = 64;

  StateStep(int tokens, int64_t state_floats)
      : stride((state_floats * 4 + 63) / 64 * 64),
        blocks((tokens + kBlock - 1) / kBlock + 1),
        layers(std::max<int64_t>(1, (int64_t{96} << 20) / (stride * blocks))),
        states(static_cast<size_t>(stride * blocks * layers) / 4 +
               Device::kAlignment) {
    for (int i = 1; i < blocks; ++i) table.push_back(i);
    sequence.push_back({0, tokens, tokens, table.data()});
  }

  StateParams Params() {
    StateParams params;
    params.sequences = sequence;
    params.sources = &source;
    params.state.base = reinterpret_cast<std::byte*>(Aligned(states));
    params.state.block_stride_bytes = stride * layers;
    params.state.offset_bytes = turn++ % layers * stride;
    params.state.block_size = kBlock;
    return params;
  }

  int64_t stride;
  int blocks;
  int64_t layers;
  int64_t turn = 0;
  std::vector<float> states;
  std::vector<int32_t> table;
  std::vector<AttentionSequence> sequence;
  int32_t source = 0;
};

void BenchLinearAttention(Bench& bench, std::string_view name,
                          const LinearAttentionDesc& desc, int tokens) {
  const std::string label = "linear_attention " + std::string(name) + " " +
                            std::to_string(tokens) + " tokens";
  if (label.find(bench.filter) == std::string::npos) return;
  const int64_t key_width = int64_t{desc.num_key_heads} * desc.key_dim;
  const int64_t width = int64_t{desc.num_heads} * desc.value_dim;
  const int64_t gates = desc.decay == StateDecay::kChannel
                            ? int64_t{desc.num_heads} * desc.key_dim
                            : desc.num_heads;
  const auto floats = [&](int64_t columns, float scale) {
    std::vector<float> values(static_cast<size_t>(tokens * columns));
    FillRandom(values);
    for (float& value : values) value *= scale;
    return values;
  };
  auto q = floats(key_width, 0.1f), k = floats(key_width, 0.1f);
  auto v = floats(width, 1.0f), y = floats(width, 0.0f);
  auto decay = floats(gates, 0.0f), beta = floats(desc.num_heads, 0.0f);
  for (float& value : decay) value = 0.95f;
  for (float& value : beta) value = 0.5f;
  StateStep step(tokens, LinearAttentionStateFloats(desc));
  LinearAttentionParams params;
  params.q = MatrixView(q.data(), DType::kF32, tokens, key_width);
  params.k = MatrixView(k.data(), DType::kF32, tokens, key_width);
  params.v = MatrixView(v.data(), DType::kF32, tokens, width);
  params.y = MatrixView(y.data(), DType::kF32, tokens, width);
  params.decay = MatrixView(decay.data(), DType::kF32, tokens, gates);
  params.beta = MatrixView(beta.data(), DType::kF32, tokens, desc.num_heads);
  const LinearAttentionRow& row = **Select(
      "linear_attention", LinearAttentionTable(), desc, bench.device->info());
  const double s = BestSeconds(*bench.stream->thread_pool(), [&] {
    params.state = step.Params();
    row.run(desc, params, *bench.stream).IgnoreError();
  });
  // An element of a state: decayed, read for y, added to, and by the delta rule
  // read for what it already gives.
  Report(bench, label, s, static_cast<double>(step.stride * step.blocks),
         (desc.delta ? 8.0 : 6.0) * static_cast<double>(desc.key_dim * width) *
             tokens);
}

void BenchShortConv(Bench& bench, int channels, int tokens) {
  const std::string label = "short_conv 4 taps " + std::to_string(channels) +
                            " channels " + std::to_string(tokens) + " tokens";
  if (label.find(bench.filter) == std::string::npos) return;
  ShortConvDesc desc;
  desc.channels = channels;
  desc.num_taps = 4;
  desc.silu = true;
  std::vector<float> x(static_cast<size_t>(int64_t{tokens} * channels));
  FillRandom(x);
  std::vector<float> y(x.size()), taps(static_cast<size_t>(4 * channels));
  FillRandom(taps);
  StateStep step(tokens, int64_t{3} * channels);
  ShortConvParams params;
  params.x = MatrixView(x.data(), DType::kF32, tokens, channels);
  params.y = MatrixView(y.data(), DType::kF32, tokens, channels);
  params.taps = taps.data();
  const ShortConvRow& row =
      **Select("short_conv", ShortConvTable(), desc, bench.device->info());
  const double s = BestSeconds(*bench.stream->thread_pool(), [&] {
    params.state = step.Params();
    row.run(desc, params, *bench.stream).IgnoreError();
  });
  Report(bench, label, s, 8.0 * channels * tokens, 8.0 * channels * tokens);
}

LinearAttentionDesc StateHeads(int heads, int key_heads, int key_dim,
                               int value_dim, StateDecay decay, bool delta) {
  LinearAttentionDesc desc;
  desc.num_heads = heads;
  desc.num_key_heads = key_heads;
  desc.key_dim = key_dim;
  desc.value_dim = value_dim;
  desc.decay = decay;
  desc.delta = delta;
  return desc;
}

void BenchPool(Bench& bench) {
  constexpr int kLoops = 2000;
  const double s = BestSeconds(*bench.stream->thread_pool(), [&] {
    for (int i = 0; i < kLoops; ++i) {
      bench.stream->thread_pool()->ParallelFor(
          64, 1,
          [](int64_t begin, int64_t) { sink = static_cast<double>(begin); });
    }
  });
  std::printf("empty parallel loop: %.2f us\n", s / kLoops * 1e6);
}

AttentionDesc Heads(int heads, int kv_heads, int head_dim, DType kv) {
  AttentionDesc desc;
  desc.num_heads = heads;
  desc.num_kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.kv = kv;
  desc.scale = 0.1f;
  return desc;
}

int Main(int argc, char** argv) {
  Bench bench;
  bench.filter = argc > 2 ? argv[2] : "";
  bench.gemm_row = argc > 3 ? argv[3] : "";
  auto device = CreateCpuDevice(argc > 1 ? std::atoi(argv[1]) : 0, 0);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return 1;
  }
  bench.device = *std::move(device);
  bench.stream = *bench.device->CreateStream();
  ThreadPool& pool = *bench.stream->thread_pool();
  MeasureBandwidth(pool, bench.ceilings);
  bench.ceilings.flops_per_s = MeasureFlops(pool);
  std::printf("threads %d: read %.1f GB/s, copy %.1f GB/s, FMA %.1f GFLOP/s\n",
              pool.num_threads(), bench.ceilings.read_bytes_per_s * 1e-9,
              bench.ceilings.copy_bytes_per_s * 1e-9,
              bench.ceilings.flops_per_s * 1e-9);
  BenchPool(bench);
  for (const DType weight : {DType::kBF16, DType::kF16, DType::kF32}) {
    BenchGemm(bench, "1B", 2048, 2048, weight);
    BenchGemm(bench, "1B", 8192, 2048, weight);
    BenchGemm(bench, "1B", 2048, 8192, weight);
  }
  for (const BlockCodec* codec : BlockCodecs()) {
    BenchGemm(bench, "quantised", 4096, 4096, codec->dtype);
  }
  BenchGemm(bench, "8B", 6144, 4096, DType::kBF16);
  BenchGemm(bench, "8B", 14336, 4096, DType::kBF16);
  BenchGemm(bench, "8B", 4096, 14336, DType::kBF16);
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                         DType::kF8E4M3, DType::kKvQ4}) {
    const AttentionDesc small = Heads(32, 8, 64, kv);
    const AttentionDesc large = Heads(32, 8, 128, kv);
    BenchAttention(bench, "1B", small, 1, 1, 8192);
    BenchAttention(bench, "1B", small, 32, 1, 1024);
    BenchAttention(bench, "1B", small, 1, 2048, 2048);
    BenchAttention(bench, "8B", large, 1, 1, 8192);
    BenchAttention(bench, "8B", large, 16, 1, 1024);
    BenchAttention(bench, "8B", large, 1, 512, 2048);
  }
  // What attention costs as less is kept.
  const AttentionDesc sparse = Heads(32, 8, 128, DType::kBF16);
  for (const int q_len : {1, 256}) {
    BenchAttention(bench, "sparse", sparse, 1, q_len, 16384);
    for (const char* pattern :
         {"window=16384", "window=8192", "window=4096", "window=2048",
          "window=1024", "window=512", "window=1024,global=64,random=960",
          "global=64,stride=512,window=512", "segment=4096,random=1024"}) {
      BenchAttention(bench, "sparse", sparse, 1, q_len, 16384, pattern);
    }
  }
  for (const int tokens : {1, 512}) {
    BenchLinearAttention(bench, "qwen3_next",
                         StateHeads(32, 16, 128, 128, StateDecay::kHead, true),
                         tokens);
    BenchLinearAttention(
        bench, "kimi_linear",
        StateHeads(32, 32, 128, 128, StateDecay::kChannel, true), tokens);
    BenchLinearAttention(bench, "mamba2",
                         StateHeads(80, 1, 128, 64, StateDecay::kHead, false),
                         tokens);
    LinearAttentionDesc plain =
        StateHeads(32, 32, 128, 128, StateDecay::kNone, false);
    plain.feature_map = FeatureMap::kEluPlusOne;
    plain.normalised = true;
    plain.epsilon = 1e-6f;
    BenchLinearAttention(bench, "linear", plain, tokens);
    BenchShortConv(bench, 8192, tokens);
  }
  return 0;
}

}  // namespace
}  // namespace inlay

int main(int argc, char** argv) { return inlay::Main(argc, argv); }
