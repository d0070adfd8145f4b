// What the tests of the C ABI share: a host over inlay.h alone, with an
// allocator that counts and can refuse.
#ifndef INLAY_TESTS_API_HOST_H_
#define INLAY_TESTS_API_HOST_H_

#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths/paths.h"

namespace inlay::testing {

inline std::string ModelPath(const std::string& name) {
  return TestData() + "/models/" + name;
}
// 2 layers, 512 random tokens, no tokenizer; loads in a millisecond.
inline std::string TinyModel() { return ModelPath("llama3"); }
// A trained model of 1 million parameters, with a tokenizer; loads in a few.
inline std::string SmallModel() { return ModelPath("pocket-1m"); }
// The model that ships: tokenizer, chat template, 4096 tokens.
inline std::string PocketModel() {
  return SourceDir() + "/examples/models/pocket-7m";
}

// The error of the last call it was given to: f(..., error.out()).
class Error {
 public:
  Error() = default;
  ~Error() { inlay_error_release(error_); }
  Error(const Error&) = delete;
  Error& operator=(const Error&) = delete;
  inlay_error** out() {
    inlay_error_release(error_);
    error_ = nullptr;
    return &error_;
  }
  bool empty() const { return error_ == nullptr; }
  inlay_status status() const { return inlay_error_status(error_); }
  std::string message() const { return inlay_error_message(error_); }

 private:
  inlay_error* error_ = nullptr;
};

// Options with their defaults. Structs that have grown take their _init_sized
// function: the _init of that name is a macro, and its function for old hosts.
template <typename T>
T Defaults(void (*init)(T*)) {
  T value;
  init(&value);
  return value;
}
template <typename T>
T Defaults(void (*init)(T*, size_t)) {
  T value;
  init(&value, sizeof(value));
  return value;
}
inline inlay_engine_options EngineDefaults() {
  auto options = Defaults(inlay_engine_options_init_sized);
  // Budgets and caches here are of a CPU's sizes; cuda_test.cc has the rest.
  options.backend = INLAY_BACKEND_CPU;
  options.num_threads = 2;
  return options;
}
inline inlay_model_options ModelDefaults() {
  return Defaults(inlay_model_options_init_sized);
}
// A cache of 32 blocks of 8 of the tiny model's tokens.
inline constexpr uint64_t kBlockBytes = 8 * 1024;
inline inlay_model_options SmallCache() {
  auto options = ModelDefaults();
  options.kv_block_size = 8;
  options.kv_budget_bytes = 32 * kBlockBytes;
  return options;
}

// Prompts: of the tiny model's tokens, of the small one's.
inline std::vector<int32_t> Tokens(int32_t first, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((first + 7 * i) % 512);
  return tokens;
}
inline std::vector<int32_t> LongPrompt() {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 200; ++i) prompt.push_back(7 + 13 * i % 4000);
  return prompt;
}

inline inlay_request_options TokensRequest(const std::vector<int32_t>& tokens,
                                           int32_t max_tokens) {
  auto options = Defaults(inlay_request_options_init_sized);
  options.tokens = tokens.data();
  options.num_tokens = tokens.size();
  options.max_tokens = max_tokens;
  options.ignore_eos = 1;
  return options;
}
inline inlay_request_options ChatRequest(const std::string& json,
                                         int32_t max_tokens) {
  auto options = Defaults(inlay_request_options_init_sized);
  options.chat = json.data();
  options.chat_bytes = json.size();
  options.max_tokens = max_tokens;
  return options;
}

// The options refer to the text.
inlay_request_options ChatRequest(std::string&&, int32_t) = delete;

// Counts live bytes, refuses above `limit`, and refuses every call from
// `fail_at` on (the first is 1; 0: never).
class CountingAllocator {
 public:
  uint64_t limit = UINT64_MAX;
  int64_t fail_at = 0;

  void AttachTo(inlay_engine_options& options) {
    options.allocate = Allocate;
    options.deallocate = Deallocate;
    options.allocator_user = this;
  }
  int64_t live_bytes() const { return live_; }
  int64_t calls() const { return calls_; }
  bool misused() const { return misused_; }

 private:
  static void* Allocate(void* user, size_t bytes, size_t alignment) {
    auto* self = static_cast<CountingAllocator*>(user);
    const int64_t call = ++self->calls_;
    if (self->fail_at > 0 && call >= self->fail_at) return nullptr;
    const int64_t live = self->live_ += static_cast<int64_t>(bytes);
    if (static_cast<uint64_t>(live) > self->limit) self->misused_ = true;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) self->live_ -= static_cast<int64_t>(bytes);
    return memory;
  }
  static void Deallocate(void* user, void* memory, size_t bytes, size_t) {
    auto* self = static_cast<CountingAllocator*>(user);
    if (memory == nullptr) self->misused_ = true;
    if ((self->live_ -= static_cast<int64_t>(bytes)) < 0) self->misused_ = true;
    std::free(memory);
  }

  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> calls_{0};
  std::atomic<bool> misused_{false};
};

// Everything one request produced.
struct Outcome {
  std::vector<int32_t> tokens;
  std::string text;
  std::string bytes;
  std::vector<std::pair<int64_t, std::vector<float>>> logits;
  std::vector<std::pair<int64_t, float>> scores;
  std::vector<inlay_token_logprob> logprobs;
  std::vector<float> embedding;
  std::vector<float> label_logits;
  std::vector<float> label_scores;
  std::set<void*> user_data;
  int finished = 0;
  inlay_event_info finish = Defaults(inlay_event_info_init_sized);
  std::string message;

  // Takes over the event.
  void Take(inlay_event* event) {
    Error error;
    auto info = Defaults(inlay_event_info_init_sized);
    ASSERT_EQ(inlay_event_get_info(event, &info, error.out()), INLAY_OK)
        << error.message();
    EXPECT_EQ(finished, 0) << "an event after FINISHED";
    user_data.insert(info.user_data);
    tokens.insert(tokens.end(), info.tokens, info.tokens + info.num_tokens);
    text.append(info.text, info.text_bytes);
    bytes.append(info.bytes, info.num_bytes);
    logprobs.insert(logprobs.end(), info.logprobs,
                    info.logprobs + info.num_logprobs);
    if (info.kind == INLAY_EVENT_LOGITS) {
      logits.emplace_back(
          info.position,
          std::vector<float>(info.logits, info.logits + info.num_logits));
    }
    if (info.kind == INLAY_EVENT_CLASSIFICATION) {
      EXPECT_TRUE(label_logits.empty()) << "a second classification";
      label_logits.assign(info.logits, info.logits + info.num_logits);
      label_scores.assign(info.scores, info.scores + info.num_scores);
      info.num_scores = 0;
    }
    for (size_t i = 0; i < info.num_scores; ++i) {
      scores.emplace_back(info.position + static_cast<int64_t>(i),
                          info.scores[i]);
    }
    if (info.kind == INLAY_EVENT_EMBEDDING) {
      EXPECT_TRUE(embedding.empty()) << "a second embedding";
      embedding.assign(info.embedding, info.embedding + info.num_embedding);
    }
    if (info.kind == INLAY_EVENT_FINISHED) {
      ++finished;
      finish = info;
      message = info.message;
    }
    inlay_event_release(event);
  }
};

// An engine and a model on it; releases what it made.
class Host {
 public:
  explicit Host(const std::string& path = TinyModel(),
                inlay_engine_options options = EngineDefaults(),
                const inlay_model_options& model_options = ModelDefaults()) {
    threaded_ = options.drive == INLAY_DRIVE_THREAD;
    Error error;
    EXPECT_EQ(inlay_engine_create(&options, &engine, error.out()), INLAY_OK)
        << error.message();
    if (path.empty()) return;
    EXPECT_EQ(inlay_model_load(engine, path.c_str(), &model_options, &model,
                               error.out()),
              INLAY_OK)
        << error.message();
  }
  ~Host() {
    inlay_model_release(model);
    inlay_engine_release(engine);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  inlay_session* NewSession() const {
    Error error;
    inlay_session* session = nullptr;
    EXPECT_EQ(inlay_session_create(model, &session, error.out()), INLAY_OK)
        << error.message();
    return session;
  }
  inlay_request* Submit(inlay_session* session,
                        const inlay_request_options& options) const {
    Error error;
    inlay_request* request = nullptr;
    EXPECT_EQ(inlay_session_submit(session, &options, &request, error.out()),
              INLAY_OK)
        << error.message();
    return request;
  }
  inlay_step_info Step(uint64_t budget_us = 0) const {
    Error error;
    auto info = Defaults(inlay_step_info_init_sized);
    EXPECT_EQ(inlay_engine_step(engine, budget_us, &info, error.out()),
              INLAY_OK)
        << error.message();
    return info;
  }
  // Reads the request to its end, stepping where the host must, and releases
  // it.
  Outcome Finish(inlay_request* request) const {
    Outcome outcome;
    constexpr int kMostIdleSteps = 50'000;
    int idle_steps = 0;
    while (outcome.finished == 0) {
      if (!threaded_ && Step().num_requests == 0 &&
          ++idle_steps > kMostIdleSteps) {
        ADD_FAILURE() << "the request does not end";
        break;
      }
      Error error;
      inlay_event* event = nullptr;
      const uint64_t wait_us = threaded_ ? 20'000'000 : 0;
      inlay_status status = INLAY_OK;
      while (outcome.finished == 0 &&
             (status = inlay_request_next_event(request, wait_us, &event,
                                                error.out())) == INLAY_OK) {
        outcome.Take(event);
        if (::testing::Test::HasFatalFailure()) return outcome;
      }
      if (status != INLAY_OK && (threaded_ || status != INLAY_TIMEOUT)) {
        ADD_FAILURE() << inlay_status_name(status) << ": " << error.message();
        break;
      }
    }
    inlay_request_release(request);
    return outcome;
  }
  Outcome Run(inlay_session* session,
              const inlay_request_options& options) const {
    return Finish(Submit(session, options));
  }
  // In a session of its own.
  Outcome RunAlone(const inlay_request_options& options) const {
    inlay_session* session = NewSession();
    Outcome outcome = Run(session, options);
    inlay_session_release(session);
    return outcome;
  }
  // The engine still does what it is for.
  void ExpectWorks() const {
    const std::vector<int32_t> prompt = {1, 5, 9};
    const Outcome outcome = RunAlone(TokensRequest(prompt, 2));
    EXPECT_EQ(outcome.tokens.size(), 2u);
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
  }
  inlay_stats Stats() const {
    Error error;
    auto stats = Defaults(inlay_stats_init_sized);
    EXPECT_EQ(inlay_engine_stats(engine, &stats, error.out()), INLAY_OK)
        << error.message();
    return stats;
  }
  inlay_session_info Info(inlay_session* session) const {
    Error error;
    auto info = Defaults(inlay_session_info_init);
    EXPECT_EQ(inlay_session_get_info(session, &info, error.out()), INLAY_OK)
        << error.message();
    return info;
  }
  std::vector<int32_t> Log(inlay_session* session) const {
    std::vector<int32_t> log(Info(session).num_tokens);
    size_t count = 0;
    EXPECT_EQ(
        inlay_session_tokens(session, log.data(), log.size(), &count, nullptr),
        INLAY_OK);
    EXPECT_EQ(count, log.size());
    return log;
  }

  inlay_engine* engine = nullptr;
  inlay_model* model = nullptr;

 private:
  bool threaded_ = false;
};

// What submitting into a new session gives.
inline inlay_status TrySubmit(const Host& host,
                              const inlay_request_options& options,
                              Error& error) {
  inlay_session* session = host.NewSession();
  inlay_request* request = nullptr;
  const inlay_status status =
      inlay_session_submit(session, &options, &request, error.out());
  inlay_request_release(request);
  inlay_session_release(session);
  return status;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_API_HOST_H_
