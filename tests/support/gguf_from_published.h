// Writes a published checkpoint as a GGUF file, as the converter does it: what
// reading undoes is done here, straight from the description of the converter.
#ifndef INLAY_TESTS_SUPPORT_GGUF_FROM_PUBLISHED_H_
#define INLAY_TESTS_SUPPORT_GGUF_FROM_PUBLISHED_H_

#include <cstring>
#include <string>
#include <vector>

#include "core/formats/gguf_arch.h"
#include "core/formats/gguf_writer.h"
#include "core/formats/model_files.h"
#include "memory/status.h"

namespace inlay {

struct GgufTensorData {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
  int64_t parts = 1;  // published tensors that it holds
};

// Rows of each of `heads` heads: first halves and second halves take turns.
inline std::string TakeTurns(const std::string& bytes, int64_t rows,
                             int64_t heads) {
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows);
  const int64_t head = rows / heads;
  std::string out;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % head;
    const int64_t from =
        row - in_head + in_head / 2 + (in_head % 2) * (head / 2);
    out.append(bytes, static_cast<size_t>(from) * row_bytes, row_bytes);
  }
  return out;
}

inline float FloatFrom(const std::string& bytes, DType dtype, size_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + i * 2, 2);
  return dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

// Vectors are stored as f32.
inline void Widen(float plus, GgufTensorData* tensor) {
  const size_t count = tensor->bytes.size() / RowBytes(tensor->dtype, 1);
  std::string wide(count * sizeof(float), '\0');
  for (size_t i = 0; i < count; ++i) {
    const float value = FloatFrom(tensor->bytes, tensor->dtype, i) + plus;
    std::memcpy(wide.data() + i * sizeof(float), &value, sizeof(float));
  }
  tensor->bytes = std::move(wide);
  tensor->dtype = DType::kF32;
}

inline void Turn(GgufTensorData* tensor) {
  const auto rows = static_cast<size_t>(tensor->shape[0]);
  const auto cols = static_cast<size_t>(tensor->shape[1]);
  const size_t size = tensor->bytes.size() / rows / cols;
  std::string out;
  for (size_t col = 0; col < cols; ++col) {
    for (size_t row = 0; row < rows; ++row) {
      out.append(tensor->bytes, (row * cols + col) * size, size);
    }
  }
  tensor->bytes = std::move(out);
  std::swap(tensor->shape[0], tensor->shape[1]);
}

inline absl::StatusOr<std::string> BytesOf(const WeightSource& weights,
                                           const WeightInfo& info) {
  std::string bytes(info.bytes, '\0');
  INLAY_RETURN_IF_ERROR(
      weights.Read(info, 0,
                   absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                  bytes.size())));
  return bytes;
}

// Those of all experts, one after another; without parts where there is none.
// `published`: the name without an expert's number.
inline absl::StatusOr<GgufTensorData> StackExperts(
    const WeightSource& weights, const std::string& name,
    const std::string& published) {
  GgufTensorData stack{name};
  stack.parts = 0;
  const std::string experts = ".experts.";
  const size_t at = published.find(experts);
  if (at == published.npos) return stack;
  while (true) {
    std::string one = published;
    one.insert(at + experts.size(), std::to_string(stack.parts) + ".");
    const WeightInfo* info = weights.Find(one);
    if (info == nullptr) break;
    INLAY_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(weights, *info));
    stack.dtype = info->dtype;
    stack.shape = info->shape;
    stack.bytes += bytes;
    ++stack.parts;
  }
  stack.shape.insert(stack.shape.begin(), stack.parts);
  if (stack.parts > 0 && stack.shape.size() == 2) Widen(0.0f, &stack);
  return stack;
}

// All tensors of `weights`, as a file of the architecture `arch` has them.
inline absl::StatusOr<std::vector<GgufTensorData>> GgufTensorsFrom(
    const WeightSource& weights, const GgufArch& arch, int layers,
    int64_t heads, int64_t kv_heads) {
  std::vector<GgufTensorData> out;
  for (const GgufName& row : arch.names) {
    const size_t hash = row.gguf.find('#');
    for (int layer = 0; layer < (hash == row.gguf.npos ? 1 : layers); ++layer) {
      for (const char* suffix : {".weight", ".bias"}) {
        std::string name(row.gguf);
        if (hash != name.npos) name.replace(hash, 1, std::to_string(layer));
        name += suffix;
        const auto published = PublishedTensorName(arch, name);
        const WeightInfo* info = weights.Find(published->name);
        if (info == nullptr) {
          INLAY_ASSIGN_OR_RETURN(GgufTensorData stack,
                                 StackExperts(weights, name, published->name));
          if (stack.parts > 0) out.push_back(std::move(stack));
          continue;
        }
        GgufTensorData tensor{name, info->dtype, info->shape};
        INLAY_ASSIGN_OR_RETURN(tensor.bytes, BytesOf(weights, *info));
        const GgufLayout layout = published->layout;
        if (layout == GgufLayout::kQueryRows ||
            layout == GgufLayout::kKeyRows) {
          tensor.bytes =
              TakeTurns(tensor.bytes, tensor.shape[0],
                        layout == GgufLayout::kQueryRows ? heads : kv_heads);
        }
        if (layout == GgufLayout::kTransposed) Turn(&tensor);
        if (layout == GgufLayout::kVector) {
          tensor.shape.erase(tensor.shape.begin());
        }
        if (tensor.shape.size() == 1) {
          Widen(layout == GgufLayout::kPlusOne ? 1.0f : 0.0f, &tensor);
        }
        out.push_back(std::move(tensor));
      }
    }
  }
  return out;
}

inline absl::Status WriteGgufTensors(const std::vector<GgufTensorData>& tensors,
                                     GgufWriter* writer) {
  for (const GgufTensorData& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(
        writer->AddTensor(tensor.name, tensor.dtype, tensor.shape));
  }
  INLAY_RETURN_IF_ERROR(writer->StartData());
  for (const GgufTensorData& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(
        writer->Append({reinterpret_cast<const std::byte*>(tensor.bytes.data()),
                        tensor.bytes.size()}));
  }
  return writer->Commit();
}

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_GGUF_FROM_PUBLISHED_H_
