#include "core/quantize/linear_inputs.h"

#include <utility>
#include <variant>

namespace inlay {
namespace {

void AddReaders(const std::vector<LinearSpec>& layers, LinearInput* input) {
  for (const LinearSpec& layer : layers) input->readers.push_back(&layer);
}

LinearInput ReadAfterAttention(const AttentionSpec& attention) {
  LinearInput input;
  input.readers = {&attention.output};
  if (attention.output_norm.kind != NormKind::kNone) {
    input.norm = &attention.output_norm;
    return input;
  }
  // A norm takes out what values are divided by, and where they are cut off
  // they are not linear; another layer's values are read by its own output too.
  if (attention.v_norm.kind != NormKind::kNone || attention.clip > 0.0f ||
      attention.kv_source >= 0) {
    return input;
  }
  input.producer = &attention.qkv.back();
  input.head_dim =
      attention.value_dim > 0 ? attention.value_dim : attention.head_dim;
  input.num_rows = attention.num_kv_heads * input.head_dim;
  input.first_row = input.producer->n - input.num_rows;
  input.heads_of_row = attention.num_heads / attention.num_kv_heads;
  return input;
}

LinearInput ReadAfterActivation(const MlpSpec& mlp) {
  LinearInput input;
  input.readers = {&mlp.output};
  if (mlp.inner_norm.kind != NormKind::kNone) {
    input.norm = &mlp.inner_norm;
    return input;
  }
  // The activation is not linear; the factor beside it is, unless it is cut
  // off.
  if (!mlp.gated || HasLimit(mlp.activation)) return input;
  input.producer = &mlp.input.back();
  input.num_rows = mlp.width;
  input.first_row = input.producer->n - mlp.width;
  input.head_dim = mlp.width;
  return input;
}

LinearInput ReadOnly(const LinearSpec& layer) {
  LinearInput input;
  input.readers = {&layer};
  return input;
}

void AddMamba(const MambaSpec& mamba, size_t first,
              std::vector<LinearInput>* inputs) {
  (*inputs)[first].readers.push_back(&mamba.input);
  inputs->push_back(ReadOnly(mamba.output));
}

// Each layer reads a mix of its own of the norm's output. What is of low rank
// decides decays and gates.
void AddTimeMix(const TimeMixSpec& mix, size_t first,
                std::vector<LinearInput>* inputs) {
  LinearInput& input = (*inputs)[first];
  input.norm = nullptr;
  input.readers.push_back(&mix.r);
  for (const auto* layers : {&mix.decay, &mix.rate, &mix.mix, &mix.gate}) {
    for (const LinearSpec& layer : *layers) input.kept.push_back(&layer);
  }
  for (const LinearSpec* layer : {&mix.k, &mix.v, &mix.output}) {
    inputs->push_back(ReadOnly(*layer));
  }
}

// The gates of heads decide decays.
void AddLru(const LruSpec& lru, size_t first,
            std::vector<LinearInput>* inputs) {
  LinearInput& input = (*inputs)[first];
  input.readers.push_back(&lru.input);
  input.readers.push_back(&lru.gate);
  for (const auto* gates : {&lru.input_gates, &lru.recurrence_gates}) {
    for (const LinearSpec& gate : *gates) input.kept.push_back(&gate);
  }
  inputs->push_back(ReadOnly(lru.output));
}

// Between input and output nothing is linear that could be divided.
void AddRecurrent(const PartSpec& part, size_t first,
                  std::vector<LinearInput>* inputs) {
  if (const auto* conv = std::get_if<ShortConvSpec>(&part)) {
    (*inputs)[first].readers.push_back(&conv->input);
    inputs->push_back(ReadOnly(conv->output));
  } else if (const auto* mamba = std::get_if<MambaSpec>(&part)) {
    AddMamba(*mamba, first, inputs);
  } else if (const auto* both = std::get_if<AttentionMambaSpec>(&part)) {
    AddReaders(both->attention.qkv, &(*inputs)[first]);
    AddMamba(both->mamba, first, inputs);
    inputs->push_back(ReadAfterAttention(both->attention));
  } else if (const auto* selective = std::get_if<SelectiveSpec>(&part)) {
    (*inputs)[first].readers.push_back(&selective->input);
    for (const LinearSpec* layer :
         {&selective->low, &selective->steps, &selective->output}) {
      inputs->push_back(ReadOnly(*layer));
    }
  } else if (const auto* delta = std::get_if<DeltaSpec>(&part)) {
    AddReaders(delta->qkvz, &(*inputs)[first]);
    AddReaders(delta->ba, &(*inputs)[first]);
    for (const auto* pair : {&delta->low_rank_z, &delta->low_rank_a}) {
      if (pair->empty()) continue;
      (*inputs)[first].readers.push_back(&pair->front());
      inputs->push_back(ReadOnly(pair->back()));
    }
    inputs->push_back(ReadOnly(delta->output));
  } else if (const auto* lightning = std::get_if<LightningSpec>(&part)) {
    AddReaders(lightning->qkv, &(*inputs)[first]);
    if (lightning->gate.has_value()) {
      (*inputs)[first].readers.push_back(&*lightning->gate);
    }
    inputs->push_back(ReadOnly(lightning->output));
  } else if (const auto* mix = std::get_if<TimeMixSpec>(&part)) {
    AddTimeMix(*mix, first, inputs);
  } else if (const auto* lru = std::get_if<LruSpec>(&part)) {
    AddLru(*lru, first, inputs);
  } else if (const auto* shifted = std::get_if<ShiftedMlpSpec>(&part)) {
    (*inputs)[first].norm = nullptr;
    AddReaders(shifted->mlp.input, &(*inputs)[first]);
    inputs->push_back(ReadAfterActivation(shifted->mlp));
  }
}

void KeepCompressor(const CompressorSpec& compressor, LinearInput* input) {
  input->kept.push_back(&compressor.values);
  input->kept.push_back(&compressor.gates);
}

// Values, which `output` reads, lie among keys in `up`: no run of rows. What
// weighs an indexer's heads keeps its type, as a router does.
void AddLatent(const LatentAttentionSpec& latent, size_t first,
               std::vector<LinearInput>* inputs) {
  const auto read_norm = [&](const NormSpec& norm, const LinearSpec& reader) {
    inputs->push_back(ReadOnly(reader));
    inputs->back().norm = &norm;
  };
  LinearInput& input = (*inputs)[first];
  input.readers.push_back(&latent.query.front());
  if (latent.kv_source < 0) input.readers.push_back(&latent.down);
  if (latent.gate.has_value() && !latent.reads_both) {
    input.readers.push_back(&*latent.gate);
  }
  if (latent.reads_both) {
    // The norm's output goes on beside what goes into it.
    inputs->push_back(ReadOnly(latent.query.back()));
    if (latent.gate.has_value()) {
      inputs->back().readers.push_back(&*latent.gate);
    }
  } else if (latent.query.size() > 1) {
    read_norm(latent.query_norm, latent.query.back());
  }
  if (latent.indexer.has_value()) {
    if (latent.indexer->compressor.has_value()) {
      KeepCompressor(*latent.indexer->compressor, &(*inputs)[first]);
    } else {
      (*inputs)[first].readers.push_back(&latent.indexer->key);
    }
    (*inputs)[first].kept.push_back(&latent.indexer->weights);
    // Behind a norm of its own, or where others read more, it reads what no
    // other layer does.
    if (latent.indexer->query_norm.kind != NormKind::kNone ||
        latent.reads_both) {
      inputs->push_back(ReadOnly(latent.indexer->query));
    } else {
      inputs->back().readers.push_back(&latent.indexer->query);
    }
  }
  if (latent.kv_source < 0) {
    read_norm(latent.norm, latent.up);
  } else {
    inputs->push_back(ReadOnly(latent.up));
  }
  inputs->push_back(ReadOnly(latent.output));
}

// What compresses keys decides, as a router, what is seen at all.
void AddCompressed(const CompressedAttentionSpec& compressed, size_t first,
                   std::vector<LinearInput>* inputs) {
  LinearInput& input = (*inputs)[first];
  input.readers.push_back(&compressed.low_query);
  input.readers.push_back(&compressed.key);
  if (compressed.compressor.has_value()) {
    KeepCompressor(*compressed.compressor, &input);
  }
  LinearInput low = ReadOnly(compressed.query);
  low.norm = &compressed.low_query_norm;
  if (compressed.index.has_value()) {
    KeepCompressor(compressed.index->compressor, &input);
    input.kept.push_back(&compressed.index->weights);
    low.readers.push_back(&compressed.index->query);
  }
  inputs->push_back(std::move(low));
  for (const LinearSpec& group : compressed.group_outputs) {
    inputs->push_back(ReadOnly(group));
  }
  inputs->push_back(ReadOnly(compressed.output));
}

// `first`: what attention reads.
void AddShared(const SharedTransformerSpec& shared, size_t first,
               std::vector<LinearInput>* inputs) {
  AddReaders(shared.attention.qkv, &(*inputs)[first]);
  (*inputs)[first].norm = &shared.norm;
  inputs->push_back(ReadAfterAttention(shared.attention));
  inputs->push_back(ReadOnly(shared.gate_up));
  inputs->back().readers.push_back(&shared.low);
  inputs->back().norm = &shared.mlp_norm;
  for (const LinearSpec* layer : {&shared.high, &shared.down, &shared.output}) {
    inputs->push_back(ReadOnly(*layer));
  }
}

// In the order in which a model has the layers: what all experts' gates and ups
// read, then what their downs do.
void AddExperts(const MoeSpec& moe, size_t first,
                std::vector<LinearInput>* inputs) {
  LinearInput& all = (*inputs)[first];
  if (moe.router_norm.kind == NormKind::kNone && !moe.routes_ahead) {
    all.kept.push_back(&moe.router);
  }
  if (moe.shared_gate.has_value()) all.kept.push_back(&*moe.shared_gate);
  if (moe.shared.has_value()) AddReaders(moe.shared->input, &all);
  size_t common = first;
  if (moe.latent_down.has_value()) {
    all.readers.push_back(&*moe.latent_down);
    common = inputs->size();
    inputs->emplace_back();
  }
  (*inputs)[common].first_expert = &moe.experts.front().input.front();
  for (const MlpSpec& expert : moe.experts) {
    LinearInput& rows = inputs->emplace_back();
    AddReaders(expert.input, &rows);
    rows.is_experts = true;
    rows.common = static_cast<int>(common);
  }
  for (const MlpSpec& expert : moe.experts) {
    inputs->push_back(ReadAfterActivation(expert));
    inputs->back().is_experts = true;
  }
  if (moe.latent_up.has_value()) inputs->push_back(ReadOnly(*moe.latent_up));
  if (moe.shared.has_value()) {
    inputs->push_back(ReadAfterActivation(*moe.shared));
  }
}

// Of those the one behind the same norm, or one more.
size_t InputBehind(const NormSpec& norm, std::vector<LinearInput>* inputs) {
  for (size_t i = 0; i < inputs->size() && !norm.name.empty(); ++i) {
    const NormSpec* const other = (*inputs)[i].norm;
    if (other != nullptr && other->name == norm.name) return i;
  }
  inputs->emplace_back();
  return inputs->size() - 1;
}

// What experts without matrices read goes on as it is: their norm's output is
// not to be divided.
void KeepWhatGoesOn(const LayerSpec& layer, std::vector<LinearInput>* inputs) {
  const bool shares = layer.pre_norm.kind != NormKind::kNone;
  for (const BlockSpec& block : layer.blocks) {
    const auto* moe = std::get_if<MoeSpec>(&block.part);
    if (moe == nullptr ||
        moe->routing.num_experts == static_cast<int>(moe->experts.size())) {
      continue;
    }
    const NormSpec& norm = shares ? layer.pre_norm : block.pre_norm;
    for (LinearInput& input : *inputs) {
      if (input.norm != nullptr && input.norm->name == norm.name) {
        input.norm = nullptr;
      }
    }
  }
}

}  // namespace

std::vector<LinearInput> InputsOf(const LayerSpec& layer) {
  std::vector<LinearInput> inputs;
  const bool shares = layer.pre_norm.kind != NormKind::kNone;
  for (const BlockSpec& block : layer.blocks) {
    // Blocks that share a norm read one input.
    const NormSpec& norm = shares ? layer.pre_norm : block.pre_norm;
    const size_t first =
        shares && !inputs.empty() ? 0 : InputBehind(norm, &inputs);
    // Laurel reads what is normed too, and adds it to its sum; a gate reads it,
    // and the part what that makes of it.
    if (norm.kind != NormKind::kNone && !block.laurel.has_value() &&
        !block.input_gate.has_value()) {
      inputs[first].norm = &norm;
    }
    if (block.input_gate.has_value()) {
      inputs.push_back(ReadOnly(block.input_gate->low));
      inputs.push_back(ReadOnly(block.input_gate->high));
    }
    if (const auto* attention = std::get_if<AttentionSpec>(&block.part)) {
      AddReaders(attention->qkv, &inputs[first]);
      if (attention->block_index.has_value()) {
        inputs[first].readers.push_back(&attention->block_index->query);
        inputs[first].readers.push_back(&attention->block_index->key);
      }
      inputs.push_back(ReadAfterAttention(*attention));
    } else if (const auto* latent =
                   std::get_if<LatentAttentionSpec>(&block.part)) {
      AddLatent(*latent, first, &inputs);
    } else if (const auto* compressed =
                   std::get_if<CompressedAttentionSpec>(&block.part)) {
      AddCompressed(*compressed, first, &inputs);
    } else if (const auto* moe = std::get_if<MoeSpec>(&block.part)) {
      AddExperts(*moe, first, &inputs);
    } else if (const auto* both = std::get_if<MlpMoeSpec>(&block.part)) {
      inputs[first].norm = &both->mlp_pre_norm;
      AddReaders(both->mlp.input, &inputs[first]);
      inputs.push_back(ReadAfterActivation(both->mlp));
      const size_t second = inputs.size();
      inputs.emplace_back().norm = &both->moe_pre_norm;
      AddExperts(both->moe, second, &inputs);
    } else if (const auto* slice = std::get_if<PerLayerSpec>(&block.part)) {
      inputs[first].readers.push_back(&slice->gate);
      inputs.push_back(ReadOnly(slice->output));
    } else if (const auto* shared =
                   std::get_if<SharedTransformerSpec>(&block.part)) {
      AddShared(*shared, first, &inputs);
    } else if (const auto* mlp = std::get_if<MlpSpec>(&block.part)) {
      AddReaders(mlp->input, &inputs[first]);
      inputs.push_back(ReadAfterActivation(*mlp));
    } else {
      AddRecurrent(block.part, first, &inputs);
    }
  }
  KeepWhatGoesOn(layer, &inputs);
  return inputs;
}

}  // namespace inlay
