#include "examples/inlay/common.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace inlay::cli {
namespace {

void Log(void*, int32_t level, const char* message) {
  const std::string kind = level == INLAY_LOG_ERROR ? "error: " : "warning: ";
  Complain(kind + message);
}

int32_t ShowLoading(void* progress, int32_t stage, float fraction) {
  static constexpr std::string_view kStages[] = {"configuration", "tokenizer",
                                                 "weights", "ready"};
  const size_t index = static_cast<size_t>(stage);
  const std::string_view name = index < 4 ? kStages[index] : "loading";
  static_cast<Progress*>(progress)->Update(
      "loading: " + std::string(name) + " " +
      std::to_string(static_cast<int>(fraction * 100)) + " %");
  return 0;
}

// "bounds:2048".
Outcome ReadSelection(const std::string& text, inlay_model_options* model) {
  static constexpr std::string_view kMethods[] = {"none", "bounds", "kmeans",
                                                  "lsh"};
  const size_t colon = text.find(':');
  const std::string_view name = std::string_view(text).substr(0, colon);
  const auto* const found =
      std::find(std::begin(kMethods), std::end(kMethods), name);
  const std::string_view digits =
      colon == std::string::npos ? "0"
                                 : std::string_view(text).substr(colon + 1);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] =
      std::from_chars(digits.data(), end, model->selected_tokens);
  if (found == std::end(kMethods) || error != std::errc() || stop != end) {
    return Outcome::Usage("--select is \"" + text +
                          "\", allowed: METHOD:TOKENS with bounds, kmeans or "
                          "lsh, for example bounds:2048");
  }
  model->block_selection = static_cast<int32_t>(found - kMethods);
  return Outcome();
}

Outcome Open(const CommonOptions& options, const std::string& path,
             bool vocab_only, Host* host) {
  inlay_engine_options engine;
  inlay_engine_options_init(&engine);
  engine.backend = options.backend;
  engine.gpu = options.gpu;
  engine.batch_invariant = static_cast<uint32_t>(options.batch_invariant);
  engine.num_threads = options.num_threads;
  if (options.max_batch_tokens > 0) {
    engine.max_batch_tokens = options.max_batch_tokens;
  }
  engine.memory_budget_bytes = options.memory_budget_bytes;
  engine.tpot_target_us = options.tpot_target_us;
  engine.prefix_sharing = static_cast<uint32_t>(options.prefix_sharing);
  if (!options.quiet) engine.log = Log;
  Result<Engine> created = Engine::Create(&engine);
  if (!created.ok()) return created.error();
  host->engine = std::move(*created);

  Progress progress(!options.quiet);
  inlay_model_options model;
  inlay_model_options_init(&model);
  model.vocab_only = vocab_only ? 1 : 0;
  model.weights = options.weights;
  model.kv_type = options.kv_type;
  model.max_context = options.max_context;
  model.kv_budget_bytes = options.kv_budget_bytes;
  model.host_cache_bytes = options.host_cache_bytes;
  model.expert_device_bytes = options.expert_device_bytes;
  if (options.disk_cache.has_value()) {
    model.disk_cache_folder = options.disk_cache->c_str();
    model.disk_cache_bytes = options.disk_cache_bytes;
  }
  if (options.kernels.has_value()) model.kernels = options.kernels->c_str();
  if (options.attention_pattern.has_value()) {
    model.attention_pattern = options.attention_pattern->c_str();
  }
  if (options.select.has_value()) {
    const Outcome read = ReadSelection(*options.select, &model);
    if (!read.ok()) return read;
  }
  model.progress = ShowLoading;
  model.progress_user = &progress;
  Result<Model> loaded = host->engine->Load(path, &model);
  if (!loaded.ok()) return loaded.error();
  host->model = std::move(*loaded);

  Result<inlay_model_info> info = host->model->Info();
  if (!info.ok()) return info.error();
  host->info = *info;
  return Outcome();
}

}  // namespace

void DeclareCommon(Args& args, CommonOptions* options) {
  args.Choice("backend", "where to compute (default auto)",
              {"auto", "cpu", "cuda"}, &options->backend);
  args.Integer("gpu", "CUDA's number of the GPU (default 0)", &options->gpu, 0,
               1023);
  args.Choice("batch-invariant",
              "the same tokens in every batch on CUDA too (default off)",
              {"off", "on"}, &options->batch_invariant);
  args.Integer("threads", "CPU threads (default: one per core)",
               &options->num_threads, 1, 1024);
  args.Choice("weights",
              "map weight files, or read them into memory (default map)",
              {"map", "read"}, &options->weights);
  args.Choice("kv-type", "type of the KV cache (default auto)",
              {"auto", "f32", "f16", "bf16", "i8", "f8", "q4"},
              &options->kv_type);
  args.Bytes("kv-budget", "memory for the KV cache, with K, M or G",
             &options->kv_budget_bytes);
  args.Integer("max-context", "cap on the tokens of a session",
               &options->max_context, 1);
  args.Integer("max-batch-tokens", "tokens computed in a step (default 512)",
               &options->max_batch_tokens, 1, 65536);
  args.Bytes("memory-budget", "memory for weights, KV and scratch together",
             &options->memory_budget_bytes);
  args.Integer("tpot-target-us",
               "prompts leave running generations this time a token",
               &options->tpot_target_us, 1);
  args.Choice("prefix-sharing", "sessions share common prefixes (default on)",
              {"off", "on"}, &options->prefix_sharing);
  args.Bytes("host-cache", "host memory for what the KV cache gives up",
             &options->host_cache_bytes);
  args.Text("disk-cache", "DIR", "a folder below that, for this model alone",
            &options->disk_cache);
  args.Bytes("disk-cache-bytes", "what its files may take (default 1G)",
             &options->disk_cache_bytes);
  args.OnlyWith({"disk-cache"}, {"host-cache"});
  args.OnlyWith({"disk-cache-bytes"}, {"disk-cache"});
  args.Bytes("expert-memory",
             "GPU memory for experts; what it does not hold is in the host's",
             &options->expert_device_bytes);
  args.Text("kernels", "SPEC", "forces kernels: gemm=cpu_scalar,...",
            &options->kernels);
  args.Text("attention-pattern", "SPEC",
            "sparse attention: window=1024,global=64,...; see inlay.h",
            &options->attention_pattern);
  args.Text("select", "METHOD:TOKENS",
            "sparse attention by content: bounds, kmeans or lsh; see inlay.h",
            &options->select);
  args.Flag("json", "JSON on stdout, one value a line, nothing else",
            &options->json);
  args.Flag("quiet", "no warnings, progress or summary on stderr",
            &options->quiet);
}

void DeclareRecord(Args& args, CommonOptions* options) {
  args.Text("record", "FILE", "writes what inlay replay can run again",
            &options->record);
  args.Text("trace", "FILE", "writes what the engine did, for ui.perfetto.dev",
            &options->trace);
}

Recording::~Recording() {
  if (model_ == nullptr) return;
  const Error error = model_->RecordStop();
  if (!error.ok() && late_failure_->empty()) {
    *late_failure_ = "the recording is not whole: " + error.message();
  }
}

Outcome Recording::Start(Model& model, const std::string& path,
                         std::shared_ptr<std::string> late_failure) {
  const Error error = model.RecordStart(path);
  if (!error.ok()) return error;
  model_ = &model;
  late_failure_ = std::move(late_failure);
  return Outcome();
}

Tracing::~Tracing() {
  if (engine_ == nullptr) return;
  Result<Buffer> trace = engine_->TakeTrace();
  if (!late_failure_->empty()) return;
  if (!trace.ok()) {
    *late_failure_ = "there is no trace: " + trace.error().message();
    return;
  }
  std::ofstream out(path_, std::ios::binary);
  out << trace->bytes();
  out.close();
  if (!out) {
    *late_failure_ = "cannot write " + path_ + ": " + std::strerror(errno);
  }
}

Outcome Tracing::Start(Engine& engine, const std::string& path,
                       std::shared_ptr<std::string> late_failure) {
  constexpr size_t kEvents = size_t{1} << 18;
  const Error error = engine.StartTrace(kEvents);
  if (!error.ok()) return error;
  engine_ = &engine;
  path_ = path;
  late_failure_ = std::move(late_failure);
  return Outcome();
}

Outcome OpenModel(const CommonOptions& options, const std::string& path,
                  Host* host) {
  CLI_RETURN_IF_FAILED(Open(options, path, false, host));
  if (options.trace.has_value()) {
    CLI_RETURN_IF_FAILED(host->tracing.Start(*host->engine, *options.trace,
                                             options.late_failure));
  }
  return options.record.has_value()
             ? host->recording.Start(*host->model, *options.record,
                                     options.late_failure)
             : Outcome();
}

Outcome OpenVocabulary(const CommonOptions& options, const std::string& path,
                       Host* host) {
  return Open(options, path, true, host);
}

Outcome Start(Host& host, const inlay_request_options& options,
              Running* running) {
  Result<Session> session = host.model->NewSession();
  if (!session.ok()) return session.error();
  Result<Request> request = session->Submit(options);
  if (!request.ok()) return request.error();
  running->request.reset();
  running->session = std::move(*session);
  running->request = std::move(*request);
  return Outcome();
}

Outcome Drain(Engine& engine, Request& request, const TakeEvent& take,
              const std::function<bool()>& cancel) {
  while (true) {
    if (cancel()) CLI_RETURN_IF_FAILED(request.Cancel());
    Result<Event> event = request.Next(0);
    if (event.ok()) {
      CLI_RETURN_IF_FAILED(take(event->info()));
      if (event->finished()) return FinishOutcome(event->info());
    } else if (event.error().status() == INLAY_TIMEOUT) {
      const Result<inlay_step_info> step = engine.Step();
      if (!step.ok()) return step.error();
    } else {
      return event.error();
    }
  }
}

Outcome FinishOutcome(const inlay_event_info& info) {
  if (info.finish_reason != INLAY_FINISH_ERROR) return Outcome();
  return Outcome::Failed(std::string("the generation failed: ") + info.message +
                         " (" + inlay_status_name(info.status) + ")");
}

}  // namespace inlay::cli
