// The text model inside multimodal checkpoints: folders made of the golden
// models give their logits, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/formats/gguf_arch.h"
#include "core/model/inspect.h"
#include "tests/core/model/golden_models.h"
#include "tests/support/multimodal_folder.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNew[] = "model.language_model.";
constexpr char kHead[] = "lm_head.";

struct Inside {
  const char* golden;  // a folder of tests/data
  MultimodalClass kind;
};

const Inside kInside[] = {
    {"models/gemma3_text", {"Gemma3ForConditionalGeneration", "gemma3", ""}},
    {"models/gemma3n_text",
     {"Gemma3nForConditionalGeneration", "gemma3n", "", kNew, kHead}},
    {"models/gemma4_text",
     {"Gemma4ForConditionalGeneration", "gemma4", "", kNew, kHead}},
    {"models/mistral", {"Mistral3ForConditionalGeneration", "mistral3", ""}},
    {"models/ministral3",
     {"Mistral3ForConditionalGeneration", "mistral3", "", kNew, kHead}},
    {"models/mistral4", {"Mistral3ForConditionalGeneration", "mistral3", ""}},
    {"models/llama4_text", {"Llama4ForConditionalGeneration", "llama4", ""}},
    {"models/qwen2",
     {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text",
      "model.", kHead}},
    {"models/qwen3",
     {"Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", kNew,
      kHead}},
    {"models/qwen3_moe",
     {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe_text",
      kNew, kHead}},
    {"models/qwen3_5_text",
     {"Qwen3_5ForConditionalGeneration", "qwen3_5", "", kNew, kHead}},
    {"models/qwen3_5_moe_text",
     {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "", kNew, kHead}},
    {"models/llama3",
     {"Idefics3ForConditionalGeneration", "idefics3", "", "model.text_model.",
      kHead}},
    {"models/llama_tied_bias", {"LlavaForConditionalGeneration", "llava", ""}},
    {"models/glm4",
     {"Glm4vForConditionalGeneration", "glm4v", "glm4v_text", kNew, kHead}},
    {"models/cohere2",
     {"Cohere2VisionForConditionalGeneration", "cohere2_vision", "", kNew,
      kHead}},
    {"models/lfm2",
     {"Lfm2VlForConditionalGeneration", "lfm2_vl", "", kNew, kHead}},
    {"models/lfm3",
     {"Lfm3VlForConditionalGeneration", "lfm3_vl", "", kNew, kHead}},
    {"models/deepseek_v3", {"KimiVLForConditionalGeneration", "kimi_vl", ""}},
    {"models/granite",
     {"Granite4VisionForConditionalGeneration", "granite4_vision",
      "granite4_vision_text", kNew, kHead}},
    {"models/hyperclovax",
     {"HCXVisionV2ForCausalLM", "vlm", "", "model.language_model.model.",
      "model.language_model.lm_head."}},
    {"models/llama_tied_bias",
     {"PaddleOCRVLForConditionalGeneration", "paddleocr_vl",
      "paddleocr_vl_text", kNew, kHead,
      R"({"use_bias": true, "head_dim": 16})"}},
    {"models/llama3",
     {"PaddleOCRVLForConditionalGeneration", "paddleocr_vl", "", "model.",
      kHead, "{}", "", true}},
    {"models/hunyuan_v1_dense",
     {"HunYuanVLForConditionalGeneration", "hunyuan_vl", "hunyuan_vl_text",
      kNew, kHead}},
    {"models/hunyuan_v1_dense",
     {"HunYuanVLForConditionalGeneration", "hunyuan_vl", "", "model.", kHead,
      R"({"attention_head_dim": 16, "head_dim": null, "rope_scaling": {
          "type": "xdrope", "alpha": 1000.0, "xdrope_section": [2, 2, 2, 2]}})",
      "", true}},
    {"models/glm5_next",
     {"Glm5NextForConditionalGeneration", "glm5_next", "", kNew, kHead}},
    {"models/glm5_next",
     {"Glm5NextForConditionalGeneration", "glm5_next", "", "model.", kHead,
      "{}", "", true}},
    {"models/mistral_large4",
     {"MistralLarge4ForConditionalGeneration", "mistral_large4", "", kNew,
      kHead}},
    {"models/muse_glimmer",
     {"MuseGlimmerForConditionalGeneration", "muse_glimmer", "", kNew, kHead}},
    {"models/mllama", {"MllamaForConditionalGeneration", "mllama", ""}},
    {"models/step3p5",
     {"Step3p7ForConditionalGeneration", "step3p7", "", "model.", kHead}},
    {"models/deepseek_ocr2",
     {"DeepseekOcr2ForConditionalGeneration", "deepseek_ocr2", "", kNew,
      kHead}},
    {"models/deepseek_ocr2",
     {"DeepseekOCRForCausalLM", "deepseek_vl_v2", "", "model.", kHead, "{}", "",
      true}},
    {"models/persimmon", {"FuyuForCausalLM", "fuyu", ""}},
    {"models/persimmon",
     {"FuyuForCausalLM", "fuyu", "", "language_model.model.",
      "language_model.lm_head.", "{}", "", true}},
    {"models/llama3",
     {"Emu3ForConditionalGeneration", "emu3", "emu3_text_model",
      "text_model.model.", "text_model.lm_head."}},
    {"models/qwen3", {"QianfanOCRForConditionalGeneration", "qianfan_ocr", ""}},
    {"models/granite",
     {"GraniteDoclingForConditionalGeneration", "granite_docling",
      "granite_docling_text", "model.text_model.", kHead}},
    {"models/qwen2",
     {"Qwen2_5OmniModel", "qwen2_5_omni", "qwen2_5_omni_text", "thinker.model.",
      "thinker.lm_head.", "{}", "thinker_config"}},
    {"models/qwen3_moe",
     {"Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe",
      "qwen3_omni_moe_text", "thinker.model.language_model.",
      "thinker.lm_head.", "{}", "thinker_config"}},
    {"quantized/awq_int4", {"LlavaForConditionalGeneration", "llava", ""}},
    {"quantized/bnb_nf4",
     {"LlavaForConditionalGeneration", "llava", "", kNew, kHead}},
    {"quantized/ct_fp8_channel",
     {"Mistral3ForConditionalGeneration", "mistral3", ""}},
    {"quantized/ct_w4a16", {"LlavaForConditionalGeneration", "llava", ""}},
    {"quantized/fp8_block",
     {"LlavaForConditionalGeneration", "llava", "", kNew, kHead}},
    {"quantized/gptq_int4_actorder",
     {"LlavaForConditionalGeneration", "llava", ""}},
};

ModelFiles OpenFolder(const std::string& folder) {
  auto files = OpenModelFiles(folder, {});
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? *std::move(files) : ModelFiles();
}

class Multimodal : public ::testing::TestWithParam<Inside> {};

TEST_P(Multimodal, LogitsAreThoseOfTheTextModel) {
  const std::string golden = TestData() + "/" + GetParam().golden;
  TempFolder folder;
  WriteMultimodal(GetParam().kind, golden, folder);
  const GoldenCase one = ReadGolden(golden).back();
  const ModelFiles inside = OpenFolder(folder.path());
  const auto got = RunChunks(inside, {}, one.input_ids, 5);
  EXPECT_TRUE(got == RunChunks(OpenFolder(golden), {}, one.input_ids, 5));
  EXPECT_FALSE(got.empty());
  for (const WeightInfo& info : inside.weights->weights()) {
    EXPECT_THAT(info.name, Not(HasSubstr("visual")));
    EXPECT_THAT(info.name, Not(HasSubstr("vision")));
  }
}

INSTANTIATE_TEST_SUITE_P(, Multimodal, ::testing::ValuesIn(kInside),
                         [](const auto& info) {
                           std::string name = info.param.golden;
                           return name.substr(name.find('/') + 1) + "_in_" +
                                  info.param.kind.model_type +
                                  (info.param.kind.flat ? "_flat" : "");
                         });

TEST(MultimodalFiles, Qwen2VlKeepsKeysOfTheTextBesideTheOthers) {
  const std::string golden = TestData() + "/models/qwen2";
  TempFolder folder;
  WriteMultimodal(
      {"Qwen2VLForConditionalGeneration", "qwen2_vl", "", "model.", kHead},
      golden, folder);
  Json config = Json::parse(Slurp(golden + "/config.json"));
  config["architectures"] = {"Qwen2VLForConditionalGeneration"};
  config["model_type"] = "qwen2_vl";
  config["vision_config"] = {{"hidden_size", 8}};
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};
  folder.Write("config.json", DumpJson(config));
  const GoldenCase one = ReadGolden(golden).back();
  EXPECT_TRUE(RunChunks(OpenFolder(folder.path()), {}, one.input_ids, 5) ==
              RunChunks(OpenFolder(golden), {}, one.input_ids, 5));
}

// Whose names are those of text models' without a head.
TEST(MultimodalFiles, NetworksWithoutTheirHeadAreNotTextModels) {
  for (const char* name :
       {"Gemma3Model", "Gemma3nModel", "Gemma4Model", "Qwen3_5Model"}) {
    ModelFiles files = Open("qwen3", "config.json");
    files.config = {{"architectures", {name}},
                    {"model_type", "any"},
                    {"vision_config", Json::object()},
                    {"text_config", {{"hidden_size", 64}}}};
    const auto device = Cpu(1);
    const absl::Status status = PlanModel(files, *device, {}).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("multimodal class"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    const absl::Status written = FindGgufArchOf(files.config).status();
    EXPECT_TRUE(absl::IsUnimplemented(written)) << written;
  }
}

TEST(MultimodalFiles, ShardsWithoutTextAreNotOpened) {
  const std::string golden = TestData() + "/models/qwen3";
  const MultimodalClass kind = {"Qwen3VLForConditionalGeneration", "qwen3_vl",
                                "qwen3_vl_text", kNew, kHead};
  TempFolder folder;
  WriteMultimodal(kind, golden, folder);
  std::filesystem::rename(folder.path() + "/model.safetensors",
                          folder.path() + "/one.safetensors");
  Json places = {{"model.visual.gone", "two.safetensors"}};
  const ModelFiles plain = OpenFolder(golden);
  for (const WeightInfo& info : plain.weights->weights()) {
    const bool is_head = info.name.starts_with("lm_head.");
    places[is_head ? info.name : kNew + info.name.substr(6)] =
        "one.safetensors";
  }
  folder.Write("model.safetensors.index.json",
               DumpJson(Json{{"weight_map", places}}));
  const auto files = OpenModelFiles(folder.path(), {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->weights->weights().size(), places.size() - 1);
}

// The head that is there counts where it differs, whatever is said of tying.
TEST(MultimodalFiles, AHeadOfItsOwnIsUsed) {
  const std::string golden = TestData() + "/models/mistral";
  TempFolder folder;
  const MultimodalClass kind = {"Mistral3ForConditionalGeneration", "mistral3",
                                ""};
  WriteMultimodal(kind, golden, folder);
  Json config = Json::parse(Slurp(folder.path() + "/config.json"));
  for (const Json& ties : {Json(true), Json()}) {
    config["tie_word_embeddings"] = ties;
    folder.Write("config.json", DumpJson(config));
    const GoldenCase one = ReadGolden(golden).back();
    EXPECT_TRUE(RunChunks(OpenFolder(folder.path()), {}, one.input_ids, 5) ==
                RunChunks(OpenFolder(golden), {}, one.input_ids, 5));
  }
}

TEST(MultimodalFiles, TensorsThatAreTwiceThereAreRefused) {
  TempFolder folder;
  folder.Write("config.json",
               R"({"architectures":["LlavaForConditionalGeneration"],
                   "text_config":{}})");
  folder.Write(
      "model.safetensors",
      SafetensorsFile(
          R"({"model.norm.weight":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},
"language_model.model.norm.weight":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
          2));
  ExpectError(OpenModelFiles(folder.path(), {}).status(), kInvalid,
              "are both the text model's");
}

TEST(MultimodalFiles, InspectTellsOfTheTextModel) {
  TempFolder folder;
  WriteMultimodal({"LlavaForConditionalGeneration", "llava", ""},
                  TestData() + "/models/llama3", folder);
  const auto device = Cpu(1);
  const auto text = InspectModel(OpenFolder(folder.path()), *device, {});
  ASSERT_TRUE(text.ok()) << text.status();
  const Json json = Json::parse(*text);
  EXPECT_EQ(json["supported"], true);
  EXPECT_EQ(json["architecture"], "LlamaForCausalLM");
  EXPECT_THAT(*text, Not(HasSubstr("vision")));
}

absl::Status PlanStatus(const Json& config) {
  ModelFiles files;
  files.config = config;
  files.random = RandomWeights{};
  const auto device = Cpu(1);
  return PlanModel(files, *device, {}).status();
}

TEST(MultimodalFiles, ClassesThatDoNotOpenAreNamed) {
  const auto config = [](const char* name) {
    return Json{{"architectures", {name}},
                {"model_type", "some"},
                {"text_config", {{"model_type", "llama"}}}};
  };
  ExpectError(PlanStatus(config("PaliGemmaForConditionalGeneration")),
              kUnsupported, "attended both ways");
  ExpectError(PlanStatus(config("UnlimitedOcrForConditionalGeneration")),
              kUnsupported, "a window of what comes after");
  for (const char* part : {"\"SomeVlModel\"", "model_type \"llama\"",
                           "Gemma3ForConditionalGeneration"}) {
    ExpectError(PlanStatus(config("SomeVlModel")), kUnsupported, part);
  }
}

}  // namespace
}  // namespace inlay
