// What tests of QuantizeModel's files share: a folder for them, options with
// calibration, and logits of what is in a file. Header only.
#ifndef INLAY_TESTS_CORE_QUANTIZE_QUANTIZED_FILES_H_
#define INLAY_TESTS_CORE_QUANTIZE_QUANTIZED_FILES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/model/load_model.h"
#include "core/quantize/quantize.h"
#include "tests/support/model_harness.h"
#include "tests/support/paths/paths.h"

namespace inlay {

inline TokenSequences Sequences(int count, int length, int vocab) {
  std::mt19937 rng(17);
  TokenSequences sequences;
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t>& tokens = sequences.emplace_back();
    // None a multiple of a block.
    for (int t = 0; t < length - i; ++t) {
      tokens.push_back(
          static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab)));
    }
  }
  return sequences;
}

inline std::string FileBytes(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class QuantizedFiles : public ::testing::Test {
 protected:
  QuantizedFiles()
      : folder_(::testing::TempDir() + "quantized_" +
                std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    device_ = *CreateCpuDevice(2, 0);
    stream_ = *device_->CreateStream();
  }
  ~QuantizedFiles() override { std::filesystem::remove_all(folder_); }

  std::string Out() const { return folder_ + "/out.gguf"; }
  static std::string Golden(const std::string& model) {
    return TestData() + "/models/" + model;
  }
  static QuantizeOptions Options(const std::string& type,
                                 QuantizeMethod method) {
    QuantizeOptions options;
    options.type = type;
    options.num_threads = 2;
    options.method = method;
    options.calibration_sequences = Sequences(6, 40, 256);
    return options;
  }
  // `observer`: sees what layers read, and may change it.
  std::vector<float> Logits(const std::string& path,
                            InputObserver* observer = nullptr) {
    std::vector<float> all;
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) return all;
    // Float32 throughout, where weights are quantised too.
    ModelLoadOptions options;
    options.forced_kernels["gemm"] = "cpu_simd";
    options.fused = observer == nullptr;
    options.input_observer = observer;
    auto model = LoadModel(*files, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return all;
    ModelHarness harness(**model, *device_, 64);
    const std::vector<int32_t> prompt = {5, 9, 33, 2, 71, 8, 100, 41};
    const auto logits = harness.Run(harness.AddSequence(64), prompt, 64);
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return all;
    for (const auto& row : *logits) {
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  static double RelativeError(const std::vector<float>& got,
                              const std::vector<float>& wanted) {
    EXPECT_EQ(got.size(), wanted.size());
    double difference = 0, norm = 0;
    for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
      difference += std::pow(double{got[i]} - wanted[i], 2);
      norm += std::pow(double{wanted[i]}, 2);
    }
    return std::sqrt(difference / norm);
  }

  const std::string folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_QUANTIZE_QUANTIZED_FILES_H_
