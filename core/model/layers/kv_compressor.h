// KvCompressor: the keys of compressed attention, or of its indexer, that stand
// for several tokens each. What tokens give to them (values and gates) is in
// the cache as a layer whose window is what a key is made of, and keys are rows
// of another (KvLayerShape::row_tokens): so an unfinished key is nowhere but in
// its tokens' rows, and whatever moves, shares, cuts or forgets a sequence's
// blocks has it right.
#ifndef INLAY_CORE_MODEL_LAYERS_KV_COMPRESSOR_H_
#define INLAY_CORE_MODEL_LAYERS_KV_COMPRESSOR_H_

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/kv_compress/kv_compress.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rope/rope.h"

namespace inlay {

// Where a layer's KV lies: its view with a null base, and its group.
struct KvPlace {
  KvLayerView view;
  size_t group = 0;
};

class KvCompressor {
 public:
  KvCompressor() = default;
  // Layers of what tokens give and of keys. `counts_rows`: of the keys.
  static KvLayerShape TokenLayer(const CompressorSpec& spec,
                                 int64_t max_positions);
  static KvLayerShape KeyLayer(const CompressorSpec& spec, bool counts_rows);
  // `rope`: index into DecoderSpec::ropes, of the last `rope_dim` dimensions;
  // -1: keys are not rotated.
  static absl::StatusOr<KvCompressor> Create(const CompressorSpec& spec,
                                             const KvPlace& tokens,
                                             const KvPlace& keys, int rope,
                                             int rope_dim, ModelBuild& build);

  // As Sublayer has them.
  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // Writes what the step's tokens give and the keys that they complete. `x`:
  // what the layer reads, normalised.
  absl::Status Forward(const Step& step, const TensorView& x,
                       std::byte* scratch) const;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView values;
    TensorView gates;
    TensorView keys;
  };

  absl::Status ChooseKernels(int rope_dim, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;

  int rope_ = 0;
  KvPlace tokens_;
  KvPlace keys_;
  Linear values_;
  Linear gates_;
  const float* bias_ = nullptr;
  Norm value_norm_;
  Norm norm_;
  Op<KvWriteDesc, KvWriteParams> write_tokens_;
  Op<KvCompressDesc, KvCompressParams> compress_;
  Op<RopeDesc, RopeParams> rotate_;
  Op<KvWriteDesc, KvWriteParams> write_keys_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_KV_COMPRESSOR_H_
