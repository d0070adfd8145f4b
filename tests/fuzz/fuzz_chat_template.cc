// libFuzzer harness: the input up to the first NUL byte is a template, the rest
// (when it is JSON) its variables. Small budgets keep each run short; nothing
// but crashes, leaks, hangs and sanitizer reports can fail.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json/json.h"
#include "core/text/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = input.find('\0');
  inlay::TemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_memory_bytes = size_t{4} << 20;
  limits.max_output_bytes = size_t{1} << 20;
  const auto parsed = inlay::ChatTemplate::Parse(input.substr(0, nul), limits);
  if (!parsed.ok()) return 0;
  inlay::OrderedJson variables = inlay::OrderedJson::object();
  if (nul != std::string_view::npos) {
    auto json = inlay::ParseOrderedJson(input.substr(nul + 1), "variables");
    if (json.ok()) variables = *std::move(json);
  }
  const auto text = parsed->Render(variables, {});
  static_cast<void>(text);
  return 0;
}
