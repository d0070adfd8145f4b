#include "cref.h"

#include <malloc.h>
#include <string.h>
#include <time.h>

typedef struct host {
  inlay_engine* engine;
  inlay_model* model;
  inlay_session* session;
  inlay_request* request;
} host;

static int Start(host* h, const char* path, int32_t drive,
                 const inlay_request_options* request) {
  inlay_engine_options options;
  inlay_model_options model_options;
  memset(h, 0, sizeof(*h));
  inlay_engine_options_init(&options);
  options.drive = drive;
  options.num_threads = 1; /* threads that wait for each other measure what else
                              the machine does */
  options.backend = INLAY_BACKEND_CPU;
  inlay_model_options_init(&model_options);
  return inlay_engine_create(&options, &h->engine, NULL) == INLAY_OK &&
         inlay_model_load(h->engine, path, &model_options, &h->model, NULL) ==
             INLAY_OK &&
         inlay_session_create(h->model, &h->session, NULL) == INLAY_OK &&
         inlay_session_submit(h->session, request, &h->request, NULL) ==
             INLAY_OK;
}

static void Stop(host* h) {
  inlay_request_release(h->request);
  inlay_session_release(h->session);
  inlay_model_release(h->model);
  inlay_engine_release(h->engine);
}

int32_t cref_generate(const char* path, const char* input, int chat,
                      int32_t max_tokens, int32_t* tokens, char* text,
                      size_t capacity, size_t* length) {
  inlay_request_options options;
  inlay_event_info info;
  inlay_event* event;
  host h;
  int32_t count = -1;
  inlay_request_options_init(&options);
  options.max_tokens = max_tokens;
  if (chat) {
    options.chat = input;
    options.chat_bytes = strlen(input);
  } else {
    options.text = input;
    options.text_bytes = strlen(input);
  }
  *length = 0;
  inlay_event_info_init(&info);
  if (Start(&h, path, INLAY_DRIVE_HOST, &options)) {
    count = 0;
    while (info.kind != INLAY_EVENT_FINISHED &&
           inlay_engine_step(h.engine, 0, NULL, NULL) == INLAY_OK) {
      while (inlay_event_next(h.engine, 0, &event, NULL) == INLAY_OK) {
        inlay_event_get_info(event, &info, NULL);
        if (info.kind == INLAY_EVENT_TOKENS &&
            *length + info.text_bytes <= capacity) {
          memcpy(tokens + count, info.tokens,
                 info.num_tokens * sizeof(*tokens));
          memcpy(text + *length, info.text, info.text_bytes);
          count += (int32_t)info.num_tokens;
          *length += info.text_bytes;
        }
        inlay_event_release(event);
      }
    }
  }
  Stop(&h);
  return count;
}

int32_t cref_embed(const char* path, const char* input, int32_t embedding,
                   uint32_t normalise, float* vector, size_t capacity) {
  inlay_request_options options;
  inlay_event_info info;
  inlay_event* event;
  host h;
  int32_t count = -1;
  inlay_request_options_init(&options);
  options.text = input;
  options.text_bytes = strlen(input);
  options.embedding = embedding;
  options.normalise = normalise;
  inlay_event_info_init(&info);
  if (Start(&h, path, INLAY_DRIVE_HOST, &options)) {
    while (info.kind != INLAY_EVENT_FINISHED &&
           inlay_engine_step(h.engine, 0, NULL, NULL) == INLAY_OK) {
      while (inlay_event_next(h.engine, 0, &event, NULL) == INLAY_OK) {
        inlay_event_get_info(event, &info, NULL);
        if (info.kind == INLAY_EVENT_EMBEDDING &&
            info.num_embedding <= capacity) {
          memcpy(vector, info.embedding, info.num_embedding * sizeof(*vector));
          count = (int32_t)info.num_embedding;
        }
        inlay_event_release(event);
      }
    }
  }
  Stop(&h);
  return count;
}

static int64_t Clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
int64_t cref_cpu_time(void) { return Clock(CLOCK_PROCESS_CPUTIME_ID); }
int64_t cref_time(void) { return Clock(CLOCK_MONOTONIC); }

static void SetPrompt(inlay_request_options* options, const int32_t* prompt,
                      int32_t max_tokens) {
  inlay_request_options_init(options);
  options->tokens = prompt;
  options->num_tokens = 1;
  options->max_tokens = max_tokens;
  options->ignore_eos = 1;
}

int64_t cref_stream(const char* path, int32_t prompt, int32_t max_tokens) {
  inlay_request_options options;
  inlay_event_info info;
  inlay_event* event;
  host h;
  int64_t result = -1;
  SetPrompt(&options, &prompt, max_tokens);
  inlay_event_info_init(&info);
  if (Start(&h, path, INLAY_DRIVE_THREAD, &options)) {
    const int64_t begin = cref_cpu_time();
    while (inlay_request_next_event(h.request, UINT64_MAX, &event, NULL) ==
           INLAY_OK) {
      inlay_event_get_info(event, &info, NULL);
      inlay_event_release(event);
    }
    result = cref_cpu_time() - begin;
  }
  Stop(&h);
  return result;
}

int32_t cref_steps(const char* path, int32_t prompt, int32_t max_tokens,
                   int64_t* nanoseconds) {
  inlay_request_options options;
  inlay_step_info step;
  inlay_event_info info;
  inlay_event* event;
  host h;
  int32_t steps = -1;
  SetPrompt(&options, &prompt, max_tokens);
  inlay_event_info_init(&info);
  inlay_step_info_init(&step);
  if (Start(&h, path, INLAY_DRIVE_HOST, &options)) {
    for (steps = 0; steps < max_tokens && info.kind != INLAY_EVENT_FINISHED;
         ++steps) {
      const int64_t begin = cref_time();
      inlay_engine_step(h.engine, 0, &step, NULL);
      while (inlay_request_next_event(h.request, 0, &event, NULL) == INLAY_OK) {
        inlay_event_get_info(event, &info, NULL);
        inlay_event_release(event);
      }
      nanoseconds[steps] =
          cref_time() - begin - (int64_t)step.duration_us * 1000;
    }
  }
  Stop(&h);
  return steps;
}

size_t cref_allocated(void) {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}
