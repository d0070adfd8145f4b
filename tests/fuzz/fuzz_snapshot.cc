// Any bytes as a session snapshot: no crash, and what is accepted is consistent
// and survives being saved again. The first byte chooses whether checksums are
// made to hold first (so that fields with any values get past them) and how the
// target differs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/engine/snapshot.h"
#include "core/engine/snapshot_format.h"
#include "memory/checksum.h"
#include "memory/little_endian.h"

namespace {

namespace format = inlay::snapshot_format;
using Bytes = std::vector<std::byte>;

void Require(bool holds) {
  if (!holds) abort();
}

void FixChecksum(Bytes& bytes, size_t begin, size_t end) {
  if (end < begin || end + 4 > bytes.size()) return;
  inlay::StoreLittleEndian(
      inlay::Crc32c(absl::MakeConstSpan(bytes).subspan(begin, end - begin)),
      bytes.data() + end);
}

// Of a first record of the largest log that fits, and of its blocks.
void FixChecksums(Bytes& bytes) {
  if (bytes.size() < format::kFixedRecordBytes) return;
  const auto claimed = inlay::LoadLittleEndian<uint64_t>(bytes.data() + 8);
  const uint64_t record =
      claimed >= format::kFixedRecordBytes && claimed <= bytes.size()
          ? claimed
          : format::kFixedRecordBytes;
  inlay::StoreLittleEndian<uint64_t>(record, bytes.data() + 8);
  uint64_t groups = inlay::LoadLittleEndian<uint64_t>(bytes.data() + 24) % 5 *
                    format::kGroupBytes;
  if (groups > record - format::kFixedRecordBytes) groups = 0;
  const uint64_t fields = format::kFieldBytes + groups;
  inlay::StoreLittleEndian<uint64_t>(fields, bytes.data() + 24);
  inlay::StoreLittleEndian<uint64_t>(
      record - format::kFixedRecordBytes - groups, bytes.data() + 36 + fields);
  FixChecksum(bytes, 0, format::kPrologueBytes - 4);
  FixChecksum(bytes, format::kPrologueBytes, 32 + fields);
  FixChecksum(bytes, 36 + fields, record - 4);
  const auto parsed = format::ParseRecord(bytes);
  if (!parsed.ok()) return;
  const uint64_t size = parsed->snapshot.kv.block_bytes;
  uint64_t at = record;
  for (size_t g = 0; g < parsed->snapshot.num_groups(); ++g) {
    for (uint64_t i = parsed->snapshot.group(g).first_block;
         i < parsed->snapshot.end_kv_block(g) && bytes.size() - at >= 4 &&
         bytes.size() - at - 4 >= size;
         ++i, at += size + 4) {
      const absl::Span<const std::byte> all(bytes);
      inlay::StoreLittleEndian(format::BlockChecksum(all.subspan(0, record), g,
                                                     i, all.subspan(at, size)),
                               bytes.data() + at + size);
    }
  }
}

void CheckRestored(const inlay::RestoredSession& restored,
                   const inlay::SnapshotTarget& target) {
  const inlay::SessionSnapshot& snapshot = restored.snapshot;
  Require(restored.usable_kv_tokens <= snapshot.num_kv_tokens);
  Require(snapshot.num_kv_tokens <= snapshot.log.size());
  Require(snapshot.generation_begin <= snapshot.log.size());
  Require(snapshot.log.size() <= static_cast<uint64_t>(target.max_tokens));
  Require(restored.kv_note.empty() ==
          (restored.usable_kv_tokens == snapshot.num_kv_tokens));
  for (const int32_t token : snapshot.log) {
    Require(token >= 0 && token < target.vocab_size);
  }
  if (restored.usable_kv_tokens == 0) return;
  Require(snapshot.model == target.model && snapshot.kv == target.kv);
  inlay::SessionSnapshot again = snapshot;
  again.num_kv_tokens = restored.usable_kv_tokens;
  Bytes encoded;
  const auto status = inlay::EncodeSnapshot(
      again,
      [&](size_t g, uint64_t i) -> absl::StatusOr<absl::Span<const std::byte>> {
        return restored.KvBlock(g, i);
      },
      [&](absl::Span<const std::byte> piece) {
        encoded.insert(encoded.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      });
  Require(status.ok());
  const auto twice = inlay::DecodeSnapshot(encoded, target);
  Require(twice.ok() && twice->snapshot.log == snapshot.log);
  Require(twice->usable_kv_tokens == restored.usable_kv_tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t mode = data[0];
  const auto* begin = reinterpret_cast<const std::byte*>(data) + 1;
  Bytes bytes(begin, begin + size - 1);
  if ((mode & 1) != 0) FixChecksums(bytes);

  inlay::SnapshotTarget target;
  target.vocab_size = 1000;
  target.max_tokens = 1 << 20;
  target.groups[0].window = mode >> 4;
  // What the snapshot says of itself, but for what the mode changes.
  const auto parsed = format::ParseRecord(bytes);
  if (parsed.ok()) {
    target.model = parsed->snapshot.model;
    target.vocabulary = parsed->snapshot.vocabulary;
    target.kv = parsed->snapshot.kv;
    for (const auto& group : parsed->snapshot.other_groups)
      target.groups.push_back({group.block_size, mode >> 5});
  }
  if ((mode & 2) != 0) target.model.low ^= 1;
  if ((mode & 4) != 0) target.kv.block_size ^= 1;
  if ((mode & 8) != 0) target.vocab_size = INT32_MAX;
  const auto restored = inlay::DecodeSnapshot(bytes, target);
  if (restored.ok()) CheckRestored(*restored, target);
  return 0;
}
