// GGUF files that QuantizeModel writes of families with experts, latents and
// recurrent layers: the reference's outputs, and what rounding may do.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/gguf_files.h"
#include "core/quantize/quantize.h"
#include "kernels/quant/quant.h"
#include "tests/core/model/gguf_golden.h"

namespace inlay {
namespace {

class GgufFamilies : public GgufGoldenModel {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    std::filesystem::create_directories(folder_);
    return folder_ + "/" + name + ".gguf";
  }
  std::string Write(const ModelFiles& files, const std::string& type) {
    QuantizeOptions options;
    options.type = type;
    options.num_threads = 2;
    const std::string path = Path(type);
    const auto report = QuantizeModel(files, options, path);
    EXPECT_TRUE(report.ok()) << report.status();
    return path;
  }
  ModelFiles OpenFile(const std::string& path) {
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : ModelFiles();
  }

 private:
  const std::string folder_ =
      testing::TempDir() + "families_" + std::to_string(getpid());
};

TEST_P(GgufFamilies, GoldensInF32) {
  const ModelFiles written =
      OpenFile(Write(Open(GetParam(), "config.json"), "f32"));
  ASSERT_NE(written.weights, nullptr);
  CheckGoldens(written);
}

constexpr const char* kFamilies[] = {
    "mixtral",      "qwen3_moe",        "gpt_oss",     "glm4_moe",
    "minimax_m2",   "granitemoehybrid", "deepseek_v2", "deepseek_v2_lite",
    "deepseek_v3",  "deepseek_v32",     "glm_moe_dsa", "qwen3_next",
    "qwen3_5_text", "qwen3_5_moe_text", "gemma4_text", "gemma4_moe_text",
    "lfm2",         "falcon_h1",        "mamba2",      "nemotron_h",
    "kimi_linear",  "gpt_neox",         "olmo3"};

INSTANTIATE_TEST_SUITE_P(Models, GgufFamilies, testing::ValuesIn(kFamilies),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
