// block_selection: summaries of blocks against their definitions, every row's
// selection against a sort of all scores, bit equality over chunkings, batches
// and thread counts; and attention over what is selected.
#include "kernels/block_selection/block_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/block_selection/block_hash.h"
#include "tests/support/block_selection_util.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::BlockDesc;
using ::inlay::testing::BlockProblem;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kBlockMethods;
using ::inlay::testing::kKvTypes;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::OnEverySimdTarget;
using ::inlay::testing::RunWithWorkspace;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

const std::vector<BlockProblem::Shape> kRaggedSelections = {
    {1, 1}, {1, 137}, {5, 5}, {7, 170}, {1, 64}, {0, 12}, {33, 97}, {1, 465}};

void Summarise(BlockProblem& problem, TestCpu& cpu) {
  const BlockSummaryDesc desc = problem.summary_desc();
  const auto row = Select("block_summary", BlockSummaryTable(), desc,
                          DeviceInfo{DeviceKind::kCpu, "cpu"});
  ASSERT_TRUE(row.ok()) << row.status();
  const std::vector<int64_t> slots = problem.Slots();
  ASSERT_TRUE(
      (*row)->run(desc, problem.SummaryParams(slots), *cpu.stream).ok());
}

void CheckSelection(BlockProblem& problem, TestCpu& cpu) {
  Summarise(problem, cpu);
  ForEachCpuRow(BlockSelectionTable(), problem.desc(), cpu,
                [&](const BlockSelectionRow& row) {
                  std::vector<int32_t> selection = problem.NewSelection();
                  RunWithWorkspace(row, problem.desc(),
                                   problem.Params(selection.data()), cpu);
                  problem.Expect(selection);
                });
}

float Element(const std::byte* summary, int i) {
  uint16_t bits;
  std::memcpy(&bits, summary + 2 * i, sizeof(bits));
  return BF16ToF32(bits);
}

// The nearest numbers of bf16 around what the keys have.
TEST(BlockSummaryTest, BoundsHoldEveryKeyAndNoMore) {
  TestCpu cpu(2);
  for (const DType kv : kKvTypes) {
    BlockProblem problem(BlockDesc(BlockMethod::kBounds, 4, 2, 20, 4), kv,
                         {{1, 70}}, 32, 1);
    Summarise(problem, cpu);
    for (int head = 0; head < 2; ++head) {
      for (int block = 0; block < 4; ++block) {
        const std::byte* summary = problem.Summary(0, head, block);
        for (int d = 0; d < 20; ++d) {
          float least = std::numeric_limits<float>::infinity(), most = -least;
          for (int t = 0; t < kSelectBlock; ++t) {
            const float x = problem.Key(
                0, head, block * kSelectBlock + t)[static_cast<size_t>(d)];
            least = std::min(least, x);
            most = std::max(most, x);
          }
          EXPECT_LE(Element(summary, d), least);
          EXPECT_GE(Element(summary, d), least - std::abs(least) / 128);
          EXPECT_GE(Element(summary, 20 + d), most);
          EXPECT_LE(Element(summary, 20 + d), most + std::abs(most) / 128);
        }
      }
    }
  }
}

// Two kinds of keys in a block are what its centroids become, whichever keys
// are which.
TEST(BlockSummaryTest, CentroidsAreThoseOfTheClusters) {
  TestCpu cpu(1);
  std::mt19937 rng(4);
  for (int turn = 0; turn < 20; ++turn) {
    BlockProblem problem(BlockDesc(BlockMethod::kKMeans, 1, 1, 8, 4),
                         DType::kF32, {{1, 16}}, 16, 1);
    // At least two of each.
    std::vector<int> kinds(kSelectBlock);
    for (int t = 0; t < kSelectBlock; ++t)
      kinds[static_cast<size_t>(t)] = t < 2   ? 0
                                      : t < 4 ? 1
                                              : static_cast<int>(rng() % 2);
    std::shuffle(kinds.begin(), kinds.end(), rng);
    double means[2] = {};
    int counts[2] = {};
    const int32_t block = static_cast<int32_t>(problem.Slots()[0] / 16);
    for (int t = 0; t < kSelectBlock; ++t) {
      const int kind = kinds[static_cast<size_t>(t)];
      const float x =
          (kind == 0 ? -3.0f : 5.0f) + 0.125f * static_cast<float>(t % 4);
      const std::vector<float> key(8, x);
      EncodeKvRow(DType::kF32, key.data(), 8,
                  problem.Keys().KeyRow(block, 0, t));
      means[kind] += x;
      ++counts[kind];
    }
    Summarise(problem, cpu);
    float low = Element(problem.Summary(0, 0, 0), 0);
    float high = Element(problem.Summary(0, 0, 0), 8);
    if (low > high) std::swap(low, high);
    EXPECT_NEAR(low, means[0] / counts[0], 3.0 / 256);
    EXPECT_NEAR(high, means[1] / counts[1], 6.0 / 256);
  }
}

// The share of equal bits is what the angle says: 1 - angle / pi.
TEST(BlockSummaryTest, HashesTellAngles) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  for (const int dim : {16, 64, 128, 200}) {
    std::vector<float> space(static_cast<size_t>(HashWidth(dim)));
    double sum[3] = {};
    constexpr int kPairs = 400;
    constexpr double kAngles[3] = {0.3, 1.0, 2.0};
    for (int pair = 0; pair < kPairs; ++pair) {
      std::vector<float> a(static_cast<size_t>(dim)), b = a, mixed = a;
      double aa = 0.0, ab = 0.0, bb = 0.0;
      for (size_t d = 0; d < a.size(); ++d) {
        a[d] = normal(rng);
        b[d] = normal(rng);
        aa += a[d] * a[d];
        ab += a[d] * b[d];
      }
      for (size_t d = 0; d < a.size(); ++d) {
        b[d] -= static_cast<float>(ab / aa) * a[d];
        bb += b[d] * b[d];
      }
      uint64_t words[2][kHashWords];
      HashVector(a.data(), dim, space.data(), words[0]);
      for (int i = 0; i < 3; ++i) {
        for (size_t d = 0; d < a.size(); ++d) {
          mixed[d] =
              static_cast<float>(std::cos(kAngles[i]) * a[d] / std::sqrt(aa) +
                                 std::sin(kAngles[i]) * b[d] / std::sqrt(bb));
        }
        HashVector(mixed.data(), dim, space.data(), words[1]);
        for (int w = 0; w < kHashWords; ++w) {
          sum[i] += std::popcount(words[0][w] ^ words[1][w]);
        }
      }
    }
    for (int i = 0; i < 3; ++i) {
      // Five deviations of a share of at most 1/2, of which a pair has no more
      // independent ones than dimensions.
      const double deviation =
          0.5 / std::sqrt(double{kPairs} * std::min(dim, kHashBits));
      EXPECT_NEAR(sum[i] / kPairs / kHashBits, kAngles[i] / std::acos(-1.0),
                  5.0 * deviation)
          << dim << " at " << kAngles[i];
    }
  }
}

// A block is summarised when its last slot is written, and then only: what is
// not whole has no summary yet, and others keep theirs.
TEST(BlockSummaryTest, OnlyBlocksThatAreCompleted) {
  TestCpu cpu(2);
  for (const BlockMethod method : kBlockMethods) {
    BlockProblem whole(BlockDesc(method, 4, 2, 20, 4), DType::kF16, {{1, 90}},
                       32, 3);
    BlockProblem parts(BlockDesc(method, 4, 2, 20, 4), DType::kF16, {{1, 90}},
                       32, 3);
    const std::vector<std::byte> before = parts.storage();
    Summarise(whole, cpu);
    const std::vector<int64_t> slots = parts.Slots();
    const BlockSummaryDesc desc = parts.summary_desc();
    const auto& row = BlockSummaryTable().back();
    std::vector<int64_t> part(slots.begin(), slots.begin() + 15);
    ASSERT_TRUE(row.run(desc, parts.SummaryParams(part), *cpu.stream).ok());
    EXPECT_TRUE(parts.storage() == before);
    part.assign(slots.begin() + 15, slots.begin() + 40);
    ASSERT_TRUE(row.run(desc, parts.SummaryParams(part), *cpu.stream).ok());
    part.assign(slots.begin() + 40, slots.end());
    ASSERT_TRUE(row.run(desc, parts.SummaryParams(part), *cpu.stream).ok());
    EXPECT_TRUE(parts.storage() == whole.storage());
  }
}

TEST(BlockSelectionTest, SelectsTheBestOverSizesAndTypes) {
  TestCpu cpu(2);
  constexpr int kNumBlocks[] = {4, 9, 30};
  unsigned seed = 1;
  // Every size and every type with each number of blocks.
  for (const BlockMethod method : kBlockMethods) {
    for (const DType kv : kKvTypes) {
      for (const int head_dim : {32, 128, 20, 7, 256}) {
        const int num_blocks = kNumBlocks[seed / 3 % 3];
        SCOPED_TRACE(::testing::Message()
                     << "method " << static_cast<int>(method) << " head_dim "
                     << head_dim << " " << DTypeName(kv) << " of " << num_blocks
                     << " seed " << seed);
        const int kv_heads = 1 + static_cast<int>(seed % 3);
        const int group = 1 + static_cast<int>(seed * 5 % 7);
        BlockProblem problem(
            BlockDesc(method, kv_heads * group, kv_heads, head_dim, num_blocks),
            kv, kRaggedSelections, seed % 2 == 0 ? 16 : 64, seed);
        CheckSelection(problem, cpu);
        ++seed;
      }
    }
  }
}

TEST(BlockSelectionTest, EverySimdTarget) {
  TestCpu cpu(2);
  OnEverySimdTarget([&] {
    for (const BlockMethod method : kBlockMethods) {
      for (const int head_dim : {20, 128}) {
        BlockProblem problem(BlockDesc(method, 6, 2, head_dim, 6), DType::kF32,
                             kRaggedSelections, 16, 3);
        CheckSelection(problem, cpu);
      }
    }
  });
}

// Few tasks, 32 at most, are cut into 16 ranges of blocks, many are not: in
// both, every range may have all of the best, or none. Integers make scores
// tie.
TEST(BlockSelectionTest, FewQueriesOfManyBlocks) {
  TestCpu cpu(2);
  unsigned seed = 1;
  for (const BlockMethod method : kBlockMethods) {
    for (const int queries : {1, 5, 14, 40}) {
      for (const int num_blocks : {4, 20, 70}) {
        SCOPED_TRACE(::testing::Message() << queries << " of " << num_blocks);
        BlockProblem problem(BlockDesc(method, 2, 1, 8, num_blocks),
                             DType::kBF16, {{1, 90}, {queries, 2000}, {1, 700}},
                             16, seed++);
        CheckSelection(problem, cpu);
        if (queries == 14) continue;
        problem.UseIntegers(2);
        CheckSelection(problem, cpu);
        if (method == BlockMethod::kBounds && queries == 40) {
          EXPECT_GT(problem.ties(), 5);
        }
      }
    }
  }
}

// The same query selects the same blocks decoded one by one, in any chunk, next
// to other sequences, on any number of threads.
TEST(BlockSelectionTest, AQueryDependsOnNothingBesideItsSequence) {
  constexpr int kLength = 250, kBlocks = 7;
  TestCpu cpus[] = {TestCpu(1), TestCpu(2), TestCpu(3)};
  for (const BlockMethod method : kBlockMethods) {
    BlockProblem problem(BlockDesc(method, 6, 2, 40, kBlocks), DType::kI8,
                         {{kLength, kLength}, {9, 80}}, 16, 5);
    Summarise(problem, cpus[0]);
    ForEachCpuRow(
        BlockSelectionTable(), problem.desc(), cpus[0],
        [&](const BlockSelectionRow& row) {
          std::vector<int32_t> whole = problem.NewSelection();
          const BlockSelectionParams params = problem.Params(whole.data());
          RunWithWorkspace(row, problem.desc(), params, cpus[1]);
          int turn = 0;
          for (const int chunk : {1, 3, 16, 67}) {
            std::vector<int32_t> chunked = problem.NewSelection();
            BlockSelectionParams part = problem.Params(chunked.data());
            const AttentionSequence all = part.sequences[0];
            for (int begin = 0; begin < kLength; begin += chunk) {
              AttentionSequence sequence = all;
              sequence.q_begin = begin;
              sequence.q_len = std::min(chunk, kLength - begin);
              sequence.kv_len = begin + sequence.q_len;
              part.sequences = absl::MakeConstSpan(&sequence, 1);
              RunWithWorkspace(row, problem.desc(), part, cpus[turn++ % 3]);
            }
            const auto end = whole.begin() + int64_t{kLength} * 2 * kBlocks;
            EXPECT_TRUE(std::equal(whole.begin(), end, chunked.begin()))
                << "in chunks of " << chunk;
          }
        });
  }
}

TEST(BlockSelectionTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  const auto served = [&](const BlockSelectionDesc& desc) {
    return Select("block_selection", BlockSelectionTable(), desc, cpu).ok();
  };
  const auto bounds = BlockMethod::kBounds;
  EXPECT_TRUE(served(BlockDesc(bounds, 32, 8, 128, 128)));
  EXPECT_FALSE(served(BlockDesc(BlockMethod::kNone, 32, 8, 128, 128)));
  EXPECT_FALSE(served(BlockDesc(bounds, 30, 8, 128, 128)));
  EXPECT_FALSE(served(BlockDesc(bounds, 32, 8, kMaxSummaryHeadDim + 1, 128)));
  EXPECT_FALSE(served(BlockDesc(bounds, 32, 8, 128, kMinSelectedBlocks - 1)));
  EXPECT_FALSE(served(BlockDesc(bounds, 32, 8, 128, kMaxSelectedBlocks + 1)));
  EXPECT_FALSE(served(BlockDesc(bounds, kMaxSelectingGroup + 1, 1, 8, 128)));
  BlockSelectionOptions options;
  EXPECT_TRUE(ValidateBlockSelectionOptions(options).ok());
  EXPECT_EQ(FormatBlockSelection(options), "");
  options.tokens = 64;
  EXPECT_FALSE(ValidateBlockSelectionOptions(options).ok());
  options.method = BlockMethod::kLsh;
  EXPECT_TRUE(ValidateBlockSelectionOptions(options).ok());
  EXPECT_EQ(FormatBlockSelection(options), "lsh:64");
  for (const int64_t tokens : {0, 48, 100, 131088}) {
    options.tokens = tokens;
    EXPECT_FALSE(ValidateBlockSelectionOptions(options).ok()) << tokens;
  }
}

// What a plan has of each query: whole blocks before its own, and of that one
// what is not after it.
TEST(BlockAttentionTest, HowManyKeysAQuerySees) {
  const auto keys_of = [](int block, int64_t position) {
    return KeyMix{.block = block}.Count(80, position);
  };
  EXPECT_EQ(keys_of(16, 0), 1);
  EXPECT_EQ(keys_of(16, 79), 80);
  EXPECT_EQ(keys_of(16, 80), 65);
  EXPECT_EQ(keys_of(16, 1000), 73);
  // A whole block of the query's own is chosen as others are.
  const auto partial_of = [](int64_t position) {
    return KeyMix{.block = 16, .own_if_partial = true}.Count(80, position);
  };
  EXPECT_EQ(partial_of(0), 1);
  EXPECT_EQ(partial_of(15), 16);
  EXPECT_EQ(partial_of(63), 64);
  EXPECT_EQ(partial_of(78), 79);
  EXPECT_EQ(partial_of(79), 64);
  EXPECT_EQ(partial_of(80), 65);
  EXPECT_EQ(partial_of(1000), 73);
  EXPECT_EQ(keys_of(1, 78), 79);
  EXPECT_EQ(keys_of(1, 80), 80);
  const int32_t block = 3;
  const AttentionSequence sequences[] = {{0, 2, 81, &block}, {2, 1, 7, &block}};
  AttentionSequence queries[3];
  ASSERT_EQ(SplitIntoQueries(sequences, 80, queries, {.block = 16}), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queries[i].q_begin, i);
    EXPECT_EQ(queries[i].q_len, 1);
    EXPECT_EQ(queries[i].kv_len, i == 0 ? 80 : i == 1 ? 65 : 7);
  }
}

// A block that no multiple of the selection's can hold is refused.
TEST(BlockAttentionTest, RefusesAndValidates) {
  const DeviceInfo cpu{DeviceKind::kCpu, "cpu"};
  AttentionDesc desc;
  desc.num_heads = desc.num_kv_heads = 1;
  desc.head_dim = 8;
  desc.selects = 64;
  for (const int block : {1, 16, 64}) {
    desc.mix.block = block;
    EXPECT_TRUE(Select("attention", AttentionTable(), desc, cpu).ok()) << block;
  }
  for (const int block : {0, -16, 24, 128}) {
    desc.mix.block = block;
    EXPECT_FALSE(Select("attention", AttentionTable(), desc, cpu).ok())
        << block;
    EXPECT_EQ(ValidateAttention(desc, {}).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// Every KV head of every query sees blocks of its own.
TEST(BlockAttentionTest, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int kLength = 300, kQueries = 9, kBlocks = 5, kDim = 24;
  std::mt19937 rng(6);
  for (const DType kv : kKvTypes) {
    AttentionDesc desc;
    desc.num_heads = 6;
    desc.num_kv_heads = 2;
    desc.head_dim = kDim;
    desc.kv = kv;
    desc.scale = 0.2f;
    desc.selects = kBlocks * kSelectBlock;
    desc.mix.block = kSelectBlock;
    for (const int block_size : {16, 64}) {
      const KvLayout layout({{2, kDim}}, kv, block_size);
      std::vector<int32_t> table;
      for (int i = 0; i * block_size < kLength; ++i) table.push_back(i + 1);
      std::shuffle(table.begin(), table.end(), rng);
      std::vector<std::byte> storage(layout.block_bytes() * (table.size() + 1),
                                     std::byte{0xff});
      const KvLayerView view = layout.LayerView(0, storage.data());
      const auto row_of = [&](bool value, int head, int t) {
        const int32_t block = table[static_cast<size_t>(t / block_size)];
        return value ? view.ValueRow(block, head, t % block_size)
                     : view.KeyRow(block, head, t % block_size);
      };
      std::normal_distribution<float> normal;
      for (int t = 0; t < kLength; ++t) {
        for (int head = 0; head < 2; ++head) {
          for (const bool value : {false, true}) {
            float x[kDim];
            for (float& e : x) e = normal(rng);
            EncodeKvRow(kv, x, kDim, row_of(value, head, t));
          }
        }
      }
      TestMatrix q(DType::kF32, kQueries, 6 * kDim, 8);
      q.Randomize(rng);
      const int units = block_size / kSelectBlock;
      std::vector<int32_t> selection;
      std::vector<std::vector<int>> drawn;
      for (int i = 0; i < kQueries; ++i) {
        const int own = (kLength - kQueries + i) / kSelectBlock;
        for (int head = 0; head < 2; ++head) {
          std::vector<int> blocks;
          while (blocks.size() < kBlocks - 1) {
            const int b = static_cast<int>(rng() % static_cast<unsigned>(own));
            if (std::find(blocks.begin(), blocks.end(), b) == blocks.end()) {
              blocks.push_back(b);
            }
          }
          std::sort(blocks.begin(), blocks.end());
          blocks.push_back(own);
          for (const int b : blocks) {
            selection.push_back(table[static_cast<size_t>(b / units)] * units +
                                b % units);
          }
          drawn.push_back(std::move(blocks));
        }
      }
      const AttentionSequence sequence = {0, kQueries, kLength, nullptr};
      ForEachCpuRow(AttentionTable(), desc, cpu, [&](const AttentionRow& row) {
        TestMatrix out(DType::kF32, kQueries, 6 * kDim, 8);
        AttentionParams params;
        params.q = q.view();
        params.out = out.view();
        params.kv = view;
        params.sequences = absl::MakeConstSpan(&sequence, 1);
        params.selection = selection.data();
        ASSERT_TRUE(ValidateAttention(desc, params).ok());
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int i = 0; i < kQueries; ++i) {
          for (int h = 0; h < 6; ++h) {
            double sum = 0.0, want[kDim] = {}, magnitude[kDim] = {};
            double products = 0.0, highest = 0.0;
            for (const int b : drawn[static_cast<size_t>(2 * i + h / 3)]) {
              for (int t = b * kSelectBlock; t < (b + 1) * kSelectBlock; ++t) {
                if (t > kLength - kQueries + i) break;
                float key[kDim], value[kDim];
                DecodeKvRow(kv, row_of(false, h / 3, t), kDim, key);
                DecodeKvRow(kv, row_of(true, h / 3, t), kDim, value);
                double dot = 0.0, size = 0.0;
                for (int d = 0; d < kDim; ++d) {
                  dot += double{q(i, h * kDim + d)} * key[d];
                  size += std::abs(double{q(i, h * kDim + d)} * key[d]);
                }
                products = std::max(products, size * desc.scale);
                highest = std::max(highest, std::abs(dot * desc.scale));
                const double weight = std::exp(dot * desc.scale);
                sum += weight;
                for (int d = 0; d < kDim; ++d) {
                  want[d] += weight * value[d];
                  magnitude[d] += weight * std::abs(value[d]);
                }
              }
            }
            for (int d = 0; d < kDim; ++d) {
              // As attention (attention_cpu_util.h): scores' sums of products,
              // their scale and maximum, and sums over 80 keys, in numerator
              // and denominator.
              EXPECT_NEAR(
                  out(i, h * kDim + d), want[d] / sum,
                  kUnitF32 * magnitude[d] / sum *
                      (2 * ((kDim + 2) * products + 4 * highest) + 2 * 80 + 24))
                  << i << " " << h << " " << d;
            }
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace inlay
