// Tables of experts by token, which the plan of a model's weights has not: they
// are integers, and written as such. Knows nothing of files.
#ifndef INLAY_CORE_QUANTIZE_INDEX_TABLES_H_
#define INLAY_CORE_QUANTIZE_INDEX_TABLES_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/model/decoder_spec.h"

namespace inlay {

// Of all layers that have one, in their order; they belong to `source`.
// NOT_FOUND naming a tensor that it lacks.
absl::StatusOr<std::vector<const WeightInfo*>> FindIndexTables(
    const DecoderSpec& spec, const WeightSource& source);

// Its numbers as i32. What the model has loaded is i32 or i64, and in range.
absl::StatusOr<std::vector<std::byte>> ReadIndexTable(
    const WeightSource& source, const WeightInfo& table);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_INDEX_TABLES_H_
