// One conversation: what was said, and the session that holds its tokens and
// KV cache. The text is the truth; the session only saves computing it again.
#ifndef INLAY_EXAMPLES_INLAY_CONVERSATION_H_
#define INLAY_EXAMPLES_INLAY_CONVERSATION_H_

#include <optional>
#include <string>

#include "examples/inlay/common.h"

namespace inlay::cli {

struct Conversation {
  std::string system;             // "": none
  Json messages = Json::array();  // {"role", "content"}, user's and assistant's
  std::optional<Session> session;

  // For inlay_request_options.chat.
  std::string ChatJson() const;
  // For models that have no chat template.
  std::string PlainText() const;
  // The same log in a session of its own; KV is shared until the two differ.
  Outcome Fork(Conversation* fork);

  // A JSON object: "format", "model", "system", "messages", "settings", and
  // "tokens", the session's token log, from which Load() rebuilds the KV cache.
  Outcome Save(const std::string& file, const std::string& model,
               const Sampling& sampling);
  // Leaves all as it was on failure. A token log that this model cannot take
  // is left out: the messages are tokenized anew.
  Outcome Load(const std::string& file, Host& host, Sampling* sampling);
};

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_CONVERSATION_H_
