// SentencePiece models made by hand: one rule each, and models that lie.
#include "core/text/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "sentencepiece_model.pb.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using sentencepiece::ModelProto;
using sentencepiece::TrainerSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using PieceProto = ModelProto::SentencePiece;

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

void Add(ModelProto* model, const std::string& text, float score,
         PieceProto::Type type = PieceProto::NORMAL) {
  PieceProto* piece = model->add_pieces();
  piece->set_piece(text);
  piece->set_score(score);
  piece->set_type(type);
}

// <unk> 0, <s> 1, </s> 2, then a 3, b 4, c 5; the text passes unchanged.
ModelProto Base(TrainerSpec::ModelType type) {
  ModelProto model;
  Add(&model, "<unk>", 0, PieceProto::UNKNOWN);
  Add(&model, "<s>", 0, PieceProto::CONTROL);
  Add(&model, "</s>", 0, PieceProto::CONTROL);
  Add(&model, "a", -5);
  Add(&model, "b", -5);
  Add(&model, "c", -5);
  model.mutable_trainer_spec()->set_model_type(type);
  model.mutable_normalizer_spec()->set_add_dummy_prefix(false);
  model.mutable_normalizer_spec()->set_remove_extra_whitespaces(false);
  return model;
}

std::string ByteName(int byte) {
  const char* digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
}

void AddBytes(ModelProto* model) {
  model->mutable_trainer_spec()->set_byte_fallback(true);
  for (int b = 0; b < 256; ++b) Add(model, ByteName(b), 0, PieceProto::BYTE);
}

std::unique_ptr<Tokenizer> Make(const ModelProto& model) {
  auto tokenizer = MakeSentencePieceTokenizer(model.SerializeAsString());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer,
                            const std::string& text) {
  std::vector<int32_t> ids;
  EncodeOptions options;
  options.add_special = false;
  EXPECT_TRUE(tokenizer.Encode(text, options, &ids).ok());
  return ids;
}

absl::Status Error(const ModelProto& model) {
  return MakeSentencePieceTokenizer(model.SerializeAsString()).status();
}

TEST(SentencePieceBpe, MergesTheHighestScoreThenTheLeftmost) {
  ModelProto model = Base(TrainerSpec::BPE);
  Add(&model, "aa", -1);   // 6
  Add(&model, "bc", -1);   // 7
  Add(&model, "ab", -2);   // 8
  Add(&model, "abc", -9);  // 9
  const auto tokenizer = Make(model);
  EXPECT_THAT(Encode(*tokenizer, "aaa"), ElementsAre(6, 3));
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre(9));  // a + bc
  EXPECT_THAT(Encode(*tokenizer, "aab"), ElementsAre(6, 4));
  EXPECT_THAT(Encode(*tokenizer, "cab"), ElementsAre(5, 8));
}

TEST(SentencePieceBpe, UnusedPiecesAreTakenApart) {
  ModelProto model = Base(TrainerSpec::BPE);
  Add(&model, "ab", -1, PieceProto::UNUSED);  // 6
  Add(&model, "abc", -2);                     // 7
  Add(&model, "d", -2, PieceProto::UNUSED);   // 8
  const auto tokenizer = Make(model);
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre(7));
  EXPECT_THAT(Encode(*tokenizer, "ab"), ElementsAre(3, 4));
  EXPECT_THAT(Encode(*tokenizer, "d"), ElementsAre(0));
}

TEST(SentencePieceBpe, WordsDoNotChangeWhatMerges) {
  ModelProto model = Base(TrainerSpec::BPE);
  Add(&model, "\u2581", -5);        // 6
  Add(&model, "\u2581\u2581", -1);  // 7
  Add(&model, "\u2581a", -2);       // 8
  EXPECT_THAT(Encode(*Make(model), "a  a a"), ElementsAre(3, 7, 3, 8));
  Add(&model, "a\u2581", -0.5);  // 9: crosses the word boundary
  EXPECT_THAT(Encode(*Make(model), "a a"), ElementsAre(9, 3));
}

TEST(SentencePieceUnigram, TakesTheBestSum) {
  ModelProto model = Base(TrainerSpec::UNIGRAM);
  Add(&model, "ab", -6);                      // 6
  Add(&model, "bc", -9);                      // 7
  Add(&model, "ac", -1, PieceProto::UNUSED);  // 8
  const auto tokenizer = Make(model);
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre(6, 5));
  EXPECT_THAT(Encode(*tokenizer, "bcb"), ElementsAre(7, 4));
  EXPECT_THAT(Encode(*tokenizer, "ac"), ElementsAre(3, 5));
}

// Float sums of 1e6 have no digits left for a difference of 0.01.
TEST(SentencePieceUnigram, LongTextsKeepTheirPrecision) {
  ModelProto model = Base(TrainerSpec::UNIGRAM);
  Add(&model, "ab", -7.00f);  // 6
  Add(&model, "bc", -6.99f);  // 7
  const auto tokenizer = Make(model);
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "abc";
  const std::vector<int32_t> ids = Encode(*tokenizer, text);
  ASSERT_EQ(ids.size(), 200000u);
  for (size_t i = 0; i < ids.size(); i += 2) {
    ASSERT_EQ(ids[i], 3) << i;
    ASSERT_EQ(ids[i + 1], 7) << i;
  }
}

TEST(SentencePiece, UnknownRunsAreOneIdOrTheirBytes) {
  for (const auto type : {TrainerSpec::BPE, TrainerSpec::UNIGRAM}) {
    ModelProto model = Base(type);
    auto tokenizer = Make(model);
    EXPECT_THAT(Encode(*tokenizer, "axya\u00e9"), ElementsAre(3, 0, 3, 0));
    EXPECT_EQ(tokenizer->Decode({3, 0, 4}, {}), "a \u2047 b");
    AddBytes(&model);
    tokenizer = Make(model);
    EXPECT_THAT(Encode(*tokenizer, "a\u00e9"),
                ElementsAre(3, 6 + 0xC3, 6 + 0xA9));
    // Each byte of a broken character is replaced, not the sequence.
    EXPECT_EQ(tokenizer->Decode({3, 6 + 0xE2, 6 + 0x96, 4}, {}),
              "a\uFFFD\uFFFDb");
    EXPECT_EQ(tokenizer->TokenBytes(6 + 0xE2), "\xE2");
  }
}

TEST(SentencePiece, UserDefinedFirstControlNever) {
  for (const auto type : {TrainerSpec::BPE, TrainerSpec::UNIGRAM}) {
    ModelProto model = Base(type);
    Add(&model, "ab", -0.01f);                        // 6
    Add(&model, "bc", 0, PieceProto::USER_DEFINED);   // 7
    Add(&model, "bcc", 0, PieceProto::USER_DEFINED);  // 8
    const auto tokenizer = Make(model);
    EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre(3, 7));
    EXPECT_THAT(Encode(*tokenizer, "abccc"), ElementsAre(3, 8, 5));
    EXPECT_THAT(Encode(*tokenizer, "a</s>"), ElementsAre(3, 0));
    EXPECT_TRUE(tokenizer->IsSpecial(2));
    EXPECT_FALSE(tokenizer->IsSpecial(7));
    EXPECT_EQ(tokenizer->Decode({1, 3, 7, 2, 99, -1}, {}), "abc");
    EXPECT_EQ(tokenizer->TokenToId("</s>"), 2);
    EXPECT_EQ(tokenizer->TokenToId("zz"), std::nullopt);
    EXPECT_EQ(tokenizer->IdToToken(8), "bcc");
    EXPECT_EQ(tokenizer->IdToToken(9), "");
  }
}

TEST(SentencePiece, BosAndEosAroundEachText) {
  const auto tokenizer = Make(Base(TrainerSpec::BPE));
  std::vector<int32_t> ids;
  std::vector<int32_t> types;
  ASSERT_TRUE(tokenizer->EncodePair("a", "b", {}, &ids, &types).ok());
  EXPECT_THAT(ids, ElementsAre(1, 3, 2, 1, 4, 2));
  EXPECT_THAT(types, ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(SentencePiece, PiecesBetweenTwoTexts) {
  const std::string bytes = Base(TrainerSpec::BPE).SerializeAsString();
  const auto tokenizer =
      MakeSentencePieceTokenizer(bytes, {.between = {"</s>", "<s>"}});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  std::vector<int32_t> types;
  ASSERT_TRUE((*tokenizer)->EncodePair("a", "b", {}, &ids, &types).ok());
  EXPECT_THAT(ids, ElementsAre(1, 3, 2, 1, 4, 2));
  EXPECT_THAT(types, ElementsAre(0, 0, 0, 0, 1, 1));
  ids.clear();
  ASSERT_TRUE((*tokenizer)
                  ->EncodePair("a", "b", {.add_special = false}, &ids, nullptr)
                  .ok());
  EXPECT_THAT(ids, ElementsAre(3, 4));
  EXPECT_THAT(Encode(**tokenizer, "a"), ElementsAre(3));
  const absl::Status missing =
      MakeSentencePieceTokenizer(bytes, {.between = {"zz"}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(missing)) << missing;
}

// A text of control pieces alone is refused as early as any other.
TEST(SentencePiece, ControlPiecesCountAmongIds) {
  const auto tokenizer = MakeSentencePieceTokenizer(
      Base(TrainerSpec::BPE).SerializeAsString(), {.control_in_text = true});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "</s>";
  std::vector<int32_t> ids;
  const absl::Status over =
      (*tokenizer)
          ->Encode(text,
                   {.add_special = false, .parse_special = true, .max_ids = 7},
                   &ids);
  EXPECT_TRUE(absl::IsOutOfRange(over)) << over;
  EXPECT_EQ(ids.size(), 8u);
}

TEST(SentencePiece, WhiteSpaceRules) {
  ModelProto model = Base(TrainerSpec::BPE);
  Add(&model, "\u2581", -5);  // 6
  auto* spec = model.mutable_normalizer_spec();
  EXPECT_THAT(Encode(*Make(model), " a  b "), ElementsAre(6, 3, 6, 6, 4, 6));
  spec->set_add_dummy_prefix(true);
  EXPECT_THAT(Encode(*Make(model), " a"), ElementsAre(6, 6, 3));
  EXPECT_THAT(Encode(*Make(model), ""), ElementsAre());
  EXPECT_EQ(Make(model)->Decode({6, 6, 3}, {}), " a");
  spec->set_remove_extra_whitespaces(true);
  EXPECT_THAT(Encode(*Make(model), "  a  b "), ElementsAre(6, 3, 6, 4));
  EXPECT_THAT(Encode(*Make(model), "  "), ElementsAre());
  EXPECT_EQ(Make(model)->Decode({6, 6, 3}, {}), "a");
  model.mutable_trainer_spec()->set_treat_whitespace_as_suffix(true);
  EXPECT_THAT(Encode(*Make(model), " a"), ElementsAre(3, 6));
  spec->set_add_dummy_prefix(false);
  spec->set_remove_extra_whitespaces(false);
  EXPECT_EQ(Make(model)->Decode({6, 3}, {}), " a");
  spec->set_escape_whitespaces(false);
  EXPECT_THAT(Encode(*Make(model), "a a"), ElementsAre(3, 0, 3));
}

TEST(SentencePiece, InvalidUtf8IsReplaced) {
  ModelProto model = Base(TrainerSpec::BPE);
  Add(&model, "\uFFFD", -1);  // 6
  EXPECT_THAT(Encode(*Make(model), "a\xE2\x96z\xFF"), ElementsAre(3, 6, 0, 6));
}

TEST(SentencePieceHostile, BadPieces) {
  EXPECT_THAT(std::string(Error(ModelProto()).message()),
              HasSubstr("no pieces"));
  const auto with = [](const std::string& text, float score,
                       PieceProto::Type type = PieceProto::NORMAL) {
    ModelProto model = Base(TrainerSpec::UNIGRAM);
    Add(&model, text, score, type);
    return std::string(Error(model).message());
  };
  EXPECT_EQ(with("z", -1), "");
  EXPECT_THAT(with("", 0), HasSubstr("piece 6 is 0 bytes"));
  EXPECT_THAT(with("a", 0), HasSubstr("pieces 3 and 6"));
  EXPECT_THAT(with("z", kNan), HasSubstr("score"));
  EXPECT_THAT(with("z", kInf), HasSubstr("score"));
  EXPECT_THAT(with("z", -kInf), HasSubstr("score"));
  EXPECT_THAT(with("\xFF", 0), HasSubstr("UTF-8"));
  EXPECT_THAT(with(std::string(1025, 'a'), 0), HasSubstr("1025"));
  EXPECT_EQ(with(std::string(1024, 'a'), 0), "");
  EXPECT_THAT(with("<unk2>", 0, PieceProto::UNKNOWN), HasSubstr("2 unknown"));
  EXPECT_THAT(with("<0x00>", 0, PieceProto::BYTE), HasSubstr("byte piece"));
}

TEST(SentencePieceHostile, MissingUnknownAndBytes) {
  ModelProto model = Base(TrainerSpec::BPE);
  model.mutable_trainer_spec()->set_byte_fallback(true);
  EXPECT_THAT(std::string(Error(model).message()), HasSubstr("0 byte pieces"));
  AddBytes(&model);
  EXPECT_TRUE(Error(model).ok());
  model.mutable_pieces(6)->set_piece("<0xzz>");
  EXPECT_EQ(Error(model).code(), absl::StatusCode::kInvalidArgument);
  model = Base(TrainerSpec::BPE);
  model.mutable_pieces(0)->set_type(PieceProto::NORMAL);
  EXPECT_THAT(std::string(Error(model).message()), HasSubstr("0 unknown"));
}

TEST(SentencePieceHostile, OtherTypesAndMaps) {
  EXPECT_EQ(Error(Base(TrainerSpec::WORD)).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(Error(Base(TrainerSpec::CHAR)).message()),
              HasSubstr("CHAR"));
  ModelProto model = Base(TrainerSpec::BPE);
  model.mutable_normalizer_spec()->set_precompiled_charsmap("abc");
  EXPECT_EQ(Error(model).code(), absl::StatusCode::kInvalidArgument);
  model = Base(TrainerSpec::BPE);
  model.mutable_denormalizer_spec()->set_precompiled_charsmap("abc");
  EXPECT_EQ(Error(model).code(), absl::StatusCode::kInvalidArgument);
  model = Base(TrainerSpec::BPE);
  model.mutable_trainer_spec()->set_unk_surface("\xC3");
  EXPECT_EQ(Error(model).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SentencePieceHostile, EveryTruncationIsAnErrorOrAModel) {
  ModelProto model = Base(TrainerSpec::BPE);
  Add(&model, "ab", -1, PieceProto::USER_DEFINED);
  const std::string bytes = model.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto tokenizer =
        MakeSentencePieceTokenizer(std::string_view(bytes).substr(0, size));
    if (tokenizer.ok()) Encode(**tokenizer, "abc d");
  }
  EXPECT_FALSE(MakeSentencePieceTokenizer("").ok());
  EXPECT_FALSE(MakeSentencePieceTokenizer("\xFF\xFF\xFF").ok());
}

TEST(SentencePieceHostile, TooManyPiecesAreCountedBeforeParsing) {
  std::string bytes;
  bytes.reserve(size_t{90} << 20);
  for (size_t i = 0; i <= size_t{16} << 20; ++i) {
    bytes.append("\x0A\x03\x0A\x01z", 5);
  }
  const auto status = MakeSentencePieceTokenizer(bytes).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("16777216"));
  // Two bytes a piece would make objects of a hundred times the file.
  EXPECT_THAT(std::string(MakeSentencePieceTokenizer(std::string("\x0A\0", 2))
                              .status()
                              .message()),
              HasSubstr("empty"));
}

// A megabyte without a boundary, of pieces that overlap all the way.
TEST(SentencePieceHostile, LongTextsTakeNoQuadraticTime) {
  const size_t kLength = ::inlay::testing::kSanitized ? 1 << 18 : 1 << 20;
  for (const auto type : {TrainerSpec::BPE, TrainerSpec::UNIGRAM}) {
    ModelProto model = Base(type);
    for (int n = 2; n <= 64; ++n) Add(&model, std::string(n, 'a'), -1.0f / n);
    const auto tokenizer = Make(model);
    EXPECT_EQ(Encode(*tokenizer, std::string(kLength, 'a')).size(),
              kLength / 64);
  }
}

}  // namespace
}  // namespace inlay
