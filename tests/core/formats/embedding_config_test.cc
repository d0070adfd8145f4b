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
  void DenseConfig(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(folder_ + "/" + path);
    std::ofstream(folder_ + "/" + path + "/config.json") << text;
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
  Modules(R"([{"path":"2_D","type":"sentence_transformers.models.LSTM"}])");
  const auto read = Read();
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->unsupported, HasSubstr("LSTM"));
}

constexpr char kDense[] =
    R"({"in_features":8,"out_features":4,"bias":true,
        "activation_function":"torch.nn.modules.activation.Tanh"})";
constexpr char kMoreDense[] =
    R"({"in_features":4,"out_features":6,"bias":false,
        "activation_function":"torch.nn.modules.linear.Identity",
        "module_output_name":null,"module_input_name":"sentence_embedding"})";
constexpr char kDenseModules[] =
    R"([{"path":"","type":"sentence_transformers.models.Transformer"},
        {"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
        {"path":"2_D","type":"sentence_transformers.models.Dense"},
        {"path":"","type":"sentence_transformers.models.Dropout"},
        {"path":"3_D","type":"sentence_transformers.models.Dense"},
        {"path":"4_N","type":"sentence_transformers.models.Normalize"}])";

TEST_F(EmbeddingConfigTest, DenseModules) {
  Modules(kDenseModules);
  PoolingConfig(R"({"pooling_mode_mean_tokens":true})");
  DenseConfig("2_D", kDense);
  DenseConfig("3_D", kMoreDense);
  const auto read = Read();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->unsupported, "");
  EXPECT_TRUE(read->normalise);
  ASSERT_EQ(read->dense.size(), 2u);
  EXPECT_EQ(read->dense[0].linear(), "2_D.linear");
  EXPECT_EQ(read->dense[0].inputs, 8);
  EXPECT_EQ(read->dense[0].outputs, 4);
  EXPECT_TRUE(read->dense[0].bias);
  EXPECT_EQ(read->dense[0].activation, DenseActivation::kTanh);
  EXPECT_EQ(read->dense[1].outputs, 6);
  EXPECT_FALSE(read->dense[1].bias);
  EXPECT_EQ(read->dense[1].activation, DenseActivation::kIdentity);
}

TEST_F(EmbeddingConfigTest, DenseModulesThatThereAreNot) {
  Modules(kDenseModules);
  PoolingConfig(R"({"pooling_mode_mean_tokens":true})");
  DenseConfig("2_D", kDense);
  const std::pair<const char*, const char*> cases[] = {
      {R"({"in_features":4,"out_features":6,"activation_function":"a.Mish"})",
       "Mish"},
      {R"({"in_features":4,"out_features":6})", "activation"},
      {R"({"in_features":4,"out_features":6,"activation_function":"a.Tanh",
           "module_input_name":"token_embeddings"})",
       "token_embeddings"}};
  for (const auto& [text, name] : cases) {
    DenseConfig("3_D", text);
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << text << read.status();
    EXPECT_THAT(read->unsupported, HasSubstr(name));
  }
  const char* const malformed[] = {
      R"({"in_features":5,"out_features":6,"activation_function":"a.Tanh"})",
      R"({"out_features":6,"activation_function":"a.Tanh"})",
      R"({"in_features":4,"out_features":0,"activation_function":"a.Tanh"})",
      R"({"in_features":4,"out_features":1e300,"activation_function":"a"})",
      R"({"in_features":4,"out_features":6,"bias":"no"})",
      R"([])"};
  for (const char* text : malformed) {
    DenseConfig("3_D", text);
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  // Before the pooling, and behind the normalisation.
  for (const char* text : {R"([{"path":"2_D","type":"s.Dense"},
            {"path":"1_Pooling","type":"s.Pooling"}])",
                           R"([{"path":"1_Pooling","type":"s.Pooling"},
            {"path":"","type":"s.Normalize"},
            {"path":"2_D","type":"s.Dense"}])"}) {
    Modules(text);
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << text << read.status();
    EXPECT_THAT(read->unsupported, HasSubstr("Dense")) << text;
  }
  std::string many = R"([{"path":"1_Pooling","type":"s.Pooling"})";
  DenseConfig("2_D", R"({"in_features":4,"out_features":4,
                         "activation_function":"a.Tanh"})");
  for (int i = 0; i < 17; ++i) many += R"(,{"path":"2_D","type":"s.Dense"})";
  Modules(many + "]");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
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
