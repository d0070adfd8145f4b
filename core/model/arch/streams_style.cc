#include "core/model/arch/streams_style.h"

#include "kernels/hyper_connection/hyper_connection.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<StreamsSpec> ReadCount(const Json& json,
                                      const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         JsonInt(json, "hc_mult", 4, 1, 1 << 16));
  if (count > kMaxHyperStreams) {
    return absl::UnimplementedError(FormattedString(
        "config.json: hc_mult is %d; supported here are up to %d", count,
        kMaxHyperStreams));
  }
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(json, "hc_eps", 1e-6, 0.0, 1.0));
  StreamsSpec streams;
  streams.count = static_cast<int>(count);
  streams.epsilon = static_cast<float>(epsilon);
  streams.norm_epsilon = config.norm_epsilon;
  return streams;
}

}  // namespace

absl::StatusOr<StreamsSpec> ReadStreams(const Json& json,
                                        const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(StreamsSpec streams, ReadCount(json, config));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rounds,
      JsonInt(json, "hc_sinkhorn_iters", 20, 1, kMaxHyperRounds));
  streams.rounds = static_cast<int>(rounds);
  return streams;
}

absl::StatusOr<StreamsSpec> ReadIndependentStreams(
    const Json& json, const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(StreamsSpec streams, ReadCount(json, config));
  INLAY_ASSIGN_OR_RETURN(const double magnitude,
                         JsonNumber(json, "hc_magnitude", 2.0, -1e6, 1e6));
  streams.rounds = 1;  // of no matrix
  streams.magnitude = static_cast<float>(magnitude);
  streams.independent = true;
  return streams;
}

}  // namespace inlay
