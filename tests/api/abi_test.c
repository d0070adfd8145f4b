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
  CHECK(options.prefix_sharing == 1 && options.max_prefill_chunk == 0);
  CHECK(options.tpot_target_us == 0 && options.starvation_us == 10000000);
  options.num_threads = 2;
  options.log_level = INLAY_LOG_DEBUG;
  options.log = on_log;
  options.log_user = logs;
  CHECK(options.gpu == 0 && options.batch_invariant == 0);
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
  CHECK(options.host_cache_bytes == 0 && options.disk_cache_folder == NULL);
  CHECK(options.attention_pattern == NULL);
  CHECK(options.block_selection == INLAY_BLOCK_SELECTION_NONE);
  CHECK(options.selected_tokens == 0);
  CHECK(options.expert_device_bytes == 0);
  options.progress = on_progress;
  options.progress_user = &calls;
  CHECK_OK(inlay_model_load(engine, path, &options, &model, &error));
  CHECK(calls >= 4);
  return model;
}

static void test_quantize(const char* path) {
  inlay_buffer* report = NULL;
  int calls = 0;
  char out[80];
  const char* types[] = {"*.o_proj.weight=f16"};
  inlay_quantize_options options;
  inlay_quantize_options_init(&options);
  CHECK(options.struct_size == sizeof(options));
  inlay_quantize_options_init_sized(&options, sizeof(options));
  CHECK(options.method == INLAY_QUANTIZE_NEAREST);
  CHECK(options.sequence_tokens == 512);
  CHECK(options.smoothing == 0.5f);
  CHECK(options.expert_bytes == (uint64_t)4 << 30);
  CHECK(options.memory_limit == 0);
  CHECK(strcmp(options.type, "q8_0") == 0);
  options.num_threads = 1;
  options.tensor_types = types;
  options.num_tensor_types = 1;
  options.progress = on_progress;
  options.progress_user = &calls;
  /* C99 has no number of the process: the address differs from run to run. */
  snprintf(out, sizeof(out), "/tmp/inlay_abi_%p.gguf", (void*)&calls);
  CHECK_OK(inlay_quantize(path, out, &options, &report, &error));
  CHECK(strstr(inlay_buffer_data(report), "\"q8_0\"") != NULL);
  CHECK(strstr(inlay_buffer_data(report), "\"f16\"") != NULL);
  CHECK(calls > 1);
  inlay_buffer_release(report);
  CHECK_OK(inlay_model_inspect(out, &report, &error));
  inlay_buffer_release(report);
  CHECK(remove(out) == 0);
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
  CHECK(info.embedding_size == 256);

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
  CHECK(options.resume == 0 && options.deadline_us == 0);
  CHECK(options.share_key == 0);
  CHECK(options.text_pair == NULL && options.token_types == NULL);
  CHECK(options.classification == INLAY_CLASSIFICATION_NONE);
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

/* The functions that the macros call; those that old programs call are for
 * old_caller_test.cc. */
static void test_sized_init(void) {
  inlay_engine_options engine_options;
  inlay_model_options model_options;
  inlay_request_options request_options;
  inlay_step_info step;
  inlay_stats stats;
  inlay_event_info event;
  inlay_model_info model;
  inlay_engine_options_init_sized(&engine_options, sizeof(engine_options));
  inlay_model_options_init_sized(&model_options, sizeof(model_options));
  inlay_request_options_init_sized(&request_options, sizeof(request_options));
  inlay_step_info_init_sized(&step, sizeof(step));
  inlay_stats_init_sized(&stats, sizeof(stats));
  inlay_event_info_init_sized(&event, sizeof(event));
  inlay_model_info_init_sized(&model, sizeof(model));
  CHECK(model.struct_size == sizeof(model));
  CHECK(event.struct_size == sizeof(event));
  CHECK(engine_options.struct_size == sizeof(engine_options));
  CHECK(model_options.struct_size == sizeof(model_options));
  CHECK(request_options.struct_size == sizeof(request_options));
  CHECK(step.struct_size == sizeof(step));
  CHECK(stats.struct_size == sizeof(stats));
}

static void test_prefixes(inlay_engine* engine, inlay_model* model) {
  const char text[] = "Once upon a time there was a fox";
  inlay_prefix* prefix = NULL;
  inlay_prefix* found = NULL;
  inlay_session* session = NULL;
  inlay_prefix_options options;
  inlay_prefix_info info;
  inlay_session_info log;
  inlay_prefix_options_init(&options);
  CHECK(options.struct_size == sizeof(options) && options.pin == 1);
  options.text = text;
  options.text_bytes = strlen(text);
  CHECK_OK(inlay_prefix_create(model, "fox", &options, &prefix, &error));
  CHECK_OK(inlay_engine_step(engine, 0, NULL, &error));
  CHECK_OK(inlay_prefix_find(model, "fox", &found, &error));
  inlay_prefix_info_init(&info);
  CHECK_OK(inlay_prefix_get_info(found, &info, &error));
  CHECK(info.pinned == 1 && info.num_tokens > 4 && info.kv_bytes > 0);
  CHECK(info.num_cached == info.num_tokens);
  CHECK_OK(inlay_prefix_pin(prefix, 0, &error));
  CHECK_OK(inlay_prefix_open(prefix, &session, &error));
  inlay_session_info_init(&log);
  CHECK_OK(inlay_session_get_info(session, &log, &error));
  CHECK(log.num_tokens == info.num_tokens);
  inlay_prefix_release(prefix);
  inlay_prefix_release(found);
  inlay_session_release(session);
}

/* Saves `session` and checks that what comes back has its log. */
static void restore(inlay_model* model, inlay_session* session,
                    const char* path) {
  inlay_session* restored = NULL;
  inlay_buffer* buffer = NULL;
  inlay_restore_info info;
  inlay_session_info log;
  inlay_session_info_init(&log);
  CHECK_OK(inlay_session_get_info(session, &log, &error));
  inlay_restore_info_init(&info);
  CHECK_OK(inlay_session_save_buffer(session, &buffer, &error));
  CHECK_OK(inlay_session_restore_buffer(model, inlay_buffer_data(buffer),
                                        inlay_buffer_size(buffer), &restored,
                                        &info, &error));
  CHECK(info.num_tokens == log.num_tokens && info.num_restored > 0);
  CHECK(strcmp(info.note, "") == 0);
  inlay_buffer_release(buffer);
  inlay_session_release(restored);

  CHECK_OK(inlay_session_save(session, path, &error));
  CHECK_OK(inlay_session_restore(model, path, &restored, NULL, &error));
  inlay_session_get_info(restored, &log, &error);
  CHECK(log.num_tokens == info.num_tokens);
  inlay_session_release(restored);

  CHECK_OK(inlay_model_record_start(model, path, &error));
  CHECK_OK(inlay_model_record_stop(model, &error));
  CHECK_OK(inlay_model_replay(model, path, &buffer, &error));
  CHECK(strstr(inlay_buffer_data(buffer), "\"same\"") != NULL);
  inlay_buffer_release(buffer);
  remove(path);
}

static void test_quote_and_snapshot(inlay_engine* engine, inlay_model* model) {
  const char text[] = "The fox went home";
  char answer[256];
  inlay_session* session = NULL;
  inlay_request* request = NULL;
  inlay_request_options options;
  inlay_quote quote;
  inlay_request_options_init(&options);
  options.text = text;
  options.text_bytes = strlen(text);
  options.max_tokens = 4;
  options.ignore_eos = 1;
  options.user_data = answer;
  CHECK_OK(inlay_session_create(model, &session, &error));
  inlay_quote_init(&quote);
  CHECK(quote.struct_size == sizeof(quote));
  CHECK_OK(inlay_request_quote(session, &options, 1, &quote, &error));
  CHECK(quote.fits == 1 && quote.fits_now == 1 && quote.reserved == 1);
  CHECK(quote.prompt_tokens > 3 && quote.kv_bytes >= quote.new_kv_bytes);
  CHECK_OK(inlay_session_submit(session, &options, &request, &error));
  CHECK(finish(engine, request, answer, sizeof(answer)) == 4);
  inlay_request_release(request);
  restore(model, session, "api_c99.snapshot");
  inlay_session_release(session);
}

static void test_observing(inlay_engine* engine) {
  inlay_buffer* bytes = NULL;
  CHECK_OK(
      inlay_engine_metrics(engine, INLAY_METRICS_PROMETHEUS, &bytes, &error));
  CHECK(strstr(inlay_buffer_data(bytes), "# TYPE") != NULL);
  inlay_buffer_release(bytes);
  CHECK_OK(
      inlay_engine_metrics(engine, INLAY_METRICS_PROTOBUF, &bytes, &error));
  CHECK(inlay_buffer_size(bytes) > 0);
  inlay_buffer_release(bytes);
  CHECK_OK(inlay_engine_trace_start(engine, 100, &error));
  CHECK_OK(inlay_engine_set_memory_budget(engine, 0, 1 << 30, &error));
  CHECK_OK(inlay_engine_trace_take(engine, 1, &bytes, &error));
  CHECK(inlay_buffer_size(bytes) > 0);
  inlay_buffer_release(bytes);
  CHECK_OK(inlay_engine_set_memory_budget(engine, 0, 0, &error));
}

static void test_device(inlay_engine* engine) {
  double rate = 0;
  inlay_device_info info;
  inlay_device_info_init(&info);
  CHECK(info.struct_size == sizeof(info));
  CHECK_OK(inlay_engine_device(engine, &info, &error));
  CHECK(info.name[0] != 0 && info.memory_bytes > 0 && info.num_processors > 0);
  CHECK((info.backend == INLAY_BACKEND_CUDA) == (info.compute_capability > 0));
  CHECK_OK(inlay_engine_measure_copy(engine, 1 << 20, &rate, &error));
  CHECK(rate > 1e6);
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
  test_device(engine);
  test_errors(engine);

  inlay_stats_init(&stats);
  CHECK(stats.struct_size == sizeof(stats));
  CHECK_OK(inlay_engine_stats(engine, &stats, &error));
  CHECK(stats.submitted_requests == 2 && stats.finished_requests == 1);
  CHECK(stats.cancelled_requests == 1 && stats.failed_requests == 0);
  CHECK(stats.kv_blocks_used == 0 && stats.num_sessions == 0);
  CHECK(stats.memory_peak_bytes >= stats.memory_bytes);
  CHECK(stats.request_time_us.count == 2 && stats.step_tokens.max > 0);
  test_sized_init();
  test_prefixes(engine, model);
  test_quote_and_snapshot(engine, model);
  test_observing(engine);
  test_quantize(argv[1]);
  inlay_model_release(model);
  inlay_engine_release(engine);
  puts("ok");
  return 0;
}
