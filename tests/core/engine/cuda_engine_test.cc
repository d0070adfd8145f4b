// The engine on a GPU: what it does on the CPU, with the same tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "memory/status.h"
#include "tests/support/engine_harness.h"
#include "tests/support/model_names.h"
#include "tests/support/paths/paths.h"
#include "tests/support/small_tokens.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::GoldenModel;
using testing::Outcome;
using testing::PocketModel;
using testing::RandomTokens;
using testing::SmallTokens;
using testing::TokenRequest;

EngineOptions OnGpu() {
  EngineOptions options;
  options.backend = Backend::kCuda;
  options.scheduler.max_batch_tokens = 64;
  options.scheduler.max_running = 8;
  return options;
}

class CudaEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = CreateCudaDevice(0, 0);
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status();
  }
};

// An extent of the model's KV cache: a GPU's memory is mapped 2 MB at a time.
size_t LeastKvBytes(EngineHarness& harness) {
  return std::lcm(harness.runner().loaded().kv_layout.block_bytes(),
                  size_t{2} << 20);
}

std::vector<RequestOptions> Requests(int count) {
  std::vector<RequestOptions> requests;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<uint32_t>(i);
    requests.push_back(
        TokenRequest(RandomTokens(seed, 5 + static_cast<size_t>(i * 37 % 150)),
                     4 + i * 7 % 40));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    requests.back().sampling.seed = seed;
  }
  return requests;
}

// Has sessions hold blocks, which they do not use, until others have at most
// `left`: a GPU's memory comes in pieces too large for a small cache.
void SetAside(EngineHarness& harness, int64_t left) {
  const LoadedModel& loaded = harness.runner().loaded();
  const auto groups = loaded.kv_layout.groups();
  const auto all = static_cast<int64_t>(harness.Metrics().kv_blocks_total);
  while (true) {
    const auto used = static_cast<int64_t>(harness.BlocksUsed());
    const int64_t spare = all - used - left;
    int64_t tokens = loaded.max_context;
    while (tokens > 2 && KvBlocksFor(tokens, groups) > spare) --tokens;
    if (KvBlocksFor(tokens, groups) > spare) return;
    const auto quote = harness.runner().Quote(
        *harness.runner().CreateSession(),
        TokenRequest(SmallTokens(1, 1), tokens - 1), true);
    ASSERT_TRUE(quote.ok()) << quote.status();
    ASSERT_GT(harness.BlocksUsed(), static_cast<uint64_t>(used));
  }
}

// Sums are ordered otherwise, so this is for float32: with 16-bit weights a GPU
// rounds activations too.
TEST_F(CudaEngineTest, TheTokensOfTheCpu) {
  const auto random = [](const char* name) {
    return "random:" + GoldenModel(name) + "?dtype=f32";
  };
  for (const std::string& model : {GoldenModel("llama2"),
                                   GoldenModel("gemma2"),
                                   GoldenModel("gpt2"),
                                   random("llama3"),
                                   random("qwen3"),
                                   random("phi3_longrope"),
                                   random("qwen3_moe"),
                                   random("glm4_moe"),
                                   random("gpt_oss"),
                                   random("deepseek_v2_lite"),
                                   random("deepseek_v3"),
                                   random("deepseek_v32"),
                                   random("deepseek_v4"),
                                   random("deepseek_v4_rates"),
                                   random("glm_moe_dsa"),
                                   random("gemma4_moe_text"),
                                   random("lfm2"),
                                   random("mamba2"),
                                   random("qwen3_next"),
                                   random("qwen3_5_text"),
                                   random("qwen3_5_moe_text"),
                                   random("falcon_h1"),
                                   random("granitemoehybrid"),
                                   random("nemotron_h"),
                                   random("kimi_linear")}) {
    SCOPED_TRACE(model);
    EngineHarness cpu(model);
    EngineHarness gpu(model, OnGpu());
    ASSERT_TRUE(cpu.ok() && gpu.ok());
    const auto requests = Requests(12);
    const auto together = gpu.RunTogether(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto want = cpu.RunAlone(requests[i]).tokens;
      EXPECT_EQ(together[i].tokens, want) << i;
      EXPECT_EQ(gpu.RunAlone(requests[i]).tokens, want) << i;
    }
    EXPECT_EQ(gpu.BlocksUsed(), 0u);
  }
}

// With 16-bit weights, where any other order of sums shows: alone, in batches
// and in chunks of any size.
TEST_F(CudaEngineTest, BatchInvariantTokens) {
  const std::string long_contexts =
      "random:" + TestData() + "/shapes/llama-7m-64k?dtype=bf16";
  std::vector<std::string> models = {long_contexts};
  for (const char* name : kDecoderNames) models.push_back(GoldenModel(name));
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    EngineOptions options = OnGpu();
    options.batch_invariant = true;
    EngineHarness alone(model, options);
    options.scheduler.max_batch_tokens = 23;
    EngineHarness chunked(model, options);
    ASSERT_TRUE(alone.ok() && chunked.ok());
    auto requests = Requests(24);
    // Of each model's context and vocabulary.
    const int64_t context = alone.runner().loaded().max_context;
    for (RequestOptions& request : requests) {
      request.tokens.resize(
          std::min(request.tokens.size(),
                   static_cast<size_t>(context - request.max_tokens)));
      for (int32_t& token : request.tokens) token %= 112;
    }
    if (model == long_contexts) {
      requests.resize(4);
      for (size_t i = 0; i < 4; ++i)
        requests[i].tokens = RandomTokens(i, 500 + 700 * i);
    }
    const auto together = alone.RunTogether(requests);
    const auto pieces = chunked.RunTogether(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto want = alone.RunAlone(requests[i]).tokens;
      EXPECT_EQ(together[i].tokens, want) << i;
      EXPECT_EQ(pieces[i].tokens, want) << i;
    }
  }
}

// Requests whose prompts the cache has room for all at once, and not for what
// they become: some make way, are computed again, and end with the same tokens.
TEST_F(CudaEngineTest, PreemptedAndEvicted) {
  constexpr int64_t kAtOnce = 8;
  constexpr int64_t kPrompt = 40;  // and one more each
  constexpr int64_t kGenerated = 200;
  for (const char* name :
       {"llama3",         "gemma3_text",    "mistral",      "gpt_oss",
        "deepseek_v3",    "glm_moe_dsa",    "deepseek_v4",  "gemma4_text",
        "falcon_h1",      "mamba2",         "qwen3_5_text", "kimi_linear",
        "phi3_longrope",  "llama4_text",    "deepseek_v32", "deepseek_v4_rates",
        "hy_v4",          "mistral_large4", "glm5_next",    "minimax_m3",
        "qwen3_next",     "nemotron_h",     "qwen3_moe",    "lfm2",
        "minimax",        "linear_attn",    "mamba",        "rwkv7",
        "recurrent_gemma"}) {
    SCOPED_TRACE(name);
    EngineOptions options = OnGpu();
    options.batch_invariant = true;
    options.scheduler.max_running = kAtOnce;
    EngineHarness alone(GoldenModel(name), options);
    ASSERT_TRUE(alone.ok());
    options.scheduler.max_batch_tokens = 23;
    ModelOptions model;
    model.kv_budget_bytes = LeastKvBytes(alone);
    EngineHarness crowded(GoldenModel(name), options, model);
    ASSERT_TRUE(crowded.ok());
    const KvLayout& layout = crowded.runner().loaded().kv_layout;
    const auto groups = layout.groups();
    const int64_t begun = KvBlocksFor(kPrompt + kAtOnce + 10, groups);
    const int64_t longest = KvBlocksFor(kPrompt + kAtOnce + kGenerated, groups);
    const int64_t left = std::max(kAtOnce * begun, longest + 3);
    SetAside(crowded, left);
    ASSERT_GE(crowded.Metrics().kv_blocks_total - crowded.BlocksUsed(),
              static_cast<uint64_t>(longest));
    std::vector<RequestOptions> requests;
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const auto seed = static_cast<uint32_t>(i);
      requests.push_back(
          TokenRequest(SmallTokens(seed, kPrompt + seed), kGenerated));
      requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      requests.back().sampling.seed = seed;
    }
    const uint64_t held = crowded.BlocksUsed();
    const auto outcomes = crowded.RunTogether(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(outcomes[i].tokens, alone.RunAlone(requests[i]).tokens) << i;
    }
    const EngineMetrics metrics = crowded.Metrics();
    std::printf("%-14s %d blocks of %d: %d preempted, %d evicted\n", name,
                static_cast<int>(left),
                static_cast<int>(metrics.kv_blocks_total),
                static_cast<int>(metrics.preemptions_recompute),
                static_cast<int>(metrics.evicted_blocks));
    // Before the first has ended, the last has generated most of its own. Of
    // windows and states alone, none needs more than it began with.
    if (kAtOnce * KvHeldBlocks(kPrompt + kGenerated / 2, groups) > left) {
      EXPECT_GT(metrics.preemptions_recompute, 0u);
      EXPECT_GT(metrics.evicted_blocks, 0u);
    }
    // What has just been computed is there.
    const Outcome again = crowded.RunAlone(requests[0]);
    const Outcome cached = crowded.RunAlone(requests[0]);
    EXPECT_EQ(again.tokens, outcomes[0].tokens);
    EXPECT_EQ(cached.tokens, outcomes[0].tokens);
    if (!layout.has_states()) {
      EXPECT_GT(cached.finish.cached_tokens, 0u);
    }
    EXPECT_EQ(crowded.BlocksUsed(), held);
  }
}

// Chunks, recorded steps and those begun ahead under a pattern.
TEST_F(CudaEngineTest, TheTokensOfTheCpuByAPattern) {
  ModelOptions pattern;
  pattern.attention_pattern =
      "block=16,window=32,global=16,stride=64,random=16";
  for (const char* name : {"llama2", "gemma2"}) {
    EngineHarness cpu(GoldenModel(name), {}, pattern);
    EngineHarness gpu(GoldenModel(name), OnGpu(), pattern);
    EngineHarness dense(GoldenModel(name), OnGpu());
    ASSERT_TRUE(cpu.ok() && gpu.ok() && dense.ok());
    const auto requests = Requests(12);
    const auto together = gpu.RunTogether(requests);
    size_t others = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto want = cpu.RunAlone(requests[i]).tokens;
      EXPECT_EQ(together[i].tokens, want) << name << i;
      EXPECT_EQ(gpu.RunAlone(requests[i]).tokens, want) << name << i;
      others += dense.RunAlone(requests[i]).tokens != want ? 1 : 0;
    }
    EXPECT_GT(others, 3u) << name;
    EXPECT_GT(gpu.Metrics().steps_ahead, 50u) << name;
  }
}

TEST_F(CudaEngineTest, BudgetsComeAndGo) {
  const auto requests = Requests(10);
  ModelOptions model;
  model.kv_budget_bytes = 64 << 20;
  EngineHarness free(GoldenModel("llama3"), OnGpu(), model);
  EngineHarness leased(GoldenModel("llama3"), OnGpu(), model);
  ASSERT_TRUE(free.ok() && leased.ok());
  const auto want = free.RunTogether(requests);
  std::mt19937 random(1);
  // Recorded steps count as scratch until the cache has to shrink.
  const uint64_t fixed = leased.FixedBytes() + (16 << 20);
  const auto got = leased.RunTogether(requests, 0, [&] {
    // Extents are a few MiB here: some of these budgets leave no cache at all.
    const uint64_t bytes = fixed + random() % (80 << 20);
    ASSERT_TRUE(leased.engine().SetMemoryBudget(0, bytes).ok());
    EXPECT_LE(leased.Stats().memory.total_bytes, bytes);
  });
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
}

void GoBetweenDevices(const std::string& model) {
  SCOPED_TRACE(model);
  EngineHarness gpu(model, OnGpu());
  EngineHarness cpu(model);
  ASSERT_TRUE(gpu.ok() && cpu.ok());
  const RequestOptions first = TokenRequest(RandomTokens(3, 70), 20);
  const RequestOptions second = TokenRequest(RandomTokens(4, 9), 20);
  const SessionId session = *gpu.runner().CreateSession();
  gpu.Run(session, first);
  std::string bytes;
  ASSERT_TRUE(gpu.runner()
                  .Save(session,
                        [&](absl::Span<const std::byte> piece) {
                          bytes.append(
                              reinterpret_cast<const char*>(piece.data()),
                              piece.size());
                          return absl::OkStatus();
                        })
                  .ok());
  const auto span = absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const auto want = gpu.Run(session, second).tokens;
  EngineHarness other(model, OnGpu());
  for (EngineHarness* harness : {&gpu, &other, &cpu}) {
    const auto restored = harness->runner().Restore(span);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_GE(restored->num_kv_tokens, 64u) << restored->note;
    EXPECT_EQ(harness->Run(restored->session, second).tokens, want);
  }
}

TEST_F(CudaEngineTest, SnapshotsGoBetweenDevices) {
  GoBetweenDevices(GoldenModel("llama2"));
  GoBetweenDevices("random:" + GoldenModel("qwen3_next") + "?dtype=f32");
  GoBetweenDevices("random:" + GoldenModel("mamba2") + "?dtype=f32");
}

// In a cache of two such requests.
void ComesBackFromTheTier(const std::string& name,
                          const EngineOptions& options) {
  SCOPED_TRACE(name);
  ModelOptions model;
  EngineHarness free(GoldenModel(name), options);
  ASSERT_TRUE(free.ok());
  model.kv_budget_bytes = LeastKvBytes(free);
  model.host_cache_bytes = 64 << 20;
  EngineHarness gpu(GoldenModel(name), options, model);
  ASSERT_TRUE(gpu.ok());
  const auto groups = gpu.runner().loaded().kv_layout.groups();
  // Tiers hold whole blocks, and of states those where blocks of all groups
  // end.
  int64_t prompt = 1;
  for (const KvGroup& group : groups)
    prompt = std::lcm(prompt, int64_t{group.block_size});
  prompt = std::max<int64_t>(230, prompt + 30);
  ASSERT_LE(prompt + 4, gpu.runner().loaded().max_context);
  SetAside(gpu, 2 * KvBlocksFor(prompt + 4, groups) + 3);
  std::vector<RequestOptions> requests;
  for (uint32_t i = 0; i < 8; ++i)
    requests.push_back(
        TokenRequest(RandomTokens(i, static_cast<size_t>(prompt)), 4));
  for (int round = 0; round < 2; ++round) {
    for (const RequestOptions& request : requests) {
      EXPECT_EQ(gpu.RunAlone(request).tokens, free.RunAlone(request).tokens);
    }
  }
  const EngineMetrics metrics = gpu.Metrics();
  EXPECT_GT(metrics.evicted_blocks, 0u);
  EXPECT_GT(metrics.tier_host_written_bytes, 0u);
  EXPECT_GT(metrics.tier_host_hit_blocks, 0u);
  std::printf("%-14s prompts of %d: %d blocks back from the host\n",
              name.c_str(), static_cast<int>(prompt),
              static_cast<int>(metrics.tier_host_hit_blocks));
}

TEST_F(CudaEngineTest, WhatMakesWayComesBackFromTheTier) {
  ComesBackFromTheTier("llama3", OnGpu());
  // Prompts end at other places where a state is found or not.
  EngineOptions options = OnGpu();
  options.batch_invariant = true;
  ComesBackFromTheTier("qwen3_5_text", options);
}

// An illegal access by a kernel, of whatever part of the process, is the end of
// the GPU for all of it.
void Fault() {
  const auto device = *CreateCudaDevice(0, 0);
  const auto stream = *device->CreateStream();
  ElementwiseDesc desc;
  desc.function = Elementwise::kScale;
  desc.width = 4;
  const auto* row =
      *Select("elementwise", ElementwiseTable(), desc, device->info());
  ElementwiseParams params;
  params.y =
      MatrixView(reinterpret_cast<std::byte*>(16), DType::kF32, 1, desc.width);
  const DeviceScope scope(*device);
  row->run(desc, params, *stream).IgnoreError();
  EXPECT_FALSE(stream->Synchronize().ok());
}

// In a process of its own. Exits with 0 when all is as it should be.
[[noreturn]] void LoseTheGpu() {
  {
    EngineHarness gpu(GoldenModel("llama2"), OnGpu());
    const SessionId session = *gpu.runner().CreateSession();
    const RequestOptions request = TokenRequest(RandomTokens(1, 20), 20);
    const RequestId id = *gpu.runner().Submit(session, request);
    EXPECT_TRUE(gpu.engine().Step(0).ok());
    Fault();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(absl::IsAborted(gpu.engine().Step(0).status()));
    }
    Outcome outcome;
    gpu.Drain(id, outcome);
    EXPECT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finish.reason, FinishReason::kError);
    EXPECT_TRUE(absl::IsAborted(outcome.finish.status));
    EXPECT_TRUE(
        absl::IsAborted(gpu.runner().Submit(session, request).status()));
    EXPECT_TRUE(absl::IsAborted(
        gpu.engine().Load(GoldenModel("llama2"), ModelOptions()).status()));
    EXPECT_TRUE(absl::IsAborted(gpu.engine().MeasureCopy(1 << 20).status()));
  }
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(CudaEngineTest, ALostGpuEndsEveryRequestAndIsReportedByEveryCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LoseTheGpu(), ::testing::ExitedWithCode(0), "");
}

// Serving as it comes: requests of all lengths, cancelled at any time, while
// the memory budget goes up and down.
TEST_F(CudaEngineTest, TenThousandRequestsLeaveNothingBehind) {
  constexpr int kRequests = 10000;
  constexpr size_t kAtOnce = 96;
  EngineOptions options = OnGpu();
  options.scheduler.max_batch_tokens = 512;
  options.scheduler.max_running = 64;
  ModelOptions model;
  model.kv_budget_bytes = 64 << 20;
  EngineHarness gpu(PocketModel(), options, model);
  ASSERT_TRUE(gpu.ok());
  const uint64_t fixed = gpu.FixedBytes() + (64 << 20);
  std::mt19937 random(5);
  struct Flight {
    SessionId session;
    RequestId request;
  };
  std::vector<Flight> flights;
  int submitted = 0, cancelled = 0, finished = 0;
  const auto submit = [&] {
    const SessionId session = *gpu.runner().CreateSession();
    RequestOptions request = TokenRequest(
        RandomTokens(random() % 50, 1 + random() % 300), random() % 40);
    request.sampling.temperature = random() % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.seed = random();
    flights.push_back({session, *gpu.runner().Submit(session, request)});
    ++submitted;
  };
  const auto collect = [&](size_t i) {
    Outcome outcome;
    gpu.Drain(flights[i].request, outcome);
    if (!outcome.finished) return false;
    EXPECT_NE(outcome.finish.reason, FinishReason::kError);
    gpu.engine().events().Drop(flights[i].request);
    gpu.runner().ReleaseSession(flights[i].session);
    flights[i] = flights.back();
    flights.pop_back();
    ++finished;
    return true;
  };
  while (submitted < kRequests || !flights.empty()) {
    while (submitted < kRequests && flights.size() < kAtOnce) submit();
    ASSERT_TRUE(gpu.engine().Step(0).ok());
    if (random() % 4 == 0) {
      ASSERT_TRUE(
          gpu.runner().Cancel(flights[random() % flights.size()].request).ok());
      ++cancelled;
    }
    if (random() % 64 == 0) {
      const uint64_t bytes =
          random() % 4 == 0 ? 0 : fixed + random() % (96 << 20);
      ASSERT_TRUE(gpu.engine().SetMemoryBudget(0, bytes).ok());
      if (bytes > 0) {
        EXPECT_LE(gpu.Stats().memory.total_bytes, bytes);
      }
    }
    for (size_t i = 0; i < flights.size();) i += collect(i) ? 0 : 1;
  }
  EXPECT_EQ(finished, kRequests);
  EXPECT_GT(cancelled, kRequests / 100);
  EXPECT_EQ(gpu.BlocksUsed(), 0u);
  gpu.DropModel();
  ASSERT_TRUE(gpu.engine().Step(0).ok());
  EXPECT_EQ(gpu.Stats().memory.total_bytes, 0u);
}

}  // namespace
}  // namespace inlay
