// inlay embed: texts to vectors, many at once, in the order they came.
#include <map>
#include <string>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/flights.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

// Vectors come as requests finish, and are written in the order of the texts.
class InOrder {
 public:
  Outcome Take(size_t text, const inlay_event_info& info) {
    if (info.kind == INLAY_EVENT_FINISHED) {
      const Outcome outcome = FinishOutcome(info);
      if (outcome.exit_status() == 0) return Outcome();
      return Outcome::Failed("text " + std::to_string(text + 1) + ": " +
                             outcome.message());
    }
    if (info.kind != INLAY_EVENT_EMBEDDING) return Outcome();
    waiting_[text] = FloatsText(info.embedding, info.num_embedding);
    for (auto it = waiting_.begin(); it != waiting_.end() && it->first == next_;
         it = waiting_.begin()) {
      CLI_RETURN_IF_FAILED(WriteOut(it->second + "\n"));
      waiting_.erase(it);
      ++next_;
    }
    return Outcome();
  }

 private:
  std::map<size_t, std::string> waiting_;
  size_t next_ = 0;
};

Outcome ReadLines(std::vector<std::string>* texts) {
  return ForEachLine("-", [&](const std::string& line) {
    Json value;
    CLI_RETURN_IF_FAILED(ParseJson(line, &value));
    if (!value.is_string()) {
      return Outcome::Failed("got " + std::string(value.type_name()) +
                             ", allowed: a JSON string");
    }
    texts->push_back(value.get<std::string>());
    return Outcome();
  });
}

}  // namespace

Outcome RunEmbed(Args& args, const CommonOptions& common) {
  std::string path;
  std::vector<std::string> texts;
  int32_t pooling = 0;
  int32_t concurrency = 64;
  bool normalise = false;
  inlay_request_options options;
  inlay_request_options_init(&options);
  args.Positional("MODEL", "the model", &path);
  args.Texts("text", "TEXT", "what to embed; may be given again", &texts);
  args.Choice("pooling",
              "of the tokens' states (default: what the model's files say)",
              {"default", "mean", "cls", "last"}, &pooling);
  args.Flag("normalise", "scale to length 1; default does as the files say",
            &normalise);
  args.Integer("concurrency", "texts at once (default 64)", &concurrency, 1);
  args.Note("Without --text, stdin: a JSON string a line.");
  args.Note("stdout: a JSON array of numbers a line, in the texts' order.");
  CLI_RETURN_IF_FAILED(args.Parse());
  if (texts.empty()) CLI_RETURN_IF_FAILED(ReadLines(&texts));
  options.embedding = INLAY_EMBEDDING_DEFAULT + pooling;
  options.normalise = normalise ? 1 : 0;

  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, path, &host));
  Flights flights(host, static_cast<size_t>(concurrency));
  InOrder vectors;
  for (size_t next = 0; next < texts.size() || flights.active() > 0;) {
    while (next < texts.size() && !flights.full()) {
      options.text = texts[next].data();
      options.text_bytes = texts[next].size();
      CLI_RETURN_IF_FAILED(flights.Start(next++, options));
    }
    CLI_RETURN_IF_FAILED(
        flights.Step([&](size_t text, const inlay_event_info& info) {
          return vectors.Take(text, info);
        }));
  }
  return Outcome();
}

}  // namespace inlay::cli
