// Chats whose last message is to be continued: the text ends where it does.
// Source: continue_final_message of transformers' apply_chat_template.
#ifndef INLAY_CORE_ENGINE_CHAT_CONTINUATION_H_
#define INLAY_CORE_ENGINE_CHAT_CONTINUATION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// Made before a template sees the messages, and asked for the prompt after.
class ChatContinuation {
 public:
  // `asked` is the conversation's "continue_final_message": null and false ask
  // for nothing, true for the last message's "content", a string for its member
  // of that name. INVALID_ARGUMENT: anything else.
  static absl::StatusOr<ChatContinuation> Create(const OrderedJson& asked);

  bool active() const { return !member_.empty(); }
  // Marks the end of the last message; of a list of parts, that of its last
  // text. INVALID_ARGUMENT: there is none, or "add_generation_prompt" is set.
  absl::Status Mark(OrderedJson& variables);
  // What of the text comes before the mark. INVALID_ARGUMENT: the template did
  // not print the message, or not as it is.
  absl::StatusOr<std::string> Cut(std::string text) const;

 private:
  std::string member_;
  std::string continued_;  // its text
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_CHAT_CONTINUATION_H_
