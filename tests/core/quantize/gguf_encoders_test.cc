// What GGUF files that QuantizeModel writes of encoders say of embeddings and
// labels, and what is made of files that say what no checkpoint does.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/classification_config.h"
#include "core/formats/gguf_encoder.h"
#include "core/model/load_model.h"
#include "core/quantize/quantize.h"
#include "memory/device/device.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/quantize/family_files.h"

namespace inlay {
namespace {

class GgufEncodersTest : public ::testing::Test {
 protected:
  // Replaces all `from` by `to`, as long, in the file; with `dims`, innermost
  // first, the sizes of the tensor of that name.
  static void Patch(const std::string& path, const std::string& from,
                    const std::string& to,
                    const std::vector<uint64_t>& dims = {}) {
    std::ifstream in(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    ASSERT_EQ(from.size(), to.size());
    size_t at = bytes.find(from);
    ASSERT_NE(at, bytes.npos) << from;
    for (; at != bytes.npos; at = bytes.find(from, at + 1)) {
      bytes.replace(at, to.size(), to);
      if (dims.empty()) continue;
      std::memcpy(bytes.data() + at + to.size() + sizeof(uint32_t), dims.data(),
                  dims.size() * sizeof(uint64_t));
    }
    std::ofstream(path, std::ios::binary) << bytes;
  }

  absl::Status Plan(const ModelFiles& files) const {
    return PlanModel(files, *device_, {}).status();
  }
  void ExpectNotSaid(const EmbeddingDefaults& embedding,
                     const char* named) const {
    const auto arch = FindGgufArch("gemma-embedding");
    auto writer = GgufWriter::Create(files_.Path("said"));
    ASSERT_TRUE(arch.ok() && writer.ok()) << writer.status();
    const absl::Status status = SetGgufEmbedding(embedding, **arch, &*writer);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_NE(status.message().find(named), std::string::npos) << status;
  }

  const FamilyFiles files_;
  const std::unique_ptr<Device> device_ = *CreateCpuDevice(1, 0);
};

// The second module's inputs are what the first gives, or nothing is loaded.
TEST_F(GgufEncodersTest, DenseModulesThatDoNotFit) {
  const std::string path =
      files_.Write(Open("gemma3_embedding", "config.json"), "f32");
  EXPECT_TRUE(Plan(FamilyFiles::OpenFile(path)).ok());
  Patch(path, "dense_3.weight", "dense_3.weight", {48 * 24, 1});
  const ModelFiles read = FamilyFiles::OpenFile(path);
  ASSERT_EQ(read.embedding.dense.size(), 2u);
  EXPECT_EQ(read.embedding.dense[1].inputs, 48 * 24);
  const absl::Status status = Plan(read);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("3_Dense"), std::string::npos) << status;
}

TEST_F(GgufEncodersTest, ModulesThatCannotBeSaid) {
  ModelFiles files = Open("gemma3_embedding", "config.json");
  const EmbeddingDefaults plain = files.embedding;
  ASSERT_TRUE(files_.Try(files, {.type = "f32"}).ok());
  // The network alone would answer with a mean.
  files.embedding.dense.clear();
  files.embedding.unsupported = "the module \"x.LSTM\"";
  const absl::Status status = files_.Try(files, {.type = "f32"}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("x.LSTM"), std::string::npos) << status;

  EmbeddingDefaults embedding = plain;
  std::swap(embedding.dense[0], embedding.dense[1]);
  ExpectNotSaid(embedding, "2_Dense");
  embedding = plain;
  embedding.dense[1].folder = "2_Dense";
  ExpectNotSaid(embedding, "2_Dense");
  embedding = plain;
  embedding.dense[0].folder = "1_Dense";
  ExpectNotSaid(embedding, "1_Dense");
  embedding = plain;
  embedding.dense[1].bias = true;
  ExpectNotSaid(embedding, "3_Dense");
  embedding = plain;
  embedding.dense[1].activation = DenseActivation::kTanh;
  ExpectNotSaid(embedding, "3_Dense");
}

// Whether embeddings get length 1 is what the files say, not what a file's
// pooling suggests.
TEST_F(GgufEncodersTest, LengthsOfEmbeddings) {
  ModelFiles files = Open("nomic_bert", "config.json");
  for (const Pooling pooling :
       {Pooling::kMean, Pooling::kCls, Pooling::kLast, Pooling::kNone}) {
    for (const bool normalise : {true, false}) {
      files.embedding.pooling = pooling;
      files.embedding.normalise = normalise;
      const auto read = FamilyFiles::OpenFile(files_.Write(files, "f32"));
      EXPECT_EQ(read.embedding.pooling, pooling);
      EXPECT_EQ(read.embedding.normalise, normalise);
    }
  }
}

TEST_F(GgufEncodersTest, WhatScoresAre) {
  for (const char* model : {"bert_labels", "bert_reranker"}) {
    const ModelFiles plain = Open(model, "config.json");
    for (const char* changes : {"{}",
                                R"({"sbert_ce_default_activation_function":
              "torch.nn.modules.activation.Sigmoid"})",
                                R"({"sentence_transformers":
              {"activation_fn": "torch.nn.modules.linear.Identity"}})",
                                R"({"sentence_transformers":
              {"activation_fn": "torch.nn.modules.activation.Softmax"}})",
                                R"({"sentence_transformers":
              {"activation_fn": "torch.nn.modules.activation.Mish"}})"}) {
      SCOPED_TRACE(changes);
      ModelFiles files = plain;
      files.config.erase("sentence_transformers");
      files.config.update(*ParseJson(changes, "changes"));
      const auto wanted = ReadClassificationDefaults(files.config);
      const auto got = ReadClassificationDefaults(
          FamilyFiles::OpenFile(files_.Write(files, "f32")).config);
      ASSERT_TRUE(wanted.ok() && got.ok()) << got.status();
      EXPECT_EQ(got->labels, wanted->labels);
      EXPECT_EQ(got->activation, wanted->activation);
      EXPECT_EQ(got->unsupported, wanted->unsupported);
    }
  }
}

TEST_F(GgufEncodersTest, WhatStatesLabelsAreOf) {
  ModelFiles files = Open("modernbert_labels", "config.json");
  for (const char* pooling : {"cls", "mean"}) {
    files.config["classifier_pooling"] = pooling;
    const std::string path = files_.Write(files, "f32");
    EXPECT_EQ(FamilyFiles::OpenFile(path).config["classifier_pooling"],
              pooling);
  }
  // As older files are: of the mean.
  const std::string path = files_.Write(files, "f32");
  Patch(path, "classifier.pooling_type", "classifier.xooling_type");
  EXPECT_EQ(FamilyFiles::OpenFile(path).config["classifier_pooling"], "mean");
}

// Converters drop BERT's.
TEST_F(GgufEncodersTest, LabelsWithoutTheFirstLayer) {
  const std::string path =
      files_.Write(Open("bert_labels", "config.json"), "f32");
  Patch(path, "cls.weight", "xls.weight");
  const absl::Status status = OpenModelFiles(path, {}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("lacks \"cls.weight\""), std::string::npos)
      << status;
}

}  // namespace
}  // namespace inlay
