#include "core/quantize/file_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/formats/gguf_key_writer.h"
#include "core/quantize/falcon_factors.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status WrongShape(const ModelTensor& tensor, int64_t rows) {
  return absl::InvalidArgumentError(FormattedString(
      "tensor \"%s\" has shape [%s], allowed by config.json: %d rows",
      tensor.name, absl::StrJoin(tensor.info->shape, ", "), rows));
}

// DeepSeek-V4's.
constexpr char kOutputGroups[] = ".wo_a.";

// "P.experts.3.NAME.weight": 3, and the name without it; "P.norms.3.weight"
// (StableLM's of heads), Gemma 3n's projections of streams and DeepSeek-V4's
// groups of outputs likewise.
struct Expert {
  int64_t number = 0;
  std::string stack;
};
std::optional<Expert> ParseExpert(std::string_view name) {
  std::string_view all;
  size_t at = name.npos;
  for (const std::string_view before :
       {".experts.", ".chunk_experts.", ".norms.", kOutputGroups,
        "altup_projections.", "altup_unembed_projections."}) {
    at = name.rfind(all = before);
    if (at != name.npos) break;
  }
  if (at == name.npos) return std::nullopt;
  const std::string_view rest = name.substr(at + all.size());
  Expert expert;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), expert.number);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') {
    return std::nullopt;
  }
  expert.stack = std::string(name.substr(0, at + all.size()));
  expert.stack += rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return expert;
}

std::optional<std::string> Replaced(const std::string& name,
                                    std::string_view from,
                                    std::string_view to) {
  const size_t at = name.rfind(from);
  if (at == name.npos) return std::nullopt;
  std::string result = name;
  result.replace(at, from.size(), to);
  return result;
}

// Of linear attention.
struct LinearHeads {
  int64_t keys = 0;
  int64_t values = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;

  int64_t values_a_key() const { return values / keys; }
  // Value head i of those in the file's order: by their place among those of a
  // key head.
  int64_t Turned(int64_t i) const {
    return i % keys * values_a_key() + i / keys;
  }
  bool turns() const { return keys > 1 && values > keys; }
};

class Planner {
 public:
  Planner(const Json& config, const GgufArch& arch,
          absl::Span<const ModelTensor> tensors)
      : config_(config), arch_(arch) {
    for (const ModelTensor& tensor : tensors) {
      has_embedding_ |= IsStoredAs(tensor, kEmbedding);
      has_head_ |= IsStoredAs(tensor, kHead);
    }
  }

  absl::Status Add(const ModelTensor& tensor) {
    if (IsStoredAs(tensor, kHead) && !has_embedding_) return AddBoth(tensor);
    if (const auto expert = ParseExpert(tensor.name)) {
      return AddExpert(tensor, *expert);
    }
    if (!GgufJoinedQkv(arch_.model_type).empty()) {
      INLAY_ASSIGN_OR_RETURN(const bool added, AddToQkv(tensor));
      if (added) return absl::OkStatus();
    }
    constexpr std::string_view kLatent = ".kv_b_proj.weight";
    if (tensor.name.ends_with(kLatent) && arch_.name != "minicpm3" &&
        arch_.name != "plm") {
      return AddLatent(tensor);
    }
    if (tensor.name.ends_with(".in_proj_qkvz.weight")) {
      return AddFusedLinear(tensor);
    }
    if (tensor.name.ends_with(".shared_mlp.input_linear.weight") &&
        arch_.name != "granite_swa") {
      return AddHalves(tensor);
    }
    if (const auto turned =
            Replaced(tensor.name, ".linear_attn.", ".linear_attn.turned.");
        turned.has_value() && GgufTensorName(arch_, *turned).has_value()) {
      return AddTurned(tensor, *turned);
    }
    if (arch_.name == "gemma3n" &&
        tensor.name.ends_with(".embed_tokens_per_layer.weight")) {
      return AddPerLayerTable(tensor);
    }
    if (arch_.name == "rwkv7" &&
        tensor.name.find(".attn.") != std::string::npos) {
      return AddTimeMix(tensor);
    }
    if (tensor.name.ends_with(".position_embeddings.weight")) {
      return AddPositions(tensor);
    }
    INLAY_RETURN_IF_ERROR(AddOne(tensor, tensor.name).status());
    return AddTiedHead(tensor);
  }

  absl::StatusOr<std::vector<FileTensor>> Take() && {
    for (const auto& [stack, at] : stacks_) {
      const size_t parts = tensors_[at].rows.parts.size();
      if (parts == num_experts_.at(stack)) continue;
      return absl::InvalidArgumentError(
          FormattedString("\"%s\" has %d experts, with numbers up to %d", stack,
                          parts, num_experts_.at(stack) - 1));
    }
    return std::move(tensors_);
  }

 private:
  static constexpr std::string_view kEmbedding = "token_embd.weight";
  static constexpr std::string_view kHead = "output.weight";
  static constexpr std::string_view kMixes = "rwkvag";  // of RWKV-7, in order

  bool IsStoredAs(const ModelTensor& tensor, std::string_view name) const {
    const auto gguf = GgufTensorName(arch_, tensor.name);
    return gguf.has_value() && gguf->name == name;
  }

  // A head that is the embedding, too: files call it that.
  absl::Status AddBoth(const ModelTensor& head) {
    const auto embedding = PublishedTensorName(arch_, kEmbedding);
    if (!embedding.has_value()) return AddOne(head, head.name).status();
    INLAY_RETURN_IF_ERROR(AddOne(head, embedding->name).status());
    return NeedsHead() ? AddOne(head, head.name).status() : absl::OkStatus();
  }

  // One tensor of the file, of all rows of `tensor`.
  absl::StatusOr<FileTensor*> AddOne(const ModelTensor& tensor,
                                     const std::string& name) {
    auto gguf = GgufTensorName(arch_, name);
    if (!gguf.has_value()) {
      return absl::UnimplementedError(
          FormattedString("tensor \"%s\" has no name in GGUF files of \"%s\"",
                          name, arch_.name));
    }
    FileTensor& file = tensors_.emplace_back();
    file.name = name;
    file.gguf = OwnName(gguf->name);
    file.rows.parts = {tensor.info};
    file.rows.layout = gguf->layout;
    file.parts = {tensor.name};
    file.is_vector = tensor.is_vector;
    INLAY_RETURN_IF_ERROR(SetShape(*tensor.info, &file));
    INLAY_RETURN_IF_ERROR(
        MultiplyFalconFactors(config_, arch_, name, &file.rows));
    return &file;
  }

  // Falcon H1's is multiplied by another factor than the embedding it is tied
  // to; of MiniMax-M3 llama.cpp wants one.
  bool NeedsHead() const {
    return arch_.model_type == "falcon_h1" || arch_.name == "minimax-m3";
  }

  absl::Status AddTiedHead(const ModelTensor& tensor) {
    if (!NeedsHead() || has_head_ ||
        !tensor.name.ends_with(".embed_tokens.weight")) {
      return absl::OkStatus();
    }
    return AddOne(tensor, "lm_head.weight").status();
  }

  // Without experts Granite's MLP is a plain one.
  std::string OwnName(const std::string& gguf) const {
    constexpr std::string_view kShared = "_shexp.";
    const Json* experts = JsonFind(config_, "num_local_experts");
    const bool is_dense = arch_.model_type == "granitemoehybrid" &&
                          experts != nullptr && *experts == 0;
    return is_dense ? Replaced(gguf, kShared, ".").value_or(gguf) : gguf;
  }

  absl::Status SetShape(const WeightInfo& info, FileTensor* file) {
    const std::vector<int64_t>& shape = info.shape;
    const GgufLayout layout = file->rows.layout;
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    if (layout == GgufLayout::kTaps && shape.size() == 3) {
      file->shape = {shape[0], shape[2]};
      if (arch_.name == "kimi-linear") {
        file->shape = {1, shape[0], 1, shape[2]};
      }
    } else if (layout == GgufLayout::kVector) {
      file->shape = {elements};
    } else if (layout == GgufLayout::kFlat) {
      INLAY_ASSIGN_OR_RETURN(const int64_t groups, MixerGroups());
      if (elements % groups != 0) return WrongShape({info.name, &info}, groups);
      file->shape = {groups, elements / groups};
    } else if (IsMixerScalar(file->gguf)) {
      file->shape = {elements, 1};
      if (arch_.name == "kimi-linear") file->shape = {1, 1, elements, 1};
    } else if (layout == GgufLayout::kHeads && shape.size() == 2) {
      return SetHeads(shape, file);
    } else if (shape.size() > 2 ||
               (layout == GgufLayout::kWhole && file->is_vector)) {
      file->shape = {elements};
    }
    return absl::OkStatus();
  }

  // Mamba 2's and Kimi's have a dimension of 1 more than linear attention's;
  // Mamba's are no scalars.
  bool IsMixerScalar(std::string_view gguf) const {
    if (arch_.model_type.starts_with("qwen3") || arch_.name == "mamba" ||
        arch_.name == "jamba") {
      return false;
    }
    return gguf.ends_with(".ssm_a") || gguf.ends_with(".ssm_d");
  }

  absl::StatusOr<int64_t> MixerGroups() const {
    return NeededGgufSize(config_,
                          JsonFind(config_, "mamba_n_groups") != nullptr
                              ? "mamba_n_groups"
                              : "n_groups");
  }

  absl::Status SetHeads(const std::vector<int64_t>& shape, FileTensor* file) {
    INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                           NeededGgufSize(config_, "num_attention_heads"));
    if (shape[0] % heads != 0) {
      return WrongShape({file->name, file->rows.parts.front()}, heads);
    }
    file->shape = {heads, shape[0] / heads, shape[1]};
    return absl::OkStatus();
  }

  absl::Status AddExpert(const ModelTensor& tensor, const Expert& expert) {
    const auto found = stacks_.find(expert.stack);
    if (found == stacks_.end()) {
      stacks_[expert.stack] = tensors_.size();
      INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, expert.stack));
      SetStack(file);
      num_experts_[expert.stack] = static_cast<size_t>(expert.number) + 1;
      return absl::OkStatus();
    }
    FileTensor& file = tensors_[found->second];
    if (expert.number != static_cast<int64_t>(file.rows.parts.size()) ||
        tensor.info->shape != file.rows.parts.front()->shape) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor \"%s\" [%s] does not follow %d others of shape [%s]",
          tensor.name, absl::StrJoin(tensor.info->shape, ", "),
          file.rows.parts.size(),
          absl::StrJoin(file.rows.parts.front()->shape, ", ")));
    }
    file.rows.parts.push_back(tensor.info);
    file.parts.push_back(tensor.name);
    num_experts_[expert.stack] = file.rows.parts.size();
    SetStack(&file);
    return absl::OkStatus();
  }

  // Files have a row for every token; those beyond the table read its first.
  absl::Status AddPerLayerTable(const ModelTensor& tensor) {
    INLAY_ASSIGN_OR_RETURN(const int64_t tokens,
                           NeededGgufSize(config_, "vocab_size"));
    INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, tensor.name));
    const std::vector<int64_t>& shape = tensor.info->shape;
    if (shape.size() != 2 || shape[0] == tokens) return absl::OkStatus();
    file->rows.runs.push_back({0, 0, std::min(shape[0], tokens)});
    for (int64_t i = shape[0]; i < tokens; ++i) {
      file->rows.runs.push_back({0, 0, 1});
    }
    file->shape = {tokens, shape[1]};
    return absl::OkStatus();
  }

  // RWKV-7's: six mixes as one, and low ranks of the first layer once more
  // where others have those of values, which llama.cpp wants there and nothing
  // reads.
  absl::Status AddTimeMix(const ModelTensor& tensor) {
    const auto mix = Replaced(tensor.name, ".attn.x_", ".attn.x_x");
    if (!mix.has_value()) {
      INLAY_RETURN_IF_ERROR(AddOne(tensor, tensor.name).status());
      const auto dummy = Replaced(tensor.name, ".layers.0.attn.a_lora.",
                                  ".layers.0.attn.v_lora.");
      return dummy.has_value() ? AddOne(tensor, *dummy).status()
                               : absl::OkStatus();
    }
    const int64_t ways = static_cast<int64_t>(kMixes.size());
    const std::string all = mix->substr(0, mix->rfind(".x_x") + 4);
    const std::string_view way = std::string_view(*mix).substr(all.size());
    const bool has_all = way == "x";
    const size_t place = has_all ? 0 : kMixes.find(way);
    if (place == 0) {
      joined_[all] = tensors_.size();
      INLAY_RETURN_IF_ERROR(AddOne(tensor, all).status());
    }
    const auto found = joined_.find(all);
    const int64_t rows = has_all ? ways : 1;
    const std::vector<int64_t>& shape = tensor.info->shape;
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    if (found == joined_.end() || place == kMixes.npos ||
        elements % rows != 0) {
      return WrongShape(tensor, rows);
    }
    FileTensor& file = tensors_[found->second];
    if (place > 0) {
      file.rows.parts.push_back(tensor.info);
      file.parts.push_back(tensor.name);
    }
    file.shape = {ways, 1, 1, elements / rows};
    return absl::OkStatus();
  }

  // Those of tokens.
  absl::Status AddPositions(const ModelTensor& tensor) {
    INLAY_ASSIGN_OR_RETURN(const int64_t before,
                           PositionsBefore(config_, arch_.model_type));
    INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, tensor.name));
    const std::vector<int64_t>& shape = tensor.info->shape;
    if (before == 0) return absl::OkStatus();
    if (shape.size() != 2 || shape[0] <= before) {
      return WrongShape(tensor, before + 1);
    }
    file->rows.runs.push_back({0, before, shape[0] - before});
    file->shape = {shape[0] - before, shape[1]};
    return absl::OkStatus();
  }

  static void SetStack(FileTensor* file) {
    const auto count = static_cast<int64_t>(file->rows.parts.size());
    file->shape = file->rows.parts.front()->shape;
    if (file->name.find(kOutputGroups) != std::string::npos) {
      file->shape.front() *= count;
    } else {
      file->shape.insert(file->shape.begin(), count);
    }
  }

  // q, k and v one after another.
  absl::StatusOr<bool> AddToQkv(const ModelTensor& tensor) {
    const std::string joined =
        FormattedString(".%s.", GgufJoinedQkv(arch_.model_type));
    for (const std::string_view part : {".q_proj.", ".k_proj.", ".v_proj."}) {
      const auto name = Replaced(tensor.name, part, joined);
      if (!name.has_value()) continue;
      const auto found = joined_.find(*name);
      if (found == joined_.end()) {
        joined_[*name] = tensors_.size();
        INLAY_RETURN_IF_ERROR(AddOne(tensor, *name).status());
        return true;
      }
      FileTensor& file = tensors_[found->second];
      file.rows.parts.push_back(tensor.info);
      file.parts.push_back(tensor.name);
      return true;
    }
    return false;
  }

  // Each head's keys, turned, and its values.
  absl::Status AddLatent(const ModelTensor& tensor) {
    INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                           NeededGgufSize(config_, "num_attention_heads"));
    INLAY_ASSIGN_OR_RETURN(const int64_t keys,
                           NeededGgufSize(config_, "qk_nope_head_dim"));
    INLAY_ASSIGN_OR_RETURN(const int64_t values,
                           NeededGgufSize(config_, "v_head_dim"));
    const std::vector<int64_t>& shape = tensor.info->shape;
    if (shape.size() != 2 || shape[0] != heads * (keys + values)) {
      return WrongShape(tensor, heads * (keys + values));
    }
    for (const bool is_key : {true, false}) {
      const std::string name = *Replaced(tensor.name, ".kv_b_proj.",
                                         is_key ? ".k_b_proj." : ".v_b_proj.");
      INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, name));
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = head * (keys + values) + (is_key ? 0 : keys);
        file->rows.runs.push_back({0, first, is_key ? keys : values});
      }
      if (is_key) file->rows.turned_rows = keys;
      file->shape = {heads, is_key ? shape[1] : values,
                     is_key ? keys : shape[1]};
    }
    return absl::OkStatus();
  }

  absl::StatusOr<LinearHeads> ReadHeads() const {
    LinearHeads heads;
    for (const auto& [key, to] :
         {std::pair{"linear_num_key_heads", &heads.keys},
          std::pair{"linear_num_value_heads", &heads.values},
          std::pair{"linear_key_head_dim", &heads.key_dim},
          std::pair{"linear_value_head_dim", &heads.value_dim}}) {
      INLAY_ASSIGN_OR_RETURN(*to, NeededGgufSize(config_, key));
    }
    if (heads.values % heads.keys == 0) return heads;
    return absl::InvalidArgumentError(FormattedString(
        "%d value heads, allowed: a multiple of the %d key heads", heads.values,
        heads.keys));
  }

  // Of each key head q, k, and its value heads' v and z: all q, all k, all v;
  // all z.
  absl::Status AddFusedLinear(const ModelTensor& tensor) {
    INLAY_ASSIGN_OR_RETURN(const LinearHeads heads, ReadHeads());
    const int64_t values = heads.values_a_key() * heads.value_dim;
    const int64_t sizes[] = {heads.key_dim, heads.key_dim, values, values};
    const int64_t head_rows = 2 * heads.key_dim + 2 * values;
    if (tensor.info->shape.front() != heads.keys * head_rows) {
      return WrongShape(tensor, heads.keys * head_rows);
    }
    for (const bool is_gate : {false, true}) {
      const std::string name =
          *Replaced(tensor.name, ".in_proj_qkvz.",
                    is_gate ? ".in_proj_z." : ".in_proj_qkv.");
      INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, name));
      int64_t before = 0, rows = 0;
      for (size_t part = 0; part < std::size(sizes); ++part) {
        const bool is_here = (part == 3) == is_gate;
        for (int64_t key = 0; is_here && key < heads.keys; ++key) {
          file->rows.runs.push_back({0, key * head_rows + before, sizes[part]});
          rows += sizes[part];
        }
        before += sizes[part];
      }
      file->shape = {rows, tensor.info->shape[1]};
    }
    return absl::OkStatus();
  }

  // Gate's rows, then up's.
  absl::Status AddHalves(const ModelTensor& tensor) {
    const int64_t half = tensor.info->shape.front() / 2;
    if (tensor.info->shape.size() != 2 || tensor.info->shape[0] % 2 != 0) {
      return WrongShape(tensor, 2 * half);
    }
    for (int64_t part = 0; part < 2; ++part) {
      const std::string name =
          *Replaced(tensor.name, ".input_linear.",
                    part == 0 ? ".gate_proj." : ".up_proj.");
      INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, name));
      file->rows.runs = {{0, part * half, half}};
      file->shape = {half, tensor.info->shape[1]};
    }
    return absl::OkStatus();
  }

  // How many rows of q and k come before, and how many a value head has.
  static std::pair<int64_t, int64_t> RowsOf(std::string_view name,
                                            const LinearHeads& heads) {
    if (name.starts_with("in_proj_qkv.") || name.starts_with("conv1d.")) {
      return {2 * heads.keys * heads.key_dim, heads.value_dim};
    }
    return {0, name.starts_with("in_proj_z.") ? heads.value_dim : 1};
  }

  absl::Status AddTurned(const ModelTensor& tensor, const std::string& name) {
    INLAY_ASSIGN_OR_RETURN(const LinearHeads heads, ReadHeads());
    INLAY_ASSIGN_OR_RETURN(FileTensor * file, AddOne(tensor, name));
    if (!heads.turns()) return absl::OkStatus();
    const std::string_view own =
        std::string_view(name).substr(name.rfind(".turned.") + 8);
    if (own == "out_proj.weight") {
      for (int64_t i = 0; i < heads.values; ++i) {
        for (int64_t j = 0; j < heads.value_dim; ++j) {
          file->rows.columns.push_back(
              static_cast<int32_t>(heads.Turned(i) * heads.value_dim + j));
        }
      }
      const auto columns = static_cast<int64_t>(file->rows.columns.size());
      return tensor.info->shape.back() == columns ? absl::OkStatus()
                                                  : WrongShape(tensor, columns);
    }
    const auto [first, run] = RowsOf(own, heads);
    if (tensor.info->shape.front() != first + heads.values * run) {
      return WrongShape(tensor, first + heads.values * run);
    }
    if (first > 0) file->rows.runs.push_back({0, 0, first});
    for (int64_t i = 0; i < heads.values; ++i) {
      file->rows.runs.push_back({0, first + heads.Turned(i) * run, run});
    }
    return absl::OkStatus();
  }

  const Json& config_;
  const GgufArch& arch_;
  bool has_embedding_ = false;
  bool has_head_ = false;
  std::vector<FileTensor> tensors_;
  std::map<std::string, size_t> stacks_, joined_;  // by name: in tensors_
  std::map<std::string, size_t> num_experts_;
};

}  // namespace

absl::StatusOr<std::vector<FileTensor>> PlanFileTensors(
    const Json& config, const GgufArch& arch,
    absl::Span<const ModelTensor> tensors) {
  Planner planner(config, arch, tensors);
  for (const ModelTensor& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(planner.Add(tensor));
  }
  return std::move(planner).Take();
}

}  // namespace inlay
