#include "core/json/json.h"
#include "core/quantize/quantize.h"

namespace inlay {

std::string_view QuantizeMethodName(QuantizeMethod method) {
  switch (method) {
    case QuantizeMethod::kNearest:
      return "rtn";
    case QuantizeMethod::kImportance:
      return "imatrix";
    case QuantizeMethod::kGptq:
      return "gptq";
    case QuantizeMethod::kAwq:
      return "awq";
    case QuantizeMethod::kSmoothQuant:
      break;
  }
  return "smoothquant";
}

std::string ToJson(const QuantizeReport& report) {
  Json tensors = Json::array();
  for (const QuantizedTensor& tensor : report.tensors) {
    Json row = {{"name", tensor.name},
                {"gguf", tensor.gguf},
                {"shape", tensor.shape},
                {"from", DTypeName(tensor.from)},
                {"to", DTypeName(tensor.to)},
                {"error", tensor.error},
                {"seconds", tensor.seconds},
                {"bytes_before", tensor.bytes_before},
                {"bytes_after", tensor.bytes_after}};
    if (tensor.wanted != tensor.to) row["wanted"] = DTypeName(tensor.wanted);
    if (tensor.method.used) {
      row["output_error"] = tensor.method.output_error;
      row["nearest_error"] = tensor.method.nearest_error;
      if (!tensor.method.expert_tokens.empty()) {
        row["expert_tokens"] = tensor.method.expert_tokens;
      }
    }
    tensors.push_back(std::move(row));
  }
  return DumpJson(Json{{"type", report.type},
                       {"method", QuantizeMethodName(report.method)},
                       {"calibration_tokens", report.calibration_tokens},
                       {"tensors", std::move(tensors)},
                       {"bytes_before", report.bytes_before},
                       {"bytes_after", report.bytes_after},
                       {"file_bytes", report.file_bytes},
                       {"has_tokenizer", report.has_tokenizer}});
}

}  // namespace inlay
