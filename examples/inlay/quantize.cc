// inlay quantize: a model as a GGUF file in another type of weights.
#include <cstdio>
#include <string>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"

namespace inlay::cli {
namespace {

int32_t ShowWriting(void* progress, int32_t, float fraction) {
  static_cast<Progress*>(progress)->Update(
      "quantize: " + std::to_string(static_cast<int>(fraction * 100)) + " %");
  return 0;
}

std::string Megabytes(const Json& bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", bytes.get<double>() / 1e6);
  return text;
}

std::string Shape(const Json& sizes) {
  std::string text;
  for (const Json& size : sizes)
    text += (text.empty() ? "" : "x") + size.dump();
  return text;
}

std::string Readable(const Json& report) {
  std::string text;
  for (const Json& tensor : report["tensors"]) {
    const auto name = tensor["name"].get<std::string>();
    const auto from = tensor["from"].get<std::string>();
    auto to = tensor["to"].get<std::string>();
    if (tensor.contains("wanted")) {
      to += " for " + tensor["wanted"].get<std::string>();
    }
    char line[512];
    std::snprintf(line, sizeof(line), "%-56s %-14s %s -> %s, error %.2e\n",
                  name.c_str(), Shape(tensor["shape"]).c_str(), from.c_str(),
                  to.c_str(), tensor["error"].get<double>());
    text += line;
  }
  return text + "weights " + Megabytes(report["bytes_before"]) + " -> " +
         Megabytes(report["bytes_after"]) + ", file " +
         Megabytes(report["file_bytes"]) +
         (report["has_tokenizer"].get<bool>() ? "" : ", no tokenizer") + "\n";
}

}  // namespace

Outcome RunQuantize(Args& args, const CommonOptions& common) {
  std::string model, out;
  std::optional<std::string> type;
  std::vector<std::string> tensors;
  bool no_tokenizer = false;
  args.Positional("MODEL", "what to quantize", &model);
  args.Positional("OUT", "the .gguf file to write", &out);
  args.Text("type", "T",
            "q8_0, q4_0, q4_k_m, ...; a wrong one is answered by the list",
            &type);
  args.Texts("tensor", "PATTERN=T",
             "the type of tensors of that name (* and ?); may be repeated",
             &tensors);
  args.Flag("no-tokenizer", "leave tokenizer and chat template out",
            &no_tokenizer);
  args.Note("Rounds to nearest; of common options, --threads counts.");
  CLI_RETURN_IF_FAILED(args.Parse());
  if (!type.has_value()) return Outcome::Usage("--type is missing");

  std::vector<const char*> pointers;
  for (const std::string& tensor : tensors) pointers.push_back(tensor.c_str());
  Progress progress(!common.quiet);
  inlay_quantize_options options;
  inlay_quantize_options_init(&options);
  options.num_threads = common.num_threads;
  options.type = type->c_str();
  options.tensor_types = pointers.data();
  options.num_tensor_types = pointers.size();
  options.no_tokenizer = no_tokenizer ? 1 : 0;
  options.progress = ShowWriting;
  options.progress_user = &progress;
  Result<std::string> text = Quantize(model, out, &options);
  progress.Clear();
  if (!text.ok()) return text.error();
  Json report;
  CLI_RETURN_IF_FAILED(ParseJson(*text, &report));
  return common.json ? WriteJsonLine(report) : WriteOut(Readable(report));
}

}  // namespace inlay::cli
