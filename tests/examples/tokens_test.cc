// The forms that work on ids, text and templates: logits, tokenize, template,
// inspect.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

using nlohmann::json;

std::string Ids(const json& ids) {
  std::string text;
  for (const json& id : ids) {
    text += (text.empty() ? "" : ",") + std::to_string(id.get<int>());
  }
  return text;
}

// float32 on the stored weights: 1e-4 of the logits' standard deviation, the
// bound that the reference data's own noise allows.
TEST(LogitsTest, EqualTheReference) {
  const std::string model = DataPath("models/llama3");
  const json golden = json::parse(ReadText(model + "/golden.json"));
  int checked = 0;
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const Ran ran = Inlay({"logits", model, "--ids", Ids(one["input_ids"]),
                           "--positions", Ids(one["positions"]), "--greedy",
                           "20", "--kv-type", "f32", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json got = ran.JsonLine();
    EXPECT_EQ(got["positions"], one["positions"]);
    EXPECT_EQ(got["greedy"], one["greedy"]["tokens"]);
    ASSERT_EQ(got["logits"].size(), one["logits"].size());
    const double tolerance = 1e-4 * one["logit_std"].get<double>();
    for (size_t p = 0; p < got["logits"].size(); ++p) {
      ASSERT_EQ(got["logits"][p].size(), one["logits"][p].size());
      for (size_t i = 0; i < got["logits"][p].size(); ++i, ++checked) {
        ASSERT_NEAR(got["logits"][p][i].get<double>(),
                    one["logits"][p][i].get<double>(), tolerance)
            << "position " << p << " token " << i;
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

// Mapped or read, weights are the same; read, they are the engine's memory.
TEST(LogitsTest, WeightsMappedOrRead) {
  const std::string model = DataPath("models/llama3");
  const auto logits = [&](const char* weights) {
    const Ran ran = Inlay(
        {"logits", model, "--ids", "1,2,3", "--weights", weights, "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.JsonLine()["logits"];
  };
  EXPECT_EQ(logits("map"), logits("read"));
  EXPECT_EQ(Inlay({"logits", model, "--ids", "1", "--weights", "copy"}).status,
            2);
}

// Vectors in the order of the texts, whatever finishes first; tolerance as
// above. A pocket model's chat is no part of it: its mean is what it is alone.
TEST(EmbedTest, VectorsInOrder) {
  const std::string model = DataPath("models/pocket-1m");
  std::string lines;
  std::vector<std::string> texts;
  for (int i = 0; i < 9; ++i) {
    std::string text = "A fox";
    for (int word = 0; word < 7 * (i * 5 % 9); ++word) text += " and a fox";
    texts.push_back(text);
    lines += json(text).dump() + "\n";
  }
  const Ran all = Inlay({"embed", model, "--pooling", "mean", "--normalise",
                         "--concurrency", "4"},
                        lines);
  ASSERT_EQ(all.status, 0) << all.err;
  std::istringstream got(all.out);
  std::string line;
  for (const std::string& text : texts) {
    ASSERT_TRUE(std::getline(got, line));
    const Ran one = Inlay({"embed", model, "--pooling", "mean", "--normalise",
                           "--text", text, "--json"});
    ASSERT_EQ(one.status, 0) << one.err;
    EXPECT_EQ(json::parse(line), one.JsonLine());
    EXPECT_EQ(json::parse(line).size(), 128u);
  }
  EXPECT_FALSE(std::getline(got, line));
}

TEST(EmbedTest, FailuresAreSaid) {
  const std::string model = DataPath("models/pocket-1m");
  EXPECT_EQ(Inlay({"embed", model, "--pooling", "max", "--text", "x"}).status,
            2);
  const Ran wrong = Inlay({"embed", model}, "[1]\n");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("JSON string"), std::string::npos);
  // An encoder has no text here: its folder has no tokenizer.
  const Ran encoder = Inlay({"embed", DataPath("models/bert"), "--text", "x"});
  EXPECT_EQ(encoder.status, 1);
  EXPECT_NE(encoder.err.find("tokenizer"), std::string::npos) << encoder.err;
}

TEST(LogitsTest, LastAndAllAgreeAndRoundTripFloat32) {
  const std::string model = DataPath("models/llama3");
  const json last = Inlay({"logits", model, "--ids", "5,6,7"}).JsonLine();
  const json all =
      Inlay({"logits", model, "--ids", "5,6,7", "--positions", "all"})
          .JsonLine();
  EXPECT_EQ(last["positions"], json({2}));
  EXPECT_EQ(all["positions"], json({0, 1, 2}));
  EXPECT_EQ(last["greedy"], json::array());
  EXPECT_EQ(last["logits"][0], all["logits"][2]);
  for (const json& logit : last["logits"][0]) {
    // The shortest text for a float32 is at most nine digits long.
    EXPECT_LE(logit.dump().size(), 24u);
    EXPECT_TRUE(std::isfinite(logit.get<float>()));
  }
}

TEST(LogitsTest, IdOutsideTheVocabularyFails) {
  const Ran ran =
      Inlay({"logits", DataPath("models/llama3"), "--ids", "1,512", "--json"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.JsonLine()["error"].get<std::string>().find("512"),
            std::string::npos)
      << ran.out;
}

TEST(TokenizeTest, GoesThereAndBack) {
  const std::vector<std::string> texts = {
      "Hello world", "",       "  two  spaces ", "line\nbreak\t",
      "naïve café",  "日本語", "🦊🏮",       "<|user|>hi<|end|>",
      "12345"};
  std::string input;
  for (const std::string& text : texts) input += json(text).dump() + "\n";
  const Ran encoded = Inlay({"tokenize", Pocket1m(), "--no-special"}, input);
  ASSERT_EQ(encoded.status, 0) << encoded.err;
  const auto ids = encoded.JsonLines();
  ASSERT_EQ(ids.size(), texts.size());
  EXPECT_EQ(ids[1], json::array());
  EXPECT_EQ(ids[7][0], 4);  // special tokens are read as such
  EXPECT_EQ(ids[8].size(), 5u);

  const Ran decoded = Inlay({"tokenize", Pocket1m(), "--decode"}, encoded.out);
  ASSERT_EQ(decoded.status, 0) << decoded.err;
  const auto back = decoded.JsonLines();
  ASSERT_EQ(back.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(back[i], texts[i]);
}

TEST(TokenizeTest, SpecialTokensComeAndGo) {
  const Ran with = Inlay({"tokenize", Pocket1m()}, "\"hi\"\n");
  const Ran without = Inlay({"tokenize", Pocket1m(), "--no-special"}, "\"hi\"");
  EXPECT_EQ(with.JsonLine()[0], 0);
  EXPECT_EQ(with.JsonLine().size(), without.JsonLine().size() + 1);
  const Ran kept = Inlay({"tokenize", Pocket1m(), "--decode"}, with.out);
  EXPECT_EQ(kept.JsonLine(), "<|bos|>hi");
  const Ran skipped =
      Inlay({"tokenize", Pocket1m(), "--decode", "--no-special"}, with.out);
  EXPECT_EQ(skipped.JsonLine(), "hi");
}

TEST(TokenizeTest, ABadLineIsNamed) {
  const std::string deep(2000, '[');
  for (const std::string& bad :
       {std::string("not json"), std::string("12"), std::string("\"\\ud800\""),
        std::string("\"\xff\""), std::string(1, '\0'), std::string(), deep,
        deep + std::string(2000, ']')}) {
    const Ran ran = Inlay({"tokenize", Pocket1m()}, "\"ok\"\n" + bad + "\n");
    EXPECT_EQ(ran.status, 1) << bad;
    EXPECT_NE(ran.err.find("line 2"), std::string::npos) << ran.err;
    EXPECT_EQ(ran.JsonLines().size(), 1u);
  }
  // Who forgot the quotes is told so, and not by whom.
  const Ran plain = Inlay({"tokenize", Pocket1m()}, "hello\n");
  EXPECT_NE(plain.err.find("such as \"hello\""), std::string::npos)
      << plain.err;
  EXPECT_EQ(plain.err.find("exception"), std::string::npos) << plain.err;
  const Ran ids = Inlay({"tokenize", Pocket1m(), "--decode"}, "[1]\n[4096]\n");
  EXPECT_EQ(ids.status, 1);
  EXPECT_NE(ids.err.find("line 2"), std::string::npos) << ids.err;
}

TEST(TemplateTest, OfTheModel) {
  const TempFile file("chat.json",
                      R"({"messages":[{"role":"user","content":"Hi"}],)"
                      R"("add_generation_prompt":true})");
  const Ran ran = Inlay({"template", Pocket1m(), "--input", file.path()});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.JsonLine()["text"], "<|bos|><|user|>Hi<|end|><|assistant|>");
}

TEST(TemplateTest, TheLastMessageGoesOn) {
  const TempFile file("begun.json",
                      R"({"messages":[{"role":"user","content":"Hi"},)"
                      R"({"role":"assistant","content":"Well,"}],)"
                      R"("continue_final_message":true})");
  const Ran ran = Inlay({"template", Pocket1m(), "--input", file.path()});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.JsonLine()["text"],
            "<|bos|><|user|>Hi<|end|><|assistant|>Well,");
}

TEST(TemplateTest, OfTheFile) {
  const TempFile file(
      "own.json",
      R"({"template":"{{ bos_token }}{{ messages[0].content }}{{ extra }}",)"
      R"("bos_token":"<s>","messages":[{"role":"user","content":"Hi"}],)"
      R"("kwargs":{"extra":"!"}})");
  const Ran ran = Inlay({"template", "-", "--input", file.path()});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.JsonLine()["text"], "<s>Hi!");
}

TEST(TemplateTest, ARaisedErrorIsTheAnswer) {
  const TempFile file("raise.json",
                      R"({"template":"{{ raise_exception('no tools') }}",)"
                      R"("messages":[]})");
  const Ran ran = Inlay({"template", "-", "--input", file.path(), "--json"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.JsonLine()["error"].get<std::string>().find("no tools"),
            std::string::npos)
      << ran.out;
}

TEST(InspectTest, SaysWhatItIs) {
  const Ran ran = Inlay({"inspect", Pocket1m(), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json got = ran.JsonLine();
  EXPECT_EQ(got["architecture"], "LlamaForCausalLM");
  EXPECT_GT(got["tensors"].size(), 10u);
  const Ran table = Inlay({"inspect", Pocket1m()});
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("LlamaForCausalLM"), std::string::npos);
  EXPECT_NE(table.out.find("model.embed_tokens.weight"), std::string::npos);
}

}  // namespace
}  // namespace inlay
