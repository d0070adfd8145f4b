// Models whose layers keep a state: it is found, left and restored as KV is,
// and what is generated is what the model gives when everything is computed
// anew.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/model_harness.h"
#include "tests/support/model_names.h"
#include "tests/support/small_tokens.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;
using ::inlay::testing::GoldenModel;
using ::inlay::testing::Outcome;
using ::inlay::testing::SmallTokens;
using ::inlay::testing::TokenRequest;

struct RecurrentCase {
  const char* model;
  Backend backend;

  friend void PrintTo(const RecurrentCase& test, std::ostream* out) {
    *out << test.model;
  }
};

class RecurrentTest : public ::testing::TestWithParam<RecurrentCase> {
 protected:
  void SetUp() override {
    if (GetParam().backend != Backend::kCuda) return;
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
  }

  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string path() const { return GoldenModel(GetParam().model); }
  // The same with room for more tokens where there is little: bf16 KV of 96
  // bytes a token makes kimi_linear's states lie 512 tokens apart, which is all
  // of its context; as it rotates nothing, others do.
  std::string LongPath() {
    if (path() != GoldenModel("kimi_linear")) return path();
    folder_ = ::testing::TempDir() + "long_context_XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    std::ifstream file(path() + "/config.json");
    nlohmann::json config = nlohmann::json::parse(file);
    config["model_max_length"] = 1024;
    std::ofstream(folder_ + "/config.json") << config;
    std::filesystem::copy(path() + "/model.safetensors", folder_);
    return folder_;
  }

  // The same tokens however they are computed.
  static EngineOptions Options() {
    EngineOptions options;
    options.backend = GetParam().backend;
    options.batch_invariant = GetParam().backend == Backend::kCuda;
    return options;
  }

  // Greedy tokens by the model alone, all of the prompt at once.
  static std::vector<int32_t> Fresh(EngineHarness& harness,
                                    const std::vector<int32_t>& prompt,
                                    int count) {
    const Model& model = *harness.runner().loaded().model;
    auto device = GetParam().backend == Backend::kCuda
                      ? CreateCudaDevice(0, 0)
                      : CreateCpuDevice(1, 0, nullptr);
    EXPECT_TRUE(device.ok());
    ModelHarness plain(model, **device,
                       static_cast<int64_t>(prompt.size()) + count + 64);
    const int sequence = plain.AddSequence(0);
    auto logits = plain.Run(sequence, prompt, 1 << 20);
    EXPECT_TRUE(logits.ok()) << logits.status();
    auto tokens = plain.Greedy(sequence, std::move(logits->back()), count);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return *std::move(tokens);
  }

  static int64_t StateBlock(EngineHarness& harness) {
    return harness.runner().loaded().kv_layout.groups().back().block_size;
  }

 private:
  std::string folder_;
};

TEST_P(RecurrentTest, ForksAndRewindsGoOnFromAState) {
  EngineOptions options = Options();
  options.scheduler.max_batch_tokens = 37;  // chunks end anywhere
  options.scheduler.max_running = 4;
  EngineHarness harness(LongPath(), options);
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  // Where the last state lies that the prompt leaves behind it.
  const int64_t block = StateBlock(harness);
  const auto state = static_cast<size_t>((127 + block) / block * block);
  const int64_t context = runner.loaded().model->info().max_positions;
  ASSERT_LE(static_cast<int64_t>(state) + 62, context)
      << "a state comes every " << block << " tokens";
  const std::vector<int32_t> prompt = SmallTokens(1, state + 22);
  const std::vector<int32_t> want = Fresh(harness, prompt, 40);
  const SessionId session = *runner.CreateSession();
  const Outcome first = harness.Run(session, TokenRequest(prompt, 20));
  EXPECT_EQ(first.tokens,
            std::vector<int32_t>(want.begin(), want.begin() + 20));
  EXPECT_EQ(first.finish.cached_tokens, 0u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
  // Where it ended, to the token: the last one was never computed.
  const SessionId fork = *runner.Fork(session);
  for (const SessionId id : {session, fork}) {
    const Outcome more = harness.Run(id, TokenRequest({}, 20));
    EXPECT_EQ(more.finish.cached_tokens, state + 41);
    EXPECT_EQ(more.tokens, std::vector<int32_t>(want.begin() + 20, want.end()));
  }
  // Back into the prompt: from the last state kept before.
  const auto rest = prompt.begin() + static_cast<ptrdiff_t>(state);
  ASSERT_TRUE(runner.Rewind(fork, state + 12).ok());
  const std::vector<int32_t> tail = SmallTokens(2, 10);
  std::vector<int32_t> changed(prompt.begin(), rest + 12);
  changed.insert(changed.end(), tail.begin(), tail.end());
  const Outcome rewound = harness.Run(fork, TokenRequest(tail, 15));
  EXPECT_EQ(rewound.finish.cached_tokens, state);
  EXPECT_EQ(rewound.tokens, Fresh(harness, changed, 15));
  // Another session with the same beginning, by the tokens alone.
  std::vector<int32_t> shares(prompt.begin(), rest + 7);
  shares.push_back(7);
  const Outcome shared = harness.RunAlone(TokenRequest(shares, 15));
  EXPECT_EQ(shared.finish.cached_tokens, state);
  EXPECT_EQ(shared.tokens, Fresh(harness, shares, 15));
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// With budgets of a few blocks, which a GPU's memory is too coarse for.
class RecurrentBudgetTest : public RecurrentTest {};

TEST_P(RecurrentTest, RestoredGoesOnAsContinued) {
  EngineHarness harness(path(), Options());
  ASSERT_TRUE(harness.ok());
  const std::vector<int32_t> prompt = SmallTokens(3, 90);
  const std::vector<int32_t> want = Fresh(harness, prompt, 30);
  const SessionId session = *harness.runner().CreateSession();
  harness.Run(session, TokenRequest(prompt, 10));
  std::vector<std::byte> saved;
  ASSERT_TRUE(harness.runner()
                  .Save(session,
                        [&](absl::Span<const std::byte> piece) {
                          saved.insert(saved.end(), piece.begin(), piece.end());
                          return absl::OkStatus();
                        })
                  .ok());
  EngineHarness other(path(), Options());
  const auto restored = other.runner().Restore(saved);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->num_kv_tokens, 99u);
  EXPECT_EQ(restored->note, "");
  const Outcome more = other.Run(restored->session, TokenRequest({}, 20));
  EXPECT_EQ(more.finish.cached_tokens, 99u);
  EXPECT_EQ(more.tokens, std::vector<int32_t>(want.begin() + 10, want.end()));
  // A state that was damaged is not used.
  saved[saved.size() / 2] ^= std::byte{1};
  const auto damaged = other.runner().Restore(saved);
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_NE(damaged->note, "");
  const Outcome anew = other.Run(damaged->session, TokenRequest({}, 20));
  EXPECT_EQ(anew.tokens, more.tokens);
}

TEST_P(RecurrentBudgetTest, PreemptedGivesWhatUndisturbedGives) {
  EngineHarness reference(path(), Options());
  ASSERT_TRUE(reference.ok());
  EngineOptions options = Options();
  options.scheduler.max_batch_tokens = 16;
  options.scheduler.max_running = 4;
  std::vector<RequestOptions> requests;
  std::vector<std::vector<int32_t>> want;
  for (uint32_t i = 0; i < 4; ++i) {
    const std::vector<int32_t> prompt = SmallTokens(10 + i, 70 + 5 * i);
    requests.push_back(TokenRequest(prompt, 60));
    want.push_back(Fresh(reference, prompt, 60));
  }
  // Room for hardly more than the largest alone.
  ModelOptions model;
  const KvGroups groups(reference.runner().loaded().kv_layout.groups().begin(),
                        reference.runner().loaded().kv_layout.groups().end());
  model.kv_budget_bytes = static_cast<uint64_t>(KvBlocksFor(150, groups) + 5) *
                          reference.BlockBytes();
  EngineHarness harness(path(), options, model);
  ASSERT_TRUE(harness.ok());
  const std::vector<Outcome> outcomes = harness.RunTogether(requests);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(outcomes[i].tokens, want[i]) << i;
  }
  const EngineMetrics metrics = harness.Metrics();
  // Where KV takes more blocks in the end than for the prompts, somebody makes
  // way; states alone (and KV of large blocks) stay as they were admitted.
  if (KvHeldBlocks(70 + 60, groups) > KvHeldBlocks(70, groups)) {
    EXPECT_GT(metrics.preemptions_recompute, 0u);
  }
  EXPECT_GT(metrics.evicted_blocks, 0u);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

TEST_P(RecurrentTest, NamedPrefixesHoldTheirState) {
  EngineHarness harness(path(), Options());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t> system = SmallTokens(5, 100);
  const auto prefix =
      runner.CreatePrefix("system", TokenRequest(system, 0), true, 0);
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(*prefix)->num_cached, 100u);
  EXPECT_GT(harness.BlocksUsed(), 0u);
  std::vector<int32_t> whole = system;
  whole.insert(whole.end(), {7, 8, 9});
  const SessionId opened = *runner.OpenPrefix(*prefix);
  const Outcome outcome = harness.Run(opened, TokenRequest({7, 8, 9}, 12));
  EXPECT_EQ(outcome.finish.cached_tokens, 100u);
  EXPECT_EQ(outcome.tokens, Fresh(harness, whole, 12));
}

TEST_P(RecurrentBudgetTest, QuotesAndLeases) {
  EngineHarness harness(path(), Options());
  ASSERT_TRUE(harness.ok());
  ModelRunner& runner = harness.runner();
  const std::vector<int32_t> prompt = SmallTokens(6, 120);
  const std::vector<int32_t> want = Fresh(harness, prompt, 30);
  const SessionId session = *runner.CreateSession();
  const auto quote = runner.Quote(session, TokenRequest(prompt, 30), true);
  ASSERT_TRUE(quote.ok()) << quote.status();
  EXPECT_TRUE(quote->reserved && quote->fits_now);
  EXPECT_EQ(harness.BlocksUsed() * harness.BlockBytes(), quote->kv_bytes);
  const auto request = runner.Submit(session, TokenRequest(prompt, 30));
  ASSERT_TRUE(request.ok()) << request.status();
  // Blocks move as the budget falls, and the request ends all the same.
  const uint64_t fixed = harness.FixedBytes();
  uint64_t blocks = 60;
  while (runner.HasWork()) {
    ASSERT_TRUE(harness.engine().Step(0).ok());
    blocks = std::max<uint64_t>(blocks - 2, 30);
    ASSERT_TRUE(harness.engine()
                    .SetMemoryBudget(0, fixed + blocks * harness.BlockBytes())
                    .ok());
  }
  Outcome outcome;
  harness.Drain(*request, outcome);
  EXPECT_EQ(outcome.tokens, want);
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

std::vector<RecurrentCase> On(Backend backend) {
  std::vector<RecurrentCase> cases;
  for (const char* model : kRecurrentNames) {
    cases.push_back({model, backend});
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<RecurrentCase>& info) {
  return info.param.model;
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentTest,
                         ::testing::ValuesIn(On(Backend::kCpu)), NameOf);
INSTANTIATE_TEST_SUITE_P(Cuda, RecurrentTest,
                         ::testing::ValuesIn(On(Backend::kCuda)), NameOf);
INSTANTIATE_TEST_SUITE_P(Models, RecurrentBudgetTest,
                         ::testing::ValuesIn(On(Backend::kCpu)), NameOf);

}  // namespace
}  // namespace inlay
