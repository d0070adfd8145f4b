#include "core/engine/metrics.h"

namespace inlay {
namespace {

// The table's columns that depend on the kind.
constexpr MetricInfo Row(MetricInfo info, uint64_t EngineMetrics::*value) {
  info.value = value;
  return info;
}
constexpr MetricInfo Row(MetricInfo info, Histogram EngineMetrics::*histogram) {
  info.histogram = histogram;
  return info;
}

constexpr MetricInfo kMetrics[] = {
#define INLAY_METRIC(kind, field, unit, help)                          \
  Row({#field, MetricKind::k##kind, MetricUnit::unit, #field, nullptr, \
       nullptr, help, nullptr, nullptr},                               \
      &EngineMetrics::field),
#define INLAY_LABELLED_METRIC(kind, field, unit, family, label, value, help) \
  Row({#field, MetricKind::k##kind, MetricUnit::unit, #family, label, value, \
       help, nullptr, nullptr},                                              \
      &EngineMetrics::field),
#include "core/engine/metrics.def"
};

}  // namespace

absl::Span<const MetricInfo> AllMetrics() { return kMetrics; }

EngineMetrics& EngineMetrics::operator+=(const EngineMetrics& other) {
  for (const MetricInfo& metric : kMetrics) {
    if (metric.histogram != nullptr) {
      (this->*metric.histogram).Merge(other.*metric.histogram);
    } else {
      this->*metric.value += other.*metric.value;
    }
  }
  return *this;
}

void EngineMetrics::ClearGauges() {
  for (const MetricInfo& metric : kMetrics) {
    if (metric.kind == MetricKind::kGauge) this->*metric.value = 0;
  }
}

}  // namespace inlay
