// How far a model's next-token distributions are from another's: the mean
// Kullback-Leibler divergence KL(reference || model) in nats, and how often the
// likeliest token is the same, over all places of some texts that have a token
// after them.
#ifndef INLAY_EXAMPLES_INLAY_DIVERGENCE_H_
#define INLAY_EXAMPLES_INLAY_DIVERGENCE_H_

#include <cstdint>
#include <string>

#include "examples/inlay/common.h"

namespace inlay::cli {

struct Divergence {
  double value = 0;
  double same_first = 0;  // a share
  double perplexity = 0;  // of the texts, each from its start
  double reference_perplexity = 0;
  uint64_t tokens = 0;
};

// `file`: as ReadTexts has it; special tokens in texts are read, and each is
// cut at the shorter context and at 2^27 logits. Vocabularies must be of one
// size.
Outcome MeasureDivergence(Host& host, Host& reference, const std::string& file,
                          Progress& progress, Divergence* result);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_DIVERGENCE_H_
