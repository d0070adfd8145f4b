#include "core/formats/text_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A line of multimodal.def.
struct Multimodal {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view text_type;
  bool ties = false;
  std::string_view refusal;  // empty: opens
};

constexpr Multimodal kMultimodal[] = {
#define INLAY_MULTIMODAL(architecture, model_type, text_type, ties) \
  {architecture, model_type, text_type, ties, {}},
#define INLAY_NOT_TEXT_ALONE(architecture, model_type, reason) \
  {architecture, model_type, {}, false, reason},
#include "core/formats/multimodal.def"
#undef INLAY_MULTIMODAL
#undef INLAY_NOT_TEXT_ALONE
};

// A text model that is a family under another model_type. `defaults`: what it
// assumes where that family assumes something else. `fixed`: what it has
// whatever its config says. `type` may be the whole's model_type instead: then
// the family's text is meant that is in there.
struct RenamedText {
  std::string_view type;
  std::string_view model_type;
  std::string_view defaults;
  std::string_view fixed;
  bool divides_heads = false;  // head_dim is hidden_size / heads if absent
};

constexpr std::string_view kQwen2VlDefaults =
    R"({"vocab_size":152064,"hidden_size":8192,"intermediate_size":29568,
    "num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,
    "max_position_embeddings":32768,"rms_norm_eps":1e-05,"max_window_layers":80,
    "rope_theta":1000000.0})";
constexpr std::string_view kQwen3VlFixed =
    R"({"use_sliding_window":false,"layer_types":null})";
constexpr RenamedText kRenamed[] = {
    {"qwen2_vl_text", "qwen2", kQwen2VlDefaults, "{}"},
    {"qwen2_5_vl_text", "qwen2", kQwen2VlDefaults, "{}"},
    {"qwen3_vl_text", "qwen3",
     R"({"max_position_embeddings":128000,"rope_theta":500000.0})",
     kQwen3VlFixed},
    {"qwen3_vl_moe_text", "qwen3_moe",
     R"({"intermediate_size":5632,"num_attention_heads":16,
     "num_key_value_heads":16,"max_position_embeddings":128000,
     "rope_theta":500000.0,"moe_intermediate_size":1408,
     "num_experts_per_tok":4,"num_local_experts":60})",
     R"({"use_sliding_window":false,"norm_topk_prob":true})"},
    {"glm4v_text", "glm4",
     R"({"max_position_embeddings":32768,"rms_norm_eps":1e-05,
     "partial_rotary_factor":1.0})",
     R"({"attention_bias":true})", true},
    {"glm4v_moe_text", "glm4_moe",
     R"({"vocab_size":151424,"max_position_embeddings":65536,
     "attention_bias":true})",
     R"({"use_qk_norm":false})"},
    {"gemma4_unified_text", "gemma4_text",
     R"({"max_position_embeddings":262144,"sliding_window":1024})",
     R"({"hidden_size_per_layer_input":0,"enable_moe_block":false})"},
    {"kimi_k2", "deepseek_v3", "{}", "{}"},
    {"qwen2_5_omni_text", "qwen2",
     R"({"vocab_size":152064,"hidden_size":3584,"intermediate_size":18944,
     "num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,
     "max_window_layers":28,"rope_theta":1000000.0})",
     "{}"},
    {"qwen3_omni_moe_text", "qwen3_moe",
     R"({"vocab_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
     "num_attention_heads":28,"norm_topk_prob":true,"rope_theta":1000000.0})",
     R"({"use_sliding_window":false})", true},
    {"granite4_vision_text", "granite", "{}", "{}"},
    {"glm_ocr_text", "glm4",
     R"({"vocab_size":59392,"hidden_size":1024,"intermediate_size":4096,
     "num_hidden_layers":16,"num_attention_heads":16,"num_key_value_heads":8,
     "rms_norm_eps":1e-05,"partial_rotary_factor":1.0})",
     R"({"attention_bias":false})", true},
    {"paddleocr_vl_text", "llama",
     R"({"vocab_size":103424,"hidden_size":1024,"intermediate_size":3072,
     "num_hidden_layers":18,"num_attention_heads":16,"num_key_value_heads":2,
     "head_dim":128,"max_position_embeddings":131072,"rms_norm_eps":1e-05,
     "rope_theta":500000.0})",
     R"({"attention_bias":false,"mlp_bias":false})"},
    {"hunyuan_vl_text", "hunyuan_v1_dense", "{}", R"({"use_qk_norm":true})"},
    {"aria_moe_lm", "aria_text", "{}", "{}"},
    {"glmasr", "llama",
     R"({"vocab_size":59264,"hidden_size":2048,"intermediate_size":6144,
     "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":4,
     "max_position_embeddings":8192,"rms_norm_eps":1e-05})",
     "{}"},
    {"emu3_text_model", "llama",
     R"({"vocab_size":184622,"intermediate_size":14336,"num_key_value_heads":8,
     "max_position_embeddings":9216,"rms_norm_eps":1e-05,
     "rope_theta":1000000.0})",
     R"({"attention_bias":false,"mlp_bias":false})"},
    {"granite_docling_text", "granite",
     R"({"vocab_size":133800,"hidden_size":1024,"intermediate_size":2048,
     "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":4,
     "max_position_embeddings":32768,"rms_norm_eps":1e-05,
     "embedding_multiplier":12.0,"logits_scaling":4.0,
     "residual_multiplier":0.263,"attention_multiplier":0.015625})",
     "{}"},
    {"hy_v4_vl_text", "hy_v4",
     R"({"hidden_size":6144,"intermediate_size":18432,
     "moe_intermediate_size":2048,"num_hidden_layers":78,
     "num_attention_heads":64,"q_lora_rank":2048,"index_n_heads":32})",
     R"({"of_multimodal":true})"},
    {"ernie4_5_vl_moe_text", "ernie4_5_moe", "{}",
     R"({"vision_experts":true})"},
};

// What some call keys of the family that they are.
struct OtherKey {
  std::string_view type;
  const char* key;
  const char* of_family;
};
constexpr OtherKey kOtherKeys[] = {
    {"paddleocr_vl_text", "use_bias", "attention_bias"},
    {"paddleocr_vl_text", "use_bias", "mlp_bias"},
    {"aria_moe_lm", "moe_intermediate_size", "intermediate_size"},
    {"hunyuan_vl_text", "attention_head_dim", "head_dim"},
    {"hunyuan_vl_text", "org_vocab_size", "vocab_size"},
};

// Text models whose keys published files have beside those of the whole.
constexpr std::string_view kFlat[] = {"qwen2_vl_text",        "qwen2_5_vl_text",
                                      "paddleocr_vl_text",    "hunyuan_vl_text",
                                      "ernie4_5_vl_moe_text", "glm5_next_text",
                                      "deepseek_ocr2_text",   "persimmon"};

// Where the text model's modules lie, first match first; old names (published
// ones) and those that transformers 5 writes.
struct Prefix {
  std::string_view stored;
  std::string_view own;
};
constexpr Prefix kPrefixes[] = {
    // What transformers 5 writes of Kimi K2.5's layers.
    {"language_model.model.blocks.", "model.layers."},
    // And of Qianfan-OCR's.
    {"language_model.model.encoder.layers.", "model.layers."},
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    // HyperCLOVA X's published files.
    {"model.language_model.model.", "model."},
    {"model.language_model.lm_head.", "lm_head."},
    {"model.language_model.", "model."},
    // Of what speaks, too, the part that writes.
    {"thinker.model.language_model.", "model."},
    {"thinker.model.embed_tokens.", "model.embed_tokens."},
    {"thinker.model.layers.", "model.layers."},
    {"thinker.model.norm.", "model.norm."},
    {"thinker.lm_head.", "lm_head."},
    {"model.text_model.", "model."},
    // Emu 3's published files.
    {"text_model.model.", "model."},
    {"text_model.lm_head.", "lm_head."},
    {"lm_head.", "lm_head."},
    // Qwen2-VL's, PaddleOCR-VL's, HunYuanVL's, Hy4-VL's and DeepSeek-OCR's
    // published files.
    {"model.embed_tokens.", "model.embed_tokens."},
    {"model.layers.", "model.layers."},
    {"model.norm.", "model.norm."},
    // Mistral Large 4's, which are Mistral's own.
    {"tok_embeddings.", "tok_embeddings."},
    {"lerope.", "lerope."},
    {"layers.", "layers."},
    {"norm.", "norm."},
    {"output.", "output."},
    // Hy4's, of all streams.
    {"model.hc_pre.", "model.hc_pre."},
    {"model.hc_head.", "model.hc_head."},
};

std::string FirstArchitecture(const Json& config) {
  const Json* list = JsonFind(config, "architectures");
  if (list == nullptr || !list->is_array() || list->empty() ||
      !list->front().is_string()) {
    return "";
  }
  return list->front().get<std::string>();
}

const Multimodal* FindClass(const Json& config) {
  const std::string name = FirstArchitecture(config);
  const Json* type = JsonFind(config, "model_type");
  for (const Multimodal& row : kMultimodal) {
    if (name.empty() ? type != nullptr && type->is_string() &&
                           type->get_ref<const std::string&>() == row.model_type
                     : name == row.architecture) {
      return &row;
    }
  }
  return nullptr;
}

// What text_config stands in: the whole, or, of a model that speaks as well,
// the part that writes.
absl::StatusOr<const Json*> AroundText(const Json& config) {
  const Json* thinker = JsonFind(config, "thinker_config");
  if (thinker == nullptr) return &config;
  if (thinker->is_object()) return thinker;
  return absl::InvalidArgumentError(
      FormattedString("config.json: thinker_config is %s, allowed: an object",
                      thinker->type_name()));
}

// The text model's own keys; of kFlat they may stand beside the others.
absl::StatusOr<Json> OwnConfig(const Json& config, const Multimodal& row) {
  const Json* text = JsonFind(config, "text_config");
  if (text == nullptr && std::find(std::begin(kFlat), std::end(kFlat),
                                   row.text_type) != std::end(kFlat)) {
    Json own = config;
    own.erase("vision_config");
    own.erase("model_type");
    return own;
  }
  if (text == nullptr || !text->is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: text_config is %s, allowed: an object",
                        text == nullptr ? "missing" : text->type_name()));
  }
  if (JsonFind(*text, "text_config") != nullptr) {
    return absl::InvalidArgumentError(
        "config.json: text_config has a text_config itself, allowed: none");
  }
  return *text;
}

absl::StatusOr<bool> Ties(const Json& config, const Json& own, bool fallback) {
  INLAY_ASSIGN_OR_RETURN(const bool text,
                         JsonBool(own, "tie_word_embeddings", false));
  INLAY_ASSIGN_OR_RETURN(const bool outer,
                         JsonBool(config, "tie_word_embeddings", fallback));
  // LFM2-VL's.
  INLAY_ASSIGN_OR_RETURN(const bool named,
                         JsonBool(config, "tie_embedding", outer));
  return text || named;
}

void TakeFromOutside(const Json& config, Json* own) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id",
                          "dtype", "torch_dtype"}) {
    const Json* outer = JsonFind(config, key);
    if (outer != nullptr && JsonFind(*own, key) == nullptr) {
      (*own)[key] = *outer;
    }
  }
  const Json* settings = JsonFind(config, "quantization_config");
  if (settings != nullptr) (*own)["quantization_config"] = *settings;
}

void MakePlain(Json* rope) {
  for (const char* name : {"type", "rope_type"}) {
    const auto type = rope->find(name);
    if (type == rope->end()) continue;
    if (*type == "mrope") *type = "default";
    if (*type == "xdrope") *type = "dynamic";
  }
  for (const char* name :
       {"mrope_section", "mrope_interleaved", "xdrope_section"}) {
    rope->erase(name);
  }
}

// Of text all rows of positions are equal, whatever the sections.
void MakePlainRope(Json* own) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto found = own->find(key);
    if (found == own->end() || !found->is_object()) continue;
    MakePlain(&*found);
    for (const char* type : {"full_attention", "sliding_attention"}) {
      const auto nested = found->find(type);
      if (nested != found->end() && nested->is_object()) MakePlain(&*nested);
    }
  }
}

// Of what text and images have each, text's.
void TakeFirst(Json* own) {
  for (const char* key : {"moe_num_experts", "moe_intermediate_size",
                          "moe_layer_start_index", "moe_layer_end_index"}) {
    const auto found = own->find(key);
    if (found == own->end() || !found->is_array() || found->empty()) continue;
    Json first = found->front();
    *found = std::move(first);
  }
}

absl::Status Rename(const RenamedText& row, Json* own) {
  if (row.type == "ernie4_5_vl_moe_text") TakeFirst(own);
  INLAY_ASSIGN_OR_RETURN(const Json defaults,
                         ParseJson(row.defaults, "defaults"));
  for (const auto& [key, value] : defaults.items()) {
    // Another name of the same.
    const char* other = key == "num_local_experts" ? "num_experts" : "";
    if (!own->contains(key) && !own->contains(other)) (*own)[key] = value;
  }
  INLAY_ASSIGN_OR_RETURN(const Json fixed, ParseJson(row.fixed, "fixed"));
  for (const auto& [key, value] : fixed.items()) (*own)[key] = value;
  for (const OtherKey& other : kOtherKeys) {
    const Json* value = JsonFind(*own, other.key);
    if (other.type != row.type || value == nullptr) continue;
    Json copy = *value;
    (*own)[other.of_family] = std::move(copy);
  }
  (*own)["model_type"] = std::string(row.model_type);
  if (!row.divides_heads || JsonFind(*own, "head_dim") != nullptr) {
    return absl::OkStatus();
  }
  constexpr int64_t kMost = int64_t{1} << 20;
  INLAY_ASSIGN_OR_RETURN(const int64_t hidden,
                         JsonInt(*own, "hidden_size", 4096, 1, kMost));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         JsonInt(*own, "num_attention_heads", 32, 1, kMost));
  (*own)["head_dim"] = std::max<int64_t>(1, hidden / heads);
  return absl::OkStatus();
}

class TextSource final : public WeightSource {
 public:
  struct Entry {
    WeightInfo info;
    const WeightInfo* stored = nullptr;
  };

  TextSource(std::shared_ptr<const WeightSource> stored,
             std::vector<Entry> entries)
      : stored_(std::move(stored)) {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) {
                return a.info.name < b.info.name;
              });
    for (Entry& entry : entries) {
      infos_.push_back(std::move(entry.info));
      from_.push_back(entry.stored);
    }
  }

  absl::Status CheckNamesDiffer() const {
    for (size_t i = 1; i < infos_.size(); ++i) {
      if (infos_[i - 1].name != infos_[i].name) continue;
      return absl::InvalidArgumentError(FormattedString(
          "tensors %s and %s are both the text model's %s, allowed: one",
          Quoted(from_[i - 1]->name), Quoted(from_[i]->name),
          Quoted(infos_[i].name)));
    }
    return absl::OkStatus();
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const WeightInfo* own = Find(info.name);
    return own == nullptr ? nullptr
                          : stored_->Mapped(*from_[own - infos_.data()]);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const WeightInfo* own = Find(info.name);
    if (own == nullptr) {
      return absl::NotFoundError(FormattedString(
          "tensor %s does not come from these files", Quoted(info.name)));
    }
    return stored_->Read(*from_[own - infos_.data()], offset, destination);
  }

 private:
  std::shared_ptr<const WeightSource> stored_;
  std::vector<WeightInfo> infos_;
  std::vector<const WeightInfo*> from_;  // of infos_
};

std::string SupportedClasses() {
  std::string names;
  for (const Multimodal& row : kMultimodal) {
    if (!row.refusal.empty()) continue;
    names.append(names.empty() ? "" : ", ").append(row.architecture);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::optional<TextModel>> FindTextModel(const Json& config) {
  const Multimodal* row = FindClass(config);
  if (row == nullptr || !row->refusal.empty()) return std::nullopt;
  TextModel model;
  INLAY_ASSIGN_OR_RETURN(const Json* around, AroundText(config));
  INLAY_ASSIGN_OR_RETURN(model.config, OwnConfig(*around, *row));
  Json& own = model.config;
  INLAY_ASSIGN_OR_RETURN(model.type,
                         JsonString(own, "model_type", row->text_type));
  INLAY_ASSIGN_OR_RETURN(const bool ties, Ties(*around, own, row->ties));
  own["model_type"] = model.type;
  own["tie_word_embeddings"] = ties;
  own.erase("architectures");
  TakeFromOutside(*around, &own);
  if (around != &config) TakeFromOutside(config, &own);
  MakePlainRope(&own);
  for (const RenamedText& renamed : kRenamed) {
    const bool is_whole =
        renamed.type == row->model_type && renamed.model_type == model.type;
    if (renamed.type != model.type && !is_whole) continue;
    INLAY_RETURN_IF_ERROR(Rename(renamed, &own));
  }
  return model;
}

absl::Status WhyNoTextModel(const Json& config) {
  const Multimodal* row = FindClass(config);
  const Json* text = JsonFind(config, "text_config");
  if (row == nullptr && text == nullptr) return absl::OkStatus();
  if (row != nullptr && row->refusal.empty()) return absl::OkStatus();
  const Json* type = text == nullptr ? nullptr : JsonFind(*text, "model_type");
  const std::string family =
      type != nullptr && type->is_string()
          ? FormattedString(" around a text model of model_type %s",
                            Quoted(type->get<std::string>()))
          : std::string();
  const std::string name = row != nullptr ? std::string(row->architecture)
                                          : FirstArchitecture(config);
  return absl::UnimplementedError(FormattedString(
      "config.json is of the multimodal class %s%s, which is not supported%s; "
      "multimodal classes whose text model is supported are %s",
      Quoted(name), family,
      row == nullptr ? std::string() : FormattedString(" (%s)", row->refusal),
      SupportedClasses()));
}

std::optional<std::string> TextModelName(std::string_view stored) {
  for (const Prefix& prefix : kPrefixes) {
    if (!stored.starts_with(prefix.stored)) continue;
    return std::string(prefix.own).append(stored.substr(prefix.stored.size()));
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentTextModel(
    std::shared_ptr<const WeightSource> stored) {
  std::vector<TextSource::Entry> entries;
  for (const WeightInfo& info : stored->weights()) {
    std::optional<std::string> name = TextModelName(info.name);
    if (!name.has_value()) continue;
    entries.push_back({info, &info});
    entries.back().info.name = *std::move(name);
  }
  auto source =
      std::make_shared<TextSource>(std::move(stored), std::move(entries));
  INLAY_RETURN_IF_ERROR(source->CheckNamesDiffer());
  return source;
}

void RenameQuantizedLayers(Json* settings) {
  if (!settings->is_object()) return;
  const auto layers = settings->find("quantized_layers");
  if (layers == settings->end() || !layers->is_object()) return;
  Json renamed = Json::object();
  for (const auto& [layer, own] : layers->items()) {
    // A module's name ends where its tensors' go on.
    const auto name = TextModelName(layer + ".");
    if (name.has_value()) renamed[name->substr(0, name->size() - 1)] = own;
  }
  *layers = std::move(renamed);
}

}  // namespace inlay
