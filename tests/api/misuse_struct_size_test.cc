// Structs of a wrong size, of an older header's and of a newer one's, for every
// function that takes or fills one.
#include <cstring>
#include <filesystem>
#include <functional>

#include "tests/api/abi_sizes.h"
#include "tests/api/misuse.h"

namespace inlay::testing {
namespace {

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
      inlay_model_info_init_sized, [&](auto* out, inlay_error** error) {
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

}  // namespace
}  // namespace inlay::testing
