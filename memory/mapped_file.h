// Read-only access to regular files: mapped, or read into memory the caller
// owns. Owns descriptors and mappings; knows nothing of what the files hold.
#ifndef INLAY_MEMORY_MAPPED_FILE_H_
#define INLAY_MEMORY_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace inlay {

// Errors of all of this name the path and the system's reason: NOT_FOUND for
// a missing file, PERMISSION_DENIED, INVALID_ARGUMENT for what is no regular
// file (a folder, a pipe, a device) and for a path with a NUL inside.

// An open regular file. Movable; ReadAt may run from any number of threads.
class FileReader {
 public:
  static absl::StatusOr<FileReader> Open(const std::string& path);
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  // As it was when the file was opened.
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Fills all of `destination` from byte `offset` on. OUT_OF_RANGE beyond
  // size(), DATA_LOSS when the file has become shorter since.
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> destination) const;

 private:
  friend class MappedFile;
  FileReader(std::string path, int descriptor, uint64_t size);

  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// A whole regular file in the address space, read-only. Truncating the file
// while it is mapped makes touching the lost pages fatal (SIGBUS): hosts that
// cannot exclude this read instead. Movable (the bytes stay where they are);
// reading is safe from any number of threads.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Aligned to a page; empty for an empty file.
  absl::Span<const std::byte> bytes() const { return {data_, size_}; }
  // Pages of bytes [begin, end), or up to the file's, that have been read leave
  // the process's memory, and come back when they are read again, also by
  // others meanwhile. A hint: nothing happens where the system refuses.
  void LeavePages(uint64_t begin, uint64_t end) const;

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The bytes of a file of at most `max_bytes` (else RESOURCE_EXHAUSTED, before
// anything is allocated).
absl::StatusOr<std::string> ReadWholeFile(const std::string& path,
                                          uint64_t max_bytes);

// True when `path` names a regular file, through links too.
bool IsRegularFile(const std::string& path);
// True when `path` names a folder, through links too.
bool IsDirectory(const std::string& path);

}  // namespace inlay

#endif  // INLAY_MEMORY_MAPPED_FILE_H_
