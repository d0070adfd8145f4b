// Named prefixes as a host sees them.
#include <gmock/gmock.h>

#include <functional>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

class PrefixHost : public Host {
 public:
  using Host::Host;

  inlay_status Create(const char* name, const std::vector<int32_t>& tokens,
                      inlay_prefix** prefix, Error& error, uint32_t pin = 1,
                      uint64_t budget_bytes = 0) const {
    auto options = Defaults(inlay_prefix_options_init);
    options.tokens = tokens.data();
    options.num_tokens = tokens.size();
    options.pin = pin;
    options.budget_bytes = budget_bytes;
    return inlay_prefix_create(model, name, &options, prefix, error.out());
  }
  inlay_prefix* New(const char* name, const std::vector<int32_t>& tokens,
                    uint32_t pin = 1) const {
    Error error;
    inlay_prefix* prefix = nullptr;
    EXPECT_EQ(Create(name, tokens, &prefix, error, pin), INLAY_OK)
        << error.message();
    return prefix;
  }
  inlay_session* Open(inlay_prefix* prefix) const {
    Error error;
    inlay_session* session = nullptr;
    EXPECT_EQ(inlay_prefix_open(prefix, &session, error.out()), INLAY_OK)
        << error.message();
    return session;
  }
  inlay_prefix_info PrefixInfo(inlay_prefix* prefix) const {
    Error error;
    auto info = Defaults(inlay_prefix_info_init);
    EXPECT_EQ(inlay_prefix_get_info(prefix, &info, error.out()), INLAY_OK)
        << error.message();
    return info;
  }
  inlay_status Find(const char* name) const {
    Error error;
    inlay_prefix* found = nullptr;
    const auto status = inlay_prefix_find(model, name, &found, error.out());
    EXPECT_EQ(found != nullptr, status == INLAY_OK);
    if (status != INLAY_OK) {
      EXPECT_THAT(error.message(), HasSubstr(name));
    }
    inlay_prefix_release(found);
    return status;
  }
  // Steps while there is something to do.
  void StepAll() const {
    for (int i = 0; i < 10'000; ++i) {
      if (Step().more_work == 0) return;
    }
    ADD_FAILURE() << "no end of work";
  }
  // Fills the cache with what nobody needs.
  void Flood() const {
    for (int i = 0; i < 8; ++i)
      RunAlone(TokensRequest(Tokens(300 + 11 * i, 100), 8));
  }
};

class Sharing : public ::testing::TestWithParam<uint32_t> {
 protected:
  static inlay_engine_options Options() {
    auto options = EngineDefaults();
    options.prefix_sharing = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Prefix, Sharing, ::testing::Values(0u, 1u),
                         [](const auto& param) {
                           return param.param == 1 ? "Shared" : "Isolated";
                         });

TEST_P(Sharing, PinnedOnesAreComputedOnceAndStay) {
  PrefixHost host(TinyModel(), Options(), SmallCache());
  const auto tokens = Tokens(3, 50);
  const std::vector<int32_t> question = {9, 8, 7};
  auto whole = tokens;
  whole.insert(whole.end(), question.begin(), question.end());
  const auto expected = host.RunAlone(TokensRequest(whole, 10)).tokens;

  inlay_prefix* prefix = host.New("system", tokens);
  auto info = host.PrefixInfo(prefix);
  EXPECT_EQ(info.pinned, 1u);
  EXPECT_EQ(info.num_tokens, 50u);
  EXPECT_EQ(info.kv_bytes, 7u * 8 * 1024) << "whole blocks";
  host.StepAll();
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 50u);
  EXPECT_EQ(host.Stats().kv_blocks_used, 7u);
  EXPECT_EQ(inlay_event_next(host.engine, 0, nullptr, nullptr),
            INLAY_INVALID_ARGUMENT);
  Error error;
  inlay_event* event = nullptr;
  EXPECT_EQ(inlay_event_next(host.engine, 0, &event, error.out()),
            INLAY_TIMEOUT)
      << "computing it is the engine's own business";

  host.Flood();
  EXPECT_GT(host.Stats().evictions, 0u);
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 50u);
  for (int i = 0; i < 2; ++i) {
    inlay_session* session = host.Open(prefix);
    EXPECT_EQ(host.Log(session), tokens);
    EXPECT_EQ(host.Info(session).num_cached, 50u);
    const Outcome outcome = host.Run(session, TokensRequest(question, 10));
    EXPECT_EQ(outcome.tokens, expected);
    EXPECT_GE(outcome.finish.cached_tokens, 50u);
    inlay_session_release(session);
  }
  // Other sessions find it only where they may.
  const Outcome other = host.RunAlone(TokensRequest(whole, 10));
  EXPECT_EQ(other.tokens, expected);
  EXPECT_EQ(other.finish.cached_tokens > 0, GetParam() == 1);
  inlay_prefix_release(prefix);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  EXPECT_EQ(host.Stats().num_sessions, 0u);
}

TEST_P(Sharing, SessionsOutliveIt) {
  PrefixHost host(TinyModel(), Options(), SmallCache());
  const auto tokens = Tokens(5, 30);
  const std::vector<int32_t> question = {1};
  inlay_prefix* prefix = host.New("p", tokens);
  inlay_session* before = host.Open(prefix);  // before it is computed
  host.StepAll();
  inlay_session* after = host.Open(prefix);
  inlay_session* fork = nullptr;
  ASSERT_EQ(inlay_session_fork(after, &fork, nullptr), INLAY_OK);
  inlay_request* running = host.Submit(after, TokensRequest(question, 12));
  host.Step();
  inlay_prefix_release(prefix);
  EXPECT_EQ(host.Find("p"), INLAY_NOT_FOUND);
  const auto expected = host.Finish(running).tokens;
  EXPECT_EQ(expected.size(), 12u);
  EXPECT_EQ(host.Run(before, TokensRequest(question, 12)).tokens, expected);
  host.Flood();
  EXPECT_EQ(host.Run(fork, TokensRequest(question, 12)).tokens, expected);
  for (inlay_session* session : {before, after, fork})
    inlay_session_release(session);
}

TEST_P(Sharing, UnpinnedOnesAreTokensWithAName) {
  PrefixHost host(TinyModel(), Options(), SmallCache());
  inlay_prefix* prefix = host.New("later", Tokens(8, 40), /*pin=*/0);
  EXPECT_EQ(host.Step().num_requests, 0u);
  EXPECT_EQ(host.PrefixInfo(prefix).pinned, 0u);
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 0u);
  inlay_session* session = host.Open(prefix);
  const auto expected = host.Run(session, TokensRequest({}, 6)).tokens;
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 40u)
      << "its sessions leave it in the cache";
  host.Flood();
  EXPECT_LT(host.PrefixInfo(prefix).num_cached, 40u)
      << "as long as there is room";

  Error error;
  ASSERT_EQ(inlay_prefix_pin(prefix, 1, error.out()), INLAY_OK)
      << error.message();
  host.StepAll();
  host.Flood();
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 40u);
  EXPECT_EQ(host.Stats().kv_blocks_used, 5u);
  ASSERT_EQ(inlay_prefix_pin(prefix, 1, error.out()), INLAY_OK) << "again";
  EXPECT_EQ(host.Stats().kv_blocks_used, 5u);
  ASSERT_EQ(inlay_prefix_pin(prefix, 0, error.out()), INLAY_OK);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  inlay_session* again = host.Open(prefix);
  EXPECT_EQ(host.Run(again, TokensRequest({}, 6)).tokens, expected);
  inlay_session_release(session);
  inlay_session_release(again);
  inlay_prefix_release(prefix);
}

TEST(Prefix, HasAsManyHoldersAsHandles) {
  PrefixHost host(TinyModel(), EngineDefaults(), SmallCache());
  const auto tokens = Tokens(3, 20);
  for (const bool first_goes_first : {true, false}) {
    inlay_prefix* made = host.New("p", tokens);
    inlay_prefix* found = nullptr;
    ASSERT_EQ(inlay_prefix_find(host.model, "p", &found, nullptr), INLAY_OK);
    EXPECT_NE(made, found);
    Error error;
    auto* clash = reinterpret_cast<inlay_prefix*>(1);
    EXPECT_EQ(host.Create("p", tokens, &clash, error), INLAY_INVALID_STATE);
    EXPECT_THAT(error.message(), HasSubstr("\"p\""));
    EXPECT_EQ(clash, nullptr);
    inlay_prefix_release(first_goes_first ? made : found);
    inlay_prefix_release(first_goes_first ? made : found);  // twice is once
    inlay_prefix* left = first_goes_first ? found : made;
    EXPECT_EQ(host.PrefixInfo(left).num_tokens, 20u);
    EXPECT_EQ(host.Find("p"), INLAY_OK);
    inlay_prefix_release(left);
    EXPECT_EQ(host.Find("p"), INLAY_NOT_FOUND);
  }
  // Names are of a model.
  PrefixHost other(TinyModel(), EngineDefaults(), SmallCache());
  inlay_prefix* here = host.New("p", tokens);
  EXPECT_EQ(other.Find("p"), INLAY_NOT_FOUND);
  inlay_prefix_release(here);
}

TEST(Prefix, BegunAndForgotten) {
  PrefixHost host(TinyModel(), EngineDefaults(), SmallCache());
  inlay_prefix_release(host.New("p", Tokens(3, 100)));
  host.StepAll();
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  // Unpinned before it was computed.
  inlay_prefix* prefix = host.New("p", Tokens(3, 100));
  ASSERT_EQ(inlay_prefix_pin(prefix, 0, nullptr), INLAY_OK);
  host.StepAll();
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  inlay_prefix_release(prefix);
  // Under a name that another had while that was being computed.
  inlay_prefix_release(host.New("p", Tokens(3, 100)));
  prefix = host.New("p", Tokens(200, 60));
  host.StepAll();
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 60u);
  EXPECT_EQ(host.Stats().kv_blocks_used, 8u);
  inlay_prefix_release(prefix);
  host.ExpectWorks();
}

TEST(Prefix, WaitsForRoomAndThenStays) {
  PrefixHost host(TinyModel(), EngineDefaults(), SmallCache());
  inlay_session* session = host.NewSession();
  const auto long_prompt = Tokens(2, 200);
  inlay_request* running = host.Submit(session, TokensRequest(long_prompt, 40));
  host.Step();
  inlay_prefix* prefix = host.New("p", Tokens(90, 120));
  const Outcome outcome = host.Finish(running);
  EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
  EXPECT_EQ(outcome.tokens.size(), 40u);
  host.StepAll();
  EXPECT_EQ(host.PrefixInfo(prefix).num_cached, 120u);
  inlay_session_release(session);
  inlay_prefix_release(prefix);
}

TEST(Prefix, OfTextAndChat) {
  PrefixHost host(SmallModel());
  const std::string text = "Once upon a time";
  auto options = Defaults(inlay_prefix_options_init);
  options.text = text.data();
  options.text_bytes = text.size();
  Error error;
  inlay_prefix* prefix = nullptr;
  ASSERT_EQ(
      inlay_prefix_create(host.model, "text", &options, &prefix, error.out()),
      INLAY_OK)
      << error.message();
  inlay_session* session = host.Open(prefix);
  int32_t ids[64];
  size_t count = 0;
  inlay_model_tokenize(host.model, text.data(), text.size(), options.text_flags,
                       ids, 64, &count, nullptr);
  EXPECT_EQ(host.Log(session), std::vector<int32_t>(ids, ids + count));
  inlay_session_release(session);
  inlay_prefix_release(prefix);

  const std::string chat =
      R"({"messages":[{"role":"system","content":"Be brief."}]})";
  options = Defaults(inlay_prefix_options_init);
  options.chat = chat.data();
  options.chat_bytes = chat.size();
  Host pocket(PocketModel());
  ASSERT_EQ(
      inlay_prefix_create(pocket.model, "chat", &options, &prefix, error.out()),
      INLAY_OK)
      << error.message();
  // What inlay_chat_render() gives: no beginning of an answer.
  inlay_buffer* rendered = nullptr;
  ASSERT_EQ(inlay_chat_render(pocket.model, chat.data(), chat.size(), &rendered,
                              error.out()),
            INLAY_OK);
  auto info = Defaults(inlay_prefix_info_init);
  ASSERT_EQ(inlay_prefix_get_info(prefix, &info, nullptr), INLAY_OK);
  inlay_model_tokenize(pocket.model, inlay_buffer_data(rendered),
                       inlay_buffer_size(rendered), INLAY_TEXT_PARSE_SPECIAL,
                       ids, 64, &count, nullptr);
  EXPECT_EQ(info.num_tokens, count);
  inlay_buffer_release(rendered);
  inlay_prefix_release(prefix);
}

TEST(Prefix, Misuse) {
  PrefixHost host(TinyModel(), EngineDefaults(), SmallCache());
  const auto good = Tokens(3, 10);
  struct Case {
    std::function<void(inlay_prefix_options&)> spoil;
    std::vector<std::string> words;
    inlay_status status = INLAY_INVALID_ARGUMENT;
    std::string name = "p";
  };
  const std::vector<int32_t> foreign = {1, 512}, negative = {-1};
  const std::vector<int32_t> endless(2000, 1);
  const auto set = [](inlay_prefix_options& o,
                      const std::vector<int32_t>& tokens) {
    o.tokens = tokens.data();
    o.num_tokens = tokens.size();
  };
  const std::vector<Case> cases = {
      {[](auto& o) { o.pin = 2; }, {"pin", "2"}},
      {[](auto& o) { o.num_tokens = 0; }, {"empty"}},
      {[](auto& o) { o.tokens = nullptr; }, {"tokens"}},
      {[](auto& o) { o.num_tokens = SIZE_MAX; }, {"tokens"}},
      {[](auto& o) { o.text = "a", o.text_bytes = 1; }, {"text", "tokens"}},
      {[](auto& o) { o.text_flags = 64; }, {"text_flags", "0x40"}},
      {[&](auto& o) { set(o, foreign); }, {"tokens[1]", "512", "511"}},
      {[&](auto& o) { set(o, negative); }, {"tokens[0]", "-1"}},
      {[&](auto& o) { set(o, endless); }, {"2000"}},
      {[](auto&) {}, {"name"}, INLAY_INVALID_ARGUMENT, ""},
      {[](auto& o) {
         o.tokens = nullptr;
         o.num_tokens = 0;
         o.text = "a";
         o.text_bytes = 1;
       },
       {"tokenizer"},
       INLAY_UNSUPPORTED},
      {[](auto& o) { o.budget_bytes = 8 * 1024; },
       {"\"p\"", "16384", "8192"},
       INLAY_RESOURCE_EXHAUSTED},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    auto options = Defaults(inlay_prefix_options_init);
    set(options, good);
    cases[i].spoil(options);
    Error error;
    auto* prefix = reinterpret_cast<inlay_prefix*>(1);
    EXPECT_EQ(inlay_prefix_create(host.model, cases[i].name.c_str(), &options,
                                  &prefix, error.out()),
              cases[i].status)
        << "case " << i << ": " << error.message();
    EXPECT_EQ(prefix, nullptr);
    for (const std::string& word : cases[i].words)
      EXPECT_THAT(error.message(), HasSubstr(word)) << "case " << i;
  }
  EXPECT_EQ(host.Find("p"), INLAY_NOT_FOUND) << "a failure leaves no name";

  inlay_prefix* prefix = host.New("p", good);
  Error error;
  for (const int32_t pinned : {-1, 2}) {
    EXPECT_EQ(inlay_prefix_pin(prefix, pinned, error.out()),
              INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("pinned"));
  }
  inlay_prefix_release(prefix);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  host.ExpectWorks();
}

// What is larger than the cache, or than it may be, is refused when it is
// pinned, and changes nothing.
TEST(Prefix, TooLargeToPin) {
  PrefixHost host(TinyModel(), EngineDefaults(), SmallCache());
  Error error;
  inlay_prefix* prefix = nullptr;
  const auto large = Tokens(1, 270);  // of 256
  EXPECT_EQ(host.Create("large", large, &prefix, error),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_THAT(error.message(), HasSubstr(std::to_string(34 * 8 * 1024)));
  EXPECT_EQ(host.Create("large", large, &prefix, error, /*pin=*/0), INLAY_OK)
      << error.message();
  EXPECT_EQ(inlay_prefix_pin(prefix, 1, error.out()), INLAY_RESOURCE_EXHAUSTED);
  EXPECT_EQ(host.PrefixInfo(prefix).pinned, 0u);
  inlay_prefix_release(prefix);

  EXPECT_EQ(host.Create("dear", Tokens(1, 80), &prefix, error, /*pin=*/0,
                        /*budget_bytes=*/64 * 1024),
            INLAY_OK)
      << error.message();
  EXPECT_EQ(inlay_prefix_pin(prefix, 1, error.out()), INLAY_RESOURCE_EXHAUSTED)
      << "80 KiB of 64";
  inlay_prefix_release(prefix);
  host.ExpectWorks();
}

TEST(Prefix, OfAReleasedEngineIsClosed) {
  PrefixHost host(TinyModel(), EngineDefaults(), SmallCache());
  inlay_prefix* prefix = host.New("p", Tokens(1, 10));
  inlay_prefix* other = nullptr;
  inlay_session* session = nullptr;
  inlay_engine_release(host.engine);
  Error error;
  auto info = Defaults(inlay_prefix_info_init);
  EXPECT_EQ(inlay_prefix_get_info(prefix, &info, error.out()), INLAY_CLOSED);
  EXPECT_EQ(inlay_prefix_pin(prefix, 0, error.out()), INLAY_CLOSED);
  EXPECT_EQ(inlay_prefix_open(prefix, &session, error.out()), INLAY_CLOSED);
  EXPECT_EQ(inlay_prefix_find(host.model, "p", &other, error.out()),
            INLAY_CLOSED);
  EXPECT_EQ(host.Create("q", Tokens(1, 10), &other, error), INLAY_CLOSED);
  inlay_prefix_release(prefix);
}

}  // namespace
}  // namespace inlay::testing
