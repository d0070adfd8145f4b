// RowMajorLayer: what compressed-tensors and fp8 checkpoints share. Codes lie
// as a weight does, [n, k], bytes or fields of 32-bit words; scales and zero
// points lie on a grid over it.
#ifndef INLAY_CORE_FORMATS_ROW_MAJOR_LAYER_H_
#define INLAY_CORE_FORMATS_ROW_MAJOR_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct RowMajorTensors {
  CodeKind kind = CodeKind::kI8;
  // Bytes [n, k] (i8, e4m3; u4: a signed code each), or i32 [n, k / fields]:
  // fields unsigned, so that int4 is stored plus 8 and int8 plus 128.
  const WeightInfo* codes = nullptr;
  const WeightInfo* scales = nullptr;  // any shape; the grid's elements
  // Null: symmetric. As the scales in i8, or, packed along n as the codes are
  // along k, i32 [n / fields, grid columns].
  const WeightInfo* zeros = nullptr;
  ScaleGrid grid;
  float scale_divisor = 1.0f;                  // of every scale
  InputCodes input_codes = InputCodes::kNone;  // as WeightInfo
};

class RowMajorLayer final : public QuantizedLayer {
 public:
  // The tensors agree with n and `grouping`, whose groups are the grid's
  // columns.
  RowMajorLayer(const std::string& layer, int64_t n, Grouping grouping,
                const RowMajorTensors& tensors,
                std::shared_ptr<const WeightSource> stored);

 private:
  absl::Status Load(Band& band) const override;
  absl::Status LoadCodes(Band& band) const;
  // Codes of a byte each, made unsigned. INVALID_ARGUMENT for one of more bits.
  absl::Status CentreNibbles(Band& band) const;
  absl::Status LoadScales(Band& band) const;
  absl::Status LoadZeros(Band& band) const;
  int fields() const { return tensors_.kind == CodeKind::kU4 ? 8 : 4; }

  RowMajorTensors tensors_;
  std::shared_ptr<const WeightSource> stored_;
};

// Whether a tensor of scales (or i8 zero points) has an element for each cell
// of `grid` over [n, k]: the shape [cells along n, cells along k]; a channel's
// may lack the second dimension, a whole tensor's both.
absl::Status CheckGrid(const WeightInfo& tensor, const ScaleGrid& grid,
                       int64_t n, int64_t k);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_ROW_MAJOR_LAYER_H_
