// Mixtures of experts: routing against a plain sort in float64, experts'
// products against gemm's rows bit by bit, their sum against float64.
#include <algorithm>
#include <numeric>

#include "kernels/moe/combine.h"
#include "kernels/moe/expert_linear.h"
#include "kernels/moe/routing.h"
#include "kernels/quant/quant.h"
#include "tests/support/kernel_test_util.h"
#include "tests/support/moe_test_util.h"
#include "tests/support/random_blocks.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kRoutings;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::RandomBlocks;
using ::inlay::testing::Routed;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

std::vector<double> Scores(const RoutingDesc& desc, const TestMatrix& logits,
                           int64_t token) {
  std::vector<double> scores;
  double sum = 0.0;
  for (int e = 0; e < desc.num_experts; ++e) {
    const double logit = logits(token, e);
    switch (desc.score) {
      case RoutingScore::kSoftmax:
        scores.push_back(std::exp(logit));
        break;
      case RoutingScore::kSigmoid:
      case RoutingScore::kLogitSigmoid:
        scores.push_back(1.0 / (1.0 + std::exp(-logit)));
        break;
      case RoutingScore::kSqrtSoftplus:
        scores.push_back(std::sqrt(std::log(1.0 + std::exp(logit))));
        break;
      case RoutingScore::kSparseMixer:  // sparse_mixer_test.cc
        break;
    }
    sum += scores.back();
  }
  if (desc.score == RoutingScore::kSoftmax) {
    for (double& score : scores) score /= sum;
  }
  return scores;
}

// Indices by falling value.
std::vector<int> Sorted(const std::vector<double>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

// The experts of a token, and their weights in `weights`.
std::vector<int> ExpectedExperts(const RoutingDesc& desc,
                                 const TestMatrix& logits,
                                 const float* correction, int64_t token,
                                 std::vector<double>* weights) {
  const std::vector<double> scores = Scores(desc, logits, token);
  std::vector<double> choice = scores;
  if (desc.score == RoutingScore::kLogitSigmoid) {
    for (int e = 0; e < desc.num_experts; ++e) {
      choice[static_cast<size_t>(e)] = logits(token, e);
    }
  }
  for (size_t e = 0; correction != nullptr && e < choice.size(); ++e) {
    choice[e] += correction[e];
  }
  const size_t size = choice.size() / static_cast<size_t>(desc.num_groups);
  std::vector<double> groups;
  for (size_t first = 0; first < choice.size(); first += size) {
    std::vector<double> members(
        choice.begin() + static_cast<ptrdiff_t>(first),
        choice.begin() + static_cast<ptrdiff_t>(first + size));
    std::sort(members.rbegin(), members.rend());
    const bool two = desc.group_score == GroupScore::kTopTwo && size > 1;
    groups.push_back(members[0] + (two ? members[1] : 0.0));
  }
  const std::vector<int> best_groups = Sorted(groups);
  for (size_t i = static_cast<size_t>(desc.top_groups); i < groups.size();
       ++i) {
    const size_t group = static_cast<size_t>(best_groups[i]);
    std::fill_n(choice.begin() + static_cast<ptrdiff_t>(group * size), size,
                -std::numeric_limits<double>::infinity());
  }
  std::vector<int> chosen = Sorted(choice);
  chosen.resize(static_cast<size_t>(desc.top_k));
  double sum = 0.0;
  for (const int e : chosen) sum += scores[static_cast<size_t>(e)];
  weights->clear();
  for (const int e : chosen) {
    const double score = scores[static_cast<size_t>(e)];
    weights->push_back(double{desc.scale} *
                       (desc.normalised ? score / sum : score));
  }
  return chosen;
}

TEST(RoutingTest, ScalesOfExpertsComeLast) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 19;
  RoutingDesc desc = kRoutings[1];
  std::mt19937 rng(7);
  TestMatrix logits(DType::kF32, kTokens, desc.num_experts, 3);
  logits.Randomize(rng, 2.0f);
  TestMatrix scales(DType::kF32, 1, desc.num_experts);
  scales.Randomize(rng, 3.0f);
  Routed plain(desc, kTokens), scaled(desc, kTokens);
  const RoutingRow& row = RoutingTable().back();
  ASSERT_TRUE(
      row.run(desc, plain.Params(logits.view(), nullptr), *cpu.stream).ok());
  desc.scales_experts = true;
  RoutingParams params = scaled.Params(logits.view(), nullptr);
  params.expert_scales = scales.floats();
  ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
  EXPECT_EQ(scaled.experts, plain.experts);
  EXPECT_EQ(scaled.slots, plain.slots);
  for (size_t i = 0; i < plain.weights.size(); ++i) {
    const float want = plain.weights[i] * scales.floats()[plain.experts[i]];
    ASSERT_NEAR(scaled.weights[i], want, 2 * kUnitF32 * std::fabs(want));
  }
}

TEST(RoutingTest, MatchesASortInFloat64) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 37;
  for (const RoutingDesc& desc : kRoutings) {
    for (const bool corrected : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << desc.num_experts << " experts, " << desc.top_k
                   << " chosen, corrected " << corrected);
      std::mt19937 rng(static_cast<unsigned>(desc.num_experts));
      TestMatrix logits(DType::kF32, kTokens, desc.num_experts, 3);
      logits.Randomize(rng, 2.0f);
      TestMatrix bias(DType::kF32, 1, desc.num_experts);
      bias.Randomize(rng, 0.1f);
      const float* correction = corrected ? bias.floats() : nullptr;
      ASSERT_TRUE(ValidateRouting(desc).ok());
      ForEachCpuRow(RoutingTable(), desc, cpu, [&](const RoutingRow& row) {
        Routed got(desc, kTokens);
        ASSERT_TRUE(
            row.run(desc, got.Params(logits.view(), correction), *cpu.stream)
                .ok());
        std::vector<double> weights;
        for (int64_t t = 0; t < kTokens; ++t) {
          const std::vector<int> want =
              ExpectedExperts(desc, logits, correction, t, &weights);
          for (int r = 0; r < desc.top_k; ++r) {
            const auto slot = static_cast<size_t>(t * desc.top_k + r);
            const auto rank = static_cast<size_t>(r);
            ASSERT_EQ(got.experts[slot], want[rank]) << "token " << t;
            // Two sums of num_experts terms and a rounding to float32.
            ASSERT_NEAR(got.weights[slot], weights[rank],
                        2 * kUnitF32 * weights[rank]);
          }
        }
      });
    }
  }
}

// The table chooses, scores weigh.
TEST(RoutingTest, ExpertsByToken) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 19;
  constexpr int kRows = 11;
  RoutingDesc desc = {16, 4, RoutingScore::kSqrtSoftplus, true};
  desc.scale = 1.5f;
  desc.hashed = true;
  std::mt19937 rng(7);
  TestMatrix logits(DType::kF32, kTokens, desc.num_experts, 3);
  logits.Randomize(rng, 2.0f);
  logits.Set(0, 0, 200.0f);  // whose exponential no float32 holds
  std::vector<int32_t> ids, table;
  for (int64_t t = 0; t < kTokens; ++t) {
    ids.push_back(static_cast<int32_t>(rng() % kRows));
  }
  for (int i = 0; i < kRows * desc.top_k; ++i) {
    table.push_back(static_cast<int32_t>(rng() % 16));
  }
  ForEachCpuRow(RoutingTable(), desc, cpu, [&](const RoutingRow& row) {
    Routed got(desc, kTokens);
    RoutingParams params = got.Params(logits.view(), nullptr);
    params.ids = ids.data();
    params.table = table.data();
    ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::vector<double> scores = Scores(desc, logits, t);
      double sum = 0.0;
      const auto expert = [&](int r) {
        return table[static_cast<size_t>(ids[static_cast<size_t>(t)] * 4 + r)];
      };
      for (int r = 0; r < 4; ++r) sum += scores[static_cast<size_t>(expert(r))];
      for (int r = 0; r < 4; ++r) {
        const auto slot = static_cast<size_t>(t * 4 + r);
        ASSERT_EQ(got.experts[slot], expert(r));
        const double want = 1.5 * scores[static_cast<size_t>(expert(r))] / sum;
        ASSERT_NEAR(got.weights[slot], want, 4 * kUnitF32 * want);
      }
    }
    std::vector<int32_t> slots;
    for (int e = 0; e < desc.num_experts; ++e) {
      for (size_t i = 0; i < got.experts.size(); ++i) {
        if (got.experts[i] == e) slots.push_back(static_cast<int32_t>(i));
      }
    }
    EXPECT_EQ(got.slots, slots);
  });
}

TEST(RoutingTest, ListsSlotsByExpert) {
  TestCpu cpu(3);
  const RoutingDesc desc = {13, 3};
  for (const int64_t tokens : {0, 1, 2, 200}) {
    std::mt19937 rng(5);
    TestMatrix logits(DType::kF32, tokens, desc.num_experts);
    logits.Randomize(rng);
    ForEachCpuRow(RoutingTable(), desc, cpu, [&](const RoutingRow& row) {
      Routed got(desc, tokens);
      ASSERT_TRUE(
          row.run(desc, got.Params(logits.view(), nullptr), *cpu.stream).ok());
      std::vector<int32_t> slots;
      ASSERT_EQ(got.offsets[0], 0);
      for (int e = 0; e < desc.num_experts; ++e) {
        for (size_t i = 0; i < got.experts.size(); ++i) {
          if (got.experts[i] == e) slots.push_back(static_cast<int32_t>(i));
        }
        ASSERT_EQ(got.offsets[static_cast<size_t>(e) + 1],
                  static_cast<int32_t>(slots.size()));
      }
      EXPECT_EQ(got.slots, slots);
    });
  }
}

TEST(RoutingTest, EqualScoresAndNansGiveExpertsInRange) {
  TestCpu cpu(1);
  for (const RoutingDesc& desc : kRoutings) {
    TestMatrix logits(DType::kF32, 3, desc.num_experts);
    for (int e = 0; e < desc.num_experts; ++e) {
      logits.Set(0, e, 0.25f);
      logits.Set(1, e, std::numeric_limits<float>::quiet_NaN());
      logits.Set(2, e, -std::numeric_limits<float>::infinity());
    }
    ForEachCpuRow(RoutingTable(), desc, cpu, [&](const RoutingRow& row) {
      Routed got(desc, 3);
      ASSERT_TRUE(
          row.run(desc, got.Params(logits.view(), nullptr), *cpu.stream).ok());
      for (int t = 0; t < 3; ++t) {
        for (int r = 0; r < desc.top_k; ++r) {
          // The lowest numbers, each once.
          ASSERT_EQ(got.experts[static_cast<size_t>(t * desc.top_k + r)], r);
        }
      }
      EXPECT_TRUE(std::isnan(got.weights[static_cast<size_t>(desc.top_k)]));
    });
  }
}

TEST(RoutingTest, ValidationRefusesWhatIsOutOfRange) {
  for (const RoutingDesc& bad :
       {RoutingDesc{0, 1}, RoutingDesc{4, 5}, RoutingDesc{4, 0},
        RoutingDesc{kMaxExperts + 1, 1},
        RoutingDesc{8, 2, RoutingScore::kSoftmax, true, 3, 1},
        RoutingDesc{8, 2, RoutingScore::kSoftmax, true, 4, 5},
        RoutingDesc{8, 3, RoutingScore::kSoftmax, true, 8, 2}}) {
    EXPECT_FALSE(ValidateRouting(bad).ok());
    EXPECT_FALSE(
        Select("moe_routing", RoutingTable(), bad, {DeviceKind::kCpu, "cpu"})
            .ok());
  }
}

// A random choice of experts for `tokens` tokens, none of them twice; experts
// `idle` and above are not chosen.
Routed RandomRouting(const RoutingDesc& desc, int64_t tokens, int idle,
                     TestCpu& cpu) {
  std::mt19937 rng(static_cast<unsigned>(tokens));
  TestMatrix logits(DType::kF32, tokens, desc.num_experts);
  logits.Randomize(rng);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int e = idle; e < desc.num_experts; ++e) logits.Set(t, e, -1e30f);
  }
  Routed routed(desc, tokens);
  const RoutingRow& row = RoutingTable().back();
  EXPECT_TRUE(
      row.run(desc, routed.Params(logits.view(), nullptr), *cpu.stream).ok());
  return routed;
}

// Experts' matrices in one format, each with its packed form where a row wants
// that.
class Matrices {
 public:
  Matrices(int count, const GemmDesc& desc, unsigned seed) : desc_(desc) {
    std::mt19937 rng(seed);
    const BlockCodec* codec = FindBlockCodec(desc.weight);
    for (int e = 0; e < count; ++e) {
      if (codec != nullptr) {
        const int64_t blocks =
            desc.n * desc.k / GetFormatInfo(desc.weight).block_elements;
        plain_.push_back(RandomBlocks(*codec, blocks, rng));
        continue;
      }
      TestMatrix matrix(desc.weight, desc.n, desc.k);
      matrix.Randomize(rng);
      const std::byte* data = matrix.view().data;
      plain_.emplace_back(data, data + matrix.view().bytes());
    }
  }

  // As `packing` wants them; null: plain. Experts from `idle` on are nowhere.
  std::vector<const std::byte*> Each(const WeightPacking<GemmDesc>* packing,
                                     int idle) {
    packed_.clear();
    std::vector<const std::byte*> each;
    for (const std::vector<std::byte>& matrix : plain_) {
      if (static_cast<int>(each.size()) >= idle) {
        each.push_back(nullptr);
      } else if (packing == nullptr) {
        each.push_back(matrix.data());
      } else {
        auto& packed = packed_.emplace_back(packing->bytes(desc_));
        packing->pack(desc_, matrix.data(), 0, desc_.n, packed.data());
        each.push_back(packed.data());
      }
    }
    return each;
  }

 private:
  GemmDesc desc_;
  std::vector<std::vector<std::byte>> plain_;
  std::vector<std::vector<std::byte>> packed_;
};

// Each slot's row has the bits that gemm's row of the same name gives for it
// alone. Matrices that nobody asks for may not be there.
void CheckExpertLinear(const ExpertLinearDesc& desc, int64_t tokens, int idle,
                       bool with_bias, TestCpu& cpu) {
  const Routed routed =
      RandomRouting({desc.num_experts, desc.top_k}, tokens, idle, cpu);
  const GemmDesc& gemm = desc.gemm;
  std::mt19937 rng(7);
  const int64_t slots = tokens * desc.top_k;
  TestMatrix x(DType::kF32, desc.row_a_slot ? slots : tokens, gemm.k, 5);
  x.Randomize(rng);
  TestMatrix bias(DType::kF32, desc.num_experts, gemm.n);
  bias.Randomize(rng);
  Matrices matrices(desc.num_experts, gemm, 3);
  ForEachCpuRow(
      ExpertLinearTable(), desc, cpu, [&](const ExpertLinearRow& row) {
        const auto each = matrices.Each(ExpertPacking(row, gemm), idle);
        std::vector<std::byte> workspace(row.workspace_bytes(desc, tokens),
                                         std::byte{0xff});
        TestMatrix y(DType::kF32, slots, gemm.n, 3);
        ExpertLinearParams params;
        params.x = x.view();
        params.w.each = each.data();
        params.bias = with_bias ? bias.floats() : nullptr;
        params.experts = routed.experts.data();
        params.offsets = routed.offsets.data();
        params.slots = routed.slots.data();
        params.y = y.view();
        params.workspace = workspace.data();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        const auto alone_row =
            Select("gemm", GemmTable(), gemm, cpu.device->info(), row.name);
        ASSERT_TRUE(alone_row.ok());
        for (int64_t s = 0; s < slots; ++s) {
          const auto expert =
              static_cast<size_t>(routed.experts[static_cast<size_t>(s)]);
          TestMatrix alone(DType::kF32, 1, gemm.n);
          GemmParams one;
          one.x = x.view().RowSlice(desc.row_a_slot ? s : s / desc.top_k, 1);
          one.w = MatrixView(const_cast<std::byte*>(each[expert]), gemm.weight,
                             gemm.n, gemm.k);
          if (with_bias)
            one.bias = bias.view().row<float>(static_cast<int64_t>(expert));
          one.y = alone.view();
          one.workspace = workspace.data();
          ASSERT_TRUE((*alone_row)->run(gemm, one, *cpu.stream).ok());
          ASSERT_EQ(alone.RowBits(0), y.RowBits(s)) << "slot " << s;
        }
        EXPECT_TRUE(y.PaddingIsPoisoned());
      });
}

TEST(ExpertLinearTest, ASlotHasTheBitsOfGemm) {
  TestCpu cpu(2);
  for (const DType weight : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t tokens : {1, 2, 5, 40}) {
      for (const bool row_a_slot : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << DTypeName(weight) << " tokens " << tokens << " a slot "
                     << row_a_slot);
        CheckExpertLinear({{33, 47, weight}, 6, 2, row_a_slot}, tokens, 5,
                          row_a_slot, cpu);
      }
    }
  }
}

// Matrices that few slots, 64 at most, are cut into pieces for, with
// remainders: of bf16 three, 96 rows at most, of f8 two.
TEST(ExpertLinearTest, LargeMatricesHaveTheBitsOfGemm) {
  TestCpu cpu(3);
  constexpr DType kWeights[] = {DType::kBF16, DType::kQ4_0, DType::kF8_G32};
  size_t turn = 0;
  for (const int64_t tokens : {1, 3, 16, 17}) {
    for (size_t i = 0; i < std::size(kWeights); ++i) {
      if (!::inlay::testing::TriedWith(turn, i, std::size(kWeights))) continue;
      const DType weight = kWeights[i];
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(weight) << " tokens " << tokens);
      CheckExpertLinear({{197, 1376, weight}, 9, 4, tokens % 2 == 0}, tokens, 7,
                        true, cpu);
    }
    ++turn;
  }
}

TEST(ExpertLinearTest, EveryBlockFormatHasTheBitsOfGemm) {
  TestCpu cpu(2);
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr) continue;
    SCOPED_TRACE(DTypeName(codec->dtype));
    CheckExpertLinear({{19, 256, codec->dtype}, 4, 2}, 9, 3, true, cpu);
    CheckExpertLinear({{19, 256, codec->dtype}, 4, 2}, 1, 4, false, cpu);
  }
}

// Room for many tokens is room for fewer.
TEST(ExpertLinearTest, WorkspaceGrowsWithTokens) {
  TestCpu cpu(2);
  for (const DType weight :
       {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ8_0}) {
    for (const int num_experts : {2, 8, 100}) {
      for (const bool row_a_slot : {false, true}) {
        const ExpertLinearDesc desc = {
            {32, 64, weight}, num_experts, 2, row_a_slot};
        ForEachCpuRow(
            ExpertLinearTable(), desc, cpu, [&](const ExpertLinearRow& row) {
              size_t last = 0;
              for (int64_t tokens = 1; tokens <= 100; ++tokens) {
                const size_t bytes = row.workspace_bytes(desc, tokens);
                ASSERT_GE(bytes, last) << tokens;
                last = bytes;
              }
            });
      }
    }
  }
}

TEST(ExpertLinearTest, MatchesFloat64) {
  TestCpu cpu(2);
  const ExpertLinearDesc desc = {{21, 65, DType::kBF16}, 3, 2};
  constexpr int64_t kTokens = 25;
  const Routed routed = RandomRouting({3, 2}, kTokens, 3, cpu);
  std::mt19937 rng(1);
  TestMatrix x(DType::kF32, kTokens, 65);
  x.Randomize(rng);
  std::vector<TestMatrix> w;
  std::vector<const std::byte*> each;
  for (int e = 0; e < 3; ++e) {
    w.emplace_back(DType::kBF16, 21, 65).Randomize(rng);
  }
  for (TestMatrix& matrix : w) each.push_back(matrix.view().data);
  ForEachCpuRow(
      ExpertLinearTable(), desc, cpu, [&](const ExpertLinearRow& row) {
        TestMatrix y(DType::kF32, 2 * kTokens, 21);
        std::vector<std::byte> workspace(row.workspace_bytes(desc, kTokens),
                                         std::byte{0xff});
        ExpertLinearParams params;
        params.x = x.view();
        params.w.each = each.data();
        params.experts = routed.experts.data();
        params.offsets = routed.offsets.data();
        params.slots = routed.slots.data();
        params.y = y.view();
        params.workspace = workspace.data();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        const bool rounds = row.name == "cpu_bf16";
        const auto sum = [&](int64_t s, int64_t c, bool magnitude) {
          const auto e =
              static_cast<size_t>(routed.experts[static_cast<size_t>(s)]);
          double total = 0.0;
          for (int64_t i = 0; i < 65; ++i) {
            const float of_x = x(s / 2, i);
            const double product =
                double{rounds ? BF16ToF32(F32ToBF16(of_x)) : of_x} * w[e](c, i);
            total += magnitude ? std::abs(product) : product;
          }
          return total;
        };
        // As for gemm: k + 3 roundings of a partial sum.
        ExpectClose(
            y, [&](int64_t s, int64_t c) { return sum(s, c, false); },
            [&](int64_t s, int64_t c) {
              return 68 * kUnitF32 * sum(s, c, true);
            });
      });
}

TEST(MoeCombineTest, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int64_t kTokens = 5;
  for (const int64_t width : {1, 7, 8, 40, 1029}) {
    for (const MoeCombineDesc& desc :
         {MoeCombineDesc{width, 1}, MoeCombineDesc{width, 3, true, false},
          MoeCombineDesc{width, 2, true, true}}) {
      SCOPED_TRACE(::testing::Message()
                   << "width " << width << " shared " << desc.shared);
      std::mt19937 rng(3);
      const auto random = [&](int64_t rows, int64_t cols) {
        TestMatrix matrix(DType::kF32, rows, cols, 2);
        matrix.Randomize(rng);
        return matrix;
      };
      TestMatrix x = random(kTokens * desc.top_k, width);
      TestMatrix weights(DType::kF32, kTokens, desc.top_k);
      weights.Randomize(rng);
      TestMatrix shared = random(kTokens, width);
      TestMatrix gate = random(kTokens, 1);
      TestMatrix residual = random(kTokens, width);
      const auto sum = [&](int64_t t, int64_t c, bool magnitude) {
        const auto term = [&](double v) { return magnitude ? std::abs(v) : v; };
        double total = term(residual(t, c));
        for (int r = 0; r < desc.top_k; ++r) {
          total += term(double{weights(t, r)} * x(t * desc.top_k + r, c));
        }
        const double factor =
            desc.gated ? 1 / (1 + std::exp(-double{gate(t, 0)})) : 1.0;
        return total + (desc.shared ? term(factor * shared(t, c)) : 0.0);
      };
      ForEachCpuRow(
          MoeCombineTable(), desc, cpu, [&](const MoeCombineRow& row) {
            TestMatrix y(DType::kF32, kTokens, width, 1);
            MoeCombineParams params;
            params.x = x.view();
            params.weights = weights.floats();
            if (desc.shared) params.shared = shared.view();
            if (desc.gated) params.gate = gate.view();
            params.residual = residual.view();
            params.y = y.view();
            ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
            // A rounding a term, and four for the gate.
            ExpectClose(
                y, [&](int64_t t, int64_t c) { return sum(t, c, false); },
                [&](int64_t t, int64_t c) {
                  return (desc.top_k + 6) * kUnitF32 * sum(t, c, true);
                });
            TestMatrix in_place = residual;
            params.residual = params.y = in_place.view();
            ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
            for (int64_t t = 0; t < kTokens; ++t) {
              EXPECT_EQ(in_place.RowBits(t), y.RowBits(t));
            }
            if (!desc.shared) return;
            // One row for all tokens is as many rows of the same.
            TestMatrix same(DType::kF32, kTokens, width);
            for (int64_t i = 0; i < kTokens * width; ++i) {
              same.Set(i / width, i % width, shared(0, i % width));
            }
            TestMatrix of_one(DType::kF32, kTokens, width);
            params.residual = residual.view();
            params.shared = same.view();
            params.y = y.view();
            ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
            params.shared = shared.view();
            params.shared.row_stride_bytes = 0;
            params.y = of_one.view();
            ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
            for (int64_t t = 0; t < kTokens; ++t) {
              EXPECT_EQ(of_one.RowBits(t), y.RowBits(t));
            }
          });
    }
  }
}

}  // namespace
}  // namespace inlay
