// Folders of multimodal checkpoints, made of a text model's: its config.json
// becomes text_config, its tensors get the names they have inside, and what
// sees lies beside them.
#ifndef INLAY_TESTS_SUPPORT_MULTIMODAL_FOLDER_H_
#define INLAY_TESTS_SUPPORT_MULTIMODAL_FOLDER_H_

#include <cstring>
#include <functional>
#include <string>

#include "core/json/json.h"
#include "tests/core/formats/format_test_util.h"

namespace inlay {

struct MultimodalClass {
  const char* architecture;
  const char* model_type;
  std::string text_type;  // of text_config; empty: the text model's own
  std::string model = "language_model.model.";  // for "model."
  std::string head = "language_model.lm_head.";
  std::string keys = "{}";  // that the text's config has besides
  std::string part = "";    // whose config text_config stands in
  bool flat = false;        // no text_config: its keys beside the others
};

// `text` inside a config.json of the class. What engines look for outside of
// text_config is there: settings of quantisation, ids, whether embeddings tie.
inline Json AroundText(const MultimodalClass& kind, Json text) {
  Json config = {{"architectures", {kind.architecture}},
                 {"model_type", kind.model_type},
                 {"vision_config", {{"hidden_size", 4}}},
                 {"torch_dtype", "bfloat16"}};
  for (const char* key : {"quantization_config", "tie_word_embeddings"}) {
    if (!text.contains(key)) continue;
    config[key] = text[key];
    text.erase(key);
  }
  if (config.contains("quantization_config") &&
      config["quantization_config"].contains("ignore")) {
    for (const char* name : {"re:.*vision_tower.*", "language_model.lm_head"}) {
      config["quantization_config"]["ignore"].push_back(name);
    }
  }
  text.update(Json::parse(kind.keys));
  if (!kind.text_type.empty()) text["model_type"] = kind.text_type;
  text.erase("architectures");
  if (kind.flat) {
    text.update(config);
    return text;
  }
  config["text_config"] = std::move(text);
  if (kind.part.empty()) return config;
  Json whole = {{"architectures", config["architectures"]},
                {"model_type", config["model_type"]}};
  whole[kind.part] = std::move(config);
  return whole;
}

// The safetensors file `from` with tensors called as the class does, and
// besides them some that see: one of no known type, one that looks quantised.
inline std::string AroundTensors(const MultimodalClass& kind,
                                 const std::string& from) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, from.data(), sizeof(bytes));
  const Json header = Json::parse(from.substr(8, bytes));
  std::string data = from.substr(8 + bytes);
  Json renamed = Json::object();
  for (const auto& [name, tensor] : header.items()) {
    const std::pair<std::string, std::string> prefixes[] = {
        {"model.", kind.model}, {"lm_head.", kind.head}};
    std::string own = name;
    for (const auto& [plain, inside] : prefixes) {
      if (name.starts_with(plain)) own = inside + name.substr(plain.size());
    }
    renamed[own] = tensor;
  }
  const auto add = [&](const char* name, const char* dtype, size_t size,
                       Json shape) {
    renamed[name] = {{"dtype", dtype},
                     {"shape", std::move(shape)},
                     {"data_offsets", {data.size(), data.size() + size}}};
    data.append(size, '\x7f');
  };
  add("vision_tower.patches.weight", "C128", 32, {2});
  add("model.vision_tower.layers.0.mlp.weight_packed", "I32", 4, {1, 1});
  add("visual.blocks.0.qweight", "I32", 4, {1, 1});
  return SafetensorsFile(DumpJson(renamed)) + data;
}

// Copies the folder of a text model into `to`, as the class has it.
inline void WriteMultimodal(const MultimodalClass& kind,
                            const std::string& text, const TempFolder& to) {
  const Json config = Json::parse(Slurp(text + "/config.json"));
  to.Write("config.json", DumpJson(AroundText(kind, config)));
  to.Write("model.safetensors",
           AroundTensors(kind, Slurp(text + "/model.safetensors")));
}

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_MULTIMODAL_FOLDER_H_
