// Text in and out of the engine: the model that ships answers, streams whole
// characters, and stops before its stop strings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::Outcome;
using ::inlay::testing::PocketModel;

RequestOptions Chat(const std::string& user) {
  RequestOptions options;
  options.input = InputKind::kChat;
  options.text =
      R"({"messages":[{"role":"user","content":")" + user + R"("}]})";
  return options;
}

TEST(TextTest, AnswersAChat) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  const Outcome outcome = harness.RunAlone(Chat("946 - 73"));
  EXPECT_EQ(outcome.text, "873");
  EXPECT_EQ(outcome.bytes, "873");
  EXPECT_EQ(outcome.finish.reason, FinishReason::kStop);
  EXPECT_EQ(outcome.finish.stop_token, 6);
}

TEST(TextTest, ALaterTurnFindsTheEarlierOnesCached) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  const SessionId session = *harness.runner().CreateSession();
  harness.Run(session, Chat("946 - 73"));
  RequestOptions options;
  options.input = InputKind::kChat;
  options.text =
      R"({"messages":[{"role":"user","content":"946 - 73"},
          {"role":"assistant","content":"873"},
          {"role":"user","content":"Echo: 90QW7 695-711"}]})";
  const Outcome second = harness.Run(session, options);
  EXPECT_EQ(second.text, "90QW7 695-711");
  EXPECT_GE(second.finish.cached_tokens, 10u);
}

TEST(TextTest, StopStringsAreNeverShown) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  const std::string prompt = "Tell a story about a fox and a lantern.";
  const Outcome whole = harness.RunAlone(Chat(prompt));
  ASSERT_GT(whole.text.size(), 200u);
  // Any piece of the story stops it just before.
  for (const size_t at : {size_t{3}, size_t{40}, size_t{77}, size_t{150}}) {
    const std::string stop = whole.text.substr(at, 9);
    RequestOptions options = Chat(prompt);
    options.stop_strings = {"never said", stop};
    const Outcome outcome = harness.RunAlone(options);
    EXPECT_EQ(outcome.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(outcome.finish.reason, FinishReason::kStop);
    EXPECT_EQ(outcome.finish.stop_string, 1);
    EXPECT_EQ(outcome.bytes, outcome.text.substr(0, outcome.bytes.size()));
  }
}

TEST(TextTest, SamplingReproducesBySeed) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  const auto run = [&](uint64_t seed) {
    RequestOptions options = Chat("Tell a story about a dog and a boat.");
    options.max_tokens = 60;
    options.sampling.temperature = 1.0f;
    options.sampling.seed = seed;
    return harness.RunAlone(options).tokens;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(TextTest, RawTextFollowsBos) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  RequestOptions options;
  options.input = InputKind::kText;
  options.text = "Once upon a time,";
  options.max_tokens = 8;
  const SessionId session = *harness.runner().CreateSession();
  const Outcome outcome = harness.Run(session, options);
  EXPECT_EQ(harness.runner().Tokens(session)->front(), 0);  // <|bos|>
  ASSERT_FALSE(outcome.text.empty());
  EXPECT_EQ(outcome.text.front(), ' ');
  // Text appended to a log gets no second BOS.
  options.text = " The end.";
  options.max_tokens = 0;
  const size_t before = harness.runner().Tokens(session)->size();
  harness.Run(session, options);
  EXPECT_NE((*harness.runner().Tokens(session))[before], 0);
}

TEST(TextTest, StopTokensInAnyOrder) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  const std::string prompt = "Tell a story about a fox and a lantern.";
  const Outcome whole = harness.RunAlone(Chat(prompt));
  ASSERT_GT(whole.tokens.size(), 20u);
  RequestOptions options = Chat(prompt);
  const int32_t stop = whole.tokens[15];
  options.stop_tokens = {4000, stop, 7, stop, 4001, 3999, 7};
  for (const int32_t other : {4000, 7, 4001, 3999})
    ASSERT_NE(other, stop) << "choose another position";
  const Outcome outcome = harness.RunAlone(options);
  EXPECT_EQ(outcome.finish.stop_token, stop);
  EXPECT_LE(outcome.tokens.size(), 16u);
}

// A text too long for the context is refused when that is known, a word too
// long for it before it is merged.
TEST(TextTest, TooLongTextsAreRefused) {
  EngineHarness harness(PocketModel());
  ASSERT_TRUE(harness.ok());
  const SessionId session = *harness.runner().CreateSession();
  RequestOptions options;
  options.input = InputKind::kText;
  options.max_tokens = 1;
  while (options.text.size() < size_t{1} << 20) options.text += "a fox ran. ";
  for (const bool one_word : {false, true}) {
    if (one_word) options.text.assign(size_t{64} << 20, 'a');
    const absl::Status status =
        harness.runner().Submit(session, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("more than 2048 tokens"));
    EXPECT_EQ(harness.runner().Quote(session, options, false).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(harness.runner().GetSessionInfo(session)->num_tokens, 0u);
}

}  // namespace
}  // namespace inlay
