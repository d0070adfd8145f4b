// Perplexity of a text: exp of the mean negative log-probability of its tokens.
//
// The text is tokenized once, special tokens in it read as plain text, and cut
// into windows that do not overlap. A window is as long as the model's context
// (or --max-context) and is scored on its own, so tokens at its beginning have
// little context: figures compare only at equal windows. Where the tokenizer
// puts a BOS before a text, each window begins with one, which is not scored;
// where not, each window's first token is not scored.
#ifndef INLAY_EXAMPLES_INLAY_PERPLEXITY_H_
#define INLAY_EXAMPLES_INLAY_PERPLEXITY_H_

#include <cstdint>
#include <string>

#include "examples/inlay/common.h"

namespace inlay::cli {

struct Perplexity {
  double value = 0;
  uint64_t tokens = 0;  // scored
  size_t window = 0;    // tokens, BOS included
};

// Windows are at most 2048 tokens unless --max-context asks for more.
Outcome MeasurePerplexity(Host& host, const CommonOptions& common,
                          const std::string& file, Progress& progress,
                          Perplexity* result);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_PERPLEXITY_H_
