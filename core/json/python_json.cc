#include "core/json/python_json.h"

#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr JsonLimits kConfigLimits = {.max_bytes = kMaxConfigBytes,
                                      .max_depth = 64};
// Real files have one or two; without a cap a text of such tokens would grow
// sixfold.
constexpr int kMaxTokens = 4096;
constexpr std::string_view kTokens[] = {"Infinity", "-Infinity", "NaN"};

std::string_view TokenAt(std::string_view text) {
  for (const std::string_view token : kTokens) {
    if (text.starts_with(token)) return token;
  }
  return {};
}

// A token in a place where no value may stand becomes an object there, which
// the parser refuses just the same.
absl::StatusOr<std::string> RewriteTokens(std::string_view text,
                                          std::string_view what) {
  std::string rewritten;
  rewritten.reserve(text.size());
  bool in_string = false;
  int num_tokens = 0;
  for (size_t i = 0; i < text.size();) {
    const std::string_view token =
        in_string ? std::string_view() : TokenAt(text.substr(i));
    if (!token.empty()) {
      if (++num_tokens > kMaxTokens) {
        return absl::ResourceExhaustedError(
            FormattedString("%s: more than the %d infinities and NaNs allowed",
                            what, kMaxTokens));
      }
      rewritten.append(R"({"__float__":")").append(token).append("\"}");
      i += token.size();
      continue;
    }
    const char c = text[i++];
    rewritten.push_back(c);
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string && c == '\\' && i < text.size()) {
      rewritten.push_back(text[i++]);
    }
  }
  return rewritten;
}

}  // namespace

absl::StatusOr<Json> ParsePythonJson(std::string_view text,
                                     std::string_view what) {
  if (text.size() > kMaxConfigBytes) {
    return absl::ResourceExhaustedError(
        FormattedString("%s has %d bytes, at most %d allowed", what,
                        text.size(), kMaxConfigBytes));
  }
  // nlohmann's parser takes a NUL for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: not valid JSON: a NUL at byte %d", what, text.find('\0')));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string rewritten,
                         RewriteTokens(text, what));
  // The rewritten text may exceed the cap that the original passed.
  JsonLimits limits = kConfigLimits;
  limits.max_bytes += size_t{kMaxTokens} * 32;
  INLAY_ASSIGN_OR_RETURN(Json document, ParseJson(rewritten, what, limits));
  if (!document.is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s is of type %s, allowed: an object", what, document.type_name()));
  }
  return document;
}

absl::StatusOr<Json> ReadOptionalPythonJson(const std::string& path) {
  const auto text = ReadWholeFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return Json();
  if (!text.ok()) return text.status();
  return ParsePythonJson(*text, path);
}

}  // namespace inlay
