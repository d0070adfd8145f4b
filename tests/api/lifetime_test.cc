// Releases in any order, what they end and what they give back; engines side by
// side.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

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
    auto model_info = Defaults(inlay_model_info_init_sized);
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
    auto info = Defaults(inlay_model_info_init_sized);
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

// While another thread reclaims it: who finds no memory taken finds no model.
TEST(Release, OfAModelTakesItsMemoryAfterItsCount) {
  auto options = EngineDefaults();
  options.drive = INLAY_DRIVE_THREAD;
  const auto model_options = ModelDefaults();
  Host host("", options);
  for (int i = 0; i < 100; ++i) {
    inlay_model* model = nullptr;
    ASSERT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), &model_options,
                               &model, nullptr),
              INLAY_OK);
    inlay_model_release(model);
    inlay_stats stats = host.Stats();
    while (stats.memory_bytes > 0) stats = host.Stats();
    ASSERT_EQ(stats.num_models, 0u) << i;
  }
}

// An idle engine's own thread reclaims a model when whichever handle was its
// last is gone: nothing else wakes it.
TEST(Release, OfTheLastHandleReclaimsInAnIdleEngine) {
  for (const char* last : {"model", "session", "request", "prefix"}) {
    SCOPED_TRACE(last);
    CountingAllocator allocator;
    auto options = EngineDefaults();
    options.drive = INLAY_DRIVE_THREAD;
    allocator.AttachTo(options);
    Host host(TinyModel(), options);
    const std::vector<int32_t> prompt = {1, 2, 3};
    const auto asked = TokensRequest(prompt, 2);
    inlay_session* session = host.NewSession();
    inlay_request* request = host.Submit(session, asked);
    auto prefix_options = Defaults(inlay_prefix_options_init);
    prefix_options.tokens = prompt.data();
    prefix_options.num_tokens = prompt.size();
    prefix_options.pin = 0;
    inlay_prefix* prefix = nullptr;
    ASSERT_EQ(
        inlay_prefix_create(host.model, "p", &prefix_options, &prefix, nullptr),
        INLAY_OK);
    inlay_event* event = nullptr;
    while (inlay_request_next_event(request, 20'000'000, &event, nullptr) ==
           INLAY_OK) {
      inlay_event_release(event);
    }
    const std::string kind = last;
    const std::vector<std::pair<std::string, std::function<void()>>> releases =
        {{"model", [&] { inlay_model_release(host.model); }},
         {"session", [&] { inlay_session_release(session); }},
         {"request", [&] { inlay_request_release(request); }},
         {"prefix", [&] { inlay_prefix_release(prefix); }}};
    for (const auto& [name, release] : releases) {
      if (name != kind) release();
    }
    // Long enough for it to fall asleep again.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_GT(allocator.live_bytes(), 0);
    for (const auto& [name, release] : releases) {
      if (name == kind) release();
    }
    for (int i = 0; i < 5000 && allocator.live_bytes() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(allocator.live_bytes(), 0);
  }
}

// Let go of while the step that ended its last request ends itself, which holds
// the model, too, and has looked for unused ones before.
TEST(Release, OfTheLastHandleWhileAStepEnds) {
  CountingAllocator allocator;
  auto options = EngineDefaults();
  options.drive = INLAY_DRIVE_THREAD;
  allocator.AttachTo(options);
  inlay_engine* engine = nullptr;
  ASSERT_EQ(inlay_engine_create(&options, &engine, nullptr), INLAY_OK);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto asked = TokensRequest(prompt, 1);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    inlay_model* model = nullptr;
    inlay_session* session = nullptr;
    inlay_request* request = nullptr;
    ASSERT_EQ(
        inlay_model_load(engine, TinyModel().c_str(), nullptr, &model, nullptr),
        INLAY_OK);
    ASSERT_EQ(inlay_session_create(model, &session, nullptr), INLAY_OK);
    ASSERT_EQ(inlay_session_submit(session, &asked, &request, nullptr),
              INLAY_OK);
    inlay_model_release(model);
    inlay_event* event = nullptr;
    while (inlay_request_next_event(request, 20'000'000, &event, nullptr) ==
           INLAY_OK) {
      inlay_event_release(event);
    }
    inlay_session_release(session);
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::microseconds(round % 30);
    while (std::chrono::steady_clock::now() < until) {
    }
    inlay_request_release(request);
    for (int i = 0; i < 5000 && allocator.live_bytes() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(allocator.live_bytes(), 0) << "round " << round;
  }
  inlay_engine_release(engine);
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

}  // namespace
}  // namespace inlay::testing
