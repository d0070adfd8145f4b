// Folders in other engines' layouts have what lies beside the source's weights.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "core/formats/embedding_config.h"
#include "tests/core/quantize/quantized_files.h"

namespace inlay {
namespace {

class CopiedTextsTest : public QuantizedFiles {};

// What quantising does not change is in the new folder as it was in the old.
TEST_F(CopiedTextsTest, AreAsTheyWere) {
  const std::filesystem::path from = folder_ + "/source",
                              to = folder_ + "/model";
  std::filesystem::copy(Golden("llama_bf16"), from);
  const std::set<std::string> tokenizer = {
      "tokenizer.json",
      "tokenizer.model",
      "tokenizer_config.json",
      "special_tokens_map.json",
      "added_tokens.json",
      "vocab.txt",
      "chat_template.jinja",
      "chat_template.json",
      "processor_config.json",
      "additional_chat_templates/rag.jinja",
      "additional_chat_templates/tool_use.jinja"};
  const std::set<std::string> others = {"generation_config.json",
                                        "modules.json", "1_Pooling/config.json",
                                        "config_sentence_transformers.json"};
  const std::map<std::string, std::string> contents = {
      {"tokenizer_config.json", R"({"model_max_length": Infinity})"},
      {"modules.json",
       R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
           {"type": "sentence_transformers.models.Pooling",
            "path": "1_Pooling"}])"},
      {"1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})"}};
  const auto write = [&](const std::string& name) {
    const auto path = from / name;
    std::filesystem::create_directories(path.parent_path());
    const auto found = contents.find(name);
    std::ofstream(path) << (found != contents.end()       ? found->second
                            : path.extension() == ".json" ? "{}"
                                                          : name);
  };
  for (const auto& name : tokenizer) write(name);
  for (const auto& name : others) write(name);
  // Not a template; not what the model is used for.
  write("additional_chat_templates/README.md");
  write("training_args.bin");
  QuantizeOptions options = Options("u4_g64", QuantizeMethod::kNearest);
  for (const bool with : {true, false}) {
    options.tokenizer = with;
    std::filesystem::remove_all(to);
    const auto report = QuantizePath(from.string(), options, to.string());
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->has_tokenizer, with);
    std::set<std::string> expected = others;
    if (with) expected.insert(tokenizer.begin(), tokenizer.end());
    for (const auto& name : expected) {
      EXPECT_EQ(FileBytes((to / name).string()),
                FileBytes((from / name).string()))
          << name;
    }
    expected.insert({"config.json", "model.safetensors"});
    std::set<std::string> found;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(to)) {
      if (entry.is_regular_file())
        found.insert(std::filesystem::relative(entry.path(), to).string());
    }
    EXPECT_EQ(found, expected);
    const auto copied = OpenModelFiles(to.string(), {});
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_EQ(copied->embedding.pooling, Pooling::kLast);
    EXPECT_EQ(copied->chat.named_templates.size(), with ? 2u : 0u);
  }
}

// Weights of Dense modules, too: the folder embeds as the source does.
TEST_F(CopiedTextsTest, DenseModules) {
  namespace fs = std::filesystem;
  const fs::path to = folder_ + "/model";
  const auto report =
      QuantizePath(Golden("gemma3_embedding"),
                   Options("u4_g32", QuantizeMethod::kNearest), to.string());
  ASSERT_TRUE(report.ok()) << report.status();
  for (const char* name :
       {"modules.json", "2_Dense/config.json", "2_Dense/model.safetensors",
        "3_Dense/config.json", "3_Dense/model.safetensors"}) {
    EXPECT_EQ(FileBytes((to / name).string()),
              FileBytes(Golden("gemma3_embedding") + "/" + name))
        << name;
  }
  for (const QuantizedTensor& tensor : report->tensors) {
    EXPECT_EQ(tensor.name.find("Dense"), std::string::npos) << tensor.name;
  }
  const auto copied = OpenModelFiles(to.string(), {});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->embedding.dense.size(), 2u);
  EXPECT_NE(copied->weights->Find("3_Dense.linear.weight"), nullptr);
}

// What cannot be copied is said before anything is written: calibration and
// weights may have taken hours.
TEST_F(CopiedTextsTest, WhatCannotBeCopiedIsFoundFirst) {
  namespace fs = std::filesystem;
  const fs::path from = folder_ + "/source", to = folder_ + "/model";
  fs::copy(Golden("llama_bf16"), from);
  const QuantizeOptions options = Options("u4_g64", QuantizeMethod::kNearest);
  const auto put = [&](const fs::path& name, const std::string& text) {
    fs::create_directories((from / name).parent_path());
    std::ofstream(from / name) << text;
  };
  // Takes no room on the disk.
  put("vocab.txt", "");
  fs::resize_file(from / "vocab.txt", (uint64_t{256} << 20) + 1);
  const auto refused = QuantizePath(from.string(), options, to.string());
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_NE(refused.status().message().find("vocab.txt"), std::string::npos);
  EXPECT_FALSE(fs::exists(to));
  fs::remove(from / "vocab.txt");
  // Of several pieces, and of none.
  put("merges.txt", std::string((size_t{5} << 19) + 1, 'm'));
  put("vocab.txt", "");
  const auto report = QuantizePath(from.string(), options, to.string());
  ASSERT_TRUE(report.ok()) << report.status();
  for (const char* name : {"merges.txt", "vocab.txt"}) {
    EXPECT_EQ(FileBytes((to / name).string()),
              FileBytes((from / name).string()))
        << name;
  }
}

}  // namespace
}  // namespace inlay
