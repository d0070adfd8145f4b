// Sessions saved beside requests: in pieces, between which blocks are evicted,
// moved and computed again.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::PocketModel;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;
using Bytes = std::vector<std::byte>;

// More KV than several pieces have (8 KiB a token), in a cache that has no room
// for two such sessions.
constexpr int64_t kTokens = 600;

ModelOptions Cache() {
  ModelOptions options;
  options.kv_dtype = DType::kF32;
  options.kv_budget_bytes = uint64_t{8} << 20;
  return options;
}

absl::StatusOr<Bytes> Save(ModelRunner& runner, SessionId session) {
  Bytes saved;
  const absl::Status status =
      runner.Save(session, [&](absl::Span<const std::byte> piece) {
        saved.insert(saved.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return saved;
}

// What is saved is the session with KV of its own, or with less of it.
TEST(SaveTest, BesideEvictionsAndMoves) {
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  harness.Run(session, TokenRequest(RandomTokens(1, kTokens), 1));
  const auto go_on = [&](EngineHarness& on, SessionId from) {
    return on.Run(from, TokenRequest({}, 3)).tokens;
  };
  const auto expected = go_on(harness, *runner.Fork(session));

  std::vector<Bytes> all;
  std::atomic<bool> done{false};
  std::thread saver([&] {
    while (!done) {
      auto saved = Save(runner, session);
      EXPECT_TRUE(saved.ok()) << saved.status();
      if (saved.ok()) all.push_back(*std::move(saved));
    }
  });
  const uint64_t fixed = harness.FixedBytes();
  for (int round = 0; round < 4; ++round) {
    // Others' prompts take its blocks; a smaller cache moves and takes more.
    harness.RunAlone(
        TokenRequest(RandomTokens(7 + static_cast<uint32_t>(round), 300), 1));
    for (const uint64_t mib : {6, 3, 8}) {
      EXPECT_TRUE(
          harness.engine().SetMemoryBudget(0, fixed + (mib << 20)).ok());
    }
    const SessionId fork = *runner.Fork(session);
    EXPECT_EQ(go_on(harness, fork), expected);
    runner.ReleaseSession(fork);
  }
  done = true;
  saver.join();

  EngineHarness other(PocketModel(), {}, Cache());
  ASSERT_GE(all.size(), 4u);
  const size_t apart = all.size() / 12 + 1;
  for (size_t i = 0; i < all.size(); i += apart) {
    const auto restored = other.runner().Restore(all[i]);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(restored->note, "");
    EXPECT_EQ(go_on(other, restored->session), expected)
        << i << ": " << restored->num_kv_tokens << " tokens of KV";
    other.runner().ReleaseSession(restored->session);
    // Nothing cached stands in for the next one's.
    const uint64_t least = other.FixedBytes();
    ASSERT_TRUE(other.engine().SetMemoryBudget(0, least).ok());
    ASSERT_TRUE(other.engine().SetMemoryBudget(0, 0).ok());
  }
}

TEST(SaveTest, EndsWithTheEngine) {
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  harness.Run(session, TokenRequest(RandomTokens(1, kTokens), 1));
  std::atomic<int> saved{0};
  absl::Status last;
  std::thread saver([&] {
    while (last.ok()) {
      last = Save(runner, session).status();
      ++saved;
    }
  });
  while (saved == 0) std::this_thread::yield();
  harness.engine().Close();
  saver.join();
  EXPECT_TRUE(absl::IsUnavailable(last)) << last;
}

}  // namespace
}  // namespace inlay
