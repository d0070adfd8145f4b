#include "memory/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Some file systems (of networks, of user space) cannot sync a folder; there
// is nothing better to do on them.
bool CannotSync(int error) {
  return error == EINVAL || error == ENOTSUP || error == ENOSYS;
}

// Creates the file that `temporary`, which ends in XXXXXX, names; errno says
// why not. mkstemp knows one mode, and a process's umask cannot be asked for
// without changing it: the kernel applies it to a file that is opened.
int MakeTemporary(const FileOps& ops, FileReaders readers,
                  std::string& temporary) {
  if (readers == FileReaders::kOwner) {
    const std::string pattern = temporary;
    return Uninterrupted([&] {
      temporary = pattern;  // a call that failed may have changed it
      return ops.MakeTemporary(temporary.data());
    });
  }
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr int kTries = 100;
  auto bits = static_cast<uint64_t>(
                  std::chrono::steady_clock::now().time_since_epoch().count()) ^
              static_cast<uint64_t>(getpid()) << 40;
  for (int i = 0; i < kTries; ++i) {
    // splitmix64's step.
    bits += 0x9e3779b97f4a7c15u;
    uint64_t draw = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    draw ^= draw >> 27;
    for (size_t at = temporary.size() - 6; at < temporary.size(); ++at) {
      temporary[at] = kLetters[draw % kLetters.size()];
      draw /= kLetters.size();
    }
    const int file = Uninterrupted([&] {
      return ops.OpenAt(AT_FDCWD, temporary.c_str(),
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

}  // namespace

DurableFile::DurableFile(std::string path, std::string temporary,
                         const FileOps& ops, ScopedDescriptor folder)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      ops_(&ops),
      folder_(std::move(folder)) {}

absl::StatusOr<DurableFile> DurableFile::Create(const std::string& path,
                                                FileReaders readers,
                                                const FileOps& ops) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        FormattedString("cannot write a file whose path %s",
                        path.empty() ? "is empty" : "has a NUL inside"));
  }
  // A device would be gone for everybody (/dev/null).
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (path.back() == '/' || (exists && !S_ISREG(info.st_mode))) {
    return absl::InvalidArgumentError(FormattedString(
        "cannot write %s: it is %s, allowed: a regular file or none yet", path,
        path.back() == '/' || S_ISDIR(info.st_mode)
            ? "a folder"
            : "a pipe, socket or device"));
  }
  // Before anything is written: without the folder nothing can become durable.
  const std::string folder_path = FolderOf(path);
  ScopedDescriptor folder(&ops, Uninterrupted([&] {
    return ops.OpenAt(AT_FDCWD, folder_path.c_str(),
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  }));
  if (!folder.valid()) return FileError(errno, "open the folder", folder_path);
  // Made before the file is: should memory run out, that goes with it.
  DurableFile file(path, FormattedString("%s.tmp-XXXXXX", path), ops,
                   std::move(folder));
  file.file_ =
      ScopedDescriptor(&ops, MakeTemporary(ops, readers, file.temporary_));
  if (file.file_.valid()) return file;
  file.temporary_.clear();
  return FileError(errno, "create a file beside", path);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      ops_(other.ops_),
      folder_(std::move(other.folder_)),
      file_(std::move(other.file_)),
      num_bytes_(other.num_bytes_),
      status_(std::move(other.status_)) {}

DurableFile::~DurableFile() { Discard(); }

void DurableFile::Discard() {
  if (file_.valid()) ops_->Close(file_.Release());
  if (!temporary_.empty()) ops_->UnlinkAt(AT_FDCWD, temporary_.c_str());
  temporary_.clear();
}

absl::Status DurableFile::Fail(absl::Status status) {
  Discard();
  status_ = std::move(status);
  return status_;
}

absl::Status DurableFile::Append(absl::Span<const std::byte> bytes) {
  INLAY_RETURN_IF_ERROR(status_);
  INLAY_DCHECK(file_.valid());
  if (!WriteFully(*ops_, file_.get(), bytes)) {
    return Fail(FileError(errno, "write", path_));
  }
  num_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status DurableFile::Commit() {
  INLAY_RETURN_IF_ERROR(status_);
  INLAY_DCHECK(file_.valid());
  if (Uninterrupted([&] { return ops_->Fsync(file_.get()); }) != 0) {
    return Fail(FileError(errno, "make durable", path_));
  }
  // Network file systems report late write errors here. EINTR is none: the
  // bytes are synced and the descriptor is gone.
  if (ops_->Close(file_.Release()) != 0 && errno != EINTR) {
    return Fail(FileError(errno, "close", path_));
  }
  if (ops_->Rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Fail(FileError(errno, "replace", path_));
  }
  temporary_.clear();
  if (Uninterrupted([&] { return ops_->Fsync(folder_.get()); }) != 0 &&
      !CannotSync(errno)) {
    return Fail(FileError(
        errno, "make durable (the new file is in place and complete)", path_));
  }
  return absl::OkStatus();
}

}  // namespace inlay
