#include "core/engine/snapshot_format.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "memory/checksum.h"
#include "memory/formatted_string.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay::snapshot_format {
namespace {

// Far above any block there is; keeps products of counts and sizes in range.
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 40;
constexpr int32_t kMaxBlockSize = 1 << 20;
constexpr uint64_t kMaxTokens = std::numeric_limits<int32_t>::max();

class Writer {
 public:
  explicit Writer(size_t bytes) { bytes_.reserve(bytes); }

  template <typename T>
  void Add(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    StoreLittleEndian(value, bytes_.data() + bytes_.size() - sizeof(T));
  }
  void AddText(std::string_view text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), begin, begin + text.size());
  }
  void AddChecksumFrom(size_t begin) {
    Add<uint32_t>(Crc32c(absl::MakeConstSpan(bytes_).subspan(begin)));
  }
  size_t size() const { return bytes_.size(); }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what the caller has made sure is there.
class Reader {
 public:
  explicit Reader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    const T value = LoadLittleEndian<T>(bytes_.data());
    bytes_.remove_prefix(sizeof(T));
    return value;
  }

 private:
  absl::Span<const std::byte> bytes_;
};

bool HasMagic(absl::Span<const std::byte> data, std::string_view magic) {
  return data.size() >= magic.size() &&
         std::memcmp(data.data(), magic.data(), magic.size()) == 0;
}

// Whether the 4 bytes after the first `size` of `data` are their checksum.
bool ChecksumHolds(absl::Span<const std::byte> data, uint64_t size) {
  return Crc32c(data.subspan(0, size)) ==
         LoadLittleEndian<uint32_t>(data.data() + size);
}

absl::Status Damaged(const char* part) {
  return IoError(FormattedString("the snapshot is damaged: %s", part));
}

absl::Status OutOfRange(const char* field, uint64_t value, uint64_t low,
                        uint64_t high) {
  return absl::InvalidArgumentError(FormattedString(
      "the snapshot says %s %d, allowed: %d to %d", field, value, low, high));
}

void AddFields(const SessionSnapshot& snapshot, Writer& writer) {
  writer.Add<uint64_t>(snapshot.model.high);
  writer.Add<uint64_t>(snapshot.model.low);
  writer.Add<uint64_t>(snapshot.vocabulary);
  writer.Add<uint64_t>(snapshot.seed);
  writer.Add<uint64_t>(snapshot.num_draws);
  writer.Add<uint64_t>(snapshot.generation_begin);
  writer.Add<uint64_t>(snapshot.num_kv_tokens);
  writer.Add<uint64_t>(snapshot.first_kv_block);
  writer.Add<uint64_t>(snapshot.kv.block_bytes);
  writer.Add<uint64_t>(snapshot.kv.layout_hash);
  writer.Add<int32_t>(snapshot.kv.block_size);
  writer.Add<uint8_t>(static_cast<uint8_t>(snapshot.kv.dtype));
  writer.Add<uint8_t>(snapshot.is_long ? 1 : 0);
  writer.Add<uint16_t>(0);
  for (const SessionSnapshot::Group& group : snapshot.other_groups) {
    writer.Add<int32_t>(group.block_size);
    writer.Add<uint64_t>(group.first_block);
  }
}

// `fields` has kFieldBytes bytes, and kGroupBytes for each group but the first.
SessionSnapshot TakeFields(absl::Span<const std::byte> fields) {
  Reader reader(fields);
  SessionSnapshot snapshot;
  snapshot.model.high = reader.Take<uint64_t>();
  snapshot.model.low = reader.Take<uint64_t>();
  snapshot.vocabulary = reader.Take<uint64_t>();
  snapshot.seed = reader.Take<uint64_t>();
  snapshot.num_draws = reader.Take<uint64_t>();
  snapshot.generation_begin = reader.Take<uint64_t>();
  snapshot.num_kv_tokens = reader.Take<uint64_t>();
  snapshot.first_kv_block = reader.Take<uint64_t>();
  snapshot.kv.block_bytes = reader.Take<uint64_t>();
  snapshot.kv.layout_hash = reader.Take<uint64_t>();
  snapshot.kv.block_size = reader.Take<int32_t>();
  snapshot.kv.dtype = static_cast<DType>(reader.Take<uint8_t>());
  snapshot.is_long = reader.Take<uint8_t>() != 0;
  reader.Take<uint16_t>();
  snapshot.other_groups.resize((fields.size() - kFieldBytes) / kGroupBytes);
  for (SessionSnapshot::Group& group : snapshot.other_groups) {
    group.block_size = reader.Take<int32_t>();
    group.first_block = reader.Take<uint64_t>();
  }
  return snapshot;
}

// Length of the record that begins `data`, at most data.size().
absl::StatusOr<uint64_t> ParsePrologue(absl::Span<const std::byte> data) {
  if (data.size() < kPrologueBytes || !HasMagic(data, kHeadMagic) ||
      !ChecksumHolds(data, kPrologueBytes - 4)) {
    return Damaged("its first bytes");
  }
  const auto version = LoadLittleEndian<uint32_t>(data.data() + 16);
  if (version < kOneGroup || version > kGroups) {
    return absl::UnimplementedError(FormattedString(
        "the snapshot has version %d of the format, this library reads "
        "versions %d to %d: use the Inlay that wrote it, or a newer one",
        version, kOneGroup, kGroups));
  }
  const auto record_bytes = LoadLittleEndian<uint64_t>(data.data() + 8);
  if (record_bytes < kFixedRecordBytes || record_bytes > data.size()) {
    return Damaged("it ends before the end of its token log");
  }
  return record_bytes;
}

}  // namespace

absl::Status CheckFields(const SessionSnapshot& snapshot) {
  const KvForm& kv = snapshot.kv;
  const uint64_t num_tokens = snapshot.log.size();
  if (num_tokens > kMaxTokens) {
    return OutOfRange("tokens", num_tokens, 0, kMaxTokens);
  }
  if (snapshot.generation_begin > num_tokens) {
    return OutOfRange("generation_begin", snapshot.generation_begin, 0,
                      num_tokens);
  }
  if (snapshot.num_kv_tokens > num_tokens) {
    return OutOfRange("num_kv_tokens", snapshot.num_kv_tokens, 0, num_tokens);
  }
  if (snapshot.num_groups() > kMaxKvGroups) {
    return OutOfRange("groups", snapshot.num_groups(), 1, kMaxKvGroups);
  }
  if (kv.block_bytes > kMaxBlockBytes) {
    return OutOfRange("block_bytes", kv.block_bytes, 0, kMaxBlockBytes);
  }
  for (size_t g = 0; g < snapshot.num_groups(); ++g) {
    const SessionSnapshot::Group group = snapshot.group(g);
    if (group.block_size < 1 || group.block_size > kMaxBlockSize) {
      return absl::InvalidArgumentError(
          FormattedString("the snapshot says block_size %d, allowed: 1 to %d",
                          group.block_size, kMaxBlockSize));
    }
    const uint64_t last = std::max<uint64_t>(snapshot.end_kv_block(g), 1) - 1;
    if (group.first_block > last)
      return OutOfRange("first_kv_block", group.first_block, 0, last);
  }
  return absl::OkStatus();
}

uint64_t RecordBytes(const SessionSnapshot& snapshot) {
  return kFixedRecordBytes + kGroupBytes * snapshot.other_groups.size() +
         4 * snapshot.log.size();
}

std::vector<std::byte> MakeRecord(const SessionSnapshot& snapshot) {
  const uint64_t log_bytes = 4 * snapshot.log.size();
  const uint64_t record_bytes = RecordBytes(snapshot);
  Writer writer(record_bytes);
  writer.AddText(kHeadMagic);
  writer.Add<uint64_t>(record_bytes);
  writer.Add<uint32_t>(snapshot.num_groups() > 1 ? kGroups : kOneGroup);
  writer.AddChecksumFrom(0);
  writer.Add<uint64_t>(kFieldBytes +
                       kGroupBytes * snapshot.other_groups.size());
  AddFields(snapshot, writer);
  writer.AddChecksumFrom(kPrologueBytes);
  const size_t log_begin = writer.size();
  writer.Add<uint64_t>(log_bytes);
  for (const int32_t token : snapshot.log) writer.Add<int32_t>(token);
  writer.AddChecksumFrom(log_begin);
  INLAY_DCHECK(writer.size() == record_bytes);
  return writer.Take();
}

std::vector<std::byte> MakeTrailer(uint64_t record_bytes) {
  Writer writer(kTrailerBytes);
  writer.Add<uint64_t>(record_bytes);
  writer.AddText(kTailMagic);
  writer.AddChecksumFrom(0);
  return writer.Take();
}

absl::StatusOr<Record> ParseRecord(absl::Span<const std::byte> data) {
  INLAY_ASSIGN_OR_RETURN(const uint64_t record_bytes, ParsePrologue(data));
  data = data.subspan(0, record_bytes);
  const auto fields = data.subspan(kPrologueBytes);
  const auto field_bytes = LoadLittleEndian<uint64_t>(fields.data());
  const uint64_t of_groups = field_bytes - kFieldBytes;  // huge when below
  if (of_groups > record_bytes - kFixedRecordBytes ||
      of_groups % kGroupBytes != 0 || !ChecksumHolds(fields, 8 + field_bytes)) {
    return Damaged("its header");
  }
  const auto log = fields.subspan(8 + field_bytes + 4);
  const uint64_t log_bytes = record_bytes - kFixedRecordBytes - of_groups;
  if (LoadLittleEndian<uint64_t>(log.data()) != log_bytes ||
      log_bytes % 4 != 0 || !ChecksumHolds(log, 8 + log_bytes)) {
    return Damaged("its token log");
  }
  Record record;
  record.bytes = data;
  record.snapshot = TakeFields(fields.subspan(8, field_bytes));
  std::vector<int32_t>& tokens = record.snapshot.log;
  tokens.resize(log_bytes / 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = LoadLittleEndian<int32_t>(log.data() + 8 + 4 * i);
  }
  INLAY_RETURN_IF_ERROR(CheckFields(record.snapshot));
  return record;
}

absl::Span<const std::byte> FindSecondRecord(absl::Span<const std::byte> data) {
  if (data.size() < kTrailerBytes) return {};
  const uint64_t end = data.size() - kTrailerBytes;
  const auto trailer = data.subspan(end);
  const auto record_bytes = LoadLittleEndian<uint64_t>(trailer.data());
  if (!HasMagic(trailer.subspan(8), kTailMagic) ||
      !ChecksumHolds(trailer, kTrailerBytes - 4) || record_bytes > end) {
    return {};
  }
  return data.subspan(end - record_bytes, record_bytes);
}

uint32_t BlockChecksum(absl::Span<const std::byte> record, size_t group,
                       uint64_t index, absl::Span<const std::byte> block) {
  std::byte index_bytes[8];
  StoreLittleEndian(index | uint64_t{group} << 56, index_bytes);
  const uint32_t place =
      Crc32c(index_bytes, Crc32c(record.subspan(record.size() - 4)));
  return Crc32c(block, place);
}

}  // namespace inlay::snapshot_format
