#include "examples/inlay/commands.h"

namespace inlay::cli {

Outcome RunQuantize(Args& args, const CommonOptions&) {
  std::string model, out;
  std::optional<std::string> type, calibration;
  args.Positional("MODEL", "what to quantize", &model);
  args.Positional("OUT", "where to write it", &out);
  args.Text("type", "T", "storage format to write", &type);
  args.Text("calibration", "FILE", "text to calibrate on", &calibration);
  CLI_RETURN_IF_FAILED(args.Parse());
  return Outcome::Failed(
      std::string("writing quantized models is not in this version (") +
      inlay_version() + "): use the model in the format that it has");
}

}  // namespace inlay::cli
