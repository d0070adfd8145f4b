// inlay logits: what the model says about token ids, number for number.
#include <string>
#include <vector>

#include "examples/inlay/commands.h"

namespace inlay::cli {
namespace {

template <typename T>
std::string List(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ",";
    text += std::to_string(value);
  }
  return text + "]";
}

struct LogitsAnswer {
  std::vector<int64_t> positions;
  std::string logits;  // the lists, with commas between
  std::vector<int32_t> greedy;

  Outcome Take(const inlay_event_info& info) {
    if (info.kind == INLAY_EVENT_TOKENS) {
      greedy.insert(greedy.end(), info.tokens, info.tokens + info.num_tokens);
    }
    if (info.kind != INLAY_EVENT_LOGITS) return Outcome();
    if (!positions.empty()) logits += ",";
    positions.push_back(info.position);
    logits += FloatsText(info.logits, info.num_logits);
    return Outcome();
  }
};

Outcome ParseIds(const std::optional<std::string>& text,
                 std::vector<int32_t>* ids) {
  if (!text.has_value()) return Outcome::Usage("--ids is missing");
  const auto values = ParseIntegerList(*text);
  if (!values.has_value()) {
    return Outcome::Usage("--ids: got \"" + *text +
                          "\", allowed: token ids, such as 1,2,3");
  }
  for (const int64_t value : *values) {
    if (value < 0 || value > INT32_MAX) {
      return Outcome::Usage("--ids: got " + std::to_string(value) +
                            ", allowed: 0 up to the vocabulary's size");
    }
    ids->push_back(static_cast<int32_t>(value));
  }
  return Outcome();
}

Outcome ParsePositions(const std::string& text, size_t num_ids,
                       std::vector<int64_t>* list,
                       inlay_request_options* options) {
  if (text == "last" || text == "all") {
    options->logits = text == "all" ? INLAY_LOGITS_ALL : INLAY_LOGITS_LAST;
    return Outcome();
  }
  const auto values = ParseIntegerList(text);
  if (!values.has_value()) {
    return Outcome::Usage("--positions: got \"" + text +
                          "\", allowed: last, all, or a list such as 0,4");
  }
  for (const int64_t value : *values) {
    if (value < 0 || value >= static_cast<int64_t>(num_ids)) {
      return Outcome::Usage("--positions: got " + std::to_string(value) +
                            ", allowed: 0 to " + std::to_string(num_ids - 1));
    }
  }
  *list = *values;
  options->logits = INLAY_LOGITS_POSITIONS;
  options->logits_positions = list->data();
  options->num_logits_positions = list->size();
  return Outcome();
}

}  // namespace

Outcome RunLogits(Args& args, const CommonOptions& common) {
  std::string path;
  std::optional<std::string> ids_text, positions_text;
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;
  inlay_request_options options;
  inlay_request_options_init(&options);
  options.max_tokens = 0;
  options.ignore_eos = 1;
  args.Positional("MODEL", "the model", &path);
  args.Text("ids", "1,2,3", "token ids, taken as they are", &ids_text);
  args.Text("positions", "last|all|i,j,..", "whose logits (default last)",
            &positions_text);
  args.Integer("greedy", "also choose N tokens, the likeliest each time",
               &options.max_tokens, 0);
  args.Note("Prints {\"positions\":[..],\"logits\":[[..]],\"greedy\":[..]}.");
  CLI_RETURN_IF_FAILED(args.Parse());
  CLI_RETURN_IF_FAILED(ParseIds(ids_text, &ids));
  CLI_RETURN_IF_FAILED(ParsePositions(positions_text.value_or("last"),
                                      ids.size(), &positions, &options));
  options.tokens = ids.data();
  options.num_tokens = ids.size();

  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, path, &host));
  Running running;
  CLI_RETURN_IF_FAILED(Start(host, options, &running));
  LogitsAnswer answer;
  CLI_RETURN_IF_FAILED(
      Drain(*host.engine, *running.request,
            [&](const inlay_event_info& info) { return answer.Take(info); }));
  return WriteOut("{\"positions\":" + List(answer.positions) + ",\"logits\":[" +
                  answer.logits + "],\"greedy\":" + List(answer.greedy) +
                  "}\n");
}

}  // namespace inlay::cli
