// Hosts whose threads call anything on any handle, their own or another's, in
// random order: engines, models, sessions, requests and prefixes come and go
// under calls that use them. What is found of it: tokens of requests that ended
// well are those of a quiet engine, every request ends, and nothing is left.
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using Random = std::mt19937;

// Handles that all threads share; whoever puts one in releases the one it
// replaces, which others may be using.
template <typename T>
class SharedHandles {
 public:
  explicit SharedHandles(void (*release)(T*)) : release_(release) {}
  ~SharedHandles() { Clear(); }

  T* Pick(Random& random) const { return handles_[random() % kCount]; }
  void Put(Random& random, T* handle) {
    if (handle != nullptr)
      release_(handles_[random() % kCount].exchange(handle));
  }
  void Clear() {
    for (auto& handle : handles_) release_(handle.exchange(nullptr));
  }
  std::vector<T*> All() const { return {handles_.begin(), handles_.end()}; }

 private:
  static constexpr size_t kCount = 4;
  void (*const release_)(T*);
  std::array<std::atomic<T*>, kCount> handles_{};
};

class RandomHost {
 public:
  explicit RandomHost(uint32_t seed) : seed_(seed) {
    folder_ = ::testing::TempDir() + "inlay-XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    Host quiet;
    for (size_t i = 0; i < kNumAsks; ++i) {
      expected_[i] = quiet.RunAlone(Ask(i)).tokens;
    }
  }
  ~RandomHost() { std::filesystem::remove_all(folder_); }

  void Run(int num_threads, int num_calls) {
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
      threads.emplace_back([this, t, num_calls] {
        Random random(seed_ * 100 + static_cast<uint32_t>(t));
        for (int i = 0; i < num_calls; ++i) Call(random);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(num_checked_, 0);
    ExpectNothingLeft();
  }

 private:
  static constexpr size_t kNumAsks = 3;

  // Asks for the same, whatever else runs.
  inlay_request_options Ask(size_t which) const {
    auto options = TokensRequest(prompts_[which], 6);
    options.seed = 5;
    if (which == 1) options.temperature = 1;
    return options;
  }

  void Call(Random& random) {
    Error error;
    inlay_status status = INLAY_OK;
    switch (random() % 8) {
      case 0:
        status = Owners(random, error);
        break;
      case 1:
        status = Sessions(random, error);
        break;
      case 2:
        status = Prefixes(random, error);
        break;
      case 3:
        status = Requests(random, error);
        break;
      case 4:
        status = Reports(random, error);
        break;
      case 5:
        status = Files(random, error);
        break;
      case 6:
        CheckTokens(random);
        break;
      default:
        status = inlay_engine_step(engines_.Pick(random),
                                   random() % 2 * (random() % 2000), nullptr,
                                   error.out());
    }
    EXPECT_NE(status, INLAY_INTERNAL) << error.message();
    EXPECT_NE(status, INLAY_DEVICE_LOST) << error.message();
    EXPECT_TRUE(error.empty() || !error.message().empty());
  }

  inlay_status NewEngine(Random& random, Error& error) {
    auto options = EngineDefaults();
    options.drive = random() % 2;
    options.num_threads = 1 + random() % 3;
    options.max_batch_tokens = 8 + random() % 64;
    options.prefix_sharing = random() % 2;
    auto allocator = std::make_unique<CountingAllocator>();
    allocator->AttachTo(options);
    inlay_engine* engine = nullptr;
    const auto status = inlay_engine_create(&options, &engine, error.out());
    engines_.Put(random, engine);
    const std::lock_guard lock(mutex_);
    allocators_.push_back(std::move(allocator));
    return status;
  }

  inlay_status NewModel(Random& random, Error& error) {
    auto options = ModelDefaults();
    options.weights = random() % 2;
    options.kv_block_size = 8;
    options.kv_budget_bytes = (16 + random() % 48) * kBlockBytes;
    int calls = static_cast<int>(random() % 60);
    options.progress_user = &calls;
    options.progress = [](void* user, int32_t, float) -> int32_t {
      return --*static_cast<int*>(user) == 0 ? 1 : 0;
    };
    if (random() % 4 == 0) options.host_cache_bytes = 1 << 18;
    inlay_model* model = nullptr;
    const auto status =
        inlay_model_load(engines_.Pick(random), TinyModel().c_str(), &options,
                         &model, error.out());
    models_.Put(random, model);
    return status;
  }

  inlay_status Owners(Random& random, Error& error) {
    switch (random() % 8) {
      case 0:
        return NewEngine(random, error);
      case 1:
      case 2:
        return NewModel(random, error);
      case 3:
        if (random() % 4 == 0) inlay_engine_release(engines_.Pick(random));
        return INLAY_OK;
      case 4:
        if (random() % 4 == 0) inlay_model_release(models_.Pick(random));
        return INLAY_OK;
      default:
        return inlay_engine_set_memory_budget(
            engines_.Pick(random), 0,
            random() % 2 * (400'000 + random() % 1'000'000), error.out());
    }
  }

  inlay_status Sessions(Random& random, Error& error) {
    inlay_session* made = nullptr;
    inlay_session* const session = sessions_.Pick(random);
    inlay_status status = INLAY_OK;
    switch (random() % 5) {
      case 0:
      case 1:
        status = inlay_session_create(models_.Pick(random), &made, error.out());
        break;
      case 2:
        status = inlay_session_fork(session, &made, error.out());
        break;
      case 3:
        status = inlay_session_rewind(session, random() % 8, error.out());
        break;
      default:
        inlay_session_release(session);
    }
    sessions_.Put(random, made);
    return status;
  }

  inlay_status Prefixes(Random& random, Error& error) {
    inlay_prefix* const prefix = prefixes_.Pick(random);
    inlay_prefix* made = nullptr;
    inlay_session* opened = nullptr;
    auto options = Defaults(inlay_prefix_options_init);
    options.tokens = prompts_[2].data();
    options.num_tokens = prompts_[2].size();
    options.pin = random() % 2;
    inlay_status status = INLAY_OK;
    switch (random() % 5) {
      case 0:
        status = inlay_prefix_create(models_.Pick(random), "p", &options, &made,
                                     error.out());
        break;
      case 1:
        status =
            inlay_prefix_find(models_.Pick(random), "p", &made, error.out());
        break;
      case 2:
        status = inlay_prefix_open(prefix, &opened, error.out());
        break;
      case 3:
        status = inlay_prefix_pin(prefix, random() % 2, error.out());
        break;
      default:
        inlay_prefix_release(prefix);
    }
    prefixes_.Put(random, made);
    sessions_.Put(random, opened);
    return status;
  }

  inlay_status Requests(Random& random, Error& error) {
    inlay_request* const request = requests_.Pick(random);
    inlay_session* const session = sessions_.Pick(random);
    inlay_request* made = nullptr;
    inlay_event* event = nullptr;
    auto options = Ask(random() % kNumAsks);
    if (random() % 3 == 0) options.deadline_us = 1 + random() % 5000;
    if (random() % 3 == 0) options.num_logprobs = 2;
    if (random() % 4 == 0) options.score_prompt = 1;
    if (random() % 3 == 0) options.max_tokens = 200;
    inlay_status status = INLAY_OK;
    switch (random() % 7) {
      case 0:
      case 1:
        status = inlay_session_submit(session, &options, &made, error.out());
        break;
      case 2: {
        auto quote = Defaults(inlay_quote_init);
        status = inlay_request_quote(session, &options, random() % 2, &quote,
                                     error.out());
        break;
      }
      case 3:
        status = inlay_request_cancel(request, error.out());
        break;
      case 4:
        inlay_request_release(request);
        break;
      case 5:
        status = inlay_request_next_event(request, random() % 500, &event,
                                          error.out());
        break;
      default:
        status = inlay_event_next(engines_.Pick(random), random() % 500, &event,
                                  error.out());
    }
    requests_.Put(random, made);
    inlay_event_release(event);
    return status;
  }

  inlay_status Reports(Random& random, Error& error) {
    inlay_engine* const engine = engines_.Pick(random);
    inlay_buffer* buffer = nullptr;
    inlay_status status = INLAY_OK;
    switch (random() % 5) {
      case 0: {
        auto stats = Defaults(inlay_stats_init_sized);
        status = inlay_engine_stats(engine, &stats, error.out());
        break;
      }
      case 1:
        status =
            inlay_engine_metrics(engine, random() % 2, &buffer, error.out());
        break;
      case 2:
        status = inlay_engine_trace_start(engine, 100, error.out());
        break;
      case 3:
        status =
            inlay_engine_trace_take(engine, random() % 2, &buffer, error.out());
        break;
      default: {
        auto info = Defaults(inlay_session_info_init);
        status =
            inlay_session_get_info(sessions_.Pick(random), &info, error.out());
      }
    }
    inlay_buffer_release(buffer);
    return status;
  }

  inlay_status Files(Random& random, Error& error) {
    const std::string number = std::to_string(random() % 2);
    const std::string saved = folder_ + "/saved" + number;
    const std::string recorded = folder_ + "/recorded" + number;
    inlay_model* const model = models_.Pick(random);
    inlay_session* restored = nullptr;
    inlay_buffer* report = nullptr;
    inlay_status status = INLAY_OK;
    switch (random() % 5) {
      case 0:
        status = inlay_session_save(sessions_.Pick(random), saved.c_str(),
                                    error.out());
        break;
      case 1:
        status = inlay_session_restore(model, saved.c_str(), &restored, nullptr,
                                       error.out());
        break;
      case 2:
        status = inlay_model_record_start(model, recorded.c_str(), error.out());
        break;
      case 3:
        status = inlay_model_record_stop(model, error.out());
        break;
      default:
        status =
            inlay_model_replay(model, recorded.c_str(), &report, error.out());
    }
    sessions_.Put(random, restored);
    inlay_buffer_release(report);
    return status;
  }

  // A request of this thread alone. Others take its events, and may end what it
  // runs on; the session's log tells what it gave.
  void CheckTokens(Random& random) {
    const size_t which = random() % kNumAsks;
    const auto ask = Ask(which);
    inlay_session* session = nullptr;
    inlay_request* request = nullptr;
    inlay_session_create(models_.Pick(random), &session, nullptr);
    inlay_session_submit(session, &ask, &request, nullptr);
    auto info = Defaults(inlay_session_info_init);
    for (int i = 0; i < 200; ++i) {
      for (inlay_engine* engine : engines_.All())
        inlay_engine_step(engine, 0, nullptr, nullptr);
      if (inlay_session_get_info(session, &info, nullptr) != INLAY_OK) break;
      if (info.busy == 0) break;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    std::vector<int32_t> log(64);
    size_t count = 0;
    inlay_session_tokens(session, log.data(), log.size(), &count, nullptr);
    log.resize(count);
    std::vector<int32_t> whole = prompts_[which];
    whole.insert(whole.end(), expected_[which].begin(), expected_[which].end());
    // A failed one has fewer tokens.
    if (count == whole.size()) {
      ++num_checked_;
      EXPECT_EQ(log, whole);
    }
    inlay_request_release(request);
    inlay_session_release(session);
  }

  void ExpectNothingLeft() {
    requests_.Clear();
    sessions_.Clear();
    prefixes_.Clear();
    models_.Clear();
    for (inlay_engine* engine : engines_.All()) {
      auto stats = Defaults(inlay_stats_init_sized);
      if (inlay_engine_stats(engine, &stats, nullptr) != INLAY_OK) continue;
      for (int i = 0; i < 5000 && stats.memory_bytes > 0; ++i) {
        inlay_engine_step(engine, 0, nullptr, nullptr);
        inlay_engine_stats(engine, &stats, nullptr);
        std::this_thread::sleep_for(std::chrono::milliseconds(i > 10 ? 1 : 0));
      }
      EXPECT_EQ(stats.memory_bytes, 0u);
      EXPECT_EQ(stats.num_models, 0u);
      EXPECT_EQ(stats.num_sessions, 0u);
      EXPECT_EQ(stats.submitted_requests, stats.finished_requests +
                                              stats.cancelled_requests +
                                              stats.failed_requests);
    }
    engines_.Clear();
    for (const auto& allocator : allocators_) {
      EXPECT_EQ(allocator->live_bytes(), 0);
      EXPECT_FALSE(allocator->misused());
    }
  }

  const uint32_t seed_;
  std::string folder_;
  const std::array<std::vector<int32_t>, kNumAsks> prompts_ = {
      Tokens(1, 5), Tokens(2, 12), Tokens(3, 30)};
  std::array<std::vector<int32_t>, kNumAsks> expected_;
  std::atomic<int> num_checked_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<CountingAllocator>> allocators_;
  SharedHandles<inlay_engine> engines_{&inlay_engine_release};
  SharedHandles<inlay_model> models_{&inlay_model_release};
  SharedHandles<inlay_session> sessions_{&inlay_session_release};
  SharedHandles<inlay_request> requests_{&inlay_request_release};
  SharedHandles<inlay_prefix> prefixes_{&inlay_prefix_release};
};

// INLAY_RANDOM_HOSTS: how many.
TEST(Threads, AnythingInAnyOrder) {
  const char* many = std::getenv("INLAY_RANDOM_HOSTS");
  const int num_hosts = many == nullptr ? 1 : std::atoi(many);
  for (int i = 1; i <= num_hosts && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "seed " << i);
    RandomHost(static_cast<uint32_t>(i)).Run(3, 1500);
  }
}

}  // namespace
}  // namespace inlay::testing
