// Classification: the labels that transformers gives for single texts and for
// pairs, the same in any company, and what is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <inlay/inlay.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/api/host.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json GoldenOf(const std::string& name) {
  Json golden;
  std::ifstream(ModelPath(name) + "/golden.json") >> golden;
  return golden;
}

// One request of a golden case, which must outlive the options.
struct Input {
  explicit Input(const Json& one)
      : tokens(one["input_ids"].get<std::vector<int32_t>>()),
        types(one.value("token_type_ids", std::vector<int32_t>())),
        text(one.value("text", "")),
        pair(one.value("text_pair", "")),
        has_text(one.contains("text")),
        is_pair(one.contains("text_pair")) {}

  inlay_request_options Tokens(int32_t classification) const {
    auto options = TokensRequest(tokens, -1);
    options.token_types = types.empty() ? nullptr : types.data();
    options.classification = classification;
    return options;
  }
  inlay_request_options Text(int32_t classification) const {
    auto options = Defaults(inlay_request_options_init_sized);
    options.text = text.data();
    options.text_bytes = text.size();
    if (is_pair) {
      options.text_pair = pair.data();
      options.text_pair_bytes = pair.size();
    }
    options.classification = classification;
    return options;
  }

  std::vector<int32_t> tokens, types;
  std::string text, pair;
  bool has_text, is_pair;
};

Outcome Classify(const Host& host, const inlay_request_options& options) {
  Outcome outcome = host.RunAlone(options);
  EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
  EXPECT_EQ(outcome.finish.generated_tokens, 0u);
  EXPECT_TRUE(outcome.tokens.empty() && outcome.embedding.empty());
  return outcome;
}

// The project's bound for float32, of the deviation of all logits of a model.
double ToleranceOf(const Json& golden) {
  return 1e-4 * golden["logit_std"].get<double>();
}

void ExpectNear(const std::vector<float>& got, const Json& want,
                double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i].get<double>(), tolerance) << what << " " << i;
}

class ClassifierTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ClassifierTest, GivesWhatTransformersGives) {
  const Json golden = GoldenOf(GetParam());
  const Host host(ModelPath(GetParam()));
  const double tolerance = ToleranceOf(golden);
  int texts = 0;
  for (const Json& one : golden["cases"]) {
    const std::string name = one["name"];
    const Input input(one);
    const Outcome got =
        Classify(host, input.Tokens(INLAY_CLASSIFICATION_LOGITS));
    ExpectNear(got.label_logits, one["logits"], tolerance, name);
    EXPECT_EQ(got.label_scores, got.label_logits);
    if (!input.has_text) continue;
    ++texts;
    inlay_session* session = host.NewSession();
    const Outcome of_text =
        host.Run(session, input.Text(INLAY_CLASSIFICATION_LOGITS));
    EXPECT_EQ(of_text.label_logits, got.label_logits) << name;
    EXPECT_EQ(host.Log(session), input.tokens) << name;
    inlay_session_release(session);
  }
  const bool has_tokenizer =
      std::filesystem::exists(ModelPath(GetParam()) + "/tokenizer.json");
  EXPECT_EQ(texts, has_tokenizer ? 10 : 0);
}

// Pairs and single texts side by side, some of them waiting for others.
TEST_P(ClassifierTest, TheSameInAnyCompany) {
  const Json golden = GoldenOf(GetParam());
  const Host alone(ModelPath(GetParam()));
  auto engine = EngineDefaults();
  engine.max_batch_tokens = 120;
  const Host crowded(ModelPath(GetParam()), engine);
  std::vector<Input> inputs;
  for (int round = 0; round < 4; ++round) {
    for (const Json& one : golden["cases"]) inputs.emplace_back(one);
  }
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto options = inputs[i].Tokens(INLAY_CLASSIFICATION_DEFAULT);
    if (i % 3 == 2) {
      options.classification = INLAY_CLASSIFICATION_NONE;
      options.embedding = INLAY_EMBEDDING_MEAN;
    }
    sessions.push_back(crowded.NewSession());
    requests.push_back(crowded.Submit(sessions.back(), options));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Outcome got = crowded.Finish(requests[i]);
    EXPECT_EQ(got.finish.status, INLAY_OK) << got.message;
    if (i % 3 == 2) {
      EXPECT_EQ(got.embedding.size(), 32u);
    } else {
      const Outcome want =
          Classify(alone, inputs[i].Tokens(INLAY_CLASSIFICATION_DEFAULT));
      EXPECT_EQ(got.label_logits, want.label_logits) << i;
      EXPECT_EQ(got.label_scores, want.label_scores) << i;
    }
    inlay_session_release(sessions[i]);
  }
  EXPECT_EQ(crowded.Stats().kv_blocks_used, 0u);
}

// What scores are, of the logits of a case: the default of each model is in
// its config.json, or follows from its labels.
TEST_P(ClassifierTest, Scores) {
  const std::string name = GetParam();
  const Input input(GoldenOf(name)["cases"].back());
  const Host host(ModelPath(name));
  const auto run = [&](int32_t classification) {
    return Classify(host, input.Tokens(classification));
  };
  const std::vector<float> logits =
      run(INLAY_CLASSIFICATION_LOGITS).label_logits;
  std::vector<float> sigmoid, softmax;
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  for (const float x : logits) {
    sigmoid.push_back(static_cast<float>(1 / (1 + std::exp(-double{x}))));
    softmax.push_back(static_cast<float>(std::exp(double{x}) / sum));
  }
  const auto expect = [&](int32_t classification,
                          const std::vector<float>& want) {
    const Outcome got = run(classification);
    EXPECT_EQ(got.label_logits, logits);
    ASSERT_EQ(got.label_scores.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_FLOAT_EQ(got.label_scores[i], want[i]) << i;
  };
  expect(INLAY_CLASSIFICATION_SIGMOID, sigmoid);
  expect(INLAY_CLASSIFICATION_SOFTMAX, softmax);
  expect(INLAY_CLASSIFICATION_DEFAULT,
         name == "xlm_roberta_labels"                      ? softmax
         : name == "roberta_reranker" || logits.size() > 1 ? logits
                                                           : sigmoid);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ClassifierTest,
    ::testing::Values(
        "bert_reranker", "bert_labels", "roberta_reranker", "roberta_labels",
        "xlm_roberta_reranker", "xlm_roberta_labels", "modernbert_labels",
        "distilbert_labels", "electra_labels", "gte_labels", "mpnet_labels",
        "albert_labels", "roberta_prelayernorm_labels", "xlm_roberta_xl_labels",
        "ernie_labels", "megatron_bert_labels", "data2vec_text_labels",
        "rembert_labels", "roformer_labels", "nomic_bert_labels",
        "deberta_v3_labels", "deberta_v2_labels", "deberta_labels"));

// bert's goldens of hidden states have pairs too.
TEST(PairTest, EmbeddingsOfPairs) {
  const Json golden = GoldenOf("bert");
  const Host host(ModelPath("bert"));
  int pairs = 0;
  for (const Json& one : golden["cases"]) {
    const Input input(one);
    auto options = input.Tokens(INLAY_CLASSIFICATION_NONE);
    options.embedding = INLAY_EMBEDDING_MEAN;
    ExpectNear(host.RunAlone(options).embedding, one["mean_pooled"],
               1e-4 * one["hidden_std"].get<double>(), one["name"]);
    for (const int32_t type : input.types) pairs += type != 0 ? 1 : 0;
  }
  EXPECT_GT(pairs, 0) << "of a second type";
}

// A pair is the whole log whatever was there; types are the request's own.
TEST(PairTest, IsTheWholeLog) {
  const Json golden = GoldenOf("bert_reranker");
  const Host host(ModelPath("bert_reranker"));
  inlay_session* session = host.NewSession();
  for (const Json& one : golden["cases"]) {
    const Input input(one);
    if (!input.is_pair) continue;
    const Outcome got =
        host.Run(session, input.Text(INLAY_CLASSIFICATION_LOGITS));
    EXPECT_EQ(host.Log(session), input.tokens);
    ExpectNear(got.label_logits, one["logits"], ToleranceOf(golden), "again");
  }
  // The log as it is, of one type.
  const std::vector<int32_t> log = host.Log(session);
  auto options = Defaults(inlay_request_options_init_sized);
  options.classification = INLAY_CLASSIFICATION_LOGITS;
  const Outcome resumed = host.Run(session, options);
  auto plain = TokensRequest(log, -1);
  plain.classification = INLAY_CLASSIFICATION_LOGITS;
  EXPECT_EQ(resumed.label_logits, Classify(host, plain).label_logits);
  // The tokens that follow may have types.
  const std::vector<int32_t> more = {8, 9, 3};
  const std::vector<int32_t> types = {1, 1, 1};
  options = TokensRequest(more, -1);
  options.token_types = types.data();
  options.classification = INLAY_CLASSIFICATION_LOGITS;
  const Outcome appended = host.Run(session, options);
  std::vector<int32_t> all = log;
  all.insert(all.end(), more.begin(), more.end());
  std::vector<int32_t> all_types(log.size(), 0);
  all_types.insert(all_types.end(), types.begin(), types.end());
  auto whole = TokensRequest(all, -1);
  whole.token_types = all_types.data();
  whole.classification = INLAY_CLASSIFICATION_LOGITS;
  EXPECT_EQ(appended.label_logits, Classify(host, whole).label_logits);
  whole.token_types = nullptr;
  EXPECT_NE(appended.label_logits, Classify(host, whole).label_logits);
  inlay_session_release(session);
}

TEST(PairTest, Refused) {
  Error error;
  const std::string text = "a fox", other = "a den";
  auto options = Defaults(inlay_request_options_init_sized);
  options.text = text.data();
  options.text_bytes = text.size();
  options.text_pair = other.data();
  options.text_pair_bytes = other.size();
  options.max_tokens = 1;
  // Models that generate, with a tokenizer and without.
  for (const std::string& path : {SmallModel(), TinyModel()}) {
    EXPECT_EQ(TrySubmit(Host(path), options, error), INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("no encoder"));
  }
  options.max_tokens = -1;
  options.classification = INLAY_CLASSIFICATION_DEFAULT;
  EXPECT_EQ(TrySubmit(Host(ModelPath("bert_labels")), options, error),
            INLAY_UNSUPPORTED);
  EXPECT_THAT(error.message(), HasSubstr("tokenizer"));

  const Host host(ModelPath("bert_reranker"));
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_OK) << error.message();
  auto wrong = options;
  wrong.text = nullptr;
  wrong.text_bytes = 0;
  EXPECT_EQ(TrySubmit(host, wrong, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("text_pair"));
  wrong = options;
  wrong.text_pair = nullptr;
  EXPECT_EQ(TrySubmit(host, wrong, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("text_pair"));
  // 80 positions; every letter of such a word is a token.
  const std::string longer(78, 'q');
  wrong = options;
  wrong.text_pair = longer.data();
  wrong.text_pair_bytes = longer.size();
  EXPECT_EQ(TrySubmit(host, wrong, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("context takes 80"));
  auto engine = EngineDefaults();
  engine.max_batch_tokens = 4;
  engine.max_running = 4;
  EXPECT_EQ(TrySubmit(Host(ModelPath("bert_reranker"), engine), options, error),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("max_batch_tokens"));
}

TEST(PairTest, BadTypes) {
  Error error;
  const std::vector<int32_t> tokens = {5, 6, 7};
  for (const int32_t bad : {2, -1, 1 << 30}) {
    const std::vector<int32_t> types = {0, 1, bad};
    auto options = TokensRequest(tokens, -1);
    options.classification = INLAY_CLASSIFICATION_LOGITS;
    options.token_types = types.data();
    EXPECT_EQ(TrySubmit(Host(ModelPath("bert_labels")), options, error),
              INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("token_types[2]"));
    EXPECT_THAT(error.message(), HasSubstr("0 to 1"));
  }
  // No types but 0 where a model has one.
  const std::vector<int32_t> types = {0, 1, 0};
  auto options = TokensRequest(tokens, -1);
  options.token_types = types.data();
  options.classification = INLAY_CLASSIFICATION_LOGITS;
  EXPECT_EQ(TrySubmit(Host(ModelPath("roberta_labels")), options, error),
            INLAY_INVALID_ARGUMENT);
  options.classification = INLAY_CLASSIFICATION_NONE;
  options.max_tokens = 1;
  EXPECT_EQ(TrySubmit(Host(), options, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("token_types[1]"));
  options.tokens = nullptr;
  options.num_tokens = 0;
  EXPECT_EQ(TrySubmit(Host(), options, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("token_types"));
}

TEST(ClassificationTest, BadOptions) {
  Error error;
  const std::vector<int32_t> tokens = {5, 6, 7};
  auto options = TokensRequest(tokens, -1);
  options.classification = INLAY_CLASSIFICATION_DEFAULT;
  // Without a head: a decoder, an encoder.
  for (const std::string& path : {TinyModel(), ModelPath("bert")}) {
    EXPECT_EQ(TrySubmit(Host(path), options, error), INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("no classification head"));
  }
  const Host host(ModelPath("bert_labels"));
  for (const int32_t value : {-1, 5}) {
    options.classification = value;
    EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("classification"));
  }
  options.classification = INLAY_CLASSIFICATION_DEFAULT;
  options.embedding = INLAY_EMBEDDING_CLS;
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  options.embedding = INLAY_EMBEDDING_NONE;
  options.max_tokens = 2;
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("max_tokens"));
  options.max_tokens = 0;
  options.logits = INLAY_LOGITS_LAST;
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  options.logits = INLAY_LOGITS_NONE;
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_OK) << error.message();
}

// Copies of a model whose files say something else.
class BrokenTest : public ::testing::Test {
 protected:
  BrokenTest() {
    const char* name =
        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = ::testing::TempDir() + "classifier_" + name;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~BrokenTest() override { std::filesystem::remove_all(folder_); }

  // Replaces `from` by `to`, as long, in the weights' header; writes `config`.
  void Copy(const std::string& model, const Json& config,
            const std::string& from = "", const std::string& to = "") {
    std::ifstream file(ModelPath(model) + "/model.safetensors",
                       std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    std::string weights = bytes.str();
    ASSERT_EQ(from.size(), to.size());
    const size_t at = weights.find(from);
    ASSERT_NE(at, weights.npos) << from;
    weights.replace(at, from.size(), to);
    std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << weights;
    std::ofstream(folder_ + "/config.json") << config;
  }
  static Json ConfigOf(const std::string& model) {
    Json config;
    std::ifstream(ModelPath(model) + "/config.json") >> config;
    return config;
  }
  inlay_status Load(Error& error) const {
    inlay_model* model = nullptr;
    const Host host("");
    const inlay_status status = inlay_model_load(host.engine, folder_.c_str(),
                                                 nullptr, &model, error.out());
    inlay_model_release(model);
    return status;
  }

  std::string folder_;
};

TEST_F(BrokenTest, Checkpoints) {
  Error error;
  const Json bert = ConfigOf("bert_labels");
  Copy("bert_labels", bert);
  EXPECT_EQ(Load(error), INLAY_OK) << error.message();
  const struct {
    const char* model;
    const char* from;
    const char* to;
    inlay_status status;
  } cases[] = {
      {"bert_labels", "\"classifier.weight\"", "\"klassifier.weight\"",
       INLAY_NOT_FOUND},
      {"bert_labels", "\"classifier.bias\"", "\"klassifier.bias\"",
       INLAY_NOT_FOUND},
      {"bert_labels", "bert.pooler.dense.weight", "bert.pooled.dense.weight",
       INLAY_NOT_FOUND},
      {"roberta_labels", "classifier.out_proj.weight",
       "classifier.out_porj.weight", INLAY_NOT_FOUND},
      {"roberta_labels", "classifier.dense.bias", "classifier.dance.bias",
       INLAY_NOT_FOUND},
      {"bert_labels", "\"shape\":[3,32]", "\"shape\":[32,3]",
       INLAY_INVALID_ARGUMENT},
      {"bert_labels", "\"shape\":[3]", "\"shape\":[4]", INLAY_INVALID_ARGUMENT},
  };
  for (const auto& one : cases) {
    Copy(one.model, ConfigOf(one.model), one.from, one.to);
    EXPECT_EQ(Load(error), one.status) << one.to << ": " << error.message();
  }
}

TEST_F(BrokenTest, Labels) {
  Error error;
  Json config = ConfigOf("bert_labels");
  const auto load = [&](const Json& id2label, const Json& num_labels = {}) {
    config["id2label"] = id2label;
    config["num_labels"] = num_labels;
    if (num_labels.is_null()) config.erase("num_labels");
    Copy("bert_labels", config);
    return Load(error);
  };
  const Json three = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  EXPECT_EQ(load(three), INLAY_OK) << error.message();
  EXPECT_EQ(load(nullptr, 3), INLAY_OK) << error.message();
  EXPECT_EQ(load(three, 7), INLAY_OK) << "transformers goes by id2label";
  for (const Json& bad : {Json::object(), Json::array(), Json("x"),
                          Json({{"0", "a"}, {"2", "b"}}), Json({{"0", 5}}),
                          Json({{"-1", "a"}}), Json({{"", "a"}})}) {
    EXPECT_EQ(load(bad), INLAY_INVALID_ARGUMENT) << bad;
    EXPECT_THAT(error.message(), HasSubstr("id2label")) << bad;
  }
  for (const Json& bad : {Json(0), Json(-3), Json(1 << 30), Json("x")}) {
    EXPECT_EQ(load(nullptr, bad), INLAY_INVALID_ARGUMENT) << bad;
    EXPECT_THAT(error.message(), HasSubstr("num_labels")) << bad;
  }
  // As many as the checkpoint has not: 2 is what transformers assumes.
  EXPECT_EQ(load(nullptr), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("classifier.weight"));
  EXPECT_EQ(load({{"0", "a"}}), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("classifier.weight"));
}

TEST_F(BrokenTest, ActivationsThatAreNotThere) {
  Json config = ConfigOf("bert_labels");
  config["sentence_transformers"] = {
      {"activation_fn", "torch.nn.modules.activation.Hardtanh"}};
  Copy("bert_labels", config);
  const Host host(folder_);
  Error error;
  const std::vector<int32_t> tokens = {5, 6, 7};
  auto options = TokensRequest(tokens, -1);
  options.classification = INLAY_CLASSIFICATION_DEFAULT;
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_UNSUPPORTED);
  EXPECT_THAT(error.message(), HasSubstr("Hardtanh"));
  options.classification = INLAY_CLASSIFICATION_LOGITS;
  EXPECT_EQ(Classify(host, options).label_scores.size(), 3u);
}

TEST_F(BrokenTest, LogitsThatAreNotFinite) {
  Json config = ConfigOf("bert_reranker");
  std::filesystem::copy(ModelPath("bert_reranker") + "/model.safetensors",
                        folder_);
  std::ofstream(folder_ + "/config.json") << config;
  std::fstream file(folder_ + "/model.safetensors",
                    std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  std::string text(header, ' ');
  file.read(text.data(), static_cast<std::streamsize>(header));
  const Json tensors = Json::parse(text);
  const auto offset =
      tensors["classifier.bias"]["data_offsets"][0].get<uint64_t>();
  file.seekp(static_cast<std::streamoff>(8 + header + offset));
  const float nan = std::nanf("");
  file.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
  file.close();
  const Host host(folder_);
  const std::vector<int32_t> tokens = {5, 6, 7};
  auto options = TokensRequest(tokens, -1);
  options.classification = INLAY_CLASSIFICATION_DEFAULT;
  const Outcome outcome = host.RunAlone(options);
  EXPECT_EQ(outcome.finish.finish_reason, INLAY_FINISH_ERROR);
  EXPECT_THAT(outcome.message, HasSubstr("not finite"));
  EXPECT_TRUE(outcome.label_logits.empty());
}

// Weights in 8 bits, inputs as they are. transformers, its matrices rounded to
// 8 bits in groups of 32 as well, is off by 0.13 (bert_reranker) and 0.01 of
// the logits' deviation (root mean square over the cases).
TEST_F(BrokenTest, QuantisedWeights) {
  Error error;
  for (const std::string& model :
       {std::string("bert_reranker"), std::string("roberta_labels")}) {
    const std::string out = folder_ + "/" + model;
    auto options = Defaults(inlay_quantize_options_init_sized);
    options.type = "i8_g32";
    options.num_threads = 1;
    options.no_tokenizer = model == "roberta_labels" ? 1 : 0;
    ASSERT_EQ(inlay_quantize(ModelPath(model).c_str(), out.c_str(), &options,
                             nullptr, error.out()),
              INLAY_OK)
        << error.message();
    const Json golden = GoldenOf(model);
    auto load = ModelDefaults();
    load.kernels = "gemm=cpu_scalar";  // others round inputs, too
    const Host host(out, EngineDefaults(), load);
    double squares = 0;
    int count = 0;
    for (const Json& one : golden["cases"]) {
      const Input input(one);
      const Outcome got =
          Classify(host, input.Tokens(INLAY_CLASSIFICATION_LOGITS));
      ASSERT_EQ(got.label_logits.size(), one["logits"].size());
      for (size_t i = 0; i < got.label_logits.size(); ++i, ++count) {
        const double off = got.label_logits[i] - one["logits"][i].get<double>();
        squares += off * off;
      }
    }
    const double rms = std::sqrt(squares / count);
    EXPECT_GT(rms, ToleranceOf(golden)) << "nothing was rounded";
    EXPECT_LT(rms, 0.2 * golden["logit_std"].get<double>()) << model;
  }
}

TEST(ClassificationTest, ByTheCppHeader) {
  const Json golden = GoldenOf("bert_reranker");
  inlay_engine_options options = EngineDefaults();
  auto engine = Engine::Create(&options);
  ASSERT_TRUE(engine.ok());
  auto model = engine->Load(ModelPath("bert_reranker"));
  ASSERT_TRUE(model.ok()) << model.error().message();
  std::string query;
  std::vector<std::string> singles, others;
  std::vector<double> of_singles, of_pairs;
  for (const Json& one : golden["cases"]) {
    if (!one.contains("text")) continue;
    const double logit = one["logits"][0];
    if (one.contains("text_pair")) {
      query = one["text"];
      others.push_back(one["text_pair"]);
      of_pairs.push_back(1 / (1 + std::exp(-logit)));
    } else {
      singles.push_back(one["text"]);
      of_singles.push_back(1 / (1 + std::exp(-logit)));
    }
  }
  const auto expect = [&](auto got, const std::vector<double>& want) {
    ASSERT_TRUE(got.ok()) << got.error().message();
    ASSERT_EQ(got->size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ((*got)[i].size(), 1u);
      EXPECT_NEAR((*got)[i][0], want[i], ToleranceOf(golden)) << i;
    }
  };
  expect(engine->Classify(*model, singles), of_singles);
  expect(engine->ClassifyPairs(*model, query, others), of_pairs);
  const auto wrong = engine->Classify(*model, singles, 9);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().status(), INLAY_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace inlay::testing
