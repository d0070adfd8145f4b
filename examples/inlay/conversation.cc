#include "examples/inlay/conversation.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

constexpr const char* kFormat = "inlay-chat-1";

Outcome CheckSaved(const Json& saved) {
  const auto has = [&](const char* name, bool (Json::*is)() const noexcept) {
    return saved.contains(name) && (saved[name].*is)();
  };
  if (!has("format", &Json::is_string) || saved["format"] != kFormat ||
      !has("system", &Json::is_string) || !has("messages", &Json::is_array) ||
      !has("settings", &Json::is_object) || !has("tokens", &Json::is_array)) {
    return Outcome::Failed(
        "not a saved conversation: an object with format \"" +
        std::string(kFormat) + "\", system, messages, settings, tokens");
  }
  for (const Json& message : saved["messages"]) {
    const bool valid = message.is_object() && message.contains("role") &&
                       message["role"].is_string() &&
                       message.contains("content") &&
                       message["content"].is_string();
    if (!valid) {
      return Outcome::Failed("message " + JsonText(message).substr(0, 80) +
                             ": allowed: {\"role\":\"..\",\"content\":\"..\"}");
    }
  }
  return Outcome();
}

// Computes the saved log, so that the next message finds it cached.
Outcome Restore(Host& host, const Json& tokens, Session* session) {
  std::vector<int32_t> ids;
  for (const Json& token : tokens) {
    if (!token.is_number_integer() || token < 0 || token > INT32_MAX) {
      return Outcome::Failed("tokens has " + JsonText(token).substr(0, 80) +
                             ", allowed: token ids");
    }
    ids.push_back(token.get<int32_t>());
  }
  if (ids.empty()) return Outcome();
  inlay_request_options options;
  inlay_request_options_init(&options);
  options.tokens = ids.data();
  options.num_tokens = ids.size();
  options.max_tokens = 0;
  Result<Request> request = session->Submit(options);
  if (!request.ok()) return request.error();
  return Drain(*host.engine, *request,
               [](const inlay_event_info&) { return Outcome(); });
}

}  // namespace

std::string Conversation::ChatJson() const {
  Json all = Json::array();
  if (!system.empty()) {
    all.push_back({{"role", "system"}, {"content", system}});
  }
  for (const Json& message : messages) all.push_back(message);
  return JsonText({{"messages", all}});
}

std::string Conversation::PlainText() const {
  std::string text = system.empty() ? "" : system + "\n\n";
  for (const Json& message : messages) {
    text += message["role"] == "user" ? "User: " : "Assistant: ";
    text += message["content"].get<std::string>() + "\n";
  }
  return text + "Assistant:";
}

Outcome Conversation::Fork(Conversation* fork) {
  Result<Session> session = this->session->Fork();
  if (!session.ok()) return session.error();
  fork->system = system;
  fork->messages = messages;
  fork->session = std::move(*session);
  return Outcome();
}

Outcome Conversation::Save(const std::string& file, const std::string& model,
                           const Sampling& sampling) {
  Result<std::vector<int32_t>> tokens = session->Tokens();
  if (!tokens.ok()) return tokens.error();
  const Json saved = {{"format", kFormat},
                      {"model", model},
                      {"system", system},
                      {"messages", messages},
                      {"settings", sampling.Save()},
                      {"tokens", *tokens}};
  errno = 0;
  std::ofstream out(file, std::ios::binary);
  out << JsonText(saved) << "\n";
  out.close();
  if (out.good()) return Outcome();
  return Outcome::Failed("cannot write " + file + ": " + std::strerror(errno));
}

Outcome Conversation::Load(const std::string& file, Host& host,
                           Sampling* sampling) {
  std::string text;
  Json saved;
  CLI_RETURN_IF_FAILED(ReadFile(file, &text));
  CLI_RETURN_IF_FAILED(ParseJson(text, &saved).In(file));
  CLI_RETURN_IF_FAILED(CheckSaved(saved).In(file));
  Result<Session> created = host.model->NewSession();
  if (!created.ok()) return created.error();
  CLI_RETURN_IF_FAILED(sampling->Load(saved["settings"]).In(file));
  const Outcome restored = Restore(host, saved["tokens"], &*created);
  if (!restored.ok())
    Complain("the token log is not used: " + restored.message());
  session = std::move(*created);
  system = saved["system"].get<std::string>();
  messages = saved["messages"];
  return Outcome();
}

}  // namespace inlay::cli
