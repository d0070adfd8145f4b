// Sampling options, and what the end of a request is shown as.
#include <utility>

#include "examples/inlay/common.h"

namespace inlay::cli {
namespace {

// Saved settings are a file, and files may be anything.
template <typename T>
Outcome TakeNumber(const Json& settings, const char* name,
                   std::optional<T>* value) {
  const auto found = settings.find(name);
  if (found == settings.end()) return Outcome();
  if (!found->is_number()) {
    return Outcome::Failed(std::string("settings.") + name + " is " +
                           JsonText(*found) + ", allowed: a number");
  }
  *value = found->get<T>();
  return Outcome();
}

}  // namespace

void Sampling::Declare(Args& args) {
  args.Integer("max-tokens", "tokens to generate; -1 (default): until it stops",
               &max_tokens_, -1);
  args.Real("temperature", "0: the likeliest token always", &temperature_, 0,
            1000);
  args.Integer("top-k", "among the K likeliest; 0: off", &top_k_, 0);
  args.Real("top-p", "among the likeliest that sum to P; 1: off", &top_p_, 0,
            1);
  args.Real("min-p", "among those at least P times the likeliest; 0: off",
            &min_p_, 0, 1);
  args.Integer("seed", "same seed, same tokens", &seed_, 0, INT64_MAX);
  args.Texts("stop", "STR", "stop before this text (repeat for several)",
             &stops_);
}

Outcome Sampling::Fill(Model& model, inlay_request_options* options) {
  inlay_request_options_init(options);
  CLI_RETURN_IF_FAILED(Call([&](inlay_error** error) {
    return inlay_model_request_options(model.get(), options, error);
  }));
  options->max_tokens = max_tokens_.value_or(options->max_tokens);
  options->temperature = temperature_.value_or(options->temperature);
  options->top_k = top_k_.value_or(options->top_k);
  options->top_p = top_p_.value_or(options->top_p);
  options->min_p = min_p_.value_or(options->min_p);
  options->seed = seed_.value_or(options->seed);
  stop_pointers_.clear();
  for (const std::string& stop : stops_) {
    stop_pointers_.push_back(stop.c_str());
  }
  options->stop_strings = stop_pointers_.data();
  options->num_stop_strings = stop_pointers_.size();
  return Outcome();
}

Json Sampling::Save() const {
  Json settings = Json::object();
  const auto put = [&](const char* name, const auto& value) {
    if (value.has_value()) settings[name] = *value;
  };
  put("max_tokens", max_tokens_);
  put("temperature", temperature_);
  put("top_k", top_k_);
  put("top_p", top_p_);
  put("min_p", min_p_);
  put("seed", seed_);
  return settings;
}

Outcome Sampling::Load(const Json& settings) {
  Sampling read;
  CLI_RETURN_IF_FAILED(TakeNumber(settings, "max_tokens", &read.max_tokens_));
  CLI_RETURN_IF_FAILED(TakeNumber(settings, "temperature", &read.temperature_));
  CLI_RETURN_IF_FAILED(TakeNumber(settings, "top_k", &read.top_k_));
  CLI_RETURN_IF_FAILED(TakeNumber(settings, "top_p", &read.top_p_));
  CLI_RETURN_IF_FAILED(TakeNumber(settings, "min_p", &read.min_p_));
  CLI_RETURN_IF_FAILED(TakeNumber(settings, "seed", &read.seed_));
  read.stops_ = std::move(stops_);
  *this = std::move(read);
  return Outcome();
}

const char* FinishName(int32_t reason) {
  static constexpr const char* kNames[] = {"stop", "length", "cancelled",
                                           "error"};
  return reason >= 0 && reason < 4 ? kNames[reason] : "unknown";
}

// Without the first token, whose time is the prompt's.
double TokensPerSecond(const inlay_event_info& info) {
  if (info.generated_tokens < 2 || info.total_us <= info.first_token_us) {
    return 0;
  }
  return 1e6 * static_cast<double>(info.generated_tokens - 1) /
         static_cast<double>(info.total_us - info.first_token_us);
}

Json FinishJson(const inlay_event_info& info) {
  Json json = Json::object();
  json["event"] = "finished";
  json["finish_reason"] = FinishName(info.finish_reason);
  json["status"] = inlay_status_name(info.status);
  json["message"] = info.message;
  json["stop_token"] = info.stop_token;
  json["stop_string"] = info.stop_string;
  json["usage"] = {{"prompt_tokens", info.prompt_tokens},
                   {"cached_tokens", info.cached_tokens},
                   {"generated_tokens", info.generated_tokens}};
  json["timings"] = {{"queue_us", info.queue_us},
                     {"first_token_us", info.first_token_us},
                     {"total_us", info.total_us},
                     {"tokens_per_second", TokensPerSecond(info)}};
  return json;
}

}  // namespace inlay::cli
