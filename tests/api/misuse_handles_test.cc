// Handles that are none: null, released, of another type, garbage, for every
// function that takes one. Each is found out and nothing else happens.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

enum Type {
  kEngine,
  kModel,
  kSession,
  kRequest,
  kEvent,
  kBuffer,
  kPrefix,
  kNumTypes
};

struct Call {
  const char* name;
  Type takes;
  std::function<inlay_status(void*, inlay_error**)> call;
  bool allows_null = false;
};

template <typename T>
T* As(void* handle) {
  return static_cast<T*>(handle);
}

// Every function that takes a handle and reports; all other arguments are good.
std::vector<Call> Calls() {
  static inlay_model* model;
  static inlay_session* session;
  static inlay_request* request;
  static inlay_event* event;
  static inlay_buffer* buffer;
  static size_t count;
  static int32_t fd;
  static inlay_prefix* prefix;
  return {
      {"inlay_engine_set_memory_budget", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_engine_set_memory_budget(As<inlay_engine>(h), 0, 0, e);
       }},
      {"inlay_engine_device", kEngine,
       [](void* h, inlay_error** e) {
         auto info = Defaults(inlay_device_info_init);
         return inlay_engine_device(As<inlay_engine>(h), &info, e);
       }},
      {"inlay_engine_measure_copy", kEngine,
       [](void* h, inlay_error** e) {
         double rate = 0;
         return inlay_engine_measure_copy(As<inlay_engine>(h), 1 << 20, &rate,
                                          e);
       }},
      {"inlay_engine_metrics", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_engine_metrics(As<inlay_engine>(h),
                                     INLAY_METRICS_PROMETHEUS, &buffer, e);
       }},
      {"inlay_engine_trace_start", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_engine_trace_start(As<inlay_engine>(h), 10, e);
       }},
      {"inlay_engine_trace_take", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_engine_trace_take(As<inlay_engine>(h), 0, &buffer, e);
       }},
      {"inlay_session_save", kSession,
       [](void* h, inlay_error** e) {
         return inlay_session_save(As<inlay_session>(h), "/no/such/folder/x",
                                   e);
       }},
      {"inlay_session_save_buffer", kSession,
       [](void* h, inlay_error** e) {
         return inlay_session_save_buffer(As<inlay_session>(h), &buffer, e);
       }},
      {"inlay_session_restore", kModel,
       [](void* h, inlay_error** e) {
         return inlay_session_restore(As<inlay_model>(h), "/no/such/file",
                                      &session, nullptr, e);
       }},
      {"inlay_session_restore_buffer", kModel,
       [](void* h, inlay_error** e) {
         return inlay_session_restore_buffer(As<inlay_model>(h), "x", 1,
                                             &session, nullptr, e);
       }},
      {"inlay_request_quote", kSession,
       [](void* h, inlay_error** e) {
         const std::vector<int32_t> prompt = {1, 2};
         const auto options = TokensRequest(prompt, 1);
         auto quote = Defaults(inlay_quote_init);
         return inlay_request_quote(As<inlay_session>(h), &options, 1, &quote,
                                    e);
       }},
      {"inlay_prefix_create", kModel,
       [](void* h, inlay_error** e) {
         const int32_t prompt[] = {1, 2};
         auto options = Defaults(inlay_prefix_options_init);
         options.tokens = prompt;
         options.num_tokens = 2;
         return inlay_prefix_create(As<inlay_model>(h), "name", &options,
                                    &prefix, e);
       }},
      {"inlay_prefix_find", kModel,
       [](void* h, inlay_error** e) {
         return inlay_prefix_find(As<inlay_model>(h), "name", &prefix, e);
       }},
      {"inlay_prefix_pin", kPrefix,
       [](void* h, inlay_error** e) {
         return inlay_prefix_pin(As<inlay_prefix>(h), 1, e);
       }},
      {"inlay_prefix_open", kPrefix,
       [](void* h, inlay_error** e) {
         return inlay_prefix_open(As<inlay_prefix>(h), &session, e);
       }},
      {"inlay_prefix_get_info", kPrefix,
       [](void* h, inlay_error** e) {
         auto info = Defaults(inlay_prefix_info_init);
         return inlay_prefix_get_info(As<inlay_prefix>(h), &info, e);
       }},
      {"inlay_engine_step", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_engine_step(As<inlay_engine>(h), 0, nullptr, e);
       }},
      {"inlay_engine_stats", kEngine,
       [](void* h, inlay_error** e) {
         auto stats = Defaults(inlay_stats_init_sized);
         return inlay_engine_stats(As<inlay_engine>(h), &stats, e);
       }},
      {"inlay_engine_event_fd", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_engine_event_fd(As<inlay_engine>(h), &fd, e);
       }},
      {"inlay_event_next", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_event_next(As<inlay_engine>(h), UINT64_MAX, &event, e);
       }},
      {"inlay_model_load", kEngine,
       [](void* h, inlay_error** e) {
         return inlay_model_load(As<inlay_engine>(h), TinyModel().c_str(),
                                 nullptr, &model, e);
       }},
      {"inlay_model_get_info", kModel,
       [](void* h, inlay_error** e) {
         auto info = Defaults(inlay_model_info_init_sized);
         return inlay_model_get_info(As<inlay_model>(h), &info, e);
       }},
      {"inlay_model_tokenize", kModel,
       [](void* h, inlay_error** e) {
         return inlay_model_tokenize(As<inlay_model>(h), "a", 1, 0, nullptr, 0,
                                     &count, e);
       }},
      {"inlay_model_detokenize", kModel,
       [](void* h, inlay_error** e) {
         return inlay_model_detokenize(As<inlay_model>(h), nullptr, 0, 0,
                                       &buffer, e);
       }},
      {"inlay_chat_render", kModel,
       [](void* h, inlay_error** e) {
         return inlay_chat_render(As<inlay_model>(h), "{}", 2, &buffer, e);
       },
       true},
      {"inlay_model_request_options", kModel,
       [](void* h, inlay_error** e) {
         auto options = Defaults(inlay_request_options_init_sized);
         return inlay_model_request_options(As<inlay_model>(h), &options, e);
       }},
      {"inlay_session_create", kModel,
       [](void* h, inlay_error** e) {
         return inlay_session_create(As<inlay_model>(h), &session, e);
       }},
      {"inlay_session_fork", kSession,
       [](void* h, inlay_error** e) {
         return inlay_session_fork(As<inlay_session>(h), &session, e);
       }},
      {"inlay_session_rewind", kSession,
       [](void* h, inlay_error** e) {
         return inlay_session_rewind(As<inlay_session>(h), 0, e);
       }},
      {"inlay_session_get_info", kSession,
       [](void* h, inlay_error** e) {
         auto info = Defaults(inlay_session_info_init);
         return inlay_session_get_info(As<inlay_session>(h), &info, e);
       }},
      {"inlay_session_tokens", kSession,
       [](void* h, inlay_error** e) {
         return inlay_session_tokens(As<inlay_session>(h), nullptr, 0, &count,
                                     e);
       }},
      {"inlay_session_submit", kSession,
       [](void* h, inlay_error** e) {
         const std::vector<int32_t> prompt = {1, 2};
         const auto options = TokensRequest(prompt, 1);
         return inlay_session_submit(As<inlay_session>(h), &options, &request,
                                     e);
       }},
      {"inlay_request_cancel", kRequest,
       [](void* h, inlay_error** e) {
         return inlay_request_cancel(As<inlay_request>(h), e);
       }},
      {"inlay_request_next_event", kRequest,
       [](void* h, inlay_error** e) {
         return inlay_request_next_event(As<inlay_request>(h), UINT64_MAX,
                                         &event, e);
       }},
      {"inlay_event_get_info", kEvent,
       [](void* h, inlay_error** e) {
         auto info = Defaults(inlay_event_info_init_sized);
         return inlay_event_get_info(As<inlay_event>(h), &info, e);
       }},
  };
}

// The functions that report nothing and free what they are given.
struct Release {
  Type takes;
  void (*call)(void*);
};
const Release kReleases[] = {
    {kEngine, [](void* h) { inlay_engine_release(As<inlay_engine>(h)); }},
    {kModel, [](void* h) { inlay_model_release(As<inlay_model>(h)); }},
    {kSession, [](void* h) { inlay_session_release(As<inlay_session>(h)); }},
    {kRequest, [](void* h) { inlay_request_release(As<inlay_request>(h)); }},
    {kEvent, [](void* h) { inlay_event_release(As<inlay_event>(h)); }},
    {kBuffer, [](void* h) { inlay_buffer_release(As<inlay_buffer>(h)); }},
    {kPrefix, [](void* h) { inlay_prefix_release(As<inlay_prefix>(h)); }},
};

std::string Named(void* handle) {
  char text[32] = "null";
  if (handle != nullptr) {
    std::snprintf(text, sizeof(text), "%#zx",
                  reinterpret_cast<uintptr_t>(handle));
  }
  return text;
}

class HandlesTest : public ::testing::Test {
 protected:
  HandlesTest() { Make(); }
  ~HandlesTest() override {
    for (const Release& release : kReleases) {
      if (release.takes != kEngine && release.takes != kModel) {
        release.call(live_[release.takes]);
      }
    }
  }

  // One live handle of each type.
  void Make() {
    inlay_session* session = host_.NewSession();
    inlay_request* request = host_.Submit(session, TokensRequest(prompt_, 4));
    host_.Step();
    inlay_event* event = nullptr;
    inlay_buffer* buffer = nullptr;
    ASSERT_EQ(inlay_event_next(host_.engine, 0, &event, nullptr), INLAY_OK);
    ASSERT_EQ(inlay_model_inspect(TinyModel().c_str(), &buffer, nullptr),
              INLAY_OK);
    auto options = Defaults(inlay_prefix_options_init);
    options.tokens = prompt_.data();
    options.num_tokens = prompt_.size();
    inlay_prefix* prefix = nullptr;
    ASSERT_EQ(
        inlay_prefix_create(host_.model, "prefix", &options, &prefix, nullptr),
        INLAY_OK);
    live_ = {host_.engine, host_.model, session, request,
             event,        buffer,      prefix};
  }
  // The live handles are what they were.
  void ExpectAlive() {
    for (const Call& call : Calls()) {
      Error error;
      // Only what leaves the handles as they are and does not wait.
      if (call.name == std::string("inlay_event_get_info") ||
          call.name == std::string("inlay_session_get_info") ||
          call.name == std::string("inlay_prefix_get_info") ||
          call.name == std::string("inlay_model_get_info")) {
        EXPECT_EQ(call.call(live_[call.takes], error.out()), INLAY_OK)
            << call.name << ": " << error.message();
      }
    }
    EXPECT_GT(inlay_buffer_size(As<inlay_buffer>(live_[kBuffer])), 0u);
    host_.ExpectWorks();
  }
  static void ExpectRefused(const Call& call, void* handle, const char* what) {
    Error error;
    EXPECT_EQ(call.call(handle, error.out()), INLAY_INVALID_HANDLE)
        << call.name << " with " << what;
    EXPECT_EQ(error.status(), INLAY_INVALID_HANDLE);
    EXPECT_THAT(error.message(), HasSubstr("handle"));
    EXPECT_THAT(error.message(), HasSubstr(Named(handle)))
        << call.name << " with " << what;
    // Without a place for the error too.
    EXPECT_EQ(call.call(handle, nullptr), INLAY_INVALID_HANDLE) << call.name;
  }

  const std::vector<int32_t> prompt_ = {1, 2, 3};
  Host host_;
  std::vector<void*> live_;
};

TEST_F(HandlesTest, Null) {
  for (const Call& call : Calls()) {
    if (!call.allows_null) ExpectRefused(call, nullptr, "null");
  }
  for (const Release& release : kReleases) release.call(nullptr);
  inlay_error_release(nullptr);
  EXPECT_EQ(inlay_error_status(nullptr), INLAY_INVALID_HANDLE);
  EXPECT_STREQ(inlay_error_message(nullptr), "");
  EXPECT_STREQ(inlay_buffer_data(nullptr), "");
  EXPECT_EQ(inlay_buffer_size(nullptr), 0u);
  ExpectAlive();
}

TEST_F(HandlesTest, OfAnotherType) {
  Error error;
  inlay_engine_stats(nullptr, nullptr, error.out());
  for (const Call& call : Calls()) {
    for (int type = kEngine; type < kNumTypes; ++type) {
      if (type != call.takes) ExpectRefused(call, live_[type], "another type");
    }
  }
  for (const Release& release : kReleases) {
    for (int type = kEngine; type < kNumTypes; ++type) {
      if (type != release.takes) release.call(live_[type]);
    }
  }
  for (void* handle : live_) {
    EXPECT_EQ(inlay_error_status(As<inlay_error>(handle)),
              INLAY_INVALID_HANDLE);
    EXPECT_STREQ(inlay_error_message(As<inlay_error>(handle)), "");
    inlay_error_release(As<inlay_error>(handle));
    if (handle != live_[kBuffer]) {
      EXPECT_EQ(inlay_buffer_size(As<inlay_buffer>(handle)), 0u);
      EXPECT_STREQ(inlay_buffer_data(As<inlay_buffer>(handle)), "");
    }
  }
  ExpectAlive();
}

TEST_F(HandlesTest, Garbage) {
  int on_stack = 0;
  const std::vector<int> on_heap(16);
  std::vector<uintptr_t> values = {1,
                                   2,
                                   0xf,
                                   16,
                                   UINTPTR_MAX,
                                   UINTPTR_MAX / 2,
                                   reinterpret_cast<uintptr_t>(&on_stack),
                                   reinterpret_cast<uintptr_t>(on_heap.data()),
                                   reinterpret_cast<uintptr_t>("text")};
  // One bit off a live handle is no handle, unless it is another live one.
  for (void* handle : live_) {
    for (int bit = 10; bit < 64; ++bit) {
      values.push_back(reinterpret_cast<uintptr_t>(handle) ^
                       (uintptr_t{1} << bit));
    }
  }
  for (const uintptr_t value : values) {
    void* handle = reinterpret_cast<void*>(value);
    if (std::find(live_.begin(), live_.end(), handle) != live_.end()) continue;
    for (const Call& call : Calls()) ExpectRefused(call, handle, "garbage");
    for (const Release& release : kReleases) release.call(handle);
    EXPECT_EQ(inlay_error_status(As<inlay_error>(handle)),
              INLAY_INVALID_HANDLE);
    EXPECT_EQ(inlay_buffer_size(As<inlay_buffer>(handle)), 0u);
  }
  ExpectAlive();
}

TEST_F(HandlesTest, Released) {
  const std::vector<void*> stale = live_;
  for (const Release& release : kReleases) {
    // In any order; twice does nothing more.
    if (release.takes == kEngine || release.takes == kModel) continue;
    release.call(stale[release.takes]);
    release.call(stale[release.takes]);
  }
  for (const Call& call : Calls()) {
    if (call.takes != kEngine && call.takes != kModel) {
      ExpectRefused(call, stale[call.takes], "a released handle");
    }
  }
  // New objects do not get the old numbers.
  Make();
  for (const Call& call : Calls()) {
    if (call.takes != kEngine && call.takes != kModel) {
      ExpectRefused(call, stale[call.takes], "a released handle");
    }
  }
  ExpectAlive();
}

TEST(ReleasedEngine, AndModel) {
  Host host;
  inlay_model_release(host.model);
  inlay_model_release(host.model);
  inlay_engine_release(host.engine);
  inlay_engine_release(host.engine);
  for (const Call& call : Calls()) {
    Error error;
    if (call.takes == kEngine || call.takes == kModel) {
      void* handle = call.takes == kEngine ? static_cast<void*>(host.engine)
                                           : static_cast<void*>(host.model);
      EXPECT_EQ(call.call(handle, error.out()), INLAY_INVALID_HANDLE)
          << call.name;
    }
  }
  Host().ExpectWorks();
}

}  // namespace
}  // namespace inlay::testing
