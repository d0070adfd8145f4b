// inlay classify and inlay rerank, over models whose logits transformers gave.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

using nlohmann::json;

std::vector<json> JsonsOf(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(json::parse(line));
  return lines;
}

TEST(ClassifyTest, TextsAndPairs) {
  const std::string model = DataPath("models/xlm_roberta_reranker");
  const json golden = json::parse(ReadText(model + "/golden.json"));
  const double tolerance = 1e-4 * golden["logit_std"].get<double>();
  std::string input;
  std::vector<double> want;
  for (const json& one : golden["cases"]) {
    if (!one.contains("text")) continue;
    input += (one.contains("text_pair") ? json({one["text"], one["text_pair"]})
                                        : one["text"])
                 .dump() +
             "\n";
    want.push_back(one["logits"][0]);
  }
  const Ran ran = Inlay({"classify", model, "--concurrency", "3"}, input);
  ASSERT_EQ(ran.status, 0) << ran.err;
  const std::vector<json> got = JsonsOf(ran.out);
  ASSERT_EQ(got.size(), want.size());
  ASSERT_EQ(got.size(), 10u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i]["label"], "LABEL_0");
    EXPECT_NEAR(got[i]["logits"][0].get<double>(), want[i], tolerance);
    EXPECT_NEAR(got[i]["scores"][0].get<double>(), 1 / (1 + std::exp(-want[i])),
                tolerance);
  }
  const Ran one = Inlay({"classify", model, "--text", "the fox", "--text", "z",
                         "--scores", "logits"});
  ASSERT_EQ(one.status, 0) << one.err;
  ASSERT_EQ(JsonsOf(one.out).size(), 2u);
  for (const json& line : JsonsOf(one.out))
    EXPECT_EQ(line["scores"], line["logits"]);
}

TEST(ClassifyTest, Failures) {
  const std::string model = DataPath("models/bert_reranker");
  EXPECT_EQ(
      Inlay({"classify", model, "--scores", "tanh", "--text", "x"}).status, 2);
  for (const char* input : {"[\"a\"]\n", "7\n", "[\"a\",1]\n"}) {
    const Ran wrong = Inlay({"classify", model}, input);
    EXPECT_EQ(wrong.status, 1);
    EXPECT_NE(wrong.err.find("an array of two"), std::string::npos)
        << wrong.err;
  }
  const Ran decoder =
      Inlay({"classify", DataPath("models/pocket-1m"), "--text", "x"});
  EXPECT_EQ(decoder.status, 1);
  EXPECT_NE(decoder.err.find("no classification head"), std::string::npos);
}

// The best first, as the logits of transformers order them.
TEST(RerankTest, SortsDocuments) {
  for (const char* name :
       {"bert_reranker", "roberta_reranker", "xlm_roberta_reranker"}) {
    SCOPED_TRACE(name);
    const std::string model = DataPath(std::string("models/") + name);
    const json golden = json::parse(ReadText(model + "/golden.json"));
    std::string query, documents;
    std::vector<std::pair<double, size_t>> want;
    std::vector<std::string> texts;
    for (const json& one : golden["cases"]) {
      if (!one.contains("text_pair")) continue;
      query = one["text"];
      texts.push_back(one["text_pair"]);
      documents += texts.back() + "\n";
      want.emplace_back(-one["logits"][0].get<double>(), want.size());
    }
    ASSERT_EQ(want.size(), 5u);
    std::sort(want.begin(), want.end());
    const Ran ran =
        Inlay({"rerank", model, "--query", query, "--documents", "-", "--json"},
              documents);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const std::vector<json> got = JsonsOf(ran.out);
    ASSERT_EQ(got.size(), want.size());
    const bool plain = std::string(name) == "roberta_reranker";
    // The project's bound for float32, which a sigmoid hands on by a quarter.
    const double tolerance = 1e-4 * golden["logit_std"].get<double>();
    for (size_t i = 0; i < got.size(); ++i) {
      const double logit = -want[i].first;
      EXPECT_EQ(got[i]["index"], want[i].second);
      EXPECT_NEAR(got[i]["logit"].get<double>(), logit, tolerance);
      EXPECT_NEAR(got[i]["score"].get<double>(),
                  plain ? logit : 1 / (1 + std::exp(-logit)), tolerance);
    }
    const Ran top = Inlay(
        {"rerank", model, "--query", query, "--documents", "-", "--top", "1"},
        documents);
    ASSERT_EQ(top.status, 0) << top.err;
    EXPECT_EQ(top.out.substr(top.out.find('\t')),
              "\t" + std::to_string(want[0].second + 1) + "\t" +
                  texts[want[0].second] + "\n");
  }
}

TEST(RerankTest, Failures) {
  const std::string model = DataPath("models/bert_reranker");
  EXPECT_EQ(Inlay({"rerank", model, "--query", "x"}).status, 2);
  EXPECT_EQ(Inlay({"rerank", model, "--documents", "-"}).status, 2);
  const Ran empty =
      Inlay({"rerank", model, "--query", "x", "--documents", "-"});
  EXPECT_EQ(empty.status, 0) << empty.err;
  EXPECT_EQ(empty.out, "");
  const Ran longer =
      Inlay({"rerank", model, "--query", "x", "--documents", "-"},
            "a den\n" + std::string(90, 'q') + "\n");
  EXPECT_EQ(longer.status, 1);
  EXPECT_NE(longer.err.find("document 2"), std::string::npos) << longer.err;
  const Ran labels = Inlay({"rerank", DataPath("models/bert_labels"), "--query",
                            "x", "--documents", "-"},
                           "a\n");
  EXPECT_EQ(labels.status, 1);
  EXPECT_NE(labels.err.find("3 labels"), std::string::npos) << labels.err;
  const Ran decoder = Inlay({"rerank", DataPath("models/pocket-1m"), "--query",
                             "x", "--documents", "-"},
                            "a\n");
  EXPECT_EQ(decoder.status, 1);
  EXPECT_NE(decoder.err.find("no encoder"), std::string::npos) << decoder.err;
}

}  // namespace
}  // namespace inlay
