// Every family: prefixes shared, forked and rewound, saved and restored, its
// tokens and their log-probabilities are those of a request alone, to the last
// bit, on a CPU and on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/determinism_util.h"
#include "tests/support/model_names.h"
#include "tests/support/small_tokens.h"

namespace inlay {
namespace {

using ::inlay::testing::DeterminismCase;
using ::inlay::testing::DeterminismTest;
using ::inlay::testing::EngineHarness;
using ::inlay::testing::ExpectSame;
using ::inlay::testing::kDeterminismCases;
using ::inlay::testing::Outcome;
using ::inlay::testing::SmallTokens;
using ::inlay::testing::TokenRequest;

class EveryDecoderTest : public DeterminismTest {};

TEST_P(EveryDecoderTest, ForkedAndRewound) {
  EngineHarness harness(path_, Options(), Model());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t>& prompt = requests_[3].tokens;
  for (const size_t cut : {1, 16, 29, 70, 99}) {
    SCOPED_TRACE(::testing::Message() << "cut at " << cut);
    const auto at = prompt.begin() + static_cast<std::ptrdiff_t>(cut);
    const SessionId session = *runner.CreateSession();
    harness.Run(session, TokenRequest({prompt.begin(), at}, 0));
    const SessionId fork = *runner.Fork(session);
    RequestOptions rest = requests_[3];
    rest.tokens.assign(at, prompt.end());
    // At the same time.
    const RequestId first = *runner.Submit(session, rest);
    const RequestId second = *runner.Submit(fork, rest);
    harness.RunAll();
    for (const RequestId request : {first, second}) {
      Outcome outcome;
      harness.Drain(request, outcome);
      ExpectSame(outcome, want(3));
    }
    ASSERT_TRUE(runner.Rewind(fork, cut).ok());
    ExpectSame(harness.Run(fork, rest), want(3));
    // What the other session's log has too is kept, where it is.
    RequestOptions replace = requests_[3];
    replace.mode = InputMode::kReplace;
    ASSERT_TRUE(runner.Rewind(session, cut / 2).ok());
    ExpectSame(harness.Run(session, replace), want(3));
    runner.ReleaseSession(session);
    runner.ReleaseSession(fork);
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// Found by the tokens alone: what another session's prompt began with, and its
// own.
TEST_P(EveryDecoderTest, SharedByPrefix) {
  constexpr size_t kCommon = 47;
  EngineHarness harness(path_, Options(), Model());
  ASSERT_TRUE(harness.ok());
  RequestOptions other = requests_[3];
  other.tokens[kCommon] ^= 1;
  other.max_tokens = 1;
  harness.RunAlone(other);
  for (const uint64_t cached : {kCommon, requests_[3].tokens.size() - 1}) {
    const Outcome outcome = harness.RunAlone(requests_[3]);
    ExpectSame(outcome, want(3));
    ExpectCached(outcome, cached);
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

std::vector<std::byte> SavedBytes(ModelRunner& runner, SessionId session) {
  std::vector<std::byte> bytes;
  const absl::Status status =
      runner.Save(session, [&](absl::Span<const std::byte> piece) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

TEST_P(EveryDecoderTest, SavedAndRestored) {
  EngineHarness source(path_, Options(), Model());
  ASSERT_TRUE(source.ok());
  const bool on_cpu = GetParam().backend == Backend::kCpu;
  for (size_t i = on_cpu ? 0 : 3; i < requests_.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "request " << i);
    const SessionId session = *source.runner().CreateSession();
    const Outcome begun = Begin(source, session, i, 6);
    const auto saved = SavedBytes(source.runner(), session);
    const uint64_t log = requests_[i].tokens.size() + 6;

    const auto resume = [&](EngineHarness& harness,
                            const std::vector<std::byte>& bytes) {
      const auto restored = harness.runner().Restore(bytes);
      EXPECT_TRUE(restored.ok()) << restored.status();
      if (!restored.ok()) return ModelRunner::Restored();
      EXPECT_EQ(restored->num_tokens, log);
      ExpectSame(GoOn(harness, restored->session, i, begun), want(i));
      harness.runner().ReleaseSession(restored->session);
      return *restored;
    };
    // Where it was computed, and is still cached.
    EXPECT_EQ(resume(source, saved).num_kv_tokens, log - 1);
    {
      EngineHarness fresh(path_, Options(), Model());
      const auto restored = resume(fresh, saved);
      EXPECT_EQ(restored.num_kv_tokens, log - 1);
      EXPECT_EQ(restored.note, "");
      EXPECT_EQ(fresh.BlocksUsed(), 0u);
    }
    {  // Its KV damaged from the middle on.
      EngineHarness fresh(path_, Options(), Model());
      std::vector<std::byte> damaged = saved;
      damaged[saved.size() / 2] ^= std::byte{1};
      const auto restored = resume(fresh, damaged);
      EXPECT_LT(restored.num_kv_tokens, log - 1);
      EXPECT_NE(restored.note, "");
    }
    // A GPU's memory is too coarse for few blocks.
    if (on_cpu) {  // No room at all: another has all blocks set aside.
      EngineHarness fresh(path_, Options(), Model(10));
      const SessionId greedy = *fresh.runner().CreateSession();
      const int64_t most = fresh.runner().kv_capacity_tokens() - 10;
      const auto quote = fresh.runner().Quote(
          greedy, TokenRequest(SmallTokens(1, 10), most), true);
      ASSERT_TRUE(quote.ok()) << quote.status();
      const auto restored = fresh.runner().Restore(saved);
      ASSERT_TRUE(restored.ok());
      EXPECT_LT(restored->num_kv_tokens, log - 1);
      EXPECT_NE(restored->note, "");
      fresh.runner().ReleaseSession(greedy);
      ExpectSame(GoOn(fresh, restored->session, i, begun), want(i));
    }
    source.runner().ReleaseSession(session);
  }
  EXPECT_EQ(source.BlocksUsed(), 0u);
}

// Those that determinism_test.cc runs, of the format they have there, and all
// others.
std::vector<DeterminismCase> EveryDecoder() {
  std::vector<DeterminismCase> cases(std::begin(kDeterminismCases),
                                     std::end(kDeterminismCases));
  for (const char* model : kDecoderNames) {
    if (std::none_of(cases.begin(), cases.end(),
                     [&](const DeterminismCase& test) {
                       return std::string_view(test.model) == model;
                     })) {
      cases.push_back({model, model});
    }
  }
  return cases;
}

std::vector<DeterminismCase> EveryDecoderOnGpu() {
  std::vector<DeterminismCase> cases;
  for (const char* model : kDecoderNames) {
    cases.push_back({model, model, DType::kF32, 0, Backend::kCuda});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, EveryDecoderTest,
                         ::testing::ValuesIn(EveryDecoder()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });
INSTANTIATE_TEST_SUITE_P(Cuda, EveryDecoderTest,
                         ::testing::ValuesIn(EveryDecoderOnGpu()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace inlay
