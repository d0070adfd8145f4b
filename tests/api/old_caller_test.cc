// A host that was compiled against ABI 1: its structs have the sizes of then,
// it calls the functions that were there then, and what lies behind its structs
// is its own.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/api/abi_sizes.h"
#include "tests/api/host.h"

namespace inlay::testing {
namespace {

constexpr unsigned char kCanary = 0xc9;

// Memory that ends where the first version of T did, with canaries behind; all
// accesses beyond are also ASan's to find.
template <typename T>
class Old {
 public:
  explicit Old(void (*init)(T*)) {
    std::fill_n(bytes(), kBytes, kCanary);
    init(get());
    EXPECT_EQ(get()->struct_size, kFirstSize<T>);
    ExpectUntouched();
  }
  ~Old() { ExpectUntouched(); }
  T* get() { return static_cast<T*>(static_cast<void*>(memory_.get())); }
  T* operator->() { return get(); }
  void ExpectUntouched() {
    EXPECT_TRUE(std::all_of(bytes() + kFirstSize<T>, bytes() + kBytes,
                            [](unsigned char byte) { return byte == kCanary; }))
        << "written behind a struct of " << kFirstSize<T> << " bytes";
  }

 private:
  // Fields that T has grown since lie in the canaries.
  static constexpr size_t kBytes = sizeof(T) + 64;
  unsigned char* bytes() { return memory_.get(); }
  std::unique_ptr<unsigned char[]> memory_{new unsigned char[kBytes]};
};

// The functions behind the macros that took their names.
template <typename T>
void Init(T* value) = delete;
#define INLAY_OLD_INIT(type)      \
  template <>                     \
  void Init<type>(type * value) { \
    (type##_init)(value);         \
  }
INLAY_OLD_INIT(inlay_engine_options)
INLAY_OLD_INIT(inlay_step_info)
INLAY_OLD_INIT(inlay_stats)
INLAY_OLD_INIT(inlay_model_options)
INLAY_OLD_INIT(inlay_model_info)
INLAY_OLD_INIT(inlay_session_info)
INLAY_OLD_INIT(inlay_request_options)
INLAY_OLD_INIT(inlay_event_info)
#undef INLAY_OLD_INIT

TEST(OldCaller, RunsAsEver) {
  Error error;
  Old<inlay_engine_options> engine_options(Init<inlay_engine_options>);
  EXPECT_EQ(engine_options->max_batch_tokens, 512u);
  EXPECT_EQ(engine_options->max_queue, 65536u);
  engine_options->num_threads = 2;
  inlay_engine* engine = nullptr;
  ASSERT_EQ(inlay_engine_create(engine_options.get(), &engine, error.out()),
            INLAY_OK)
      << error.message();

  Old<inlay_model_options> model_options(Init<inlay_model_options>);
  inlay_model* model = nullptr;
  ASSERT_EQ(inlay_model_load(engine, SmallModel().c_str(), model_options.get(),
                             &model, error.out()),
            INLAY_OK)
      << error.message();
  Old<inlay_model_info> model_info(Init<inlay_model_info>);
  EXPECT_EQ(inlay_model_get_info(model, model_info.get(), error.out()),
            INLAY_OK);
  EXPECT_EQ(model_info->vocab_size, 4096u);

  Old<inlay_request_options> options(Init<inlay_request_options>);
  EXPECT_EQ(options->max_tokens, -1);
  EXPECT_EQ(inlay_model_request_options(model, options.get(), error.out()),
            INLAY_OK)
      << error.message();
  EXPECT_EQ(options->struct_size, kFirstSize<inlay_request_options>);
  EXPECT_EQ(options->max_tokens, 512);
  const std::string text = "Once upon a time";
  options->text = text.data();
  options->text_bytes = text.size();
  options->max_tokens = 8;
  options->ignore_eos = 1;
  inlay_session* session = nullptr;
  inlay_request* request = nullptr;
  ASSERT_EQ(inlay_session_create(model, &session, error.out()), INLAY_OK);
  // Canaries where the new fields lie are no resume, deadline or share.
  ASSERT_EQ(inlay_session_submit(session, options.get(), &request, error.out()),
            INLAY_OK)
      << error.message();

  Old<inlay_step_info> step(Init<inlay_step_info>);
  int sampled = 0;
  do {
    ASSERT_EQ(inlay_engine_step(engine, 0, step.get(), error.out()), INLAY_OK);
    sampled += static_cast<int>(step->sampled_tokens);
    step.ExpectUntouched();
  } while (step->more_work != 0);
  EXPECT_EQ(sampled, 8);
  Old<inlay_event_info> info(Init<inlay_event_info>);
  inlay_event* event = nullptr;
  size_t tokens = 0;
  while (inlay_event_next(engine, 0, &event, error.out()) == INLAY_OK) {
    ASSERT_EQ(inlay_event_get_info(event, info.get(), error.out()), INLAY_OK);
    tokens += info->num_tokens;
    inlay_event_release(event);
  }
  EXPECT_EQ(tokens, 8u);
  EXPECT_EQ(info->kind, INLAY_EVENT_FINISHED);
  EXPECT_EQ(info->finish_reason, INLAY_FINISH_LENGTH);

  Old<inlay_session_info> session_info(Init<inlay_session_info>);
  EXPECT_EQ(inlay_session_get_info(session, session_info.get(), error.out()),
            INLAY_OK);
  EXPECT_GT(session_info->num_cached, 8u);
  Old<inlay_stats> stats(Init<inlay_stats>);
  EXPECT_EQ(inlay_engine_stats(engine, stats.get(), error.out()), INLAY_OK);
  EXPECT_EQ(stats->finished_requests, 1u);
  EXPECT_GT(stats->memory_bytes, 0u);
  stats.ExpectUntouched();

  inlay_request_release(request);
  inlay_session_release(session);
  inlay_model_release(model);
  inlay_engine_release(engine);
}

// What an old host cannot say has the defaults of now.
TEST(OldCaller, GetsTheDefaultsOfNewFields) {
  Old<inlay_engine_options> engine_options(Init<inlay_engine_options>);
  Host host(SmallModel(), *engine_options.get());
  const std::vector<int32_t> prompt(40, 9);
  host.RunAlone(TokensRequest(prompt, 1));
  EXPECT_EQ(host.RunAlone(TokensRequest(prompt, 1)).finish.cached_tokens, 39u)
      << "prefix_sharing is on by default";
}

// Sized initialisers write what the caller says it has, or nothing at all.
template <typename T>
void CheckSizedInit(void (*init_sized)(T*, size_t)) {
  std::vector<unsigned char> memory(sizeof(T) + 64, kCanary);
  auto* value = static_cast<T*>(static_cast<void*>(memory.data()));
  init_sized(nullptr, sizeof(T));
  for (const size_t size : {size_t{0}, size_t{4}, kFirstSize<T> - 1}) {
    init_sized(value, size);
    EXPECT_THAT(memory, ::testing::Each(kCanary)) << size;
  }
  for (const size_t size :
       {kFirstSize<T>, kFirstSize<T> + 8, sizeof(T), sizeof(T) + 32}) {
    std::fill(memory.begin(), memory.end(), kCanary);
    init_sized(value, size);
    const size_t written = std::min(size, sizeof(T));
    EXPECT_EQ(value->struct_size, written);
    EXPECT_TRUE(std::all_of(memory.begin() + static_cast<ptrdiff_t>(written),
                            memory.end(),
                            [](unsigned char byte) { return byte == kCanary; }))
        << size;
  }
}

TEST(SizedInit, WritesWhatTheCallerHas) {
  CheckSizedInit(inlay_engine_options_init_sized);
  CheckSizedInit(inlay_step_info_init_sized);
  CheckSizedInit(inlay_stats_init_sized);
  CheckSizedInit(inlay_model_options_init_sized);
  CheckSizedInit(inlay_request_options_init_sized);
}

}  // namespace
}  // namespace inlay::testing
