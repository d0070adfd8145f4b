// T5's spiece.model as tokenizer.json: whose folders it is read in, what the
// settings beside it change, and what is refused. What it gives of texts is in
// tokenizer_golden_test.
#include "core/text/t5_tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::string TokenizerBytes(const std::string& name) {
  std::ifstream file(TestData() + "/tokenizers/" + name, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  EXPECT_FALSE(bytes.str().empty()) << name;
  return bytes.str();
}

class T5Folder : public ::testing::Test {
 protected:
  T5Folder()
      : folder_(::testing::TempDir() + "t5_tokenizer_" +
                std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(
        TestData() + "/tokenizers/unigram_t5/spiece.model",
        folder_ + "/spiece.model");
  }
  ~T5Folder() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<Tokenizer>> With(const Json& config) {
    std::ofstream(folder_ + "/tokenizer_config.json") << DumpJson(config);
    return LoadTokenizer(folder_);
  }

  const std::string folder_;
};

// Other families' spiece.model is not SentencePiece's ids alone.
TEST_F(T5Folder, OfTheClassAlone) {
  for (const char* name : {"T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer"}) {
    const auto tokenizer = With({{"tokenizer_class", name}});
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->vocab_size(), 420 + 100);
  }
  EXPECT_TRUE(With({{"extra_ids", 0}}).ok());
  for (const Json& config :
       {Json::object(), Json::object({{"tokenizer_class", "AlbertTokenizer"}}),
        Json::object(
            {{"tokenizer_class", "XLNetTokenizer"}, {"extra_ids", 0}})}) {
    const absl::Status status = With(config).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << config << " " << status;
  }
}

// tokenizer.json comes first.
TEST_F(T5Folder, BesideTokenizerJson) {
  std::filesystem::copy_file(
      TestData() + "/tokenizers/wordpiece_mpnet/tokenizer.json",
      folder_ + "/tokenizer.json");
  const auto tokenizer = With({{"tokenizer_class", "T5Tokenizer"}});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 1110);
}

TEST_F(T5Folder, Settings) {
  const auto tokenizer =
      With({{"tokenizer_class", "T5Tokenizer"},
            {"extra_ids", 2},
            {"eos_token", {{"content", "</s>"}, {"special", true}}},
            {"added_tokens_decoder",
             {{"422", {{"content", "<more>"}, {"special", true}}}}}});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->TokenToId("<extra_id_1>"), 420);
  EXPECT_EQ((*tokenizer)->TokenToId("<extra_id_0>"), 421);
  EXPECT_EQ((*tokenizer)->TokenToId("<more>"), 422);
  for (const int32_t id : {0, 1, 2, 420, 421, 422}) {
    EXPECT_TRUE((*tokenizer)->IsSpecial(id)) << id;
  }
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("<more>", {}, &ids).ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{422, 1}));
}

TEST(T5Tokenizer, Refusals) {
  const std::string own = TokenizerBytes("unigram_t5/spiece.model");
  const struct {
    std::string bytes;
    Json config;
    absl::StatusCode code;
    const char* said;
  } cases[] = {
      {TokenizerBytes("spm_bpe/tokenizer.model"), Json::object(),
       absl::StatusCode::kUnimplemented, "BPE"},
      {"no model", Json::object(), absl::StatusCode::kInvalidArgument,
       "sentencepiece"},
      {own.substr(0, own.size() / 2), Json::object(),
       absl::StatusCode::kInvalidArgument, "sentencepiece"},
      {own, Json::object({{"extra_ids", -1}}),
       absl::StatusCode::kInvalidArgument, "extra_ids"},
      {own, Json::object({{"extra_ids", 1 << 20}}),
       absl::StatusCode::kInvalidArgument, "extra_ids"},
      {own, Json::object({{"eos_token", "<end>"}}),
       absl::StatusCode::kInvalidArgument, "<end>"},
      {own, Json::object({{"pad_token", 3}}),
       absl::StatusCode::kInvalidArgument, "pad_token"},
  };
  for (const auto& [bytes, config, code, said] : cases) {
    const absl::Status status = T5TokenizerDocument(bytes, config).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(said), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace inlay
