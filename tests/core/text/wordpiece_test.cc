// WordPiece of tokenizer.json: greedy matching, vocabularies that lie.
#include "core/text/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<TokenModel> MakeWordPiece(const std::string& json) {
  auto model = MakeWordPieceFromJson(*ParseJson(json, "model"));
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::string WordPieceError(const std::string& json) {
  return std::string(
      MakeWordPieceFromJson(*ParseJson(json, "model")).status().message());
}

std::vector<int32_t> EncodeWord(const TokenModel& model,
                                std::string_view word) {
  std::vector<int32_t> ids = {-7};
  const absl::Status status = model.Encode(word, &ids);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ids[0], -7);
  ids.erase(ids.begin());
  return ids;
}

constexpr char kVocab[] = R"("vocab":{"[UNK]":0,"un":1,"##aff":2,"##able":3,
    "una":4,"##ff":5,"##a":6,"\u00e9":7,"##\u00e9t":8,"##":9,"x":40})";

TEST(WordPiece, LongestFirstAndNoWayBack) {
  const auto model = MakeWordPiece(std::string("{") + kVocab + "}");
  EXPECT_THAT(EncodeWord(*model, "unaffable"), ElementsAre(4, 5, 3));
  EXPECT_THAT(EncodeWord(*model, "unaff"), ElementsAre(4, 5));
  EXPECT_THAT(EncodeWord(*model, "\u00e9\u00e9t"), ElementsAre(7, 8));
  EXPECT_THAT(EncodeWord(*model, "unx"), ElementsAre(0));
  EXPECT_THAT(EncodeWord(*model, "aff"), ElementsAre(0));
  EXPECT_THAT(EncodeWord(*model, "##aff"), ElementsAre(2));
  EXPECT_THAT(EncodeWord(*model, ""), ElementsAre());
  EXPECT_EQ(model->vocab_size(), 41);
  EXPECT_EQ(model->IdToToken(40), "x");
  EXPECT_EQ(model->IdToToken(39), "");
  EXPECT_EQ(model->TokenToId("##ff"), 5);
  EXPECT_EQ(model->TokenToId("ff"), std::nullopt);
}

TEST(WordPiece, LimitCountsCharactersNotBytes) {
  const auto model = MakeWordPiece(
      R"({"max_input_chars_per_word":3,"vocab":{"[UNK]":0,"\u00e9":1,
               "##\u00e9":2}})");
  EXPECT_THAT(EncodeWord(*model, "\u00e9\u00e9\u00e9"), ElementsAre(1, 2, 2));
  EXPECT_THAT(EncodeWord(*model, "\u00e9\u00e9\u00e9\u00e9"), ElementsAre(0));
}

TEST(WordPiece, OtherPrefixAndUnknown) {
  const auto model = MakeWordPiece(
      R"({"unk_token":"?","continuing_subword_prefix":"","vocab":{"?":3,"a":1,
          "ab":2}})");
  EXPECT_THAT(EncodeWord(*model, "aaba"), ElementsAre(1, 2, 1));
  EXPECT_THAT(EncodeWord(*model, "z"), ElementsAre(3));
}

TEST(WordPiece, MissingUnknownIsAnErrorOfTheWord) {
  const auto model = MakeWordPiece(R"({"vocab":{"a":1}})");
  std::vector<int32_t> ids;
  EXPECT_TRUE(model->Encode("a", &ids).ok());
  EXPECT_EQ(model->Encode("z", &ids).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ids, ElementsAre(1));
}

TEST(WordPieceHostile, Refused) {
  EXPECT_THAT(WordPieceError("{}"), HasSubstr("vocab"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{}})"), HasSubstr("empty"));
  EXPECT_THAT(WordPieceError(R"({"vocab":["a"]})"), HasSubstr("vocab"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{"a":-1}})"),
              HasSubstr("[0, 16777216)"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{"a":16777216}})"), HasSubstr("[0,"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{"a":18446744073709551615}})"),
              HasSubstr("[0,"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{"a":1.5}})"), HasSubstr("integer"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{"a":1,"b":1}})"),
              HasSubstr("the id 1"));
  EXPECT_THAT(WordPieceError(R"({"vocab":{"a":1},"unk_token":5})"),
              HasSubstr("unk_token"));
  EXPECT_THAT(
      WordPieceError(R"({"vocab":{"a":1},"max_input_chars_per_word":-1})"),
      HasSubstr("max_input_chars_per_word"));
}

TEST(WordPieceHostile, LongWordsTakeNoQuadraticTime) {
  const auto model = MakeWordPiece(
      R"({"max_input_chars_per_word":9000000,"vocab":{"[UNK]":0,"a":1,"##a":2,
          "##aaaaaaaaaaaaaaab":3}})");
  EXPECT_EQ(EncodeWord(*model, std::string(1 << 20, 'a')).size(),
            size_t{1 << 20});
}

}  // namespace
}  // namespace inlay
