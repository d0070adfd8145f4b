#include "memory/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "memory/mapped_file.h"
#include "tests/support/file_fault.h"

namespace inlay {
namespace {

using ::inlay::testing::FaultyFileOps;
using ::inlay::testing::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string Content(const std::string& path) {
  const auto text = ReadWholeFile(path, 1 << 20);
  return text.ok() ? *text : std::string(text.status().message());
}

// In three pieces.
absl::Status WriteFile(const std::string& path, const std::string& text,
                       const FileOps& ops = SystemFileOps(),
                       FileReaders readers = FileReaders::kOwner) {
  auto file = DurableFile::Create(path, readers, ops);
  if (!file.ok()) return file.status();
  const size_t third = text.size() / 3;
  for (const auto& piece : {text.substr(0, third), text.substr(third, third),
                            text.substr(2 * third)}) {
    const absl::Status status = file->Append(BytesOf(piece));
    if (!status.ok()) return status;
  }
  return file->Commit();
}

class DurableFileTest : public ::testing::Test {
 protected:
  ScratchFolder folder_;
  const std::string path_ = folder_.File("f");
};

TEST_F(DurableFileTest, CreatesAndReplaces) {
  for (const std::string text : {"first", "", "another, longer one"}) {
    ASSERT_TRUE(WriteFile(path_, text).ok());
    EXPECT_EQ(Content(path_), text);
    EXPECT_THAT(folder_.Names(), ElementsAre("f"));
  }
}

// A shared one where the host's umask says so, whatever was there before.
TEST_F(DurableFileTest, WhoMayRead) {
  const mode_t before = umask(0);
  for (const mode_t mask : {0000, 0022, 0027, 0077}) {
    umask(mask);
    for (const FileReaders readers :
         {FileReaders::kUmask, FileReaders::kOwner, FileReaders::kUmask}) {
      const bool written = WriteFile(path_, "x", SystemFileOps(), readers).ok();
      struct stat info = {};
      EXPECT_TRUE(written && stat(path_.c_str(), &info) == 0);
      EXPECT_EQ(info.st_mode & 0777,
                readers == FileReaders::kOwner ? 0600u : 0666u & ~mask);
    }
  }
  umask(before);
  EXPECT_THAT(folder_.Names(), ElementsAre("f"));
}

TEST_F(DurableFileTest, NothingIsSeenBeforeCommit) {
  ASSERT_TRUE(WriteFile(path_, "old").ok());
  {
    auto file = DurableFile::Create(path_, FileReaders::kOwner);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append(BytesOf("new")).ok());
    EXPECT_EQ(file->num_bytes(), 3u);
    EXPECT_EQ(Content(path_), "old");
    EXPECT_EQ(folder_.Names().size(), 2u);
    DurableFile moved = *std::move(file);
    EXPECT_TRUE(moved.Append(BytesOf("er")).ok());
  }
  EXPECT_EQ(Content(path_), "old");
  EXPECT_THAT(folder_.Names(), ElementsAre("f"));
}

// Whichever call fails, once or from then on: the old file or the whole new one
// is there, never part of one. A temporary file is left only where removing it
// fails too.
TEST_F(DurableFileTest, EveryCallMayFail) {
  const std::string text(1000, 'n');
  for (const int error : {EIO, ENOSPC, EACCES, EINTR}) {
    const FileReaders readers =
        error == EIO ? FileReaders::kOwner : FileReaders::kUmask;
    for (const bool keeps_failing : {false, true}) {
      for (int64_t call = 0;; ++call) {
        ASSERT_LT(call, 100);
        std::ofstream(path_) << "old";
        FaultyFileOps ops;
        ops.error = error;
        ops.fail_at = call;
        // An endless EINTR would be retried for ever.
        ops.keeps_failing = keeps_failing && error != EINTR;
        const absl::Status status = WriteFile(path_, text, ops, readers);
        const std::string content = Content(path_);
        if (ops.num_calls <= call) {
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_EQ(content, text);
          break;
        }
        if (status.ok()) {
          EXPECT_EQ(content, text) << "call " << call;
        } else if (content == text) {
          EXPECT_THAT(std::string(status.message()),
                      HasSubstr("the new file is in place"));
        } else {
          EXPECT_EQ(content, "old") << "call " << call;
          EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.path()));
          // A signal fails nothing but what may have been done already.
          if (error == EINTR) {
            EXPECT_THAT(std::string(status.message()), HasSubstr("replace"));
          }
        }
        if (!ops.keeps_failing) {
          EXPECT_THAT(folder_.Names(), ElementsAre("f")) << "call " << call;
        }
        for (const std::string& name : folder_.Names()) {
          if (name != "f") std::filesystem::remove(folder_.File(name));
        }
      }
    }
  }
}

TEST_F(DurableFileTest, ShortWritesAndADeviceThatFillsUp) {
  const std::string text = "0123456789";
  ASSERT_TRUE(WriteFile(path_, "old").ok());
  for (int64_t space = 0; space <= 10; ++space) {
    FaultyFileOps ops;
    ops.space = space;
    ops.max_write = 3;
    const absl::Status status = WriteFile(path_, text, ops);
    EXPECT_EQ(status.ok(), space == 10) << status;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    }
    EXPECT_EQ(Content(path_), space == 10 ? text : "old");
    EXPECT_THAT(folder_.Names(), ElementsAre("f"));
  }
}

TEST_F(DurableFileTest, AnErrorStays) {
  FaultyFileOps ops;
  auto file = DurableFile::Create(path_, FileReaders::kUmask, ops);
  ASSERT_TRUE(file.ok());
  ops.space = 0;
  const absl::Status first = file->Append(BytesOf("x"));
  EXPECT_FALSE(first.ok());
  ops.space = 100;
  EXPECT_EQ(file->Append(BytesOf("x")), first);
  EXPECT_EQ(file->Commit(), first);
  EXPECT_TRUE(folder_.Names().empty());
}

TEST_F(DurableFileTest, SaysWhatIsWrong) {
  EXPECT_EQ(DurableFile::Create(folder_.File("no/f"), FileReaders::kUmask)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  for (const std::string& path :
       {std::string(), folder_.path(), folder_.path() + "/", std::string("/"),
        path_ + std::string("\0x", 2)}) {
    EXPECT_EQ(DurableFile::Create(path, FileReaders::kOwner).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  // A device would be gone for everybody.
  const std::string pipe = folder_.File("pipe"), link = folder_.File("link");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(symlink("/dev/null", link.c_str()), 0);
  for (const std::string& path : {pipe, link}) {
    const auto file = DurableFile::Create(path, FileReaders::kOwner);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    ASSERT_EQ(unlink(path.c_str()), 0);
  }
  EXPECT_TRUE(folder_.Names().empty());
  std::ofstream(folder_.File("plain")) << "x";
  EXPECT_FALSE(
      DurableFile::Create(folder_.File("plain/f"), FileReaders::kUmask).ok());
}

// Of which some mean other things among the library's own.
TEST_F(DurableFileTest, WhatTheSystemSaysIsTyped) {
  using Code = absl::StatusCode;
  constexpr std::pair<int, Code> kCodes[] = {
      {ENOENT, Code::kNotFound},           {ENOTDIR, Code::kInvalidArgument},
      {EISDIR, Code::kInvalidArgument},    {ELOOP, Code::kInvalidArgument},
      {ENOSPC, Code::kResourceExhausted},  {EFBIG, Code::kResourceExhausted},
      {EMFILE, Code::kResourceExhausted},  {ENOMEM, Code::kAlreadyExists},
      {EIO, Code::kPermissionDenied},      {EACCES, Code::kPermissionDenied},
      {EROFS, Code::kPermissionDenied},    {EBUSY, Code::kPermissionDenied},
      {ETIMEDOUT, Code::kPermissionDenied}};
  for (const auto& [error, code] : kCodes) {
    const absl::Status status = FileError(error, "open", "f");
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.message(), HasSubstr("cannot open f"));
  }
  std::ofstream(folder_.File("plain")) << "x";
  EXPECT_TRUE(absl::IsInvalidArgument(
      FileReader::Open(folder_.File("plain/f")).status()));
}

TEST_F(DurableFileTest, WritersOfOnePathDoNotMix) {
  auto a = DurableFile::Create(path_, FileReaders::kOwner);
  auto b = DurableFile::Create(path_, FileReaders::kOwner);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(a->Append(BytesOf("aa")).ok());
  ASSERT_TRUE(b->Append(BytesOf("b")).ok());
  ASSERT_TRUE(b->Commit().ok());
  EXPECT_EQ(Content(path_), "b");
  ASSERT_TRUE(a->Commit().ok());
  EXPECT_EQ(Content(path_), "aa");
  EXPECT_THAT(folder_.Names(), ElementsAre("f"));
}

}  // namespace
}  // namespace inlay
