// Folders with FP8 in blocks of 128 x 128: what blocks do not fit, and what is
// reported of those that do.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/formats/model_files.h"
#include "tests/core/quantize/quantized_files.h"

namespace inlay {
namespace {

class BlockLayersTest : public QuantizedFiles {
 protected:
  std::string Folder() const { return folder_ + "/model"; }
};

// Rows that are no whole groups keep their type, in settings too: llama3's are
// of 64 elements, and of 128 in down_proj.
TEST_F(BlockLayersTest, RowsOfHalfABlockKeepTheirType) {
  QuantizeOptions options = Options("w8a8_fp8_block", QuantizeMethod::kNearest);
  options.calibration_sequences.clear();
  const auto report = QuantizePath(Golden("llama3"), options, Folder());
  ASSERT_TRUE(report.ok()) << report.status();
  const auto files = OpenModelFiles(Folder(), {});
  ASSERT_TRUE(files.ok()) << files.status();
  std::vector<std::string> kept;
  int blocks = 0;
  for (const QuantizedTensor& tensor : report->tensors) {
    if (!tensor.name.ends_with("_proj.weight")) continue;
    EXPECT_EQ(tensor.wanted, DType::kF8_G128) << tensor.name;
    const bool whole = tensor.shape[1] % 128 == 0;
    EXPECT_EQ(tensor.to, whole ? DType::kF8_G128 : tensor.from) << tensor.name;
    EXPECT_EQ(files->weights->Find(tensor.name)->dtype, tensor.to);
    blocks += whole ? 1 : 0;
    if (!whole) kept.push_back(tensor.name.substr(0, tensor.name.rfind('.')));
  }
  EXPECT_GT(blocks, 0);
  EXPECT_FALSE(kept.empty());
  kept.push_back("lm_head");
  EXPECT_EQ(files->config["quantization_config"]["ignore"], Json(kept));
}

// What calibration reports of rounding to nearest is that of whole blocks: here
// nothing else is done.
TEST_F(BlockLayersTest, ReportsOfBlocksAreOfWholeOnes) {
  QuantizeOptions options = Options("w8a8_fp8_block", QuantizeMethod::kNearest);
  options.tensor_types = {"*o_proj*=w8a8_fp8_static"};
  const auto report = QuantizePath(Golden("llama_bf16"), options, Folder());
  ASSERT_TRUE(report.ok()) << report.status();
  int layers = 0;
  for (const QuantizedTensor& tensor : report->tensors) {
    if (tensor.to != DType::kF8_G128 || tensor.shape[0] < 128) continue;
    ++layers;
    EXPECT_GT(tensor.method.output_error, 0) << tensor.name;
    EXPECT_EQ(tensor.method.output_error, tensor.method.nearest_error)
        << tensor.name;
  }
  EXPECT_GT(layers, 4);
}

}  // namespace
}  // namespace inlay
