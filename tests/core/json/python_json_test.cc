#include "core/json/python_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/formats/format_test_util.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

TEST(PythonJson, BareTokensBecomeObjects) {
  const auto json = ParsePythonJson(
      R"({"limit":[0.0,Infinity],"low":-Infinity,"x":NaN,"n":-1})", "c");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["limit"][1], Json({{"__float__", "Infinity"}}));
  EXPECT_EQ((*json)["low"], Json({{"__float__", "-Infinity"}}));
  EXPECT_EQ((*json)["x"], Json({{"__float__", "NaN"}}));
  EXPECT_EQ((*json)["n"], -1);
}

TEST(PythonJson, StringsAreLeftAlone) {
  const auto json = ParsePythonJson(
      R"({"NaN":"Infinity","a":"\"NaN\\","b":"\\\"-Infinity"})", "c");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["NaN"], "Infinity");
  EXPECT_EQ((*json)["a"], "\"NaN\\");
  EXPECT_EQ((*json)["b"], "\\\"-Infinity");
}

TEST(PythonJson, RefusesWhatPythonRefuses) {
  for (const char* text :
       {"", "{", R"({"a":nan})", R"({"a":-NaN})", R"({"a":+Infinity})",
        R"({"a":Infinity1})", R"({"a":1Infinity})", R"({"a":xNaN})",
        R"({NaN:1})", R"({"a":"NaN)", R"({"a":"\)", R"({"a":Inf})",
        R"({"a":"b"NaN})", R"({"a":1} NaN)"}) {
    const auto json = ParsePythonJson(text, "the config");
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(json.status().message()), HasSubstr("the config"));
  }
  EXPECT_FALSE(ParsePythonJson(std::string("{}\0x", 4), "c").ok());
}

TEST(PythonJson, TheDocumentIsAnObject) {
  for (const char* text : {"[]", "null", "1", "\"x\"", "true"}) {
    const auto json = ParsePythonJson(text, "c");
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(json.status().message()), HasSubstr("an object"));
  }
  // A lone token is a number, whatever we make of it inside.
  EXPECT_TRUE(ParsePythonJson("{}", "c").ok());
}

TEST(PythonJson, CapsSizeDepthAndTokens) {
  const auto nested = [](int depth) {
    return R"({"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(ParsePythonJson(nested(60), "c").ok());
  EXPECT_EQ(ParsePythonJson(nested(100'000), "c").status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto tokens = [](int count) {
    std::string text = R"({"a":[NaN)";
    for (int i = 1; i < count; ++i) text += ",NaN";
    return text + "]}";
  };
  EXPECT_TRUE(ParsePythonJson(tokens(4096), "c").ok());
  EXPECT_EQ(ParsePythonJson(tokens(4097), "c").status().code(),
            absl::StatusCode::kResourceExhausted);
  std::string large = "{}" + std::string(kMaxConfigBytes - 2, ' ');
  EXPECT_TRUE(ParsePythonJson(large, "c").ok());
  large.push_back(' ');
  EXPECT_EQ(ParsePythonJson(large, "c").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PythonJson, AnAbsentFileIsNull) {
  TempFolder folder;
  const auto absent = ReadOptionalPythonJson(folder.path() + "/config.json");
  ASSERT_TRUE(absent.ok());
  EXPECT_TRUE(absent->is_null());
  const std::string path = folder.Write("config.json", "{");
  const auto broken = ReadOptionalPythonJson(path);
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr(path));
  // A folder of that name is an error, not an absent file.
  EXPECT_FALSE(ReadOptionalPythonJson(folder.path()).ok());
}

}  // namespace
}  // namespace inlay
