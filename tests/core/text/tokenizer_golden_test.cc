// Every golden tokenizer, every case: what Hugging Face tokenizers and
// SentencePiece give, id for id and byte for byte.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/json/json.h"
#include "core/text/streaming_decoder.h"
#include "core/text/tokenizer.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::string Folder(const std::string& name) {
  return TestData() + "/tokenizers/" + name;
}

using Ids = std::vector<int32_t>;

class TokenizerGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = LoadTokenizer(Folder(GetParam()));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = std::move(*tokenizer);
    std::ifstream file(Folder(GetParam()) + "/cases.json");
    std::stringstream text;
    text << file.rdbuf();
    auto json = ParseJson(text.str(), "cases.json");
    ASSERT_TRUE(json.ok()) << json.status();
    file_ = std::move(*json);
    ASSERT_GE(file_["cases"].size(), 200u);
  }

  Ids Encode(const std::string& text, bool special) {
    Ids ids;
    const absl::Status status =
        tokenizer_->Encode(text, {.add_special = special}, &ids);
    EXPECT_TRUE(status.ok()) << status;
    return ids;
  }

  // Streams `ids` and checks what must hold of every decoder on the way.
  void CheckStream(const Ids& ids, bool skip, const std::string& whole) {
    StreamingDecoder decoder(*tokenizer_, {.skip_special = skip});
    std::string text;
    for (const int32_t id : ids) {
      text += decoder.Push(id);
      ASSERT_TRUE(std::string_view(whole).starts_with(text));
    }
    EXPECT_EQ(text + decoder.Finish(), whole);
  }

  void CheckDecode(const Json& item, const char* key, const Ids& ids,
                   bool skip) {
    if (!item.contains(key)) return;
    const auto expected = item[key].get<std::string>();
    EXPECT_EQ(tokenizer_->Decode(ids, {.skip_special = skip}), expected)
        << key << " of " << item["text"];
    CheckStream(ids, skip, expected);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  Json file_;
};

TEST_P(TokenizerGolden, VocabularySize) {
  EXPECT_EQ(tokenizer_->vocab_size(), file_["vocab_size"].get<int32_t>());
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const std::string_view token = tokenizer_->IdToToken(id);
    if (token.empty()) continue;
    EXPECT_EQ(tokenizer_->TokenToId(token), id) << token;
  }
}

TEST_P(TokenizerGolden, Encode) {
  for (const Json& item : file_["cases"]) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(Encode(text, false), item["ids"].get<Ids>()) << item["text"];
    EXPECT_EQ(Encode(text, true), item["ids_special"].get<Ids>())
        << item["text"];
  }
}

TEST_P(TokenizerGolden, Decode) {
  for (const Json& item : file_["cases"]) {
    const Ids ids = item["ids"].get<Ids>();
    const Ids special = item["ids_special"].get<Ids>();
    CheckDecode(item, "decoded", ids, false);
    CheckDecode(item, "decoded_special", special, false);
    CheckDecode(item, "decoded_special_skipped", special, true);
    if (!item.contains("prefix_decodes")) continue;
    for (const Json& prefix : item["prefix_decodes"]) {
      const Ids first(ids.begin(), ids.begin() + prefix[0].get<int>());
      const auto expected = prefix[1].get<std::string>();
      EXPECT_EQ(tokenizer_->Decode(first, {}), expected) << item["text"];
      CheckStream(first, false, expected);
    }
  }
}

TEST_P(TokenizerGolden, EncodePair) {
  if (!file_.contains("pairs")) return;
  for (const Json& item : file_["pairs"]) {
    Ids ids;
    Ids types;
    ASSERT_TRUE(tokenizer_
                    ->EncodePair(item["text"].get<std::string>(),
                                 item["text_pair"].get<std::string>(), {}, &ids,
                                 &types)
                    .ok());
    EXPECT_EQ(ids, item["ids"].get<Ids>()) << item["text"];
    EXPECT_EQ(types, item["type_ids"].get<Ids>()) << item["text"];
  }
}

// Random ids reach what no encoding gives: broken characters, runs of bytes,
// special tokens anywhere.
TEST_P(TokenizerGolden, StreamOfRandomIdsEqualsDecode) {
  uint64_t state = 12345;
  for (int round = 0; round < 200; ++round) {
    Ids ids;
    for (int i = 0; i < 40; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      // Half of them small: there are the byte tokens and the controls.
      const auto limit = static_cast<uint32_t>(
          (state >> 20) % 2 == 0 ? 300 : tokenizer_->vocab_size() + 3);
      ids.push_back(static_cast<int32_t>((state >> 33) % limit));
    }
    for (const bool skip : {false, true}) {
      CheckStream(ids, skip, tokenizer_->Decode(ids, {.skip_special = skip}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TokenizerGolden,
    ::testing::Values("bbpe_deepseek_v3", "bbpe_gpt2", "bbpe_llama3",
                      "bbpe_o200k", "bbpe_qwen2", "bbpe_roberta", "spbpe_gemma",
                      "spbpe_llama2", "spbpe_metaspace", "unigram_bytefallback",
                      "unigram_nfkc", "unigram_t5", "wordpiece_cased",
                      "wordpiece_mpnet", "wordpiece_uncased", "spm_bpe",
                      "spm_bpe_user_symbols", "spm_unigram",
                      "spm_unigram_bytes"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace inlay
