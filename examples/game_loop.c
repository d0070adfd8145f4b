/* A game that lets its characters talk: every frame it does its own work, then
 * gives the engine what time it can spare, and takes what was said. Runs twice,
 * with that budget and without (one whole step a frame, however long a prompt
 * makes it), and prints how long the frames were; --svg FILE draws them. */
#define _POSIX_C_SOURCE 200809L
#include <inlay/inlay.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
  const char* model;
  const char* svg;
  int fps, seconds, budget_us, npcs, work_us;
} settings;

typedef struct {
  inlay_session* session;
  inlay_request* request;
} npc;

/* How long each frame's work (without its wait) and the step in it took. */
typedef struct {
  double *frame_ms, *step_ms;
  int num_frames, num_tokens;
} played;

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void sleep_until(double ms) {
  const double left = ms - now_ms();
  struct timespec time;
  if (left <= 0) return;
  time.tv_sec = (time_t)(left / 1e3);
  time.tv_nsec = (long)(1e6 * (left - 1e3 * (double)time.tv_sec));
  nanosleep(&time, NULL);
}

static void* allocate(size_t count, size_t size) {
  void* memory = calloc(count, size);
  if (memory == NULL) {
    fputs("game_loop: no memory\n", stderr);
    exit(1);
  }
  return memory;
}

static void check(inlay_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "game_loop: %s\n", inlay_error_message(error));
  exit(1);
}

/* The same numbers on every machine: the game plays the same scene again. */
static unsigned next_random(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* Something new to answer: a past of some hundred tokens that no other has. */
static void ask(inlay_model* model, npc* who, unsigned* random) {
  static const char* const past[] = {
      "The guard saw a light in the old tower. ", "It began to rain. ",
      "A little girl asked him for some bread. ", "The dog ran away again. ",
      "He found a big red key under the stone. ", "Nobody came to the gate. "};
  char prompt[2048] = "";
  const size_t enough = 400 + next_random(random) % 1600; /* characters */
  size_t length = 0;
  inlay_request_options options;
  inlay_error* error = NULL;
  while (length < enough) {
    const char* sentence =
        past[next_random(random) % (sizeof(past) / sizeof(past[0]))];
    memcpy(prompt + length, sentence, strlen(sentence));
    length += strlen(sentence);
  }
  inlay_request_release(who->request);
  inlay_session_release(who->session);
  inlay_session_create(model, &who->session, &error);
  check(error);
  inlay_request_options_init(&options);
  options.text = prompt;
  options.text_bytes = length;
  options.max_tokens = 16 + (int)(next_random(random) % 32);
  options.user_data = who;
  inlay_session_submit(who->session, &options, &who->request, &error);
  check(error);
}

/* Takes what was said; whoever has finished is asked again. */
static int listen(inlay_engine* engine, inlay_model* model, unsigned* random) {
  int num_tokens = 0;
  inlay_event* event;
  while (inlay_event_next(engine, 0, &event, NULL) == INLAY_OK) {
    inlay_event_info info;
    inlay_event_info_init(&info);
    inlay_event_get_info(event, &info, NULL);
    num_tokens += (int)info.num_tokens;
    if (info.kind == INLAY_EVENT_FINISHED) ask(model, info.user_data, random);
    inlay_event_release(event);
  }
  return num_tokens;
}

static played play(const settings* s, int budget_us) {
  inlay_engine* engine = NULL;
  inlay_model* model = NULL;
  inlay_error* error = NULL;
  npc* npcs = allocate((size_t)s->npcs, sizeof(npc));
  unsigned random = 7;
  played result = {NULL, NULL, 0, 0};
  double begin;
  int i;
  const int num_frames = s->fps * s->seconds;
  result.frame_ms = allocate((size_t)num_frames, sizeof(double));
  result.step_ms = allocate((size_t)num_frames, sizeof(double));
  inlay_engine_create(NULL, &engine, &error);
  check(error);
  inlay_model_load(engine, s->model, NULL, &model, &error);
  check(error);
  for (i = 0; i < s->npcs; ++i) ask(model, &npcs[i], &random);
  begin = now_ms();
  for (i = 0; i < num_frames; ++i) {
    double step, end;
    while ((now_ms() - begin) * 1000 < s->work_us) {
      /* Physics, animation, draw calls. */
    }
    step = now_ms();
    inlay_engine_step(engine, (uint64_t)budget_us, NULL, &error);
    check(error);
    result.step_ms[i] = now_ms() - step;
    result.num_tokens += listen(engine, model, &random);
    end = now_ms();
    result.frame_ms[i] = end - begin;
    /* A late frame moves those after it. */
    begin = fmax(begin + 1000.0 / s->fps, end);
    sleep_until(begin);
  }
  result.num_frames = num_frames;
  for (i = 0; i < s->npcs; ++i) {
    inlay_request_release(npcs[i].request);
    inlay_session_release(npcs[i].session);
  }
  inlay_model_release(model);
  inlay_engine_release(engine);
  free(npcs);
  return result;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void print(const char* title, const settings* s, int budget_us,
                  const played* p) {
  enum { NUM_ROWS = 26 }; /* of 2 ms */
  int rows[NUM_ROWS] = {0}, row, last = 0, late = 0, i;
  const double due_ms = 1000.0 / s->fps;
  double* sorted = allocate((size_t)p->num_frames, sizeof(double));
  double p50, p99, longest;
  for (i = 0; i < p->num_frames; ++i) {
    row = (int)fmin(p->frame_ms[i] / 2, NUM_ROWS - 1);
    ++rows[row];
    if (row > last) last = row;
    late += p->frame_ms[i] > due_ms;
    sorted[i] = p->step_ms[i];
  }
  qsort(sorted, (size_t)p->num_frames, sizeof(double), ascending);
  p50 = sorted[(p->num_frames + 1) / 2 - 1];
  p99 = sorted[(int)ceil(0.99 * p->num_frames) - 1];
  longest = sorted[p->num_frames - 1];
  free(sorted);
  printf("%s: %d frames, %.0f tokens/s\n", title, p->num_frames,
         (double)p->num_tokens / s->seconds);
  for (row = 0; row <= last; ++row) {
    int bar = (rows[row] * 50 + p->num_frames - 1) / p->num_frames;
    printf("  %2d ms%s %5d |", 2 * row, row == NUM_ROWS - 1 ? "+" : " ",
           rows[row]);
    while (bar-- > 0) putchar('#');
    puts(row == (int)(due_ms / 2) ? "  <- the next frame is due" : "");
  }
  printf("  late frames: %d; step ms: p50 %.2f, p99 %.2f, max %.2f\n", late,
         p50, p99, longest);
  if (budget_us > 0) {
    const double over = fmax(0, p99 - budget_us / 1000.0);
    printf(
        "  over the budget of %.1f ms: p99 %.2f ms (target: below 1 ms, %s)\n",
        budget_us / 1000.0, over, over < 1 ? "met" : "missed");
  }
  putchar('\n');
}

/* ---- The plot: two panels on one scale, so that they can be compared. ---- */

enum { PANEL = 460, LEFT = 60, RIGHT = 440, TOP = 70, BOTTOM = 340 };

static double longest_ms(const played* p) {
  double longest = 0;
  int i;
  for (i = 0; i < p->num_frames; ++i) longest = fmax(longest, p->frame_ms[i]);
  return longest;
}

static void draw_panel(FILE* file, int left, const char* title, const played* p,
                       double due_ms, double top_ms, double tick_ms) {
  const double x = (double)(RIGHT - LEFT) / p->num_frames,
               y = (BOTTOM - TOP) / top_ms;
  double ms;
  int i;
  fprintf(file,
          "<g transform=\"translate(%d 0)\">\n<text x=\"%d\" y=\"55\" "
          "text-anchor=\"middle\" font-weight=\"bold\">%s</text>\n",
          left, (LEFT + RIGHT) / 2, title);
  for (ms = 0; ms <= top_ms * 1.0001; ms += tick_ms) {
    fprintf(file,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
            "stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%g</text>\n",
            LEFT, BOTTOM - y * ms, RIGHT, BOTTOM - y * ms, LEFT - 6,
            BOTTOM - y * ms + 4, ms);
  }
  fprintf(file,
          "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d frames</text>\n",
          (LEFT + RIGHT) / 2, BOTTOM + 24, p->num_frames);
  fprintf(file,
          "<text x=\"20\" y=\"%d\" text-anchor=\"middle\" "
          "transform=\"rotate(-90 20 %d)\">ms</text>\n",
          (TOP + BOTTOM) / 2, (TOP + BOTTOM) / 2);
  fputs(
      "<polyline fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.5\" "
      "points=\"",
      file);
  for (i = 0; i < p->num_frames; ++i)
    fprintf(file, "%s%.1f,%.1f", i > 0 ? " " : "", LEFT + x * (i + 0.5),
            BOTTOM - y * p->frame_ms[i]);
  fprintf(file,
          "\"/>\n<polyline fill=\"none\" stroke=\"#d55e00\" "
          "stroke-width=\"1.5\" points=\"%d,%.1f %d,%.1f\"/>\n</g>\n",
          LEFT, BOTTOM - y * due_ms, RIGHT, BOTTOM - y * due_ms);
}

static int draw(const settings* s, const played* with, const played* without) {
  const double due_ms = 1000.0 / s->fps;
  const double highest =
      1.05 * fmax(due_ms, fmax(longest_ms(with), longest_ms(without)));
  double tick_ms = pow(10, floor(log10(highest / 4)));
  char title[64];
  FILE* file = fopen(s->svg, "w");
  int failed = 1;
  if (highest / tick_ms > 20) tick_ms *= 5;
  if (highest / tick_ms > 8) tick_ms *= 2;
  if (file != NULL) {
    const double top_ms = tick_ms * ceil(highest / tick_ms);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" "
            "height=\"400\" font-family=\"sans-serif\" font-size=\"12\">\n");
    fprintf(file, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n");
    fprintf(file,
            "<text x=\"460\" y=\"26\" text-anchor=\"middle\" "
            "font-size=\"16\">%d characters that talk all the time</text>\n",
            s->npcs);
    snprintf(title, sizeof(title), "steps within %.1f ms",
             s->budget_us / 1000.0);
    draw_panel(file, 0, title, with, due_ms, top_ms, tick_ms);
    draw_panel(file, PANEL, "one whole step a frame", without, due_ms, top_ms,
               tick_ms);
    fputs(
        "<text x=\"440\" y=\"390\" text-anchor=\"end\" fill=\"#0072b2\">a "
        "frame's work</text>\n<text x=\"480\" y=\"390\" fill=\"#d55e00\">the "
        "next one is due</text>\n</svg>\n",
        file);
    failed = ferror(file);
    failed |= fclose(file);
  }
  if (failed) fprintf(stderr, "cannot write %s\n", s->svg);
  return failed;
}

static int usage(void) {
  fputs(
      "usage: game_loop [MODEL] [--fps N] [--seconds N] [--budget-us N] "
      "[--npcs N] [--work-us N] [--svg FILE]\n",
      stderr);
  return 2;
}

int main(int argc, char** argv) {
  settings s = {"examples/models/pocket-7m", NULL, 60, 5, 4000, 6, 3000};
  const struct {
    const char* name;
    int* value;
  } options[] = {{"--fps", &s.fps},
                 {"--seconds", &s.seconds},
                 {"--budget-us", &s.budget_us},
                 {"--npcs", &s.npcs},
                 {"--work-us", &s.work_us}};
  enum { NUM_OPTIONS = sizeof(options) / sizeof(options[0]) };
  played with, without;
  int i, failed = 0;
  for (i = 1; i < argc; ++i) {
    int which = 0;
    while (which < NUM_OPTIONS && strcmp(argv[i], options[which].name) != 0)
      ++which;
    if (which < NUM_OPTIONS && i + 1 < argc) {
      *options[which].value = atoi(argv[++i]);
      if (*options[which].value <= 0 || *options[which].value > 1000000)
        return usage();
    } else if (strcmp(argv[i], "--svg") == 0 && i + 1 < argc) {
      s.svg = argv[++i];
    } else if (i == 1 && argv[i][0] != '-') {
      s.model = argv[i];
    } else {
      return usage();
    }
  }
  if (s.seconds > 1000000 / s.fps) return usage();
  with = play(&s, s.budget_us);
  print("With a step budget", &s, s.budget_us, &with);
  without = play(&s, 0);
  print("Without (one step a frame)", &s, 0, &without);
  if (s.svg != NULL) failed = draw(&s, &with, &without);
  free(with.frame_ms);
  free(with.step_ms);
  free(without.frame_ms);
  free(without.step_ms);
  return failed != 0;
}
