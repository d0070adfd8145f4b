// The bytes of a session snapshot, version 1 (KV of one group of layers) or 2
// (of several). Integers are little endian, and
// nothing is aligned. Checksums are CRC32C (memory/checksum.h). The format is
// our own.
//
//   record | KV blocks | record, again | trailer
//
// Record, R bytes: all but the KV. The two copies are equal byte by byte.
//     0   8  magic: 89 "INLAY" 0D 0A
//     8   8  R
//    16   4  version: 1 or 2
//    20   4  checksum of bytes 0 to 19; up to here alike in every version
//    24   8  F: bytes of the fields, 88, and 12 for each group but the first
//    32   F  fields
//   32+F  4  checksum of bytes 24 to 31+F
//   36+F  8  L: bytes of the log, 4 a token
//   44+F  L  log: tokens, int32
//  44+F+L 4  checksum of bytes 36+F to 43+F+L; the record's end, R = 48+F+L
//
// Fields:
//     0  16  model fingerprint: high, low
//    16   8  vocabulary fingerprint
//    24   8  seed
//    32   8  index of the next draw
//    40   8  where the last generation begins in the log
//    48   8  tokens with KV
//    56   8  the first block with KV
//    64   8  bytes a block
//    72   8  hash of the KV layout
//    80   4  tokens a block
//    84   1  dtype (memory/formats.def)
//    85   1  1: is_long, else 0
//    86   2  0
//  for each group but the first, whose are above:
//     0   4  tokens a block
//     4   8  the first block with KV
//
// KV blocks: group by group, for each from the first to that of the last token
// with KV
//     0   B  its bytes
//     B   4  checksum of: the record's last 4 bytes, the block's index and its
//            group in the highest byte (8 bytes), its bytes. So a block counts
//            only in its place.
//
// Trailer: finds the second record where the first is damaged.
//     0   8  R
//     8   8  magic: 0A 0D "YALNI" 89
//    16   4  checksum of bytes 0 to 15
//
// A reader takes the first record, else the second; blocks always begin at R.
#ifndef INLAY_CORE_ENGINE_SNAPSHOT_FORMAT_H_
#define INLAY_CORE_ENGINE_SNAPSHOT_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/engine/snapshot.h"

namespace inlay::snapshot_format {

inline constexpr std::string_view kHeadMagic = "\x89INLAY\r\n";
inline constexpr std::string_view kTailMagic = "\n\rYALNI\x89";
inline constexpr uint32_t kOneGroup = 1;  // versions
inline constexpr uint32_t kGroups = 2;
inline constexpr uint64_t kPrologueBytes = 24;
inline constexpr uint64_t kFieldBytes = 88;
inline constexpr uint64_t kGroupBytes = 12;
inline constexpr uint64_t kFixedRecordBytes = 48 + kFieldBytes;
inline constexpr uint64_t kTrailerBytes = 20;
inline constexpr uint64_t kBlockChecksumBytes = 4;

// INVALID_ARGUMENT names the field that contradicts the others or is out of
// range, as a writer and a reader both must refuse it.
absl::Status CheckFields(const SessionSnapshot& snapshot);

uint64_t RecordBytes(const SessionSnapshot& snapshot);
std::vector<std::byte> MakeRecord(const SessionSnapshot& snapshot);
std::vector<std::byte> MakeTrailer(uint64_t record_bytes);

// A record that is whole.
struct Record {
  SessionSnapshot snapshot;
  absl::Span<const std::byte> bytes;
};
// The record at the front of `data`. PERMISSION_DENIED where it is damaged or
// cut, UNIMPLEMENTED for another version, INVALID_ARGUMENT as CheckFields.
absl::StatusOr<Record> ParseRecord(absl::Span<const std::byte> data);
// What the trailer at the end of `data` points at, to be parsed; empty where
// there is none.
absl::Span<const std::byte> FindSecondRecord(absl::Span<const std::byte> data);

// Of block `index` of `group` with these bytes, in the snapshot of `record`.
uint32_t BlockChecksum(absl::Span<const std::byte> record, size_t group,
                       uint64_t index, absl::Span<const std::byte> block);

}  // namespace inlay::snapshot_format

#endif  // INLAY_CORE_ENGINE_SNAPSHOT_FORMAT_H_
