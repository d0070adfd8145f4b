#include "core/engine/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/engine/snapshot_format.h"
#include "memory/formatted_string.h"
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
  return absl::InvalidArgumentError(FormattedString(
      "these %d bytes are no session snapshot: they neither begin nor end like "
      "one",
      data.size()));
}

absl::Status CheckTarget(const SessionSnapshot& snapshot,
                         const SnapshotTarget& target) {
  if (snapshot.vocabulary != target.vocabulary) {
    return absl::InvalidArgumentError(FormattedString(
        "the snapshot's tokens are of another vocabulary: its fingerprint is "
        "%016x, that of this model %016x",
        snapshot.vocabulary, target.vocabulary));
  }
  if (snapshot.log.size() > static_cast<uint64_t>(target.max_tokens)) {
    return absl::InvalidArgumentError(
        FormattedString("the snapshot has %d tokens, allowed: at most %d (the "
                        "model's context)",
                        snapshot.log.size(), target.max_tokens));
  }
  for (size_t i = 0; i < snapshot.log.size(); ++i) {
    const int32_t token = snapshot.log[i];
    if (token < 0 || token >= target.vocab_size) {
      return absl::InvalidArgumentError(
          FormattedString("token %d of the snapshot is %d, allowed: 0 to %d", i,
                          token, target.vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

// Why no KV of the snapshot fits the target at all; empty: it does.
std::string Mismatch(const SessionSnapshot& snapshot,
                     const SnapshotTarget& target) {
  if (snapshot.model != target.model) {
    return FormattedString(
        "its KV was computed by another model (fingerprint %016x%016x, this "
        "one: %016x%016x)",
        snapshot.model.high, snapshot.model.low, target.model.high,
        target.model.low);
  }
  const KvForm& kv = snapshot.kv;
  if (kv.dtype != target.kv.dtype) {
    return FormattedString("its KV is stored as format %d, this model's as %s",
                           static_cast<int>(kv.dtype),
                           DTypeName(target.kv.dtype));
  }
  if (kv.block_size != target.kv.block_size) {
    return FormattedString("its KV has blocks of %d tokens, this model's of %d",
                           kv.block_size, target.kv.block_size);
  }
  if (kv != target.kv) {
    return FormattedString(
        "its KV lies differently in a block (%d bytes, layout %016x; this "
        "model: %d bytes, layout %016x)",
        kv.block_bytes, kv.layout_hash, target.kv.block_bytes,
        target.kv.layout_hash);
  }
  return "";
}

// Blocks from the first on, over all groups, that are in `data` (which begins
// with the first record) and undamaged.
uint64_t CountGoodBlocks(absl::Span<const std::byte> data,
                         const Record& record) {
  const SessionSnapshot& snapshot = record.snapshot;
  const uint64_t block_bytes = snapshot.kv.block_bytes;
  const uint64_t stride = block_bytes + kBlockChecksumBytes;
  if (data.size() < record.bytes.size()) return 0;
  data.remove_prefix(record.bytes.size());
  uint64_t good = 0;
  for (size_t g = 0; g < snapshot.num_groups(); ++g) {
    for (uint64_t i = snapshot.group(g).first_block;
         i < snapshot.end_kv_block(g); ++i, ++good) {
      if (good >= data.size() / stride) return good;
      const auto stored = data.subspan(good * stride, stride);
      const uint32_t checksum = snapshot_format::BlockChecksum(
          record.bytes, g, i, stored.subspan(0, block_bytes));
      if (checksum != LoadLittleEndian<uint32_t>(stored.data() + block_bytes))
        return good;
    }
  }
  return good;
}

// Why KV of these groups would not do for the target; empty: it does.
std::string GroupMismatch(const SessionSnapshot& snapshot, uint64_t usable,
                          const SnapshotTarget& target) {
  if (snapshot.num_groups() != target.groups.size()) {
    return FormattedString(
        "its KV is of %d groups of layers, this model has %d",
        snapshot.num_groups(), target.groups.size());
  }
  for (size_t g = 0; g < target.groups.size(); ++g) {
    const SessionSnapshot::Group group = snapshot.group(g);
    if (g > 0 && group.block_size != target.groups[g].block_size) {
      return FormattedString(
          "its KV has blocks of %d tokens, this model's of %d",
          group.block_size, target.groups[g].block_size);
    }
    const uint64_t first =
        group.first_block * static_cast<uint64_t>(group.block_size);
    const int64_t read =
        KvFirstRead(static_cast<int64_t>(usable), target.groups[g].window);
    if (first > static_cast<uint64_t>(read)) {
      return FormattedString(
          "its KV begins at token %d, later than this model's window of %d "
          "allows",
          first, target.groups[g].window);
    }
  }
  return "";
}

// The same for damage; fewer tokens in `usable` then.
std::string Damage(absl::Span<const std::byte> data, const Record& record,
                   uint64_t* usable) {
  const SessionSnapshot& snapshot = record.snapshot;
  const size_t num_groups = snapshot.num_groups();
  uint64_t good = CountGoodBlocks(data, record);
  if (good == snapshot.num_kv_blocks_before(num_groups)) return "";
  size_t g = 0;
  for (; good >= snapshot.num_kv_blocks_before(g + 1); ++g) {
  }
  good -= snapshot.num_kv_blocks_before(g);
  const uint64_t first = snapshot.group(g).first_block;
  // Of several groups each would have to have the same tokens.
  *usable =
      num_groups > 1 || good == 0
          ? 0
          : (first + good) * static_cast<uint64_t>(snapshot.kv.block_size);
  return FormattedString(
      "block %d of its KV is damaged or missing (it has %d to %d)",
      first + good, first, snapshot.end_kv_block(g) - 1);
}

void FindUsableKv(absl::Span<const std::byte> data, const Record& record,
                  const SnapshotTarget& target, RestoredSession& restored) {
  const uint64_t stored = record.snapshot.num_kv_tokens;
  if (stored == 0) return;
  uint64_t usable = stored;
  std::string reason = Mismatch(record.snapshot, target);
  const bool matches = reason.empty();
  if (matches) reason = Damage(data, record, &usable);
  const std::string lacks =
      matches ? GroupMismatch(record.snapshot, usable, target) : reason;
  if (!lacks.empty()) usable = 0;
  if (reason.empty()) reason = lacks;
  restored.usable_kv_tokens = usable;
  if (usable < stored) {
    restored.kv_note = FormattedString(
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

uint64_t SessionSnapshot::num_kv_blocks_before(size_t index) const {
  uint64_t blocks = 0;
  for (size_t g = 0; g < index; ++g)
    blocks += end_kv_block(g) - group(g).first_block;
  return blocks;
}

uint64_t EncodedSnapshotBytes(const SessionSnapshot& snapshot) {
  const uint64_t record = snapshot_format::RecordBytes(snapshot);
  return 2 * record + snapshot_format::kTrailerBytes +
         snapshot.num_kv_blocks_before(snapshot.num_groups()) *
             (snapshot.kv.block_bytes + kBlockChecksumBytes);
}

absl::Status EncodeSnapshot(const SessionSnapshot& snapshot,
                            KvBlockSource blocks, ByteSink sink) {
  INLAY_RETURN_IF_ERROR(snapshot_format::CheckFields(snapshot));
  const std::vector<std::byte> record = snapshot_format::MakeRecord(snapshot);
  INLAY_RETURN_IF_ERROR(sink(record));
  const auto write = [&](size_t group, uint64_t index) -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const absl::Span<const std::byte> block,
                           blocks(group, index));
    if (block.size() != snapshot.kv.block_bytes) {
      return absl::InvalidArgumentError(
          FormattedString("block %d has %d bytes, allowed: %d", index,
                          block.size(), snapshot.kv.block_bytes));
    }
    INLAY_RETURN_IF_ERROR(sink(block));
    std::byte checksum[kBlockChecksumBytes];
    StoreLittleEndian(
        snapshot_format::BlockChecksum(record, group, index, block), checksum);
    return sink(checksum);
  };
  for (size_t g = 0; g < snapshot.num_groups(); ++g) {
    for (uint64_t i = snapshot.group(g).first_block;
         i < snapshot.end_kv_block(g); ++i) {
      INLAY_RETURN_IF_ERROR(write(g, i));
    }
  }
  INLAY_RETURN_IF_ERROR(sink(record));
  return sink(snapshot_format::MakeTrailer(record.size()));
}

void CopyUsed(const KvLayout& layout, size_t group, int num_used,
              absl::Span<const std::byte> from, absl::Span<std::byte> to) {
  INLAY_DCHECK(from.size() == layout.block_bytes() && to.size() == from.size());
  // What is between rows, and behind them, may be of another group.
  std::byte* used_end = to.data();
  const auto copy = [&](std::byte* begin, size_t bytes) {
    std::memset(used_end, 0, static_cast<size_t>(begin - used_end));
    std::memcpy(begin, from.data() + (begin - to.data()), bytes);
    used_end = begin + bytes;
  };
  for (int layer = 0; layer < layout.num_layers(); ++layer) {
    if (layout.group_of(layer) != group) continue;
    const KvLayerView view = layout.LayerView(layer, to.data());
    const size_t bytes =
        static_cast<size_t>(num_used / layout.row_tokens(layer)) *
        KvRowBytes(view.dtype, view.head_dim);
    for (int head = 0; head < view.num_kv_heads; ++head)
      copy(view.KeyRow(0, head, 0), bytes);
    if (view.value_dim > 0) continue;  // values lie in the keys' rows
    for (int head = 0; head < view.num_kv_heads; ++head)
      copy(view.ValueRow(0, head, 0), bytes);
  }
  for (int layer = 0; layer < layout.num_states(); ++layer) {
    if (layout.state_group() != group) continue;
    copy(layout.StateView(layer, to.data()).State(0),
         layout.state_bytes(layer));
  }
  std::memset(used_end, 0,
              static_cast<size_t>(to.data() + to.size() - used_end));
}

absl::Span<const std::byte> RestoredSession::KvBlock(size_t group,
                                                     uint64_t index) const {
  const uint64_t bytes = snapshot.kv.block_bytes;
  INLAY_DCHECK(index >= snapshot.group(group).first_block);
  const uint64_t ordinal = snapshot.num_kv_blocks_before(group) + index -
                           snapshot.group(group).first_block;
  return kv_bytes.subspan(ordinal * (bytes + kBlockChecksumBytes), bytes);
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
