#include "core/formats/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/formats/format_test_util.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ChatFormat, NothingThereIsFine) {
  TempFolder folder;
  const auto chat = ReadChatFormat(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->chat_template, "");
  EXPECT_THAT(chat->named_templates, IsEmpty());
  EXPECT_EQ(chat->bos_token, "");
  EXPECT_EQ(chat->eos_token, "");
}

TEST(ChatFormat, ATemplateAsString) {
  TempFolder folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template":"T","bos_token":"<s>","eos_token":
                   {"content":"</s>","lstrip":false},
                   "model_max_length":1000000000000000019884624838656})");
  const auto chat = ReadChatFormat(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->chat_template, "T");
  EXPECT_EQ(chat->bos_token, "<s>");
  EXPECT_EQ(chat->eos_token, "</s>");
}

TEST(ChatFormat, TemplatesAsList) {
  ChatDocuments documents;
  documents.tokenizer_config = Json::parse(
      R"({"chat_template":[{"name":"tool_use","template":"U1"},
          {"name":"rag","template":"R"},{"name":"default","template":"D"},
          {"name":"tool_use","template":"U2"}]})");
  const auto chat = InterpretChatFormat(documents);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->chat_template, "D");
  EXPECT_THAT(chat->named_templates,
              ElementsAre(Pair("rag", "R"), Pair("tool_use", "U2")));
}

TEST(ChatFormat, FilesWinOverDocuments) {
  TempFolder folder;
  folder.Write("chat_template.json", R"({"chat_template":"from json"})");
  EXPECT_EQ(ReadChatFormat(folder.path())->chat_template, "from json");
  folder.Write("tokenizer_config.json",
               R"({"chat_template":[{"name":"default","template":"config"},
                   {"name":"tool_use","template":"config U"},
                   {"name":"rag","template":"config R"}]})");
  EXPECT_EQ(ReadChatFormat(folder.path())->chat_template, "config");
  folder.Write("chat_template.jinja", "from file\n");
  folder.Write("additional_chat_templates/tool_use.jinja", "file U");
  folder.Write("additional_chat_templates/README.md", "no template");
  const auto chat = ReadChatFormat(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->chat_template, "from file\n");
  // Nothing of the others is left.
  EXPECT_THAT(chat->named_templates, ElementsAre(Pair("tool_use", "file U")));
}

TEST(ChatFormat, AProcessorsTemplateIsTheLast) {
  TempFolder folder;
  folder.Write("processor_config.json", R"({"chat_template":"P"})");
  EXPECT_EQ(ReadChatFormat(folder.path())->chat_template, "P");
  folder.Write("chat_template.json", R"({"chat_template":"J"})");
  EXPECT_EQ(ReadChatFormat(folder.path())->chat_template, "J");
}

// transformers 5: the map is the last word, unless tokenizer_config.json lists
// its added tokens; then it serves where that is silent.
TEST(ChatFormat, TokensOfConfigAndMap) {
  TempFolder folder;
  folder.Write("special_tokens_map.json",
               R"({"bos_token":"<b>","eos_token":{"content":"<e>"},
                   "pad_token":null})");
  auto chat = ReadChatFormat(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->bos_token, "<b>");
  EXPECT_EQ(chat->eos_token, "<e>");
  folder.Write("tokenizer_config.json",
               R"({"bos_token":null,"pad_token":"<p>"})");
  chat = ReadChatFormat(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->bos_token, "<b>");
  EXPECT_THAT(chat->other_tokens, IsEmpty());
  folder.Write("tokenizer_config.json",
               R"({"bos_token":null,"pad_token":"<p>",
                   "added_tokens_decoder":{}})");
  chat = ReadChatFormat(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->bos_token, "");
  EXPECT_EQ(chat->eos_token, "<e>");
  EXPECT_THAT(chat->other_tokens, ElementsAre(Pair("pad_token", "<p>")));
}

TEST(ChatFormat, TokensOfAModelsOwn) {
  ChatDocuments documents;
  documents.tokenizer_config = Json::parse(
      R"({"bos_token":"<s>","mask_token":{"content":"<m>"},"image_token":"<i>",
          "add_bos_token":true,"no_token":null,"boi_token":{"content":"<boi>"},
          "extra_special_tokens":{"audio_token":"<a>","eos_token":"no"}})");
  const auto chat = InterpretChatFormat(documents);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_THAT(chat->other_tokens,
              UnorderedElementsAre(
                  Pair("mask_token", "<m>"), Pair("image_token", "<i>"),
                  Pair("boi_token", "<boi>"), Pair("audio_token", "<a>")));
  EXPECT_EQ(chat->eos_token, "");
}

TEST(ChatFormat, NamesFileAndKeyOfWrongValues) {
  for (const char* value :
       {"1", "true", "{}", R"({"default":"x"})", "[1]", "[null]", "[{}]",
        R"([{"name":"x"}])", R"([{"template":"x"}])",
        R"([{"name":1,"template":"x"}])",
        R"([{"name":"x","template":["y"]}])"}) {
    SCOPED_TRACE(value);
    const Json document =
        Json::parse(std::string(R"({"chat_template":)") + value + "}");
    ChatDocuments documents;
    documents.tokenizer_config = document;
    auto status = InterpretChatFormat(documents).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("tokenizer_config.json: \"chat_template\""));
    documents = {};
    documents.chat_template = document;
    status = InterpretChatFormat(documents).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("chat_template.json: \"chat_template\""));
  }
  for (const char* value :
       {"1", "false", "[]", "{}", R"({"content":1})", R"({"content":null})"}) {
    SCOPED_TRACE(value);
    ChatDocuments documents;
    documents.special_tokens_map =
        Json::parse(std::string(R"({"eos_token":)") + value + "}");
    const auto status = InterpretChatFormat(documents).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("special_tokens_map.json: \"eos_token\""));
  }
}

TEST(ChatFormat, CapsSizesAndNumbers) {
  TempFolder folder;
  folder.Write("chat_template.jinja", std::string((4 << 20) + 1, 'x'));
  EXPECT_EQ(ReadChatFormat(folder.path()).status().code(),
            absl::StatusCode::kResourceExhausted);
  folder.Write("chat_template.jinja", "x");
  for (int i = 0; i < 256; ++i) {
    folder.Write("additional_chat_templates/" + std::to_string(i) + ".jinja",
                 "t");
  }
  EXPECT_EQ(ReadChatFormat(folder.path()).status().code(),
            absl::StatusCode::kResourceExhausted);
  ChatDocuments documents;
  documents.tokenizer_config["chat_template"] =
      Json(257, Json{{"name", "x"}, {"template", "y"}});
  EXPECT_EQ(InterpretChatFormat(documents).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inlay
