// DurableFile: replaces a file as a whole or not at all, across crashes and
// power failures: a temporary file beside it, fsync, rename, fsync of the
// folder. Knows nothing of what the bytes mean.
#ifndef INLAY_MEMORY_DURABLE_FILE_H_
#define INLAY_MEMORY_DURABLE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/file_ops.h"

namespace inlay {

// Who may read a new file.
enum class FileReaders : uint8_t {
  kOwner,  // mode 0600: what belongs to one user
  kUmask,  // mode 0666 less the process's umask, as files are made commonly
};

// One file being written. Until Commit() nothing is seen of it at `path`; if it
// is never committed, or anything fails, what was there stays, and the
// temporary file (path + ".tmp-" and six characters, which only a crash leaves
// behind) is removed. Movable; not thread-safe, but any number may be written
// at once, to the same path too: the last commit wins.
//
// Where `path` is a link, the link
// is replaced. Errors name the path and the system's reason: NOT_FOUND when
// there is no such folder, PERMISSION_DENIED, RESOURCE_EXHAUSTED when the
// device is full, INVALID_ARGUMENT for a path with a NUL inside and for one
// that names what is no regular file (a folder, a pipe, a device).
class DurableFile {
 public:
  // `ops` must outlive it.
  static absl::StatusOr<DurableFile> Create(
      const std::string& path, FileReaders readers,
      const FileOps& ops = SystemFileOps());
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&& other) = delete;
  ~DurableFile();

  // After an error every later call gives that error.
  absl::Status Append(absl::Span<const std::byte> bytes);
  // The last call. Should only the folder's fsync fail, the new file is
  // complete at `path`, but a power failure may bring the old one back; the
  // message says so.
  absl::Status Commit();

  uint64_t num_bytes() const { return num_bytes_; }  // appended

 private:
  DurableFile(std::string path, std::string temporary, const FileOps& ops,
              ScopedDescriptor folder);
  absl::Status Fail(absl::Status status);
  void Discard();

  std::string path_;
  std::string temporary_;  // empty: there is none (any more)
  const FileOps* ops_;
  ScopedDescriptor folder_;
  ScopedDescriptor file_;
  uint64_t num_bytes_ = 0;
  absl::Status status_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DURABLE_FILE_H_
