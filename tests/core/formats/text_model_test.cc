#include "core/formats/text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/formats/format_test_util.h"

namespace inlay {
namespace {

Json Llava(const char* text) {
  return {{"architectures", {"LlavaForConditionalGeneration"}},
          {"model_type", "llava"},
          {"text_config", Json::parse(text)}};
}

Json Found(const Json& config) {
  const auto model = FindTextModel(config);
  EXPECT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model.ok() && model->has_value());
  return model.ok() && model->has_value() ? (*model)->config : Json();
}

TEST(TextModel, PlainAndUnknownModelsAreLeftAlone) {
  for (const char* config :
       {"null", "{}", "[]", R"({"architectures":["LlamaForCausalLM"]})",
        R"({"architectures":["SomeVlModel"],"text_config":{}})",
        R"({"architectures":["PaliGemmaForConditionalGeneration"],
            "text_config":3})",
        R"({"model_type":"gemma3_text"})"}) {
    const auto model = FindTextModel(Json::parse(config));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_FALSE(model->has_value()) << config;
  }
  EXPECT_TRUE(WhyNoTextModel(Json::object()).ok());
  ExpectError(WhyNoTextModel(Json{{"text_config", Json::object()}}),
              kUnsupported, "class \"\"");
}

TEST(TextModel, BadTextConfigsAreRefused) {
  for (const char* text :
       {"null", "[]", "3", "\"llama\"", R"({"text_config":{}})",
        R"({"model_type":1})", R"({"tie_word_embeddings":"yes"})"}) {
    EXPECT_EQ(FindTextModel(Llava(text)).status().code(), kInvalid) << text;
  }
  Json config = Llava("{}");
  config["tie_word_embeddings"] = 1;
  EXPECT_EQ(FindTextModel(config).status().code(), kInvalid);
  ExpectError(
      FindTextModel(
          Json::parse(R"({"architectures":["Glm4vForConditionalGeneration"],
                                  "text_config":{"hidden_size":"x"}})"))
          .status(),
      kInvalid, "hidden_size");
}

// What a class assumes of a family's text that has no type of its own.
TEST(TextModel, GlmAsrsSizes) {
  const auto text = [](const char* config) {
    Json whole = {{"architectures", {"GlmAsrForConditionalGeneration"}}};
    whole["text_config"] = Json::parse(config);
    const auto model = FindTextModel(whole);
    EXPECT_TRUE(model.ok() && model->has_value());
    return model.ok() && model->has_value() ? (*model)->config : Json();
  };
  for (const char* config : {"{}", R"({"model_type": "llama"})"}) {
    const Json llama = text(config);
    EXPECT_EQ(llama["model_type"], "llama");
    EXPECT_EQ(llama["rms_norm_eps"], 1e-5);
    EXPECT_EQ(llama["vocab_size"], 59264);
  }
  EXPECT_EQ(text(R"({"rms_norm_eps": 0.5})")["rms_norm_eps"], 0.5);
  EXPECT_FALSE(text(R"({"model_type": "qwen2"})").contains("rms_norm_eps"));
}

TEST(TextModel, TakesFromOutsideWhatItIsSilentAbout) {
  Json config = Llava(
      R"({"model_type":"mistral","architectures":["X"],"eos_token_id":7,
          "quantization_config":{"quant_method":"awq"}})");
  config["eos_token_id"] = 8;
  config["pad_token_id"] = 9;
  config["dtype"] = "float16";
  config["quantization_config"] = {{"quant_method", "gptq"}};
  const Json own = Found(config);
  EXPECT_EQ(own, (Json{{"model_type", "mistral"},
                       {"eos_token_id", 7},
                       {"pad_token_id", 9},
                       {"dtype", "float16"},
                       {"tie_word_embeddings", false},
                       {"quantization_config", {{"quant_method", "gptq"}}}}));
}

TEST(TextModel, AClassIsFoundByItsModelTypeToo) {
  const Json own =
      Found({{"model_type", "gemma3"}, {"text_config", {{"hidden_size", 8}}}});
  EXPECT_EQ(own["model_type"], "gemma3_text");
  EXPECT_EQ(own["tie_word_embeddings"], true);  // Gemma3Config's
}

TEST(TextModel, EmbeddingsAreTiedByEitherConfig) {
  struct Case {
    const char* text;
    Json outer;
    bool ties;
  };
  const Case cases[] = {{"{}", Json(), false},
                        {"{}", true, true},
                        {R"({"tie_word_embeddings":true})", Json(), true},
                        {R"({"tie_word_embeddings":true})", false, true},
                        {R"({"tie_word_embeddings":false})", true, true}};
  for (const Case& one : cases) {
    Json config = Llava(one.text);
    config["tie_word_embeddings"] = one.outer;
    EXPECT_EQ(Found(config)["tie_word_embeddings"], one.ties) << one.text;
  }
  // LFM2-VL spells it otherwise.
  EXPECT_EQ(Found({{"model_type", "lfm2_vl"},
                   {"tie_embedding", false},
                   {"text_config", Json::object()}})["tie_word_embeddings"],
            false);
}

TEST(TextModel, PositionsOfThreeRowsAreOne) {
  const Json own = Found({{"model_type", "qwen2_5_vl"},
                          {"vision_config", {{"depth", 1}}},
                          {"num_hidden_layers", 2},
                          {"rope_scaling",
                           {{"type", "mrope"},
                            {"mrope_section", {1, 2}},
                            {"rope_type", "yarn"}}}});
  EXPECT_EQ(own["rope_scaling"],
            (Json{{"type", "default"}, {"rope_type", "yarn"}}));
  EXPECT_EQ(own["model_type"], "qwen2");
  EXPECT_EQ(own["num_hidden_layers"], 2);
  EXPECT_EQ(own["rope_theta"], 1e6);  // Qwen2_5_VLTextConfig's, not Qwen2's
  EXPECT_FALSE(own.contains("vision_config"));
}

// Of models that speak as well: the part that writes, and what stands around.
TEST(TextModel, ThinkersAreInsideOfTheWhole) {
  const Json text = {{"hidden_size", 8},
                     {"rope_scaling",
                      {{"rope_type", "default"},
                       {"mrope_section", {1, 2}},
                       {"mrope_interleaved", true}}}};
  Json config = {{"architectures", {"Qwen3OmniMoeForConditionalGeneration"}},
                 {"model_type", "qwen3_omni_moe"},
                 {"dtype", "bfloat16"},
                 {"thinker_config",
                  {{"model_type", "qwen3_omni_moe_thinker"},
                   {"eos_token_id", 7},
                   {"text_config", text}}}};
  const Json own = Found(config);
  EXPECT_EQ(own["model_type"], "qwen3_moe");
  EXPECT_EQ(own["hidden_size"], 8);
  EXPECT_EQ(own["eos_token_id"], 7);
  EXPECT_EQ(own["dtype"], "bfloat16");
  EXPECT_EQ(own["tie_word_embeddings"], false);
  EXPECT_EQ(own["norm_topk_prob"], true);  // Qwen3OmniMoeTextConfig's
  EXPECT_EQ(own["rope_scaling"], (Json{{"rope_type", "default"}}));
  config["thinker_config"]["quantization_config"] = {{"quant_method", "awq"}};
  EXPECT_EQ(Found(config)["quantization_config"]["quant_method"], "awq");
  config["thinker_config"] = 3;
  ExpectError(FindTextModel(config).status(), kInvalid, "thinker_config");
  config["thinker_config"] = Json::object();
  ExpectError(FindTextModel(config).status(), kInvalid, "text_config");
}

// Text models that are a family under other names of keys, or but for a few.
TEST(TextModel, KeysOfTheFamily) {
  const Json paddle = Found({{"model_type", "paddleocr_vl"},
                             {"use_bias", true},
                             {"hidden_size", 8},
                             {"vision_config", Json::object()}});
  EXPECT_EQ(paddle["model_type"], "llama");
  EXPECT_EQ(paddle["attention_bias"], true);
  EXPECT_EQ(paddle["mlp_bias"], true);
  EXPECT_EQ(paddle["head_dim"], 128);
  EXPECT_EQ(paddle["tie_word_embeddings"], true);
  EXPECT_FALSE(paddle.contains("vision_config"));
  // That a Llama would have of this key is not this model's.
  EXPECT_EQ(
      Found({{"model_type", "paddleocr_vl"},
             {"text_config", {{"attention_bias", true}}}})["attention_bias"],
      false);
  const Json hunyuan = Found({{"model_type", "hunyuan_vl"},
                              {"attention_head_dim", 16},
                              {"use_qk_norm", false},
                              {"rope_scaling",
                               {{"type", "xdrope"},
                                {"alpha", 1000.0},
                                {"xdrope_section", {2, 2, 2, 2}}}}});
  EXPECT_EQ(hunyuan["model_type"], "hunyuan_v1_dense");
  EXPECT_EQ(hunyuan["head_dim"], 16);
  EXPECT_EQ(hunyuan["use_qk_norm"], true);
  EXPECT_EQ(hunyuan["rope_scaling"],
            (Json{{"type", "dynamic"}, {"alpha", 1000.0}}));
  // Its heads follow from the width, and have no biases.
  const Json glm = Found(
      {{"model_type", "glm_ocr"}, {"text_config", {{"hidden_size", 1536}}}});
  EXPECT_EQ(glm["model_type"], "glm4");
  EXPECT_EQ(glm["attention_bias"], false);
  EXPECT_EQ(glm["head_dim"], 96);
  EXPECT_EQ(glm["rms_norm_eps"], 1e-5);
}

// Of ERNIE 4.5 VL's numbers, which text and images have each, text's.
TEST(TextModel, NumbersOfTwoRouters) {
  const Json own = Found({{"model_type", "ernie4_5_vl_moe"},
                          {"moe_num_experts", {6, 4}},
                          {"moe_intermediate_size", {16, 8}},
                          {"moe_layer_start_index", 1}});
  EXPECT_EQ(own["model_type"], "ernie4_5_moe");
  EXPECT_EQ(own["vision_experts"], true);
  EXPECT_EQ(own["moe_num_experts"], 6);
  EXPECT_EQ(own["moe_intermediate_size"], 16);
  EXPECT_EQ(own["moe_layer_start_index"], 1);
}

TEST(TextModel, SectionsOfRopesByLayersType) {
  const Json rope = {{"rope_type", "default"}, {"rope_theta", 50.0}};
  Json sections = rope;
  sections["mrope_section"] = {1, 2, 1};
  const Json own = Found(
      {{"model_type", "cohere_compass"},
       {"text_config",
        {{"rope_parameters",
          {{"full_attention", nullptr}, {"sliding_attention", sections}}}}}});
  EXPECT_EQ(own["rope_parameters"],
            (Json{{"full_attention", nullptr}, {"sliding_attention", rope}}));
}

TEST(TextModel, ExpertsHaveTwoNames) {
  const auto experts = [](const char* text) {
    Json own = Found(
        {{"model_type", "qwen3_vl_moe"}, {"text_config", Json::parse(text)}});
    return std::pair(own.value("num_experts", 0),
                     own.value("num_local_experts", 0));
  };
  EXPECT_EQ(experts("{}"), std::pair(0, 60));
  EXPECT_EQ(experts(R"({"num_experts":8})"), std::pair(8, 0));
  EXPECT_EQ(experts(R"({"num_local_experts":8})"), std::pair(0, 8));
}

TEST(TextModel, NamesOfTensors) {
  const std::pair<const char*, const char*> names[] = {
      {"language_model.model.layers.0.x.weight", "model.layers.0.x.weight"},
      {"language_model.lm_head.weight", "lm_head.weight"},
      {"model.language_model.norm.weight", "model.norm.weight"},
      {"model.text_model.norm.weight", "model.norm.weight"},
      {"lm_head.weight_packed", "lm_head.weight_packed"},
      {"model.layers.0.x.qweight", "model.layers.0.x.qweight"},
  };
  for (const auto& [stored, own] : names) {
    EXPECT_EQ(TextModelName(stored), own);
  }
  for (const char* other :
       {"", "vision_tower.layers.0.x", "visual.x", "model.visual.blocks.0.x",
        "multi_modal_projector.linear_1.weight", "model.vision_tower.norm",
        "mtp.layers.0.x", "model.lm_heads.weight"}) {
    EXPECT_FALSE(TextModelName(other).has_value()) << other;
  }
}

TEST(TextModel, NamesOfTensorsOfThinkersAndHyperClova) {
  const std::pair<const char*, const char*> names[] = {
      {"thinker.model.layers.0.mlp.up_proj.weight",
       "model.layers.0.mlp.up_proj.weight"},
      {"thinker.model.language_model.norm.weight", "model.norm.weight"},
      {"thinker.lm_head.weight", "lm_head.weight"},
      {"model.language_model.model.norm.weight", "model.norm.weight"},
      {"model.language_model.lm_head.weight", "lm_head.weight"}};
  for (const auto& [stored, own] : names) {
    EXPECT_EQ(TextModelName(stored), own);
  }
  for (const char* other :
       {"talker.model.layers.0.mlp.up_proj.weight",
        "thinker.model.audio_tower.layers.0.fc1.weight",
        "thinker.visual.blocks.0.norm1.weight", "token2wav.norm.weight"}) {
    EXPECT_EQ(TextModelName(other), std::nullopt) << other;
  }
}

TEST(TextModel, QuantizedLayersAreRenamed) {
  Json settings = {{"quantized_layers",
                    {{"language_model.model.layers.0.q", {{"a", 1}}},
                     {"vision_tower.q", {{"a", 2}}},
                     {"lm_head", {{"a", 3}}}}}};
  RenameQuantizedLayers(&settings);
  EXPECT_EQ(settings["quantized_layers"],
            (Json{{"model.layers.0.q", {{"a", 1}}}, {"lm_head", {{"a", 3}}}}));
  Json none = 3;
  RenameQuantizedLayers(&none);
  EXPECT_EQ(none, 3);
}

}  // namespace
}  // namespace inlay
