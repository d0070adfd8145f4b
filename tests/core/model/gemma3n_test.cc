// Gemma 3n's configuration, and what its layers without keys and values of
// their own cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

class Gemma3nTest : public ::testing::Test {
 protected:
  // `change`: members of config.json that are others.
  absl::StatusOr<std::unique_ptr<Model>> Plan(const Json& change) {
    auto files = OpenModelFiles(TestData() + "/models/gemma3n_text", {});
    if (!files.ok()) return files.status();
    files->config.update(change);
    return PlanModel(*files, *device_, {});
  }

  std::unique_ptr<Device> device_ = *CreateCpuDevice(1, 0);
};

TEST_F(Gemma3nTest, StreamsAreManyAndSharedKeysKeptOnce) {
  const auto model = Plan(Json::object());
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.hidden_size, 32);
  EXPECT_EQ(info.stream_width, 3 * 32);
  ASSERT_EQ(info.kv_layers.size(), 2u);
  EXPECT_EQ(info.kv_layers[0].window, 32);
  EXPECT_EQ(info.kv_layers[1].window, 0);
  // A row of the table a token, which has fewer than there are tokens.
  EXPECT_EQ(info.weight_bytes_per_token,
            info.weight_bytes - uint64_t{120} * 3 * 8 * 2);
}

TEST_F(Gemma3nTest, BadValues) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const struct {
    Json change;
    const char* in_message;
  } cases[] = {
      {{{"intermediate_size", {32, 64, 32}}},
       "layers.1.mlp.gate_proj.weight\" has shape [32, 32]; config.json "
       "asks for [64, 32]"},
      {{{"intermediate_size", {32, 32}}}, "intermediate_size"},
      {{{"intermediate_size", {32, 0, 32}}}, "intermediate_size"},
      {{{"intermediate_size", {32, "32", 32}}}, "intermediate_size"},
      {{{"intermediate_size", -1}}, "intermediate_size"},
      {{{"activation_sparsity_pattern", 0.5}}, "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5}}}, "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, 1.0, 0.0}}},
       "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, 1e-13, 0.0}}},
       "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, -0.1, 0.0}}},
       "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, nullptr, true}}},
       "activation_sparsity_pattern"},
      {{{"altup_num_inputs", 0}}, "altup_num_inputs"},
      {{{"altup_num_inputs", 9}}, "altup_num_inputs"},
      {{{"altup_num_inputs", 2}}, "modality_router"},
      {{{"altup_active_idx", 3}}, "altup_active_idx"},
      {{{"altup_active_idx", -1}}, "altup_active_idx"},
      {{{"altup_correct_scale", 1}}, "altup_correct_scale"},
      {{{"hidden_size", 1 << 20}}, "altup_num_inputs"},
      {{{"laurel_rank", 0}}, "laurel_rank"},
      {{{"laurel_rank", 1 << 30}}, "laurel_rank"},
      {{{"hidden_size_per_layer_input", 0}}, "hidden_size_per_layer_input"},
      {{{"hidden_size_per_layer_input", 1 << 20}},
       "hidden_size_per_layer_input"},
      {{{"vocab_size_per_layer_input", 0}}, "vocab_size_per_layer_input"},
      {{{"num_kv_shared_layers", 3}}, "num_kv_shared_layers"},
      {{{"num_kv_shared_layers", nullptr}}, "num_kv_shared_layers"},  // 15
      {{{"num_kv_shared_layers", -1}}, "num_kv_shared_layers"},
      {{{"num_kv_shared_layers", 2}}, "num_kv_shared_layers"},
      {{{"final_logit_softcapping", 0.0}}, "final_logit_softcapping"},
  };
  for (const auto& one : cases) {
    const absl::Status status = Plan(one.change).status();
    EXPECT_EQ(status.code(), kInvalid) << one.change << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.in_message));
  }
}

}  // namespace
}  // namespace inlay
