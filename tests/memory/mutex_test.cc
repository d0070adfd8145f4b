// The mutex that long work shares with others.
#include "memory/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace inlay {
namespace {

TEST(MutexTest, WhoWaitsIsLetInBetweenPieces) {
  Mutex mutex;
  std::atomic<bool> had_it{false};
  mutex.Lock();
  std::thread other([&] {
    MutexLock lock(&mutex);
    had_it = true;
  });
  // It has yet to start, and under load the system may not run it for a while.
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!had_it && std::chrono::steady_clock::now() < deadline) {
    mutex.LetOthersIn();
    std::this_thread::yield();
  }
  EXPECT_TRUE(had_it);
  mutex.Unlock();
  other.join();
}

// Nobody waits: it is held on.
TEST(MutexTest, LettingNobodyInKeepsIt) {
  Mutex mutex;
  mutex.Lock();
  mutex.LetOthersIn();
  std::thread other([&] { EXPECT_FALSE(mutex.TryLock()); });
  other.join();
  mutex.Unlock();
}

}  // namespace
}  // namespace inlay
