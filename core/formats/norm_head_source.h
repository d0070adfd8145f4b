// Baichuan 2's NormHead (arXiv:2309.10305, section 3.4): a head whose rows have
// length 1, of which files keep the rows as they were trained. Source: the
// published modeling_baichuan.py, which replaces the weight by its rows' own
// directions when it first runs.
#ifndef INLAY_CORE_FORMATS_NORM_HEAD_SOURCE_H_
#define INLAY_CORE_FORMATS_NORM_HEAD_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// Where config.json is Baichuan 2's (baichuan_config.h), "lm_head.weight" with
// its rows divided by their lengths, and where it is Ling 1's with `norm_head`
// its columns by theirs, for which it is read once, in float32 and rounded to
// the type they are stored in; it has no mapped address. All else passes
// through.
// UNIMPLEMENTED for a head of another type than f32, f16 and bf16.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentNormHead(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_NORM_HEAD_SOURCE_H_
