#include "core/json/json.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace inlay {
namespace {

TEST(JsonTest, ParsesAndKeepsOrderWhereAsked) {
  const auto json =
      ParseOrderedJson(R"({"b":1,"a":[true,null,"\u00e9"]})", "x");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->begin().key(), "b");
  EXPECT_EQ(DumpJson(*json), R"({"b":1,"a":[true,null,"é"]})");
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const std::string& text :
       {std::string("{"), std::string("[1,]"), std::string("nul"),
        std::string("\"\xff\""), std::string("{} \0{}", 5), std::string()}) {
    const auto json = ParseJson(text, "the file");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(json.status().ToString().find("the file"), std::string::npos);
  }
}

TEST(JsonTest, CapsSizeAndDepth) {
  JsonLimits limits;
  limits.max_bytes = 10;
  EXPECT_EQ(ParseJson("[1,2,3,4,5,6]", "x", limits).status().code(),
            absl::StatusCode::kResourceExhausted);
  limits = JsonLimits();
  limits.max_depth = 3;
  EXPECT_TRUE(ParseJson("[[[\"[[[[\"]]]", "x", limits).ok());
  EXPECT_EQ(ParseJson("[[[[1]]]]", "x", limits).status().code(),
            absl::StatusCode::kResourceExhausted);
  // A million levels end at the cap, not in the parser's stack.
  EXPECT_FALSE(ParseJson(std::string(1 << 20, '['), "x").ok());
}

// Members of objects that keep their order are looked up one by one.
TEST(JsonTest, CapsMembersOfOrderedObjects) {
  const auto object = [](size_t members) {
    std::string text = "{\"list\":[1,2,{}],\"o\":{\"a\":[1],\"b\":2}";
    for (size_t i = 2; i < members; ++i) {
      text += ",\"{,k" + std::to_string(i) + "\":0";
    }
    return text + "}";
  };
  const std::string most = object(kMaxOrderedMembers);
  const std::string more = object(kMaxOrderedMembers + 1);
  const auto json = ParseOrderedJson(most, "x");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->size(), kMaxOrderedMembers);
  EXPECT_TRUE(ParseOrderedJson("[" + most + "," + most + "]", "x").ok());
  for (const std::string& text : {more, "[" + most + "," + more + "]"}) {
    EXPECT_EQ(ParseOrderedJson(text, "x").status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(ParseJson(text, "x").ok());
  }
}

// What a list in braces stands for is nlohmann's, though the code is ours.
template <typename Ours, typename Theirs>
void ExpectSameLists() {
  const auto lists = [](auto... type) {
    using J = std::tuple_element_t<0, std::tuple<decltype(type)...>>;
    const J held = {{"k", 1}};
    const J several = {J{},
                       J{{}},
                       J{1},
                       J{held},
                       J{{"a", 1}, {"b", {1, 2}}, {"a", 3}},
                       J{{"z", 1}, {"b", {{"y", 2}, {"x", held}}}, {"c", {}}},
                       J{"a", 1},
                       J{{"a", 1}, {2, 1}},
                       J{{"a", 1}, {"b", 2, 3}},
                       J::array({{"a", 1}, {"b", 2}}),
                       J::array(),
                       J::object({{"a", 1}, {"b", nullptr}}),
                       J::object({})};
    return several.dump();
  };
  EXPECT_EQ(lists(Ours()), lists(Theirs()));
}

TEST(JsonTest, ListsAreWhatTheyWere) {
  ExpectSameLists<Json, nlohmann::json>();
  ExpectSameLists<OrderedJson, nlohmann::ordered_json>();
}

TEST(JsonTest, TheLastOfEqualKeysCounts) {
  const char text[] = R"({"a":1,"b":2,"a":[3]})";
  EXPECT_EQ(DumpJson(*ParseJson(text, "x")), R"({"a":[3],"b":2})");
  EXPECT_EQ(DumpJson(*ParseOrderedJson(text, "x")), R"({"a":[3],"b":2})");
}

TEST(JsonTest, MessagesStayShort) {
  const auto json = ParseJson("\"" + std::string(1 << 16, 'a') + "\x01\"", "x");
  ASSERT_FALSE(json.ok());
  EXPECT_LT(json.status().message().size(), 300u);
}

TEST(JsonTest, TypedLookupsNameKeyValueAndRange) {
  const Json json = *ParseJson(
      R"({"n":5,"x":1.5,"t":true,"s":"v","big":18446744073709551615,"z":null})",
      "x");
  EXPECT_EQ(*JsonInt(json, "n", 0, 0, 10), 5);
  EXPECT_EQ(*JsonInt(json, "missing", 7, 0, 10), 7);
  EXPECT_EQ(*JsonInt(json, "z", 7, 0, 10), 7);
  EXPECT_EQ(*JsonNumber(json, "n", 0, 0, 10), 5.0);
  EXPECT_TRUE(*JsonBool(json, "t", false));
  // Null leaves a value to the fallback, and switches a flag off.
  EXPECT_TRUE(*JsonBool(json, "z", true));
  EXPECT_TRUE(*JsonFlag(json, "t", false));
  EXPECT_TRUE(*JsonFlag(json, "missing", true));
  EXPECT_FALSE(*JsonFlag(json, "missing", false));
  EXPECT_FALSE(*JsonFlag(json, "z", true));
  EXPECT_TRUE(*JsonFlag(Json(), "z", true));
  EXPECT_EQ(*JsonString(json, "s", ""), "v");
  for (const char* key : {"x", "t", "s", "big"}) {
    EXPECT_FALSE(JsonInt(json, key, 0, INT64_MIN, INT64_MAX).ok()) << key;
  }
  const absl::Status status = JsonInt(json, "n", 0, 6, 10).status();
  EXPECT_EQ(status.message(), "\"n\" is 5, allowed: an integer from 6 to 10");
  EXPECT_FALSE(JsonNumber(json, "x", 0, 2, 3).ok());
  EXPECT_FALSE(JsonBool(json, "n", false).ok());
  EXPECT_FALSE(JsonString(json, "n", "").ok());
  EXPECT_EQ(JsonFind(Json::array(), "n"), nullptr);
}

// At most 200 bytes of it, and no piece of a character.
TEST(JsonTest, MessagesShowTheBeginning) {
  EXPECT_EQ(ShownJson(Json{{"n", 5}}), "{\"n\":5}");
  EXPECT_EQ(ShownJson(std::string(198, 'a')),
            "\"" + std::string(198, 'a') + "\"");
  EXPECT_EQ(ShownJson(std::string(199, 'a')),
            "\"" + std::string(199, 'a') + "...");
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\u20ac";
  EXPECT_EQ(ShownJson(euros), "\"" + euros.substr(0, 198) + "...");
}

}  // namespace
}  // namespace inlay
