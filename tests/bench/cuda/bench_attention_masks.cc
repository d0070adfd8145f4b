// attention under masks, ALiBi and patterns: prompts in TFLOP/s over the pairs
// that are seen, single queries beside dense ones.
#include <cstdio>
#include <utility>

#include "tests/bench/cuda/attention_run.h"

namespace inlay::bench {
namespace {

using namespace attention;  // NOLINT: what attention_run.h is for

// Prompts of 16k under a mask, in TFLOP/s over the pairs that are seen.
void Masked(const Bench& bench, const char* name, Case c) {
  Run run(bench, c);
  const double seconds = run.Seconds();
  double pairs = run.pairs();
  if (c.mask == Mask::kNone) {
    pairs = double{1} * c.batch * c.q_len *
            (c.causal ? (c.kv_len + 1) / 2.0 : c.kv_len);
  }
  const double flops = 4.0 * pairs * c.heads * c.head_dim;
  std::printf(
      "mask    %-34s b %2d x %5d, heads %2d/%2d x %3d: %8.1f us %4.0f TFLOP/s "
      "over %4.1f%% of all pairs; host %6.0f us\n",
      name, c.batch, c.kv_len, c.heads, c.kv_heads, c.head_dim, 1e6 * seconds,
      1e-12 * flops / seconds,
      100.0 * pairs / (double{1} * c.batch * c.q_len * c.kv_len),
      run.plan_us());
}

void Masks(const Bench& bench, int heads, int kv_heads, int head_dim) {
  constexpr int kLength = 16384;
  Case c{1, kLength, kLength, heads, kv_heads, head_dim};
  const auto run = [&](const char* name, Mask mask, bool causal,
                       bool alibi = false) {
    c.mask = mask;
    c.causal = causal;
    c.alibi = alibi;
    Masked(bench, name, c);
  };
  run("causal", Mask::kNone, true);
  run("causal, as a mask", Mask::kEmpty, true);
  run("16 documents of 1k, causal", Mask::kDocuments, true);
  run("16 documents of 1k, both ways", Mask::kDocuments, false);
  run("prefix of 8k, then causal", Mask::kPrefix, true);
  run("blocks of 128, 1 in 4, causal", Mask::kBlocks, true);
  run("blocks of 128, 1 in 4, both ways", Mask::kBlocks, false);
  run("causal, ALiBi", Mask::kNone, true, true);
  run("16 documents of 1k, ALiBi", Mask::kDocuments, true, true);
  c = {16, 1024, 1024, heads, kv_heads, head_dim};
  Masked(bench, "16 sequences of 1k, causal", c);
}

// What a pattern costs by what it keeps: few queries, read and masked or
// gathered, and prompts.
void Patterns(const Bench& bench, Case c) {
  const double all =
      double{1} * c.batch * c.q_len * (c.kv_len - (c.q_len - 1) / 2.0);
  const double dense = Run(bench, c).Seconds();
  std::printf(
      "pattern b %2d x %5d of %6d, heads %2d/%d x %3d: dense %8.1f us\n",
      c.batch, c.q_len, c.kv_len, c.heads, c.kv_heads, c.head_dim, 1e6 * dense);
  for (const char* pattern :
       {"window=32768", "window=16384,global=64", "window=8192,global=64",
        "window=4096,global=64", "window=1024,global=64",
        "window=1024,global=64,random=2048", "stride=512",
        "window=1024,dilated=65536,dilation=256",
        "segment=4096,global=4096,context=131008"}) {
    c.pattern = pattern;
    c.gathers = true;
    Run run(bench, c);
    const double seconds = run.Seconds();
    std::printf("  %-40s keeps %5.1f%%: %8.1f us, %5.1f%% of dense", pattern,
                100 * run.pairs() / all, 1e6 * seconds, 100 * seconds / dense);
    if (c.q_len <= kMostGatheringQueries) {
      c.gathers = false;
      const double masked = Run(bench, c).Seconds();
      std::printf("; masked %8.1f us, %5.1f%%", 1e6 * masked,
                  100 * masked / dense);
    }
    std::printf("; host %5.0f us\n", run.plan_us());
  }
}

}  // namespace

void BenchAttentionMasks(Bench& bench) {
  if (bench.Wants("attention_patterns")) {
    Patterns(bench, {1, 1, 131072, 32, 8, 128});
    Patterns(bench, {16, 1, 32768, 32, 8, 128});
    Patterns(bench, {1, 4, 131072, 32, 8, 128});
    Patterns(bench, {1, 16, 131072, 32, 8, 128});
    Patterns(bench, {1, 64, 131072, 32, 8, 128});
    Patterns(bench, {1, 16384, 16384, 32, 8, 128});
  }
  if (bench.Wants("attention_masks")) {
    Masks(bench, 32, 8, 128);
    Masks(bench, 16, 16, 64);
    for (const auto& [batch, kv_len] : {std::pair{128, 4096}, {16, 8192}}) {
      Case c{batch, 1, kv_len, 32, 8, 128};
      for (const bool alibi : {false, true}) {
        c.alibi = alibi;
        std::printf("%s: ", alibi ? "ALiBi" : "plain");
        Decode(bench, c);
      }
    }
  }
}

}  // namespace inlay::bench
