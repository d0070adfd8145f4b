// Renders every stored conversation through every stored template and compares
// the text, or the error the template raised, byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/civil_time.h"
#include "core/json/json.h"
#include "core/text/template/chat_template.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

OrderedJson Variables(const OrderedJson& file, const OrderedJson& test) {
  OrderedJson variables;
  variables["messages"] = test["messages"];
  variables["tools"] = test["tools"];
  variables["add_generation_prompt"] = test["add_generation_prompt"];
  for (const auto& [name, value] : test["kwargs"].items()) {
    variables[name] = value;
  }
  for (const char* name : {"bos_token", "eos_token"}) {
    if (file[name] != "") variables[name] = file[name];
  }
  return variables;
}

TEST(ChatTemplateGolden, EveryCaseRendersExactly) {
  int num_cases = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TestData() + "/chat_templates")) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto file = ParseOrderedJson(ReadText(entry.path()), "golden");
    ASSERT_TRUE(file.ok()) << file.status();
    const auto parsed =
        ChatTemplate::Parse((*file)["template"].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    RenderOptions options;
    ASSERT_TRUE(
        absl::ParseCivilTime((*file)["now"].get<std::string>(), &options.now));
    for (const OrderedJson& test : (*file)["cases"]) {
      SCOPED_TRACE(test["name"].get<std::string>());
      const auto text = parsed->Render(Variables(*file, test), options);
      if (test.contains("error")) {
        EXPECT_EQ(TemplateRaisedText(text.status()),
                  test["error"].get<std::string>())
            << text.status();
      } else {
        ASSERT_TRUE(text.ok()) << text.status();
        EXPECT_EQ(*text, test["expected"].get<std::string>());
      }
      ++num_cases;
    }
  }
  EXPECT_EQ(num_cases, 606);
}

}  // namespace
}  // namespace inlay
