// Chats of plain text through the kinds of templates that models with vision
// have.
#include <gtest/gtest.h>

#include "core/engine/loaded_model.h"

namespace inlay {
namespace {

// Parts alone, as LLaVA's and Idefics 3's.
constexpr char kParts[] =
    "{% for m in messages %}{{ m['role'] | upper + ': ' }}"
    "{% for c in m['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\\n' }}{% endfor %}"
    "{% for c in m['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ c['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";
// Either, as Gemma 3's and Qwen2-VL's.
constexpr char kEither[] =
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.content is string %}({{ m.content }})"
    "{% else %}{% for c in m.content %}{% if c.type == 'text' %}"
    "[{{ c.text }}]{% endif %}{% endfor %}{% endif %}{% endfor %}";
// Strings alone.
constexpr char kStrings[] =
    "{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}";
// No content at all.
constexpr char kNothing[] = "{{ messages | length }}";
constexpr char kRefuses[] = "{{ raise_exception('no') }}";

constexpr char kChat[] =
    R"({"messages":[{"role":"system","content":"S"},
        {"role":"user","content":"Hi"},{"role":"assistant"},
        {"role":"user","content":[{"type":"text","text":"T"}]}]})";

LoadedTemplate Asked(const char* source, const ChatFormat& chat = {}) {
  auto parsed = ChatTemplate::Parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return AskTemplate(*std::move(parsed), chat);
}

std::string Rendered(const char* source, const char* chat, bool prompt = true) {
  LoadedModel model;
  model.chat_template = Asked(source);
  const auto text = RenderChat(&model, chat, prompt);
  return text.ok() ? *text : text.status().ToString();
}

TEST(ChatTest, StringsBecomePartsWhereATemplateKnowsThemAlone) {
  constexpr char kPlain[] =
      R"({"messages":[{"role":"system","content":"S"},
          {"role":"user","content":"Hi"}]})";
  EXPECT_EQ(Rendered(kParts, kPlain), "SYSTEM: S USER: Hi ASSISTANT:");
  EXPECT_EQ(Rendered(kEither, kPlain), "<|system|>(S)<|user|>(Hi)");
  EXPECT_EQ(Rendered(kStrings, kPlain), "<S><Hi>");
  EXPECT_EQ(Rendered(kNothing, kPlain), "2");
}

TEST(ChatTest, OtherContentsStayAsTheyAre) {
  EXPECT_EQ(Rendered(kEither, kChat, false),
            "<|system|>(S)<|user|>(Hi)<|assistant|><|user|>[T]");
  EXPECT_EQ(Rendered(kParts,
                     R"({"messages":[{"role":"user","content":[{"type":"image"},
                   {"type":"text","text":"T"}]}]})"),
            "USER: <image>\nT ASSISTANT:");
  EXPECT_EQ(Rendered(kNothing, R"({"messages":[3,{"content":"x"}]})"), "2");
  EXPECT_EQ(Rendered(kNothing, R"({"messages":"abc"})"), "3");
  EXPECT_NE(Rendered(kRefuses, kChat).find("no"), std::string::npos);
}

// A conversation is rendered once, whatever its template knows: it is what was
// found out at first that counts.
TEST(ChatTest, TemplatesAreAskedOnce) {
  EXPECT_TRUE(Asked(kParts).parts_alone);
  for (const char* source : {kEither, kStrings, kNothing, kRefuses}) {
    EXPECT_FALSE(Asked(source).parts_alone) << source;
  }
  LoadedModel model;
  model.chat_template = Asked(kParts);
  model.chat_template->parts_alone = false;
  constexpr char kHi[] = R"({"messages":[{"role":"user","content":"Hi"}]})";
  EXPECT_EQ(*RenderChat(&model, kHi, false), "USER: ");
  model.chat_template = Asked(kEither);
  model.chat_template->parts_alone = true;
  EXPECT_EQ(*RenderChat(&model, kHi, false), "<|user|>[Hi]");
}

TEST(ChatTest, ProbesHaveTheTokens) {
  constexpr char kNeedsTokens[] =
      "{{ bos_token + pad_token }}{% for m in messages %}"
      "{% for c in m.content %}{{ c.text + eos_token }}{% endfor %}{% endfor "
      "%}";
  EXPECT_FALSE(Asked(kNeedsTokens).parts_alone);  // fails without
  ChatFormat chat;
  chat.bos_token = chat.eos_token = "x";
  chat.other_tokens = {{"pad_token", "p"}};
  EXPECT_TRUE(Asked(kNeedsTokens, chat).parts_alone);
}

// What transformers defines for every template.
TEST(ChatTest, VariablesThatAreAlwaysThere) {
  constexpr char kAll[] =
      "{{ tools is defined }} {{ tools is none }} {{ documents is none }} "
      "{{ add_generation_prompt }}";
  EXPECT_EQ(Rendered(kAll, R"({"messages":[]})", false),
            "True True True False");
  EXPECT_EQ(Rendered(kAll, R"({"messages":[],"tools":[]})", true),
            "True False True True");
}

TEST(ChatTest, MembersOfMessages) {
  // Those that are null are not there.
  EXPECT_EQ(
      Rendered("{% for m in messages %}{{ m.content is defined }} {% endfor %}",
               R"({"messages":[{"content":null,"tool_calls":null},
                   {"content":"x"}]})"),
      "False True ");
  constexpr char kReasoning[] =
      "{% for m in messages %}{{ m.thinking }},{{ m.reasoning_content }},"
      "{{ m.keys() | list | join(' ') }};{% endfor %}";
  EXPECT_EQ(Rendered(kReasoning,
                     R"({"messages":[{"role":"a","reasoning":"R"},
                   {"thinking":"T","reasoning":"R"},
                   {"thinking":"T","reasoning_content":"C","reasoning":null},
                   {"role":"a"}]})"),
            "R,R,thinking role reasoning reasoning_content;"
            "T,T,thinking reasoning reasoning_content;"
            "T,C,thinking reasoning_content;,,role;");
}

TEST(ChatTest, TokensOfTheModel) {
  LoadedModel model;
  model.chat = {.bos_token = "<s>", .other_tokens = {{"pad_token", "<p>"}}};
  model.chat_template = Asked("{{ bos_token }}{{ eos_token }}{{ pad_token }}");
  EXPECT_EQ(*RenderChat(&model, R"({"messages":[]})", true), "<s><p>");
  EXPECT_EQ(*RenderChat(&model, R"({"eos_token":"E","pad_token":"P"})", true),
            "<s>EP");
}

TEST(ChatTest, NamedTemplates) {
  LoadedModel model;
  model.named_templates.emplace_back("tool_use", Asked("U{{ messages }}"));
  model.named_templates.emplace_back("rag", Asked("R"));
  const auto rendered = [&](const char* chat) {
    const auto text = RenderChat(&model, chat, true);
    return text.ok() ? *text : std::string(text.status().message());
  };
  EXPECT_EQ(rendered(R"({"tools":[{"a":1}]})"), "U");
  EXPECT_EQ(rendered(R"({"tools":[]})"), "U");  // not none
  EXPECT_EQ(rendered(R"({"template":"rag","tools":[]})"), "R");
  EXPECT_EQ(rendered("{}"), "the model has no chat template");
  EXPECT_EQ(rendered(R"({"template":"default"})"), "default");
  model.chat_template = Asked("D");
  EXPECT_EQ(rendered("{}"), "D");
  EXPECT_EQ(rendered(R"({"tools":null})"), "D");
  EXPECT_EQ(rendered(R"({"template":"default"})"), "D");
  EXPECT_EQ(rendered(R"({"template":"{{ 1 }}"})"), "1");
  model.named_templates.clear();
  EXPECT_EQ(rendered(R"({"template":"default"})"), "default");
}

// The last message of {"messages": MESSAGES, "continue_final_message": ASKED}.
std::string Continued(const char* source, const std::string& messages,
                      const std::string& asked = "true") {
  return Rendered(source, ("{\"messages\":" + messages +
                           ",\"continue_final_message\":" + asked + "}")
                              .c_str());
}

constexpr char kTurns[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
constexpr char kStrips[] =
    "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
constexpr char kThinks[] =
    "{% for m in messages %}<{{ m.thinking }}|{{ m.content }}>{% endfor %}";

TEST(ChatTest, TheLastMessageGoesOn) {
  const std::string chat =
      R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"W "}])";
  EXPECT_EQ(Continued(kTurns, chat), "<|user|>Hi<|end|><|assistant|>W ");
  EXPECT_EQ(Continued(kTurns, chat, "\"content\""),
            "<|user|>Hi<|end|><|assistant|>W ");
  // A template that strips what it prints strips its end, too.
  EXPECT_EQ(Continued(kStrips, chat), "<Hi><W");
  EXPECT_EQ(Continued(kStrips, R"([{"content":"W\n\u00a0"}])"), "<W");
  // Off, it is no variable of the template's either.
  for (const char* off : {"null", "false", "\"\""}) {
    EXPECT_EQ(Continued(kTurns, chat, off),
              "<|user|>Hi<|end|><|assistant|>W <|end|><|assistant|>");
    EXPECT_EQ(Continued("{{ continue_final_message is defined }}", chat, off),
              "False");
  }
  // The last mark counts, whatever earlier messages say.
  EXPECT_EQ(Continued(kTurns, R"([{"role":"u",
                "content":"CONTINUE_FINAL_MESSAGE_TAG "},
                {"role":"a","content":""}])"),
            "<|u|>CONTINUE_FINAL_MESSAGE_TAG <|end|><|a|>");
}

TEST(ChatTest, PartsAndReasoningGoOn) {
  const std::string parts =
      R"([{"role":"a","content":[{"type":"text","text":"A"},
          {"type":"text","text":"B"},{"type":"image"}]}])";
  EXPECT_EQ(Continued(kEither, parts), "<|a|>[A][B");
  EXPECT_EQ(Continued(kParts, R"([{"role":"a","content":"A"}])"), "A: A");
  const std::string thinking = R"([{"reasoning_content":"R","content":"A"}])";
  EXPECT_EQ(Continued(kThinks, thinking, "\"reasoning_content\""), "<R");
  EXPECT_EQ(Continued(kThinks, thinking, "\"reasoning\""),
            "INVALID_ARGUMENT: \"continue_final_message\" is set and the last "
            "message has no text in \"reasoning\" to continue");
  EXPECT_EQ(Continued(kThinks, thinking), "<R|A");
}

TEST(ChatTest, WhatCannotGoOn) {
  const auto expect = [](const std::string& got, const char* what) {
    EXPECT_EQ(got.find("INVALID_ARGUMENT: "), 0u) << got;
    EXPECT_NE(got.find(what), std::string::npos) << got;
  };
  for (const char* messages : {"[]", "3", "[3]", "{}"}) {
    expect(Continued(kTurns, messages), "no last message");
  }
  for (const char* content :
       {"null", "7", "[]", "{}", R"([{"type":"image"}])", R"([{"text":1}])"}) {
    expect(Continued(kTurns, std::string("[{\"role\":\"a\",\"content\":") +
                                 content + "}]"),
           "no text in \"content\"");
  }
  expect(Continued(kTurns, "[{\"role\":\"a\",\"content\":\"x\"}]", "1"),
         "is of type number");
  expect(Continued(kNothing, "[{\"content\":\"x\"}]"), "does not print");
  expect(Continued("{% for m in messages %}{{ m.content | upper }}{% endfor %}",
                   "[{\"content\":\"x\"}]"),
         "does not print");
  expect(Rendered(kTurns, R"({"messages":[{"content":"x"}],
             "continue_final_message":true,"add_generation_prompt":true})"),
         "both set");
  EXPECT_EQ(Rendered(kTurns, R"({"messages":[{"role":"a","content":"x"}],
                "continue_final_message":true,"add_generation_prompt":false})"),
            "<|a|>x");
}

}  // namespace
}  // namespace inlay
