// LinearInput: what linear layers of a network read, and where it comes from:
// the structure that methods with calibration go by. Knows no values.
#ifndef INLAY_CORE_QUANTIZE_LINEAR_INPUTS_H_
#define INLAY_CORE_QUANTIZE_LINEAR_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/decoder_spec.h"
#include "core/model/expert_inputs.h"

namespace inlay {

// An input that one or more layers share. Before a mixture of experts that is
// what all tokens have: the experts' layers read rows of it, those of tokens
// that the router sends to them. What their down layers read is each one's own.
struct LinearInput {
  std::vector<const LinearSpec*> readers;
  // Small layers that read it too and decide much, which keep their type:
  // routers, gates of shared experts, what weighs an indexer's heads, what
  // compresses keys.
  std::vector<const LinearSpec*> kept;
  // Of one expert. `common`: the index of the input that it has rows of; -1:
  // none.
  bool is_experts = false;
  int common = -1;
  // Where experts have rows of it: a layer of the first.
  const LinearSpec* first_expert = nullptr;
  // Whose output can be divided channel by channel, with nothing else changed,
  // when the readers' columns are multiplied: a norm, or rows of a layer with
  // only linear steps after it (v before o; up before down). None: null.
  const NormSpec* norm = nullptr;
  const LinearSpec* producer = nullptr;
  int64_t first_row = 0;  // of the producer
  int64_t num_rows = 0;
  // Channel i comes from row first_row + ChannelRow(i) (several heads of a
  // group read one head of v).
  int64_t head_dim = 0;
  int64_t heads_of_row = 1;

  int64_t size() const {
    return readers.empty() ? first_expert->k : readers.front()->k;
  }
  // What InputObserver is told of it as.
  std::string name() const {
    return readers.empty() ? first_expert->name + std::string(kAllExperts)
                           : readers.front()->name;
  }
  int64_t ChannelRow(int64_t channel) const {
    if (norm != nullptr) return channel;
    return channel / head_dim / heads_of_row * head_dim + channel % head_dim;
  }
};

// Those of a layer, in the order of the forward pass. `layer` must outlive
// them.
std::vector<LinearInput> InputsOf(const LayerSpec& layer);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_LINEAR_INPUTS_H_
