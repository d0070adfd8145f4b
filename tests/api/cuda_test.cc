// What only an engine on a GPU does, and what is said where there is none.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/api/host.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

inlay_engine_options OnGpu() {
  auto options = EngineDefaults();
  options.backend = INLAY_BACKEND_CUDA;
  return options;
}

// Null where CUDA is not to be had, and then the reason is in `error`.
inlay_engine* Create(inlay_engine_options options, Error& error) {
  inlay_engine* engine = nullptr;
  inlay_engine_create(&options, &engine, error.out());
  return engine;
}

TEST(Cuda, WithoutItTheReasonIsSaidAndAutoIsTheCpu) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine != nullptr) {
    inlay_engine_release(engine);
    GTEST_SKIP() << "there is a GPU";
  }
  EXPECT_EQ(error.status(), INLAY_UNSUPPORTED);
  EXPECT_THAT(error.message(), AnyOf(HasSubstr("no CUDA backend"),
                                     HasSubstr("driver"), HasSubstr("GPU")));
  auto options = EngineDefaults();
  options.backend = INLAY_BACKEND_AUTO;
  engine = Create(options, error);
  ASSERT_NE(engine, nullptr) << error.message();
  auto info = Defaults(inlay_device_info_init);
  ASSERT_EQ(inlay_engine_device(engine, &info, error.out()), INLAY_OK);
  EXPECT_EQ(info.backend, INLAY_BACKEND_CPU);
  EXPECT_EQ(info.num_processors, 2u);
  inlay_engine_release(engine);
}

TEST(Cuda, TheDeviceAndWhatItSays) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  auto info = Defaults(inlay_device_info_init);
  ASSERT_EQ(inlay_engine_device(engine, &info, error.out()), INLAY_OK);
  EXPECT_EQ(info.backend, INLAY_BACKEND_CUDA);
  EXPECT_GE(info.compute_capability, 80u);
  EXPECT_GT(info.num_processors, 1u);
  EXPECT_STRNE(info.name, "");
  double rate = 0;
  ASSERT_EQ(inlay_engine_measure_copy(engine, 256 << 20, &rate, error.out()),
            INLAY_OK);
  EXPECT_GT(rate, 1e10);
  EXPECT_EQ(inlay_engine_set_memory_budget(engine, 0, 64 << 20, error.out()),
            INLAY_OK);
  EXPECT_EQ(inlay_engine_measure_copy(engine, 256 << 20, &rate, error.out()),
            INLAY_RESOURCE_EXHAUSTED);
  inlay_engine_release(engine);

  auto options = OnGpu();
  options.gpu = 1000;
  EXPECT_EQ(inlay_engine_create(&options, &engine, error.out()),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("1000"));
}

TEST(Cuda, GeneratesAndReportsWhereMemoryEnds) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  inlay_engine_release(engine);
  const Host gpu(SmallModel(), OnGpu());
  const Host cpu(SmallModel());
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9, 10};
  const auto tokens = [&](const Host& host) {
    return host.RunAlone(TokensRequest(prompt, 12)).tokens;
  };
  EXPECT_EQ(tokens(gpu), tokens(cpu));

  auto tiny = ModelDefaults();
  tiny.kv_budget_bytes = 1000;
  inlay_model* model = nullptr;
  EXPECT_EQ(inlay_model_load(gpu.engine, SmallModel().c_str(), &tiny, &model,
                             error.out()),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_EQ(inlay_engine_set_memory_budget(gpu.engine, 0, 1, error.out()),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_EQ(tokens(gpu), tokens(cpu)) << "the engine goes on";
}

TEST(Cuda, AttendsByAPattern) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  inlay_engine_release(engine);
  // Of float32 weights.
  const std::string path = TestData() + "/models/llama2";
  auto options = ModelDefaults();
  options.attention_pattern = "block=16,window=32,global=16,random=32";
  const Host gpu(path, OnGpu(), options);
  const Host cpu(path, EngineDefaults(), options);
  const Host dense(path, OnGpu());
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 200; ++i) prompt.push_back(7 + 13 * i % 300);
  const auto request = TokensRequest(prompt, 40);
  const auto tokens = gpu.RunAlone(request).tokens;
  EXPECT_EQ(tokens, cpu.RunAlone(request).tokens);
  EXPECT_NE(tokens, dense.RunAlone(request).tokens);
}

// Alone and beside others. In float32 as everywhere; of bf16 weights layers
// hand on bf16: some 12 matrices, in and out of which a relative 2.3e-3 is
// lost, in all 8e-3 of the states' deviation, as norms keep them at one size;
// the worst of a few hundred values is five times that. (An emulation that
// rounds so is off by 5e-3, at most 1.8e-2.)
TEST(Cuda, EncodersGiveWhatTransformersGives) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  inlay_engine_release(engine);
  constexpr struct {
    int32_t embedding;
    const char* golden;
  } kPoolings[] = {{INLAY_EMBEDDING_CLS, "cls"},
                   {INLAY_EMBEDDING_MEAN, "mean_pooled"}};
  for (const auto& [name, tolerance] :
       {std::pair{"bert", 1e-4}, std::pair{"xlm_roberta", 4e-2}}) {
    SCOPED_TRACE(name);
    const std::string path = TestData() + "/models/" + name;
    nlohmann::json golden;
    std::ifstream(path + "/golden.json") >> golden;
    const Host gpu(path, OnGpu());
    for (const auto& pooling : kPoolings) {
      const char* const key = pooling.golden;
      std::vector<inlay_session*> sessions;
      std::vector<inlay_request*> together;
      std::vector<std::vector<int32_t>> tokens, types;
      for (const auto& one : golden["cases"]) {
        tokens.push_back(one["input_ids"]);
        types.push_back(one["token_type_ids"]);
      }
      const auto options_of = [&](size_t i) {
        auto options = TokensRequest(tokens[i], -1);
        options.token_types = types[i].data();
        options.embedding = pooling.embedding;
        return options;
      };
      for (size_t i = 0; i < tokens.size(); ++i) {
        sessions.push_back(gpu.NewSession());
        together.push_back(gpu.Submit(sessions.back(), options_of(i)));
      }
      double worst = 0;
      for (size_t i = 0; i < tokens.size(); ++i) {
        const auto& one = golden["cases"][i];
        const double deviation = one["hidden_std"].get<double>();
        for (const auto& got : {gpu.Finish(together[i]).embedding,
                                gpu.RunAlone(options_of(i)).embedding}) {
          ASSERT_EQ(got.size(), one[key].size());
          for (size_t d = 0; d < got.size(); ++d) {
            const double off = std::fabs(got[d] - one[key][d].get<double>());
            EXPECT_LT(off, tolerance * deviation) << key << " " << i;
            worst = std::max(worst, off / deviation);
          }
        }
        inlay_session_release(sessions[i]);
      }
      std::printf("%-12s %-12s off by at most %.1e\n", name, key, worst);
    }
  }
}

// Windows both ways, Dense modules, labels of the mean; weights in bf16. As
// above, with up to 20 matrices in and out of which layers hand on bf16: 2.3e-3
// * sqrt(2 * 20) = 1.5e-2 of the states' deviation, five times that the worst
// of some hundred values; a Dense module or a head adds a matrix or two, and
// what it gives may be twice as large as what it reads.
TEST(Cuda, EmbeddersGiveWhatTransformersGives) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  inlay_engine_release(engine);
  constexpr double kTolerance = 7.5e-2;
  for (const char* name : {"gemma3_embedding",
                           "modernbert_labels",
                           "distilbert_labels",
                           "electra_labels",
                           "electra_narrow",
                           "nomic_bert",
                           "gte_labels",
                           "jina_embeddings_v3",
                           "jina_bert",
                           "jina_bert_code",
                           "eurobert",
                           "mpnet_labels",
                           "nomic_bert_moe",
                           "albert_labels",
                           "roberta_prelayernorm_labels",
                           "xlm_roberta_xl_labels",
                           "ernie_labels",
                           "megatron_bert_labels",
                           "data2vec_text_labels",
                           "t5_encoder",
                           "mt5_encoder",
                           "umt5_encoder",
                           "rembert_labels",
                           "roformer_labels",
                           "nomic_bert_labels",
                           "deberta_v3_labels",
                           "deberta_v2",
                           "deberta_v2_labels",
                           "deberta_labels"}) {
    SCOPED_TRACE(name);
    const std::string path = TestData() + "/models/" + name;
    nlohmann::json golden;
    std::ifstream(path + "/golden.json") >> golden;
    const Host gpu(path, OnGpu());
    double worst = 0;
    for (const auto& one : golden["cases"]) {
      const std::vector<int32_t> tokens = one["input_ids"];
      const std::vector<int32_t> types =
          one.value("token_type_ids", std::vector<int32_t>());
      const auto expect = [&](const std::vector<float>& got, const char* key,
                              double scale) {
        ASSERT_EQ(got.size(), one[key].size()) << key;
        for (size_t d = 0; d < got.size(); ++d) {
          const double off = std::fabs(got[d] - one[key][d].get<double>());
          EXPECT_LT(off, kTolerance * scale) << key << " " << one["name"];
          worst = std::max(worst, off / scale);
        }
      };
      auto options = TokensRequest(tokens, -1);
      options.token_types = types.empty() ? nullptr : types.data();
      const double deviation = one["hidden_std"];
      for (const auto& [key, embedding] :
           {std::pair{"cls", INLAY_EMBEDDING_CLS},
            std::pair{"mean", INLAY_EMBEDDING_MEAN},
            std::pair{"default", INLAY_EMBEDDING_DEFAULT}}) {
        options.embedding = embedding;
        expect(gpu.RunAlone(options).embedding, key, deviation);
      }
      if (!one.contains("logits")) continue;
      options.embedding = INLAY_EMBEDDING_NONE;
      options.classification = INLAY_CLASSIFICATION_LOGITS;
      expect(gpu.RunAlone(options).label_logits, "logits",
             std::max(1.0, 2 * golden["logit_std"].get<double>()));
    }
    std::printf("%-18s off by at most %.1e\n", name, worst);
  }
}

// Encoders, whole and beside others, and a decoder. bf16 weights have layers
// hand on bf16 there, float32 on the CPU.
TEST(Cuda, EmbeddingsAreThoseOfTheCpu) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  inlay_engine_release(engine);
  for (const char* name : {"bert", "xlm_roberta", "llama2"}) {
    SCOPED_TRACE(name);
    const std::string path = TestData() + "/models/" + name;
    const Host gpu(path, OnGpu());
    const Host cpu(path);
    std::vector<std::vector<int32_t>> texts;
    for (int32_t i = 0; i < 6; ++i) {
      std::vector<int32_t>& text = texts.emplace_back();
      for (int32_t j = 0; j < 5 + 25 * i; ++j)
        text.push_back(5 + (11 * i + 13 * j) % 290);
    }
    std::vector<inlay_session*> sessions;
    std::vector<inlay_request*> together;
    const auto options_of = [](const std::vector<int32_t>& text) {
      auto options = TokensRequest(text, -1);
      options.embedding = INLAY_EMBEDDING_MEAN;
      options.normalise = 1;
      return options;
    };
    for (const auto& text : texts) {
      sessions.push_back(gpu.NewSession());
      together.push_back(gpu.Submit(sessions.back(), options_of(text)));
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto want = cpu.RunAlone(options_of(texts[i])).embedding;
      for (const auto& got : {gpu.Finish(together[i]).embedding,
                              gpu.RunAlone(options_of(texts[i])).embedding}) {
        ASSERT_EQ(got.size(), want.size());
        double cosine = 0.0;
        for (size_t d = 0; d < want.size(); ++d) cosine += got[d] * want[d];
        EXPECT_GT(cosine, 0.999) << i;
      }
      inlay_session_release(sessions[i]);
    }
  }
}

// Single texts and pairs, alone and beside others. bf16 weights have layers
// hand on bf16: a relative 2^-9 for each of some ten roundings between
// embedding and logits, which a few layers amplify several times.
TEST(Cuda, LabelsAreThoseOfTheCpu) {
  Error error;
  inlay_engine* engine = Create(OnGpu(), error);
  if (engine == nullptr) GTEST_SKIP() << error.message();
  inlay_engine_release(engine);
  for (const char* name :
       {"bert_reranker", "bert_labels", "roberta_reranker", "roberta_labels",
        "xlm_roberta_reranker", "xlm_roberta_labels"}) {
    SCOPED_TRACE(name);
    const std::string path = TestData() + "/models/" + name;
    nlohmann::json golden;
    std::ifstream(path + "/golden.json") >> golden;
    const bool exact = std::string(name) == "bert_reranker";
    const double tolerance =
        (exact ? 1e-4 : 0.1) * golden["logit_std"].get<double>();
    const Host gpu(path, OnGpu());
    std::vector<std::vector<int32_t>> tokens, types;
    for (const auto& one : golden["cases"]) {
      tokens.push_back(one["input_ids"]);
      types.push_back(one["token_type_ids"]);
    }
    const auto options_of = [&](size_t i) {
      auto options = TokensRequest(tokens[i], -1);
      options.token_types = types[i].data();
      options.classification = INLAY_CLASSIFICATION_LOGITS;
      return options;
    };
    std::vector<inlay_session*> sessions;
    std::vector<inlay_request*> together;
    for (size_t i = 0; i < tokens.size(); ++i) {
      sessions.push_back(gpu.NewSession());
      together.push_back(gpu.Submit(sessions.back(), options_of(i)));
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto& want = golden["cases"][i]["logits"];
      for (const auto& got : {gpu.Finish(together[i]).label_logits,
                              gpu.RunAlone(options_of(i)).label_logits}) {
        ASSERT_EQ(got.size(), want.size());
        for (size_t label = 0; label < got.size(); ++label)
          EXPECT_NEAR(got[label], want[label].get<double>(), tolerance) << i;
      }
      inlay_session_release(sessions[i]);
    }
  }
}

}  // namespace
}  // namespace inlay::testing
