#include "tests/core/engine_oom/failing_new.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>

namespace {

void* Take(size_t bytes, size_t alignment) noexcept {
  if (inlay::FailingNew::Fails()) return nullptr;
  bytes = bytes == 0 ? 1 : bytes;
  void* const ptr =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment,
                               (bytes + alignment - 1) / alignment * alignment);
  if (ptr != nullptr) {
    inlay::FailingNew::AddLive(static_cast<int64_t>(malloc_usable_size(ptr)));
  }
  return ptr;
}

void* TakeOrThrow(size_t bytes, size_t alignment) {
  void* const ptr = Take(bytes, alignment);
  if (ptr == nullptr) throw std::bad_alloc();
  return ptr;
}

void Give(void* ptr) noexcept {
  if (ptr == nullptr) return;
  inlay::FailingNew::AddLive(-static_cast<int64_t>(malloc_usable_size(ptr)));
  std::free(ptr);
}

}  // namespace

void* operator new(size_t n) { return TakeOrThrow(n, 1); }
void* operator new[](size_t n) { return TakeOrThrow(n, 1); }
void* operator new(size_t n, std::align_val_t a) {
  return TakeOrThrow(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a) {
  return TakeOrThrow(n, static_cast<size_t>(a));
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return Take(n, 1);
}
void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return Take(n, 1);
}
void* operator new(size_t n, std::align_val_t a,
                   const std::nothrow_t&) noexcept {
  return Take(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a,
                     const std::nothrow_t&) noexcept {
  return Take(n, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { Give(p); }
void operator delete[](void* p) noexcept { Give(p); }
void operator delete(void* p, size_t) noexcept { Give(p); }
void operator delete[](void* p, size_t) noexcept { Give(p); }
void operator delete(void* p, std::align_val_t) noexcept { Give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { Give(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { Give(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { Give(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { Give(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { Give(p); }
void operator delete(void* p, std::align_val_t,
                     const std::nothrow_t&) noexcept {
  Give(p);
}
void operator delete[](void* p, std::align_val_t,
                       const std::nothrow_t&) noexcept {
  Give(p);
}

namespace inlay {
namespace {

TEST(FailingNewTest, FailsWhatItWasToldTo) {
  FailingNew::Plan(2, 2);
  std::unique_ptr<int> first, fourth;
  bool second = false, third = false;
  {
    const FailingNew::Armed armed;
    first = std::make_unique<int>(1);
    try {
      auto lost = std::make_unique<std::string>(100, 'x');
    } catch (const std::bad_alloc&) {
      second = true;
    }
    third = new (std::nothrow) int == nullptr;
    std::thread([&] { fourth = std::make_unique<int>(4); }).join();
  }
  EXPECT_TRUE(second && third);
  EXPECT_EQ(*first + *fourth, 5);
  EXPECT_EQ(FailingNew::failed(), 2);
  EXPECT_EQ(FailingNew::seen(), 5);  // the thread took one for its state
  FailingNew::PlanNone();
}

// The libraries' allocations are counted too, shared ones included.
TEST(FailingNewTest, SeesWhatIsLive) {
  const int64_t before = FailingNew::live_bytes();
  auto text = std::make_unique<std::string>(1000, 'x');
  EXPECT_GE(FailingNew::live_bytes(), before + 1000);
  text->append(5000, 'y');
  EXPECT_GE(FailingNew::live_bytes(), before + 6000);
  text.reset();
  EXPECT_EQ(FailingNew::live_bytes(), before);
}

}  // namespace
}  // namespace inlay
