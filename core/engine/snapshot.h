// SessionSnapshot: a session as bytes, and back. Pure functions on plain data:
// knows nothing of files, of runners or of where KV lies. The bytes of the
// format are in snapshot_format.h.
//
// What a snapshot promises: from bytes that were damaged, cut or made up comes
// the very log that was saved with a prefix of the very KV, or an error. Any
// one damaged byte leaves the whole log: it is stored twice.
#ifndef INLAY_CORE_ENGINE_SNAPSHOT_H_
#define INLAY_CORE_ENGINE_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/engine/fingerprint.h"
#include "memory/dtype.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

// How KV lies in a block: KV of another form is of no use.
struct KvForm {
  DType dtype = DType::kF32;
  int32_t block_size = 1;    // tokens, >= 1; of the first group
  uint64_t block_bytes = 0;  // of every group
  uint64_t layout_hash = 0;  // HashKvLayout()

  bool operator==(const KvForm&) const = default;
};

// The form of `layout`'s blocks.
KvForm KvFormOf(const KvLayout& layout);

struct SessionSnapshot {
  std::vector<int32_t> log;
  bool is_long = false;  // how KV is rotated (ModelInfo::rope_threshold)
  // The last generation: its random numbers go on at draw num_draws of `seed`,
  // its penalties begin at log[generation_begin] (<= the log's length).
  uint64_t seed = 0;
  uint64_t num_draws = 0;
  uint64_t generation_begin = 0;

  ModelFingerprint model;
  uint64_t vocabulary = 0;  // FingerprintVocabulary()

  // KV of log[0, num_kv_tokens), of each group in blocks of its size, the last
  // perhaps partly filled; those before the group's first are not there (a
  // sliding window has passed them).
  KvForm kv;
  uint64_t num_kv_tokens = 0;
  uint64_t first_kv_block = 0;  // of the first group
  struct Group {
    int32_t block_size = 1;
    uint64_t first_block = 0;

    bool operator==(const Group&) const = default;
  };
  std::vector<Group> other_groups;  // behind the first; < kMaxKvGroups

  size_t num_groups() const { return 1 + other_groups.size(); }
  Group group(size_t index) const {
    return index == 0 ? Group{kv.block_size, first_kv_block}
                      : other_groups[index - 1];
  }
  // One past the group's last block of KV.
  uint64_t end_kv_block(size_t index = 0) const {
    const auto size = static_cast<uint64_t>(group(index).block_size);
    return num_kv_tokens / size + (num_kv_tokens % size != 0 ? 1 : 0);
  }
  // Of all groups before `index`; all there are for num_groups().
  uint64_t num_kv_blocks_before(size_t index) const;
};

// The kv.block_bytes bytes of block `index` of the sequence in `group`, valid
// until the next call: so KV may come from a device a block at a time.
using KvBlockSource =
    absl::FunctionRef<absl::StatusOr<absl::Span<const std::byte>>(
        size_t group, uint64_t index)>;
using ByteSink = absl::FunctionRef<absl::Status(absl::Span<const std::byte>)>;

// Bytes that EncodeSnapshot() gives for a valid snapshot.
uint64_t EncodedSnapshotBytes(const SessionSnapshot& snapshot);

// Gives the snapshot to `sink` in pieces, in order; holds a copy of the log but
// none of KV. `blocks` is asked for the blocks of the first group in order,
// then for those of the next. INVALID_ARGUMENT where the snapshot is not what
// its fields say or a block has not block_bytes bytes; errors of `blocks` and
// `sink` end it.
//
// Blocks are stored whole: what in them holds no token of the session may hold
// another's, so leave it out (CopyUsed).
absl::Status EncodeSnapshot(const SessionSnapshot& snapshot,
                            KvBlockSource blocks, ByteSink sink);

// Copies the rows of the first `num_used` slots of a block of `group` (of
// layout.block_bytes() bytes), reading nothing else; the rest of `to` is
// zeroed.
void CopyUsed(const KvLayout& layout, size_t group, int num_used,
              absl::Span<const std::byte> from, absl::Span<std::byte> to);

// Who restores.
struct SnapshotTarget {
  ModelFingerprint model;
  uint64_t vocabulary = 0;
  int64_t vocab_size = 0;  // tokens of a log are in [0, vocab_size)
  int64_t max_tokens = 0;  // the longest log
  KvForm kv;
  KvGroups groups = {KvGroup()};  // their windows
};

struct RestoredSession {
  // As saved; first_kv_block and num_kv_tokens as stored, usable or not.
  SessionSnapshot snapshot;
  // KV of log[0, usable_kv_tokens) is good, in each group from its first block
  // on. With several groups all of it or nothing.
  uint64_t usable_kv_tokens = 0;
  // A sentence for people: why usable_kv_tokens < num_kv_tokens; else empty.
  std::string kv_note;

  // Bytes of block `index` of the sequence in `group`, in the data decoded. The
  // group's first_block <= index, index * its block_size < usable_kv_tokens.
  absl::Span<const std::byte> KvBlock(size_t group, uint64_t index) const;

  absl::Span<const std::byte> kv_bytes;  // from the first block on
};

// `data` must stay valid as long as the result's blocks are read; bytes after
// the snapshot's end are ignored. Reads all of usable KV once. Takes no more
// memory than the log's part of `data`.
//   INVALID_ARGUMENT  no snapshot at all; or one with a field out of range, of
//                     another vocabulary, or a log that the target cannot hold
//   UNIMPLEMENTED     a version that this library does not know
//   PERMISSION_DENIED (IO_ERROR) a snapshot, damaged in both copies of its log
absl::StatusOr<RestoredSession> DecodeSnapshot(absl::Span<const std::byte> data,
                                               const SnapshotTarget& target);

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_SNAPSHOT_H_
