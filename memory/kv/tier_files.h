// KvRecordFiles: KV blocks in a folder, a file each, so that blocks of several
// models lie side by side, any of them can go at any time, and an interrupted
// write damages itself alone. Knows nothing of limits, of which blocks are
// worth keeping, or of threads.
//
// A file is named <owner>-<key>.kv (32 hexadecimal digits each) and holds, in
// little endian,
//     0   8  magic: "InlayKvB"
//     8   4  version: 1
//    12   4  T: tokens of a block
//    16  16  owner: high, low
//    32  16  key: high, low
//    48   8  B: bytes of a block
//    56   4  CRC32C of the block's bytes
//    60  4T  tokens, int32
// 60+4T   4  CRC32C of bytes 0 to 59+4T
// 64+4T   B  the block's bytes
#ifndef INLAY_MEMORY_KV_TIER_FILES_H_
#define INLAY_MEMORY_KV_TIER_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/file_ops.h"
#include "memory/kv/prefix_index.h"

namespace inlay {

struct KvRecordId {
  KvBlockKey owner;  // whose bytes these are: model and layout
  KvBlockKey key;

  bool operator==(const KvRecordId&) const = default;
  template <typename H>
  friend H AbslHashValue(H state, const KvRecordId& id) {
    return H::combine(std::move(state), id.owner, id.key);
  }
};

// Const methods run on any thread, but that Write() and Remove() of one key
// must not run at once. May throw std::bad_alloc.
class KvRecordFiles {
 public:
  struct Form {
    KvBlockKey owner;
    int32_t block_size = 0;
    uint64_t block_bytes = 0;
  };
  enum class ReadResult : uint8_t {
    kOk,
    kGone,     // there is no such file
    kDamaged,  // it is not what was written, or the disk has lost it
    kFailed,   // it cannot be opened or read; another time perhaps
  };
  struct Found {
    KvRecordId id;
    uint64_t cost = 0;
  };

  // Makes the folder (not those above it) and locks it against others, in this
  // process too, until destruction. FAILED_PRECONDITION: in use; otherwise as
  // FileError().
  static absl::StatusOr<std::unique_ptr<KvRecordFiles>> Open(
      const std::string& folder, const Form& form, const FileOps& ops);
  ~KvRecordFiles();

  // What a record takes of a disk, in whole pages; files of another owner by
  // their size.
  uint64_t record_cost() const { return Cost(record_bytes_); }

  // The records of every owner, the longest unwritten first. Removes those of
  // ours that have not the right size; files of other names are left alone.
  absl::StatusOr<std::vector<Found>> Scan() const;

  // Of our owner. A failed write leaves a file to be removed.
  absl::Status Write(const KvBlockKey& key, absl::Span<const int32_t> tokens,
                     absl::Span<const std::byte> bytes) const;
  // Fills `tokens` and `bytes`; their content is unspecified if not kOk.
  ReadResult Read(const KvBlockKey& key, absl::Span<int32_t> tokens,
                  absl::Span<std::byte> bytes) const;
  // True when there is no such file any more.
  bool Remove(const KvRecordId& id) const;

 private:
  KvRecordFiles(const Form& form, const FileOps& ops, ScopedDescriptor folder,
                ScopedDescriptor lock);
  static uint64_t Cost(uint64_t file_bytes);
  uint64_t HeaderBytes() const;
  std::vector<std::byte> MakeHeader(const KvBlockKey& key,
                                    absl::Span<const int32_t> tokens,
                                    absl::Span<const std::byte> bytes) const;

  const Form form_;
  const FileOps& ops_;
  const uint64_t record_bytes_;
  const ScopedDescriptor folder_;
  const ScopedDescriptor lock_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_TIER_FILES_H_
