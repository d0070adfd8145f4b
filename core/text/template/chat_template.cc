#include "core/text/template/chat_template.h"

#include "absl/strings/cord.h"
#include "core/text/template/evaluator.h"
#include "core/text/template/json_text.h"
#include "core/text/template/lexer.h"
#include "core/text/template/parser.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace tmpl {

struct ParsedTemplate {
  TemplateLimits limits;
  Body body;
};

}  // namespace tmpl

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source,
                                                 const TemplateLimits& limits) {
  if (limits.max_depth < 1 || limits.max_depth > kMaxTemplateDepth) {
    return absl::InvalidArgumentError(
        FormattedString("TemplateLimits::max_depth is %d, must be 1 to %d",
                        limits.max_depth, kMaxTemplateDepth));
  }
  auto parsed = std::make_shared<tmpl::ParsedTemplate>();
  parsed->limits = limits;
  INLAY_ASSIGN_OR_RETURN(std::vector<tmpl::Token> tokens,
                         tmpl::Tokenize(source, limits));
  INLAY_ASSIGN_OR_RETURN(parsed->body,
                         tmpl::Parser(std::move(tokens), limits).Parse());
  return ChatTemplate(std::move(parsed));
}

absl::StatusOr<std::string> ChatTemplate::Render(
    const OrderedJson& variables, const RenderOptions& options) const {
  if (!variables.is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("a template's variables must be an object, got %s",
                        variables.type_name()));
  }
  tmpl::Env env(parsed_->limits, options.now);
  INLAY_ASSIGN_OR_RETURN(tmpl::Value values, tmpl::FromJson(env, variables));
  tmpl::Evaluator evaluator(env, std::move(values));
  absl::StatusOr<std::string> text = evaluator.Run(parsed_->body);
  if (text.ok() || text.status().GetPayload(tmpl::kRaisedPayload)) return text;
  return absl::Status(text.status().code(),
                      FormattedString("line %d: %s", evaluator.line(),
                                      text.status().message()));
}

std::optional<std::string> TemplateRaisedText(const absl::Status& status) {
  const absl::optional<absl::Cord> text =
      status.GetPayload(tmpl::kRaisedPayload);
  if (!text.has_value()) return std::nullopt;
  return std::string(*text);
}

}  // namespace inlay
