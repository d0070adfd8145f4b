// Folders of families whose layers have block-diagonal gates.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/core/quantize/quantized_files.h"

namespace inlay {
namespace {

class HeadGatesTest : public QuantizedFiles {
 protected:
  std::string Folder() const { return folder_ + "/model"; }

  static std::vector<std::byte> GateBytes(const WeightSource& source,
                                          const WeightInfo& info) {
    std::vector<std::byte> bytes(info.bytes);
    EXPECT_TRUE(source.Read(info, 0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }
};

// RecurrentGemma's gates are a matrix a head here, which stays as it is and is
// found again.
TEST_F(HeadGatesTest, StayAsTheyAre) {
  const auto wanted = Logits(Golden("recurrent_gemma"));
  QuantizeOptions options = Options("w8a8_int8", QuantizeMethod::kGptq);
  options.calibration_sequences = Sequences(6, 40, 112);
  const auto report =
      QuantizePath(Golden("recurrent_gemma"), options, Folder());
  ASSERT_TRUE(report.ok()) << report.status();
  const auto source = OpenModelFiles(Golden("recurrent_gemma"), {});
  const auto files = OpenModelFiles(Folder(), {});
  ASSERT_TRUE(source.ok() && files.ok()) << files.status();
  // Other engines ask for the names of what stays.
  const std::string settings = DumpJson(files->config["quantization_config"]);
  int gates = 0, quantised = 0;
  for (const QuantizedTensor& tensor : report->tensors) {
    const bool is_matrix =
        tensor.name.ends_with(".weight") &&
        tensor.name.find("temporal_block.") != std::string::npos &&
        tensor.name.find("conv_1d") == std::string::npos;
    if (!is_matrix) continue;
    if (tensor.name.find("_gate.") == std::string::npos) {
      ++quantised;
      EXPECT_TRUE(tensor.method.used) << tensor.name;
      continue;
    }
    ++gates;
    EXPECT_FALSE(tensor.method.used) << tensor.name;
    const std::string layer = tensor.name.substr(0, tensor.name.rfind('.'));
    EXPECT_NE(settings.find('"' + layer + '"'), std::string::npos) << layer;
    const WeightInfo* info = files->weights->Find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(GateBytes(*files->weights, *info),
              GateBytes(*source->weights, *source->weights->Find(tensor.name)));
  }
  EXPECT_EQ(gates, 2 * 2 * 2);
  EXPECT_EQ(quantised, 2 * 3 + 4);
  // Of a whole model, not derived, as CheckpointTest has it.
  EXPECT_LT(RelativeError(Logits(Folder()), wanted), 0.05);
}

}  // namespace
}  // namespace inlay
