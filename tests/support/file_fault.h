// FaultyFileOps: system calls that fail when a test says so.
#ifndef INLAY_TESTS_SUPPORT_FILE_FAULT_H_
#define INLAY_TESTS_SUPPORT_FILE_FAULT_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "memory/file_ops.h"

namespace inlay::testing {

// An empty folder, removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder() : path_(::testing::TempDir() + "inlay_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) abort();
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // The names in it, sorted.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  uint64_t TotalBytes() const {
    uint64_t total = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::error_code gone;  // between the listing and the look
      const uintmax_t bytes = entry.file_size(gone);
      if (!gone) total += bytes;
    }
    return total;
  }

 private:
  std::string path_;
};

// The calls that change something (write, fsync, close, rename, open for
// writing, unlink, ...) are counted; call number `fail_at` gives `error`, and
// every one after it too where `keeps_failing`. May be set while calls run.
class FaultyFileOps : public FileOps {
 public:
  std::atomic<int64_t> fail_at{-1};  // < 0: none
  std::atomic<bool> keeps_failing{false};
  std::atomic<int> error{EIO};
  std::atomic<size_t> max_write{SIZE_MAX};  // more is written in part
  // Bytes that fit before writes give ENOSPC.
  std::atomic<int64_t> space{INT64_MAX};
  std::atomic<int> read_error{0};  // of every read
  mutable std::atomic<int64_t> num_calls{0};
  mutable std::atomic<int64_t> num_writes{0};

  int OpenAt(int folder, const char* name, int flags,
             mode_t mode) const override {
    return Fails() ? -1 : FileOps::OpenAt(folder, name, flags, mode);
  }
  int MakeTemporary(char* name_template) const override {
    if (!Fails()) return FileOps::MakeTemporary(name_template);
    name_template[std::string_view(name_template).size() - 1] = '0';
    return -1;
  }
  ssize_t Write(int descriptor, const void* data, size_t bytes) const override {
    if (Fails()) return -1;
    ++num_writes;
    bytes = std::min(bytes, max_write.load());
    const int64_t room = space.load();
    if (room != INT64_MAX) {
      if (room <= 0) {
        errno = ENOSPC;
        return -1;
      }
      bytes = std::min(bytes, static_cast<size_t>(room));
      const_cast<FaultyFileOps*>(this)->space -= static_cast<int64_t>(bytes);
    }
    return FileOps::Write(descriptor, data, bytes);
  }
  ssize_t ReadAt(int descriptor, void* data, size_t bytes,
                 uint64_t offset) const override {
    if (const int failure = read_error.load(); failure != 0) {
      errno = failure;
      return -1;
    }
    return FileOps::ReadAt(descriptor, data, bytes, offset);
  }
  int Fsync(int descriptor) const override {
    return Fails() ? -1 : FileOps::Fsync(descriptor);
  }
  int Close(int descriptor) const override {
    // The descriptor is gone either way, as the system has it.
    const bool fails = Fails();
    const int kept = errno;
    const int result = FileOps::Close(descriptor);
    if (!fails) return result;
    errno = kept;
    return -1;
  }
  int Rename(const char* from, const char* to) const override {
    return Fails() ? -1 : FileOps::Rename(from, to);
  }
  int UnlinkAt(int folder, const char* name) const override {
    return Fails() ? -1 : FileOps::UnlinkAt(folder, name);
  }

 private:
  bool Fails() const {
    const int64_t call = num_calls++;
    const int64_t at = fail_at.load();
    if (at < 0 || call < at || (call > at && !keeps_failing)) return false;
    errno = error.load();
    return true;
  }
};

// Reads that wait while they are held.
class SlowReads : public FaultyFileOps {
 public:
  void Hold() { held_ = true; }
  void LetGo() {
    held_ = false;
    held_.notify_all();
  }
  // Until one waits.
  void WaitUntilHeld() const { waiting_.wait(false); }

  ssize_t ReadAt(int descriptor, void* data, size_t bytes,
                 uint64_t offset) const override {
    if (held_) waiting_ = true;
    waiting_.notify_all();
    held_.wait(true);
    return FaultyFileOps::ReadAt(descriptor, data, bytes, offset);
  }

 private:
  std::atomic<bool> held_{false};
  mutable std::atomic<bool> waiting_{false};
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_FILE_FAULT_H_
