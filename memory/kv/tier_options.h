// What a KvTier is made of, and what it counts. Plain data.
#ifndef INLAY_MEMORY_KV_TIER_OPTIONS_H_
#define INLAY_MEMORY_KV_TIER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "memory/device/device.h"
#include "memory/file_ops.h"
#include "memory/kv/prefix_index.h"

namespace inlay {

struct KvTierOptions {
  int32_t block_size = 16;   // tokens, [1, 2^20]
  uint64_t block_bytes = 0;  // >= 1
  // Host memory is taken from here (class kKv), all at once; must outlive the
  // tier. Its limit holds blocks, tokens and bookkeeping.
  Device* host = nullptr;
  uint64_t host_bytes = 0;  // at least kMinHostBlocks blocks
  // Empty: no disk. Made if missing, for this tier alone. Its records never
  // take more than disk_bytes, those of earlier runs and models included.
  std::string disk_folder;
  uint64_t disk_bytes = 0;
  // What the bytes depend on besides tokens: model and layout. Blocks of other
  // owners in the folder are not found, but removed when room is needed.
  KvBlockKey owner;
  const FileOps* file_ops = nullptr;  // null: the system's; must outlive
  // Called on the tier's thread, with no lock held, when a Fetch() has ended,
  // or a BeginFlush(). May be empty; must not throw.
  std::function<void()> on_fetched;
};

struct KvTierStats {
  uint64_t host_hits = 0, disk_hits = 0, misses = 0;  // of Get()
  uint64_t puts = 0;                                  // blocks stored
  uint64_t demotions = 0;                             // host -> disk
  uint64_t promotions = 0;  // disk -> host, by Prefetch()
  uint64_t lost = 0;        // left host memory and are on no disk
  uint64_t damaged = 0;     // records that were not what was written
  uint64_t write_failures = 0;
  int64_t host_blocks = 0, disk_blocks = 0;  // disk: of every owner
  uint64_t host_bytes = 0, disk_bytes = 0;   // in use
  uint64_t host_peak_bytes = 0;              // the most of host_bytes
  // What they may come to. Host memory is taken when the tier is made,
  // bookkeeping included; 0: there is no disk.
  uint64_t host_limit_bytes = 0, disk_limit_bytes = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_TIER_OPTIONS_H_
