// QuantizeModel: writes a model as a GGUF file in another type of weights.
// Owns the order of things; knows no format's bits.
#ifndef INLAY_CORE_QUANTIZE_QUANTIZE_H_
#define INLAY_CORE_QUANTIZE_QUANTIZE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/quantize/calibrated_layers.h"
#include "memory/dtype.h"

namespace inlay {

struct QuantizeOptions {
  std::string type = "q8_0";              // tensor_types.h
  std::vector<std::string> tensor_types;  // "PATTERN=TYPE", published names
  bool tokenizer = true;                  // false: none is written
  int num_threads = 0;                    // 0: one per core
  QuantizeMethod method = QuantizeMethod::kNearest;
  // Of methods that calibrate, what a model of this kind reads: texts, for its
  // tokenizer, or tokens. Cut into sequences of sequence_tokens, at most
  // calibration_tokens in all.
  std::vector<std::string> calibration;
  TokenSequences calibration_sequences;
  // In their place, for kImportance and GGUF files: a file of llama.cpp's
  // imatrix, of this model. What it has nothing for is rounded to nearest.
  std::string imatrix;
  int64_t sequence_tokens = 512;
  int64_t calibration_tokens = 65536;
  bool act_order = false;  // GPTQ: inputs of largest squares first
  float smoothing = 0.5f;  // SmoothQuant's alpha, 0 to 1
  // Bytes that calibration keeps of a layer's experts at a time
  // (MethodOptions).
  uint64_t expert_bytes = kDefaultExpertBytes;
  // Bytes that all of it may take beside mapped files and the tokenizer's
  // document; 0: no limit. With less than calibration would keep, layers run
  // more often, to the same file.
  uint64_t memory_limit = 0;
  // Told what is written and in all, in elements and what calibration is worth,
  // on the calling thread, at least once for each million of elements.
  // Returning false cancels.
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
  double seconds = 0.0;  // to encode and write it, without the calibration
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
  MethodReport method;
};

struct QuantizeReport {
  std::string type;
  QuantizeMethod method = QuantizeMethod::kNearest;
  int64_t calibration_tokens = 0;
  std::vector<QuantizedTensor> tensors;  // in the file's order
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
  uint64_t file_bytes = 0;
  bool has_tokenizer = false;
};

// `files`: of OpenModelFiles, with weights or a draw. What stands at `path`
// stays until the new file is complete. Takes memory for some bands of a
// million elements, or of one row, whatever the size of the model, and for the
// tokenizer; with calibration also what Calibration says, 4 n^2 bytes for each
// input of n elements of one layer (of experts: expert_bytes; twice the largest
// with act_order), and with GPTQ a layer in float32, but its experts as they
// are written (and expert_bytes of them in float32, in the Hessians' place);
// weights are mapped, or loaded as a model's. Errors: INVALID_ARGUMENT for
// options, a method that no layer's type goes with (e4m3: all but rtn and
// smoothquant), an imatrix of another model, and values (of weights, or of
// inputs in calibration) that are not finite or beyond the type's range;
// UNIMPLEMENTED for what GGUF cannot say (the architecture, a setting, the
// tokenizer); NOT_FOUND for a missing tensor or folder; CANCELLED;
// RESOURCE_EXHAUSTED where the disk is full, or where memory_limit is less than
// what is needed at least, which it says, or has no room for the model and its
// tokens; others of files.
absl::StatusOr<QuantizeReport> QuantizeModel(const ModelFiles& files,
                                             const QuantizeOptions& options,
                                             const std::string& path);
// The same from a model path.
absl::StatusOr<QuantizeReport> QuantizePath(const std::string& model,
                                            const QuantizeOptions& options,
                                            const std::string& path);

// "rtn", "imatrix", "gptq", "awq", "smoothquant".
std::string_view QuantizeMethodName(QuantizeMethod method);

// One object: type, method, calibration_tokens, tensors: [{name, gguf, shape,
// from, to, wanted (where it differs), error, seconds, bytes_before,
// bytes_after, and where the method did it output_error, nearest_error, of
// experts expert_tokens}], bytes_before, bytes_after, file_bytes,
// has_tokenizer.
std::string ToJson(const QuantizeReport& report);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_QUANTIZE_H_
