// inlay template: what a chat template makes of messages.
#include <string>
#include <utility>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

// "kwargs" holds further variables, as other tools' test files have them.
Outcome MergeKwargs(std::string* input) {
  Json document;
  CLI_RETURN_IF_FAILED(ParseJson(*input, &document));
  if (!document.is_object()) {
    return Outcome::Failed("got " + std::string(document.type_name()) +
                           ", allowed: a JSON object with \"messages\"");
  }
  const auto found = document.find("kwargs");
  if (found == document.end()) return Outcome();  // the bytes as they are
  const Json kwargs = *found;
  if (!kwargs.is_object() && !kwargs.is_null()) {
    return Outcome::Failed("kwargs is " + std::string(kwargs.type_name()) +
                           ", allowed: an object of variables");
  }
  document.erase("kwargs");
  for (const auto& [name, value] : kwargs.items()) document[name] = value;
  *input = JsonText(document);
  return Outcome();
}

}  // namespace

Outcome RunTemplate(Args& args, const CommonOptions& common) {
  std::string path, input;
  std::optional<std::string> file;
  args.Positional("MODEL", "a model, or - for the file's own \"template\"",
                  &path);
  args.Text("input", "FILE", "JSON: messages, tools, ...; - is stdin", &file);
  args.Note("Prints {\"text\":..}. The file holds \"messages\" and, where");
  args.Note("wanted, \"tools\", \"add_generation_prompt\", \"kwargs\" and any");
  args.Note("further variable; \"template\", \"bos_token\", \"eos_token\" and");
  args.Note(
      "\"now\" replace the model's. \"continue_final_message\": true ends");
  args.Note("the text where the last message's content does.");
  CLI_RETURN_IF_FAILED(args.Parse());
  if (!file.has_value()) return Outcome::Usage("--input is missing");
  CLI_RETURN_IF_FAILED(ReadFile(*file, &input));
  CLI_RETURN_IF_FAILED(MergeKwargs(&input).In(*file == "-" ? "stdin" : *file));

  Host host;
  if (path != "-") CLI_RETURN_IF_FAILED(OpenVocabulary(common, path, &host));
  inlay_buffer* text = nullptr;
  CLI_RETURN_IF_FAILED(Call([&](inlay_error** error) {
    return inlay_chat_render(host.model ? host.model->get() : nullptr,
                             input.data(), input.size(), &text, error);
  }));
  return WriteJsonLine({{"text", TakeBuffer(text)}});
}

}  // namespace inlay::cli
