// inlay tokenize: JSON strings to ids and back, line by line.
#include <string>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

Outcome Encode(Model& model, const Json& value, bool special) {
  if (!value.is_string()) {
    return Outcome::Failed("got " + std::string(value.type_name()) +
                           ", allowed: a JSON string (--decode takes ids)");
  }
  const uint32_t flags = INLAY_TEXT_PARSE_SPECIAL |
                         (special ? uint32_t{INLAY_TEXT_ADD_SPECIAL} : 0);
  auto ids = model.Tokenize(value.get_ref<const std::string&>(), flags);
  if (!ids.ok()) return ids.error();
  return WriteJsonLine(*ids);
}

Outcome Decode(Model& model, const Json& value, bool special) {
  if (!value.is_array()) {
    return Outcome::Failed("got " + std::string(value.type_name()) +
                           ", allowed: a JSON array of token ids");
  }
  std::vector<int32_t> ids;
  for (const Json& id : value) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return Outcome::Failed("got " + JsonText(id) +
                             ", allowed: token ids, integers from 0");
    }
    ids.push_back(id.get<int32_t>());
  }
  auto text =
      model.Detokenize(ids, special ? 0 : uint32_t{INLAY_TEXT_SKIP_SPECIAL});
  if (!text.ok()) return text.error();
  return WriteJsonLine(*text);
}

}  // namespace

Outcome RunTokenize(Args& args, const CommonOptions& common) {
  std::string path;
  bool no_special = false;
  bool decode = false;
  args.Positional("MODEL", "a model, or a directory with a tokenizer", &path);
  args.Flag("no-special",
            "do not add BOS and the like; with --decode: leave them out",
            &no_special);
  args.Flag("decode", "ids to text", &decode);
  args.Note("stdin: a JSON string a line; stdout: a JSON array of ids a line.");
  args.Note("Text that spells a special token becomes that token.");
  CLI_RETURN_IF_FAILED(args.Parse());

  Host host;
  CLI_RETURN_IF_FAILED(OpenVocabulary(common, path, &host));
  const auto convert = decode ? Decode : Encode;
  return ForEachLine("-", [&](const std::string& line) {
    Json value;
    const Outcome parsed = ParseJson(line, &value);
    if (!parsed.ok()) {
      return Outcome::Failed(parsed.message() + "; allowed: " +
                             (decode ? "ids in brackets, such as [1,2,3]"
                                     : "text in quotes, such as \"hello\""));
    }
    return convert(*host.model, value, !no_special);
  });
}

}  // namespace inlay::cli
