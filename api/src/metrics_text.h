// EngineMetrics as Prometheus reads them. Knows no handles and no engine.
// Source: prometheus.io/docs/instrumenting/exposition_formats, the text format
// 0.0.4 (Content-Type: text/plain; version=0.0.4).
#ifndef INLAY_API_SRC_METRICS_TEXT_H_
#define INLAY_API_SRC_METRICS_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/engine/metrics.h"

namespace inlay::api {

struct MetricLabel {
  std::string name;
  std::string value;
};

// Metrics of one thing (an engine, a model) and the labels that tell it from
// the others.
struct LabelledMetrics {
  const EngineMetrics* metrics;
  std::vector<MetricLabel> labels;
};

// The text of all of them. Names begin with inlay_; times are in seconds,
// counters end in _total. Histograms are cut at powers of two and halfway
// between them, times from 32 us to 9 minutes. INVALID_ARGUMENT: a label's name
// is not [a-zA-Z_][a-zA-Z0-9_]*, is reserved (le, those of metrics.def, __*)
// or comes twice; a value is not UTF-8; two things have the same labels.
absl::StatusOr<std::string> MetricsText(
    absl::Span<const LabelledMetrics> things);

}  // namespace inlay::api

#endif  // INLAY_API_SRC_METRICS_TEXT_H_
