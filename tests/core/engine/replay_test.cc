// Recordings, and that serving one again gives the same plans and tokens.
#include "core/engine/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "core/engine/recording.h"
#include "memory/checksum.h"
#include "memory/little_endian.h"
#include "memory/mapped_file.h"
#include "tests/support/engine_harness.h"
#include "tests/support/file_fault.h"

namespace inlay {
namespace {

using testing::EngineHarness;
using testing::FaultyFileOps;
using testing::GoldenModel;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::ScratchFolder;
using testing::TokenRequest;

// A cache too small for what comes in, in steps too small for it.
EngineOptions SmallSteps() {
  EngineOptions options;
  options.scheduler.max_batch_tokens = 32;
  options.scheduler.max_running = 6;
  options.scheduler.starvation_us = 20000;
  return options;
}

ModelOptions SmallCache(const std::string& name) {
  EngineHarness probe(GoldenModel(name));
  ModelOptions options;
  options.kv_block_size = 8;
  options.kv_budget_bytes =
      24 * 8 * probe.runner().loaded().kv_layout.block_bytes() / 16;
  return options;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<RecordingEntry> ReadEntries(const std::string& path) {
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
void WriteEntries(const std::string& path,
                  const std::vector<RecordingEntry>& entries) {
  auto recorder = Recorder::Create(path);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  for (const RecordingEntry& entry : entries) (*recorder)->Write(entry);
  ASSERT_TRUE((*recorder)->Flush().ok());
}

// What a host does, at random, in a few sessions of its own.
class Host {
 public:
  Host(EngineHarness& harness, uint32_t seed)
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
void ServeAtRandom(EngineHarness& harness, uint32_t seed, int num_hosts,
                   int actions) {
  std::atomic<int> busy{num_hosts};
  std::vector<std::thread> hosts;
  for (int i = 0; i < num_hosts; ++i) {
    hosts.emplace_back([&, i] {
      Host(harness, seed * 100 + static_cast<uint32_t>(i)).Run(actions);
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

struct Counts {
  int steps = 0, within_steps = 0, cancels_within = 0, preempted = 0,
      expired = 0, hits = 0, resizes = 0, restores = 0, quotes = 0;
};

Counts Count(const std::vector<RecordingEntry>& entries) {
  Counts counts;
  bool in_step = false;
  for (const RecordingEntry& entry : entries) {
    if (const auto* plan = std::get_if<PlanEntry>(&entry)) {
      in_step = !plan->items.empty();
      counts.steps += in_step ? 1 : 0;
      counts.preempted += static_cast<int>(plan->preempted.size());
      counts.expired += static_cast<int>(plan->expired.size());
      continue;
    }
    if (std::holds_alternative<CommitEntry>(entry)) in_step = false;
    if (in_step) {
      ++counts.within_steps;
      counts.cancels_within += std::holds_alternative<CancelEntry>(entry);
    }
    counts.resizes += std::holds_alternative<ResizeEntry>(entry);
    counts.restores += std::holds_alternative<RestoreEntry>(entry);
    counts.quotes += std::holds_alternative<QuoteEntry>(entry);
  }
  return counts;
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

TEST_F(ReplayTest, RandomServingReplaysExactly) {
  Counts sum;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    // Windows and plain attention, with sharing and without.
    const std::string model = seed % 2 == 0 ? "mistral" : "llama3";
    EngineOptions options = SmallSteps();
    options.prefix_sharing = seed != 3;
    EngineHarness harness(GoldenModel(model), options, SmallCache(model));
    ASSERT_TRUE(harness.ok());
    // Sessions from before go on in the recording.
    const SessionId before = *harness.runner().CreateSession();
    harness.Run(before, TokenRequest({1, 2, 3}, 5));
    Record(harness, seed);
    harness.Run(before, TokenRequest({4}, 5));

    const Counts counts = Count(ReadEntries(path()));
    sum.within_steps += counts.within_steps;
    sum.cancels_within += counts.cancels_within;
    sum.preempted += counts.preempted;
    sum.expired += counts.expired;
    sum.resizes += counts.resizes;
    sum.restores += counts.restores;
    sum.quotes += counts.quotes;
    const EngineMetrics metrics = harness.Metrics();
    sum.hits += static_cast<int>(metrics.prefix_hit_tokens);

    // In the engine that recorded, and in one that is set otherwise.
    ModelOptions cache = SmallCache(model);
    cache.kv_budget_bytes *= 3;
    EngineHarness other(GoldenModel(model), {}, cache);
    for (EngineHarness* where : {&harness, &other, &other}) {
      const ReplayReport report = Replay(*where);
      EXPECT_TRUE(report.same())
          << "seed " << seed << " step " << report.first_difference->step
          << " of " << report.steps << ": " << report.first_difference->what;
      EXPECT_EQ(report.damage, "");
      EXPECT_EQ(report.steps, static_cast<uint64_t>(counts.steps));
      EXPECT_GT(report.tokens, 0u);  // few where deadlines pass: slow machines
      EXPECT_EQ(report.tokens_differing, 0u);
    }
  }
  // It was worth it.
  EXPECT_GT(sum.within_steps, 0);
  EXPECT_GT(sum.cancels_within, 0);
  EXPECT_GT(sum.preempted, 0);
  EXPECT_GT(sum.expired, 0);
  EXPECT_GT(sum.hits, 0);
  EXPECT_GT(sum.resizes, 0);
  EXPECT_GT(sum.restores, 0);
  EXPECT_GT(sum.quotes, 0);
}

// The tokens of a replay are those the host got.
TEST_F(ReplayTest, TheReportHasTheTokensOfEachRequest) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  std::map<RequestId, std::vector<int32_t>> got;
  for (int32_t i = 0; i < 3; ++i) {
    const SessionId session = *harness.runner().CreateSession();
    RequestOptions options = TokenRequest({1, 2, 3 + i}, 9);
    options.sampling.temperature = 1;
    options.sampling.seed = 7;
    const RequestId request = *harness.runner().Submit(session, options);
    harness.RunAll();
    Outcome outcome;
    harness.Drain(request, outcome);
    got[request] = outcome.tokens;
  }
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  const uint64_t sessions = harness.Metrics().sessions;
  const ReplayReport report = Replay(harness);
  EXPECT_EQ(report.tokens_of, got);
  EXPECT_EQ(report.requests, 3u);
  EXPECT_EQ(report.tokens, 27u);
  EXPECT_EQ(harness.Metrics().sessions, sessions);  // nothing stays
  EXPECT_THAT(ToJson(report), HasSubstr("\"same\":true"));
  EXPECT_THAT(ToJson(report), HasSubstr("\"tokens\":27,"));
}

TEST_F(ReplayTest, NamedPrefixes) {
  EngineHarness harness(GoldenModel("llama3"), SmallSteps(),
                        SmallCache("llama3"));
  ModelRunner& runner = harness.runner();
  RequestOptions input = TokenRequest(std::vector<int32_t>(20, 5), 0);
  // One from before; it is not pinned.
  const PrefixId before = *runner.CreatePrefix("before", input, false, 0);
  ASSERT_TRUE(runner.StartRecording(path()).ok());
  EXPECT_EQ(*runner.RetainPrefix("before"), before);
  input.tokens.assign(30, 6);
  const PrefixId pinned = *runner.CreatePrefix("pinned", input, true, 0);
  ASSERT_TRUE(runner.PinPrefix(before, true).ok());
  for (const PrefixId prefix : {before, pinned, pinned}) {
    const SessionId session = *runner.OpenPrefix(prefix);
    harness.Run(session, TokenRequest({1, 2, 3}, 6));
    runner.ReleaseSession(session);
  }
  const ModelRunner::KvMemory memory = runner.kv_memory();
  runner.ResizeKv(memory.extent_bytes * 3);  // takes what is pinned
  runner.ResizeKv(memory.target_bytes);      // and has it computed again
  harness.RunAll();
  EXPECT_EQ(runner.GetPrefixInfo(pinned)->num_cached, 30u);
  ASSERT_TRUE(runner.PinPrefix(before, false).ok());
  for (const PrefixId prefix : {before, before, pinned})
    runner.ReleasePrefix(prefix);
  harness.RunAlone(TokenRequest({9, 9}, 4));
  ASSERT_TRUE(runner.StopRecording().ok());
  const ReplayReport report = Replay(harness);
  EXPECT_TRUE(report.same()) << report.first_difference->what;
  EXPECT_EQ(report.damage, "");
  EXPECT_EQ(report.tokens, 22u);
}

// Ids that another model of the engine draws in between change nothing.
TEST_F(ReplayTest, TwoModelsShareIds) {
  EngineHarness harness(GoldenModel("llama3"));
  const auto other = harness.engine().Load(GoldenModel("mistral"), {});
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  RequestOptions input = TokenRequest(std::vector<int32_t>(20, 5), 0);
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(other->runner->CreateSession().ok());
    ASSERT_TRUE(harness.runner().CreatePrefix(name, input, true, 0).ok());
    ASSERT_TRUE(other->runner->CreateSession().ok());
    harness.RunAlone(TokenRequest({1, 2}, 3));
  }
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  EXPECT_TRUE(Replay(harness).same());
}

TEST_F(ReplayTest, WhatCannotBeRecorded) {
  EngineHarness harness(GoldenModel("llama3"));
  ModelRunner& runner = harness.runner();
  const auto refused = [&](const char* why) {
    const absl::Status status = runner.StartRecording(path());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.ToString(), HasSubstr(why));
  };
  EXPECT_FALSE(runner.StopRecording().ok());
  EXPECT_FALSE(runner.StartRecording(folder_.File("no/such")).ok());
  const SessionId session = *runner.CreateSession();
  ASSERT_TRUE(runner.Quote(session, TokenRequest({1, 2}, 3), true).ok());
  refused("set aside");
  ASSERT_TRUE(runner.Submit(session, TokenRequest({1, 2}, 3)).ok());
  refused("requests run");
  harness.RunAll();
  const PrefixId prefix =
      *runner.CreatePrefix("p", TokenRequest({1, 2}, 0), true, 0);
  harness.RunAll();
  refused("pinned");
  runner.ReleasePrefix(prefix);
  ASSERT_TRUE(runner.StartRecording(path()).ok());
  refused("already");
  EXPECT_TRUE(runner.StopRecording().ok());

  ModelOptions tiered;
  tiered.host_cache_bytes = 1 << 20;
  EngineHarness with_tier(GoldenModel("llama3"), {}, tiered);
  EXPECT_THAT(with_tier.runner().StartRecording(path()).ToString(),
              HasSubstr("host memory"));
}

TEST_F(ReplayTest, AnotherModelIsRefused) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  harness.RunAlone(TokenRequest({1, 2}, 3));
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  const auto refused = [&](EngineHarness& other, const char* why) {
    const auto report = other.engine().Replay(other.runner(), path());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().ToString(), HasSubstr(why));
  };
  EngineHarness mistral(GoldenModel("mistral"));
  refused(mistral, "another model");
  ModelOptions options;
  options.kv_dtype = DType::kF16;
  EngineHarness other_kv(GoldenModel("llama3"), {}, options);
  refused(other_kv, "KV");
  options = ModelOptions();
  options.max_context = 64;
  EngineHarness other_context(GoldenModel("llama3"), {}, options);
  refused(other_context, "context");
  WriteFile(path(), "something else");
  refused(harness, "no recording");
}

// Replayed up to the damage, wherever that is; the damage is never taken for
// what was recorded.
TEST_F(ReplayTest, DamagedAndCut) {
  EngineHarness harness(GoldenModel("llama3"), SmallSteps(),
                        SmallCache("llama3"));
  Record(harness, 5, 2, 12);
  const ReplayReport whole = Replay(harness);
  ASSERT_TRUE(whole.same());
  const std::string bytes = ReadFile(path());
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    const size_t at = random() % bytes.size();
    std::string damaged = bytes;
    if (i % 2 == 0) {
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    } else {
      damaged.resize(at);
    }
    WriteFile(path(), damaged);
    const auto report = harness.engine().Replay(harness.runner(), path());
    if (!report.ok()) {
      EXPECT_LT(at, 200u) << report.status();  // in the head and the header
      continue;
    }
    EXPECT_TRUE(report->same()) << at << ": " << report->first_difference->what;
    EXPECT_THAT(report->damage, HasSubstr("at byte")) << at;
    EXPECT_LT(report->entries, whole.entries);
    for (const auto& [request, tokens] : report->tokens_of) {
      const std::vector<int32_t>& all = whole.tokens_of.at(request);
      ASSERT_LE(tokens.size(), all.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin()));
    }
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// A difference is found where it is, and what follows is compared all the same.
TEST_F(ReplayTest, DifferencesAreFindings) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  harness.RunAlone(TokenRequest({1, 2, 3}, 8));
  harness.RunAlone(TokenRequest({4, 5}, 8));
  ASSERT_TRUE(harness.runner().StopRecording().ok());
  const std::vector<RecordingEntry> good = ReadEntries(path());
  const auto with = [&](auto&& change) {
    std::vector<RecordingEntry> entries = good;
    int step = 0;
    for (RecordingEntry& entry : entries) {
      step += std::holds_alternative<PlanEntry>(entry) ? 1 : 0;
      change(step, entry);
    }
    WriteEntries(path(), entries);
    return Replay(harness);
  };

  // Another token: it goes on from the recorded one.
  ReplayReport report = with([](int step, RecordingEntry& entry) {
    if (auto* commit = std::get_if<CommitEntry>(&entry); commit && step == 3)
      commit->items[0].token ^= 1;
  });
  ASSERT_FALSE(report.same());
  EXPECT_EQ(report.first_difference->step, 3u);
  EXPECT_THAT(report.first_difference->what, HasSubstr("token"));
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(report.tokens, 16u);
  EXPECT_GE(report.tokens_differing, 1u);

  // Another plan, or another end: there is no going on.
  report = with([](int step, RecordingEntry& entry) {
    if (auto* plan = std::get_if<PlanEntry>(&entry); plan && step == 4)
      ++plan->items[0].first_token;
  });
  ASSERT_FALSE(report.same());
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.first_difference->step, 4u);
  EXPECT_THAT(report.first_difference->what, HasSubstr("1 tokens from"));
  EXPECT_EQ(report.tokens, 3u);
  report = with([](int step, RecordingEntry& entry) {
    if (auto* commit = std::get_if<CommitEntry>(&entry); commit && step == 5)
      commit->items[0].result.finished = true;
  });
  ASSERT_FALSE(report.same());
  EXPECT_TRUE(report.stopped);
  EXPECT_THAT(report.first_difference->what, HasSubstr("goes on"));

  // A step that failed fails again.
  report = with([](int step, RecordingEntry& entry) {
    auto* commit = std::get_if<CommitEntry>(&entry);
    if (commit == nullptr || step != 5) return;
    commit->elapsed_us = -1;
    commit->items[0] = {{0, true, false}, true, 0};
  });
  EXPECT_EQ(report.tokens, 4u);
  ASSERT_FALSE(report.same());  // what was recorded after it went on
  EXPECT_EQ(report.first_difference->step, 6u);
}

// Entries that contradict each other, or what a runner can be asked for.
TEST_F(ReplayTest, RecordingsThatNobodyMade) {
  EngineHarness harness(GoldenModel("llama3"), SmallSteps(),
                        SmallCache("llama3"));
  Record(harness, 6, 2, 12);
  const std::vector<RecordingEntry> good = ReadEntries(path());
  std::mt19937_64 random(3);
  const auto replays = [&](const std::vector<RecordingEntry>& entries) {
    WriteEntries(path(), entries);
    return harness.engine().Replay(harness.runner(), path());
  };
  EXPECT_FALSE(replays({}).ok());
  EXPECT_FALSE(replays({EndEntry{}}).ok());
  EXPECT_FALSE(replays({good[0], good[0]}).ok());
  EXPECT_FALSE(replays({good[0], CommitEntry{}}).ok());
  EXPECT_FALSE(replays({good[0], CreateEntry{~uint64_t{0}}}).ok());
  EXPECT_FALSE(replays({good[0], SessionEntry{5, 0, {-1}}}).ok());
  EXPECT_FALSE(
      replays({good[0], SessionEntry{5, 0, {1}}, SessionEntry{5, 0, {1}}})
          .ok());
  EXPECT_FALSE(
      replays({good[0], PrefixEntry{5, 0, "p", {1, 2}, INT32_MAX}}).ok());
  EXPECT_FALSE(replays({good[0], PlanEntry{{-1, 0, true}, {}, {}, {}}}).ok());
  EXPECT_FALSE(replays({good[0], PlanEntry{{1, -1, true}, {}, {}, {}}}).ok());
  const auto unknown = replays({good[0], ForkEntry{77, 78}});
  ASSERT_TRUE(unknown.ok());
  EXPECT_TRUE(unknown->stopped);
  EXPECT_THAT(unknown->first_difference->what, HasSubstr("released"));

  RecordingHeader header = std::get<RecordingHeader>(good[0]);
  header.kv_budget_bytes = uint64_t{1} << 60;
  EXPECT_TRUE(absl::IsResourceExhausted(replays({header}).status()));
  header = std::get<RecordingHeader>(good[0]);
  header.scheduler.max_batch_tokens = INT32_MAX;
  EXPECT_TRUE(absl::IsResourceExhausted(replays({header}).status()));
  header.scheduler.max_batch_tokens = 0;
  EXPECT_FALSE(replays({header}).ok());
  header = std::get<RecordingHeader>(good[0]);
  header.kv_target_bytes -= 1;
  EXPECT_FALSE(replays({header}).ok());

  // Dropped, doubled and swapped entries, and bytes changed under a checksum
  // that is right.
  for (int i = 0; i < 200; ++i) {
    std::vector<RecordingEntry> entries = good;
    for (int changes = 0; changes < 3; ++changes) {
      const size_t at = 1 + random() % (entries.size() - 2);
      switch (random() % 4) {
        case 0:
          entries.erase(entries.begin() + static_cast<int64_t>(at));
          break;
        case 1:
          entries.insert(entries.begin() + static_cast<int64_t>(at),
                         entries[1 + random() % (entries.size() - 1)]);
          break;
        case 2:
          std::swap(entries[at], entries[at + 1]);
          break;
        default:
          std::string bytes;
          EncodeEntry(entries[at], &bytes);
          bytes[random() % bytes.size()] = static_cast<char>(random());
          if (auto changed = DecodeEntry(bytes); changed.ok())
            entries[at] = *std::move(changed);
      }
    }
    static_cast<void>(replays(entries));
  }
  EXPECT_EQ(harness.BlocksUsed(), 0u);
}

// Every entry comes back as it was, and no shorter or longer bytes are taken
// for it.
TEST_F(ReplayTest, EntriesAsBytes) {
  EngineHarness harness(GoldenModel("llama3"), SmallSteps(),
                        SmallCache("llama3"));
  Record(harness, 7, 2, 25);
  std::mt19937 random(1);
  for (const RecordingEntry& entry : ReadEntries(path())) {
    std::string bytes;
    EncodeEntry(entry, &bytes);
    const auto again = DecodeEntry(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    std::string twice;
    EncodeEntry(*again, &twice);
    EXPECT_EQ(bytes, twice) << EntryName(entry);
    const size_t most = std::min<size_t>(bytes.size(), 300);
    for (size_t cut = 0; cut < most; ++cut)
      EXPECT_FALSE(DecodeEntry(bytes.substr(0, cut)).ok());
    EXPECT_FALSE(DecodeEntry(bytes + "x").ok());
    // Counts beyond the bytes there are.
    for (int i = 0; i < 20; ++i) {
      std::string changed = bytes;
      changed[random() % changed.size()] = static_cast<char>(0xff);
      static_cast<void>(DecodeEntry(changed));
    }
  }
  EXPECT_TRUE(absl::IsUnimplemented(DecodeEntry("\x63").status()));
}

TEST_F(ReplayTest, EmbeddingsAsBytes) {
  for (int pooling = 0; pooling <= 3; ++pooling) {
    for (const bool normalise : {false, true}) {
      SubmitEntry entry{1, 2, 3, TokenRequest({5}, 0)};
      entry.options.pooling = static_cast<Pooling>(pooling);
      entry.options.normalise = normalise && pooling > 0;
      std::string bytes;
      EncodeEntry(entry, &bytes);
      const auto again = DecodeEntry(bytes);
      ASSERT_TRUE(again.ok());
      const RequestOptions& got = std::get<SubmitEntry>(*again).options;
      EXPECT_EQ(got.pooling, entry.options.pooling);
      EXPECT_EQ(got.normalise, entry.options.normalise);
      EXPECT_EQ(got.logits, LogitsMode::kNone);
    }
  }
}

TEST_F(ReplayTest, TheFormatIsPinned) {
  RequestOptions options = TokenRequest({1, 300, 70000}, 8);
  options.stop_strings = {"end"};
  options.sampling.logit_bias = {{4, -2.5f}};
  options.deadline_us = 1000000;
  WriteEntries(path(),
               {RecordingHeader{{1, 2}, 3, {DType::kF16, 16, 4096, 5}},
                SubmitEntry{1, 2, 123456789, options},
                PlanEntry{{1, 2, true}, {{2, 0, 3, true}}, {4}, {5}},
                CommitEntry{77, {{{1, false, true}, false, 9}}}, EndEntry{}});
  const std::string bytes = ReadFile(path());
  // Version 1 must stay readable: a change of these is a new version.
  EXPECT_EQ(bytes.size(), 164u);
  EXPECT_EQ(
      Hash64({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}),
      10447080302445916982u);
}

// Whatever goes wrong with the file, serving does not notice.
TEST_F(ReplayTest, WriteErrorsEndOnlyTheRecording) {
  EngineHarness harness(GoldenModel("llama3"));
  if (std::ofstream("/dev/full").is_open()) {
    const absl::Status full = harness.runner().StartRecording("/dev/full");
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    harness.RunAlone(TokenRequest({1, 2}, 3));
    EXPECT_FALSE(harness.runner().StopRecording().ok());
  }
  for (int64_t space : {0, 5, 12, 100, 350}) {
    FaultyFileOps ops;
    ops.space = space;
    auto recorder = Recorder::Create(path(), ops);
    ASSERT_TRUE(recorder.ok());
    absl::Status told;
    for (uint64_t i = 1; i < 100; ++i) {
      (*recorder)->Write(CreateEntry{i});
      told.Update((*recorder)->Flush());
    }
    EXPECT_TRUE(absl::IsResourceExhausted(told)) << told;
    EXPECT_TRUE((*recorder)->Flush().ok());  // it was said
    EXPECT_EQ((*recorder)->Finish(), told);
    // What was written before can be read.
    if (space < 12) continue;
    const auto entries = ReadEntries(path());
    EXPECT_EQ(entries.size(), static_cast<size_t>(space - 12) / 10);
  }
  FaultyFileOps ops;
  ops.max_write = 3;  // the system may write in pieces
  auto recorder = Recorder::Create(path(), ops);
  (*recorder)->Write(CreateEntry{1});
  ops.fail_at = ops.num_calls + 7;
  EXPECT_FALSE((*recorder)->Finish().ok());
}

// Entries that no step flushes do not pile up.
TEST_F(ReplayTest, PendingEntriesAreBounded) {
  auto recorder = Recorder::Create(path());
  RestoreEntry entry{1, std::string(1 << 20, 'x')};
  for (int i = 0; i < 8; ++i) (*recorder)->Write(entry);
  EXPECT_GE(ReadFile(path()).size(), size_t{4} << 20);
  EXPECT_TRUE((*recorder)->Finish().ok());
  EXPECT_EQ(ReadEntries(path()).size(), 9u);
}

TEST_F(ReplayTest, CloseEndsRecordingAndReplay) {
  EngineHarness harness(GoldenModel("llama3"));
  ASSERT_TRUE(harness.runner().StartRecording(path()).ok());
  harness.RunAlone(TokenRequest({1, 2}, 3));
  harness.engine().Close();
  EXPECT_FALSE(harness.runner().StartRecording(path()).ok());
  EXPECT_TRUE(absl::IsUnavailable(
      harness.engine().Replay(harness.runner(), path()).status()));
  EngineHarness other(GoldenModel("llama3"));
  EXPECT_EQ(Replay(other).damage, "");
  EXPECT_TRUE(absl::IsUnavailable(
      other.runner().Replay(path(), [] { return false; }).status()));
}

// What recording adds to a step of 256 requests: printed, and within reason.
TEST_F(ReplayTest, CostsLittle) {
  PlanEntry plan;
  CommitEntry commit;
  for (uint64_t i = 0; i < 256; ++i) {
    plan.items.push_back({1000 + i, 3000, 1, true});
    commit.items.push_back({{1, false, true}, false, 50000});
  }
  auto recorder = Recorder::Create(path());
  ASSERT_TRUE(recorder.ok());
  double best_us = 1e30;
  for (int i = 0; i < 300; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    (*recorder)->WriteMade([&] { return plan; });
    EXPECT_TRUE((*recorder)->Flush().ok());
    (*recorder)->WriteMade([&] { return commit; });
    best_us = std::min(best_us, std::chrono::duration<double, std::micro>(
                                    std::chrono::steady_clock::now() - begin)
                                    .count());
  }
  printf("recording a step of 256 requests: %.1f us, %.0f bytes\n", best_us,
         static_cast<double>((*recorder)->num_bytes()) / 300);
  EXPECT_LT(best_us, 1000);
}

}  // namespace
}  // namespace inlay
