// Many threads on one engine: requests, every call that does not step, and
// handles that go away under them.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

TEST(Threads, SixtyFourSessionsFromEightThreads) {
  auto options = EngineDefaults();
  options.drive = INLAY_DRIVE_THREAD;
  Host host(TinyModel(), options);
  const auto prompt_of = [](int i) {
    return std::vector<int32_t>{1, 10 + i, 100 + 3 * i, 7};
  };
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 64; ++i) {
    const auto prompt = prompt_of(i);
    expected.push_back(host.RunAlone(TokensRequest(prompt, 12)).tokens);
  }
  std::vector<std::vector<int32_t>> got(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<inlay_session*> sessions;
      std::vector<inlay_request*> requests;
      for (int i = t * 8; i < t * 8 + 8; ++i) {
        const auto prompt = prompt_of(i);
        sessions.push_back(host.NewSession());
        requests.push_back(
            host.Submit(sessions.back(), TokensRequest(prompt, 12)));
      }
      for (int i = 0; i < 8; ++i) {
        got[static_cast<size_t>(t * 8 + i)] = host.Finish(requests[i]).tokens;
        inlay_session_release(sessions[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
  const auto stats = host.Stats();
  EXPECT_EQ(stats.submitted_requests, 128u);
  EXPECT_EQ(stats.finished_requests, 128u);
  EXPECT_EQ(stats.num_sessions, 0u);
  EXPECT_EQ(stats.kv_blocks_used, 0u);
}

// Everything that does not step, from other threads while one steps.
void CheckCallsWhileStepping(int32_t drive) {
  auto options = EngineDefaults();
  options.drive = drive;
  auto model_options = ModelDefaults();
  model_options.kv_block_size = 8;
  model_options.kv_budget_bytes = 96 * 8 * 1024;
  Host host(TinyModel(), options, model_options);
  const std::vector<int32_t> shared = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const auto asked = TokensRequest(shared, 12);
  inlay_session* base = host.NewSession();
  const auto expected = host.Run(base, asked).tokens;
  ASSERT_EQ(inlay_session_rewind(base, shared.size() + 3, nullptr), INLAY_OK);
  const uint64_t floor =
      host.Stats().weight_bytes + host.Stats().workspace_bytes;
  constexpr int kRounds = 40;
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  const auto check = [&](bool ok) {
    if (!ok) ++bad;
  };
  std::vector<std::thread> threads;
  if (drive == INLAY_DRIVE_HOST) {
    threads.emplace_back([&] {
      while (!stop) {
        inlay_engine_step(host.engine, 0, nullptr, nullptr);
        std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> callers;
  // Requests on forks of what others save and quote.
  for (int t = 0; t < 2; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        inlay_session* fork = nullptr;
        inlay_request* request = nullptr;
        check(inlay_session_fork(base, &fork, nullptr) == INLAY_OK);
        const auto rest = TokensRequest({}, 9);
        check(inlay_session_submit(fork, &rest, &request, nullptr) == INLAY_OK);
        std::vector<int32_t> tokens(expected.begin(), expected.begin() + 3);
        inlay_event* event = nullptr;
        while (inlay_request_next_event(request, 60'000'000, &event, nullptr) ==
               INLAY_OK) {
          auto info = Defaults(inlay_event_info_init_sized);
          inlay_event_get_info(event, &info, nullptr);
          tokens.insert(tokens.end(), info.tokens,
                        info.tokens + info.num_tokens);
          inlay_event_release(event);
        }
        check(tokens == expected);
        inlay_request_release(request);
        inlay_session_release(fork);
      }
    });
  }
  callers.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      check(inlay_engine_set_memory_budget(
                host.engine, 0,
                floor + static_cast<uint64_t>(24 + 24 * (i % 4)) * 8 * 1024,
                nullptr) == INLAY_OK);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    check(inlay_engine_set_memory_budget(host.engine, 0, 0, nullptr) ==
          INLAY_OK);
  });
  callers.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      inlay_buffer* saved = nullptr;
      inlay_session* restored = nullptr;
      check(inlay_session_save_buffer(base, &saved, nullptr) == INLAY_OK);
      check(inlay_session_restore_buffer(host.model, inlay_buffer_data(saved),
                                         inlay_buffer_size(saved), &restored,
                                         nullptr, nullptr) == INLAY_OK);
      auto quote = Defaults(inlay_quote_init);
      const auto status =
          inlay_request_quote(restored, &asked, i % 2, &quote, nullptr);
      check(status == INLAY_OK || status == INLAY_RESOURCE_EXHAUSTED);
      inlay_session_release(restored);
      inlay_buffer_release(saved);
    }
  });
  callers.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      const std::string name = "p" + std::to_string(i % 3);
      auto prefix_options = Defaults(inlay_prefix_options_init);
      prefix_options.tokens = shared.data();
      prefix_options.num_tokens = shared.size() - static_cast<size_t>(i % 3);
      inlay_prefix* prefix = nullptr;
      inlay_prefix* found = nullptr;
      inlay_session* session = nullptr;
      check(inlay_prefix_create(host.model, name.c_str(), &prefix_options,
                                &prefix, nullptr) == INLAY_OK);
      check(inlay_prefix_find(host.model, name.c_str(), &found, nullptr) ==
            INLAY_OK);
      check(inlay_prefix_pin(found, i % 2, nullptr) == INLAY_OK);
      check(inlay_prefix_open(prefix, &session, nullptr) == INLAY_OK);
      auto info = Defaults(inlay_prefix_info_init);
      check(inlay_prefix_get_info(prefix, &info, nullptr) == INLAY_OK);
      inlay_prefix_release(i % 2 == 0 ? prefix : found);
      inlay_session_release(session);
      inlay_prefix_release(i % 2 == 0 ? found : prefix);
    }
  });
  callers.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      inlay_buffer* bytes = nullptr;
      check(inlay_engine_trace_start(host.engine, 50, nullptr) == INLAY_OK);
      check(inlay_engine_metrics(host.engine, i % 2, &bytes, nullptr) ==
            INLAY_OK);
      inlay_buffer_release(bytes);
      check(inlay_engine_trace_take(host.engine, 1, &bytes, nullptr) ==
            INLAY_OK);
      inlay_buffer_release(bytes);
    }
  });
  for (std::thread& thread : callers) thread.join();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
  inlay_session_release(base);
  host.ExpectWorks();
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
}

TEST(Threads, CallsWhileTheHostSteps) {
  CheckCallsWhileStepping(INLAY_DRIVE_HOST);
}
TEST(Threads, CallsWhileTheEngineSteps) {
  CheckCallsWhileStepping(INLAY_DRIVE_THREAD);
}

// Handles go away under the hands of other threads.
TEST(Threads, ReleaseTheEngineUnderEveryone) {
  for (int round = 0; round < 8; ++round) {
    CountingAllocator allocator;
    auto options = EngineDefaults();
    options.drive = INLAY_DRIVE_THREAD;
    allocator.AttachTo(options);
    Host host(TinyModel(), options);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::vector<int32_t> prompt = {1, 2 + t};
        const auto asked = TokensRequest(prompt, 50);
        while (!stop) {
          inlay_session* session = nullptr;
          inlay_session* fork = nullptr;
          inlay_request* request = nullptr;
          inlay_event* event = nullptr;
          inlay_session_create(host.model, &session, nullptr);
          inlay_session_submit(session, &asked, &request, nullptr);
          inlay_event_next(host.engine, 100, &event, nullptr);
          inlay_event_release(event);
          inlay_request_cancel(request, nullptr);
          inlay_session_fork(session, &fork, nullptr);
          inlay_session_release(t % 2 == 0 ? session : fork);
          inlay_request_release(request);
          inlay_session_release(t % 2 == 0 ? fork : session);
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * round));
    inlay_engine_release(host.engine);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(allocator.live_bytes(), 0);
    EXPECT_FALSE(allocator.misused());
  }
}

}  // namespace
}  // namespace inlay::testing
