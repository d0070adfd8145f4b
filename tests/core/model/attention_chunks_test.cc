// Chunked attention as sequences: every query is there once, where it stands in
// its chunk, over the chunk's blocks.
#include "core/model/layers/attention_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/model/load_model.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

TEST(AttentionChunksTest, EveryQueryStandsInItsChunk) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int32_t block_size = 1 << random() % 5;
    const int32_t chunk = block_size * static_cast<int32_t>(1 + random() % 6);
    std::vector<std::vector<int32_t>> tables(1 + random() % 4);
    std::vector<AttentionSequence> sequences;
    int32_t tokens = 0;
    for (std::vector<int32_t>& table : tables) {
      AttentionSequence& sequence = sequences.emplace_back();
      sequence.kv_len = static_cast<int32_t>(1 + random() % 300);
      sequence.q_len = static_cast<int32_t>(
          1 + random() % static_cast<uint32_t>(sequence.kv_len));
      sequence.q_begin = tokens;
      tokens += sequence.q_len;
      table.resize(static_cast<size_t>(sequence.kv_len / block_size + 1));
      std::iota(table.begin(), table.end(), 0);
      sequence.blocks = table.data();
    }
    const auto count = static_cast<int64_t>(sequences.size());
    const int64_t most = MaxChunkSequences(tokens, count, chunk);
    std::vector<AttentionSequence> parts(static_cast<size_t>(tokens));
    const int64_t got =
        SplitIntoChunks(sequences, chunk, block_size, parts.data());
    ASSERT_LE(got, most);
    auto part = parts.begin();
    int32_t row = 0;
    for (const AttentionSequence& sequence : sequences) {
      for (int32_t i = 0; i < sequence.q_len; ++i, ++row) {
        if (row == part->q_begin + part->q_len) ++part;
        const int32_t position = sequence.kv_len - sequence.q_len + i;
        const int32_t in_chunk =
            part->kv_len - part->q_len + (row - part->q_begin);
        ASSERT_EQ(in_chunk, position % chunk);
        ASSERT_EQ(part->blocks[0] * block_size, position / chunk * chunk);
        ASSERT_GE(part->blocks, sequence.blocks);
      }
    }
    EXPECT_EQ(++part - parts.begin(), got);
    EXPECT_EQ(row, tokens);
  }
}

// Near the last position an int32_t holds.
TEST(AttentionChunksTest, FarPositionsDoNotOverflow) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  AttentionSequence sequence;
  sequence.q_len = 5;
  sequence.kv_len = kMost;
  const std::vector<int32_t> table(1, 0);
  sequence.blocks = table.data();
  AttentionSequence parts[5];
  ASSERT_EQ(SplitIntoChunks({&sequence, 1}, 1 << 30, 1 << 30, parts), 1);
  EXPECT_EQ(parts[0].q_len, 5);
  EXPECT_EQ(parts[0].kv_len, kMost - (1 << 30));
}

// Not where a chunk would begin within a block.
TEST(AttentionChunksTest, ChunksAreWholeKvBlocks) {
  const auto device = *CreateCpuDevice(1, 0);
  const auto files = OpenModelFiles(TestData() + "/models/llama4_text", {});
  ASSERT_TRUE(files.ok()) << files.status();
  ModelLoadOptions options;
  options.kv_block_size = 5;
  const auto status = PlanModel(*files, *device, options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("chunks of 32 positions"));
}

}  // namespace
}  // namespace inlay
