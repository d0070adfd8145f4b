// inlay generate: one prompt, one answer, streamed.
#include <cstdio>
#include <string>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

Outcome ReadPrompt(const std::optional<std::string>& given,
                   std::string* prompt) {
  if (given.has_value() && *given != "-") {
    *prompt = *given;
    return Outcome();
  }
  if (!given.has_value() && StdinIsTerminal()) {
    return Outcome::Usage(
        "there is no prompt: give --prompt TEXT, or pipe it into stdin");
  }
  CLI_RETURN_IF_FAILED(ReadFile("-", prompt));
  // The newline that echo and editors add is not part of the prompt.
  if (prompt->ends_with('\n')) prompt->pop_back();
  return Outcome();
}

std::string ChatJson(const std::string& prompt,
                     const std::optional<std::string>& system,
                     const std::optional<std::string>& answer) {
  Json messages = Json::array();
  if (system.has_value()) {
    messages.push_back({{"role", "system"}, {"content", *system}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  if (answer.has_value()) {
    messages.push_back({{"role", "assistant"}, {"content", *answer}});
  }
  return JsonText(
      {{"messages", messages}, {"continue_final_message", answer.has_value()}});
}

class Printer {
 public:
  explicit Printer(const CommonOptions& common) : common_(common) {}

  Outcome Take(const inlay_event_info& info) {
    if (info.kind == INLAY_EVENT_FINISHED) return Finish(info);
    if (info.kind != INLAY_EVENT_TOKENS) return Outcome();
    const std::string_view text(info.text, info.text_bytes);
    if (common_.json) {
      return WriteJsonLine(
          {{"event", "tokens"},
           {"tokens",
            std::vector<int32_t>(info.tokens, info.tokens + info.num_tokens)},
           {"text", text}});
    }
    if (!text.empty()) ends_line_ = text.back() == '\n';
    return text.empty() ? Outcome() : WriteOut(text);
  }

 private:
  Outcome Finish(const inlay_event_info& info) {
    if (common_.json) return WriteJsonLine(FinishJson(info));
    if (!ends_line_) CLI_RETURN_IF_FAILED(WriteOut("\n"));
    if (common_.quiet || !StderrIsTerminal()) return Outcome();
    std::fprintf(stderr,
                 "%llu tokens after a prompt of %llu, %.1f tokens/s, first "
                 "token after %.1f ms (%s)\n",
                 static_cast<unsigned long long>(info.generated_tokens),
                 static_cast<unsigned long long>(info.prompt_tokens),
                 TokensPerSecond(info),
                 static_cast<double>(info.first_token_us) / 1000,
                 FinishName(info.finish_reason));
    return Outcome();
  }

  const CommonOptions& common_;
  bool ends_line_ = true;
};

}  // namespace

Outcome RunGenerate(Args& args, const CommonOptions& common) {
  std::string path, prompt;
  std::optional<std::string> given, system, answer;
  bool chat = false;
  Sampling sampling;
  args.Positional("MODEL", "the model", &path);
  args.Text("prompt", "TEXT", "the prompt; - or none: read from stdin", &given);
  args.Flag("chat", "the prompt is a user's message to answer", &chat);
  args.Text("system", "TEXT", "a system message before it (with --chat)",
            &system);
  args.Text("answer", "TEXT", "what the answer begins with (with --chat)",
            &answer);
  sampling.Declare(args);
  CLI_RETURN_IF_FAILED(args.Parse());
  if (system.has_value() && !chat) {
    return Outcome::Usage("--system goes with --chat, which is not given");
  }
  if (answer.has_value() && !chat) {
    return Outcome::Usage("--answer goes with --chat, which is not given");
  }
  CLI_RETURN_IF_FAILED(ReadPrompt(given, &prompt));

  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, path, &host));
  inlay_request_options options;
  CLI_RETURN_IF_FAILED(sampling.Fill(*host.model, &options));
  if (chat) prompt = ChatJson(prompt, system, answer);
  (chat ? options.chat : options.text) = prompt.data();
  (chat ? options.chat_bytes : options.text_bytes) = prompt.size();

  Running running;
  CLI_RETURN_IF_FAILED(Start(host, options, &running));
  Printer printer(common);
  return Drain(
      *host.engine, *running.request,
      [&](const inlay_event_info& info) { return printer.Take(info); });
}

}  // namespace inlay::cli
