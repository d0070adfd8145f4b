#include "core/model/inspect.h"

#include <map>
#include <utility>

#include "core/formats/classification_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kWorkspaceTokens = 512;
constexpr int64_t kWorkspaceRows = 16;

OrderedJson ScalarMembers(const Json& config) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, value] : config.items()) {
    // Each is sought among those before it.
    if (out.size() == kMaxOrderedMembers) break;
    if (!value.is_structured()) out[key] = OrderedJson(value);
  }
  return out;
}

std::string Architecture(const Json& config) {
  const Json* list = JsonFind(config, "architectures");
  if (list == nullptr || !list->is_array() || list->empty() ||
      !list->front().is_string()) {
    return "";
  }
  return list->front().get<std::string>();
}

void AddModel(const Model& model, OrderedJson& out) {
  const ModelInfo& info = model.info();
  out["architecture"] = info.architecture;
  out["model_type"] = info.model_type;
  out["model"] = {{"parameters", info.num_parameters},
                  {"layers", info.num_layers},
                  {"hidden_size", info.hidden_size},
                  {"vocab_size", info.vocab_size},
                  {"max_positions", info.max_positions}};

  const KvLayout& layout = model.kv_layout();
  std::map<std::pair<int, int>, int> shapes;
  uint64_t token_bytes = 0;
  for (const KvLayerShape& layer : info.kv_layers) {
    ++shapes[{layer.num_kv_heads, layer.head_dim}];
    token_bytes +=
        static_cast<uint64_t>(layer.num_planes() * layer.num_kv_heads) *
        KvRowBytes(layout.dtype(), layer.head_dim) /
        static_cast<uint64_t>(layer.row_tokens);
  }
  OrderedJson groups = OrderedJson::array();
  for (const KvGroup& group : layout.groups())
    groups.push_back({group.block_size, group.window});
  OrderedJson kv_shapes = OrderedJson::array();
  for (const auto& [shape, layers] : shapes) {
    kv_shapes.push_back({shape.first, shape.second, layers});
  }
  out["kv"] = {{"dtype", std::string(DTypeName(layout.dtype()))},
               {"block_size", layout.block_size()},
               {"layers", std::move(kv_shapes)},
               {"groups", std::move(groups)},
               {"bytes_per_token", token_bytes},
               {"bytes_per_block", layout.block_bytes()}};
  if (layout.has_states()) {
    out["kv"]["state_bytes"] = layout.used_bytes(layout.state_group());
  }
  out["memory"] = {{"weights_bytes", info.weight_bytes},
                   {"weights_bytes_per_token", info.weight_bytes_per_token},
                   {"kv_bytes_per_1k_tokens", 1024 * token_bytes},
                   {"experts_bytes", info.experts.bytes},
                   {"experts_bytes_per_slot", info.experts.slot_bytes},
                   {"experts_least_slots", info.experts.least_slots},
                   {"experts_device_bytes", info.experts.device_bytes},
                   {"experts_host_bytes", info.experts.host_bytes},
                   {"workspace_tokens", kWorkspaceTokens},
                   {"workspace_bytes",
                    model.WorkspaceBytes(kWorkspaceTokens, kWorkspaceRows)}};
}

// Of a model that loads.
void AddLabels(const Json& config, OrderedJson& out) {
  constexpr const char* kNames[] = {"logits", "sigmoid", "softmax"};
  const auto defaults = ReadClassificationDefaults(config);
  if (!defaults.ok()) return;
  out["classification"] = {
      {"labels", defaults->labels},
      {"scores", defaults->unsupported.empty()
                     ? kNames[static_cast<size_t>(defaults->activation)]
                     : "unsupported"}};
}

void AddTensors(const WeightSource& source, OrderedJson& out) {
  struct Total {
    uint64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Total> totals;
  OrderedJson tensors = OrderedJson::array();
  for (const WeightInfo& info : source.weights()) {
    const std::string dtype(DTypeName(info.dtype));
    Total& total = totals[dtype];
    ++total.tensors;
    total.bytes += info.bytes;
    tensors.push_back({{"name", info.name},
                       {"dtype", dtype},
                       {"shape", info.shape},
                       {"bytes", info.bytes}});
  }
  OrderedJson formats = OrderedJson::object();
  for (const auto& [dtype, total] : totals) {
    formats[dtype] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  out["formats"] = std::move(formats);
  out["tensors"] = std::move(tensors);
}

}  // namespace

absl::StatusOr<std::string> InspectModel(const ModelFiles& files,
                                         Device& device,
                                         const ModelLoadOptions& options) {
  if (!files.config.is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json is %s; it must be an object", files.config.type_name()));
  }
  OrderedJson out = OrderedJson::object();
  out["architecture"] = Architecture(files.config);
  const Json* model_type = JsonFind(files.config, "model_type");
  out["model_type"] = model_type != nullptr && model_type->is_string()
                          ? model_type->get<std::string>()
                          : std::string();
  const auto plan = PlanModel(files, device, options);
  out["supported"] = plan.ok();
  if (!plan.ok()) out["reason"] = std::string(plan.status().message());
  out["config"] = ScalarMembers(files.config);
  if (plan.ok()) AddModel(**plan, out);
  if (plan.ok() && (*plan)->info().num_labels > 0) {
    AddLabels(files.config, out);
  }
  if (files.weights != nullptr) AddTensors(*files.weights, out);
  return DumpJson(out);
}

}  // namespace inlay
