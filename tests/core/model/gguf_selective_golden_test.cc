// Families with Mamba 1 mixers through GGUF against the reference's outputs.
// Files are written here as llama.cpp's converter writes them
// (conversion/mamba.py, jamba.py).
#include <gtest/gtest.h>

#include <string>

#include "tests/core/model/gguf_golden.h"
#include "tests/core/model/hybrid_gguf.h"

namespace inlay {
namespace {

class SelectiveGguf : public HybridGguf {
 protected:
  absl::Status WriteFamily(const Json& config, const WeightSource& weights) {
    const bool is_jamba = config["model_type"] == "jamba";
    const auto set = [&](Keys& keys) {
      const auto size = [&](const char* key, const char* mamba,
                            const char* jamba) {
        keys.U32(key, config[is_jamba ? jamba : mamba]);
      };
      size("ssm.state_size", "state_size", "mamba_d_state");
      size("ssm.conv_kernel", "conv_kernel", "mamba_d_conv");
      size("ssm.time_step_rank", "time_step_rank", "mamba_dt_rank");
      keys.U32("ssm.inner_size", 2 * config["hidden_size"].get<int>());
      if (!is_jamba) {
        keys.U32("feed_forward_length", 0);
        keys.U32("attention.head_count", 0);
        keys.Flag("ssm.dt_b_c_rms", config["model_type"] == "falcon_mamba");
        return;
      }
      // Its second layer attends.
      keys.U32s("attention.head_count_kv",
                {0, config["num_key_value_heads"].get<uint32_t>()});
      keys.U32("attention.head_count", config["num_attention_heads"]);
      keys.U32("feed_forward_length", config["intermediate_size"]);
      keys.U32("expert_count", config["num_experts"]);
      keys.U32("expert_used_count", config["num_experts_per_tok"]);
    };
    return Write(is_jamba ? "jamba" : "mamba", config, weights, set);
  }
};

TEST_P(SelectiveGguf, Goldens) {
  const ModelFiles published = Open(GetParam(), "config.json");
  const absl::Status written =
      WriteFamily(published.config, *published.weights);
  ASSERT_TRUE(written.ok()) << written;
  auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->config["model_type"], published.config["model_type"]);
  // No file says it.
  if (published.config.contains("mixer_rms_eps")) {
    EXPECT_EQ(files->config["mixer_rms_eps"], 1e-6);
    files->config["mixer_rms_eps"] = published.config["mixer_rms_eps"];
  }
  CheckGoldens(*files);
}

INSTANTIATE_TEST_SUITE_P(Models, SelectiveGguf,
                         ::testing::Values("mamba", "falcon_mamba", "jamba"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
