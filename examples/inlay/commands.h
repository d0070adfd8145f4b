// The forms of the command, one function each; main.cc has their table. Each
// declares its options on `args`, which already has the common ones, parses,
// and does its work.
#ifndef INLAY_EXAMPLES_INLAY_COMMANDS_H_
#define INLAY_EXAMPLES_INLAY_COMMANDS_H_

#include "examples/inlay/args.h"
#include "examples/inlay/common.h"
#include "examples/inlay/outcome.h"

namespace inlay::cli {

Outcome RunGenerate(Args& args, const CommonOptions& common);
Outcome RunChat(Args& args, const CommonOptions& common);
Outcome RunLogits(Args& args, const CommonOptions& common);
Outcome RunEmbed(Args& args, const CommonOptions& common);
Outcome RunClassify(Args& args, const CommonOptions& common);
Outcome RunRerank(Args& args, const CommonOptions& common);
Outcome RunTokenize(Args& args, const CommonOptions& common);
Outcome RunTemplate(Args& args, const CommonOptions& common);
Outcome RunInspect(Args& args, const CommonOptions& common);
Outcome RunEval(Args& args, const CommonOptions& common);
Outcome RunQuantize(Args& args, const CommonOptions& common);
Outcome RunBench(Args& args, const CommonOptions& common);
Outcome RunReplay(Args& args, const CommonOptions& common);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_COMMANDS_H_
