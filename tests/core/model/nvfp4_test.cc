// NVFP4 weights with factors, in GGUF files as llama.cpp's converter writes
// them of ModelOpt's checkpoints, and in checkpoints themselves, against the
// same models whose weights are what these stand for, in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_files.h"
#include "core/formats/quantized_source.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/model/rounded_models.h"
#include "tests/support/gguf_from_published.h"
#include "tests/support/nvfp4_tensors.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

class Nvfp4Test : public ::testing::Test {
 protected:
  // Rounds the matrices in place; what is added are factors, of inputs too.
  // ModelOpt leaves embeddings and routers alone. `some_trivial`: some factors
  // are 1, which the converter leaves out.
  static int Round(bool some_trivial, std::vector<GgufTensorData>* tensors,
                   std::vector<GgufTensorData>* wide) {
    int rounded = 0;
    const size_t count = tensors->size();
    for (size_t t = 0; t < count; ++t) {
      wide->push_back((*tensors)[t]);
      const std::string name = wide->back().name;
      const std::vector<int64_t> shape = wide->back().shape;
      if (shape.size() < 2 || shape.back() % 64 != 0 ||
          !name.ends_with(".weight") || name == "token_embd.weight" ||
          name == "position_embd.weight" ||
          name.ends_with("ffn_gate_inp.weight")) {
        continue;
      }
      Widen(0.0f, &wide->back());
      std::vector<float> values(wide->back().bytes.size() / sizeof(float));
      std::memcpy(values.data(), wide->back().bytes.data(),
                  wide->back().bytes.size());
      const size_t matrices =
          shape.size() == 3 ? static_cast<size_t>(shape[0]) : 1;
      const size_t size = values.size() / matrices;
      GgufTensorData weight{name, DType::kNVFP4, shape};
      std::string stem = name.substr(0, name.rfind('.'));
      GgufTensorData factors{
          stem + ".scale", DType::kF32, {static_cast<int64_t>(matrices)}};
      GgufTensorData inputs = factors;
      inputs.name = stem + ".input_scale";
      wide->back().bytes.clear();
      const bool is_trivial = some_trivial && t % 3 == 0;
      for (size_t m = 0; m < matrices; ++m) {
        const auto at = values.begin() + static_cast<ptrdiff_t>(m * size);
        const std::vector<float> own(at, at + static_cast<ptrdiff_t>(size));
        // Far apart: what takes another's is seen.
        const float factor = Nvfp4Matrix::FactorOf(own) *
                             (1.0f + static_cast<float>((t + m) % 5));
        const auto matrix =
            Nvfp4Matrix::Round(own, shape.back(), is_trivial ? 1.0f : factor);
        weight.bytes += matrix.GgufBlocks();
        factors.bytes.append(reinterpret_cast<const char*>(&matrix.factor), 4);
        inputs.bytes.append(4, '\x3e');
        const std::vector<float> means = matrix.Values();
        wide->back().bytes.append(reinterpret_cast<const char*>(means.data()),
                                  means.size() * sizeof(float));
      }
      (*tensors)[t] = std::move(weight);
      if (!is_trivial) tensors->push_back(std::move(factors));
      tensors->push_back(std::move(inputs));
      ++rounded;
    }
    return rounded;
  }

  // `name` in tests/data/gguf, which the converter wrote.
  absl::StatusOr<RoundedFiles> Converted(const std::string& name,
                                         WeightAccess access) {
    const std::string path = TestData() + "/gguf/" + name + ".gguf";
    INLAY_ASSIGN_OR_RETURN(const GgufFiles from,
                           OpenGgufFiles(path, WeightAccess::kMap));
    std::vector<GgufTensorData> tensors;
    for (const GgufTensor& tensor : from.header().tensors) {
      GgufTensorData& data = tensors.emplace_back(GgufTensorData{
          tensor.info.name, tensor.info.dtype, tensor.info.shape});
      data.bytes.resize(tensor.info.bytes);
      INLAY_RETURN_IF_ERROR(from.files[0].Read(
          tensor.offset,
          absl::MakeSpan(reinterpret_cast<std::byte*>(data.bytes.data()),
                         data.bytes.size())));
    }
    return WriteBoth(
        std::move(tensors),
        [&](GgufWriter* writer) {
          for (const GgufEntry& entry : from.header().entries) {
            if (entry.key == kGgufAlignmentKey) continue;
            INLAY_RETURN_IF_ERROR(writer->Set(entry.key, entry.value));
          }
          return absl::OkStatus();
        },
        access);
  }

  // Every token goes to all experts: their choice is the goldens' matter.
  absl::StatusOr<RoundedFiles> Mixtral(WeightAccess access) {
    const ModelFiles published = Open("mixtral", "config.json");
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch("llama"));
    INLAY_ASSIGN_OR_RETURN(std::vector<GgufTensorData> tensors,
                           GgufTensorsFrom(*published.weights, *arch, 2, 4, 2));
    return WriteBoth(
        std::move(tensors),
        [](GgufWriter* writer) {
          INLAY_RETURN_IF_ERROR(
              writer->SetString("general.architecture", "llama"));
          for (const auto& [key, value] :
               std::initializer_list<std::pair<const char*, uint32_t>>{
                   {"block_count", 2},
                   {"embedding_length", 64},
                   {"context_length", 512},
                   {"feed_forward_length", 64},
                   {"attention.head_count", 4},
                   {"attention.head_count_kv", 2},
                   {"expert_count", 4},
                   {"expert_used_count", 4}}) {
            INLAY_RETURN_IF_ERROR(
                writer->SetU32(std::string("llama.") + key, value));
          }
          return writer->SetF32("llama.attention.layer_norm_rms_epsilon",
                                1e-3f);
        },
        access);
  }

  // The model in a layout of Hugging Face checkpoints.
  absl::StatusOr<RoundedFiles> Checkpoint(const std::string& name,
                                          bool is_modelopt) {
    RoundedFiles files;
    files.wide = Open(name, "config.json");
    if (files.wide.config.contains("num_experts_per_tok")) {
      files.wide.config["num_experts_per_tok"] =
          files.wide.config["num_local_experts"];
    }
    files.rounded = files.wide;
    auto rounded = std::make_shared<MemoryWeights>(true);
    auto wide = std::make_shared<MemoryWeights>(true);
    num_rounded_ = 0;
    for (const WeightInfo& info : files.wide.weights->weights()) {
      INLAY_ASSIGN_OR_RETURN(const std::string bytes,
                             BytesOf(*files.wide.weights, info));
      if (info.shape.size() != 2 || info.shape[1] % 64 != 0 ||
          info.name.find("embed_tokens") != info.name.npos ||
          info.name.ends_with(".gate.weight")) {
        rounded->Add(info, bytes.data());
        wide->Add(info, bytes.data());
        continue;
      }
      std::vector<float> values;
      for (size_t i = 0; i < bytes.size() / RowBytes(info.dtype, 1); ++i) {
        values.push_back(FloatFrom(bytes, info.dtype, i));
      }
      const auto matrix = Nvfp4Matrix::Round(
          values, info.shape[1],
          Nvfp4Matrix::FactorOf(values) *
              (1.0f + static_cast<float>(num_rounded_++ % 5)));
      matrix.AddTo(*rounded, info.name.substr(0, info.name.rfind('.')),
                   is_modelopt);
      wide->Add(info.name, DType::kF32, info.shape, matrix.Values().data());
    }
    files.wide.weights = wide;
    const Json weights = {{"num_bits", 4},
                          {"type", "float"},
                          {"strategy", "tensor_group"},
                          {"group_size", 16}};
    const Json groups = {{"group_0", {{"weights", weights}}}};
    const Json settings = {
        {"quant_method", is_modelopt ? "modelopt" : "compressed-tensors"},
        {"quant_algo", "NVFP4"},
        {"format", "nvfp4-pack-quantized"},
        {"config_groups", groups}};
    INLAY_ASSIGN_OR_RETURN(files.rounded.weights,
                           OpenQuantized(settings, rounded));
    return files;
  }

  std::string Rounded() const { return folder_.path() + "/rounded.gguf"; }

  template <typename SetKeys>
  absl::StatusOr<RoundedFiles> WriteBoth(std::vector<GgufTensorData> tensors,
                                         const SetKeys& set_keys,
                                         WeightAccess access) {
    std::vector<GgufTensorData> wide;
    num_rounded_ = Round(some_trivial_, &tensors, &wide);
    RoundedFiles files;
    for (const bool rounds : {true, false}) {
      const std::string path =
          rounds ? Rounded() : folder_.path() + "/wide.gguf";
      INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path));
      INLAY_RETURN_IF_ERROR(set_keys(&writer));
      INLAY_RETURN_IF_ERROR(WriteGgufTensors(rounds ? tensors : wide, &writer));
      INLAY_ASSIGN_OR_RETURN((rounds ? files.rounded : files.wide),
                             OpenModelFiles(path, {.access = access}));
    }
    return files;
  }

  static void Check(const char* name, const RoundedFiles& files) {
    ExpectRunsAsWide(name, files, {1, 3, kWholePrompt},
                     {1, 3, 12, kWholePrompt});
  }

  TempFolder folder_;
  int num_rounded_ = 0;
  bool some_trivial_ = false;
};

TEST_F(Nvfp4Test, DenseGguf) {
  // Of each: matrices a layer, and a head of its own.
  constexpr std::pair<const char*, int> kModels[] = {{"llama3", 2 * 7 + 1},
                                                     {"gemma", 2 * 7},
                                                     {"phi3", 2 * 4 + 1},
                                                     {"gpt2", 2 * 4}};
  for (const auto& [name, matrices] : kModels) {
    SCOPED_TRACE(name);
    for (const WeightAccess access :
         {WeightAccess::kMap, WeightAccess::kRead}) {
      const auto files = Converted(name, access);
      ASSERT_TRUE(files.ok()) << files.status();
      EXPECT_EQ(num_rounded_, matrices);
      Check(name, *files);
    }
  }
}

TEST_F(Nvfp4Test, ExpertsOfGguf) {
  const auto files = Mixtral(WeightAccess::kMap);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(num_rounded_, 2 * (4 + 3) + 1);
  Check("mixtral", *files);
}

TEST_F(Nvfp4Test, Checkpoints) {
  for (const bool is_modelopt : {true, false}) {
    for (const auto& [name, matrices] :
         {std::pair{"llama3", 2 * 7 + 1}, {"mixtral", 2 * (4 + 3 * 4) + 1}}) {
      SCOPED_TRACE(name);
      const auto files = Checkpoint(name, is_modelopt);
      ASSERT_TRUE(files.ok()) << files.status();
      EXPECT_EQ(num_rounded_, matrices);
      Check(name, *files);
    }
  }
}

TEST_F(Nvfp4Test, TrivialFactorsAreLeftOut) {
  some_trivial_ = true;
  for (const bool has_experts : {false, true}) {
    const auto files = has_experts ? Mixtral(WeightAccess::kMap)
                                   : Converted("llama3", WeightAccess::kMap);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto written = OpenGgufFiles(Rounded(), WeightAccess::kMap);
    ASSERT_TRUE(written.ok()) << written.status();
    int without = 0;
    for (const GgufTensor& tensor : written->header().tensors) {
      if (tensor.info.dtype != DType::kNVFP4) continue;
      const std::string& name = tensor.info.name;
      const std::string stem = name.substr(0, name.rfind('.'));
      if (written->FindTensor(stem + ".scale") == nullptr) ++without;
    }
    EXPECT_GT(without, 0);
    EXPECT_LT(without, num_rounded_);
    Check(has_experts ? "mixtral" : "llama3", *files);
  }
}

}  // namespace
}  // namespace inlay
