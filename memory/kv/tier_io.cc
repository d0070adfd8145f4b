// KvTier's I/O thread. It alone writes and removes files, so that a record is
// never written and removed at once; each job runs with the mutex free.
#include <exception>
#include <optional>

#include "absl/strings/string_view.h"
#include "memory/formatted_string.h"
#include "memory/kv/tier.h"

namespace inlay {

void KvTier::IoMain() {
  const bool usable = ReadFolder();
  while (true) {
    Job job;
    bool tells = false;
    {
      MutexLock lock(&mu_);
      disk_ready_ = usable;
      io_busy_ = false;
      changed_.SignalAll();
      while (!stop_ && !HasJob() && !begun_flush_) changed_.Wait(&mu_);
      // Removals are done even so: what was dropped must not come back.
      if (stop_ && removals_.empty()) return;
      if (HasJob()) {
        io_busy_ = true;
        const bool fetches = fetched_.state == Fetched::kWanted;
        job = NextJob();
        // One that there was nothing to read for is over, too.
        tells = fetches && fetched_.state != Fetched::kWanted;
      } else {
        begun_flush_ = false;
        tells = true;
      }
    }
    Run(job);
    if (tells && on_fetched_ != nullptr) on_fetched_();
  }
}

bool KvTier::ReadFolder() {
  try {
    auto found = files_->Scan();
    if (!found.ok()) {
      MutexLock lock(&mu_);
      DiskOff(found.status().message());
      return false;
    }
    for (const KvRecordFiles::Found& record : *found) {
      // One at a time: others wait for no more than that.
      MutexLock lock(&mu_);
      disk_.Add(record.id, record.cost);
      disk_used_ += record.cost;
    }
    if (MakeRoom(0)) return true;
    MutexLock lock(&mu_);
    DiskOff(
        "the folder holds more KV than its limit, and it cannot be removed");
  } catch (const std::exception&) {
    MutexLock lock(&mu_);
    DiskOff("no memory to read the folder of KV");
  }
  return false;
}

void KvTier::DiskOff(absl::string_view why) noexcept {
  while (const auto record = disk_.Oldest()) disk_.Remove(*record);
  wanted_.clear();
  if (fetched_.state == Fetched::kWanted) EndFetch();
  try {
    disk_note_ = FormattedString("no KV is kept on disk: %s", why);
  } catch (const std::exception&) {
    // It fits into the string itself.
    disk_note_ = "no disk";
  }
}

bool KvTier::WantsStore() const {
  if (!disk_ready_ || host_.OldestFresh() < 0) return false;
  return num_flushes_ > 0 || host_.num_ready() < (host_.num_slots() + 3) / 4;
}

bool KvTier::HasJob() const {
  const bool wants = !wanted_.empty() || fetched_.state == Fetched::kWanted;
  return !removals_.empty() || (disk_ready_ && wants) || WantsStore();
}

KvTier::Job KvTier::NextJob() {
  if (disk_ready_ && fetched_.state == Fetched::kWanted) {
    const Job job = NextFetch();
    if (job.kind != Job::kNone) return job;
  }
  if (!removals_.empty()) {
    const Job job = removals_.front();
    removals_.pop_front();
    return job;
  }
  while (!wanted_.empty()) {
    const KvRecordId id = IdOf(wanted_.front());
    wanted_.pop_front();
    if (host_.Find(id.key) >= 0 || !disk_.Has(id)) continue;
    const int32_t slot = TakeSlot(/*even_fresh=*/false);
    if (slot >= 0) return {Job::kLoad, id, 0, slot};
  }
  while (WantsStore()) {
    const Job job = StoreOldest();
    if (job.kind != Job::kNone) return job;
  }
  return {};
}

// Without a slot to read to, a block is stored first, so that none is lost that
// the disk has room for.
KvTier::Job KvTier::NextFetch() {
  const KvRecordId id = IdOf(fetched_.key);
  if (host_.Find(id.key) >= 0 || !disk_.Has(id)) {
    fetched_ = Fetched();
    return {};
  }
  while (host_.num_ready() == 0 && host_.OldestFresh() >= 0) {
    const Job job = StoreOldest();
    if (job.kind != Job::kNone) return job;
  }
  const int32_t slot = TakeSlot(/*even_fresh=*/false);
  fetched_.state = slot >= 0 ? Fetched::kReading : Fetched::kFailed;
  if (slot < 0) return {};
  return {Job::kFetch, id, 0, slot};
}

KvTier::Job KvTier::StoreOldest() {
  const int32_t slot = host_.OldestFresh();
  const KvRecordId id = IdOf(host_.key(slot));
  if (disk_.Has(id)) {
    host_.SetOffered(slot);
    return {};
  }
  host_.Pin(slot);
  return {Job::kStore, id, 0, slot};
}

void KvTier::Run(const Job& job) {
  switch (job.kind) {
    case Job::kNone:
      return;
    case Job::kRemove:
      return RemoveFile(job.id, job.cost);
    case Job::kFetch:
      return LoadFetched(job);
    case Job::kLoad:
      return Load(job);
    case Job::kStore:
      return Store(job);
  }
}

void KvTier::RemoveFile(const KvRecordId& id, uint64_t cost) {
  bool removed = false;
  try {
    removed = files_->Remove(id);
  } catch (const std::exception&) {
  }
  // A file that stays goes on taking its room.
  MutexLock lock(&mu_);
  if (removed) disk_used_ -= cost;
}

KvRecordFiles::ReadResult KvTier::Read(const Job& job) {
  absl::Span<int32_t> tokens;
  absl::Span<std::byte> bytes;
  {
    MutexLock lock(&mu_);
    tokens = host_.tokens(job.slot);
    bytes = host_.bytes(job.slot);
  }
  auto result = KvRecordFiles::ReadResult::kFailed;
  try {
    result = files_->Read(job.id.key, tokens, bytes);
  } catch (const std::exception&) {
  }
  MutexLock lock(&mu_);
  NoteRead(job.id.key, result);
  return result;
}

void KvTier::LoadFetched(const Job& job) {
  bool read = Read(job) == KvRecordFiles::ReadResult::kOk;
  MutexLock lock(&mu_);
  read = read && disk_.Has(job.id);  // it may have been dropped meanwhile
  fetched_.state = read ? Fetched::kHere : Fetched::kFailed;
  if (read) {
    fetched_.slot = job.slot;
  } else {
    host_.Unpin(job.slot);
  }
}

void KvTier::Load(const Job& job) {
  const bool read = Read(job) == KvRecordFiles::ReadResult::kOk;
  MutexLock lock(&mu_);
  try {
    // It may have been put or dropped meanwhile.
    if (read && host_.Find(job.id.key) < 0 && disk_.Has(job.id)) {
      host_.Publish(job.slot, job.id.key, /*offered=*/true);
      disk_.Touch(job.id);
      ++counts_.promotions;
      return;
    }
  } catch (const std::exception&) {
  }
  host_.Unpin(job.slot);
}

void KvTier::Store(const Job& job) {
  const uint64_t cost = files_->record_cost();
  bool reserved = false;
  bool stored = false;
  try {
    reserved = MakeRoom(cost);
    stored = reserved && WriteRecord(job);
  } catch (const std::exception&) {
  }
  {
    MutexLock lock(&mu_);
    // Dropped while it was being written: it must not be found.
    const bool wanted = host_.IsFindable(job.slot);
    try {
      if (stored && wanted) disk_.Add(job.id, cost);
    } catch (const std::exception&) {
      stored = false;
    }
    if (stored && wanted) ++counts_.demotions;
    if (!stored) ++counts_.write_failures;
    stored = stored && wanted;
    // After a failure too: trying again for ever would help nobody.
    host_.SetOffered(job.slot);
    host_.Unpin(job.slot);
  }
  if (reserved && !stored) RemoveFile(job.id, cost);
}

bool KvTier::WriteRecord(const Job& job) {
  absl::Span<const int32_t> tokens;
  absl::Span<const std::byte> bytes;
  {
    MutexLock lock(&mu_);
    tokens = host_.tokens(job.slot);
    bytes = host_.bytes(job.slot);
  }
  return files_->Write(job.id.key, tokens, bytes).ok();
}

bool KvTier::MakeRoom(uint64_t cost) {
  while (true) {
    KvRecordId oldest;
    uint64_t freed = 0;
    {
      MutexLock lock(&mu_);
      if (cost <= disk_limit_ && disk_used_ <= disk_limit_ - cost) {
        disk_used_ += cost;
        return true;
      }
      const std::optional<KvRecordId> candidate = disk_.Oldest();
      if (!candidate.has_value()) return false;
      oldest = *candidate;
      freed = *disk_.Remove(oldest);
    }
    RemoveFile(oldest, freed);
  }
}

bool KvTier::IsIdle() const { return !io_busy_ && !HasJob(); }

void KvTier::WaitIdle() {
  MutexLock lock(&mu_);
  while (!IsIdle()) changed_.Wait(&mu_);
}

void KvTier::Flush() {
  MutexLock lock(&mu_);
  ++num_flushes_;
  changed_.SignalAll();
  while (!IsIdle()) changed_.Wait(&mu_);
  --num_flushes_;
}

void KvTier::BeginFlush() {
  MutexLock lock(&mu_);
  ++num_flushes_;  // for good
  begun_flush_ = true;
  changed_.SignalAll();
}

bool KvTier::Idle() const {
  MutexLock lock(&mu_);
  return IsIdle();
}

}  // namespace inlay
