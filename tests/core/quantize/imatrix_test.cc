// Files by the importance that a file of llama.cpp's imatrix gives.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_files.h"
#include "core/formats/gguf_writer.h"
#include "core/quantize/awq.h"
#include "core/quantize/calibration.h"
#include "core/quantize/quantize.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/quant.h"
#include "tests/core/quantize/quantized_files.h"

namespace inlay {
namespace {

// Sums and counts by the matrix's name.
struct MeasuredInput {
  std::vector<float> sums;
  std::vector<float> counts;
};

class ImatrixTest : public QuantizedFiles {
 protected:
  std::string Write(const std::map<std::string, MeasuredInput>& inputs) {
    const std::string path = folder_ + "/imatrix.gguf";
    auto writer = GgufWriter::Create(path);
    EXPECT_TRUE(writer.ok());
    EXPECT_TRUE(writer->SetString("general.type", "imatrix").ok());
    for (const auto& [name, input] : inputs) {
      const auto matrices = static_cast<int64_t>(input.counts.size());
      const auto width = static_cast<int64_t>(input.sums.size()) / matrices;
      EXPECT_TRUE(
          writer->AddTensor(name + ".in_sum2", DType::kF32, {matrices, width})
              .ok());
      EXPECT_TRUE(
          writer->AddTensor(name + ".counts", DType::kF32, {matrices, 1}).ok());
    }
    EXPECT_TRUE(writer->StartData().ok());
    for (const auto& [name, input] : inputs) {
      for (const auto* values : {&input.sums, &input.counts}) {
        EXPECT_TRUE(writer
                        ->Append(absl::MakeConstSpan(
                            reinterpret_cast<const std::byte*>(values->data()),
                            values->size() * sizeof(float)))
                        .ok());
      }
    }
    EXPECT_TRUE(writer->Commit().ok());
    return path;
  }

  static QuantizeOptions Given(const std::string& type,
                               const std::string& imatrix) {
    QuantizeOptions options;
    options.type = type;
    options.num_threads = 2;
    options.method = QuantizeMethod::kImportance;
    options.imatrix = imatrix;
    return options;
  }

  static std::vector<std::byte> Blocks(const std::string& path,
                                       const std::string& name) {
    const auto files = OpenGgufFiles(path, WeightAccess::kRead);
    EXPECT_TRUE(files.ok());
    const GgufTensor* tensor = files->FindTensor(name);
    EXPECT_NE(tensor, nullptr);
    std::vector<std::byte> bytes(static_cast<size_t>(tensor->info.bytes));
    EXPECT_TRUE(
        files->files[0].Read(tensor->offset, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  // The squares of what each matrix of a llama reads, in 256 tokens' places.
  std::map<std::string, MeasuredInput> Measure(const std::string& model,
                                               const TokenSequences& tokens) {
    std::map<std::string, MeasuredInput> inputs;
    const auto files = OpenModelFiles(model, {});
    EXPECT_TRUE(files.ok());
    const auto calibration = Calibration::Create(*files, tokens, *device_,
                                                 *stream_, [] { return true; });
    EXPECT_TRUE(calibration.ok()) << calibration.status();
    for (int i = 0; i < (*calibration)->num_layers(); ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      Hessians hessians;
      for (const auto& [reader, width] :
           {std::pair{"self_attn.q_proj", 64},
            std::pair{"self_attn.o_proj", 128}, std::pair{"mlp.gate_proj", 64},
            std::pair{"mlp.down_proj", 128}}) {
        hessians.emplace(layer + reader, Hessian(width, false));
      }
      EXPECT_TRUE((*calibration)->Collect(i, /*advance=*/true, &hessians).ok());
      const auto put = [&](const char* gguf, const char* reader) {
        const auto& squares = hessians.at(layer + reader).diagonal();
        inputs["blk." + std::to_string(i) + "." + gguf + ".weight"] = {
            {squares.begin(), squares.end()}, {256}};
      };
      for (const char* gguf : {"attn_q", "attn_k", "attn_v"}) {
        put(gguf, "self_attn.q_proj");
      }
      put("attn_output", "self_attn.o_proj");
      put("ffn_gate", "mlp.gate_proj");
      put("ffn_up", "mlp.gate_proj");
      put("ffn_down", "mlp.down_proj");
    }
    return inputs;
  }
};

TEST_F(ImatrixTest, WritesWhatCalibrationByTheSameTokensWrites) {
  const std::string model = Golden("llama3");
  const QuantizeOptions calibrated =
      Options("q4_0", QuantizeMethod::kImportance);
  const auto measured =
      QuantizePath(model, calibrated, folder_ + "/measured.gguf");
  ASSERT_TRUE(measured.ok()) << measured.status();
  const auto inputs = Measure(model, calibrated.calibration_sequences);
  const auto given = QuantizePath(model, Given("q4_0", Write(inputs)), Out());
  ASSERT_TRUE(given.ok()) << given.status();

  QuantizeOptions nearest = calibrated;
  nearest.method = QuantizeMethod::kNearest;
  nearest.calibration_sequences.clear();
  ASSERT_TRUE(QuantizePath(model, nearest, folder_ + "/nearest.gguf").ok());
  int changed = 0;
  for (size_t i = 0; i < given->tensors.size(); ++i) {
    const QuantizedTensor& tensor = given->tensors[i];
    SCOPED_TRACE(tensor.gguf);
    const bool is_given = inputs.contains(tensor.gguf);
    EXPECT_EQ(tensor.method.used, is_given);
    const auto blocks = Blocks(Out(), tensor.gguf);
    const auto to_nearest = Blocks(folder_ + "/nearest.gguf", tensor.gguf);
    if (!is_given) {
      EXPECT_EQ(blocks, to_nearest);
      continue;
    }
    EXPECT_EQ(blocks, Blocks(folder_ + "/measured.gguf", tensor.gguf));
    changed += blocks != to_nearest ? 1 : 0;
    EXPECT_LT(tensor.method.output_error, tensor.method.nearest_error);
    EXPECT_NEAR(tensor.method.output_error,
                measured->tensors[i].method.output_error,
                1e-5 * tensor.method.output_error);
    EXPECT_NEAR(tensor.method.nearest_error,
                measured->tensors[i].method.nearest_error,
                1e-5 * tensor.method.nearest_error);
  }
  EXPECT_EQ(changed, static_cast<int>(inputs.size()));
}

// Each expert of a stack has inputs of its own.
TEST_F(ImatrixTest, ExpertsHaveTheirOwn) {
  const std::string model = Golden("mixtral");
  const auto files = OpenModelFiles(model, {});
  ASSERT_TRUE(files.ok()) << files.status();
  std::vector<const WeightInfo*> experts;
  for (int e = 0;; ++e) {
    const WeightInfo* expert =
        files->weights->Find("model.layers.1.block_sparse_moe.experts." +
                             std::to_string(e) + ".w2.weight");
    if (expert == nullptr) break;
    experts.push_back(expert);
  }
  ASSERT_GT(experts.size(), 1u);
  const int64_t rows = experts[0]->shape[0];
  const int64_t width = experts[0]->shape[1];
  ASSERT_EQ(experts[0]->dtype, DType::kBF16);
  MeasuredInput input;
  std::mt19937 rng(3);
  for (size_t i = 0; i < experts.size() * static_cast<size_t>(width); ++i) {
    input.sums.push_back(static_cast<float>(rng() % 1000));
  }
  for (size_t e = 0; e < experts.size(); ++e) {
    input.counts.push_back(static_cast<float>(1 << e));
  }
  const std::string name = "blk.1.ffn_down_exps.weight";
  const auto report =
      QuantizePath(model, Given("q4_0", Write({{name, input}})), Out());
  ASSERT_TRUE(report.ok()) << report.status();

  const std::vector<std::byte> got = Blocks(Out(), name);
  const size_t expert_bytes =
      static_cast<size_t>(rows) *
      RowBytes(DType::kQ4_0, static_cast<size_t>(width));
  ASSERT_EQ(got.size(), experts.size() * expert_bytes);
  for (size_t e = 0; e < experts.size(); ++e) {
    std::vector<uint16_t> halves(static_cast<size_t>(rows * width));
    ASSERT_TRUE(
        files->weights
            ->Read(*experts[e], 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(halves.data()),
                                  halves.size() * sizeof(uint16_t)))
            .ok());
    std::vector<float> weights;
    for (const uint16_t half : halves) {
      weights.push_back(std::bit_cast<float>(uint32_t{half} << 16));
    }
    std::vector<float> squares(static_cast<size_t>(width));
    for (size_t i = 0; i < squares.size(); ++i) {
      squares[i] =
          input.sums[e * squares.size() + i] / static_cast<float>(1 << e);
    }
    std::vector<std::byte> wanted(expert_bytes);
    EncodeScaled(*FindBlockCodec(DType::kQ4_0)->grid, nullptr, weights.data(),
                 rows, squares, {}, *stream_->thread_pool(), wanted.data());
    EXPECT_EQ(std::vector<std::byte>(
                  got.begin() + static_cast<int64_t>(e * expert_bytes),
                  got.begin() + static_cast<int64_t>((e + 1) * expert_bytes)),
              wanted)
        << e;
  }
}

TEST_F(ImatrixTest, Refused) {
  const std::string model = Golden("llama3");
  const std::string name = "blk.0.attn_q.weight";
  const auto status = [&](const QuantizeOptions& options) {
    return std::string(QuantizePath(model, options, Out()).status().message());
  };
  const std::string good = Write({{name, {std::vector<float>(64, 1), {1}}}});
  EXPECT_EQ(status(Given("q4_0", good)), "");
  const auto expect = [&](const QuantizeOptions& options, const char* text) {
    const auto result = QuantizePath(model, options, folder_ + "/not.gguf");
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
    EXPECT_NE(result.status().message().find(text), std::string::npos)
        << result.status();
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/not.gguf"));
  };
  QuantizeOptions options = Given("q4_0", good);
  options.method = QuantizeMethod::kGptq;
  expect(options, "goes with the method imatrix");
  options = Given("q4_0", good);
  options.calibration_sequences = Sequences(1, 8, 256);
  expect(options, "goes with the method imatrix");
  expect(Given("u4_g32", good), "gives a folder");
  expect(Given("mxfp4", good), "the method for mxfp4 is imatrix");
  options = Given("q4_0", good);
  options.memory_limit = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(
      QuantizePath(model, options, folder_ + "/not.gguf").status()));
  expect(
      Given("q4_0",
            Write({{"blk.9.attn_q.weight", {std::vector<float>(64, 1), {1}}}})),
      "nothing for any tensor");
  expect(Given("q4_0", Write({{name, {std::vector<float>(32, 1), {1}}}})),
         "32 inputs for tensor \"blk.0.attn_q.weight\"");
  expect(
      Given("q4_0", Write({{name, {std::vector<float>(192, 1), {1, 1, 1}}}})),
      "192 inputs");
}

}  // namespace
}  // namespace inlay
