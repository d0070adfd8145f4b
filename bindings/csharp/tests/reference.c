/* What the C API gives, for the tests to compare with.
 *   reference tokens MODEL PROMPT N    greedy: the tokens, then the text's bytes in hexadecimal
 *   reference embed MODEL TEXT MODE NORMALISE   the values, and an empty line
 *   reference pull MODEL N             microseconds to take one token's event (next, get_info, copies, release): the median of N
 */
#include <inlay/inlay.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double Microseconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int Compare(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(int argc, char** argv) {
  const int pull = argc == 4 && strcmp(argv[1], "pull") == 0;
  const int embed = argc == 6 && strcmp(argv[1], "embed") == 0;
  if (!pull && !embed && (argc != 5 || strcmp(argv[1], "tokens") != 0)) return 2;
  inlay_engine* engine = NULL;
  inlay_model* model = NULL;
  inlay_session* session = NULL;
  inlay_request* request = NULL;
  inlay_error* error = NULL;
  inlay_request_options options;
  inlay_request_options_init(&options);
  const int32_t ids[] = {5, 6, 7};
  if (pull) {
    options.tokens = ids;
    options.num_tokens = 3;
  } else {
    options.text = argv[3];
    options.text_bytes = strlen(options.text);
  }
  if (embed) {
    options.embedding = atoi(argv[4]);
    options.normalise = (uint32_t)atoi(argv[5]);
  } else {
    options.max_tokens = atoi(argv[argc - 1]);
  }
  options.ignore_eos = pull;
  if (inlay_engine_create(NULL, &engine, &error) == INLAY_OK && inlay_model_load(engine, argv[2], NULL, &model, &error) == INLAY_OK &&
      inlay_session_create(model, &session, &error) == INLAY_OK)
    inlay_session_submit(session, &options, &request, &error);
  char hex[65536] = "", tokens[4096], text[4096];
  size_t used = 0;
  double taken_us[4096];
  size_t num_taken = 0;
  inlay_event_info info;
  inlay_event_info_init(&info);
  while (error == NULL && info.kind != INLAY_EVENT_FINISHED) {
    inlay_engine_step(engine, 0, NULL, &error);
    inlay_event* event;
    const double begin_us = Microseconds();
    while (inlay_request_next_event(request, 0, &event, NULL) == INLAY_OK) {
      inlay_event_get_info(event, &info, NULL);
      if (info.kind == INLAY_EVENT_TOKENS && info.num_tokens < 256 && info.text_bytes < sizeof(text)) {
        memcpy(tokens, info.tokens, info.num_tokens * sizeof(int32_t));
        memcpy(text, info.text, info.text_bytes);
        for (size_t i = 0; !pull && i < info.num_tokens; ++i) printf("%d ", info.tokens[i]);
        for (size_t i = 0; !pull && i < info.text_bytes && used + 3 < sizeof(hex); ++i)
          used += (size_t)sprintf(hex + used, "%02x", (unsigned char)info.text[i]);
      }
      for (size_t i = 0; i < info.num_embedding; ++i) printf("%.9g ", info.embedding[i]);
      inlay_event_release(event);
    }
    if (num_taken < sizeof(taken_us) / sizeof(taken_us[0])) taken_us[num_taken++] = Microseconds() - begin_us;
  }
  if (error != NULL) fprintf(stderr, "reference: %s\n", inlay_error_message(error));
  qsort(taken_us, num_taken, sizeof(taken_us[0]), Compare);
  if (pull) printf("%.3f\n", taken_us[num_taken / 2]);
  else printf("\n%s\n", hex);
  const int failed = error != NULL;
  inlay_error_release(error);
  inlay_engine_release(engine);
  return failed;
}
