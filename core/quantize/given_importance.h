// GivenImportance: rounding by least errors weighted by what inputs' mean
// squares a file gives (core/formats/imatrix.h), where the method imatrix
// measures them itself otherwise.
#ifndef INLAY_CORE_QUANTIZE_GIVEN_IMPORTANCE_H_
#define INLAY_CORE_QUANTIZE_GIVEN_IMPORTANCE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/imatrix.h"
#include "core/quantize/calibrated_layers.h"
#include "core/quantize/row_writer.h"
#include "kernels/quant/quant.h"
#include "memory/device/thread_pool.h"

namespace inlay {

class GivenImportance : private RowMethod {
 public:
  GivenImportance(Imatrix imatrix, ThreadPool& pool)
      : imatrix_(std::move(imatrix)), pool_(pool) {}

  bool Has(const std::string& gguf) const { return imatrix_.contains(gguf); }
  // Of all inputs.
  uint64_t bytes() const;
  // What to write the rows of a tensor as `to` with, until Finish; null:
  // nothing special, where the file has nothing for it, the type has no grid,
  // or it is stored as that already. The file's inputs are in the order of the
  // columns of what is written. INVALID_ARGUMENT where they are not as many.
  absl::StatusOr<RowMethod*> Start(const std::string& gguf, DType from,
                                   DType to, const RowReader& reader);
  void Finish(MethodSums* sums);

 private:
  void Change(int64_t first, int64_t /*rows*/, float* /*values*/) override {
    first_ = first;
  }
  bool encodes() const override { return true; }
  absl::Status Encode(int64_t rows, const float* values,
                      std::byte* encoded) override;
  absl::Status Note(int64_t first, int64_t rows, const float* values,
                    const std::byte* encoded, const float* decoded) override;
  absl::Span<const float> ImportanceOf(int64_t row) const;

  Imatrix imatrix_;
  ThreadPool& pool_;

  // Of the tensor under way.
  const std::vector<float>* squares_ = nullptr;
  const BlockCodec* codec_ = nullptr;
  int64_t width_ = 0;
  int64_t matrix_rows_ = 0;  // that have the same inputs
  int64_t first_ = 0;        // of the band
  MethodSums sums_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_GIVEN_IMPORTANCE_H_
