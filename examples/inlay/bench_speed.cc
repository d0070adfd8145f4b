// inlay bench: speed of prompts and of generation, beside what memory gives.
#include <cstdio>
#include <optional>

#include "examples/inlay/bandwidth.h"
#include "examples/inlay/bench.h"
#include "examples/inlay/statistics.h"

namespace inlay::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Well above caches.
constexpr uint64_t kCopyBytes = uint64_t{256} << 20;

// Steps until every request has ended; the milliseconds of each.
Outcome RunAll(Host& host, size_t num_requests, std::vector<double>* step_ms) {
  while (num_requests > 0) {
    Result<inlay_step_info> step = host.engine->Step();
    if (!step.ok()) return step.error();
    step_ms->push_back(1e-3 * static_cast<double>(step->duration_us));
    for (Result<Event> event = host.engine->Next(0); event.ok();
         event = host.engine->Next(0)) {
      if (!event->finished()) continue;
      CLI_RETURN_IF_FAILED(FinishOutcome(event->info()));
      --num_requests;
    }
  }
  return Outcome();
}

Outcome Submit(Running& running, const std::vector<int32_t>& tokens,
               size_t max_tokens) {
  inlay_request_options options;
  inlay_request_options_init(&options);
  options.tokens = tokens.data();
  options.num_tokens = tokens.size();
  options.max_tokens = static_cast<int32_t>(max_tokens);
  options.ignore_eos = 1;
  Result<Request> request = running.session->Submit(options);
  if (!request.ok()) return request.error();
  running.request = std::move(*request);
  return Outcome();
}

struct Samples {
  std::vector<double> prompt, decode, copy;
  std::vector<double> read;     // on CPU
  std::vector<double> step_ms;  // of generation
};

// One round: every session's prompt, then tokens after it. The generation
// appends one token to a computed prompt, so each of its steps is a decode.
Outcome Round(Host& host, const BenchOptions& options, RandomTokens& random,
              Samples* samples) {
  std::vector<Running> batch(options.batch);
  for (Running& running : batch) {
    Result<Session> session = host.model->NewSession();
    if (!session.ok()) return session.error();
    running.session = std::move(*session);
    CLI_RETURN_IF_FAILED(
        Submit(running, random.Take(options.prompt_tokens), 0));
  }
  std::vector<double> prompt_ms;
  Clock::time_point begin = Clock::now();
  CLI_RETURN_IF_FAILED(RunAll(host, batch.size(), &prompt_ms));
  samples->prompt.push_back(
      static_cast<double>(options.batch * options.prompt_tokens) /
      SecondsSince(begin));
  for (Running& running : batch) {
    CLI_RETURN_IF_FAILED(Submit(running, random.Take(1), options.gen_tokens));
  }
  begin = Clock::now();
  CLI_RETURN_IF_FAILED(RunAll(host, batch.size(), &samples->step_ms));
  samples->decode.push_back(
      static_cast<double>(options.batch * options.gen_tokens) /
      SecondsSince(begin));
  return Outcome();
}

Json Summary(const std::vector<double>& samples) {
  return {{"mean", Mean(samples)}, {"sd", StandardDeviation(samples)}};
}

// Weights read a step times steps a second: the KV cache is not in it.
double DecodeBandwidth(const Host& host, const BenchOptions& options,
                       const Samples& samples) {
  return 1e-9 * static_cast<double>(host.info.bytes_per_decode) *
         Mean(samples.decode) / static_cast<double>(options.batch);
}

// What the engine computes on, and how much of it.
std::string Where(const inlay_device_info& device) {
  const std::string processors = std::to_string(device.num_processors);
  return device.backend == INLAY_BACKEND_CPU ? processors + " threads"
                                             : std::string(device.name);
}

Outcome Print(const Host& host, const BenchOptions& options,
              const CommonOptions& common, const inlay_device_info& device,
              const Samples& samples) {
  const double achieved = DecodeBandwidth(host, options, samples);
  const double copy = Mean(samples.copy);
  const bool cpu = device.backend == INLAY_BACKEND_CPU;
  if (common.json) {
    Json row = {{"model", options.path},
                {"device", device.name},
                {"processors", device.num_processors},
                {"prompt_tokens", options.prompt_tokens},
                {"gen_tokens", options.gen_tokens},
                {"batch", options.batch},
                {"repeat", options.repeat},
                {"pp_tok_s", Summary(samples.prompt)},
                {"tg_tok_s", Summary(samples.decode)},
                {"tg_step_ms", Distribution(samples.step_ms)},
                {"bytes_per_decode", host.info.bytes_per_decode},
                {"decode_gb_s", achieved},
                {"copy_gb_s", copy},
                {"percent_of_copy", 100 * achieved / copy}};
    if (cpu) {
      row["threads"] = device.num_processors;
      row["read_gb_s"] = Mean(samples.read);
      row["percent_of_read"] = 100 * achieved / Mean(samples.read);
    }
    return WriteJsonLine(row);
  }
  char text[1024];
  int length = std::snprintf(
      text, sizeof(text),
      "%s: %.1f M parameters, %.1f MB of weights, %s, batch %zu\n"
      "pp%-6zu %10.1f tok/s  +- %.1f\n"
      "tg%-6zu %10.1f tok/s  +- %.1f, steps of %.2f ms (p50), %.2f (p99)\n"
      "memory: copy %.1f GB/s (beside the same runs)\n"
      "decode: %.2f GB/s of weights, %.0f %% of copy",
      options.path.c_str(), static_cast<double>(host.info.num_parameters) / 1e6,
      static_cast<double>(host.info.weight_bytes) / 1e6, Where(device).c_str(),
      options.batch, options.prompt_tokens, Mean(samples.prompt),
      StandardDeviation(samples.prompt), options.gen_tokens,
      Mean(samples.decode), StandardDeviation(samples.decode),
      Percentile(samples.step_ms, 50), Percentile(samples.step_ms, 99), copy,
      achieved, 100 * achieved / copy);
  std::string out(text, static_cast<size_t>(length));
  if (cpu) {
    length =
        std::snprintf(text, sizeof(text), ", %.0f %% of read (%.1f GB/s)",
                      100 * achieved / Mean(samples.read), Mean(samples.read));
    out.append(text, static_cast<size_t>(length));
  }
  return WriteOut(out + "\n");
}

}  // namespace

Outcome BenchSpeed(Host& host, const BenchOptions& options,
                   const CommonOptions& common) {
  Result<inlay_device_info> device = host.engine->Device();
  if (!device.ok()) return device.error();
  Progress progress(!common.quiet);
  progress.Update("warming up");
  RandomTokens random(host.info.vocab_size);
  std::optional<ReadBandwidth> read;
  if (device->backend == INLAY_BACKEND_CPU)
    read.emplace(static_cast<int>(device->num_processors));
  Samples unused;
  CLI_RETURN_IF_FAILED(Round(host, options, random, &unused));
  Samples samples;
  for (size_t i = 0; i < options.repeat; ++i) {
    progress.Update("round", i + 1, options.repeat);
    // Interleaved: other work on the machine slows both alike.
    Result<double> copy = host.engine->MeasureCopy(kCopyBytes);
    if (!copy.ok()) return copy.error();
    samples.copy.push_back(1e-9 * *copy);
    if (read.has_value()) samples.read.push_back(read->Measure());
    CLI_RETURN_IF_FAILED(Round(host, options, random, &samples));
  }
  progress.Clear();
  return Print(host, options, common, *device, samples);
}

}  // namespace inlay::cli
