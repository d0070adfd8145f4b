// What layers with gated outputs share.
#include "core/model/layers/output_gate.h"

#include <gtest/gtest.h>

#include "memory/device/device.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

AttentionSpec GatedSpec(int heads, int kv_heads, bool apart) {
  AttentionSpec spec;
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = 8;
  spec.gated = true;
  spec.gate_apart = apart;
  return spec;
}

// However many layers there are, a shape's runs are there once: thousands of
// layers of thousands of heads would have a gigabyte of them.
TEST(OutputGateTest, LayersOfOneShapeShareTheirRuns) {
  const auto device = *CreateCpuDevice(1, 0);
  const ModelFiles files = Open("qwen3_next", "config.json");
  WeightLoader weights(files, *device, WeightLoader::Mode::kPlan);
  const KernelChooser kernels(device->info(), {});
  ModelBuild build{weights, kernels};
  const auto first = OutputGate::Create(GatedSpec(8, 4, false), build);
  const auto second = OutputGate::Create(GatedSpec(8, 4, false), build);
  const auto fewer = OutputGate::Create(GatedSpec(4, 4, false), build);
  const auto other_kv = OutputGate::Create(GatedSpec(8, 2, false), build);
  const auto apart = OutputGate::Create(GatedSpec(8, 4, true), build);
  AttentionSpec plain = GatedSpec(8, 4, false);
  plain.gated = false;
  const auto none = OutputGate::Create(plain, build);
  ASSERT_TRUE(first.ok() && second.ok() && fewer.ok() && other_kv.ok() &&
              apart.ok() && none.ok())
      << first.status();
  EXPECT_EQ(first->runs(), second->runs());
  EXPECT_NE(first->runs(), fewer->runs());
  EXPECT_NE(first->runs(), other_kv->runs());
  EXPECT_NE(first->runs(), apart->runs());
  EXPECT_EQ(build.gate_runs.size(), 4u);
  EXPECT_EQ(first->runs()->q.size(), 8u);
  EXPECT_EQ(first->runs()->gate.size(), 8u);
  EXPECT_EQ(first->runs()->order.size(), 17u);
  EXPECT_EQ(apart->runs()->q.size(), 1u);
  EXPECT_EQ(none->runs(), nullptr);
  EXPECT_FALSE(none->splits());
}

}  // namespace
}  // namespace inlay
