#include "examples/inlay/divergence.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

// Of logits, that an engine hands out at once.
constexpr size_t kMostLogits = size_t{1} << 27;

using Logits = std::vector<std::vector<float>>;  // by position

Outcome LogitsOf(Host& host, const std::vector<int32_t>& ids, Logits* logits) {
  inlay_request_options options;
  inlay_request_options_init(&options);
  options.tokens = ids.data();
  options.num_tokens = ids.size();
  options.max_tokens = 0;
  // By name: of what texts begin with alike there may be KV already.
  std::vector<int64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  options.logits = INLAY_LOGITS_POSITIONS;
  options.logits_positions = positions.data();
  options.num_logits_positions = positions.size();
  logits->assign(ids.size(), {});
  Running running;
  CLI_RETURN_IF_FAILED(Start(host, options, &running));
  return Drain(*host.engine, *running.request,
               [&](const inlay_event_info& info) {
                 if (info.kind == INLAY_EVENT_LOGITS) {
                   (*logits)[static_cast<size_t>(info.position)].assign(
                       info.logits, info.logits + info.num_logits);
                 }
                 return info.kind == INLAY_EVENT_FINISHED ? FinishOutcome(info)
                                                          : Outcome();
               });
}

// ln of the sum of exp.
double LogSum(const std::vector<float>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

size_t First(const std::vector<float>& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) -
                             logits.begin());
}

struct Sums {
  double divergence = 0, loss = 0, reference_loss = 0;
  uint64_t same = 0, tokens = 0;

  void Add(const std::vector<float>& got, const std::vector<float>& want,
           size_t next) {
    const double of_got = LogSum(got), of_want = LogSum(want);
    for (size_t i = 0; i < want.size(); ++i) {
      const double log_p = want[i] - of_want;
      divergence += std::exp(log_p) * (log_p - (got[i] - of_got));
    }
    loss -= got[next] - of_got;
    reference_loss -= want[next] - of_want;
    same += First(got) == First(want) ? 1 : 0;
    ++tokens;
  }
};

}  // namespace

Outcome MeasureDivergence(Host& host, Host& reference, const std::string& file,
                          Progress& progress, Divergence* result) {
  if (host.info.vocab_size != reference.info.vocab_size) {
    return Outcome::Failed("the models have vocabularies of " +
                           std::to_string(host.info.vocab_size) + " and " +
                           std::to_string(reference.info.vocab_size) +
                           " tokens, one size needed");
  }
  std::vector<std::string> texts;
  CLI_RETURN_IF_FAILED(ReadTexts(file, &texts).In(file));
  const size_t most =
      std::min({static_cast<size_t>(host.info.max_context),
                static_cast<size_t>(reference.info.max_context),
                kMostLogits / std::max<size_t>(1, host.info.vocab_size)});
  Sums sums;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto ids = host.model->Tokenize(
        texts[i], INLAY_TEXT_ADD_SPECIAL | INLAY_TEXT_PARSE_SPECIAL);
    if (!ids.ok()) return ids.error();
    ids->resize(std::min(ids->size(), most));
    if (ids->size() < 2) continue;
    Logits got, want;
    CLI_RETURN_IF_FAILED(LogitsOf(host, *ids, &got));
    CLI_RETURN_IF_FAILED(LogitsOf(reference, *ids, &want));
    for (size_t t = 0; t + 1 < ids->size(); ++t) {
      sums.Add(got[t], want[t], static_cast<size_t>((*ids)[t + 1]));
    }
    progress.Update("comparing text", i + 1, texts.size());
  }
  if (sums.tokens == 0) {
    return Outcome::Failed(file + " has no text of 2 tokens or more");
  }
  const auto mean = [&](double sum) {
    return sum / static_cast<double>(sums.tokens);
  };
  result->value = mean(sums.divergence);
  result->same_first = mean(static_cast<double>(sums.same));
  result->perplexity = std::exp(mean(sums.loss));
  result->reference_perplexity = std::exp(mean(sums.reference_loss));
  result->tokens = sums.tokens;
  return Outcome();
}

}  // namespace inlay::cli
