// Which tensors a GGUF file has for those that a model asks for, and what each
// is made of: experts stacked, latents and projections taken apart, heads
// turned, factors multiplied in. What core/formats/gguf_parts.h,
// expert_source.h and gguf_source.h undo. Knows nothing of types and bytes.
// Source: llama.cpp's converter (conversion/*.py).
#ifndef INLAY_CORE_QUANTIZE_FILE_TENSORS_H_
#define INLAY_CORE_QUANTIZE_FILE_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"
#include "core/quantize/row_reader.h"

namespace inlay {

// A tensor that the model asks for, under the name it asks by.
struct ModelTensor {
  std::string name;
  const WeightInfo* info = nullptr;
  bool is_vector = false;  // of what is no matrix whatever its shape
};

struct FileTensor {
  // As gguf_arch.h's tables have it: "P.experts.NAME.weight" of a stack.
  std::string name;
  std::string gguf;
  RowLayout rows;
  std::vector<std::string> parts;  // names of the model's tensors in it
  // In the file; empty: the rows as they are.
  std::vector<int64_t> shape;
  bool is_vector = false;

  // One of the model's tensors, but for the order of heads' rows and a
  // norm's 1.
  bool is_plain() const {
    return rows.parts.size() == 1 && rows.runs.empty() && !turns();
  }
  // Whether its rows are not rows of the model's tensors.
  bool turns() const { return !rows.columns.empty() || rows.turned_rows > 0; }
};

// In the order in which the model asks for them, a stack where its first expert
// is. INVALID_ARGUMENT for shapes that the configuration contradicts and for
// experts that are missing, UNIMPLEMENTED for tensors that files of the
// architecture have no names for.
absl::StatusOr<std::vector<FileTensor>> PlanFileTensors(
    const Json& config, const GgufArch& arch,
    absl::Span<const ModelTensor> tensors);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_FILE_TENSORS_H_
