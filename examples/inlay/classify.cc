// inlay classify and inlay rerank: the labels of texts and of pairs, and
// documents sorted by how a cross-encoder scores them beside a query.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/flights.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

struct Item {
  std::string text;
  std::optional<std::string> pair;
};

struct Labels {
  std::vector<float> logits;
  std::vector<float> scores;
};

// The shortest decimal that reads back as the same float32.
std::string FloatText(float value) {
  const std::string list = FloatsText(&value, 1);
  return list.substr(1, list.size() - 2);
}

std::string Scored(const Labels& labels) {
  return "\"scores\":" +
         FloatsText(labels.scores.data(), labels.scores.size()) +
         ",\"logits\":" +
         FloatsText(labels.logits.data(), labels.logits.size());
}

// Of each of `items`, many at once. `what`: an item's name in messages, which
// have its number too.
Outcome ScoreAll(Host& host, size_t concurrency, int32_t classification,
                 const char* what, const std::vector<Item>& items,
                 std::vector<Labels>* results) {
  results->resize(items.size());
  inlay_request_options options;
  inlay_request_options_init(&options);
  options.classification = classification;
  const auto name = [&](size_t item) {
    return std::string(what) + " " + std::to_string(item + 1);
  };
  Flights flights(host, concurrency);
  for (size_t next = 0; next < items.size() || flights.active() > 0;) {
    while (next < items.size() && !flights.full()) {
      const Item& item = items[next];
      options.text = item.text.data();
      options.text_bytes = item.text.size();
      options.text_pair = item.pair.has_value() ? item.pair->data() : nullptr;
      options.text_pair_bytes = item.pair.has_value() ? item.pair->size() : 0;
      CLI_RETURN_IF_FAILED(flights.Start(next, options).In(name(next)));
      ++next;
    }
    CLI_RETURN_IF_FAILED(
        flights.Step([&](size_t item, const inlay_event_info& info) {
          if (info.kind == INLAY_EVENT_CLASSIFICATION) {
            Labels& labels = (*results)[item];
            labels.logits.assign(info.logits, info.logits + info.num_logits);
            labels.scores.assign(info.scores, info.scores + info.num_scores);
          }
          return info.kind == INLAY_EVENT_FINISHED
                     ? FinishOutcome(info).In(name(item))
                     : Outcome();
        }));
  }
  return Outcome();
}

// Names of the labels, in the order of the scores.
Outcome ReadLabelNames(const std::string& path,
                       std::vector<std::string>* names) {
  Result<std::string> text = InspectModel(path);
  if (!text.ok()) return Outcome::Failed(text.error().message());
  Json value;
  CLI_RETURN_IF_FAILED(ParseJson(*text, &value));
  if (value.contains("classification")) {
    value["classification"]["labels"].get_to(*names);
  }
  return Outcome();
}

Outcome ParseItem(const std::string& line, Item* item) {
  Json value;
  CLI_RETURN_IF_FAILED(ParseJson(line, &value));
  if (value.is_string()) {
    value.get_to(item->text);
    return Outcome();
  }
  if (value.is_array() && value.size() == 2 && value[0].is_string() &&
      value[1].is_string()) {
    value[0].get_to(item->text);
    item->pair = value[1].get<std::string>();
    return Outcome();
  }
  return Outcome::Failed("got " + std::string(value.type_name()) +
                         ", allowed: a JSON string, or an array of two");
}

// A document a line; of a .jsonl as {"text": ".."}.
Outcome ReadDocuments(const std::string& path, const std::string& query,
                      std::vector<Item>* items) {
  std::vector<std::string> texts;
  if (path.ends_with(".jsonl")) {
    CLI_RETURN_IF_FAILED(ReadTexts(path, &texts));
  } else {
    CLI_RETURN_IF_FAILED(ForEachLine(path, [&](const std::string& line) {
      texts.push_back(line);
      return Outcome();
    }));
  }
  for (std::string& text : texts) items->push_back({query, std::move(text)});
  return Outcome();
}

}  // namespace

Outcome RunClassify(Args& args, const CommonOptions& common) {
  std::string path;
  std::vector<std::string> texts;
  int32_t scores = 0;
  int32_t concurrency = 64;
  args.Positional("MODEL", "a model with a classification head", &path);
  args.Texts("text", "TEXT", "what to classify; may be given again", &texts);
  args.Choice("scores", "of the logits (default: what the model's files say)",
              {"default", "logits", "sigmoid", "softmax"}, &scores);
  args.Integer("concurrency", "texts at once (default 64)", &concurrency, 1);
  args.Note("Without --text, stdin: a JSON string a line, or two in an array.");
  args.Note("stdout: an object a line, in the texts' order.");
  CLI_RETURN_IF_FAILED(args.Parse());
  std::vector<Item> items;
  for (std::string& text : texts) items.push_back({std::move(text), {}});
  if (items.empty()) {
    CLI_RETURN_IF_FAILED(ForEachLine("-", [&](const std::string& line) {
      return ParseItem(line, &items.emplace_back());
    }));
  }
  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, path, &host));
  std::vector<std::string> names;
  CLI_RETURN_IF_FAILED(ReadLabelNames(path, &names));
  std::vector<Labels> results;
  CLI_RETURN_IF_FAILED(ScoreAll(host, static_cast<size_t>(concurrency),
                                INLAY_CLASSIFICATION_DEFAULT + scores, "text",
                                items, &results));
  for (const Labels& labels : results) {
    const auto best = static_cast<size_t>(
        std::max_element(labels.scores.begin(), labels.scores.end()) -
        labels.scores.begin());
    CLI_RETURN_IF_FAILED(WriteOut("{\"label\":" + JsonText(names.at(best)) +
                                  "," + Scored(labels) + "}\n"));
  }
  return Outcome();
}

Outcome RunRerank(Args& args, const CommonOptions& common) {
  std::string path;
  std::optional<std::string> query;
  std::optional<std::string> documents;
  int32_t top = 0;
  int32_t concurrency = 64;
  args.Positional("MODEL", "a cross-encoder: a model with one label", &path);
  args.Text("query", "TEXT", "what documents are scored beside", &query);
  args.Text("documents", "FILE",
            "a document a line, of a .jsonl {\"text\": ..}; - is stdin",
            &documents);
  args.Integer("top", "only so many, the best (default: all)", &top, 1);
  args.Integer("concurrency", "documents at once (default 64)", &concurrency,
               1);
  args.Note("stdout: score, number and text, the best first; --json: index,");
  args.Note("score and logit. Scores are as the model's files say.");
  CLI_RETURN_IF_FAILED(args.Parse());
  if (!query.has_value() || !documents.has_value()) {
    return Outcome::Usage("--query and --documents are needed");
  }
  std::vector<Item> items;
  CLI_RETURN_IF_FAILED(ReadDocuments(*documents, *query, &items));
  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, path, &host));
  std::vector<std::string> names;
  CLI_RETURN_IF_FAILED(ReadLabelNames(path, &names));
  if (names.size() > 1) {
    return Outcome::Failed("the model has " + std::to_string(names.size()) +
                           " labels, a reranker has 1: use inlay classify");
  }
  std::vector<Labels> results;
  CLI_RETURN_IF_FAILED(ScoreAll(host, static_cast<size_t>(concurrency),
                                INLAY_CLASSIFICATION_DEFAULT, "document", items,
                                &results));
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return results[a].scores[0] > results[b].scores[0];
  });
  if (top > 0) order.resize(std::min(order.size(), static_cast<size_t>(top)));
  for (const size_t i : order) {
    const Labels& labels = results[i];
    const std::string line =
        common.json ? "{\"index\":" + std::to_string(i) +
                          ",\"score\":" + FloatText(labels.scores[0]) +
                          ",\"logit\":" + FloatText(labels.logits[0]) + "}"
                    : FloatText(labels.scores[0]) + "\t" +
                          std::to_string(i + 1) + "\t" + *items[i].pair;
    CLI_RETURN_IF_FAILED(WriteOut(line + "\n"));
  }
  return Outcome();
}

}  // namespace inlay::cli
