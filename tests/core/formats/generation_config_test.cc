#include "core/formats/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json J(const char* text) { return Json::parse(text); }

TEST(GenerationConfig, AbsentFilesLeaveAllEmpty) {
  const auto defaults = InterpretGenerationDefaults(Json(), Json());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_THAT(defaults->eos_ids, IsEmpty());
  EXPECT_FALSE(defaults->bos_id.has_value());
  EXPECT_FALSE(defaults->pad_id.has_value());
  EXPECT_FALSE(defaults->do_sample.has_value());
  EXPECT_FALSE(defaults->temperature.has_value());
  EXPECT_FALSE(defaults->top_k.has_value());
  EXPECT_FALSE(defaults->top_p.has_value());
  EXPECT_FALSE(defaults->min_p.has_value());
  EXPECT_FALSE(defaults->repetition_penalty.has_value());
  EXPECT_FALSE(defaults->max_new_tokens.has_value());
}

TEST(GenerationConfig, ReadsEveryField) {
  const auto defaults = InterpretGenerationDefaults(
      J(R"({"eos_token_id":[7,2,7],"bos_token_id":0,"pad_token_id":2147483647,
            "do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,
            "min_p":0,"repetition_penalty":1.05,"max_new_tokens":512,
            "transformers_version":"4.57.1"})"),
      J(R"({"eos_token_id":1,"bos_token_id":5})"));
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_THAT(defaults->eos_ids, ElementsAre(7, 2));
  EXPECT_EQ(defaults->bos_id, 0);
  EXPECT_EQ(defaults->pad_id, 2147483647);
  EXPECT_EQ(defaults->do_sample, true);
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->min_p, 0.0);
  EXPECT_EQ(defaults->repetition_penalty, 1.05);
  EXPECT_EQ(defaults->max_new_tokens, 512);
}

TEST(GenerationConfig, TokenIdsFallBackOneByOne) {
  const auto defaults = InterpretGenerationDefaults(
      J(R"({"bos_token_id":3,"eos_token_id":[]})"),
      J(R"({"bos_token_id":4,"eos_token_id":null,"temperature":9,
            "text_config":{"eos_token_id":[1,106],"pad_token_id":-1}})"));
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos_id, 3);
  EXPECT_THAT(defaults->eos_ids, ElementsAre(1, 106));
  EXPECT_FALSE(defaults->pad_id.has_value());
  EXPECT_FALSE(defaults->temperature.has_value());
}

TEST(GenerationConfig, BothSpellingsOfNoTopK) {
  for (const char* text : {R"({"top_k":0})", R"({"top_k":-1})"}) {
    EXPECT_EQ(InterpretGenerationDefaults(J(text), Json())->top_k, 0);
  }
}

TEST(GenerationConfig, NamesFileAndKeyOfWrongValues) {
  for (const char* value :
       {R"("eos_token_id":-1)", R"("eos_token_id":2147483648)",
        R"("eos_token_id":18446744073709551615)", R"("eos_token_id":"2")",
        R"("eos_token_id":2.0)", R"("eos_token_id":{})",
        R"("eos_token_id":true)", R"("eos_token_id":[1,-1])",
        R"("eos_token_id":[[1]])", R"("eos_token_id":[null])",
        R"("eos_token_id":["1"])", R"("bos_token_id":-1)",
        R"("bos_token_id":[1])", R"("pad_token_id":-2)",
        R"("pad_token_id":"x")"}) {
    SCOPED_TRACE(value);
    const std::string key =
        std::string(value).substr(0, std::string(value).find(':'));
    const Json document = J(("{" + std::string(value) + "}").c_str());
    const auto own = InterpretGenerationDefaults(document, Json()).status();
    EXPECT_EQ(own.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(own.message()),
                HasSubstr("generation_config.json: " + key));
    const auto config = InterpretGenerationDefaults(Json(), document).status();
    EXPECT_THAT(std::string(config.message()),
                HasSubstr("config.json: " + key));
  }
  for (const char* value :
       {R"("do_sample":1)", R"("temperature":-0.1)", R"("temperature":"1")",
        R"("temperature":{"__float__":"NaN"})", R"("top_p":1.01)",
        R"("top_p":-1)", R"("min_p":2)", R"("top_k":-2)", R"("top_k":1.5)",
        R"("repetition_penalty":0)", R"("repetition_penalty":-1)",
        R"("max_new_tokens":-1)", R"("max_new_tokens":[])"}) {
    SCOPED_TRACE(value);
    const std::string key =
        std::string(value).substr(0, std::string(value).find(':'));
    const auto status = InterpretGenerationDefaults(
                            J(("{" + std::string(value) + "}").c_str()), Json())
                            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("generation_config.json: " + key));
  }
}

TEST(GenerationConfig, CapsTheListOfIds) {
  Json list = Json::array();
  for (int i = 0; i < 1024; ++i) list.push_back(i);
  EXPECT_EQ(InterpretGenerationDefaults({{"eos_token_id", list}}, Json())
                ->eos_ids.size(),
            1024u);
  list.push_back(0);
  EXPECT_FALSE(
      InterpretGenerationDefaults({{"eos_token_id", list}}, Json()).ok());
}

}  // namespace
}  // namespace inlay
