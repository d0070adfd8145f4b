// A folder for the GGUF files that a test writes of models in memory. Header
// only.
#ifndef INLAY_TESTS_CORE_QUANTIZE_FAMILY_FILES_H_
#define INLAY_TESTS_CORE_QUANTIZE_FAMILY_FILES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "core/quantize/quantize.h"

namespace inlay {

class FamilyFiles {
 public:
  FamilyFiles()
      : folder_(testing::TempDir() + "families_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~FamilyFiles() { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name + ".gguf";
  }
  absl::StatusOr<QuantizeReport> Try(const ModelFiles& files,
                                     const QuantizeOptions& options) const {
    return QuantizeModel(files, options, Path("tried"));
  }
  std::string Write(const ModelFiles& files, const std::string& type,
                    QuantizeReport* report = nullptr) const {
    QuantizeOptions options;
    options.type = type;
    options.num_threads = 2;
    const std::string path = Path(type + std::to_string(count_++));
    auto result = QuantizeModel(files, options, path);
    EXPECT_TRUE(result.ok()) << result.status();
    if (report != nullptr && result.ok()) *report = *std::move(result);
    return path;
  }
  static ModelFiles OpenFile(const std::string& path) {
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : ModelFiles();
  }

 private:
  const std::string folder_;
  mutable int count_ = 0;
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_QUANTIZE_FAMILY_FILES_H_
