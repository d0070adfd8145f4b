// DeviceBatch: the arrays of a step that kernels read, where they can read
// them. On CPU these are the caller's own. For other devices Model::PackBatch
// lays them out in one image in staging memory, and the caller copies it over.
#ifndef INLAY_CORE_MODEL_DEVICE_BATCH_H_
#define INLAY_CORE_MODEL_DEVICE_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/indexer/index_plan.h"
#include "kernels/linear_attention/state_plan.h"

namespace inlay {

// The most that an image has room for. Equal limits lay images out alike.
struct BatchLimits {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t blocks = 0;  // of the block tables of all sequences, in any group
  // Positions of one sequence; not looked at where fixed. Only models with an
  // attention pattern need to know.
  int64_t longest = 0;
  // Every step at the same addresses is launched the same way whatever is in
  // it (a CUDA graph): at most one token a sequence; tokens that are missing
  // are computed and go nowhere.
  bool fixed = false;

  bool operator==(const BatchLimits&) const = default;
};

struct DeviceBatch {
  int64_t tokens = 0;            // that are computed: the limit where fixed
  const int32_t* ids = nullptr;  // [tokens]
  const int32_t* positions = nullptr;   // [tokens]
  const int32_t* segments = nullptr;    // [tokens]; null: all 0
  const int64_t* slots = nullptr;       // [groups][tokens]; -1: nowhere
  const int32_t* logit_rows = nullptr;  // of ForwardBatch
  // Model::ExchangeBytes() of the device's memory, the caller's. PackBatch sets
  // it to null.
  void* exchange = nullptr;
  // One for each of the model's ways to cut attention; none on CPU.
  absl::InlinedVector<AttentionPlan, 2> plans;
  // Of models with states; not on CPU.
  StatePlan states;
  // Of models that select keys, one a KV group; empty where nobody asks for
  // it. Not on CPU.
  absl::InlinedVector<IndexPlan, 4> index;
  size_t used_bytes = 0;  // of the image: copy so many

  const int64_t* SlotsOf(size_t group) const {
    return slots + static_cast<int64_t>(group) * tokens;
  }
  // Null on CPU.
  const IndexPlan* IndexOf(size_t group) const {
    return index.empty() ? nullptr : &index[group];
  }
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_DEVICE_BATCH_H_
