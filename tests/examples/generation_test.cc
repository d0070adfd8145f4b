// The forms that generate: generate, chat, eval, bench, and the small examples.
#include <gtest/gtest.h>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

using nlohmann::json;

TEST(GenerateTest, GreedyIsTheSameTwiceAndStreamed) {
  const std::vector<std::string> words = {
      "generate", Pocket7m(), "--prompt",     "Once upon a time,",
      "--json",   "--quiet",  "--max-tokens", "24"};
  const Ran first = Inlay(words);
  ASSERT_EQ(first.status, 0) << first.err;
  const auto lines = first.JsonLines();
  ASSERT_GT(lines.size(), 2u);
  std::string text;
  size_t tokens = 0;
  for (const json& line : lines) {
    if (line["event"] != "tokens") continue;
    text += line["text"].get<std::string>();
    tokens += line["tokens"].size();
  }
  EXPECT_EQ(tokens, 24u);
  const json& end = lines.back();
  EXPECT_EQ(end["event"], "finished");
  EXPECT_EQ(end["finish_reason"], "length");
  EXPECT_EQ(end["usage"]["generated_tokens"], 24);
  EXPECT_GT(end["usage"]["prompt_tokens"], 0);
  EXPECT_GT(end["timings"]["first_token_us"], 0);

  // As text, the prompt from stdin: the same.
  const Ran plain = Inlay({"generate", Pocket7m(), "--max-tokens", "24"},
                          "Once upon a time,\n");
  EXPECT_EQ(plain.status, 0);
  EXPECT_EQ(plain.out, text + "\n");
}

TEST(GenerateTest, ChatAnswersAndStops) {
  const Ran ran =
      Inlay({"generate", Pocket7m(), "--chat", "--prompt", "946 - 73"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "873\n");
}

// An answer that is begun goes on as it would have by itself.
TEST(GenerateTest, AnAnswerThatIsBegun) {
  const std::vector<std::string> words = {
      "generate", Pocket7m(), "--chat", "--prompt",
      "Tell a story about a fox and a lantern."};
  const auto ask = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    const Ran ran = Inlay(more);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out.substr(0, ran.out.size() - 1);  // less the newline
  };
  const std::string whole = ask({"--max-tokens", "24"});
  const std::string begin = whole.substr(0, whole.find(' ', 12));
  const std::string rest = ask({"--max-tokens", "8", "--answer", begin});
  EXPECT_GT(rest.size(), 8u);
  EXPECT_EQ((begin + rest), whole.substr(0, begin.size() + rest.size()));
}

TEST(GenerateTest, StopStringsAndSeeds) {
  const Ran stopped = Inlay({"generate", Pocket7m(), "--chat", "--prompt",
                             "946 - 73", "--stop", "never", "--stop", "3"});
  EXPECT_EQ(stopped.out, "87\n") << stopped.err;
  const auto story = [](const std::string& seed) {
    return Inlay({"generate", Pocket7m(), "--prompt", "Once", "--max-tokens",
                  "16", "--temperature", "1", "--top-p", "0.95", "--seed",
                  seed})
        .out;
  };
  EXPECT_EQ(story("1"), story("1"));
  EXPECT_NE(story("1"), story("2"));
}

TEST(ChatTest, KeepsForksAndSavesHistory) {
  const TempFile saved("saved.json");
  const Ran ran = Inlay({"chat", Pocket7m(), "--json"},
                        "12 + 30\n/fork\n946 - 73\n/save " + saved.path() +
                            "\n/undo\n/switch 1\n5 + 5\n"
                            "/switch 9\n/nonsense\n");
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto lines = ran.JsonLines();
  ASSERT_EQ(lines.size(), 9u) << ran.out;
  EXPECT_EQ(lines[0]["text"], "42");
  EXPECT_EQ(lines[1]["conversation"], 2);
  EXPECT_EQ(lines[2]["text"], "873");
  EXPECT_GT(lines[2]["usage"]["cached_tokens"], 0);  // the fork shares KV
  EXPECT_EQ(lines[4]["messages"], 2);
  EXPECT_EQ(lines[6]["text"], "10");
  EXPECT_EQ(lines[6]["conversation"], 1);
  EXPECT_TRUE(lines[7].contains("error"));
  EXPECT_TRUE(lines[8].contains("error"));

  const json file = json::parse(ReadText(saved.path()));
  EXPECT_EQ(file["messages"].size(), 4u);
  EXPECT_EQ(file["messages"][3]["content"], "873");
  EXPECT_GT(file["tokens"].size(), 8u);

  const Ran again = Inlay({"chat", Pocket7m(), "--json"},
                          "/load " + saved.path() + "\n5 + 5\n/quit\n");
  const auto after = again.JsonLines();
  ASSERT_EQ(after.size(), 2u) << again.out << again.err;
  EXPECT_EQ(after[0]["messages"], 4);
  EXPECT_EQ(after[1]["text"], "10");
  EXPECT_GT(after[1]["usage"]["cached_tokens"], 8);
}

TEST(ChatTest, ABrokenSavedFileIsRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"format":"inlay-chat-1"})",
        R"({"format":"inlay-chat-1","system":"","messages":[1],)"
        R"("settings":{},"tokens":[]})"}) {
    const TempFile file("broken.json", text);
    const Ran ran =
        Inlay({"chat", Pocket7m(), "--json"}, "/load " + file.path() + "\n");
    EXPECT_EQ(ran.status, 0);
    EXPECT_TRUE(ran.JsonLine().contains("error")) << text;
  }
}

// Measured accuracy of the model is 99 %; 38 of 40 leaves room for none but a
// broken engine.
TEST(EvalTest, AnswersItsQuestions) {
  const Ran ran =
      Inlay({"eval", Pocket7m(), "--jsonl", DataPath("pocket-eval/eval.jsonl"),
             "--limit", "40", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json got = ran.JsonLine();
  EXPECT_EQ(got["items"], 40);
  EXPECT_GE(got["correct"], 38);
  EXPECT_EQ(got["tasks"].size(), 4u);
  EXPECT_TRUE(got["perplexity"].is_null());
}

TEST(EvalTest, PerplexityTellsStoriesFromNoise) {
  const auto perplexity = [](const std::string& text) {
    const TempFile file("text.txt", text);
    return Inlay({"eval", Pocket1m(), "--text", file.path(), "--max-context",
                  "64", "--json"})
        .JsonLine();
  };
  const Ran story = Inlay({"generate", Pocket1m(), "--prompt",
                           "Once upon a time,", "--max-tokens", "100"});
  const json good = perplexity("Once upon a time," + story.out);
  EXPECT_GT(good["text_tokens"], 90);
  EXPECT_EQ(good["text_window"], 64);
  const json bad = perplexity("qz xj vvk wpl zzt qqr bnm xcv zxq plk");
  EXPECT_GT(good["perplexity"], 1.0);
  EXPECT_LT(10 * good["perplexity"].get<double>(),
            bad["perplexity"].get<double>());
}

TEST(EvalTest, ABadItemIsNamed) {
  const TempFile file("bad.jsonl", "{\"task\":\"a\"}\n");
  const Ran ran = Inlay({"eval", Pocket1m(), "--jsonl", file.path()});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("line 1"), std::string::npos) << ran.err;
}

TEST(BenchTest, SpeedHasItsShape) {
  const Ran ran = Inlay({"bench", "random:" + DataPath("models/llama3"),
                         "--prompt-tokens", "16", "--gen-tokens", "4",
                         "--batch", "2", "--repeat", "2", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json got = ran.JsonLine();
  for (const char* name : {"pp_tok_s", "tg_tok_s"}) {
    EXPECT_GT(got[name]["mean"], 0) << name;
    EXPECT_GE(got[name]["sd"], 0) << name;
  }
  for (const char* name : {"bytes_per_decode", "decode_gb_s", "copy_gb_s",
                           "read_gb_s", "percent_of_copy"}) {
    EXPECT_GT(got[name], 0) << name;
  }
}

TEST(BenchTest, LoadHasItsShape) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--rate", "500"}}) {
    std::vector<std::string> words = {"bench",
                                      DataPath("models/llama3"),
                                      "--requests",
                                      "12",
                                      "--concurrency",
                                      "4",
                                      "--shared-prefix",
                                      "32",
                                      "--in",
                                      "40",
                                      "--out",
                                      "6",
                                      "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Ran ran = Inlay(words);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json got = ran.JsonLine();
    EXPECT_EQ(got["failed"], 0);
    EXPECT_EQ(got["prompt_tokens"], 12 * 40);
    EXPECT_EQ(got["generated_tokens"], 12 * 6);
    for (const char* name : {"ttft_ms", "tpot_ms"}) {
      EXPECT_GT(got[name]["p50"], 0) << name;
      EXPECT_LE(got[name]["p50"], got[name]["p95"]) << name;
      EXPECT_LE(got[name]["p95"], got[name]["p99"]) << name;
    }
  }
}

TEST(SimpleTest, BothTellTheSameStory) {
  const Ran c = RunProgram("simple_c", {Pocket7m()});
  const Ran cc = RunProgram("simple_cc", {Pocket7m()});
  EXPECT_EQ(c.status, 0) << c.err;
  EXPECT_EQ(cc.status, 0) << cc.err;
  EXPECT_GT(c.out.size(), 100u);
  EXPECT_EQ(c.out + "\n", cc.out);
  EXPECT_EQ(RunProgram("simple_c", {"/no/such/model"}).status, 1);
  EXPECT_EQ(RunProgram("simple_cc", {"/no/such/model"}).status, 1);
}

}  // namespace
}  // namespace inlay
