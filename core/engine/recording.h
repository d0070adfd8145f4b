// A recording as a file: the recorder, to which a model runner gives its
// entries while it serves, and the reader. Knows the frames of
// recording_format.h, not what entries mean.
#ifndef INLAY_CORE_ENGINE_RECORDING_H_
#define INLAY_CORE_ENGINE_RECORDING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "core/engine/recording_format.h"
#include "memory/file_ops.h"
#include "memory/mapped_file.h"
#include "memory/mutex.h"

namespace inlay {

// Takes entries into memory; Flush() is where the file is written. Nothing that
// goes wrong reaches whoever serves: the recording ends there, and Finish()
// says why. The file is then readable up to that point, as it is when the
// process dies: what was flushed before stays. (Not through a power failure:
// nothing is synced.)
//
// Thread-safe; a lock below all others.
class Recorder {
 public:
  // Replaces what is at `path`; readable by its owner only (it holds prompts).
  // Errors of the file name the path. `ops` must outlive it.
  static absl::StatusOr<std::shared_ptr<Recorder>> Create(
      const std::string& path, const FileOps& ops = SystemFileOps());

  void Write(const RecordingEntry& entry) noexcept;
  // What `make` returns; it may throw.
  template <typename Make>
  void WriteMade(const Make& make) noexcept {
    try {
      Write(RecordingEntry(make()));
    } catch (...) {
      Fail(out_of_memory_);
    }
  }
  // Ends the recording: what follows cannot be replayed.
  void Fail(const absl::Status& why) noexcept;
  // Why the recording ended, once, to the first who asks; else OK.
  absl::Status Flush() noexcept;
  // The last call: a whole recording, or why it is none.
  absl::Status Finish();

  uint64_t num_bytes() const;  // taken so far

 private:
  // Entries wait for the next step's flush, but not above this.
  static constexpr size_t kMostPendingBytes = size_t{4} << 20;

  Recorder(std::string path, const FileOps& ops, ScopedDescriptor file);
  size_t Append(const RecordingEntry& entry);
  void TryWriteOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mu_);
  absl::Status WriteOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mu_);

  const std::string path_;
  const FileOps* const ops_;
  const absl::Status out_of_memory_;  // made while there is some

  Mutex file_mu_;  // before mu_
  ScopedDescriptor file_ ABSL_GUARDED_BY(file_mu_);
  std::string writing_ ABSL_GUARDED_BY(file_mu_);

  mutable Mutex mu_;
  std::string pending_ ABSL_GUARDED_BY(mu_);
  uint32_t checksum_ ABSL_GUARDED_BY(mu_) = 0;  // of the last entry
  uint64_t num_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;
};

// Reads entry by entry and holds no more than one.
class RecordingReader {
 public:
  // INVALID_ARGUMENT: no recording; UNIMPLEMENTED: of a version that this
  // library does not know; PERMISSION_DENIED (IO_ERROR): it ends in its head.
  static absl::StatusOr<RecordingReader> Open(const std::string& path);

  // Nothing more where the recording is damaged or cut (damage() says so) or
  // its last entry was taken. Errors: those of DecodeEntry() with the entry's
  // place, for a whole entry that makes no sense; of reading.
  absl::StatusOr<std::optional<RecordingEntry>> Next();

  // A sentence for people, with the byte; empty: none so far.
  const std::string& damage() const { return damage_; }
  uint64_t num_entries() const { return num_entries_; }  // taken

 private:
  explicit RecordingReader(FileReader file) : file_(std::move(file)) {}

  FileReader file_;
  uint64_t offset_ = 0;
  uint64_t num_entries_ = 0;
  uint32_t checksum_ = 0;
  std::string payload_;
  std::string damage_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_RECORDING_H_
