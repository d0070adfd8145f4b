#include "core/quantize/falcon_factors.h"

#include <string>

#include "core/formats/gguf_key_writer.h"
#include "core/formats/gguf_linear_writer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr double kMostFactor = 1e6;

struct Factor {
  std::string_view part;  // of the name
  const char* keys[2];    // multiplied; null: 1
  int place;              // in the first, a list; -1: a number
};

// Of falcon_h1.py's order: the first that fits.
constexpr Factor kFactors[] = {
    {".down_proj.", {"mlp_multipliers", nullptr}, 1},
    {".gate_proj.", {"mlp_multipliers", nullptr}, 0},
    {".k_proj.", {"key_multiplier", "attention_in_multiplier"}, -1},
    {".q_proj.", {"attention_in_multiplier", nullptr}, -1},
    {".v_proj.", {"attention_in_multiplier", nullptr}, -1},
    {".o_proj.", {"attention_out_multiplier", nullptr}, -1},
    {".out_proj.", {"ssm_out_multiplier", nullptr}, -1},
    {".in_proj.", {"ssm_in_multiplier", nullptr}, -1},
    {"lm_head.", {"lm_head_multiplier", nullptr}, -1},
    {".embed_tokens.", {"embedding_multiplier", nullptr}, -1},
};

absl::StatusOr<double> FactorOf(const Json& config, const char* key,
                                int place) {
  const Json* value = JsonFind(config, key);
  if (value == nullptr) return 1.0;
  if (place < 0) return JsonNumber(config, key, 1.0, -kMostFactor, kMostFactor);
  const auto at = static_cast<size_t>(place);
  if (value->is_array() && at < value->size() && (*value)[at].is_number()) {
    return (*value)[at].get<double>();
  }
  return absl::InvalidArgumentError(
      FormattedString("config.json: %s has no number %d", key, place));
}

// z, x, B, C and dt have factors of their own.
absl::Status MultiplyMixer(const Json& config, double factor, RowLayout* rows) {
  int64_t sizes[3];  // of z and x, of B and C, of dt
  INLAY_ASSIGN_OR_RETURN(sizes[0], FalconMixerWidth(config));
  INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                         NeededGgufSize(config, "mamba_n_groups"));
  INLAY_ASSIGN_OR_RETURN(const int64_t state,
                         NeededGgufSize(config, "mamba_d_state"));
  INLAY_ASSIGN_OR_RETURN(sizes[2], NeededGgufSize(config, "mamba_n_heads"));
  sizes[1] = groups * state;
  constexpr size_t kSizes[] = {0, 0, 1, 1, 2};
  int64_t first = 0;
  for (int part = 0; part < 5; ++part) {
    INLAY_ASSIGN_OR_RETURN(const double own,
                           FactorOf(config, "ssm_multipliers", part));
    const int64_t count = sizes[kSizes[part]];
    rows->runs.push_back({0, first, count, static_cast<float>(factor * own)});
    first += count;
  }
  const WeightInfo& info = *rows->parts.front();
  if (info.shape.front() == first) return absl::OkStatus();
  return absl::InvalidArgumentError(
      FormattedString("tensor \"%s\" has %d rows, allowed by config.json: %d",
                      info.name, info.shape.front(), first));
}

}  // namespace

absl::Status MultiplyFalconFactors(const Json& config, const GgufArch& arch,
                                   std::string_view name, RowLayout* rows) {
  if (arch.model_type != "falcon_h1") return absl::OkStatus();
  for (const Factor& factor : kFactors) {
    if (name.find(factor.part) == name.npos) continue;
    double product = 1.0;
    for (const char* key : factor.keys) {
      if (key == nullptr) continue;
      INLAY_ASSIGN_OR_RETURN(const double one,
                             FactorOf(config, key, factor.place));
      product *= one;
    }
    const WeightInfo& info = *rows->parts.front();
    if (factor.part == ".in_proj." && info.shape.size() == 2) {
      return MultiplyMixer(config, product, rows);
    }
    if (product != 1.0) {
      rows->runs = {{0, 0, info.shape.front(), static_cast<float>(product)}};
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace inlay
