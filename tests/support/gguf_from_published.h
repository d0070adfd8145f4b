// Writes a published checkpoint as a GGUF file, as the converter does it: what
// reading undoes is done here, straight from the description of the converter.
#ifndef INLAY_TESTS_SUPPORT_GGUF_FROM_PUBLISHED_H_
#define INLAY_TESTS_SUPPORT_GGUF_FROM_PUBLISHED_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/model_files.h"
#include "memory/status.h"

namespace inlay {

struct GgufTensorData {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
  int64_t parts = 1;  // published tensors that it holds
};

// Rows of each of `heads` heads: first halves and second halves take turns.
inline std::string TakeTurns(const std::string& bytes, int64_t rows,
                             int64_t heads) {
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows);
  const int64_t head = rows / heads;
  std::string out;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % head;
    const int64_t from =
        row - in_head + in_head / 2 + (in_head % 2) * (head / 2);
    out.append(bytes, static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  return out;
}

inline float FloatFrom(const std::string& bytes, DType dtype, size_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + i * 2, 2);
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

// Vectors are stored as f32.
inline void Widen(float plus, GgufTensorData* tensor) {
  const size_t count = tensor->bytes.size() / RowBytes(tensor->dtype, 1);
  std::string wide(count * sizeof(float), '\0');
  for (size_t i = 0; i < count; ++i) {
    const float value = FloatFrom(tensor->bytes, tensor->dtype, i) + plus;
    std::memcpy(wide.data() + i * sizeof(float), &value, sizeof(float));
  }
  tensor->bytes = std::move(wide);
  tensor->dtype = DType::kF32;
}

inline void Turn(GgufTensorData* tensor) {
  const auto rows = static_cast<size_t>(tensor->shape[0]);
  const auto cols = static_cast<size_t>(tensor->shape[1]);
  const size_t size = tensor->bytes.size() / rows / cols;
  std::string out;
  for (size_t col = 0; col < cols; ++col) {
    for (size_t row = 0; row < rows; ++row) {
      out.append(tensor->bytes, (row * cols + col) * size, size);
    }
  }
  tensor->bytes = std::move(out);
  std::swap(tensor->shape[0], tensor->shape[1]);
}

inline absl::StatusOr<std::string> BytesOf(const WeightSource& weights,
                                           const WeightInfo& info) {
  std::string bytes(info.bytes, '\0');
  INLAY_RETURN_IF_ERROR(
      weights.Read(info, 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                  bytes.size())));
  return bytes;
}

// Those of all experts, one after another; without parts where there is none.
// `published`: the name without an expert's number.
inline absl::StatusOr<GgufTensorData> StackExperts(
    const WeightSource& weights, const std::string& name,
    const std::string& published) {
  GgufTensorData stack{name};
  stack.parts = 0;
  std::string experts;
  size_t at = published.npos;
  // StableLM's norms of heads and Gemma 3n's projections of streams, too.
  for (const char* before : {".experts.", ".norms.", "altup_projections.",
                             "altup_unembed_projections."}) {
    at = published.find(experts = before);
    if (at != published.npos) break;
  }
  if (at == published.npos) return stack;
  while (true) {
    std::string one = published;
    one.insert(at + experts.size(), std::to_string(stack.parts) + ".");
    const WeightInfo* info = weights.Find(one);
    if (info == nullptr) break;
    INLAY_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(weights, *info));
    stack.dtype = info->dtype;
    stack.shape = info->shape;
    stack.bytes += bytes;
    ++stack.parts;
  }
  stack.shape.insert(stack.shape.begin(), stack.parts);
  if (stack.parts > 0 && stack.shape.size() == 2) Widen(0.0f, &stack);
  return stack;
}

// q's rows, then k's, then v's.
inline absl::StatusOr<GgufTensorData> JoinQkv(const WeightSource& weights,
                                              const std::string& name,
                                              const std::string& published,
                                              std::string_view joined) {
  GgufTensorData all{name};
  all.parts = 0;
  const size_t at = published.find(joined);
  if (joined.empty() || at == published.npos) return all;
  int64_t rows = 0;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    std::string one = published;
    one.replace(at, joined.size(), part);
    const WeightInfo* info = weights.Find(one);
    if (info == nullptr) return all;
    INLAY_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(weights, *info));
    all.dtype = info->dtype;
    all.bytes += bytes;
    all.shape = info->shape;
    rows += info->shape[0];
    ++all.parts;
  }
  all.shape[0] = rows;
  if (all.shape.size() == 1) Widen(0.0f, &all);
  return all;
}

// Heads of linear attention.
struct LinearShape {
  int64_t keys = 0;  // 0: there is none
  int64_t values = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  // Old files of Qwen 3 Next: in_proj_qkvz as published.
  bool is_fused = false;
};

// Rows of key heads, each `parts` one after another, as all heads' rows of
// parts [first, last).
inline std::string PartsOfHeads(const std::string& bytes, int64_t keys,
                                const std::vector<int64_t>& parts, size_t first,
                                size_t last) {
  int64_t rows = 0;
  for (const int64_t part : parts) rows += part;
  const size_t row = bytes.size() / static_cast<size_t>(rows * keys);
  std::string out;
  for (size_t part = first; part < last; ++part) {
    int64_t before = 0;
    for (size_t i = 0; i < part; ++i) before += parts[i];
    for (int64_t key = 0; key < keys; ++key) {
      out += bytes.substr(static_cast<size_t>(key * rows + before) * row,
                          static_cast<size_t>(parts[part]) * row);
    }
  }
  return out;
}

// Value heads of `rows` rows each, those of one key head side by side, by their
// place there, as the converter's _reorder_v_heads().
inline std::string TurnHeads(const std::string& bytes,
                             const LinearShape& shape) {
  const int64_t group = shape.values / shape.keys;
  const size_t head = bytes.size() / static_cast<size_t>(shape.values);
  std::string out;
  for (int64_t place = 0; place < group; ++place) {
    for (int64_t key = 0; key < shape.keys; ++key) {
      out +=
          bytes.substr(static_cast<size_t>(key * group + place) * head, head);
    }
  }
  return out;
}

// One tensor of linear attention in Qwen 3.5's names, taken out of Qwen 3
// Next's where those are published; empty where there is none.
inline absl::StatusOr<GgufTensorData> LinearTensor(const WeightSource& weights,
                                                   const std::string& published,
                                                   const LinearShape& shape) {
  GgufTensorData tensor{published};
  tensor.parts = 0;
  const int64_t values = shape.values / shape.keys;
  const std::vector<int64_t> qkvz = {shape.key_dim, shape.key_dim,
                                     values * shape.value_dim,
                                     values * shape.value_dim};
  const struct {
    const char* name;
    const char* fused;
    std::vector<int64_t> parts;
    size_t first;
    size_t last;
  } rows[] = {{"in_proj_qkv.", "in_proj_qkvz.", qkvz, 0, 3},
              {"in_proj_z.", "in_proj_qkvz.", qkvz, 3, 4},
              {"in_proj_b.", "in_proj_ba.", {values, values}, 0, 1},
              {"in_proj_a.", "in_proj_ba.", {values, values}, 1, 2}};
  const WeightInfo* info = weights.Find(published);
  if (info != nullptr) {
    INLAY_ASSIGN_OR_RETURN(tensor.bytes, BytesOf(weights, *info));
    tensor.dtype = info->dtype;
    tensor.shape = info->shape;
    tensor.parts = 1;
    return tensor;
  }
  for (const auto& row : rows) {
    const size_t at = published.find(row.name);
    if (at == published.npos) continue;
    std::string fused = published;
    fused.replace(at, std::string_view(row.name).size(), row.fused);
    info = weights.Find(fused);
    if (info == nullptr) continue;
    INLAY_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(weights, *info));
    tensor.bytes =
        PartsOfHeads(bytes, shape.keys, row.parts, row.first, row.last);
    tensor.dtype = info->dtype;
    tensor.shape = {info->shape[0] * static_cast<int64_t>(tensor.bytes.size()) /
                        static_cast<int64_t>(bytes.size()),
                    info->shape[1]};
    tensor.parts = row.first == 0 ? 1 : 0;
  }
  return tensor;
}

// The tensor that a file of Qwen 3 Next or Qwen 3.5 has for `published`, of
// Qwen 3.5 with heads turned; before what Convert() does.
inline absl::StatusOr<GgufTensorData> SplitLinear(const WeightSource& weights,
                                                  const std::string& name,
                                                  std::string published,
                                                  const LinearShape& shape) {
  GgufTensorData none{name};
  none.parts = 0;
  if (shape.keys == 0 || shape.is_fused) return none;
  const size_t at = published.find(".turned.");
  const bool is_turned = at != published.npos;
  if (is_turned) published.replace(at, 8, ".");
  INLAY_ASSIGN_OR_RETURN(GgufTensorData tensor,
                         LinearTensor(weights, published, shape));
  tensor.name = name;
  if (!is_turned || tensor.bytes.empty()) return tensor;
  if (name.ends_with(".ssm_out.weight")) {
    const size_t row =
        tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
    std::string turned;
    for (size_t i = 0; i < tensor.bytes.size(); i += row) {
      turned += TurnHeads(tensor.bytes.substr(i, row), shape);
    }
    tensor.bytes = std::move(turned);
    return tensor;
  }
  size_t before = 0;
  if (name.ends_with(".attn_qkv.weight") ||
      name.ends_with(".ssm_conv1d.weight")) {
    before = static_cast<size_t>(2 * shape.keys * shape.key_dim) *
             (tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]));
  }
  tensor.bytes = tensor.bytes.substr(0, before) +
                 TurnHeads(tensor.bytes.substr(before), shape);
  return tensor;
}

// How latent attention's kv_b_proj lies: as published, in old files, or head by
// head keys, turned, and values.
struct LatentShape {
  int64_t key_dim = 0;  // 0: as published
  int64_t value_dim = 0;
};

inline absl::StatusOr<GgufTensorData> SplitLatent(const WeightSource& weights,
                                                  const std::string& name,
                                                  const std::string& published,
                                                  int64_t heads,
                                                  const LatentShape& latent) {
  GgufTensorData part{name};
  part.parts = 0;
  const bool is_key = published.ends_with(".k_b_proj.weight");
  if (latent.key_dim == 0 ||
      (!is_key && !published.ends_with(".v_b_proj.weight"))) {
    return part;
  }
  const WeightInfo* info = weights.Find(
      published.substr(0, published.rfind('.', published.size() - 8)) +
      ".kv_b_proj.weight");
  if (info == nullptr) return part;
  INLAY_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(weights, *info));
  const int64_t rank = info->shape[1];
  const size_t row = bytes.size() / static_cast<size_t>(info->shape[0]);
  const auto keys = static_cast<size_t>(latent.key_dim) * row;
  const auto values = static_cast<size_t>(latent.value_dim) * row;
  for (size_t h = 0; h < static_cast<size_t>(heads); ++h) {
    const size_t first = h * (keys + values);
    GgufTensorData head{name, info->dtype, {latent.key_dim, rank}};
    head.bytes = bytes.substr(first, keys);
    Turn(&head);
    part.bytes += is_key ? head.bytes : bytes.substr(first + keys, values);
  }
  part.dtype = info->dtype;
  part.shape = {heads, is_key ? rank : latent.value_dim,
                is_key ? latent.key_dim : rank};
  part.parts = is_key ? 1 : 0;
  return part;
}

// What the converter makes of one tensor of the checkpoint.
inline void Convert(GgufLayout layout, int64_t heads, int64_t kv_heads,
                    GgufTensorData* tensor, bool is_mamba1 = false) {
  if (layout == GgufLayout::kQueryRows || layout == GgufLayout::kKeyRows) {
    tensor->bytes =
        TakeTurns(tensor->bytes, tensor->shape[0],
                  layout == GgufLayout::kQueryRows ? heads : kv_heads);
  }
  if (layout == GgufLayout::kTransposed) Turn(tensor);
  if (layout == GgufLayout::kVector ||
      (layout == GgufLayout::kWhole && tensor->shape.front() == 1)) {
    tensor->shape.erase(tensor->shape.begin());
  }
  if (layout == GgufLayout::kTaps) {
    tensor->shape.erase(tensor->shape.begin() + 1);
    // Kimi Linear's three.
    if (tensor->name.find("ssm_conv1d_") != std::string::npos) {
      tensor->shape = {1, tensor->shape[0], 1, tensor->shape[1]};
    }
  }
  // What is computed of it, too.
  if (tensor->shape.size() == 1 || layout == GgufLayout::kLogOfMinus) {
    Widen(layout == GgufLayout::kPlusOne ? 1.0f : 0.0f, tensor);
  }
  if (tensor->name.ends_with(".ssm_d") && !is_mamba1) {
    tensor->shape.push_back(1);
  }
  // Mamba's, in two groups.
  if (layout == GgufLayout::kFlat) {
    tensor->shape = {2, tensor->shape[0] / 2};
  }
  if (layout != GgufLayout::kLogOfMinus) return;
  for (size_t i = 0; i < tensor->bytes.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor->bytes.data() + i, sizeof(float));
    value = -std::exp(value);
    std::memcpy(tensor->bytes.data() + i, &value, sizeof(float));
  }
}

// config.json with the usual names of sizes beside a family's own.
inline Json WithUsualNames(Json config, std::string_view arch) {
  for (const auto& [own, usual] : {std::pair{"n_layer", "num_hidden_layers"},
                                   {"n_layers", "num_hidden_layers"},
                                   {"n_embd", "hidden_size"},
                                   {"d_model", "hidden_size"},
                                   {"n_head", "num_attention_heads"},
                                   {"n_heads", "num_attention_heads"},
                                   {"seq_length", "max_position_embeddings"},
                                   {"max_seq_len", "max_position_embeddings"},
                                   {"n_positions", "max_position_embeddings"},
                                   {"ffn_hidden_size", "intermediate_size"},
                                   {"n_inner", "intermediate_size"},
                                   {"num_layers", "num_hidden_layers"},
                                   {"num_kv_heads", "num_key_value_heads"}}) {
    if (config.contains(own)) config[usual] = config[own];
  }
  if (arch == "exaone") config["rms_norm_eps"] = config["layer_norm_epsilon"];
  if (arch == "baichuan") {
    config["num_key_value_heads"] = config["num_attention_heads"];
  }
  // The larger base that Tencent's rotary scaling means.
  if (arch.starts_with("hunyuan")) {
    const double dim = config["head_dim"].get<double>();
    config["rope_theta"] =
        config["rope_theta"].get<double>() *
        std::pow(config["rope_scaling"]["alpha"].get<double>(),
                 dim / (dim - 2));
    config.erase("rope_scaling");
  }
  if (arch == "hunyuan-moe") {
    config["num_experts_per_tok"] = config["moe_topk"][0];
    config["moe_intermediate_size"] = config["moe_intermediate_size"][0];
    config["shared_expert_intermediate_size"] = config["intermediate_size"];
  }
  if (config.contains("attn_config")) {
    const Json& attention = config["attn_config"];
    for (const char* key : {"clip_qkv", "rope_theta"}) {
      if (attention.contains(key)) config[key] = attention[key];
    }
  }
  if (arch == "dbrx") {
    const Json& ffn = config["ffn_config"];
    config["num_key_value_heads"] = config["attn_config"]["kv_n_heads"];
    config["intermediate_size"] = ffn["ffn_hidden_size"];
    config["num_experts"] = ffn["moe_num_experts"];
    config["num_experts_per_tok"] = ffn["moe_top_k"];
    config["layer_norm_epsilon"] = 1e-5;
  }
  if (arch == "bloom" || arch == "mpt") {
    config["intermediate_size"] = 4 * config["hidden_size"].get<int64_t>();
  }
  if (config.value("multi_query", false) && !config.contains("num_kv_heads")) {
    config["num_key_value_heads"] = 1;
  }
  return config;
}

// All tensors of `weights`, as a file of the architecture `arch` has them.
inline absl::StatusOr<std::vector<GgufTensorData>> GgufTensorsFrom(
    const WeightSource& weights, const GgufArch& arch, int layers,
    int64_t heads, int64_t kv_heads, const LatentShape& latent = {},
    const LinearShape& linear = {}, bool joins_qkv = true) {
  std::vector<GgufTensorData> out;
  for (const GgufName& row : arch.names) {
    // Where files may have either.
    const bool is_joined = row.gguf == "blk.#.attn_qkv";
    const bool is_apart = row.gguf == "blk.#.attn_q" ||
                          row.gguf == "blk.#.attn_k" ||
                          row.gguf == "blk.#.attn_v";
    if (arch.name == "chatglm" && (joins_qkv ? is_apart : is_joined)) continue;
    const size_t hash = row.gguf.find('#');
    const bool is_whole = row.layout == GgufLayout::kWhole ||
                          row.layout == GgufLayout::kLogOfMinus;
    for (int layer = 0; layer < (hash == row.gguf.npos ? 1 : layers); ++layer) {
      for (const char* suffix : {".weight", ".bias"}) {
        std::string name(row.gguf);
        if (hash != name.npos) name.replace(hash, 1, std::to_string(layer));
        if (is_whole && suffix == std::string(".bias")) continue;
        const bool is_there =
            std::any_of(out.begin(), out.end(), [&](const auto& tensor) {
              return tensor.name == name + (is_whole ? "" : suffix);
            });
        if (is_there) continue;
        if (!is_whole) name += suffix;
        const bool has_ssm_in = linear.keys == 0 || linear.is_fused;
        if (name.ends_with(".ssm_in.weight") && !has_ssm_in) continue;
        const auto published = PublishedTensorName(arch, name);
        const WeightInfo* info = weights.Find(published->name);
        // Of rows with one name in the file.
        if (info == nullptr) {
          std::string own(row.published);
          const size_t at = own.find('#');
          if (at != own.npos) own.replace(at, 1, std::to_string(layer));
          if (const WeightInfo* other = weights.Find(own + suffix)) {
            info = other;
          }
        }
        const bool comes_apart =
            latent.key_dim > 0 && name.ends_with(".attn_kv_b.weight");
        if (info == nullptr || comes_apart) {
          INLAY_ASSIGN_OR_RETURN(GgufTensorData stack,
                                 StackExperts(weights, name, published->name));
          if (stack.bytes.empty()) {
            INLAY_ASSIGN_OR_RETURN(stack,
                                   JoinQkv(weights, name, published->name,
                                           GgufJoinedQkv(arch.model_type)));
          }
          if (stack.bytes.empty()) {
            INLAY_ASSIGN_OR_RETURN(
                stack,
                SplitLatent(weights, name, published->name, heads, latent));
          }
          if (stack.bytes.empty()) {
            INLAY_ASSIGN_OR_RETURN(
                stack, SplitLinear(weights, name, published->name, linear));
            if (!stack.bytes.empty()) {
              Convert(published->layout, heads, kv_heads, &stack);
            }
          }
          if (!stack.bytes.empty()) out.push_back(std::move(stack));
          continue;
        }
        GgufTensorData tensor{name, info->dtype, info->shape};
        INLAY_ASSIGN_OR_RETURN(tensor.bytes, BytesOf(weights, *info));
        Convert(published->layout, heads, kv_heads, &tensor,
                arch.name == "mamba" || arch.name == "jamba");
        out.push_back(std::move(tensor));
      }
    }
  }
  return out;
}

// Rounds the two matrices of the latent to q8_0, and stores what that gives
// as such or in f32.
inline void RoundLatent(bool in_blocks, std::vector<GgufTensorData>* tensors) {
  constexpr size_t kBlock = 32;
  for (GgufTensorData& tensor : *tensors) {
    if (!tensor.name.ends_with("_b.weight") || tensor.shape.size() != 3) {
      continue;
    }
    const size_t count = tensor.bytes.size() / RowBytes(tensor.dtype, 1);
    std::string rounded;
    for (size_t first = 0; first < count; first += kBlock) {
      float most = 0;
      for (size_t i = 0; i < kBlock; ++i) {
        most = std::max(
            most, std::fabs(FloatFrom(tensor.bytes, tensor.dtype, first + i)));
      }
      const uint16_t scale = F32ToF16(most / 127.0f);
      if (in_blocks) {
        rounded.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
      }
      for (size_t i = 0; i < kBlock; ++i) {
        const float value = FloatFrom(tensor.bytes, tensor.dtype, first + i);
        const auto code = static_cast<int8_t>(
            std::clamp(std::round(value / F16ToF32(scale)), -127.0f, 127.0f));
        const float back = F16ToF32(scale) * code;
        in_blocks ? rounded.append(1, static_cast<char>(code))
                  : rounded.append(reinterpret_cast<const char*>(&back),
                                   sizeof(back));
      }
    }
    tensor.bytes = std::move(rounded);
    tensor.dtype = in_blocks ? DType::kQ8_0 : DType::kF32;
  }
}

inline absl::Status WriteGgufTensors(const std::vector<GgufTensorData>& tensors,
                                     GgufWriter* writer) {
  for (const GgufTensorData& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(
        writer->AddTensor(tensor.name, tensor.dtype, tensor.shape));
  }
  INLAY_RETURN_IF_ERROR(writer->StartData());
  for (const GgufTensorData& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(
        writer->Append({reinterpret_cast<const std::byte*>(tensor.bytes.data()),
                        tensor.bytes.size()}));
  }
  return writer->Commit();
}

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_GGUF_FROM_PUBLISHED_H_
