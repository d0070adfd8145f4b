// Null places for results and null arguments: each is refused by its name.
#include "tests/api/misuse.h"

namespace inlay::testing {
namespace {

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

}  // namespace
}  // namespace inlay::testing
