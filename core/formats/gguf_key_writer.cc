#include "core/formats/gguf_key_writer.h"

#include <algorithm>

#include "core/formats/gguf_sizes.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<int64_t> NeededGgufSize(const Json& config, const char* key) {
  if (JsonFind(config, key) == nullptr) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is missing: a GGUF file needs it", key));
  }
  return JsonInt(config, key, 1, 1, kMaxGgufSize);
}

std::string GgufKeyWriter::Name(std::string_view key) const {
  return FormattedString("%s.%s", arch_.name, key);
}

bool GgufKeyWriter::IsNull(const char* key) const {
  const auto found = config_.find(key);
  return found != config_.end() && found->is_null();
}

const char* GgufKeyWriter::AnyOf(
    std::initializer_list<const char*> keys) const {
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const char* key) { return Has(key); });
  return found == keys.end() ? *keys.begin() : *found;
}

const char* GgufKeyWriter::Named(const char* key, const char* kimis) const {
  const bool is_own = arch_.name == "kimi-linear" && config_.contains(kimis);
  return is_own ? kimis : key;
}

absl::Status GgufKeyWriter::SetU32(std::string_view key, int64_t value) {
  return writer_.SetU32(Name(key), static_cast<uint32_t>(value));
}

absl::Status GgufKeyWriter::SetF32(std::string_view key, double value) {
  return writer_.SetF32(Name(key), static_cast<float>(value));
}

absl::Status GgufKeyWriter::SetBool(std::string_view key, bool value) {
  return writer_.SetBool(Name(key), value);
}

absl::Status GgufKeyWriter::SetU32s(std::string_view key,
                                    absl::Span<const uint32_t> values) {
  return writer_.Set(Name(key),
                     {GgufType::kU32,
                      true,
                      values.size(),
                      {reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(uint32_t)}});
}

absl::Status GgufKeyWriter::SetBools(std::string_view key,
                                     const std::vector<bool>& values) {
  std::vector<std::byte> bytes;
  for (const bool value : values) bytes.push_back(std::byte{value});
  return writer_.Set(Name(key), {GgufType::kBool, true, bytes.size(), bytes});
}

absl::StatusOr<int64_t> GgufKeyWriter::Size(const char* from,
                                            int64_t fallback) const {
  if (fallback == 0) return NeededGgufSize(config_, from);
  return JsonInt(config_, from, fallback, 1, kMaxGgufSize);
}

absl::StatusOr<int64_t> GgufKeyWriter::CopySize(const char* from,
                                                std::string_view to,
                                                int64_t fallback) {
  INLAY_ASSIGN_OR_RETURN(const int64_t size, Size(from, fallback));
  INLAY_RETURN_IF_ERROR(SetU32(to, size));
  return size;
}

absl::Status GgufKeyWriter::CopyCount(const char* from, std::string_view to) {
  if (!Has(from)) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         JsonInt(config_, from, 0, 0, kMaxGgufSize));
  return SetU32(to, count);
}

absl::Status GgufKeyWriter::CopyNumber(const char* from, std::string_view to,
                                       double fallback) {
  INLAY_ASSIGN_OR_RETURN(const double value,
                         JsonNumber(config_, from, fallback, 0.0, 1e15));
  return SetF32(to, value);
}

absl::Status GgufKeyWriter::CheckActivation(
    const char* key, std::initializer_list<const char*> allowed) const {
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(config_, key, *allowed.begin()));
  if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is \"%s\", allowed in a GGUF file of \"%s\": \"%s\"",
      key, name, arch_.name, *allowed.begin()));
}

absl::Status GgufKeyWriter::Expect(const char* key, const Json& said) const {
  const Json* value = JsonFind(config_, key);
  if (value == nullptr || *value == said) return absl::OkStatus();
  return NotSaid(key, *value);
}

absl::Status GgufKeyWriter::NotSaid(const char* key, const Json& value) const {
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is %s, which a GGUF file of \"%s\" cannot say", key,
      ShownJson(value), arch_.name));
}

}  // namespace inlay
