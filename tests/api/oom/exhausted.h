// What the tests of memory that runs out in a call of the C ABI share.
#ifndef INLAY_TESTS_API_OOM_EXHAUSTED_H_
#define INLAY_TESTS_API_OOM_EXHAUSTED_H_

#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/api/host.h"
#include "tests/core/engine_oom/failing_new.h"

namespace inlay::testing {

inline constexpr int64_t kForever = INT64_MAX;

class ExhaustedTest : public ::testing::Test {
 protected:
  using Call = std::function<inlay_status(inlay_error**)>;

  ExhaustedTest() {
    inlay_engine_options options = EngineDefaults();
    options.num_threads = 1;
    EXPECT_EQ(inlay_engine_create(&options, &engine_, nullptr), INLAY_OK);
    EXPECT_EQ(inlay_model_load(engine_, SmallModel().c_str(), nullptr, &model_,
                               nullptr),
              INLAY_OK);
    EXPECT_EQ(inlay_session_create(model_, &session_, nullptr), INLAY_OK);
  }
  ~ExhaustedTest() override { inlay_engine_release(engine_); }

  // One call; the `first`-th allocation in it and all after it fail. Whether
  // any did.
  static bool CallWithout(int64_t first, const Call& call,
                          inlay_status* status) {
    inlay_error* error = nullptr;
    FailingNew::Plan(first, kForever);
    {
      const FailingNew::Armed armed;
      *status = call(&error);
    }
    const bool failed = FailingNew::failed() > 0;
    FailingNew::PlanNone();
    if (error != nullptr) {
      EXPECT_EQ(inlay_error_status(error), *status);
      EXPECT_STRNE(inlay_error_message(error), "");
    }
    inlay_error_release(error);
    return failed;
  }

  // With memory for none of the call's allocations, for one, .., until it has
  // all: then it gives `expected`.
  static void Sweep(
      const char* what, inlay_status expected, const Call& call,
      const std::function<void()>& undo = [] {}) {
    SCOPED_TRACE(what);
    int64_t first = 1;
    for (bool failed = true; failed; first += 1 + first / 16) {
      ASSERT_LT(first, 1 << 20);
      inlay_status status = INLAY_OK;
      failed = CallWithout(first, call, &status);
      EXPECT_TRUE(status == expected ||
                  (failed && status == INLAY_OUT_OF_MEMORY))
          << inlay_status_name(status) << " without allocation " << first;
      if (status == INLAY_OK) undo();
      if (HasFailure()) return;
    }
    EXPECT_GT(first, 2) << "it allocates nothing";
  }

  // It still serves.
  void ExpectAlive() {
    const std::vector<int32_t> tokens = {1, 2, 3};
    inlay_request_options options = TokensRequest(tokens, 2);
    inlay_session* session = nullptr;
    inlay_request* request = nullptr;
    ASSERT_EQ(inlay_session_create(model_, &session, nullptr), INLAY_OK);
    ASSERT_EQ(inlay_session_submit(session, &options, &request, nullptr),
              INLAY_OK);
    bool finished = false;
    for (int i = 0; i < 10 && !finished; ++i) {
      inlay_engine_step(engine_, 0, nullptr, nullptr);
      inlay_event* event = nullptr;
      while (inlay_request_next_event(request, 0, &event, nullptr) ==
             INLAY_OK) {
        auto info = Defaults(inlay_event_info_init_sized);
        inlay_event_get_info(event, &info, nullptr);
        if (info.kind == INLAY_EVENT_FINISHED) {
          finished = true;
          EXPECT_EQ(info.finish_reason, INLAY_FINISH_LENGTH) << info.message;
        }
        inlay_event_release(event);
      }
    }
    EXPECT_TRUE(finished);
    inlay_request_release(request);
    inlay_session_release(session);
  }

  inlay_engine* engine_ = nullptr;
  inlay_model* model_ = nullptr;
  inlay_session* session_ = nullptr;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_API_OOM_EXHAUSTED_H_
