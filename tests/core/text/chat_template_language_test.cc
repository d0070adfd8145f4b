// The language, feature by feature: templates with the text that Jinja gives
// for them (written by hand, and random expressions), and what errors say.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/json/json.h"
#include "core/text/template/chat_template.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

absl::StatusOr<std::string> Render(std::string_view source,
                                   const OrderedJson& variables) {
  auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(variables, {absl::CivilSecond(2024, 2, 29, 0, 5, 9)});
}

std::string ErrorOf(std::string_view source) {
  return std::string(
      Render(source, OrderedJson{{"n", 1}, {"m", OrderedJson::object()}})
          .status()
          .message());
}

TEST(ChatTemplateLanguage, RendersAsJinja) {
  std::ifstream in(TestData() + "/chat_templates/language/cases.json");
  std::ostringstream text;
  text << in.rdbuf();
  const auto file = ParseOrderedJson(text.str(), "cases.json");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_GT((*file)["cases"].size(), 400u);
  for (const OrderedJson& test : (*file)["cases"]) {
    const std::string source = test["template"];
    const auto result = Render(source, (*file)["variables"]);
    ASSERT_TRUE(result.ok()) << source << "\n" << result.status();
    EXPECT_EQ(*result, test["expected"].get<std::string>()) << source;
  }
}

TEST(ChatTemplateLanguage, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(ErrorOf("\n{{ nothing.x }}"), "line 2: 'nothing' is undefined");
  EXPECT_EQ(ErrorOf("{{ m.a.b }}"),
            "line 1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(ErrorOf("{{ 1 + nothing }}"), "line 1: 'nothing' is undefined");
  EXPECT_EQ(ErrorOf("a\nb{{ 'x' + 1 }}"),
            "line 2: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(ErrorOf("{{ n|nosuch }}"), "line 1: no filter named 'nosuch'");
  EXPECT_EQ(ErrorOf("{{ n is nosuch }}"), "line 1: no test named 'nosuch'");
  EXPECT_EQ(ErrorOf("{{ n() }}"), "line 1: 'int' object is not callable");
  EXPECT_EQ(ErrorOf("{% for a, b in [[1]] %}{% endfor %}"),
            "line 1: not enough values to unpack (expected 2, got 1)");
  EXPECT_EQ(ErrorOf("{% set m.x = 1 %}"),
            "line 1: cannot assign attribute 'x' on 'm': only namespace "
            "objects can be changed");
  EXPECT_EQ(ErrorOf("{{ nothing|tojson }}"),
            "line 1: Object of type Undefined is not JSON serializable");
}

TEST(ChatTemplateLanguage, RaisedTextIsExact) {
  const auto result =
      Render("{{ raise_exception('Roles: \"x\"\n') }}", OrderedJson::object());
  EXPECT_EQ(TemplateRaisedText(result.status()), "Roles: \"x\"\n");
  EXPECT_EQ(std::string(result.status().message()),
            "template raised: Roles: \"x\"\n");
  EXPECT_EQ(TemplateRaisedText(absl::InvalidArgumentError("x")), std::nullopt);
  EXPECT_EQ(TemplateRaisedText(absl::OkStatus()), std::nullopt);
}

TEST(ChatTemplateLanguage, Strftime) {
  const auto result = Render(
      "{{ strftime_now('%Y-%m-%d %H:%M:%S %y %j %a %A %b %B %-d %e %I %p %-I "
      "%u %w %U %W %V %G %% %F %T %D') }}",
      OrderedJson::object());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result,
            "2024-02-29 00:05:09 24 060 Thu Thursday Feb February 29 29 12 AM "
            "12 4 4 08 09 09 2024 % 2024-02-29 00:05:09 02/29/24");
}

TEST(ChatTemplateLanguage, LimitsAreCheckedAndHeld) {
  TemplateLimits limits;
  limits.max_depth = kMaxTemplateDepth + 1;
  EXPECT_EQ(ChatTemplate::Parse("", limits).status().code(),
            absl::StatusCode::kInvalidArgument);
  limits.max_depth = 8;
  limits.max_output_bytes = 3;
  const auto exact = ChatTemplate::Parse("{{ v }}", limits);
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(*exact->Render({{"v", "abc"}}, {}), "abc");
  EXPECT_EQ(exact->Render({{"v", "abcd"}}, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inlay
