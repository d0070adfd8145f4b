// Long texts are encoded part by part: where they may be cut, and that nothing
// shows it.
#include "core/text/word_cut.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/text/split_patterns.h"
#include "core/text/tokenizer_json.h"
#include "core/text/utf8.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using Ids = std::vector<int32_t>;

Json ReadJson(const std::string& name) {
  std::ifstream file(TestData() + "/tokenizers/" + name);
  std::stringstream text;
  text << file.rdbuf();
  auto json = ParseJson(text.str(), name);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

Ids EncodePlain(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  // Added tokens are found before a text is cut.
  const absl::Status status = tokenizer.Encode(
      text, {.add_special = false, .parse_special = false}, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

std::vector<size_t> Cuts(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t pos = 1; pos < text.size(); ++pos) {
    pos = NextWordCut(text, pos);
    if (pos < text.size()) cuts.push_back(pos);
  }
  return cuts;
}

TEST(WordCutTest, BehindWordsAndLines) {
  const auto cuts = [](std::string_view text) { return Cuts(text); };
  using List = std::vector<size_t>;
  EXPECT_EQ(cuts("ab cd  e! f"), (List{2, 5, 9}));
  EXPECT_EQ(cuts("ab\ncd"), (List{3}));
  // White space that reaches over the line's end, or a slash behind it, may be
  // one piece with it.
  EXPECT_EQ(cuts("ab \ncd"), (List{2}));
  EXPECT_EQ(cuts("ab\n\ncd"), (List{}));
  EXPECT_EQ(cuts("ab\n/cd"), (List{}));
  EXPECT_EQ(cuts("ab\n cd"), (List{}));
  // Letters anywhere; what becomes white space when it is normalised does not
  // end a word.
  EXPECT_EQ(cuts("\u0436 \u0437"), (List{2}));
  EXPECT_EQ(cuts("\u037A x\u00A0 y\uFE70 z"), (List{}));
  EXPECT_EQ(cuts("\u4E2D\u3002\n\u6587"), (List{7}));
  EXPECT_EQ(cuts("\u4E2D\u3000\n\u6587"), (List{}));
  EXPECT_EQ(NextWordCut("no cut", 3), 6u);
}

// Wherever a text is cut, its parts give what the whole gives.
void CheckParts(const JsonTokenizer& tokenizer, const std::string& text,
                int* num_cuts) {
  std::string valid;
  AppendValidUtf8(text, &valid);
  const Ids whole = EncodePlain(tokenizer, valid);
  for (const size_t cut : Cuts(valid)) {
    Ids parts = EncodePlain(tokenizer, valid.substr(0, cut));
    const Ids rest = EncodePlain(tokenizer, valid.substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, whole) << "cut at " << cut << " of \"" << text << "\"";
    ++*num_cuts;
  }
}

// Runs of what the patterns tell apart, in every order.
std::vector<std::string> MixedTexts() {
  const std::string_view parts[] = {
      " ",      "  ",     "\n",      "\r\n",   "\t",     "a",      "I'll",
      "Z",      "7",      "1234",    ".",      "!?",     "/",      "'s",
      "_",      "\u00E9", "e\u0301", "\u0301", "\u4E2D", "\u3042", "\u3002",
      "\u00A0", "\u3000", "\u0660",  "\u2160", "\u01C5", "\x01",   "\u200B"};
  std::vector<std::string> texts;
  uint64_t state = 4711;
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += parts[(state >> 33) % std::size(parts)];
      if ((state >> 60) % 3 == 0) text += " ";
    }
    texts.push_back(text);
  }
  return texts;
}

class WordCutGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    Json file = ReadJson(name + "/tokenizer.json");
    // This file spells the pattern in another way, which is left to PCRE2.
    if (name == "bbpe_deepseek_v3") {
      file["pre_tokenizer"]["pretokenizers"][2]["pattern"]["Regex"] =
          SplitPatternRegex(SplitPattern::kDeepSeekWords);
    }
    auto tokenizer = JsonTokenizer::Create(file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    ASSERT_TRUE(tokenizer_->cuts_at_words());
    cases_ = ReadJson(name + "/cases.json")["cases"];
    ASSERT_GE(cases_.size(), 200u);
  }

  std::unique_ptr<JsonTokenizer> tokenizer_;
  Json cases_;
};

TEST_P(WordCutGolden, PartsGiveWhatTheWholeGives) {
  int num_cuts = 0;
  for (const Json& item : cases_)
    CheckParts(*tokenizer_, item["text"].get<std::string>(), &num_cuts);
  EXPECT_GT(num_cuts, 200);
  for (const std::string& text : MixedTexts())
    CheckParts(*tokenizer_, text, &num_cuts);
  EXPECT_GT(num_cuts, 2000);
}

// What the encoder cuts by itself.
TEST_P(WordCutGolden, LongTextsGiveWhatTheirPartsGive) {
  std::string text;
  for (size_t i = 0; text.size() < 200000; ++i)
    text += cases_[i % cases_.size()]["text"].get<std::string>();
  std::string valid;
  AppendValidUtf8(text, &valid);
  Ids parts;
  for (size_t begin = 0; begin < valid.size();) {
    const size_t end = NextWordCut(valid, std::min(begin + 777, valid.size()));
    const Ids part = EncodePlain(*tokenizer_, valid.substr(begin, end - begin));
    parts.insert(parts.end(), part.begin(), part.end());
    begin = end;
  }
  EXPECT_EQ(EncodePlain(*tokenizer_, valid), parts);
}

INSTANTIATE_TEST_SUITE_P(All, WordCutGolden,
                         ::testing::Values("bbpe_deepseek_v3", "bbpe_gpt2",
                                           "bbpe_llama3", "bbpe_o200k",
                                           "bbpe_qwen2"));

// Steps of all kinds in all orders: those that say they can be cut can.
TEST(WordCutTest, FeaturesThatSayTheyCanBeCut) {
  int num_tokenizers = 0;
  int num_cuts = 0;
  const Json cases = ReadJson("features.json");
  for (const Json& item : cases) {
    const auto tokenizer = JsonTokenizer::Create(item["tokenizer"]);
    if (!tokenizer.ok() || !(*tokenizer)->cuts_at_words()) continue;
    // Here, parts are texts of their own, which begin with a prefix.
    const bool marks_start =
        DumpJson(item["tokenizer"]).find(R"("first")") != std::string::npos;
    if (marks_start) continue;
    ++num_tokenizers;
    for (const std::string& text : MixedTexts()) {
      Ids ids;
      // Some know no unknown token.
      if (!(*tokenizer)->Encode(text, {}, &ids).ok()) continue;
      CheckParts(**tokenizer, text, &num_cuts);
    }
  }
  EXPECT_GT(num_tokenizers, 3);
  EXPECT_GT(num_cuts, 1000);
}

// What makes parts differ from the whole, if little: these are encoded whole.
TEST(WordCutTest, WhatCannotBeCutSaysSo) {
  const auto cuts = [](const char* more, const char* pre_tokenizer) {
    const auto tokenizer = JsonTokenizer::Create(Json::parse(
        std::string(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},)") +
        R"("merges":[]},"pre_tokenizer":)" + pre_tokenizer + more + "}"));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() && (*tokenizer)->cuts_at_words();
  };
  const auto token = [](const char* strips) {
    return std::string(R"(,"added_tokens":[{"id":2,"content":"MASK",)") +
           R"("single_word":false,"special":false,"normalized":true,)" +
           strips + "}]";
  };
  constexpr char kBytes[] =
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  constexpr char kRewrites[] =
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  constexpr char kSplits[] =
      R"({"type":"Split","behavior":"Isolated","invert":false,"pattern":)"
      R"({"Regex":"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|)"
      R"( ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}})";
  const auto sequence = [](const std::string& a, const std::string& b) {
    return R"({"type":"Sequence","pretokenizers":[)" + a + "," + b + "]}";
  };
  EXPECT_TRUE(cuts("", kBytes));
  EXPECT_TRUE(cuts(token(R"("lstrip":false,"rstrip":false)").c_str(), kBytes));
  EXPECT_FALSE(cuts(token(R"("lstrip":true,"rstrip":false)").c_str(), kBytes));
  EXPECT_FALSE(cuts(token(R"("lstrip":false,"rstrip":true)").c_str(), kBytes));
  constexpr char kBert[] =
      R"(,"normalizer":{"type":"BertNormalizer","clean_text":false,)"
      R"("strip_accents":false,"lowercase":false,"handle_chinese_chars":)";
  EXPECT_TRUE(cuts((std::string(kBert) + "false}").c_str(), kBytes));
  EXPECT_FALSE(cuts((std::string(kBert) + "true}").c_str(), kBytes));
  EXPECT_TRUE(cuts("", sequence(kSplits, kRewrites).c_str()));
  EXPECT_FALSE(cuts("", sequence(kRewrites, kSplits).c_str()));
}

// The end of this text is an error: who asks for few ids never gets there.
TEST(MaxIdsTest, EndsAsSoonAsThereAreTooMany) {
  const auto tokenizer = MakeTokenizerFromJson(
      R"({"model":{"type":"Unigram","vocab":[["a",-1.0],["b",-2.0]]},
          "pre_tokenizer":{"type":"WhitespaceSplit"}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;
  while (text.size() < 100000) text += "a b ";
  const auto encode = [&](size_t max_ids) {
    Ids ids;
    return (*tokenizer)->Encode(text, {.max_ids = max_ids}, &ids).code();
  };
  const size_t count = text.size() / 2;
  EXPECT_EQ(encode(count), absl::StatusCode::kOk);
  EXPECT_EQ(encode(count - 1), absl::StatusCode::kOutOfRange);
  text += "x";
  EXPECT_EQ(encode(count), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(encode(5), absl::StatusCode::kOutOfRange);
}

class MaxIdsGolden : public ::testing::TestWithParam<const char*> {};

// For every kind of tokenizer: as many as there are, and not one less.
TEST_P(MaxIdsGolden, AllowsAsManyAsThereAre) {
  const std::string name = GetParam();
  const auto tokenizer = LoadTokenizer(TestData() + "/tokenizers/" + name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string long_word(5000, 'a');
  const Json cases = ReadJson(name + "/cases.json");
  for (const Json& item : cases["cases"]) {
    for (const std::string& text :
         {item["text"].get<std::string>(),
          item["text"].get<std::string>() + long_word}) {
      Ids ids;
      ASSERT_TRUE(
          (*tokenizer)->Encode(text, {.add_special = false}, &ids).ok());
      for (const size_t max_ids :
           {ids.size(), ids.size() - 1, ids.size() / 2}) {
        if (max_ids > ids.size()) continue;  // there are none
        Ids some;
        const absl::Status status =
            (*tokenizer)
                ->Encode(text, {.add_special = false, .max_ids = max_ids},
                         &some);
        EXPECT_EQ(status.code(), max_ids < ids.size()
                                     ? absl::StatusCode::kOutOfRange
                                     : absl::StatusCode::kOk)
            << max_ids << " of " << ids.size() << ": " << item["text"];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MaxIdsGolden,
    ::testing::Values("bbpe_deepseek_v3", "bbpe_llama3", "bbpe_o200k",
                      "bbpe_roberta", "spbpe_gemma", "spbpe_llama2",
                      "spbpe_metaspace", "spm_bpe", "spm_unigram",
                      "spm_unigram_bytes", "unigram_bytefallback",
                      "unigram_nfkc", "wordpiece_cased", "wordpiece_mpnet",
                      "wordpiece_uncased"));

}  // namespace
}  // namespace inlay
