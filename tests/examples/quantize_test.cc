// inlay quantize.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

TEST(QuantizeTest, WritesAModelThatAnswersTheSame) {
  const TempFile out("model.gguf");
  const Ran written = Inlay({"quantize", Pocket7m(), out.path(), "--type",
                             "q8_0", "--tensor", "*.o_proj.*=f16", "--json"});
  ASSERT_EQ(written.status, 0) << written.err;
  const nlohmann::json report = written.JsonLine();
  EXPECT_EQ(report["type"], "q8_0");
  EXPECT_EQ(report["has_tokenizer"], true);
  EXPECT_EQ(report["file_bytes"], std::filesystem::file_size(out.path()));
  EXPECT_LT(report["bytes_after"].get<int64_t>() * 3,
            report["bytes_before"].get<int64_t>() * 2);
  for (const auto& tensor : report["tensors"]) {
    const auto name = tensor["name"].get<std::string>();
    if (name.find("o_proj") != std::string::npos) {
      EXPECT_EQ(tensor["to"], "f16");
    }
    EXPECT_LT(tensor["error"].get<double>(), 0.01) << name;
  }
  // Stories have choices between tokens as likely as each other; sums do not.
  const std::vector<std::string> rest = {
      "--chat", "--prompt",      "946 - 73", "--max-tokens",
      "12",     "--temperature", "0"};
  std::vector<std::string> folder = {"generate", Pocket7m()};
  std::vector<std::string> file = {"generate", out.path()};
  folder.insert(folder.end(), rest.begin(), rest.end());
  file.insert(file.end(), rest.begin(), rest.end());
  const Ran wanted = Inlay(folder);
  EXPECT_FALSE(wanted.out.empty());
  EXPECT_EQ(Inlay(file).out, wanted.out);
}

TEST(QuantizeTest, SaysWhatItDid) {
  const TempFile out("model.gguf");
  const Ran ran =
      Inlay({"quantize", Pocket1m(), out.path(), "--type", "q4_k_m"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("model.embed_tokens.weight"), std::string::npos);
  EXPECT_NE(ran.out.find("weights "), std::string::npos);
}

TEST(QuantizeTest, CalibratesByText) {
  const TempFile out("model.gguf");
  const TempFile text("text.jsonl",
                      "{\"text\":\"<|user|>12 + 30<|end|><|assistant|>42\"}\n\n"
                      "{\"text\":\"Once upon a time there was a fox.\"}\n");
  const Ran ran =
      Inlay({"quantize", Pocket1m(), out.path(), "--type", "q4_0",
             "--calibration", text.path(), "--eval", text.path(), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const nlohmann::json report = ran.JsonLine();
  EXPECT_EQ(report["method"], "gptq");
  EXPECT_GT(report["calibration_tokens"], 10);
  EXPECT_GT(report["perplexity"]["before"], 1.0);
  EXPECT_GT(report["perplexity"]["after"], 1.0);
  int told = 0;
  for (const auto& tensor : report["tensors"]) {
    told += tensor.contains("output_error") ? 1 : 0;
  }
  EXPECT_GT(told, 6);
  for (const char* line : {"no JSON", "{\"prompt\":1}"}) {
    const TempFile bad("bad.jsonl", line);
    const Ran failed = Inlay({"quantize", Pocket1m(), out.path(), "--type",
                              "q4_0", "--calibration", bad.path()});
    EXPECT_EQ(failed.status, 1);
    EXPECT_NE(failed.err.find("bad.jsonl"), std::string::npos) << failed.err;
  }
}

TEST(QuantizeTest, FailsWithOne) {
  const TempFile out("model.gguf", "what was there");
  const Ran ran =
      Inlay({"quantize", Pocket1m(), out.path(), "--type", "q4", "--json"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.JsonLine()["status"], "INLAY_INVALID_ARGUMENT");
  EXPECT_NE(ran.err.find("q4_k_m"), std::string::npos) << ran.err;
  EXPECT_EQ(ReadText(out.path()), "what was there");
}

}  // namespace
}  // namespace inlay
