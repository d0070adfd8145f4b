// What llama.cpp's converter made of checkpoints in tests/data/models
// (tests/data/gguf): the reference's outputs, and the published tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/model/gguf_golden.h"
#include "tests/support/gguf_from_published.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

class ConvertedGguf : public GgufGoldenModel {};

TEST_P(ConvertedGguf, Goldens) {
  const std::string path = TestData() + "/gguf/" + GetParam() + ".gguf";
  for (const WeightAccess access : {WeightAccess::kMap, WeightAccess::kRead}) {
    const auto files = OpenModelFiles(path, {.access = access});
    ASSERT_TRUE(files.ok()) << files.status();
    CheckGoldens(*files);
  }
}

// Every tensor as the checkpoint has it, to the bit where it was not rounded.
TEST_P(ConvertedGguf, TensorsAreThePublishedOnes) {
  const std::string path = TestData() + "/gguf/" + GetParam() + ".gguf";
  const ModelFiles published = Open(GetParam(), "config.json");
  const auto files = OpenModelFiles(path, {});
  ASSERT_TRUE(files.ok()) << files.status();
  for (const WeightInfo& info : files->weights->weights()) {
    SCOPED_TRACE(info.name);
    const WeightInfo* other = published.weights->Find(info.name);
    ASSERT_NE(other, nullptr);
    std::string bytes(info.bytes, '\0'), wanted(other->bytes, '\0');
    const auto span = [](std::string& s) {
      return absl::MakeSpan(reinterpret_cast<std::byte*>(s.data()), s.size());
    };
    ASSERT_TRUE(files->weights->Read(info, 0, span(bytes)).ok());
    ASSERT_TRUE(published.weights->Read(*other, 0, span(wanted)).ok());
    GgufTensorData tensor{info.name, other->dtype, other->shape, wanted};
    if (info.rows_are_outputs) Turn(&tensor);
    EXPECT_EQ(info.shape, tensor.shape);
    for (size_t i = 0; i < info.bytes / RowBytes(info.dtype, 1); ++i) {
      // (w + 1) - 1 was rounded to the last bit of a number above 1.
      ASSERT_NEAR(FloatFrom(bytes, info.dtype, i),
                  FloatFrom(tensor.bytes, tensor.dtype, i), 0x1p-23);
    }
    // Any piece is a piece of the whole.
    for (const auto& [begin, size] : std::vector<std::pair<size_t, size_t>>{
             {0, 1}, {5, 70}, {info.bytes / 2 - 3, 9}}) {
      std::string piece(std::min(size, info.bytes - begin), '\0');
      ASSERT_TRUE(files->weights->Read(info, begin, span(piece)).ok());
      EXPECT_EQ(piece, bytes.substr(begin, piece.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ConvertedGguf,
    ::testing::Values("llama3", "gemma", "phi3", "gpt2", "nemotron_nas",
                      "granite_swa", "minimax_m3", "step3p5", "qwen",
                      "smallthinker", "bailing_moe", "openelm", "grove_moe",
                      "arctic", "plm", "rwkv7"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace inlay
