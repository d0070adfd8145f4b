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

std::string Rendered(const char* source, const char* chat, bool prompt = true) {
  LoadedModel model;
  model.chat_template = ChatTemplate::Parse(source);
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

}  // namespace
}  // namespace inlay
