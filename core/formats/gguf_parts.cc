#include "core/formats/gguf_parts.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_rwkv.h"
#include "core/formats/sliced_source.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kTurned = ".turned.";
constexpr std::string_view kNorms = ".norms.";
constexpr std::string_view kSharedNorm = ".input_layernorm.";
constexpr int64_t kMostMatrices = 64;

// Adds equal vectors of int32 to a source.
class WithIndices final : public WeightSource {
 public:
  WithIndices(std::shared_ptr<const WeightSource> stored,
              absl::Span<const std::string> names, std::vector<int32_t> values)
      : stored_(std::move(stored)),
        names_(names.begin(), names.end()),
        values_(std::move(values)) {
    infos_.assign(stored_->weights().begin(), stored_->weights().end());
    for (const std::string& name : names_) {
      infos_.push_back({name,
                        DType::kI32,
                        {static_cast<int64_t>(values_.size())},
                        values_.size() * sizeof(int32_t)});
    }
    std::sort(infos_.begin(), infos_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    return IsOwn(info) ? reinterpret_cast<const std::byte*>(values_.data())
                       : stored_->Mapped(info);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    if (!IsOwn(info)) return stored_->Read(info, offset, destination);
    const uint64_t bytes = values_.size() * sizeof(int32_t);
    if (offset > bytes || destination.size() > bytes - offset) {
      return absl::OutOfRangeError(FormattedString(
          "tensor %s: cannot read %d bytes at byte %d, it has %d bytes",
          Quoted(info.name), destination.size(), offset, bytes));
    }
    std::memcpy(destination.data(), Mapped(info) + offset, destination.size());
    return absl::OkStatus();
  }

 private:
  bool IsOwn(const WeightInfo& info) const {
    return std::find(names_.begin(), names_.end(), info.name) != names_.end();
  }

  std::shared_ptr<const WeightSource> stored_;
  std::vector<std::string> names_;
  std::vector<int32_t> values_;
  std::vector<WeightInfo> infos_;
};

// Of linear attention; all 0 elsewhere.
struct LinearHeads {
  int64_t keys = 0;
  int64_t values = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;

  int64_t values_a_key() const { return values / keys; }
};

absl::StatusOr<LinearHeads> ReadHeads(const Json& config) {
  LinearHeads heads;
  for (const auto& [key, to] :
       {std::pair{"linear_num_key_heads", &heads.keys},
        std::pair{"linear_num_value_heads", &heads.values},
        std::pair{"linear_key_head_dim", &heads.key_dim},
        std::pair{"linear_value_head_dim", &heads.value_dim}}) {
    INLAY_ASSIGN_OR_RETURN(*to, JsonInt(config, key, 1, 1, int64_t{1} << 28));
  }
  if (heads.values % heads.keys == 0) return heads;
  return absl::InvalidArgumentError(
      FormattedString("%d value heads, allowed: a multiple of the %d key heads",
                      heads.values, heads.keys));
}

// Of attention whose q, k and v are one matrix, and its norms.
struct AttentionLayout {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  bool two_norms = false;     // Falcon's
  bool keeps_joined = false;  // StarCoder's
};

absl::StatusOr<AttentionLayout> ReadAttention(const Json& config) {
  AttentionLayout layout;
  for (const auto& [key, to] :
       {std::pair{"num_attention_heads", &layout.heads},
        std::pair{"num_key_value_heads", &layout.kv_heads}}) {
    INLAY_ASSIGN_OR_RETURN(*to, JsonInt(config, key, 1, 1, int64_t{1} << 28));
  }
  const Json* norms = JsonFind(config, "num_ln_in_parallel_attn");
  layout.two_norms = norms != nullptr && *norms == 2;
  const Json* multi_query = JsonFind(config, "multi_query");
  layout.keeps_joined = multi_query != nullptr && *multi_query == true;
  return layout;
}

class PartEntries {
 public:
  PartEntries(std::string_view model_type, const LinearHeads& heads,
              const AttentionLayout& layout)
      : type_(model_type),
        joined_(GgufJoinedQkv(model_type)),
        heads_(heads),
        layout_(layout) {}

  absl::Status Add(const WeightInfo& info) {
    constexpr std::string_view kBa = ".in_proj_ba.";
    const bool is_linear = type_.starts_with("qwen3_5");
    if (const size_t at = FindQkv(info.name); at != info.name.npos) {
      return AddQkv(info, at);
    }
    if (const size_t at = info.name.rfind(kNorms);
        type_ == "stablelm" && at != info.name.npos) {
      return AddNorms(info, at);
    }
    if (type_ == "gemma3n_text" && info.shape.size() == 3) {
      return AddMatrices(info);
    }
    if (const size_t at = info.name.rfind(kSharedNorm);
        layout_.two_norms && at != info.name.npos) {
      INLAY_RETURN_IF_ERROR(CheckRows(info, 1));
      AddRows(info, info.name, info.shape[0], 0, 1, 1);
      entries_.back().info.name.replace(at, kSharedNorm.size(), ".ln_mlp.");
      return absl::OkStatus();
    }
    if (const size_t at = info.name.rfind(kBa);
        is_linear && at != info.name.npos) {
      return AddBa(info, at, kBa.size());
    }
    if (const size_t at = info.name.rfind(kTurned);
        is_linear && at != info.name.npos) {
      return AddTurned(info, at);
    }
    entries_.push_back({info});
    return absl::OkStatus();
  }

  bool any() const { return any_; }
  absl::Span<const std::string> permuted() const { return permuted_; }
  std::vector<SlicedTensor> Take() && { return std::move(entries_); }

 private:
  absl::Status WrongShape(const WeightInfo& info) const {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s], which is none of %d value heads of %d and "
        "%d key heads of %d",
        Quoted(info.name), absl::StrJoin(info.shape, ", "), heads_.values,
        heads_.value_dim, heads_.keys, heads_.key_dim));
  }

  absl::Status AddBa(const WeightInfo& info, size_t at, size_t size) {
    if (info.shape.empty() || info.shape[0] != 2 * heads_.values) {
      return WrongShape(info);
    }
    const int64_t run = heads_.values_a_key();
    for (int64_t part = 0; part < 2; ++part) {
      std::string name = info.name;
      name.replace(at, size, part == 0 ? ".in_proj_b." : ".in_proj_a.");
      AddRows(info, std::move(name), heads_.values, part * run, run, 2 * run);
    }
    return absl::OkStatus();
  }

  // How many rows of q and k come before, and how many a value head has.
  std::pair<int64_t, int64_t> RowsOf(std::string_view name) const {
    if (name.starts_with("in_proj_qkv.") || name.starts_with("conv1d.")) {
      return {2 * heads_.keys * heads_.key_dim, heads_.value_dim};
    }
    return {0, name.starts_with("in_proj_z.") ? heads_.value_dim : 1};
  }

  absl::Status AddTurned(const WeightInfo& info, size_t at) {
    any_ = true;
    SlicedTensor& entry = entries_.emplace_back();
    entry.info = info;
    entry.info.name.replace(at, kTurned.size(), ".");
    entry.is_slice = true;
    TensorSlice& slice = entry.slice;
    slice.stored = &info;
    slice.step = heads_.values_a_key();
    const std::string_view name =
        std::string_view(info.name).substr(at + kTurned.size());
    if (name == "out_proj.weight") return TurnColumns(info, entry);
    const auto [first, run] = RowsOf(name);
    if (info.shape.empty() || info.bytes == 0 ||
        info.shape[0] != first + heads_.values * run) {
      return WrongShape(info);
    }
    slice.layout = SliceLayout::kTurnedRuns;
    slice.first = first;
    slice.run = run;
    return absl::OkStatus();
  }

  absl::Status TurnColumns(const WeightInfo& info, SlicedTensor& entry) {
    if (info.shape.size() != 2 || info.bytes == 0 ||
        info.shape[1] != heads_.values * heads_.value_dim) {
      return WrongShape(info);
    }
    entry.slice.run = heads_.value_dim;
    entry.slice.layout = SliceLayout::kTurnedColumns;
    if (heads_.value_dim % GetFormatInfo(info.dtype).block_elements == 0) {
      return absl::OkStatus();
    }
    entry.slice.layout = SliceLayout::kRows;
    entry.slice.run = entry.slice.step = 1;
    if (heads_.values_a_key() > 1 && heads_.keys > 1) {
      std::string name = entry.info.name;
      name.resize(name.rfind('.'));
      permuted_.push_back(name + ".input_permutation");
    }
    return absl::OkStatus();
  }

  absl::Status CheckRows(const WeightInfo& info, int64_t multiple) const {
    // Elements of vectors are rows.
    const bool is_vector =
        info.shape.size() == 1 && GetFormatInfo(info.dtype).block_elements == 1;
    const bool is_shaped = is_vector || info.shape.size() == 2;
    if (is_shaped && info.bytes > 0 && info.shape[0] % multiple == 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has shape [%s]; its rows must be a multiple of %d",
        Quoted(info.name), absl::StrJoin(info.shape, ", "), multiple));
  }

  // Rows in runs of `run`, which begin `step` apart from row `first` on.
  void AddRows(const WeightInfo& info, std::string name, int64_t rows,
               int64_t first, int64_t run, int64_t step) {
    any_ = true;
    SlicedTensor& entry = entries_.emplace_back();
    entry.info = info;
    entry.info.name = std::move(name);
    entry.info.bytes = info.bytes / static_cast<uint64_t>(info.shape[0]) *
                       static_cast<uint64_t>(rows);
    entry.info.shape[0] = rows;
    entry.is_slice = true;
    entry.slice.stored = &info;
    entry.slice.first = first;
    entry.slice.run = run;
    entry.slice.step = step;
  }

  // Where "qkv_proj" of "P.qkv_proj.weight" stands.
  size_t FindQkv(std::string_view name) const {
    // With one head of keys the model wants c_attn as it lies.
    if (joined_.empty() || layout_.keeps_joined) return name.npos;
    const size_t dot = name.rfind('.');
    if (dot == name.npos || !name.substr(0, dot).ends_with(joined_)) {
      return name.npos;
    }
    return dot - joined_.size();
  }

  absl::Status AddQkv(const WeightInfo& info, size_t at) {
    constexpr std::string_view kParts[] = {"q_proj", "k_proj", "v_proj"};
    const int64_t heads = layout_.heads + 2 * layout_.kv_heads;
    INLAY_RETURN_IF_ERROR(CheckRows(info, heads));
    const int64_t row = info.shape[0] / heads;  // rows of a head
    int64_t first = 0;
    for (size_t part = 0; part < 3; ++part) {
      const int64_t rows = row * (part == 0 ? layout_.heads : layout_.kv_heads);
      std::string name = info.name;
      name.replace(at, joined_.size(), kParts[part]);
      AddRows(info, std::move(name), rows, first, 1, 1);
      first += rows;
    }
    return absl::OkStatus();
  }

  // P.weight [count, n, k] as P.N.weight.
  absl::Status AddMatrices(const WeightInfo& info) {
    const int64_t count = info.shape[0];
    const int64_t rows = info.shape[1];
    const size_t dot = info.name.rfind('.');
    if (info.bytes == 0 || dot == info.name.npos || count > kMostMatrices) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s has shape [%s], allowed: up to %d matrices",
          Quoted(info.name), absl::StrJoin(info.shape, ", "), kMostMatrices));
    }
    for (int64_t i = 0; i < count; ++i) {
      std::string name = info.name;
      name.insert(dot, FormattedString(".%d", i));
      any_ = true;
      SlicedTensor& entry = entries_.emplace_back();
      entry.info = info;
      entry.info.name = std::move(name);
      entry.info.bytes = info.bytes / static_cast<uint64_t>(count);
      entry.info.shape.erase(entry.info.shape.begin());
      entry.is_slice = true;
      entry.slice.stored = &info;
      entry.slice.first = i * rows;
      entry.slice.run = entry.slice.step = 1;
    }
    return absl::OkStatus();
  }

  // One vector a head.
  absl::Status AddNorms(const WeightInfo& info, size_t at) {
    if (info.shape.size() != 2 || info.bytes == 0 ||
        GetFormatInfo(info.dtype).block_elements != 1) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s: shape [%s] of type %s, allowed: a row a head, not in "
          "blocks",
          Quoted(info.name), absl::StrJoin(info.shape, ", "),
          DTypeName(info.dtype)));
    }
    const int64_t width = info.shape[1];
    for (int64_t head = 0; head < info.shape[0]; ++head) {
      std::string name = info.name;
      name.insert(at + kNorms.size(), FormattedString("%d.", head));
      AddRows(info, std::move(name), 1, head * width, 1, 1);
      entries_.back().info.shape = {width};
    }
    return absl::OkStatus();
  }

  std::string_view type_;
  std::string_view joined_;
  LinearHeads heads_;
  AttentionLayout layout_;
  bool any_ = false;
  std::vector<std::string> permuted_;
  std::vector<SlicedTensor> entries_;
};

// Which input each column of a turned out_proj takes.
std::vector<int32_t> TurnedInputs(const LinearHeads& heads) {
  std::vector<int32_t> inputs;
  for (int64_t place = 0; place < heads.values_a_key(); ++place) {
    for (int64_t key = 0; key < heads.keys; ++key) {
      const int64_t head = key * heads.values_a_key() + place;
      for (int64_t i = 0; i < heads.value_dim; ++i) {
        inputs.push_back(static_cast<int32_t>(head * heads.value_dim + i));
      }
    }
  }
  return inputs;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGgufParts(
    const Json& config, std::shared_ptr<const WeightSource> stored) {
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(config, "model_type", ""));
  if (type == "rwkv7") return PresentGgufRwkv7(config, std::move(stored));
  INLAY_ASSIGN_OR_RETURN(const LinearHeads heads, ReadHeads(config));
  INLAY_ASSIGN_OR_RETURN(const AttentionLayout layout, ReadAttention(config));
  PartEntries entries(type, heads, layout);
  for (const WeightInfo& info : stored->weights()) {
    INLAY_RETURN_IF_ERROR(entries.Add(info));
  }
  if (!entries.any()) return stored;
  const std::vector<std::string> permuted(entries.permuted().begin(),
                                          entries.permuted().end());
  INLAY_ASSIGN_OR_RETURN(
      std::shared_ptr<const WeightSource> parts,
      MakeSlicedSource(std::move(stored), std::move(entries).Take()));
  if (permuted.empty()) return parts;
  return std::make_shared<WithIndices>(std::move(parts), permuted,
                                       TurnedInputs(heads));
}

}  // namespace inlay
