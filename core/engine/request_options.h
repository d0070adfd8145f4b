// RequestOptions: what a submitter asks for. Plain data.
#ifndef INLAY_CORE_ENGINE_REQUEST_OPTIONS_H_
#define INLAY_CORE_ENGINE_REQUEST_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/formats/classification_config.h"
#include "core/formats/embedding_config.h"
#include "core/sampling/sampling_params.h"

namespace inlay {

enum class InputKind : uint8_t { kText, kTokens, kChat };
enum class InputMode : uint8_t { kAppend, kReplace };
enum class LogitsMode : uint8_t {
  kNone,
  kLast,       // those the first token is chosen from
  kAll,        // every prompt token computed
  kPositions,  // the listed session positions
  kGenerated,  // every choice
};

struct RequestOptions {
  InputKind input = InputKind::kTokens;
  InputMode mode = InputMode::kAppend;
  std::string text;  // kText: the text; kChat: the JSON of the conversation
  std::vector<int32_t> tokens;
  // kText: a second text, and whether there is one. The two are the session's
  // whole new log, joined as the tokenizer joins pairs.
  std::string text_pair;
  bool is_pair = false;
  // Of each of `tokens`; empty: 0 of all. What was in the log before has 0.
  std::vector<int32_t> token_types;
  bool prompt_for_answer = true;  // kChat: the template's default for it
  bool add_special = true;
  bool parse_special = true;

  int64_t max_tokens = -1;  // -1: until a stop or the end of the context
  bool ignore_eos = false;
  std::vector<int32_t> stop_tokens;  // once submitted, in ascending order
  std::vector<std::string> stop_strings;
  SamplingParams sampling;

  LogitsMode logits = LogitsMode::kNone;
  std::vector<int64_t> logits_positions;
  bool score_prompt = false;

  // One vector instead of a generation: of all tokens that the session has
  // then. kNone: none. With `embedding_defaults`, as the model's files say
  // (where they do not: the mean of an encoder, the last token's of a decoder).
  Pooling pooling = Pooling::kNone;
  bool projects = false;  // what is pooled goes through Model::Pooled
  bool normalise = false;
  bool embedding_defaults = false;

  // The scores of the model's labels instead of a generation, of the session's
  // whole log. Not with an embedding. With `classification_defaults`, as the
  // model's files say.
  bool classifies = false;
  LabelActivation activation = LabelActivation::kIdentity;
  bool classification_defaults = false;

  // The session's last generation goes on: its draws and the tokens that
  // penalties count continue. Needs the seed of that one.
  bool resume = false;

  int32_t priority = 0;
  uint64_t deadline_us = 0;  // from submit; 0: none
  uint64_t share_key = 0;    // 0: the session's own
  uint64_t tag = 0;
  void* user_data = nullptr;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_REQUEST_OPTIONS_H_
