// Recordings for tests: hosts that serve at random while they are recorded, and
// recordings that nobody made. Header only.
#ifndef INLAY_TESTS_SUPPORT_REPLAY_UTIL_H_
#define INLAY_TESTS_SUPPORT_REPLAY_UTIL_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/engine/recording.h"
#include "core/engine/replay.h"
#include "tests/support/engine_harness.h"
#include "tests/support/file_fault.h"

namespace inlay::testing {

// A cache too small for what comes in, in steps too small for it.
inline EngineOptions SmallSteps() {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 32;
  options.scheduler.max_running = 6;
  options.scheduler.starvation_us = 20000;
  return options;
}

inline ModelOptions SmallCache(const std::string& name) {
  EngineHarness probe(GoldenModel(name));
  ModelOptions options;
  options.kv_block_size = 8;
  options.kv_budget_bytes =
      24 * 8 * probe.runner().loaded().kv_layout.block_bytes() / 16;
  return options;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::vector<RecordingEntry> ReadEntries(const std::string& path) {
  std::vector<RecordingEntry> entries;
  auto reader = RecordingReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  while (reader.ok()) {
    auto entry = reader->Next();
    EXPECT_TRUE(entry.ok()) << entry.status();
    if (!entry.ok() || !entry->has_value()) break;
    const bool end = std::holds_alternative<EndEntry>(**entry);
    entries.push_back(**std::move(entry));
    if (end) break;
  }
  return entries;
}

// Frames `entries` as a recorder does: for recordings nobody made.
inline void WriteEntries(const std::string& path,
                         const std::vector<RecordingEntry>& entries) {
  auto recorder = Recorder::Create(path);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  for (const RecordingEntry& entry : entries) (*recorder)->Write(entry);
  ASSERT_TRUE((*recorder)->Flush().ok());
}

// What a host does, at random, in a few sessions of its own.
class RandomHost {
 public:
  RandomHost(EngineHarness& harness, uint32_t seed)
      : runner_(harness.runner()), events_(harness.engine().events()) {
    random_.seed(seed);
  }

  void Run(int actions) {
    for (int i = 0; i < actions; ++i) {
      Act();
      // Most requests may come to their end.
      for (int j = Chance(4) ? 50 : 0; j < 50 && Busy(); ++j)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (const SessionId session : sessions_) runner_.ReleaseSession(session);
  }

 private:
  bool Busy() {
    const auto info = runner_.GetSessionInfo(last_session_);
    return info.ok() && info->busy;
  }
  bool Chance(uint32_t one_in) { return random_() % one_in == 0; }

  void Act() {
    if (sessions_.size() < 3) {
      const auto session = runner_.CreateSession();
      if (session.ok()) sessions_.push_back(*session);
      return;
    }
    const size_t at = random_() % sessions_.size();
    const SessionId session = sessions_[at];
    switch (random_() % 16) {
      case 0:
        runner_.ReleaseSession(session);
        sessions_.erase(sessions_.begin() + static_cast<int64_t>(at));
        return;
      case 1:
        if (const auto fork = runner_.Fork(session); fork.ok())
          sessions_.push_back(*fork);
        return;
      case 2:
        if (const auto info = runner_.GetSessionInfo(session); info.ok())
          static_cast<void>(runner_.Rewind(session, info->num_tokens / 2));
        return;
      case 3:
        static_cast<void>(runner_.Quote(session, Options(), true));
        return;
      case 4:
        static_cast<void>(runner_.Cancel(last_));
        return;
      case 5:
        return SaveAndRestore(session);
      default:
        return Submit(session);
    }
  }

  void Submit(SessionId session) {
    const auto request = runner_.Submit(session, Options());
    if (!request.ok()) return;
    events_.Drop(*request);
    last_ = *request;
    last_session_ = session;
    if (Chance(8)) static_cast<void>(runner_.Cancel(*request));
  }

  void SaveAndRestore(SessionId session) {
    std::vector<std::byte> bytes;
    const absl::Status saved =
        runner_.Save(session, [&](absl::Span<const std::byte> piece) {
          bytes.insert(bytes.end(), piece.begin(), piece.end());
          return absl::OkStatus();
        });
    if (!saved.ok()) return;
    const auto restored = runner_.Restore(bytes);
    if (restored.ok()) sessions_.push_back(restored->session);
  }

  RequestOptions Options() {
    // Few beginnings, so that many share one.
    const auto kind = static_cast<int32_t>(random_() % 3);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(1 + kind + i % 7);
    for (size_t n = random_() % 30; n > 0; --n)
      tokens.push_back(static_cast<int32_t>(random_() % 60));
    RequestOptions options =
        TokenRequest(std::move(tokens), static_cast<int64_t>(random_() % 25));
    options.mode = Chance(3) ? InputMode::kAppend : InputMode::kReplace;
    options.priority = static_cast<int32_t>(random_() % 3) - 1;
    if (Chance(4)) options.deadline_us = 500 + random_() % 20000;
    if (Chance(3)) options.share_key = 1 + random_() % 2;
    if (Chance(4)) options.ignore_eos = false;
    if (Chance(8)) options.logits = LogitsMode::kGenerated;
    if (Chance(8)) options.score_prompt = true;
    if (Chance(2)) {
      options.sampling.temperature = 0.9f;
      options.sampling.seed = random_();
      options.sampling.top_p = 0.95f;
      options.sampling.frequency_penalty = 0.3f;
      options.sampling.logit_bias = {{5, 0.5f}, {7, -1.0f}};
    }
    if (Chance(6)) {
      options.pooling = static_cast<Pooling>(1 + random_() % 3);
      options.normalise = Chance(2);
      options.max_tokens = 0;
      options.logits = LogitsMode::kNone;
      options.score_prompt = false;
    }
    return options;
  }

  ModelRunner& runner_;
  EventQueue& events_;
  std::mt19937 random_;
  std::vector<SessionId> sessions_;
  RequestId last_ = 0;
  SessionId last_session_ = 0;
};

// Several hosts at once while this thread steps, with changing budgets of time
// and memory.
inline void ServeAtRandom(EngineHarness& harness, uint32_t seed, int num_hosts,
                          int actions) {
  std::atomic<int> busy{num_hosts};
  std::vector<std::thread> hosts;
  for (int i = 0; i < num_hosts; ++i) {
    hosts.emplace_back([&, i] {
      RandomHost(harness, seed * 100 + static_cast<uint32_t>(i)).Run(actions);
      --busy;
    });
  }
  std::mt19937 random(seed);
  const MemoryUse use = harness.Stats().memory;
  const uint64_t kv = use.by_class[static_cast<size_t>(MemoryClass::kKv)];
  bool more = true, limited = true;
  while (busy > 0 || more) {
    if (busy > 0 && random() % 40 == 0) {
      const uint64_t less = kv * (random() % 3) / 4;
      ASSERT_TRUE(
          harness.engine().SetMemoryBudget(0, use.total_bytes - less).ok());
    }
    const auto step =
        harness.engine().Step(random() % 3 == 0 ? random() % 3000 : 0);
    ASSERT_TRUE(step.ok()) << step.status();
    more = step->more_work || limited;
    if (step->info.requests == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    // Whatever waits for memory gets it in the end.
    if (busy == 0 && std::exchange(limited, false)) {
      ASSERT_TRUE(harness.engine().SetMemoryBudget(0, 0).ok());
    }
  }
  for (std::thread& host : hosts) host.join();
}

class ReplayTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.File("recording"); }

  // A random while of serving, recorded.
  void Record(EngineHarness& harness, uint32_t seed, int hosts = 3,
              int actions = 60) {
    const absl::Status started = harness.runner().StartRecording(path());
    ASSERT_TRUE(started.ok()) << started;
    ServeAtRandom(harness, seed, hosts, actions);
    const absl::Status stopped = harness.runner().StopRecording();
    ASSERT_TRUE(stopped.ok()) << stopped;
  }

  ReplayReport Replay(EngineHarness& harness) {
    auto report = harness.engine().Replay(harness.runner(), path());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : ReplayReport();
  }

  ScratchFolder folder_;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_REPLAY_UTIL_H_
