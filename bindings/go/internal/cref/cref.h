#ifndef INLAY_GO_CREF_H_
#define INLAY_GO_CREF_H_

#include <inlay/inlay.h>

/* The number of tokens, written to `tokens` (of max_tokens); `text` takes their
 * text, `length` bytes of it. -1: a failure. */
int32_t cref_generate(const char* model, const char* input, int chat,
                      int32_t max_tokens, int32_t* tokens, char* text,
                      size_t capacity, size_t* length);

/* The vector's length, written to `vector` as far as `capacity` goes; -1: a
 * failure. */
int32_t cref_embed(const char* model, const char* input, int32_t embedding,
                   uint32_t normalise, float* vector, size_t capacity);

/* Nanoseconds that the process has computed, on all cores. */
int64_t cref_cpu_time(void);
int64_t cref_time(void);

/* Generates that many tokens on an engine with a thread, and reads them as they
 * come: nanoseconds of CPU time, -1: a failure. */
int64_t cref_stream(const char* model, int32_t prompt, int32_t max_tokens);

/* The same on an engine that is stepped here: for each step, the nanoseconds of
 * stepping and taking the event, less what the library says the step took. The
 * number of steps; -1: a failure. */
int32_t cref_steps(const char* model, int32_t prompt, int32_t max_tokens,
                   int64_t* nanoseconds);

/* Bytes that are allocated and not freed in the process. */
size_t cref_allocated(void);

#endif
