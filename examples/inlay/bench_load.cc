// inlay bench under load: many requests, their latencies as a client sees them.
#include <cstdio>
#include <thread>

#include "examples/inlay/bench.h"
#include "examples/inlay/flights.h"
#include "examples/inlay/statistics.h"

namespace inlay::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Seen {
  double arrival = 0;  // seconds since the start; when it was due, with --rate
  double first = 0;
  size_t tokens = 0;
};

class Load {
 public:
  Load(Host& host, const BenchOptions& options)
      : options_(options),
        random_(host.info.vocab_size),
        prefix_(random_.Take(options.shared_prefix)),
        seen_(static_cast<size_t>(options.requests.value_or(64))),
        flights_(host,
                 std::min(static_cast<size_t>(options.concurrency.value_or(16)),
                          seen_.size())) {}

  Outcome Run(Progress& progress) {
    if (options_.rate.has_value()) DrawArrivals();
    begin_ = Clock::now();
    size_t next = 0;
    while (next < seen_.size() || flights_.active() > 0) {
      while (next < seen_.size() && !flights_.full() && Due(next)) {
        CLI_RETURN_IF_FAILED(Start(next++));
      }
      if (flights_.active() == 0) {
        std::this_thread::sleep_for(
            std::chrono::duration<double>(seen_[next].arrival - Now()));
        continue;
      }
      CLI_RETURN_IF_FAILED(
          flights_.Step([&](size_t index, const inlay_event_info& info) {
            return Take(index, info);
          }));
      progress.Update("requests", done_, seen_.size());
    }
    seconds_ = Now();
    return Outcome();
  }

  Json Result() const {
    const double requests = static_cast<double>(done_);
    Json rate = nullptr;
    if (options_.rate.has_value()) rate = *options_.rate;
    return {
        {"model", options_.path},
        {"requests", seen_.size()},
        {"concurrency", options_.concurrency.value_or(16)},
        {"shared_prefix", options_.shared_prefix},
        {"rate", rate},
        {"in", options_.in},
        {"out", options_.out},
        {"failed", failed_},
        {"seconds", seconds_},
        {"requests_per_s", requests / seconds_},
        {"prompt_tok_s", static_cast<double>(prompt_tokens_) / seconds_},
        {"generated_tok_s", static_cast<double>(generated_tokens_) / seconds_},
        {"prompt_tokens", prompt_tokens_},
        {"cached_tokens", cached_tokens_},
        {"generated_tokens", generated_tokens_},
        {"ttft_ms", Distribution(ttft_)},
        {"tpot_ms", Distribution(tpot_)}};
  }

 private:
  double Now() const { return SecondsSince(begin_); }

  void DrawArrivals() {
    std::exponential_distribution<double> gap(*options_.rate);
    double at = 0;
    for (Seen& seen : seen_) seen.arrival = at += gap(random_.engine());
  }

  bool Due(size_t index) const {
    return !options_.rate.has_value() || seen_[index].arrival <= Now();
  }

  Outcome Start(size_t index) {
    std::vector<int32_t> tokens = prefix_;
    const auto rest = random_.Take(options_.in - prefix_.size());
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    inlay_request_options request;
    inlay_request_options_init(&request);
    request.tokens = tokens.data();
    request.num_tokens = tokens.size();
    request.max_tokens = static_cast<int32_t>(options_.out);
    request.ignore_eos = 1;
    if (!options_.rate.has_value()) seen_[index].arrival = Now();
    return flights_.Start(index, request);
  }

  Outcome Take(size_t index, const inlay_event_info& info) {
    Seen& seen = seen_[index];
    if (info.kind == INLAY_EVENT_TOKENS && info.num_tokens > 0) {
      if (seen.tokens == 0) seen.first = Now();
      seen.tokens += info.num_tokens;
    }
    if (info.kind != INLAY_EVENT_FINISHED) return Outcome();
    ++done_;
    prompt_tokens_ += info.prompt_tokens;
    cached_tokens_ += info.cached_tokens;
    generated_tokens_ += info.generated_tokens;
    if (const Outcome finish = FinishOutcome(info); !finish.ok()) {
      if (++failed_ == 1) Complain("bench: " + finish.message());
      return Outcome();
    }
    if (seen.tokens > 0) ttft_.push_back(1e3 * (seen.first - seen.arrival));
    if (seen.tokens > 1) {
      tpot_.push_back(1e3 * (Now() - seen.first) /
                      static_cast<double>(seen.tokens - 1));
    }
    return Outcome();
  }

  static Json Distribution(const std::vector<double>& samples) {
    return {{"mean", Mean(samples)},
            {"p50", Percentile(samples, 50)},
            {"p95", Percentile(samples, 95)},
            {"p99", Percentile(samples, 99)}};
  }

  const BenchOptions& options_;
  RandomTokens random_;
  const std::vector<int32_t> prefix_;
  std::vector<Seen> seen_;
  Flights flights_;
  Clock::time_point begin_;
  double seconds_ = 0;
  size_t done_ = 0;
  size_t failed_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  uint64_t generated_tokens_ = 0;
  std::vector<double> ttft_, tpot_;  // ms
};

std::string Latency(const char* name, const Json& ms) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "%s  mean %.2f ms, p50 %.2f, p95 %.2f, p99 %.2f\n", name,
                ms["mean"].get<double>(), ms["p50"].get<double>(),
                ms["p95"].get<double>(), ms["p99"].get<double>());
  return text;
}

}  // namespace

Outcome BenchLoad(Host& host, const BenchOptions& options,
                  const CommonOptions& common) {
  Progress progress(!common.quiet);
  Load load(host, options);
  CLI_RETURN_IF_FAILED(load.Run(progress));
  progress.Clear();
  const Json result = load.Result();
  if (common.json) return WriteJsonLine(result);
  char text[320];
  std::snprintf(
      text, sizeof(text),
      "%zu requests of %zu + %zu tokens in %.2f s: %.2f requests/s\n"
      "prompt %.1f tok/s (%.0f %% from the cache), generated %.1f tok/s\n",
      result["requests"].get<size_t>(), options.in, options.out,
      result["seconds"].get<double>(), result["requests_per_s"].get<double>(),
      result["prompt_tok_s"].get<double>(),
      100 * result["cached_tokens"].get<double>() /
          std::max(1.0, result["prompt_tokens"].get<double>()),
      result["generated_tok_s"].get<double>());
  return WriteOut(text + Latency("TTFT", result["ttft_ms"]) +
                  Latency("TPOT", result["tpot_ms"]));
}

}  // namespace inlay::cli
