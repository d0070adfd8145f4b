// Queries whose logits are wanted, as sequences: each stands where it stood.
#include "core/model/layers/wanted_queries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace inlay {
namespace {

TEST(WantedQueriesTest, FromTheFirstToTheLastOfEachSequence) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<AttentionSequence> sequences(1 + random() % 6);
    std::vector<int32_t> rows;
    const std::vector<int32_t> tables(sequences.size());
    int32_t tokens = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      AttentionSequence& sequence = sequences[i];
      sequence.q_begin = tokens;
      sequence.q_len = static_cast<int32_t>(1 + random() % 9);
      sequence.kv_len = sequence.q_len + static_cast<int32_t>(random() % 50);
      sequence.blocks = &tables[i];
      const unsigned one_in = 1 + random() % 8;
      for (int32_t q = 0; q < sequence.q_len; ++q, ++tokens) {
        if (random() % one_in == 0) rows.push_back(tokens);
      }
    }
    std::vector<AttentionSequence> wanted(
        std::min(sequences.size(), rows.size()));
    const int64_t count = KeepWantedQueries(sequences, rows, wanted.data());
    ASSERT_LE(count, static_cast<int64_t>(wanted.size()));
    auto got = wanted.begin();
    for (const AttentionSequence& sequence : sequences) {
      const int32_t end = sequence.q_begin + sequence.q_len;
      const auto first =
          std::lower_bound(rows.begin(), rows.end(), sequence.q_begin);
      const auto last = std::lower_bound(first, rows.end(), end);
      if (first == last) continue;
      ASSERT_NE(got, wanted.end());
      EXPECT_EQ(got->blocks, sequence.blocks);
      EXPECT_EQ(got->q_begin, *first);
      EXPECT_EQ(got->q_begin + got->q_len - 1, *(last - 1));
      // The distance of a query's row from its position stays.
      EXPECT_EQ(got->kv_len - got->q_len - got->q_begin,
                sequence.kv_len - sequence.q_len - sequence.q_begin);
      ++got;
    }
    EXPECT_EQ(got - wanted.begin(), count);
  }
}

TEST(WantedQueriesTest, NoneAreNoSequences) {
  AttentionSequence sequence;
  sequence.q_len = sequence.kv_len = 3;
  EXPECT_EQ(KeepWantedQueries({&sequence, 1}, {}, nullptr), 0);
}

}  // namespace
}  // namespace inlay
