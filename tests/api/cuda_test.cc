// What only an engine on a GPU does, and what is said where there is none.
#include <gmock/gmock.h>

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

}  // namespace
}  // namespace inlay::testing
