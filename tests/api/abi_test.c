/* inlay.h as a C99 host sees it: every function of the header is called here at
 * least once, on a real model, and its results are checked. symbols_test.cc
 * asserts that none is missing. Usage: api_c99 MODEL */
#include <inlay/inlay.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* `call` has `&error` as its last argument. */
#define CHECK_OK(call)                                                  \
  do {                                                                  \
    const inlay_status got = (call);                                    \
    if (got != INLAY_OK || error != NULL) {                             \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, \
              inlay_status_name(got), inlay_error_message(error));      \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

static const char kChat[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell a story.\"}]}";
static inlay_error* error = NULL;

static void on_log(void* user, int32_t level, const char* message) {
  (void)message;
  CHECK(level >= INLAY_LOG_ERROR && level <= INLAY_LOG_DEBUG);
  ++*(int*)user;
}

static int32_t on_progress(void* user, int32_t stage, float fraction) {
  CHECK(stage >= INLAY_LOAD_CONFIG && stage <= INLAY_LOAD_READY);
  CHECK(fraction >= 0.0f && fraction <= 1.0f);
  ++*(int*)user;
  return 0;
}

static void test_version(void) {
  char expected[32];
  snprintf(expected, sizeof(expected), "%d.%d.%d", INLAY_VERSION_MAJOR,
           INLAY_VERSION_MINOR, INLAY_VERSION_PATCH);
  CHECK(strcmp(inlay_version(), expected) == 0);
  CHECK(inlay_abi_version() == INLAY_ABI_VERSION);
  CHECK(strcmp(inlay_status_name(INLAY_TIMEOUT), "INLAY_TIMEOUT") == 0);
  CHECK(strcmp(inlay_status_name(-5), "unknown status") == 0);
}

static inlay_engine* make_engine(int* logs) {
  inlay_engine* engine = NULL;
  inlay_engine_options options;
  inlay_engine_options_init(&options);
  CHECK(options.struct_size == sizeof(options));
  CHECK(options.backend == INLAY_BACKEND_AUTO);
  CHECK(options.drive == INLAY_DRIVE_HOST);
  CHECK(options.max_batch_tokens == 512 && options.max_running == 256);
  CHECK(options.max_queue == 65536);
  CHECK(options.log_level == INLAY_LOG_WARNING);
  options.num_threads = 2;
  options.log_level = INLAY_LOG_DEBUG;
  options.log = on_log;
  options.log_user = logs;
  CHECK_OK(inlay_engine_create(&options, &engine, &error));
  CHECK(engine != NULL);
  return engine;
}

static inlay_model* load_model(inlay_engine* engine, const char* path) {
  int calls = 0;
  inlay_model* model = NULL;
  inlay_model_options options;
  inlay_model_options_init(&options);
  CHECK(options.struct_size == sizeof(options));
  CHECK(options.vocab_only == 0 && options.weights == INLAY_WEIGHTS_MAP);
  CHECK(options.kv_type == INLAY_KV_AUTO && options.kernels == NULL);
  options.progress = on_progress;
  options.progress_user = &calls;
  CHECK_OK(inlay_model_load(engine, path, &options, &model, &error));
  CHECK(calls >= 4);
  return model;
}

static void test_model(inlay_model* model, const char* path) {
  inlay_model_info info;
  inlay_buffer* json = NULL;
  inlay_model_info_init(&info);
  CHECK_OK(inlay_model_get_info(model, &info, &error));
  CHECK(info.num_layers == 8 && info.vocab_size == 4096);
  CHECK(info.hidden_size == 256 && info.max_context == 2048);
  CHECK(strcmp(info.architecture, "LlamaForCausalLM") == 0);
  CHECK(info.num_parameters > 7000000 && info.num_parameters < 8000000);
  CHECK(info.weight_bytes >= 2 * info.num_parameters);
  CHECK(info.bytes_per_decode > 0 && info.kv_bytes_per_token > 0);
  CHECK(info.kv_capacity_tokens >= info.max_context);
  CHECK(info.bos_token == 0 && info.eos_token == 6);
  CHECK(info.has_tokenizer == 1 && info.has_chat_template == 1);

  CHECK_OK(inlay_model_inspect(path, &json, &error));
  CHECK(strstr(inlay_buffer_data(json), "LlamaForCausalLM") != NULL);
  CHECK(inlay_buffer_size(json) == strlen(inlay_buffer_data(json)));
  inlay_buffer_release(json);
  CHECK(inlay_buffer_size(json) == 0);
  CHECK(strcmp(inlay_buffer_data(json), "") == 0);
}

static void test_text(inlay_model* model) {
  const char text[] = "Once upon a time, a fox.";
  int32_t tokens[64];
  size_t count = 0;
  inlay_buffer* back = NULL;
  inlay_buffer* rendered = NULL;
  CHECK_OK(inlay_model_tokenize(model, text, strlen(text), 0, NULL, 0, &count,
                                &error));
  CHECK(count > 3 && count <= 64);
  CHECK_OK(inlay_model_tokenize(model, text, strlen(text), 0, tokens, 64,
                                &count, &error));
  CHECK_OK(inlay_model_detokenize(model, tokens, count, INLAY_TEXT_SKIP_SPECIAL,
                                  &back, &error));
  CHECK(strcmp(inlay_buffer_data(back), text) == 0);
  inlay_buffer_release(back);
  CHECK_OK(inlay_chat_render(model, kChat, strlen(kChat), &rendered, &error));
  CHECK(strstr(inlay_buffer_data(rendered), "Tell a story.") != NULL);
  inlay_buffer_release(rendered);
}

/* Runs `request` to its end by steps; returns the number of its tokens. */
static size_t finish(inlay_engine* engine, inlay_request* request, char* text,
                     size_t capacity) {
  size_t tokens = 0;
  uint64_t stepped = 0;
  inlay_step_info step;
  inlay_event_info info;
  inlay_event* event = NULL;
  inlay_step_info_init(&step);
  inlay_event_info_init(&info);
  CHECK(step.struct_size == sizeof(step) && info.struct_size == sizeof(info));
  text[0] = '\0';
  do {
    CHECK_OK(inlay_engine_step(engine, 0, &step, &error));
    stepped += step.sampled_tokens;
    while (inlay_request_next_event(request, 0, &event, &error) == INLAY_OK) {
      CHECK_OK(inlay_event_get_info(event, &info, &error));
      CHECK(info.request == request && info.user_data == text);
      if (info.kind == INLAY_EVENT_TOKENS) {
        tokens += info.num_tokens;
        CHECK(info.text_bytes == strlen(info.text));
        strncat(text, info.text, capacity - strlen(text) - 1);
      }
      inlay_event_release(event);
    }
    CHECK(error == NULL);
  } while (info.kind != INLAY_EVENT_FINISHED);
  CHECK(info.status == INLAY_OK && info.finish_reason == INLAY_FINISH_LENGTH);
  CHECK(info.generated_tokens == tokens && tokens == stepped);
  CHECK(inlay_request_next_event(request, 0, &event, &error) == INLAY_END);
  CHECK(event == NULL && error == NULL);
  return tokens;
}

static void test_generation(inlay_engine* engine, inlay_model* model) {
  char text[4096];
  int32_t log[256];
  size_t count = 0;
  inlay_session* session = NULL;
  inlay_session* fork = NULL;
  inlay_request* request = NULL;
  inlay_event* event = NULL;
  inlay_request_options options;
  inlay_session_info info;

  inlay_request_options_init(&options);
  CHECK(options.struct_size == sizeof(options));
  CHECK(options.max_tokens == -1 && options.num_logprobs == -1);
  CHECK(options.top_p == 1.0f && options.repetition_penalty == 1.0f);
  CHECK(options.text_flags ==
        (INLAY_TEXT_ADD_SPECIAL | INLAY_TEXT_PARSE_SPECIAL));
  CHECK_OK(inlay_model_request_options(model, &options, &error));
  CHECK(options.max_tokens == 512 && options.temperature == 0.0f);

  CHECK_OK(inlay_session_create(model, &session, &error));
  options.chat = kChat;
  options.chat_bytes = strlen(kChat);
  options.max_tokens = 12;
  options.ignore_eos = 1;
  options.user_data = text;
  CHECK_OK(inlay_session_submit(session, &options, &request, &error));
  CHECK(finish(engine, request, text, sizeof(text)) == 12);
  CHECK(strlen(text) > 0);
  inlay_request_release(request);

  inlay_session_info_init(&info);
  CHECK_OK(inlay_session_get_info(session, &info, &error));
  CHECK(info.busy == 0 && info.num_tokens > 12 && info.num_cached > 0);
  CHECK_OK(inlay_session_tokens(session, log, 256, &count, &error));
  CHECK(count == info.num_tokens);

  CHECK_OK(inlay_session_fork(session, &fork, &error));
  CHECK_OK(inlay_session_rewind(fork, 3, &error));
  CHECK_OK(inlay_session_get_info(fork, &info, &error));
  CHECK(info.num_tokens == 3 && info.num_cached == 3);

  CHECK_OK(inlay_session_submit(fork, &options, &request, &error));
  CHECK_OK(inlay_request_cancel(request, &error));
  CHECK_OK(inlay_engine_step(engine, 0, NULL, &error));
  CHECK_OK(inlay_event_next(engine, 0, &event, &error));
  inlay_event_release(event);
  CHECK(inlay_event_next(engine, 0, &event, &error) == INLAY_TIMEOUT);
  CHECK(error == NULL);
  inlay_request_release(request);
  inlay_session_release(fork);
  inlay_session_release(session);
}

static void test_errors(inlay_engine* engine) {
  inlay_model* model = NULL;
  const inlay_status status =
      inlay_model_load(engine, "/no/such/model", NULL, &model, &error);
  CHECK(status == INLAY_NOT_FOUND && model == NULL && error != NULL);
  CHECK(inlay_error_status(error) == status);
  CHECK(strstr(inlay_error_message(error), "/no/such/model") != NULL);
  inlay_error_release(error);
  CHECK(inlay_error_status(error) == INLAY_INVALID_HANDLE);
  CHECK(strcmp(inlay_error_message(error), "") == 0);
  error = NULL;
}

int main(int argc, char** argv) {
  int logs = 0;
  int32_t fd = -1;
  inlay_engine* engine;
  inlay_model* model;
  inlay_stats stats;
  CHECK(argc == 2);
  test_version();
  engine = make_engine(&logs);
  CHECK_OK(inlay_engine_event_fd(engine, &fd, &error));
  CHECK(fd >= 0);
  model = load_model(engine, argv[1]);
  test_model(model, argv[1]);
  test_text(model);
  test_generation(engine, model);
  test_errors(engine);

  inlay_stats_init(&stats);
  CHECK(stats.struct_size == sizeof(stats));
  CHECK_OK(inlay_engine_stats(engine, &stats, &error));
  CHECK(stats.submitted_requests == 2 && stats.finished_requests == 1);
  CHECK(stats.cancelled_requests == 1 && stats.failed_requests == 0);
  CHECK(stats.kv_blocks_used == 0 && stats.num_sessions == 0);
  CHECK(stats.memory_peak_bytes >= stats.memory_bytes);
  inlay_model_release(model);
  inlay_engine_release(engine);
  puts("ok");
  return 0;
}
