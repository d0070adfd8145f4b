// EngineMetrics as api/proto/stats.proto has them. Knows no handles and no
// engine.
#ifndef INLAY_API_SRC_METRICS_PROTO_H_
#define INLAY_API_SRC_METRICS_PROTO_H_

#include <string>

#include "core/engine/metrics.h"

namespace inlay::api {

// A serialised inlay.stats.EngineStats.
std::string MetricsProto(const EngineMetrics& metrics);

}  // namespace inlay::api

#endif  // INLAY_API_SRC_METRICS_PROTO_H_
