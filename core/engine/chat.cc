// RenderChat: a conversation's JSON and a chat template become one text.
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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

// Templates of multimodal models may know contents as lists of parts alone, and
// print nothing of a string: strings become lists of one part there.
void MatchContents(const ChatTemplate& chosen, const RenderOptions& options,
                   OrderedJson& variables) {
  const auto messages = variables.find("messages");
  if (messages == variables.end() || !messages->is_array()) return;
  std::vector<OrderedJson*> strings;
  for (OrderedJson& message : *messages) {
    if (!message.is_object()) continue;
    const auto content = message.find("content");
    if (content != message.end() && content->is_string()) {
      strings.push_back(&*content);
    }
  }
  if (strings.empty()) return;
  OrderedJson others = OrderedJson::object();
  for (const auto& [key, value] : variables.items()) {
    if (key != "messages" && key != "tools" && key != "documents") {
      others[key] = value;
    }
  }
  if (Prints(chosen, others, kProbe, options) ||
      !Prints(chosen, others, Parts(kProbe), options)) {
    return;
  }
  for (OrderedJson* text : strings) *text = Parts(std::move(*text));
}

}  // namespace

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
  OrderedJson variables = TakeVariables(chat);
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
  MatchContents(*chosen, options, variables);
  return chosen->Render(variables, options);
}

}  // namespace inlay
