#include "core/formats/gguf_encoder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/formats/classification_config.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_gemma.h"
#include "core/formats/gguf_metadata.h"
#include "core/formats/gguf_t5.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kEpsilon[] = "attention.layer_norm_epsilon";
constexpr char kCausal[] = "attention.causal";
constexpr char kPooling[] = "pooling_type";
constexpr char kLabelsPooling[] = "classifier.pooling_type";
constexpr char kLabels[] = "classifier.output_labels";
constexpr char kWindow[] = "attention.sliding_window";
constexpr char kWindowPattern[] = "attention.sliding_window_pattern";
constexpr char kActivation[] = "hidden_activation";
constexpr char kMoeEvery[] = "moe_every_n_layers";

// Inlay's own, for what converters leave out: the class in torch.nn that makes
// scores of logits, and whether embeddings get length 1.
constexpr char kOwnScores[] = "inlay.classifier.activation";
constexpr char kOwnNormalise[] = "inlay.embedding.normalise";

// llama.cpp's numbers.
enum PoolingType : int64_t { kNone, kMean, kFirst, kLast, kRank, kEnd };

const WeightInfo* FindInfo(const GgufFiles& files, std::string_view name) {
  const GgufTensor* tensor = files.FindTensor(name);
  return tensor == nullptr ? nullptr : &tensor->info;
}

// id2label of the file's names, or of as many as there are rows.
absl::StatusOr<Json> ReadLabels(const GgufFiles& files,
                                const GgufArchKeys& keys,
                                const WeightInfo& output) {
  INLAY_ASSIGN_OR_RETURN(const auto names,
                         GgufStrings(files.header(), keys.Name(kLabels)));
  const int64_t count = output.shape.size() == 2 ? output.shape[0] : 1;
  constexpr int64_t kMost = int64_t{1} << 20;
  if (count > kMost) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %s has %d rows, allowed: 1 to %d, one a label",
                        Quoted(output.name), count, kMost));
  }
  Json labels = Json::object();
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    labels[FormattedString("%d", i)] = names.has_value() && at < names->size()
                                           ? std::string((*names)[at])
                                           : FormattedString("LABEL_%d", i);
  }
  return labels;
}

absl::Status ReadClassifier(const GgufFiles& files, const GgufArchKeys& keys,
                            Json* config) {
  const WeightInfo* output = FindInfo(files, "cls.output.weight");
  const bool has_first = FindInfo(files, "cls.weight") != nullptr;
  // The first layer alone is of a head that names tokens, whose last one the
  // converter drops.
  if (output == nullptr) return absl::OkStatus();
  if (keys.arch() != "bert" && keys.arch() != "modern-bert") {
    return absl::UnimplementedError(FormattedString(
        "a file of \"%s\" with \"cls.output.weight\", allowed: a classifier in "
        "files of \"bert\" and \"modern-bert\"",
        keys.arch()));
  }
  if (!has_first) {
    return absl::UnimplementedError(
        "the classifier lacks \"cls.weight\": the converter has dropped it; "
        "convert the checkpoint with inlay quantize");
  }
  INLAY_ASSIGN_OR_RETURN((*config)["id2label"],
                         ReadLabels(files, keys, *output));
  (*config)["architectures"] = {keys.arch() == "bert"
                                    ? "BertForSequenceClassification"
                                    : "ModernBertForSequenceClassification"};
  // The mean where no key says otherwise, as llama.cpp has it.
  INLAY_ASSIGN_OR_RETURN(const auto pooling,
                         keys.Int(kLabelsPooling, kMean, kFirst));
  if (keys.arch() == "modern-bert") {
    (*config)["classifier_pooling"] =
        pooling.value_or(kMean) == kMean ? "mean" : "cls";
  }
  (*config)["classifier_bias"] = FindInfo(files, "cls.bias") != nullptr;
  INLAY_ASSIGN_OR_RETURN(const auto scores,
                         GgufString(files.header(), kOwnScores));
  if (scores.has_value()) {
    (*config)["sentence_transformers"] = {{"activation_fn", *scores}};
  }
  return absl::OkStatus();
}

absl::Status ReadModernBert(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  const auto has = [&](std::string_view name) {
    return files.FindTensor(name) != nullptr;
  };
  INLAY_ASSIGN_OR_RETURN(const auto window, keys.Int(kWindow, 0, kMaxGgufSize));
  if (window.value_or(0) > 0) {
    (*config)["local_attention"] = *window;
    const GgufValue* pattern = keys.Find(kWindowPattern);
    if (pattern != nullptr && pattern->is_array) {
      INLAY_RETURN_IF_ERROR(ReadGgufPattern(keys, sizes.layers, false, config));
    } else {
      INLAY_ASSIGN_OR_RETURN(const auto every,
                             keys.Int(kWindowPattern, 1, kMaxGgufLayers));
      (*config)["global_attn_every_n_layers"] = every.value_or(3);
    }
  } else {
    (*config)["global_attn_every_n_layers"] = 1;
  }
  (*config)["norm_bias"] = has("token_embd_norm.bias");
  (*config)["attention_bias"] = has("blk.0.attn_qkv.bias");
  (*config)["mlp_bias"] = has("blk.0.ffn_up.bias");
  INLAY_ASSIGN_OR_RETURN(const auto activation, keys.String(kActivation));
  (*config)["hidden_activation"] = activation.value_or("gelu");
  const struct {
    const char* key;
    const char* name;
  } numbers[] = {{kEpsilon, "norm_eps"},
                 {"rope.freq_base", "global_rope_theta"},
                 {"rope.freq_base_swa", "local_rope_theta"}};
  for (const auto& [key, name] : numbers) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber(key, name, config));
  }
  config->erase("rope_theta");
  return absl::OkStatus();
}

absl::Status CheckBertSizes(const GgufSizes& sizes) {
  if (sizes.kv_heads == sizes.heads &&
      sizes.heads * sizes.head_dim == sizes.hidden) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "%d heads of %d with %d of keys, allowed: as many of both, which make "
      "up the width, %d",
      sizes.heads, sizes.head_dim, sizes.kv_heads, sizes.hidden));
}

// Positions as many as rows, which begin with that of position 0.
absl::Status ReadBert(const GgufFiles& files, Json* config) {
  const WeightInfo* positions = FindInfo(files, "position_embd.weight");
  if (positions == nullptr || positions->shape.size() != 2) {
    return absl::InvalidArgumentError(
        "tensor \"position_embd.weight\" is missing or no matrix");
  }
  (*config)["max_position_embeddings"] = positions->shape[0];
  if (FindInfo(files, "blk.0.attn_qkv.weight") != nullptr ||
      FindInfo(files, "blk.0.ffn_gate.weight") != nullptr) {
    return absl::UnimplementedError(
        "a file of \"bert\" with blk.0.attn_qkv or blk.0.ffn_gate, allowed: q, "
        "k and v apart, MLPs without a gate");
  }
  return absl::OkStatus();
}

// Where a gate has no tensor of its own it is the first half of ffn_up's, but
// for the code model, whose published half it is the second (and llama.cpp
// takes the first).
absl::Status ReadJinaBert(const GgufFiles& files, Json* config) {
  (*config)["position_embedding_type"] = "alibi";
  (*config)["feed_forward_type"] = "geglu";
  if (FindInfo(files, "blk.0.attn_norm_2.weight") == nullptr ||
      FindInfo(files, "blk.0.ffn_gate.weight") != nullptr) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      "a file of \"jina-bert-v2\" with blk.0.attn_norm_2 and without "
      "blk.0.ffn_gate, allowed: gate and up apart; convert the checkpoint with "
      "inlay quantize");
}

// gguf_experts.h has the rest.
absl::Status ReadNomicMoe(const GgufFiles& files, const GgufArchKeys& keys,
                          Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      (*config)["moe_every_n_layers"],
      keys.Required(kMoeEvery, keys.Int(kMoeEvery, 0, kMaxGgufLayers)));
  (*config)["activation_function"] = "gelu";
  (*config)["experts_bias"] = false;
  for (const auto& [tensor, key] :
       {std::pair{"blk.0.attn_qkv.bias", "qkv_proj_bias"},
        std::pair{"blk.0.ffn_up.bias", "mlp_fc1_bias"},
        std::pair{"blk.0.ffn_down.bias", "mlp_fc2_bias"}}) {
    (*config)[key] = files.FindTensor(tensor) != nullptr;
  }
  return absl::OkStatus();
}

// What the Dense modules are, by their tensors; the shapes are checked by
// whoever loads them.
std::vector<DenseModule> ReadDense(const GgufFiles& files) {
  std::vector<DenseModule> modules;
  for (const char* number : {"2", "3"}) {
    const WeightInfo* weight =
        FindInfo(files, FormattedString("dense_%s.weight", number));
    if (weight == nullptr || weight->shape.size() != 2) continue;
    DenseModule& module = modules.emplace_back();
    module.folder = FormattedString("%s_Dense", number);
    module.outputs = weight->shape[0];
    module.inputs = weight->shape[1];
    module.bias =
        FindInfo(files, FormattedString("dense_%s.bias", number)) != nullptr;
  }
  return modules;
}

}  // namespace

bool IsGgufBert(std::string_view arch) {
  return arch == "bert" || arch.starts_with("nomic-bert") ||
         arch == "modern-bert" || arch.starts_with("jina-bert") ||
         IsGgufT5(arch);
}

absl::Status ReadGgufBert(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto causal, keys.Bool(kCausal));
  if (causal.value_or(false)) {
    return absl::UnimplementedError(
        FormattedString("%s is true, allowed: false", keys.Name(kCausal)));
  }
  INLAY_RETURN_IF_ERROR(ReadClassifier(files, keys, config));
  if (IsGgufT5(keys.arch())) return ReadGgufT5(files, keys, sizes, config);
  if (keys.arch() == "modern-bert") {
    return ReadModernBert(files, keys, sizes, config);
  }
  const WeightInfo* types = FindInfo(files, "token_types.weight");
  const bool is_matrix = types != nullptr && types->shape.size() == 2;
  (*config)["type_vocab_size"] = is_matrix ? types->shape[0] : 0;
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(kEpsilon, "layer_norm_eps", config));
  INLAY_RETURN_IF_ERROR(CheckBertSizes(sizes));
  if (keys.arch() == "nomic-bert-moe") return ReadNomicMoe(files, keys, config);
  if (keys.arch() == "jina-bert-v2") return ReadJinaBert(files, config);
  return keys.arch() == "bert" ? ReadBert(files, config) : absl::OkStatus();
}

absl::StatusOr<EmbeddingDefaults> ReadGgufEmbedding(const GgufFiles& files,
                                                    const GgufArchKeys& keys) {
  EmbeddingDefaults defaults;
  INLAY_ASSIGN_OR_RETURN(const auto type, keys.Int(kPooling, -1, kEnd - 1));
  switch (type.value_or(kNone)) {
    case kMean:
      defaults.pooling = Pooling::kMean;
      break;
    case kFirst:
      defaults.pooling = Pooling::kCls;
      break;
    case kLast:
      defaults.pooling = Pooling::kLast;
      break;
    default:
      break;
  }
  INLAY_ASSIGN_OR_RETURN(const auto normalise,
                         GgufBool(files.header(), kOwnNormalise));
  defaults.normalise = normalise.value_or(defaults.pooling != Pooling::kNone);
  defaults.dense = ReadDense(files);
  return defaults;
}

namespace {

// What config.json calls the sizes.
struct Names {
  const char* layers;
  const char* hidden;
  const char* heads;
  const char* inner;
  const char* positions;
  const char* epsilon;
};

Names NamesOf(const GgufKeyWriter& keys) {
  if (keys.arch() == "modern-bert") {
    return {"num_hidden_layers",       "hidden_size",
            "num_attention_heads",     "intermediate_size",
            "max_position_embeddings", "norm_eps"};
  }
  if (keys.model_type() == "distilbert") {
    return {"n_layers",
            "dim",
            "n_heads",
            "hidden_dim",
            "max_position_embeddings",
            "layer_norm_eps"};
  }
  const auto any = [&](const char* usual, const char* own) {
    return keys.AnyOf({usual, own});
  };
  return {any("num_hidden_layers", "n_layer"),
          any("hidden_size", "n_embd"),
          any("num_attention_heads", "n_head"),
          any("intermediate_size", "n_inner"),
          any("max_position_embeddings", "n_positions"),
          any("layer_norm_eps", "layer_norm_epsilon")};
}

// Of a nomic-bert that is stretched those that it was trained for, as when it
// is loaded.
absl::StatusOr<int64_t> Positions(const GgufKeyWriter& keys,
                                  const Names& names) {
  constexpr char kTrained[] = "max_trained_positions";
  INLAY_ASSIGN_OR_RETURN(const int64_t positions, keys.Size(names.positions));
  if (!keys.arch().starts_with("nomic-bert") ||
      !keys.Has("rotary_scaling_factor") || !keys.Has(kTrained)) {
    return positions;
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t trained, keys.Size(kTrained));
  return std::min(positions, trained);
}

absl::Status SetModernBert(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("local_attention", kWindow, 128).status());
  INLAY_ASSIGN_OR_RETURN(const int64_t every,
                         keys.Size("global_attn_every_n_layers", 3));
  const Json* types = JsonFind(keys.config(), "layer_types");
  const bool has_types = types != nullptr && types->is_array();
  for (size_t i = 0; has_types && i < types->size(); ++i) {
    const bool is_full = (*types)[i] == "full_attention";
    if (is_full != (static_cast<int64_t>(i) % every == 0)) {
      return keys.NotSaid("layer_types", *types);
    }
  }
  INLAY_RETURN_IF_ERROR(keys.SetU32(kWindowPattern, every));
  INLAY_ASSIGN_OR_RETURN(
      const std::string activation,
      JsonString(keys.config(), "hidden_activation", "gelu"));
  INLAY_RETURN_IF_ERROR(
      keys.writer().SetString(keys.Name(kActivation), activation));
  // Of both kinds of layers. null: as the others.
  double before = 0.0;
  const Json* ropes = JsonFind(keys.config(), "rope_parameters");
  for (const auto& [kind, key, base, to] :
       {std::tuple{"full_attention", "global_rope_theta", 160000.0,
                   "rope.freq_base"},
        std::tuple{"sliding_attention", "local_rope_theta", 10000.0,
                   "rope.freq_base_swa"}}) {
    const Json* own = ropes == nullptr ? nullptr : JsonFind(*ropes, kind);
    INLAY_ASSIGN_OR_RETURN(
        double theta,
        JsonNumber(keys.config(), key,
                   before > 0.0 && keys.IsNull(key) ? before : base, 1.0,
                   1e15));
    if (own != nullptr && own->is_object()) {
      INLAY_ASSIGN_OR_RETURN(theta,
                             JsonNumber(*own, "rope_theta", theta, 1.0, 1e15));
      INLAY_ASSIGN_OR_RETURN(const std::string type,
                             JsonString(*own, "rope_type", "default"));
      if (type != "default") return keys.NotSaid("rope_parameters", *own);
    }
    INLAY_RETURN_IF_ERROR(keys.SetF32(to, theta));
    before = theta;
  }
  return keys.CopyCount("vocab_size", "vocab_size");
}

// The base, by the family's own key or rope_parameters, and no scaling.
absl::Status SetRopeBase(GgufKeyWriter& keys, const char* key,
                         double fallback) {
  INLAY_ASSIGN_OR_RETURN(double theta,
                         JsonNumber(keys.config(), key, fallback, 1.0, 1e15));
  const Json* scaling = JsonFind(keys.config(), "rope_scaling");
  if (scaling != nullptr) return keys.NotSaid("rope_scaling", *scaling);
  const Json* rope = JsonFind(keys.config(), "rope_parameters");
  if (rope != nullptr) {
    INLAY_ASSIGN_OR_RETURN(theta,
                           JsonNumber(*rope, "rope_theta", theta, 1.0, 1e15));
    INLAY_ASSIGN_OR_RETURN(const std::string type,
                           JsonString(*rope, "rope_type", "default"));
    if (type != "default") return keys.NotSaid("rope_parameters", *rope);
  }
  return keys.SetF32("rope.freq_base", theta);
}

absl::Status SetNomicBert(GgufKeyWriter& keys) {
  if (keys.arch() == "nomic-bert-moe") {
    INLAY_RETURN_IF_ERROR(
        keys.CheckActivation("activation_function", {"gelu"}));
    // Which converters drop.
    INLAY_ASSIGN_OR_RETURN(const bool has_bias,
                           JsonBool(keys.config(), "experts_bias", true));
    if (has_bias) return keys.NotSaid("experts_bias", has_bias);
    for (const auto& [key, to] :
         {std::pair{kMoeEvery, kMoeEvery},
          std::pair{"num_experts", "expert_count"},
          std::pair{"moe_top_k", "expert_used_count"}}) {
      INLAY_RETURN_IF_ERROR(keys.CopySize(key, to).status());
    }
    return SetRopeBase(keys, "rotary_emb_base", 1000.0);
  }
  for (const char* key : {"activation_function", "hidden_act"}) {
    if (!keys.Has(key)) continue;
    INLAY_RETURN_IF_ERROR(keys.CheckActivation(key, {"swiglu", "silu"}));
  }
  return SetRopeBase(keys, "rotary_emb_base", 1000.0);
}

absl::Status SetLabels(GgufKeyWriter& keys, std::string_view architecture) {
  if (!architecture.ends_with("ForSequenceClassification")) {
    return absl::OkStatus();
  }
  if (keys.arch() == "modern-bert") {
    INLAY_ASSIGN_OR_RETURN(
        const std::string pooling,
        JsonString(keys.config(), "classifier_pooling", "cls"));
    if (pooling != "mean" && pooling != "cls") {
      return keys.NotSaid("classifier_pooling", pooling);
    }
    INLAY_RETURN_IF_ERROR(
        keys.SetU32(kLabelsPooling, pooling == "mean" ? kMean : kFirst));
    INLAY_RETURN_IF_ERROR(
        keys.CheckActivation("classifier_activation", {"gelu"}));
  }
  INLAY_ASSIGN_OR_RETURN(const ClassificationDefaults labels,
                         ReadClassificationDefaults(keys.config()));
  if (!labels.activation_name.empty()) {
    INLAY_RETURN_IF_ERROR(
        keys.writer().SetString(kOwnScores, labels.activation_name));
  }
  return keys.writer().SetStrings(keys.Name(kLabels), labels.labels);
}

}  // namespace

absl::Status SetGgufBert(GgufKeyWriter& keys, std::string_view architecture,
                         GgufConfigTensors* tensors) {
  if (IsGgufT5(keys.arch())) return SetGgufT5(keys, tensors);
  const Names names = NamesOf(keys);
  INLAY_RETURN_IF_ERROR(keys.CopySize(names.layers, "block_count").status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(names.hidden, "embedding_length").status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize(names.inner, "feed_forward_length").status());
  INLAY_ASSIGN_OR_RETURN(const int64_t positions, Positions(keys, names));
  INLAY_ASSIGN_OR_RETURN(const int64_t before,
                         PositionsBefore(keys.config(), keys.model_type()));
  INLAY_RETURN_IF_ERROR(
      keys.SetU32("context_length", std::max<int64_t>(positions - before, 1)));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         keys.CopySize(names.heads, "attention.head_count"));
  tensors->heads = {heads, heads};
  const bool is_modern = keys.arch() == "modern-bert";
  const bool is_jina = keys.arch() == "jina-bert-v3";
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(names.epsilon, kEpsilon,
                                        is_modern || is_jina ? 1e-5 : 1e-12));
  INLAY_RETURN_IF_ERROR(keys.SetBool(kCausal, false));
  INLAY_RETURN_IF_ERROR(SetLabels(keys, architecture));
  if (is_modern) return SetModernBert(keys);
  const bool is_distilled = keys.model_type() == "distilbert";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t types,
      JsonInt(keys.config(), "type_vocab_size", is_distilled || is_jina ? 1 : 2,
              0, kMaxGgufSize));
  INLAY_RETURN_IF_ERROR(keys.writer().SetU32("tokenizer.ggml.token_type_count",
                                             static_cast<uint32_t>(types)));
  if (keys.arch().starts_with("nomic-bert")) return SetNomicBert(keys);
  if (is_jina) {
    INLAY_RETURN_IF_ERROR(SetRopeBase(keys, "rope_theta", 20000.0));
  }
  if (keys.arch() == "jina-bert-v2") {
    return keys.CheckActivation("feed_forward_type", {"geglu"});
  }
  return keys.CheckActivation(is_distilled ? "activation" : "hidden_act",
                              {"gelu"});
}

absl::Status SetGgufDirection(GgufKeyWriter& keys) {
  constexpr char kBothWays[] = "use_bidirectional_attention";
  INLAY_ASSIGN_OR_RETURN(const bool causal,
                         JsonFlag(keys.config(), "is_causal", true));
  if (keys.arch() == "gemma-embedding") {
    INLAY_ASSIGN_OR_RETURN(const bool both_ways,
                           JsonBool(keys.config(), kBothWays, false));
    if (!causal) return keys.NotSaid("is_causal", causal);
    return both_ways ? keys.SetBool(kCausal, false)
                     : keys.NotSaid(kBothWays, both_ways);
  }
  if (keys.arch() == "eurobert") return keys.SetBool(kCausal, false);
  for (const char* arch : {"gemma", "gemma2", "gemma3"}) {
    if (keys.arch() != arch) continue;
    INLAY_RETURN_IF_ERROR(keys.Expect(kBothWays, false));
  }
  return causal ? absl::OkStatus() : keys.SetBool(kCausal, false);
}

absl::Status SetGgufEmbedding(const EmbeddingDefaults& embedding,
                              const GgufArch& arch, GgufWriter* writer) {
  const auto name = [&](std::string_view key) {
    return FormattedString("%s.%s", arch.name, key);
  };
  if (!embedding.unsupported.empty()) {
    return absl::UnimplementedError(FormattedString(
        "modules.json: embeddings need %s, which a GGUF file cannot say",
        embedding.unsupported));
  }
  std::string_view before;
  for (const DenseModule& module : embedding.dense) {
    const bool is_named =
        module.folder == "2_Dense" || module.folder == "3_Dense";
    if (arch.name != "gemma-embedding" || module.bias || !is_named ||
        module.folder <= before ||
        module.activation != DenseActivation::kIdentity) {
      return absl::UnimplementedError(FormattedString(
          "modules.json: the module %s, which a GGUF file of \"%s\" cannot "
          "say, allowed: 2_Dense, then 3_Dense, without bias and activation, "
          "in files of \"gemma-embedding\"",
          Quoted(module.folder), arch.name));
    }
    before = module.folder;
    const std::string number = module.folder.substr(0, 1);
    INLAY_RETURN_IF_ERROR(writer->SetU32(name("dense_" + number + "_feat_in"),
                                         static_cast<uint32_t>(module.inputs)));
    INLAY_RETURN_IF_ERROR(
        writer->SetU32(name("dense_" + number + "_feat_out"),
                       static_cast<uint32_t>(module.outputs)));
  }
  PoolingType type = kNone;
  if (embedding.pooling == Pooling::kMean) type = kMean;
  if (embedding.pooling == Pooling::kCls) type = kFirst;
  if (embedding.pooling == Pooling::kLast) type = kLast;
  if (embedding.normalise != (type != kNone)) {
    INLAY_RETURN_IF_ERROR(writer->SetBool(kOwnNormalise, embedding.normalise));
  }
  if (type == kNone) return absl::OkStatus();
  return writer->SetU32(name(kPooling), static_cast<uint32_t>(type));
}

}  // namespace inlay
