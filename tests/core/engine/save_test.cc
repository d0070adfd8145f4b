// Sessions saved beside requests: in pieces, between which blocks are evicted,
// moved and computed again.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/engine/snapshot.h"
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

// What a snapshot made by `runner` holds.
absl::StatusOr<RestoredSession> Decode(const ModelRunner& runner,
                                       const Bytes& bytes) {
  const LoadedModel& loaded = runner.loaded();
  SnapshotTarget target;
  target.model = loaded.fingerprint;
  target.vocabulary = loaded.vocabulary;
  target.vocab_size = loaded.info.vocab_size;
  target.max_tokens = loaded.max_context;
  target.kv = KvFormOf(loaded.kv_layout);
  return DecodeSnapshot(bytes, target);
}

// What is saved is the session with KV of its own, or with less of it.
TEST(SaveTest, BesideEvictionsAndMoves) {
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId session = *runner.CreateSession();
  harness.Run(session, TokenRequest(RandomTokens(1, kTokens), 1));
  const auto compute = [&] {
    const SessionId fork = *runner.Fork(session);
    harness.Run(fork, TokenRequest({}, 1));
    runner.ReleaseSession(fork);
  };
  compute();
  const Bytes quiet = *Save(runner, session);
  const auto whole = Decode(runner, quiet);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_GE(whole->usable_kv_tokens, uint64_t{kTokens});

  std::atomic<bool> done{false};
  std::atomic<int> num_whole{0}, num_parts{0};
  std::thread saver([&] {
    while (!done) {
      const auto saved = Save(runner, session);
      ASSERT_TRUE(saved.ok()) << saved.status();
      const auto found = Decode(runner, *saved);
      ASSERT_TRUE(found.ok()) << found.status();
      const uint64_t tokens = found->usable_kv_tokens;
      EXPECT_EQ(found->snapshot.log, whole->snapshot.log);
      EXPECT_EQ(found->kv_note, "");
      ++(tokens == whole->usable_kv_tokens ? num_whole : num_parts);
      const auto size = static_cast<uint64_t>(whole->snapshot.kv.block_size);
      for (uint64_t i = 0; i < tokens / size; ++i)
        ASSERT_EQ(found->KvBlock(0, i), whole->KvBlock(0, i)) << "block " << i;
    }
  });
  const uint64_t fixed = harness.FixedBytes();
  for (uint32_t round = 0;
       round < 100 && (num_whole < 3 || num_parts < 3 || round < 6); ++round) {
    // Others' prompts take its blocks; a smaller cache moves and takes more.
    harness.RunAlone(TokenRequest(RandomTokens(7 + round, 200), 1));
    for (const uint64_t mib : {7, 4, 8}) {
      EXPECT_TRUE(
          harness.engine().SetMemoryBudget(0, fixed + (mib << 20)).ok());
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    compute();
  }
  done = true;
  saver.join();
  EXPECT_GE(num_whole, 3);
  EXPECT_GE(num_parts, 3);
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
