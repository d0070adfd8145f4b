// Methods on a model some of whose layers' inputs are far larger than others,
// with weights as much smaller there: what they are for. Its logits are those
// of the model it is made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/json/json.h"
#include "core/quantize/row_reader.h"
#include "kernels/cpu_float.h"
#include "tests/core/quantize/quantized_files.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

// Rounds each row that a layer in blocks reads to whole 127ths of its largest
// magnitude, as checkpoints of w8a8_int8 say.
class RoundsInputs : public InputObserver {
 public:
  void OnInput(std::string_view layer, const TensorView& x) override {
    if (!layer.ends_with("_proj")) return;
    for (int64_t i = 0; i < x.rows(); ++i) {
      float* row = x.row<float>(i);
      float largest = 0.0f;
      for (int64_t j = 0; j < x.cols(); ++j) {
        largest = std::max(largest, std::abs(row[j]));
      }
      const float step = largest / 127.0f;
      if (step == 0.0f) continue;
      for (int64_t j = 0; j < x.cols(); ++j) {
        row[j] = step * std::nearbyint(row[j] / step);
      }
      ++rows;
    }
  }
  int64_t rows = 0;
};

class OutliersTest : public QuantizedFiles {
 protected:
  static constexpr const char* kModel = "llama3";

  OutliersTest() : wanted_(Logits(Golden(kModel))) {
    auto files = OpenModelFiles(Golden(kModel), {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) return;
    files_ = *std::move(files);
    auto weights = std::make_shared<MemoryWeights>(true);
    for (const WeightInfo& info : files_.weights->weights()) {
      AddWithOutliers(info, weights.get());
    }
    files_.weights = std::move(weights);
  }

  void AddWithOutliers(const WeightInfo& info, MemoryWeights* weights) {
    // A power of two, so that products are the same to the bit.
    constexpr float kOutlier = 32.0f;
    const auto is_outlier = [](size_t i) { return i % 37 == 5; };
    const auto is_any = [&info](std::initializer_list<const char*> parts) {
      return std::any_of(parts.begin(), parts.end(), [&](const char* part) {
        return info.name.find(part) != std::string::npos;
      });
    };
    const bool reads =
        is_any({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"});
    const bool down = is_any({"down_proj"});
    const bool norm = is_any({"input_layernorm", "post_attention_layernorm"});
    auto reader = RowReader::Create(*files_.weights, info, GgufLayout::kSame,
                                    {}, *stream_->thread_pool());
    ASSERT_TRUE(reader.ok()) << reader.status();
    std::vector<float> values(
        static_cast<size_t>(reader->rows() * reader->row_elements()));
    ASSERT_TRUE(reader->Read(0, reader->rows(), values.data()).ok());
    std::vector<std::byte> bytes(info.bytes);
    const auto width = static_cast<size_t>(info.shape.back());
    for (size_t i = 0; i < values.size(); ++i) {
      if ((norm || is_any({"up_proj"})) && is_outlier(norm ? i : i / width)) {
        values[i] *= kOutlier;
      }
      if ((reads || down) && is_outlier(i % width)) values[i] /= kOutlier;
      StoreFloat(info.dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
    }
    weights->Add(info, bytes.data());
  }

  std::string Folder() const { return folder_ + "/model"; }
  // Of the logits, once layers are quantised and nothing else.
  double ErrorBy(const std::string& type, QuantizeMethod method,
                 InputObserver* observer = nullptr) {
    const std::string out = type.starts_with("q") ? Out() : Folder();
    std::filesystem::remove_all(out);
    QuantizeOptions options = Options(type, method);
    options.tensor_types = {"*embed*=bf16", "lm_head*=bf16"};
    const auto report = QuantizeModel(files_, options, out);
    EXPECT_TRUE(report.ok()) << report.status();
    return RelativeError(Logits(out, observer), wanted_);
  }

  const std::vector<float> wanted_;
  ModelFiles files_;
};

// How much a method gains here is quality, which no arithmetic bounds: shares
// are measured ones with room.

// Their weights have as many steps as the others then. Without scales AWQ is
// importance.
TEST_F(OutliersTest, AwqScalesThem) {
  for (const char* type : {"awq_g32", "q4_0"}) {
    SCOPED_TRACE(type);
    const double nearest = ErrorBy(type, QuantizeMethod::kNearest);
    const double importance = ErrorBy(type, QuantizeMethod::kImportance);
    const double awq = ErrorBy(type, QuantizeMethod::kAwq);
    EXPECT_LT(awq, 0.7 * importance);
    EXPECT_LT(awq, 0.7 * nearest);
  }
}

// With one step for all inputs of a token, what is small beside them is lost.
TEST_F(OutliersTest, SmoothQuantMakesRoomForTheOthers) {
  RoundsInputs rounded;
  const double kept = ErrorBy("w8a8_int8", QuantizeMethod::kNearest);
  const double nearest =
      ErrorBy("w8a8_int8", QuantizeMethod::kNearest, &rounded);
  EXPECT_GT(rounded.rows, 0);
  EXPECT_GT(nearest, 2 * kept);
  const double smooth =
      ErrorBy("w8a8_int8", QuantizeMethod::kSmoothQuant, &rounded);
  EXPECT_LT(smooth, 0.25 * nearest);
}

TEST_F(OutliersTest, ActOrderTakesThemFirst) {
  std::vector<std::string> files;
  std::vector<double> errors;
  for (const bool act_order : {false, true}) {
    SCOPED_TRACE(act_order);
    QuantizeOptions options = Options("u4_g64", QuantizeMethod::kGptq);
    options.act_order = act_order;
    const auto report = QuantizeModel(files_, options, Folder());
    ASSERT_TRUE(report.ok()) << report.status();
    double& error = errors.emplace_back();
    for (const QuantizedTensor& tensor : report->tensors) {
      error += tensor.method.output_error;
    }
    files.push_back(FileBytes(Folder() + "/model.safetensors"));
    const auto written = OpenModelFiles(Folder(), {});
    ASSERT_TRUE(written.ok()) << written.status();
    // Scales come before the first code, so that inputs need no new order.
    const Json& settings = written->config["quantization_config"];
    EXPECT_EQ(settings["static_groups"], act_order);
    EXPECT_EQ(settings["desc_act"], false);
  }
  EXPECT_TRUE(files[0] != files[1]);  // not printed
  EXPECT_GT(errors[0], 0);
  EXPECT_LE(errors[1], errors[0]);
}

}  // namespace
}  // namespace inlay
