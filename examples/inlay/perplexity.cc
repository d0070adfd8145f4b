#include "examples/inlay/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/inlay/flights.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

constexpr size_t kDefaultWindow = 2048;
// Windows fill the KV cache; more at once would only wait.
constexpr size_t kConcurrency = 2;

// Whether an empty text becomes a BOS.
Outcome AddsBos(Host& host, bool* adds) {
  auto ids = host.model->Tokenize("", INLAY_TEXT_ADD_SPECIAL);
  if (!ids.ok()) return ids.error();
  *adds = host.info.bos_token >= 0 && !ids->empty() &&
          ids->front() == host.info.bos_token;
  return Outcome();
}

}  // namespace

Outcome MeasurePerplexity(Host& host, const CommonOptions& common,
                          const std::string& file, Progress& progress,
                          Perplexity* result) {
  std::string text;
  CLI_RETURN_IF_FAILED(ReadFile(file, &text));
  auto ids = host.model->Tokenize(text, 0);
  if (!ids.ok()) return ids.error();
  bool bos = false;
  CLI_RETURN_IF_FAILED(AddsBos(host, &bos));

  const size_t wanted =
      common.max_context > 0 ? common.max_context : kDefaultWindow;
  result->window =
      std::min({wanted, static_cast<size_t>(host.info.max_context),
                static_cast<size_t>(host.info.kv_capacity_tokens)});
  const size_t chunk = result->window - (bos ? 1 : 0);
  if (chunk < 2) {
    return Outcome::Failed("the window is " + std::to_string(result->window) +
                           " tokens, at least 3 needed: raise --max-context");
  }
  const size_t num_windows = (ids->size() + chunk - 1) / chunk;
  double sum = 0;
  const auto take = [&](size_t, const inlay_event_info& info) {
    for (size_t i = 0; i < info.num_scores; ++i) {
      // Position 0 has nothing before it.
      if (info.position + static_cast<int64_t>(i) == 0) continue;
      sum -= static_cast<double>(info.scores[i]);
      ++result->tokens;
    }
    return info.kind == INLAY_EVENT_FINISHED ? FinishOutcome(info) : Outcome();
  };
  Flights flights(host, kConcurrency);
  for (size_t next = 0; next < num_windows || flights.active() > 0;) {
    for (; next < num_windows && !flights.full(); ++next) {
      const auto begin = ids->begin() + static_cast<int64_t>(next * chunk);
      const size_t count = std::min(chunk, ids->size() - next * chunk);
      std::vector<int32_t> window;
      if (bos) window.push_back(host.info.bos_token);
      window.insert(window.end(), begin, begin + static_cast<int64_t>(count));
      inlay_request_options request;
      inlay_request_options_init(&request);
      request.tokens = window.data();
      request.num_tokens = window.size();
      request.max_tokens = 0;
      request.score_prompt = 1;
      CLI_RETURN_IF_FAILED(flights.Start(next, request));
      progress.Update("scoring window", next + 1, num_windows);
    }
    CLI_RETURN_IF_FAILED(flights.Step(take));
  }
  if (result->tokens == 0) {
    return Outcome::Failed(file + " has " + std::to_string(ids->size()) +
                           " tokens, at least 2 needed");
  }
  result->value = std::exp(sum / static_cast<double>(result->tokens));
  return Outcome();
}

}  // namespace inlay::cli
