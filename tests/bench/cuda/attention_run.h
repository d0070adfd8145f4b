// A step of attention to be timed, and what is reported of it. For
// bench_attention.cc and bench_attention_masks.cc.
#ifndef INLAY_TESTS_BENCH_CUDA_ATTENTION_RUN_H_
#define INLAY_TESTS_BENCH_CUDA_ATTENTION_RUN_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/attention/attention_gather.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_pattern.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/kv_write/kv_row.h"
#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench::attention {

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
  const char* pattern = "";  // AttentionPattern
  bool gathers = true;       // SeenBlocks, of single queries under a pattern
  const char* row = "";      // of the table, or the first that serves
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
inline double PairsOf(const AttentionMask& mask) {
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

inline const AttentionRow& RowFor(const AttentionDesc& desc,
                                  std::string_view forced = {}) {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.sm = 90;
  const auto row = Select("attention", AttentionTable(), desc, info, forced);
  Require(row.status());
  return **row;
}

inline AttentionDesc DescOf(const Case& c) {
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
        row_(RowFor(desc_, c.row)),
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
    // Plans over bytes depend on the batch as they are.
    if (!c.batch_invariant) shape.batch_invariant = shape.unpack_bytes > 0;
    if (!c.share || c.alibi) shape.prefix_units = 0;
    if (!c.tiles) shape.tile_tokens = 0;
    if (c.unpack_mb > 0 && shape.unpack_bytes > 0) {
      shape.unpack_bytes = c.unpack_mb << 20;
    }
    const Description description(c.mask, c.kv_len);
    const AttentionPattern pattern = *ParseAttentionPattern(c.pattern);
    const bool masks = c.mask != Mask::kNone || pattern.any();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<AttentionMaskSpec> specs(static_cast<size_t>(c.batch),
                                         description.spec());
    std::vector<AttentionPatternRows> rows;
    rows.reserve(specs.size());
    for (size_t s = 0; pattern.any() && s < specs.size(); ++s) {
      rows.emplace_back(pattern, c.causal, sequences[s]);
      specs[s] = rows.back().Spec();
    }
    AttentionMask compiled;
    if (masks) {
      auto mask = CompileAttentionMask(desc_, sequences, specs);
      Require(mask.status());
      compiled = *std::move(mask);
    }
    const AttentionMask* mask = masks ? &compiled : nullptr;
    pairs_ = PairsOf(compiled);
    SeenBlocks seen;
    if (pattern.any() && c.gathers) {
      seen.Gather(sequences, c.block_size, compiled);
      sequences.assign(seen.sequences().begin(), seen.sequences().end());
      mask = &seen.mask();
    }
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

inline void Decode(const Bench& bench, Case c) {
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

}  // namespace inlay::bench::attention

#endif  // INLAY_TESTS_BENCH_CUDA_ATTENTION_RUN_H_
