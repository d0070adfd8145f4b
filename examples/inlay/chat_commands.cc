// The lines of `inlay chat` that begin with /.
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "examples/inlay/chat.h"

namespace inlay::cli {

const Chat::Command Chat::kCommands[] = {
    {"/save", "FILE", "write messages, settings and the token log as JSON",
     &Chat::Save},
    {"/load", "FILE", "go on with a saved conversation", &Chat::Load},
    {"/fork", "", "go on in a copy of this conversation", &Chat::Fork},
    {"/switch", "N", "go on with conversation N", &Chat::Switch},
    {"/undo", "", "take back the last question and its answer", &Chat::Undo},
    {"/system", "TEXT", "set the system message; - for none", &Chat::System},
    {"/help", "", "this list", &Chat::Help},
    {"/quit", "", "leave (Ctrl-D too)", &Chat::Quit},
};

Outcome Chat::Say(const Json& event, const std::string& text) {
  if (common_.json) return WriteJsonLine(event);
  std::fprintf(stderr, "%s\n", text.c_str());
  return Outcome();
}

Outcome Chat::RunCommand(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  std::string argument =
      space == std::string::npos ? "" : line.substr(space + 1);
  while (argument.ends_with(' ')) argument.pop_back();
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    const bool wants = *command.argument != '\0';
    if (wants == !argument.empty()) return (this->*command.run)(argument);
    return Outcome::Failed(name + (wants ? " needs " : " takes nothing") +
                           command.argument);
  }
  return Outcome::Failed("there is no command " + name + ": see /help");
}

Outcome Chat::Save(const std::string& file) {
  CLI_RETURN_IF_FAILED(conversation().Save(file, path_, sampling_));
  return Say({{"event", "saved"}, {"file", file}},
             "saved to " + file + ", the token log included");
}

Outcome Chat::Load(const std::string& file) {
  CLI_RETURN_IF_FAILED(conversation().Load(file, host_, &sampling_));
  const size_t count = conversation().messages.size();
  return Say({{"event", "loaded"}, {"file", file}, {"messages", count}},
             "loaded " + std::to_string(count) + " messages");
}

Outcome Chat::Fork(const std::string&) {
  Conversation fork;
  CLI_RETURN_IF_FAILED(conversation().Fork(&fork));
  conversations_.push_back(std::move(fork));
  current_ = conversations_.size() - 1;
  return Say({{"event", "forked"}, {"conversation", current_ + 1}},
             "now in conversation " + std::to_string(current_ + 1) +
                 " (/switch N goes back)");
}

Outcome Chat::Switch(const std::string& number) {
  const std::optional<int64_t> wanted = ParseInteger(number);
  if (!wanted.has_value() || *wanted < 1 ||
      *wanted > static_cast<int64_t>(conversations_.size())) {
    return Outcome::Failed("/switch: got " + number + ", allowed: 1 to " +
                           std::to_string(conversations_.size()));
  }
  current_ = static_cast<size_t>(*wanted) - 1;
  return Say({{"event", "switched"}, {"conversation", current_ + 1}},
             "now in conversation " + std::to_string(current_ + 1));
}

// The session keeps its log: the next question finds how much of it holds.
Outcome Chat::Undo(const std::string&) {
  Json& messages = conversation().messages;
  size_t keep = messages.size();
  while (keep > 0 && messages[keep - 1]["role"] != "user") --keep;
  if (keep == 0) return Outcome::Failed("/undo: there is no question yet");
  while (messages.size() >= keep) messages.erase(messages.size() - 1);
  return Say({{"event", "undone"}, {"messages", messages.size()}},
             std::to_string(messages.size()) + " messages left");
}

Outcome Chat::System(const std::string& text) {
  conversation().system = text == "-" ? "" : text;
  return Say({{"event", "system"}, {"text", conversation().system}},
             "system message set from the next answer on");
}

Outcome Chat::Help(const std::string&) {
  std::string text;
  Json commands = Json::array();
  for (const Command& command : kCommands) {
    std::string form = std::string(command.name) + " " + command.argument;
    commands.push_back(form);
    form.resize(14, ' ');
    text += (text.empty() ? "" : "\n") + form + command.help;
  }
  return Say({{"event", "help"}, {"commands", commands}}, text);
}

Outcome Chat::Quit(const std::string&) {
  quit_ = true;
  return Outcome();
}

}  // namespace inlay::cli
