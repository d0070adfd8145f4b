// fork() of a host with a live engine: the child has none of its threads, and
// must neither wait for them nor die of it.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kNoThreadsInChildren = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kNoThreadsInChildren = true;
#else
constexpr bool kNoThreadsInChildren = false;
#endif
#else
constexpr bool kNoThreadsInChildren = false;
#endif

// What `body` returns in a child process; -1 where that ends otherwise.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, ChildrenHaveNoneOfTheirParentsHandles) {
  for (const int32_t drive : {INLAY_DRIVE_HOST, INLAY_DRIVE_THREAD}) {
    auto options = EngineDefaults();
    options.drive = drive;
    options.num_threads = 3;
    Host host(TinyModel(), options);
    const std::vector<int32_t> prompt = {1, 2, 3};
    inlay_session* session = host.NewSession();
    inlay_request* request = host.Submit(session, TokensRequest(prompt, 200));
    if (drive == INLAY_DRIVE_HOST) host.Step();
    const auto in_child = [&] {
      Error error;
      auto stats = Defaults(inlay_stats_init_sized);
      inlay_session* fork = nullptr;
      inlay_event* event = nullptr;
      const inlay_status statuses[] = {
          inlay_engine_stats(host.engine, &stats, error.out()),
          inlay_engine_step(host.engine, 0, nullptr, error.out()),
          inlay_event_next(host.engine, UINT64_MAX, &event, error.out()),
          inlay_session_fork(session, &fork, error.out()),
          inlay_session_create(host.model, &fork, error.out()),
          inlay_request_cancel(request, error.out())};
      int others = 0;
      for (const inlay_status status : statuses) {
        others += status == INLAY_INVALID_HANDLE ? 0 : 1;
      }
      inlay_request_release(request);
      inlay_engine_release(host.engine);
      inlay_session_release(session);
      inlay_model_release(host.model);
      return others + (error.message().empty() ? 100 : 0);
    };
    EXPECT_EQ(InChild(in_child), 0);
    EXPECT_EQ(host.Finish(request).tokens.size(), 200u);
    inlay_session_release(session);
    host.ExpectWorks();
  }
}

TEST(Fork, ChildrenMakeEnginesOfTheirOwn) {
  if (kNoThreadsInChildren) GTEST_SKIP() << "ThreadSanitizer refuses threads";
  Host host;
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto expected = host.RunAlone(TokensRequest(prompt, 8)).tokens;
  for (const int32_t drive : {INLAY_DRIVE_HOST, INLAY_DRIVE_THREAD}) {
    const auto in_child = [&] {
      auto options = EngineDefaults();
      options.drive = drive;
      Host own(TinyModel(), options);
      return own.RunAlone(TokensRequest(prompt, 8)).tokens == expected ? 0 : 1;
    };
    EXPECT_EQ(InChild(in_child), 0);
  }
  host.ExpectWorks();
}

}  // namespace
}  // namespace inlay::testing
