// CheckpointLayout: a layer in blocks of ours as the tensors that checkpoints
// of other engines have for it (core/formats/gptq.cc, awq.cc,
// compressed_tensors.cc, bitsandbytes.cc describe them), and what their
// config.json says. Knows no files.
#ifndef INLAY_CORE_QUANTIZE_CHECKPOINT_LAYOUT_H_
#define INLAY_CORE_QUANTIZE_CHECKPOINT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/json/json.h"
#include "core/quantize/checkpoint_types.h"
#include "memory/dtype.h"

namespace inlay {

// One tensor of a layer, behind the layer's name.
struct LayerPart {
  std::string suffix;  // ".qweight"
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// [n, k] in blocks of `dtype`: u4 and i8 with whole zero points, and scales of
// the layout's type, one in all blocks of a group.
struct LayerRows {
  absl::Span<const std::byte> rows;
  DType dtype = DType::kF32;
  int64_t n = 0;
  int64_t k = 0;
  float largest_input = 0.0f;  // magnitude; for layouts with a scale of inputs
};

// What a folder's settings say beside the type.
struct LayoutUse {
  std::vector<std::string> kept;  // linear layers that stay as they are
  bool act_order = false;         // inputs were taken in another order
  DType stored = DType::kBF16;    // what the layers were
};

class CheckpointLayout {
 public:
  virtual ~CheckpointLayout() = default;
  // The type of scales where weights are stored as `stored`.
  virtual DType ScaleType(DType stored) const = 0;
  // Whether it can say a layer of that size, which the type's blocks fit.
  virtual bool Fits(int64_t n, int64_t k) const = 0;
  virtual std::vector<LayerPart> Parts(int64_t n, int64_t k,
                                       DType stored) const = 0;
  // The bytes of Parts, in their order.
  virtual std::vector<std::vector<std::byte>> Convert(const LayerRows& layer,
                                                      DType stored) const = 0;
  // "quantization_config".
  virtual Json Config(const LayoutUse& use) const = 0;
};

std::unique_ptr<CheckpointLayout> MakeGptqLayout(const CheckpointType& type);
std::unique_ptr<CheckpointLayout> MakeAwqLayout(const CheckpointType& type);
std::unique_ptr<CheckpointLayout> MakeCompressedTensorsLayout(
    const CheckpointType& type);
std::unique_ptr<CheckpointLayout> MakeBitsAndBytesLayout(
    const CheckpointType& type);
std::unique_ptr<CheckpointLayout> MakeCheckpointLayout(
    const CheckpointType& type);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_CHECKPOINT_LAYOUT_H_
