#include "core/formats/gguf_arch.h"

#include <algorithm>
#include <iterator>

#include "core/formats/describe.h"
#include "core/formats/gguf_deepseek4_names.h"
#include "core/formats/gguf_encoder_names.h"
#include "core/formats/gguf_expert_names.h"
#include "core/formats/gguf_gemma_names.h"
#include "core/formats/gguf_gpt_names.h"
#include "core/formats/gguf_llama_names.h"
#include "core/formats/gguf_minimax_names.h"
#include "core/formats/gguf_names.h"
#include "core/formats/gguf_recurrent_names.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

using enum GgufLayout;

// Files of Mistral, InternLM 3, IQuest-Coder, Yi and Aquila 2 say "llama". Of
// rows with one name files have the first; the keys tell the others
// (gguf_config.h). Of rows with one architecture the first is what is written:
// text models of Qwen's multimodal ones are written as what they are.
constexpr GgufArch kArchs[] = {
    {"llama", "LlamaForCausalLM", "llama", gguf_names::kLlama},
    {"llama", "MixtralForCausalLM", "mixtral", gguf_names::kLlama},
    {"llama", "InternLM3ForCausalLM", "internlm3", gguf_names::kLlama},
    {"llama", "IQuestCoderForCausalLM", "iquestcoder", gguf_names::kLlama},
    {"llama", "YiForCausalLM", "Yi", gguf_names::kLlama},
    {"llama", "AquilaForCausalLM", "aquila", gguf_names::kLlama},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", gguf_names::kQwen},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", gguf_names::kQwen},
    {"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe", gguf_names::kQwenMoe},
    {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", gguf_names::kQwenMoe},
    {"qwen2vl", "Qwen2ForCausalLM", "qwen2", gguf_names::kQwen},
    {"qwen3vl", "Qwen3ForCausalLM", "qwen3", gguf_names::kQwen},
    {"qwen3vlmoe", "Qwen3MoeForCausalLM", "qwen3_moe", gguf_names::kQwenMoe},
    {"gpt-oss", "GptOssForCausalLM", "gpt_oss", gguf_names::kGptOss},
    {"gemma", "GemmaForCausalLM", "gemma", gguf_names::kGemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", gguf_names::kGemma2And3},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", gguf_names::kGemma2And3},
    {"phi3", "Phi3ForCausalLM", "phi3", gguf_names::kPhi3},
    {"gpt2", "GPT2LMHeadModel", "gpt2", gguf_names::kGpt2},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", gguf_names::kPostNorms},
    {"olmo2", "Olmo3ForCausalLM", "olmo3", gguf_names::kPostNorms},
    {"granite", "GraniteForCausalLM", "granite", gguf_names::kLlama},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2",
     gguf_names::kStarcoder2},
    {"glm4", "Glm4ForCausalLM", "glm4", gguf_names::kGlm4},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", gguf_names::kLlama},
    {"exaone4", "Exaone4ForCausalLM", "exaone4", gguf_names::kPostNorms},
    {"cohere2", "Cohere2ForCausalLM", "cohere2", gguf_names::kCohere2},
    {"cohere2moe", "Cohere2MoeForCausalLM", "cohere2_moe",
     gguf_names::kCohere2},
    {"qwen3next", "Qwen3NextForCausalLM", "qwen3_next", gguf_names::kQwen3Next},
    {"qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text", gguf_names::kQwen35},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
     gguf_names::kQwen35Moe},
    {"nemotron_h", "NemotronHForCausalLM", "nemotron_h",
     gguf_names::kNemotronH},
    {"nemotron_h_moe", "NemotronHForCausalLM", "nemotron_h",
     gguf_names::kNemotronH},
    {"lfm2", "Lfm2ForCausalLM", "lfm2", gguf_names::kLfm2},
    {"lfm2moe", "Lfm2MoeForCausalLM", "lfm2_moe", gguf_names::kLfm2},
    {"kimi-linear", "KimiLinearForCausalLM", "kimi_linear",
     gguf_names::kKimiLinear},
    {"deepseek2", "DeepseekV2ForCausalLM", "deepseek_v2",
     gguf_names::kDeepseek2},
    {"deepseek2", "DeepseekV3ForCausalLM", "deepseek_v3",
     gguf_names::kDeepseek2},
    {"deepseek2", "Glm4MoeLiteForCausalLM", "glm4_moe_lite",
     gguf_names::kDeepseek2},
    {"deepseek2", "YoutuForCausalLM", "youtu", gguf_names::kDeepseek2},
    {"deepseek2-ocr", "DeepseekOcr2ForCausalLM", "deepseek_ocr2_text",
     gguf_names::kDots1},
    {"deepseek32", "DeepseekV32ForCausalLM", "deepseek_v32",
     gguf_names::kDeepseek2},
    {"deepseek4", "DeepseekV4ForCausalLM", "deepseek_v4",
     gguf_names::kDeepseek4},
    {"glm-dsa", "GlmMoeDsaForCausalLM", "glm_moe_dsa", gguf_names::kDeepseek2},
    {"glm4moe", "Glm4MoeForCausalLM", "glm4_moe", gguf_names::kGlm4Moe},
    {"glm4moe", "SolarOpenForCausalLM", "solar_open", gguf_names::kGlm4Moe},
    {"bailingmoe2", "SarvamMoEForCausalLM", "sarvam_moe",
     gguf_names::kBailingMoe2},
    {"bailingmoe2", "BailingMoeV2ForCausalLM", "bailing_moe_v2",
     gguf_names::kBailingMoe2},
    {"bailingmoe", "BailingMoeForCausalLM", "bailing_moe",
     gguf_names::kBailingMoe},
    {"minimax-m2", "MiniMaxM2ForCausalLM", "minimax_m2",
     gguf_names::kMiniMaxM2},
    {"llama4", "Llama4ForCausalLM", "llama4_text", gguf_names::kLlama4},
    {"gemma3n", "Gemma3nForCausalLM", "gemma3n_text", gguf_names::kGemma3n},
    {"gemma4", "Gemma4ForCausalLM", "gemma4_text", gguf_names::kGemma4},
    {"granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
     gguf_names::kGraniteHybrid},
    {"granitemoe", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
     gguf_names::kGraniteHybrid},
    {"granitemoe", "GraniteMoeForCausalLM", "granitemoe",
     gguf_names::kGraniteHybrid},
    {"granitemoe", "GraniteMoeSharedForCausalLM", "granitemoeshared",
     gguf_names::kGraniteHybrid},
    {"falcon-h1", "FalconH1ForCausalLM", "falcon_h1", gguf_names::kFalconH1},
    {"mamba2", "Mamba2ForCausalLM", "mamba2", gguf_names::kNemotronH},
    {"mamba", "MambaForCausalLM", "mamba", gguf_names::kMamba},
    {"mamba", "FalconMambaForCausalLM", "falcon_mamba", gguf_names::kMamba},
    {"rwkv7", "RWKV7ForCausalLM", "rwkv7", gguf_names::kRwkv7},
    {"jamba", "JambaForCausalLM", "jamba", gguf_names::kJamba},
    {"gptneox", "GPTNeoXForCausalLM", "gpt_neox", gguf_names::kGptNeox},
    {"command-r", "CohereForCausalLM", "cohere", gguf_names::kCommandR},
    {"dots1", "Dots1ForCausalLM", "dots1", gguf_names::kDots1},
    {"mistral3", "Ministral3ForCausalLM", "ministral3", gguf_names::kLlama},
    {"baichuan", "BaichuanForCausalLM", "baichuan", gguf_names::kLlama},
    {"baichuan", "BaiChuanForCausalLM", "baichuan", gguf_names::kLlama},
    {"qwen", "QWenLMHeadModel", "qwen", gguf_names::kQwen1},
    {"xverse", "XverseForCausalLM", "xverse", gguf_names::kLlama},
    {"internlm2", "InternLM2ForCausalLM", "internlm2", gguf_names::kInternLm2},
    {"minicpm", "MiniCPMForCausalLM", "minicpm", gguf_names::kLlama},
    {"orion", "OrionForCausalLM", "orion", gguf_names::kQwen},
    {"deepseek", "DeepseekForCausalLM", "deepseek", gguf_names::kDeepseek},
    {"minicpm3", "MiniCPM3ForCausalLM", "minicpm3", gguf_names::kMiniCpm3},
    {"olmoe", "OlmoeForCausalLM", "olmoe", gguf_names::kQwenMoe},
    {"seed_oss", "SeedOssForCausalLM", "seed_oss", gguf_names::kSeedOss},
    {"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", gguf_names::kErnie45},
    {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe",
     gguf_names::kErnie45},
    {"arcee", "ArceeForCausalLM", "arcee", gguf_names::kLlama},
    {"phi2", "PhiForCausalLM", "phi", gguf_names::kPhi2},
    {"nemotron", "NemotronForCausalLM", "nemotron", gguf_names::kNemotron},
    {"olmo", "OlmoForCausalLM", "olmo", gguf_names::kLlama},
    {"stablelm", "StableLmForCausalLM", "stablelm", gguf_names::kStableLm},
    {"falcon", "FalconForCausalLM", "falcon", gguf_names::kFalcon},
    {"bloom", "BloomForCausalLM", "bloom", gguf_names::kBloom},
    {"mpt", "MptForCausalLM", "mpt", gguf_names::kMpt},
    {"mpt", "MPTForCausalLM", "mpt", gguf_names::kMpt},
    {"dbrx", "DbrxForCausalLM", "dbrx", gguf_names::kDbrx},
    {"starcoder", "GPTBigCodeForCausalLM", "gpt_bigcode",
     gguf_names::kStarcoder},
    {"mistral4", "Mistral4ForCausalLM", "mistral4", gguf_names::kDeepseek2},
    {"exaone", "ExaoneForCausalLM", "exaone", gguf_names::kExaone},
    {"hunyuan-dense", "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense",
     gguf_names::kHunyuan},
    {"hunyuan-moe", "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe",
     gguf_names::kHunyuan},
    {"apertus", "ApertusForCausalLM", "apertus", gguf_names::kApertus},
    {"chatglm", "GlmForCausalLM", "glm", gguf_names::kChatGlm},
    {"afmoe", "AfmoeForCausalLM", "afmoe", gguf_names::kAfmoe},
    {"phimoe", "PhimoeForCausalLM", "phimoe", gguf_names::kPhimoe},
    {"phimoe", "PhiMoEForCausalLM", "phimoe", gguf_names::kPhimoe},
    {"jais2", "Jais2ForCausalLM", "jais2", gguf_names::kJais2},
    {"smallthinker", "SmallThinkerForCausalLM", "smallthinker",
     gguf_names::kSmallThinker},
    {"grovemoe", "GroveMoeForCausalLM", "grove_moe", gguf_names::kGroveMoe},
    {"arctic", "ArcticForCausalLM", "arctic", gguf_names::kArctic},
    {"plm", "PLMForCausalLM", "plm", gguf_names::kPlm},
    {"laguna", "LagunaForCausalLM", "laguna", gguf_names::kLaguna},
    {"step35", "Step3p5ForCausalLM", "step3p5", gguf_names::kStep35},
    {"mimo2", "MiMoV2FlashForCausalLM", "mimo_v2_flash", gguf_names::kMimo2},
    {"mellum", "MellumForCausalLM", "mellum", gguf_names::kQwenMoe},
    {"hy_v3", "HYV3ForCausalLM", "hy_v3", gguf_names::kHyV3},
    {"muse-glimmer", "MuseGlimmerForCausalLM", "muse_glimmer_text",
     gguf_names::kMuseGlimmer},
    {"exaone-moe", "ExaoneMoeForCausalLM", "exaone_moe",
     gguf_names::kExaoneMoe},
    {"exaone-moe", "ExaoneMoEForCausalLM", "exaone_moe",
     gguf_names::kExaoneMoe},
    {"deci", "DeciLMForCausalLM", "nemotron-nas", gguf_names::kLlama},
    {"deci", "DeciLMForCausalLM", "deci", gguf_names::kLlama},
    {"openelm", "OpenELMForCausalLM", "openelm", gguf_names::kOpenElm},
    {"granite_swa", "GraniteSWAForCausalLM", "granite_swa",
     gguf_names::kGraniteSwa},
    {"granite_swa", "GraniteMoeSWAForCausalLM", "granitemoe_swa",
     gguf_names::kGraniteSwa},
    {"minimax-01", "MiniMaxForCausalLM", "minimax", gguf_names::kMiniMax01},
    {"minimax-m3", "MiniMaxM3VLForCausalLM", "minimax_m3_vl_text",
     gguf_names::kMiniMaxM3},
    {"llama-embed", "LlamaForCausalLM", "llama", gguf_names::kLlama},
    {"gemma-embedding", "Gemma3TextModel", "gemma3_text",
     gguf_names::kGemmaEmbedding},
    {"bert", "BertModel", "bert", gguf_names::kBert},
    {"bert", "BertForMaskedLM", "bert", gguf_names::kBert},
    {"bert", "BertForSequenceClassification", "bert", gguf_names::kBert},
    {"bert", "RobertaModel", "roberta", gguf_names::kRoberta},
    {"bert", "RobertaForMaskedLM", "roberta", gguf_names::kRoberta},
    {"bert", "RobertaForSequenceClassification", "roberta",
     gguf_names::kRoberta},
    {"bert", "XLMRobertaModel", "xlm-roberta", gguf_names::kRoberta},
    {"bert", "XLMRobertaForMaskedLM", "xlm-roberta", gguf_names::kRoberta},
    {"bert", "XLMRobertaForSequenceClassification", "xlm-roberta",
     gguf_names::kRoberta},
    {"bert", "CamembertModel", "camembert", gguf_names::kRoberta},
    {"bert", "CamembertForMaskedLM", "camembert", gguf_names::kRoberta},
    {"bert", "CamembertForSequenceClassification", "camembert",
     gguf_names::kRoberta},
    {"bert", "DistilBertModel", "distilbert", gguf_names::kDistilBert},
    {"bert", "DistilBertForMaskedLM", "distilbert", gguf_names::kDistilBert},
    {"nomic-bert", "NomicBertModel", "nomic_bert", gguf_names::kNomicBert},
    {"nomic-bert-moe", "NomicBertModel", "nomic_bert",
     gguf_names::kNomicBertMoe},
    {"jina-bert-v3", "JinaEmbeddingsV3Model", "jina_embeddings_v3",
     gguf_names::kJinaBertV3},
    {"jina-bert-v3", "JinaEmbeddingsV3ForMaskedLM", "jina_embeddings_v3",
     gguf_names::kJinaBertV3},
    {"jina-bert-v2", "JinaBertModel", "jina_bert", gguf_names::kJinaBertV2},
    {"jina-bert-v2", "JinaBertForMaskedLM", "jina_bert",
     gguf_names::kJinaBertV2},
    {"eurobert", "EuroBertModel", "eurobert", gguf_names::kEuroBert},
    {"eurobert", "EuroBertForMaskedLM", "eurobert", gguf_names::kEuroBert},
    {"modern-bert", "ModernBertModel", "modernbert", gguf_names::kModernBert},
    {"modern-bert", "ModernBertForMaskedLM", "modernbert",
     gguf_names::kModernBert},
    {"modern-bert", "ModernBertForSequenceClassification", "modernbert",
     gguf_names::kModernBert},
    {"t5encoder", "T5EncoderModel", "t5", gguf_names::kT5},
    {"t5encoder", "T5Model", "t5", gguf_names::kT5},
    {"t5encoder", "T5ForConditionalGeneration", "t5", gguf_names::kT5},
    {"t5encoder", "T5WithLMHeadModel", "t5", gguf_names::kT5},
    {"t5encoder", "MT5EncoderModel", "mt5", gguf_names::kT5},
    {"t5encoder", "MT5Model", "mt5", gguf_names::kT5},
    {"t5encoder", "MT5ForConditionalGeneration", "mt5", gguf_names::kT5},
    {"t5encoder", "UMT5EncoderModel", "umt5", gguf_names::kT5},
    {"t5encoder", "UMT5Model", "umt5", gguf_names::kT5},
    {"t5encoder", "UMT5ForConditionalGeneration", "umt5", gguf_names::kT5},
    {"t5", "T5EncoderModel", "t5", gguf_names::kT5},
};

// The number that stands in `text` where `pattern` has its '#'; empty for a
// pattern without one. Nullopt where they do not match.
std::optional<std::string_view> MatchLayer(std::string_view pattern,
                                           std::string_view text) {
  const size_t hash = pattern.find('#');
  if (hash == pattern.npos) {
    if (pattern != text) return std::nullopt;
    return std::string_view();
  }
  const std::string_view before = pattern.substr(0, hash);
  const std::string_view after = pattern.substr(hash + 1);
  if (text.size() <= before.size() + after.size() ||
      !text.starts_with(before) || !text.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view layer =
      text.substr(before.size(), text.size() - before.size() - after.size());
  if (layer.find_first_not_of("0123456789") != layer.npos) return std::nullopt;
  return layer;
}

// `from` and `to` are the columns of the table.
std::optional<TensorName> Translate(const GgufArch& arch, std::string_view name,
                                    std::string_view GgufName::*from,
                                    std::string_view GgufName::*to) {
  const size_t dot = std::min(name.rfind('.'), name.size());
  const std::string_view suffix = name.substr(dot);
  const bool is_bias = suffix == ".bias";
  for (const GgufName& row : arch.names) {
    // Published names of these have no ".weight" to go by.
    const bool is_bare = row.layout == kBareName && to == &GgufName::gguf;
    const bool whole =
        row.layout == kWhole || row.layout == kLogOfMinus || is_bare;
    if (!whole && !is_bias && suffix != ".weight") continue;
    const auto layer =
        MatchLayer(row.*from, whole ? name : name.substr(0, dot));
    if (!layer.has_value()) continue;
    TensorName result = {std::string(row.*to), row.layout};
    const size_t hash = result.name.find('#');
    if (hash != std::string::npos) result.name.replace(hash, 1, *layer);
    if (!whole && (row.layout != kBareName || is_bias)) result.name += suffix;
    if (is_bare) result.name += ".weight";
    if (is_bias && (row.layout == kTransposed || row.layout == kPlusOne ||
                    row.layout == kTaps)) {
      result.layout = kSame;
    }
    return result;
  }
  return std::nullopt;
}

// Of rows with one model_type: Nemotron and nomic-bert with experts and
// without, Granite with mixers and without. ERNIE 4.5 VL's experts have no row.
bool IsArchOf(const GgufArch& arch, const Json& config) {
  if (arch.model_type == "ernie4_5_moe") {
    const Json* vision = JsonFind(config, "vision_experts");
    return vision == nullptr || *vision == false;
  }
  if (arch.model_type == "nomic_bert") {
    const Json* every = JsonFind(config, "moe_every_n_layers");
    const bool has_experts = every != nullptr && *every != 0;
    return has_experts == (arch.name == "nomic-bert-moe");
  }
  if (arch.model_type == "nemotron_h") {
    const bool has_experts =
        NemotronPattern(config).find('E') != std::string::npos;
    return has_experts == (arch.name == "nemotron_h_moe");
  }
  if (arch.model_type != "granitemoehybrid") return true;
  const Json* types = JsonFind(config, "layer_types");
  bool has_mixers = types == nullptr;
  const bool is_list = types != nullptr && types->is_array();
  for (size_t i = 0; is_list && i < types->size(); ++i) {
    has_mixers |= (*types)[i] == "mamba" || (*types)[i] == "linear_attention";
  }
  return has_mixers == (arch.name == "granitehybrid");
}

}  // namespace

absl::StatusOr<const GgufArch*> FindGgufArch(std::string_view name) {
  std::string known;
  std::string_view last;
  for (const GgufArch& arch : kArchs) {
    if (arch.name == name) return &arch;
    if (arch.name == last) continue;
    last = arch.name;
    if (!known.empty()) known += ", ";
    known += arch.name;
  }
  return absl::UnimplementedError(FormattedString(
      "general.architecture is %s, allowed: %s", Quoted(name), known));
}

absl::StatusOr<const GgufArch*> FindGgufArchOf(const Json& config) {
  std::string known;
  const Json* list = JsonFind(config, "architectures");
  const bool is_listed = list != nullptr && list->is_array() &&
                         !list->empty() && list->front().is_string();
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(config, "model_type", ""));
  std::string name = is_listed ? list->front().get<std::string>() : type;
  // The network without its head: files without one have it tied. Multimodal
  // networks are called as their text models' are.
  constexpr std::string_view kBare = "Model";
  const bool has_row = std::any_of(
      std::begin(kArchs), std::end(kArchs),
      [&](const GgufArch& arch) { return arch.architecture == name; });
  const bool is_text = JsonFind(config, "text_config") == nullptr;
  if (!has_row && is_text && name.ends_with(kBare)) {
    name.replace(name.size() - kBare.size(), kBare.size(), "ForCausalLM");
  }
  if (name == "MistralForCausalLM" || name == "mistral") {
    return FindGgufArch("llama");
  }
  for (const GgufArch& arch : kArchs) {
    const bool is_named =
        name == arch.architecture || (!is_listed && name == arch.model_type);
    if (is_named && IsArchOf(arch, config)) return &arch;
    known += std::string(arch.architecture) + ", ";
  }
  return absl::UnimplementedError(
      FormattedString("the architecture %s has no GGUF name, allowed: "
                      "%sMistralForCausalLM",
                      Quoted(name), known));
}

std::string_view GgufJoinedQkv(std::string_view model_type) {
  if (model_type == "gpt_neox" || model_type == "glm" ||
      model_type == "openelm") {
    return "qkv_proj";
  }
  if (model_type == "gpt_bigcode") return "c_attn";
  const bool is_other = model_type == "bloom" || model_type == "falcon" ||
                        model_type == "sarvam_moe" ||
                        model_type == "bailing_moe_v2";
  return is_other ? "query_key_value" : std::string_view();
}

absl::StatusOr<int64_t> PositionsBefore(const Json& config,
                                        std::string_view model_type) {
  if (model_type != "roberta" && model_type != "xlm-roberta" &&
      model_type != "camembert") {
    return 0;
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t padding,
      JsonInt(config, "pad_token_id", 1, 0, int64_t{1} << 24));
  return padding + 1;
}

std::string NemotronPattern(const Json& config) {
  const Json* list = JsonFind(config, "layers_block_type");
  const Json* pattern = JsonFind(config, "hybrid_override_pattern");
  if (list == nullptr || !list->is_array()) {
    return pattern != nullptr && pattern->is_string()
               ? pattern->get<std::string>()
               : std::string();
  }
  std::string letters;
  for (const Json& type : *list) {
    letters += type == "mamba" || type == "linear_attention"     ? 'M'
               : type == "attention" || type == "full_attention" ? '*'
               : type == "moe"                                   ? 'E'
                                                                 : '-';
  }
  return letters;
}

std::optional<TensorName> PublishedTensorName(const GgufArch& arch,
                                              std::string_view gguf) {
  return Translate(arch, gguf, &GgufName::gguf, &GgufName::published);
}

std::optional<TensorName> GgufTensorName(const GgufArch& arch,
                                         std::string_view published) {
  return Translate(arch, published, &GgufName::published, &GgufName::gguf);
}

}  // namespace inlay
