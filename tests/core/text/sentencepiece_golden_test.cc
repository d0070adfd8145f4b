// SentencePiece models against ids and texts of the original library.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/text/sentencepiece_model.h"
#include "core/text/utf8.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class SentencePieceGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string dir = TestData() + "/tokenizers/" + GetParam();
    auto tokenizer =
        MakeSentencePieceTokenizer(ReadFile(dir + "/tokenizer.model"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    auto golden = ParseJson(ReadFile(dir + "/cases.json"), "cases.json");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
    ASSERT_GT(golden_["cases"].size(), 200u);
  }

  std::vector<int32_t> Encode(const std::string& text, bool add_special) {
    EncodeOptions options;
    options.add_special = add_special;
    std::vector<int32_t> ids;
    EXPECT_TRUE(tokenizer_->Encode(text, options, &ids).ok());
    return ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  Json golden_;
};

TEST_P(SentencePieceGolden, Encode) {
  EXPECT_EQ(tokenizer_->vocab_size(), golden_["vocab_size"].get<int32_t>());
  for (const Json& c : golden_["cases"]) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(Encode(text, false), c["ids"].get<std::vector<int32_t>>())
        << text;
    EXPECT_EQ(Encode(text, true), c["ids_special"].get<std::vector<int32_t>>())
        << text;
  }
}

TEST_P(SentencePieceGolden, DecodeWholeAndPrefixes) {
  size_t num_prefixes = 0;
  for (const Json& c : golden_["cases"]) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->Decode(ids, {}), c["decoded"].get<std::string>());
    if (!c.contains("prefix_decodes")) continue;
    for (const Json& row : c["prefix_decodes"]) {  // [number of ids, text]
      const absl::Span<const int32_t> prefix(ids.data(), row[0].get<size_t>());
      EXPECT_EQ(tokenizer_->Decode(prefix, {}), row[1].get<std::string>())
          << c["text"] << " cut after " << prefix.size();
      ++num_prefixes;
    }
  }
  EXPECT_GT(num_prefixes, 50u);
}

TEST_P(SentencePieceGolden, StreamsWholeCodePoints) {
  for (const Json& c : golden_["cases"]) {
    auto stream = tokenizer_->StartDecode({});
    std::string all;
    for (const int32_t id : c["ids"].get<std::vector<int32_t>>()) {
      std::string part;
      stream->Push(id, &part);
      EXPECT_TRUE(IsValidUtf8(part));
      all += part;
    }
    stream->Finish(&all);
    EXPECT_EQ(all, c["decoded"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceGolden,
                         ::testing::Values("spm_bpe", "spm_bpe_user_symbols",
                                           "spm_unigram", "spm_unigram_bytes"),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace inlay
