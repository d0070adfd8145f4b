// InputMajorLayer: what GPTQ and AWQ share. Stored are matrices whose rows run
// along the inputs: scales [groups, n], zero points [groups, n / fields] packed
// into 32-bit words along n, and codes, which the two pack differently.
#ifndef INLAY_CORE_FORMATS_INPUT_MAJOR_LAYER_H_
#define INLAY_CORE_FORMATS_INPUT_MAJOR_LAYER_H_

#include <array>
#include <memory>
#include <string>

#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"

namespace inlay {

// One layer's tensors, checked: they agree with n, k and the groups.
struct InputMajorTensors {
  const WeightInfo* codes = nullptr;
  const WeightInfo* zeros = nullptr;
  const WeightInfo* scales = nullptr;
};

// How words along n are read.
struct ZeroPacking {
  int bits = 4;         // 4 or 8; a word has 32 / bits fields
  uint32_t addend = 0;  // added to each word before its fields are taken
  // Output i of a word's outputs lies in field field_of[i].
  std::array<uint8_t, 8> field_of = {0, 1, 2, 3, 4, 5, 6, 7};
};

class InputMajorLayer : public QuantizedLayer {
 protected:
  InputMajorLayer(const std::string& layer, Grouping grouping,
                  const InputMajorTensors& tensors, const ZeroPacking& packing,
                  std::shared_ptr<const WeightSource> stored);

  virtual absl::Status LoadCodes(Band& band) const = 0;

  const WeightSource& stored() const { return *stored_; }
  const WeightInfo& codes() const { return *tensors_.codes; }
  int bits() const { return packing_.bits; }

 private:
  absl::Status Load(Band& band) const final;

  InputMajorTensors tensors_;
  ZeroPacking packing_;
  std::shared_ptr<const WeightSource> stored_;
};

// Finds and checks "<layer>.scales" [groups, n] and "<layer>.qzeros"
// [groups, n * bits / 32] beside `codes`.
absl::StatusOr<InputMajorTensors> FindInputMajorTensors(
    const WeightSource& stored, const std::string& layer,
    const WeightInfo* codes, int64_t n, int64_t groups, int bits);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_INPUT_MAJOR_LAYER_H_
