#include "core/formats/gguf_rope_writer.h"

#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxPositions = int64_t{1} << 28;
constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

class RopeWriter {
 public:
  RopeWriter(const Json& config, const std::string& prefix,
             const GgufRopeShape& shape, GgufWriter* writer,
             GgufConfigTensors* tensors)
      : config_(config),
        prefix_(prefix + ".rope."),
        shape_(shape),
        writer_(*writer),
        tensors_(*tensors) {}

  absl::Status Write() {
    const Json* parameters = JsonFind(config_, "rope_parameters");
    if (parameters == nullptr) parameters = JsonFind(config_, "rope_scaling");
    if (parameters != nullptr && parameters->is_object()) {
      const Json* full = JsonFind(*parameters, "full_attention");
      if (full != nullptr) {
        sliding_ = JsonFind(*parameters, "sliding_attention");
        parameters = full;
      }
      if (parameters->is_object()) scaling_ = *parameters;
    }
    INLAY_RETURN_IF_ERROR(WriteBases());
    INLAY_ASSIGN_OR_RETURN(const std::string old,
                           JsonString(scaling_, "type", "default"));
    INLAY_ASSIGN_OR_RETURN(const std::string type,
                           JsonString(scaling_, "rope_type", old));
    if (type == "default") return absl::OkStatus();
    INLAY_RETURN_IF_ERROR(ReadScaling());
    if (type == "llama3") return WriteLlama3();
    if (type == "longrope" || type == "su") return WriteLongRope();
    if (type == "linear") return WriteType("linear");
    if (type == "yarn") return WriteYarn();
    return absl::UnimplementedError(FormattedString(
        "config.json: rope type \"%s\" cannot be said in GGUF, allowed: "
        "default, linear, yarn, llama3, longrope",
        type));
  }

 private:
  absl::StatusOr<double> Number(const Json& object, const char* key,
                                double fallback, double min, double max) {
    return JsonNumber(object, key, fallback, min, max);
  }
  absl::Status Set(const char* key, double value) {
    return writer_.SetF32(prefix_ + key, static_cast<float>(value));
  }

  absl::Status WriteBases() {
    INLAY_ASSIGN_OR_RETURN(
        const double outer,
        Number(config_, "rope_theta", shape_.theta, 1.0, kMaxTheta));
    INLAY_ASSIGN_OR_RETURN(
        theta_, Number(scaling_, "rope_theta", outer, 1.0, kMaxTheta));
    INLAY_RETURN_IF_ERROR(Set("freq_base", theta_));
    INLAY_ASSIGN_OR_RETURN(double local, Number(config_, "rope_local_base_freq",
                                                0.0, 0.0, kMaxTheta));
    if (sliding_ != nullptr && sliding_->is_object()) {
      INLAY_ASSIGN_OR_RETURN(
          local, Number(*sliding_, "rope_theta", local, 0.0, kMaxTheta));
    }
    if (local > 0.0) INLAY_RETURN_IF_ERROR(Set("freq_base_swa", local));
    INLAY_ASSIGN_OR_RETURN(
        const double whole,
        Number(config_, "partial_rotary_factor", shape_.partial, 0.0, 1.0));
    INLAY_ASSIGN_OR_RETURN(
        const double partial,
        Number(scaling_, "partial_rotary_factor", whole, 0.0, 1.0));
    dim_ = shape_.is_latent
               ? shape_.head_dim
               : static_cast<int64_t>(static_cast<double>(shape_.head_dim) *
                                      partial);
    return writer_.SetU32(
        prefix_ + "dimension_count",
        static_cast<uint32_t>(shape_.stores_whole_heads ? shape_.head_dim
                                                        : dim_));
  }

  absl::Status ReadScaling() {
    const char* key = "original_max_position_embeddings";
    has_original_ =
        JsonFind(config_, key) != nullptr || JsonFind(scaling_, key) != nullptr;
    INLAY_ASSIGN_OR_RETURN(
        const int64_t inner,
        JsonInt(scaling_, key, shape_.max_positions, 1, kMaxPositions));
    INLAY_ASSIGN_OR_RETURN(original_,
                           JsonInt(config_, key, inner, 1, kMaxPositions));
    const double ratio =
        std::fmax(1.0, static_cast<double>(shape_.max_positions) /
                           static_cast<double>(original_));
    INLAY_ASSIGN_OR_RETURN(factor_,
                           Number(scaling_, "factor", ratio, 1.0, kMaxFactor));
    return absl::OkStatus();
  }

  absl::Status WriteType(const char* type) {
    INLAY_RETURN_IF_ERROR(writer_.SetString(prefix_ + "scaling.type", type));
    INLAY_RETURN_IF_ERROR(Set("scaling.factor", factor_));
    if (!has_original_) return absl::OkStatus();
    return writer_.SetU32(prefix_ + "scaling.original_context_length",
                          static_cast<uint32_t>(original_));
  }

  // Frequencies keep their magnitude where the two are one.
  absl::Status WriteMagnitudes() {
    INLAY_ASSIGN_OR_RETURN(const double all,
                           Number(scaling_, "mscale_all_dim", 0.0, 0.0, 100.0));
    INLAY_ASSIGN_OR_RETURN(const double own,
                           Number(scaling_, "mscale", 0.0, 0.0, 100.0));
    if (own == 0.0 && all == 0.0) return absl::OkStatus();
    const bool may = shape_.is_latent || shape_.keeps_magnitude;
    // One of them alone says nothing (AFM-4.5B).
    if (!may && (own == 0.0 || all == 0.0)) return absl::OkStatus();
    if (!may || own != all) {
      return absl::UnimplementedError(FormattedString(
          "config.json: yarn's mscale is %g and mscale_all_dim %g, allowed in "
          "GGUF: %s",
          own, all, may ? "one number" : "none"));
    }
    // Stored as a tenth of what config.json has, of latent attention.
    return Set("scaling.yarn_log_multiplier",
               shape_.is_latent ? 0.1 * all : all);
  }

  absl::Status WriteYarn() {
    INLAY_RETURN_IF_ERROR(WriteMagnitudes());
    INLAY_ASSIGN_OR_RETURN(const bool truncate,
                           JsonBool(scaling_, "truncate", true));
    if (truncate != shape_.truncates) {
      return absl::UnimplementedError(FormattedString(
          "config.json: yarn's truncate is %s, allowed in GGUF: %s",
          truncate ? "true" : "false", shape_.truncates ? "true" : "false"));
    }
    INLAY_RETURN_IF_ERROR(WriteType("yarn"));
    for (const auto& [from, to] :
         {std::pair{"attention_factor", "scaling.yarn_attn_factor"},
          std::pair{"beta_fast", "scaling.yarn_beta_fast"},
          std::pair{"beta_slow", "scaling.yarn_beta_slow"}}) {
      if (JsonFind(scaling_, from) == nullptr) continue;
      INLAY_ASSIGN_OR_RETURN(const double value,
                             Number(scaling_, from, 0.0, 0.0, kMaxFactor));
      INLAY_RETURN_IF_ERROR(Set(to, value));
    }
    return absl::OkStatus();
  }

  // What divides each frequency; the file has no other way to say it.
  absl::Status WriteLlama3() {
    INLAY_ASSIGN_OR_RETURN(const double low, Number(scaling_, "low_freq_factor",
                                                    1.0, 1e-6, kMaxFactor));
    INLAY_ASSIGN_OR_RETURN(
        const double high,
        Number(scaling_, "high_freq_factor", 4.0, 1e-6, kMaxFactor));
    if (high <= low) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: high_freq_factor is %g, allowed: above the %g of "
          "low_freq_factor",
          high, low));
    }
    const auto original = static_cast<double>(original_);
    std::vector<float> factors;
    for (int64_t i = 0; i < dim_; i += 2) {
      const double wavelength =
          2.0 * std::numbers::pi *
          std::pow(theta_, static_cast<double>(i) / static_cast<double>(dim_));
      const double smooth = (original / wavelength - low) / (high - low);
      double factor = factor_;
      if (wavelength < original / high) {
        factor = 1.0;
      } else if (wavelength <= original / low) {
        factor = 1.0 / ((1.0 - smooth) / factor_ + smooth);
      }
      factors.push_back(static_cast<float>(factor));
    }
    return Add("rope_freqs.weight", std::move(factors));
  }

  absl::Status Add(const char* tensor, std::vector<float> factors) {
    if (shape_.stores_whole_heads) {
      factors.resize(static_cast<size_t>(shape_.head_dim / 2), 1.0f);
    }
    tensors_.vectors.emplace_back(tensor, std::move(factors));
    return absl::OkStatus();
  }

  absl::Status AddFactors(const char* key, const char* tensor) {
    const Json* list = JsonFind(scaling_, key);
    std::vector<float> factors;
    if (list != nullptr && list->is_array()) {
      for (const Json& value : *list) {
        if (value.is_number()) factors.push_back(value.get<float>());
      }
    }
    if (static_cast<int64_t>(factors.size()) != dim_ / 2) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: rope scaling's %s has %d numbers, allowed: %d", key,
          factors.size(), dim_ / 2));
    }
    return Add(tensor, std::move(factors));
  }

  // What a file's rope_freqs.weight is read as: factors for all lengths, and
  // nothing besides.
  bool IsFactorsAlone() const {
    const auto is_one = [&](const char* key) {
      const Json* value = JsonFind(scaling_, key);
      return value != nullptr && *value == 1.0;
    };
    const Json* longer = JsonFind(scaling_, "long_factor");
    const Json* shorter = JsonFind(scaling_, "short_factor");
    return is_one("factor") && is_one("attention_factor") &&
           longer != nullptr && shorter != nullptr && *longer == *shorter;
  }

  absl::Status WriteLongRope() {
    if (IsFactorsAlone()) return AddFactors("long_factor", "rope_freqs.weight");
    INLAY_RETURN_IF_ERROR(
        AddFactors("long_factor", "rope_factors_long.weight"));
    INLAY_RETURN_IF_ERROR(
        AddFactors("short_factor", "rope_factors_short.weight"));
    double attention = 1.0;
    if (factor_ > 1.0 && original_ > 1) {
      attention = std::sqrt(1.0 + std::log(factor_) /
                                      std::log(static_cast<double>(original_)));
    }
    if (JsonFind(scaling_, "attention_factor") != nullptr) {
      INLAY_ASSIGN_OR_RETURN(attention, Number(scaling_, "attention_factor",
                                               attention, 0.0, kMaxFactor));
    }
    if (shape_.has_mscales) {
      INLAY_ASSIGN_OR_RETURN(attention, Number(scaling_, "short_mscale",
                                               attention, 0.0, kMaxFactor));
      INLAY_RETURN_IF_ERROR(CheckLongScale(attention));
    }
    INLAY_RETURN_IF_ERROR(Set("scaling.attn_factor", attention));
    return WriteType("longrope");
  }

  absl::Status CheckLongScale(double expected) {
    INLAY_ASSIGN_OR_RETURN(
        const double scale,
        Number(scaling_, "long_mscale", expected, 0.0, kMaxFactor));
    if (scale == expected) return absl::OkStatus();
    return absl::UnimplementedError(FormattedString(
        "config.json: long_mscale is %g, allowed in GGUF: short_mscale's %g",
        scale, expected));
  }

  const Json& config_;
  const std::string prefix_;
  const GgufRopeShape& shape_;
  GgufWriter& writer_;
  GgufConfigTensors& tensors_;
  Json scaling_ = Json::object();
  const Json* sliding_ = nullptr;
  double theta_ = 0.0;
  double factor_ = 1.0;
  int64_t dim_ = 0;
  int64_t original_ = 0;
  bool has_original_ = false;
};

}  // namespace

absl::Status SetGgufRope(const Json& config, const std::string& prefix,
                         const GgufRopeShape& shape, GgufWriter* writer,
                         GgufConfigTensors* tensors) {
  return RopeWriter(config, prefix, shape, writer, tensors).Write();
}

Json WithoutDynamicRope(const Json& config) {
  Json plain = config;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto found = plain.find(key);
    if (found == plain.end() || !found->is_object()) continue;
    for (const char* type : {"rope_type", "type"}) {
      const Json* name = JsonFind(*found, type);
      if (name != nullptr && *name == "dynamic") (*found)[type] = "default";
    }
  }
  return plain;
}

}  // namespace inlay
