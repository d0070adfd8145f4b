// RelativePositions: the rows that queries and keys are multiplied by beside
// each other, where attention is disentangled. They follow from the weights
// alone, so they are computed once, when these are loaded.
#ifndef INLAY_CORE_MODEL_LAYERS_RELATIVE_POSITIONS_H_
#define INLAY_CORE_MODEL_LAYERS_RELATIVE_POSITIONS_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/attention/disentangled_attention.h"

namespace inlay {

// What layers share that name the same table.
struct RelativeTable {
  const float* embeddings = nullptr;  // [rows, width]
  const int32_t* row_of = nullptr;
  Norm norm;  // to ModelBuild::activation; not present: they are that
};

class RelativePositions {
 public:
  RelativePositions() = default;  // none
  // `inputs`: what the layer reads its own input with.
  static absl::StatusOr<RelativePositions> Create(const AttentionSpec& spec,
                                                  const InputLinear& inputs,
                                                  ModelBuild& build);

  bool present() const { return table_ != nullptr; }
  // What Fill needs at `scratch`.
  size_t ScratchBytes(const InputLinear& inputs) const;
  // Queues the computing of the rows; the weights are there. `inputs`: as
  // Create() was told.
  absl::Status Fill(const InputLinear& inputs, std::byte* scratch,
                    Stream& stream) const;
  const RelativeRows& rows() const { return relative_; }

 private:
  struct Scratch {
    TensorView x;    // of ModelBuild::activation
    TensorView own;  // what the layer's own matrices make of x; or empty
    void* kernel = nullptr;
  };

  Scratch Place(Arena& arena, const InputLinear& inputs) const;
  absl::Status FillByOwn(const InputLinear& inputs, const Scratch& scratch,
                         const TensorView& x, Stream& stream) const;

  std::shared_ptr<const RelativeTable> table_;
  int64_t rows_ = 0;
  int64_t width_ = 0;    // of embeddings
  int64_t q_width_ = 0;  // of all heads
  DType activation_ = DType::kF32;
  bool shares_ = false;  // the layer's own matrices make the rows
  Linear key_;           // otherwise
  Linear query_;
  Norm copy_;
  RelativeRows relative_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_RELATIVE_POSITIONS_H_
