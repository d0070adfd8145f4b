// attention: decode against the bandwidth of reading, prefill in TFLOP/s;
// paged beside contiguous, what batch invariance costs, masks and ALiBi,
// prefixes that sequences share beside each reading its own, what planning
// costs the host.
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/decode_attention/decode_attention.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {
namespace {

enum class Mask { kNone, kEmpty, kDocuments, kPrefix, kBlocks };

struct Case {
  int batch;
  int q_len;
  int kv_len;
  int heads;
  int kv_heads;
  int head_dim;
  DType dtype = DType::kBF16;  // of queries, and of the cache but for kv
  bool causal = true;
  int block_size = 16;
  DType kv = DType::kF32;  // f32: as dtype
  bool batch_invariant = true;
  int shared = 0;     // keys that all sequences share, a multiple of block_size
  bool share = true;  // and read together
  Mask mask = Mask::kNone;
  bool alibi = false;
  bool tiles = true;      // false: prompts are items
  int64_t unpack_mb = 0;  // room for what tiles over bytes unpack; 0: as it is
  int value_dim = 0;      // AttentionDesc's
  bool company = false;   // decode_attention has sequences that are alone
};

// Of one sequence of `length`: documents of 1024, the first half a prefix, one
// in four blocks of 128 x 128 and the diagonal's.
class Description {
 public:
  Description(Mask mask, int length) {
    if (mask == Mask::kDocuments) {
      for (int at = 0; at < length; at += 1024) documents_.push_back(at);
      spec_.documents = documents_;
    }
    if (mask == Mask::kPrefix) spec_.prefix = length / 2;
    if (mask != Mask::kBlocks) return;
    const int rows = (length + 127) / 128;
    spec_.row_words = (rows + 31) / 32;
    spec_.query_block = 128;
    spec_.key_block = 128;
    blocks_.resize(static_cast<size_t>(rows * spec_.row_words));
    std::mt19937 rng(4);
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = rng() & rng();
    for (int i = 0; i < rows; ++i) {
      blocks_[static_cast<size_t>(i * spec_.row_words + i / 32)] |= uint32_t{1}
                                                                    << i % 32;
    }
    spec_.blocks = blocks_;
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  const AttentionMaskSpec& spec() const { return spec_; }

 private:
  std::vector<int32_t> documents_;
  std::vector<uint32_t> blocks_;
  AttentionMaskSpec spec_;
};

// Pairs of a query and a key that it sees.
double PairsOf(const AttentionMask& mask) {
  int64_t pairs = 0;
  for (const AttentionRowKeys& row : mask.rows) {
    for (int64_t key = row.begin; key < row.end;) {
      const int64_t next =
          row.bits < 0
              ? row.end
              : std::min<int64_t>(((key >> row.key_shift) + 1) << row.key_shift,
                                  row.end);
      if (mask.BitOf(row, key)) pairs += next - key;
      key = next;
    }
  }
  return static_cast<double>(pairs);
}

const AttentionRow& RowFor(const AttentionDesc& desc) {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.sm = 90;
  const auto row = Select("attention", AttentionTable(), desc, info);
  Require(row.status());
  return **row;
}

AttentionDesc DescOf(const Case& c) {
  AttentionDesc desc;
  desc.num_heads = c.heads;
  desc.num_kv_heads = c.kv_heads;
  desc.head_dim = c.head_dim;
  desc.value_dim = c.value_dim;
  desc.kv = c.kv == DType::kF32 ? c.dtype : c.kv;
  desc.activation = c.dtype;
  desc.causal = c.causal;
  desc.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  return desc;
}

// One layer's cache large enough that the next use of a set of sequences finds
// nothing of it in the level-2 cache, and plans over shuffled blocks.
class Run {
 public:
  Run(const Bench& bench, const Case& c)
      : bench_(bench),
        desc_(DescOf(c)),
        row_(RowFor(desc_)),
        layout_({{c.kv_heads, c.head_dim, 0, c.value_dim}}, desc_.kv,
                c.block_size),
        blocks_a_sequence_((c.kv_len + c.block_size - 1) / c.block_size),
        blocks_a_set_(c.batch * blocks_a_sequence_ -
                      (c.batch - 1) * (c.shared / c.block_size)),
        sets_(Sets()),
        cache_(layout_.block_bytes() *
               static_cast<size_t>(sets_ * blocks_a_set_)),
        q_(static_cast<size_t>(c.batch) * c.q_len * c.heads * c.head_dim * 2),
        out_(q_.bytes()) {
    FillCache(c.dtype);
    q_.Randomize(c.dtype, 2);
    ids_.resize(cache_.bytes() / layout_.block_bytes());
    std::iota(ids_.begin(), ids_.end(), 0);
    std::mt19937 rng(3);
    std::shuffle(ids_.begin(), ids_.end(), rng);
    for (int set = 0; set < sets_; ++set) AddPlan(c, set);
    const int64_t tokens = int64_t{c.batch} * c.q_len;
    params_.q = MatrixView(q_.data(), c.dtype, tokens, c.heads * c.head_dim);
    params_.out =
        MatrixView(out_.data(), c.dtype, tokens, c.heads * desc_.out_dim());
    params_.kv = layout_.LayerView(0, cache_.data());
    if (c.alibi) {
      std::vector<float> slopes(static_cast<size_t>(c.heads));
      FillAlibiSlopes(c.heads, slopes.data());
      slopes_ = std::make_unique<DeviceMemory>(slopes.size() * sizeof(float));
      Require(cudaMemcpy(slopes_->data(), slopes.data(), slopes_->bytes(),
                         cudaMemcpyHostToDevice));
      params_.alibi_slopes = reinterpret_cast<const float*>(slopes_->data());
    }
    workspace_ = std::make_unique<DeviceMemory>(AttentionWorkspaceBytes(
        plans_.front().shape, c.batch, int64_t{c.batch} * c.q_len));
    params_.workspace = workspace_->data();
  }

  // What making a plan takes, in this process' caches.
  double PlanSeconds() const {
    constexpr int kTimes = 200;
    std::vector<double> seconds;
    const Planned& planned = planned_.front();
    std::vector<std::byte> image(planned.image_bytes);
    for (int i = 0; i < kTimes; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      BuildAttentionPlan(plans_.front().shape, planned.limits,
                         planned.sequences, image.data());
      seconds.push_back(std::chrono::duration<double>(
                            std::chrono::steady_clock::now() - begin)
                            .count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[kTimes / 2];
  }

  // With a mask: pairs seen, and the host's time for it and the plan.
  double pairs() const { return pairs_; }
  double plan_us() const { return plan_us_; }

  double Seconds() {
    return bench_.Seconds([&](int i) {
      params_.plan = &plans_[static_cast<size_t>(i % sets_)];
      Require(row_.run(desc_, params_, bench_.stream));
    });
  }

 private:
  struct Planned {
    std::vector<std::vector<int32_t>> tables;
    std::vector<AttentionSequence> sequences;
    AttentionPlanLimits limits;
    size_t image_bytes = 0;
  };

  // Rows of bytes as they are written: a few blocks, over and over.
  void FillCache(DType dtype) {
    if (desc_.kv == dtype) return cache_.Randomize(dtype, 1);
    const size_t row = KvRowBytes(desc_.kv, desc_.head_dim);
    const size_t first =
        std::min<size_t>(cache_.bytes(), 16 * layout_.block_bytes());
    std::vector<std::byte> rows(first);
    std::vector<float> values(static_cast<size_t>(desc_.head_dim));
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (size_t at = 0; at + row <= first; at += row) {
      for (float& x : values) x = normal(rng);
      EncodeKvRow(desc_.kv, values.data(), desc_.head_dim, &rows[at]);
    }
    Require(
        cudaMemcpy(cache_.data(), rows.data(), first, cudaMemcpyHostToDevice));
    for (size_t have = first; have < cache_.bytes(); have *= 2) {
      Require(cudaMemcpy(cache_.data() + have, cache_.data(),
                         std::min(have, cache_.bytes() - have),
                         cudaMemcpyDeviceToDevice));
    }
  }

  int Sets() const {
    const double bytes =
        static_cast<double>(layout_.block_bytes()) * blocks_a_set_;
    return std::max(2, static_cast<int>(std::ceil(300e6 / bytes)));
  }

  void AddPlan(const Case& c, int set) {
    Planned& planned = planned_.emplace_back();
    const int shared = c.shared / c.block_size;
    const int own = blocks_a_sequence_ - shared;
    const auto first = ids_.begin() + set * blocks_a_set_;
    for (int s = 0; s < c.batch; ++s) {
      std::vector<int32_t>& table =
          planned.tables.emplace_back(first, first + shared);
      const auto rest = first + shared + s * own;
      table.insert(table.end(), rest, rest + own);
    }
    std::vector<AttentionSequence>& sequences = planned.sequences;
    for (int s = 0; s < c.batch; ++s) {
      sequences.push_back({s * c.q_len, c.q_len, c.kv_len,
                           planned.tables[static_cast<size_t>(s)].data()});
    }
    AttentionPlanShape shape = MakeAttentionPlanShape(row_, desc_, c.block_size,
                                                      bench_.stream.num_sms());
    if (c.company) {
      shape.few[0] = {1, 3072};
    }
    shape.batch_invariant = c.batch_invariant;
    if (!c.share || c.alibi) shape.prefix_units = 0;
    if (!c.tiles) shape.tile_tokens = 0;
    if (c.unpack_mb > 0 && shape.unpack_bytes > 0) {
      shape.unpack_bytes = c.unpack_mb << 20;
    }
    const Description description(c.mask, c.kv_len);
    const std::vector<AttentionMaskSpec> specs(static_cast<size_t>(c.batch),
                                               description.spec());
    const auto begin = std::chrono::steady_clock::now();
    AttentionMask compiled;
    if (c.mask != Mask::kNone) {
      auto mask = CompileAttentionMask(desc_, sequences, specs);
      Require(mask.status());
      compiled = *std::move(mask);
    }
    const AttentionMask* mask = c.mask == Mask::kNone ? nullptr : &compiled;
    const AttentionPlanLimits limits =
        AttentionPlanLimitsOf(shape, sequences, mask);
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes);
    planned.limits = limits;
    planned.image_bytes = image.size();
    AttentionPlan plan =
        BuildAttentionPlan(shape, limits, sequences, image.data(), mask);
    plan_us_ = std::chrono::duration<double, std::micro>(
                   std::chrono::steady_clock::now() - begin)
                   .count();
    pairs_ = PairsOf(compiled);
    images_.push_back(std::make_unique<DeviceMemory>(image.size()));
    Require(cudaMemcpy(images_.back()->data(), image.data(), plan.used_bytes,
                       cudaMemcpyHostToDevice));
    plan.device = images_.back()->data();
    plans_.push_back(plan);
  }

  const Bench& bench_;
  AttentionDesc desc_;
  const AttentionRow& row_;
  KvLayout layout_;
  int blocks_a_sequence_;
  int blocks_a_set_;  // sets of sequences, one a call
  int sets_;
  DeviceMemory cache_;
  DeviceMemory q_;
  DeviceMemory out_;
  std::vector<int32_t> ids_;
  std::vector<Planned> planned_;
  std::vector<std::unique_ptr<DeviceMemory>> images_;
  std::vector<AttentionPlan> plans_;
  std::unique_ptr<DeviceMemory> workspace_;
  std::unique_ptr<DeviceMemory> slopes_;
  double pairs_ = 0.0;
  double plan_us_ = 0.0;
  AttentionParams params_;
};

void Decode(const Bench& bench, Case c) {
  const DType kv = DescOf(c).kv;
  const double planes = c.value_dim > 0 ? 1.0 : 2.0;
  const double bytes = planes * c.batch * c.kv_len * c.kv_heads *
                       static_cast<double>(KvRowBytes(kv, c.head_dim));
  const double seconds = Run(bench, c).Seconds();
  c.batch_invariant = false;
  const double anywhere = Run(bench, c).Seconds();
  const double gbps = 1e-9 * bytes / seconds;
  std::printf(
      "decode  b %3d x %6d, heads %2d/%d x %3d %s, block %3d: %7.1f us %5.0f "
      "GB/s = %3.0f%% of copy, %3.0f%% of read; only reading %5.1f us; cut "
      "anywhere %7.1f us\n",
      c.batch, c.kv_len, c.heads, c.kv_heads, c.head_dim, DTypeName(kv).data(),
      c.block_size, 1e6 * seconds, gbps, 100 * gbps / bench.copy_gbps,
      100 * gbps / bench.read_gbps, 1e6 * bench.ReadSeconds(bytes),
      1e6 * anywhere);
}

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
