#include "core/formats/head_source.h"

#include <charconv>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/openelm_config.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/sliced_source.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Parts of a group of heads, in the order they are stored: the first has
// `queries` units of rows, the others one. A unit is what is left of a tensor's
// rows.
struct Layout {
  std::string_view fused;
  int64_t groups = 0;
  int64_t queries = 1;
  std::vector<std::string_view> parts = {"q_proj", "k_proj", "v_proj"};
  // Of a group: how many rows each part has, instead of units; or those of each
  // layer (OpenELM).
  std::vector<int64_t> rows = {};
  std::vector<std::vector<int64_t>> rows_of_layers = {};

  int64_t units() const {  // of a group
    return queries + static_cast<int64_t>(parts.size()) - 1;
  }
};

absl::StatusOr<int64_t> ReadHeads(const Json& config, std::string_view key,
                                  int64_t fallback) {
  return JsonInt(config, key, fallback, 1, int64_t{1} << 20);
}

// By either name of theirs.
absl::StatusOr<int64_t> ReadNHead(const Json& config, int64_t fallback) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadHeads(config, "num_attention_heads", fallback));
  return ReadHeads(config, "n_head", heads);
}

absl::StatusOr<std::optional<Layout>> FalconLayout(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const bool grouped,
                         JsonFlag(config, "new_decoder_architecture", false));
  INLAY_ASSIGN_OR_RETURN(const bool multi_query,
                         JsonFlag(config, "multi_query", true));
  if (!grouped && multi_query) return std::optional<Layout>();
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadHeads(config, "num_attention_heads", 71));
  Layout layout = {"query_key_value", heads};
  if (!grouped) return std::optional(layout);
  INLAY_ASSIGN_OR_RETURN(layout.groups,
                         ReadHeads(config, "num_kv_heads", heads));
  if (heads % layout.groups != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: num_attention_heads is %d, allowed: a multiple of "
        "num_kv_heads, %d",
        heads, layout.groups));
  }
  layout.queries = heads / layout.groups;
  return std::optional(layout);
}

// A head of keys after another: its queries, k, v.
absl::StatusOr<std::optional<Layout>> InternLmLayout(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadHeads(config, "num_attention_heads", 32));
  INLAY_ASSIGN_OR_RETURN(const int64_t kv_heads,
                         ReadHeads(config, "num_key_value_heads", heads));
  if (heads % kv_heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: num_attention_heads is %d, allowed: a multiple of "
        "num_key_value_heads, %d",
        heads, kv_heads));
  }
  return std::optional(Layout{"wqkv", kv_heads, heads / kv_heads});
}

// One group: all queries, all keys, all values.
absl::StatusOr<std::optional<Layout>> SarvamLayout(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadHeads(config, "num_attention_heads", 64));
  INLAY_ASSIGN_OR_RETURN(const int64_t kv_heads,
                         ReadHeads(config, "num_key_value_heads", 4));
  if (heads % kv_heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: num_attention_heads is %d, allowed: a multiple of "
        "num_key_value_heads, %d",
        heads, kv_heads));
  }
  return std::optional(Layout{"query_key_value", 1, heads / kv_heads});
}

// What a layer of gated DeltaNet reads, in one matrix.
absl::StatusOr<std::optional<Layout>> LaraLayout(const Json& config) {
  constexpr int64_t kMost = int64_t{1} << 20;
  INLAY_ASSIGN_OR_RETURN(const int64_t key_heads,
                         ReadHeads(config, "linear_num_key_heads", 8));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadHeads(config, "linear_num_value_heads", 16));
  INLAY_ASSIGN_OR_RETURN(const int64_t key_dim,
                         JsonInt(config, "linear_key_head_dim", 128, 1, kMost));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t value_dim,
      JsonInt(config, "linear_value_head_dim", 128, 1, kMost));
  const int64_t values = heads * value_dim;
  return std::optional(
      Layout{"linear_attn.in_proj",
             1,
             1,
             {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z",
              "linear_attn.in_proj_b", "linear_attn.in_proj_a"},
             {2 * key_heads * key_dim + values, values, heads, heads}});
}

// Head by head its queries and the gates of what it gives.
absl::StatusOr<std::optional<Layout>> AxK2Layout(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         ReadHeads(config, "num_attention_heads", 32));
  INLAY_ASSIGN_OR_RETURN(const int64_t key_dim,
                         ReadHeads(config, "qk_nope_head_dim", 64));
  INLAY_ASSIGN_OR_RETURN(const int64_t rope_dim,
                         ReadHeads(config, "qk_rope_head_dim", 32));
  INLAY_ASSIGN_OR_RETURN(const int64_t value_dim,
                         ReadHeads(config, "v_head_dim", 64));
  return std::optional(Layout{"self_attn.q_b_proj",
                              heads,
                              1,
                              {"self_attn.q_proj", "self_attn.gate_proj"},
                              {key_dim + rope_dim, value_dim}});
}

// q, k and v of as many heads as the layer has, all queries first.
absl::StatusOr<std::optional<Layout>> OpenElmLayout(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const OpenElmLayers layers, ReadOpenElmLayers(config));
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim,
                         ReadHeads(config, "head_dim", 128));
  Layout layout = {"qkv_proj", 1};
  for (size_t i = 0; i < layers.heads.size(); ++i) {
    const int64_t keys = layers.kv_heads[i] * head_dim;
    layout.rows_of_layers.push_back({layers.heads[i] * head_dim, keys, keys});
  }
  return std::optional(std::move(layout));
}

absl::StatusOr<std::optional<Layout>> ReadLayout(const Json& config) {
  const Json* type = JsonFind(config, "model_type");
  if (type == nullptr) return std::optional<Layout>();
  Layout layout;
  if (*type == "gpt_neox" || *type == "persimmon" ||
      *type == "gpt_neox_japanese") {
    layout.fused = "query_key_value";
    const int64_t heads = *type == "gpt_neox_japanese" ? 32 : 64;
    INLAY_ASSIGN_OR_RETURN(layout.groups,
                           ReadHeads(config, "num_attention_heads", heads));
    return std::optional(layout);
  }
  if (*type == "deberta") {
    layout.fused = "in_proj";
    INLAY_ASSIGN_OR_RETURN(layout.groups,
                           ReadHeads(config, "num_attention_heads", 12));
    return std::optional(layout);
  }
  if (*type == "lara_mini") return LaraLayout(config);
  if (*type == "axk2") return AxK2Layout(config);
  if (*type == "bloom") {
    layout.fused = "query_key_value";
    INLAY_ASSIGN_OR_RETURN(layout.groups, ReadNHead(config, 8));
    return std::optional(layout);
  }
  if (*type == "falcon") return FalconLayout(config);
  if (*type == "sarvam_moe" || *type == "bailing_moe" ||
      *type == "bailing_moe_v2") {
    return SarvamLayout(config);
  }
  if (*type == "openelm") return OpenElmLayout(config);
  if (*type == "internlm2") return InternLmLayout(config);
  if (*type == "gpt_bigcode") {
    layout.fused = "c_attn";
    INLAY_ASSIGN_OR_RETURN(const bool multi_query,
                           JsonBool(config, "multi_query", true));
    if (multi_query) return std::optional<Layout>();
    INLAY_ASSIGN_OR_RETURN(layout.groups, ReadNHead(config, 12));
    return std::optional(layout);
  }
  if (*type == "codegen") {
    // As many as shards that the models were trained in.
    return std::optional(
        Layout{"qkv_proj", 4, 1, {"q_proj", "v_proj", "k_proj"}});
  }
  if (*type == "baichuan") return std::optional(Layout{"W_pack", 1});
  if (*type == "bert") {  // JinaBERT's for code
    return std::optional(
        Layout{"up_gated_layer", 1, 1, {"up_layer", "gate_layer"}});
  }
  if (*type == "gte" || *type == "new") {
    return std::optional(
        Layout{"up_gate_proj", 1, 1, {"up_proj", "gate_proj"}});
  }
  return std::optional<Layout>();
}

// Where the part's name stands in "P.query_key_value.weight", ".bias" or
// ".input_permutation"; npos for other names.
size_t FindFused(std::string_view name, std::string_view fused) {
  for (const std::string_view suffix :
       {std::string_view(".weight"), std::string_view(".bias"),
        kInputPermutation}) {
    if (!name.ends_with(suffix)) continue;
    const std::string_view layer = name.substr(0, name.size() - suffix.size());
    if (layer.ends_with(fused)) return layer.size() - fused.size();
  }
  return std::string_view::npos;
}

// Rows [first, first + count) of every `step` of the tensor, called `name`.
void AddRows(const WeightInfo& info, std::string name, int64_t first,
             int64_t run, int64_t step, int64_t groups,
             std::vector<SlicedTensor>* tensors) {
  SlicedTensor& tensor = tensors->emplace_back();
  tensor.info = info;
  tensor.info.name = std::move(name);
  tensor.info.shape[0] = groups * run;
  tensor.info.bytes = info.bytes / static_cast<uint64_t>(info.shape[0]) *
                      static_cast<uint64_t>(tensor.info.shape[0]);
  tensor.is_slice = true;
  tensor.slice.stored = &info;
  tensor.slice.first = first;
  tensor.slice.run = run;
  tensor.slice.step = step;
}

// Parts of as many rows as the layout says.
absl::Status AddRowParts(const WeightInfo& info, size_t at,
                         const Layout& layout,
                         std::vector<SlicedTensor>* tensors) {
  const int64_t all =
      std::accumulate(layout.rows.begin(), layout.rows.end(), int64_t{0});
  if (info.shape.empty() || info.bytes == 0 ||
      info.shape[0] != layout.groups * all) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s]; by config.json it must have %d rows",
        Quoted(info.name), absl::StrJoin(info.shape, ", "),
        layout.groups * all));
  }
  int64_t first = 0;
  for (size_t part = 0; part < layout.parts.size(); ++part) {
    std::string name = info.name;
    name.replace(at, layout.fused.size(), layout.parts[part]);
    AddRows(info, std::move(name), first, layout.rows[part], all, layout.groups,
            tensors);
    first += layout.rows[part];
  }
  return absl::OkStatus();
}

// The usual name of a bias that has one of its own; "" for other tensors.
std::string BiasName(const Json& type, const WeightInfo& info) {
  const struct {
    const char* type;
    std::string_view own;
    std::string_view usual;
  } names[] = {
      {"gpt_neox_japanese", ".attention.dense_bias", ".attention.dense.bias"},
      {"deberta", ".attention.self.q_bias", ".attention.self.q_proj.bias"},
      {"deberta", ".attention.self.v_bias", ".attention.self.v_proj.bias"}};
  if (info.shape.size() != 1 || info.bytes == 0) return "";
  for (const auto& name : names) {
    if (!(type == name.type) || !info.name.ends_with(name.own)) continue;
    std::string usual = info.name;
    usual.resize(usual.size() - name.own.size());
    usual += name.usual;
    return usual;
  }
  return "";
}

// `layout` of the layer that the tensor is of.
absl::StatusOr<Layout> OfLayer(const WeightInfo& info, const Layout& layout) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = info.name.find(kLayers);
  size_t layer = layout.rows_of_layers.size();
  if (at != info.name.npos) {
    const char* begin = info.name.data() + at + kLayers.size();
    const char* end = info.name.data() + info.name.size();
    size_t number = 0;
    const auto parsed = std::from_chars(begin, end, number);
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.') {
      layer = number;
    }
  }
  if (layer >= layout.rows_of_layers.size()) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %s is of none of %d layers", Quoted(info.name),
                        layout.rows_of_layers.size()));
  }
  return Layout{layout.fused, layout.groups, layout.queries, layout.parts,
                layout.rows_of_layers[layer]};
}

absl::Status AddParts(const WeightInfo& info, size_t at, const Layout& layout,
                      std::vector<SlicedTensor>* tensors) {
  if (info.name.ends_with(kInputPermutation)) {
    INLAY_RETURN_IF_ERROR(CheckOrder(info));
    // All of it is each part's.
    for (const std::string_view part : layout.parts) {
      std::string name = info.name;
      name.replace(at, layout.fused.size(), part);
      AddRows(info, std::move(name), 0, info.shape[0], info.shape[0], 1,
              tensors);
    }
    return absl::OkStatus();
  }
  if (!layout.rows_of_layers.empty()) {
    INLAY_ASSIGN_OR_RETURN(const Layout own, OfLayer(info, layout));
    return AddRowParts(info, at, own, tensors);
  }
  if (!layout.rows.empty()) return AddRowParts(info, at, layout, tensors);
  const bool is_shaped = info.shape.size() == 1 || info.shape.size() == 2;
  const int64_t units = layout.units();
  if (!is_shaped || info.bytes == 0 ||
      info.shape[0] % (units * layout.groups) != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s]; its rows must be a multiple of %d for each "
        "of %d groups of heads",
        Quoted(info.name), absl::StrJoin(info.shape, ", "), units,
        layout.groups));
  }
  const int64_t unit = info.shape[0] / (units * layout.groups);
  int64_t first = 0;
  for (size_t part = 0; part < layout.parts.size(); ++part) {
    const int64_t run = (part == 0 ? layout.queries : 1) * unit;
    std::string name = info.name;
    name.replace(at, layout.fused.size(), layout.parts[part]);
    AddRows(info, std::move(name), first, run, units * unit, layout.groups,
            tensors);
    first += run;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentHeads(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  INLAY_ASSIGN_OR_RETURN(const std::optional<Layout> layout,
                         ReadLayout(config));
  if (!layout.has_value()) return stored;
  const Json* type = JsonFind(config, "model_type");
  // Its MLPs' gates and ups are one matrix, too.
  const Layout gated = {"ffn.proj_1", 1, 1, {"ffn.gate_proj", "ffn.up_proj"}};
  const bool is_openelm = *type == "openelm";
  std::vector<SlicedTensor> tensors;
  bool any = false;
  for (const WeightInfo& info : stored->weights()) {
    const size_t at = FindFused(info.name, layout->fused);
    if (std::string name = BiasName(*type, info); !name.empty()) {
      AddRows(info, std::move(name), 0, info.shape[0], info.shape[0], 1,
              &tensors);
      any = true;
      continue;
    }
    if (const size_t mlp = FindFused(info.name, gated.fused);
        is_openelm && mlp != std::string_view::npos) {
      INLAY_RETURN_IF_ERROR(AddParts(info, mlp, gated, &tensors));
      any = true;
      continue;
    }
    if (at == std::string_view::npos) {
      tensors.push_back({info});
      continue;
    }
    INLAY_RETURN_IF_ERROR(AddParts(info, at, *layout, &tensors));
    any = true;
  }
  if (!any) return stored;
  return MakeSlicedSource(std::move(stored), std::move(tensors));
}

}  // namespace inlay
