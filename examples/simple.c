/* Streams what a model makes of a prompt. */
#include <inlay/inlay.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "examples/models/pocket-7m";
  inlay_engine* engine = NULL;
  inlay_model* model = NULL;
  inlay_session* session = NULL;
  inlay_request* request = NULL;
  inlay_error* error = NULL;
  inlay_event* event;
  inlay_event_info info;
  inlay_request_options options;
  inlay_event_info_init(&info);
  inlay_request_options_init(&options);
  options.text = "Once upon a time,";
  options.text_bytes = strlen(options.text);
  if (inlay_engine_create(NULL, &engine, &error) == INLAY_OK &&
      inlay_model_load(engine, path, NULL, &model, &error) == INLAY_OK &&
      inlay_session_create(model, &session, &error) == INLAY_OK)
    inlay_session_submit(session, &options, &request, &error);
  while (error == NULL && info.kind != INLAY_EVENT_FINISHED) {
    inlay_engine_step(engine, 0, NULL, &error);
    while (inlay_event_next(engine, 0, &event, NULL) == INLAY_OK) {
      inlay_event_get_info(event, &info, NULL);
      fputs(info.kind == INLAY_EVENT_TOKENS ? info.text : info.message, stdout);
      inlay_event_release(event);
    }
  }
  if (error != NULL) fprintf(stderr, "%s\n", inlay_error_message(error));
  inlay_engine_release(engine);
  return error != NULL;
}
