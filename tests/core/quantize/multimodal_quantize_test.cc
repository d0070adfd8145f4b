// Multimodal checkpoints are written as their text models: what is written is
// what the text model's own folder gives.
#include "tests/core/quantize/quantized_files.h"
#include "tests/support/multimodal_folder.h"

namespace inlay {
namespace {

class MultimodalQuantize : public QuantizedFiles {
 protected:
  MultimodalQuantize() {
    WriteMultimodal({"LlavaForConditionalGeneration", "llava", ""},
                    Golden("llama_bf16"), inside_);
  }
  TempFolder inside_;
};

TEST_F(MultimodalQuantize, GgufFilesAreTheTextModels) {
  std::string written[2];
  const QuantizeOptions options = Options("q8_0", QuantizeMethod::kGptq);
  for (size_t i = 0; i < 2; ++i) {
    const auto report = QuantizePath(
        i == 0 ? Golden("llama_bf16") : inside_.path(), options, Out());
    ASSERT_TRUE(report.ok()) << report.status();
    written[i] = FileBytes(Out());
  }
  EXPECT_FALSE(written[0].empty());
  EXPECT_TRUE(written[0] == written[1]);
}

TEST_F(MultimodalQuantize, FoldersAreTheTextModels) {
  const QuantizeOptions options = Options("u4_g64", QuantizeMethod::kNearest);
  std::vector<float> logits[2];
  for (size_t i = 0; i < 2; ++i) {
    const std::string folder = folder_ + "/" + std::to_string(i);
    const auto report = QuantizePath(
        i == 0 ? Golden("llama_bf16") : inside_.path(), options, folder);
    ASSERT_TRUE(report.ok()) << report.status();
    logits[i] = Logits(folder);
    const Json config = Json::parse(Slurp(folder + "/config.json"));
    EXPECT_EQ(config["architectures"], Json({"LlamaForCausalLM"}));
    EXPECT_EQ(config["model_type"], "llama");
    EXPECT_FALSE(config.contains("vision_config"));
  }
  EXPECT_FALSE(logits[0].empty());
  EXPECT_EQ(logits[0], logits[1]);
}

}  // namespace
}  // namespace inlay
