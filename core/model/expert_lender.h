// ExpertLender: matrices of experts that are in memory only while a product
// reads them. Knows no formats; who lends says where they come from.
#ifndef INLAY_CORE_MODEL_EXPERT_LENDER_H_
#define INLAY_CORE_MODEL_EXPERT_LENDER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "memory/device/stream.h"

namespace inlay {

// `info` is of the source that the model is loaded from.
class ExpertLender {
 public:
  virtual ~ExpertLender() = default;
  // Whether the matrix comes from Lend; otherwise it is loaded with the model.
  virtual bool Lends(const WeightInfo& info) const = 0;
  // The matrix's info.bytes bytes, good until the next call. Called on the
  // thread of Forward, which fails with its errors.
  virtual absl::StatusOr<const std::byte*> Lend(const WeightInfo& info,
                                                Stream& stream) = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_EXPERT_LENDER_H_
