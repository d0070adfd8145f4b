// Chat templates: the sandboxed subset of Jinja that published models use, with
// the semantics transformers gives it (immutable sandbox, trim_blocks,
// lstrip_blocks, loop controls, the generation block, tojson without escaping).
// Knows nothing of tokenizers, or of what the variables mean.
// Source: the Jinja template designer documentation.
#ifndef INLAY_CORE_TEXT_TEMPLATE_CHAT_TEMPLATE_H_
#define INLAY_CORE_TEXT_TEMPLATE_CHAT_TEMPLATE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "core/json/json.h"
#include "core/text/template/limits.h"

namespace inlay {

namespace tmpl {
struct ParsedTemplate;
}

struct RenderOptions {
  // What strftime_now sees: the host's local time.
  absl::CivilSecond now;
};

// A parsed template. Copies share it; every method may be called from any
// thread, also at the same time. The deepest templates that the limits allow
// need less than 512 KiB of its stack.
class ChatTemplate {
 public:
  // `source` is UTF-8 and is not kept. Errors say the line. INVALID_ARGUMENT:
  // no valid template. UNIMPLEMENTED: a part of Jinja outside the subset
  // (include, import, extends, block, recursive loops). RESOURCE_EXHAUSTED:
  // beyond `limits`, which also bound every rendering.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source,
                                            const TemplateLimits& limits = {});

  // `variables` is an object: messages, tools, add_generation_prompt,
  // bos_token, eos_token and whatever else the template asks for. A key that is
  // missing is an undefined variable; null is none. INVALID_ARGUMENT: the
  // template failed (operation on undefined, wrong types, or it raised),
  // RESOURCE_EXHAUSTED: beyond the limits. Messages begin "line N: ", except
  // for what the template itself raised.
  absl::StatusOr<std::string> Render(const OrderedJson& variables,
                                     const RenderOptions& options) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const tmpl::ParsedTemplate> parsed)
      : parsed_(std::move(parsed)) {}

  std::shared_ptr<const tmpl::ParsedTemplate> parsed_;
};

// The exact text that a template gave to raise_exception, when that is what
// `status` reports; its message is then "template raised: " and the text.
std::optional<std::string> TemplateRaisedText(const absl::Status& status);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TEMPLATE_CHAT_TEMPLATE_H_
