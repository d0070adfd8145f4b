// What a request does between submit and FINISHED, as a host sees it, in both
// drive modes.
#include <gmock/gmock.h>
#include <poll.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using Clock = std::chrono::steady_clock;

const std::string kStory =
    R"({"messages":[{"role":"user","content":"Tell a story about a fox and a lantern."}]})";

inlay_engine_options DrivenBy(int32_t drive) {
  auto options = EngineDefaults();
  options.drive = drive;
  return options;
}

class BothDrives : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Drive, BothDrives,
                         ::testing::Values(INLAY_DRIVE_HOST,
                                           INLAY_DRIVE_THREAD),
                         [](const auto& param) {
                           return param.param == INLAY_DRIVE_HOST ? "Host"
                                                                  : "Thread";
                         });

TEST_P(BothDrives, StreamedChatIsTheTextOfItsTokens) {
  Host host(PocketModel(), DrivenBy(GetParam()));
  inlay_session* session = host.NewSession();
  auto options = ChatRequest(kStory, 60);
  int mark = 0;
  options.user_data = &mark;
  const Outcome outcome = host.Run(session, options);
  EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
  EXPECT_GT(outcome.text.size(), 50u);
  EXPECT_EQ(outcome.bytes, outcome.text);
  EXPECT_THAT(outcome.user_data, ::testing::ElementsAre(&mark));
  EXPECT_EQ(outcome.finish.generated_tokens, 60u);
  EXPECT_EQ(outcome.tokens.size(), 60u);

  Error error;
  inlay_buffer* text = nullptr;
  ASSERT_EQ(inlay_model_detokenize(host.model, outcome.tokens.data(),
                                   outcome.tokens.size(),
                                   INLAY_TEXT_SKIP_SPECIAL, &text, error.out()),
            INLAY_OK)
      << error.message();
  EXPECT_EQ(outcome.text, inlay_buffer_data(text));
  inlay_buffer_release(text);

  // The log is the rendered chat and what was generated.
  std::vector<int32_t> log = host.Log(session);
  ASSERT_EQ(log.size(), outcome.finish.prompt_tokens + 60);
  EXPECT_TRUE(
      std::equal(outcome.tokens.begin(), outcome.tokens.end(), log.end() - 60));
  EXPECT_LE(outcome.finish.queue_us, outcome.finish.first_token_us);
  EXPECT_LE(outcome.finish.first_token_us, outcome.finish.total_us);
  inlay_session_release(session);
}

TEST_P(BothDrives, EventsOfManyRequestsCarryTheirOwnData) {
  Host host(TinyModel(), DrivenBy(GetParam()));
  constexpr int kRequests = 5;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  std::vector<Outcome> expected;
  for (int i = 0; i < kRequests; ++i) {
    prompts.push_back({1, 20 + i, 30 + 2 * i});
    expected.push_back(host.RunAlone(TokensRequest(prompts.back(), 6 + i)));
  }
  for (int i = 0; i < kRequests; ++i) {
    sessions.push_back(host.NewSession());
    auto options = TokensRequest(prompts[i], 6 + i);
    options.user_data = &prompts[i];
    requests.push_back(host.Submit(sessions[i], options));
  }
  std::vector<Outcome> outcomes(kRequests);
  Error error;
  for (int finished = 0; finished < kRequests;) {
    if (GetParam() == INLAY_DRIVE_HOST) host.Step(1'000'000);
    inlay_event* event = nullptr;
    ASSERT_EQ(inlay_event_next(host.engine, 20'000'000, &event, error.out()),
              INLAY_OK)
        << error.message();
    auto info = Defaults(inlay_event_info_init_sized);
    ASSERT_EQ(inlay_event_get_info(event, &info, error.out()), INLAY_OK);
    const auto at = std::find(requests.begin(), requests.end(), info.request);
    ASSERT_NE(at, requests.end());
    const size_t index = static_cast<size_t>(at - requests.begin());
    EXPECT_EQ(info.user_data, &prompts[index]);
    outcomes[index].Take(event);
    finished += info.kind == INLAY_EVENT_FINISHED ? 1 : 0;
  }
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(outcomes[i].tokens, expected[i].tokens) << "alone or in a batch";
    inlay_event* event = nullptr;
    EXPECT_EQ(
        inlay_request_next_event(requests[i], UINT64_MAX, &event, error.out()),
        INLAY_END);
    EXPECT_TRUE(error.empty());
    inlay_request_release(requests[i]);
    inlay_session_release(sessions[i]);
  }
}

// The request an event names is one that calls know, even when the event was
// there before inlay_session_submit() returned.
TEST(Events, NameRequestsThatCanBeCancelled) {
  Host host(TinyModel(), DrivenBy(INLAY_DRIVE_THREAD));
  std::atomic<int> unknown{0}, finished{0};
  constexpr int kRequests = 200;
  std::thread reader([&] {
    while (finished < kRequests) {
      inlay_event* event = nullptr;
      if (inlay_event_next(host.engine, 20'000'000, &event, nullptr) !=
          INLAY_OK) {
        return;
      }
      auto info = Defaults(inlay_event_info_init_sized);
      inlay_event_get_info(event, &info, nullptr);
      if (inlay_request_cancel(info.request, nullptr) != INLAY_OK) ++unknown;
      if (info.kind == INLAY_EVENT_FINISHED) ++finished;
      inlay_event_release(event);
    }
  });
  const std::vector<int32_t> prompt = {1, 2};
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  for (int i = 0; i < kRequests; ++i) {
    sessions.push_back(host.NewSession());
    requests.push_back(host.Submit(sessions.back(), TokensRequest(prompt, 1)));
  }
  reader.join();
  EXPECT_EQ(unknown, 0);
  EXPECT_EQ(finished, kRequests);
  for (inlay_request* request : requests) inlay_request_release(request);
  for (inlay_session* session : sessions) inlay_session_release(session);
}

TEST_P(BothDrives, TheDescriptorIsReadableWhileAnEventWaits) {
  Host host(TinyModel(), DrivenBy(GetParam()));
  Error error;
  int32_t fd = -1, again = -1;
  ASSERT_EQ(inlay_engine_event_fd(host.engine, &fd, error.out()), INLAY_OK);
  ASSERT_EQ(inlay_engine_event_fd(host.engine, &again, error.out()), INLAY_OK);
  EXPECT_EQ(fd, again);
  const auto readable = [&](int timeout_ms) {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, timeout_ms) == 1;
  };
  EXPECT_FALSE(readable(0));
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2};
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 3));
  Outcome outcome;
  while (outcome.finished == 0) {
    if (GetParam() == INLAY_DRIVE_HOST) host.Step();
    ASSERT_TRUE(readable(20'000));
    inlay_event* event = nullptr;
    ASSERT_EQ(inlay_event_next(host.engine, 0, &event, error.out()), INLAY_OK);
    outcome.Take(event);
  }
  EXPECT_FALSE(readable(0));
  EXPECT_EQ(outcome.tokens.size(), 3u);
  inlay_request_release(request);

  // Events dropped with their request do not leave it readable.
  request = host.Submit(session, TokensRequest(prompt, 1));
  if (GetParam() == INLAY_DRIVE_HOST) host.Step();
  ASSERT_TRUE(readable(20'000));
  inlay_request_release(request);
  inlay_event* event = nullptr;
  EXPECT_EQ(inlay_event_next(host.engine, 20'000, &event, error.out()),
            INLAY_TIMEOUT);
  EXPECT_FALSE(readable(0));

  // Whoever waits for it is woken when the engine goes.
  std::thread waiter([&] { EXPECT_TRUE(readable(20'000)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  inlay_engine_release(host.engine);
  waiter.join();
  EXPECT_TRUE(readable(0));
  EXPECT_EQ(inlay_event_next(host.engine, 0, &event, error.out()),
            INLAY_INVALID_HANDLE);
  inlay_session_release(session);
}

TEST(Timeouts, AreHonoured) {
  Host host;
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2};
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 1));
  for (const uint64_t timeout_us : {0u, 20'000u}) {
    for (const bool of_request : {false, true}) {
      Error error;
      auto* event = reinterpret_cast<inlay_event*>(1);
      const auto begin = Clock::now();
      EXPECT_EQ(of_request ? inlay_request_next_event(request, timeout_us,
                                                      &event, error.out())
                           : inlay_event_next(host.engine, timeout_us, &event,
                                              error.out()),
                INLAY_TIMEOUT);
      const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
          Clock::now() - begin);
      EXPECT_GE(took.count(), static_cast<int64_t>(timeout_us));
      EXPECT_LT(took.count(), 5'000'000);
      EXPECT_TRUE(error.empty());
      EXPECT_EQ(event, nullptr);
    }
  }
  host.Finish(request);
  inlay_session_release(session);
}

// A waiter without limit is woken by the event, and by the engine's release.
TEST(Timeouts, WaitersWake) {
  Host host(TinyModel(), DrivenBy(INLAY_DRIVE_THREAD));
  inlay_engine* engine = host.engine;
  inlay_status first = INLAY_INTERNAL, second = INLAY_INTERNAL;
  std::thread waiter([&] {
    inlay_event* event = nullptr;
    do {
      first = inlay_event_next(engine, UINT64_MAX, &event, nullptr);
      auto info = Defaults(inlay_event_info_init_sized);
      if (first != INLAY_OK) return;
      inlay_event_get_info(event, &info, nullptr);
      inlay_event_release(event);
      if (info.kind == INLAY_EVENT_FINISHED) break;
    } while (true);
    second = inlay_event_next(engine, UINT64_MAX, &event, nullptr);
  });
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2};
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 2));
  while (host.Info(session).busy == 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  inlay_engine_release(engine);
  waiter.join();
  EXPECT_EQ(first, INLAY_OK);
  // Refused at the door when the release came before the call.
  EXPECT_TRUE(second == INLAY_CLOSED || second == INLAY_INVALID_HANDLE)
      << second;
  inlay_request_release(request);
  inlay_session_release(session);
}

TEST_P(BothDrives, ReleasesWhileRunning) {
  Host host(TinyModel(), DrivenBy(GetParam()));
  const std::vector<int32_t> prompt = {1, 2, 3};
  constexpr int kTokens = 300;
  Error error;
  int num_cancelled = 0;
  // An engine's own thread may have made them all by then.
  const auto expect_cancelled = [&](const Outcome& outcome) {
    if (GetParam() == INLAY_DRIVE_THREAD && outcome.tokens.size() == kTokens) {
      return;
    }
    ++num_cancelled;
    EXPECT_EQ(outcome.finish.finish_reason, INLAY_FINISH_CANCELLED);
    EXPECT_EQ(outcome.finish.status, INLAY_CANCELLED);
  };
  for (int i = 0; i < 20; ++i) {
    inlay_session* session = host.NewSession();
    inlay_request* request =
        host.Submit(session, TokensRequest(prompt, kTokens));
    if (GetParam() == INLAY_DRIVE_HOST) {
      for (int s = 0; s < i % 3; ++s) host.Step();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    }
    switch (i % 4) {
      case 0:  // request, then session
        inlay_request_release(request);
        inlay_session_release(session);
        break;
      case 1:  // session, then request
        inlay_session_release(session);
        inlay_request_release(request);
        break;
      case 2: {  // the session alone: its request ends as cancelled
        inlay_session_release(session);
        expect_cancelled(host.Finish(request));
        break;
      }
      default: {  // cancelled, then the session goes on
        EXPECT_EQ(inlay_request_cancel(request, error.out()), INLAY_OK);
        EXPECT_EQ(inlay_request_cancel(request, error.out()), INLAY_OK);
        expect_cancelled(host.Finish(request));
        EXPECT_EQ(host.Run(session, TokensRequest(prompt, 2)).finish.status,
                  INLAY_OK);
        inlay_session_release(session);
      }
    }
  }
  EXPECT_GT(num_cancelled, 0);
  // In thread mode the last step may still be giving back its blocks.
  for (int i = 0; i < 5000 && host.Stats().kv_blocks_used > 0; ++i) {
    if (GetParam() == INLAY_DRIVE_HOST) host.Step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto stats = host.Stats();
  EXPECT_EQ(stats.kv_blocks_used, 0u);
  EXPECT_EQ(stats.num_sessions, 0u);
  EXPECT_EQ(stats.running_requests + stats.waiting_requests, 0u);
  host.ExpectWorks();
}

TEST(Steps, ZeroBudgetIsOneStepAndMoreWorkSaysSo) {
  Host host;
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2, 3};
  EXPECT_EQ(host.Step().more_work, 0u);
  EXPECT_EQ(host.Step(1000).num_requests, 0u);
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 3));
  auto info = host.Step();
  EXPECT_EQ(info.num_requests, 1u);
  EXPECT_EQ(info.prefill_tokens, 3u);
  EXPECT_EQ(info.sampled_tokens, 1u);
  EXPECT_EQ(info.decode_tokens, 0u);
  EXPECT_EQ(info.more_work, 1u);
  info = host.Step();
  EXPECT_EQ(info.prefill_tokens, 0u);
  EXPECT_EQ(info.decode_tokens, 1u);
  info = host.Step(10'000'000);
  EXPECT_EQ(info.more_work, 0u);
  host.Finish(request);
  inlay_session_release(session);
}

// Two threads in inlay_engine_step(): one steps, the other is told so.
TEST(Steps, OneThreadAtATime) {
  Host host(PocketModel());
  inlay_session* session = host.NewSession();
  auto options = ChatRequest(kStory, 40);
  options.ignore_eos = 1;
  inlay_request* request = host.Submit(session, options);
  std::atomic<int> refused{0};
  std::atomic<bool> done{false};
  const auto stepper = [&] {
    while (!done) {
      auto info = Defaults(inlay_step_info_init_sized);
      const auto status = inlay_engine_step(host.engine, 1000, &info, nullptr);
      ASSERT_TRUE(status == INLAY_OK || status == INLAY_INVALID_STATE)
          << status;
      if (status == INLAY_INVALID_STATE) ++refused;
      if (status == INLAY_OK && info.more_work == 0) done = true;
    }
  };
  std::thread first(stepper), second(stepper);
  first.join();
  second.join();
  EXPECT_EQ(host.Finish(request).tokens.size(), 40u);
  inlay_session_release(session);
}

// Greedy with the same weights: a log continued in pieces is the log at once.
TEST(Sessions, ForkRewindAndReplace) {
  Host host;
  const std::vector<int32_t> prompt = {1, 17, 23, 99, 7, 45};
  const Outcome whole = host.RunAlone(TokensRequest(prompt, 40));
  ASSERT_EQ(whole.tokens.size(), 40u);

  inlay_session* session = host.NewSession();
  const Outcome part = host.Run(session, TokensRequest(prompt, 20));
  inlay_session* fork = nullptr;
  ASSERT_EQ(inlay_session_fork(session, &fork, nullptr), INLAY_OK);
  EXPECT_EQ(host.Log(fork), host.Log(session));
  // Both go on from the log with no further input.
  for (inlay_session* each : {session, fork}) {
    const Outcome rest = host.Run(each, TokensRequest({}, 20));
    std::vector<int32_t> joined = part.tokens;
    joined.insert(joined.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(joined, whole.tokens);
  }
  EXPECT_EQ(host.Info(fork).num_tokens, 46u);

  ASSERT_EQ(inlay_session_rewind(fork, 6, nullptr), INLAY_OK);
  EXPECT_EQ(host.Log(fork), prompt);
  EXPECT_EQ(host.Info(session).num_tokens, 46u) << "the other is untouched";
  EXPECT_EQ(host.Run(fork, TokensRequest({}, 20)).tokens, part.tokens);

  // Replace keeps what both logs share.
  std::vector<int32_t> other = host.Log(session);
  other.resize(30);
  other.push_back(300);
  auto replace = TokensRequest(other, 2);
  replace.input_mode = INLAY_INPUT_REPLACE;
  const Outcome replaced = host.Run(session, replace);
  EXPECT_EQ(replaced.finish.prompt_tokens, 31u);
  EXPECT_EQ(replaced.finish.cached_tokens, 30u);
  EXPECT_EQ(replaced.tokens, host.RunAlone(TokensRequest(other, 2)).tokens);
  EXPECT_EQ(host.Info(session).num_tokens, 33u);

  ASSERT_EQ(inlay_session_rewind(session, 0, nullptr), INLAY_OK);
  EXPECT_EQ(host.Info(session).num_tokens, 0u);
  EXPECT_EQ(host.Run(session, TokensRequest(prompt, 20)).tokens, part.tokens);
  inlay_session_release(session);
  inlay_session_release(fork);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
}

TEST(Results, LogitsScoresAndLogprobsAgree) {
  Host host;
  const std::vector<int32_t> prompt = {1, 17, 23, 99, 7};
  auto options = TokensRequest(prompt, 3);
  options.logits = INLAY_LOGITS_ALL;
  options.score_prompt = 1;
  options.num_logprobs = 4;
  const Outcome outcome = host.RunAlone(options);
  ASSERT_EQ(outcome.logits.size(), prompt.size());
  ASSERT_EQ(outcome.scores.size(), prompt.size() - 1);
  ASSERT_EQ(outcome.logprobs.size(), 3u * 5u);
  const auto log_prob = [](const std::vector<float>& logits, int32_t token) {
    double sum = 0, max = *std::max_element(logits.begin(), logits.end());
    for (const float logit : logits) sum += std::exp(logit - max);
    return logits[static_cast<size_t>(token)] - max - std::log(sum);
  };
  // What logit_blocks_test.cc derives, of logarithms down to -20.
  constexpr double kOff = 19 * 0x1p-23 + 20 * 0x1p-24;
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_EQ(outcome.logits[i].first, static_cast<int64_t>(i));
    EXPECT_EQ(outcome.logits[i].second.size(), 512u);
    if (i == 0) continue;
    EXPECT_EQ(outcome.scores[i - 1].first, static_cast<int64_t>(i));
    EXPECT_NEAR(outcome.scores[i - 1].second,
                log_prob(outcome.logits[i - 1].second, prompt[i]), kOff);
  }
  // The first choice is the likeliest of the last row.
  const auto& last = outcome.logits.back().second;
  EXPECT_EQ(outcome.tokens[0],
            std::max_element(last.begin(), last.end()) - last.begin());
  EXPECT_EQ(outcome.logprobs[0].token, outcome.tokens[0]);
  EXPECT_EQ(outcome.logprobs[1].token, outcome.tokens[0]);
  EXPECT_NEAR(outcome.logprobs[0].logprob, log_prob(last, outcome.tokens[0]),
              kOff);
  for (int i = 2; i < 5; ++i) {
    EXPECT_LE(outcome.logprobs[i].logprob, outcome.logprobs[i - 1].logprob);
  }

  const auto positions_of = [&](int32_t mode,
                                const std::vector<int64_t>& listed,
                                int32_t max_tokens) {
    auto asked = TokensRequest(prompt, max_tokens);
    asked.logits = mode;
    asked.logits_positions = listed.data();
    asked.num_logits_positions = listed.size();
    std::vector<int64_t> positions;
    for (const auto& [position, row] : host.RunAlone(asked).logits) {
      positions.push_back(position);
      if (position < 5) {
        EXPECT_EQ(row, outcome.logits[static_cast<size_t>(position)].second);
      }
    }
    return positions;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(positions_of(INLAY_LOGITS_NONE, {}, 3), ElementsAre());
  EXPECT_THAT(positions_of(INLAY_LOGITS_LAST, {}, 3), ElementsAre(4));
  EXPECT_THAT(positions_of(INLAY_LOGITS_LAST, {}, 0), ElementsAre(4));
  EXPECT_THAT(positions_of(INLAY_LOGITS_POSITIONS, {3, 1, 3}, 1),
              ElementsAre(1, 3));
  EXPECT_THAT(positions_of(INLAY_LOGITS_GENERATED, {}, 3),
              ElementsAre(4, 5, 6));
}

TEST(Results, SeedsBiasAndStops) {
  Host host;
  const std::vector<int32_t> prompt = {1, 17, 23};
  auto options = TokensRequest(prompt, 24);
  options.temperature = 1;
  options.seed = 5;
  const Outcome one = host.RunAlone(options);
  EXPECT_EQ(host.RunAlone(options).tokens, one.tokens);
  options.seed = 6;
  EXPECT_NE(host.RunAlone(options).tokens, one.tokens);

  const Outcome greedy = host.RunAlone(TokensRequest(prompt, 8));
  auto banned = TokensRequest(prompt, 8);
  const inlay_logit_bias bias = {greedy.tokens[0], -INFINITY};
  banned.logit_bias = &bias;
  banned.num_logit_bias = 1;
  EXPECT_THAT(host.RunAlone(banned).tokens,
              ::testing::Not(::testing::Contains(greedy.tokens[0])));

  auto stopped = TokensRequest(prompt, 8);
  stopped.stop_tokens = &greedy.tokens[3];
  stopped.num_stop_tokens = 1;
  const Outcome outcome = host.RunAlone(stopped);
  EXPECT_EQ(outcome.finish.finish_reason, INLAY_FINISH_STOP);
  EXPECT_EQ(outcome.finish.stop_token, greedy.tokens[3]);
  EXPECT_EQ(outcome.finish.stop_string, -1);
  EXPECT_LE(outcome.finish.generated_tokens, 4u);
}

TEST(Statistics, AddUp) {
  Host host;
  const std::vector<int32_t> prompt = {1, 2, 3, 4};
  uint64_t prefill = 0, decode = 0;
  for (int i = 1; i <= 4; ++i) {
    const Outcome outcome = host.RunAlone(TokensRequest(prompt, i));
    prefill += outcome.finish.prompt_tokens - outcome.finish.cached_tokens;
    decode += outcome.finish.generated_tokens - 1;
  }
  inlay_session* session = host.NewSession();
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 400));
  host.Step();
  auto stats = host.Stats();
  EXPECT_EQ(stats.num_sessions, 1u);
  EXPECT_EQ(stats.running_requests, 1u);
  EXPECT_EQ(stats.kv_blocks_used, 1u);
  inlay_request_cancel(request, nullptr);
  const Outcome cancelled = host.Finish(request);
  EXPECT_EQ(cancelled.finish.cached_tokens, 3u);
  inlay_session_release(session);
  prefill += 1;

  stats = host.Stats();
  EXPECT_EQ(stats.num_models, 1u);
  EXPECT_EQ(stats.submitted_requests, 5u);
  EXPECT_EQ(stats.finished_requests, 4u);
  EXPECT_EQ(stats.cancelled_requests, 1u);
  EXPECT_EQ(stats.failed_requests, 0u);
  EXPECT_EQ(stats.prefill_tokens, prefill);
  EXPECT_EQ(stats.decode_tokens, decode);
  EXPECT_EQ(stats.steps, 1u + 2 + 3 + 4 + 1);
  EXPECT_GE(stats.step_us, stats.schedule_us);
  EXPECT_EQ(stats.kv_blocks_used, 0u);
  EXPECT_EQ(stats.memory_bytes,
            stats.weight_bytes + stats.kv_bytes + stats.workspace_bytes);
  EXPECT_GE(stats.memory_peak_bytes, stats.memory_bytes);
  EXPECT_GT(stats.mapped_bytes, 300'000u);
  EXPECT_EQ(stats.memory_budget_bytes, 0u);
}

}  // namespace
}  // namespace inlay::testing
