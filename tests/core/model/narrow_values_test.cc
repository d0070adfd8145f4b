// What layers with values narrower than keys share.
#include "core/model/layers/narrow_values.h"

#include <gtest/gtest.h>

#include "memory/device/device.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

AttentionSpec NarrowSpec(int kv_heads, int value_dim) {
  AttentionSpec spec;
  spec.num_heads = 8;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = 8;
  spec.value_dim = value_dim;
  return spec;
}

// However many layers there are, a shape's runs are there once: they are many
// where heads are.
TEST(NarrowValuesTest, LayersOfOneShapeShareTheirRuns) {
  const auto device = *CreateCpuDevice(1, 0);
  const ModelFiles files = Open("mimo_v2_flash", "config.json");
  WeightLoader weights(files, *device, WeightLoader::Mode::kPlan);
  const KernelChooser kernels(device->info(), {});
  ModelBuild build{weights, kernels};
  const auto first = NarrowValues::Create(NarrowSpec(4, 6), build);
  const auto second = NarrowValues::Create(NarrowSpec(4, 6), build);
  const auto other = NarrowValues::Create(NarrowSpec(2, 6), build);
  const auto narrower = NarrowValues::Create(NarrowSpec(4, 3), build);
  const auto wide = NarrowValues::Create(NarrowSpec(4, 8), build);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok() && narrower.ok() &&
              wide.ok())
      << first.status();
  EXPECT_EQ(first->runs(), second->runs());
  EXPECT_NE(first->runs(), other->runs());
  EXPECT_NE(first->runs(), narrower->runs());
  EXPECT_EQ(first->runs()->widened.size(), 4u * 2);
  EXPECT_EQ(other->runs()->widened.size(), 2u * 2);
  EXPECT_EQ(narrower->runs()->widened.size(), 4u * 3);
  EXPECT_EQ(build.narrow_runs.size(), 3u);
  EXPECT_FALSE(wide->present());
}

}  // namespace
}  // namespace inlay
