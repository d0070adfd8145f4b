// Sessions saved and restored beside requests: in pieces, between which blocks
// are evicted, moved, taken back and computed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/engine/recording.h"
#include "core/engine/snapshot.h"
#include "tests/support/engine_harness.h"
#include "tests/support/replay_util.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::PocketModel;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;
using ::testing::HasSubstr;
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

// One session's KV, cached by nothing.
struct Saved {
  Bytes bytes;
  std::vector<int32_t> log;

  explicit Saved(uint32_t seed) {
    EngineHarness harness(PocketModel(), {}, Cache());
    ModelRunner& runner = harness.runner();
    const SessionId session = *runner.CreateSession();
    harness.Run(session, TokenRequest(RandomTokens(seed, kTokens), 1));
    bytes = *Save(runner, session);
    log = *runner.Tokens(session);
  }
};

using RestoreInPiecesTest = ::inlay::testing::ReplayTest;

// A restored session has all of its KV or says why not, and what is there is
// its own. What was recorded meanwhile replays, too.
TEST_F(RestoreInPiecesTest, BesideEvictionsAndMoves) {
  const Saved saved(1);
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const auto whole = Decode(runner, saved.bytes);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_TRUE(runner.StartRecording(path()).ok());

  std::atomic<bool> done{false};
  std::atomic<int> num_whole{0}, num_parts{0};
  std::thread restorer([&] {
    while (!done) {
      const auto restored = runner.Restore(saved.bytes);
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_EQ(restored->num_tokens, saved.log.size());
      const bool all = restored->num_kv_tokens >= whole->snapshot.num_kv_tokens;
      EXPECT_EQ(restored->note.empty(), all) << restored->note;
      ++(all ? num_whole : num_parts);
      const auto again = Save(runner, restored->session);
      ASSERT_TRUE(again.ok()) << again.status();
      const auto found = Decode(runner, *again);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->snapshot.log, saved.log);
      const auto size = static_cast<uint64_t>(whole->snapshot.kv.block_size);
      for (uint64_t i = 0; i < found->usable_kv_tokens / size; ++i)
        ASSERT_EQ(found->KvBlock(0, i), whole->KvBlock(0, i)) << "block " << i;
      runner.ReleaseSession(restored->session);
    }
  });
  const uint64_t fixed = harness.FixedBytes();
  for (uint32_t round = 0;
       round < 200 && (num_whole < 3 || num_parts < 3 || round < 6); ++round) {
    harness.RunAlone(TokenRequest(RandomTokens(7 + round, 400), 1));
    for (const uint64_t mib : {7, 3, 8}) {
      EXPECT_TRUE(
          harness.engine().SetMemoryBudget(0, fixed + (mib << 20)).ok());
      harness.RunAlone(TokenRequest({1, 2, 3}, 1));
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  }
  done = true;
  restorer.join();
  EXPECT_GE(num_whole, 3);
  EXPECT_GE(num_parts, 3);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  ASSERT_TRUE(runner.StopRecording().ok());
  ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
  const ReplayReport report = Replay(harness);
  EXPECT_TRUE(report.same()) << report.first_difference->what;
}

// A smaller cache takes blocks from sessions that are being restored before it
// takes what the host asked to stay; and who runs comes before them, too.
TEST_F(RestoreInPiecesTest, MakesWayForOthers) {
  const Saved saved(1);
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const SessionId quoted = *runner.CreateSession();
  ASSERT_TRUE(runner
                  .Quote(quoted, TokenRequest(RandomTokens(3, 100), 50),
                         /*reserve=*/true)
                  .ok());
  const uint64_t reserved = harness.BlocksUsed();
  ASSERT_GT(reserved, 0u);
  std::atomic<bool> done{false};
  std::atomic<int> num_whole{0}, num_parts{0};
  std::thread restorer([&] {
    while (!done) {
      const auto restored = runner.Restore(saved.bytes);
      ASSERT_TRUE(restored.ok()) << restored.status();
      ++(restored->num_kv_tokens >= uint64_t{kTokens} ? num_whole : num_parts);
      runner.ReleaseSession(restored->session);
      // Else it would always be there, and hide what others lose.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const uint64_t fixed = harness.FixedBytes();
  for (int round = 0; round < 300 && (round < 12 || num_parts < 3); ++round) {
    for (const uint64_t mib : {3, 8}) {
      EXPECT_TRUE(
          harness.engine().SetMemoryBudget(0, fixed + (mib << 20)).ok());
      harness.RunAll();
      EXPECT_GE(harness.BlocksUsed(), reserved);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  }
  // Prompts that need nearly all of the cache.
  for (uint32_t round = 0; round < 3; ++round) {
    const auto outcome =
        harness.RunAlone(TokenRequest(RandomTokens(9 + round, 800), 2));
    EXPECT_EQ(outcome.tokens.size(), 2u);
  }
  done = true;
  restorer.join();
  EXPECT_GE(num_parts, 3);
  EXPECT_EQ(harness.Metrics().preemptions_recompute, 0u);
}

// Steps that end for want of time take nothing from those being restored.
TEST_F(RestoreInPiecesTest, StaysWholeBesideShortSteps) {
  const Saved saved(1);
  ModelOptions cache = Cache();
  cache.kv_budget_bytes *= 4;
  // So that what was restored before does not stand in for it.
  EngineOptions options;
  options.prefix_sharing = false;
  EngineHarness harness(PocketModel(), options, cache);
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  std::atomic<bool> done{false};
  std::thread restorer([&] {
    for (int i = 0; i < 30; ++i) {
      const auto restored = runner.Restore(saved.bytes);
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_EQ(restored->note, "");
      runner.ReleaseSession(restored->session);
    }
    done = true;
  });
  while (!done) {
    const SessionId session = *runner.CreateSession();
    const auto request =
        runner.Submit(session, TokenRequest(RandomTokens(4, 100), 50));
    ASSERT_TRUE(request.ok()) << request.status();
    harness.engine().events().Drop(*request);
    // Often there is time for some steps, and not for one more.
    for (uint64_t i = 0; i < 100 && !done; ++i)
      ASSERT_TRUE(harness.engine().Step(500 + 300 * (i % 10)).ok());
    runner.ReleaseSession(session);
    harness.RunAll();
  }
  restorer.join();
}

TEST_F(RestoreInPiecesTest, EndsWithTheEngine) {
  const Saved saved(1);
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  std::atomic<int> restored{0};
  absl::Status last;
  std::thread restorer([&] {
    while (last.ok()) {
      last = runner.Restore(saved.bytes).status();
      ++restored;
    }
  });
  while (restored == 0) std::this_thread::yield();
  harness.engine().Close();
  restorer.join();
  EXPECT_TRUE(absl::IsUnavailable(last)) << last;
}

// Entries that no runner makes: an end without a beginning, of another session,
// twice; and requests in a session that is still being restored.
TEST_F(RestoreInPiecesTest, RecordingsThatNobodyMade) {
  const Saved saved(1);
  EngineHarness harness(PocketModel(), {}, Cache());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  ASSERT_TRUE(runner.StartRecording(path()).ok());
  const auto restored = runner.Restore(saved.bytes);
  ASSERT_TRUE(restored.ok()) << restored.status();
  ASSERT_TRUE(runner.StopRecording().ok());
  runner.ReleaseSession(restored->session);
  const std::vector<RecordingEntry> good =
      ::inlay::testing::ReadEntries(path());
  ASSERT_EQ(good.size(), 4u);  // header, begin, end, end of all
  ASSERT_TRUE(std::holds_alternative<BeginRestoreEntry>(good[1]));
  const SessionId id = restored->session;
  const auto replay = [&](std::vector<RecordingEntry> entries) {
    ::inlay::testing::WriteEntries(path(), entries);
    return harness.engine().Replay(runner, path());
  };
  const auto same = replay(good);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->same());
  EXPECT_FALSE(replay({good[0], good[2]}).ok());
  EXPECT_FALSE(replay({good[0], good[1], EndRestoreEntry{id + 1}}).ok());
  EXPECT_FALSE(replay({good[0], good[1], good[2], good[2]}).ok());
  for (const RecordingEntry& entry :
       {RecordingEntry(SubmitEntry{id, id + 1, 1, TokenRequest({1}, 1)}),
        RecordingEntry(ForkEntry{id, id + 1}),
        RecordingEntry(RewindEntry{id, 3})}) {
    const auto early = replay({good[0], good[1], entry});
    ASSERT_TRUE(early.ok()) << early.status();
    ASSERT_TRUE(early->stopped) << EntryName(entry);
    EXPECT_THAT(early->first_difference->what, HasSubstr("being restored"));
  }
  auto begin = std::get<BeginRestoreEntry>(good[1]);
  begin.snapshot.resize(40);
  const auto cut = replay({good[0], begin});
  EXPECT_TRUE(!cut.ok() || cut->stopped);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
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
