// Embedding models by their own rules: windows both ways, Dense modules behind
// the pooling, labels of the mean; what transformers gives of the networks and
// torch of the rest, the same in any company, and what is refused.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <inlay/inlay.hpp>
#include <nlohmann/json.hpp>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json EmbedderJson(const std::string& path) {
  Json json;
  std::ifstream(path) >> json;
  return json;
}

struct EmbedderCase {
  explicit EmbedderCase(const Json& one)
      : name(one["name"]),
        tokens(one["input_ids"].get<std::vector<int32_t>>()),
        types(one.value("token_type_ids", std::vector<int32_t>())) {}

  inlay_request_options Embed(int32_t embedding) const {
    auto options = TokensRequest(tokens, -1);
    options.token_types = types.empty() ? nullptr : types.data();
    options.embedding = embedding;
    return options;
  }

  std::string name;
  std::vector<int32_t> tokens, types;
};

// `scale`: what the tolerance is of.
void ExpectWithin(const std::vector<float>& got, const Json& want, double scale,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i].get<double>(), 1e-4 * scale)
        << what << " " << i;
  }
}

// The goldens of models in `path`, by the files there.
void ExpectGoldens(const std::string& path, const Json& golden) {
  const Host host(path);
  for (const Json& one : golden["cases"]) {
    const EmbedderCase input(one);
    const double deviation = one["hidden_std"];
    for (const auto& [key, embedding] :
         {std::pair{"cls", INLAY_EMBEDDING_CLS},
          std::pair{"last", INLAY_EMBEDDING_LAST},
          std::pair{"mean", INLAY_EMBEDDING_MEAN},
          // At most as large as states.
          std::pair{"default", INLAY_EMBEDDING_DEFAULT}}) {
      const Outcome outcome = host.RunAlone(input.Embed(embedding));
      ASSERT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
      ExpectWithin(outcome.embedding, one[key], deviation,
                   input.name + " " + key);
    }
  }
}

void ExpectLabels(const std::string& path, const Json& golden) {
  const Host host(path);
  for (const Json& one : golden["cases"]) {
    const EmbedderCase input(one);
    auto request = input.Embed(INLAY_EMBEDDING_NONE);
    request.classification = INLAY_CLASSIFICATION_LOGITS;
    ExpectWithin(host.RunAlone(request).label_logits, one["logits"],
                 golden["logit_std"], input.name);
  }
}

class EmbedderTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EmbedderTest, GivesWhatTransformersGives) {
  const std::string path = ModelPath(GetParam());
  const Json golden = EmbedderJson(path + "/golden.json");
  ASSERT_GE(golden["cases"].size(), 4u);
  ExpectGoldens(path, golden);
}

TEST_P(EmbedderTest, TheSameInAnyCompany) {
  const std::string path = ModelPath(GetParam());
  const Json golden = EmbedderJson(path + "/golden.json");
  const Host alone(path);
  auto engine = EngineDefaults();
  engine.max_batch_tokens = 160;
  const Host crowded(path, engine);
  std::vector<EmbedderCase> inputs;
  for (int round = 0; round < 12; ++round) {
    for (const Json& one : golden["cases"]) inputs.emplace_back(one);
  }
  constexpr int32_t kEmbeddings[] = {INLAY_EMBEDDING_DEFAULT,
                                     INLAY_EMBEDDING_MEAN, INLAY_EMBEDDING_CLS};
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  for (size_t i = 0; i < inputs.size(); ++i) {
    sessions.push_back(crowded.NewSession());
    requests.push_back(crowded.Submit(sessions.back(),
                                      inputs[i].Embed(kEmbeddings[i / 2 % 3])));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Outcome outcome = crowded.Finish(requests[i]);
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
    EXPECT_EQ(outcome.embedding,
              alone.RunAlone(inputs[i].Embed(kEmbeddings[i / 2 % 3])).embedding)
        << i;
    inlay_session_release(sessions[i]);
  }
  EXPECT_EQ(crowded.Stats().kv_blocks_used, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Models, EmbedderTest,
    ::testing::Values("gemma3_embedding", "modernbert_labels",
                      "distilbert_labels", "electra_labels", "electra_narrow",
                      "nomic_bert", "gte_labels", "jina_embeddings_v3",
                      "eurobert", "mpnet_labels", "nomic_bert_moe",
                      "albert_labels", "roberta_prelayernorm_labels",
                      "xlm_roberta_xl_labels", "ernie_labels",
                      "megatron_bert_labels", "data2vec_text_labels",
                      "t5_encoder", "mt5_encoder", "umt5_encoder",
                      "rembert_labels", "roformer_labels", "nomic_bert_labels",
                      "jina_bert", "jina_bert_code", "deberta_v3_labels",
                      "deberta_v2", "deberta_v2_labels", "deberta_labels"));

// A copy of a model's folder, to change.
class EmbedderCopyTest : public ::testing::Test {
 protected:
  EmbedderCopyTest()
      : folder_(
            ::testing::TempDir() + "embedder_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~EmbedderCopyTest() override { std::filesystem::remove_all(folder_); }

  void Copy(const std::string& model) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(ModelPath(model), folder_,
                          std::filesystem::copy_options::recursive);
  }
  void Change(const std::string& file, const Json& changes) {
    Json json = EmbedderJson(folder_ + "/" + file);
    json.merge_patch(changes);
    std::ofstream(folder_ + "/" + file) << json;
  }
  inlay_status Load(Error& error) const {
    inlay_model* model = nullptr;
    const Host host("");
    const inlay_status status = inlay_model_load(host.engine, folder_.c_str(),
                                                 nullptr, &model, error.out());
    inlay_model_release(model);
    return status;
  }
  inlay_status EmbedDefault(Error& error) const {
    const Host host(folder_);
    const std::vector<int32_t> tokens = {5, 6};
    auto options = TokensRequest(tokens, -1);
    options.embedding = INLAY_EMBEDDING_DEFAULT;
    return TrySubmit(host, options, error);
  }

  std::string folder_;
};

// Decoders of any family that say so; a window is counted without the token
// itself then: half of Gemma's, which counts both sides.
TEST_F(EmbedderCopyTest, IsCausalFalse) {
  Copy("gemma3_embedding");
  Change("config.json", {{"use_bidirectional_attention", nullptr},
                         {"is_causal", false},
                         {"sliding_window", 12}});
  ExpectGoldens(folder_,
                EmbedderJson(ModelPath("gemma3_embedding") + "/golden.json"));
}

// One that says nothing generates, and its first token sees nothing else.
TEST_F(EmbedderCopyTest, CausalOtherwise) {
  Copy("gemma3_embedding");
  Change("config.json", {{"use_bidirectional_attention", nullptr}});
  const Host host(folder_);
  const std::vector<int32_t> one = {5}, two = {5, 6};
  auto options = TokensRequest(one, -1);
  options.embedding = INLAY_EMBEDDING_CLS;
  const auto first = host.RunAlone(options).embedding;
  options.tokens = two.data();
  options.num_tokens = 2;
  EXPECT_EQ(host.RunAlone(options).embedding, first);
  EXPECT_EQ(host.RunAlone(TokensRequest(two, 3)).tokens.size(), 3u);
}

// Embedding models are often saved as the network alone: with and without its
// prefix, the head that is tied left out, too.
TEST_F(EmbedderCopyTest, NetworksWithoutTheirHead) {
  for (const auto& [name, bare] : {std::pair{"llama3", "LlamaModel"},
                                   std::pair{"gemma2", "Gemma2Model"}}) {
    SCOPED_TRACE(name);
    Copy(name);
    Change("config.json", {{"architectures", {bare}}});
    const Host host(folder_);
    const Host whole(ModelPath(name));
    const std::vector<int32_t> tokens = {5, 60, 7, 9, 33};
    for (const int32_t embedding :
         {INLAY_EMBEDDING_DEFAULT, INLAY_EMBEDDING_MEAN}) {
      auto options = TokensRequest(tokens, -1);
      options.embedding = embedding;
      EXPECT_EQ(host.RunAlone(options).embedding,
                whole.RunAlone(options).embedding);
    }
    Error error;
    EXPECT_EQ(TrySubmit(host, TokensRequest(tokens, 3), error),
              INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("head"));
  }
  Copy("opt_350m");
  Change("config.json", {{"architectures", {"OPTModel"}}});
  Error error;
  EXPECT_EQ(Load(error), INLAY_UNSUPPORTED);
}

TEST_F(EmbedderCopyTest, WhatKnowsOneDirectionIsRefused) {
  Error error;
  for (const char* name : {"lfm2", "deepseek_v2", "falcon_h1", "llama4_text",
                           "opt_350m", "zamba2"}) {
    Copy(name);
    Change("config.json", {{"is_causal", false}});
    EXPECT_EQ(Load(error), INLAY_UNSUPPORTED) << name;
    EXPECT_THAT(error.message(), HasSubstr("is_causal")) << name;
  }
  for (const char* name : {"gemma", "gemma2"}) {
    Copy(name);
    Change("config.json", {{"use_bidirectional_attention", true}});
    EXPECT_EQ(Load(error), INLAY_UNSUPPORTED) << name;
    EXPECT_THAT(error.message(), HasSubstr("use_bidirectional_attention"));
  }
}

TEST_F(EmbedderCopyTest, DenseModulesThatDoNotFit) {
  Error error;
  Copy("gemma3_embedding");
  ASSERT_EQ(Load(error), INLAY_OK) << error.message();
  Change("2_Dense/config.json", {{"in_features", 31}});
  EXPECT_EQ(Load(error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("2_Dense"));
  Copy("gemma3_embedding");
  Change("3_Dense/config.json", {{"in_features", 47}});
  EXPECT_EQ(Load(error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("in_features"));
  Copy("gemma3_embedding");
  Change("3_Dense/config.json", {{"out_features", 25}});
  EXPECT_EQ(Load(error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("3_Dense.linear.weight"));
  Copy("gemma3_embedding");
  Change("3_Dense/config.json", {{"bias", true}});
  EXPECT_EQ(Load(error), INLAY_NOT_FOUND);
  EXPECT_THAT(error.message(), HasSubstr("3_Dense.linear.bias"));
}

TEST(EmbeddingSizeTest, IsThatOfTheLastDenseModule) {
  for (const auto& [name, size] :
       {std::pair("gemma3_embedding", 24u), std::pair("bert", 64u)}) {
    const Host host(ModelPath(name));
    auto info = Defaults(inlay_model_info_init_sized);
    ASSERT_EQ(inlay_model_get_info(host.model, &info, nullptr), INLAY_OK);
    EXPECT_EQ(info.embedding_size, size) << name;
    const std::vector<int32_t> tokens = {5, 6};
    auto options = TokensRequest(tokens, -1);
    options.embedding = INLAY_EMBEDDING_DEFAULT;
    EXPECT_EQ(host.RunAlone(options).embedding.size(), size) << name;
  }
}

// The network is of use without.
TEST_F(EmbedderCopyTest, DenseModulesThatAreNotThere) {
  Error error;
  Copy("gemma3_embedding");
  std::filesystem::remove(folder_ + "/3_Dense/model.safetensors");
  EXPECT_EQ(Load(error), INLAY_OK) << error.message();
  EXPECT_EQ(EmbedDefault(error), INLAY_UNSUPPORTED);
  EXPECT_THAT(error.message(), HasSubstr("3_Dense"));
  std::ofstream(folder_ + "/3_Dense/pytorch_model.bin") << "x";
  EXPECT_EQ(EmbedDefault(error), INLAY_UNSUPPORTED);
  Copy("gemma3_embedding");
  Change("2_Dense/config.json",
         {{"activation_function", "torch.nn.modules.activation.Mish"}});
  EXPECT_EQ(EmbedDefault(error), INLAY_UNSUPPORTED);
  EXPECT_THAT(error.message(), HasSubstr("Mish"));
  const Host host(folder_);
  const std::vector<int32_t> tokens = {5, 6};
  auto options = TokensRequest(tokens, -1);
  options.embedding = INLAY_EMBEDDING_MEAN;
  EXPECT_EQ(host.RunAlone(options).embedding.size(), 32u);
  auto info = Defaults(inlay_model_info_init_sized);
  ASSERT_EQ(inlay_model_get_info(host.model, &info, nullptr), INLAY_OK);
  EXPECT_EQ(info.hidden_size, 32u);
  EXPECT_EQ(info.embedding_size, 0u);
}

// As GGUF files, with pooling, Dense modules and labels.
TEST_F(EmbedderCopyTest, Gguf) {
  std::filesystem::create_directories(folder_);
  for (const char* name :
       {"gemma3_embedding", "modernbert_labels", "nomic_bert", "bert_labels",
        "roberta_labels", "jina_embeddings_v3", "eurobert", "jina_bert",
        "jina_bert_code"}) {
    SCOPED_TRACE(name);
    const std::string out = folder_ + "/" + name + ".gguf";
    auto options = Defaults(inlay_quantize_options_init_sized);
    options.type = "f32";
    options.num_threads = 1;
    Error error;
    ASSERT_EQ(inlay_quantize(ModelPath(name).c_str(), out.c_str(), &options,
                             nullptr, error.out()),
              INLAY_OK)
        << error.message();
    const Json golden = EmbedderJson(ModelPath(name) + "/golden.json");
    if (golden["cases"][0].contains("default")) ExpectGoldens(out, golden);
    if (golden.contains("logit_std")) ExpectLabels(out, golden);
  }
}

// As llama.cpp's converter writes it.
TEST(ConvertedEmbedderTest, JinaBert) {
  ExpectGoldens(TestData() + "/gguf/jina_bert.gguf",
                EmbedderJson(ModelPath("jina_bert") + "/golden.json"));
}

// Converters leave out the bias of mixtures: without it the file gives what the
// folder gives.
TEST_F(EmbedderCopyTest, GgufOfNomicBertMoe) {
  Copy("nomic_bert_moe");
  Change("config.json", {{"experts_bias", false}});
  const std::string out = folder_ + "/nomic_bert_moe.gguf";
  auto options = Defaults(inlay_quantize_options_init_sized);
  options.type = "f32";
  options.num_threads = 1;
  Error error;
  ASSERT_EQ(inlay_quantize(folder_.c_str(), out.c_str(), &options, nullptr,
                           error.out()),
            INLAY_OK)
      << error.message();
  const Host file(out);
  const Host folder(folder_);
  const Host biased(ModelPath("nomic_bert_moe"));
  const Json golden = EmbedderJson(folder_ + "/golden.json");
  for (const Json& one : golden["cases"]) {
    const EmbedderCase input(one);
    const auto request = input.Embed(INLAY_EMBEDDING_DEFAULT);
    const auto want = folder.RunAlone(request).embedding;
    EXPECT_EQ(want.size(), 32u);
    const auto got = file.RunAlone(request).embedding;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-6) << input.name;
    }
    EXPECT_NE(biased.RunAlone(request).embedding, want);
  }
}

// RoBERTa by another name.
TEST_F(EmbedderCopyTest, GgufOfCamembert) {
  Copy("roberta_labels");
  Change("config.json",
         {{"architectures", {"CamembertForSequenceClassification"}},
          {"model_type", "camembert"}});
  const std::string out = folder_ + "/camembert.gguf";
  auto options = Defaults(inlay_quantize_options_init_sized);
  options.type = "f32";
  options.num_threads = 1;
  Error error;
  ASSERT_EQ(inlay_quantize(folder_.c_str(), out.c_str(), &options, nullptr,
                           error.out()),
            INLAY_OK)
      << error.message();
  ExpectLabels(out, EmbedderJson(folder_ + "/golden.json"));
}

// Under BERT's names there, as DistilBERT has no head in such files.
TEST_F(EmbedderCopyTest, GgufOfDistilBert) {
  Copy("distilbert_labels");
  Change("config.json", {{"architectures", {"DistilBertModel"}}});
  const Json golden = EmbedderJson(folder_ + "/golden.json");
  const std::string out = folder_ + "/distilbert.gguf";
  auto options = Defaults(inlay_quantize_options_init_sized);
  options.type = "f32";
  options.num_threads = 1;
  Error error;
  // Its module has an activation.
  EXPECT_EQ(inlay_quantize(folder_.c_str(), out.c_str(), &options, nullptr,
                           error.out()),
            INLAY_UNSUPPORTED);
  EXPECT_THAT(error.message(), HasSubstr("2_Dense"));
  std::filesystem::remove(folder_ + "/modules.json");
  ASSERT_EQ(inlay_quantize(folder_.c_str(), out.c_str(), &options, nullptr,
                           error.out()),
            INLAY_OK)
      << error.message();
  const Host host(out);
  for (const Json& one : golden["cases"]) {
    const EmbedderCase input(one);
    for (const auto& [key, embedding] :
         {std::pair{"cls", INLAY_EMBEDDING_CLS},
          std::pair{"last", INLAY_EMBEDDING_LAST},
          std::pair{"mean", INLAY_EMBEDDING_MEAN}}) {
      ExpectWithin(host.RunAlone(input.Embed(embedding)).embedding, one[key],
                   one["hidden_std"], input.name + " " + key);
    }
  }
}

// Without T5's Dense module, and at the largest distance that llama.cpp has.
TEST_F(EmbedderCopyTest, GgufOfT5) {
  for (const char* name : {"t5_encoder", "mt5_encoder", "umt5_encoder"}) {
    SCOPED_TRACE(name);
    Copy(name);
    const std::string out = folder_ + "/t5.gguf";
    auto options = Defaults(inlay_quantize_options_init_sized);
    options.type = "f32";
    options.num_threads = 1;
    Error error;
    const bool is_multilingual = std::string(name) == "mt5_encoder";
    if (!is_multilingual) {
      EXPECT_EQ(inlay_quantize(folder_.c_str(), out.c_str(), &options, nullptr,
                               error.out()),
                INLAY_UNSUPPORTED);
      EXPECT_THAT(error.message(),
                  AnyOf(HasSubstr("2_Dense"),
                        HasSubstr("relative_attention_max_distance")));
    }
    Change("config.json", {{"relative_attention_max_distance", nullptr}});
    std::filesystem::remove(folder_ + "/modules.json");
    ASSERT_EQ(inlay_quantize(folder_.c_str(), out.c_str(), &options, nullptr,
                             error.out()),
              INLAY_OK)
        << error.message();
    const Host file(out);
    const Host folder(folder_);
    const Json golden = EmbedderJson(folder_ + "/golden.json");
    for (const Json& one : golden["cases"]) {
      const EmbedderCase input(one);
      const auto request = input.Embed(INLAY_EMBEDDING_MEAN);
      const auto got = file.RunAlone(request).embedding;
      ExpectWithin(got, folder.RunAlone(request).embedding, 0.01, input.name);
      if (std::string(name) == "umt5_encoder") continue;
      ExpectWithin(got, one["mean"], one["hidden_std"], input.name);
    }
  }
}

// Drawn weights are there for all that files ask for.
TEST_F(EmbedderCopyTest, RandomWeights) {
  const Host host("random:" + ModelPath("gemma3_embedding") + "?dtype=bf16");
  const std::vector<int32_t> tokens = {5, 6, 7};
  auto options = TokensRequest(tokens, -1);
  options.embedding = INLAY_EMBEDDING_DEFAULT;
  const auto embedding = host.RunAlone(options).embedding;
  ASSERT_EQ(embedding.size(), 24u);
  double squares = 0;
  for (const float x : embedding) squares += double{x} * x;
  // Rounded once each, then squared here.
  EXPECT_NEAR(squares, 1.0, 2.01 * 0x1p-24);
}

}  // namespace
}  // namespace inlay::testing
