// Unigram of tokenizer.json: the best path, unknowns, vocabularies that lie.
#include "core/text/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<TokenModel> MakeUnigram(const char* json) {
  auto model = MakeUnigramFromJson(*ParseJson(json, "model"));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::string UnigramError(const char* json) {
  return std::string(
      MakeUnigramFromJson(*ParseJson(json, "model")).status().message());
}

std::vector<int32_t> PieceIds(const TokenModel& model, std::string_view piece) {
  std::vector<int32_t> ids;
  const absl::Status status = model.Encode(piece, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

TEST(Unigram, BestSumAndFirstOfEqual) {
  const auto model =
      MakeUnigram(R"({"unk_id":0,"vocab":[["<unk>",0],["a",0],["b",0],
      ["c",0],["d",0],["cd",1],["ab",2],["abc",5],["abcd",10],["bc",2]]})");
  EXPECT_THAT(PieceIds(*model, "abcd"), ElementsAre(8));
  EXPECT_THAT(PieceIds(*model, "abcdacd"), ElementsAre(8, 1, 5));
  EXPECT_THAT(PieceIds(*model, "bcd"), ElementsAre(9, 4));
  EXPECT_THAT(PieceIds(*model, ""), ElementsAre());
  EXPECT_EQ(model->vocab_size(), 10);
  EXPECT_EQ(model->IdToToken(7), "abc");
  EXPECT_EQ(model->IdToToken(10), "");
  EXPECT_EQ(model->TokenToId("abc"), 7);
  EXPECT_EQ(model->TokenToId("abcde"), std::nullopt);
}

TEST(Unigram, UnknownRunsMerge) {
  const auto model = MakeUnigram(
      R"({"unk_id":0,"vocab":[["<unk>",0],["a",-1],["xy",-90],["\u00e9\u00e9",-1]]})");
  EXPECT_THAT(PieceIds(*model, "axzaq"), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(PieceIds(*model, "<unk>x"), ElementsAre(0));
  EXPECT_THAT(PieceIds(*model, "\u00e9\u00e9\u00e9"), ElementsAre(0, 3));
  // Two unknowns cost 2 * (-90 - 10), more than the piece.
  EXPECT_THAT(PieceIds(*model, "xy"), ElementsAre(2));
}

TEST(Unigram, ByteFallbackOfAllBytesOrNone) {
  const auto model = MakeUnigram(R"({"unk_id":0,"byte_fallback":true,"vocab":
      [["<unk>",0],["a",-1],["<0xC3>",0],["<0xA9>",0],["<0x62>",0]]})");
  EXPECT_THAT(PieceIds(*model, "a\u00e9a"), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(PieceIds(*model, "b\u00e9"), ElementsAre(4, 2, 3));
  EXPECT_THAT(PieceIds(*model, "\u00e9\u00e8"), ElementsAre(0));
}

TEST(Unigram, LastOfEqualTokensWins) {
  const auto model = MakeUnigram(
      R"({"unk_id":0,"vocab":[["<unk>",0],["a",-1],["a",-2],["",-1]]})");
  EXPECT_THAT(PieceIds(*model, "a"), ElementsAre(2));
  EXPECT_EQ(model->IdToToken(1), "a");
}

TEST(Unigram, NoUnknownPieceIsAnErrorOfTheText) {
  const auto model =
      MakeUnigram(R"({"unk_id":null,"vocab":[["a",-1],["bc",-1]]})");
  EXPECT_THAT(PieceIds(*model, "abca"), ElementsAre(0, 1, 0));
  std::vector<int32_t> ids;
  for (const char* text : {"x", "ax", "b", "abcb", "xa"}) {
    EXPECT_EQ(model->Encode(text, &ids).code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(Unigram, BytesThatAreNoUtf8AreUnknown) {
  const auto model =
      MakeUnigram(R"({"unk_id":0,"vocab":[["<unk>",0],["a",-1]]})");
  EXPECT_THAT(PieceIds(*model,
                       "a\xFF"
                       "a\xE2"),
              ElementsAre(1, 0));
}

TEST(UnigramHostile, Refused) {
  EXPECT_THAT(UnigramError("{}"), HasSubstr("vocab"));
  EXPECT_THAT(UnigramError("[]"), HasSubstr("vocab"));
  EXPECT_THAT(UnigramError(R"({"vocab":[]})"), HasSubstr("empty"));
  EXPECT_THAT(UnigramError(R"({"vocab":{"a":1}})"), HasSubstr("vocab"));
  EXPECT_THAT(UnigramError(R"({"vocab":[["a",1],["b"]]})"),
              HasSubstr("vocab[1]"));
  EXPECT_THAT(UnigramError(R"({"vocab":[["a","1"]]})"), HasSubstr("vocab[0]"));
  EXPECT_THAT(UnigramError(R"({"vocab":[[1,1]]})"), HasSubstr("vocab[0]"));
  EXPECT_THAT(UnigramError(R"({"vocab":[["a",1]],"unk_id":1})"),
              HasSubstr("unk_id"));
  EXPECT_THAT(UnigramError(R"({"vocab":[["a",1]],"unk_id":-1})"),
              HasSubstr("unk_id"));
  EXPECT_THAT(UnigramError(R"({"vocab":[["a",1]],"byte_fallback":3})"),
              HasSubstr("byte_fallback"));
  const std::string longest = std::string(1025, 'a');
  EXPECT_THAT(UnigramError((R"({"vocab":[[")" + longest + R"(",1]]})").c_str()),
              HasSubstr("1025"));
  Json nan = *ParseJson(R"({"vocab":[["a",1]]})", "model");
  nan["vocab"][0][1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(MakeUnigramFromJson(nan).ok());
}

}  // namespace
}  // namespace inlay
