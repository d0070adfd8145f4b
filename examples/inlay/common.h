// What every form shares: the options of the engine and the model, opening
// both, and the loop that drives one request.
#ifndef INLAY_EXAMPLES_INLAY_COMMON_H_
#define INLAY_EXAMPLES_INLAY_COMMON_H_

#include <cstdint>
#include <functional>
#include <inlay/inlay.hpp>
#include <memory>
#include <optional>
#include <string>

#include "examples/inlay/args.h"
#include "examples/inlay/outcome.h"
#include "examples/inlay/output.h"

namespace inlay::cli {

struct CommonOptions {
  int32_t backend = INLAY_BACKEND_AUTO;
  uint32_t gpu = 0;
  int32_t batch_invariant = 0;
  int32_t num_threads = 0;
  int32_t weights = INLAY_WEIGHTS_MAP;
  int32_t kv_type = INLAY_KV_AUTO;
  uint32_t max_context = 0;
  uint64_t kv_budget_bytes = 0;
  uint32_t max_batch_tokens = 0;  // 0: the library's default
  uint64_t memory_budget_bytes = 0;
  uint64_t tpot_target_us = 0;
  int32_t prefix_sharing = 1;
  uint64_t host_cache_bytes = 0;
  uint64_t expert_device_bytes = 0;
  std::optional<std::string> disk_cache;
  uint64_t disk_cache_bytes = uint64_t{1} << 30;
  std::optional<std::string> kernels;
  std::optional<std::string> attention_pattern;
  std::optional<std::string> select;
  std::optional<std::string> record;
  std::optional<std::string> trace;
  bool json = false;
  bool quiet = false;
  // What went wrong when a scope ended, too late for an outcome; "": nothing.
  std::shared_ptr<std::string> late_failure = std::make_shared<std::string>();
};

void DeclareCommon(Args& args, CommonOptions* options);
// --record and --trace, for the forms that generate.
void DeclareRecord(Args& args, CommonOptions* options);

// A recording that ends with its scope; a failure to write it is late.
class Recording {
 public:
  Recording() = default;
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Outcome Start(Model& model, const std::string& path,
                std::shared_ptr<std::string> late_failure);

 private:
  Model* model_ = nullptr;
  std::shared_ptr<std::string> late_failure_;
};

// What the engine did in a scope, for ui.perfetto.dev: written at its end.
class Tracing {
 public:
  Tracing() = default;
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  Outcome Start(Engine& engine, const std::string& path,
                std::shared_ptr<std::string> late_failure);

 private:
  Engine* engine_ = nullptr;
  std::string path_;
  std::shared_ptr<std::string> late_failure_;
};

// An engine with one model in it. Declare sessions and requests after it.
struct Host {
  std::optional<Engine> engine;
  std::optional<Model> model;
  inlay_model_info info;
  // What comes after the host has gone by then.
  Recording recording;
  Tracing tracing;
};

// Host-driven; warnings of the library go to stderr, loading shows progress.
Outcome OpenModel(const CommonOptions& options, const std::string& path,
                  Host* host);
// Tokenizer and chat template only: works on a directory that has no weights.
Outcome OpenVocabulary(const CommonOptions& options, const std::string& path,
                       Host* host);

// A session, and the request that `options` describe in it.
struct Running {
  std::optional<Session> session;
  std::optional<Request> request;
};
Outcome Start(Host& host, const inlay_request_options& options,
              Running* running);

using TakeEvent = std::function<Outcome(const inlay_event_info&)>;
// Steps until the request ends; `take` gets every event, FINISHED too. Cancels
// it once `cancel` is true; when `take` fails, releasing the request does.
Outcome Drain(
    Engine& engine, Request& request, const TakeEvent& take,
    const std::function<bool()>& cancel = [] { return false; });
// What a FINISHED event says, as an outcome.
Outcome FinishOutcome(const inlay_event_info& info);

// The options of sampling and stopping; those not given keep what the model's
// generation_config.json says.
class Sampling {
 public:
  void Declare(Args& args);
  // The strings that `options` comes to point to live in this object.
  Outcome Fill(Model& model, inlay_request_options* options);
  // Settings as JSON and back, for saved conversations; only those given.
  Json Save() const;
  Outcome Load(const Json& settings);
  void AddStop(std::string stop) { stops_.push_back(std::move(stop)); }

 private:
  std::optional<int32_t> max_tokens_, top_k_;
  std::optional<float> temperature_, top_p_, min_p_;
  std::optional<uint64_t> seed_;
  std::vector<std::string> stops_;
  std::vector<const char*> stop_pointers_;
};

// "stop", "length", ...
const char* FinishName(int32_t reason);
// {"finish_reason": .., "usage": {..}, "timings": {..}} of a FINISHED event.
Json FinishJson(const inlay_event_info& info);
double TokensPerSecond(const inlay_event_info& info);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_COMMON_H_
