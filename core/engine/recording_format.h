// The entries of a recording: everything that came into a model runner, and
// what it planned and sampled, as plain data and as bytes. Knows nothing of
// files (recording.h) or of how entries are made and replayed.
//
// The bytes, version 1. The format is our own; integers of fixed size are
// little endian.
//
//     0   8  magic: 89 "INREC" 0D 0A
//     8   4  version: 1
//    12      entries, one after another:
//     0   4  N, at most kMostEntryBytes
//     4   4  CRC32C (memory/checksum.h) of N and the payload, going on from
//            that of the entry before (from 0 for the first): an entry counts
//            only in its place
//     8   N  payload: the type's number in RecordingEntry (1 byte), its fields
//
// Fields are in the order of Code() in recording_format.cc: integers are
// varints (7 bits a byte, the lowest first; signed ones zigzag), enums and
// bools one byte, float 4, strings and lists their count and what is in them.
// The first entry, and no other, is a RecordingHeader; the last of a recording
// that was stopped is EndEntry. Types are only ever added, at the end.
#ifndef INLAY_CORE_ENGINE_RECORDING_FORMAT_H_
#define INLAY_CORE_ENGINE_RECORDING_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/fingerprint.h"
#include "core/engine/named_prefix.h"
#include "core/engine/request_options.h"
#include "core/engine/snapshot.h"
#include "sched/config.h"
#include "sched/step_plan.h"

namespace inlay {

inline constexpr std::string_view kRecordingMagic = "\x89INREC\r\n";
inline constexpr uint32_t kRecordingVersion = 1;
// A restored session's bytes are in one entry.
inline constexpr uint64_t kMostEntryBytes = uint64_t{1} << 30;

// What must be the same where it is replayed, and what the runner is made of
// there.
struct RecordingHeader {
  ModelFingerprint model;
  uint64_t vocabulary = 0;
  KvForm kv;
  int64_t max_context = 0;
  uint64_t kv_budget_bytes = 0;  // the cache was made with
  uint64_t extent_bytes = 0;
  uint64_t kv_target_bytes = 0;  // what it came to, then
  uint64_t kv_bytes = 0;         // and has when the recording begins
  SchedulerConfig scheduler;     // its limits; the rest follows from the model
  bool prefix_sharing = true;
};

// A session or a prefix there was when the recording began.
struct SessionEntry {
  SessionId session = 0;
  uint64_t isolation = 0;
  std::vector<int32_t> log;
  bool is_long = false;
  uint64_t seed = 0, num_draws = 0;
  int64_t generated_begin = 0;
};
struct PrefixEntry {
  PrefixId prefix = 0;
  uint64_t isolation = 0;
  std::string name;
  std::vector<int32_t> tokens;
  int32_t holders = 1;
};

// Inputs, as the functions of ModelRunner. Times are of the engine's clock.
struct CreateEntry {
  SessionId session = 0;
};
struct ForkEntry {
  SessionId session = 0, fork = 0;
};
struct RewindEntry {
  SessionId session = 0;
  uint64_t num_tokens = 0;
};
struct ReleaseEntry {
  SessionId session = 0;
};
struct SubmitEntry {
  SessionId session = 0;
  RequestId request = 0;
  int64_t now_us = 0;
  RequestOptions options;  // with the tokens of its input
};
struct CancelEntry {
  RequestId request = 0;
};
struct QuoteEntry {
  SessionId session = 0;
  RequestOptions options;
  bool reserve = false;
};
struct RestoreEntry {
  SessionId session = 0;
  std::string snapshot;
};
// The same where others were served while KV was written.
struct BeginRestoreEntry {
  SessionId session = 0;
  std::string snapshot;
};
struct EndRestoreEntry {
  SessionId session = 0;
  bool written = false;  // all of the KV that there was room for
};
struct ResizeEntry {
  int64_t now_us = 0;
  uint64_t next_id = 0;
  uint64_t bytes = 0;  // that the cache came to have
};
struct CreatePrefixEntry {
  PrefixId prefix = 0;
  int64_t now_us = 0;
  std::string name;
  std::vector<int32_t> tokens;
  bool pin = false;
  uint64_t budget_bytes = 0;
};
struct RetainPrefixEntry {
  PrefixId prefix = 0;
};
struct PinPrefixEntry {
  PrefixId prefix = 0;
  int64_t now_us = 0;
  uint64_t next_id = 0;
  bool pinned = false;
};
struct OpenPrefixEntry {
  PrefixId prefix = 0;
  SessionId session = 0;
};
struct ReleasePrefixEntry {
  PrefixId prefix = 0;
};

// A step: its plan, and what came of it. Inputs between the two were taken
// while it was computed. A plan without items has no commit.
struct PlanEntry {
  PlanInput input;
  std::vector<StepItem> items;
  std::vector<RequestId> preempted, expired;
};
struct CommitEntry {
  struct Item {
    StepResult result;
    bool failed = false;
    int32_t token = 0;  // where one was appended
  };
  int64_t elapsed_us = -1;  // -1: computing it failed
  std::vector<Item> items;  // of the plan's, in its order
};

struct EndEntry {};

using RecordingEntry =
    std::variant<RecordingHeader, SessionEntry, PrefixEntry, CreateEntry,
                 ForkEntry, RewindEntry, ReleaseEntry, SubmitEntry, CancelEntry,
                 QuoteEntry, RestoreEntry, ResizeEntry, CreatePrefixEntry,
                 RetainPrefixEntry, PinPrefixEntry, OpenPrefixEntry,
                 ReleasePrefixEntry, PlanEntry, CommitEntry, EndEntry,
                 BeginRestoreEntry, EndRestoreEntry>;

// Appends the payload to `bytes`. May throw std::bad_alloc.
void EncodeEntry(const RecordingEntry& entry, std::string* bytes);
// Exactly what EncodeEntry() gives, or INVALID_ARGUMENT; UNIMPLEMENTED for a
// type that this library does not know. Takes memory in proportion to `bytes`.
absl::StatusOr<RecordingEntry> DecodeEntry(std::string_view bytes);
// "submit", for messages.
std::string_view EntryName(const RecordingEntry& entry);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_RECORDING_FORMAT_H_
