#include "core/engine/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/engine/snapshot_format.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

using snapshot_format::kBlockChecksumBytes;
using snapshot_format::Record;

// The first record, else the second. The error is that of the first, but where
// the data begins and ends like no snapshot it says so.
absl::StatusOr<Record> FindRecord(absl::Span<const std::byte> data) {
  auto first = snapshot_format::ParseRecord(data);
  // Not damaged: whole, or refused for what it says.
  if (first.ok() || first.status().code() != IoError("").code()) return first;
  const absl::Span<const std::byte> second =
      snapshot_format::FindSecondRecord(data);
  if (!second.empty()) return snapshot_format::ParseRecord(second);
  const std::string_view magic = snapshot_format::kHeadMagic;
  if (data.size() >= magic.size() &&
      std::memcmp(data.data(), magic.data(), magic.size()) == 0) {
    return first;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "these %d bytes are no session snapshot: they neither begin nor end like "
      "one",
      data.size()));
}

absl::Status CheckTarget(const SessionSnapshot& snapshot,
                         const SnapshotTarget& target) {
  if (snapshot.vocabulary != target.vocabulary) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the snapshot's tokens are of another vocabulary: its fingerprint is "
        "%016x, that of this model %016x",
        snapshot.vocabulary, target.vocabulary));
  }
  if (snapshot.log.size() > static_cast<uint64_t>(target.max_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the snapshot has %d tokens, allowed: at most %d (the "
                        "model's context)",
                        snapshot.log.size(), target.max_tokens));
  }
  for (size_t i = 0; i < snapshot.log.size(); ++i) {
    const int32_t token = snapshot.log[i];
    if (token < 0 || token >= target.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token %d of the snapshot is %d, allowed: 0 to %d", i,
                          token, target.vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

// Why no KV of the snapshot fits the target at all; empty: it does.
std::string Mismatch(const SessionSnapshot& snapshot,
                     const SnapshotTarget& target) {
  if (snapshot.model != target.model) {
    return absl::StrFormat(
        "its KV was computed by another model (fingerprint %016x%016x, this "
        "one: %016x%016x)",
        snapshot.model.high, snapshot.model.low, target.model.high,
        target.model.low);
  }
  const KvForm& kv = snapshot.kv;
  if (kv.dtype != target.kv.dtype) {
    return absl::StrFormat("its KV is stored as format %d, this model's as %s",
                           static_cast<int>(kv.dtype),
                           DTypeName(target.kv.dtype));
  }
  if (kv.block_size != target.kv.block_size) {
    return absl::StrFormat("its KV has blocks of %d tokens, this model's of %d",
                           kv.block_size, target.kv.block_size);
  }
  if (kv != target.kv) {
    return absl::StrFormat(
        "its KV lies differently in a block (%d bytes, layout %016x; this "
        "model: %d bytes, layout %016x)",
        kv.block_bytes, kv.layout_hash, target.kv.block_bytes,
        target.kv.layout_hash);
  }
  return "";
}

// Blocks from the first on that are in `data` (which begins with the first
// record) and undamaged.
uint64_t CountGoodBlocks(absl::Span<const std::byte> data,
                         const Record& record) {
  const SessionSnapshot& snapshot = record.snapshot;
  const uint64_t block_bytes = snapshot.kv.block_bytes;
  const uint64_t stride = block_bytes + kBlockChecksumBytes;
  if (data.size() < record.bytes.size()) return 0;
  data.remove_prefix(record.bytes.size());
  const uint64_t count = std::min<uint64_t>(
      snapshot.end_kv_block() - snapshot.first_kv_block, data.size() / stride);
  for (uint64_t i = 0; i < count; ++i) {
    const auto stored = data.subspan(i * stride, stride);
    const uint32_t checksum = snapshot_format::BlockChecksum(
        record.bytes, snapshot.first_kv_block + i,
        stored.subspan(0, block_bytes));
    if (checksum != LoadLittleEndian<uint32_t>(stored.data() + block_bytes)) {
      return i;
    }
  }
  return count;
}

// With KV up to `num_tokens`, the next token reads positions from here on.
uint64_t FirstPositionRead(uint64_t num_tokens, int64_t window) {
  const uint64_t reads = window > 0 ? static_cast<uint64_t>(window) : 0;
  if (reads == 0 || num_tokens + 1 <= reads) return 0;
  return num_tokens + 1 - reads;
}

void FindUsableKv(absl::Span<const std::byte> data, const Record& record,
                  const SnapshotTarget& target, RestoredSession& restored) {
  const SessionSnapshot& snapshot = record.snapshot;
  const uint64_t stored = snapshot.num_kv_tokens;
  if (stored == 0) return;
  std::string reason = Mismatch(snapshot, target);
  uint64_t usable = 0;
  if (reason.empty()) {
    const auto block_size = static_cast<uint64_t>(snapshot.kv.block_size);
    const uint64_t good = CountGoodBlocks(data, record);
    const uint64_t end = snapshot.first_kv_block + good;
    usable = good == 0 ? 0 : std::min(stored, end * block_size);
    if (usable < stored) {
      reason = absl::StrFormat(
          "block %d of its KV is damaged or missing (it has %d to %d)", end,
          snapshot.first_kv_block, snapshot.end_kv_block() - 1);
    }
    if (snapshot.first_kv_block * block_size >
        FirstPositionRead(usable, target.window)) {
      usable = 0;
      if (reason.empty()) {
        reason = absl::StrFormat(
            "its KV begins at token %d, later than this model's window of %d "
            "allows",
            snapshot.first_kv_block * block_size, target.window);
      }
    }
  }
  restored.usable_kv_tokens = usable;
  if (usable < stored) {
    restored.kv_note = absl::StrFormat(
        "%d of the snapshot's %d cached tokens are used: %s; the rest is "
        "computed again",
        usable, stored, reason);
  }
}

}  // namespace

KvForm KvFormOf(const KvLayout& layout) {
  return {layout.dtype(), layout.block_size(), layout.block_bytes(),
          HashKvLayout(layout)};
}

uint64_t EncodedSnapshotBytes(const SessionSnapshot& snapshot) {
  const uint64_t record =
      snapshot_format::kFixedRecordBytes + 4 * snapshot.log.size();
  return 2 * record + snapshot_format::kTrailerBytes +
         (snapshot.end_kv_block() - snapshot.first_kv_block) *
             (snapshot.kv.block_bytes + kBlockChecksumBytes);
}

absl::Status EncodeSnapshot(const SessionSnapshot& snapshot,
                            KvBlockSource blocks, ByteSink sink) {
  INLAY_RETURN_IF_ERROR(snapshot_format::CheckFields(snapshot));
  const std::vector<std::byte> record = snapshot_format::MakeRecord(snapshot);
  INLAY_RETURN_IF_ERROR(sink(record));
  for (uint64_t i = snapshot.first_kv_block; i < snapshot.end_kv_block(); ++i) {
    INLAY_ASSIGN_OR_RETURN(const absl::Span<const std::byte> block, blocks(i));
    if (block.size() != snapshot.kv.block_bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("block %d has %d bytes, allowed: %d", i, block.size(),
                          snapshot.kv.block_bytes));
    }
    INLAY_RETURN_IF_ERROR(sink(block));
    std::byte checksum[kBlockChecksumBytes];
    StoreLittleEndian(snapshot_format::BlockChecksum(record, i, block),
                      checksum);
    INLAY_RETURN_IF_ERROR(sink(checksum));
  }
  INLAY_RETURN_IF_ERROR(sink(record));
  return sink(snapshot_format::MakeTrailer(record.size()));
}

void ClearUnusedSlots(const KvLayout& layout, int num_used,
                      absl::Span<std::byte> block) {
  INLAY_DCHECK(block.size() == layout.block_bytes());
  const int num_unused = layout.block_size() - num_used;
  if (num_unused <= 0) return;
  for (int layer = 0; layer < layout.num_layers(); ++layer) {
    const KvLayerView view = layout.LayerView(layer, block.data());
    const size_t bytes =
        static_cast<size_t>(num_unused) *
        RowBytes(view.dtype, static_cast<size_t>(view.head_dim));
    for (int head = 0; head < view.num_kv_heads; ++head) {
      std::memset(view.KeyRow(0, head, num_used), 0, bytes);
      std::memset(view.ValueRow(0, head, num_used), 0, bytes);
    }
  }
}

absl::Span<const std::byte> RestoredSession::KvBlock(uint64_t index) const {
  const uint64_t bytes = snapshot.kv.block_bytes;
  INLAY_DCHECK(index >= snapshot.first_kv_block);
  return kv_bytes.subspan(
      (index - snapshot.first_kv_block) * (bytes + kBlockChecksumBytes), bytes);
}

absl::StatusOr<RestoredSession> DecodeSnapshot(absl::Span<const std::byte> data,
                                               const SnapshotTarget& target) {
  INLAY_ASSIGN_OR_RETURN(Record record, FindRecord(data));
  INLAY_RETURN_IF_ERROR(CheckTarget(record.snapshot, target));
  RestoredSession restored;
  FindUsableKv(data, record, target, restored);
  if (restored.usable_kv_tokens > 0) {
    restored.kv_bytes = data.subspan(record.bytes.size());
  }
  restored.snapshot = std::move(record.snapshot);
  return restored;
}

}  // namespace inlay
