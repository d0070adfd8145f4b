/* What the C API gives, for the Java tests to compare with.
 *   reference MODEL tokens MAX PROMPT   greedy tokens, one a line
 *   reference MODEL embed MODE NORMALISE TEXT   the values, one a line
 *   reference MODEL cost STEPS          as CostTest.java measures, in ns */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include <inlay/inlay.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REQUESTS = 32 };

static inlay_engine* engine;
static inlay_model* model;

static void Check(inlay_status status, inlay_error* error) {
  if (status == INLAY_OK) return;
  fprintf(stderr, "%s\n", inlay_error_message(error));
  exit(1);
}

static inlay_request* Submit(const char* prompt, int max_tokens,
                             int ignore_eos) {
  inlay_session* session;
  inlay_request* request;
  inlay_request_options options;
  inlay_error* error;
  inlay_request_options_init(&options);
  options.text = prompt;
  options.text_bytes = strlen(prompt);
  options.max_tokens = max_tokens;
  options.ignore_eos = ignore_eos;
  Check(inlay_session_create(model, &session, &error), error);
  Check(inlay_session_submit(session, &options, &request, &error), error);
  return request;
}

static void Step(void) {
  inlay_error* error;
  Check(inlay_engine_step(engine, 0, NULL, &error), error);
}

static void Tokens(const char* prompt, int max_tokens) {
  inlay_request* request = Submit(prompt, max_tokens, 0);
  inlay_event* event;
  inlay_event_info info;
  inlay_event_info_init(&info);
  while (info.kind != INLAY_EVENT_FINISHED) {
    size_t i;
    Step();
    while (inlay_request_next_event(request, 0, &event, NULL) == INLAY_OK) {
      inlay_event_get_info(event, &info, NULL);
      for (i = 0; i < info.num_tokens; ++i) printf("%d\n", info.tokens[i]);
      inlay_event_release(event);
    }
  }
}

static void Embed(int mode, int normalise, const char* text) {
  inlay_session* session;
  inlay_request* request;
  inlay_request_options options;
  inlay_error* error;
  inlay_event* event;
  inlay_event_info info;
  inlay_request_options_init(&options);
  options.text = text;
  options.text_bytes = strlen(text);
  options.embedding = mode;
  options.normalise = (uint32_t)normalise;
  Check(inlay_session_create(model, &session, &error), error);
  Check(inlay_session_submit(session, &options, &request, &error), error);
  inlay_event_info_init(&info);
  while (info.kind != INLAY_EVENT_FINISHED) {
    size_t i;
    Step();
    while (inlay_request_next_event(request, 0, &event, NULL) == INLAY_OK) {
      inlay_event_get_info(event, &info, NULL);
      for (i = 0; i < info.num_embedding; ++i) printf("%.9g\n", info.embedding[i]);
      inlay_event_release(event);
    }
  }
}

static double Now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

static void Cost(int steps) {
  inlay_request* requests[REQUESTS];
  double* costs = (double*)malloc((size_t)steps * sizeof(double));
  size_t characters = 0;
  int done = 0;
  int steps_left = 2 * steps;
  int i;
  for (i = 0; i < REQUESTS; ++i)
    requests[i] = Submit("Once upon a time,", steps, 1);
  while (done < steps && steps_left-- > 0) {
    int taken = 0;
    double start;
    Step();
    start = Now();
    for (i = 0; i < REQUESTS; ++i) {
      inlay_event* event;
      inlay_event_info info;
      if (inlay_request_next_event(requests[i], 0, &event, NULL) != INLAY_OK)
        continue;
      inlay_event_info_init(&info);
      inlay_event_get_info(event, &info, NULL);
      characters += strlen(info.text);
      taken += info.kind == INLAY_EVENT_TOKENS;
      inlay_event_release(event);
    }
    if (taken == REQUESTS) costs[done++] = (Now() - start) / taken;
  }
  qsort(costs + steps / 2, (size_t)(steps - steps / 2), sizeof(double),
        Compare);
  if (characters != 0 && done == steps)
    printf("%.0f\n", costs[steps / 2 + (steps - steps / 2) / 2]);
  free(costs);
}

int main(int argc, char** argv) {
  inlay_engine_options options;
  inlay_error* error;
  if (argc < 4) return 2;
  inlay_engine_options_init(&options);
  options.backend = INLAY_BACKEND_CPU;
  options.num_threads = 1;
  Check(inlay_engine_create(&options, &engine, &error), error);
  Check(inlay_model_load(engine, argv[1], NULL, &model, &error), error);
  if (strcmp(argv[2], "cost") == 0) {
    Cost(atoi(argv[3]));
  } else if (strcmp(argv[2], "embed") == 0 && argc == 6) {
    Embed(atoi(argv[3]), atoi(argv[4]), argv[5]);
  } else {
    Tokens(argv[4], atoi(argv[3]));
  }
  inlay_engine_release(engine);
  return 0;
}
