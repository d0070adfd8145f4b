// inlay_model_options.attention_pattern, as a host sees it.
#include <gtest/gtest.h>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

inlay_model_options WithPattern(const char* pattern) {
  auto options = ModelDefaults();
  options.attention_pattern = pattern;
  return options;
}

TEST(AttentionPattern, CachedAndForkedAsFresh) {
  const std::vector<int32_t> prompt = LongPrompt();
  const auto options = TokensRequest(prompt, 40);
  Host dense(SmallModel());
  Host host(SmallModel(), EngineDefaults(),
            WithPattern("block=16,window=32,global=16,random=32"));
  const auto expected = host.RunAlone(options).tokens;
  EXPECT_EQ(expected.size(), 40u);
  EXPECT_NE(expected, dense.RunAlone(options).tokens);
  const Outcome again = host.RunAlone(options);
  EXPECT_EQ(again.tokens, expected);
  EXPECT_GE(again.finish.cached_tokens, 192u) << "from the cache";
  // Cut anywhere, and both ends go on.
  inlay_session* session = host.NewSession();
  auto begin = TokensRequest(prompt, 11);
  std::vector<int32_t> tokens = host.Run(session, begin).tokens;
  inlay_session* fork = nullptr;
  ASSERT_EQ(inlay_session_fork(session, &fork, nullptr), INLAY_OK);
  auto rest = TokensRequest({}, 29);
  rest.resume = 1;
  for (inlay_session* each : {session, fork}) {
    auto all = tokens;
    const auto more = host.Run(each, rest).tokens;
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(all, expected);
    inlay_session_release(each);
  }
}

// KV computed with one pattern is none of another's.
TEST(AttentionPattern, SnapshotsOfOtherPatternsAreComputedAgain) {
  const std::vector<int32_t> prompt = LongPrompt();
  const char* const pattern = "block=32,window=64";
  Host host(PocketModel(), EngineDefaults(), WithPattern(pattern));
  inlay_session* session = host.NewSession();
  host.Run(session, TokensRequest(prompt, 1));
  inlay_buffer* saved = nullptr;
  ASSERT_EQ(inlay_session_save_buffer(session, &saved, nullptr), INLAY_OK);
  inlay_session_release(session);
  // The first spells the same pattern in other words.
  for (const char* other : {"window=64,block=32,stride=0", "block=32,window=96",
                            static_cast<const char*>(nullptr)}) {
    Host there(PocketModel(), EngineDefaults(), WithPattern(other));
    auto info = Defaults(inlay_restore_info_init);
    Error error;
    ASSERT_EQ(inlay_session_restore_buffer(
                  there.model, inlay_buffer_data(saved),
                  inlay_buffer_size(saved), &session, &info, error.out()),
              INLAY_OK)
        << error.message();
    const bool same = other != nullptr && other[0] == 'w';
    EXPECT_EQ(info.num_tokens, 201u);
    EXPECT_EQ(info.num_restored >= 192, same);
    EXPECT_EQ(info.num_restored == 0, !same);
    EXPECT_EQ(std::string(info.note).empty(), same) << info.note;
    inlay_session_release(session);
  }
  inlay_buffer_release(saved);
}

}  // namespace
}  // namespace inlay::testing
