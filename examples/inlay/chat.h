// The state of `inlay chat`: conversations, forks of each other, and the
// commands on them.
#ifndef INLAY_EXAMPLES_INLAY_CHAT_H_
#define INLAY_EXAMPLES_INLAY_CHAT_H_

#include <deque>
#include <string>

#include "examples/inlay/common.h"
#include "examples/inlay/conversation.h"

namespace inlay::cli {

class Chat {
 public:
  Chat(const CommonOptions& common, std::string path, Sampling sampling);

  Outcome Open(const std::string& system);
  // Reads and answers lines until /quit or the end of stdin.
  Outcome Loop();

 private:
  struct Command {
    const char* name;
    const char* argument;  // "": takes none
    const char* help;
    Outcome (Chat::*run)(const std::string& argument);
  };
  static const Command kCommands[];

  // What the person typed, and what the model made of it.
  Outcome RunLine(const std::string& line);
  Outcome RunCommand(const std::string& line);
  Outcome Answer(const std::string& message);
  Outcome Generate(std::string* answer);

  Outcome Save(const std::string& file);
  Outcome Load(const std::string& file);
  Outcome Fork(const std::string&);
  Outcome Switch(const std::string& number);
  Outcome Undo(const std::string&);
  Outcome System(const std::string& text);
  Outcome Help(const std::string&);
  Outcome Quit(const std::string&);

  // `text` on stderr, or `event` on stdout with --json.
  Outcome Say(const Json& event, const std::string& text);
  Conversation& conversation() { return conversations_[current_]; }

  const CommonOptions& common_;
  const std::string path_;
  Sampling sampling_;
  Host host_;
  std::deque<Conversation> conversations_;
  size_t current_ = 0;
  bool plain_ = false;  // no chat template
  bool quit_ = false;
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_CHAT_H_
