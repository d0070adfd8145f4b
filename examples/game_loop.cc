// A game that lets its characters talk: every frame it does its own work, then
// gives the engine what time it can spare, and takes what was said. Runs twice,
// with that budget and without (one whole step a frame, however long a prompt
// makes it), and prints how long the frames were; --svg FILE draws them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <inlay/inlay.hpp>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "examples/inlay/svg_plot.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::string model = "examples/models/pocket-7m", svg;
  int fps = 60, seconds = 5, budget_us = 4000, npcs = 6, work_us = 3000;
};

struct Npc {
  std::optional<inlay::Session> session;
  std::optional<inlay::Request> request;
};

struct Played {
  std::vector<double> frame_ms, step_ms;  // a frame's work, without its wait
  int tokens = 0;
};

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin)
      .count();
}

[[noreturn]] void Fail(const inlay::Error& error) {
  std::fprintf(stderr, "game_loop: %s\n", error.message().c_str());
  std::exit(1);
}

template <typename T>
T Get(inlay::Result<T> result) {
  if (!result.ok()) Fail(result.error());
  return std::move(*result);
}

// Something new to answer: a past of some hundred tokens that no other has.
void Ask(inlay::Model& model, Npc& npc, std::mt19937& random) {
  static const char* const kPast[] = {
      "The guard saw a light in the old tower. ", "It began to rain. ",
      "A little girl asked him for some bread. ", "The dog ran away again. ",
      "He found a big red key under the stone. ", "Nobody came to the gate. "};
  std::string prompt;
  const size_t length = 400 + random() % 1600;  // characters
  while (prompt.size() < length) prompt += kPast[random() % std::size(kPast)];
  npc.request.reset();
  npc.session = Get(model.NewSession());
  npc.request = Get(npc.session->Submit(
      prompt, {.max_tokens = 16 + static_cast<int>(random() % 32)}));
}

// Takes what was said; whoever has finished is asked again.
int Listen(inlay::Engine& engine, inlay::Model& model, std::vector<Npc>& npcs,
           std::mt19937& random) {
  int tokens = 0;
  while (true) {
    inlay::Result<inlay::Event> event = engine.Next(0);
    if (!event.ok()) break;
    tokens += static_cast<int>(event->info().num_tokens);
    if (!event->finished()) continue;
    for (Npc& npc : npcs) {
      if (npc.request->get() != event->info().request) continue;
      Ask(model, npc, random);
      break;
    }
  }
  return tokens;
}

Played Play(const Settings& settings, int budget_us) {
  inlay::Engine engine = Get(inlay::Engine::Create());
  inlay::Model model = Get(engine.Load(settings.model));
  std::mt19937 random(7);
  std::vector<Npc> npcs(settings.npcs);
  for (Npc& npc : npcs) Ask(model, npc, random);
  Played played;
  const auto frame = std::chrono::nanoseconds(1'000'000'000 / settings.fps);
  Clock::time_point begin = Clock::now();
  for (int i = 0; i < settings.fps * settings.seconds; ++i) {
    while (MsSince(begin) * 1000 < settings.work_us) {
      // Physics, animation, draw calls.
    }
    const Clock::time_point step = Clock::now();
    Get(engine.Step(budget_us));
    played.step_ms.push_back(MsSince(step));
    played.tokens += Listen(engine, model, npcs, random);
    played.frame_ms.push_back(MsSince(begin));
    // A late frame moves those after it.
    begin = std::max(begin + frame, Clock::now());
    std::this_thread::sleep_until(begin);
  }
  return played;
}

double Percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * values.size());
  return values[std::max(static_cast<int>(rank), 1) - 1];
}

void Print(const char* title, const Settings& settings, int budget_us,
           const Played& played) {
  const double frame_ms = 1000.0 / settings.fps;
  const int num_frames = static_cast<int>(played.frame_ms.size());
  std::map<int, int> rows;  // of 2 ms
  for (double ms : played.frame_ms)
    ++rows[std::min(static_cast<int>(ms) / 2, 25)];
  std::printf("%s: %d frames, %.0f tokens/s\n", title, num_frames,
              played.tokens / static_cast<double>(settings.seconds));
  for (int row = 0; row <= rows.rbegin()->first; ++row) {
    const int bar = (rows[row] * 50 + num_frames - 1) / num_frames;
    const bool due = row == static_cast<int>(frame_ms) / 2;
    std::printf("  %2d ms%s %5d |%s%s\n", 2 * row, row == 25 ? "+" : " ",
                rows[row], std::string(bar, '#').c_str(),
                due ? "  <- the next frame is due" : "");
  }
  const auto late =
      std::count_if(played.frame_ms.begin(), played.frame_ms.end(),
                    [&](double ms) { return ms > frame_ms; });
  std::printf("  late frames: %d; step ms: p50 %.2f, p99 %.2f, max %.2f\n",
              static_cast<int>(late), Percentile(played.step_ms, 50),
              Percentile(played.step_ms, 99), Percentile(played.step_ms, 100));
  if (budget_us > 0) {
    const double over =
        std::max(0.0, Percentile(played.step_ms, 99) - budget_us / 1000.0);
    std::printf(
        "  over the budget of %.1f ms: p99 %.2f ms (target: below 1 ms, "
        "%s)\n",
        budget_us / 1000.0, over, over < 1 ? "met" : "missed");
  }
  std::printf("\n");
}

// Every frame, and when the next one is due.
inlay::cli::PlotPanel Panel(const std::string& title, double due_ms,
                            const Played& played) {
  inlay::cli::PlotSeries frames = {"a frame's work", {}, false};
  for (size_t i = 0; i < played.frame_ms.size(); ++i)
    frames.points.push_back({static_cast<double>(i), played.frame_ms[i], ""});
  const auto num_frames = static_cast<double>(played.frame_ms.size());
  return {title,
          "frame",
          "ms",
          {frames,
           {"the next one is due",
            {{0, due_ms, ""}, {num_frames, due_ms, ""}},
            false}}};
}

bool Draw(const Settings& settings, const Played& with, const Played& without) {
  const double due_ms = 1000.0 / settings.fps;
  char budget[64];
  std::snprintf(budget, sizeof(budget), "steps within %.1f ms",
                settings.budget_us / 1000.0);
  std::ofstream file(settings.svg);
  file << inlay::cli::SvgPlot(
      std::to_string(settings.npcs) + " characters that talk all the time",
      {Panel(budget, due_ms, with),
       Panel("one whole step a frame", due_ms, without)});
  file.close();
  if (!file) std::fprintf(stderr, "cannot write %s\n", settings.svg.c_str());
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  const std::map<std::string, int*> options = {
      {"--fps", &settings.fps},
      {"--seconds", &settings.seconds},
      {"--budget-us", &settings.budget_us},
      {"--npcs", &settings.npcs},
      {"--work-us", &settings.work_us}};
  for (int i = 1; i < argc; ++i) {
    const auto option = options.find(argv[i]);
    const int value =
        option != options.end() && i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (value > 0 && value <= 1000000) {
      *option->second = value;
      ++i;
    } else if (argv[i] == std::string("--svg") && i + 1 < argc) {
      settings.svg = argv[++i];
    } else if (i == 1 && argv[i][0] != '-') {
      settings.model = argv[i];
    } else {
      std::fprintf(stderr,
                   "usage: game_loop [MODEL] [--fps N] [--seconds N] "
                   "[--budget-us N] [--npcs N] [--work-us N] [--svg FILE]\n");
      return 2;
    }
  }
  const Played with = Play(settings, settings.budget_us);
  Print("With a step budget", settings, settings.budget_us, with);
  const Played without = Play(settings, 0);
  Print("Without (one step a frame)", settings, 0, without);
  return settings.svg.empty() || Draw(settings, with, without) ? 0 : 1;
}
