#include "memory/kv/tier.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status Check(const KvTierOptions& options) {
  constexpr int32_t kMaxBlockSize = 1 << 20;
  constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 40;
  if (options.block_size < 1 || options.block_size > kMaxBlockSize) {
    return absl::InvalidArgumentError(
        FormattedString("KV tier: block_size is %d, allowed: 1 to %d",
                        options.block_size, kMaxBlockSize));
  }
  if (options.block_bytes < 1 || options.block_bytes > kMaxBlockBytes) {
    return absl::InvalidArgumentError(
        FormattedString("KV tier: block_bytes is %d, allowed: 1 to %d",
                        options.block_bytes, kMaxBlockBytes));
  }
  if (options.host == nullptr ||
      options.host->info().kind != DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        "KV tier: its memory must be the host's (a CPU device)");
  }
  const uint64_t least =
      KvTier::kMinHostBlocks *
      KvHostSlots::SlotCost(options.block_bytes, options.block_size);
  if (options.host_bytes < least) {
    return absl::InvalidArgumentError(FormattedString(
        "KV tier: host_bytes is %d, allowed: %d or more (%d blocks)",
        options.host_bytes, least, KvTier::kMinHostBlocks));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvTier>> KvTier::Create(
    const KvTierOptions& options) {
  INLAY_RETURN_IF_ERROR(Check(options));
  const uint64_t fitting =
      options.host_bytes /
      KvHostSlots::SlotCost(options.block_bytes, options.block_size);
  const auto num_slots = static_cast<int32_t>(
      std::min<uint64_t>(fitting, std::numeric_limits<int32_t>::max()));
  INLAY_ASSIGN_OR_RETURN(
      Buffer memory, options.host->Allocate(KvHostSlots::BufferBytes(
                                                num_slots, options.block_bytes,
                                                options.block_size),
                                            MemoryClass::kKv));
  try {
    std::unique_ptr<KvTier> tier(
        new KvTier(options, std::move(memory), num_slots));
    if (!options.disk_folder.empty()) tier->StartDisk(options);
    return tier;
  } catch (const std::bad_alloc&) {
    return OutOfMemoryError(FormattedString(
        "KV tier: no memory to keep account of %d blocks", num_slots));
  }
}

KvTier::KvTier(const KvTierOptions& options, Buffer memory, int32_t num_slots)
    : block_size_(options.block_size),
      block_bytes_(options.block_bytes),
      owner_(options.owner),
      disk_limit_(options.disk_bytes),
      on_fetched_(options.on_fetched),
      host_(std::move(memory), num_slots, options.block_bytes,
            options.block_size) {}

void KvTier::StartDisk(const KvTierOptions& options) {
  auto files = KvRecordFiles::Open(
      options.disk_folder,
      {options.owner, options.block_size, options.block_bytes},
      options.file_ops == nullptr ? SystemFileOps() : *options.file_ops);
  MutexLock lock(&mu_);
  if (!files.ok()) {
    disk_note_ = std::string(files.status().message());
    return;
  }
  if (options.disk_bytes < (*files)->record_cost()) {
    disk_note_ = FormattedString(
        "no KV is kept in %s: disk_bytes is %d, one block takes %d",
        options.disk_folder, options.disk_bytes, (*files)->record_cost());
    return;
  }
  files_ = *std::move(files);
  io_busy_ = true;  // until it has read the folder
  auto io = Thread::Start([this] { IoMain(); });
  if (io.ok()) {
    io_ = *std::move(io);
    return;
  }
  io_busy_ = false;
  files_ = nullptr;
  disk_note_ = FormattedString("no KV is kept in %s: %s", options.disk_folder,
                               io.status().message());
}

KvTier::~KvTier() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  if (io_.joinable()) io_.Join();
}

int32_t KvTier::TakeSlot(bool even_fresh) {
  const KvHostSlots::Taken taken = host_.Take(even_fresh);
  if (taken.replaced.has_value() && !disk_.Has(IdOf(*taken.replaced))) {
    ++counts_.lost;
  }
  return taken.slot;
}

bool KvTier::Put(const KvBlockKey& key, absl::Span<const int32_t> tokens,
                 absl::Span<const std::byte> bytes) noexcept {
  INLAY_DCHECK(tokens.size() == static_cast<size_t>(block_size_) &&
               bytes.size() == block_bytes_);
  absl::Span<int32_t> slot_tokens;
  absl::Span<std::byte> slot_bytes;
  int32_t slot = -1;
  {
    MutexLock lock(&mu_);
    if (const int32_t known = host_.Find(key); known >= 0) {
      // Of other tokens only where two hashes of 128 bits met.
      const bool same = host_.tokens(known) == tokens;
      host_.Pin(known);
      host_.Unpin(known);  // the most recently used
      return same;
    }
    slot = TakeSlot(/*even_fresh=*/true);
    if (slot < 0) return false;
    slot_tokens = host_.tokens(slot);
    slot_bytes = host_.bytes(slot);
  }
  std::copy(tokens.begin(), tokens.end(), slot_tokens.begin());
  std::memcpy(slot_bytes.data(), bytes.data(), bytes.size());
  MutexLock lock(&mu_);
  try {
    if (host_.Find(key) < 0) {
      // Without a disk there is nothing to offer a block to.
      host_.Publish(slot, key, files_ == nullptr || disk_.Has(IdOf(key)));
      ++counts_.puts;
      if (HasJob()) changed_.SignalAll();
      return true;
    }
  } catch (const std::bad_alloc&) {
  }
  // Another thread was faster, or there was no memory.
  host_.Unpin(slot);
  return host_.Find(key) >= 0;
}

bool KvTier::Has(const KvBlockKey& key) const noexcept {
  MutexLock lock(&mu_);
  return host_.Find(key) >= 0 || disk_.Has(IdOf(key));
}

KvTier::Got KvTier::Get(const KvBlockKey& key, absl::Span<const int32_t> tokens,
                        absl::Span<std::byte> bytes) noexcept {
  INLAY_DCHECK(tokens.size() == static_cast<size_t>(block_size_) &&
               bytes.size() == block_bytes_);
  int32_t slot = -1;
  bool fetched = false;
  {
    MutexLock lock(&mu_);
    const bool on_disk = disk_.Has(IdOf(key));
    slot = host_.Find(key);
    if (slot >= 0) {
      host_.Pin(slot);
    } else if (fetched_.key == key && fetched_.state == Fetched::kHere) {
      fetched = true;
      slot = fetched_.slot;
      fetched_ = Fetched();
    } else if (fetched_.key == key && fetched_.state == Fetched::kFailed) {
      fetched_ = Fetched();
      ++counts_.misses;
      return on_disk ? Got::kFailed : Got::kLost;
    } else if (on_disk) {
      return Got::kOnDisk;
    } else {
      ++counts_.misses;
      return Got::kLost;
    }
    // What is in use above must not be the first to go below.
    if (on_disk) disk_.Touch(IdOf(key));
  }
  return CopyFromSlot(slot, fetched, tokens, bytes) ? Got::kBlock : Got::kLost;
}

bool KvTier::CopyFromSlot(int32_t slot, bool fetched,
                          absl::Span<const int32_t> tokens,
                          absl::Span<std::byte> bytes) {
  absl::Span<const int32_t> slot_tokens;
  absl::Span<const std::byte> slot_bytes;
  {
    MutexLock lock(&mu_);
    slot_tokens = host_.tokens(slot);
    slot_bytes = host_.bytes(slot);
  }
  const bool same = slot_tokens == tokens;
  if (same) std::memcpy(bytes.data(), slot_bytes.data(), bytes.size());
  MutexLock lock(&mu_);
  host_.Unpin(slot);
  ++(!same ? counts_.misses : fetched ? counts_.disk_hits : counts_.host_hits);
  if (HasJob()) changed_.SignalAll();
  return same;
}

bool KvTier::Fetch(const KvBlockKey& key) noexcept {
  MutexLock lock(&mu_);
  if (fetched_.state == Fetched::kReading) return true;
  if (fetched_.key == key && fetched_.state == Fetched::kWanted) return true;
  if (fetched_.key == key && fetched_.state != Fetched::kNone) return false;
  EndFetch();
  if (host_.Find(key) >= 0 || !disk_.Has(IdOf(key))) return false;
  fetched_.key = key;
  fetched_.state = Fetched::kWanted;
  changed_.SignalAll();
  return true;
}

void KvTier::EndFetch() {
  if (fetched_.state == Fetched::kHere) host_.Unpin(fetched_.slot);
  fetched_ = Fetched();
}

void KvTier::NoteRead(const KvBlockKey& key, KvRecordFiles::ReadResult result) {
  if (result == KvRecordFiles::ReadResult::kOk ||
      result == KvRecordFiles::ReadResult::kFailed) {
    return;
  }
  if (result == KvRecordFiles::ReadResult::kDamaged) ++counts_.damaged;
  ForgetRecord(key);
}

void KvTier::ForgetRecord(const KvBlockKey& key) {
  if (!disk_.Has(IdOf(key))) return;
  try {
    removals_.push_back({Job::kRemove, IdOf(key), 0, -1});
  } catch (const std::bad_alloc&) {
    return;  // found again, and damaged again
  }
  removals_.back().cost = *disk_.Remove(IdOf(key));
  changed_.SignalAll();
}

void KvTier::Prefetch(absl::Span<const KvBlockKey> keys) noexcept {
  MutexLock lock(&mu_);
  const auto most = static_cast<size_t>(host_.num_slots() / 2);
  try {
    for (const KvBlockKey& key : keys) {
      if (wanted_.size() >= most) break;
      if (host_.Find(key) < 0 && disk_.Has(IdOf(key))) wanted_.push_back(key);
    }
  } catch (const std::bad_alloc&) {
  }
  if (HasJob()) changed_.SignalAll();
}

void KvTier::Drop(const KvBlockKey& key) noexcept {
  MutexLock lock(&mu_);
  if (const int32_t slot = host_.Find(key); slot >= 0) host_.Forget(slot);
  if (fetched_.key == key && fetched_.state != Fetched::kReading) EndFetch();
  ForgetRecord(key);
}

KvTierStats KvTier::stats() const {
  MutexLock lock(&mu_);
  KvTierStats stats = counts_;
  stats.host_blocks = host_.num_found();
  stats.disk_blocks = disk_.size();
  stats.host_bytes = static_cast<uint64_t>(stats.host_blocks) * block_bytes_;
  stats.host_peak_bytes =
      static_cast<uint64_t>(host_.most_found()) * block_bytes_;
  stats.host_limit_bytes = static_cast<uint64_t>(host_.num_slots()) *
                           KvHostSlots::SlotCost(block_bytes_, block_size_);
  stats.disk_bytes = disk_used_;
  stats.disk_limit_bytes = files_ == nullptr ? 0 : disk_limit_;
  return stats;
}

bool KvTier::has_disk() const {
  MutexLock lock(&mu_);
  return files_ != nullptr && disk_note_.empty();
}

std::string KvTier::disk_note() const {
  MutexLock lock(&mu_);
  return disk_note_;
}

}  // namespace inlay
