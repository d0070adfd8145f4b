// Linear attention with and without a normaliser: what the cache keeps of it.
#include <gtest/gtest.h>

#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

// A matrix a head and, where outputs are normalised, a column more of it.
TEST(LightningTest, StatesHaveRoomForTheNormaliser) {
  const auto device = Cpu();
  ModelFiles files = Open("linear_attn", "config.json");
  for (const bool normalised : {false, true}) {
    files.config["norm_feature_map"] = normalised;
    const auto model = PlanModel(files, *device, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const KvLayout& layout = (*model)->kv_layout();
    ASSERT_EQ(layout.num_states(), 2);
    const size_t columns = 32 + (normalised ? 1 : 0);
    EXPECT_EQ(layout.state_bytes(1), 4 * 32 * columns * sizeof(float));
  }
}

}  // namespace
}  // namespace inlay
