#include "core/formats/gguf_arch.h"

#include "absl/strings/str_format.h"
#include "core/formats/describe.h"
#include "memory/status.h"

namespace inlay {
namespace {

using enum GgufLayout;

constexpr GgufName kLlama[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", kQueryRows},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", kKeyRows},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    // With experts: Mixtral.
    {"blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.w1"},
    {"blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.w3"},
    {"blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.w2"},
};

constexpr GgufName kQwen[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

constexpr GgufName kQwenMoe[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.gate"},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
    {"blk.#.ffn_gate_inp_shexp", "model.layers.#.mlp.shared_expert_gate",
     kVector},
    {"blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_expert.gate_proj"},
    {"blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_expert.up_proj"},
    {"blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_expert.down_proj"},
};

constexpr GgufName kGptOss[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.attn_sinks", "model.layers.#.self_attn.sinks", kBareName},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate_inp", "model.layers.#.mlp.router"},
    {"blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_proj"},
    {"blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_proj"},
    {"blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_proj"},
};

constexpr GgufName kGemma[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", kPlusOne},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm", kPlusOne},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm", kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

// Gemma 2 has no norms on q and k, and no file with them.
constexpr GgufName kGemma2And3[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", kPlusOne},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm", kPlusOne},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", kPlusOne},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", kPlusOne},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm",
     kPlusOne},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm",
     kPlusOne},
};

constexpr GgufName kPhi3[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

constexpr GgufName kGpt2[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn", kTransposed},
    {"blk.#.attn_output", "transformer.h.#.attn.c_proj", kTransposed},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc", kTransposed},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj", kTransposed},
};

// OLMo 2 and EXAONE 4: norms after the parts.
constexpr GgufName kPostNorms[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm"},
};

constexpr GgufName kStarcoder2[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.c_fc"},
    {"blk.#.ffn_down", "model.layers.#.mlp.c_proj"},
};

constexpr GgufName kGlm4[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.post_attention_norm", "model.layers.#.post_self_attn_layernorm"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_mlp_layernorm"},
};

// One norm a layer.
constexpr GgufName kCohere2[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

// Mistral and Mixtral files say "llama".
constexpr GgufArch kArchs[] = {
    {"llama", "LlamaForCausalLM", "llama", kLlama},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", kQwen},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", kQwen},
    {"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe", kQwenMoe},
    {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", kQwenMoe},
    {"gpt-oss", "GptOssForCausalLM", "gpt_oss", kGptOss},
    {"gemma", "GemmaForCausalLM", "gemma", kGemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", kGemma2And3},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", kGemma2And3},
    {"phi3", "Phi3ForCausalLM", "phi3", kPhi3},
    {"gpt2", "GPT2LMHeadModel", "gpt2", kGpt2},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", kPostNorms},
    {"granite", "GraniteForCausalLM", "granite", kLlama},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2", kStarcoder2},
    {"glm4", "Glm4ForCausalLM", "glm4", kGlm4},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", kLlama},
    {"exaone4", "Exaone4ForCausalLM", "exaone4", kPostNorms},
    {"cohere2", "Cohere2ForCausalLM", "cohere2", kCohere2},
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
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  for (const GgufName& row : arch.names) {
    const auto layer = MatchLayer(row.*from, name.substr(0, dot));
    if (!layer.has_value()) continue;
    TensorName result = {std::string(row.*to), row.layout};
    const size_t hash = result.name.find('#');
    if (hash != std::string::npos) result.name.replace(hash, 1, *layer);
    const bool is_bias = suffix == ".bias";
    if (row.layout != kBareName || is_bias) result.name += suffix;
    if (is_bias && (row.layout == kTransposed || row.layout == kPlusOne)) {
      result.layout = kSame;
    }
    return result;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<const GgufArch*> FindGgufArch(std::string_view name) {
  std::string known;
  for (const GgufArch& arch : kArchs) {
    if (arch.name == name) return &arch;
    if (!known.empty()) known += ", ";
    known += arch.name;
  }
  return absl::UnimplementedError(absl::StrFormat(
      "general.architecture is %s, allowed: %s", Quoted(name), known));
}

absl::StatusOr<const GgufArch*> FindGgufArchOf(const Json& config) {
  std::string known;
  const Json* list = JsonFind(config, "architectures");
  const bool is_listed = list != nullptr && list->is_array() &&
                         !list->empty() && list->front().is_string();
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(config, "model_type", ""));
  const std::string name = is_listed ? list->front().get<std::string>() : type;
  if (name == "MistralForCausalLM" || name == "mistral") {
    return FindGgufArch("llama");
  }
  for (const GgufArch& arch : kArchs) {
    if (name == arch.architecture || (!is_listed && name == arch.model_type)) {
      return &arch;
    }
    known += std::string(arch.architecture) + ", ";
  }
  return absl::UnimplementedError(
      absl::StrFormat("the architecture %s has no GGUF name, allowed: "
                      "%sMistralForCausalLM",
                      Quoted(name), known));
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
