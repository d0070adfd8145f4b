// Encoders' GGUF files that the converter here does not write: llama.cpp's of
// ModernBERT for masked tokens, and with a list of its layers; and files of
// families with what no checkpoint of theirs has.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/core/model/gguf_golden.h"
#include "tests/core/model/hybrid_gguf.h"

namespace inlay {
namespace {

class ModernBertGguf : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  // Without its last product the head is one for tokens: the converter keeps
  // its first layer and norm.
  ModelFiles WithoutOutput(const std::vector<bool>& sliding) {
    const ModelFiles published = Open("modernbert_labels", "config.json");
    const absl::Status status = WriteFile(published, sliding);
    EXPECT_TRUE(status.ok()) << status;
    auto files = OpenModelFiles(path_, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : ModelFiles();
  }

 private:
  absl::Status WriteFile(const ModelFiles& published,
                         const std::vector<bool>& sliding) {
    const Json& config = published.config;
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch("modern-bert"));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    INLAY_RETURN_IF_ERROR(
        writer.SetString("general.architecture", "modern-bert"));
    Keys keys("modern-bert", &writer);
    keys.U32("block_count", config["num_hidden_layers"]);
    keys.U32("embedding_length", config["hidden_size"]);
    keys.U32("context_length", config["max_position_embeddings"]);
    keys.U32("feed_forward_length", config["intermediate_size"]);
    keys.U32("attention.head_count", config["num_attention_heads"]);
    keys.F32("attention.layer_norm_epsilon", config["norm_eps"]);
    keys.U32("attention.sliding_window", config["local_attention"]);
    keys.Flags("attention.sliding_window_pattern", sliding);
    keys.F32("rope.freq_base", config["global_rope_theta"]);
    keys.F32("rope.freq_base_swa", config["local_rope_theta"]);
    keys.Flag("attention.causal", false);
    INLAY_ASSIGN_OR_RETURN(
        auto tensors, GgufTensorsFrom(*published.weights, *arch,
                                      config["num_hidden_layers"].get<int>(),
                                      config["num_attention_heads"], 0));
    const size_t dropped =
        std::erase_if(tensors, [](const GgufTensorData& tensor) {
          return absl::StartsWith(tensor.name, "cls.output.");
        });
    EXPECT_EQ(dropped, 2u);
    return WriteGgufTensors(tensors, &writer);
  }

  const std::string path_ = ::testing::TempDir() + "modern_bert_" +
                            std::to_string(getpid()) + ".gguf";
};

TEST_F(ModernBertGguf, LayersAndHalfAHead) {
  const std::vector<bool> sliding = {false, true, false, true};
  const ModelFiles files = WithoutOutput(sliding);
  ASSERT_NE(files.weights, nullptr);
  EXPECT_NE(files.weights->Find("head.dense.weight"), nullptr);
  EXPECT_EQ(files.config["architectures"], Json({"ModernBertModel"}));
  const auto device = Cpu(1);
  const auto model = LoadModel(files, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto spec = DescribeDecoder(files, *device);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->is_encoder);
  EXPECT_FALSE(spec->classifier.has_value());
  ASSERT_EQ(spec->layers.size(), sliding.size());
  for (size_t i = 0; i < sliding.size(); ++i) {
    const auto& attention =
        std::get<AttentionSpec>(spec->layers[i].blocks[0].part);
    EXPECT_EQ(attention.window, sliding[i] ? 9 : 0) << i;
    EXPECT_EQ(spec->ropes[static_cast<size_t>(attention.rope)].theta,
              sliding[i] ? 10000.0 : 160000.0);
  }
}

// "jina-bert-v3"; said first, `keys` count.
class JinaBertGguf : public ::testing::Test {
 protected:
  using SetKeys = std::function<void(Keys*)>;
  void TearDown() override { std::filesystem::remove(path_); }

  absl::StatusOr<ModelFiles> Written(
      const SetKeys& set_keys, const std::vector<std::string>& more = {}) {
    const ModelFiles published = Open("jina_embeddings_v3", "config.json");
    const Json& config = published.config;
    const auto weights = Changed(
        *published.weights,
        [](std::string* name, auto*, auto*) { *name = "roberta." + *name; });
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch("jina-bert-v3"));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    INLAY_RETURN_IF_ERROR(
        writer.SetString("general.architecture", "jina-bert-v3"));
    Keys keys("jina-bert-v3", &writer);
    set_keys(&keys);
    keys.U32("block_count", config["num_hidden_layers"]);
    keys.U32("embedding_length", config["hidden_size"]);
    keys.U32("context_length", config["max_position_embeddings"]);
    keys.U32("feed_forward_length", config["intermediate_size"]);
    keys.U32("attention.head_count", config["num_attention_heads"]);
    keys.F32("attention.layer_norm_epsilon", config["layer_norm_eps"]);
    keys.Flag("attention.causal", false);
    INLAY_ASSIGN_OR_RETURN(
        auto tensors,
        GgufTensorsFrom(*weights, *arch, config["num_hidden_layers"].get<int>(),
                        config["num_attention_heads"], 0));
    for (const std::string& name : more) {
      tensors.push_back(
          {name, DType::kF32, {1, 32}, std::string(32 * sizeof(float), '\0')});
    }
    INLAY_RETURN_IF_ERROR(WriteGgufTensors(tensors, &writer));
    return OpenModelFiles(path_, {});
  }

  const std::string path_ =
      ::testing::TempDir() + "jina_bert_" + std::to_string(getpid()) + ".gguf";
};

TEST_F(JinaBertGguf, ClassifiersOfOtherFamilies) {
  const auto device = Cpu(1);
  const auto plain = Written([](Keys*) {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(LoadModel(*plain, *device, {}).ok());
  for (const std::vector<std::string>& layers :
       {std::vector<std::string>{"cls.weight", "cls.output.weight"},
        std::vector<std::string>{"cls.output.weight"}}) {
    const absl::Status status = Written([](Keys*) {}, layers).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_NE(status.message().find("a file of \"jina-bert-v3\""),
              std::string::npos)
        << status;
  }
}

// The network has as many of queries, keys and values, which make up the width.
TEST_F(JinaBertGguf, HeadsOfOneKind) {
  const SetKeys cases[] = {
      [](Keys* keys) { keys->U32("attention.head_count_kv", 1); },
      [](Keys* keys) {
        keys->U32("attention.key_length", 8);
        keys->U32("attention.value_length", 8);
      },
  };
  for (const SetKeys& set : cases) {
    const absl::Status status = Written(set).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_NE(status.message().find("make up the width"), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace inlay
