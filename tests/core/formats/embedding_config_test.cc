// modules.json and what it names, as sentence-transformers writes them and as
// nobody should.
#include "core/formats/embedding_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace inlay {
namespace {

using ::testing::HasSubstr;

class EmbeddingConfigTest : public ::testing::Test {
 protected:
  EmbeddingConfigTest()
      : folder_(
            ::testing::TempDir() + "/embedding_config_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_ + "/1_Pooling");
  }
  ~EmbeddingConfigTest() override { std::filesystem::remove_all(folder_); }

  void Modules(const std::string& text) {
    std::ofstream(folder_ + "/modules.json") << text;
  }
  void PoolingConfig(const std::string& text) {
    std::ofstream(folder_ + "/1_Pooling/config.json") << text;
  }
  absl::StatusOr<EmbeddingDefaults> Read() {
    return ReadEmbeddingDefaults(folder_);
  }

  const std::string folder_;
};

constexpr char kModules[] =
    R"([{"path":"","type":"sentence_transformers.models.Transformer"},
        {"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
        {"path":"2_N","type":"sentence_transformers.models.Normalize"}])";

TEST_F(EmbeddingConfigTest, NothingWithoutTheFile) {
  const auto read = Read();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->pooling, Pooling::kNone);
  EXPECT_FALSE(read->normalise);
  EXPECT_EQ(read->unsupported, "");
}

TEST_F(EmbeddingConfigTest, OldAndNewKeys) {
  Modules(kModules);
  const std::pair<const char*, Pooling> cases[] = {
      {R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})",
       Pooling::kCls},
      {R"({"pooling_mode_mean_tokens":true})", Pooling::kMean},
      {R"({"pooling_mode_lasttoken":true})", Pooling::kLast},
      {R"({"pooling_mode":"cls","word_embedding_dimension":64})",
       Pooling::kCls},
      {R"({"pooling_mode":"lasttoken"})", Pooling::kLast}};
  for (const auto& [text, pooling] : cases) {
    PoolingConfig(text);
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << text << read.status();
    EXPECT_EQ(read->pooling, pooling) << text;
    EXPECT_TRUE(read->normalise);
    EXPECT_EQ(read->unsupported, "") << text;
  }
}

TEST_F(EmbeddingConfigTest, WhatThereIsNotIsNamed) {
  Modules(kModules);
  const std::pair<const char*, const char*> cases[] = {
      {R"({"pooling_mode_max_tokens":true})", "max"},
      {R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true})",
       "several"},
      {R"({"pooling_mode":"attention"})", "attention"}};
  for (const auto& [text, name] : cases) {
    PoolingConfig(text);
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << text << read.status();
    EXPECT_EQ(read->pooling, Pooling::kNone) << text;
    EXPECT_THAT(read->unsupported, HasSubstr(name));
  }
  Modules(R"([{"path":"2_D","type":"sentence_transformers.models.Dense"}])");
  const auto read = Read();
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->unsupported, HasSubstr("Dense"));
}

TEST_F(EmbeddingConfigTest, MalformedFilesAreRefused) {
  const char* const bad_modules[] = {"{}",
                                     "[",
                                     "3",
                                     R"([{"path":"../x","type":"a.Pooling"}])",
                                     R"([{"path":"/etc","type":"a.Pooling"}])",
                                     R"([{"path":"","type":"a.Pooling"}])",
                                     R"([{"path":3,"type":"a.Pooling"}])",
                                     R"([{"path":"p","type":[]}])"};
  for (const char* text : bad_modules) {
    Modules(text);
    const auto read = Read();
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr("modules.json"));
  }
  Modules(kModules);
  PoolingConfig(R"({"pooling_mode_cls_token":"yes"})");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay
