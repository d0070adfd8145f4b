// FileOps: the system calls that files are written with, so that tests can make
// each of them fail. Owns nothing; knows nothing of what files hold.
#ifndef INLAY_MEMORY_FILE_OPS_H_
#define INLAY_MEMORY_FILE_OPS_H_

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace inlay {

// Each is the system call of that name: -1 and errno for an error. Stateless,
// and safe from any number of threads.
class FileOps {
 public:
  virtual ~FileOps() = default;
  // `folder`: a descriptor of one, or AT_FDCWD.
  virtual int OpenAt(int folder, const char* name, int flags,
                     mode_t mode) const;
  // mkostemp() with O_CLOEXEC: changes `name_template`.
  virtual int MakeTemporary(char* name_template) const;
  virtual ssize_t Write(int descriptor, const void* data, size_t bytes) const;
  virtual ssize_t ReadAt(int descriptor, void* data, size_t bytes,
                         uint64_t offset) const;
  virtual int Fsync(int descriptor) const;
  virtual int Close(int descriptor) const;
  virtual int Rename(const char* from, const char* to) const;
  virtual int UnlinkAt(int folder, const char* name) const;
};

// Linux transfers at most 0x7ffff000 bytes a call, macOS refuses more than
// INT_MAX: ask for less than both.
inline constexpr size_t kMaxTransferBytes = size_t{1} << 30;

// The system's own.
const FileOps& SystemFileOps();

// What the system call gives, made again while a signal interrupts it: hosts
// may have handlers without SA_RESTART, and calls of slow file systems end
// then. Not for close() and rename(), which may have done their work.
template <typename Call>
auto Uninterrupted(const Call& call) {
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// A descriptor, closed at the end of its scope (errors of that are ignored).
class ScopedDescriptor {
 public:
  // `ops` must outlive it; -1: holds none.
  explicit ScopedDescriptor(const FileOps* ops = nullptr, int descriptor = -1)
      : ops_(ops), descriptor_(descriptor) {}
  ScopedDescriptor(ScopedDescriptor&& other) noexcept;
  ScopedDescriptor& operator=(ScopedDescriptor&& other) noexcept;
  ~ScopedDescriptor();

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  int Release();

 private:
  const FileOps* ops_;
  int descriptor_;
};

// What errno says of `path`: "cannot <verb> <path>: No space left on device".
// NOT_FOUND, INVALID_ARGUMENT where the path is wrong, RESOURCE_EXHAUSTED where
// the system has no room, OUT_OF_MEMORY; an IoError otherwise.
absl::Status FileError(int error, const char* verb, const std::string& path);

// All of `bytes`, however many calls it takes. False: errno says why.
bool WriteFully(const FileOps& ops, int descriptor,
                absl::Span<const std::byte> bytes);
// Fills `bytes` from `offset` on. False: errno says why, 0 where the file ends
// before.
bool ReadFully(const FileOps& ops, int descriptor, uint64_t offset,
               absl::Span<std::byte> bytes);

}  // namespace inlay

#endif  // INLAY_MEMORY_FILE_OPS_H_
