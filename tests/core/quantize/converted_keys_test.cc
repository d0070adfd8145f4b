// Keys of families that QuantizeModel writes, against those of the files in
// tests/data/gguf, which llama.cpp's converter wrote of the same checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/formats/gguf_files.h"
#include "core/formats/gguf_metadata.h"
#include "core/quantize/quantize.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/quantize/family_files.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

// Numbers of any type as one, so that i32 and u32, and one for all layers and
// the same for each of them, are equal; other values as their bytes.
std::string Said(const GgufHeader& header, const std::string& key,
                 size_t layers) {
  const GgufValue& value = *header.Find(key);
  if (value.type == GgufType::kString) return **GgufString(header, key);
  std::vector<double> numbers;
  if (value.type == GgufType::kBool) {
    for (const std::byte flag : value.data) {
      numbers.push_back(flag == std::byte{0} ? 0 : 1);
    }
  } else if (value.is_array) {
    numbers = **GgufNumbers(header, key);
  } else {
    numbers.push_back(**GgufNumber(header, key));
  }
  if (value.is_array) numbers.resize(std::min(numbers.size(), layers));
  bool is_one = true;
  for (const double number : numbers) is_one &= number == numbers.front();
  if (is_one) numbers.resize(1);
  return Json(numbers).dump();
}

struct Converted {
  const char* model;
  size_t layers;
  // Keys of theirs that say something else, or that there are none of.
  std::map<std::string, std::string> other;
};

TEST(ConvertedKeys, AreTheConverters) {
  const Converted kModels[] = {
      // One layer predicts a further token; all but one are full.
      {"step3p5",
       2,
       {{"step35.block_count", "[2.0]"},
        {"step35.nextn_predict_layers", ""},
        {"step35.moe_every_n_layers", ""}}},
      {"jina_bert", 2, {}},
  };
  const FamilyFiles files;
  for (const Converted& model : kModels) {
    SCOPED_TRACE(model.model);
    const auto theirs =
        OpenGgufFiles(TestData() + "/gguf/" + model.model + ".gguf", {});
    ASSERT_TRUE(theirs.ok()) << theirs.status();
    const auto ours =
        OpenGgufFiles(files.Write(Open(model.model, "config.json"), "f32"), {});
    ASSERT_TRUE(ours.ok()) << ours.status();
    int compared = 0;
    for (const auto& [key, value] : theirs->header().entries) {
      const std::string name(key);
      if (name.starts_with("general.") && name != "general.architecture") {
        continue;
      }
      SCOPED_TRACE(name);
      const auto other = model.other.find(name);
      const bool is_absent = ours->header().Find(name) == nullptr;
      if (other != model.other.end() && other->second.empty()) {
        EXPECT_TRUE(is_absent);
        continue;
      }
      ASSERT_FALSE(is_absent);
      EXPECT_EQ(Said(ours->header(), name, model.layers),
                other != model.other.end()
                    ? other->second
                    : Said(theirs->header(), name, model.layers));
      ++compared;
    }
    EXPECT_GE(compared, 8);
    for (const GgufTensor& tensor : theirs->files[0].header.tensors) {
      SCOPED_TRACE(tensor.info.name);
      const GgufTensor* own = ours->FindTensor(tensor.info.name);
      ASSERT_NE(own, nullptr);
      EXPECT_EQ(own->info.shape, tensor.info.shape);
    }
  }
}

}  // namespace
}  // namespace inlay
