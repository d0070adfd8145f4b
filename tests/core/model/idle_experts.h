// That experts no token goes to play no part, wherever their matrices lie and
// however they are packed: what the tests of both devices share.
#ifndef INLAY_TESTS_CORE_MODEL_IDLE_EXPERTS_H_
#define INLAY_TESTS_CORE_MODEL_IDLE_EXPERTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/model/quantized_families.h"

namespace inlay {

// Logits of a model whose tokens all go to the same experts of a layer, with
// the others' weights NaN, are those without, to the bit, in chunks of so many;
// and NaN where those of one that tokens go to are.
inline void ExpectIdleExpertsUnused(const char* name, DType dtype,
                                    Device& device,
                                    const ModelLoadOptions& options,
                                    const std::vector<int64_t>& chunks) {
  SCOPED_TRACE(::testing::Message() << name << " " << DTypeName(dtype));
  ModelFiles files =
      DrawFamily(WithAllKeys(Wider(Open(name, "config.json").config)), dtype)
          .files;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 9; ++i) prompt.push_back(i * kTokenKinds);
  ExpertChoices choices(files, prompt.size());
  ModelLoadOptions observed;
  observed.input_observer = &choices;
  observed.fused = false;
  RunChunks(files, observed, prompt, 1);
  const auto poisoned = std::make_shared<ReplacedWeights>(files.weights);
  const auto spoilt = std::make_shared<ReplacedWeights>(files.weights);
  int idle = 0, busy = 0;
  for (const auto& [first, tokens] : choices.tokens()) {
    ASSERT_TRUE(tokens.empty() || tokens.size() == prompt.size()) << first;
    const std::string expert = first.substr(0, first.rfind('.') + 1);
    if (!tokens.empty() && ++busy > 1) continue;
    for (const WeightInfo& info : files.weights->weights()) {
      if (!info.name.starts_with(expert)) continue;
      (tokens.empty() ? *poisoned : *spoilt).Poison(info.name);
      if (tokens.empty()) ++idle;
    }
  }
  ASSERT_GT(idle, 0);
  ASSERT_GT(busy, 0);
  const auto run = [&](std::shared_ptr<const WeightSource> weights) {
    ModelFiles own = files;
    own.weights = std::move(weights);
    std::vector<ModelHarness::Logits> all;
    const auto model = LoadModel(own, device, options);
    EXPECT_TRUE(model.ok()) << model.status();
    for (size_t i = 0; model.ok() && i < chunks.size(); ++i) {
      all.push_back(RunChunks(**model, device, prompt, chunks[i]));
    }
    return all;
  };
  const auto want = run(files.weights);
  ASSERT_EQ(want.size(), chunks.size());
  EXPECT_TRUE(run(poisoned) == want);
  for (const ModelHarness::Logits& logits : run(spoilt)) {
    EXPECT_TRUE(std::isnan(logits.back().front()));
  }
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_IDLE_EXPERTS_H_
