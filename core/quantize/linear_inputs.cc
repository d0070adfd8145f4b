#include "core/quantize/linear_inputs.h"

#include <variant>

namespace inlay {
namespace {

LinearInput ReadAfterNorm(const BlockSpec& block,
                          const std::vector<LinearSpec>& layers) {
  LinearInput input;
  for (const LinearSpec& layer : layers) input.readers.push_back(&layer);
  if (block.pre_norm.kind != NormKind::kNone) input.norm = &block.pre_norm;
  return input;
}

LinearInput ReadAfterAttention(const AttentionSpec& attention) {
  LinearInput input;
  input.readers = {&attention.output};
  input.producer = &attention.qkv.back();
  input.num_rows = int64_t{attention.num_kv_heads} * attention.head_dim;
  input.first_row = input.producer->n - input.num_rows;
  input.head_dim = attention.head_dim;
  input.heads_of_row = attention.num_heads / attention.num_kv_heads;
  return input;
}

LinearInput ReadAfterActivation(const MlpSpec& mlp) {
  LinearInput input;
  input.readers = {&mlp.output};
  // The activation is not linear; the factor beside it is.
  if (!mlp.gated) return input;
  input.producer = &mlp.input.back();
  input.num_rows = mlp.width;
  input.first_row = input.producer->n - mlp.width;
  input.head_dim = mlp.width;
  return input;
}

// The router is small and decides much: it is none of the readers.
void AddExperts(const BlockSpec& block, const MoeSpec& moe,
                std::vector<LinearInput>* inputs) {
  const size_t first = inputs->size();
  inputs->push_back(ReadAfterNorm(block, {}));
  const auto add = [&](const MlpSpec& mlp) {
    for (const LinearSpec& layer : mlp.input) {
      (*inputs)[first].readers.push_back(&layer);
    }
    inputs->push_back(ReadAfterActivation(mlp));
  };
  for (const MlpSpec& expert : moe.experts) add(expert);
  if (moe.shared.has_value()) add(*moe.shared);
}

}  // namespace

std::vector<LinearInput> InputsOf(const LayerSpec& layer) {
  std::vector<LinearInput> inputs;
  for (const BlockSpec& block : layer.blocks) {
    if (const auto* attention = std::get_if<AttentionSpec>(&block.part)) {
      inputs.push_back(ReadAfterNorm(block, attention->qkv));
      inputs.push_back(ReadAfterAttention(*attention));
    } else if (const auto* moe = std::get_if<MoeSpec>(&block.part)) {
      AddExperts(block, *moe, &inputs);
    } else {
      const auto& mlp = std::get<MlpSpec>(block.part);
      inputs.push_back(ReadAfterNorm(block, mlp.input));
      inputs.push_back(ReadAfterActivation(mlp));
    }
  }
  return inputs;
}

}  // namespace inlay
