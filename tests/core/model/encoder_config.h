// What encoders' factories make of the config.json of golden models, changed.
// Header only.
#ifndef INLAY_TESTS_CORE_MODEL_ENCODER_CONFIG_H_
#define INLAY_TESTS_CORE_MODEL_ENCODER_CONFIG_H_

#include <gtest/gtest.h>

#include <string>

#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "memory/device/device.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {

class EncoderConfigTest : public ::testing::Test {
 protected:
  // The golden model's, with `changes`; null removes a key. `set`: keys as they
  // are, null too.
  static absl::StatusOr<DecoderSpec> Describe(const std::string& name,
                                              const Json& changes,
                                              const char* set = "{}") {
    auto files = OpenModelFiles(TestData() + "/models/" + name, {});
    if (!files.ok()) return files.status();
    for (const auto& [key, value] : changes.items()) {
      files->config.erase(key);
      if (!value.is_null()) files->config[key] = value;
    }
    files->config.update(*ParseJson(set, "set"));
    // Sizes may be other ones.
    files->weights = nullptr;
    files->random = RandomWeights{};
    const auto device = *CreateCpuDevice(1, 0);
    return DescribeDecoder(*files, *device);
  }

  static const AttentionSpec& Attention(const DecoderSpec& spec, size_t layer) {
    return std::get<AttentionSpec>(spec.layers[layer].blocks[0].part);
  }
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_CORE_MODEL_ENCODER_CONFIG_H_
