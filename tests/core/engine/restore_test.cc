// A saved session, damaged byte by byte: an error, or the very tokens that it
// would have gone on with.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "memory/status.h"
#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;
using Bytes = std::vector<std::byte>;

ModelOptions SmallBlocks() {
  ModelOptions options;
  options.kv_dtype = DType::kKvQ4;
  options.kv_block_size = 3;
  options.kv_budget_bytes = 64 << 10;
  return options;
}

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() : harness_(GoldenModel("llama3"), {}, SmallBlocks()) {
    RequestOptions options = TokenRequest(RandomTokens(3, 4), 2);
    options.sampling.temperature = 1.0f;
    options.sampling.seed = 5;
    const SessionId session = *runner().CreateSession();
    harness_.Run(session, options);
    log_ = *runner().Tokens(session);
    const absl::Status status =
        runner().Save(session, [&](absl::Span<const std::byte> piece) {
          saved_.insert(saved_.end(), piece.begin(), piece.end());
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
    want_ = GoOn(session).tokens;
    EXPECT_EQ(want_.size(), 3u);
    runner().ReleaseSession(session);
    Forget();
  }

  ModelRunner& runner() { return harness_.runner(); }
  Outcome GoOn(SessionId session) {
    RequestOptions options = TokenRequest({}, 3);
    options.sampling.temperature = 1.0f;
    options.sampling.seed = 5;
    options.resume = true;
    return harness_.Run(session, options);
  }
  // Nothing cached stands in for what a snapshot brings.
  void Forget() {
    const uint64_t used = harness_.Stats().memory.total_bytes;
    ASSERT_TRUE(
        harness_.engine().SetMemoryBudget(0, harness_.FixedBytes()).ok());
    ASSERT_EQ(harness_.Metrics().kv_blocks_cached, 0u);
    ASSERT_TRUE(harness_.engine().SetMemoryBudget(0, used).ok());
  }
  // Whether `bytes` could be restored; then it goes on as it must.
  bool Survives(const Bytes& bytes) {
    const auto restored = runner().Restore(bytes);
    if (!restored.ok()) {
      const absl::StatusCode code = restored.status().code();
      EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                  code == absl::StatusCode::kUnimplemented ||
                  code == IoError("").code())
          << restored.status();
      return false;
    }
    EXPECT_EQ(*runner().Tokens(restored->session), log_);
    EXPECT_EQ(GoOn(restored->session).tokens, want_);
    runner().ReleaseSession(restored->session);
    Forget();
    return true;
  }

  EngineHarness harness_;
  Bytes saved_;
  std::vector<int32_t> log_, want_;
};

TEST_F(RestoreTest, EveryByteDamaged) {
  ASSERT_TRUE(Survives(saved_));
  int lost = 0;
  for (size_t i = 0; i < saved_.size() && !HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "byte " << i);
    for (const int change : {1 << (i % 8), 0xff}) {
      Bytes damaged = saved_;
      damaged[i] ^= static_cast<std::byte>(change);
      lost += Survives(damaged) ? 0 : 1;
    }
  }
  EXPECT_EQ(lost, 0);  // the log is there twice
  EXPECT_EQ(harness_.BlocksUsed(), 0u);
}

TEST_F(RestoreTest, EveryLength) {
  for (size_t size = 0; size < saved_.size() && !HasFailure(); ++size) {
    SCOPED_TRACE(::testing::Message() << "cut to " << size);
    Survives({saved_.begin(), saved_.begin() + static_cast<long>(size)});
  }
  Bytes longer = saved_;
  longer.resize(longer.size() + 100, std::byte{7});
  EXPECT_TRUE(Survives(longer));
}

// Two bytes at once may lose the log, but never make another of it.
TEST_F(RestoreTest, TwoBytesDamaged) {
  std::mt19937 random(7);
  for (int round = 0; round < 400 && !HasFailure(); ++round) {
    Bytes damaged = saved_;
    for (int i = 0; i < 2; ++i)
      damaged[random() % damaged.size()] ^=
          static_cast<std::byte>(1 + random() % 255);
    Survives(damaged);
  }
}

TEST_F(RestoreTest, ManyTimesOver) {
  std::vector<SessionId> sessions;
  for (int i = 0; i < 5; ++i) {
    const auto restored = runner().Restore(saved_);
    ASSERT_TRUE(restored.ok());
    EXPECT_EQ(restored->num_kv_tokens, log_.size() - 1);
    EXPECT_EQ(restored->note, "");
    sessions.push_back(restored->session);
  }
  // They share what they have in common.
  EXPECT_EQ(harness_.Metrics().kv_blocks_used, 2u);
  for (const SessionId session : sessions) {
    EXPECT_EQ(GoOn(session).tokens, want_);
    runner().ReleaseSession(session);
  }
  EXPECT_EQ(harness_.BlocksUsed(), 0u);
}

TEST_F(RestoreTest, IntoAnotherModel) {
  // The same vocabulary (none), another fingerprint: the log alone.
  EngineHarness other(GoldenModel("gpt2"), {}, SmallBlocks());
  const auto restored = other.runner().Restore(saved_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->num_tokens, log_.size());
  EXPECT_EQ(restored->num_kv_tokens, 0u);
  EXPECT_NE(restored->note, "");
  // Another form of KV: likewise.
  EngineHarness wide(GoldenModel("llama3"));
  const auto computed = wide.runner().Restore(saved_);
  ASSERT_TRUE(computed.ok()) << computed.status();
  EXPECT_EQ(computed->num_kv_tokens, 0u);
  EXPECT_NE(computed->note, "");
  // And text models have another vocabulary.
  EngineHarness text(GoldenModel("pocket-1m"));
  EXPECT_EQ(text.runner().Restore(saved_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RestoreTest, SavingIsRefusedWhereItMustBe) {
  const SessionId session = *runner().CreateSession();
  const RequestId request =
      *runner().Submit(session, TokenRequest({1, 2, 3}, 2));
  const auto sink = [](absl::Span<const std::byte>) {
    return absl::OkStatus();
  };
  EXPECT_EQ(runner().Save(session, sink).code(),
            absl::StatusCode::kFailedPrecondition);
  harness_.RunAll();
  EXPECT_TRUE(runner().Save(session, sink).ok());
  EXPECT_EQ(runner()
                .Save(session,
                      [](absl::Span<const std::byte>) {
                        return IoError("the disk is full");
                      })
                .message(),
            "the disk is full");
  runner().ReleaseSession(session);
  EXPECT_EQ(runner().Save(session, sink).code(),
            absl::StatusCode::kUnauthenticated);
  harness_.engine().events().Drop(request);
  // An empty session is one too.
  const SessionId empty = *runner().CreateSession();
  Bytes bytes;
  ASSERT_TRUE(runner()
                  .Save(empty,
                        [&](absl::Span<const std::byte> piece) {
                          bytes.insert(bytes.end(), piece.begin(), piece.end());
                          return absl::OkStatus();
                        })
                  .ok());
  const auto restored = runner().Restore(bytes);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->num_tokens, 0u);
}

}  // namespace
}  // namespace inlay
