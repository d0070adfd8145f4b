// What a request would need, and setting it aside.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

class QuoteTest : public ::testing::Test {
 protected:
  QuoteTest() : host_(TinyModel(), EngineDefaults(), SmallCache()) {}

  inlay_status Try(inlay_session* session, const inlay_request_options& options,
                   int32_t reserve, inlay_quote* quote, Error& error) {
    *quote = Defaults(inlay_quote_init);
    return inlay_request_quote(session, &options, reserve, quote, error.out());
  }
  inlay_quote Quote(inlay_session* session,
                    const inlay_request_options& options, int32_t reserve = 0) {
    Error error;
    inlay_quote quote;
    EXPECT_EQ(Try(session, options, reserve, &quote, error), INLAY_OK)
        << error.message();
    return quote;
  }
  // Reads it if it ends within `steps`; otherwise nothing.
  bool EndsWithin(inlay_request* request, int steps, Outcome* outcome) {
    for (int i = 0; i < steps && outcome->finished == 0; ++i) {
      host_.Step();
      inlay_event* event = nullptr;
      while (inlay_request_next_event(request, 0, &event, nullptr) == INLAY_OK)
        outcome->Take(event);
    }
    return outcome->finished == 1;
  }

  Host host_;
};

TEST_F(QuoteTest, IsWhatTheRequestTakes) {
  inlay_session* session = host_.NewSession();
  const auto prompt = Tokens(3, 50);
  const auto options = TokensRequest(prompt, 15);
  const auto first = Quote(session, options);
  EXPECT_EQ(first.fits, 1u);
  EXPECT_EQ(first.fits_now, 1u);
  EXPECT_EQ(first.reserved, 0u);
  EXPECT_EQ(first.prompt_tokens, 50u);
  EXPECT_EQ(first.cached_tokens, 0u);
  // The last token needs no KV: 50 + 14 tokens.
  EXPECT_EQ(first.kv_bytes, 8 * kBlockBytes);
  EXPECT_EQ(first.new_kv_bytes, first.kv_bytes);
  EXPECT_EQ(host_.Info(session).num_tokens, 0u) << "the log is unchanged";
  EXPECT_EQ(host_.Stats().submitted_requests, 0u);
  EXPECT_EQ(host_.Stats().kv_blocks_used, 0u);

  const Outcome outcome = host_.Run(session, options);
  EXPECT_EQ(outcome.finish.cached_tokens, first.cached_tokens);
  const auto again = Quote(session, TokensRequest({}, 5));
  EXPECT_EQ(again.prompt_tokens, 65u);
  EXPECT_EQ(again.cached_tokens, 64u);
  EXPECT_EQ(again.kv_bytes, 9 * kBlockBytes);
  EXPECT_EQ(again.new_kv_bytes, 1 * kBlockBytes);
  const Outcome second = host_.Run(session, TokensRequest({}, 5));
  EXPECT_EQ(second.finish.cached_tokens, again.cached_tokens);
  EXPECT_EQ(second.finish.prompt_tokens, again.prompt_tokens);

  // Another session's are shared, too.
  inlay_session* other = host_.NewSession();
  EXPECT_GE(Quote(other, options).cached_tokens, 48u)
      << "whole blocks at least";
  inlay_session_release(other);
  inlay_session_release(session);
}

TEST_F(QuoteTest, EstimatesGrowWithTheWork) {
  for (int i = 0; i < 4; ++i)
    host_.RunAlone(TokensRequest(Tokens(100 + 3 * i, 60), 20));
  inlay_session* session = host_.NewSession();
  const auto few = Tokens(2, 4), many = Tokens(2, 200);
  const auto quick = Quote(session, TokensRequest(few, 4));
  const auto slow = Quote(session, TokensRequest(many, 4));
  EXPECT_GT(quick.first_token_us, 0u);
  EXPECT_GT(slow.first_token_us, quick.first_token_us);
  EXPECT_LT(slow.first_token_us, 60'000'000u);
  // Behind others it takes longer.
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(host_.NewSession());
    requests.push_back(host_.Submit(sessions.back(),
                                    TokensRequest(Tokens(300 + 5 * i, 60), 4)));
  }
  EXPECT_GT(Quote(session, TokensRequest(few, 4)).first_token_us,
            quick.first_token_us);
  for (inlay_request* request : requests) host_.Finish(request);
  for (inlay_session* each : sessions) inlay_session_release(each);
  inlay_session_release(session);
}

TEST_F(QuoteTest, TellsWhatFitsNowAndEver) {
  inlay_session* session = host_.NewSession();
  inlay_session* other = host_.NewSession();
  const auto large = Tokens(2, 200);
  EXPECT_EQ(Quote(session, TokensRequest(large, 100)).fits, 0u);
  EXPECT_EQ(Quote(session, TokensRequest(large, 100)).fits_now, 0u);
  Error error;
  inlay_quote quote;
  EXPECT_EQ(Try(session, TokensRequest(large, 100), 1, &quote, error),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_EQ(host_.Stats().kv_blocks_used, 0u);

  const auto half = Tokens(7, 120);
  inlay_request* running = host_.Submit(other, TokensRequest(half, 60));
  host_.Step();
  const auto beside = Quote(session, TokensRequest(large, 20));
  EXPECT_EQ(beside.fits, 1u);
  EXPECT_EQ(beside.fits_now, 0u);
  EXPECT_EQ(Try(session, TokensRequest(large, 20), 1, &quote, error),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_FALSE(error.message().empty());
  host_.Finish(running);
  // What is only cached makes way.
  EXPECT_EQ(Quote(session, TokensRequest(large, 20)).fits_now, 1u);
  EXPECT_EQ(Quote(session, TokensRequest(large, 20), 1).reserved, 1u);
  inlay_session_release(session);
  inlay_session_release(other);
}

TEST_F(QuoteTest, ReservedBlocksAreThereWhateverOthersDo) {
  const auto prompt = Tokens(3, 100);
  const auto expected = host_.RunAlone(TokensRequest(prompt, 29)).tokens;
  inlay_session* session = host_.NewSession();
  const auto options = TokensRequest(prompt, 29);
  EXPECT_EQ(Quote(session, options, 1).reserved, 1u);
  EXPECT_EQ(host_.Stats().kv_blocks_used, 16u);
  EXPECT_EQ(Quote(session, options, 1).reserved, 1u) << "not twice as many";
  EXPECT_EQ(host_.Stats().kv_blocks_used, 16u);

  // Others take all the rest, and more than there is.
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  for (int i = 0; i < 4; ++i) {
    sessions.push_back(host_.NewSession());
    requests.push_back(host_.Submit(
        sessions.back(), TokensRequest(Tokens(200 + 5 * i, 60), 60)));
  }
  for (int i = 0; i < 30; ++i) host_.Step();
  EXPECT_EQ(Quote(session, options, 1).reserved, 1u);
  inlay_request* mine = host_.Submit(session, options);
  host_.Step();
  EXPECT_EQ(host_.Info(session).busy, 1u);
  EXPECT_GE(host_.Info(session).num_cached, 99u) << "it began at once";
  EXPECT_EQ(host_.Finish(mine).tokens, expected);
  for (inlay_request* request : requests) {
    const Outcome outcome = host_.Finish(request);
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
    EXPECT_EQ(outcome.tokens.size(), 60u);
  }
  for (inlay_session* each : sessions) inlay_session_release(each);
  inlay_session_release(session);
  EXPECT_EQ(host_.Stats().kv_blocks_used, 0u);
}

// Whoever waits for the reserved blocks gets them when they are given back:
// by a release, another quote, or the request itself.
// Others have computed its beginning since: all of that is cached, and nothing
// is free but what was set aside.
TEST_F(QuoteTest, WhatWasReservedBeginsWhateverIsCachedSince) {
  const auto prompt = Tokens(3, 176);
  const auto options = TokensRequest(prompt, 1);
  inlay_session* session = host_.NewSession();
  EXPECT_EQ(Quote(session, options, 1).reserved, 1u);
  EXPECT_EQ(host_.Stats().kv_blocks_used, 22u);
  const std::vector<int32_t> part(prompt.begin(), prompt.begin() + 76);
  host_.RunAlone(TokensRequest(part, 1));
  EXPECT_EQ(host_.Stats().kv_blocks_cached, 10u);
  Outcome outcome;
  inlay_request* request = host_.Submit(session, options);
  EXPECT_TRUE(EndsWithin(request, 20, &outcome));
  EXPECT_EQ(outcome.tokens.size(), 1u);
  inlay_request_release(request);
  inlay_session_release(session);
}

// What is set aside for less than the request needs could keep those before it
// in the queue waiting for ever, and them it.
TEST_F(QuoteTest, ALargerRequestThanWasReservedForWaitsLikeOthers) {
  const auto prompt = Tokens(3, 200), others = Tokens(7, 120);
  inlay_session* session = host_.NewSession();
  inlay_session* other = host_.NewSession();
  EXPECT_EQ(Quote(session, TokensRequest(prompt, 29), 1).reserved, 1u);
  inlay_request* before = host_.Submit(other, TokensRequest(others, 8));
  host_.Step();
  inlay_request* request = host_.Submit(session, TokensRequest(prompt, 40));
  Outcome first, second;
  EXPECT_TRUE(EndsWithin(before, 100, &first));
  EXPECT_TRUE(EndsWithin(request, 100, &second));
  EXPECT_EQ(first.tokens.size(), 8u);
  EXPECT_EQ(second.tokens.size(), 40u);
  for (inlay_request* each : {before, request}) inlay_request_release(each);
  for (inlay_session* each : {session, other}) inlay_session_release(each);
}

TEST_F(QuoteTest, ReservationsThatEndLetOthersRun) {
  const auto prompt = Tokens(3, 180);
  const auto wanted = TokensRequest(prompt, 20);
  const auto large = Tokens(5, 160);
  for (const int how : {0, 1, 2, 3}) {
    SCOPED_TRACE(how);
    inlay_session* holder = host_.NewSession();
    EXPECT_EQ(Quote(holder, wanted, 1).reserved, 1u);
    inlay_session* session = host_.NewSession();
    inlay_request* waiting = host_.Submit(session, TokensRequest(large, 8));
    Outcome outcome;
    EXPECT_FALSE(EndsWithin(waiting, 20, &outcome));
    EXPECT_EQ(host_.Step().more_work, 0u) << "it waits for what others hold";
    EXPECT_EQ(host_.Stats().waiting_requests, 1u);
    inlay_request* mine = nullptr;
    switch (how) {
      case 0:
        inlay_session_release(holder);
        break;
      case 1:
        EXPECT_EQ(Quote(holder, wanted, 0).reserved, 0u);
        break;
      case 2:
        EXPECT_EQ(Quote(holder, TokensRequest(Tokens(3, 8), 1), 1).reserved,
                  1u);
        break;
      default:
        mine = host_.Submit(holder, wanted);
    }
    Error error;
    auto info = Defaults(inlay_step_info_init_sized);
    ASSERT_EQ(inlay_engine_step(host_.engine, 0, &info, error.out()), INLAY_OK);
    EXPECT_GT(info.num_requests + info.more_work, 0u);
    EXPECT_TRUE(EndsWithin(waiting, 100, &outcome));
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
    if (mine != nullptr) host_.Finish(mine);
    inlay_request_release(waiting);
    inlay_session_release(session);
    inlay_session_release(holder);
    EXPECT_EQ(host_.Stats().kv_blocks_used, 0u);
  }
}

// The engine's own thread is woken too.
TEST(QuoteThread, ReleasedReservationsWakeTheEngine) {
  auto engine_options = EngineDefaults();
  engine_options.drive = INLAY_DRIVE_THREAD;
  Host host(TinyModel(), engine_options, SmallCache());
  inlay_session* holder = host.NewSession();
  const auto prompt = Tokens(3, 180);
  const auto wanted = TokensRequest(prompt, 20);
  auto quote = Defaults(inlay_quote_init);
  ASSERT_EQ(inlay_request_quote(holder, &wanted, 1, &quote, nullptr), INLAY_OK);
  inlay_session* session = host.NewSession();
  const auto large = Tokens(5, 160);
  inlay_request* waiting = host.Submit(session, TokensRequest(large, 8));
  inlay_event* event = nullptr;
  EXPECT_EQ(inlay_request_next_event(waiting, 30'000, &event, nullptr),
            INLAY_TIMEOUT);
  inlay_session_release(holder);
  EXPECT_EQ(host.Finish(waiting).tokens.size(), 8u);
  inlay_session_release(session);
}

TEST_F(QuoteTest, AFailedSubmitKeepsTheReservation) {
  inlay_session* session = host_.NewSession();
  const auto prompt = Tokens(3, 50);
  EXPECT_EQ(Quote(session, TokensRequest(prompt, 15), 1).reserved, 1u);
  auto bad = TokensRequest(prompt, 15);
  bad.temperature = -1;
  Error error;
  inlay_request* request = nullptr;
  EXPECT_EQ(inlay_session_submit(session, &bad, &request, error.out()),
            INLAY_INVALID_ARGUMENT);
  EXPECT_EQ(host_.Stats().kv_blocks_used, 8u);
  host_.Run(session, TokensRequest(prompt, 15));
  EXPECT_EQ(host_.Stats().kv_blocks_used, 0u) << "with the request it is over";
  inlay_session_release(session);
}

TEST_F(QuoteTest, ErrsAsSubmitWould) {
  inlay_session* session = host_.NewSession();
  const std::vector<int32_t> good = {1, 2};
  const std::vector<int32_t> foreign = {1, 600};
  const auto endless = Tokens(1, 513);
  std::vector<inlay_request_options> bad(9, TokensRequest(good, 4));
  bad[0] = TokensRequest(foreign, 4);
  bad[1] = TokensRequest(endless, 4);
  bad[2] = TokensRequest({}, 4);
  bad[3].max_tokens = -2;
  bad[4].temperature = NAN;
  bad[5].top_p = 2;
  bad[6].resume = 1;
  bad[7].num_logprobs = 129;
  bad[8].input_mode = 5;
  for (size_t i = 0; i < bad.size(); ++i) {
    Error error, submit_error;
    inlay_quote quote;
    inlay_request* request = nullptr;
    const auto status = Try(session, bad[i], 0, &quote, error);
    EXPECT_NE(status, INLAY_OK) << i;
    EXPECT_EQ(status, inlay_session_submit(session, &bad[i], &request,
                                           submit_error.out()))
        << i;
    EXPECT_EQ(error.message(), submit_error.message()) << i;
    inlay_request_release(request);
  }
  Error error;
  inlay_quote quote;
  for (const int32_t reserve : {-1, 2}) {
    EXPECT_EQ(Try(session, TokensRequest(good, 4), reserve, &quote, error),
              INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr("reserve"));
  }
  inlay_request* running = host_.Submit(session, TokensRequest(good, 9));
  EXPECT_EQ(Try(session, TokensRequest(good, 4), 1, &quote, error),
            INLAY_INVALID_STATE);
  host_.Finish(running);
  inlay_engine_release(host_.engine);
  EXPECT_EQ(Try(session, TokensRequest(good, 4), 0, &quote, error),
            INLAY_CLOSED);
  inlay_session_release(session);
}

}  // namespace
}  // namespace inlay::testing
