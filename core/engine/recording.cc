#include "core/engine/recording.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "memory/checksum.h"
#include "memory/formatted_string.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kFrameBytes = 8;
constexpr size_t kHeadBytes = 12;

absl::Span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string Head() {
  std::string head(kRecordingMagic);
  head.resize(kHeadBytes);
  StoreLittleEndian(kRecordingVersion,
                    reinterpret_cast<std::byte*>(head.data()) + 8);
  return head;
}

// `frame`: N, the checksum, and perhaps the payload.
uint32_t EntryChecksum(const std::byte* frame, std::string_view payload,
                       uint32_t previous) {
  return Crc32c(AsBytes(payload), Crc32c({frame, 4}, previous));
}

}  // namespace

Recorder::Recorder(std::string path, const FileOps& ops, ScopedDescriptor file)
    : path_(std::move(path)),
      ops_(&ops),
      out_of_memory_(OutOfMemoryError("out of memory for the recording")),
      file_(std::move(file)),
      pending_(Head()) {}

absl::StatusOr<std::shared_ptr<Recorder>> Recorder::Create(
    const std::string& path, const FileOps& ops) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        FormattedString("cannot record into a file whose path %s",
                        path.empty() ? "is empty" : "has a NUL inside"));
  }
  // O_NONBLOCK: opening a pipe must not wait for a reader. Whoever reads one
  // could also end the process by going away (SIGPIPE).
  ScopedDescriptor file(&ops, Uninterrupted([&] {
    return ops.OpenAt(AT_FDCWD, path.c_str(),
                      O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
  }));
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0)
    return FileError(errno, "record into", path);
  if (S_ISFIFO(info.st_mode)) {
    return absl::InvalidArgumentError(FormattedString(
        "cannot record into %s: it is a pipe, allowed: a regular file", path));
  }
  // One that was there before may be open to others; some file systems know no
  // modes.
  const bool is_open = S_ISREG(info.st_mode) && (info.st_mode & 077) != 0;
  if (is_open && fchmod(file.get(), 0600) != 0 && info.st_uid != geteuid())
    return FileError(errno, "keep to its owner", path);
  if (S_ISREG(info.st_mode) &&
      Uninterrupted([&] { return ftruncate(file.get(), 0); }) != 0)
    return FileError(errno, "empty", path);
  return std::shared_ptr<Recorder>(new Recorder(path, ops, std::move(file)));
}

// How many bytes wait then.
size_t Recorder::Append(const RecordingEntry& entry) {
  MutexLock lock(&mu_);
  if (!status_.ok()) return 0;
  const size_t begin = pending_.size();
  auto undo = absl::MakeCleanup([&] { pending_.resize(begin); });
  pending_.resize(begin + kFrameBytes);
  EncodeEntry(entry, &pending_);
  const std::string_view payload =
      std::string_view(pending_).substr(begin + kFrameBytes);
  if (payload.size() > kMostEntryBytes) {
    status_ = absl::ResourceExhaustedError(FormattedString(
        "an entry \"%s\" has %d bytes, a recording takes at most %d",
        EntryName(entry), payload.size(), kMostEntryBytes));
    return 0;
  }
  std::move(undo).Cancel();
  auto* frame = reinterpret_cast<std::byte*>(pending_.data()) + begin;
  StoreLittleEndian(static_cast<uint32_t>(payload.size()), frame);
  checksum_ = EntryChecksum(frame, payload, checksum_);
  StoreLittleEndian(checksum_, frame + 4);
  num_bytes_ += pending_.size() - begin;
  return pending_.size();
}

void Recorder::Write(const RecordingEntry& entry) noexcept {
  try {
    if (Append(entry) <= kMostPendingBytes) return;
  } catch (...) {
    return Fail(out_of_memory_);
  }
  MutexLock lock(&file_mu_);
  TryWriteOut();
}

void Recorder::Fail(const absl::Status& why) noexcept {
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = why;
}

absl::Status Recorder::WriteOut() {
  {
    MutexLock lock(&mu_);
    writing_.clear();
    writing_.swap(pending_);
  }
  if (!file_.valid() || writing_.empty()) return absl::OkStatus();
  if (WriteFully(*ops_, file_.get(), AsBytes(writing_)))
    return absl::OkStatus();
  const absl::Status status = FileError(errno, "record into", path_);
  file_ = ScopedDescriptor();
  return status;
}

void Recorder::TryWriteOut() {
  try {
    const absl::Status written = WriteOut();
    if (!written.ok()) Fail(written);
  } catch (...) {
    Fail(out_of_memory_);
  }
}

absl::Status Recorder::Flush() noexcept {
  {
    MutexLock lock(&file_mu_);
    TryWriteOut();
  }
  MutexLock lock(&mu_);
  if (status_.ok() || std::exchange(told_, true)) return absl::OkStatus();
  return status_;
}

absl::Status Recorder::Finish() {
  Write(EndEntry{});
  static_cast<void>(Flush());
  {
    MutexLock lock(&file_mu_);
    // Network file systems report late write errors here.
    if (file_.valid() && ops_->Close(file_.Release()) != 0 && errno != EINTR)
      Fail(FileError(errno, "record into", path_));
  }
  MutexLock lock(&mu_);
  return status_;
}

uint64_t Recorder::num_bytes() const {
  MutexLock lock(&mu_);
  return num_bytes_;
}

absl::StatusOr<RecordingReader> RecordingReader::Open(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  RecordingReader reader(std::move(file));
  std::array<std::byte, kHeadBytes> head;
  const bool whole = reader.file_.size() >= head.size();
  if (whole)
    INLAY_RETURN_IF_ERROR(reader.file_.ReadAt(0, absl::MakeSpan(head)));
  const std::string_view magic(reinterpret_cast<const char*>(head.data()), 8);
  if (!whole || magic != kRecordingMagic) {
    return absl::InvalidArgumentError(
        FormattedString("%s is no recording of this library", path));
  }
  const auto version = LoadLittleEndian<uint32_t>(head.data() + 8);
  if (version != kRecordingVersion) {
    return absl::UnimplementedError(FormattedString(
        "%s is a recording of version %d, this library reads version %d", path,
        version, kRecordingVersion));
  }
  reader.offset_ = head.size();
  return reader;
}

absl::StatusOr<std::optional<RecordingEntry>> RecordingReader::Next() {
  const uint64_t left = file_.size() - offset_;
  if (!damage_.empty()) return std::nullopt;
  const auto cut = [&] {
    damage_ = FormattedString(
        "the recording is cut or damaged at byte %d of %d, after %d entries",
        offset_, file_.size(), num_entries_);
    return std::nullopt;
  };
  std::array<std::byte, kFrameBytes> frame;
  if (left < frame.size()) return cut();
  INLAY_RETURN_IF_ERROR(file_.ReadAt(offset_, absl::MakeSpan(frame)));
  const uint64_t bytes = LoadLittleEndian<uint32_t>(frame.data());
  if (bytes > kMostEntryBytes || bytes > left - frame.size()) return cut();
  payload_.resize(bytes);
  INLAY_RETURN_IF_ERROR(file_.ReadAt(
      offset_ + frame.size(),
      absl::MakeSpan(reinterpret_cast<std::byte*>(payload_.data()), bytes)));
  const uint32_t checksum = EntryChecksum(frame.data(), payload_, checksum_);
  if (checksum != LoadLittleEndian<uint32_t>(frame.data() + 4)) return cut();
  absl::StatusOr<RecordingEntry> entry = DecodeEntry(payload_);
  if (!entry.ok()) {
    return absl::Status(
        entry.status().code(),
        FormattedString("entry %d of the recording, at byte %d: %s",
                        num_entries_, offset_, entry.status().message()));
  }
  checksum_ = checksum;
  offset_ += frame.size() + bytes;
  ++num_entries_;
  return std::optional<RecordingEntry>(*std::move(entry));
}

}  // namespace inlay
