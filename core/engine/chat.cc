// RenderChat: a conversation's JSON and a chat template become one text.
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/engine/loaded_model.h"
#include "core/json/json.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Takes a string member out of the object; nullopt when it is absent or null.
absl::StatusOr<std::optional<std::string>> TakeString(OrderedJson& object,
                                                      const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return std::optional<std::string>();
  if (!it->is_string()) {
    return absl::InvalidArgumentError(FormattedString(
        "\"%s\" is of type %s, allowed: a string", key, it->type_name()));
  }
  std::optional<std::string> value(it->get<std::string>());
  object.erase(it);
  return value;
}

absl::StatusOr<absl::CivilSecond> ParseNow(
    const std::optional<std::string>& now) {
  if (!now.has_value()) {
    return absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
  }
  absl::CivilSecond second;
  if (!absl::ParseCivilTime(*now, &second)) {
    return absl::InvalidArgumentError(FormattedString(
        "\"now\" is \"%s\", allowed: YYYY-MM-DDTHH:MM:SS", *now));
  }
  return second;
}

// An empty token means that the template finds the variable undefined.
void SetToken(OrderedJson& variables, const char* key,
              const std::optional<std::string>& given,
              const std::string* fallback) {
  variables.erase(key);
  const std::string* token = given.has_value() ? &*given : fallback;
  if (token != nullptr && !token->empty()) variables[key] = *token;
}

// The model's template for this conversation: one named "tool_use" serves
// conversations with tools, as transformers chooses.
absl::StatusOr<const ChatTemplate*> ChooseTemplate(
    const LoadedModel& model, const OrderedJson& variables) {
  const auto tools = variables.find("tools");
  if (tools != variables.end() && !tools->empty()) {
    for (const auto& [name, named] : model.named_templates) {
      if (name == "tool_use") return &named;
    }
  }
  INLAY_RETURN_IF_ERROR(model.chat_template.status());
  return &*model.chat_template;
}

}  // namespace

absl::StatusOr<std::string> RenderChat(const LoadedModel* model,
                                       std::string_view json,
                                       bool prompt_for_answer) {
  INLAY_ASSIGN_OR_RETURN(OrderedJson variables,
                         ParseOrderedJson(json, "chat JSON"));
  if (!variables.is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "chat JSON is of type %s, allowed: an object with \"messages\"",
        variables.type_name()));
  }
  INLAY_ASSIGN_OR_RETURN(auto source, TakeString(variables, "template"));
  INLAY_ASSIGN_OR_RETURN(auto bos, TakeString(variables, "bos_token"));
  INLAY_ASSIGN_OR_RETURN(auto eos, TakeString(variables, "eos_token"));
  INLAY_ASSIGN_OR_RETURN(auto now_text, TakeString(variables, "now"));
  RenderOptions options;
  INLAY_ASSIGN_OR_RETURN(options.now, ParseNow(now_text));
  if (prompt_for_answer && !variables.contains("add_generation_prompt")) {
    variables["add_generation_prompt"] = true;
  }
  SetToken(variables, "bos_token", bos,
           model == nullptr ? nullptr : &model->chat.bos_token);
  SetToken(variables, "eos_token", eos,
           model == nullptr ? nullptr : &model->chat.eos_token);
  if (source.has_value()) {
    INLAY_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::Parse(*source));
    return parsed.Render(variables, options);
  }
  if (model == nullptr) {
    return absl::InvalidArgumentError(
        "without a model the chat JSON must hold \"template\"");
  }
  INLAY_ASSIGN_OR_RETURN(const ChatTemplate* chosen,
                         ChooseTemplate(*model, variables));
  return chosen->Render(variables, options);
}

}  // namespace inlay
