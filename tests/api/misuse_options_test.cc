// Options and arguments that are wrong: each gives its typed error, whose
// message has the name and the value, and the engine goes on.
#include <gmock/gmock.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <thread>

#include "tests/api/abi_sizes.h"
#include "tests/api/host.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectError(inlay_status got, const Error& error, inlay_status expected,
                 const std::vector<std::string>& words) {
  EXPECT_EQ(got, expected) << inlay_status_name(got) << ": " << error.message();
  EXPECT_EQ(error.status(), expected);
  for (const std::string& word : words) {
    EXPECT_THAT(error.message(), HasSubstr(word));
  }
}

// ---- struct_size ----------------------------------------------------------

// `call` uses the struct at its argument, which is all in order but for its
// size.
template <typename T, typename Init>
void CheckOptionSizes(
    Init* init,
    const std::function<inlay_status(const T*, inlay_error**)>& call) {
  struct {
    T options;
    char tail[64];
  } grown;
  const auto reset = [&] {
    std::memset(&grown, 0, sizeof(grown));
    grown.options = Defaults(init);
  };
  for (const size_t size : {size_t{0}, size_t{4}, kFirstSize<T> - 1,
                            size_t{1} << 17, size_t{UINT32_MAX}}) {
    reset();
    grown.options.struct_size = static_cast<uint32_t>(size);
    Error error;
    ExpectError(call(&grown.options, error.out()), error,
                INLAY_INVALID_ARGUMENT,
                {"struct_size", std::to_string(size), std::to_string(sizeof(T)),
                 "_init"});
  }
  reset();
  grown.options.struct_size = sizeof(grown);
  Error error;
  EXPECT_EQ(call(&grown.options, error.out()), INLAY_OK) << error.message();
  grown.tail[sizeof(grown.tail) - 1] = 1;
  ExpectError(call(&grown.options, error.out()), error, INLAY_UNSUPPORTED,
              {std::to_string(sizeof(T))});
  // Beyond the size given nothing is read.
  grown.options.struct_size = sizeof(T);
  EXPECT_EQ(call(&grown.options, error.out()), INLAY_OK) << error.message();
}

TEST(StructSize, Options) {
  Host host;
  CheckOptionSizes<inlay_engine_options>(
      inlay_engine_options_init_sized,
      [](const inlay_engine_options* options, inlay_error** error) {
        inlay_engine* engine = nullptr;
        const auto status = inlay_engine_create(options, &engine, error);
        EXPECT_EQ(engine != nullptr, status == INLAY_OK);
        inlay_engine_release(engine);
        return status;
      });
  CheckOptionSizes<inlay_model_options>(
      inlay_model_options_init_sized,
      [&](const inlay_model_options* options, inlay_error** error) {
        auto* model = reinterpret_cast<inlay_model*>(1);
        const auto status = inlay_model_load(host.engine, TinyModel().c_str(),
                                             options, &model, error);
        EXPECT_EQ(model != nullptr, status == INLAY_OK);
        inlay_model_release(model);
        return status;
      });
  inlay_session* session = host.NewSession();
  const int32_t prompt[] = {1, 2};
  CheckOptionSizes<inlay_quantize_options>(
      inlay_quantize_options_init_sized,
      [&](const inlay_quantize_options* options, inlay_error** error) {
        const std::string out = ::testing::TempDir() + "sizes.gguf";
        const auto status = inlay_quantize(TinyModel().c_str(), out.c_str(),
                                           options, nullptr, error);
        EXPECT_EQ(std::filesystem::remove(out), status == INLAY_OK);
        return status;
      });
  CheckOptionSizes<inlay_request_options>(
      inlay_request_options_init_sized,
      [&](const inlay_request_options* options, inlay_error** error) {
        auto filled =
            *reinterpret_cast<const char(*)[sizeof(*options) + 64]>(options);
        std::vector<char> copy(filled, filled + sizeof(*options) + 64);
        auto* mine = reinterpret_cast<inlay_request_options*>(copy.data());
        mine->tokens = prompt;
        mine->num_tokens = 2;
        mine->input_mode = INLAY_INPUT_REPLACE;
        mine->max_tokens = 1;
        inlay_request* request = nullptr;
        const auto status =
            inlay_session_submit(session, mine, &request, error);
        EXPECT_EQ(request != nullptr, status == INLAY_OK);
        if (status == INLAY_OK) host.Finish(request);
        return status;
      });
  CheckOptionSizes<inlay_request_options>(
      inlay_request_options_init_sized,
      [&](const inlay_request_options* options, inlay_error** error) {
        // Refused for its size before for having no input.
        auto quote = Defaults(inlay_quote_init);
        inlay_session* log = nullptr;
        EXPECT_EQ(inlay_session_fork(session, &log, nullptr), INLAY_OK);
        const auto status = inlay_request_quote(log, options, 0, &quote, error);
        inlay_session_release(log);
        return status;
      });
  CheckOptionSizes<inlay_prefix_options>(
      inlay_prefix_options_init,
      [&](const inlay_prefix_options* options, inlay_error** error) {
        std::vector<char> copy(sizeof(*options) + 64);
        std::memcpy(copy.data(), options, copy.size());
        auto* mine = reinterpret_cast<inlay_prefix_options*>(copy.data());
        mine->tokens = prompt;
        mine->num_tokens = 2;
        inlay_prefix* prefix = nullptr;
        const auto status =
            inlay_prefix_create(host.model, "name", mine, &prefix, error);
        EXPECT_EQ(prefix != nullptr, status == INLAY_OK);
        inlay_prefix_release(prefix);
        return status;
      });
  inlay_session_release(session);
  host.ExpectWorks();
}

// Results of a newer host's header are filled as far as this library knows.
template <typename T, typename Init>
void CheckResultSizes(
    Init* init, const std::function<inlay_status(T*, inlay_error**)>& call) {
  struct {
    T result;
    unsigned char tail[64];
  } grown;
  for (const size_t size : {size_t{0}, size_t{4}, kFirstSize<T> - 1}) {
    grown.result = Defaults(init);
    grown.result.struct_size = static_cast<uint32_t>(size);
    const T before = grown.result;
    Error error;
    ExpectError(call(&grown.result, error.out()), error, INLAY_INVALID_ARGUMENT,
                {"struct_size", std::to_string(size), std::to_string(sizeof(T)),
                 "_init"});
    EXPECT_EQ(std::memcmp(&before, &grown.result, sizeof(T)), 0);
  }
  std::memset(&grown, 0xab, sizeof(grown));
  grown.result = Defaults(init);
  grown.result.struct_size = sizeof(grown);
  Error error;
  EXPECT_EQ(call(&grown.result, error.out()), INLAY_OK) << error.message();
  EXPECT_EQ(grown.result.struct_size, sizeof(grown));
  for (const unsigned char byte : grown.tail) EXPECT_EQ(byte, 0xab);
}

TEST(StructSize, Results) {
  Host host;
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2};
  inlay_request* request = host.Submit(session, TokensRequest(prompt, 1));
  host.Step();
  inlay_event* event = nullptr;
  ASSERT_EQ(inlay_event_next(host.engine, 0, &event, nullptr), INLAY_OK);
  CheckResultSizes<inlay_step_info>(
      inlay_step_info_init_sized, [&](auto* out, inlay_error** error) {
        return inlay_engine_step(host.engine, 0, out, error);
      });
  CheckResultSizes<inlay_stats>(
      inlay_stats_init_sized, [&](auto* out, inlay_error** error) {
        return inlay_engine_stats(host.engine, out, error);
      });
  CheckResultSizes<inlay_model_info>(
      inlay_model_info_init, [&](auto* out, inlay_error** error) {
        return inlay_model_get_info(host.model, out, error);
      });
  CheckResultSizes<inlay_session_info>(
      inlay_session_info_init, [&](auto* out, inlay_error** error) {
        return inlay_session_get_info(session, out, error);
      });
  CheckResultSizes<inlay_event_info>(
      inlay_event_info_init_sized, [&](auto* out, inlay_error** error) {
        return inlay_event_get_info(event, out, error);
      });
  CheckResultSizes<inlay_request_options>(
      inlay_request_options_init_sized, [&](auto* out, inlay_error** error) {
        return inlay_model_request_options(host.model, out, error);
      });
  inlay_event_release(event);
  inlay_request_release(request);
  CheckResultSizes<inlay_device_info>(
      inlay_device_info_init, [&](auto* out, inlay_error** error) {
        return inlay_engine_device(host.engine, out, error);
      });
  CheckResultSizes<inlay_quote>(
      inlay_quote_init, [&](auto* out, inlay_error** error) {
        const auto options = TokensRequest(prompt, 1);
        return inlay_request_quote(session, &options, 0, out, error);
      });
  inlay_buffer* saved = nullptr;
  ASSERT_EQ(inlay_session_save_buffer(session, &saved, nullptr), INLAY_OK);
  CheckResultSizes<inlay_restore_info>(
      inlay_restore_info_init, [&](auto* out, inlay_error** error) {
        inlay_session* restored = nullptr;
        const auto status = inlay_session_restore_buffer(
            host.model, inlay_buffer_data(saved), inlay_buffer_size(saved),
            &restored, out, error);
        EXPECT_EQ(restored != nullptr, status == INLAY_OK);
        inlay_session_release(restored);
        return status;
      });
  inlay_buffer_release(saved);
  auto prefix_options = Defaults(inlay_prefix_options_init);
  prefix_options.tokens = prompt.data();
  prefix_options.num_tokens = prompt.size();
  inlay_prefix* prefix = nullptr;
  ASSERT_EQ(
      inlay_prefix_create(host.model, "p", &prefix_options, &prefix, nullptr),
      INLAY_OK);
  CheckResultSizes<inlay_prefix_info>(
      inlay_prefix_info_init, [&](auto* out, inlay_error** error) {
        return inlay_prefix_get_info(prefix, out, error);
      });
  inlay_prefix_release(prefix);
  inlay_session_release(session);
}

// ---- null places for results ----------------------------------------------

TEST(NullResults, AreRefusedByName) {
  Host host;
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2};
  const auto options = TokensRequest(prompt, 1);
  inlay_request* request = host.Submit(session, options);
  host.Step();
  inlay_event* event = nullptr;
  ASSERT_EQ(inlay_event_next(host.engine, 0, &event, nullptr), INLAY_OK);
  Error e;
  const auto expect = [&](inlay_status status, const char* name) {
    ExpectError(status, e, INLAY_INVALID_ARGUMENT, {name, "null"});
  };
  size_t count = 0;
  inlay_buffer* buffer = nullptr;
  inlay_session* session_out = nullptr;
  const std::string path = TinyModel();
  expect(inlay_engine_create(nullptr, nullptr, e.out()), "engine");
  expect(inlay_model_load(host.engine, path.c_str(), nullptr, nullptr, e.out()),
         "model");
  inlay_model* model = nullptr;
  expect(inlay_model_load(host.engine, nullptr, nullptr, &model, e.out()),
         "path");
  expect(inlay_model_inspect(path.c_str(), nullptr, e.out()), "json");
  expect(inlay_model_inspect(nullptr, &buffer, e.out()), "path");
  expect(inlay_quantize(nullptr, "out", nullptr, &buffer, e.out()),
         "model_path");
  expect(inlay_quantize(path.c_str(), nullptr, nullptr, &buffer, e.out()),
         "out_path");
  expect(inlay_engine_stats(host.engine, nullptr, e.out()), "inlay_stats");
  expect(inlay_engine_event_fd(host.engine, nullptr, e.out()), "fd");
  expect(inlay_model_get_info(host.model, nullptr, e.out()),
         "inlay_model_info");
  expect(inlay_model_request_options(host.model, nullptr, e.out()),
         "inlay_request_options");
  expect(
      inlay_model_tokenize(host.model, "a", 1, 0, nullptr, 0, nullptr, e.out()),
      "num_tokens");
  expect(inlay_model_tokenize(host.model, nullptr, 1, 0, nullptr, 0, &count,
                              e.out()),
         "text");
  expect(
      inlay_model_tokenize(host.model, "a", 1, 0, nullptr, 3, &count, e.out()),
      "tokens");
  expect(inlay_model_detokenize(host.model, nullptr, 2, 0, &buffer, e.out()),
         "tokens");
  expect(inlay_model_detokenize(host.model, nullptr, 0, 0, nullptr, e.out()),
         "text");
  expect(inlay_chat_render(nullptr, nullptr, 0, &buffer, e.out()), "json");
  expect(inlay_chat_render(nullptr, "{}", 2, nullptr, e.out()), "text");
  expect(inlay_session_create(host.model, nullptr, e.out()), "session");
  expect(inlay_session_fork(session, nullptr, e.out()), "fork");
  expect(inlay_session_get_info(session, nullptr, e.out()),
         "inlay_session_info");
  expect(inlay_session_tokens(session, nullptr, 0, nullptr, e.out()),
         "num_tokens");
  expect(inlay_session_tokens(session, nullptr, 1, &count, e.out()), "tokens");
  expect(inlay_session_submit(session, &options, nullptr, e.out()), "request");
  expect(inlay_session_submit(session, nullptr, &request, e.out()), "options");
  expect(inlay_event_next(host.engine, 0, nullptr, e.out()), "event");
  expect(inlay_event_get_info(event, nullptr, e.out()), "inlay_event_info");
  EXPECT_EQ(request, nullptr) << "result handles are null after a failure";
  auto quote = Defaults(inlay_quote_init);
  auto prefix_options = Defaults(inlay_prefix_options_init);
  inlay_prefix* prefix = nullptr;
  expect(inlay_engine_metrics(host.engine, 0, nullptr, e.out()), "metrics");
  expect(inlay_engine_trace_take(host.engine, 0, nullptr, e.out()), "trace");
  expect(inlay_request_quote(session, nullptr, 0, &quote, e.out()), "options");
  expect(inlay_request_quote(session, &options, 0, nullptr, e.out()),
         "inlay_quote");
  expect(inlay_session_save(session, nullptr, e.out()), "path");
  expect(inlay_session_save_buffer(session, nullptr, e.out()), "buffer");
  expect(inlay_session_restore(host.model, nullptr, &session_out, nullptr,
                               e.out()),
         "path");
  expect(inlay_session_restore(host.model, "x", nullptr, nullptr, e.out()),
         "session");
  expect(inlay_session_restore_buffer(host.model, nullptr, 9, &session_out,
                                      nullptr, e.out()),
         "data");
  expect(inlay_session_restore_buffer(host.model, "x", 1, nullptr, nullptr,
                                      e.out()),
         "session");
  expect(inlay_prefix_create(host.model, nullptr, &prefix_options, &prefix,
                             e.out()),
         "name");
  expect(inlay_prefix_create(host.model, "p", nullptr, &prefix, e.out()),
         "options");
  expect(
      inlay_prefix_create(host.model, "p", &prefix_options, nullptr, e.out()),
      "prefix");
  expect(inlay_prefix_find(host.model, nullptr, &prefix, e.out()), "name");
  expect(inlay_prefix_find(host.model, "p", nullptr, e.out()), "prefix");
  prefix_options.tokens = prompt.data();
  prefix_options.num_tokens = prompt.size();
  ASSERT_EQ(
      inlay_prefix_create(host.model, "p", &prefix_options, &prefix, e.out()),
      INLAY_OK);
  expect(inlay_prefix_open(prefix, nullptr, e.out()), "session");
  expect(inlay_prefix_get_info(prefix, nullptr, e.out()), "inlay_prefix_info");
  inlay_prefix_release(prefix);
  inlay_device_info_init(nullptr);
  expect(inlay_engine_device(host.engine, nullptr, e.out()), "info");
  expect(inlay_engine_measure_copy(host.engine, 1 << 20, nullptr, e.out()),
         "bytes_per_second");
  inlay_restore_info_init(nullptr);
  inlay_prefix_options_init(nullptr);
  inlay_prefix_info_init(nullptr);
  inlay_quote_init(nullptr);
  inlay_engine_options_init(nullptr);
  inlay_step_info_init(nullptr);
  inlay_stats_init(nullptr);
  inlay_model_options_init(nullptr);
  inlay_model_info_init(nullptr);
  inlay_session_info_init(nullptr);
  inlay_request_options_init(nullptr);
  inlay_event_info_init(nullptr);
  (inlay_event_info_init)(nullptr);
  inlay_event_release(event);
  inlay_session_release(session);
  host.ExpectWorks();
}

// ---- engine and model options ---------------------------------------------

TEST(EngineOptions, OutOfRange) {
  struct Case {
    std::function<void(inlay_engine_options&)> spoil;
    std::vector<std::string> words;
    inlay_status status = INLAY_INVALID_ARGUMENT;
  };
  const std::vector<Case> cases = {
      {[](auto& o) { o.backend = 3; }, {"backend", "3"}},
      {[](auto& o) { o.backend = -1; }, {"backend", "-1"}},
      {[](auto& o) { o.drive = 2; }, {"drive", "2"}},
      {[](auto& o) { o.num_threads = -1; }, {"num_threads", "-1"}},
      {[](auto& o) { o.num_threads = 1025; }, {"num_threads", "1025"}},
      {[](auto& o) { o.max_batch_tokens = 0; }, {"max_batch_tokens", "0"}},
      {[](auto& o) { o.max_batch_tokens = 65537; },
       {"max_batch_tokens", "65537"}},
      {[](auto& o) { o.max_running = 0; }, {"max_running", "0"}},
      {[](auto& o) { o.max_running = 4097; }, {"max_running", "4097"}},
      {[](auto& o) { o.max_queue = 0; }, {"max_queue", "0"}},
      {[](auto& o) { o.log_level = 4; }, {"log_level", "4"}},
      {[](auto& o) { o.prefix_sharing = 2; }, {"prefix_sharing", "2"}},
      {[](auto& o) { o.max_prefill_chunk = 65537; },
       {"max_prefill_chunk", "65537"}},
      {[](auto& o) { o.tpot_target_us = UINT64_MAX; },
       {"tpot_target_us", std::to_string(UINT64_MAX)}},
      {[](auto& o) { o.starvation_us = UINT64_MAX; },
       {"starvation_us", std::to_string(UINT64_MAX)}},
      {[](auto& o) { o.gpu = 1024; }, {"gpu", "1024"}},
      {[](auto& o) { o.batch_invariant = 2; }, {"batch_invariant", "2"}},
      {[](auto& o) {
         o.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
       },
       {"allocate"}},
      {[](auto& o) { o.deallocate = [](void*, void*, size_t, size_t) {}; },
       {"deallocate"}},
  };
  for (const Case& c : cases) {
    auto options = EngineDefaults();
    c.spoil(options);
    Error error;
    auto* engine = reinterpret_cast<inlay_engine*>(1);
    ExpectError(inlay_engine_create(&options, &engine, error.out()), error,
                c.status, c.words);
    EXPECT_EQ(engine, nullptr);
  }
}

TEST(QuantizeOptions, OutOfRange) {
  const std::string out = ::testing::TempDir() + "misuse.gguf";
  const char* types[] = {"*=q8_0", nullptr};
  const auto defaults = Defaults(inlay_quantize_options_init_sized);
  const auto expect = [&](const inlay_quantize_options& options,
                          inlay_status status,
                          const std::vector<std::string>& words) {
    auto* report = reinterpret_cast<inlay_buffer*>(1);
    Error error;
    ExpectError(inlay_quantize(TinyModel().c_str(), out.c_str(), &options,
                               &report, error.out()),
                error, status, words);
    EXPECT_EQ(report, nullptr);
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  const auto with = [&](auto field, auto value) {
    auto options = defaults;
    options.*field = value;
    return options;
  };
  using Options = inlay_quantize_options;
  expect(with(&Options::num_threads, -1), INLAY_INVALID_ARGUMENT,
         {"num_threads is -1", "1024"});
  expect(with(&Options::type, nullptr), INLAY_INVALID_ARGUMENT, {"type"});
  expect(with(&Options::type, "q9"), INLAY_INVALID_ARGUMENT,
         {"q9", "q8_0", "q4_k_m"});
  expect(with(&Options::no_tokenizer, 2u), INLAY_INVALID_ARGUMENT,
         {"no_tokenizer is 2"});
  expect(with(&Options::num_tensor_types, size_t{1}), INLAY_INVALID_ARGUMENT,
         {"tensor_types"});
  auto options = with(&Options::tensor_types, types);
  options.num_tensor_types = 2;
  expect(options, INLAY_INVALID_ARGUMENT, {"tensor_types"});
  options.num_tensor_types = 5000;
  expect(options, INLAY_INVALID_ARGUMENT, {"5000", "4096"});
  expect(with(&Options::method, 5u), INLAY_INVALID_ARGUMENT,
         {"method is 5", "0 to 4"});
  expect(with(&Options::method, uint32_t{INLAY_QUANTIZE_GPTQ}),
         INLAY_INVALID_ARGUMENT, {"gptq", "calibration"});
  expect(with(&Options::act_order, 2u), INLAY_INVALID_ARGUMENT,
         {"act_order is 2"});
  expect(with(&Options::num_calibration, size_t{1}), INLAY_INVALID_ARGUMENT,
         {"calibration"});
  options = with(&Options::calibration, types);
  options.num_calibration = 2;
  expect(options, INLAY_INVALID_ARGUMENT, {"calibration"});
  options.num_calibration = 1 << 21;
  expect(options, INLAY_INVALID_ARGUMENT, {"2097152", "1048576"});
  options.num_calibration = 1;
  options.method = INLAY_QUANTIZE_AWQ;
  options.sequence_tokens = 1;
  expect(options, INLAY_INVALID_ARGUMENT, {"sequences of 1", "2"});
  options.sequence_tokens = 512;
  options.method = INLAY_QUANTIZE_SMOOTHQUANT;
  options.smoothing = 1.5f;
  expect(options, INLAY_INVALID_ARGUMENT, {"smoothing is 1.5", "0 to 1"});
  options.smoothing = std::numeric_limits<float>::quiet_NaN();
  expect(options, INLAY_INVALID_ARGUMENT, {"smoothing is nan"});
  options = defaults;
  options.progress = [](void*, int32_t, float) { return 1; };
  expect(options, INLAY_CANCELLED, {"progress"});
}

TEST(MeasureCopy, OutOfRange) {
  Host host;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 19, UINT64_MAX}) {
    Error error;
    double rate = 0;
    ExpectError(
        inlay_engine_measure_copy(host.engine, bytes, &rate, error.out()),
        error, INLAY_INVALID_ARGUMENT, {"bytes", std::to_string(bytes)});
  }
}

class OptionsTest : public ::testing::Test {
 protected:
  void ExpectLoad(const std::string& path, const inlay_model_options& options,
                  inlay_status expected,
                  const std::vector<std::string>& words) {
    Error error;
    auto* model = reinterpret_cast<inlay_model*>(1);
    ExpectError(inlay_model_load(host_.engine, path.c_str(), &options, &model,
                                 error.out()),
                error, expected, words);
    EXPECT_EQ(model, nullptr);
  }
  void ExpectLoad(const std::function<void(inlay_model_options&)>& spoil,
                  inlay_status expected,
                  const std::vector<std::string>& words) {
    auto options = ModelDefaults();
    spoil(options);
    ExpectLoad(TinyModel(), options, expected, words);
  }

  Host host_;
};

TEST_F(OptionsTest, OfModels) {
  const auto bad = INLAY_INVALID_ARGUMENT;
  ExpectLoad([](auto& o) { o.vocab_only = 2; }, bad, {"vocab_only", "2"});
  ExpectLoad([](auto& o) { o.weights = -1; }, bad, {"weights", "-1"});
  ExpectLoad([](auto& o) { o.kv_type = 7; }, bad, {"kv_type", "7"});
  for (const uint32_t size : {1u, 4u, 7u, 24u, 512u, UINT32_MAX}) {
    ExpectLoad([&](auto& o) { o.kv_block_size = size; }, bad,
               {"kv_block_size", std::to_string(size)});
  }
  ExpectLoad([](auto& o) { o.kernels = "gemm"; }, bad, {"gemm"});
  ExpectLoad([](auto& o) { o.kernels = "=x"; }, bad, {"=x"});
  ExpectLoad([](auto& o) { o.kernels = "gemm=no_such_row"; }, INLAY_NOT_FOUND,
             {"gemm"});
  ExpectLoad([](auto& o) { o.kernels = "no_such_op=cpu_scalar"; }, bad,
             {"no_such_op"});
  ExpectLoad([](auto& o) { o.attention_pattern = "window"; }, bad,
             {"attention pattern", "window"});
  ExpectLoad([](auto& o) { o.attention_pattern = "window=100"; }, bad,
             {"window is 100", "multiple of block"});
  ExpectLoad([](auto& o) { o.block_selection = 4; }, bad, {"block_selection"});
  ExpectLoad([](auto& o) { o.selected_tokens = 64; }, bad,
             {"block_selection", "without a method"});
  ExpectLoad(
      [](auto& o) {
        o.block_selection = INLAY_BLOCK_SELECTION_LSH;
        o.selected_tokens = 100;
      },
      bad, {"block_selection", "100", "multiple of 16"});
  ExpectLoad(
      [](auto& o) {
        o.block_selection = INLAY_BLOCK_SELECTION_BOUNDS;
        o.selected_tokens = 64;
        o.kv_block_size = 8;
      },
      bad, {"kv_block_size is 8", "block_selection"});
  // Experts are in host memory there, and this model has none.
  {
    auto options = ModelDefaults();
    options.expert_device_bytes = 1;
    Host host(PocketModel(), EngineDefaults(), options);
    EXPECT_EQ(host.RunAlone(TokensRequest({7, 8, 9}, 3)).tokens.size(), 3u);
  }
  ExpectLoad([](auto& o) { o.disk_cache_folder = "/tmp"; }, bad,
             {"disk_cache_folder", "host_cache_bytes", "disk_cache_bytes"});
  ExpectLoad(
      [](auto& o) {
        o.disk_cache_folder = "/tmp";
        o.host_cache_bytes = 1 << 20;
      },
      bad, {"disk_cache_bytes", "0"});
  ExpectLoad([](auto& o) { o.kv_budget_bytes = 100; }, INLAY_RESOURCE_EXHAUSTED,
             {"100"});
  host_.ExpectWorks();
}

TEST_F(OptionsTest, Paths) {
  const auto options = ModelDefaults();
  ExpectLoad("/no/such/model", options, INLAY_NOT_FOUND, {"/no/such/model"});
  ExpectLoad("", options, INLAY_INVALID_ARGUMENT, {});
  ExpectLoad("random:", options, INLAY_INVALID_ARGUMENT, {"random:"});
  ExpectLoad("random:" + TinyModel() + "?dtype=q9", options,
             INLAY_INVALID_ARGUMENT, {"q9"});
  ExpectLoad(TestData(), options, INLAY_NOT_FOUND, {});
  const std::string deep(100'000, 'x');
  Error error;
  inlay_model* model = nullptr;
  EXPECT_NE(inlay_model_load(host_.engine, deep.c_str(), nullptr, &model,
                             error.out()),
            INLAY_OK);
  inlay_buffer* json = nullptr;
  ExpectError(inlay_model_inspect("/no/such/model", &json, error.out()), error,
              INLAY_NOT_FOUND, {"/no/such/model"});
  host_.ExpectWorks();
}

TEST_F(OptionsTest, BrokenWeightFiles) {
  namespace fs = std::filesystem;
  const fs::path dir =
      fs::temp_directory_path() / ("inlay_api_" + std::to_string(getpid()));
  fs::create_directories(dir);
  fs::copy_file(TinyModel() + "/config.json", dir / "config.json");
  const fs::path weights = dir / "model.safetensors";
  for (const int32_t access : {INLAY_WEIGHTS_MAP, INLAY_WEIGHTS_READ}) {
    for (const uint64_t size : {0u, 4u, 100u, 4000u, 330'000u}) {
      fs::remove(weights);
      fs::copy_file(TinyModel() + "/model.safetensors", weights);
      fs::resize_file(weights, size);
      auto options = ModelDefaults();
      options.weights = access;
      ExpectLoad(dir.string(), options, INLAY_INVALID_ARGUMENT,
                 {"model.safetensors"});
    }
  }
  fs::remove_all(dir);
  host_.ExpectWorks();
}

TEST_F(OptionsTest, SessionsOfVocabularyOnlyModels) {
  auto options = ModelDefaults();
  options.vocab_only = 1;
  Host host(PocketModel(), EngineDefaults(), options);
  Error error;
  inlay_session* session = nullptr;
  ExpectError(inlay_session_create(host.model, &session, error.out()), error,
              INLAY_INVALID_STATE, {"vocab_only"});
  size_t count = 0;
  EXPECT_EQ(inlay_model_tokenize(host.model, "a fox", 5, 0, nullptr, 0, &count,
                                 error.out()),
            INLAY_OK)
      << error.message();
  EXPECT_GT(count, 0u);
}

TEST_F(OptionsTest, StepOfThreadDrivenEngines) {
  auto options = EngineDefaults();
  options.drive = INLAY_DRIVE_THREAD;
  Host host(TinyModel(), options);
  Error error;
  ExpectError(inlay_engine_step(host.engine, 0, nullptr, error.out()), error,
              INLAY_INVALID_STATE, {"thread"});
  host.ExpectWorks();
}

TEST_F(OptionsTest, TextOfModelsWithoutTokenizer) {
  Error error;
  size_t count = 0;
  inlay_buffer* buffer = nullptr;
  ExpectError(inlay_model_tokenize(host_.model, "a", 1, 0, nullptr, 0, &count,
                                   error.out()),
              error, INLAY_UNSUPPORTED, {"tokenizer"});
  const int32_t token = 1;
  ExpectError(
      inlay_model_detokenize(host_.model, &token, 1, 0, &buffer, error.out()),
      error, INLAY_UNSUPPORTED, {"tokenizer"});
  const std::string chat = R"({"messages":[]})";
  ExpectError(inlay_chat_render(host_.model, chat.data(), chat.size(), &buffer,
                                error.out()),
              error, INLAY_UNSUPPORTED, {"template"});
}

TEST_F(OptionsTest, Text) {
  auto vocab = ModelDefaults();
  vocab.vocab_only = 1;
  Host host(PocketModel(), EngineDefaults(), vocab);
  Error error;
  size_t count = 0;
  inlay_buffer* buffer = nullptr;
  const auto render = [&](const std::string& json) {
    return inlay_chat_render(host.model, json.data(), json.size(), &buffer,
                             error.out());
  };
  ExpectError(inlay_model_tokenize(host.model, "a", 1, 8, nullptr, 0, &count,
                                   error.out()),
              error, INLAY_INVALID_ARGUMENT, {"flags", "0x8"});
  for (const int32_t token : {-1, 1 << 20, INT_MAX, INT_MIN}) {
    const int32_t tokens[] = {1, token};
    ExpectError(
        inlay_model_detokenize(host.model, tokens, 2, 0, &buffer, error.out()),
        error, INLAY_INVALID_ARGUMENT, {"tokens[1]", std::to_string(token)});
  }
  const auto bad = INLAY_INVALID_ARGUMENT;
  ExpectError(render(""), error, bad, {"JSON"});
  ExpectError(render("{"), error, bad, {"JSON"});
  ExpectError(render("[]"), error, bad, {"array"});
  ExpectError(render(R"({"messages":[],"template":3})"), error, bad,
              {"template", "number"});
  ExpectError(render(R"({"messages":[],"template":"{{ 1 +"})"), error, bad, {});
  ExpectError(render(R"({"messages":[],"now":"noon"})"), error, bad, {"noon"});
  ExpectError(inlay_chat_render(nullptr, R"({"messages":[]})", 15, &buffer,
                                error.out()),
              error, bad, {"template"});
  ExpectError(render(std::string(100'000, '[')), error,
              INLAY_RESOURCE_EXHAUSTED, {"64"});
  // Invalid UTF-8 reads as U+FFFD.
  int32_t wrong[8], right[8];
  size_t num_wrong = 0, num_right = 0;
  EXPECT_EQ(inlay_model_tokenize(host.model,
                                 "a\xff"
                                 "b",
                                 3, 0, wrong, 8, &num_wrong, error.out()),
            INLAY_OK)
      << error.message();
  EXPECT_EQ(inlay_model_tokenize(host.model,
                                 "a\xef\xbf\xbd"
                                 "b",
                                 5, 0, right, 8, &num_right, error.out()),
            INLAY_OK);
  ASSERT_EQ(num_wrong, num_right);
  EXPECT_TRUE(std::equal(wrong, wrong + std::min<size_t>(num_wrong, 8), right));
  // Fewer places than tokens: the count is whole, what fits is written.
  int32_t one = -7;
  EXPECT_EQ(inlay_model_tokenize(host.model, "a fox and a hen", 15, 0, &one, 1,
                                 &count, error.out()),
            INLAY_OK);
  EXPECT_GT(count, 1u);
  EXPECT_GE(one, 0);
}

}  // namespace
}  // namespace inlay::testing
