// Metrics and traces as a host gets them: what ran is in them. Their formats
// are metrics_test.cc's and trace_test.cc's.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "stats.pb.h"
#include "tests/api/host.h"
#include "trace.pb.h"

namespace inlay::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string TakeBytes(inlay_buffer* buffer) {
  std::string bytes(inlay_buffer_data(buffer), inlay_buffer_size(buffer));
  inlay_buffer_release(buffer);
  return bytes;
}

std::string Metrics(const Host& host, int32_t format) {
  Error error;
  inlay_buffer* buffer = nullptr;
  EXPECT_EQ(inlay_engine_metrics(host.engine, format, &buffer, error.out()),
            INLAY_OK)
      << error.message();
  return TakeBytes(buffer);
}

// Sample name with labels -> value.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

TEST(Metrics, TellWhatRan) {
  Host host(TinyModel());
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 3; ++i) host.RunAlone(TokensRequest(prompt, 4));
  inlay_session* session = host.NewSession();
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 90));
  host.Step();
  inlay_request_cancel(request, nullptr);
  host.Finish(request);
  auto late = TokensRequest(prompt, 90);
  late.deadline_us = 1;
  EXPECT_EQ(host.Run(session, late).finish.status, INLAY_TIMEOUT);

  const std::string text = Metrics(host, INLAY_METRICS_PROMETHEUS);
  const auto samples = Samples(text);
  const auto stats = host.Stats();
  const auto expect = [&](const std::string& name, double value) {
    const auto found = samples.find(name);
    ASSERT_NE(found, samples.end()) << name << " in\n" << text;
    EXPECT_NEAR(found->second, value, 1e-6 * std::fabs(value)) << name;
  };
  expect("inlay_requests_submitted_total", 5);
  expect("inlay_requests_finished_total{reason=\"length\"}", 3);
  expect("inlay_requests_finished_total{reason=\"cancelled\"}", 1);
  expect("inlay_requests_finished_total{reason=\"deadline\"}", 1);
  expect("inlay_requests_finished_total{reason=\"failed\"}", 0);
  expect("inlay_sessions", 1);
  expect("inlay_models", 1);
  expect("inlay_memory_peak_bytes",
         static_cast<double>(stats.memory_peak_bytes));
  expect("inlay_step_time_seconds_count", static_cast<double>(stats.steps));
  expect("inlay_step_time_seconds_sum",
         static_cast<double>(stats.step_us) / 1e6);
  expect("inlay_prefix_hit_tokens_total",
         static_cast<double>(stats.hit_tokens));

  inlay::stats::EngineStats proto;
  ASSERT_TRUE(proto.ParseFromString(Metrics(host, INLAY_METRICS_PROTOBUF)));
  EXPECT_EQ(proto.requests_submitted(), 5u);
  EXPECT_EQ(proto.requests_length(), 3u);
  EXPECT_EQ(proto.requests_deadline(), 1u);
  EXPECT_EQ(proto.memory_peak_bytes(), stats.memory_peak_bytes);
  EXPECT_EQ(proto.step_time_us().sum(), stats.step_us);
  inlay_session_release(session);
}

TEST(Metrics, Misuse) {
  Host host(TinyModel());
  for (const int32_t format : {-1, 2}) {
    Error error;
    auto* buffer = reinterpret_cast<inlay_buffer*>(1);
    EXPECT_EQ(inlay_engine_metrics(host.engine, format, &buffer, error.out()),
              INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("format"), HasSubstr(std::to_string(format))));
    EXPECT_EQ(buffer, nullptr);
  }
}

class Traces : public ::testing::Test {
 protected:
  inlay_status Start(size_t events) {
    return inlay_engine_trace_start(host_.engine, events, error_.out());
  }
  // The names of the trace's slices and instants; empty: there is no trace.
  std::set<std::string> Take(int32_t stop) {
    inlay_buffer* buffer = nullptr;
    if (inlay_engine_trace_take(host_.engine, stop, &buffer, error_.out()) !=
        INLAY_OK) {
      EXPECT_EQ(buffer, nullptr);
      return {};
    }
    inlay::trace::Trace trace;
    EXPECT_TRUE(trace.ParseFromString(TakeBytes(buffer)));
    EXPECT_TRUE(trace.unknown_fields().empty());
    std::set<std::string> names = {"a trace"};
    for (const auto& packet : trace.packet()) {
      if (packet.has_track_event()) names.insert(packet.track_event().name());
    }
    return names;
  }

  Host host_;
  Error error_;
  const std::vector<int32_t> prompt_ = {1, 2, 3, 4, 5, 6};
};

TEST_F(Traces, TellWhatRan) {
  host_.RunAlone(TokensRequest(prompt_, 2));
  ASSERT_EQ(Start(10'000), INLAY_OK) << error_.message();
  EXPECT_EQ(Start(10'000), INLAY_INVALID_STATE);
  host_.RunAlone(TokensRequest(prompt_, 4));
  const auto names = Take(0);
  EXPECT_GT(names.size(), 4u);
  EXPECT_THAT(names, Contains(HasSubstr("step")));
  EXPECT_THAT(names, Contains(HasSubstr("forward")));
  EXPECT_EQ(Take(0).count("a trace"), 1u) << "nothing since, but a trace";
  host_.RunAlone(TokensRequest(prompt_, 4));
  EXPECT_GT(Take(1).size(), 4u);
  EXPECT_TRUE(Take(0).empty());
  EXPECT_EQ(error_.status(), INLAY_INVALID_STATE);
  EXPECT_TRUE(Take(1).empty());
  // And again, in a ring much too small.
  ASSERT_EQ(Start(3), INLAY_OK) << error_.message();
  host_.RunAlone(TokensRequest(prompt_, 9));
  EXPECT_FALSE(Take(1).empty());
}

TEST_F(Traces, Misuse) {
  for (const size_t events : {size_t{0}, size_t{1048577}, SIZE_MAX}) {
    EXPECT_EQ(Start(events), INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error_.message(), HasSubstr("1048576"));
  }
  ASSERT_EQ(Start(1), INLAY_OK);
  for (const int32_t stop : {-1, 2}) {
    EXPECT_TRUE(Take(stop).empty());
    EXPECT_EQ(error_.status(), INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error_.message(), HasSubstr("stop"));
  }
  EXPECT_FALSE(Take(1).empty());
  EXPECT_TRUE(Take(1).empty());
}

}  // namespace
}  // namespace inlay::testing
