// NarrowValues: values that are narrower than keys, for a cache and kernels
// that know one width of heads. Values become as wide as keys on the way in,
// with their own first numbers once more, which nobody reads and which leave
// the largest of a row what it is (caches in 8 bits have a scale a row); what
// attention gives is cut back on the way out.
#ifndef INLAY_CORE_MODEL_LAYERS_NARROW_VALUES_H_
#define INLAY_CORE_MODEL_LAYERS_NARROW_VALUES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model_build.h"
#include "kernels/columns/columns.h"

namespace inlay {

// What is copied where, of layers of one shape.
struct NarrowRuns {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;
  std::vector<ColumnRun> widened;
  std::vector<ColumnRun> ordered;
  std::vector<ColumnRun> narrowed;
};

class NarrowValues {
 public:
  NarrowValues() = default;
  // Not present() where values are as wide as keys. Layers of one shape share
  // its runs, by `build`.
  static absl::StatusOr<NarrowValues> Create(const AttentionSpec& spec,
                                             ModelBuild& build);

  bool present() const { return columns_.row != nullptr; }
  const NarrowRuns* runs() const { return runs_.get(); }
  int64_t value_width() const { return value_width_; }  // of all KV heads
  int64_t width() const { return width_; }              // of all heads
  // Values [tokens, value_width()] to rows as wide as keys'.
  absl::Status Widen(const TensorView& v, const TensorView& wide,
                     Stream& stream) const;
  // The same of rows of q, k and v.
  absl::Status Order(const TensorView& raw, const TensorView& ordered,
                     Stream& stream) const;
  // Back to [tokens, width()].
  absl::Status Narrow(const TensorView& context, const TensorView& narrow,
                      Stream& stream) const;

 private:
  absl::Status Copy(const TensorView& x, absl::Span<const ColumnRun> runs,
                    const TensorView& y, Stream& stream) const;

  int64_t value_width_ = 0;
  int64_t width_ = 0;
  std::shared_ptr<const NarrowRuns> runs_;
  Op<ColumnsDesc, ColumnsParams> columns_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_NARROW_VALUES_H_
