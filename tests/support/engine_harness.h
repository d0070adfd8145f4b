// What engine tests share: an engine with a model of tests/data on it, and
// running requests to their end.
#ifndef INLAY_TESTS_SUPPORT_ENGINE_HARNESS_H_
#define INLAY_TESTS_SUPPORT_ENGINE_HARNESS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"

namespace inlay::testing {

inline std::string GoldenModel(const std::string& name) {
  return std::string(INLAY_TEST_DATA) + "/models/" + name;
}
inline std::string PocketModel() {
  return std::string(INLAY_SOURCE_DIR) + "/examples/models/pocket-7m";
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

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ENGINE_HARNESS_H_
