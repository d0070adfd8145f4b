#include "core/formats/gguf_arch.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/formats/describe.h"

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

// Mistral files say "llama".
constexpr GgufArch kArchs[] = {
    {"llama", "LlamaForCausalLM", "llama", kLlama},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", kQwen},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", kQwen},
    {"gemma", "GemmaForCausalLM", "gemma", kGemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", kGemma2And3},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", kGemma2And3},
    {"phi3", "Phi3ForCausalLM", "phi3", kPhi3},
    {"gpt2", "GPT2LMHeadModel", "gpt2", kGpt2},
};

constexpr std::string_view kLayerPrefix = "blk.";

// Splits "blk.12.attn_q" into the pattern "blk.#.attn_q" and "12".
struct Pattern {
  std::string text;
  std::string layer;
};

Pattern SplitLayer(std::string_view base) {
  if (!base.starts_with(kLayerPrefix)) return {std::string(base), ""};
  const std::string_view rest = base.substr(kLayerPrefix.size());
  const size_t digits = rest.find_first_not_of("0123456789");
  if (digits == 0 || digits == rest.npos || rest[digits] != '.') {
    return {std::string(base), ""};
  }
  return {absl::StrFormat("blk.#%s", rest.substr(digits)),
          std::string(rest.substr(0, digits))};
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

std::optional<PublishedName> PublishedTensorName(const GgufArch& arch,
                                                 std::string_view gguf) {
  const size_t dot = gguf.rfind('.');
  if (dot == gguf.npos) return std::nullopt;
  const std::string_view suffix = gguf.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  const Pattern pattern = SplitLayer(gguf.substr(0, dot));
  const auto row = std::find_if(
      arch.names.begin(), arch.names.end(),
      [&](const GgufName& name) { return name.gguf == pattern.text; });
  if (row == arch.names.end()) return std::nullopt;
  PublishedName published = {std::string(row->published), row->layout};
  const size_t hash = published.name.find('#');
  if (hash != std::string::npos) {
    published.name.replace(hash, 1, pattern.layer);
  }
  published.name += suffix;
  const bool is_bias = suffix == ".bias";
  if (is_bias &&
      (published.layout == kTransposed || published.layout == kPlusOne)) {
    published.layout = kSame;
  }
  return published;
}

}  // namespace inlay
