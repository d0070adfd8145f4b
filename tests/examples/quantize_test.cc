// inlay quantize.
#include <gtest/gtest.h>
#include <sys/stat.h>

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
    EXPECT_GT(tensor["seconds"].get<double>(), 0.0) << name;
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

TEST(QuantizeTest, PerplexityIsThatOfTheFiles) {
  const TempFile out("model.gguf");
  const TempFile text("text.txt",
                      "Once upon a time there was a fox who lived in a wood. "
                      "Every morning the fox walked to the river.");
  const Ran ran = Inlay({"quantize", Pocket1m(), out.path(), "--type", "q3_k",
                         "--eval", text.path(), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const nlohmann::json perplexity = ran.JsonLine()["perplexity"];
  const auto measured = [&](const std::string& model) {
    const Ran eval = Inlay({"eval", model, "--text", text.path(), "--json"});
    EXPECT_EQ(eval.status, 0) << eval.err;
    return eval.JsonLine()["perplexity"];
  };
  EXPECT_EQ(perplexity["before"], measured(Pocket1m()));
  EXPECT_EQ(perplexity["after"], measured(out.path()));
  EXPECT_NE(perplexity["before"], perplexity["after"]);
}

// Texts that begin alike share KV, which must not hide logits.
TEST(QuantizeTest, EvalTellsHowFarItIs) {
  const TempFile out("model.gguf");
  const TempFile texts(
      "texts.jsonl",
      "{\"text\":\"<|user|>12 + 30<|end|><|assistant|>42<|end|>\"}\n"
      "{\"text\":\"Once upon a time there was a fox who lived in a wood and "
      "had a friend, a bear.\"}\n"
      "{\"text\":\"Once upon a time there was a fox who lived in a wood and "
      "sang.\"}\n");
  const Ran written = Inlay({"quantize", Pocket1m(), out.path(), "--type",
                             "q4_0", "--method", "smoothquant", "--smoothing",
                             "0.4", "--calibration", texts.path(), "--json"});
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.JsonLine()["method"], "smoothquant");
  const auto against = [&](const std::string& model) {
    const Ran ran = Inlay({"eval", model, "--texts", texts.path(),
                           "--reference", Pocket1m(), "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.JsonLine()["against_reference"];
  };
  const nlohmann::json self = against(Pocket1m());
  EXPECT_GT(self["tokens"], 40);
  EXPECT_EQ(self["divergence"], 0.0);
  EXPECT_EQ(self["same_first"], 1.0);
  EXPECT_EQ(self["perplexity"], self["reference_perplexity"]);
  const nlohmann::json other = against(out.path());
  EXPECT_EQ(other["tokens"], self["tokens"]);
  EXPECT_EQ(other["reference_perplexity"], self["perplexity"]);
  EXPECT_GT(other["divergence"], 1e-4);
  EXPECT_LT(other["divergence"], 0.5);
  EXPECT_GT(other["same_first"], 0.5);
  EXPECT_EQ(Inlay({"eval", Pocket1m(), "--texts", texts.path()}).status, 2);
}

TEST(QuantizeTest, FoldersForOtherEngines) {
  const TempFile text("text.txt", "Once upon a time there was a fox.");
  const std::string folder = text.path() + "_folder";
  const auto write = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"quantize", Pocket1m(), folder, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Inlay(words);
  };
  EXPECT_EQ(write({"--type", "w8a8_fp8_static"}).status, 2);
  for (const char* type : {"w8a8_fp8_static", "awq_g32"}) {
    const bool is_static = std::string(type) == "w8a8_fp8_static";
    const Ran ran =
        write({"--type", type, "--method", is_static ? "rtn" : "awq",
               "--calibration", text.path()});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.JsonLine()["type"], type);
    const Ran answer =
        Inlay({"generate", folder, "--prompt", "Once", "--max-tokens", "4"});
    EXPECT_EQ(answer.status, 0) << answer.err;
    std::filesystem::remove_all(folder);
  }
}

// What others on the machine may read is the umask's to say.
TEST(QuantizeTest, FilesHaveCommonRights) {
  const TempFile out("model.gguf");
  const std::string folder = out.path() + "_folder";
  std::filesystem::remove(out.path());
  const mode_t before = umask(0027);
  const Ran gguf =
      Inlay({"quantize", Pocket1m(), out.path(), "--type", "q8_0"});
  const Ran other = Inlay({"quantize", Pocket1m(), folder, "--type", "u4_g32"});
  umask(before);
  ASSERT_EQ(gguf.status, 0) << gguf.err;
  ASSERT_EQ(other.status, 0) << other.err;
  for (const std::string& path :
       {out.path(), folder + "/config.json", folder + "/model.safetensors"}) {
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0) << path;
    EXPECT_EQ(info.st_mode & 0777, 0640u) << path;
  }
  std::filesystem::remove_all(folder);
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
