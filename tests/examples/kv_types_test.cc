// What a smaller KV cache costs the model that ships, seen from the command:
// recall is the task that lives on the cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <sstream>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

using nlohmann::json;

constexpr int kItems = 18;

// The first recall items of a middling length: some hundred tokens to look
// back over, and quickly done.
std::string RecallItems() {
  std::istringstream lines(ReadText(DataPath("pocket-eval/eval.jsonl")));
  std::string items;
  int count = 0;
  for (std::string line; count < kItems && std::getline(lines, line);) {
    if (json::parse(line)["task"] != "recall") continue;
    if (line.size() < 200 || line.size() > 1000) continue;
    items += line + "\n";
    ++count;
  }
  EXPECT_EQ(count, kItems);
  return items;
}

json Eval(const std::string& type, const std::vector<std::string>& args) {
  std::vector<std::string> all = {"eval", Pocket7m(), "--kv-type", type,
                                  "--json"};
  all.insert(all.end(), args.begin(), args.end());
  const Ran ran = Inlay(all);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return ran.JsonLine();
}

// The model answers all of these with a float32 cache, and did with every type
// when this was written; at float8's distance one answer may turn where another
// processor rounds otherwise, and at 4 bits two.
TEST(KvTypesTest, RecallSurvives) {
  const TempFile items("recall.jsonl", RecallItems());
  const std::vector<std::string> args = {"--jsonl", items.path()};
  EXPECT_EQ(Eval("i8", args)["correct"], kItems);
  EXPECT_GE(Eval("f8", args)["correct"], kItems - 1);
  EXPECT_GE(Eval("q4", args)["correct"], kItems - 2);
}

// A cache that moves the distributions by a divergence of D a token changes the
// mean log-probability of n tokens by D and a random sqrt(2 D / n). Measured on
// 6,927 tokens of stories and recall, D is 2.4e-6 for i8, 7.8e-5 for f8 and
// 4.2e-4 for q4. Twice D, and four standard deviations, must hold it.
TEST(KvTypesTest, PerplexityStays) {
  std::string text;
  for (const char* seed : {"1", "2", "3", "4"}) {
    const Ran story =
        Inlay({"generate", Pocket7m(), "--prompt", "Once upon a time,",
               "--temperature", "1", "--seed", seed, "--max-tokens", "200"});
    ASSERT_EQ(story.status, 0) << story.err;
    text += "Once upon a time," + story.out + "\n\n";
  }
  const TempFile file("stories.txt", text);
  const std::vector<std::string> args = {"--text", file.path()};
  const json exact = Eval("f32", args);
  const auto tokens = exact["text_tokens"].get<double>();
  ASSERT_GT(tokens, 300);
  const std::pair<const char*, double> types[] = {
      {"i8", 2.4e-6}, {"f8", 7.8e-5}, {"q4", 4.2e-4}};
  for (const auto& [type, divergence] : types) {
    const double change =
        std::log(Eval(type, args)["perplexity"].get<double>() /
                 exact["perplexity"].get<double>());
    const double bound =
        2 * divergence + 4 * std::sqrt(2 * 2 * divergence / tokens);
    std::printf("%s: log perplexity %+.2e, bound %.2e\n", type, change, bound);
    EXPECT_NE(change, 0.0) << type;
    EXPECT_LT(std::abs(change), bound) << type;
  }
}

}  // namespace
}  // namespace inlay
