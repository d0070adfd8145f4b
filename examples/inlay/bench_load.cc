// inlay bench under load: many requests, their latencies as a client sees them.
#include "examples/inlay/bench_load.h"

#include <algorithm>
#include <thread>

#include "examples/inlay/flights.h"

namespace inlay::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Seen {
  double arrival = 0;  // seconds since the start; when it was due, with --rate
  double first = 0, last = 0;
  size_t tokens = 0;
};

class Load {
 public:
  Load(Host& host, const BenchOptions& options, size_t num_requests,
       size_t concurrency, uint64_t seed)
      : options_(options),
        concurrency_(concurrency),
        random_(host.info.vocab_size, seed),
        prefix_(random_.Take(options.shared_prefix)),
        seen_(num_requests),
        flights_(host, std::min(concurrency, num_requests)) {}

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
        {"concurrency", concurrency_},
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
        {"tpot_ms", Distribution(tpot_)},
        {"itl_ms", Distribution(itl_)}};
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
    if (!options_.rate.has_value()) seen_[index].arrival = Now();
    return flights_.Start(index, FixedRequest(tokens, options_.out));
  }

  Outcome Take(size_t index, const inlay_event_info& info) {
    Seen& seen = seen_[index];
    if (info.kind == INLAY_EVENT_TOKENS && info.num_tokens > 0) {
      const double now = Now();
      if (seen.tokens == 0) {
        seen.first = now;
      } else {
        itl_.push_back(1e3 * (now - seen.last));
      }
      seen.last = now;
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
      tpot_.push_back(1e3 * (seen.last - seen.first) /
                      static_cast<double>(seen.tokens - 1));
    }
    return Outcome();
  }

  const BenchOptions& options_;
  const size_t concurrency_;
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
  // ms. ITL: between one event with tokens and the next of the same request.
  std::vector<double> ttft_, tpot_, itl_;
};

}  // namespace

Outcome MeasureLoad(Host& host, const BenchOptions& options,
                    size_t num_requests, size_t concurrency, uint64_t seed,
                    Progress& progress, Json* result) {
  Load load(host, options, num_requests, concurrency, seed);
  CLI_RETURN_IF_FAILED(load.Run(progress));
  *result = load.Result();
  return Outcome();
}

}  // namespace inlay::cli
