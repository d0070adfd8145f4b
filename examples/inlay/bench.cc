// inlay bench: its options, and which of its parts they ask for.
#include "examples/inlay/bench.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "examples/inlay/commands.h"
#include "examples/inlay/statistics.h"

namespace inlay::cli {
namespace {

// What comes as text, until Parse() has seen everything.
struct Texts {
  std::optional<std::string> shared_prefix, sweep, batch_tokens;
};

void DeclareSpeed(Args& args, BenchOptions* options) {
  args.Integer("prompt-tokens", "prompt length (default 512)",
               &options->prompt_tokens, 1);
  args.Integer("gen-tokens", "tokens to generate (default 128)",
               &options->gen_tokens, 1);
  args.Integer("batch", "sessions at once (default 1)", &options->batch, 1,
               4096);
  args.Integer("repeat", "rounds, after one to warm up (default 5)",
               &options->repeat, 1, 10000);
}

void DeclareLoad(Args& args, BenchOptions* options, Texts* texts) {
  args.Integer("requests", "measure load: requests in all (default 64)",
               &options->requests, 1, 10000000);
  args.Integer("concurrency", "measure load: requests at once (default 16)",
               &options->concurrency, 1, 4096);
  args.Text("sweep", "C,C,..", "measure load at each of these concurrencies",
            &texts->sweep);
  args.Text("shared-prefix", "S",
            "load: first S tokens (0.9: 90 % of --in) are the same everywhere",
            &texts->shared_prefix);
  args.Real("rate", "load: requests a second, at random times (Poisson)",
            &options->rate, 1e-3, 1e6);
  args.Integer("in", "load: prompt length (default 256)", &options->in, 1);
  args.Integer("out", "load: tokens to generate (default 64)", &options->out,
               1);
  args.Integer("long-prompt", "a prompt of N tokens while others generate",
               &options->long_prompt, 1);
  args.Integer("long-at", "it comes once each made K tokens (default 32)",
               &options->long_at, 1, 100000);
  args.Text("compare-batch-tokens", "N,N,..",
            "long prompt: with each of these --max-batch-tokens",
            &texts->batch_tokens);
  args.Text("csv", "FILE", "load and long prompts: a row for each measurement",
            &options->csv);
  args.Text("svg", "FILE", "load: a plot of throughput against latency",
            &options->svg);
  const std::vector<std::string> load = {"requests", "concurrency", "sweep"};
  args.OnlyWith({"shared-prefix", "rate", "out"}, load);
  args.OnlyWith({"in"}, {"requests", "concurrency", "sweep", "long-prompt"});
  args.OnlyWith({"long-at", "compare-batch-tokens"}, {"long-prompt"});
  args.NotWith({"prompt-tokens", "gen-tokens", "batch"},
               {"requests", "concurrency", "sweep", "long-prompt"});
  args.Note("Without --requests, --concurrency, --sweep or --long-prompt: pp");
  args.Note("(prompt) and tg (token generation) in tok/s, and the share of");
  args.Note("memory bandwidth.");
}

Outcome ParseCounts(const char* name, const std::optional<std::string>& text,
                    int64_t highest, std::vector<size_t>* counts) {
  if (!text.has_value()) return Outcome();
  const auto list = ParseIntegerList(*text);
  const bool valid = list.has_value() && !list->empty() && list->size() <= 64 &&
                     *std::min_element(list->begin(), list->end()) >= 1 &&
                     *std::max_element(list->begin(), list->end()) <= highest;
  if (!valid) {
    return Outcome::Usage("--" + std::string(name) + ": got \"" + *text +
                          "\", allowed: up to 64 integers from 1 to " +
                          std::to_string(highest) + ", as in 1,2,4");
  }
  counts->assign(list->begin(), list->end());
  return Outcome();
}

// Tokens, or with a point in it a share of the prompt.
Outcome ParseSharedPrefix(const std::optional<std::string>& text, size_t in,
                          size_t* tokens) {
  if (!text.has_value()) return Outcome();
  const bool share = text->find('.') != std::string::npos;
  const auto real = ParseReal(*text);
  const auto integer = ParseInteger(*text);
  if (share && real.has_value() && *real >= 0 && *real <= 1) {
    *tokens = static_cast<size_t>(std::lround(*real * static_cast<double>(in)));
    return Outcome();
  }
  if (!share && integer.has_value() && *integer >= 0 &&
      static_cast<uint64_t>(*integer) <= in) {
    *tokens = static_cast<size_t>(*integer);
    return Outcome();
  }
  return Outcome::Usage("--shared-prefix: got \"" + *text +
                        "\", allowed: tokens from 0 to --in, which is " +
                        std::to_string(in) + ", or a share from 0.0 to 1.0");
}

Outcome Check(const BenchOptions& options) {
  if (!options.sweep.empty() && options.concurrency.has_value()) {
    return Outcome::Usage("--sweep and --concurrency: got both, allowed: one");
  }
  const bool load = options.requests.has_value() ||
                    options.concurrency.has_value() || !options.sweep.empty();
  if (options.svg.has_value() && (!load || options.long_prompt.has_value())) {
    return Outcome::Usage(
        "--svg: only with --requests, --concurrency or "
        "--sweep, and without --long-prompt");
  }
  if (options.csv.has_value() && !load && !options.long_prompt.has_value()) {
    return Outcome::Usage(
        "--csv: only with --requests, --concurrency, --sweep "
        "or --long-prompt");
  }
  return Outcome();
}

}  // namespace

Json Distribution(const std::vector<double>& samples) {
  return {{"mean", Mean(samples)},          {"p50", Percentile(samples, 50)},
          {"p90", Percentile(samples, 90)}, {"p95", Percentile(samples, 95)},
          {"p99", Percentile(samples, 99)}, {"max", Percentile(samples, 100)}};
}

inlay_request_options FixedRequest(const std::vector<int32_t>& tokens,
                                   size_t max_tokens) {
  inlay_request_options request;
  inlay_request_options_init(&request);
  request.tokens = tokens.data();
  request.num_tokens = tokens.size();
  request.max_tokens = static_cast<int32_t>(max_tokens);
  request.ignore_eos = 1;
  return request;
}

Outcome WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return Outcome();
  return Outcome::Failed("cannot write " + path + ": " + std::strerror(errno));
}

Outcome RunBench(Args& args, const CommonOptions& common) {
  BenchOptions options;
  Texts texts;
  args.Positional("MODEL", "the model", &options.path);
  DeclareSpeed(args, &options);
  DeclareLoad(args, &options, &texts);
  CLI_RETURN_IF_FAILED(args.Parse());
  CLI_RETURN_IF_FAILED(ParseCounts("sweep", texts.sweep, 4096, &options.sweep));
  CLI_RETURN_IF_FAILED(ParseCounts("compare-batch-tokens", texts.batch_tokens,
                                   65536, &options.batch_tokens));
  CLI_RETURN_IF_FAILED(ParseSharedPrefix(texts.shared_prefix, options.in,
                                         &options.shared_prefix));
  CLI_RETURN_IF_FAILED(Check(options));
  if (options.long_prompt.has_value()) {
    return BenchLongPrompt(options, common);
  }
  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, options.path, &host));
  const bool load = options.requests.has_value() ||
                    options.concurrency.has_value() || !options.sweep.empty();
  return load ? BenchLoad(host, options, common)
              : BenchSpeed(host, options, common);
}

}  // namespace inlay::cli
