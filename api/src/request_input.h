// The input of a request or a prefix as the C structs have it: text, tokens or
// chat.
#ifndef INLAY_API_SRC_REQUEST_INPUT_H_
#define INLAY_API_SRC_REQUEST_INPUT_H_

#include "api/src/shim.h"

namespace inlay::api {

// `Options`: a struct with the fields text, tokens and chat and their counts,
// and text_flags.
template <typename Options>
absl::Status SetInput(const Options& options, RequestOptions* result) {
  const int given = (options.text != nullptr) + (options.tokens != nullptr) +
                    (options.chat != nullptr);
  if (given > 1) {
    return absl::InvalidArgumentError(
        "more than one of text, tokens and chat is set, allowed: one of them");
  }
  INLAY_RETURN_IF_ERROR(CheckInput(options.text, options.text_bytes, "text"));
  INLAY_RETURN_IF_ERROR(
      CheckInput(options.tokens, options.num_tokens, "tokens"));
  INLAY_RETURN_IF_ERROR(CheckInput(options.chat, options.chat_bytes, "chat"));
  INLAY_RETURN_IF_ERROR(CheckTextFlags(options.text_flags, "text_flags"));
  if (options.text != nullptr) {
    result->input = InputKind::kText;
    result->text.assign(options.text, options.text_bytes);
  } else if (options.chat != nullptr) {
    result->input = InputKind::kChat;
    result->text.assign(options.chat, options.chat_bytes);
  } else {
    // No input at all goes on from the log: an empty list of tokens.
    result->input = InputKind::kTokens;
    result->tokens.assign(options.tokens, options.tokens + options.num_tokens);
  }
  result->add_special = (options.text_flags & INLAY_TEXT_ADD_SPECIAL) != 0;
  result->parse_special = (options.text_flags & INLAY_TEXT_PARSE_SPECIAL) != 0;
  return absl::OkStatus();
}

}  // namespace inlay::api

#endif  // INLAY_API_SRC_REQUEST_INPUT_H_
