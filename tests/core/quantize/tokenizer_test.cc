// The lists of tokens that are written, read without the tokenizer.json that
// goes along: as a reader sees them that knows GGUF's own keys only.
#include "core/text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/formats/gguf_files.h"
#include "core/formats/gguf_tokenizer.h"
#include "core/formats/gguf_tokenizer_writer.h"
#include "memory/status.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

Json ReadTokenizer(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto json = ParseJson(text.str(), path);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

class WrittenTokenizer : public ::testing::Test {
 protected:
  ~WrittenTokenizer() override { std::filesystem::remove(path_); }

  absl::Status Write(const std::string& name, const std::string& bos) {
    ModelFiles files;
    files.chat.bos_token = bos;
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    INLAY_RETURN_IF_ERROR(SetGgufTokenizer(
        ReadTokenizer(Folder(name) + "/tokenizer.json"), files, 2010, &writer));
    return writer.Commit();
  }
  static std::string Folder(const std::string& name) {
    return TestData() + "/tokenizers/" + name;
  }

  const std::string path_ =
      ::testing::TempDir() + "tokenizer_" + std::to_string(getpid()) + ".gguf";
};

TEST_F(WrittenTokenizer, GivesHuggingFacesIds) {
  const struct {
    const char* name;
    const char* bos;
    const char* pre;
  } tokenizers[] = {
      {"bbpe_gpt2", "", "gpt-2"},
      {"bbpe_llama3", "<|begin_of_text|>", "llama-bpe"},
      {"bbpe_qwen2", "", "qwen2"},
      {"bbpe_o200k", "", "gpt-4o"},
      {"bbpe_deepseek_v3", "<｜begin▁of▁sentence｜>", "deepseek-v3"},
  };
  for (const auto& [name, bos, pre] : tokenizers) {
    SCOPED_TRACE(name);
    const absl::Status written = Write(name, bos);
    ASSERT_TRUE(written.ok()) << written;
    const auto files = OpenGgufFiles(path_, WeightAccess::kRead);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto vocab = ReadGgufVocab(files->header());
    ASSERT_TRUE(vocab.ok() && vocab->has_value()) << vocab.status();
    EXPECT_EQ((*vocab)->pre, pre);
    EXPECT_EQ((*vocab)->tokens.size(), 2010u);
    const auto json = GgufTokenizerJson(**vocab);
    ASSERT_TRUE(json.ok()) << json.status();
    const auto tokenizer = MakeTokenizerFromDocument(*json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const Json cases = ReadTokenizer(Folder(name) + "/cases.json");
    for (const Json& item : cases["cases"]) {
      std::vector<int32_t> ids;
      const auto text = item["text"].get<std::string>();
      // Takes the space before it along, which lists cannot say; an id that
      // tokenizers does not take from the file (gguf_text_test.cc).
      if (text.find("<mask>") != text.npos) continue;
      if (text.find("<|eot_id|>") != text.npos) continue;
      ASSERT_TRUE((*tokenizer)->Encode(text, {}, &ids).ok());
      EXPECT_EQ(ids, item["ids_special"].get<std::vector<int32_t>>()) << text;
    }
  }
}

TEST_F(WrittenTokenizer, WhatHasNoNameIsRefused) {
  // Spaces in front; NFKC.
  EXPECT_TRUE(absl::IsUnimplemented(Write("bbpe_roberta", "")));
  EXPECT_TRUE(absl::IsUnimplemented(Write("unigram_nfkc", "")));
}

TEST_F(WrittenTokenizer, PiecesHaveTheirKinds) {
  const absl::Status written = Write("spbpe_llama2", "<s>");
  ASSERT_TRUE(written.ok()) << written;
  const auto files = OpenGgufFiles(path_, WeightAccess::kRead);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto vocab = ReadGgufVocab(files->header());
  ASSERT_TRUE(vocab.ok() && vocab->has_value()) << vocab.status();
  EXPECT_EQ((*vocab)->model, "llama");
  EXPECT_EQ((*vocab)->scores.size(), 2010u);
  EXPECT_EQ((*vocab)->add_space_prefix, true);
  EXPECT_EQ((*vocab)->add_bos, true);
  ASSERT_TRUE((*vocab)->unk_id.has_value());
  EXPECT_EQ((*vocab)->type(*(*vocab)->unk_id), GgufTokenType::kUnknown);
  EXPECT_EQ((*vocab)->type(2009), GgufTokenType::kUnused);
  int bytes = 0;
  for (const GgufTokenType type : (*vocab)->types) {
    if (type == GgufTokenType::kByte) ++bytes;
  }
  EXPECT_EQ(bytes, 256);
  const auto json = GgufTokenizerJson(**vocab);
  EXPECT_TRUE(json.ok()) << json.status();
}

}  // namespace
}  // namespace inlay
