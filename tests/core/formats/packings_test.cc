// Layers as the libraries that define their layouts pack them
// (tests/data/packings/make.py), against the weights these were
// given.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/formats/quantized_source.h"
#include "core/formats/safetensors_source.h"
#include "core/json/json.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/formats/quantized_test_util.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

std::string PackingsFolder() { return TestData() + "/packings"; }

TEST(PackingsTest, LibrariesLayersAreRead) {
  const auto stored = OpenSafetensors(PackingsFolder(), WeightAccess::kRead);
  ASSERT_TRUE(stored.ok()) << stored.status();
  const auto settings =
      ParseJson(Slurp(PackingsFolder() + "/settings.json"), "settings.json");
  ASSERT_TRUE(settings.ok()) << settings.status();
  int layers = 0;
  for (const auto& [name, config] : settings->items()) {
    SCOPED_TRACE(name);
    const WeightInfo* dense = (*stored)->Find(name + ".dense");
    ASSERT_NE(dense, nullptr);
    Checkpoint checkpoint{config,
                          std::make_shared<MemoryWeights>(true),
                          dense->shape[0],
                          dense->shape[1],
                          {}};
    const std::vector<std::byte> values = ReadAllOf(**stored, *dense);
    for (size_t i = 0; i < values.size() / 2; ++i) {
      checkpoint.dense.push_back(F16ToF32(static_cast<uint16_t>(
          static_cast<unsigned>(values[2 * i]) |
          static_cast<unsigned>(values[2 * i + 1]) << 8)));
    }
    for (const WeightInfo& info : (*stored)->weights()) {
      if (!info.name.starts_with(name + ".l.")) continue;
      WeightInfo own = info;
      own.name = info.name.substr(name.size() + 1);
      checkpoint.weights->Add(own, ReadAllOf(**stored, info).data());
    }
    const auto opened = OpenQuantized(checkpoint.config, checkpoint.weights);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const WeightInfo* weight = (*opened)->Find("l.weight");
    ASSERT_NE(weight, nullptr);
    CheckLayer(checkpoint, DTypeName(weight->dtype), false);
    ++layers;
  }
  EXPECT_EQ(layers, 26);
}

}  // namespace
}  // namespace inlay
