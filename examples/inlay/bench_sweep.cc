// inlay bench under load: the concurrencies asked for, and what is said of
// them: text, JSON, CSV, a plot.
#include <cstdio>

#include "examples/inlay/bench_load.h"
#include "examples/inlay/csv.h"
#include "examples/inlay/svg_plot.h"

namespace inlay::cli {
namespace {

constexpr uint64_t kSeed = 20260101;

std::string Latency(const char* name, const Json& ms) {
  char text[200];
  std::snprintf(
      text, sizeof(text),
      "%s  mean %.2f ms, p50 %.2f, p90 %.2f, p95 %.2f, p99 %.2f, max %.2f\n",
      name, ms["mean"].get<double>(), ms["p50"].get<double>(),
      ms["p90"].get<double>(), ms["p95"].get<double>(), ms["p99"].get<double>(),
      ms["max"].get<double>());
  return text;
}

std::string Summary(const Json& result) {
  char text[320];
  std::snprintf(
      text, sizeof(text),
      "%zu requests of %zu + %zu tokens in %.2f s: %.2f requests/s\n"
      "prompt %.1f tok/s (%.0f %% from the cache), generated %.1f tok/s\n",
      result["requests"].get<size_t>(), result["in"].get<size_t>(),
      result["out"].get<size_t>(), result["seconds"].get<double>(),
      result["requests_per_s"].get<double>(),
      result["prompt_tok_s"].get<double>(),
      100 * result["cached_tokens"].get<double>() /
          std::max(1.0, result["prompt_tokens"].get<double>()),
      result["generated_tok_s"].get<double>());
  return text + Latency("TTFT", result["ttft_ms"]) +
         Latency("TPOT", result["tpot_ms"]) + Latency("ITL ", result["itl_ms"]);
}

std::string SweepHead() {
  return "concurrency  requests/s     tok/s |      TTFT p50      p90      p99 "
         "|  TPOT p50     p90     p99 |   ITL p99  (ms)\n";
}

std::string SweepRow(const Json& result) {
  const Json& ttft = result["ttft_ms"];
  const Json& tpot = result["tpot_ms"];
  char text[240];
  std::snprintf(text, sizeof(text),
                "%11zu %11.2f %9.1f | %13.2f %8.2f %8.2f | %9.2f %7.2f %7.2f | "
                "%9.2f\n",
                result["concurrency"].get<size_t>(),
                result["requests_per_s"].get<double>(),
                result["generated_tok_s"].get<double>(),
                ttft["p50"].get<double>(), ttft["p90"].get<double>(),
                ttft["p99"].get<double>(), tpot["p50"].get<double>(),
                tpot["p90"].get<double>(), tpot["p99"].get<double>(),
                result["itl_ms"]["p99"].get<double>());
  return text;
}

PlotPanel LatencyPanel(const std::vector<Json>& rows, const char* name,
                       const char* member) {
  PlotPanel panel = {std::string(name) + " (labels: concurrency)",
                     "generated tokens a second",
                     std::string(name) + ", ms",
                     {}};
  for (const char* percentile : {"p50", "p99"}) {
    PlotSeries series = {percentile, {}};
    for (const Json& row : rows) {
      series.points.push_back(
          {row["generated_tok_s"].get<double>(),
           row[member][percentile].get<double>(),
           std::to_string(row["concurrency"].get<size_t>())});
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

Outcome WriteFiles(const BenchOptions& options, const std::vector<Json>& rows) {
  if (options.csv.has_value()) {
    CLI_RETURN_IF_FAILED(WriteFile(*options.csv, CsvTable(rows)));
  }
  if (!options.svg.has_value()) return Outcome();
  const std::string title = options.path + ": " + std::to_string(options.in) +
                            " + " + std::to_string(options.out) + " tokens";
  return WriteFile(*options.svg,
                   SvgPlot(title, {LatencyPanel(rows, "TPOT", "tpot_ms"),
                                   LatencyPanel(rows, "TTFT", "ttft_ms")}));
}

}  // namespace

Outcome BenchLoad(Host& host, const BenchOptions& options,
                  const CommonOptions& common) {
  Progress progress(!common.quiet);
  std::vector<size_t> sweep = options.sweep;
  const bool single = sweep.empty();
  if (single) {
    sweep.push_back(
        static_cast<size_t>(options.concurrency.value_or(kDefaultConcurrency)));
  }
  const size_t num_requests =
      static_cast<size_t>(options.requests.value_or(kDefaultRequests));
  // Pages of mapped weights are read when they are first used.
  uint64_t seed = kSeed;
  Json unused;
  CLI_RETURN_IF_FAILED(
      MeasureLoad(host, options, 1, 1, seed++, progress, &unused));
  std::vector<Json> rows;
  for (const size_t concurrency : sweep) {
    Json row;
    CLI_RETURN_IF_FAILED(MeasureLoad(host, options, num_requests, concurrency,
                                     seed++, progress, &row));
    progress.Clear();
    if (common.json) {
      CLI_RETURN_IF_FAILED(WriteJsonLine(row));
    } else {
      const std::string head = rows.empty() ? SweepHead() : "";
      CLI_RETURN_IF_FAILED(
          WriteOut(single ? Summary(row) : head + SweepRow(row)));
    }
    rows.push_back(std::move(row));
  }
  return WriteFiles(options, rows);
}

}  // namespace inlay::cli
