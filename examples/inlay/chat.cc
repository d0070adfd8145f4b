// inlay chat: lines in, answers out.
#include "examples/inlay/chat.h"

#include <cstdio>
#include <utility>

#include "examples/inlay/commands.h"
#include "examples/inlay/terminal.h"

namespace inlay::cli {

Chat::Chat(const CommonOptions& common, std::string path, Sampling sampling)
    : common_(common), path_(std::move(path)), sampling_(std::move(sampling)) {}

Outcome Chat::Open(const std::string& system) {
  CLI_RETURN_IF_FAILED(OpenModel(common_, path_, &host_));
  if (host_.info.has_tokenizer == 0) {
    return Outcome::Failed(path_ +
                           " has no tokenizer, and a chat is text: put its "
                           "tokenizer.json or tokenizer.model there");
  }
  Result<Session> session = host_.model->NewSession();
  if (!session.ok()) return session.error();
  Conversation& first = conversations_.emplace_back();
  first.session = std::move(*session);
  first.system = system;
  plain_ = host_.info.has_chat_template == 0;
  if (plain_) {
    if (!common_.quiet) {
      Complain(
          "the model has no chat template: using \"User:\" and "
          "\"Assistant:\"");
    }
    sampling_.AddStop("\nUser:");
  }
  return Outcome();
}

Outcome Chat::Loop() {
  CatchInterrupts();
  const bool prompts = StdinIsTerminal() && !common_.quiet;
  if (prompts) std::fputs("/help lists the commands\n", stderr);
  LineReader reader;
  std::string line;
  while (!quit_) {
    if (prompts) std::fputs("> ", stderr);
    const LineReader::Got got = reader.Next(&line);
    if (got == LineReader::Got::kEnd) break;
    if (got == LineReader::Got::kInterrupt) {
      std::fputs("\n/quit or Ctrl-D leaves\n", stderr);
      continue;
    }
    const Outcome outcome = RunLine(line);
    if (outcome.kind() == Outcome::Kind::kReaderLeft) return outcome;
    // A turn that failed is over, the conversation is not.
    if (outcome.ok()) continue;
    Complain("chat: " + outcome.message());
    if (common_.json) {
      CLI_RETURN_IF_FAILED(WriteJsonLine({{"error", outcome.message()}}));
    }
  }
  return Outcome();
}

Outcome Chat::RunLine(const std::string& line) {
  if (line.find_first_not_of(" \t\r") == std::string::npos) return Outcome();
  return line[0] == '/' ? RunCommand(line) : Answer(line);
}

// The question stays only with an answer, whole or cut by Ctrl-C.
Outcome Chat::Answer(const std::string& message) {
  Json& messages = conversation().messages;
  messages.push_back({{"role", "user"}, {"content", message}});
  std::string answer;
  const Outcome outcome = Generate(&answer);
  if (answer.empty() && !outcome.ok()) {
    messages.erase(messages.size() - 1);
    return outcome;
  }
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  return outcome;
}

// The input is always the whole conversation: the session finds by itself what
// of it is computed already.
Outcome Chat::Generate(std::string* answer) {
  inlay_request_options options;
  CLI_RETURN_IF_FAILED(sampling_.Fill(*host_.model, &options));
  const std::string input =
      plain_ ? conversation().PlainText() : conversation().ChatJson();
  options.input_mode = INLAY_INPUT_REPLACE;
  (plain_ ? options.text : options.chat) = input.data();
  (plain_ ? options.text_bytes : options.chat_bytes) = input.size();
  if (plain_) options.text_flags = INLAY_TEXT_ADD_SPECIAL;

  Result<Request> request = conversation().session->Submit(options);
  if (!request.ok()) return request.error();
  const auto take = [&](const inlay_event_info& info) {
    if (info.kind == INLAY_EVENT_TOKENS) {
      std::string_view text(info.text, info.text_bytes);
      if (plain_ && answer->empty() && text.starts_with(' ')) {
        text.remove_prefix(1);
      }
      answer->append(text);
      return common_.json || text.empty() ? Outcome() : WriteOut(text);
    }
    if (info.kind != INLAY_EVENT_FINISHED) return Outcome();
    if (!common_.json) return WriteOut("\n");
    Json event = FinishJson(info);
    event["event"] = "answer";
    event["conversation"] = current_ + 1;
    event["text"] = *answer;
    return WriteJsonLine(event);
  };
  (void)TakeInterrupt();
  return Drain(*host_.engine, *request, take, TakeInterrupt);
}

Outcome RunChat(Args& args, const CommonOptions& common) {
  std::string path;
  std::optional<std::string> system;
  Sampling sampling;
  args.Positional("MODEL", "the model", &path);
  args.Text("system", "TEXT", "a system message", &system);
  sampling.Declare(args);
  args.Note("Ctrl-C stops an answer. Lines that begin with / are commands,");
  args.Note("/help lists them. /save stores messages, settings and token log.");
  CLI_RETURN_IF_FAILED(args.Parse());
  Chat chat(common, path, std::move(sampling));
  CLI_RETURN_IF_FAILED(chat.Open(system.value_or("")));
  return chat.Loop();
}

}  // namespace inlay::cli
