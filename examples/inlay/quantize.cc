// inlay quantize: a model as a GGUF file, or a folder of GPTQ's layout, in
// another type of weights.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/inlay/commands.h"
#include "examples/inlay/input.h"
#include "examples/inlay/perplexity.h"

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

std::string ReadableQuantized(const Json& report) {
  std::string text;
  for (const Json& tensor : report["tensors"]) {
    const auto name = tensor["name"].get<std::string>();
    const auto from = tensor["from"].get<std::string>();
    auto to = tensor["to"].get<std::string>();
    if (tensor.contains("wanted")) {
      to += " for " + tensor["wanted"].get<std::string>();
    }
    char line[512];
    std::snprintf(
        line, sizeof(line), "%-56s %-14s %s -> %s, %.2f s, error %.2e",
        name.c_str(), Shape(tensor["shape"]).c_str(), from.c_str(), to.c_str(),
        tensor["seconds"].get<double>(), tensor["error"].get<double>());
    text += line;
    if (tensor.contains("output_error")) {
      std::snprintf(line, sizeof(line), ", of outputs %.2e (to nearest %.2e)",
                    tensor["output_error"].get<double>(),
                    tensor["nearest_error"].get<double>());
      text += line;
    }
    if (tensor.contains("expert_tokens")) {
      const auto tokens = tensor["expert_tokens"].get<std::vector<int64_t>>();
      const auto [least, most] =
          std::minmax_element(tokens.begin(), tokens.end());
      text += ", experts by " + std::to_string(*least) + " to " +
              std::to_string(*most) + " tokens";
    }
    text += "\n";
  }
  if (report.contains("perplexity")) {
    char line[128];
    std::snprintf(line, sizeof(line), "perplexity %.5f -> %.5f\n",
                  report["perplexity"]["before"].get<double>(),
                  report["perplexity"]["after"].get<double>());
    text += line;
  }
  return text + "weights " + Megabytes(report["bytes_before"]) + " -> " +
         Megabytes(report["bytes_after"]) + ", file " +
         Megabytes(report["file_bytes"]) +
         (report["has_tokenizer"].get<bool>() ? "" : ", no tokenizer") + "\n";
}

Outcome MeasureOne(const std::string& model, const CommonOptions& common,
                   const std::string& file, Progress& progress, Json* value) {
  Host host;
  CLI_RETURN_IF_FAILED(OpenModel(common, model, &host));
  Perplexity perplexity;
  CLI_RETURN_IF_FAILED(
      MeasurePerplexity(host, common, file, progress, &perplexity));
  *value = perplexity.value;
  return Outcome();
}

constexpr const char* kMethods[] = {"rtn", "imatrix", "gptq", "awq",
                                    "smoothquant"};

struct QuantizeArgs {
  std::string model, out;
  std::optional<std::string> type, method, calibration, imatrix, eval;
  std::vector<std::string> tensors;
  bool no_tokenizer = false;
  bool act_order = false;
  std::optional<float> smoothing;
  uint32_t sequence_tokens = 512;
  uint32_t calibration_tokens = 65536;
  uint64_t expert_bytes = uint64_t{4} << 30;
  uint64_t memory_limit = 0;
};

Outcome ParseQuantize(Args& args, QuantizeArgs* given) {
  args.Positional("MODEL", "what to quantize", &given->model);
  args.Positional("OUT", "the .gguf file, or the folder, to write",
                  &given->out);
  args.Text("type", "T",
            "q8_0, q4_0, q4_k_m, ...; a wrong one is answered by the list",
            &given->type);
  args.Texts("tensor", "PATTERN=T",
             "the type of tensors of that name (* and ?); may be repeated",
             &given->tensors);
  args.Text("method", "rtn|imatrix|gptq|awq|smoothquant",
            "how to round (default rtn, to nearest; gptq with --calibration, "
            "imatrix with --imatrix)",
            &given->method);
  args.Text("calibration", "FILE",
            "text like what the model is for, or a .jsonl of {\"text\"}",
            &given->calibration);
  args.Text("imatrix", "FILE",
            "what llama.cpp's imatrix measured, in its place (GGUF files)",
            &given->imatrix);
  args.Integer("sequence-tokens", "tokens in a row of it (default 512)",
               &given->sequence_tokens, 2);
  args.Integer("calibration-tokens", "tokens of it in all (default 65536)",
               &given->calibration_tokens, 2);
  args.Real("smoothing",
            "smoothquant: 0 leaves the inputs' spread to them, 1 to the "
            "weights (default 0.5)",
            &given->smoothing, 0.0, 1.0);
  args.Flag("act-order", "gptq: inputs of largest squares first",
            &given->act_order);
  args.Bytes("expert-sums",
             "of mixtures of experts: what calibration keeps of a layer's at a "
             "time (default 4 GiB)",
             &given->expert_bytes);
  args.Bytes("memory-limit",
             "what all of it may take beside mapped files (default: what it "
             "needs)",
             &given->memory_limit);
  args.Text("eval", "FILE", "text to measure perplexity of, before and after",
            &given->eval);
  args.Flag("no-tokenizer", "leave tokenizer and chat template out",
            &given->no_tokenizer);
  args.OnlyWith({"sequence-tokens", "calibration-tokens", "expert-sums"},
                {"calibration"});
  args.Note(
      "Types u4_*, i8_* (GPTQ's layout), awq_*, w4a16_*, w8a8_* (that of");
  args.Note("compressed-tensors), nf4 and fp4 (that of bitsandbytes) give a");
  args.Note(
      "folder; w8a8_fp8_static takes the scales of inputs from --calibration.");
  args.Note("Of common options, --threads counts, and all for --eval.");
  CLI_RETURN_IF_FAILED(args.Parse());
  if (!given->type.has_value()) return Outcome::Usage("--type is missing");
  // Its inputs' scales want calibration, whatever the method.
  const bool calibrates = given->type->ends_with("_static");
  if (!given->method.has_value()) {
    given->method = given->imatrix.has_value()                      ? "imatrix"
                    : given->calibration.has_value() && !calibrates ? "gptq"
                                                                    : "rtn";
  }
  if (std::find(std::begin(kMethods), std::end(kMethods), *given->method) ==
      std::end(kMethods)) {
    return Outcome::Usage("--method is " + *given->method +
                          ", allowed: rtn, imatrix, gptq, awq, smoothquant");
  }
  if (given->act_order && *given->method != "gptq") {
    return Outcome::Usage("--act-order does nothing with --method " +
                          *given->method + ", allowed: gptq");
  }
  if (given->smoothing.has_value() && *given->method != "smoothquant") {
    return Outcome::Usage("--smoothing does nothing with --method " +
                          *given->method + ", allowed: smoothquant");
  }
  if (given->imatrix.has_value()) {
    if (*given->method != "imatrix" || given->calibration.has_value()) {
      return Outcome::Usage(
          "--imatrix goes with --method imatrix and no --calibration");
    }
    return Outcome();
  }
  const bool needs = calibrates || *given->method != "rtn";
  if (needs != given->calibration.has_value()) {
    return Outcome::Usage(
        "--type " + *given->type + " --method " + *given->method +
        (needs ? " needs --calibration FILE" : " takes no --calibration"));
  }
  return Outcome();
}

std::vector<const char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

}  // namespace

Outcome RunQuantize(Args& args, const CommonOptions& common) {
  QuantizeArgs given;
  CLI_RETURN_IF_FAILED(ParseQuantize(args, &given));
  std::vector<std::string> texts;
  if (given.calibration.has_value()) {
    CLI_RETURN_IF_FAILED(
        ReadTexts(*given.calibration, &texts).In(*given.calibration));
  }
  const std::vector<const char*> tensors = Pointers(given.tensors);
  const std::vector<const char*> calibration = Pointers(texts);
  Progress progress(!common.quiet);
  inlay_quantize_options options;
  inlay_quantize_options_init(&options);
  options.num_threads = common.num_threads;
  options.type = given.type->c_str();
  options.tensor_types = tensors.data();
  options.num_tensor_types = tensors.size();
  options.no_tokenizer = given.no_tokenizer ? 1 : 0;
  options.progress = ShowWriting;
  options.progress_user = &progress;
  options.method = static_cast<uint32_t>(
      std::find(std::begin(kMethods), std::end(kMethods), *given.method) -
      std::begin(kMethods));
  options.act_order = given.act_order ? 1 : 0;
  options.smoothing = given.smoothing.value_or(options.smoothing);
  options.memory_limit = given.memory_limit;
  options.calibration = calibration.data();
  options.num_calibration = calibration.size();
  options.sequence_tokens = given.sequence_tokens;
  options.calibration_tokens = given.calibration_tokens;
  options.expert_bytes = given.expert_bytes;
  if (given.imatrix.has_value()) options.imatrix_path = given.imatrix->c_str();
  Result<std::string> text = Quantize(given.model, given.out, &options);
  progress.Clear();
  if (!text.ok()) return text.error();
  Json report;
  CLI_RETURN_IF_FAILED(ParseJson(*text, &report));
  if (given.eval.has_value()) {
    Json& perplexity = report["perplexity"];
    CLI_RETURN_IF_FAILED(MeasureOne(given.model, common, *given.eval, progress,
                                    &perplexity["before"]));
    CLI_RETURN_IF_FAILED(MeasureOne(given.out, common, *given.eval, progress,
                                    &perplexity["after"]));
    progress.Clear();
  }
  return common.json ? WriteJsonLine(report)
                     : WriteOut(ReadableQuantized(report));
}

}  // namespace inlay::cli
