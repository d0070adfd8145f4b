#include "core/engine/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

namespace inlay {
namespace {

using absl::StatusCode;

TEST(TraceRecorderTest, OffUntilStarted) {
  TraceRecorder trace;
  EXPECT_FALSE(trace.on());
  trace.Step(1, {});
  trace.FirstToken(1, 2);
  EXPECT_EQ(trace.Take().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(trace.Stop().status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(trace.Start(4).ok());
  EXPECT_TRUE(trace.on());
  const auto log = trace.Stop();
  ASSERT_TRUE(log.ok());
  EXPECT_TRUE(log->events.empty());
  EXPECT_EQ(log->num_lost, 0u);
  EXPECT_LE(log->begin, log->end);
  EXPECT_FALSE(trace.on());
}

TEST(TraceRecorderTest, RefusesSizesAndSecondStarts) {
  TraceRecorder trace;
  for (const size_t size :
       {size_t{0}, TraceRecorder::kMaxEvents + 1, static_cast<size_t>(-1)}) {
    const absl::Status status = trace.Start(size);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("1 to 1048576"), std::string::npos)
        << status.message();
    EXPECT_FALSE(trace.on());
  }
  ASSERT_TRUE(trace.Start(1).ok());
  EXPECT_EQ(trace.Start(1).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(trace.Stop().ok());
  EXPECT_TRUE(trace.Start(TraceRecorder::kMaxEvents).ok());
}

TEST(TraceRecorderTest, RecordsEveryType) {
  TraceRecorder trace;
  ASSERT_TRUE(trace.Start(100).ok());
  const SteadyTime before = Now();
  trace.Submitted(3, 10, 200);
  trace.PrefixHit(3, 10, 64, 200);
  trace.Started(3, 10, 60);
  trace.FirstToken(3, 10);
  trace.Preempted(3, 10);
  trace.Resumed(3, 10);
  trace.Finished(3, 10, FinishReason::kLength, 7);
  trace.Gauges(
      3,
      {.running = 1, .waiting = 2, .kv_used = 3, .kv_free = 4, .kv_cached = 5});
  trace.Evicted(3, 6);
  trace.Memory(1000, 900);
  const auto log = trace.Stop();
  ASSERT_TRUE(log.ok());
  const auto is = [&](size_t i, TraceEventType type, uint32_t model,
                      uint64_t id, std::vector<int64_t> values) {
    const TraceEvent& event = log->events.at(i);
    values.resize(TraceEvent::kNumValues);
    EXPECT_EQ(event.type, type) << i;
    EXPECT_EQ(event.model, model) << i;
    EXPECT_EQ(event.id, id) << i;
    EXPECT_EQ(std::vector<int64_t>(event.values.begin(), event.values.end()),
              values)
        << i;
    EXPECT_GE(event.time, before);
    EXPECT_LE(event.time, log->end);
  };
  ASSERT_EQ(log->events.size(), 10u);
  is(0, TraceEventType::kSubmitted, 3, 10, {200});
  is(1, TraceEventType::kPrefixHit, 3, 10, {64, 200});
  is(2, TraceEventType::kStarted, 3, 10, {60});
  is(3, TraceEventType::kFirstToken, 3, 10, {});
  is(4, TraceEventType::kPreempted, 3, 10, {});
  is(5, TraceEventType::kResumed, 3, 10, {});
  is(6, TraceEventType::kFinished, 3, 10,
     {static_cast<int64_t>(FinishReason::kLength), 7});
  is(7, TraceEventType::kGauges, 3, 0, {1, 2, 3, 4, 5});
  is(8, TraceEventType::kEvicted, 3, 0, {6});
  is(9, TraceEventType::kMemory, 0, 0, {1000, 900});
}

TEST(TraceRecorderTest, StepsKeepTheirPhases) {
  using std::chrono::microseconds;
  TraceRecorder trace;
  ASSERT_TRUE(trace.Start(1).ok());
  const SteadyTime begin = Now();
  TraceStep step;
  step.step = 5;
  step.begin = begin;
  step.phase_ends[0] = begin + microseconds(3);
  step.phase_ends[1] = begin + microseconds(4);
  step.phase_ends[2] = begin + microseconds(104);
  // Failed there: the last three were never set.
  step.prefill_tokens = 30;
  step.decode_tokens = 8;
  step.requests = 9;
  step.predicted_us = 90;
  step.budget_us = 100;
  trace.Step(2, step);
  const auto log = trace.Stop();
  ASSERT_TRUE(log.ok());
  ASSERT_EQ(log->events.size(), 1u);
  const TraceEvent& event = log->events[0];
  EXPECT_EQ(event.time, begin);
  EXPECT_EQ(event.id, 5u);
  EXPECT_EQ(event.model, 2u);
  EXPECT_EQ(event.values, (decltype(event.values){3000, 1000, 100000, 0, 0, 0,
                                                  30, 8, 9, 90, 100}));
}

TEST(TraceRecorderTest, KeepsTheNewestAndCountsTheRest) {
  for (const uint64_t size : {1, 2, 3, 7, 64}) {
    for (const uint64_t count : {0, 1, 2, 6, 7, 8, 63, 64, 65, 200}) {
      TraceRecorder trace;
      ASSERT_TRUE(trace.Start(size).ok());
      for (uint64_t id = 0; id < count; ++id) trace.FirstToken(0, id);
      const auto log = trace.Take();
      ASSERT_TRUE(log.ok());
      const uint64_t kept = std::min(size, count);
      EXPECT_EQ(log->num_lost, count - kept);
      ASSERT_EQ(log->events.size(), kept);
      for (uint64_t i = 0; i < kept; ++i) {
        EXPECT_EQ(log->events[i].id, count - kept + i);
      }
      // The next log is a new one of the same size.
      for (uint64_t id = 0; id < size + 1; ++id) trace.FirstToken(0, id);
      const auto next = trace.Stop();
      ASSERT_TRUE(next.ok());
      EXPECT_EQ(next->begin, log->end);
      EXPECT_EQ(next->num_lost, 1u);
      ASSERT_EQ(next->events.size(), size);
      EXPECT_EQ(next->events.back().id, size);
    }
  }
}

TEST(TraceRecorderTest, WhatIsPutBackWasNeverTaken) {
  for (const bool stops : {false, true}) {
    for (const uint64_t size : {1, 2, 7, 64}) {
      for (const uint64_t before : {0, 1, 6, 7, 8, 65}) {
        for (const uint64_t after : {0, 1, 6, 7, 8, 65}) {
          if (stops && after > 0) continue;
          SCOPED_TRACE(::testing::Message()
                       << size << " of " << before << " and " << after);
          TraceRecorder trace;
          ASSERT_TRUE(trace.Start(size).ok());
          uint64_t id = 0;
          while (id < before) trace.FirstToken(0, id++);
          auto taken = stops ? trace.Stop() : trace.Take();
          ASSERT_TRUE(taken.ok());
          const SteadyTime begin = taken->begin;
          while (id < before + after) trace.FirstToken(0, id++);
          trace.PutBack(*std::move(taken));
          ASSERT_TRUE(trace.on());
          trace.FirstToken(0, id++);
          const auto log = trace.Stop();
          ASSERT_TRUE(log.ok());
          EXPECT_EQ(log->begin, begin);
          const uint64_t kept = std::min(size, id);
          EXPECT_EQ(log->num_lost, id - kept);
          ASSERT_EQ(log->events.size(), kept);
          for (uint64_t i = 0; i < kept; ++i) {
            EXPECT_EQ(log->events[i].id, id - kept + i);
          }
        }
      }
    }
  }
  // Another trace is not disturbed.
  TraceRecorder trace;
  ASSERT_TRUE(trace.Start(4).ok());
  trace.FirstToken(0, 1);
  auto taken = trace.Stop();
  ASSERT_TRUE(taken.ok());
  ASSERT_TRUE(trace.Start(3).ok());
  trace.PutBack(*std::move(taken));
  const auto log = trace.Stop();
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->events.size(), 0u);
}

// Writers never wait for a reader's work, and nothing is lost, doubled or torn
// between the logs.
TEST(TraceRecorderTest, ManyThreadsAndAReader) {
  constexpr uint32_t kThreads = 4;
  constexpr uint64_t kEach = 5000;
  TraceRecorder trace;
  ASSERT_TRUE(trace.Start(512).ok());
  std::atomic<uint32_t> running{kThreads};
  std::vector<std::thread> threads;
  for (uint32_t model = 0; model < kThreads; ++model) {
    threads.emplace_back([&, model] {
      for (uint64_t id = 1; id <= kEach; ++id) {
        trace.PrefixHit(model, id, static_cast<int64_t>(id) * 3, -7);
      }
      running.fetch_sub(1);
    });
  }
  uint64_t seen = 0;
  std::map<uint32_t, uint64_t> last;
  const auto check = [&](const TraceLog& log) {
    seen += log.num_lost + log.events.size();
    for (const TraceEvent& event : log.events) {
      ASSERT_EQ(event.values[0], static_cast<int64_t>(event.id) * 3);
      ASSERT_EQ(event.values[1], -7);
      ASSERT_GT(event.id, last[event.model]);
      last[event.model] = event.id;
    }
  };
  while (running.load() > 0) {
    const auto log = trace.Take();
    ASSERT_TRUE(log.ok());
    check(*log);
  }
  for (std::thread& thread : threads) thread.join();
  const auto log = trace.Stop();
  ASSERT_TRUE(log.ok());
  check(*log);
  EXPECT_EQ(seen, kThreads * kEach);
}

// Starts, stops and recording at the same time.
TEST(TraceRecorderTest, SwitchedWhileRecording) {
  TraceRecorder trace;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t id = 0; !done.load(); ++id) trace.FirstToken(1, id);
  });
  std::thread rival([&] {
    while (!done.load()) trace.Take().status().IgnoreError();
  });
  for (size_t i = 1; i <= 300; ++i) {
    ASSERT_TRUE(trace.Start(i).ok());
    const auto log = trace.Stop();
    ASSERT_TRUE(log.ok());
    ASSERT_LE(log->events.size(), i);
  }
  done = true;
  writer.join();
  rival.join();
}

}  // namespace
}  // namespace inlay
