// inlay replay: runs a recording again and says whether it came out the same.
#include <string>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

std::string ReadableReplay(const Json& report) {
  const auto number = [&](const char* name) {
    return std::to_string(report[name].get<uint64_t>());
  };
  std::string text = number("requests") + " requests, " + number("steps") +
                     " steps, " + number("tokens") + " tokens: ";
  if (report["same"].get<bool>()) {
    const bool whole = report["damage"].get<std::string>().empty();
    return text + "the same as recorded" + (whole ? "\n" : ", up to there\n");
  }
  text += number("tokens_differing") + " tokens differ\n";
  const Json& first = report["first_difference"];
  text += "first in step " + first["step"].dump();
  if (first["request"] != 0) text += ", request " + first["request"].dump();
  text += ": " + first["what"].get<std::string>() + "\n";
  if (report["stopped"].get<bool>())
    text += "nothing after it can be compared\n";
  return text;
}

}  // namespace

Outcome RunReplay(Args& args, const CommonOptions& common) {
  std::string path, recording;
  args.Positional("MODEL", "the model that was recorded", &path);
  args.Positional("FILE", "what --record wrote", &recording);
  args.Note("Exit status 1 where a plan or a token differs.");
  CLI_RETURN_IF_FAILED(args.Parse());

  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, path, &host));
  Result<std::string> text = host.model->Replay(recording);
  if (!text.ok()) return text.error();
  Json report;
  CLI_RETURN_IF_FAILED(ParseJson(*text, &report));
  const std::string damage = report["damage"].get<std::string>();
  if (!damage.empty() && !common.quiet) Complain("replay: " + damage);
  CLI_RETURN_IF_FAILED(common.json ? WriteJsonLine(report)
                                   : WriteOut(ReadableReplay(report)));
  return report["same"].get<bool>()
             ? Outcome()
             : Outcome::Failed("the replay differs from what was recorded");
}

}  // namespace inlay::cli
