// KvTier: where full KV blocks go when the cache above gives them up, and come
// back from: host memory, and a folder on a disk below it. Owns that memory,
// the folder's lock and one thread for the disk; knows nothing of models,
// sequences or of where the blocks above lie.
//
// A block enters host memory. When fewer than a quarter of its slots could be
// given away without loss, the I/O thread writes the blocks longest unused to
// disk, so that room is there before it is needed. Where the disk cannot keep
// up, blocks are lost: this is a cache, and everything in it can be computed
// again.
#ifndef INLAY_MEMORY_KV_TIER_H_
#define INLAY_MEMORY_KV_TIER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/device/thread.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/tier_disk_index.h"
#include "memory/kv/tier_files.h"
#include "memory/kv/tier_host.h"
#include "memory/kv/tier_options.h"
#include "memory/mutex.h"

namespace inlay {

// Thread-safe. Nothing waits for the disk but WaitIdle(), Flush() and the end.
// Nothing but Create() fails: what goes wrong makes a block not stored or not
// found. tokens: block_size, bytes: block_bytes; a block is found only with the
// tokens that it was stored with.
class KvTier {
 public:
  static constexpr int32_t kMinHostBlocks = 4;

  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED as the options say. A disk that cannot
  // be used is no error but leaves the tier without: disk_note().
  static absl::StatusOr<std::unique_ptr<KvTier>> Create(
      const KvTierOptions& options);
  // Blocks in host memory alone are gone; Flush() before keeps them.
  ~KvTier();

  // Stores a copy. False: not stored. A block that is here already stays.
  bool Put(const KvBlockKey& key, absl::Span<const int32_t> tokens,
           absl::Span<const std::byte> bytes) noexcept;
  bool Has(const KvBlockKey& key) const noexcept;
  enum class Got : uint8_t {
    kBlock,
    kOnDisk,  // there alone: Fetch() it
    kLost,    // not here any more, or not what was asked for
    kFailed,  // it was fetched, and could not be read this time
  };
  // Copies the block to `bytes`, whose content is unspecified unless it gives
  // kBlock. The block stays.
  Got Get(const KvBlockKey& key, absl::Span<const int32_t> tokens,
          absl::Span<std::byte> bytes) noexcept;
  // Has the I/O thread read a block that is on disk alone before all others,
  // and keep it for Get(); on_fetched (tier_options.h) tells when that has
  // ended. One at a time: what was fetched before and is here goes, while one
  // is being read another is not taken up. False: there is nothing to wait for.
  bool Fetch(const KvBlockKey& key) noexcept;
  // Has the I/O thread read those on disk into host memory, in this order, as
  // far as there is room besides fresh blocks. At most half as many as host
  // memory holds wait at a time; more are not asked for.
  void Prefetch(absl::Span<const KvBlockKey> keys) noexcept;
  // Neither here nor, soon, on disk.
  void Drop(const KvBlockKey& key) noexcept;

  // Waits until the I/O thread has nothing to do.
  void WaitIdle();
  // The same, with every block of host memory written to disk first.
  void Flush();
  // The first part of Flush(), and whether the rest is over. Once.
  void BeginFlush();
  bool Idle() const;
  // Whether there is a disk, as it seems now.
  bool has_disk() const;

  KvTierStats stats() const;
  // Why there is no disk although one was asked for; empty otherwise. A
  // sentence for people.
  std::string disk_note() const;

 private:
  struct Job {
    enum Kind : uint8_t { kNone, kRemove, kFetch, kLoad, kStore };
    Kind kind = kNone;
    KvRecordId id;
    uint64_t cost = 0;  // kRemove
    int32_t slot = -1;  // kFetch, kLoad, kStore: pinned
  };
  // A block that somebody waits for, in a slot that nobody finds.
  struct Fetched {
    enum State : uint8_t { kNone, kWanted, kReading, kHere, kFailed };
    State state = kNone;
    KvBlockKey key;
    int32_t slot = -1;  // kHere: pinned
  };

  KvTier(const KvTierOptions& options, Buffer memory, int32_t num_slots);
  void StartDisk(const KvTierOptions& options);

  KvRecordId IdOf(const KvBlockKey& key) const { return {owner_, key}; }
  int32_t TakeSlot(bool even_fresh) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the slot, pinned for this, has the block; it is let go.
  bool CopyFromSlot(int32_t slot, bool fetched,
                    absl::Span<const int32_t> tokens,
                    absl::Span<std::byte> bytes);
  // What was fetched and is not being read goes.
  void EndFetch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The record is to be removed, and is not found from now on.
  void ForgetRecord(const KvBlockKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a read says of the record besides its content.
  void NoteRead(const KvBlockKey& key, KvRecordFiles::ReadResult result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The I/O thread's (tier_io.cc).
  void IoMain();
  bool ReadFolder();
  bool WantsStore() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasJob() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Job NextJob() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Job NextFetch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Job StoreOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(const Job& job);
  void RemoveFile(const KvRecordId& id, uint64_t cost);
  KvRecordFiles::ReadResult Read(const Job& job);
  void LoadFetched(const Job& job);
  void Load(const Job& job);
  void Store(const Job& job);
  bool WriteRecord(const Job& job);
  // Until `cost` more fits; false where it cannot.
  bool MakeRoom(uint64_t cost);
  void DiskOff(absl::string_view why) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int32_t block_size_;
  const uint64_t block_bytes_;
  const KvBlockKey owner_;
  const uint64_t disk_limit_;
  const std::function<void()> on_fetched_;
  std::unique_ptr<const KvRecordFiles> files_;  // null: no disk

  mutable Mutex mu_;
  CondVar changed_;  // work for the I/O thread, or none left
  // Bytes and tokens of a slot pinned by a thread are that thread's to touch.
  KvHostSlots host_ ABSL_GUARDED_BY(mu_);
  KvDiskIndex disk_ ABSL_GUARDED_BY(mu_);
  // Of all records, those being written and those that would not go included.
  uint64_t disk_used_ ABSL_GUARDED_BY(mu_) = 0;
  bool disk_ready_ ABSL_GUARDED_BY(mu_) = false;  // the folder was read
  bool io_busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  int num_flushes_ ABSL_GUARDED_BY(mu_) = 0;       // that are not over
  bool begun_flush_ ABSL_GUARDED_BY(mu_) = false;  // and its end is to be told
  std::deque<Job> removals_ ABSL_GUARDED_BY(mu_);
  std::deque<KvBlockKey> wanted_ ABSL_GUARDED_BY(mu_);  // by Prefetch()
  Fetched fetched_ ABSL_GUARDED_BY(mu_);
  KvTierStats counts_ ABSL_GUARDED_BY(mu_);
  std::string disk_note_ ABSL_GUARDED_BY(mu_);

  Thread io_;  // the last member: it uses all others
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_TIER_H_
