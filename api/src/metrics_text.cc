#include "api/src/metrics_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::api {
namespace {

// HELP takes a quote as it is, a label's value does not.
std::string Escaped(std::string_view text, bool quoted) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || (quoted && c == '"')) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

bool IsReserved(std::string_view name) {
  const auto metrics = AllMetrics();
  return name == "le" ||
         std::any_of(metrics.begin(), metrics.end(), [&](const auto& metric) {
           return metric.label != nullptr && name == metric.label;
         });
}

absl::Status CheckLabel(const MetricLabel& label) {
  const std::string& name = label.name;
  if (name.empty() || (name[0] >= '0' && name[0] <= '9') ||
      !std::all_of(name.begin(), name.end(), IsNameByte)) {
    return absl::InvalidArgumentError(FormattedString(
        "a label's name is \"%s\", allowed: letters, digits and underscores, "
        "no digit first",
        name));
  }
  if (IsReserved(name) || name.compare(0, 2, "__") == 0) {
    return absl::InvalidArgumentError(FormattedString(
        "a label's name is \"%s\", which is reserved: take another", name));
  }
  if (!IsValidUtf8(label.value)) {
    return absl::InvalidArgumentError(
        FormattedString("the value of label \"%s\" is not UTF-8", name));
  }
  return absl::OkStatus();
}

using LabelSet = std::set<std::pair<std::string, std::string>>;

absl::StatusOr<LabelSet> CheckLabels(const std::vector<MetricLabel>& labels) {
  LabelSet set;
  std::set<std::string> names;
  for (const MetricLabel& label : labels) {
    INLAY_RETURN_IF_ERROR(CheckLabel(label));
    if (!names.insert(label.name).second) {
      return absl::InvalidArgumentError(FormattedString(
          "label \"%s\" is given twice, allowed: once", label.name));
    }
    set.emplace(label.name, label.value);
  }
  return set;
}

// name="value",name="value": what stands between the braces.
std::string JoinLabels(const std::vector<MetricLabel>& labels) {
  std::string joined;
  for (const MetricLabel& label : labels) {
    absl::StrAppend(&joined, joined.empty() ? "" : ",", label.name, "=\"",
                    Escaped(label.value, true), "\"");
  }
  return joined;
}

void AppendSample(const std::string& name, const std::string& labels,
                  const std::string& more, const std::string& value,
                  std::string* text) {
  text->append(name);
  if (!labels.empty() || !more.empty()) {
    absl::StrAppend(text, "{", labels,
                    labels.empty() || more.empty() ? "" : ",", more, "}");
  }
  absl::StrAppend(text, " ", value, "\n");
}

// A value in its Prometheus unit, exactly: seconds have up to six decimals.
std::string InBaseUnit(uint64_t value, MetricUnit unit) {
  if (unit != MetricUnit::kMicroseconds) return absl::StrCat(value);
  std::string text =
      FormattedString("%d.%06d", value / 1000000, value % 1000000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string FullName(const MetricInfo& metric) {
  std::string name = absl::StrCat("inlay_", metric.family);
  if (metric.unit == MetricUnit::kMicroseconds) {
    name.resize(name.size() - std::strlen("_us"));
    name += "_seconds";
  }
  if (metric.kind == MetricKind::kCounter) name += "_total";
  return name;
}

// Powers of two in whose range values are told apart, for their unit.
std::pair<int, int> Octaves(MetricUnit unit) {
  return unit == MetricUnit::kMicroseconds ? std::pair(5, 29)
                                           : std::pair(0, 16);
}

void AppendHistogram(const std::string& name, const MetricInfo& metric,
                     const Histogram& histogram, const std::string& labels,
                     std::string* text) {
  uint64_t cumulative = 0;
  size_t bucket = 0;
  const auto append = [&](uint64_t bound) {
    for (const size_t last = Histogram::BucketOf(bound); bucket <= last;) {
      cumulative += histogram.bucket(bucket++);
    }
    AppendSample(name + "_bucket", labels,
                 absl::StrCat("le=\"", InBaseUnit(bound, metric.unit), "\""),
                 absl::StrCat(cumulative), text);
  };
  const auto [first, last] = Octaves(metric.unit);
  for (int octave = first; octave <= last; ++octave) {
    append(uint64_t{1} << octave);
    if (octave > 0 && octave < last) append(uint64_t{3} << (octave - 1));
  }
  const std::string count = absl::StrCat(histogram.count());
  AppendSample(name + "_bucket", labels, "le=\"+Inf\"", count, text);
  AppendSample(name + "_sum", labels, "",
               InBaseUnit(histogram.sum(), metric.unit), text);
  AppendSample(name + "_count", labels, "", count, text);
}

const char* TypeName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

absl::StatusOr<std::string> MetricsText(
    absl::Span<const LabelledMetrics> things) {
  std::set<LabelSet> seen;
  std::vector<std::string> labels;
  for (const LabelledMetrics& thing : things) {
    INLAY_ASSIGN_OR_RETURN(LabelSet set, CheckLabels(thing.labels));
    labels.push_back(JoinLabels(thing.labels));
    if (!seen.insert(std::move(set)).second) {
      return absl::InvalidArgumentError(FormattedString(
          "two metrics have the labels {%s}, allowed: labels that tell them "
          "apart",
          labels.back()));
    }
  }
  std::string text;
  std::string_view family;
  for (const MetricInfo& metric : AllMetrics()) {
    const std::string name = FullName(metric);
    if (family != metric.family) {
      family = metric.family;
      absl::StrAppend(&text, "# HELP ", name, " ", Escaped(metric.help, false),
                      "\n# TYPE ", name, " ", TypeName(metric.kind), "\n");
    }
    const std::string own =
        metric.label == nullptr
            ? ""
            : absl::StrCat(metric.label, "=\"",
                           Escaped(metric.label_value, true), "\"");
    for (size_t i = 0; i < things.size(); ++i) {
      const EngineMetrics& metrics = *things[i].metrics;
      if (metric.histogram != nullptr) {
        AppendHistogram(name, metric, metrics.*metric.histogram, labels[i],
                        &text);
      } else {
        AppendSample(name, labels[i], own,
                     InBaseUnit(metrics.*metric.value, metric.unit), &text);
      }
    }
  }
  return text;
}

}  // namespace inlay::api
