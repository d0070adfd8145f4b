#include "core/engine/fingerprint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "memory/checksum.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint64_t kEdgeBytes = 4096;
constexpr uint64_t kWindowBytes = 64;
// Every window of a mapped file costs a page fault, and a read of the disk
// where the page is not in memory yet: a model of many tensors gets fewer of
// each.
constexpr uint64_t kMaxWindows = 64;
constexpr uint64_t kMinWindows = 2;
constexpr uint64_t kMaxWindowsOfAll = 4096;

// In config.json, but without effect on the network.
constexpr const char* kIgnoredKeys[] = {"_name_or_path",
                                        "transformers_version"};

// Chains parts of any length; where one ends and the next begins matters.
class Chain {
 public:
  void Add(absl::Span<const std::byte> part) {
    print_.high = Hash64(part, print_.high);
    print_.low = Hash64(part, print_.low);
  }
  void Add(std::string_view text) {
    Add(absl::Span<const std::byte>(
        reinterpret_cast<const std::byte*>(text.data()), text.size()));
  }
  void Add(uint64_t number) {
    std::array<std::byte, 8> bytes;
    StoreLittleEndian(number, bytes.data());
    Add(absl::MakeConstSpan(bytes));
  }
  const ModelFingerprint& print() const { return print_; }

 private:
  // Any two seeds that differ.
  ModelFingerprint print_ = {0x496e6c6179000001u, 0x496e6c6179000002u};
};

absl::Status AddSample(const WeightSource& weights, const WeightInfo& info,
                       uint64_t num_windows, std::vector<std::byte>& buffer,
                       Chain& chain) {
  const auto add = [&](uint64_t offset, uint64_t bytes, uint64_t at) {
    return weights.Read(info, offset,
                        absl::MakeSpan(buffer).subspan(at, bytes));
  };
  uint64_t filled = std::min(info.bytes, 2 * kEdgeBytes);
  if (info.bytes <= 2 * kEdgeBytes) {
    INLAY_RETURN_IF_ERROR(add(0, info.bytes, 0));
  } else {
    INLAY_RETURN_IF_ERROR(add(0, kEdgeBytes, 0));
    INLAY_RETURN_IF_ERROR(add(info.bytes - kEdgeBytes, kEdgeBytes, kEdgeBytes));
    const uint64_t step = (info.bytes - kWindowBytes) / num_windows;
    for (uint64_t i = 0; i < num_windows; ++i) {
      INLAY_RETURN_IF_ERROR(add(i * step + step / 2, kWindowBytes, filled));
      filled += kWindowBytes;
    }
  }
  chain.Add(absl::MakeConstSpan(buffer).subspan(0, filled));
  return absl::OkStatus();
}

absl::Status AddWeights(const WeightSource& weights, Chain& chain) {
  const absl::Span<const WeightInfo> infos = weights.weights();
  const uint64_t num_windows =
      std::clamp(kMaxWindowsOfAll / std::max<uint64_t>(1, infos.size()),
                 kMinWindows, kMaxWindows);
  std::vector<std::byte> buffer(2 * kEdgeBytes + kMaxWindows * kWindowBytes);
  for (const WeightInfo& info : infos) {
    chain.Add(info.name);
    chain.Add(DTypeName(info.dtype));
    chain.Add(static_cast<uint64_t>(info.shape.size()));
    for (const int64_t dim : info.shape) {
      chain.Add(static_cast<uint64_t>(dim));
    }
    INLAY_RETURN_IF_ERROR(AddSample(weights, info, num_windows, buffer, chain));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelFingerprint> FingerprintModel(const ModelFiles& files) {
  Chain chain;
  Json config = files.config;
  if (config.is_object()) {
    for (const char* key : kIgnoredKeys) config.erase(key);
  }
  chain.Add(DumpJson(config));
  if (files.random.has_value()) {
    chain.Add(DTypeName(files.random->dtype));
    chain.Add(files.random->seed);
    for (const TensorOverride& given : files.random->overrides) {
      chain.Add(given.pattern);
      chain.Add(DTypeName(given.dtype));
    }
  }
  if (files.weights != nullptr) {
    INLAY_RETURN_IF_ERROR(AddWeights(*files.weights, chain));
  }
  return chain.print();
}

absl::StatusOr<ModelFingerprint> FingerprintModelAt(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const ModelFiles files,
                         OpenModelFiles(path, {.access = WeightAccess::kRead}));
  return FingerprintModel(files);
}

ModelFingerprint WithAttentionPattern(const ModelFingerprint& model,
                                      std::string_view pattern) {
  if (pattern.empty()) return model;
  Chain chain;
  chain.Add(model.high);
  chain.Add(model.low);
  chain.Add(pattern);
  return chain.print();
}

ModelFingerprint FingerprintKv(const ModelFingerprint& model,
                               const KvLayout& layout) {
  Chain chain;
  chain.Add(model.high);
  chain.Add(model.low);
  chain.Add(HashKvLayout(layout));
  return chain.print();
}

uint64_t HashKvLayout(const KvLayout& layout) {
  Chain chain;
  chain.Add(DTypeName(layout.dtype()));
  chain.Add(static_cast<uint64_t>(layout.block_size()));
  chain.Add(static_cast<uint64_t>(layout.block_bytes()));
  for (int layer = 0; layer < layout.num_layers(); ++layer) {
    const KvLayerView view = layout.LayerView(layer, nullptr);
    chain.Add(static_cast<uint64_t>(view.k_offset_bytes));
    chain.Add(static_cast<uint64_t>(view.v_offset_bytes));
    chain.Add(static_cast<uint64_t>(view.num_kv_heads));
    chain.Add(static_cast<uint64_t>(view.head_dim));
    if (view.value_dim > 0) chain.Add(static_cast<uint64_t>(view.value_dim));
    if (layout.row_tokens(layer) > 1) {
      chain.Add(static_cast<uint64_t>(layout.row_tokens(layer)));
    }
  }
  for (int layer = 0; layer < layout.num_states(); ++layer) {
    chain.Add(
        static_cast<uint64_t>(layout.StateView(layer, nullptr).offset_bytes));
    chain.Add(static_cast<uint64_t>(layout.state_bytes(layer)));
  }
  // Only where there is more to say than in times when there was but one.
  if (layout.num_groups() == 1) return chain.print().high;
  for (const KvGroup& group : layout.groups()) {
    chain.Add(static_cast<uint64_t>(group.block_size));
    chain.Add(static_cast<uint64_t>(group.window));
  }
  for (int layer = 0; layer < layout.num_layers(); ++layer)
    chain.Add(static_cast<uint64_t>(layout.group_of(layer)));
  return chain.print().high;
}

uint64_t FingerprintVocabulary(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return 0;
  const int32_t size = tokenizer->vocab_size();
  auto hash = static_cast<uint64_t>(size);
  for (int32_t id = 0; id < size; ++id) {
    const std::string_view token = tokenizer->IdToToken(id);
    const uint64_t special = tokenizer->IsSpecial(id) ? 1 : 0;
    hash =
        Hash64({reinterpret_cast<const std::byte*>(token.data()), token.size()},
               hash + special);
  }
  return std::max<uint64_t>(hash, 1);
}

}  // namespace inlay
