// attention: decode against the bandwidth of reading, prefill in TFLOP/s;
// paged beside contiguous, what batch invariance costs, prefixes that sequences
// share beside each reading its own, what planning costs the host.
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernels/decode_attention/decode_attention.h"
#include "tests/bench/cuda/attention_run.h"

namespace inlay::bench {
namespace {

using namespace attention;  // NOLINT: what attention_run.h is for

// `shared` keys that all sequences have, and `own` of each.
void Shared(const Bench& bench, int batch, int shared, int own, int heads,
            int kv_heads, int head_dim = 128) {
  Case c{batch, 1, shared + own, heads, kv_heads, head_dim};
  c.shared = shared;
  Run together(bench, c);
  const double seconds = together.Seconds();
  const double plan = together.PlanSeconds();
  c.share = false;
  Run each(bench, c);
  const double unique =
      4.0 * (shared + 1.0 * batch * own) * kv_heads * head_dim;
  std::printf(
      "shared  b %3d x (%5d + %4d), heads %2d/%d x %3d: %7.1f us, %4.0f GB/s "
      "of unique bytes; each on its own %7.1f us, %.2fx; a plain read of the "
      "unique bytes %5.1f us; plan %4.1f us, %4.1f\n",
      batch, shared, own, heads, kv_heads, head_dim, 1e6 * seconds,
      1e-9 * unique / seconds, 1e6 * each.Seconds(), each.Seconds() / seconds,
      1e6 * bench.ReadSeconds(unique), 1e6 * plan, 1e6 * each.PlanSeconds());
}

void Prefill(const Bench& bench, Case c) {
  const double seconds = Run(bench, c).Seconds();
  const int block_size = c.block_size;
  c.block_size = (c.kv_len + 127) / 128 * 128;
  const double contiguous = Run(bench, c).Seconds();
  const double seen = c.causal ? c.kv_len - (c.q_len - 1) / 2.0 : c.kv_len;
  const double flops = 4.0 * c.batch * c.q_len * seen * c.heads * c.head_dim;
  std::printf(
      "prefill b %2d x %5d of %5d, heads %2d/%2d x %3d%s, block %3d: %8.1f us "
      "%4.0f TFLOP/s; contiguous %4.0f, paged %+.1f%% time\n",
      c.batch, c.q_len, c.kv_len, c.heads, c.kv_heads, c.head_dim,
      c.causal ? " causal" : "", block_size, 1e6 * seconds,
      1e-12 * flops / seconds, 1e-12 * flops / contiguous,
      100 * (seconds / contiguous - 1));
}

// A cache of bytes beside one of the queries' type; and as items, as far as
// that takes not too long.
void PrefillBytes(const Bench& bench, Case c) {
  const double seen = c.kv_len - (c.q_len - 1) / 2.0;
  const double flops = 4.0 * c.batch * c.q_len * seen * c.heads * c.head_dim;
  const double plain = Run(bench, c).Seconds();
  std::printf("bytes   b %2d x %5d of %5d, heads %2d/%2d x %3d, block %2d",
              c.batch, c.q_len, c.kv_len, c.heads, c.kv_heads, c.head_dim,
              c.block_size);
  if (c.unpack_mb > 0) {
    std::printf(", %3d MB", static_cast<int>(c.unpack_mb));
  }
  std::printf(": %8.1f us %4.0f TFLOP/s;", 1e6 * plain, 1e-12 * flops / plain);
  for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
    c.kv = kv;
    c.tiles = true;
    const double seconds = Run(bench, c).Seconds();
    std::printf(" %s %8.1f us %4.0f TFLOP/s %+5.1f%%", DTypeName(kv).data(),
                1e6 * seconds, 1e-12 * flops / seconds,
                100 * (seconds / plain - 1));
    if (flops < 1.2e12 && c.unpack_mb == 0) {
      c.tiles = false;
      const double items = Run(bench, c).Seconds();
      std::printf(", items %.1fx", items / seconds);
    }
    std::printf(";");
  }
  std::printf("\n");
}

// Decoding by the rows of the table beside each other.
void DecodeRows(const Bench& bench, Case c) {
  std::printf("rows    b %3d x 1 of %6d, heads %2d/%2d x %3d %s:", c.batch,
              c.kv_len, c.heads, c.kv_heads, c.head_dim,
              DTypeName(c.kv).data());
  const double bytes =
      2.0 * c.batch * c.kv_len * c.kv_heads *
      static_cast<double>(KvRowBytes(DescOf(c).kv, c.head_dim));
  for (const char* row : {"cuda_mma", "cuda_sm90", "cuda_plain"}) {
    c.row = row;
    const double seconds = Run(bench, c).Seconds();
    std::printf(" %s %8.1f us %5.0f GB/s;", row, 1e6 * seconds,
                1e-9 * bytes / seconds);
  }
  std::printf("\n");
}

// The rows of the table beside each other, as far as one takes not too long.
void PrefillRows(const Bench& bench, Case c) {
  const double seen = c.causal ? c.kv_len - (c.q_len - 1) / 2.0 : c.kv_len;
  const double flops = 4.0 * c.batch * c.q_len * seen * c.heads * c.head_dim;
  std::printf("rows    b %2d x %5d of %5d, heads %2d/%2d x %3d %s%s%s:",
              c.batch, c.q_len, c.kv_len, c.heads, c.kv_heads, c.head_dim,
              DTypeName(c.dtype).data(), c.causal ? " causal" : "",
              c.alibi ? " alibi" : "");
  for (const char* row : {"cuda_mma", "cuda_sm90", "cuda_plain"}) {
    c.row = row;
    if (c.row == std::string_view("cuda_plain") && flops > 3e11) continue;
    const double seconds = Run(bench, c).Seconds();
    std::printf(" %s %8.1f us %5.1f TFLOP/s;", row, 1e6 * seconds,
                1e-12 * flops / seconds);
  }
  std::printf("\n");
}

// What attention needs beside its operands, at GPT-2 medium's shape: one
// sequence, all of it at once, and its decode.
void PrintWorkspace(const Bench& bench, int64_t length) {
  const Case c{1, 1, 1, 16, 16, 64, DType::kF16};
  const AttentionDesc desc = DescOf(c);
  const AttentionPlanShape shape =
      MakeAttentionPlanShape(RowFor(desc), desc, 16, bench.stream.num_sms());
  AttentionPlanLimits limits;
  limits.sequences = 1;
  limits.tokens = length;
  limits.blocks = (length + 15) / 16;
  std::printf("workspace at %6d tokens: %zu bytes, and a plan of %zu\n",
              static_cast<int>(length),
              AttentionWorkspaceBytes(shape, 1, length),
              LayOutAttentionPlan(shape, limits).bytes);
}

}  // namespace

void BenchAttention(Bench& bench) {
  if (bench.Wants("attention_shared")) {
    Shared(bench, 64, 8192, 256, 32, 8);
    Shared(bench, 16, 32768, 512, 32, 8);
    Shared(bench, 256, 1024, 128, 32, 8);
    Shared(bench, 64, 1024, 1024, 32, 8);
    Shared(bench, 64, 8192, 256, 16, 2);
    Shared(bench, 64, 8192, 256, 32, 32);
    for (const int batch : {2, 4, 8}) {
      for (const int shared : {1024, 2048, 8192}) {
        Shared(bench, batch, shared, 256, 32, 8);
      }
    }
    Shared(bench, 64, 4096, 256, 32, 8, 64);
    Shared(bench, 64, 4096, 256, 32, 8, 256);
    Shared(bench, 256, 0, 1152, 32, 8);
  }
  if (bench.Wants("attention_decode")) {
    // Flash-Decoding's table.
    for (int batch = 256; batch >= 1; batch /= 2) {
      const int kv_len = batch == 1 ? 65536 : 65536 / batch;
      Decode(bench, {batch, 1, kv_len, 16, 2, 128, DType::kF16});
    }
    Decode(bench, {1, 1, 131072, 16, 2, 128, DType::kF16});
    // Cut as for one sequence that is alone, then as where others have that.
    for (const auto& [batch, kv_len] : {std::pair{128, 600},
                                        {16, 600},
                                        {4, 600},
                                        {128, 1100},
                                        {16, 1100},
                                        {4, 1100},
                                        {128, 2000},
                                        {16, 2000},
                                        {4, 2000}}) {
      Case c{batch, 1, kv_len, 32, 8, 128};
      Decode(bench, c);
      c.company = true;
      Decode(bench, c);
    }
    for (const int block_size : {16, 64}) {
      for (const auto& [batch, kv_len] : {std::pair{1, 8192},
                                          {1, 32768},
                                          {1, 131072},
                                          {16, 1024},
                                          {64, 1024},
                                          {128, 4096},
                                          {7, 10000}}) {
        Case c{batch, 1, kv_len, 32, 8, 128};
        c.block_size = block_size;
        Decode(bench, c);
      }
    }
    for (const int head_dim : {64, 80, 96, 192, 256}) {
      Decode(bench, {16, 1, 8192, 32, 8, head_dim});
    }
    for (const auto& [batch, kv_len] :
         {std::pair{128, 2048}, {64, 1024}, {1, 131072}, {1, 32768}}) {
      Decode(bench, {batch, 1, kv_len, 16, 2, 256});
    }
    Decode(bench, {16, 1, 4096, 32, 32, 128});
    Decode(bench, {16, 4, 8192, 32, 8, 128});
    for (const DType kv : {DType::kI8, DType::kF8E4M3}) {
      for (const auto& [batch, kv_len, head_dim] : {std::tuple{128, 4096, 128},
                                                    {16, 8192, 64},
                                                    {16, 8192, 256},
                                                    {1, 131072, 128},
                                                    {1, 32768, 128},
                                                    {64, 1024, 128}}) {
        Case c{batch, 1, kv_len, 32, 8, head_dim};
        c.kv = kv;
        Decode(bench, c);
      }
      // As many rows as an item takes.
      Case c{16, 4, 8192, 32, 8, 128};
      c.kv = kv;
      Decode(bench, c);
    }
  }
  // Latent rows of DeepSeek's: V2-Lite's heads and V3's; a prompt.
  if (bench.Wants("attention_latent")) {
    for (const int heads : {16, 128}) {
      for (const auto& [batch, q_len, kv_len] : {std::tuple{1, 1, 8192},
                                                 {1, 1, 131072},
                                                 {16, 1, 8192},
                                                 {64, 1, 4096},
                                                 {128, 1, 4096},
                                                 {1, 512, 4096}}) {
        Case c{batch, q_len, kv_len, heads, 1, 576};
        c.value_dim = 512;
        Decode(bench, c);
      }
    }
  }
  if (bench.Wants("attention_prefill")) {
    for (const int block_size : {16, 64}) {
      for (const int length : {2048, 8192, 16384}) {
        Case c{1, length, length, 32, 8, 128};
        c.block_size = block_size;
        Prefill(bench, c);
      }
    }
    Prefill(bench, {1, 16384, 16384, 32, 8, 128, DType::kBF16, false});
    Prefill(bench, {1, 16384, 16384, 16, 16, 128});
    for (const int head_dim : {64, 80, 96, 192, 256}) {
      Prefill(bench, {1, 16384, 16384, 16, 4, head_dim});
    }
    Prefill(bench, {1, 16384, 16384, 16, 4, 64, DType::kBF16, false});
    Prefill(bench, {1, 16384, 16384, 16, 4, 256, DType::kBF16, false});
    Prefill(bench, {64, 1024, 1024, 16, 16, 64, DType::kF16});
    Prefill(bench, {1, 512, 8192, 32, 8, 128});
    Prefill(bench, {1, 64, 32768, 32, 8, 128});
    for (int64_t length = 1024; length <= 131072; length *= 2) {
      PrintWorkspace(bench, length);
    }
  }
  if (bench.Wants("attention_rows")) {
    for (const DType kv : {DType::kBF16, DType::kI8}) {
      for (const auto& [batch, kv_len] : {std::pair{1, 1024},
                                          {1, 8192},
                                          {1, 131072},
                                          {16, 8192},
                                          {64, 1024},
                                          {128, 4096}}) {
        Case c{batch, 1, kv_len, 32, 8, 128};
        c.kv = kv;
        DecodeRows(bench, c);
      }
    }
    for (const int head_dim : {64, 80, 96, 192, 256}) {
      DecodeRows(bench, {16, 1, 8192, 32, 8, head_dim});
    }
    for (int length = 1024; length <= 16384; length *= 2) {
      PrefillRows(bench, {1, length, length, 32, 8, 128});
    }
    PrefillRows(bench, {1, 16384, 16384, 32, 8, 128, DType::kBF16, false});
    PrefillRows(bench, {1, 16384, 16384, 16, 16, 128, DType::kF16});
    for (const int head_dim : {64, 80, 96, 192, 256}) {
      for (const int length : {2048, 16384}) {
        PrefillRows(bench, {1, length, length, 16, 4, head_dim});
      }
    }
    PrefillRows(bench, {1, 16384, 16384, 16, 4, 64, DType::kBF16, false});
    PrefillRows(bench, {1, 16384, 16384, 16, 4, 256, DType::kBF16, false});
    PrefillRows(bench, {32, 256, 256, 32, 8, 128});
    PrefillRows(bench, {1, 512, 8192, 32, 8, 128});
    Case alibi{1, 8192, 8192, 32, 8, 128};
    alibi.alibi = true;
    PrefillRows(bench, alibi);
  }
  if (bench.Wants("attention_prefill_bytes")) {
    for (const int length : {512, 2048, 8192, 16384, 32768}) {
      PrefillBytes(bench, {1, length, length, 32, 8, 128});
    }
    for (const int head_dim : {64, 96, 192, 256}) {
      PrefillBytes(bench, {1, 8192, 8192, 16, 4, head_dim});
    }
    PrefillBytes(bench, {1, 8192, 8192, 32, 32, 128});
    PrefillBytes(bench, {32, 256, 256, 32, 8, 128});
    PrefillBytes(bench, {1, 512, 8192, 32, 8, 128});
    PrefillBytes(bench, {1, 2048, 65536, 32, 8, 128});
    // Few queries: it is unpacking that takes the time.
    PrefillBytes(bench, {1, 32, 32768, 32, 8, 128});
    Case c{1, 8192, 8192, 32, 8, 128};
    c.block_size = 64;
    PrefillBytes(bench, c);
    for (const int64_t room : {8, 16, 32, 64}) {
      c = {1, 8192, 8192, 32, 8, 128};
      c.unpack_mb = room;
      PrefillBytes(bench, c);
      c = {1, 2048, 32768, 32, 8, 128};
      c.unpack_mb = 2 * room;
      PrefillBytes(bench, c);
    }
  }
}

}  // namespace inlay::bench
