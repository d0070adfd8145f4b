// The C ABI of quantisation.
#include "core/quantize/quantize.h"

#include <utility>

#include "api/src/shim.h"

namespace inlay::api {
namespace {

constexpr size_t kMaxTensorTypes = 4096;

absl::StatusOr<QuantizeOptions> ToQuantizeOptions(
    const inlay_quantize_options& options) {
  if (options.num_threads < 0 ||
      options.num_threads > ThreadPool::kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_threads is %d, allowed: 0 to %d",
                        options.num_threads, ThreadPool::kMaxThreads));
  }
  if (options.num_tensor_types > kMaxTensorTypes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_tensor_types is %d, allowed: at most %d",
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
  for (size_t i = 0; i < options.num_tensor_types; ++i) {
    INLAY_RETURN_IF_ERROR(
        CheckPointer(options.tensor_types[i], "an element of tensor_types"));
    result.tensor_types.emplace_back(options.tensor_types[i]);
  }
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

void inlay_quantize_options_init(inlay_quantize_options* options) {
  if (options == nullptr) return;
  InitStruct(options);
  options->type = "q8_0";
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
