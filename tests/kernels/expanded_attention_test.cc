// expanded_attention: on CPU what attention over the latents themselves gives;
// what is refused; and which sequences of a plan expand, in which rounds.
#include "kernels/attention/expanded_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/attention/attention_unpack.h"
#include "tests/support/kernel_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
using ::testing::HasSubstr;

// Of no particular size, so that no two dimensions pass for each other.
ExpandedAttentionDesc SmallDesc() {
  ExpandedAttentionDesc desc;
  desc.num_heads = 3;
  desc.rank = 40;
  desc.key_dim = 24;
  desc.rope_dim = 8;
  desc.value_dim = 16;
  desc.block_size = 4;
  desc.scale = 0.2f;
  return desc;
}

// Two sequences over a cache of float32, a chunk and a single query, and the
// matrices of all heads.
struct SmallProblem {
  SmallProblem() {
    std::mt19937 rng(11);
    const int64_t heads = desc.num_heads;
    q = TestMatrix(DType::kF32, 6, heads * desc.head_dim(), 4);
    q.Randomize(rng);
    keys = TestMatrix(DType::kF32, heads * desc.rank, desc.key_dim);
    keys.Randomize(rng, 0.3f);
    values = TestMatrix(DType::kF32, heads * desc.value_dim, desc.rank);
    values.Randomize(rng, 0.3f);
    cache = TestMatrix(DType::kF32, 6 * desc.block_size, kv_dim());
    cache.Randomize(rng);
    sequences = {{0, 5, 9, first.data()}, {5, 1, 7, second.data()}};
    kv.base = cache.view().data;
    kv.dtype = DType::kF32;
    kv.block_size = desc.block_size;
    kv.num_kv_heads = 1;
    kv.head_dim = kv_dim();
    kv.value_dim = desc.rank;
    kv.block_stride_bytes = kv.row_bytes() * desc.block_size;
  }
  int kv_dim() const { return desc.rank + desc.rope_dim; }
  ExpandedAttentionParams Params(TestMatrix& out) {
    ExpandedAttentionParams params;
    params.q = q.view();
    params.out = out.view();
    params.kv = kv;
    params.keys = {keys.view().data,
                   static_cast<size_t>(4 * desc.rank * desc.key_dim)};
    params.values = {values.view().data,
                     static_cast<size_t>(4 * desc.rank * desc.value_dim)};
    params.sequences = sequences;
    return params;
  }

  ExpandedAttentionDesc desc = SmallDesc();
  TestMatrix q, keys, values, cache;
  std::vector<int32_t> first = {5, 0, 3};
  std::vector<int32_t> second = {2, 4};
  std::vector<AttentionSequence> sequences;
  KvLayerView kv;
};

// Absorbed queries over the latents, and sums of latents through the values'
// matrices: the other form, computed by the other op.
TEST(ExpandedAttentionTest, IsAttentionOverTheLatents) {
  const TestCpu cpu;
  SmallProblem problem;
  const ExpandedAttentionDesc& desc = problem.desc;
  const int64_t heads = desc.num_heads;
  TestMatrix out(DType::kF32, 6, heads * desc.value_dim, 4);
  const ExpandedAttentionParams params = problem.Params(out);
  ASSERT_TRUE(ValidateExpandedAttention(desc, params).ok());

  const int64_t row = problem.kv_dim();
  TestMatrix absorbed(DType::kF32, 6, heads * row);
  TestMatrix context(DType::kF32, 6, heads * desc.rank);
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t query = h * desc.head_dim();
      for (int64_t j = 0; j < desc.rank; ++j) {
        double sum = 0;
        for (int64_t d = 0; d < desc.key_dim; ++d) {
          sum += double{problem.keys(h * desc.rank + j, d)} *
                 problem.q(t, query + d);
        }
        absorbed.Set(t, h * row + j, static_cast<float>(sum));
      }
      for (int64_t d = 0; d < desc.rope_dim; ++d) {
        absorbed.Set(t, h * row + desc.rank + d,
                     problem.q(t, query + desc.key_dim + d));
      }
    }
  }
  AttentionDesc over;
  over.num_heads = desc.num_heads;
  over.num_kv_heads = 1;
  over.head_dim = problem.kv_dim();
  over.value_dim = desc.rank;
  over.scale = desc.scale;
  AttentionParams latents;
  latents.q = absorbed.view();
  latents.out = context.view();
  latents.kv = problem.kv;
  latents.sequences = problem.sequences;
  const auto attention = Select("attention", AttentionTable(), over,
                                cpu.device->info(), "cpu_scalar");
  ASSERT_TRUE(attention.ok()) << attention.status();
  ASSERT_TRUE((*attention)->run(over, latents, *cpu.stream).ok());
  const auto want = [&](int64_t t, int64_t c) {
    const int64_t h = c / desc.value_dim;
    double sum = 0;
    for (int64_t j = 0; j < desc.rank; ++j) {
      sum += double{problem.values(c, j)} * context(t, h * desc.rank + j);
    }
    return sum;
  };
  ForEachCpuRow(ExpandedAttentionTable(), desc, cpu,
                [&](const ExpandedAttentionRow& kernel) {
                  ASSERT_TRUE(kernel.run(desc, params, *cpu.stream).ok());
                  // Sums in double; absorbed queries and contexts are rounded
                  // to float32: scores of up to 20 by 20 * 2^-24 each, 40
                  // products of up to 3.
                  ExpectClose(out, want, [](int64_t, int64_t) { return 1e-5; });
                });
}

TEST(ExpandedAttentionTest, RefusesWhatDoesNotFit) {
  SmallProblem problem;
  TestMatrix out(DType::kF32, 6, 3 * 16, 4);
  const ExpandedAttentionParams good = problem.Params(out);
  const auto expect = [&](const ExpandedAttentionDesc& desc,
                          const ExpandedAttentionParams& params,
                          const char* what) {
    const absl::Status status = ValidateExpandedAttention(desc, params);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  ExpandedAttentionDesc desc = problem.desc;
  desc.num_heads = 0;
  expect(desc, good, "num_heads");
  desc = problem.desc;
  desc.rank = 41;
  expect(desc, good, "the cache is");
  desc = problem.desc;
  desc.block_size = 8;
  expect(desc, good, "the cache is");
  desc = problem.desc;
  desc.value_dim = 17;
  expect(desc, good, "out");
  desc = problem.desc;
  desc.scale = std::nanf("");
  expect(desc, good, "scale");
  ExpandedAttentionParams params = good;
  params.q = out.view();
  expect(problem.desc, params, "q");
  params = good;
  params.values.base = nullptr;
  expect(problem.desc, params, "matrices");
  params = good;
  problem.sequences[1].kv_len = 0;
  params.sequences = problem.sequences;
  expect(problem.desc, params, "kv_len");
}

// What a plan of latents is cut for, DeepSeek's if nothing is said.
AttentionPlanShape LatentShape(int heads,
                               const ExpandedDims& dims = kExpandedDims[0]) {
  AttentionPlanShape shape;
  shape.num_kv_heads = 1;
  shape.group = heads;
  shape.head_dim = dims.rank + dims.rope_dim;
  shape.block_size = 16;
  shape.grid = 132;
  if (shape.head_dim == 576) {
    const int ctas = heads > kAttentionWideItemRows ? 2 : 1;
    shape.item_rows = ctas * kAttentionWideItemRows;
    shape.grid /= ctas;
  }
  LetExpand(dims, shape);
  return shape;
}

struct LatentBatch {
  // Blocks of a sequence: 1000 times its number and on.
  void Add(int q_len, int kv_len) {
    const int begin = sequences.empty()
                          ? 0
                          : sequences.back().q_begin + sequences.back().q_len;
    auto& table = tables.emplace_back(static_cast<size_t>(kv_len + 15) / 16);
    std::iota(table.begin(), table.end(),
              100000 * static_cast<int>(tables.size()));
    sequences.push_back({begin, q_len, kv_len, table.data()});
  }
  std::vector<std::vector<int32_t>> tables;
  std::vector<AttentionSequence> sequences;
};

struct alignas(64) Line {
  std::byte bytes[64];
};

struct BuiltPlan {
  BuiltPlan(const AttentionPlanShape& shape,
            absl::Span<const AttentionSequence> sequences) {
    limits = AttentionPlanLimitsOf(shape, sequences);
    image.resize(LayOutAttentionPlan(shape, limits).bytes / sizeof(Line));
    plan = BuildAttentionPlan(shape, limits, sequences, data());
  }
  std::byte* data() { return image.front().bytes; }
  template <typename T>
  const T* At(size_t offset) {
    return reinterpret_cast<const T*>(data() + offset);
  }
  AttentionPlanLimits limits;
  std::vector<Line> image;
  AttentionPlan plan;
};

TEST(ExpandedAttentionTest, PlansExpandPromptsBesideDecodes) {
  for (const int heads : {16, 128}) {
    const AttentionPlanShape shape = LatentShape(heads);
    LatentBatch batch;
    batch.Add(1, 500);
    batch.Add(2, 30);
    batch.Add(2000, 2000);
    batch.Add(1, 9000);
    batch.Add(512, 1500);
    batch.Add(0, 100);
    batch.Add(20, 20);
    BuiltPlan built(shape, batch.sequences);
    const AttentionPlan& plan = built.plan;
    EXPECT_TRUE(plan.run_items);
    // Tokens of items, neighbours together.
    ASSERT_EQ(plan.item_tokens.size(), 3);
    EXPECT_EQ(plan.item_tokens[0].begin, 0);
    EXPECT_EQ(plan.item_tokens[0].count, 3);
    EXPECT_EQ(plan.item_tokens[1].begin, 2003);
    EXPECT_EQ(plan.item_tokens[1].count, 1);
    EXPECT_EQ(plan.item_tokens[2].begin, 2516);
    EXPECT_EQ(plan.item_tokens[2].count, 20);
    // 125 blocks and 94, 8 KB each and head: 27 MB for 16 heads, and for 128
    // two turns.
    ASSERT_EQ(plan.rounds.size(), 1);
    EXPECT_EQ(plan.num_tiles, 16 + 4);
    EXPECT_EQ(plan.rounds[0].num_tiles, 20);
    EXPECT_EQ(plan.rounds[0].num_blocks, 125 + 94);
    EXPECT_EQ(plan.rounds[0].heads, heads == 16 ? 16 : 64);
    EXPECT_EQ(plan.unpacked_bytes,
              size_t{219} * 8192 * (heads == 16 ? 16 : 64));
    const auto* blocks = built.At<int32_t>(plan.layout.blocks);
    const auto* tiles = built.At<AttentionTile>(plan.layout.tiles);
    for (int i = 0; i < plan.num_tiles; ++i) {
      const AttentionTile& tile = tiles[i];
      const bool first = tile.q_row < 2003;
      const AttentionSequence& sequence = batch.sequences[first ? 2 : 4];
      EXPECT_EQ(tile.runs_begin, first ? 0 : 125 * 16);
      EXPECT_EQ(tile.key_begin, 0);
      EXPECT_EQ(tile.key_end, tile.position + tile.num_tokens);
      for (int b = 0; b < (sequence.kv_len + 15) / 16; ++b) {
        // The sequence's own table stays the cache's, and the round's list has
        // the same blocks from its first row on.
        ASSERT_EQ(blocks[tile.blocks_begin + b], sequence.blocks[b]);
        ASSERT_EQ(blocks[plan.rounds[0].first_block + tile.runs_begin / 16 + b],
                  sequence.blocks[b]);
      }
    }
  }
}

// What decodes cost is shared out by themselves: a prompt that expands beside
// them takes none of the multiprocessors' lists.
TEST(ExpandedAttentionTest, DecodesAreCutAsWithoutThePromptBesideThem) {
  const AttentionPlanShape shape = LatentShape(64);
  LatentBatch alone;
  for (int i = 0; i < 8; ++i) alone.Add(1, 60000);
  LatentBatch beside = alone;
  beside.Add(8192, 8192);
  const auto longest = [&](const LatentBatch& batch) {
    BuiltPlan built(shape, batch.sequences);
    const auto* begins = built.At<int32_t>(built.plan.layout.cta_items);
    const auto* items = built.At<AttentionItem>(built.plan.layout.items);
    int64_t most = 0, all = 0;
    for (int cta = 0; cta < shape.grid; ++cta) {
      int64_t keys = 0;
      for (int i = begins[cta]; i < begins[cta + 1]; ++i) {
        keys += items[i].key_end - items[i].key_begin;
      }
      most = std::max(most, keys);
      all += keys;
    }
    EXPECT_EQ(all, 8 * 60000);
    return most;
  };
  EXPECT_LT(longest(alone), 2 * 8 * 60000 / shape.grid);
  EXPECT_EQ(longest(beside), longest(alone));
}

// Where keys are selected, prompts expand that are no longer than what is
// selected; of the others every query is a sequence without a table.
TEST(ExpandedAttentionTest, PromptsExpandThatSelectAllTheirKeys) {
  AttentionPlanShape shape = LatentShape(64, kExpandedDims[1]);
  shape.selects = 2048;
  LatentBatch batch;
  batch.Add(1, 500);
  batch.Add(1000, 2048);
  batch.Add(2000, 2049);
  batch.Add(3, 9000);
  batch.Add(0, 70);
  batch.Add(700, 700);
  std::vector<AttentionSequence> queries(1 + 1000 + 2000 + 3 + 700);
  const int64_t count =
      SplitUnlessExpanded(shape, batch.sequences, queries.data());
  ASSERT_EQ(count, 1 + 1 + 2000 + 3 + 1);
  queries.resize(static_cast<size_t>(count));
  EXPECT_EQ(queries[0].blocks, nullptr);
  EXPECT_EQ(queries[1].q_len, 1000);
  EXPECT_EQ(queries[1].blocks, batch.sequences[1].blocks);
  EXPECT_EQ(queries[2001].kv_len, 2048);
  EXPECT_EQ(queries[2001].q_len, 1);
  EXPECT_EQ(queries.back().q_len, 700);
  BuiltPlan built(shape, queries);
  const AttentionPlan& plan = built.plan;
  EXPECT_LE(plan.used_bytes, plan.layout.bytes);
  EXPECT_EQ(plan.num_tiles, 8 + 6);
  EXPECT_TRUE(plan.run_items);
  ASSERT_EQ(plan.item_tokens.size(), 2);
  EXPECT_EQ(plan.item_tokens[0].count, 1);
  EXPECT_EQ(plan.item_tokens[1].begin, 1001);
  EXPECT_EQ(plan.item_tokens[1].count, 2003);
  const auto* blocks = built.At<int32_t>(plan.layout.blocks);
  const auto* tiles = built.At<AttentionTile>(plan.layout.tiles);
  for (int i = 0; i < plan.num_tiles; ++i) {
    const AttentionSequence& sequence =
        batch.sequences[tiles[i].q_row < 2000 ? 1 : 5];
    EXPECT_TRUE(std::equal(sequence.blocks,
                           sequence.blocks + (sequence.kv_len + 15) / 16,
                           blocks + tiles[i].blocks_begin));
  }
  // Without kernels for it nothing stays whole.
  shape.expanded = {};
  queries.resize(3704);
  EXPECT_EQ(SplitUnlessExpanded(shape, batch.sequences, queries.data()), 3704)
      << "as SplitIntoQueries";
}

// In small rooms rounds and turns; what does not fit stays as it is.
TEST(ExpandedAttentionTest, RoundsStayWithinTheirRoom) {
  std::mt19937 rng(5);
  size_t most_rounds = 0;
  for (int round = 0; round < 60; ++round) {
    AttentionPlanShape shape =
        LatentShape(round % 2 == 0 ? 16 : 128, kExpandedDims[rng() % 3]);
    shape.unpack_bytes = int64_t{1} << (18 + rng() % 8);
    // Turns pay where they leave no multiprocessors idle.
    if (rng() % 2 == 0) shape.grid = 1;
    LatentBatch batch;
    for (int s = 0; s < 12; ++s) {
      const int q_len = rng() % 3 == 0 ? 1 : static_cast<int>(rng() % 3000);
      batch.Add(q_len, q_len + static_cast<int>(rng() % 4000));
    }
    BuiltPlan built(shape, batch.sequences);
    const AttentionPlan& plan = built.plan;
    most_rounds = std::max(most_rounds, plan.rounds.size());
    int next = 0;
    for (const AttentionUnpackRound& r : plan.rounds) {
      EXPECT_EQ(r.first_tile, next);
      next += r.num_tiles;
      ASSERT_GE(r.heads, 1);
      EXPECT_LE(r.heads, UnpackedHeads(shape, r.num_blocks));
      const int64_t bytes = int64_t{r.num_blocks} * 16 *
                            ExpandedRowBytes(shape.expanded) * r.heads;
      EXPECT_LE(bytes, shape.unpack_bytes);
      EXPECT_LE(bytes, static_cast<int64_t>(plan.unpacked_bytes));
    }
    EXPECT_EQ(next, plan.num_tiles);
    int64_t tiles = 0, items = 0, listed = 0;
    for (const AttentionSequence& sequence : batch.sequences) {
      // As it is alone.
      BuiltPlan alone(shape, {&sequence, 1});
      tiles += alone.plan.num_tiles;
      EXPECT_EQ(alone.plan.num_tiles > 0, Expands(shape, sequence));
      if (alone.plan.num_tiles == 0) items += sequence.q_len;
    }
    EXPECT_EQ(tiles, plan.num_tiles);
    for (const AttentionTokenRange& range : plan.item_tokens) {
      listed += range.count;
    }
    EXPECT_EQ(listed, items);
    AttentionPlanShape absorbed = shape;
    absorbed.expanded = {};
    absorbed.unpack_bytes = absorbed.tile_tokens = 0;
    EXPECT_LE(AttentionWorkspaceBytes(absorbed, 12, built.limits.tokens) +
                  plan.unpacked_bytes,
              AttentionWorkspaceBytes(shape, 12, built.limits.tokens));
    EXPECT_LE(AttentionWorkspaceBytes(shape, 12, built.limits.tokens),
              AttentionWorkspaceBytes(absorbed, 12, built.limits.tokens) +
                  static_cast<size_t>(shape.unpack_bytes));
  }
  EXPECT_GT(most_rounds, 4);
}

TEST(ExpandedAttentionTest, ExpandsWhereItPays) {
  for (const ExpandedDims& dims : kExpandedDims) {
    for (const int heads : {16, 128}) {
      SCOPED_TRACE(::testing::Message() << dims.key_dim << ", " << heads);
      const auto expands = [&](int heads, int q_len, int kv_len) {
        return Expands(LatentShape(heads, dims), {0, q_len, kv_len, nullptr});
      };
      EXPECT_TRUE(expands(heads, 2048, 2048));
      EXPECT_TRUE(expands(heads, 8192, 8192));
      EXPECT_TRUE(expands(heads, 2048, 16384));
      EXPECT_FALSE(expands(heads, 63, 63));
      EXPECT_FALSE(expands(heads, 1, 8192));
      // Each key is expanded for few queries. Items of narrow rows are slow.
      EXPECT_EQ(expands(heads, 64, 8192), dims.rank == 256);
      // One tile a head is all there is, and heads take turns.
      EXPECT_EQ(expands(heads, 128, 65536), dims.rank == 256);
      // Turns of 8 heads have tiles for a quarter of the multiprocessors.
      EXPECT_EQ(expands(heads, 512, 32768), dims.rank == 256);
      // One head does not fit.
      EXPECT_FALSE(expands(heads, 8192, dims.rank == 512 ? 300000 : 600000));
    }
  }
  // Of 128 heads 53 would fit, 43 each in three turns of two waves of 4 tiles a
  // head; four turns of one wave take less.
  AttentionPlanShape shape = LatentShape(128);
  const ExpandedWork work = ExpandedWorkOf(shape, {0, 512, 4944, nullptr});
  EXPECT_EQ(work.blocks, 309);
  EXPECT_EQ(work.tiles, 4);
  EXPECT_EQ(work.longest, 4944);
  EXPECT_EQ(UnpackedHeads(shape, 309), 43);
  EXPECT_EQ(ExpandedTurnsOf(shape, work).heads, 32);

  shape.tile_tokens = 0;  // batch_invariant
  LatentBatch batch;
  batch.Add(2048, 2048);
  BuiltPlan built(shape, batch.sequences);
  EXPECT_EQ(built.plan.num_tiles, 0);
  EXPECT_TRUE(built.plan.rounds.empty());
}

}  // namespace
}  // namespace inlay
