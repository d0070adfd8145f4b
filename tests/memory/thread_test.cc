#include "memory/device/thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// Touches `bytes` of the stack.
void UseStack(size_t bytes) {
  volatile char page[4096];
  for (size_t i = 0; i < sizeof(page); i += 512) page[i] = 1;
  if (bytes > 2 * sizeof(page)) UseStack(bytes - sizeof(page));
  page[0] = page[512];
}

// What the process gives threads by default, for the length of a scope.
class SmallStacks {
 public:
  SmallStacks() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, size_t{128} << 10);
    EXPECT_EQ(pthread_setattr_default_np(&small), 0);
    pthread_attr_destroy(&small);
  }
  ~SmallStacks() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  SmallStacks(const SmallStacks&) = delete;
  SmallStacks& operator=(const SmallStacks&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(ThreadTest, HasStackForKernels) {
  constexpr size_t kKernels = size_t{1} << 20;
  const SmallStacks small;
  bool ran = false;
  auto thread = Thread::Start([&] {
    UseStack(kKernels);
    ran = true;
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  EXPECT_TRUE(thread->joinable());
  Thread moved = *std::move(thread);
  EXPECT_FALSE(thread->joinable());
  moved.Join();
  EXPECT_FALSE(moved.joinable());
  EXPECT_TRUE(ran);

  auto pool = *ThreadPool::Create(3);
  std::vector<int> used(3);
  // The caller's own stack is the process's.
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 50; ++i) {
    pool->ParallelFor(3, 1, [&](int64_t begin, int64_t end) {
      if (std::this_thread::get_id() != caller) UseStack(kKernels);
      for (int64_t at = begin; at < end; ++at) ++used[static_cast<size_t>(at)];
    });
  }
  EXPECT_EQ(used, std::vector<int>(3, 50));
}

TEST(ThreadTest, GetsNoSignals) {
  sigset_t before, inside, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  auto thread =
      Thread::Start([&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->Join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF,
                           SIGXFSZ, SIGPIPE}) {
    EXPECT_EQ(sigismember(&inside, signal), 1) << signal;
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal));
  }
}

char* guarded_page = nullptr;
constexpr size_t kGuardedBytes = 4096;

void OpenPage(int /*signal*/, siginfo_t* fault, void* /*context*/) {
  if (fault->si_addr != guarded_page) _exit(3);
  mprotect(guarded_page, kGuardedBytes, PROT_READ | PROT_WRITE);
}

// What runs there may be a host's callback, and the host may have a handler for
// its faults (garbage collectors do). Were the signal blocked, the system would
// end the process.
TEST(ThreadTest, FaultsReachTheirHandlers) {
  void* page = mmap(nullptr, kGuardedBytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  guarded_page = static_cast<char*>(page);
  struct sigaction handler = {}, before;
  handler.sa_sigaction = OpenPage;
  handler.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &handler, &before), 0);
  auto thread =
      Thread::Start([] { *static_cast<volatile char*>(guarded_page) = 7; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->Join();
  EXPECT_EQ(*guarded_page, 7);
  sigaction(SIGSEGV, &before, nullptr);
  munmap(page, kGuardedBytes);
}

}  // namespace
}  // namespace inlay
