// Memory runs out at every allocation of reading, building, copying, changing
// and writing a JSON value, and stays so: what was there is let go without any.
#include "core/json/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "tests/core/engine_oom/failing_new.h"

namespace inlay {
namespace {

// Keys and values too long to be held without memory, and 63 levels.
std::string Text() {
  std::string text =
      R"({"a_name_of_many_letters":[1,-2,3.5,true,null,"a text that is long"],)"
      R"("b":{"c":{"another_name_of_letters":[[],{},"","é"]}},)"
      R"("a_name_of_many_letters":["once more, which is the last of them"])";
  for (int i = 0; i < 20; ++i) {
    text += ",\"one_of_many_members_" + std::to_string(i) + "\":[[" +
            std::to_string(i) + "]]";
  }
  return text + ",\"deep\":" + std::string(62, '[') + std::string(62, ']') +
         "}";
}

// Without memory from the call's first allocation on, its second, ..: it ends
// with std::bad_alloc and leaves nothing, until it has all that it takes.
void Sweep(const char* what, const std::function<void()>& call) {
  SCOPED_TRACE(what);
  call();
  const int64_t before = FailingNew::live_bytes();
  for (int64_t first = 1;; ++first) {
    bool threw = false;
    FailingNew::Plan(first, INT64_MAX);
    {
      const FailingNew::Armed armed;
      try {
        call();
      } catch (const std::bad_alloc&) {
        threw = true;
      }
    }
    const bool failed = FailingNew::failed() > 0;
    FailingNew::PlanNone();
    ASSERT_EQ(threw, failed) << first;
    ASSERT_EQ(FailingNew::live_bytes(), before) << first;
    if (!failed) {
      EXPECT_GT(first, 1);
      return;
    }
  }
}

// Frees a value of J with no memory to be had.
template <typename J>
void LetGo(std::optional<J>& value) {
  FailingNew::Plan(1, INT64_MAX);
  {
    const FailingNew::Armed armed;
    value.reset();
  }
  EXPECT_EQ(FailingNew::failed(), 0);
  FailingNew::PlanNone();
}

template <typename J>
void Try(absl::StatusOr<J> (*parse)(std::string_view, std::string_view,
                                    const JsonLimits&)) {
  const std::string text = Text();
  Sweep("parsed", [&] { ASSERT_TRUE(parse(text, "x", {}).ok()); });
  for (const std::string& wrong :
       {text + "]", text.substr(0, text.size() - 1), "[" + text + ",\"\xff\"]",
        "[" + text + ",1e999]"}) {
    Sweep("refused", [&] {
      ASSERT_EQ(parse(wrong, "x", {}).status().code(),
                absl::StatusCode::kInvalidArgument);
    });
  }
  const J value = *parse(text, "x", {});
  Sweep("copied", [&] { const J copy = value; });
  Sweep("assigned", [&] {
    J copy = {1, {"a text that is long", 2}};
    copy = value;
  });
  Sweep("written", [&] { DumpJson(value); });
  Sweep("of the other kind", [&] {
    const OrderedJson ordered = value;
    const Json sorted = ordered;
  });
  Sweep("built", [&] {
    J built = {{"a_name_of_many_letters", {{"b", "a text that is long"}}},
               {"another_name_of_letters", {1, "two, in many letters", {3}}},
               {"value", value}};
    built["a_third_name_of_letters"] = value["b"];
    J list = J::array();
    list.push_back(value);
    list.emplace_back("a text that is long");
    list[1] = std::move(built);
    list.push_back({{"a_fourth_name_of_letters", J::array({1, value})}});
    J outer = J::object();
    outer["a_fifth_name_of_letters"] = std::move(list);
  });
  Sweep("compared", [&] {
    const J text = std::string("a text that is long");
    EXPECT_TRUE(text == "a text that is long");
    EXPECT_TRUE("another text that is long" != text);
    EXPECT_FALSE(value == "a text that is long");
  });
  std::optional<J> kept(std::in_place, value);
  LetGo(kept);
}

TEST(JsonOomTest, Sorted) { Try<Json>(&ParseJson); }
TEST(JsonOomTest, Ordered) { Try<OrderedJson>(&ParseOrderedJson); }

}  // namespace
}  // namespace inlay
