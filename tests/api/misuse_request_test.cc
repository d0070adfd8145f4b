// Requests that must not start: each names its option and value, leaves the
// session as it was, and the next request runs.
#include <gmock/gmock.h>

#include <climits>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::function<void(inlay_request_options&)> spoil;
  std::vector<std::string> words;
  inlay_status status = INLAY_INVALID_ARGUMENT;
};

// On a session that holds {1, 2, 3} and one generated token, with the input
// {4, 5}.
void ExpectRefused(const Host& host, const std::vector<Case>& cases) {
  const std::vector<int32_t> first = {1, 2, 3}, second = {4, 5};
  inlay_session* session = host.NewSession();
  host.Run(session, TokensRequest(first, 1));
  const std::vector<int32_t> log = host.Log(session);
  const auto before = host.Stats();
  for (size_t i = 0; i < cases.size(); ++i) {
    auto options = TokensRequest(second, 1);
    cases[i].spoil(options);
    Error error;
    auto* request = reinterpret_cast<inlay_request*>(1);
    const inlay_status status =
        inlay_session_submit(session, &options, &request, error.out());
    EXPECT_EQ(status, cases[i].status)
        << "case " << i << ": " << inlay_status_name(status) << ": "
        << error.message();
    EXPECT_EQ(request, nullptr) << "case " << i;
    for (const std::string& word : cases[i].words) {
      EXPECT_THAT(error.message(), HasSubstr(word)) << "case " << i;
    }
    if (status == INLAY_OK) {
      inlay_request_release(request);
      host.Step();
    }
    ASSERT_EQ(host.Log(session), log) << "case " << i;
    ASSERT_EQ(host.Info(session).busy, 0u) << "case " << i;
  }
  EXPECT_EQ(host.Stats().submitted_requests, before.submitted_requests);
  EXPECT_EQ(host.Run(session, TokensRequest(second, 1)).finish.status,
            INLAY_OK);
  EXPECT_EQ(host.Log(session).size(), log.size() + 3);
  inlay_session_release(session);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  host.ExpectWorks();
}

TEST(Request, Inputs) {
  static const std::vector<int32_t> negative = {4, -1}, above = {4, 5, 512},
                                    extreme = {INT_MIN};
  static const std::vector<int32_t> too_long(600, 7);
  const auto tokens = [](const std::vector<int32_t>& ids) {
    return [&ids](auto& o) {
      o.tokens = ids.data();
      o.num_tokens = ids.size();
    };
  };
  ExpectRefused(
      Host(),
      {
          {[](auto& o) { o.struct_size = 3; }, {"struct_size", "3"}},
          {[](auto& o) { o.input_mode = 2; }, {"input_mode", "2"}},
          {[](auto& o) { o.input_mode = -1; }, {"input_mode", "-1"}},
          {[](auto& o) { o.tokens = nullptr; }, {"tokens", "null", "2"}},
          {[](auto& o) { o.num_tokens = SIZE_MAX; }, {"tokens"}},
          {[](auto& o) { o.text = "a", o.text_bytes = 1; }, {"more than one"}},
          {[](auto& o) { o.chat = "{}", o.chat_bytes = 2; }, {"more than one"}},
          {[](auto& o) { o.text_bytes = 5; }, {"text", "null", "5"}},
          {[](auto& o) { o.chat_bytes = 5; }, {"chat", "null", "5"}},
          {[](auto& o) { o.text_flags = 64; }, {"text_flags", "0x40"}},
          {tokens(negative), {"tokens[1]", "-1", "511"}},
          {tokens(above), {"tokens[2]", "512", "511"}},
          {tokens(extreme), {"tokens[0]", std::to_string(INT_MIN)}},
          {tokens(too_long), {"604", "512"}},
          {[](auto& o) {
             o.tokens = nullptr;
             o.num_tokens = 0;
             o.input_mode = INLAY_INPUT_REPLACE;
           },
           {"empty"}},
          // This model has no tokenizer.
          {[](auto& o) {
             o.tokens = nullptr, o.num_tokens = 0;
             o.text = "a", o.text_bytes = 1;
           },
           {"tokenizer"},
           INLAY_UNSUPPORTED},
          {[](auto& o) {
             o.tokens = nullptr, o.num_tokens = 0;
             o.chat = "{}", o.chat_bytes = 2;
           },
           {"tokenizer"},
           INLAY_UNSUPPORTED},
      });
}

TEST(Request, StopsAndLimits) {
  static const char* const empty_string[] = {"a", ""};
  static const char* const null_string[] = {"a", nullptr};
  static const std::string long_string(1025, 'x');
  static const char* const too_long[] = {long_string.c_str()};
  static const std::vector<const char*> too_many(65, "a");
  static const int32_t bad_stop[] = {2, 3, 512};
  ExpectRefused(
      Host(PocketModel()),
      {
          {[](auto& o) { o.max_tokens = -2; }, {"max_tokens", "-2"}},
          {[](auto& o) { o.max_tokens = INT_MIN; },
           {"max_tokens", std::to_string(INT_MIN)}},
          {[](auto& o) { o.ignore_eos = 2; }, {"ignore_eos", "2"}},
          {[](auto& o) { o.num_stop_tokens = 2; }, {"stop_tokens", "null"}},
          {[](auto& o) { o.num_stop_strings = 1; }, {"stop_strings", "null"}},
          {[](auto& o) {
             o.stop_strings = null_string;
             o.num_stop_strings = 2;
           },
           {"stop_strings", "null"}},
          {[](auto& o) {
             o.stop_strings = empty_string;
             o.num_stop_strings = 2;
           },
           {"stop string", "1", "0 bytes"}},
          {[](auto& o) {
             o.stop_strings = too_long;
             o.num_stop_strings = 1;
           },
           {"1025", "1024"}},
          {[](auto& o) {
             o.stop_strings = too_many.data();
             o.num_stop_strings = too_many.size();
           },
           {"65", "64"}},
          {[](auto& o) {
             o.stop_strings = too_many.data();
             o.num_stop_strings = SIZE_MAX;
           },
           {"stop_strings"}},
      });
  ExpectRefused(Host(), {{[](auto& o) {
                            o.stop_tokens = bad_stop;
                            o.num_stop_tokens = 3;
                          },
                          {"stop_tokens[2]", "512"}},
                         {[](auto& o) {
                            o.stop_strings = too_many.data();
                            o.num_stop_strings = 1;
                          },
                          {"tokenizer"},
                          INLAY_UNSUPPORTED}});
}

TEST(Request, Sampling) {
  static const inlay_logit_bias outside[] = {{1, 0.5f}, {512, 1.0f}};
  static const inlay_logit_bias banned_outside[] = {{-3, -kInf}};
  static const inlay_logit_bias nan_bias[] = {{7, kNan}};
  static const inlay_logit_bias inf_bias[] = {{7, kInf}};
  const auto biased = [](const inlay_logit_bias* bias, size_t count) {
    return [=](auto& o) {
      o.logit_bias = bias;
      o.num_logit_bias = count;
    };
  };
  ExpectRefused(
      Host(),
      {
          {[](auto& o) { o.temperature = kNan; }, {"temperature", "nan"}},
          {[](auto& o) { o.temperature = -1; }, {"temperature", "-1"}},
          {[](auto& o) { o.temperature = kInf; }, {"temperature", "inf"}},
          {[](auto& o) { o.top_k = -1; }, {"top_k", "-1"}},
          {[](auto& o) { o.top_p = 1.5f; }, {"top_p", "1.5"}},
          {[](auto& o) { o.top_p = kNan; }, {"top_p", "nan"}},
          {[](auto& o) { o.min_p = -0.5f; }, {"min_p", "-0.5"}},
          {[](auto& o) { o.repetition_penalty = 0; },
           {"repetition_penalty", "0"}},
          {[](auto& o) { o.frequency_penalty = kNan; },
           {"frequency_penalty", "nan"}},
          {[](auto& o) { o.presence_penalty = kInf; },
           {"presence_penalty", "inf"}},
          {[](auto& o) { o.num_logprobs = 129; },
           {"num_logprobs", "129", "128"}},
          {[](auto& o) { o.num_logprobs = INT_MAX; }, {"num_logprobs"}},
          {[](auto& o) { o.num_logprobs = -2; }, {"num_logprobs", "-2"}},
          {[](auto& o) { o.num_logit_bias = 1; }, {"logit_bias", "null"}},
          {biased(outside, 2), {"logit_bias", "512"}},
          {biased(banned_outside, 1), {"-3"}},
          {biased(nan_bias, 1), {"logit_bias", "nan"}},
          {biased(inf_bias, 1), {"logit_bias", "inf"}},
          {biased(inf_bias, SIZE_MAX), {"logit_bias"}},
      });
}

TEST(Request, Logits) {
  static const int64_t position = 0;
  ExpectRefused(
      Host(), {
                  {[](auto& o) { o.logits = 5; }, {"logits", "5"}},
                  {[](auto& o) { o.logits = -1; }, {"logits", "-1"}},
                  {[](auto& o) { o.num_logits_positions = 4; },
                   {"logits_positions", "null", "4"}},
                  {[](auto& o) {
                     o.logits_positions = &position;
                     o.num_logits_positions = SIZE_MAX;
                   },
                   {"logits_positions"}},
                  {[](auto& o) { o.score_prompt = 7; }, {"score_prompt", "7"}},
              });
}

TEST(Request, InAnotherSessionState) {
  Host host;
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2};
  inlay_request* running = host.Submit(session, TokensRequest(prompt, 8));
  const auto options = TokensRequest(prompt, 1);
  Error error;
  inlay_request* second = nullptr;
  inlay_session* fork = nullptr;
  EXPECT_EQ(inlay_session_submit(session, &options, &second, error.out()),
            INLAY_INVALID_STATE);
  EXPECT_THAT(error.message(), HasSubstr("busy"));
  EXPECT_EQ(inlay_session_fork(session, &fork, error.out()),
            INLAY_INVALID_STATE);
  EXPECT_EQ(inlay_session_rewind(session, 0, error.out()), INLAY_INVALID_STATE);
  EXPECT_EQ(host.Info(session).busy, 1u);
  EXPECT_EQ(host.Finish(running).tokens.size(), 8u);
  EXPECT_EQ(inlay_session_rewind(session, 11, error.out()),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("11"));
  EXPECT_THAT(error.message(), HasSubstr("10"));
  EXPECT_EQ(inlay_session_rewind(session, 10, error.out()), INLAY_OK);
  inlay_session_release(session);
  host.ExpectWorks();
}

TEST(Request, OverTheQueueAndTheCache) {
  auto options = EngineDefaults();
  options.max_queue = 1;
  options.max_running = 1;
  auto model = ModelDefaults();
  model.kv_budget_bytes = 64 * 1024;
  Host host(TinyModel(), options, model);
  Error error;
  const std::vector<int32_t> prompt = {1, 2};
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  inlay_status status = INLAY_OK;
  while (status == INLAY_OK && sessions.size() < 8) {
    sessions.push_back(host.NewSession());
    const auto asked = TokensRequest(prompt, 4);
    inlay_request* request = nullptr;
    status =
        inlay_session_submit(sessions.back(), &asked, &request, error.out());
    if (request != nullptr) requests.push_back(request);
  }
  EXPECT_EQ(status, INLAY_RESOURCE_EXHAUSTED) << error.message();
  EXPECT_THAT(error.message(), HasSubstr("1"));
  for (inlay_request* request : requests) {
    EXPECT_EQ(host.Finish(request).finish.status, INLAY_OK);
  }
  // Never fits the cache.
  auto info = Defaults(inlay_model_info_init_sized);
  ASSERT_EQ(inlay_model_get_info(host.model, &info, nullptr), INLAY_OK);
  ASSERT_LT(info.kv_capacity_tokens, 400u);
  const std::vector<int32_t> long_prompt(info.kv_capacity_tokens + 20, 5);
  const auto asked = TokensRequest(long_prompt, 4);
  inlay_request* request = nullptr;
  EXPECT_EQ(inlay_session_submit(sessions[0], &asked, &request, error.out()),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_FALSE(error.message().empty());
  for (inlay_session* session : sessions) inlay_session_release(session);
  host.ExpectWorks();
}

}  // namespace
}  // namespace inlay::testing
