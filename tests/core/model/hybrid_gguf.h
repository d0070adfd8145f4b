// Writing GGUF files of golden models as llama.cpp's converter writes them,
// with all the keys that it sets, and checking what is read of them.
#ifndef INLAY_TESTS_CORE_MODEL_HYBRID_GGUF_H_
#define INLAY_TESTS_CORE_MODEL_HYBRID_GGUF_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/core/model/gguf_golden.h"
#include "tests/support/gguf_from_published.h"

namespace inlay {

// The keys of one architecture. What is said first counts.
class Keys {
 public:
  Keys(std::string arch, GgufWriter* writer)
      : arch_(std::move(arch)), writer_(*writer) {}

  void U32(const std::string& key, const Json& value) {
    if (!IsNew(key)) return;
    Check(writer_.SetU32(arch_ + "." + key, value.get<uint32_t>()));
  }
  void F32(const std::string& key, const Json& value) {
    if (!IsNew(key)) return;
    Check(writer_.SetF32(arch_ + "." + key, value.get<float>()));
  }
  void Flag(const std::string& key, bool value) {
    if (!IsNew(key)) return;
    const std::byte byte{value};
    Check(writer_.Set(arch_ + "." + key,
                      {GgufType::kBool, false, 1, {&byte, 1}}));
  }
  void Flags(const std::string& key, const std::vector<bool>& values) {
    if (!IsNew(key)) return;
    std::vector<std::byte> bytes;
    for (const bool value : values) bytes.push_back(std::byte{value});
    Check(writer_.Set(arch_ + "." + key,
                      {GgufType::kBool, true, bytes.size(), bytes}));
  }
  void U32s(const std::string& key, const std::vector<uint32_t>& values) {
    if (!IsNew(key)) return;
    Check(writer_.Set(arch_ + "." + key,
                      {GgufType::kU32,
                       true,
                       values.size(),
                       {reinterpret_cast<const std::byte*>(values.data()),
                        values.size() * sizeof(uint32_t)}}));
  }

 private:
  static void Check(const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
  }
  bool IsNew(const std::string& key) { return said_.insert(key).second; }

  std::set<std::string> said_;
  std::string arch_;
  GgufWriter& writer_;
};

// `weights` with each tensor as `change` leaves it: its name, its values.
using Change =
    std::function<void(std::string* name, std::vector<int64_t>* shape,
                       std::vector<float>* values)>;

inline std::shared_ptr<MemoryWeights> Changed(const WeightSource& weights,
                                              const Change& change) {
  auto changed = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : weights.weights()) {
    const auto bytes = BytesOf(weights, info);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    std::vector<float> values(bytes->size() / RowBytes(info.dtype, 1));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = FloatFrom(*bytes, info.dtype, i);
    }
    std::string name = info.name;
    std::vector<int64_t> shape = info.shape;
    change(&name, &shape, &values);
    changed->Add(name, DType::kF32, shape, values.data());
  }
  return changed;
}

class HybridGguf : public GgufGoldenModel {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  // `set`: the keys that the architecture has besides those of all. `names`: of
  // the architecture whose published names `weights` have.
  absl::Status Write(const std::string& name, const Json& config,
                     const WeightSource& weights,
                     const std::function<void(Keys&)>& set,
                     const std::string& names = "") {
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch,
                           FindGgufArch(names.empty() ? name : names));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    INLAY_RETURN_IF_ERROR(writer.SetString("general.architecture", name));
    Keys keys(name, &writer);
    keys.U32("block_count", config["num_hidden_layers"]);
    keys.U32("embedding_length", config["hidden_size"]);
    keys.U32("context_length", config.value("max_position_embeddings", 1024));
    const bool has_rms = config.contains("rms_norm_eps");
    keys.F32("attention.layer_norm_rms_epsilon",
             config[has_rms ? "rms_norm_eps" : "layer_norm_epsilon"]);
    set(keys);
    INLAY_ASSIGN_OR_RETURN(
        auto tensors,
        GgufTensorsFrom(weights, *arch, config["num_hidden_layers"].get<int>(),
                        config.value("num_attention_heads", int64_t{1}),
                        config.value("num_key_value_heads", int64_t{1})));
    for (GgufTensorData& tensor : tensors) {
      const bool is_scalar = tensor.shape.size() == 1;
      if (is_scalar && absl::EndsWith(tensor.name, ".ssm_a")) {
        tensor.shape.push_back(1);
      }
    }
    // Falcon H1's has two names.
    std::erase_if(tensors, [&](const GgufTensorData& tensor) {
      return name == "falcon-h1" &&
             absl::EndsWith(tensor.name,
                            old_names_ ? ".ffn_norm" : ".ffn_norm.weight");
    });
    // Granite's MLP has two names, by whether there are experts.
    if (config.value("num_local_experts", 0) > 0) {
      std::erase_if(tensors, [](const GgufTensorData& tensor) {
        return absl::EndsWith(tensor.name, ".ffn_gate.weight") ||
               absl::EndsWith(tensor.name, ".ffn_up.weight") ||
               absl::EndsWith(tensor.name, ".ffn_down.weight");
      });
    }
    int64_t parts = 0;
    for (const GgufTensorData& tensor : tensors) parts += tensor.parts;
    EXPECT_EQ(parts, weights.weights().size());
    if (fuses_experts_) FuseExperts(&tensors);
    tensors.insert(tensors.end(), extra_.begin(), extra_.end());
    return WriteGgufTensors(tensors, &writer);
  }

  void CheckFile(const absl::Status& written) {
    ASSERT_TRUE(written.ok()) << written;
    const auto files = OpenModelFiles(path_, {});
    ASSERT_TRUE(files.ok()) << files.status();
    CheckGoldens(*files);
  }

  // Each expert's gate and up in one matrix, as published.
  static void FuseExperts(std::vector<GgufTensorData>* tensors) {
    const auto find = [&](const std::string& name) {
      return std::find_if(
          tensors->begin(), tensors->end(),
          [&](const GgufTensorData& tensor) { return tensor.name == name; });
    };
    for (int layer = 0;; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
      const auto gate = find(prefix + "gate_exps.weight");
      const auto up = find(prefix + "up_exps.weight");
      if (gate == tensors->end() || up == tensors->end()) return;
      const auto experts = static_cast<size_t>(gate->shape[0]);
      const size_t bytes = gate->bytes.size() / experts;
      std::string fused;
      for (size_t e = 0; e < experts; ++e) {
        fused += gate->bytes.substr(e * bytes, bytes);
        fused += up->bytes.substr(e * bytes, bytes);
      }
      gate->name = prefix + "gate_up_exps.weight";
      gate->shape[1] *= 2;
      gate->bytes = std::move(fused);
      tensors->erase(up);
    }
  }

  void AddFactors(const std::vector<float>& factors) {
    extra_.push_back({"rope_freqs.weight",
                      DType::kF32,
                      {static_cast<int64_t>(factors.size())},
                      std::string(reinterpret_cast<const char*>(factors.data()),
                                  factors.size() * sizeof(float))});
  }

  bool fuses_experts_ = false;
  bool old_names_ = false;
  std::vector<GgufTensorData> extra_;
  std::string path_ =
      ::testing::TempDir() + "hybrid_" + std::to_string(getpid()) + ".gguf";
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_HYBRID_GGUF_H_
