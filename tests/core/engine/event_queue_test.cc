#include "core/engine/event_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

namespace inlay {
namespace {

Event TokensEvent(RequestId request, std::vector<int32_t> tokens) {
  Event event;
  event.request = request;
  event.tokens = std::move(tokens);
  return event;
}

Event Finished(RequestId request) {
  Event event;
  event.kind = EventKind::kFinished;
  event.request = request;
  return event;
}

bool Readable(int descriptor) {
  pollfd poll_descriptor = {descriptor, POLLIN, 0};
  return poll(&poll_descriptor, 1, 0) == 1;
}

TEST(EventQueueTest, JoinsTokensNobodyTookYet) {
  EventQueue queue;
  queue.Open(1);
  queue.Push(TokensEvent(1, {5}));
  queue.Push(TokensEvent(1, {6, 7}));
  const auto event = queue.Next(0);
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(event->tokens, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(queue.Next(0).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EventQueueTest, EachEventIsHandedOutOnce) {
  EventQueue queue;
  queue.Open(1);
  queue.Open(2);
  queue.Push(TokensEvent(1, {1}));
  queue.Push(TokensEvent(2, {2}));
  queue.Push(Finished(1));
  EXPECT_EQ(queue.NextOf(2, 0)->tokens, std::vector<int32_t>{2});
  EXPECT_EQ(queue.Next(0)->tokens, std::vector<int32_t>{1});
  EXPECT_EQ(queue.NextOf(1, 0)->kind, EventKind::kFinished);
  EXPECT_EQ(queue.NextOf(1, 0).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(queue.NextOf(2, 0).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(queue.NextOf(3, 0).status().code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(EventQueueTest, DropForgetsTheRest) {
  EventQueue queue;
  queue.Open(1);
  queue.Push(TokensEvent(1, {1}));
  queue.Drop(1);
  queue.Push(TokensEvent(1, {2}));
  EXPECT_EQ(queue.Next(0).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(EventQueueTest, DescriptorFollowsTheQueue) {
  EventQueue queue;
  queue.Open(1);
  queue.Push(TokensEvent(1, {1}));
  const int descriptor = *queue.Descriptor();
  EXPECT_TRUE(Readable(descriptor));
  ASSERT_TRUE(queue.Next(0).ok());
  EXPECT_FALSE(Readable(descriptor));
  queue.Push(TokensEvent(1, {2}));
  EXPECT_TRUE(Readable(descriptor));
  queue.Drop(1);
  EXPECT_FALSE(Readable(descriptor));
}

TEST(EventQueueTest, WaitersWakeForEventDropAndClose) {
  EventQueue queue;
  constexpr int kRequests = 8;
  for (int i = 1; i <= kRequests; ++i) queue.Open(static_cast<RequestId>(i));
  std::atomic<int> got{0}, dropped{0}, closed{0};
  std::vector<std::thread> waiters;
  for (int i = 1; i <= kRequests; ++i) {
    waiters.emplace_back([&, i] {
      const auto event = queue.NextOf(static_cast<RequestId>(i), UINT64_MAX);
      if (event.ok()) ++got;
      if (event.status().code() == absl::StatusCode::kUnauthenticated)
        ++dropped;
      if (event.status().code() == absl::StatusCode::kUnavailable) ++closed;
    });
  }
  for (int i = 1; i <= 3; ++i)
    queue.Push(TokensEvent(static_cast<RequestId>(i), {i}));
  for (int i = 4; i <= 6; ++i) queue.Drop(static_cast<RequestId>(i));
  waiters[0].join();
  queue.Close();
  for (size_t i = 1; i < waiters.size(); ++i) waiters[i].join();
  EXPECT_EQ(got, 3);
  EXPECT_EQ(got + dropped + closed, kRequests);
  EXPECT_GE(closed, 2);
}

}  // namespace
}  // namespace inlay
