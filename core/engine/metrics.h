// EngineMetrics: what the engine counts about itself. Plain data, made from
// metrics.def; knows no text format and nobody who counts.
#ifndef INLAY_CORE_ENGINE_METRICS_H_
#define INLAY_CORE_ENGINE_METRICS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "core/engine/histogram.h"

namespace inlay {

namespace metric_kinds {
using Counter = uint64_t;
using Gauge = uint64_t;
using Histogram = inlay::Histogram;
}  // namespace metric_kinds

// One for each model, guarded by whoever counts. 33 KiB, so: filled in place
// rather than handed around.
struct EngineMetrics {
#define INLAY_METRIC(kind, field, unit, help) metric_kinds::kind field = {};
#include "core/engine/metrics.def"

  // Sums counters and gauges, merges histograms.
  EngineMetrics& operator+=(const EngineMetrics& other);
  // Sets all gauges to 0: they go with the model they were about, while what it
  // counted stays.
  void ClearGauges();
};

enum class MetricKind : uint8_t { kCounter, kGauge, kHistogram };
enum class MetricUnit : uint8_t { kOne, kMicroseconds, kBytes };

// A line of metrics.def. Pointers are to static storage.
struct MetricInfo {
  const char* field;
  MetricKind kind;
  MetricUnit unit;
  const char* family;  // `field` where it has no label
  const char* label;   // null: none
  const char* label_value;
  const char* help;
  uint64_t EngineMetrics::*value;       // null for histograms
  Histogram EngineMetrics::*histogram;  // null for the others
};

// All of them, in the list's order.
absl::Span<const MetricInfo> AllMetrics();

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_METRICS_H_
