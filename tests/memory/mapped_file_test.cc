#include "memory/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/support/file_pages.h"

namespace inlay {
namespace {

using ::inlay::testing::FileKilobytes;
using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() : folder_(::testing::TempDir() + "inlay_XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) abort();
  }
  ~MappedFileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  // All three ways of opening fail in the same way.
  void ExpectRefused(const std::string& path, absl::StatusCode code,
                     const char* message) const {
    for (const absl::Status& status :
         {MappedFile::Open(path).status(), FileReader::Open(path).status(),
          ReadWholeFile(path, 100).status()}) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(path.c_str()));
      EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    }
  }

  std::string folder_;
};

std::string Text(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int NumDescriptors() {
  int count = 0;
  for (int i = 0; i < 1024; ++i) {
    struct stat info;
    count += fstat(i, &info) == 0;
  }
  return count;
}

TEST_F(MappedFileTest, SeesTheBytes) {
  for (const size_t size : {0, 1, 4095, 4096, 4097, 100'000}) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text.push_back(static_cast<char>(i * 7));
    const std::string path = Write("f", text);
    const auto map = MappedFile::Open(path);
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ(Text(map->bytes()), text);
    const auto whole = ReadWholeFile(path, size);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(*whole, text);
    const auto reader = FileReader::Open(path);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->size(), size);
    EXPECT_EQ(reader->path(), path);
  }
}

TEST_F(MappedFileTest, PagesLeaveAndComeBack) {
  constexpr int64_t kKilobytes = 16 << 10;
  const std::string text(kKilobytes << 10, 'x');
  const auto map = MappedFile::Open(Write("f", text));
  ASSERT_TRUE(map.ok()) << map.status();
  const int64_t before = FileKilobytes();
  if (before == 0) GTEST_SKIP() << "the system does not say";
  EXPECT_EQ(Text(map->bytes()), text);
  EXPECT_GE(FileKilobytes(), before + kKilobytes / 2);
  map->LeavePages(0, UINT64_MAX);
  EXPECT_LE(FileKilobytes(), before + kKilobytes / 2);
  EXPECT_EQ(Text(map->bytes()), text);
  // Three quarters of them, from within a page on.
  map->LeavePages((kKilobytes << 8) + 5, UINT64_MAX);
  EXPECT_LE(FileKilobytes(), before + kKilobytes / 2);
  EXPECT_GE(FileKilobytes(), before + kKilobytes / 8);
  map->LeavePages(UINT64_MAX, UINT64_MAX);
  map->LeavePages(9, 3);
  EXPECT_EQ(Text(map->bytes()), text);
  MappedFile::Open(Write("empty", ""))->LeavePages(0, UINT64_MAX);
}

TEST_F(MappedFileTest, ReadsAnyRange) {
  const auto reader = FileReader::Open(Write("f", "0123456789"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (size_t begin = 0; begin <= 11; ++begin) {
    for (size_t size = 0; size <= 11; ++size) {
      std::vector<std::byte> bytes(size);
      const absl::Status status = reader->ReadAt(begin, absl::MakeSpan(bytes));
      if (begin + size > 10) {
        EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
      } else {
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(Text(bytes), std::string("0123456789").substr(begin, size));
      }
    }
  }
  std::byte byte;
  EXPECT_EQ(reader->ReadAt(UINT64_MAX, {&byte, 1}).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(MappedFileTest, SaysWhatIsWrong) {
  ExpectRefused(Path("none"), absl::StatusCode::kNotFound,
                "No such file or directory");
  ExpectRefused(Path(std::string(300, 'x')), absl::StatusCode::kInvalidArgument,
                "too long");
  ExpectRefused(folder_, absl::StatusCode::kInvalidArgument, "a folder");
  ExpectRefused("/dev/null", absl::StatusCode::kInvalidArgument, "device");
  // Nobody writes into the pipe: opening it must not wait.
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectRefused(Path("pipe"), absl::StatusCode::kInvalidArgument, "a pipe");
  // Must not open "f".
  ExpectRefused(Write("f", "x") + std::string("\0x", 2),
                absl::StatusCode::kInvalidArgument, "NUL");
}

TEST_F(MappedFileTest, PermissionDenied) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  const std::string path = Write("f", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  ExpectRefused(path, absl::StatusCode::kPermissionDenied, "denied");
}

TEST_F(MappedFileTest, TheCapIsCheckedBeforeAllocating) {
  const std::string path = Write("f", "12345");
  EXPECT_TRUE(ReadWholeFile(path, 5).ok());
  EXPECT_EQ(ReadWholeFile(path, 4).status().code(),
            absl::StatusCode::kResourceExhausted);
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse
  const absl::Status status = ReadWholeFile(path, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("1099511627776 bytes, at most 1048576"));
}

TEST_F(MappedFileTest, AFileThatShrankIsAnError) {
  const std::string path = Write("f", "0123456789");
  const auto reader = FileReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::filesystem::resize_file(path, 4);
  std::byte bytes[10];
  EXPECT_EQ(reader->ReadAt(0, bytes).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(reader->ReadAt(0, {bytes, 4}).ok());
}

TEST_F(MappedFileTest, MovesAndReleases) {
  const std::string path = Write("f", "abc");
  const int before = NumDescriptors();
  {
    auto reader = *FileReader::Open(path);
    FileReader moved = std::move(reader);
    auto other = *FileReader::Open(path);
    other = std::move(moved);
    std::byte bytes[3];
    EXPECT_TRUE(other.ReadAt(0, bytes).ok());
    EXPECT_EQ(Text(bytes), "abc");

    MappedFile map = *MappedFile::Open(path);
    const std::byte* data = map.bytes().data();
    MappedFile moved_map = std::move(map);
    EXPECT_EQ(moved_map.bytes().data(), data);
    MappedFile other_map = *MappedFile::Open(path);
    other_map = std::move(moved_map);
    EXPECT_EQ(other_map.bytes().data(), data);
    // The mapping needs neither the name nor a descriptor.
    std::filesystem::remove(path);
    EXPECT_EQ(Text(other_map.bytes()), "abc");
  }
  EXPECT_EQ(NumDescriptors(), before);
  // A refusal leaves nothing open either.
  EXPECT_FALSE(FileReader::Open(folder_).ok());
  EXPECT_EQ(NumDescriptors(), before);
}

TEST_F(MappedFileTest, KindsOfPaths) {
  const std::string path = Write("f", "x");
  EXPECT_TRUE(IsRegularFile(path));
  EXPECT_FALSE(IsDirectory(path));
  EXPECT_TRUE(IsDirectory(folder_));
  EXPECT_FALSE(IsRegularFile(folder_));
  EXPECT_FALSE(IsRegularFile(Path("none")));
  EXPECT_FALSE(IsDirectory(Path("none")));
  EXPECT_FALSE(IsRegularFile(path + std::string("\0x", 2)));
  std::filesystem::create_symlink(path, Path("link"));
  EXPECT_TRUE(IsRegularFile(Path("link")));
}

}  // namespace
}  // namespace inlay
