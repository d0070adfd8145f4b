// inlay eval: exact-match accuracy on questions, many in flight at once,
// perplexity of a text (perplexity.cc), and how far a model's distributions are
// from another's (divergence.cc).
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/divergence.h"
#include "examples/inlay/flights.h"
#include "examples/inlay/input.h"
#include "examples/inlay/perplexity.h"

namespace inlay::cli {
namespace {

struct EvalItem {
  std::string task;
  std::string chat;    // the conversation to answer, as JSON
  std::string answer;  // what the model should say
  std::string said;
};

struct EvalOptions {
  std::string path;
  std::optional<std::string> jsonl, text, texts, reference;
  size_t limit = SIZE_MAX;
  size_t concurrency = 16;
  int32_t max_tokens = 512;
};

Outcome ReadItem(const std::string& line, std::vector<EvalItem>* items) {
  Json json;
  CLI_RETURN_IF_FAILED(ParseJson(line, &json));
  const auto is_text = [&](const char* name) {
    return json.contains(name) && json[name].is_string();
  };
  if (!json.is_object() || !is_text("task") || !is_text("answer") ||
      !json.contains("prompt") || !json["prompt"].is_array()) {
    return Outcome::Failed(
        "an item is {\"task\":\"..\",\"prompt\":[messages],"
        "\"answer\":\"..\"}, got " +
        line.substr(0, 80));
  }
  items->push_back({json["task"].get<std::string>(),
                    JsonText({{"messages", json["prompt"]}}),
                    json["answer"].get<std::string>(), ""});
  return Outcome();
}

Outcome ReadItems(const EvalOptions& options, std::vector<EvalItem>* items) {
  return ForEachLine(*options.jsonl, [&](const std::string& line) {
    const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
    if (blank || items->size() >= options.limit) return Outcome();
    return ReadItem(line, items);
  });
}

struct Totals {
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  size_t failed = 0;
};

// An item that cannot be answered (too long, say) counts as wrong, aloud.
void NoteFailure(size_t index, const std::string& why, Totals* totals) {
  ++totals->failed;
  Complain("eval: item " + std::to_string(index + 1) + ": " + why);
}

Outcome Answer(Host& host, const EvalOptions& options, Progress& progress,
               std::vector<EvalItem>* items, Totals* totals) {
  Flights flights(host, std::min(options.concurrency, items->size()));
  size_t next = 0;
  size_t done = 0;
  const auto take = [&](size_t index, const inlay_event_info& info) {
    if (info.kind == INLAY_EVENT_TOKENS) {
      (*items)[index].said.append(info.text, info.text_bytes);
    }
    if (info.kind != INLAY_EVENT_FINISHED) return Outcome();
    totals->prompt_tokens += info.prompt_tokens;
    totals->generated_tokens += info.generated_tokens;
    const Outcome finish = FinishOutcome(info);
    if (!finish.ok()) NoteFailure(index, finish.message(), totals);
    progress.Update("answered", ++done, items->size());
    return Outcome();
  };
  while (next < items->size() || flights.active() > 0) {
    for (; next < items->size() && !flights.full(); ++next) {
      inlay_request_options request;
      inlay_request_options_init(&request);
      request.chat = (*items)[next].chat.data();
      request.chat_bytes = (*items)[next].chat.size();
      request.max_tokens = options.max_tokens;
      const Outcome started = flights.Start(next, request);
      if (!started.ok()) NoteFailure(next, started.message(), totals);
    }
    CLI_RETURN_IF_FAILED(flights.Step(take));
  }
  return Outcome();
}

Outcome EvalItems(Host& host, const EvalOptions& options, Progress& progress,
                  Json* result) {
  std::vector<EvalItem> items;
  CLI_RETURN_IF_FAILED(ReadItems(options, &items).In(*options.jsonl));
  if (items.empty()) {
    return Outcome::Failed(*options.jsonl + " has no items, at least 1 needed");
  }
  Totals totals;
  const auto begin = std::chrono::steady_clock::now();
  CLI_RETURN_IF_FAILED(Answer(host, options, progress, &items, &totals));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;

  struct Count {
    size_t right = 0;
    size_t all = 0;
  };
  std::map<std::string, Count> tasks;
  size_t correct = 0;
  for (const EvalItem& item : items) {
    const bool right = item.said == item.answer;
    correct += right ? 1 : 0;
    tasks[item.task].right += right ? 1 : 0;
    ++tasks[item.task].all;
  }
  Json accuracies = Json::object();
  for (const auto& [task, count] : tasks) {
    accuracies[task] =
        static_cast<double>(count.right) / static_cast<double>(count.all);
  }
  *result = {{"tasks", accuracies},
             {"items", items.size()},
             {"correct", correct},
             {"accuracy",
              static_cast<double>(correct) / static_cast<double>(items.size())},
             {"failed", totals.failed},
             {"prompt_tokens", totals.prompt_tokens},
             {"generated_tokens", totals.generated_tokens},
             {"seconds", seconds.count()}};
  return Outcome();
}

Outcome EvalDivergence(Host& host, const CommonOptions& common,
                       const EvalOptions& options, Progress& progress,
                       Json* result) {
  // Kernels are for the model that is judged.
  CommonOptions plain = common;
  plain.kernels.reset();
  Host reference;
  CLI_RETURN_IF_FAILED(OpenModel(plain, *options.reference, &reference));
  Divergence divergence;
  CLI_RETURN_IF_FAILED(MeasureDivergence(host, reference, *options.texts,
                                         progress, &divergence));
  *result = {{"divergence", divergence.value},
             {"same_first", divergence.same_first},
             {"perplexity", divergence.perplexity},
             {"reference_perplexity", divergence.reference_perplexity},
             {"tokens", divergence.tokens}};
  return Outcome();
}

}  // namespace

Outcome RunEval(Args& args, const CommonOptions& common) {
  EvalOptions options;
  args.Positional("MODEL", "the model", &options.path);
  args.Text("jsonl", "FILE", "items {task, prompt: [messages], answer} a line",
            &options.jsonl);
  args.Text("text", "FILE", "text to measure the perplexity of", &options.text);
  args.Text("texts", "FILE",
            "with --reference: texts, or a .jsonl of {\"text\"}",
            &options.texts);
  args.Text("reference", "MODEL",
            "how far the model's distributions are from its, over --texts",
            &options.reference);
  args.Integer("limit", "only the first N items", &options.limit, 1);
  args.Integer("concurrency", "requests at once (default 16)",
               &options.concurrency, 1, 4096);
  args.Integer("max-tokens", "cap on an answer (default 512)",
               &options.max_tokens, 1);
  args.OnlyWith({"limit", "concurrency", "max-tokens"}, {"jsonl"});
  args.Note("Prints {\"tasks\":{..},\"items\":..,\"correct\":..,");
  args.Note("\"perplexity\":..}: greedy answers, exact match of the whole.");
  CLI_RETURN_IF_FAILED(args.Parse());
  if (options.texts.has_value() != options.reference.has_value()) {
    return Outcome::Usage("--texts FILE and --reference MODEL go together");
  }
  if (!options.jsonl.has_value() && !options.text.has_value() &&
      !options.texts.has_value()) {
    return Outcome::Usage(
        "nothing to do: give --jsonl FILE, --text FILE, or --texts FILE");
  }

  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, options.path, &host));
  Progress progress(!common.quiet);
  Json result = {{"tasks", Json::object()}, {"items", 0}, {"correct", 0}};
  if (options.jsonl.has_value()) {
    CLI_RETURN_IF_FAILED(EvalItems(host, options, progress, &result));
  }
  result["perplexity"] = nullptr;
  if (options.text.has_value()) {
    Perplexity perplexity;
    CLI_RETURN_IF_FAILED(
        MeasurePerplexity(host, common, *options.text, progress, &perplexity));
    result["perplexity"] = perplexity.value;
    result["text_tokens"] = perplexity.tokens;
    result["text_window"] = perplexity.window;
  }
  if (options.texts.has_value()) {
    CLI_RETURN_IF_FAILED(EvalDivergence(host, common, options, progress,
                                        &result["against_reference"]));
  }
  progress.Clear();
  return WriteJsonLine(result);
}

}  // namespace inlay::cli
