// GPTQ: codes of a row one input after another, each rounded from its weight
// and what the errors before it ask for.
// Source: Frantar et al. (arXiv:2210.17323), in the form of input_factor.h.
#ifndef INLAY_CORE_QUANTIZE_GPTQ_H_
#define INLAY_CORE_QUANTIZE_GPTQ_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/quantize/group_scheme.h"
#include "core/quantize/input_factor.h"
#include "kernels/quant/grid.h"
#include "memory/device/stream.h"

namespace inlay {

// Blocks get the scales that fit the weights with what errors before the block
// add to them, weighted by what errors cost. With an order, errors go across
// blocks and back: then all scales come first, from the weights; with groups
// that are not the grid's blocks, too.
class GptqEncoder {
 public:
  // `factor`'s inputs are whole blocks of `grid`. `scheme`: of that grid; null:
  // the grid's. All must outlive this.
  GptqEncoder(const InputFactor& factor, const BlockGrid& grid,
              const GroupScheme* scheme = nullptr)
      : factor_(factor),
        grid_(grid),
        scheme_(scheme != nullptr && scheme->is_grids() ? nullptr : scheme) {}

  // Rows [rows, inputs], in order whatever the factor's. `encoded`: rows of
  // blocks. Products in float32; rows do not depend on each other.
  absl::Status Encode(const float* weights, int64_t rows, std::byte* encoded,
                      Stream& stream);

 private:
  struct Block {
    int64_t first = 0;  // place
    int64_t size = 0;
    std::vector<float>
        feedback;  // [size, size]: from the row's to the column's
  };

  int64_t InputAt(int64_t place) const {
    return factor_.order().empty()
               ? place
               : factor_.order()[static_cast<size_t>(place)];
  }
  Block ReadBlock(int64_t first, int64_t size) const;
  // Scales of a block of the grid, `first` places into `block`.
  void FitAhead(const Block& block, int64_t first, const float* weights,
                const float* targets, GridScales* scales) const;
  // Codes of a row's places of a block; targets [size] changes.
  void EncodeBlock(const Block& block, int64_t row, float* targets);
  // Whether scales come from the weights, not from what errors ask for.
  bool fits_first() const {
    return scheme_ != nullptr || !factor_.order().empty();
  }
  void FitRow(int64_t row);
  void PackRow(int64_t row, std::byte* encoded) const;

  const InputFactor& factor_;
  const BlockGrid& grid_;
  const GroupScheme* scheme_;  // null: the grid's
  // Of a band: [rows, inputs] by place, [rows, blocks of the grid], and levels
  // by input.
  const float* weights_ = nullptr;
  std::vector<float> errors_;
  std::vector<GridScales> scales_;
  std::vector<int8_t> levels_;
  std::vector<float> costs_by_input_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_GPTQ_H_
