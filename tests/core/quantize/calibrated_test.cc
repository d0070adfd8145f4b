// Files that methods with calibration write, and calibration itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "core/json/json.h"
#include "core/model/load_model.h"
#include "core/quantize/calibration.h"
#include "core/quantize/quantize.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/quant.h"
#include "tests/core/quantize/quantized_files.h"
#include "tests/support/paths/paths.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

class CalibratedTest : public QuantizedFiles {};

// Sums what one layer reads in whole forward passes.
class Sums : public InputObserver {
 public:
  Sums(std::string layer, int64_t inputs, Stream& stream)
      : hessian(inputs, false), layer_(std::move(layer)), stream_(stream) {}
  void OnInput(std::string_view layer, const TensorView& x) override {
    if (layer != layer_) return;
    ASSERT_TRUE(hessian.Add(x, stream_).ok());
  }
  Hessian hessian;

 private:
  std::string layer_;
  Stream& stream_;
};

struct LayerOf {
  const char* model;
  const char* layer;
  int64_t inputs;
  int sequences;

  friend void PrintTo(const LayerOf& test, std::ostream* out) {
    *out << test.model;
  }
};

class CalibratedByLayers : public CalibratedTest,
                           public ::testing::WithParamInterface<LayerOf> {};

TEST_P(CalibratedByLayers, IsTheForwardPass) {
  const auto files = OpenModelFiles(Golden(GetParam().model), {});
  ASSERT_TRUE(files.ok());
  const std::string layer = GetParam().layer;
  const int64_t inputs = GetParam().inputs;
  const TokenSequences sequences =
      Sequences(GetParam().sequences, 37,
                std::min(256, files->config["vocab_size"].get<int>()));
  Sums sums(layer, inputs, *stream_);
  ModelLoadOptions options;
  options.fused = false;
  options.input_observer = &sums;
  const auto model = LoadModel(*files, *device_, options);
  ASSERT_TRUE(model.ok()) << model.status();
  ModelHarness harness(**model, *device_, 256);
  for (const auto& tokens : sequences) {
    ASSERT_TRUE(harness.Run(harness.AddSequence(64), tokens, 64).ok());
  }

  int calls = 0;
  const auto calibration = Calibration::Create(
      *files, sequences, *device_, *stream_, [&calls] { return ++calls > 0; });
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  Hessians hessians;
  hessians.emplace(layer, Hessian(inputs, false));
  const int64_t width = model->get()->info().hidden_size;
  hessians.emplace("head", Hessian(width, false));
  for (int i = 0; i < (*calibration)->num_layers(); ++i) {
    ASSERT_TRUE((*calibration)->Collect(i, i == 0, &hessians).ok());
    if (i > 0) {
      ASSERT_TRUE((*calibration)->Advance(i, files->weights).ok());
    }
  }
  ASSERT_TRUE((*calibration)->CollectHead("head", &hessians).ok());
  EXPECT_EQ(hessians.find(layer)->second.diagonal(), sums.hessian.diagonal());
  EXPECT_EQ(hessians.find(layer)->second.tokens(),
            (*calibration)->num_tokens());
  EXPECT_GT(hessians.find("head")->second.diagonal()[5], 0.0);
  EXPECT_GE(calls, 3 * GetParam().sequences);
}

// The second has inputs per layer, made of the tokens whatever the layer, and
// its last layers read the keys and values of others. The others select keys:
// of glm_moe_dsa layer 1 sees what layer 0 has selected; deepseek_v4 has
// several residual streams and compresses keys. The last three have states, the
// first two of them no KV; layers of rwkv7 read values of the first.
INSTANTIATE_TEST_SUITE_P(
    Models, CalibratedByLayers,
    ::testing::Values(
        LayerOf{"llama3", "model.layers.1.mlp.down_proj", 128, 3},
        LayerOf{"gemma4_text", "model.layers.3.per_layer_projection", 32, 3},
        LayerOf{"deepseek_v32", "model.layers.2.self_attn.o_proj", 128, 3},
        LayerOf{"glm_moe_dsa", "model.layers.1.self_attn.o_proj", 64, 3},
        LayerOf{"deepseek_v4", "layers.2.attn.wo_b", 32, 3},
        LayerOf{"deepseek_v4_rates", "layers.1.attn.wo_b", 32, 3},
        LayerOf{"linear_attn", "model.layers.1.attn.o_proj", 128, 3},
        LayerOf{"rwkv7", "model.layers.2.attn.o_proj", 32, 3},
        LayerOf{"recurrent_gemma", "model.layers.1.temporal_block.linear_out",
                32, 3}),
    [](const auto& info) { return std::string(info.param.model); });

TEST_F(CalibratedTest, WhatCalibrationRefuses) {
  const auto files = OpenModelFiles(Golden("llama3"), {});
  ASSERT_TRUE(files.ok());
  const auto status = [&](TokenSequences sequences) {
    return Calibration::Create(*files, std::move(sequences), *device_, *stream_,
                               nullptr)
        .status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(status({})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{1, -1}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{1, 1 << 20}})));
  EXPECT_TRUE(
      absl::IsInvalidArgument(status({std::vector<int32_t>(1 << 20, 1)})));
}

// Scales that are folded into norms, values and up-projections change nothing
// but what rounding does: no more than to nearest, but for chance. SmoothQuant
// has some for every architecture; the others take turns.
TEST_F(CalibratedTest, EveryArchitectureStaysItself) {
  constexpr QuantizeMethod kOthers[] = {
      QuantizeMethod::kImportance, QuantizeMethod::kGptq, QuantizeMethod::kAwq};
  size_t turn = 0;
  for (const char* model :
       {"llama2", "llama3", "llama_tied_bias", "mistral", "qwen2", "qwen3",
        "gemma", "gemma2", "gemma3_text", "phi3", "gpt2", "nemotron", "olmo"}) {
    SCOPED_TRACE(model);
    const std::vector<float> wanted = Logits(Golden(model));
    ASSERT_TRUE(QuantizePath(Golden(model),
                             Options("q8_0", QuantizeMethod::kNearest), Out())
                    .ok());
    const double nearest = RelativeError(Logits(Out()), wanted);
    // Of a whole model, not derived: half a per cent a product, over layers.
    EXPECT_LT(nearest, 0.05);
    for (const QuantizeMethod method :
         {QuantizeMethod::kSmoothQuant, kOthers[turn++ % 3]}) {
      QuantizeOptions options = Options("q8_0", method);
      options.calibration_sequences = Sequences(6, 40, 128);
      const auto report = QuantizePath(Golden(model), options, Out());
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_LT(RelativeError(Logits(Out()), wanted), 1.5 * nearest + 0.002)
          << QuantizeMethodName(method);
      EXPECT_EQ(report->calibration_tokens, 6 * 40 - 15);
      int used = 0;
      for (const QuantizedTensor& tensor : report->tensors) {
        used += tensor.method.used ? 1 : 0;
        if (!tensor.method.used) continue;
        EXPECT_GT(tensor.method.output_error, 0.0) << tensor.name;
        // q8_0's error of normal values is 0.0054 of them; outputs with the
        // importance of their inputs may err by some times that.
        EXPECT_LT(tensor.method.output_error, 0.02) << tensor.name;
      }
      EXPECT_GE(used, 6);
    }
  }
}

// RWKV-7's layers read mixes of their norm's output, each its own: nothing is
// divided there. What is of low rank keeps 16 bits.
TEST_F(CalibratedTest, TimeMixesStayThemselves) {
  const std::vector<float> wanted = Logits(Golden("rwkv7"));
  double nearest = 0;
  for (const QuantizeMethod method :
       {QuantizeMethod::kNearest, QuantizeMethod::kImportance,
        QuantizeMethod::kGptq, QuantizeMethod::kAwq,
        QuantizeMethod::kSmoothQuant}) {
    SCOPED_TRACE(QuantizeMethodName(method));
    QuantizeOptions options = Options("q8_0", method);
    if (method != QuantizeMethod::kNearest) {
      options.calibration_sequences = Sequences(6, 40, 112);
    }
    const auto report = QuantizePath(Golden("rwkv7"), options, Out());
    ASSERT_TRUE(report.ok()) << report.status();
    const double error = RelativeError(Logits(Out()), wanted);
    if (method == QuantizeMethod::kNearest) nearest = error;
    EXPECT_LT(error, 1.5 * nearest + 0.002);
    EXPECT_LT(error, 0.05);  // as above
    int used = 0, small = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      used += tensor.method.used ? 1 : 0;
      const bool is_small = tensor.name.find("_lora.") != std::string::npos &&
                            tensor.name.ends_with(".weight");
      if (!is_small) continue;
      ++small;
      EXPECT_FALSE(tensor.method.used) << tensor.name;
      EXPECT_TRUE(tensor.to == DType::kBF16 || tensor.to == DType::kF32)
          << tensor.name;
    }
    EXPECT_EQ(small, 24);  // with the first layer's that nothing reads
    // Six a layer.
    EXPECT_EQ(used >= 18, method != QuantizeMethod::kNearest) << used;
  }
}

// Scales folded into the norms before the last products of BitNet's parts.
TEST_F(CalibratedTest, NormsInsideOfPartsTakeScales) {
  const std::vector<float> wanted = Logits(Golden("bitnet"));
  double nearest = 0.0;
  for (const QuantizeMethod method :
       {QuantizeMethod::kNearest, QuantizeMethod::kSmoothQuant,
        QuantizeMethod::kAwq}) {
    SCOPED_TRACE(QuantizeMethodName(method));
    QuantizeOptions options = Options("i8_g32", method);
    if (method != QuantizeMethod::kNearest) {
      options.calibration_sequences = Sequences(6, 40, 128);
    }
    const auto report = QuantizePath(Golden("bitnet"), options, Out());
    ASSERT_TRUE(report.ok()) << report.status();
    const double error = RelativeError(Logits(Out()), wanted);
    if (method == QuantizeMethod::kNearest) nearest = error;
    EXPECT_LT(nearest, 0.05);
    EXPECT_LT(error, 1.5 * nearest + 0.002);
  }
}

TEST_F(CalibratedTest, MethodsLowerTheErrorOfOutputs) {
  constexpr QuantizeMethod kMethods[] = {
      QuantizeMethod::kImportance, QuantizeMethod::kGptq, QuantizeMethod::kAwq};
  size_t turn = 0;
  for (const char* type : {"q4_0", "q4_1", "iq4_nl", "u4_g32"}) {
    for (size_t i = 0; i < std::size(kMethods); ++i) {
      if (!::inlay::testing::TriedWith(turn, i, std::size(kMethods))) continue;
      const QuantizeMethod method = kMethods[i];
      const std::string out = folder_ + "/out";
      const auto report =
          QuantizePath(Golden("llama3"), Options(type, method), out);
      ASSERT_TRUE(report.ok()) << report.status();
      double got = 0, nearest = 0;
      for (const QuantizedTensor& tensor : report->tensors) {
        got += tensor.method.output_error;
        nearest += tensor.method.nearest_error;
      }
      EXPECT_GT(got, 0);
      EXPECT_LT(got, nearest) << type << " " << QuantizeMethodName(method);
      std::filesystem::remove_all(out);
    }
    ++turn;
  }
}

TEST_F(CalibratedTest, CancellingLeavesNothing) {
  for (const int at : {1, 4, 20}) {
    QuantizeOptions options = Options("q4_0", QuantizeMethod::kGptq);
    int calls = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      return ++calls < at;
    };
    const auto report = QuantizePath(Golden("llama3"), options, Out());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(calls, at);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  }
}

// Of every tensor: what writing it took, calibration not counted.
TEST_F(CalibratedTest, SecondsOfEachTensorAreToldOf) {
  for (const QuantizeMethod method :
       {QuantizeMethod::kNearest, QuantizeMethod::kSmoothQuant}) {
    QuantizeOptions options = Options("q4_0", method);
    options.tensor_types = {"*o_proj*=bf16"};
    const auto start = std::chrono::steady_clock::now();
    const auto report = QuantizePath(Golden("llama3"), options, Out());
    const std::chrono::duration<double> all =
        std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(report.ok()) << report.status();
    const Json json = *ParseJson(ToJson(*report), "report");
    double sum = 0;
    for (const Json& tensor : json["tensors"]) {
      ASSERT_TRUE(tensor.contains("seconds")) << tensor;
      EXPECT_GT(tensor["seconds"], 0.0) << tensor;
      sum += tensor["seconds"].get<double>();
    }
    EXPECT_LT(sum, all.count());
  }
}

TEST_F(CalibratedTest, ProgressEndsAtTheTotal) {
  QuantizeOptions options = Options("q4_0", QuantizeMethod::kAwq);
  uint64_t last = 0, all = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
    return true;
  };
  ASSERT_TRUE(QuantizePath(Golden("llama3"), options, Out()).ok());
  EXPECT_LE(last, all);
  EXPECT_GT(static_cast<double>(last), 0.8 * static_cast<double>(all));
}

TEST_F(CalibratedTest, ErrorsNameWhatIsWrong) {
  QuantizeOptions options = Options("q4_0", QuantizeMethod::kGptq);
  options.calibration_sequences.clear();
  const auto nothing = QuantizePath(Golden("llama3"), options, Out());
  EXPECT_TRUE(absl::IsInvalidArgument(nothing.status()));
  EXPECT_NE(nothing.status().message().find("gptq"), absl::string_view::npos);
  options.calibration = {"text"};
  EXPECT_FALSE(QuantizePath(Golden("llama3"), options, Out()).ok())
      << "it has no tokenizer";
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// Types whose codes do not stand for one element each, and floats: nothing is
// read of the calibration before it says so.
TEST_F(CalibratedTest, MethodsThatDoNothingAreRefused) {
  using enum QuantizeMethod;
  const struct {
    std::vector<const char*> types;
    std::vector<QuantizeMethod> methods;
    const char* allowed;
  } cases[] = {
      {{"w8a8_fp8", "w8a8_fp8_tensor", "w8a8_fp8_static", "w8a8_fp8_block",
        "nf4", "fp4", "mxfp4", "nvfp4", "tq2_0", "iq3_s"},
       {kImportance, kGptq, kAwq},
       ", allowed: rtn, smoothquant"},
      {{"f32", "f16", "bf16"},
       {kImportance, kGptq, kAwq, kSmoothQuant},
       ", allowed: rtn"}};
  for (const auto& c : cases) {
    for (const std::string type : c.types) {
      for (const QuantizeMethod method : c.methods) {
        QuantizeOptions options = Options(type, method);
        // Its rows are no whole blocks of 256: they would get another type.
        options.tensor_types = {"*o_proj*=bf16"};
        options.progress = [](uint64_t, uint64_t) {
          ADD_FAILURE() << "it went on";
          return false;
        };
        const absl::Status status =
            QuantizePath(Golden("llama_bf16"), options, Out()).status();
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        EXPECT_EQ(std::string(status.message()),
                  "the method for " + type + " is " +
                      std::string(QuantizeMethodName(method)) + c.allowed);
        EXPECT_TRUE(std::filesystem::is_empty(folder_));
      }
    }
  }
  // One layer is enough.
  QuantizeOptions options = Options("mxfp4", kImportance);
  options.tensor_types = {"*.1.mlp.up_proj*=q4_0"};
  const auto report = QuantizePath(Golden("llama_bf16"), options, Out());
  ASSERT_TRUE(report.ok()) << report.status();
  for (const QuantizedTensor& tensor : report->tensors) {
    EXPECT_EQ(tensor.method.used, tensor.to == DType::kQ4_0) << tensor.name;
  }
}

// What is read back is what was chosen: the layout is that of the reader, which
// is checked against files of other tools.
TEST_F(CalibratedTest, FoldersOfGptqsLayout) {
  const std::string out = folder_ + "/model";
  const auto source = OpenModelFiles(Golden("llama3"), {});
  ASSERT_TRUE(source.ok());
  for (const DType dtype : {DType::kU4_G32, DType::kI8_G32}) {
    SCOPED_TRACE(DTypeName(dtype));
    QuantizeOptions options;
    options.type = std::string(DTypeName(dtype));
    options.tensor_types = {"*.o_proj.*=f16"};
    const auto report = QuantizePath(Golden("llama3"), options, out);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->file_bytes,
              std::filesystem::file_size(out + "/model.safetensors"));
    const auto files = OpenModelFiles(out, {});
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->config["quantization_config"]["quant_method"], "gptq");
    int layers = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      const bool wanted = tensor.name.find("_proj") != std::string::npos &&
                          tensor.name.find("o_proj") == std::string::npos;
      EXPECT_EQ(tensor.to == dtype, wanted) << tensor.name;
      const WeightInfo* got = files->weights->Find(tensor.name);
      const WeightInfo* want = source->weights->Find(tensor.name);
      ASSERT_TRUE(got != nullptr && want != nullptr) << tensor.name;
      EXPECT_EQ(got->dtype, tensor.to) << tensor.name;
      std::vector<std::byte> bytes(got->bytes), stored(want->bytes);
      ASSERT_TRUE(files->weights->Read(*got, 0, absl::MakeSpan(bytes)).ok());
      ASSERT_TRUE(source->weights->Read(*want, 0, absl::MakeSpan(stored)).ok());
      if (!wanted) {
        EXPECT_EQ(bytes, stored) << tensor.name;
        continue;
      }
      ++layers;
      ASSERT_EQ(want->dtype, DType::kBF16);
      const BlockCodec& codec = *FindBlockCodec(dtype);
      std::vector<float> values(stored.size() / 2), expected(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, stored.data() + 2 * i, sizeof(bits));
        values[i] = BF16ToF32(bits);
      }
      const auto blocks = static_cast<int64_t>(values.size() / 32);
      std::vector<std::byte> encoded(bytes.size());
      EncodeOnGrid(*codec.grid, values.data(), nullptr, blocks, encoded.data());
      codec.decode(bytes.data(), blocks, values.data());
      codec.decode(encoded.data(), blocks, expected.data());
      EXPECT_EQ(values, expected) << tensor.name;
    }
    EXPECT_EQ(layers, 12);
    // Of a whole model, not derived; a wrong matrix moves logits by more.
    EXPECT_LT(RelativeError(Logits(out), Logits(Golden("llama3"))), 0.3);
    std::filesystem::remove_all(out);
  }
}

// Every expert's matrices are rounded, the routers are not; what is rounded to
// nearest comes back near, and methods that calibrate say what they miss.
TEST_F(CalibratedTest, ExpertsAreMatrices) {
  QuantizeOptions options;
  options.type = "i8_g32";
  options.num_threads = 2;
  for (const char* model : {"mixtral", "qwen2_moe", "gpt_oss",
                            "gemma4_moe_text", "deepseek_v32", "deepseek_v4"}) {
    SCOPED_TRACE(model);
    const std::string out = folder_ + "/experts";
    const auto report = QuantizePath(Golden(model), options, out);
    ASSERT_TRUE(report.ok()) << report.status();
    int experts = 0, routers = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      const bool is_expert =
          tensor.name.find(".experts.") != std::string::npos &&
          tensor.name.ends_with(".weight");
      experts += is_expert && tensor.to == DType::kI8_G32;
      if (is_expert) {
        EXPECT_EQ(tensor.to, DType::kI8_G32) << tensor.name;
      }
      const bool is_router = tensor.name.ends_with(".gate.weight") ||
                             tensor.name.ends_with(".router.weight") ||
                             tensor.name.ends_with(".router.proj.weight") ||
                             tensor.name.ends_with(".weights_proj.weight");
      routers += is_router;
      if (is_router) {
        EXPECT_EQ(tensor.to, tensor.from) << tensor.name;
      }
    }
    EXPECT_GE(experts, 24);
    EXPECT_GE(routers, 2);
    // 8 bits a block of 32 err by some half per cent of a product's size, which
    // layers and changed choices of experts multiply: 7 % at worst here. A
    // wrong matrix moves all logits of its tokens.
    EXPECT_LT(RelativeError(Logits(out), Logits(Golden(model))), 0.15);
    std::filesystem::remove_all(out);
  }
}

TEST_F(CalibratedTest, WhatNoFolderIsWrittenOf) {
  const std::string out = folder_ + "/model";
  QuantizeOptions options;
  options.type = "u4_g32";
  EXPECT_TRUE(absl::IsUnimplemented(
      QuantizePath(TestData() + "/quantized/gptq_int4_actorder", options, out)
          .status()));
  EXPECT_TRUE(absl::IsUnimplemented(
      QuantizePath(Golden("gpt2"), options, out).status()));
  EXPECT_TRUE(absl::IsUnimplemented(
      QuantizePath("random:" + Golden("llama3"), options, out).status()));
  options.tensor_types = {"*=q8_0"};
  EXPECT_TRUE(absl::IsInvalidArgument(
      QuantizePath(Golden("llama3"), options, out).status()));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace inlay
