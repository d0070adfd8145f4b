// AttentionBlock: projections, norms of q and k, rotation, the KV write,
// attention over the paged cache, the output projection.
#ifndef INLAY_CORE_MODEL_LAYERS_ATTENTION_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_ATTENTION_BLOCK_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/attention/attention.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"

namespace inlay {

class AttentionBlock : public Sublayer {
 public:
  // `kv` with a null base: the layer's place in a block of `kv_group`.
  // `rotary_dim`: of spec.rope; unused when that is -1.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const AttentionSpec& spec, const KvLayerView& kv, size_t kv_group,
      int rotary_dim, ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens) const override;
  absl::Status Forward(const Step& step, const TensorView& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch. q, k and v are columns of one matrix when one layer
  // makes all three, otherwise dense.
  struct Scratch {
    TensorView fused;
    TensorView q;
    TensorView k;
    TensorView v;
    TensorView context;
  };

  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Project(const Step& step, const TensorView& x,
                       const Scratch& scratch) const;
  absl::Status Rotate(const Step& step, const Scratch& scratch) const;

  int64_t q_width_ = 0;
  int64_t kv_width_ = 0;
  int head_dim_ = 0;
  int rope_index_ = -1;
  KvLayerView kv_;
  size_t kv_group_ = 0;
  std::vector<Linear> qkv_;
  Linear output_;
  Norm q_norm_;
  Norm k_norm_;
  Op<RopeDesc, RopeParams> q_rope_;
  Op<RopeDesc, RopeParams> k_rope_;
  Op<KvWriteDesc, KvWriteParams> kv_write_;
  Op<AttentionDesc, AttentionParams> attention_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ATTENTION_BLOCK_H_
