#include "core/engine/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace inlay {
namespace {

bool EndsIn(const std::string& text, const std::string& end) {
  return text.size() > end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Every metric gets a value of its own.
EngineMetrics Numbered(uint64_t first) {
  EngineMetrics metrics;
  for (const MetricInfo& metric : AllMetrics()) {
    if (metric.histogram != nullptr) {
      (metrics.*metric.histogram).Add(first++);
    } else {
      metrics.*metric.value = first++;
    }
  }
  return metrics;
}

TEST(MetricsTest, TheListIsConsistent) {
  std::set<std::string> fields;
  std::set<std::string> families;
  std::set<std::pair<std::string, std::string>> labels;
  std::string last_family;
  for (const MetricInfo& metric : AllMetrics()) {
    const std::string field = metric.field;
    EXPECT_TRUE(fields.insert(field).second) << field;
    EXPECT_EQ(metric.value == nullptr, metric.histogram != nullptr) << field;
    EXPECT_EQ(metric.kind == MetricKind::kHistogram,
              metric.histogram != nullptr)
        << field;
    EXPECT_EQ(metric.unit == MetricUnit::kMicroseconds, EndsIn(field, "_us"))
        << field;
    EXPECT_EQ(metric.unit == MetricUnit::kBytes, EndsIn(field, "_bytes"))
        << field;
    EXPECT_TRUE(EndsIn(metric.help, ".")) << field;
    const bool labelled = metric.label != nullptr;
    EXPECT_EQ(labelled, metric.label_value != nullptr) << field;
    if (labelled) {
      EXPECT_TRUE(labels.emplace(metric.family, metric.label_value).second)
          << field;
    }
    // Of a family: all together, and only where labels tell them apart.
    if (metric.family != last_family) {
      EXPECT_TRUE(families.insert(metric.family).second) << field;
    } else {
      EXPECT_TRUE(labelled) << field;
    }
    last_family = metric.family;
  }
  EXPECT_GT(fields.size(), 40u);
}

TEST(MetricsTest, StartAtZero) {
  const EngineMetrics metrics;
  for (const MetricInfo& metric : AllMetrics()) {
    EXPECT_EQ(metric.histogram != nullptr ? (metrics.*metric.histogram).count()
                                          : metrics.*metric.value,
              0u)
        << metric.field;
  }
}

TEST(MetricsTest, SumTakesEveryField) {
  EngineMetrics sum = Numbered(1000);
  sum += Numbered(2000);
  uint64_t i = 0;
  for (const MetricInfo& metric : AllMetrics()) {
    if (metric.histogram != nullptr) {
      const Histogram& histogram = sum.*metric.histogram;
      EXPECT_EQ(histogram.count(), 2u) << metric.field;
      EXPECT_EQ(histogram.sum(), 3000 + 2 * i) << metric.field;
    } else {
      EXPECT_EQ(sum.*metric.value, 3000 + 2 * i) << metric.field;
    }
    ++i;
  }
}

TEST(MetricsTest, ClearGaugesKeepsWhatWasCounted) {
  EngineMetrics metrics = Numbered(1);
  metrics.ClearGauges();
  for (const MetricInfo& metric : AllMetrics()) {
    if (metric.histogram != nullptr) {
      EXPECT_EQ((metrics.*metric.histogram).count(), 1u) << metric.field;
    } else {
      EXPECT_EQ(metrics.*metric.value == 0, metric.kind == MetricKind::kGauge)
          << metric.field;
    }
  }
}

}  // namespace
}  // namespace inlay
