// Tensors of several WeightSources as one: those of one under their own names,
// those of others behind a prefix each.
#ifndef INLAY_CORE_FORMATS_JOINED_SOURCE_H_
#define INLAY_CORE_FORMATS_JOINED_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct JoinedPart {
  std::string prefix;
  std::shared_ptr<const WeightSource> source;
};

// INVALID_ARGUMENT where two tensors have the same name.
absl::StatusOr<std::shared_ptr<const WeightSource>> MakeJoinedSource(
    std::vector<JoinedPart> parts);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_JOINED_SOURCE_H_
