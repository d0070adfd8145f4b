#include "memory/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "memory/file_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

int OpenDescriptor(const std::string& path) {
  // O_NONBLOCK: opening a pipe must fail our check below, not wait for a
  // writer. It changes nothing for regular files.
  return Uninterrupted(
      [&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
}

bool HasMode(const std::string& path, mode_t kind) {
  struct stat info;
  return path.find('\0') == std::string::npos &&
         stat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

}  // namespace

FileReader::FileReader(std::string path, int descriptor, uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

FileReader::~FileReader() {
  // Not repeated after EINTR: the descriptor is gone by then and its number
  // may already belong to another thread.
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<FileReader> FileReader::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(FormattedString(
        "cannot open %s: the path contains a NUL byte", path.c_str()));
  }
  const int descriptor = OpenDescriptor(path);
  if (descriptor < 0) return FileError(errno, "open", path);
  FileReader file(path, descriptor, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return FileError(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(FormattedString(
        "cannot read %s: it is %s, allowed: a regular file", path,
        S_ISDIR(info.st_mode) ? "a folder" : "a pipe, socket or device"));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

absl::Status FileReader::ReadAt(uint64_t offset,
                                absl::Span<std::byte> destination) const {
  if (offset > size_ || destination.size() > size_ - offset) {
    return absl::OutOfRangeError(FormattedString(
        "cannot read %d bytes at byte %d of %s: it has %d bytes",
        destination.size(), offset, path_, size_));
  }
  while (!destination.empty()) {
    const size_t wanted = std::min(destination.size(), kMaxTransferBytes);
    const ssize_t got = pread(descriptor_, destination.data(), wanted,
                              static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, "read", path_);
    }
    if (got == 0) {
      return IoError(FormattedString(
          "cannot read %s: it ends at byte %d but had %d bytes when opened",
          path_, offset, size_));
    }
    offset += static_cast<uint64_t>(got);
    destination.remove_prefix(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // The mapping outlives the descriptor.
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() > SIZE_MAX) return FileError(EFBIG, "map", path);
  const auto size = static_cast<size_t>(file.size());
  // mmap refuses a length of 0.
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (data == MAP_FAILED) return FileError(errno, "map", path);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

// Nobody writes to a mapping, so nothing can be lost.
void MappedFile::LeavePages(uint64_t begin, uint64_t end) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = std::min<uint64_t>(begin, size_) / page * page;
  const size_t last = std::min<uint64_t>(end, size_);
  if (first >= last) return;
  madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          uint64_t max_bytes) {
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() > max_bytes) {
    return absl::ResourceExhaustedError(FormattedString(
        "%s has %d bytes, at most %d allowed", path, file.size(), max_bytes));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  INLAY_RETURN_IF_ERROR(file.ReadAt(
      0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size())));
  return text;
}

bool IsRegularFile(const std::string& path) { return HasMode(path, S_IFREG); }
bool IsDirectory(const std::string& path) { return HasMode(path, S_IFDIR); }

}  // namespace inlay
