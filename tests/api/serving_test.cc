// What serving many asks of the engine: deadlines, shares, time budgets, and
// telling how it went.
#include <gmock/gmock.h>

#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

// ---- deadlines -------------------------------------------------------------

class Deadline : public ::testing::TestWithParam<int32_t> {
 protected:
  static inlay_engine_options Options() {
    auto options = EngineDefaults();
    options.drive = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Drive, Deadline,
                         ::testing::Values(INLAY_DRIVE_HOST,
                                           INLAY_DRIVE_THREAD),
                         [](const auto& param) {
                           return param.param == INLAY_DRIVE_HOST ? "Host"
                                                                  : "Thread";
                         });

TEST_P(Deadline, EndsARequestThatIsStillThere) {
  auto model_options = ModelDefaults();
  Host host(SmallModel(), Options(), model_options);
  inlay_session* session = host.NewSession();
  const auto prompt = Tokens(3, 10);
  auto options = TokensRequest(prompt, 2000);
  options.deadline_us = 20'000;
  const Outcome outcome = host.Run(session, options);
  EXPECT_EQ(outcome.finish.finish_reason, INLAY_FINISH_ERROR);
  EXPECT_EQ(outcome.finish.status, INLAY_TIMEOUT);
  EXPECT_THAT(outcome.message, HasSubstr("deadline"));
  EXPECT_GE(outcome.finish.total_us, 20'000u);
  EXPECT_EQ(outcome.tokens.size(), outcome.finish.generated_tokens);
  // What it had generated is in the log, and the session goes on.
  EXPECT_EQ(host.Log(session).size(), 10 + outcome.tokens.size());
  EXPECT_EQ(host.Stats().failed_requests, 1u);
  const Outcome more = host.Run(session, TokensRequest({}, 3));
  EXPECT_EQ(more.finish.status, INLAY_OK) << more.message;
  inlay_session_release(session);
}

// A deadline passes for who cannot run at all, too.
TEST_P(Deadline, EndsARequestThatWaitsForMemory) {
  auto model_options = ModelDefaults();
  model_options.kv_block_size = 8;
  model_options.kv_budget_bytes = 32 * 8 * 1024;
  Host host(TinyModel(), Options(), model_options);
  inlay_session* holder = host.NewSession();
  const auto large = Tokens(3, 200);
  const auto reserved = TokensRequest(large, 20);
  auto quote = Defaults(inlay_quote_init);
  ASSERT_EQ(inlay_request_quote(holder, &reserved, 1, &quote, nullptr),
            INLAY_OK);
  inlay_session* session = host.NewSession();
  const auto prompt = Tokens(5, 100);
  auto options = TokensRequest(prompt, 20);
  options.deadline_us = 15'000;
  inlay_request* request = host.Submit(session, options);
  const auto begin = std::chrono::steady_clock::now();
  inlay_event* event = nullptr;
  while (inlay_request_next_event(request, 1'000, &event, nullptr) ==
             INLAY_TIMEOUT &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
    if (GetParam() == INLAY_DRIVE_HOST) host.Step();
  }
  Outcome outcome;
  ASSERT_NE(event, nullptr);
  outcome.Take(event);
  EXPECT_EQ(outcome.finish.status, INLAY_TIMEOUT);
  EXPECT_EQ(outcome.finish.generated_tokens, 0u);
  inlay_request_release(request);
  inlay_session_release(session);
  inlay_session_release(holder);
}

TEST_P(Deadline, KeptChangesNothing) {
  Host host(TinyModel(), Options());
  const auto prompt = Tokens(3, 10);
  auto options = TokensRequest(prompt, 12);
  const auto expected = host.RunAlone(options).tokens;
  for (const uint64_t deadline_us : {uint64_t{60'000'000}, UINT64_MAX}) {
    options.deadline_us = deadline_us;
    const Outcome outcome = host.RunAlone(options);
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
    EXPECT_EQ(outcome.tokens, expected);
  }
}

// The order in which requests of one token, one at a time, come to their end.
std::vector<void*> EndOrder(const Host& host, size_t count) {
  std::vector<void*> order;
  for (int i = 0; i < 1000 && order.size() < count; ++i) {
    host.Step();
    inlay_event* event = nullptr;
    while (inlay_event_next(host.engine, 0, &event, nullptr) == INLAY_OK) {
      auto info = Defaults(inlay_event_info_init_sized);
      inlay_event_get_info(event, &info, nullptr);
      if (info.kind == INLAY_EVENT_FINISHED) order.push_back(info.user_data);
      inlay_event_release(event);
    }
  }
  return order;
}

inlay_engine_options OneAtATime() {
  auto options = EngineDefaults();
  options.max_running = 1;
  options.starvation_us = 0;
  return options;
}

TEST(Order, EarlierDeadlinesFirst) {
  Host host(TinyModel(), OneAtATime());
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  const auto prompt = Tokens(3, 10);
  const uint64_t deadlines_s[] = {0, 300, 100, 200};
  for (uint64_t i = 0; i < 4; ++i) {
    auto options = TokensRequest(prompt, 1);
    options.deadline_us = deadlines_s[i] * 1'000'000;
    options.user_data = reinterpret_cast<void*>(i);
    sessions.push_back(host.NewSession());
    requests.push_back(host.Submit(sessions.back(), options));
  }
  const auto number = [](uint64_t i) { return reinterpret_cast<void*>(i); };
  EXPECT_THAT(EndOrder(host, 4), ::testing::ElementsAre(number(2), number(3),
                                                        number(1), number(0)));
  for (inlay_request* request : requests) inlay_request_release(request);
  for (inlay_session* session : sessions) inlay_session_release(session);
}

// Ten requests of one user do not hold up the one of another.
TEST(Order, SharesAreOfKeys) {
  for (const bool named : {false, true}) {
    Host host(TinyModel(), OneAtATime());
    std::vector<inlay_session*> sessions;
    std::vector<inlay_request*> requests;
    const auto prompt = Tokens(3, 10);
    for (uint64_t i = 0; i < 11; ++i) {
      auto options = TokensRequest(prompt, 1);
      if (named) options.share_key = i < 10 ? 7 : UINT64_MAX;
      options.user_data = reinterpret_cast<void*>(i);
      sessions.push_back(host.NewSession());
      requests.push_back(host.Submit(sessions.back(), options));
    }
    const auto order = EndOrder(host, 11);
    ASSERT_EQ(order.size(), 11u);
    const auto place =
        std::find(order.begin(), order.end(), reinterpret_cast<void*>(10)) -
        order.begin();
    if (named) {
      EXPECT_LE(place, 2);
    } else {
      EXPECT_EQ(place, 10) << "each session is one of its own";
    }
    for (inlay_request* request : requests) inlay_request_release(request);
    for (inlay_session* session : sessions) inlay_session_release(session);
  }
}

// ---- what engine options promise -------------------------------------------

TEST(Options, PrefillChunksAreCapped) {
  auto options = EngineDefaults();
  options.max_prefill_chunk = 16;
  Host host(TinyModel(), options);
  inlay_session* session = host.NewSession();
  const auto prompt = Tokens(3, 100);
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 1));
  uint32_t prefill = 0;
  for (int i = 0; i < 7; ++i) {
    const auto step = host.Step();
    EXPECT_LE(step.prefill_tokens, 16u);
    prefill += step.prefill_tokens;
  }
  EXPECT_EQ(prefill, 100u);
  host.Finish(request);
  inlay_session_release(session);
}

TEST(Options, IsolatedSessionsShareNothing) {
  auto options = EngineDefaults();
  options.prefix_sharing = 0;
  Host host(TinyModel(), options);
  const auto prompt = Tokens(3, 64);
  inlay_session* session = host.NewSession();
  EXPECT_EQ(host.Run(session, TokensRequest(prompt, 2)).finish.cached_tokens,
            0u);
  EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 2)).finish.cached_tokens, 0u);
  inlay_session* fork = nullptr;
  ASSERT_EQ(inlay_session_fork(session, &fork, nullptr), INLAY_OK);
  EXPECT_GE(host.Run(fork, TokensRequest({}, 2)).finish.cached_tokens, 64u);
  EXPECT_GE(host.Run(session, TokensRequest({}, 2)).finish.cached_tokens, 64u);
  // Nor do restored ones with any other, but they keep what they bring.
  inlay_buffer* saved = nullptr;
  ASSERT_EQ(inlay_session_save_buffer(session, &saved, nullptr), INLAY_OK);
  inlay_session* restored = nullptr;
  auto info = Defaults(inlay_restore_info_init);
  ASSERT_EQ(inlay_session_restore_buffer(host.model, inlay_buffer_data(saved),
                                         inlay_buffer_size(saved), &restored,
                                         &info, nullptr),
            INLAY_OK);
  EXPECT_GE(info.num_restored, 67u);
  EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 2)).finish.cached_tokens, 0u);
  EXPECT_GE(host.Run(restored, TokensRequest({}, 2)).finish.cached_tokens, 66u);
  inlay_buffer_release(saved);
  for (inlay_session* each : {session, fork, restored})
    inlay_session_release(each);
}

// ---- steps within a budget ------------------------------------------------

TEST(StepBudget, SomethingIsComputedAndOvershootIsTold) {
  Host host(SmallModel());
  inlay_session* session = host.NewSession();
  const auto prompt = Tokens(3, 300);
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 20));
  // A microsecond is never enough.
  uint64_t computed = 0, overshot = 0;
  for (int i = 0; i < 5; ++i) {
    const auto step = host.Step(1);
    EXPECT_GT(step.prefill_tokens + step.decode_tokens, 0u);
    computed += step.prefill_tokens + step.decode_tokens;
    EXPECT_EQ(step.overshoot_us,
              step.duration_us - std::min<uint64_t>(step.duration_us, 1));
    overshot += step.overshoot_us > 0 ? 1 : 0;
    EXPECT_GT(step.predicted_us, 0u);
  }
  EXPECT_GT(computed, 0u);
  EXPECT_EQ(overshot, 5u);
  const auto without = host.Step();
  EXPECT_EQ(without.overshoot_us, 0u) << "without a budget";
  auto stats = host.Stats();
  EXPECT_EQ(stats.step_overshoot_us.count, 5u);
  EXPECT_GT(stats.step_overshoot_us.max, 0u);
  // With a second there is time for all of it.
  const auto rest = host.Step(5'000'000);
  EXPECT_EQ(rest.more_work, 0u);
  EXPECT_EQ(rest.overshoot_us, 0u);
  EXPECT_EQ(host.Finish(request).tokens.size(), 20u);
  inlay_session_release(session);
}

// ---- statistics ------------------------------------------------------------

void ExpectDistribution(const inlay_distribution& d, uint64_t count) {
  EXPECT_EQ(d.count, count);
  EXPECT_LE(d.p50, d.p90);
  EXPECT_LE(d.p90, d.p99);
  // Buckets are a sixteenth wide.
  EXPECT_LE(d.p99, d.max + d.max / 8 + 1);
  EXPECT_LE(d.max, d.sum);
  EXPECT_LE(d.sum, d.max * std::max<uint64_t>(count, 1));
}

TEST(Stats, DistributionsAddUp) {
  Host host(TinyModel());
  const auto none = host.Stats();
  ExpectDistribution(none.request_time_us, 0);
  EXPECT_EQ(none.request_time_us.max + none.request_time_us.p99, 0u);
  constexpr uint64_t kRequests = 6, kTokens = 5;
  uint64_t queue = 0, first = 0, total = 0, longest = 0, lookup = 0, hit = 0;
  for (uint64_t i = 0; i < kRequests; ++i) {
    const auto prompt = Tokens(3, 20 + static_cast<int>(i));
    const auto finish = host.RunAlone(TokensRequest(prompt, kTokens)).finish;
    queue += finish.queue_us;
    first += finish.first_token_us;
    total += finish.total_us;
    longest = std::max(longest, finish.total_us);
    lookup += finish.prompt_tokens;
    hit += finish.cached_tokens;
  }
  const auto stats = host.Stats();
  ExpectDistribution(stats.queue_time_us, kRequests);
  ExpectDistribution(stats.time_to_first_token_us, kRequests);
  ExpectDistribution(stats.request_time_us, kRequests);
  ExpectDistribution(stats.inter_token_time_us, kRequests * (kTokens - 1));
  ExpectDistribution(stats.step_time_us, stats.steps);
  ExpectDistribution(stats.schedule_time_us, stats.steps);
  ExpectDistribution(stats.step_tokens, stats.steps);
  ExpectDistribution(stats.step_overshoot_us, 0);
  EXPECT_EQ(stats.queue_time_us.sum, queue);
  EXPECT_EQ(stats.time_to_first_token_us.sum, first);
  EXPECT_EQ(stats.request_time_us.sum, total);
  EXPECT_EQ(stats.request_time_us.max, longest);
  EXPECT_EQ(stats.step_tokens.sum, stats.prefill_tokens + stats.decode_tokens);
  EXPECT_EQ(stats.step_time_us.sum, stats.step_us);
  EXPECT_EQ(stats.schedule_time_us.sum, stats.schedule_us);
  EXPECT_EQ(stats.lookup_tokens, lookup);
  EXPECT_EQ(stats.hit_tokens, hit);
  EXPECT_GT(hit, 0u);
  EXPECT_GT(stats.kv_blocks_cached, 0u);
  EXPECT_EQ(stats.kv_blocks_used, 0u);
  // Counters outlive the model.
  inlay_model_release(host.model);
  host.Step();
  const auto after = host.Stats();
  EXPECT_EQ(after.num_models, 0u);
  EXPECT_EQ(after.request_time_us.count, kRequests);
  EXPECT_EQ(after.kv_blocks_cached, 0u);
}

// What the engine does on its own account is not the host's.
TEST(Stats, CountTheHostsRequestsOnly) {
  Host host(TinyModel());
  const auto tokens = Tokens(3, 40);
  auto options = Defaults(inlay_prefix_options_init);
  options.tokens = tokens.data();
  options.num_tokens = tokens.size();
  inlay_prefix* prefix = nullptr;
  ASSERT_EQ(inlay_prefix_create(host.model, "p", &options, &prefix, nullptr),
            INLAY_OK);
  EXPECT_EQ(host.Stats().num_sessions, 0u);
  host.Step();
  EXPECT_EQ(host.Stats().submitted_requests, 0u);
  EXPECT_EQ(host.Stats().finished_requests, 0u);
  EXPECT_EQ(host.Stats().request_time_us.count, 0u);
  EXPECT_GT(host.Stats().prefill_tokens, 0u) << "but work it is";
  inlay_prefix_release(prefix);
}

}  // namespace
}  // namespace inlay::testing
