// The C ABI of quantisation.
#include "core/quantize/quantize.h"

#include <utility>

#include "api/src/shim.h"
#include "memory/formatted_string.h"

namespace inlay::api {
namespace {

constexpr size_t kMaxTensorTypes = 4096;
constexpr size_t kMaxCalibration = size_t{1} << 20;

absl::Status ReadCalibration(const inlay_quantize_options& options,
                             QuantizeOptions* result) {
  INLAY_RETURN_IF_ERROR(
      CheckEnum(options.method, INLAY_QUANTIZE_SMOOTHQUANT, "method"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.act_order, 1, "act_order"));
  if (options.num_calibration > kMaxCalibration) {
    return absl::InvalidArgumentError(
        FormattedString("num_calibration is %d, allowed: at most %d",
                        options.num_calibration, kMaxCalibration));
  }
  INLAY_RETURN_IF_ERROR(
      CheckArray(options.calibration, options.num_calibration, "calibration"));
  result->method = static_cast<QuantizeMethod>(options.method);
  result->act_order = options.act_order != 0;
  result->smoothing = options.smoothing;
  result->sequence_tokens = options.sequence_tokens;
  result->calibration_tokens = options.calibration_tokens;
  result->expert_bytes = options.expert_bytes;
  if (options.imatrix_path != nullptr) result->imatrix = options.imatrix_path;
  for (size_t i = 0; i < options.num_calibration; ++i) {
    INLAY_RETURN_IF_ERROR(
        CheckPointer(options.calibration[i], "an element of calibration"));
    result->calibration.emplace_back(options.calibration[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantizeOptions> ToQuantizeOptions(
    const inlay_quantize_options& options) {
  if (options.num_threads < 0 ||
      options.num_threads > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        FormattedString("num_threads is %d, allowed: 0 to %d",
                        options.num_threads, ThreadPool::kMaxThreads));
  }
  if (options.num_tensor_types > kMaxTensorTypes) {
    return absl::InvalidArgumentError(
        FormattedString("num_tensor_types is %d, allowed: at most %d",
                        options.num_tensor_types, kMaxTensorTypes));
  }
  INLAY_RETURN_IF_ERROR(CheckArray(options.tensor_types,
                                   options.num_tensor_types, "tensor_types"));
  INLAY_RETURN_IF_ERROR(CheckPointer(options.type, "type"));
  INLAY_RETURN_IF_ERROR(CheckEnum(options.no_tokenizer, 1, "no_tokenizer"));
  QuantizeOptions result;
  result.type = options.type;
  result.tokenizer = options.no_tokenizer == 0;
  result.num_threads = options.num_threads;
  result.memory_limit = options.memory_limit;
  for (size_t i = 0; i < options.num_tensor_types; ++i) {
    INLAY_RETURN_IF_ERROR(
        CheckPointer(options.tensor_types[i], "an element of tensor_types"));
    result.tensor_types.emplace_back(options.tensor_types[i]);
  }
  INLAY_RETURN_IF_ERROR(ReadCalibration(options, &result));
  if (options.progress == nullptr) return result;
  result.progress = [progress = options.progress, user = options.progress_user](
                        uint64_t done, uint64_t total) {
    const float fraction = static_cast<float>(static_cast<double>(done) /
                                              static_cast<double>(total));
    return progress(user, INLAY_LOAD_WEIGHTS, fraction) == 0;
  };
  return result;
}

}  // namespace
}  // namespace inlay::api

using namespace inlay::api;  // NOLINT: the shim's own names

void(inlay_quantize_options_init)(inlay_quantize_options* options) {
  inlay_quantize_options_init_sized(options,
                                    kFirstSize<inlay_quantize_options>);
}

void inlay_quantize_options_init_sized(inlay_quantize_options* options,
                                       size_t size) {
  inlay_quantize_options defaults;
  InitStruct(&defaults);
  defaults.type = "q8_0";
  defaults.sequence_tokens = 512;
  defaults.calibration_tokens = 65536;
  defaults.smoothing = 0.5f;
  defaults.expert_bytes = inlay::kDefaultExpertBytes;
  InitSized(defaults, options, size);
}

inlay_status inlay_quantize(const char* model_path, const char* out_path,
                            const inlay_quantize_options* options,
                            inlay_buffer** report, inlay_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (report != nullptr) *report = nullptr;
    INLAY_RETURN_IF_ERROR(CheckPointer(model_path, "model_path"));
    INLAY_RETURN_IF_ERROR(CheckPointer(out_path, "out_path"));
    inlay_quantize_options read;
    inlay_quantize_options_init(&read);
    INLAY_RETURN_IF_ERROR(
        ReadOptions(options, "inlay_quantize_options", &read));
    INLAY_ASSIGN_OR_RETURN(const inlay::QuantizeOptions converted,
                           ToQuantizeOptions(read));
    INLAY_ASSIGN_OR_RETURN(
        const inlay::QuantizeReport result,
        inlay::QuantizePath(model_path, converted, out_path));
    // The file is there: too late to cancel.
    if (read.progress != nullptr) {
      (void)read.progress(read.progress_user, INLAY_LOAD_READY, 1.0f);
    }
    if (report != nullptr) *report = AddHandle(BufferHandle{ToJson(result)});
    return absl::OkStatus();
  });
}
