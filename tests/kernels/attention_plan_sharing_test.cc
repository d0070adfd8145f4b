// AttentionPlan: keys that sequences share are read once, where it pays.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/attention/attention_plan.h"
#include "tests/support/attention_plan_util.h"
#include "tests/support/sanitized.h"

namespace inlay::testing {
namespace {

AttentionPlanShape Sharing(int kv_heads, int group, int tile_tokens = 0) {
  AttentionPlanShape shape = Shape(kv_heads, group, tile_tokens);
  shape.prefix_units = 4;
  return shape;
}

TEST(AttentionPlanTest, SharedKeysAreReadOnce) {
  std::mt19937 rng(3);
  int sharing = 0;
  const int rounds = FewerWhenSanitized(300);
  for (int round = 0; round < rounds; ++round) {
    const int group = 1 + static_cast<int>(rng() % 20);
    AttentionPlanShape shape =
        Sharing(1 << rng() % 4, group, rng() % 2 == 0 ? 0 : 128 / group);
    shape.causal = rng() % 4 != 0;
    Batch batch;
    const int sequences = 2 + static_cast<int>(rng() % 150);
    const int range = rng() % 3 == 0 ? 5000 : 400;
    for (int s = 0; s < sequences; ++s) {
      const int q_len = rng() % 8 == 0 ? static_cast<int>(rng() % 40) : 1;
      const int own = q_len + static_cast<int>(rng() % range);
      // Chains of prefixes: some share more with each other than with others.
      const bool shares = s > 0 && rng() % 8 != 0;
      const int leader = shares ? static_cast<int>(rng() % s) / 5 * 5 : -1;
      const int common = 1 + static_cast<int>(rng() % 300);
      batch.Add(q_len, (shares ? common * kBlockSize : 3000) + own, leader,
                common);
    }
    batch.Place();
    SCOPED_TRACE(::testing::Message() << "round " << round);
    sharing += CheckItems(shape, batch, Built(shape, batch)) > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(sharing, rounds * 2 / 3);
}

TEST(AttentionPlanTest, GroupsOfEverySizeAndRest) {
  for (const int count : {2, 3, 4, 5, 16, 17, 63, 64, 256}) {
    for (const int own : {1, 17, 300, 2500}) {
      for (const int group : {1, 4, 5, 16, 71}) {
        if (count * group > 64 * 16) continue;
        const AttentionPlanShape shape = Sharing(8, group);
        Batch batch;
        batch.Add(1, 16000 + own);
        for (int s = 1; s < count; ++s) batch.Add(1, 16000 + own, 0, 1000);
        batch.Add(1, 900);  // on its own
        batch.Place();
        const Built built(shape, batch);
        SCOPED_TRACE(::testing::Message()
                     << count << " + " << own << " group " << group);
        EXPECT_EQ(CheckItems(shape, batch, built), 8 * group * count);
        if (HasFailure()) return;
        int64_t read = 0;
        for (int i = 0; i < built.cta_items()[shape.grid]; ++i) {
          const AttentionItem& item = built.items()[i];
          if (item.num_units > 0) read += item.key_end - item.key_begin;
        }
        // 16000 is a multiple of 64, and of the least that items share.
        const int rows = group >= 16 ? 16 : 16 / group * group;
        const int tiles = (group + 15) / 16;
        const int units =
            group >= 16 ? count * tiles : (count * group + rows - 1) / rows;
        EXPECT_EQ(read, 8 * 16000 * ((units + 3) / 4));
      }
    }
  }
}

TEST(AttentionPlanTest, SharesOnlyWhereItPaysAndIsRight) {
  Batch batch;
  batch.Add(1, 9000);
  for (int s = 1; s < 16; ++s) batch.Add(1, 9000, 0, 500);
  batch.Place();
  AttentionPlanShape shape = Sharing(8, 4);
  EXPECT_GT(CheckItems(shape, batch, Built(shape, batch)), 0);
  for (int what = 0; what < 4; ++what) {
    AttentionPlanShape other = shape;
    if (what == 0) other.window = 20000;
    if (what == 1) other.whole_rows = true;
    if (what == 2) other.batch_invariant = false;
    if (what == 3) other.prefix_units = 0;
    EXPECT_EQ(FindShared(Built(other, batch),
                         Built(other, batch).cta_items()[other.grid])
                  .size(),
              0u)
        << what;
  }
  Batch little;
  little.Add(1, 300);
  for (int s = 1; s < 8; ++s) little.Add(1, 300, 0, 10);
  little.Place();
  EXPECT_EQ(CheckItems(shape, little, Built(shape, little)), 0);
}

// Where no block is shared, the plan is the one without sharing.
TEST(AttentionPlanTest, NothingChangesForWhoSharesNothing) {
  AttentionPlanShape shape = Sharing(8, 4, 32);
  std::mt19937 rng(5);
  Batch batch;
  for (int s = 0; s < 100; ++s) {
    batch.Add(s % 9 == 0 ? 3 : 1, 3 + static_cast<int>(rng() % 3000));
  }
  batch.Place();
  const Built shared(shape, batch);
  shape.prefix_units = 0;
  const Built plain(shape, batch);
  const int count = plain.cta_items()[shape.grid];
  ASSERT_EQ(shared.cta_items()[shape.grid], count);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(std::memcmp(&shared.items()[i], &plain.items()[i],
                          sizeof(AttentionItem)),
              0);
  }
}

}  // namespace
}  // namespace inlay::testing
