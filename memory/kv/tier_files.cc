#include "memory/kv/tier_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "memory/checksum.h"
#include "memory/formatted_string.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kMagic = "InlayKvB";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kFixedBytes = 64;  // of a header without its tokens
constexpr uint64_t kPageBytes = 4096;
// A folder of more records than this is thinned out when it is read.
constexpr size_t kMaxRecords = size_t{1} << 20;

constexpr char kLockName[] = "lock";
constexpr size_t kNameBytes = 64 + 1 + 3;

std::string NameOf(const KvRecordId& id) {
  return FormattedString("%016x%016x-%016x%016x.kv", id.owner.high,
                         id.owner.low, id.key.high, id.key.low);
}

std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
}

std::optional<KvRecordId> ParseName(std::string_view name) {
  if (name.size() != kNameBytes || name[32] != '-' || !name.ends_with(".kv")) {
    return std::nullopt;
  }
  const auto owner_high = ParseHex(name.substr(0, 16));
  const auto owner_low = ParseHex(name.substr(16, 16));
  const auto key_high = ParseHex(name.substr(33, 16));
  const auto key_low = ParseHex(name.substr(49, 16));
  if (!owner_high || !owner_low || !key_high || !key_low) return std::nullopt;
  return KvRecordId{{*owner_high, *owner_low}, {*key_high, *key_low}};
}

// Calls visit(name, stat) for each regular file in `folder`.
template <typename Visit>
absl::Status ForEachFile(const FileOps& ops, int folder, Visit visit) {
  // Of its own: readdir() moves the position of the open folder.
  const int descriptor = Uninterrupted([&] {
    return ops.OpenAt(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  });
  if (descriptor < 0) return FileError(errno, "list", "the folder of KV");
  DIR* const listing = fdopendir(descriptor);
  if (listing == nullptr) {
    ops.Close(descriptor);
    return FileError(errno, "list", "the folder of KV");
  }
  while (const dirent* entry = readdir(listing)) {
    struct stat info;
    if (fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode)) {
      visit(entry->d_name, info);
    }
  }
  closedir(listing);
  return absl::OkStatus();
}

}  // namespace

KvRecordFiles::KvRecordFiles(const Form& form, const FileOps& ops,
                             ScopedDescriptor folder, ScopedDescriptor lock)
    : form_(form),
      ops_(ops),
      record_bytes_(HeaderBytes() + form.block_bytes),
      folder_(std::move(folder)),
      lock_(std::move(lock)) {}

// Not by closing alone: a child that the host has forked has the descriptor
// too.
KvRecordFiles::~KvRecordFiles() { flock(lock_.get(), LOCK_UN); }

uint64_t KvRecordFiles::HeaderBytes() const {
  return kFixedBytes + 4 * static_cast<uint64_t>(form_.block_size);
}

uint64_t KvRecordFiles::Cost(uint64_t file_bytes) {
  return (file_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

absl::StatusOr<std::unique_ptr<KvRecordFiles>> KvRecordFiles::Open(
    const std::string& folder, const Form& form, const FileOps& ops) {
  if (folder.empty() || folder.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("the folder for KV has no usable name");
  }
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return FileError(errno, "create", folder);
  }
  ScopedDescriptor descriptor(&ops, Uninterrupted([&] {
    return ops.OpenAt(AT_FDCWD, folder.c_str(),
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  }));
  if (!descriptor.valid()) return FileError(errno, "open", folder);
  ScopedDescriptor lock(&ops, Uninterrupted([&] {
    return ops.OpenAt(descriptor.get(), kLockName,
                      O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  }));
  if (!lock.valid()) return FileError(errno, "create a lock in", folder);
  if (Uninterrupted([&] { return flock(lock.get(), LOCK_EX | LOCK_NB); }) !=
      0) {
    if (errno != EWOULDBLOCK) return FileError(errno, "lock", folder);
    return absl::FailedPreconditionError(FormattedString(
        "another process or another model keeps KV in %s: give each a folder "
        "of its own",
        folder));
  }
  return std::unique_ptr<KvRecordFiles>(
      new KvRecordFiles(form, ops, std::move(descriptor), std::move(lock)));
}

absl::StatusOr<std::vector<KvRecordFiles::Found>> KvRecordFiles::Scan() const {
  struct Dated {
    timespec written;
    Found found;
  };
  std::vector<Dated> records;
  INLAY_RETURN_IF_ERROR(ForEachFile(
      ops_, folder_.get(), [&](const char* name, const struct stat& info) {
        const std::optional<KvRecordId> id = ParseName(name);
        if (!id.has_value()) return;
        const auto bytes = static_cast<uint64_t>(info.st_size);
        const bool is_cut = id->owner == form_.owner && bytes != record_bytes_;
        if ((is_cut || records.size() >= kMaxRecords) && Remove(*id)) return;
        records.push_back({info.st_mtim, {*id, Cost(bytes)}});
      }));
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return a.written.tv_sec != b.written.tv_sec
               ? a.written.tv_sec < b.written.tv_sec
               : a.written.tv_nsec < b.written.tv_nsec;
  });
  std::vector<Found> found;
  found.reserve(records.size());
  for (const Dated& record : records) found.push_back(record.found);
  return found;
}

std::vector<std::byte> KvRecordFiles::MakeHeader(
    const KvBlockKey& key, absl::Span<const int32_t> tokens,
    absl::Span<const std::byte> bytes) const {
  std::vector<std::byte> header(HeaderBytes());
  std::byte* out = header.data();
  std::memcpy(out, kMagic.data(), kMagic.size());
  StoreLittleEndian(kVersion, out + 8);
  StoreLittleEndian(form_.block_size, out + 12);
  StoreLittleEndian(form_.owner.high, out + 16);
  StoreLittleEndian(form_.owner.low, out + 24);
  StoreLittleEndian(key.high, out + 32);
  StoreLittleEndian(key.low, out + 40);
  StoreLittleEndian(form_.block_bytes, out + 48);
  StoreLittleEndian(Crc32c(bytes), out + 56);
  for (size_t i = 0; i < tokens.size(); ++i) {
    StoreLittleEndian(tokens[i], out + 60 + 4 * i);
  }
  const uint64_t checked = header.size() - 4;
  StoreLittleEndian(Crc32c(absl::MakeConstSpan(header).subspan(0, checked)),
                    out + checked);
  return header;
}

absl::Status KvRecordFiles::Write(const KvBlockKey& key,
                                  absl::Span<const int32_t> tokens,
                                  absl::Span<const std::byte> bytes) const {
  const std::vector<std::byte> header = MakeHeader(key, tokens, bytes);
  const std::string name = NameOf({form_.owner, key});
  // O_NONBLOCK: as in Read().
  ScopedDescriptor file(&ops_, Uninterrupted([&] {
    return ops_.OpenAt(
        folder_.get(), name.c_str(),
        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
        0600);
  }));
  if (!file.valid()) return FileError(errno, "create", name);
  if (!WriteFully(ops_, file.get(), header) ||
      !WriteFully(ops_, file.get(), bytes)) {
    return FileError(errno, "write", name);
  }
  if (ops_.Close(file.Release()) != 0 && errno != EINTR) {
    return FileError(errno, "close", name);
  }
  return absl::OkStatus();
}

KvRecordFiles::ReadResult KvRecordFiles::Read(
    const KvBlockKey& key, absl::Span<int32_t> tokens,
    absl::Span<std::byte> bytes) const {
  const std::string name = NameOf({form_.owner, key});
  // O_NONBLOCK: a pipe of that name must not make us wait.
  const ScopedDescriptor file(&ops_, Uninterrupted([&] {
    return ops_.OpenAt(folder_.get(), name.c_str(),
                       O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  }));
  if (!file.valid()) {
    return errno == ENOENT ? ReadResult::kGone : ReadResult::kFailed;
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<uint64_t>(info.st_size) != record_bytes_) {
    return ReadResult::kDamaged;
  }
  std::vector<std::byte> header(HeaderBytes());
  if (!ReadFully(ops_, file.get(), 0, absl::MakeSpan(header)) ||
      !ReadFully(ops_, file.get(), header.size(), bytes)) {
    // 0: it has become shorter.
    return errno == 0 || errno == EIO ? ReadResult::kDamaged
                                      : ReadResult::kFailed;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = LoadLittleEndian<int32_t>(header.data() + 60 + 4 * i);
  }
  // Everything in a header follows from what it must be of.
  return header == MakeHeader(key, tokens, bytes) ? ReadResult::kOk
                                                  : ReadResult::kDamaged;
}

bool KvRecordFiles::Remove(const KvRecordId& id) const {
  return ops_.UnlinkAt(folder_.get(), NameOf(id).c_str()) == 0 ||
         errno == ENOENT;
}

}  // namespace inlay
