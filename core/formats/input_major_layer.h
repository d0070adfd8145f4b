// InputMajorLayer: what GPTQ and AWQ share. Stored are matrices whose rows run
// along the inputs: scales [groups, n], zero points [groups, n * bits / 32]
// packed into 32-bit words along n, and codes, which the two pack differently.
// Knows no settings, but which of them a layer's tensors fit.
#ifndef INLAY_CORE_FORMATS_INPUT_MAJOR_LAYER_H_
#define INLAY_CORE_FORMATS_INPUT_MAJOR_LAYER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"

namespace inlay {

// What the layers of a checkpoint may be: by the settings for all, which come
// first, and by those for some. Which names have these is not looked at: a
// layer's tensors say what it is, whatever its module was called.
struct LayerChoices {
  std::vector<int64_t> bits;
  std::vector<int64_t> group_sizes;  // kMaxQuantizedColumns: all columns
};

// The suffixes of two of a layer's tensors.
struct InputMajorNames {
  std::string scales = ".scales";
  std::string zeros = ".qzeros";
};

// The choice that "<layer>.qzeros" of n outputs fits; where none does the
// first one, which FindInputMajorTensors() then refuses.
int LayerBits(const WeightSource& stored, const std::string& layer, int64_t n,
              const LayerChoices& choices);
// The same of the layer's scales: no size is above k. UNIMPLEMENTED, naming the
// layer, where several fit that mean different groups, unless `indexed`: then
// their number is all that counts.
absl::StatusOr<int64_t> LayerGroupSize(const WeightSource& stored,
                                       const std::string& layer,
                                       const InputMajorNames& names, int64_t k,
                                       const LayerChoices& choices,
                                       bool indexed);

// One layer's tensors, checked: they agree with n, k and the groups.
struct InputMajorTensors {
  const WeightInfo* codes = nullptr;
  const WeightInfo* zeros = nullptr;
  const WeightInfo* scales = nullptr;
};

// How words along n are read: fields one after another, the lowest bits first,
// in words of their own where they fill words, else (3, 5, 6 and 7 bits) across
// them.
struct ZeroPacking {
  int bits = 4;           // 2 to 8
  bool less_one = false;  // as stored
  // Of fields that fill words: output i of a word's outputs lies in field
  // field_of[i]. Empty: in field i.
  absl::Span<const uint8_t> field_of;
  uint8_t flipped = 0;  // bits of every field, codes' as well
};

class InputMajorLayer : public QuantizedLayer {
 protected:
  InputMajorLayer(const std::string& layer, Grouping grouping,
                  const InputMajorTensors& tensors, const ZeroPacking& packing,
                  std::shared_ptr<const WeightSource> stored);

  // Codes of 8 bits less 128, others as they are.
  virtual absl::Status LoadCodes(Band& band) const = 0;

  const WeightSource& stored() const { return *stored_; }
  const WeightInfo& codes() const { return *tensors_.codes; }
  const ZeroPacking& packing() const { return packing_; }
  int bits() const { return packing_.bits; }

 private:
  absl::Status Load(Band& band) const final;

  InputMajorTensors tensors_;
  ZeroPacking packing_;
  std::shared_ptr<const WeightSource> stored_;
};

// Finds and checks the scales [groups, n] and zero points
// [groups, n * bits / 32] beside `codes`.
absl::StatusOr<InputMajorTensors> FindInputMajorTensors(
    const WeightSource& stored, const std::string& layer,
    const InputMajorNames& names, const WeightInfo* codes, int64_t n,
    int64_t groups, int bits);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_INPUT_MAJOR_LAYER_H_
