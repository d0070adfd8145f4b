// LatentHeads: the matrix of latent attention that makes each head's keys and
// values of a latent, as two products a head instead: a query becomes what
// meets latents themselves, and a sum of latents becomes values. So keys and
// values of a token are never made (the absorbed form, arXiv:2405.04434).
#ifndef INLAY_CORE_MODEL_LAYERS_LATENT_HEADS_H_
#define INLAY_CORE_MODEL_LAYERS_LATENT_HEADS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/moe/expert_linear.h"

namespace inlay {

class LatentHeads {
 public:
  LatentHeads() = default;
  // Keys' matrices are turned, so quantised ones are widened to float32;
  // values' keep their format. On CUDA quantised ones of both are widened, to
  // activations' type.
  // Matrices that the file has apart (LatentAttentionSpec::up_keys) lie as the
  // products want them, so on CPU both keep their format.
  // UNIMPLEMENTED where the inputs are permuted.
  static absl::StatusOr<LatentHeads> Create(const LatentAttentionSpec& spec,
                                            ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // y[t, h] = K[h]^T x[t, h]. x, y: a row a token and head, rows may be
  // strided. `scratch`: ScratchBytes of so many tokens.
  absl::Status Absorb(const TensorView& x, const TensorView& y,
                      std::byte* scratch, const Step& step) const {
    return Run(keys_, x, y, scratch, step);
  }
  // y[t, h] = V[h] x[t, h], likewise.
  absl::Status Values(const TensorView& x, const TensorView& y,
                      std::byte* scratch, const Step& step) const {
    return Run(values_, x, y, scratch, step);
  }

  // Not on CPU: the matrices of both as ExpandedAttentionParams has them, plain
  // floats.
  HeadMatrices KeyMatrices() const { return MatricesOf(keys_); }
  HeadMatrices ValueMatrices() const { return MatricesOf(values_); }
  DType KeyType() const { return keys_.op.desc.gemm.weight; }
  DType ValueType() const { return values_.op.desc.gemm.weight; }

 private:
  // A head is an expert that every token goes to.
  struct Product {
    Op<ExpertLinearDesc, ExpertLinearParams> op;
    std::vector<const std::byte*> each;  // on CPU
    ExpertMatrices stacked;              // elsewhere
  };
  // On CPU; elsewhere that every token goes to every expert need not be listed.
  struct Slots {
    int32_t* experts = nullptr;
    int32_t* offsets = nullptr;
    int32_t* slots = nullptr;
  };

  static HeadMatrices MatricesOf(const Product& product) {
    return {product.stacked.base, product.stacked.stride_bytes};
  }
  static absl::StatusOr<LatentHeads> CreateApart(
      const LatentAttentionSpec& spec, ModelBuild& build);
  static absl::Status LoadApart(const LatentAttentionSpec& spec,
                                const LinearSpec& layer, ModelBuild& build,
                                Product* product);
  absl::Status Choose(const LatentAttentionSpec& spec, DType stored,
                      const ModelBuild& build);
  absl::Status Load(const LatentAttentionSpec& spec, DType stored,
                    ModelBuild& build);
  Slots Place(Arena& arena, int64_t tokens) const;
  Slots List(std::byte* scratch, int32_t tokens) const;
  absl::Status Run(const Product& product, const TensorView& x,
                   const TensorView& y, std::byte* scratch,
                   const Step& step) const;

  bool on_cpu_ = true;
  Product keys_;
  Product values_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LATENT_HEADS_H_
