// Files and texts that mean harm: refused or survived, and in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "core/json/json.h"
#include "core/text/regex.h"
#include "core/text/tokenizer.h"

namespace inlay {
namespace {

constexpr char kGood[] =
    R"({"added_tokens":[{"id":2,"content":"<s>","special":true,
                         "normalized":false}],
        "normalizer":{"type":"Replace","pattern":{"Regex":" +"},"content":" "},
        "pre_tokenizer":{"type":"Split","pattern":{"String":"b"},
                         "behavior":"Isolated","invert":false},
        "post_processor":{"type":"TemplateProcessing",
          "single":[{"SpecialToken":{"id":"<s>","type_id":0}},
                    {"Sequence":{"id":"A","type_id":0}}],
          "special_tokens":{"<s>":{"id":"<s>","ids":[2],"tokens":["<s>"]}}},
        "decoder":{"type":"Fuse"},
        "model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";

TEST(HostileTokenizer, EveryTruncationIsRefused) {
  ASSERT_TRUE(MakeTokenizerFromJson(kGood).ok());
  const std::string_view good(kGood);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(MakeTokenizerFromJson(good.substr(0, size)).ok()) << size;
  }
}

// What is there and is no file to read is said, and not waited for; another
// file does not take its place.
TEST(HostileTokenizer, WhatIsNoFile) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) /
      ("no_tokenizer_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = folder / "tokenizer.json";
  const auto expect = [&](std::string_view what) {
    const auto loaded = LoadTokenizer(folder.string());
    EXPECT_TRUE(absl::IsInvalidArgument(loaded.status())) << loaded.status();
    EXPECT_THAT(loaded.status().ToString(),
                ::testing::HasSubstr(file.string()));
    EXPECT_THAT(loaded.status().ToString(), ::testing::HasSubstr(what));
    std::filesystem::remove(file);
  };
  std::filesystem::create_directory(file);
  expect("a folder");
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect("a pipe");
  std::filesystem::create_symlink("/dev/zero", file);
  expect("device");
  std::filesystem::remove_all(folder);
}

// Puts each of some wrong values in the place of every member, in turn.
void Mutate(const Json& good, Json* node, const Json& root, int* num) {
  for (auto& item : *node) {
    const Json saved = item;
    for (const Json& wrong :
         {Json(), Json(-1), Json(1e300), Json(UINT64_MAX), Json("x"), Json(""),
          Json(true), Json::array(), Json::array({1}), Json::object()}) {
      item = wrong;
      const auto made = MakeTokenizerFromJson(DumpJson(root));
      ++*num;
      if (!made.ok()) continue;
      std::vector<int32_t> ids;
      (void)(*made)->Encode("a b<s> \xFFzab", {}, &ids);
      (void)(*made)->Decode(ids, {});
    }
    item = saved;
    if (item.is_structured()) Mutate(good, &item, root, num);
  }
}

TEST(HostileTokenizer, WrongTypesAnywhere) {
  const Json good = *ParseJson(kGood, "good");
  Json root = good;
  int num = 0;
  Mutate(good, &root, root, &num);
  EXPECT_GT(num, 400);
  EXPECT_EQ(root, good);
}

TEST(HostileTokenizer, DeepNesting) {
  std::string text;
  for (int i = 0; i < 100000; ++i) {
    text += R"({"normalizer":{"type":"Sequence","normalizers":[)";
  }
  EXPECT_TRUE(absl::IsResourceExhausted(MakeTokenizerFromJson(text).status()));
}

std::string WithSection(const std::string& section) {
  return "{" + section +
         R"(,"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";
}

TEST(HostileTokenizer, Refusals) {
  const auto code = [](const std::string& section) {
    return MakeTokenizerFromJson(WithSection(section)).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_EQ(code(R"("normalizer":{"type":"Quux"})"), kUnimplemented);
  EXPECT_EQ(code(R"("pre_tokenizer":{"type":"UnicodeScripts"})"),
            kUnimplemented);
  EXPECT_EQ(code(R"("decoder":{"type":"Quux"})"), kUnimplemented);
  EXPECT_EQ(code(R"("post_processor":{"type":"Quux"})"), kUnimplemented);
  EXPECT_EQ(code(R"("decoder":{"type":7})"), kInvalid);
  EXPECT_EQ(code(R"("added_tokens":[{"id":-4,"content":"x"}])"), kInvalid);
  EXPECT_EQ(code(R"("added_tokens":{"id":4})"), kInvalid);
  EXPECT_EQ(code(R"("post_processor":{"type":"BertProcessing",
                       "cls":["x",99],"sep":["y",1]})"),
            kInvalid);
  EXPECT_EQ(code(R"("decoder":{"type":"Strip","content":"ab"})"), kInvalid);
  std::string replacements;
  for (int i = 0; i < 20; ++i) {
    replacements += std::string(i == 0 ? "" : ",") +
                    R"({"type":"Replace","pattern":{"String":"a"},
                        "content":"aaaa"})";
  }
  EXPECT_EQ(code(R"("decoder":{"type":"Sequence","decoders":[)" + replacements +
                 "]}"),
            absl::StatusCode::kResourceExhausted);
}

TEST(HostileTokenizer, NormalizerThatMultiplies) {
  std::string steps;
  for (int i = 0; i < 30; ++i) {
    steps += std::string(i == 0 ? "" : ",") +
             R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  }
  const auto tokenizer = MakeTokenizerFromJson(WithSection(
      R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  EXPECT_TRUE(
      absl::IsResourceExhausted((*tokenizer)->Encode("aaaaaaaa", {}, &ids)));
}

TEST(HostileTokenizer, CatastrophicRegexesGiveUp) {
  const std::string text = std::string(100000, 'a') + "b";
  constexpr struct {
    const char* pattern;
    bool is_certain;  // PCRE2 may find by other means that nothing matches
  } kRows[] = {{"(a+)+$", true},
               {"(a|a)+$", true},
               {"(a*)*c", false},
               {"(.*)*\\1x", false}};
  for (const auto& [pattern, is_certain] : kRows) {
    const auto regex = Regex::Create(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    std::vector<Match> matches;
    const auto begin = std::chrono::steady_clock::now();
    const absl::Status status = regex->FindAll(text, &matches);
    const auto time = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(absl::IsResourceExhausted(status) ||
                (!is_certain && status.ok()))
        << pattern << ": " << status;
    // A fraction of a second on an idle machine.
    EXPECT_LT(time, std::chrono::seconds(10)) << pattern;
  }
}

}  // namespace
}  // namespace inlay
