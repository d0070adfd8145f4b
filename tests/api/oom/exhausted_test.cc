// The C ABI when the host's memory runs out in a call and stays so until it
// returns, from any of its allocations on: the process lives, the call says
// OUT_OF_MEMORY (with an error object where there was room for one) or does
// what it is for, and the library serves again as soon as there is memory.
//
// A program of its own: operator new is the tests' (failing_new_test.cc).
#include "tests/api/oom/exhausted.h"

#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <cstdint>
#include <string>
#include <vector>

namespace inlay::testing {
namespace {

TEST_F(ExhaustedTest, Refusals) {
  auto* const nothing = reinterpret_cast<inlay_model*>(uintptr_t{0x1230});
  inlay_session* session = nullptr;
  Sweep("a handle that is none", INLAY_INVALID_HANDLE, [&](auto** error) {
    return inlay_session_create(nothing, &session, error);
  });
  inlay_model* model = nullptr;
  Sweep("no such model", INLAY_NOT_FOUND, [&](auto** error) {
    return inlay_model_load(engine_, "/nowhere/at/all", nullptr, &model, error);
  });
  inlay_engine* engine = nullptr;
  inlay_engine_options options = EngineDefaults();
  options.max_batch_tokens = 1 << 30;
  Sweep("an option out of range", INLAY_INVALID_ARGUMENT, [&](auto** error) {
    return inlay_engine_create(&options, &engine, error);
  });
  options.struct_size = 3;
  Sweep("a struct that is none", INLAY_INVALID_ARGUMENT, [&](auto** error) {
    return inlay_engine_create(&options, &engine, error);
  });
  const std::vector<int32_t> tokens = {1, 1 << 30};
  const inlay_request_options wrong = TokensRequest(tokens, 2);
  inlay_request* request = nullptr;
  Sweep("a token out of range", INLAY_INVALID_ARGUMENT, [&](auto** error) {
    return inlay_session_submit(session_, &wrong, &request, error);
  });
  Sweep("no snapshot", INLAY_INVALID_ARGUMENT, [&](auto** error) {
    return inlay_session_restore_buffer(model_, "abc", 3, &session, nullptr,
                                        error);
  });
  ExpectAlive();
}

TEST_F(ExhaustedTest, EnginesAndMetrics) {
  inlay_engine* engine = nullptr;
  inlay_engine_options options = EngineDefaults();
  options.num_threads = 1;
  Sweep(
      "an engine", INLAY_OK,
      [&](auto** error) {
        return inlay_engine_create(&options, &engine, error);
      },
      [&] { inlay_engine_release(engine); });
  inlay_buffer* buffer = nullptr;
  const auto release = [&] { inlay_buffer_release(buffer); };
  for (const int32_t format :
       {INLAY_METRICS_PROMETHEUS, INLAY_METRICS_PROTOBUF}) {
    Sweep(
        "metrics", INLAY_OK,
        [&](auto** error) {
          return inlay_engine_metrics(engine_, format, &buffer, error);
        },
        release);
  }
  ExpectAlive();
}

TEST_F(ExhaustedTest, SessionsAndText) {
  inlay_session* session = nullptr;
  const auto release = [&] { inlay_session_release(session); };
  Sweep(
      "a session", INLAY_OK,
      [&](auto** error) {
        return inlay_session_create(model_, &session, error);
      },
      release);
  Sweep(
      "a fork", INLAY_OK,
      [&](auto** error) {
        return inlay_session_fork(session_, &session, error);
      },
      release);
  inlay_buffer* saved = nullptr;
  Sweep(
      "a snapshot", INLAY_OK,
      [&](auto** error) {
        return inlay_session_save_buffer(session_, &saved, error);
      },
      [&] { inlay_buffer_release(saved); });
  ASSERT_EQ(inlay_session_save_buffer(session_, &saved, nullptr), INLAY_OK);
  Sweep(
      "its way back", INLAY_OK,
      [&](auto** error) {
        return inlay_session_restore_buffer(model_, inlay_buffer_data(saved),
                                            inlay_buffer_size(saved), &session,
                                            nullptr, error);
      },
      release);
  inlay_buffer_release(saved);
  const std::string text = "Once upon a time, there was a fox.";
  int32_t tokens[64];
  size_t count = 0;
  Sweep("tokens", INLAY_OK, [&](auto** error) {
    return inlay_model_tokenize(model_, text.data(), text.size(), 0, tokens, 64,
                                &count, error);
  });
  inlay_buffer* buffer = nullptr;
  Sweep(
      "text", INLAY_OK,
      [&](auto** error) {
        return inlay_model_detokenize(model_, tokens, count, 0, &buffer, error);
      },
      [&] { inlay_buffer_release(buffer); });
  ExpectAlive();
}

// Requests whose submission, steps, events and ends have no memory.
TEST_F(ExhaustedTest, Requests) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const inlay_request_options options = TokensRequest(tokens, 3);
  int64_t first = 1;
  for (bool failed = true; failed && !HasFailure(); first += 1 + first / 8) {
    SCOPED_TRACE(::testing::Message() << "without allocation " << first);
    failed = false;
    inlay_session* session = nullptr;
    inlay_request* request = nullptr;
    ASSERT_EQ(inlay_session_create(model_, &session, nullptr), INLAY_OK);
    inlay_status status = INLAY_OK;
    failed |= CallWithout(
        first,
        [&](auto** error) {
          return inlay_session_submit(session, &options, &request, error);
        },
        &status);
    EXPECT_TRUE(status == INLAY_OK || status == INLAY_OUT_OF_MEMORY)
        << inlay_status_name(status);
    for (int i = 0; request != nullptr && i < 4; ++i) {
      failed |= CallWithout(
          first,
          [&](auto** error) {
            return inlay_engine_step(engine_, 0, nullptr, error);
          },
          &status);
      EXPECT_TRUE(status == INLAY_OK || status == INLAY_OUT_OF_MEMORY)
          << inlay_status_name(status);
      inlay_event* event = nullptr;
      failed |= CallWithout(
          first,
          [&](auto** error) {
            return inlay_request_next_event(request, 0, &event, error);
          },
          &status);
      inlay_event_release(event);
    }
    // Ends, whatever it came to, with no memory at all.
    CallWithout(
        1,
        [&](auto**) {
          inlay_request_release(request);
          inlay_session_release(session);
          return INLAY_OK;
        },
        &status);
    inlay_engine_step(engine_, 0, nullptr, nullptr);
    ExpectAlive();
  }
}

// Nothing is left to the host but to let go: no memory is needed for that.
TEST_F(ExhaustedTest, Releases) {
  for (const bool whole : {false, true}) {
    SCOPED_TRACE(whole ? "the engine at once" : "one after another");
    inlay_engine_options options = EngineDefaults();
    options.num_threads = 1;
    inlay_engine* engine = nullptr;
    inlay_model* model = nullptr;
    inlay_session* session = nullptr;
    inlay_request* request = nullptr;
    inlay_prefix* prefix = nullptr;
    ASSERT_EQ(inlay_engine_create(&options, &engine, nullptr), INLAY_OK);
    ASSERT_EQ(
        inlay_model_load(engine, TinyModel().c_str(), nullptr, &model, nullptr),
        INLAY_OK);
    ASSERT_EQ(inlay_session_create(model, &session, nullptr), INLAY_OK);
    const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
    const inlay_request_options ask = TokensRequest(tokens, 30);
    ASSERT_EQ(inlay_session_submit(session, &ask, &request, nullptr), INLAY_OK);
    inlay_prefix_options shared;
    inlay_prefix_options_init(&shared);
    shared.tokens = tokens.data();
    shared.num_tokens = tokens.size();
    shared.pin = 1;
    ASSERT_EQ(inlay_prefix_create(model, "p", &shared, &prefix, nullptr),
              INLAY_OK);
    ASSERT_EQ(inlay_engine_step(engine, 0, nullptr, nullptr), INLAY_OK);
    inlay_status status = INLAY_OK;
    CallWithout(
        1,
        [&](auto**) {
          if (whole) inlay_engine_release(engine);
          inlay_request_release(request);
          inlay_session_release(session);
          inlay_prefix_release(prefix);
          inlay_model_release(model);
          inlay_engine_release(engine);
          return INLAY_OK;
        },
        &status);
  }
  ExpectAlive();
}

}  // namespace
}  // namespace inlay::testing
