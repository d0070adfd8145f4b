// Every normalizer, pre-tokenizer and decoder type of tokenizer.json with small
// vocabularies, against what Hugging Face tokenizers 0.23 gives for them
// (features.json: "encode" rows are [text, ids], "decode" rows are
// [ids, text, text without special tokens]).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/json/json.h"
#include "core/text/streaming_decoder.h"
#include "core/text/tokenizer.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using Ids = std::vector<int32_t>;

Json ReadCases() {
  std::ifstream file(TestData() + "/tokenizers/features.json");
  std::stringstream text;
  text << file.rdbuf();
  auto json = ParseJson(text.str(), "features.json");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json::array();
}

std::string Described(const Json& spec) {
  return DumpJson(spec["normalizer"]) + " " + DumpJson(spec["pre_tokenizer"]) +
         " " + DumpJson(spec["decoder"]);
}

void CheckEncode(const Tokenizer& tokenizer, const Json& row) {
  Ids ids;
  ASSERT_TRUE(tokenizer.Encode(row[0].get<std::string>(), {}, &ids).ok());
  EXPECT_EQ(ids, row[1].get<Ids>()) << row[0];
}

void CheckDecode(const Tokenizer& tokenizer, const Json& row) {
  const Ids ids = row[0].get<Ids>();
  for (const bool skip : {false, true}) {
    const auto expected = row[skip ? 2 : 1].get<std::string>();
    EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = skip}), expected)
        << row[0];
    StreamingDecoder decoder(tokenizer, {.skip_special = skip});
    std::string text;
    for (const int32_t id : ids) {
      text += decoder.Push(id);
      EXPECT_TRUE(std::string_view(expected).starts_with(text));
    }
    EXPECT_EQ(text + decoder.Finish(), expected) << row[0];
  }
}

TEST(TokenizerFeatures, EqualTheLibrary) {
  const Json cases = ReadCases();
  ASSERT_GT(cases.size(), 80u);
  for (const Json& item : cases) {
    SCOPED_TRACE(Described(item["tokenizer"]));
    const auto tokenizer = MakeTokenizerFromJson(DumpJson(item["tokenizer"]));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (item.contains("encode")) {
      for (const Json& row : item["encode"]) CheckEncode(**tokenizer, row);
    }
    if (item.contains("decode")) {
      for (const Json& row : item["decode"]) CheckDecode(**tokenizer, row);
    }
  }
}

// A word-level tokenizer with the given sections.
std::unique_ptr<Tokenizer> MakeWordLevel(const std::string& vocab,
                                         const std::string& sections) {
  auto made = MakeTokenizerFromJson(
      R"({"model":{"type":"WordLevel","unk_token":"<unk>","vocab":)" + vocab +
      "}," + sections + "}");
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move(*made);
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text,
           const EncodeOptions& options) {
  Ids ids;
  EXPECT_TRUE(tokenizer.Encode(text, options, &ids).ok());
  return ids;
}

TEST(TokenizerFeatures, UntrustedTextWritesNoControlTokens) {
  const auto tokenizer =
      MakeWordLevel(R"({"<unk>":0,"a":1})",
                    R"("pre_tokenizer":{"type":"WhitespaceSplit"},
         "added_tokens":[{"id":2,"content":"<s>","special":true}])");
  EXPECT_EQ(Encode(*tokenizer, "a <s>", {}), (Ids{1, 2}));
  EXPECT_EQ(Encode(*tokenizer, "a <s>", {.parse_special = false}), (Ids{1, 0}));
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  EXPECT_FALSE(tokenizer->IsSpecial(1));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_EQ(tokenizer->IdToToken(3), "");
  EXPECT_EQ(tokenizer->TokenToId("<s>"), 2);
}

TEST(TokenizerFeatures, InvalidUtf8IsRepaired) {
  const auto tokenizer = MakeWordLevel(
      "{\"<unk>\":0,\"a\xEF\xBF\xBD\":1,"
      "\"\xEF\xBF\xBD\xEF\xBF\xBD\":2}",
      R"("pre_tokenizer":{"type":"WhitespaceSplit"})");
  EXPECT_EQ(Encode(*tokenizer, "a\xE4\xB8 \xFF\xC0", {}), (Ids{1, 2}));
}

TEST(TokenizerFeatures, TokenBytes) {
  const auto bytes = MakeWordLevel(R"({"<unk>":0,"\u0120\u00c3":1})",
                                   R"("decoder":{"type":"ByteLevel"})");
  EXPECT_EQ(bytes->TokenBytes(1), " \xC3");
  EXPECT_EQ(bytes->TokenBytes(7), "");
  const auto fallback =
      MakeWordLevel(R"({"<unk>":0,"<0xE4>":1,"\u2581a":2})",
                    R"("decoder":{"type":"Sequence","decoders":[
           {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
           {"type":"ByteFallback"},{"type":"Fuse"},
           {"type":"Strip","content":" ","start":1,"stop":0}]})");
  EXPECT_EQ(fallback->TokenBytes(1), "\xE4");
  EXPECT_EQ(fallback->TokenBytes(2), " a");
  const auto words = MakeWordLevel(R"({"<unk>":0,"##a":1,"b":2})",
                                   R"("decoder":{"type":"WordPiece"})");
  EXPECT_EQ(words->TokenBytes(1), "a");
  EXPECT_EQ(words->TokenBytes(2), " b");
}

TEST(TokenizerFeatures, ProcessorsByTheirOldNames) {
  const std::string vocab = R"({"<unk>":0,"[CLS]":1,"[SEP]":2,"a":3,"b":4})";
  for (const bool roberta : {false, true}) {
    const auto tokenizer = MakeWordLevel(
        vocab, std::string(R"("post_processor":{"type":")") +
                   (roberta ? "RobertaProcessing" : "BertProcessing") +
                   R"(","cls":["[CLS]",1],"sep":["[SEP]",2]})");
    Ids ids;
    Ids types;
    ASSERT_TRUE(tokenizer->EncodePair("a", "b", {}, &ids, &types).ok());
    EXPECT_EQ(ids, roberta ? (Ids{1, 3, 2, 2, 4, 2}) : (Ids{1, 3, 2, 4, 2}));
    EXPECT_EQ(types, roberta ? (Ids{0, 0, 0, 0, 0, 0}) : (Ids{0, 0, 0, 1, 1}));
    ids.clear();
    types.clear();
    ASSERT_TRUE(
        tokenizer->EncodePair("a", "b", {.add_special = false}, &ids, &types)
            .ok());
    EXPECT_EQ(ids, (Ids{3, 4}));
    EXPECT_EQ(types, roberta ? (Ids{0, 0}) : (Ids{0, 1}));
    EXPECT_EQ(Encode(*tokenizer, "a", {}), (Ids{1, 3, 2}));
  }
}

TEST(TokenizerFeatures, LoadingAFolderWithoutTokenizer) {
  const auto missing = LoadTokenizer(TestData() + "/none");
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
}

// What tokenizer_config.json says of what is put around a text, beside a model
// that has both.
TEST(TokenizerFeatures, SentencePieceAsItsConfigurationSays) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "spm_configured";
  fs::create_directories(folder);
  fs::copy_file(fs::path(TestData()) / "tokenizers/spm_bpe/tokenizer.model",
                folder / "tokenizer.model",
                fs::copy_options::overwrite_existing);
  const auto ends = [&](const char* config) {
    std::ofstream(folder / "tokenizer_config.json") << config;
    const auto tokenizer = LoadTokenizer(folder.string());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (!tokenizer.ok()) return std::pair(false, false);
    const Ids ids = Encode(**tokenizer, "word", {});
    return std::pair(ids.front() == 1, ids.back() == 2);
  };
  EXPECT_EQ(ends("{}"), std::pair(true, true));
  EXPECT_EQ(ends(R"({"tokenizer_class": "LlamaTokenizer"})"),
            std::pair(true, false));
  EXPECT_EQ(ends(R"({"tokenizer_class": "GemmaTokenizer",
                     "add_eos_token": true})"),
            std::pair(true, true));
  EXPECT_EQ(ends(R"({"add_bos_token": false, "add_eos_token": false})"),
            std::pair(false, false));
  EXPECT_EQ(ends(R"({"tokenizer_class": "T5Tokenizer",
                     "add_bos_token": false})"),
            std::pair(false, true));
  std::ofstream(folder / "tokenizer_config.json") << R"({"add_bos_token": 1})";
  EXPECT_TRUE(absl::IsInvalidArgument(LoadTokenizer(folder.string()).status()));
  fs::remove_all(folder);
}

class ConfiguredFolder : public ::testing::Test {
 protected:
  ConfiguredFolder()
      : folder_(
            std::filesystem::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~ConfiguredFolder() override { std::filesystem::remove_all(folder_); }

  void Copy(const char* from, const char* file) {
    std::filesystem::copy_file(
        std::filesystem::path(TestData()) / "tokenizers" / from / file,
        folder_ / file, std::filesystem::copy_options::overwrite_existing);
  }
  void Write(const char* file, const char* text) {
    std::ofstream(folder_ / file) << text;
  }
  std::unique_ptr<Tokenizer> Load() {
    auto tokenizer = LoadTokenizer(folder_.string());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }

  std::filesystem::path folder_;
};

// In a model's folder text may spell control pieces, as a chat template writes
// them; what is between is as it is alone.
TEST_F(ConfiguredFolder, ControlPiecesInText) {
  Copy("spm_bpe", "tokenizer.model");
  const EncodeOptions plain = {.add_special = false};
  const Ids spelled = Encode(*Load(), "<s>word</s>", plain);
  EXPECT_GT(spelled.size(), 5u);  // alone, the library takes it for text
  EXPECT_LT(Encode(*Load(), "<s>word</s>",
                   {.add_special = false, .parse_control = true})
                .size(),
            spelled.size());  // but for a chat
  Write("tokenizer_config.json", "{}");
  auto tokenizer = Load();
  const Ids word = Encode(*tokenizer, "word", plain);
  Ids wanted = word;
  wanted.insert(wanted.begin(), 1);
  wanted.push_back(2);
  wanted.push_back(1);
  EXPECT_EQ(Encode(*tokenizer, "<s>word</s><s>", plain), wanted);
  EXPECT_EQ(Encode(*tokenizer, "word", plain), word);
  EXPECT_EQ(Encode(*tokenizer, "<s>word</s>",
                   {.add_special = false, .parse_special = false}),
            spelled);
  // The space before a text is not put before what follows a control piece.
  Write("tokenizer_config.json", R"({"legacy": false})");
  tokenizer = Load();
  EXPECT_EQ(Encode(*tokenizer, "word", plain), word);
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "a<s>word", plain), {}),
            "aword");
  const Ids after = Encode(*tokenizer, "<s> word", plain);
  EXPECT_EQ(Ids(after.begin() + 1, after.end()), word);
}

// Numbered behind the model's, special ones where text may not spell them.
TEST_F(ConfiguredFolder, TokensBesideAModel) {
  Copy("spm_bpe", "tokenizer.model");
  const int32_t size = Load()->vocab_size();
  const EncodeOptions plain = {.add_special = false};
  const auto check = [&] {
    const auto tokenizer = Load();
    EXPECT_EQ(tokenizer->vocab_size(), size + 2);
    EXPECT_EQ(tokenizer->TokenToId("<|im_start|>"), size);
    EXPECT_TRUE(tokenizer->IsSpecial(size));
    EXPECT_FALSE(tokenizer->IsSpecial(size + 1));
    const Ids ids = Encode(*tokenizer, "<|im_start|>a<tool>", plain);
    EXPECT_EQ(ids.front(), size);
    EXPECT_EQ(ids.back(), size + 1);
    const Ids text = Encode(*tokenizer, "<|im_start|>a<tool>",
                            {.add_special = false, .parse_special = false});
    EXPECT_GT(text.size(), ids.size());
    EXPECT_EQ(text.back(), size + 1);
  };
  Write("added_tokens.json", R"({"<tool>": 9001, "<|im_start|>": 9000})");
  Write("tokenizer_config.json",
        R"({"additional_special_tokens": ["<|im_start|>"]})");
  check();
  Write("added_tokens.json", R"({"of": 1, "another": 2, "file": 3})");
  Write("tokenizer_config.json",
        R"({"added_tokens_decoder": {
            "9001": {"content": "<tool>", "special": false},
            "9000": {"content": "<|im_start|>", "special": true},
            "1": {"content": "<s>", "special": true}}})");
  check();
  for (const char* config :
       {R"({"added_tokens_decoder": []})", R"({"added_tokens_decoder": {"x":
        {"content": "y"}}})",
        R"({"added_tokens_decoder": {"1": {}}})",
        R"({"added_tokens_decoder": {"99999999": {"content": "y"}}})"}) {
    Write("tokenizer_config.json", config);
    EXPECT_TRUE(
        absl::IsInvalidArgument(LoadTokenizer(folder_.string()).status()))
        << config;
  }
}

TEST_F(ConfiguredFolder, TokensBesideAFile) {
  Copy("bbpe_qwen2", "tokenizer.json");
  const auto bare = Load();
  const int32_t size = bare->vocab_size();
  const EncodeOptions plain = {.add_special = false};
  ASSERT_EQ(Encode(*bare, "<|endoftext|>", plain).size(), 1u);
  const int32_t end = *bare->TokenToId("<|endoftext|>");
  Write("tokenizer_config.json",
        R"({"model_max_length": 10, "added_tokens_decoder": {
            "70000": {"content": "<new>", "special": true},
            "1": {"content": "<|endoftext|>", "special": false,
                  "lstrip": true}}})");
  const auto tokenizer = Load();
  EXPECT_EQ(tokenizer->vocab_size(), size + 1);
  EXPECT_EQ(Encode(*tokenizer, "a<new>", plain).back(), size);
  EXPECT_TRUE(tokenizer->IsSpecial(size));
  EXPECT_EQ(*tokenizer->TokenToId("<|endoftext|>"), end);
  EXPECT_FALSE(tokenizer->IsSpecial(end));
  EXPECT_EQ(Encode(*tokenizer, "  <|endoftext|>", plain), Ids{end});
}

// Python's writer leaves what JSON does not know; the tokens count all the
// same.
TEST_F(ConfiguredFolder, ConfigurationsAsPythonWritesThem) {
  for (const char* number :
       {"Infinity", "-Infinity", "NaN", "1e30", "1000000000000000019884624"}) {
    SCOPED_TRACE(number);
    Copy("bbpe_qwen2", "tokenizer.json");
    const std::string config = std::string(R"({"model_max_length": )") +
                               number + R"(, "added_tokens_decoder": {
        "70000": {"content": "<Infinity>", "special": true}}})";
    Write("tokenizer_config.json", config.c_str());
    const auto tokenizer = Load();
    const Ids ids = Encode(*tokenizer, "<Infinity>", {.add_special = false});
    EXPECT_EQ(ids, Ids{tokenizer->vocab_size() - 1});
  }
  Write("tokenizer_config.json", R"({"model_max_length": Infinit})");
  EXPECT_TRUE(
      absl::IsInvalidArgument(LoadTokenizer(folder_.string()).status()));
}

TEST_F(ConfiguredFolder, LinksThatLeadNowhere) {
  std::filesystem::create_symlink("tokenizer.json", folder_ / "tokenizer.json");
  EXPECT_TRUE(
      absl::IsInvalidArgument(LoadTokenizer(folder_.string()).status()));
}

}  // namespace
}  // namespace inlay
