// AttentionPlan::few: which steps are for decode_attention, and the list of
// queries that it reads.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/attention/attention_plan.h"

namespace inlay {
namespace {

constexpr int kFewKeys = 1000;

AttentionPlanShape FewShape(int few_rows) {
  AttentionPlanShape shape;
  shape.num_kv_heads = 8;
  shape.group = 4;
  shape.head_dim = 128;
  shape.block_size = 16;
  shape.grid = 132;
  shape.tile_tokens = 32;
  shape.few[0] = {few_rows, kFewKeys};
  return shape;
}

struct BuiltFew {
  // Rows beyond the sequences' are nobody's.
  BuiltFew(const AttentionPlanShape& shape,
           const std::vector<AttentionSequence>& sequences, int64_t tokens,
           bool graph = true, const AttentionMask* mask = nullptr) {
    AttentionPlanLimits limits = AttentionPlanLimitsOf(shape, sequences, mask);
    limits.tokens = tokens;
    limits.graph = graph;
    const AttentionPlanLayout layout = LayOutAttentionPlan(shape, limits);
    storage.resize(layout.bytes / sizeof(AttentionItem) + 1);
    auto* image = reinterpret_cast<std::byte*>(storage.data());
    std::fill_n(image, layout.bytes, std::byte{0xee});
    plan = BuildAttentionPlan(shape, limits, sequences, image, mask);
    queries =
        reinterpret_cast<const AttentionQuery*>(image + plan.layout.queries);
    blocks = reinterpret_cast<const int32_t*>(image + plan.layout.blocks);
    items = reinterpret_cast<const AttentionItem*>(image + plan.layout.items);
  }
  std::vector<AttentionItem> storage;
  AttentionPlan plan;
  const AttentionQuery* queries = nullptr;
  const int32_t* blocks = nullptr;
  const AttentionItem* items = nullptr;
};

class AttentionPlanFewTest : public ::testing::Test {
 protected:
  AttentionPlanFewTest() {
    for (int i = 0; i < 1024; ++i) table_.push_back(5 * i + 1);
  }
  AttentionSequence Sequence(int row, int q_len, int kv_len) const {
    return {row, q_len, kv_len, table_.data() + row};
  }
  std::vector<int32_t> table_;
};

TEST_F(AttentionPlanFewTest, ListsTheRowsQueries) {
  const BuiltFew built(FewShape(4), {Sequence(0, 1, 33), Sequence(2, 1, 500)},
                       4);
  EXPECT_TRUE(built.plan.few);
  EXPECT_EQ(built.queries[0].kv_len, 33);
  EXPECT_EQ(built.queries[2].kv_len, 500);
  for (const int nobody : {1, 3}) EXPECT_EQ(built.queries[nobody].kv_len, 0);
  for (const int row : {0, 2}) {
    const int32_t begin = built.queries[row].blocks_begin;
    for (int i = 0; i * 16 < built.queries[row].kv_len; ++i) {
      ASSERT_EQ(built.blocks[begin + i], table_[static_cast<size_t>(row + i)]);
    }
  }
  // Items are there all the same.
  EXPECT_TRUE(built.plan.run_items);
}

// Into how many chunks a sequence of so many keys is cut.
TEST_F(AttentionPlanFewTest, InCompanyChunksAreLonger) {
  const auto chunks = [&](int few_rows, int length, int q_len = 1,
                          int head_dim = 128) {
    AttentionPlanShape shape = FewShape(few_rows);
    shape.few[0].keys = 3072;
    shape.head_dim = head_dim;
    const BuiltFew built(shape, {Sequence(0, q_len, length)}, q_len);
    return built.items[0].num_chunks;
  };
  for (const int few_rows : {0, 2}) {
    EXPECT_EQ(chunks(few_rows, 512), 1);
    EXPECT_EQ(chunks(few_rows, 4096), 8);
  }
  EXPECT_EQ(chunks(0, 513), 5);
  EXPECT_EQ(chunks(2, 513), 1);
  EXPECT_EQ(chunks(0, 1024), 4);
  EXPECT_EQ(chunks(2, 1024), 1);
  EXPECT_EQ(chunks(2, 1025), 2);
  EXPECT_EQ(chunks(2, 1536), 2);
  EXPECT_EQ(chunks(2, 2000), 4);
  EXPECT_EQ(chunks(2, 3072), 6);
  EXPECT_EQ(chunks(2, 1536, 1, 64), 1);
  EXPECT_EQ(chunks(2, 2049, 1, 64), 2);
  // Others are cut as they are where nothing takes who is alone.
  EXPECT_EQ(chunks(2, 3073), chunks(0, 3073));
  EXPECT_EQ(chunks(2, 700, 2), chunks(0, 700, 2));
}

TEST_F(AttentionPlanFewTest, OnlyFewShortSingleQueries) {
  EXPECT_TRUE(BuiltFew(FewShape(1), {Sequence(0, 1, kFewKeys)}, 1).plan.few);
  EXPECT_FALSE(
      BuiltFew(FewShape(1), {Sequence(0, 1, kFewKeys + 1)}, 1).plan.few);
  EXPECT_FALSE(BuiltFew(FewShape(0), {Sequence(0, 1, 40)}, 1).plan.few);
  const std::vector<AttentionSequence> two = {Sequence(0, 1, 40),
                                              Sequence(1, 1, 40)};
  EXPECT_TRUE(BuiltFew(FewShape(2), two, 2).plan.few);
  EXPECT_FALSE(BuiltFew(FewShape(2), two, 3).plan.few);
  EXPECT_FALSE(BuiltFew(FewShape(2), {Sequence(0, 2, 40)}, 2, false).plan.few);
}

TEST_F(AttentionPlanFewTest, MoreRowsHaveFewerKeys) {
  AttentionPlanShape shape = FewShape(1);
  shape.few[1] = {2, 100};
  shape.few[2] = {4, 50};
  const auto few = [&](int rows, int kv_len) {
    std::vector<AttentionSequence> sequences = {Sequence(0, 1, kv_len)};
    for (int r = 1; r < rows; ++r) sequences.push_back(Sequence(r, 1, 20));
    return BuiltFew(shape, sequences, rows).plan.few;
  };
  EXPECT_TRUE(few(1, kFewKeys));
  EXPECT_TRUE(few(2, 100));
  EXPECT_FALSE(few(2, 101));
  EXPECT_TRUE(few(3, 50));
  EXPECT_FALSE(few(3, 51));
  EXPECT_TRUE(few(4, 50));
  EXPECT_FALSE(few(5, 20));
}

// Many that share a prefix read it once, which items do, unless the shape says
// otherwise.
TEST_F(AttentionPlanFewTest, MoreRowsThatShareAPrefixAreItems) {
  AttentionPlanShape shape = FewShape(2);
  shape.few[0].keys = 4000;
  shape.few[1] = {16, 4000};
  shape.prefix_units = kAttentionUnits16Bit;
  const auto few = [&](int rows, bool same) {
    std::vector<AttentionSequence> sequences;
    for (int r = 0; r < rows; ++r) {
      sequences.push_back({r, 1, 3900, table_.data() + (same ? 0 : r * 60)});
    }
    const BuiltFew built(shape, sequences, rows);
    EXPECT_EQ(built.plan.shares, same && rows > 2);
    return built.plan.few;
  };
  EXPECT_TRUE(few(2, true));
  EXPECT_FALSE(few(8, true));
  EXPECT_TRUE(few(8, false));
  shape.few[1].shares = true;
  EXPECT_TRUE(few(8, true));
}

}  // namespace
}  // namespace inlay
