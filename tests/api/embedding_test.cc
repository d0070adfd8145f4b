// Embeddings: what published models give, the same whatever else runs, and what
// is refused.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <inlay/inlay.hpp>
#include <nlohmann/json.hpp>

#include "tests/api/host.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

inlay_request_options Embed(const std::vector<int32_t>& tokens,
                            int32_t embedding, uint32_t normalise = 0) {
  auto options = TokensRequest(tokens, -1);
  options.embedding = embedding;
  options.normalise = normalise;
  return options;
}

std::vector<int32_t> EncoderTokens(int32_t first, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((first + 7 * i) % 300);
  return tokens;
}

std::vector<float> Vector(const Host& host, const inlay_request_options& from) {
  const Outcome outcome = host.RunAlone(from);
  EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
  EXPECT_TRUE(outcome.tokens.empty());
  EXPECT_EQ(outcome.finish.generated_tokens, 0u);
  return outcome.embedding;
}

void ExpectVector(const std::vector<float>& got, const Json& want,
                  double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i].get<double>(), tolerance) << what << " " << i;
}

// transformers' outputs in float32; the goldens' README gives the tolerance.
// Pairs of texts (token types other than 0) are classification_test.cc's.
class EncoderTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EncoderTest, GivesWhatTransformersGives) {
  Json golden;
  std::ifstream(ModelPath(GetParam()) + "/golden.json") >> golden;
  const Host host(ModelPath(GetParam()));
  int checked = 0;
  for (const Json& one : golden["cases"]) {
    bool pair = false;
    for (const Json& type : one.value("token_type_ids", Json::array()))
      pair |= type != 0;
    if (pair) continue;
    const auto tokens = one["input_ids"].get<std::vector<int32_t>>();
    const double tolerance = 1e-4 * one["hidden_std"].get<double>();
    const auto expect = [&](int32_t embedding, uint32_t normalise,
                            const Json& want, const std::string& what) {
      ExpectVector(Vector(host, Embed(tokens, embedding, normalise)), want,
                   tolerance, one["name"].get<std::string>() + " " + what);
    };
    expect(INLAY_EMBEDDING_CLS, 0, one["cls"], "cls");
    expect(INLAY_EMBEDDING_LAST, 0, one["last_hidden_state"].back(), "last");
    expect(INLAY_EMBEDDING_MEAN, 0, one["mean_pooled"], "mean");
    expect(INLAY_EMBEDDING_MEAN, 1, one["mean_pooled_normalised"],
           "normalised");
    // modules.json asks for the mean, normalised.
    expect(INLAY_EMBEDDING_DEFAULT, 0, one["mean_pooled_normalised"],
           "default");
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

TEST_P(EncoderTest, TheSameInAnyCompany) {
  const Host alone(ModelPath(GetParam()));
  auto engine = EngineDefaults();
  engine.max_batch_tokens = 160;
  auto cache = ModelDefaults();
  cache.kv_block_size = 16;
  cache.kv_budget_bytes = 1 << 19;  // for some of them at a time
  const Host crowded(ModelPath(GetParam()), engine, cache);
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  std::vector<std::vector<int32_t>> inputs;
  for (int i = 0; i < 40; ++i)
    inputs.push_back(EncoderTokens(i, 1 + 37 * i % 150));
  for (const auto& input : inputs) {
    sessions.push_back(crowded.NewSession());
    requests.push_back(
        crowded.Submit(sessions.back(), Embed(input, INLAY_EMBEDDING_MEAN)));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Outcome outcome = crowded.Finish(requests[i]);
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
    EXPECT_EQ(outcome.finish.cached_tokens, 0u);
    EXPECT_EQ(outcome.embedding,
              Vector(alone, Embed(inputs[i], INLAY_EMBEDDING_MEAN)))
        << "text " << i;
    inlay_session_release(sessions[i]);
  }
  EXPECT_EQ(crowded.Stats().kv_blocks_used, 0u);
  EXPECT_EQ(crowded.Stats().kv_blocks_cached, 0u) << "of no use to others";
}

// A session's log counts, and nothing of it is reused.
TEST_P(EncoderTest, OfTheWholeLog) {
  const Host host(ModelPath(GetParam()));
  const auto whole = EncoderTokens(5, 40);
  const std::vector<int32_t> first(whole.begin(), whole.begin() + 25);
  const std::vector<int32_t> rest(whole.begin() + 25, whole.end());
  inlay_session* session = host.NewSession();
  host.Run(session, Embed(first, INLAY_EMBEDDING_CLS));
  const Outcome outcome = host.Run(session, Embed(rest, INLAY_EMBEDDING_CLS));
  EXPECT_EQ(outcome.embedding, Vector(host, Embed(whole, INLAY_EMBEDDING_CLS)));
  EXPECT_EQ(outcome.finish.prompt_tokens, 40u);
  inlay_session_release(session);
}

TEST_P(EncoderTest, RefusesWhatItCannotDo) {
  auto engine = EngineDefaults();
  engine.max_batch_tokens = 32;
  engine.max_running = 32;
  const Host host(ModelPath(GetParam()), engine);
  Error error;
  const auto tokens = EncoderTokens(0, 5);
  EXPECT_EQ(TrySubmit(host, TokensRequest(tokens, 3), error),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("encoder"));
  auto logits = Embed(tokens, INLAY_EMBEDDING_MEAN);
  logits.logits = INLAY_LOGITS_LAST;
  EXPECT_EQ(TrySubmit(host, logits, error), INLAY_INVALID_ARGUMENT);
  const auto longer = EncoderTokens(0, 33);
  EXPECT_EQ(TrySubmit(host, Embed(longer, INLAY_EMBEDDING_MEAN), error),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("max_batch_tokens"));
  EXPECT_EQ(
      Vector(host, Embed(EncoderTokens(0, 32), INLAY_EMBEDDING_MEAN)).size(),
      64u);

  auto prefix_options = Defaults(inlay_prefix_options_init);
  prefix_options.tokens = tokens.data();
  prefix_options.num_tokens = tokens.size();
  inlay_prefix* prefix = nullptr;
  EXPECT_EQ(inlay_prefix_create(host.model, "p", &prefix_options, &prefix,
                                error.out()),
            INLAY_INVALID_ARGUMENT);
}

// With less time than any of them takes, a step takes one, whole.
TEST_P(EncoderTest, WithinATimeBudget) {
  const Host host(ModelPath(GetParam()));
  const Host alone(ModelPath(GetParam()));
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  std::vector<std::vector<int32_t>> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(EncoderTokens(i, 100));
  for (const auto& input : inputs) {
    sessions.push_back(host.NewSession());
    requests.push_back(
        host.Submit(sessions.back(), Embed(input, INLAY_EMBEDDING_MEAN)));
  }
  for (int step = 0; step < 20; ++step) host.Step(1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Outcome outcome = host.Finish(requests[i]);
    EXPECT_EQ(outcome.embedding,
              Vector(alone, Embed(inputs[i], INLAY_EMBEDDING_MEAN)));
    inlay_session_release(sessions[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderTest,
                         ::testing::Values("bert", "xlm_roberta"));

// The mean over a decoder's states, however its prompt is cut, preempted or
// found in the cache.
TEST(DecoderEmbeddingTest, TheSameHoweverComputed) {
  const auto tokens = EncoderTokens(3, 120);
  const Host whole;
  auto engine = EngineDefaults();
  engine.max_batch_tokens = 16;
  engine.max_running = 4;
  const Host cut(TinyModel(), engine);
  for (const int32_t embedding :
       {INLAY_EMBEDDING_MEAN, INLAY_EMBEDDING_CLS, INLAY_EMBEDDING_LAST,
        INLAY_EMBEDDING_DEFAULT}) {
    const auto want = Vector(whole, Embed(tokens, embedding));
    EXPECT_EQ(Vector(cut, Embed(tokens, embedding)), want) << embedding;
    EXPECT_EQ(Vector(cut, Embed(tokens, embedding)), want) << "cached";
  }
  EXPECT_EQ(Vector(whole, Embed(tokens, INLAY_EMBEDDING_DEFAULT)),
            Vector(whole, Embed(tokens, INLAY_EMBEDDING_LAST)));
  EXPECT_NE(Vector(whole, Embed(tokens, INLAY_EMBEDDING_MEAN)),
            Vector(whole, Embed(tokens, INLAY_EMBEDDING_LAST)));
  const Outcome last = cut.RunAlone(Embed(tokens, INLAY_EMBEDDING_LAST));
  EXPECT_GT(last.finish.cached_tokens, 0u) << "only the last state is wanted";
}

TEST(DecoderEmbeddingTest, BesideGenerations) {
  auto cache = ModelDefaults();
  cache.kv_block_size = 8;
  cache.kv_budget_bytes = 32 * 8 * 1024;  // 256 tokens: somebody makes way
  const Host quiet;
  const Host busy(TinyModel(), EngineDefaults(), cache);
  std::vector<std::vector<int32_t>> inputs;
  for (int i = 0; i < 12; ++i) inputs.push_back(EncoderTokens(11 * i, 40 + i));
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  const auto options = [&](size_t i) {
    return i % 2 == 0 ? TokensRequest(inputs[i], 60)
                      : Embed(inputs[i], INLAY_EMBEDDING_MEAN, 1);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    sessions.push_back(busy.NewSession());
    requests.push_back(busy.Submit(sessions.back(), options(i)));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Outcome got = busy.Finish(requests[i]);
    const Outcome want = quiet.RunAlone(options(i));
    EXPECT_EQ(got.tokens, want.tokens) << i;
    EXPECT_EQ(got.embedding, want.embedding) << i;
    inlay_session_release(sessions[i]);
  }
}

TEST(DecoderEmbeddingTest, NormalisedHasLengthOne) {
  const Host host;
  double squares = 0;
  for (const float x :
       Vector(host, Embed(EncoderTokens(1, 30), INLAY_EMBEDDING_MEAN, 1)))
    squares += double{x} * x;
  // In float64, and each element is rounded once, then squared here.
  EXPECT_NEAR(squares, 1.0, 2.01 * 0x1p-24);
}

TEST(DecoderEmbeddingTest, BadOptions) {
  const Host host;
  Error error;
  const auto tokens = EncoderTokens(0, 5);
  auto options = Embed(tokens, 5);
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("embedding"));
  options = Embed(tokens, -1);
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  options = Embed(tokens, INLAY_EMBEDDING_MEAN, 2);
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("normalise"));
  options = Embed(tokens, INLAY_EMBEDDING_MEAN);
  options.max_tokens = 1;
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("max_tokens"));
  options = Embed({}, INLAY_EMBEDDING_MEAN);
  EXPECT_EQ(TrySubmit(host, options, error), INLAY_INVALID_ARGUMENT);
}

TEST(DecoderEmbeddingTest, ByTheCppHeader) {
  inlay_engine_options options = EngineDefaults();
  auto engine = Engine::Create(&options);
  ASSERT_TRUE(engine.ok());
  auto model = engine->Load(SmallModel());
  ASSERT_TRUE(model.ok()) << model.error().message();
  const std::vector<std::string> texts = {"A fox.", "A lantern in the woods.",
                                          "A fox."};
  auto vectors = engine->Embed(*model, texts, INLAY_EMBEDDING_MEAN, true);
  ASSERT_TRUE(vectors.ok()) << vectors.error().message();
  ASSERT_EQ(vectors->size(), 3u);
  EXPECT_EQ((*vectors)[0], (*vectors)[2]);
  EXPECT_NE((*vectors)[0], (*vectors)[1]);
  EXPECT_EQ((*vectors)[0].size(), model->Info()->hidden_size);
  const auto wrong = engine->Embed(*model, texts, 9);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().status(), INLAY_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace inlay::testing
