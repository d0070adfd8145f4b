// Engines, models and memory: releases in any order, budgets, allocators that
// refuse, loads that are cancelled, many engines and threads at once.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

// Every later call on what belonged to a released engine.
TEST(EngineRelease, WithEverythingAlive) {
  for (const int32_t drive : {INLAY_DRIVE_HOST, INLAY_DRIVE_THREAD}) {
    CountingAllocator allocator;
    auto options = EngineDefaults();
    options.drive = drive;
    allocator.AttachTo(options);
    Host host(TinyModel(), options);
    const std::vector<int32_t> prompt = {1, 2, 3};
    inlay_session* idle = host.NewSession();
    inlay_session* busy = host.NewSession();
    host.Run(idle, TokensRequest(prompt, 2));
    inlay_request* request = host.Submit(busy, TokensRequest(prompt, 400));
    if (drive == INLAY_DRIVE_HOST) host.Step();
    inlay_event* event = nullptr;
    ASSERT_EQ(inlay_event_next(host.engine, 20'000'000, &event, nullptr),
              INLAY_OK);
    EXPECT_GT(allocator.live_bytes(), 0);
    inlay_engine_release(host.engine);
    EXPECT_EQ(allocator.live_bytes(), 0);
    EXPECT_FALSE(allocator.misused());

    Error e;
    size_t count = 0;
    inlay_buffer* buffer = nullptr;
    inlay_session* session = nullptr;
    auto model_info = Defaults(inlay_model_info_init);
    auto session_info = Defaults(inlay_session_info_init);
    auto more = TokensRequest(prompt, 1);
    inlay_request* second = nullptr;
    const int32_t token = 1;
    const std::vector<std::pair<const char*, inlay_status>> calls = {
        {"get_info", inlay_model_get_info(host.model, &model_info, e.out())},
        {"tokenize", inlay_model_tokenize(host.model, "a", 1, 0, nullptr, 0,
                                          &count, e.out())},
        {"detokenize",
         inlay_model_detokenize(host.model, &token, 1, 0, &buffer, e.out())},
        {"render", inlay_chat_render(host.model, "{}", 2, &buffer, e.out())},
        {"request_options",
         inlay_model_request_options(host.model, &more, e.out())},
        {"create", inlay_session_create(host.model, &session, e.out())},
        {"fork", inlay_session_fork(idle, &session, e.out())},
        {"rewind", inlay_session_rewind(idle, 0, e.out())},
        {"session_info", inlay_session_get_info(busy, &session_info, e.out())},
        {"tokens", inlay_session_tokens(idle, nullptr, 0, &count, e.out())},
        {"submit", inlay_session_submit(idle, &more, &second, e.out())},
        {"cancel", inlay_request_cancel(request, e.out())},
    };
    for (const auto& [name, status] : calls) {
      EXPECT_EQ(status, INLAY_CLOSED) << name;
    }
    EXPECT_EQ(e.status(), INLAY_CLOSED);
    // What was made before can still be read.
    auto info = Defaults(inlay_event_info_init_sized);
    EXPECT_EQ(inlay_event_get_info(event, &info, e.out()), INLAY_OK);
    Outcome outcome;
    inlay_event* next = nullptr;
    inlay_status status = INLAY_OK;
    while ((status = inlay_request_next_event(request, UINT64_MAX, &next,
                                              e.out())) == INLAY_OK) {
      outcome.Take(next);
    }
    EXPECT_TRUE(status == INLAY_END || status == INLAY_CLOSED) << status;
    if (outcome.finished > 0) {
      EXPECT_EQ(outcome.finish.status, INLAY_CANCELLED);
    }
    inlay_event_release(event);
    inlay_session_release(idle);
    inlay_request_release(request);
    inlay_session_release(busy);
    inlay_model_release(host.model);
  }
}

int NumThreads() {
  int count = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    (void)task;
    ++count;
  }
  return count;
}

// Though handles live on.
TEST(EngineRelease, EndsItsThreads) {
  // A sanitizer has a thread of its own once there are threads.
  std::thread([] {}).join();
  // A thread that was joined is listed for a moment more.
  const auto settles_at = [](int count) {
    for (int i = 0; i < 1000 && NumThreads() > count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return NumThreads();
  };
  const int before = settles_at(1);
  for (const int32_t drive : {INLAY_DRIVE_HOST, INLAY_DRIVE_THREAD}) {
    auto options = EngineDefaults();
    options.drive = drive;
    options.num_threads = 4;
    Host host(TinyModel(), options);
    inlay_session* session = host.NewSession();
    host.Run(session, TokensRequest({1, 2, 3}, 2));
    EXPECT_GE(NumThreads(), before + 3);
    inlay_engine_release(host.engine);
    EXPECT_EQ(settles_at(before), before);
    Error e;
    auto info = Defaults(inlay_model_info_init);
    EXPECT_EQ(inlay_model_get_info(host.model, &info, e.out()), INLAY_CLOSED);
  }
}

// Whatever order a garbage collector finds.
TEST(Release, InAnyOrder) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  std::vector<int> order = {0, 1, 2, 3};
  do {
    CountingAllocator allocator;
    auto options = EngineDefaults();
    options.num_threads = 1;
    allocator.AttachTo(options);
    Host host(TinyModel(), options);
    inlay_session* session = host.NewSession();
    inlay_request* request = host.Submit(session, TokensRequest(prompt, 9));
    host.Step();
    for (const int what : order) {
      switch (what) {
        case 0:
          inlay_engine_release(host.engine);
          break;
        case 1:
          inlay_model_release(host.model);
          break;
        case 2:
          inlay_session_release(session);
          break;
        default:
          inlay_request_release(request);
      }
    }
    EXPECT_EQ(allocator.live_bytes(), 0);
    EXPECT_FALSE(allocator.misused());
  } while (std::next_permutation(order.begin(), order.end()));
}

// The same for what prefixes, reservations and restored sessions hold.
TEST(Release, OfPrefixesAndReservationsInAnyOrder) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<int> order = {0, 1, 2, 3, 4};
  int round = 0;
  do {
    CountingAllocator allocator;
    auto options = EngineDefaults();
    options.num_threads = 1;
    options.drive = ++round % 5 == 0 ? INLAY_DRIVE_THREAD : INLAY_DRIVE_HOST;
    allocator.AttachTo(options);
    Host host(TinyModel(), options);
    auto prefix_options = Defaults(inlay_prefix_options_init);
    prefix_options.tokens = prompt.data();
    prefix_options.num_tokens = prompt.size();
    inlay_prefix* prefix = nullptr;
    ASSERT_EQ(
        inlay_prefix_create(host.model, "p", &prefix_options, &prefix, nullptr),
        INLAY_OK);
    inlay_session* opened = nullptr;
    inlay_session* restored = nullptr;
    inlay_buffer* saved = nullptr;
    auto quote = Defaults(inlay_quote_init);
    const auto request = TokensRequest(prompt, 30);
    ASSERT_EQ(inlay_prefix_open(prefix, &opened, nullptr), INLAY_OK);
    ASSERT_EQ(inlay_request_quote(opened, &request, 1, &quote, nullptr),
              INLAY_OK);
    ASSERT_EQ(inlay_session_save_buffer(opened, &saved, nullptr), INLAY_OK);
    ASSERT_EQ(inlay_session_restore_buffer(host.model, inlay_buffer_data(saved),
                                           inlay_buffer_size(saved), &restored,
                                           nullptr, nullptr),
              INLAY_OK);
    inlay_buffer_release(saved);
    for (const int what : order) {
      switch (what) {
        case 0:
          inlay_engine_release(host.engine);
          break;
        case 1:
          inlay_model_release(host.model);
          break;
        case 2:
          inlay_prefix_release(prefix);
          break;
        case 3:
          inlay_session_release(opened);
          break;
        default:
          inlay_session_release(restored);
      }
      if (round % 2 == 0) inlay_engine_step(host.engine, 0, nullptr, nullptr);
    }
    EXPECT_EQ(allocator.live_bytes(), 0);
    EXPECT_FALSE(allocator.misused());
  } while (std::next_permutation(order.begin(), order.end()));
}

// A prefix alone keeps its model.
TEST(Release, OfAModelThatAPrefixNeeds) {
  CountingAllocator allocator;
  auto options = EngineDefaults();
  allocator.AttachTo(options);
  Host host(TinyModel(), options);
  const int32_t tokens[] = {4, 5, 6};
  auto prefix_options = Defaults(inlay_prefix_options_init);
  prefix_options.tokens = tokens;
  prefix_options.num_tokens = 3;
  inlay_prefix* prefix = nullptr;
  ASSERT_EQ(
      inlay_prefix_create(host.model, "p", &prefix_options, &prefix, nullptr),
      INLAY_OK);
  inlay_model_release(host.model);
  host.Step();
  host.Step();
  EXPECT_GT(allocator.live_bytes(), 0);
  inlay_session* session = nullptr;
  ASSERT_EQ(inlay_prefix_open(prefix, &session, nullptr), INLAY_OK);
  inlay_prefix_release(prefix);
  EXPECT_EQ(host.Run(session, TokensRequest({}, 2)).tokens.size(), 2u);
  inlay_session_release(session);
  host.Step();
  EXPECT_EQ(allocator.live_bytes(), 0);
}

TEST(Release, OfAModelReclaimsWithTheNextStep) {
  CountingAllocator allocator;
  auto options = EngineDefaults();
  allocator.AttachTo(options);
  Host host(TinyModel(), options);
  inlay_session* session = host.NewSession();
  inlay_model_release(host.model);
  host.Step();
  EXPECT_GT(allocator.live_bytes(), 0) << "its session needs it";
  const std::vector<int32_t> prompt = {1, 2, 3};
  EXPECT_EQ(host.Run(session, TokensRequest(prompt, 2)).tokens.size(), 2u);
  inlay_session_release(session);
  host.Step();
  EXPECT_EQ(allocator.live_bytes(), 0);
  EXPECT_EQ(host.Stats().num_models, 0u);
}

TEST(Memory, BudgetIsNeverExceeded) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  int loaded = 0, refused = 0;
  for (uint64_t budget = 1024; budget <= 8 << 20; budget = budget * 3 / 2) {
    for (const int32_t weights : {INLAY_WEIGHTS_MAP, INLAY_WEIGHTS_READ}) {
      CountingAllocator allocator;
      allocator.limit = budget;
      auto options = EngineDefaults();
      options.memory_budget_bytes = budget;
      allocator.AttachTo(options);
      Host host("", options);
      auto model_options = ModelDefaults();
      model_options.weights = weights;
      Error error;
      const auto status =
          inlay_model_load(host.engine, TinyModel().c_str(), &model_options,
                           &host.model, error.out());
      if (status == INLAY_OK) {
        ++loaded;
        EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 3)).finish.status,
                  INLAY_OK);
        EXPECT_LE(host.Stats().memory_peak_bytes, budget);
        EXPECT_EQ(host.Stats().memory_budget_bytes, budget);
      } else {
        ++refused;
        EXPECT_EQ(status, INLAY_RESOURCE_EXHAUSTED) << error.message();
        EXPECT_THAT(error.message(), ::testing::ContainsRegex("[0-9]+ bytes"));
        EXPECT_EQ(allocator.live_bytes(), 0) << "a failed load keeps nothing";
      }
      EXPECT_FALSE(allocator.misused()) << "budget " << budget;
      inlay_engine_release(host.engine);
      EXPECT_EQ(allocator.live_bytes(), 0);
    }
  }
  EXPECT_GT(loaded, 2);
  EXPECT_GT(refused, 2);
}

TEST(Memory, AllocatorThatRefusesAtAnyCall) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  bool completed = false;
  for (int64_t n = 1; n < 2000 && !completed; ++n) {
    CountingAllocator allocator;
    allocator.fail_at = n;
    auto options = EngineDefaults();
    options.num_threads = 1;
    allocator.AttachTo(options);
    Host host("", options);
    auto model_options = ModelDefaults();
    model_options.weights = INLAY_WEIGHTS_READ;
    Error error;
    const auto status =
        inlay_model_load(host.engine, TinyModel().c_str(), &model_options,
                         &host.model, error.out());
    if (status == INLAY_OK) {
      // Generation allocates nothing from here: it is planned at load.
      const int64_t calls = allocator.calls();
      EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 3)).finish.status,
                INLAY_OK);
      EXPECT_EQ(allocator.calls(), calls);
      completed = allocator.calls() < n;
    } else {
      EXPECT_TRUE(status == INLAY_OUT_OF_MEMORY ||
                  status == INLAY_RESOURCE_EXHAUSTED)
          << n << ": " << inlay_status_name(status) << ": " << error.message();
      EXPECT_THAT(error.message(), ::testing::ContainsRegex("[0-9]+ bytes"));
      EXPECT_EQ(allocator.live_bytes(), 0) << "call " << n;
      // With memory again the engine serves.
      allocator.fail_at = 0;
      ASSERT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), nullptr,
                                 &host.model, error.out()),
                INLAY_OK)
          << error.message();
      host.ExpectWorks();
    }
    EXPECT_FALSE(allocator.misused());
    inlay_engine_release(host.engine);
    EXPECT_EQ(allocator.live_bytes(), 0);
  }
  EXPECT_TRUE(completed);
}

// More sessions than the cache holds: idle ones are evicted, running ones
// preempted, and nobody's tokens change.
TEST(Memory, PressureForKvBlocksChangesNothing) {
  constexpr int kSessions = 6;
  std::vector<std::vector<int32_t>> prompts, expected;
  Host roomy;
  for (int i = 0; i < kSessions; ++i) {
    prompts.push_back({1, 40 + i, 7, 300 - i});
    expected.push_back(
        roomy.RunAlone(TokensRequest(prompts.back(), 60)).tokens);
  }
  auto options = ModelDefaults();
  options.kv_block_size = 8;
  options.kv_budget_bytes = 128 * 1024;
  Host host(TinyModel(), EngineDefaults(), options);
  std::vector<inlay_session*> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(host.NewSession());
  std::vector<std::vector<int32_t>> got(kSessions);
  for (const int32_t half : {0, 1}) {
    std::vector<inlay_request*> requests;
    for (int i = 0; i < kSessions; ++i) {
      requests.push_back(host.Submit(
          sessions[i],
          TokensRequest(half == 0 ? prompts[i] : std::vector<int32_t>(), 30)));
    }
    for (int i = 0; i < kSessions; ++i) {
      const Outcome outcome = host.Finish(requests[i]);
      EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
      got[i].insert(got[i].end(), outcome.tokens.begin(), outcome.tokens.end());
    }
  }
  EXPECT_EQ(got, expected);
  EXPECT_GT(host.Stats().preemptions + host.Stats().evictions, 0u);
  for (inlay_session* session : sessions) inlay_session_release(session);
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
}

TEST(Log, GoesToTheHostUpToItsLevel) {
  struct Sink {
    int count = 0;
    int32_t highest = -1;
    std::string text;
  };
  for (const int32_t level : {INLAY_LOG_ERROR, INLAY_LOG_DEBUG}) {
    Sink sink;
    auto options = EngineDefaults();
    options.log_level = level;
    options.log_user = &sink;
    options.log = [](void* user, int32_t at, const char* message) {
      auto* into = static_cast<Sink*>(user);
      ++into->count;
      into->highest = std::max(into->highest, at);
      into->text += message;
    };
    { Host(TinyModel(), options).ExpectWorks(); }
    EXPECT_LE(sink.highest, level);
    if (level == INLAY_LOG_DEBUG) {
      EXPECT_GT(sink.count, 0);
      EXPECT_THAT(sink.text, HasSubstr("LlamaForCausalLM"));
    } else {
      EXPECT_EQ(sink.count, 0) << sink.text;
    }
  }
}

struct Progress {
  std::vector<std::pair<int32_t, float>> calls;
  size_t cancel_at = SIZE_MAX;

  static int32_t Call(void* user, int32_t stage, float fraction) {
    auto* self = static_cast<Progress*>(user);
    self->calls.emplace_back(stage, fraction);
    return self->calls.size() > self->cancel_at ? 1 : 0;
  }
  void AttachTo(inlay_model_options& options) {
    options.progress = Call;
    options.progress_user = this;
  }
};

TEST(Progress, StagesInOrderFractionsGrowing) {
  for (const int32_t weights : {INLAY_WEIGHTS_MAP, INLAY_WEIGHTS_READ}) {
    Progress progress;
    auto options = ModelDefaults();
    options.weights = weights;
    progress.AttachTo(options);
    Host host(PocketModel(), EngineDefaults(), options);
    ASSERT_GE(progress.calls.size(), 5u);
    EXPECT_EQ(progress.calls.front().first, INLAY_LOAD_CONFIG);
    EXPECT_EQ(progress.calls.back(),
              std::make_pair(int32_t{INLAY_LOAD_READY}, 1.0f));
    std::map<int32_t, float> last;
    int32_t stage = INLAY_LOAD_CONFIG;
    for (const auto& [now, fraction] : progress.calls) {
      EXPECT_GE(now, stage);
      EXPECT_LE(now, stage + 1) << "a stage was skipped";
      stage = now;
      EXPECT_GE(fraction, 0.0f);
      EXPECT_LE(fraction, 1.0f);
      const auto previous = last.find(now);
      EXPECT_GE(fraction, previous == last.end() ? 0.0f : previous->second);
      last[now] = fraction;
    }
    EXPECT_EQ(last[INLAY_LOAD_WEIGHTS], 1.0f);
  }
}

TEST(Progress, CancelsAtEveryCall) {
  CountingAllocator allocator;
  auto engine_options = EngineDefaults();
  allocator.AttachTo(engine_options);
  Host host("", engine_options);
  bool completed = false;
  for (size_t n = 0; n < 500 && !completed; ++n) {
    Progress progress;
    progress.cancel_at = n;
    auto options = ModelDefaults();
    options.weights = INLAY_WEIGHTS_READ;
    progress.AttachTo(options);
    Error error;
    inlay_model* model = nullptr;
    const auto status = inlay_model_load(host.engine, TinyModel().c_str(),
                                         &options, &model, error.out());
    completed = progress.calls.size() <= n;
    EXPECT_EQ(status, completed ? INLAY_OK : INLAY_CANCELLED)
        << n << ": " << error.message();
    if (!completed) {
      EXPECT_EQ(progress.calls.size(), n + 1) << "called after the cancel";
    }
    inlay_model_release(model);
    host.Step();
    EXPECT_EQ(allocator.live_bytes(), 0) << n;
  }
  EXPECT_TRUE(completed);
}

TEST(Engines, SeveralWithSeveralModels) {
  const std::vector<int32_t> prompt = {1, 17, 23};
  Host one(TinyModel()), two(TinyModel());
  inlay_model* pocket = nullptr;
  ASSERT_EQ(inlay_model_load(one.engine, PocketModel().c_str(), nullptr,
                             &pocket, nullptr),
            INLAY_OK);
  EXPECT_EQ(one.Stats().num_models, 2u);
  EXPECT_EQ(two.Stats().num_models, 1u);
  inlay_session* tiny_session = one.NewSession();
  inlay_session* pocket_session = nullptr;
  ASSERT_EQ(inlay_session_create(pocket, &pocket_session, nullptr), INLAY_OK);
  inlay_request* tiny = one.Submit(tiny_session, TokensRequest(prompt, 8));
  const std::string sum =
      R"({"messages":[{"role":"user","content":"946 - 73"}]})";
  inlay_request* answer = one.Submit(pocket_session, ChatRequest(sum, 20));
  inlay_session* elsewhere = two.NewSession();
  inlay_request* other = two.Submit(elsewhere, TokensRequest(prompt, 8));
  const Outcome tiny_outcome = one.Finish(tiny);
  EXPECT_EQ(one.Finish(answer).text, "873");
  EXPECT_EQ(two.Finish(other).tokens, tiny_outcome.tokens);
  inlay_session_release(tiny_session);
  inlay_session_release(pocket_session);
  inlay_session_release(elsewhere);
  inlay_model_release(pocket);
  one.Step();
  EXPECT_EQ(one.Stats().num_models, 1u);
  one.ExpectWorks();
  two.ExpectWorks();
}

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
