// What engine tests share: an engine with a model of tests/data on it, and
// running requests to their end.
#ifndef INLAY_TESTS_SUPPORT_ENGINE_HARNESS_H_
#define INLAY_TESTS_SUPPORT_ENGINE_HARNESS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {

inline std::string GoldenModel(const std::string& name) {
  return TestData() + "/models/" + name;
}
inline std::string PocketModel() {
  return SourceDir() + "/examples/models/pocket-7m";
}

// Everything one request produced.
struct Outcome {
  std::vector<int32_t> tokens;
  std::string text;
  std::string bytes;
  std::vector<EventLogprob> logprobs;
  std::vector<std::pair<int64_t, std::vector<float>>> logits;
  std::vector<std::pair<int64_t, float>> scores;
  bool finished = false;
  FinishInfo finish;

  void Take(const Event& event) {
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    text += event.text;
    bytes += event.bytes;
    logprobs.insert(logprobs.end(), event.logprobs.begin(),
                    event.logprobs.end());
    if (event.kind == EventKind::kLogits) {
      logits.emplace_back(event.position, event.values);
    }
    if (event.kind == EventKind::kScores) {
      for (size_t i = 0; i < event.values.size(); ++i) {
        scores.emplace_back(event.position + static_cast<int64_t>(i),
                            event.values[i]);
      }
    }
    if (event.kind == EventKind::kFinished) {
      EXPECT_FALSE(finished) << "a second FINISHED event";
      finished = true;
      finish = event.finish;
    }
  }
};

class EngineHarness {
 public:
  // Errors are test failures; check ok().
  explicit EngineHarness(const std::string& path, EngineOptions options = {},
                         const ModelOptions& model_options = {}) {
    if (options.num_threads == 0) options.num_threads = 2;
    auto created = Engine::Create(options);
    EXPECT_TRUE(created.ok()) << created.status();
    if (!created.ok()) return;
    engine_ = *std::move(created);
    auto loaded = engine_->Load(path, model_options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) loaded_ = *std::move(loaded);
  }

  bool ok() const { return loaded_.runner != nullptr; }
  Engine& engine() { return *engine_; }
  ModelRunner& runner() { return *loaded_.runner; }
  void DropModel() { loaded_ = {}; }

  // Steps until nothing is left to do.
  void RunAll() {
    while (true) {
      const auto summary = engine_->Step(0);
      ASSERT_TRUE(summary.ok()) << summary.status();
      if (!summary->more_work) return;
    }
  }

  // Takes every event of `request` that is there.
  void Drain(RequestId request, Outcome& outcome) {
    while (true) {
      const auto event = engine_->events().NextOf(request, 0);
      if (!event.ok()) return;
      outcome.Take(*event);
    }
  }

  // Submits into `session`, runs to the end.
  Outcome Run(SessionId session, RequestOptions options) {
    Outcome outcome;
    const auto request = runner().Submit(session, std::move(options));
    EXPECT_TRUE(request.ok()) << request.status();
    if (!request.ok()) return outcome;
    RunAll();
    Drain(*request, outcome);
    engine_->events().Drop(*request);
    EXPECT_TRUE(outcome.finished);
    return outcome;
  }

  // The same in a session of its own.
  Outcome RunAlone(RequestOptions options) {
    const SessionId session = *runner().CreateSession();
    Outcome outcome = Run(session, std::move(options));
    runner().ReleaseSession(session);
    return outcome;
  }

  // Submits each into a session of its own and steps until all have ended,
  // whether there is work or not; `between` is called before each step.
  std::vector<Outcome> RunTogether(
      const std::vector<RequestOptions>& requests, uint64_t budget_us = 0,
      const std::function<void()>& between = [] {}) {
    constexpr int kMostSteps = 200000;
    std::vector<Outcome> outcomes(requests.size());
    std::vector<std::pair<SessionId, RequestId>> ids;
    for (const RequestOptions& options : requests) {
      const SessionId session = *runner().CreateSession();
      const auto request = runner().Submit(session, options);
      EXPECT_TRUE(request.ok()) << request.status();
      if (!request.ok()) return outcomes;
      ids.emplace_back(session, *request);
    }
    size_t finished = 0;
    for (int steps = 0; finished < ids.size(); ++steps) {
      EXPECT_LT(steps, kMostSteps) << "no end in sight";
      between();
      const auto summary = engine_->Step(budget_us);
      EXPECT_TRUE(summary.ok()) << summary.status();
      if (steps >= kMostSteps || !summary.ok()) return outcomes;
      finished = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        Drain(ids[i].second, outcomes[i]);
        finished += outcomes[i].finished ? 1 : 0;
      }
    }
    for (const auto& [session, request] : ids) {
      engine_->events().Drop(request);
      runner().ReleaseSession(session);
    }
    return outcomes;
  }

  EngineMetrics Metrics() {
    EngineMetrics metrics;
    runner().AddMetrics(&metrics);
    return metrics;
  }
  EngineStats Stats() {
    EngineStats stats;
    engine_->GetStats(&stats);
    return stats;
  }
  // What no budget can be below.
  uint64_t FixedBytes() {
    const auto by_class = Stats().memory.by_class;
    return by_class[static_cast<size_t>(MemoryClass::kWeights)] +
           by_class[static_cast<size_t>(MemoryClass::kWorkspace)];
  }
  uint64_t BlockBytes() { return runner().loaded().kv_layout.block_bytes(); }
  // By more than the prefix index.
  uint64_t BlocksUsed() {
    const EngineMetrics metrics = Metrics();
    return metrics.kv_blocks_used - metrics.kv_blocks_evictable;
  }

 private:
  std::shared_ptr<Engine> engine_;
  Engine::Loaded loaded_;
};

inline RequestOptions TokenRequest(std::vector<int32_t> tokens,
                                   int64_t max_tokens) {
  RequestOptions options;
  options.tokens = std::move(tokens);
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  return options;
}

// A cache of so many blocks. Of llama3 they take 16 KiB each, of a model that
// is loaded its BlockBytes().
inline ModelOptions Blocks(uint64_t count, uint64_t block_bytes = 16 << 10) {
  ModelOptions options;
  options.kv_budget_bytes = count * block_bytes;
  return options;
}

// Tokens that every model of tests/data/models has.
inline std::vector<int32_t> RandomTokens(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 128);
  return tokens;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ENGINE_HARNESS_H_
