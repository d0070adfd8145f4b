#include "memory/kv/tier_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "memory/kv/tier_disk_index.h"
#include "memory/mapped_file.h"
#include "tests/support/file_fault.h"

namespace inlay {
namespace {

using ::inlay::testing::FaultyFileOps;
using ::inlay::testing::ScratchFolder;
using ::testing::HasSubstr;
using ReadResult = KvRecordFiles::ReadResult;

constexpr KvRecordFiles::Form kForm = {{7, 8}, 4, 40};
constexpr KvBlockKey kKey = {0x0123456789abcdefu, 0xfedcba9876543210u};
constexpr char kName[] =
    "00000000000000070000000000000008-0123456789abcdeffedcba9876543210.kv";

class TierFilesTest : public ::testing::Test {
 protected:
  std::unique_ptr<KvRecordFiles> Open(const KvRecordFiles::Form& form = kForm,
                                      const FileOps& ops = SystemFileOps()) {
    auto files = KvRecordFiles::Open(folder_.File("kv"), form, ops);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : nullptr;
  }
  absl::Status Write(const KvRecordFiles& files) {
    return files.Write(kKey, tokens_, bytes_);
  }
  // kOk only with the right content.
  ReadResult Read(const KvRecordFiles& files) {
    std::vector<int32_t> tokens(4);
    std::vector<std::byte> bytes(40);
    const ReadResult result =
        files.Read(kKey, absl::MakeSpan(tokens), absl::MakeSpan(bytes));
    if (result == ReadResult::kOk) {
      EXPECT_EQ(tokens, tokens_);
      EXPECT_EQ(bytes, bytes_);
    }
    return result;
  }
  std::string Path() const { return folder_.File("kv/") + kName; }
  void Store(const std::string& content) const {
    std::ofstream(Path(), std::ios::binary) << content;
  }

  ScratchFolder folder_;
  const std::vector<int32_t> tokens_ = {1, -2, 300000, 0};
  const std::vector<std::byte> bytes_ =
      std::vector<std::byte>(40, std::byte{0x5c});
};

TEST_F(TierFilesTest, RoundTrip) {
  const auto files = Open();
  EXPECT_EQ(Read(*files), ReadResult::kGone);
  ASSERT_TRUE(Write(*files).ok());
  EXPECT_EQ(Read(*files), ReadResult::kOk);
  EXPECT_EQ(std::filesystem::file_size(Path()), 64u + 16 + 40);
  EXPECT_EQ(files->record_cost(), 4096u);
  struct stat info;
  ASSERT_EQ(stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(files->Remove({kForm.owner, kKey}));
  EXPECT_TRUE(files->Remove({kForm.owner, kKey}));
  EXPECT_EQ(Read(*files), ReadResult::kGone);
}

TEST_F(TierFilesTest, EveryDamagedByteIsSeen) {
  const auto files = Open();
  ASSERT_TRUE(Write(*files).ok());
  const std::string good = *ReadWholeFile(Path(), 1000);
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff, 0}) {
      std::fstream file(Path(),
                        std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(at))
          .put(static_cast<char>(good[at] ^ flip))
          .flush();
      ASSERT_EQ(Read(*files),
                flip == 0 ? ReadResult::kOk : ReadResult::kDamaged)
          << at;
    }
  }
  for (size_t size = good.size(); size-- > 0;) {
    std::filesystem::resize_file(Path(), size);
    ASSERT_EQ(Read(*files), ReadResult::kDamaged) << size;
  }
  Store(good + "x");
  EXPECT_EQ(Read(*files), ReadResult::kDamaged);
  Store(std::string(good.size(), '\0'));  // as a power failure leaves it
  EXPECT_EQ(Read(*files), ReadResult::kDamaged);
  Store(good);
  EXPECT_EQ(Read(*files), ReadResult::kOk);
}

TEST_F(TierFilesTest, RecordsOfOtherKeysOwnersAndForms) {
  {
    const auto files = Open();
    ASSERT_TRUE(Write(*files).ok());
    // Renamed: of another key.
    const KvBlockKey other = {1, 2};
    std::filesystem::copy_file(
        Path(), folder_.File("kv/00000000000000070000000000000008-"
                             "00000000000000010000000000000002.kv"));
    std::vector<int32_t> tokens(4);
    std::vector<std::byte> bytes(40);
    EXPECT_EQ(files->Read(other, absl::MakeSpan(tokens), absl::MakeSpan(bytes)),
              ReadResult::kDamaged);
  }
  KvRecordFiles::Form form = kForm;
  form.owner.low = 9;
  EXPECT_EQ(Read(*Open(form)), ReadResult::kGone);
  std::filesystem::copy_file(
      Path(), folder_.File("kv/00000000000000070000000000000009-"
                           "0123456789abcdeffedcba9876543210.kv"));
  EXPECT_EQ(Read(*Open(form)), ReadResult::kDamaged);
}

TEST_F(TierFilesTest, WhatIsNoFile) {
  const auto files = Open();
  std::filesystem::create_symlink("/etc/passwd", Path());
  EXPECT_EQ(Read(*files), ReadResult::kFailed);
  EXPECT_FALSE(Write(*files).ok());  // follows no link
  std::filesystem::remove(Path());
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  EXPECT_EQ(Read(*files), ReadResult::kDamaged);  // and does not wait
  std::filesystem::remove(Path());
  std::filesystem::create_directory(Path());
  EXPECT_EQ(Read(*files), ReadResult::kDamaged);
  EXPECT_FALSE(Write(*files).ok());
}

TEST_F(TierFilesTest, EveryCallMayFail) {
  FaultyFileOps ops;
  const auto files = Open(kForm, ops);
  for (const int error : {EIO, ENOSPC, EACCES, EMFILE, EINTR}) {
    ops.error = error;
    for (int64_t call = 0; call < 10; ++call) {
      ops.num_calls = 0;
      ops.fail_at = call;
      const absl::Status status = Write(*files);
      ops.fail_at = -1;
      if (status.ok()) {
        EXPECT_EQ(Read(*files), ReadResult::kOk);
      } else {
        EXPECT_THAT(std::string(status.message()), HasSubstr("cannot"));
        EXPECT_NE(error, EINTR) << "call " << call << ": " << status;
      }
      EXPECT_TRUE(files->Remove({kForm.owner, kKey}));
    }
  }
  ASSERT_TRUE(Write(*files).ok());
  ops.max_write = 7;
  ASSERT_TRUE(Write(*files).ok());
  EXPECT_EQ(Read(*files), ReadResult::kOk);
  ops.read_error = EIO;
  EXPECT_EQ(Read(*files), ReadResult::kDamaged);
  ops.read_error = 0;
  // Short of descriptors: another time.
  ops.error = EMFILE;
  ops.num_calls = 0;
  ops.fail_at = 0;
  EXPECT_EQ(Read(*files), ReadResult::kFailed);
}

TEST_F(TierFilesTest, OneAtATime) {
  auto first = Open();
  const auto second =
      KvRecordFiles::Open(folder_.File("kv"), kForm, SystemFileOps());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another process or another model"));
  first = nullptr;
  EXPECT_NE(Open(), nullptr);
}

// A child that the host forked meanwhile has the lock's descriptor too.
TEST_F(TierFilesTest, ChildrenDoNotKeepTheFolder) {
  auto files = Open();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    while (true) pause();
  }
  files = nullptr;
  EXPECT_NE(Open(), nullptr);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(TierFilesTest, FoldersThatCannotBe) {
  const auto open = [&](const std::string& folder) {
    return KvRecordFiles::Open(folder, kForm, SystemFileOps()).status().code();
  };
  EXPECT_EQ(open(folder_.File("a/b")), absl::StatusCode::kNotFound);
  EXPECT_EQ(open(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(folder_.path() + std::string("\0x", 2)),
            absl::StatusCode::kInvalidArgument);
  std::ofstream(folder_.File("file")) << "x";
  EXPECT_NE(open(folder_.File("file")), absl::StatusCode::kOk);
}

TEST_F(TierFilesTest, ScanFindsRecordsInTheOrderTheyWereWritten) {
  const auto files = Open();
  const std::string other = folder_.File("kv/") + std::string(32, 'a') + "-" +
                            std::string(32, '1') + ".kv";
  for (const uint64_t low : {5, 3, 4}) {
    ASSERT_TRUE(files->Write({0, low}, tokens_, bytes_).ok());
  }
  std::ofstream(other) << std::string(5000, 'x');
  std::ofstream(folder_.File("kv/readme")) << "mine";
  std::ofstream(folder_.File("kv/") + std::string(32, 'A') + "-" +
                std::string(32, '1') + ".kv")
      << "no name of ours";
  Store("cut");
  // Whatever the clock's resolution.
  const auto now = std::filesystem::file_time_type::clock::now();
  int age = 10;
  for (const char* digit : {"5", "3", "4"}) {
    std::filesystem::last_write_time(
        folder_.File("kv/00000000000000070000000000000008-"
                     "0000000000000000000000000000000") +
            digit + ".kv",
        now - std::chrono::seconds(age--));
  }
  const auto found = files->Scan();
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 4u);
  EXPECT_EQ((*found)[0].id.key.low, 5u);
  EXPECT_EQ((*found)[1].id.key.low, 3u);
  EXPECT_EQ((*found)[2].id.key.low, 4u);
  EXPECT_EQ((*found)[3].id.owner.high, 0xaaaaaaaaaaaaaaaau);
  EXPECT_EQ((*found)[0].cost, 4096u);
  EXPECT_EQ((*found)[3].cost, 8192u);
  EXPECT_FALSE(IsRegularFile(Path()));  // the cut one
  EXPECT_TRUE(IsRegularFile(folder_.File("kv/readme")));
}

TEST(KvDiskIndexTest, OrderAndReuse) {
  KvDiskIndex index;
  const auto id = [](uint64_t n) { return KvRecordId{{1, 1}, {0, n}}; };
  EXPECT_FALSE(index.Oldest().has_value());
  for (int round = 0; round < 3; ++round) {
    for (uint64_t n = 0; n < 5; ++n) index.Add(id(n), 10 + n);
    index.Touch(id(0));
    index.Touch(id(9));  // not here
    EXPECT_EQ(index.Remove(id(2)), 12u);
    EXPECT_EQ(index.Remove(id(2)), std::nullopt);
    EXPECT_EQ(index.size(), 4);
    for (const uint64_t n : {1, 3, 4, 0}) {
      ASSERT_TRUE(index.Oldest() == id(n)) << n;
      EXPECT_TRUE(index.Has(id(n)));
      EXPECT_EQ(index.Remove(id(n)), 10 + n);
    }
    EXPECT_EQ(index.size(), 0);
  }
}

}  // namespace
}  // namespace inlay
