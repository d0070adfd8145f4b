// decode_attention's CUDA rows: the cache's bytes against rope_kv's, results
// against a float64 softmax over that cache; slots that nobody wrote hold NaN,
// outputs start as NaN; and the same bits whatever the other rows are.
#if INLAY_HAS_CUDA
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "kernels/decode_attention/decode_attention.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::GetFloat;
using ::inlay::testing::PutFloat;
using ::inlay::testing::Rounding;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::UnitOf;

struct Case {
  int num_kv_heads = 2;
  int group = 4;
  int head_dim = 128;
  DType type = DType::kBF16;
  RopeStyle style = RopeStyle::kHalf;
  bool norms = false;
  int window = 0;
  bool sinks = false;
  int block_size = 16;
  unsigned seed = 1;
  std::vector<int> kv_lens;  // of a row; 0: of nobody
};

class Problem {
 public:
  Problem(const Case& c, TestCuda& cuda)
      : case_(c),
        cuda_(cuda),
        rng_(c.seed),
        rows_(static_cast<int64_t>(c.kv_lens.size())),
        heads_(c.num_kv_heads * c.group),
        qkv_(Draw(c.type, rows_, (heads_ + 2 * c.num_kv_heads) * c.head_dim)),
        norms_{CudaTestMatrix(Draw(DType::kF32, 1, c.head_dim)),
               CudaTestMatrix(Draw(DType::kF32, 1, c.head_dim))},
        cos_(Draw(DType::kF32, rows_, c.head_dim / 2)),
        sin_(Draw(DType::kF32, rows_, c.head_dim / 2)),
        layout_({{2, 4}, {c.num_kv_heads, c.head_dim}}, c.type, c.block_size) {
    for (int h = 0; h < heads_; ++h) sinks_.push_back(Normal());
    MakeDesc();
    FillCache();
  }

  const DecodeAttentionDesc& desc() const { return desc_; }

  void Check() {
    CudaBytes cache(storage_);
    const TestMatrix got = Run(sequences_, cache);
    std::vector<std::byte> have(storage_.size());
    cache.Download(have.data());
    const TestMatrix q = Reference();
    const auto [a, b] =
        std::mismatch(have.begin(), have.end(), storage_.begin());
    ASSERT_TRUE(a == have.end()) << "cache byte " << a - have.begin();
    for (const AttentionSequence& sequence : sequences_) {
      for (int h = 0; h < heads_; ++h) CheckHead(sequence, h, q, got);
    }
  }

  // Rows one at a time.
  void CheckAlone() {
    CudaBytes together(storage_);
    const TestMatrix all = Run(sequences_, together);
    for (const AttentionSequence& sequence : sequences_) {
      CudaBytes cache(storage_);
      const TestMatrix one = Run({sequence}, cache);
      EXPECT_EQ(one.RowBits(sequence.q_begin), all.RowBits(sequence.q_begin))
          << sequence.q_begin;
    }
  }

 private:
  float Normal() { return std::normal_distribution<float>()(rng_); }
  TestMatrix Draw(DType type, int64_t rows, int64_t cols) {
    return TestMatrix(type, rows, cols, 8).Randomize(rng_);
  }
  static TestMatrix Dense(const TestMatrix& from) {
    TestMatrix dense(DType::kF32, from.rows(), from.cols());
    for (int64_t r = 0; r < from.rows(); ++r) {
      for (int64_t c = 0; c < from.cols(); ++c) dense.Set(r, c, from(r, c));
    }
    return dense;
  }

  void MakeDesc() {
    RopeKvDesc& rope = desc_.rope_kv;
    rope = {heads_,         case_.num_kv_heads, case_.head_dim,
            case_.head_dim, case_.style,        case_.norms,
            case_.norms,    case_.type,         case_.type};
    AttentionDesc& attention = desc_.attention;
    attention.num_heads = heads_;
    attention.num_kv_heads = case_.num_kv_heads;
    attention.head_dim = case_.head_dim;
    attention.kv = attention.activation = case_.type;
    attention.scale = 1.0f / std::sqrt(static_cast<float>(case_.head_dim));
    attention.window = case_.window;
  }

  int FirstKey(int kv_len) const {
    return case_.window > 0 ? std::max(0, kv_len - case_.window) : 0;
  }

  // Keys and values of earlier steps; blocks that a window has passed are gone.
  void FillCache() {
    const int block_size = case_.block_size;
    int32_t blocks = 1;  // block 0 belongs to nobody
    tables_.resize(case_.kv_lens.size());
    std::vector<int32_t> ids;
    for (const int kv_len : case_.kv_lens) {
      for (int i = 0; i * block_size < kv_len; ++i) ids.push_back(blocks++);
    }
    std::shuffle(ids.begin(), ids.end(), rng_);
    storage_.resize(layout_.block_bytes() * static_cast<size_t>(blocks),
                    std::byte{0xff});
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    auto next = ids.begin();
    for (size_t s = 0; s < tables_.size(); ++s) {
      const int kv_len = case_.kv_lens[s];
      slots_.push_back(-1);
      if (kv_len == 0) continue;
      std::vector<int32_t>& table = tables_[s];
      for (int i = 0; i * block_size < kv_len; ++i) table.push_back(*next++);
      // One of the rows is written nowhere.
      if (s != 1) {
        slots_[s] =
            int64_t{table.back()} * block_size + (kv_len - 1) % block_size;
      }
      for (int t = FirstKey(kv_len); t < kv_len - 1; ++t) {
        const int32_t block = table[static_cast<size_t>(t / block_size)];
        for (int h = 0; h < case_.num_kv_heads; ++h) {
          for (int d = 0; d < case_.head_dim; ++d) {
            PutFloat(case_.type, view.KeyRow(block, h, t % block_size), d,
                     Normal());
            PutFloat(case_.type, view.ValueRow(block, h, t % block_size), d,
                     Normal());
          }
        }
      }
      for (int i = 0; (i + 1) * block_size <= FirstKey(kv_len); ++i) {
        table[static_cast<size_t>(i)] = 1 << 29;
      }
      sequences_.push_back({static_cast<int32_t>(s), 1, kv_len, table.data()});
    }
  }

  RopeKvParams Fused(CudaTestMatrix& qkv, std::byte* cache,
                     const CudaBytes& slots) {
    RopeKvParams params;
    params.qkv = qkv.view();
    params.q_norm = {norms_[0].floats(), 1e-5f};
    params.k_norm = {norms_[1].floats(), 1e-5f};
    params.cos = cos_dense_.floats();
    params.sin = sin_dense_.floats();
    params.kv = layout_.LayerView(1, cache);
    params.slots = slots.as<int64_t>();
    return params;
  }

  TestMatrix Run(std::vector<AttentionSequence> sequences, CudaBytes& cache) {
    AttentionPlanShape shape =
        MakeAttentionPlanShape(AttentionTable().front(), desc_.attention,
                               case_.block_size, cuda_.stream->num_sms());
    shape.few = DecodeAttentionLimits(desc_, cuda_.info);
    EXPECT_NE(shape.FewOf(rows_), nullptr);
    for (auto& few : shape.few) few.keys = 1 << 20;
    shape.prefix_units = 0;
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences_);
    limits.tokens = rows_;
    limits.graph = true;
    std::vector<std::byte> image(LayOutAttentionPlan(shape, limits).bytes + 64);
    auto* aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<uintptr_t>(image.data()) + 63) / 64 * 64);
    AttentionPlan plan = BuildAttentionPlan(shape, limits, sequences, aligned);
    EXPECT_TRUE(plan.few);
    const CudaBytes uploaded(aligned, plan.used_bytes);
    plan.device = uploaded.as<std::byte>();
    const CudaBytes slots(slots_);
    const CudaBytes sinks(sinks_);
    CudaTestMatrix qkv(qkv_);
    CudaTestMatrix out(case_.type, rows_, heads_ * case_.head_dim, 8);
    DecodeAttentionParams params;
    params.rope_kv = Fused(qkv, cache.as<std::byte>(), slots);
    params.out = out.view();
    if (case_.sinks) params.sinks = sinks.as<float>();
    params.plan = &plan;
    const absl::Status status =
        DecodeAttentionTable().front().run(desc_, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    return out.Download();
  }

  // By rope_kv: the cache as it must be, to storage_; returns q.
  TestMatrix Reference() {
    CudaBytes cache(storage_);
    const CudaBytes slots(slots_);
    CudaTestMatrix qkv(qkv_);
    const RopeKvParams params = Fused(qkv, cache.as<std::byte>(), slots);
    const absl::Status status =
        RopeKvTable().front().run(desc_.rope_kv, params, *cuda_.stream);
    EXPECT_TRUE(status.ok()) << status;
    cache.Download(storage_.data());
    TestMatrix turned = qkv.Download();
    // The key of a row that is written nowhere, from a place of its own.
    std::vector<int64_t> kept(slots_.size());
    for (size_t s = 0; s < kept.size(); ++s) {
      kept[s] = static_cast<int64_t>(s) * case_.block_size;
    }
    CudaBytes fresh(layout_.block_bytes() * kept.size());
    CudaTestMatrix again(qkv_);
    const CudaBytes all(kept);
    const absl::Status second = RopeKvTable().front().run(
        desc_.rope_kv, Fused(again, fresh.as<std::byte>(), all), *cuda_.stream);
    EXPECT_TRUE(second.ok()) << second;
    fresh_.resize(layout_.block_bytes() * kept.size());
    fresh.Download(fresh_.data());
    return turned;
  }

  const std::byte* Row(const AttentionSequence& sequence, bool value, int t,
                       int head) {
    if (t == sequence.kv_len - 1) {
      const KvLayerView view = layout_.LayerView(1, fresh_.data());
      return value ? view.ValueRow(sequence.q_begin, head, 0)
                   : view.KeyRow(sequence.q_begin, head, 0);
    }
    const KvLayerView view = layout_.LayerView(1, storage_.data());
    const int32_t block = sequence.blocks[t / case_.block_size];
    return value ? view.ValueRow(block, head, t % case_.block_size)
                 : view.KeyRow(block, head, t % case_.block_size);
  }

  void CheckHead(const AttentionSequence& sequence, int h, const TestMatrix& q,
                 const TestMatrix& got) {
    const int dim = case_.head_dim;
    const int kv_head = h / case_.group;
    const double scale = desc_.attention.scale;
    std::vector<double> scores;
    double highest = case_.sinks ? sinks_[static_cast<size_t>(h)] : -1e30;
    double largest = 0;  // sum of |q k|
    const int first = FirstKey(sequence.kv_len);
    for (int t = first; t < sequence.kv_len; ++t) {
      const std::byte* key = Row(sequence, false, t, kv_head);
      double sum = 0;
      double magnitude = 0;
      for (int d = 0; d < dim; ++d) {
        const double product = double{q(sequence.q_begin, h * dim + d)} *
                               GetFloat(case_.type, key, d);
        sum += product;
        magnitude += std::abs(product);
      }
      scores.push_back(sum * scale);
      highest = std::max(highest, sum * scale);
      largest = std::max(largest, magnitude * scale);
    }
    double total =
        case_.sinks ? std::exp(sinks_[static_cast<size_t>(h)] - highest) : 0;
    std::vector<double> want(static_cast<size_t>(dim));
    std::vector<double> spread(static_cast<size_t>(dim));
    for (size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - highest);
      total += weight;
      const std::byte* value =
          Row(sequence, true, first + static_cast<int>(i), kv_head);
      for (int d = 0; d < dim; ++d) {
        const double v = GetFloat(case_.type, value, d);
        want[static_cast<size_t>(d)] += weight * v;
        spread[static_cast<size_t>(d)] += weight * std::abs(v);
      }
    }
    // Weights are rounded to the cache's type. Scores are sums of head_dim
    // products in float32, whose roundings add up as noise: twice
    // sqrt(head_dim) units, up to 256 of them, in numerator and denominator,
    // 2^-20 = 16 units for each; 2^x is off by a few of its own.
    const double of_weights =
        UnitOf(case_.type) + 0x1p-20 * (largest + std::abs(highest) + 8);
    for (int d = 0; d < dim; ++d) {
      const auto at = static_cast<size_t>(d);
      const double y = want[at] / total;
      const double tolerance =
          Rounding(case_.type, y) + spread[at] / total * of_weights;
      ASSERT_LE(std::abs(got(sequence.q_begin, h * dim + d) - y), tolerance)
          << "row " << sequence.q_begin << " of " << sequence.kv_len
          << " keys, head " << h << ", element " << d << ": want " << y
          << ", got " << got(sequence.q_begin, h * dim + d) << ", seed "
          << case_.seed;
    }
  }

  const Case case_;
  TestCuda& cuda_;
  std::mt19937 rng_;
  int64_t rows_;
  int heads_;
  TestMatrix qkv_;
  CudaTestMatrix norms_[2];
  TestMatrix cos_, sin_;
  CudaTestMatrix cos_dense_{Dense(cos_)}, sin_dense_{Dense(sin_)};
  KvLayout layout_;
  DecodeAttentionDesc desc_;
  std::vector<float> sinks_;
  std::vector<std::byte> storage_;
  std::vector<std::byte> fresh_;  // a block for each row's new key and value
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int64_t> slots_;
  std::vector<AttentionSequence> sequences_;
};

class DecodeAttentionCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    INLAY_REQUIRE_CUDA();
    cuda_ = std::make_unique<TestCuda>();
    if (cuda_->info.sm != 90) GTEST_SKIP() << "needs a Hopper GPU";
  }
  void Check(const Case& c) {
    SCOPED_TRACE(::testing::Message()
                 << "kv heads " << c.num_kv_heads << " group " << c.group
                 << " head_dim " << c.head_dim << " " << DTypeName(c.type)
                 << " style " << static_cast<int>(c.style) << " norms "
                 << c.norms << " window " << c.window << " sinks " << c.sinks
                 << " block_size " << c.block_size << " seed " << c.seed);
    Problem problem(c, *cuda_);
    ASSERT_EQ(
        DecodeAttentionTable().front().refuses(problem.desc(), cuda_->info),
        nullptr);
    problem.Check();
  }
  std::unique_ptr<TestCuda> cuda_;
};

// Needs no GPU.
TEST(DecodeAttentionLimitsTest, ByKvHeadsAndMultiprocessors) {
  const auto rows_of = [](int kv_heads, int num_sms) {
    DecodeAttentionDesc desc;
    desc.attention.num_kv_heads = kv_heads;
    DeviceInfo device;
    device.num_sms = num_sms;
    std::vector<int> rows;
    for (const auto& few : DecodeAttentionLimits(desc, device)) {
      rows.push_back(few.rows);
    }
    return rows;
  };
  EXPECT_EQ(rows_of(8, 132), (std::vector<int>{1, 3, 6, 8, 16}));
  EXPECT_EQ(rows_of(4, 132), (std::vector<int>{3, 6, 12, 16, 33}));
  EXPECT_EQ(rows_of(16, 132), (std::vector<int>{0, 1, 3, 4, 8}));
  EXPECT_EQ(rows_of(8, 114), (std::vector<int>{1, 2, 5, 7, 14}));
  DecodeAttentionDesc desc;
  desc.attention.num_kv_heads = 8;
  DeviceInfo device;
  device.num_sms = 132;
  const DecodeAttentionSteps few = DecodeAttentionLimits(desc, device);
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].shares, i < 2) << i;
    EXPECT_GE(few[i].keys, 768) << i;
  }
}

TEST_F(DecodeAttentionCudaTest, MatchesRopeKvAndFloat64) {
  unsigned seed = 1;
  for (const int head_dim : {128, 64}) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      for (const RopeStyle style :
           {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
        for (const bool norms : {false, true}) {
          Case c;
          c.head_dim = head_dim;
          c.type = type;
          c.style = style;
          c.norms = norms;
          c.seed = seed++;
          c.sinks = seed % 3 == 0;
          c.window = seed % 4 == 0 ? 100 : 0;
          c.block_size = seed % 3 == 1 ? 48 : 16;
          c.kv_lens = {300, 17, 0, 1500};
          Check(c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(DecodeAttentionCudaTest, LengthsGroupsAndWindows) {
  unsigned seed = 100;
  for (const int kv_len : {1, 2, 15, 16, 17, 31, 127, 128, 129, 511, 1023, 1024,
                           1025, 1040, 2049, 3072, 5000, 8191, 8192}) {
    Case c;
    c.group = 1 + static_cast<int>(seed) % 8;
    c.num_kv_heads = 1 + static_cast<int>(seed) % 3;
    c.head_dim = seed % 4 == 0 ? 64 : 128;
    c.block_size = seed % 2 == 0 ? 16 : 128;
    c.sinks = seed % 5 == 0;
    constexpr int kWindows[] = {0, 0, 1, 15, 16, 17, 1024, 1033};
    c.window = kWindows[seed % 8];
    c.seed = seed++;
    c.kv_lens = {kv_len, std::max(1, kv_len / 2)};
    Check(c);
    if (HasFatalFailure()) return;
  }
}

// Eight blocks of four warps a KV head, four, two of eight warps, two of four.
TEST_F(DecodeAttentionCudaTest, MoreTokens) {
  unsigned seed = 200;
  const std::vector<int> lens = {300, 17, 0,  1500, 1,  64,  65, 129,
                                 512, 31, 33, 0,    16, 700, 80, 257};
  for (const size_t rows : {2, 3, 4, 6, 8, 16}) {
    for (const int group : {1, 3, 4, 8}) {
      Case c;
      c.num_kv_heads = 8;
      c.group = group;
      c.head_dim = seed % 4 == 0 ? 64 : 128;
      c.type = seed % 3 == 0 ? DType::kF16 : DType::kBF16;
      c.style = seed % 2 == 0 ? RopeStyle::kHalf : RopeStyle::kInterleaved;
      c.norms = seed % 5 == 0;
      c.sinks = seed % 3 == 1;
      c.window = seed % 4 == 1 ? 100 : 0;
      c.seed = seed++;
      c.kv_lens.assign(lens.begin(), lens.begin() + static_cast<int>(rows));
      Check(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DecodeAttentionCudaTest, BitsDoNotDependOnOtherRows) {
  Case c;
  c.num_kv_heads = 4;
  c.group = 8;
  c.kv_lens = {700, 0, 33, 4000};
  Problem(c, *cuda_).CheckAlone();
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
