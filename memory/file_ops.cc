#include "memory/file_ops.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// While one lives, what this thread writes beyond the process's largest file
// size is an error (EFBIG) alone: the signal that comes with it, which would
// end the process, is held back and taken (setrlimit(2), RLIMIT_FSIZE).
class FileSizeSignal {
 public:
  FileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    const bool was_pending =
        sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    held_ = !was_pending && pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0;
  }
  ~FileSizeSignal() {
    if (!held_) return;
    const int error = errno;
    sigset_t pending;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1) {
#if defined(__APPLE__)
      int taken;
      sigwait(&signal_, &taken);
#else
      constexpr timespec kNow = {};
      sigtimedwait(&signal_, nullptr, &kNow);
#endif
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool held_;
};

// There before any call: one that is made in a function by its first caller
// keeps a child, forked meanwhile, waiting for ever.
constinit const FileOps kSystemFileOps;

}  // namespace

int FileOps::OpenAt(int folder, const char* name, int flags,
                    mode_t mode) const {
  return openat(folder, name, flags, mode);
}
int FileOps::MakeTemporary(char* name_template) const {
  return mkostemp(name_template, O_CLOEXEC);
}
ssize_t FileOps::Write(int descriptor, const void* data, size_t bytes) const {
  return write(descriptor, data, bytes);
}
ssize_t FileOps::ReadAt(int descriptor, void* data, size_t bytes,
                        uint64_t offset) const {
  return pread(descriptor, data, bytes, static_cast<off_t>(offset));
}
int FileOps::Fsync(int descriptor) const { return fsync(descriptor); }
int FileOps::Close(int descriptor) const { return close(descriptor); }
int FileOps::Rename(const char* from, const char* to) const {
  return rename(from, to);
}
int FileOps::UnlinkAt(int folder, const char* name) const {
  return unlinkat(folder, name, 0);
}

const FileOps& SystemFileOps() { return kSystemFileOps; }

ScopedDescriptor::ScopedDescriptor(ScopedDescriptor&& other) noexcept
    : ops_(other.ops_), descriptor_(other.Release()) {}

ScopedDescriptor& ScopedDescriptor::operator=(
    ScopedDescriptor&& other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

ScopedDescriptor::~ScopedDescriptor() {
  // Not repeated after EINTR: the descriptor is gone by then and its number
  // may already belong to another thread.
  if (descriptor_ >= 0) ops_->Close(descriptor_);
}

int ScopedDescriptor::Release() { return std::exchange(descriptor_, -1); }

absl::Status FileError(int error, const char* verb, const std::string& path) {
  // For its words alone: its codes mean other things here.
  const std::string message(
      absl::ErrnoToStatus(error, FormattedString("cannot %s %s", verb, path))
          .message());
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case ENXIO:  // a pipe that nobody reads, a socket, a device of no driver
      return absl::InvalidArgumentError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case ENOMEM:
      return OutOfMemoryError(message);
    default:
      return IoError(message);
  }
}

bool WriteFully(const FileOps& ops, int descriptor,
                absl::Span<const std::byte> bytes) {
  const FileSizeSignal signal;
  while (!bytes.empty()) {
    const ssize_t put = ops.Write(descriptor, bytes.data(),
                                  std::min(bytes.size(), kMaxTransferBytes));
    if (put < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (put == 0) {  // would go on for ever
      errno = EIO;
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

bool ReadFully(const FileOps& ops, int descriptor, uint64_t offset,
               absl::Span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got =
        ops.ReadAt(descriptor, bytes.data(),
                   std::min(bytes.size(), kMaxTransferBytes), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (got == 0) {
      errno = 0;
      return false;
    }
    offset += static_cast<uint64_t>(got);
    bytes.remove_prefix(static_cast<size_t>(got));
  }
  return true;
}

}  // namespace inlay
