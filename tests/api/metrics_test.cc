// The engine's metrics as Prometheus text and as protobuf.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "api/src/metrics_proto.h"
#include "api/src/metrics_text.h"
#include "stats.pb.h"

namespace inlay::api {
namespace {

using ::testing::HasSubstr;

using Labels = std::map<std::string, std::string>;

struct Sample {
  std::string name;
  Labels labels;
  double value = 0;
};

struct Family {
  std::string name, type, help;
  std::vector<Sample> samples;
};

// A strict reader of the text format 0.0.4. Fails the test at the first byte
// that the grammar does not have.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<Family> Read() {
    std::vector<Family> families;
    std::set<std::string> names;
    while (!AtEnd() && !::testing::Test::HasFatalFailure()) {
      if (Take("# HELP ")) {
        Family family;
        family.name = Name();
        Expect(" ");
        family.help = Escaped('\n', "\\n");
        Expect("# TYPE ");
        EXPECT_EQ(Name(), family.name);
        Expect(" ");
        family.type = Name();
        Expect("\n");
        EXPECT_TRUE(names.insert(family.name).second) << family.name;
        families.push_back(family);
      } else if (families.empty()) {
        ADD_FAILURE() << "a sample before any TYPE";
        return families;
      } else {
        families.back().samples.push_back(ReadSample());
      }
    }
    return families;
  }

 private:
  bool AtEnd() const { return pos_ >= text_.size(); }
  bool Take(std::string_view what) {
    if (text_.substr(pos_, what.size()) != what) return false;
    pos_ += what.size();
    return true;
  }
  void Expect(std::string_view what) {
    if (Take(what)) return;
    ADD_FAILURE() << "expected " << what << " at " << text_.substr(pos_, 40);
    pos_ = text_.size();
  }
  std::string Name() {
    const size_t begin = pos_;
    while (!AtEnd() && (std::isalnum(static_cast<unsigned char>(text_[pos_])) ||
                        text_[pos_] == '_' || text_[pos_] == ':')) {
      ++pos_;
    }
    std::string name(text_.substr(begin, pos_ - begin));
    EXPECT_FALSE(name.empty()) << text_.substr(begin, 40);
    EXPECT_FALSE(std::isdigit(static_cast<unsigned char>(name.c_str()[0])));
    return name;
  }
  // Up to `end`; `escapes` are what may follow a backslash.
  std::string Escaped(char end, std::string_view escapes) {
    std::string value;
    while (!AtEnd() && text_[pos_] != end) {
      char c = text_[pos_++];
      EXPECT_NE(c, '\n');
      if (c == '\\') {
        c = AtEnd() ? '?' : text_[pos_++];
        EXPECT_NE(escapes.find(c), std::string_view::npos) << c;
        if (c == 'n') c = '\n';
      }
      value += c;
    }
    Expect(std::string_view(&end, 1));
    return value;
  }
  Sample ReadSample() {
    Sample sample;
    sample.name = Name();
    if (Take("{")) {
      do {
        const std::string label = Name();
        Expect("=\"");
        EXPECT_TRUE(sample.labels.emplace(label, Escaped('"', "\\\"n")).second);
      } while (Take(","));
      Expect("}");
    }
    Expect(" ");
    const size_t begin = pos_;
    while (!AtEnd() && text_[pos_] != '\n') ++pos_;
    const std::string number(text_.substr(begin, pos_ - begin));
    char* end = nullptr;
    sample.value = std::strtod(number.c_str(), &end);
    EXPECT_TRUE(!number.empty() && *end == '\0') << number;
    Expect("\n");
    return sample;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

// Of the family of that name, the sample with those labels.
std::optional<double> Find(const std::vector<Family>& families,
                           const std::string& family, const std::string& name,
                           const Labels& labels) {
  for (const Family& candidate : families) {
    if (candidate.name != family) continue;
    for (const Sample& sample : candidate.samples) {
      if (sample.name == name && sample.labels == labels) return sample.value;
    }
  }
  return std::nullopt;
}

EngineMetrics Numbered() {
  EngineMetrics metrics;
  uint64_t next = 1001;
  for (const MetricInfo& metric : AllMetrics()) {
    if (metric.histogram == nullptr) {
      metrics.*metric.value = next++;
      continue;
    }
    for (uint64_t value = 0; value < 20; ++value) {
      (metrics.*metric.histogram).Add(next << (2 * value) >> 10);
    }
    ++next;
  }
  return metrics;
}

std::string ExpectedName(const MetricInfo& metric) {
  std::string name = "inlay_" + std::string(metric.family);
  const size_t us = name.rfind("_us");
  if (metric.unit == MetricUnit::kMicroseconds) {
    name.replace(us, 3, "_seconds");
  }
  return name + (metric.kind == MetricKind::kCounter ? "_total" : "");
}

void CheckHistogram(const Family& family, const Labels& labels,
                    const Histogram& histogram, double unit) {
  double last_bound = -1, last_count = 0;
  int buckets = 0;
  bool has_infinity = false, has_sum = false, has_count = false;
  for (const Sample& sample : family.samples) {
    Labels rest = sample.labels;
    const bool is_bucket = rest.erase("le") > 0;
    if (rest != labels) continue;
    if (is_bucket) {
      EXPECT_EQ(sample.name, family.name + "_bucket");
      const std::string le = sample.labels.at("le");
      char* end = nullptr;
      const double bound = std::strtod(le.c_str(), &end);
      EXPECT_EQ(*end, '\0') << le;
      EXPECT_GT(bound, last_bound) << family.name;
      EXPECT_GE(sample.value, last_count) << family.name;
      last_bound = bound;
      last_count = sample.value;
      has_infinity = le == "+Inf";
      // What the histogram knows to be at most the bound.
      double expected = static_cast<double>(histogram.count());
      if (!has_infinity) {
        expected = 0;
        for (size_t i = 0; i < Histogram::kNumBuckets; ++i) {
          const auto high = static_cast<double>(Histogram::UpperBound(i));
          if (high <= std::round(bound / unit)) {
            expected += static_cast<double>(histogram.bucket(i));
          }
        }
      }
      EXPECT_EQ(sample.value, expected) << family.name << " " << le;
      ++buckets;
    } else if (sample.name == family.name + "_sum") {
      has_sum = true;
      EXPECT_DOUBLE_EQ(sample.value,
                       static_cast<double>(histogram.sum()) * unit);
    } else {
      EXPECT_EQ(sample.name, family.name + "_count");
      has_count = true;
      EXPECT_EQ(sample.value, static_cast<double>(histogram.count()));
    }
  }
  EXPECT_TRUE(has_infinity && has_sum && has_count) << family.name;
  EXPECT_GT(buckets, 30);
  EXPECT_LT(buckets, 60);
}

TEST(MetricsTextTest, IsWhatPrometheusReads) {
  const EngineMetrics metrics = Numbered();
  const auto text = MetricsText({{{&metrics, {}}}});
  ASSERT_TRUE(text.ok()) << text.status();
  const std::vector<Family> families = Reader(*text).Read();
  std::map<std::string, const Family*> by_name;
  for (const Family& family : families) by_name[family.name] = &family;
  std::set<std::string> expected;
  for (const MetricInfo& metric : AllMetrics()) {
    const std::string name = ExpectedName(metric);
    expected.insert(name);
    ASSERT_TRUE(by_name.contains(name)) << name;
    const Family& family = *by_name[name];
    const double unit = metric.unit == MetricUnit::kMicroseconds ? 1e-6 : 1;
    if (metric.histogram != nullptr) {
      EXPECT_EQ(family.type, "histogram");
      CheckHistogram(family, {}, metrics.*metric.histogram, unit);
      continue;
    }
    EXPECT_EQ(family.type,
              metric.kind == MetricKind::kCounter ? "counter" : "gauge");
    Labels labels;
    if (metric.label != nullptr) labels[metric.label] = metric.label_value;
    EXPECT_EQ(Find(families, name, name, labels),
              static_cast<double>(metrics.*metric.value))
        << name;
  }
  EXPECT_EQ(families.size(), expected.size());
}

TEST(MetricsTextTest, KnownLines) {
  EngineMetrics metrics;
  metrics.requests_failed = std::numeric_limits<uint64_t>::max();
  metrics.step_time_us.Add(1500000);
  metrics.step_time_us.Add(1);
  metrics.step_tokens.Add(512);
  const auto text = MetricsText({{{&metrics, {}}}});
  ASSERT_TRUE(text.ok());
  for (const char* line :
       {"\n# TYPE inlay_requests_finished_total counter\n",
        "\ninlay_requests_finished_total{reason=\"failed\"} "
        "18446744073709551615\n",
        "\n# TYPE inlay_step_time_seconds histogram\n",
        "\ninlay_step_time_seconds_bucket{le=\"0.000032\"} 1\n",
        "\ninlay_step_time_seconds_bucket{le=\"1.048576\"} 1\n",
        "\ninlay_step_time_seconds_bucket{le=\"1.572864\"} 2\n",
        "\ninlay_step_time_seconds_bucket{le=\"+Inf\"} 2\n",
        "\ninlay_step_time_seconds_sum 1.500001\n",
        "\ninlay_step_tokens_bucket{le=\"384\"} 0\n",
        "\ninlay_step_tokens_bucket{le=\"512\"} 1\n",
        "\n# TYPE inlay_memory_used_bytes gauge\n"}) {
    EXPECT_THAT(*text, HasSubstr(line));
  }
}

TEST(MetricsTextTest, ThingsAreToldApartByLabels) {
  const EngineMetrics a = Numbered();
  EngineMetrics b;
  b.preemptions_swap = 3;
  b.queue_time_us.Add(77);
  const std::string awkward = "a \"b\"\\c\nd {e},=\u00e9";
  const auto text = MetricsText(
      {{{&a, {{"model", awkward}, {"host", ""}}}, {&b, {{"model", "m"}}}}});
  ASSERT_TRUE(text.ok()) << text.status();
  const std::vector<Family> families = Reader(*text).Read();
  const std::string name = "inlay_preemptions_total";
  EXPECT_EQ(Find(families, name, name,
                 {{"model", awkward}, {"host", ""}, {"mode", "swap"}}),
            static_cast<double>(a.preemptions_swap));
  EXPECT_EQ(Find(families, name, name, {{"model", "m"}, {"mode", "swap"}}), 3);
  for (const Family& family : families) {
    if (family.name != "inlay_queue_time_seconds") continue;
    CheckHistogram(family, {{"model", awkward}, {"host", ""}}, a.queue_time_us,
                   1e-6);
    CheckHistogram(family, {{"model", "m"}}, b.queue_time_us, 1e-6);
  }
  EXPECT_TRUE(MetricsText({}).ok());
}

TEST(MetricsTextTest, RefusesLabelsThatMakeNoSense) {
  const EngineMetrics metrics;
  const auto refusal = [&](std::vector<MetricLabel> labels) {
    const auto text = MetricsText({{{&metrics, std::move(labels)}}});
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(text.status().message());
  };
  EXPECT_THAT(refusal({{"", "x"}}), HasSubstr("\"\""));
  EXPECT_THAT(refusal({{"1a", "x"}}), HasSubstr("1a"));
  EXPECT_THAT(refusal({{"a-b", "x"}}), HasSubstr("a-b"));
  EXPECT_THAT(refusal({{"a\nb", "x"}}), HasSubstr("a\nb"));
  EXPECT_THAT(refusal({{"\u00e9", "x"}}), HasSubstr("letters"));
  EXPECT_THAT(refusal({{"le", "x"}}), HasSubstr("reserved"));
  EXPECT_THAT(refusal({{"reason", "x"}}), HasSubstr("reserved"));
  EXPECT_THAT(refusal({{"__name__", "x"}}), HasSubstr("reserved"));
  EXPECT_THAT(refusal({{"a", "\xff"}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal({{"a", "x"}, {"a", "y"}}), HasSubstr("twice"));
  const auto same = MetricsText({{{&metrics, {{"a", "x"}, {"b", "y"}}},
                                  {&metrics, {{"b", "y"}, {"a", "x"}}}}});
  EXPECT_EQ(same.status().code(), absl::StatusCode::kInvalidArgument);
}

void ExpectSame(uint64_t ours, uint64_t theirs, const char* field) {
  EXPECT_EQ(ours, theirs) << field;
}

void ExpectSame(const Histogram& ours, const stats::Histogram& theirs,
                const char* field) {
  EXPECT_EQ(ours.count(), theirs.count()) << field;
  EXPECT_EQ(ours.sum(), theirs.sum()) << field;
  EXPECT_EQ(ours.min(), theirs.min()) << field;
  EXPECT_EQ(ours.max(), theirs.max()) << field;
  uint64_t last = 0, count = 0;
  for (const stats::Bucket& bucket : theirs.buckets()) {
    EXPECT_GE(bucket.low(), last) << field;
    EXPECT_GT(bucket.high(), bucket.low()) << field;
    EXPECT_GT(bucket.count(), 0u) << field;
    const size_t i = Histogram::BucketOf(bucket.high());
    EXPECT_EQ(bucket.count(), ours.bucket(i)) << field;
    EXPECT_EQ(bucket.low(), Histogram::LowerBound(i)) << field;
    last = bucket.high();
    count += bucket.count();
  }
  EXPECT_EQ(count, ours.count()) << field;
}

TEST(MetricsProtoTest, HasEveryMetric) {
  EngineMetrics metrics = Numbered();
  metrics.step_time_us.Add(std::numeric_limits<uint64_t>::max());
  metrics.step_time_us.Add(0);
  stats::EngineStats parsed;
  ASSERT_TRUE(parsed.ParseFromString(MetricsProto(metrics)));
#define INLAY_METRIC(kind, field, unit, help) \
  ExpectSame(metrics.field, parsed.field(), #field);
#include "core/engine/metrics.def"
}

TEST(MetricsProtoTest, NothingCountedIsSmall) {
  EXPECT_LT(MetricsProto(EngineMetrics()).size(), 64u);
}

}  // namespace
}  // namespace inlay::api
