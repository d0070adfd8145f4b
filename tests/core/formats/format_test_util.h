// Temporary folders and safetensors files made by hand.
#ifndef INLAY_TESTS_CORE_FORMATS_FORMAT_TEST_UTIL_H_
#define INLAY_TESTS_CORE_FORMATS_FORMAT_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace inlay {

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kMissing = absl::StatusCode::kNotFound;
inline constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(text));
}

// A folder that goes away with the object.
class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "inlay_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file, folders in `name` included; its path.
  std::string Write(const std::string& name, std::string_view text) const {
    const std::filesystem::path path = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(text.data(), text.size());
    return path.string();
  }

 private:
  std::string path_;
};

// The 8 bytes of length, `json`, `data_bytes` bytes counting up from 0.
inline std::string SafetensorsFile(std::string_view json,
                                   size_t data_bytes = 0) {
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  }
  file.append(json);
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

inline absl::Span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_FORMATS_FORMAT_TEST_UTIL_H_
