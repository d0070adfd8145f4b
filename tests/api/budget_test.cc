// The memory budget, up and down while requests run: no allocation ever passes
// it, nobody is lost, nobody's tokens change.
#include <gmock/gmock.h>

#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

// Aborts the test's hopes when an allocation passes the budget of the moment.
class Watchdog {
 public:
  std::atomic<uint64_t> budget{UINT64_MAX};

  void AttachTo(inlay_engine_options& options) {
    options.allocate = Allocate;
    options.deallocate = Deallocate;
    options.allocator_user = this;
  }
  uint64_t live() const { return live_; }
  uint64_t most_over() const { return most_over_; }

 private:
  static void* Allocate(void* user, size_t bytes, size_t alignment) {
    auto* self = static_cast<Watchdog*>(user);
    const uint64_t live = self->live_ += bytes;
    const uint64_t budget = self->budget;
    if (live > budget) self->most_over_ = live - budget;
    return std::aligned_alloc(alignment,
                              (bytes + alignment - 1) / alignment * alignment);
  }
  static void Deallocate(void* user, void* memory, size_t bytes, size_t) {
    static_cast<Watchdog*>(user)->live_ -= bytes;
    std::free(memory);
  }

  std::atomic<uint64_t> live_{0};
  std::atomic<uint64_t> most_over_{0};
};

constexpr uint64_t kCacheBytes = 64 * kBlockBytes;

inlay_model_options Cache() {
  auto options = ModelDefaults();
  options.kv_block_size = 8;
  options.kv_budget_bytes = kCacheBytes;
  options.weights = INLAY_WEIGHTS_READ;
  return options;
}

class BudgetHost {
 public:
  explicit BudgetHost(int32_t drive = INLAY_DRIVE_HOST)
      : host(TinyModel(), Options(drive), Cache()) {
    floor = host.Stats().weight_bytes + host.Stats().workspace_bytes;
  }
  ~BudgetHost() { EXPECT_EQ(watchdog.most_over(), 0u); }

  inlay_status Set(uint64_t bytes) {
    // Up before the engine may use it, down after it has agreed.
    Error error;
    if (bytes == 0 || bytes > watchdog.budget)
      watchdog.budget = bytes == 0 ? UINT64_MAX : bytes;
    const auto status =
        inlay_engine_set_memory_budget(host.engine, 0, bytes, error.out());
    message = error.message();
    if (status == INLAY_OK && bytes != 0) watchdog.budget = bytes;
    return status;
  }

  Watchdog watchdog;  // outlives the engine
  Host host;
  uint64_t floor = 0;
  std::string message;

 private:
  inlay_engine_options Options(int32_t drive) {
    auto options = EngineDefaults();
    options.drive = drive;
    options.max_batch_tokens = 32;
    watchdog.AttachTo(options);
    return options;
  }
};

TEST(Budget, ShrinksAndGrowsTheCacheAtOnce) {
  BudgetHost budget;
  Host& host = budget.host;
  EXPECT_EQ(host.Stats().kv_bytes, kCacheBytes);
  EXPECT_EQ(budget.Set(budget.floor + kCacheBytes / 2), INLAY_OK)
      << budget.message;
  EXPECT_LE(host.Stats().kv_bytes, kCacheBytes / 2);
  EXPECT_GE(host.Stats().kv_bytes, kCacheBytes / 4);
  EXPECT_EQ(budget.watchdog.live(), host.Stats().memory_bytes);
  EXPECT_EQ(host.Stats().memory_budget_bytes, budget.floor + kCacheBytes / 2);
  host.ExpectWorks();
  EXPECT_EQ(budget.Set(0), INLAY_OK);
  EXPECT_EQ(host.Stats().kv_bytes, kCacheBytes);
  EXPECT_EQ(host.Stats().memory_budget_bytes, 0u);
  host.ExpectWorks();
  // More than it was made with does not make it larger.
  EXPECT_EQ(budget.Set(uint64_t{1} << 40), INLAY_OK);
  EXPECT_EQ(host.Stats().kv_bytes, kCacheBytes);
}

TEST(Budget, BelowTheFloorIsRefused) {
  BudgetHost budget;
  Host& host = budget.host;
  EXPECT_EQ(budget.Set(budget.floor + kCacheBytes), INLAY_OK);
  for (const uint64_t bytes :
       {uint64_t{1}, budget.floor / 2, budget.floor - 1}) {
    EXPECT_EQ(budget.Set(bytes), INLAY_RESOURCE_EXHAUSTED);
    EXPECT_THAT(budget.message, HasSubstr(std::to_string(bytes)));
    EXPECT_THAT(budget.message, HasSubstr(std::to_string(budget.floor)));
    EXPECT_EQ(host.Stats().memory_budget_bytes, budget.floor + kCacheBytes);
    EXPECT_EQ(host.Stats().kv_bytes, kCacheBytes) << "nothing changed";
  }
  Error error;
  for (const int32_t device : {-1, 1, INT32_MAX}) {
    EXPECT_EQ(
        inlay_engine_set_memory_budget(host.engine, device, 0, error.out()),
        INLAY_INVALID_ARGUMENT);
    EXPECT_THAT(error.message(), HasSubstr(std::to_string(device)));
  }
  host.ExpectWorks();
}

TEST(Budget, AtTheFloorEverythingWaitsAndNothingIsLost) {
  BudgetHost budget;
  Host& host = budget.host;
  const auto prompt = Tokens(3, 20);
  const auto expected = host.RunAlone(TokensRequest(prompt, 12)).tokens;
  inlay_session* session = host.NewSession();
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 12));
  for (int i = 0; i < 4; ++i) host.Step();
  EXPECT_EQ(budget.Set(budget.floor), INLAY_OK) << budget.message;
  EXPECT_EQ(budget.watchdog.live(), budget.floor);
  EXPECT_EQ(host.Stats().kv_blocks_total, 0u);
  for (int i = 0; i < 5; ++i) {
    const auto step = host.Step();
    EXPECT_EQ(step.num_requests, 0u);
    EXPECT_EQ(step.more_work, 0u);
  }
  EXPECT_EQ(host.Stats().waiting_requests, 1u);
  EXPECT_EQ(host.Info(session).num_tokens, 24u);
  EXPECT_EQ(budget.Set(0), INLAY_OK);
  const Outcome outcome = host.Finish(request);
  EXPECT_EQ(outcome.tokens, expected);
  EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
  inlay_session_release(session);
}

// The tokens of requests that run while the budget goes up and down.
void CheckRunsThrough(int32_t drive) {
  constexpr int kSessions = 5;
  std::vector<std::vector<int32_t>> prompts, expected;
  Host roomy;
  for (int i = 0; i < kSessions; ++i) {
    prompts.push_back(Tokens(40 + 30 * i, 30 + 5 * i));
    expected.push_back(
        roomy.RunAlone(TokensRequest(prompts.back(), 40)).tokens);
  }
  BudgetHost budget(drive);
  Host& host = budget.host;
  std::vector<inlay_session*> sessions;
  std::vector<inlay_request*> requests;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(host.NewSession());
    requests.push_back(
        host.Submit(sessions.back(), TokensRequest(prompts[i], 40)));
  }
  const uint64_t kv[] = {kCacheBytes / 2,  24 * kBlockBytes, kCacheBytes, 0,
                         13 * kBlockBytes, 30 * kBlockBytes};
  for (int round = 0; round < 40; ++round) {
    if (drive == INLAY_DRIVE_HOST) {
      host.Step();
      host.Step();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    ASSERT_EQ(budget.Set(budget.floor + kv[round % 6]), INLAY_OK)
        << budget.message;
  }
  ASSERT_EQ(budget.Set(budget.floor + 24 * kBlockBytes), INLAY_OK);
  for (int i = 0; i < kSessions; ++i) {
    const Outcome outcome = host.Finish(requests[i]);
    EXPECT_EQ(outcome.finish.status, INLAY_OK) << outcome.message;
    EXPECT_EQ(outcome.tokens, expected[i]) << i;
    inlay_session_release(sessions[i]);
  }
  if (drive == INLAY_DRIVE_HOST) {
    EXPECT_GT(host.Stats().preemptions, 0u);
  }
  EXPECT_EQ(host.Stats().kv_blocks_used, 0u);
  EXPECT_LE(budget.watchdog.live(), budget.floor + 24 * kBlockBytes);
}

TEST(Budget, RunningRequestsGoThroughHostDriven) {
  CheckRunsThrough(INLAY_DRIVE_HOST);
}
TEST(Budget, RunningRequestsGoThroughThreadDriven) {
  CheckRunsThrough(INLAY_DRIVE_THREAD);
}

// Default requests (no limit of tokens) mean what the cache can hold now.
TEST(Budget, UnlimitedRequestsRunInASmallerCache) {
  BudgetHost budget;
  Host& host = budget.host;
  EXPECT_EQ(budget.Set(budget.floor + 8 * kBlockBytes), INLAY_OK);
  const auto prompt = Tokens(3, 5);
  auto options = TokensRequest(prompt, -1);
  inlay_session* session = host.NewSession();
  Error error;
  inlay_request* request = nullptr;
  ASSERT_EQ(inlay_session_submit(session, &options, &request, error.out()),
            INLAY_OK)
      << error.message();
  const Outcome outcome = host.Finish(request);
  EXPECT_EQ(outcome.finish.finish_reason, INLAY_FINISH_LENGTH);
  EXPECT_GT(outcome.tokens.size(), 20u);
  inlay_session_release(session);
}

// What the host asked to keep goes last, and comes back.
TEST(Budget, PinnedPrefixesComeBackWithTheMemory) {
  BudgetHost budget;
  Host& host = budget.host;
  const auto tokens = Tokens(9, 80);
  auto options = Defaults(inlay_prefix_options_init);
  options.tokens = tokens.data();
  options.num_tokens = tokens.size();
  inlay_prefix* prefix = nullptr;
  ASSERT_EQ(inlay_prefix_create(host.model, "p", &options, &prefix, nullptr),
            INLAY_OK);
  const auto step_all = [&] {
    for (int i = 0; i < 1000 && host.Step().more_work != 0; ++i) {
    }
  };
  const auto cached = [&] {
    auto info = Defaults(inlay_prefix_info_init);
    EXPECT_EQ(inlay_prefix_get_info(prefix, &info, nullptr), INLAY_OK);
    EXPECT_EQ(info.pinned, 1u);
    return info.num_cached;
  };
  step_all();
  EXPECT_EQ(cached(), 80u);
  // Requests give way before it does.
  inlay_session* session = host.NewSession();
  const auto prompt = Tokens(200, 150);
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 60));
  for (int i = 0; i < 10; ++i) host.Step();
  EXPECT_EQ(budget.Set(budget.floor + 12 * kBlockBytes), INLAY_OK);
  EXPECT_EQ(cached(), 80u);
  EXPECT_EQ(host.Stats().kv_blocks_used, 10u);
  EXPECT_EQ(budget.Set(budget.floor + 4 * kBlockBytes), INLAY_OK);
  step_all();
  EXPECT_LT(cached(), 80u);
  EXPECT_LE(budget.watchdog.live(), budget.floor + 4 * kBlockBytes);
  EXPECT_EQ(budget.Set(budget.floor + kCacheBytes), INLAY_OK);
  EXPECT_EQ(host.Finish(request).finish.status, INLAY_OK);
  step_all();
  EXPECT_EQ(cached(), 80u);
  EXPECT_EQ(host.Stats().kv_blocks_used, 10u);
  inlay_session_release(session);
  inlay_prefix_release(prefix);
}

// Taken away with what was reserved beside it, though there was room: it is
// computed again where it fits.
TEST(Budget, PinnedPrefixesOutliveReservations) {
  BudgetHost budget;
  Host& host = budget.host;
  const auto tokens = Tokens(9, 40);
  auto options = Defaults(inlay_prefix_options_init);
  options.tokens = tokens.data();
  options.num_tokens = tokens.size();
  inlay_prefix* prefix = nullptr;
  ASSERT_EQ(inlay_prefix_create(host.model, "p", &options, &prefix, nullptr),
            INLAY_OK);
  while (host.Step().more_work != 0) {
  }
  EXPECT_EQ(host.Stats().kv_blocks_used, 5u);
  inlay_session* session = host.NewSession();
  const auto prompt = Tokens(200, 240);
  const auto wanted = TokensRequest(prompt, 100);
  auto quote = Defaults(inlay_quote_init);
  ASSERT_EQ(inlay_request_quote(session, &wanted, 1, &quote, nullptr),
            INLAY_OK);
  EXPECT_EQ(host.Stats().kv_blocks_used, 5u + 43);
  EXPECT_EQ(budget.Set(budget.floor + 16 * kBlockBytes), INLAY_OK);
  for (int i = 0; i < 100 && host.Step().more_work != 0; ++i) {
  }
  EXPECT_EQ(host.Stats().kv_blocks_used, 5u) << "the prefix, held";
  // What was reserved is gone; the request itself is refused or waits.
  EXPECT_EQ(inlay_request_quote(session, &wanted, 1, &quote, nullptr),
            INLAY_RESOURCE_EXHAUSTED);
  inlay_session_release(session);
  inlay_prefix_release(prefix);
}

TEST(Budget, IsSharedByModels) {
  BudgetHost budget;
  Host& host = budget.host;
  inlay_model* second = nullptr;
  const auto options = Cache();
  ASSERT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), &options,
                             &second, nullptr),
            INLAY_OK);
  budget.floor = host.Stats().weight_bytes + host.Stats().workspace_bytes;
  EXPECT_EQ(host.Stats().kv_bytes, 2 * kCacheBytes);
  EXPECT_EQ(budget.Set(budget.floor + kCacheBytes), INLAY_OK);
  EXPECT_LE(host.Stats().kv_bytes, kCacheBytes);
  EXPECT_GE(host.Stats().kv_bytes, kCacheBytes / 2);
  host.ExpectWorks();
  // A third does not fit; what is there goes on.
  EXPECT_EQ(budget.Set(budget.floor), INLAY_OK);
  Error error;
  inlay_model* third = nullptr;
  EXPECT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), &options, &third,
                             error.out()),
            INLAY_RESOURCE_EXHAUSTED);
  EXPECT_EQ(budget.Set(budget.floor + 2 * kCacheBytes), INLAY_OK);
  EXPECT_EQ(host.Stats().kv_bytes, 2 * kCacheBytes);
  // What a model leaves is there for the other.
  EXPECT_EQ(budget.Set(budget.floor + kCacheBytes), INLAY_OK);
  inlay_model_release(second);
  host.Step();
  host.Step();
  EXPECT_EQ(host.Stats().kv_bytes, kCacheBytes) << "grows back into the room";
  host.ExpectWorks();
}

}  // namespace
}  // namespace inlay::testing
