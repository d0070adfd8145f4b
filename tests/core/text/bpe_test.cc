// BPE: the scan and the heap against the definition, and its options.
#include "core/text/bpe.h"

#include <gtest/gtest.h>

#include <chrono>

namespace inlay {
namespace {

using Ids = std::vector<int32_t>;

// Merges by the definition: the leftmost of the lowest-ranked pairs, one at a
// time.
Ids MergeByDefinition(const MergeTable& table, Ids ids) {
  while (true) {
    size_t best = 0;
    MergeTable::Merge merge;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeTable::Merge here = table.Find(ids[i], ids[i + 1]);
      if (here.rank < merge.rank) {
        merge = here;
        best = i;
      }
    }
    if (merge.rank == MergeTable::kNone) return ids;
    ids[best] = merge.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMergerTest, EqualsTheDefinition) {
  uint64_t state = 99;
  const auto below = [&](uint32_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33) % limit;
  };
  BpeMerger merger;
  for (int round = 0; round < 300; ++round) {
    MergeTable table(64);
    for (uint32_t rank = 0; rank < 40; ++rank) {
      table.Set(static_cast<int32_t>(below(3 + rank)),
                static_cast<int32_t>(below(3 + rank)),
                {rank, static_cast<int32_t>(3 + rank)});
    }
    // Lengths on both sides of where the heap takes over, and of where lists
    // do.
    Ids ids(1 + below(120) + (round % 50 == 0 ? 4000 : 0));
    for (int32_t& id : ids) id = static_cast<int32_t>(below(3));
    merger.symbols() = ids;
    merger.Merge(table);
    ASSERT_EQ(merger.symbols(), MergeByDefinition(table, ids));
  }
}

std::unique_ptr<BpeModel> MakeBpe(std::string_view json, bool raw = false) {
  auto model = BpeModel::Create(*ParseJson(json, "test"), raw);
  EXPECT_TRUE(model.ok()) << model.status();
  return std::move(*model);
}

Ids EncodePiece(const TokenModel& model, std::string_view piece) {
  Ids ids;
  EXPECT_TRUE(model.Encode(piece, &ids).ok());
  return ids;
}

TEST(BpeModelTest, UnknownCharacters) {
  const auto make = [](const std::string& options) {
    return MakeBpe(
        R"({"vocab":{"a":0,"b":1,"ab":2,"<u>":3},"merges":["a b"],)" + options +
        "}");
  };
  EXPECT_EQ(EncodePiece(*make(R"("unk_token":null)"), "axb"), (Ids{2}));
  EXPECT_EQ(EncodePiece(*make(R"("unk_token":"<u>")"), "axyb"),
            (Ids{0, 3, 3, 1}));
  EXPECT_EQ(EncodePiece(*make(R"("unk_token":"<u>","fuse_unk":true)"), "axyb"),
            (Ids{0, 3, 1}));
}

TEST(BpeModelTest, ByteFallbackNeedsEveryByte) {
  const auto model = MakeBpe(
      R"({"vocab":{"a":0,"<u>":1,"<0xC3>":2,"<0xA9>":3},"merges":[],
          "unk_token":"<u>","byte_fallback":true})");
  EXPECT_EQ(EncodePiece(*model, "a\u00E9"), (Ids{0, 2, 3}));
  EXPECT_EQ(EncodePiece(*model, "a\u00E8"), (Ids{0, 1}));
}

TEST(BpeModelTest, Affixes) {
  const auto model = MakeBpe(
      R"({"vocab":{"l":0,"##o":1,"##o</w>":2,"lo</w>":3,"lo":4,"##l":5},
          "merges":["l ##o","l ##o</w>"],
          "continuing_subword_prefix":"##","end_of_word_suffix":"</w>"})");
  EXPECT_EQ(EncodePiece(*model, "lo"), (Ids{3}));
  EXPECT_EQ(EncodePiece(*model, "loo"), (Ids{4, 2}));
}

TEST(BpeModelTest, IgnoreMergesTakesWholeTokens) {
  const auto model = MakeBpe(
      R"({"vocab":{"a":0,"b":1,"c":2,"abc":3},"merges":[],"ignore_merges":true})");
  EXPECT_EQ(EncodePiece(*model, "abc"), (Ids{3}));
  EXPECT_EQ(EncodePiece(*model, "abca"), (Ids{0, 1, 2, 0}));
}

TEST(BpeModelTest, LaterDuplicateMergeWins) {
  const auto model = MakeBpe(
      R"({"vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},
          "merges":["a b","b c","a b"]})");
  EXPECT_EQ(EncodePiece(*model, "abc"), (Ids{0, 4}));
}

// Long pieces are cut where no merge joins anything. Vocabularies at random,
// characters that they do not know in between.
TEST(BpeModelTest, LongPiecesMergeByTheDefinition) {
  uint64_t state = 2024;
  const auto below = [&](size_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % limit;
  };
  const std::vector<std::string> known = {"a", "b", "c", "\u00E9", "\u2581"};
  const std::vector<std::string> unknown = {"x", "\u4E2D"};
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> tokens = known;
    tokens.insert(tokens.end(), {"<u>", "<0x78>"});
    Json merges = Json::array();
    MergeTable table(16);
    for (uint32_t rank = 0; merges.size() < 3 + below(10);) {
      const size_t left = below(tokens.size());
      const size_t right = below(tokens.size());
      const std::string merged = tokens[left] + tokens[right];
      const auto at = std::find(tokens.begin(), tokens.end(), merged);
      table.Set(static_cast<int32_t>(left), static_cast<int32_t>(right),
                {rank++, static_cast<int32_t>(at - tokens.begin())});
      merges.push_back({tokens[left], tokens[right]});
      if (at == tokens.end()) tokens.push_back(merged);
    }
    Json model = {{"merges", merges}};
    for (size_t i = 0; i < tokens.size(); ++i) model["vocab"][tokens[i]] = i;
    const bool unk = round % 2 == 0;
    const bool fuse = round % 4 == 0;
    if (unk) model["unk_token"] = "<u>";
    model["fuse_unk"] = fuse;
    model["ignore_merges"] = round % 3 == 0;
    const auto bpe = MakeBpe(DumpJson(model));
    for (int text = 0; text < 10; ++text) {
      std::string piece;
      Ids symbols;
      bool after_unknown = false;
      while (piece.size() < 70 + 20 * static_cast<size_t>(text)) {
        const bool is_known = below(8) > 0;
        if (is_known) {
          const size_t id = below(known.size());
          piece += known[id];
          symbols.push_back(static_cast<int32_t>(id));
        } else {
          piece += unknown[below(unknown.size())];
          if (unk && !(fuse && after_unknown))
            symbols.push_back(static_cast<int32_t>(known.size()));
        }
        after_unknown = !is_known;
      }
      ASSERT_EQ(EncodePiece(*bpe, piece), MergeByDefinition(table, symbols))
          << piece << " " << DumpJson(model);
    }
  }
}

TEST(BpeModelTest, LongPiecesOfBytesMergeByTheDefinition) {
  // Every second byte has no token: it vanishes.
  const auto model = MakeBpe(
      R"({"vocab":{"a":0,"b":1,"c":2,"ab":3,"ca":4,"bb":5},
          "merges":["a b","c a","b b"]})",
      /*raw=*/true);
  ASSERT_TRUE(model->raw_bytes());
  MergeTable table(3);
  table.Set(0, 1, {0, 3});
  table.Set(2, 0, {1, 4});
  table.Set(1, 1, {2, 5});
  uint64_t state = 5;
  std::string piece;
  Ids symbols;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto id = static_cast<int32_t>((state >> 33) % 4);
    piece += "abcd"[id];
    if (id < 3) symbols.push_back(id);
  }
  EXPECT_EQ(EncodePiece(*model, piece), MergeByDefinition(table, symbols));
}

TEST(BpeModelTest, OneLongRunIsNotQuadratic) {
  const auto model = MakeBpe(
      R"({"vocab":{"a":0,"aa":1,"aaaa":2,"aaaaaaaa":3},
          "merges":["a a","aa aa","aaaa aaaa"]})");
  const std::string run(1 << 20, 'a');
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(EncodePiece(*model, run).size(), run.size() / 8);
  // Quadratic time would be hours; the bound leaves room for sanitizers.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(BpeModelTest, RefusesWhatItCannotMean) {
  for (const char* bad : {
           R"({"merges":[]})",
           R"({"vocab":{"a":0}})",
           R"({"vocab":{"a":0},"merges":["a b"]})",
           R"({"vocab":{"a":0,"b":1},"merges":["a b"]})",
           R"({"vocab":{"a":0,"b":1},"merges":["a b c"]})",
           R"({"vocab":{"a":0,"b":1},"merges":[["a"]]})",
           R"({"vocab":{"a":0,"b":1},"merges":[7]})",
           R"({"vocab":{"a":-1},"merges":[]})",
           R"({"vocab":{"a":1.5},"merges":[]})",
           R"({"vocab":{"a":0,"b":0},"merges":[]})",
           R"({"vocab":{"a":2000000},"merges":[]})",
           R"({"vocab":{"a":18446744073709551615},"merges":[]})",
           R"({"vocab":{"a":0},"merges":[],"fuse_unk":"yes"})",
       }) {
    const auto model = BpeModel::Create(*ParseJson(bad, "test"), true);
    EXPECT_TRUE(absl::IsInvalidArgument(model.status()))
        << bad << ": " << model.status();
  }
  EXPECT_TRUE(absl::IsUnimplemented(
      BpeModel::Create(
          *ParseJson(R"({"vocab":{"a":0},"merges":[],"dropout":0.1})", "test"),
          false)
          .status()));
}

}  // namespace
}  // namespace inlay
