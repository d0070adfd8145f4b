// Rows of checkpoints rounded to nearest, with scales that their layouts can
// say.
#ifndef INLAY_CORE_QUANTIZE_NEAREST_ROWS_H_
#define INLAY_CORE_QUANTIZE_NEAREST_ROWS_H_

#include <cstdint>
#include <optional>

#include "core/formats/quantized_settings.h"
#include "core/quantize/group_scheme.h"
#include "core/quantize/row_writer.h"

namespace inlay {

// Whole numbers in groups.
class NearestInGroups : public RowMethod {
 public:
  // All must outlive it.
  NearestInGroups(const GroupScheme& scheme, int64_t width, ThreadPool& pool)
      : scheme_(scheme), width_(width), pool_(pool) {}
  void Change(int64_t, int64_t, float*) override {}
  bool encodes() const override { return true; }
  absl::Status Encode(int64_t rows, const float* values,
                      std::byte* encoded) override;
  absl::Status Note(int64_t, int64_t, const float*, const std::byte*,
                    const float*) override {
    return absl::OkStatus();
  }

 private:
  const GroupScheme& scheme_;
  int64_t width_;
  ThreadPool& pool_;
};

// e4m3 with a scale for each rows x columns (a row, say) of a matrix, or one:
// the largest magnitude / 448, rounded to `scale` (bf16 or f32), in blocks of
// f8_g128 or f8_g32 that repeat it.
class NearestE4M3 : public RowMethod {
 public:
  // `cell`: whole blocks, that divide the width; none: the matrix has one.
  NearestE4M3(DType blocks, std::optional<ScaleGrid> cell, DType scale,
              int64_t width, ThreadPool& pool)
      : elements_(GetFormatInfo(blocks).block_elements),
        one_scale_(!cell.has_value()),
        cell_(cell.value_or(ScaleGrid{1, width})),
        scale_(scale),
        width_(width),
        pool_(pool) {}
  void Change(int64_t, int64_t, float*) override {}
  bool encodes() const override { return true; }
  bool wants_largest() const override { return one_scale_; }
  void SetLargest(float largest) override { largest_ = largest; }
  int64_t rows_together() const override { return cell_.rows; }
  absl::Status Encode(int64_t rows, const float* values,
                      std::byte* encoded) override;
  absl::Status Note(int64_t, int64_t, const float*, const std::byte*,
                    const float*) override {
    return absl::OkStatus();
  }

 private:
  // As many as are encoded as one, or what is left.
  void EncodeRows(int64_t rows, const float* values, std::byte* encoded) const;

  int64_t elements_;
  bool one_scale_;
  ScaleGrid cell_;
  DType scale_;
  int64_t width_;
  ThreadPool& pool_;
  float largest_ = 0.0f;  // of the matrix
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_NEAREST_ROWS_H_
