// Recordings as bytes: damaged, made by nobody, on files that fail.
#include "core/engine/recording.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <vector>

#include "memory/checksum.h"
#include "tests/support/replay_util.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

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
  header.kv_target_bytes = uint64_t{1} << 60;
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
  for (int i = 0; i < 8; ++i) {
    const int pooling = i / 2;
    for (const bool normalise : {false, true}) {
      const bool projects = i % 2 == 1 && pooling > 0;
      SubmitEntry entry{1, 2, 3, TokenRequest({5}, 0)};
      entry.options.pooling = static_cast<Pooling>(pooling);
      entry.options.normalise = normalise && pooling > 0;
      entry.options.projects = projects;
      std::string bytes;
      EncodeEntry(entry, &bytes);
      const auto again = DecodeEntry(bytes);
      ASSERT_TRUE(again.ok());
      const RequestOptions& got = std::get<SubmitEntry>(*again).options;
      EXPECT_EQ(got.pooling, entry.options.pooling);
      EXPECT_EQ(got.normalise, entry.options.normalise);
      EXPECT_EQ(got.projects, projects);
      EXPECT_FALSE(got.classifies);
      EXPECT_EQ(got.logits, LogitsMode::kNone);
    }
  }
}

TEST_F(ReplayTest, ClassificationsAndTypesAsBytes) {
  for (int activation = 0; activation <= 2; ++activation) {
    for (const bool types : {false, true}) {
      SubmitEntry entry{1, 2, 3, TokenRequest({5, 6, 7}, 0)};
      entry.options.classifies = true;
      entry.options.activation = static_cast<LabelActivation>(activation);
      if (types) entry.options.token_types = {0, 1, 300};
      std::string bytes;
      EncodeEntry(entry, &bytes);
      const auto again = DecodeEntry(bytes);
      ASSERT_TRUE(again.ok());
      const RequestOptions& got = std::get<SubmitEntry>(*again).options;
      EXPECT_TRUE(got.classifies);
      EXPECT_EQ(got.activation, entry.options.activation);
      EXPECT_EQ(got.token_types, entry.options.token_types);
      EXPECT_EQ(got.tokens, entry.options.tokens);
      EXPECT_EQ(got.pooling, Pooling::kNone);
      EXPECT_EQ(got.logits, LogitsMode::kNone);
      for (size_t cut = 0; cut < bytes.size(); ++cut)
        EXPECT_FALSE(DecodeEntry(bytes.substr(0, cut)).ok());
    }
  }
  // Types of a request that embeds, or generates.
  SubmitEntry entry{1, 2, 3, TokenRequest({5, 6}, 0)};
  entry.options.token_types = {1, 0};
  for (const Pooling pooling : {Pooling::kNone, Pooling::kLast}) {
    entry.options.pooling = pooling;
    std::string bytes;
    EncodeEntry(entry, &bytes);
    const auto again = DecodeEntry(bytes);
    ASSERT_TRUE(again.ok());
    const RequestOptions& got = std::get<SubmitEntry>(*again).options;
    EXPECT_FALSE(got.classifies);
    EXPECT_EQ(got.pooling, pooling);
    EXPECT_EQ(got.token_types, entry.options.token_types);
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

// It holds prompts, also where a file that others may read was there before.
TEST_F(ReplayTest, TheFileIsItsOwnersAlone) {
  std::ofstream(path()) << "an older recording";
  ASSERT_EQ(chmod(path().c_str(), 0644), 0);
  ASSERT_TRUE(Recorder::Create(path()).ok());
  struct stat info;
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_size, 0);
}

// Another user's, which everybody may write: it cannot be kept from them, and
// stays as it is.
TEST_F(ReplayTest, AnothersFileKeepsWhatItHas) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  constexpr uid_t kNobody = 65534;
  std::ofstream(path()) << "theirs";
  ASSERT_EQ(chmod(path().c_str(), 0666), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(seteuid(kNobody), 0);
  const absl::Status status = Recorder::Create(path()).status();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(ReadFile(path()), "theirs");
}

// Nor waits for a reader, nor dies of one that goes away.
TEST_F(ReplayTest, RefusesPipes) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(Recorder::Create(path()).status()));
  const int reader = open(path().c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(Recorder::Create(path()).status()));
  close(reader);
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
}  // namespace inlay::testing
