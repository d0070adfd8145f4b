// inlay bench: what a long prompt does to those who are being answered.
#include <algorithm>
#include <cstdio>

#include "examples/inlay/bench_load.h"
#include "examples/inlay/csv.h"
#include "examples/inlay/flights.h"

namespace inlay::cli {
namespace {

using Clock = std::chrono::steady_clock;

// A running session is begun anew after this many tokens: enough that it is
// seldom, and its KV does not crowd out the long prompt's.
constexpr size_t kAnswerTokens = 512;
// Gaps are only "before" when every session generates, for a while already.
constexpr size_t kSettledTokens = 4;
constexpr size_t kMinAnswerTokens = 32;
// Steps in which every session should have come to generate.
constexpr size_t kMaxSteps = 100000;

class LongPrompt {
 public:
  LongPrompt(Host& host, const BenchOptions& options)
      : options_(options),
        random_(host.info.vocab_size),
        answer_tokens_(AnswerTokens(host, options)),
        running_(static_cast<size_t>(options.concurrency.value_or(8))),
        flights_(host, running_.size() + 1) {}

  Outcome Run(Progress& progress) {
    if (answer_tokens_ < kMinAnswerTokens) {
      return Outcome::Failed("--in: got " + std::to_string(options_.in) +
                             ", allowed: " + std::to_string(kMinAnswerTokens) +
                             " tokens less than the context");
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      CLI_RETURN_IF_FAILED(Begin(i));
    }
    for (size_t round = 0; round < options_.repeat; ++round) {
      progress.Update("round", round + 1, options_.repeat);
      for (Session& session : running_) session.before = 0;
      for (size_t step = 0; !Ready(); ++step) {
        if (step == kMaxSteps) {
          return Outcome::Failed(
              "the sessions do not come to generate together"
              "; use fewer (--concurrency)");
        }
        CLI_RETURN_IF_FAILED(Step());
      }
      CLI_RETURN_IF_FAILED(Arrive());
      while (waits_) CLI_RETURN_IF_FAILED(Step());
    }
    return Outcome();
  }

  Json Result(size_t max_batch_tokens) const {
    Json batch = nullptr;  // the library's default
    if (max_batch_tokens > 0) batch = max_batch_tokens;
    return {{"model", options_.path},
            {"max_batch_tokens", batch},
            {"concurrency", running_.size()},
            {"in", options_.in},
            {"long_prompt", *options_.long_prompt},
            {"long_ttft_ms", Distribution(ttft_)},
            {"before_ms", Distribution(before_)},
            {"during_ms", Distribution(during_)},
            {"before_tokens", before_.size()},
            {"during_tokens", during_.size()}};
  }

 private:
  struct Session {
    size_t tokens = 0;  // of the present answer
    size_t before = 0;  // in this round, before the long prompt
    Clock::time_point last;
  };

  static size_t AnswerTokens(const Host& host, const BenchOptions& options) {
    const size_t context = static_cast<size_t>(host.info.max_context);
    const size_t room = context > options.in ? context - options.in : 1;
    return std::min(kAnswerTokens, room);
  }

  Outcome Begin(size_t index) {
    running_[index].tokens = 0;
    const auto tokens = random_.Take(options_.in);
    return flights_.Start(index, FixedRequest(tokens, answer_tokens_));
  }

  // One token: its end is the end of its prompt.
  Outcome Arrive() {
    const auto tokens = random_.Take(*options_.long_prompt);
    arrival_ = Clock::now();
    waits_ = true;
    return flights_.Start(running_.size(), FixedRequest(tokens, 1));
  }

  bool Settled() const {
    return std::all_of(running_.begin(), running_.end(), [](const Session& s) {
      return s.tokens >= kSettledTokens;
    });
  }
  bool Ready() const {
    return std::all_of(running_.begin(), running_.end(), [&](const Session& s) {
      return s.before >= options_.long_at;
    });
  }

  Outcome Step() {
    // A session whose answer is complete is begun anew after the step: its slot
    // is free only then.
    std::vector<size_t> complete;
    const bool settled = Settled();
    CLI_RETURN_IF_FAILED(
        flights_.Step([&](size_t index, const inlay_event_info& info) {
          if (info.kind == INLAY_EVENT_FINISHED) {
            CLI_RETURN_IF_FAILED(FinishOutcome(info));
            if (index < running_.size()) {
              complete.push_back(index);
            } else {
              waits_ = false;
              ttft_.push_back(1e3 * SecondsSince(arrival_));
            }
          } else if (index < running_.size() && info.num_tokens > 0) {
            Count(running_[index], info.num_tokens, settled);
          }
          return Outcome();
        }));
    for (const size_t index : complete) CLI_RETURN_IF_FAILED(Begin(index));
    return Outcome();
  }

  void Count(Session& session, size_t num_tokens, bool settled) {
    const Clock::time_point now = Clock::now();
    const double ms =
        1e3 * std::chrono::duration<double>(now - session.last).count();
    if (session.tokens > 0 && waits_) during_.push_back(ms);
    if (session.tokens > 0 && !waits_ && settled) {
      before_.push_back(ms);
      session.before += num_tokens;
    }
    session.tokens += num_tokens;
    session.last = now;
  }

  const BenchOptions& options_;
  RandomTokens random_;
  const size_t answer_tokens_;
  std::vector<Session> running_;
  Flights flights_;
  bool waits_ = false;  // the long prompt, for its token
  Clock::time_point arrival_;
  std::vector<double> ttft_, before_, during_;  // ms
};

std::string TableHead(const BenchOptions& options, size_t concurrency) {
  char text[320];
  std::snprintf(
      text, sizeof(text),
      "%zu sessions generate, a prompt of %zu tokens arrives (%zu times); ms\n"
      "max batch | long TTFT p50      max | TPOT before p50     p99     max | "
      "during p50      p99      max\n",
      concurrency, *options.long_prompt, options.repeat);
  return text;
}

std::string TableRow(const Json& row) {
  const Json& batch = row["max_batch_tokens"];
  const Json& ttft = row["long_ttft_ms"];
  const Json& before = row["before_ms"];
  const Json& during = row["during_ms"];
  char text[240];
  std::snprintf(
      text, sizeof(text),
      "%9s | %13.2f %8.2f | %15.2f %7.2f %7.2f | %10.2f %8.2f %8.2f\n",
      batch.is_null() ? "default" : std::to_string(batch.get<size_t>()).c_str(),
      ttft["p50"].get<double>(), ttft["max"].get<double>(),
      before["p50"].get<double>(), before["p99"].get<double>(),
      before["max"].get<double>(), during["p50"].get<double>(),
      during["p99"].get<double>(), during["max"].get<double>());
  return text;
}

}  // namespace

Outcome BenchLongPrompt(const BenchOptions& options,
                        const CommonOptions& common) {
  std::vector<size_t> batch_tokens = options.batch_tokens;
  if (batch_tokens.empty()) batch_tokens.push_back(common.max_batch_tokens);
  std::vector<Json> rows;
  for (const size_t max_batch_tokens : batch_tokens) {
    CommonOptions with = common;
    with.max_batch_tokens = static_cast<uint32_t>(max_batch_tokens);
    Host host;
    CLI_RETURN_IF_FAILED(OpenModel(with, options.path, &host));
    Progress progress(!common.quiet);
    LongPrompt bench(host, options);
    CLI_RETURN_IF_FAILED(bench.Run(progress));
    progress.Clear();
    const Json row = bench.Result(max_batch_tokens);
    if (common.json) {
      CLI_RETURN_IF_FAILED(WriteJsonLine(row));
    } else {
      const std::string head =
          rows.empty() ? TableHead(options, row["concurrency"]) : "";
      CLI_RETURN_IF_FAILED(WriteOut(head + TableRow(row)));
    }
    rows.push_back(row);
  }
  return options.csv.has_value() ? WriteFile(*options.csv, CsvTable(rows))
                                 : Outcome();
}

}  // namespace inlay::cli
