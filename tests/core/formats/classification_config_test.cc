// What config.json says of labels and of what their logits become.
#include "core/formats/classification_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ClassificationDefaults> Read(const std::string& text) {
  return ReadClassificationDefaults(Json::parse(text));
}

TEST(ClassificationConfigTest, Labels) {
  EXPECT_THAT(Read("{}")->labels, ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_THAT(Read(R"({"num_labels":1})")->labels, ElementsAre("LABEL_0"));
  std::string many = R"({"id2label":{)";
  for (int i = 11; i >= 0; --i) {
    many += "\"" + std::to_string(i) + "\":\"x" + std::to_string(i) +
            (i == 0 ? "\"}}" : "\",");
  }
  const auto read = Read(many);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->labels.size(), 12u);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_EQ(read->labels[i], "x" + std::to_string(i)) << "by number";
  EXPECT_THAT(Read(R"({"id2label":null,"num_labels":3})")->labels.size(), 3u);
}

TEST(ClassificationConfigTest, Activations) {
  const struct {
    const char* text;
    LabelActivation activation;
  } cases[] = {{R"({"num_labels":1})", LabelActivation::kSigmoid},
               {R"({"num_labels":3})", LabelActivation::kIdentity},
               {R"({"num_labels":1,"sentence_transformers":
          {"activation_fn":"torch.nn.modules.linear.Identity"}})",
                LabelActivation::kIdentity},
               {R"({"num_labels":3,"sentence_transformers":
          {"activation_fn":"torch.nn.modules.activation.Sigmoid"}})",
                LabelActivation::kSigmoid},
               {R"({"num_labels":3,"sbert_ce_default_activation_function":
          "torch.nn.modules.activation.Softmax"})",
                LabelActivation::kSoftmax},
               {R"({"num_labels":1,"sbert_ce_default_activation_function":
          "torch.nn.modules.activation.Softmax",
          "sentence_transformers":{"activation_fn":"torch.nn.Identity"}})",
                LabelActivation::kIdentity},
               {R"({"num_labels":1,"sentence_transformers":{"version":"5"}})",
                LabelActivation::kSigmoid}};
  for (const auto& one : cases) {
    const auto read = Read(one.text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->activation, one.activation) << one.text;
    EXPECT_EQ(read->unsupported, "");
  }
  const auto other =
      Read(R"({"sentence_transformers":{"activation_fn":"torch.nn.GELU"}})");
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(other->unsupported, HasSubstr("torch.nn.GELU"));
}

TEST(ClassificationConfigTest, Malformed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"id2label":[]})", "id2label"},
      {R"({"id2label":{}})", "id2label"},
      {R"({"id2label":{"1":"a"}})", "id2label"},
      {R"({"id2label":{"0":"a","00":"b"}})", "id2label"},
      {R"({"id2label":{"0":1}})", "id2label"},
      {R"({"id2label":{"0":"a","99999999999999999999":"b"}})", "id2label"},
      {R"({"num_labels":0})", "num_labels"},
      {R"({"num_labels":1e9})", "num_labels"},
      {R"({"sentence_transformers":{"activation_fn":7}})", "activation_fn"},
      {R"({"sbert_ce_default_activation_function":[]})", "sbert_ce"}};
  for (const auto& [text, key] : cases) {
    const auto read = Read(text);
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(key));
  }
}

// In double, rounded once; no exponential overflows.
TEST(ClassificationConfigTest, Scores) {
  const std::vector<float> logits = {-2.5f, 0.0f, 3.0f, 200.0f, -200.0f};
  EXPECT_EQ(LabelScores(LabelActivation::kIdentity, logits), logits);
  const auto sigmoid = LabelScores(LabelActivation::kSigmoid, logits);
  const auto softmax = LabelScores(LabelActivation::kSoftmax, logits);
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(sigmoid[i],
              static_cast<float>(1 / (1 + std::exp(-double{logits[i]}))));
    EXPECT_EQ(softmax[i], static_cast<float>(std::exp(logits[i] - 200.0)));
    sum += softmax[i];
  }
  EXPECT_FLOAT_EQ(static_cast<float>(sum), 1.0f);
  const std::vector<float> large = {std::numeric_limits<float>::max(),
                                    -std::numeric_limits<float>::max()};
  EXPECT_THAT(LabelScores(LabelActivation::kSigmoid, large), ElementsAre(1, 0));
  EXPECT_THAT(LabelScores(LabelActivation::kSoftmax, large), ElementsAre(1, 0));
  EXPECT_TRUE(LabelScores(LabelActivation::kSoftmax, {}).empty());
}

}  // namespace
}  // namespace inlay
