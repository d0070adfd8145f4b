#include "core/formats/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/formats/model_path.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  return TestData() + "/models/" + name;
}

absl::Status OpenStatus(const std::string& path,
                        const ModelFilesOptions& options = {}) {
  return OpenModelFiles(path, options).status();
}

TEST(ModelFiles, OpensEveryGoldenModel) {
  int num_models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TestData() + "/models")) {
    if (!entry.is_directory()) continue;
    const auto files = OpenModelFiles(entry.path().string(), {});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->directory, entry.path().string());
    EXPECT_TRUE(files->config.is_object());
    ASSERT_NE(files->weights, nullptr);
    EXPECT_FALSE(files->random.has_value());
    ++num_models;
  }
  EXPECT_GE(num_models, 2);
}

TEST(ModelFiles, KnowsWhatStandsInTheFiles) {
  const auto llama = OpenModelFiles(Golden("llama3"), {});
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->config["model_type"], "llama");
  EXPECT_THAT(llama->generation.eos_ids, ElementsAre(2));
  EXPECT_EQ(llama->generation.bos_id, 1);
  const WeightInfo* head = llama->weights->Find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->dtype, DType::kBF16);
  EXPECT_THAT(head->shape, ElementsAre(512, 64));
  EXPECT_EQ(head->bytes, 65536u);

  const auto mixtral = OpenModelFiles(Golden("mixtral"), {});
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  uint64_t bytes = 0;
  for (const WeightInfo& info : mixtral->weights->weights()) {
    bytes += info.bytes;
  }
  EXPECT_EQ(bytes, 329344u);  // "total_size" of its index
}

TEST(ModelFiles, EveryFileOfAModelIsRead) {
  TempFolder folder;
  folder.Write("config.json", R"({"limit":[0,Infinity],"eos_token_id":1})");
  folder.Write("generation_config.json", R"({"eos_token_id":[4,5]})");
  folder.Write("tokenizer_config.json", R"({"chat_template":"T"})");
  folder.Write("special_tokens_map.json", R"({"bos_token":"<s>"})");
  folder.Write("model.safetensors", SafetensorsFile("{}"));
  const auto files = OpenModelFiles(folder.path() + "/", {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->config["limit"][1]["__float__"], "Infinity");
  EXPECT_THAT(files->generation.eos_ids, ElementsAre(4, 5));
  EXPECT_EQ(files->chat.chat_template, "T");
  EXPECT_EQ(files->chat.bos_token, "<s>");
}

TEST(ModelFiles, RandomNeedsNoWeights) {
  TempFolder folder;
  folder.Write("config.json", "{}");
  const auto files =
      OpenModelFiles("random:" + folder.path() + "?dtype=f32&seed=9", {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->weights, nullptr);
  ASSERT_TRUE(files->random.has_value());
  EXPECT_EQ(files->random->dtype, DType::kF32);
  EXPECT_EQ(files->random->seed, 9u);
  EXPECT_EQ(files->directory, folder.path());
  EXPECT_EQ(OpenStatus(folder.path()).code(), absl::StatusCode::kNotFound);
}

// As transformers 5 has it: the older key counts.
TEST(ModelFiles, OneRopeOfTwoKeys) {
  struct Case {
    const char* config;
    const char* kept;
  };
  const Case cases[] = {
      {R"({"rope_parameters":{"rope_theta":3},"rope_scaling":{"factor":2}})",
       R"({"rope_scaling":{"factor":2}})"},
      {R"({"rope_parameters":{"rope_theta":3},"rope_scaling":null})",
       R"({"rope_parameters":{"rope_theta":3}})"},
      {R"({"rope_parameters":{"rope_theta":3},"rope_scaling":{}})",
       R"({"rope_parameters":{"rope_theta":3}})"},
      {R"({"rope_parameters":null,"rope_scaling":{"factor":2}})",
       R"({"rope_parameters":null,"rope_scaling":{"factor":2}})"},
      {R"({"rope_parameters":{"full_attention":{"factor":4,"rope_theta":3},
           "sliding_attention":{"rope_theta":5}},
           "rope_scaling":{"factor":2}})",
       R"({"rope_parameters":{"full_attention":{"factor":2,"rope_theta":3},
           "sliding_attention":{"rope_theta":5}}})"},
      {R"({"rope_parameters":3,"rope_scaling":{"factor":2}})",
       R"({"rope_parameters":3,"rope_scaling":{"factor":2}})"},
  };
  for (const Case& row : cases) {
    TempFolder folder;
    folder.Write("config.json", row.config);
    const auto files = OpenModelFiles("random:" + folder.path(), {});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->config, Json::parse(row.kept)) << row.config;
  }
}

TEST(ModelFiles, VocabOnlyNeedsNoConfig) {
  TempFolder folder;
  const auto files = OpenModelFiles(folder.path(), {.vocab_only = true});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(files->config.is_null());
  EXPECT_EQ(files->weights, nullptr);
  folder.Write("config.json", R"({"eos_token_id":3})");
  EXPECT_THAT(
      OpenModelFiles(folder.path(), {.vocab_only = true})->generation.eos_ids,
      ElementsAre(3));
  folder.Write("config.json", "[");
  EXPECT_EQ(OpenStatus(folder.path(), {.vocab_only = true}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ModelFiles, ErrorsSayWhatIsWrong) {
  TempFolder folder;
  const std::string missing = folder.path() + "/none";
  for (const std::string& path : {missing, missing + ".gguf"}) {
    EXPECT_EQ(OpenStatus(path).code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(OpenStatus(path).message()), HasSubstr(path));
  }
  const std::string gguf = folder.Write("m.gguf", "GGUF");
  EXPECT_EQ(OpenStatus(gguf).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(OpenStatus(gguf).message()), HasSubstr(gguf));
  const std::string file = folder.Write("model.safetensors", "x");
  EXPECT_EQ(OpenStatus(file).code(), absl::StatusCode::kInvalidArgument);

  EXPECT_EQ(OpenStatus(folder.path()).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(OpenStatus(folder.path()).message()),
              HasSubstr(folder.path() + "/config.json"));
  folder.Write("config.json", R"({"eos_token_id":"x"})");
  EXPECT_EQ(OpenStatus(folder.path()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(OpenStatus(folder.path()).message()),
              HasSubstr(folder.path() + ": config.json: \"eos_token_id\""));
  EXPECT_EQ(OpenStatus(std::string("a\0b", 3)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ModelFiles, QuantisedCheckpointsComeInBlockFormats) {
  const auto files =
      OpenModelFiles(TestData() + "/quantized/gptq_int4_actorder", {});
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string layer = "model.layers.0.mlp.down_proj";
  const WeightInfo* weight = files->weights->Find(layer + ".weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, DType::kU4_G128);
  EXPECT_NE(files->weights->Find(layer + ".input_permutation"), nullptr);
  EXPECT_EQ(files->weights->Find(layer + ".qweight"), nullptr);
}

TEST(ModelFiles, AHugeConfigIsRefused) {
  TempFolder folder;
  const std::string path = folder.Write("config.json", "{}");
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse
  EXPECT_EQ(OpenStatus(folder.path()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ModelPath, Random) {
  const auto plain = ParseModelPath("random:dir");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->path, "dir");
  EXPECT_EQ(plain->random->dtype, DType::kBF16);
  EXPECT_EQ(plain->random->seed, 0u);
  const auto full =
      ParseModelPath("random:a/b?seed=18446744073709551615&dtype=f16");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->path, "a/b");
  EXPECT_EQ(full->random->dtype, DType::kF16);
  EXPECT_EQ(full->random->seed, UINT64_MAX);
  const auto mixed =
      ParseModelPath("random:d?*v_proj*=q6_k&dtype=q4_k&*.?.*v_proj*=f16");
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(mixed->random->DTypeOf("layers.10.v_proj.weight"), DType::kQ6_K);
  EXPECT_EQ(mixed->random->DTypeOf("layers.1.v_proj.weight"), DType::kF16);
  EXPECT_EQ(mixed->random->DTypeOf("layers.1.k_proj.weight"), DType::kQ4_K);
  EXPECT_FALSE(ParseModelPath("dir?dtype=f32")->random.has_value());
  EXPECT_EQ(ParseModelPath("dir?dtype=f32")->path, "dir?dtype=f32");
}

TEST(ModelPath, RefusesOtherOptions) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "allowed: a folder"},
      {"random:", "allowed: a folder"},
      {"random:?dtype=f32", "allowed: a folder"},
      {"random:d?", "dtype=NAME and seed=N"},
      {"random:d?&", "dtype=NAME and seed=N"},
      {"random:d?dtype=f32&", "dtype=NAME and seed=N"},
      {"random:d?dtype", "allowed: f32, f16, bf16"},
      {"random:d?dtype=", "allowed: f32, f16, bf16"},
      {"random:d?dtype=F32", "allowed: f32, f16, bf16"},
      {"random:d?dtype=i8", "\"i8\", allowed: f32, f16, bf16"},
      {"random:d?dtype=f32?seed=1", "allowed: f32, f16, bf16"},
      {"random:d?dtype=f32&dtype=f32", "once each"},
      {"random:d?seed=1&seed=1", "once each"},
      {"random:d?scale=2", "\"scale=2\""},
      {"random:d?v_proj=f16", "PATTERN=NAME with * or ?"},
      {"random:d?*v_proj*=i8", "\"i8\", allowed: f32, f16, bf16"},
      {"random:d?*v_proj*", "allowed: f32, f16, bf16"},
      {"random:d?seed=", "seed is \"\""},
      {"random:d?seed=-1", "an integer from 0"},
      {"random:d?seed= 1", "an integer from 0"},
      {"random:d?seed=1x", "an integer from 0"},
      {"random:d?seed=18446744073709551616", "an integer from 0"},
  };
  for (const auto& [path, message] : kCases) {
    const absl::Status status = ParseModelPath(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << path;
  }
}

}  // namespace
}  // namespace inlay
