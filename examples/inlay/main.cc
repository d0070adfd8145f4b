// The command `inlay`: finds the form, runs it, and says how it ended.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "examples/inlay/commands.h"

namespace inlay::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  Outcome (*run)(Args&, const CommonOptions&);
  bool generates = false;
};

constexpr Command kCommands[] = {
    {"generate", "continue a prompt, or answer it with --chat", RunGenerate,
     true},
    {"chat", "talk with a model", RunChat, true},
    {"logits", "logits of token ids", RunLogits},
    {"embed", "texts to vectors", RunEmbed},
    {"classify", "texts, or pairs of them, to scores of labels", RunClassify},
    {"rerank", "documents by their score beside a query", RunRerank},
    {"tokenize", "text to token ids, and back with --decode", RunTokenize},
    {"template", "render a chat template", RunTemplate},
    {"inspect", "what a model is and what it needs", RunInspect},
    {"eval", "exact-match accuracy and perplexity", RunEval, true},
    {"quantize", "write a model in fewer bits: a GGUF file, or a folder",
     RunQuantize},
    {"bench", "measure speed, alone or under load", RunBench, true},
    {"replay", "run again what --record wrote, and compare", RunReplay},
};

std::string Help() {
  std::string text =
      "usage: inlay COMMAND ...\n\nRuns language models with the Inlay "
      "library.\n\n";
  for (const Command& command : kCommands) {
    text += "  " + std::string(command.name);
    text.append(12 - std::string(command.name).size(), ' ');
    text += command.summary + std::string("\n");
  }
  return text +
         "\nMODEL is a Hugging Face directory (config.json, safetensors), a\n"
         ".gguf file (the first, where a model is split), or\n"
         "random:CONFIG_DIR[?dtype=bf16] for random weights in its shapes.\n"
         "Exit status: 0 done, 1 failed, 2 called wrongly.\n"
         "inlay COMMAND --help, inlay --version\n";
}

int UsageError(const std::string& message) {
  Complain(message);
  std::fputs("usage: inlay COMMAND ...\nsee: inlay --help\n", stderr);
  return 2;
}

// Everything but results goes to stderr; with --json, stdout says it too.
int Report(Outcome outcome, const Args& args, const CommonOptions& common) {
  if (outcome.kind() == Outcome::Kind::kHelp) {
    outcome = WriteOut(args.HelpText());
  }
  if (!common.late_failure->empty()) {
    if (outcome.exit_status() == 0) {
      outcome = Outcome::Failed(*common.late_failure);
    } else {
      Complain(args.command() + ": " + *common.late_failure);
    }
  }
  if (outcome.exit_status() == 0) return 0;
  Complain(args.command() + ": " + outcome.message());
  if (outcome.kind() == Outcome::Kind::kUsage) {
    std::fputs(args.UsageText().c_str(), stderr);
  } else if (common.json) {
    Json error = {{"error", outcome.message()}};
    if (!outcome.status().empty()) error["status"] = outcome.status();
    (void)WriteJsonLine(error);
  }
  return outcome.exit_status();
}

int Main(const std::vector<std::string>& words) {
  if (words.empty()) return UsageError("no command given");
  if (words[0] == "help" && words.size() > 1) return Main({words[1], "--help"});
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    return WriteOut(Help()).exit_status();
  }
  if (words[0] == "--version") {
    return WriteOut(std::string("inlay ") + inlay_version() + "\n")
        .exit_status();
  }
  for (const Command& command : kCommands) {
    if (words[0] != command.name) continue;
    CommonOptions common;
    Args args(command.name, {words.begin() + 1, words.end()});
    DeclareCommon(args, &common);
    if (command.generates) DeclareRecord(args, &common);
    return Report(command.run(args, common), args, common);
  }
  return UsageError("there is no command \"" + words[0] + "\"");
}

}  // namespace
}  // namespace inlay::cli

int main(int argc, char** argv) {
  // A reader that leaves shows as a failed write, not as our death.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return inlay::cli::Main({argv + (argc > 0 ? 1 : 0), argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "inlay: %s\n", error.what());
    return 1;
  }
}
