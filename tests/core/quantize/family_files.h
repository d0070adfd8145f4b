// A folder for the GGUF files that a test writes of models in memory. Header
// only.
#ifndef INLAY_TESTS_CORE_QUANTIZE_FAMILY_FILES_H_
#define INLAY_TESTS_CORE_QUANTIZE_FAMILY_FILES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_config_writer.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/gguf_xielu.h"
#include "core/quantize/quantize.h"

namespace inlay {

// The golden model's are others, which no file can say.
inline constexpr char kPublishedLlama4[] =
    R"({"no_rope_layer_interval": 4, "attention_chunk_size": 8192,
        "floor_scale": 8192, "attn_scale": 0.1})";

class FamilyFiles {
 public:
  FamilyFiles()
      : folder_(::testing::TempDir() + "families_" + std::to_string(getpid())) {
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
  // A file of keys alone, without those of the tokenizer.
  static absl::Status SetKeys(const ModelFiles& files,
                              const std::string& path) {
    const auto arch = FindGgufArchOf(files.config);
    if (!arch.ok()) return arch.status();
    const auto shape_of =
        [&](std::string_view name) -> const std::vector<int64_t>* {
      const auto published = PublishedTensorName(**arch, name);
      const WeightInfo* info = published.has_value()
                                   ? files.weights->Find(published->name)
                                   : nullptr;
      return info == nullptr ? nullptr : &info->shape;
    };
    auto writer = GgufWriter::Create(path);
    if (!writer.ok()) return writer.status();
    const auto config = WithXielu(files);
    if (!config.ok()) return config.status();
    const auto set = SetGgufConfig(*config, **arch, shape_of, &*writer);
    if (!set.ok()) return set.status();
    const absl::Status started = writer->StartData();
    return started.ok() ? writer->Commit() : started;
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
