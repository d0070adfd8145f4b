// RenderChat: a conversation's JSON and a chat template become one text.
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/engine/chat_continuation.h"
#include "core/engine/loaded_model.h"
#include "core/json/json.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A string member of the object; nullopt when it is absent or null.
absl::StatusOr<std::optional<std::string>> FindString(const OrderedJson& object,
                                                      const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return std::optional<std::string>();
  if (!it->is_string()) {
    return absl::InvalidArgumentError(FormattedString(
        "\"%s\" is of type %s, allowed: a string", key, it->type_name()));
  }
  return std::optional<std::string>(it->get<std::string>());
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

// What the template finds of the conversation's members, which are moved.
OrderedJson TakeVariables(OrderedJson& object) {
  OrderedJson variables = OrderedJson::object();
  auto& members = variables.get_ref<OrderedJson::object_t&>();
  members.reserve(object.size());
  for (auto& [key, value] : object.get_ref<OrderedJson::object_t&>()) {
    const bool is_ours =
        key == "bos_token" || key == "eos_token" ||
        key == "continue_final_message" ||
        ((key == "template" || key == "now") && !value.is_null());
    if (!is_ours) members.emplace_back(key, std::move(value));
  }
  return variables;
}

// An empty token means that the template finds the variable undefined.
void SetToken(OrderedJson& variables, const char* key,
              const std::optional<std::string>& given,
              const std::string* fallback) {
  const std::string* token = given.has_value() ? &*given : fallback;
  if (token != nullptr && !token->empty()) variables[key] = *token;
}

// What the template finds of the tokens; one of another name than these two
// only where the conversation has no member of that name.
void SetTokens(const ChatFormat* chat, const std::optional<std::string>& bos,
               const std::optional<std::string>& eos, OrderedJson& variables) {
  SetToken(variables, "bos_token", bos,
           chat == nullptr ? nullptr : &chat->bos_token);
  SetToken(variables, "eos_token", eos,
           chat == nullptr ? nullptr : &chat->eos_token);
  if (chat == nullptr) return;
  for (const auto& [name, text] : chat->other_tokens) {
    if (!variables.contains(name)) variables[name] = text;
  }
}

// The model's template `name`, or null.
const LoadedTemplate* FindTemplate(const LoadedModel& model,
                                   std::string_view name) {
  for (const auto& [own, named] : model.named_templates) {
    if (own == name) return &named;
  }
  const bool is_default = name == "default" && model.chat_template.ok() &&
                          !model.named_templates.empty();
  return is_default ? &*model.chat_template : nullptr;
}

// The model's template for this conversation: one named "tool_use" serves
// conversations with tools.
absl::StatusOr<const LoadedTemplate*> ChooseTemplate(
    const LoadedModel& model, const OrderedJson& variables) {
  const LoadedTemplate* for_tools = FindTemplate(model, "tool_use");
  if (for_tools != nullptr && !variables.at("tools").is_null()) {
    return for_tools;
  }
  INLAY_RETURN_IF_ERROR(model.chat_template.status());
  return &*model.chat_template;
}

// Members that are null are left out, and what a message has of an assistant's
// reasoning is there by its old names, too.
OrderedJson PlainMessage(const OrderedJson& message) {
  constexpr const char* kReasoning[] = {"reasoning_content", "thinking",
                                        "reasoning"};
  const OrderedJson* reasoning = nullptr;
  for (const char* key : kReasoning) {
    const auto found = message.find(key);
    if (found == message.end() || found->is_null()) continue;
    reasoning = &*found;
    break;
  }
  OrderedJson plain = OrderedJson::object();
  if (reasoning != nullptr) plain["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) plain[key] = value;
  }
  if (reasoning != nullptr) plain["reasoning_content"] = *reasoning;
  return plain;
}

// What transformers makes of a conversation before the template sees it, and
// the variables that are always there.
void Prepare(OrderedJson& variables) {
  for (const char* key : {"tools", "documents"}) {
    if (!variables.contains(key)) variables[key] = nullptr;
  }
  if (!variables.contains("add_generation_prompt")) {
    variables["add_generation_prompt"] = false;
  }
  const auto messages = variables.find("messages");
  if (messages == variables.end() || !messages->is_array()) return;
  for (OrderedJson& message : *messages) {
    if (message.is_object()) message = PlainMessage(message);
  }
}

constexpr char kProbe[] = "a text to look for";

// Whether the template prints the content of a message.
bool Prints(const ChatTemplate& chosen, const OrderedJson& variables,
            OrderedJson content, const RenderOptions& options) {
  OrderedJson probe = variables;
  probe["messages"] = OrderedJson::array(
      {OrderedJson{{"role", "user"}, {"content", std::move(content)}}});
  const auto text = chosen.Render(probe, options);
  return text.ok() && text->find(kProbe) != std::string::npos;
}

OrderedJson Parts(OrderedJson text) {
  return OrderedJson::array(
      {OrderedJson{{"type", "text"}, {"text", std::move(text)}}});
}

// Strings as lists of one part.
void MakeParts(OrderedJson& variables) {
  const auto messages = variables.find("messages");
  if (messages == variables.end() || !messages->is_array()) return;
  for (OrderedJson& message : *messages) {
    if (!message.is_object()) continue;
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    *content = Parts(std::move(*content));
  }
}

}  // namespace

// Templates of multimodal models may know contents as lists of parts alone, and
// print nothing of a string.
LoadedTemplate AskTemplate(ChatTemplate parsed, const ChatFormat& chat) {
  OrderedJson variables = OrderedJson::object();
  SetTokens(&chat, std::nullopt, std::nullopt, variables);
  Prepare(variables);
  const bool parts_alone = !Prints(parsed, variables, kProbe, {}) &&
                           Prints(parsed, variables, Parts(kProbe), {});
  return {std::move(parsed), parts_alone};
}

absl::StatusOr<std::string> RenderChat(const LoadedModel* model,
                                       std::string_view json,
                                       bool prompt_for_answer) {
  INLAY_ASSIGN_OR_RETURN(OrderedJson chat, ParseOrderedJson(json, "chat JSON"));
  if (!chat.is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "chat JSON is of type %s, allowed: an object with \"messages\"",
        chat.type_name()));
  }
  INLAY_ASSIGN_OR_RETURN(auto source, FindString(chat, "template"));
  INLAY_ASSIGN_OR_RETURN(auto bos, FindString(chat, "bos_token"));
  INLAY_ASSIGN_OR_RETURN(auto eos, FindString(chat, "eos_token"));
  INLAY_ASSIGN_OR_RETURN(auto now_text, FindString(chat, "now"));
  RenderOptions options;
  INLAY_ASSIGN_OR_RETURN(options.now, ParseNow(now_text));
  const auto asked = chat.find("continue_final_message");
  INLAY_ASSIGN_OR_RETURN(
      ChatContinuation continuation,
      ChatContinuation::Create(asked == chat.end() ? OrderedJson() : *asked));
  OrderedJson variables = TakeVariables(chat);
  if (prompt_for_answer && !continuation.active() &&
      !variables.contains("add_generation_prompt")) {
    variables["add_generation_prompt"] = true;
  }
  SetTokens(model == nullptr ? nullptr : &model->chat, bos, eos, variables);
  Prepare(variables);
  const auto render = [&](const ChatTemplate& parsed,
                          bool parts_alone) -> absl::StatusOr<std::string> {
    if (continuation.active()) {
      INLAY_RETURN_IF_ERROR(continuation.Mark(variables));
    }
    if (parts_alone) MakeParts(variables);
    INLAY_ASSIGN_OR_RETURN(std::string text, parsed.Render(variables, options));
    if (continuation.active()) return continuation.Cut(std::move(text));
    return text;
  };
  const LoadedTemplate* chosen = nullptr;
  if (source.has_value()) {
    if (model != nullptr) chosen = FindTemplate(*model, *source);
    if (chosen == nullptr) {
      INLAY_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::Parse(*source));
      return render(parsed, false);
    }
  } else if (model == nullptr) {
    return absl::InvalidArgumentError(
        "without a model the chat JSON must hold \"template\"");
  } else {
    INLAY_ASSIGN_OR_RETURN(chosen, ChooseTemplate(*model, variables));
  }
  return render(chosen->parsed, chosen->parts_alone);
}

}  // namespace inlay
