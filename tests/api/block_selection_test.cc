// inlay_model_options.block_selection, as a host sees it.
#include <gtest/gtest.h>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

inlay_model_options Selecting(int32_t method, uint32_t tokens) {
  auto options = ModelDefaults();
  options.block_selection = method;
  options.selected_tokens = tokens;
  return options;
}

constexpr int32_t kMethods[] = {INLAY_BLOCK_SELECTION_BOUNDS,
                                INLAY_BLOCK_SELECTION_KMEANS,
                                INLAY_BLOCK_SELECTION_LSH};

TEST(BlockSelection, CachedAndForkedAsFresh) {
  const std::vector<int32_t> prompt = LongPrompt();
  const auto options = TokensRequest(prompt, 40);
  Host dense(SmallModel());
  const auto all = dense.RunAlone(options).tokens;
  for (const int32_t method : kMethods) {
    SCOPED_TRACE(method);
    Host wide(SmallModel(), EngineDefaults(), Selecting(method, 256));
    EXPECT_EQ(wide.RunAlone(options).tokens, all);
    Host host(SmallModel(), EngineDefaults(), Selecting(method, 64));
    const auto expected = host.RunAlone(options).tokens;
    EXPECT_EQ(expected.size(), 40u);
    EXPECT_NE(expected, all);
    const Outcome again = host.RunAlone(options);
    EXPECT_EQ(again.tokens, expected);
    EXPECT_GE(again.finish.cached_tokens, 192u) << "from the cache";
    // Cut anywhere, and both ends go on.
    for (const uint32_t first : {3u, 11u, 24u}) {
      inlay_session* session = host.NewSession();
      auto begin = TokensRequest(prompt, first);
      std::vector<int32_t> tokens = host.Run(session, begin).tokens;
      inlay_session* fork = nullptr;
      ASSERT_EQ(inlay_session_fork(session, &fork, nullptr), INLAY_OK);
      auto rest = TokensRequest({}, 40 - first);
      rest.resume = 1;
      for (inlay_session* each : {session, fork}) {
        auto both = tokens;
        const auto more = host.Run(each, rest).tokens;
        both.insert(both.end(), more.begin(), more.end());
        EXPECT_EQ(both, expected) << first;
        inlay_session_release(each);
      }
    }
  }
}

// KV computed with one selection is none of another's.
TEST(BlockSelection, SnapshotsOfOtherSelectionsAreComputedAgain) {
  const std::vector<int32_t> prompt = LongPrompt();
  const auto options = Selecting(INLAY_BLOCK_SELECTION_BOUNDS, 96);
  Host host(PocketModel(), EngineDefaults(), options);
  inlay_session* session = host.NewSession();
  host.Run(session, TokensRequest(prompt, 1));
  auto rest = TokensRequest({}, 20);
  rest.resume = 1;
  inlay_buffer* saved = nullptr;
  ASSERT_EQ(inlay_session_save_buffer(session, &saved, nullptr), INLAY_OK);
  const auto expected = host.Run(session, rest).tokens;
  inlay_session_release(session);
  for (const auto& other :
       {options, Selecting(INLAY_BLOCK_SELECTION_BOUNDS, 64),
        Selecting(INLAY_BLOCK_SELECTION_KMEANS, 96), ModelDefaults()}) {
    Host there(PocketModel(), EngineDefaults(), other);
    auto info = Defaults(inlay_restore_info_init);
    Error error;
    ASSERT_EQ(inlay_session_restore_buffer(
                  there.model, inlay_buffer_data(saved),
                  inlay_buffer_size(saved), &session, &info, error.out()),
              INLAY_OK)
        << error.message();
    const bool same = other.block_selection == options.block_selection &&
                      other.selected_tokens == options.selected_tokens;
    EXPECT_EQ(info.num_tokens, 201u);
    EXPECT_EQ(info.num_restored >= 192, same);
    EXPECT_EQ(info.num_restored == 0, !same);
    if (same) {
      EXPECT_EQ(there.Run(session, rest).tokens, expected);
    }
    inlay_session_release(session);
  }
  inlay_buffer_release(saved);
}

// More sessions than the cache has room for: some are preempted and computed
// again, and none shows it.
TEST(BlockSelection, PreemptedAsAlone) {
  for (const int32_t method : kMethods) {
    auto options = Selecting(method, 64);
    Host alone(TinyModel(), EngineDefaults(), options);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<std::vector<int32_t>> expected;
    for (int32_t i = 0; i < 4; ++i) {
      auto prompt = LongPrompt();
      for (int32_t& token : prompt) token %= 512;
      prompt[0] += i;
      expected.push_back(alone.RunAlone(TokensRequest(prompt, 60)).tokens);
      prompts.push_back(std::move(prompt));
    }
    // Room for about two of the four.
    auto info = Defaults(inlay_model_info_init_sized);
    ASSERT_EQ(inlay_model_get_info(alone.model, &info, nullptr), INLAY_OK);
    options.kv_budget_bytes = info.kv_bytes_per_token * 560;
    Host tight(TinyModel(), EngineDefaults(), options);
    std::vector<inlay_session*> sessions;
    std::vector<inlay_request*> requests;
    for (const auto& prompt : prompts) {
      sessions.push_back(tight.NewSession());
      requests.push_back(
          tight.Submit(sessions.back(), TokensRequest(prompt, 60)));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(tight.Finish(requests[i]).tokens, expected[i]) << method;
      inlay_session_release(sessions[i]);
    }
    EXPECT_GT(tight.Stats().preemptions, 0u);
  }
}

}  // namespace
}  // namespace inlay::testing
