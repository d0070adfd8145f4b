// QuantizeModel: writes a model as a GGUF file in another type of weights,
// round to nearest. Owns the order of things; knows no format's bits.
#ifndef INLAY_CORE_QUANTIZE_QUANTIZE_H_
#define INLAY_CORE_QUANTIZE_QUANTIZE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "memory/dtype.h"

namespace inlay {

struct QuantizeOptions {
  std::string type = "q8_0";              // tensor_types.h
  std::vector<std::string> tensor_types;  // "PATTERN=TYPE", published names
  bool tokenizer = true;                  // false: none is written
  int num_threads = 0;                    // 0: one per core
  // Told elements written and in all, on the calling thread, at least once for
  // each million of elements. Returning false cancels.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

struct QuantizedTensor {
  std::string name;            // as published
  std::string gguf;            // as written
  std::vector<int64_t> shape;  // as written
  DType from = DType::kF32;
  DType to = DType::kF32;
  DType wanted = DType::kF32;  // differs from `to` where blocks do not fit
  double error = 0.0;          // root mean square, relative to the values'
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
};

struct QuantizeReport {
  std::string type;
  std::vector<QuantizedTensor> tensors;  // in the file's order
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
  uint64_t file_bytes = 0;
  bool has_tokenizer = false;
};

// `files`: of OpenModelFiles, with weights or a draw. What stands at `path`
// stays until the new file is complete. Takes memory for some bands of a
// million elements, or of one row, whatever the size of the model, and for the
// tokenizer. Errors: INVALID_ARGUMENT for options, and for values that are not
// finite or beyond the type's range; UNIMPLEMENTED for what GGUF cannot say
// (the architecture, a setting, the tokenizer); NOT_FOUND for a missing tensor
// or folder; CANCELLED; RESOURCE_EXHAUSTED where the disk is full; others of
// files.
absl::StatusOr<QuantizeReport> QuantizeModel(const ModelFiles& files,
                                             const QuantizeOptions& options,
                                             const std::string& path);
// The same from a model path.
absl::StatusOr<QuantizeReport> QuantizePath(const std::string& model,
                                            const QuantizeOptions& options,
                                            const std::string& path);

// One object: type, tensors: [{name, gguf, shape, from, to, wanted (where it
// differs), error, bytes_before, bytes_after}], bytes_before, bytes_after,
// file_bytes, has_tokenizer.
std::string ToJson(const QuantizeReport& report);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_QUANTIZE_H_
