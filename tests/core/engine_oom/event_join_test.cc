// Events of tokens that join one that waits: wholly or, when memory runs out
// at any of what it takes, not at all.
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "core/engine/event_queue.h"
#include "tests/core/engine_oom/failing_new.h"

namespace inlay {
namespace {

Event TokensOf(size_t count) {
  Event event;
  event.request = 1;
  event.tokens.assign(count, 7);
  event.text = std::string(3 * count, 't');
  event.bytes = std::string(3 * count, 'b');
  event.logprobs.resize(2 * count);
  return event;
}

TEST(EventJoinTest, WhollyOrNotAtAll) {
  constexpr size_t kFirst = 100;
  constexpr size_t kSecond = 1000;
  bool failed = true;
  for (int64_t at = 1; failed; ++at) {
    ASSERT_LT(at, 100);
    EventQueue queue;
    queue.Open(1);
    queue.Push(TokensOf(kFirst));
    Event second = TokensOf(kSecond);
    failed = false;
    FailingNew::Plan(at, 1);
    {
      const FailingNew::Armed armed;
      try {
        queue.Push(std::move(second));
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    }
    FailingNew::PlanNone();
    const auto event = queue.Next(0);
    ASSERT_TRUE(event.ok());
    const size_t tokens = failed ? kFirst : kFirst + kSecond;
    EXPECT_EQ(event->tokens.size(), tokens) << at;
    EXPECT_EQ(event->text.size(), 3 * tokens) << at;
    EXPECT_EQ(event->bytes.size(), 3 * tokens) << at;
    EXPECT_EQ(event->logprobs.size(), 2 * tokens) << at;
  }
}

// Who reads late finds one event: that must not be copied for every token.
TEST(EventJoinTest, RoomGrowsByDoubling) {
  constexpr size_t kTokens = 4096;
  EventQueue queue;
  queue.Open(1);
  queue.Push(TokensOf(1));
  FailingNew::PlanNone();
  int64_t allocations = 0;
  for (size_t i = 1; i < kTokens; ++i) {
    Event next = TokensOf(1);
    FailingNew::PlanNone();
    const FailingNew::Armed armed;
    queue.Push(std::move(next));
    allocations += FailingNew::seen();
  }
  const auto event = queue.Next(0);
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(event->tokens.size(), kTokens);
  // Four lists, each of which grows 12 times from one token's to 4096 tokens'.
  EXPECT_LE(allocations, 4 * 12);
}

}  // namespace
}  // namespace inlay
