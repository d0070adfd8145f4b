// One 4-bit layer of a bitsandbytes checkpoint: its quantisation state,
// checked, and the layer in blocks of nf4 or bnb_fp4; in float32 where runs of
// 64 columns do not share a scale. Knows no settings.
#ifndef INLAY_CORE_FORMATS_BITSANDBYTES_LAYER_H_
#define INLAY_CORE_FORMATS_BITSANDBYTES_LAYER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"

namespace inlay {

// Of "<layer>.weight.quant_state.bitsandbytes__<type>" and its companions.
struct BnbState {
  CodeKind kind = CodeKind::kNf4;
  int64_t n = 0;
  int64_t k = 0;
  int64_t block_size = 0;  // elements of the flat weight that share a scale
  const WeightInfo* codes = nullptr;   // bytes, whatever their type says
  const WeightInfo* absmax = nullptr;  // floats, or u8 where they are coded too
  // Of coded scales: map[code] * nested[block / nested_block_size] + offset.
  std::vector<float> map;  // [256]
  std::vector<float> nested;
  int64_t nested_block_size = 0;
  float offset = 0.0f;

  // Whether rows are whole blocks of ours, each within one of the file's.
  bool in_blocks() const;
};

// The state of `layer`, `type` being nf4 or fp4. Every scale is checked to be
// finite, for which they are all read once.
absl::StatusOr<BnbState> ReadBnbState(const WeightSource& stored,
                                      const std::string& layer,
                                      std::string_view type);

class BnbLayer final : public QuantizedLayer {
 public:
  BnbLayer(const std::string& layer, BnbState state,
           std::shared_ptr<const WeightSource> stored);

 private:
  absl::Status Load(Band& band) const override;
  // Codes of elements [begin, begin + count) of the flat weight.
  absl::StatusOr<std::vector<uint8_t>> ReadCodes(int64_t begin,
                                                 int64_t count) const;
  // Scales of blocks [first, first + count).
  absl::StatusOr<std::vector<float>> ReadScales(int64_t first,
                                                int64_t count) const;

  BnbState state_;
  std::shared_ptr<const WeightSource> stored_;
};

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_BITSANDBYTES_LAYER_H_
