// Any config.json as a model of drawn weights. The input is JSON: {"model": a
// folder of tests/data/models, "changes": what is merged into its config.json
// (RFC 7386), "class": of a multimodal checkpoint whose text_config that is,
// "dtype", "kv_dtype", "kv_block_size", "gguf": whether it is written as a GGUF
// file, which is opened, too}: no crash, every refusal says why, and what loads
// computes steps within the memory that it asked for.
// Changes are mutated as JSON, with the keys and values of all models.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/gguf_model.h"
#include "core/formats/text_model.h"
#include "core/json/python_json.h"
#include "core/model/load_model.h"
#include "core/quantize/quantize.h"
#include "tests/support/model_harness.h"
#include "tests/support/paths/paths.h"

namespace {

using inlay::Json;

// Larger models take longer and show nothing that small ones do not.
constexpr uint64_t kMaxWeightBytes = 1 << 20;
constexpr uint64_t kMaxScratchBytes = 4 << 20;
constexpr int64_t kMaxSide = 4096;

void Require(bool holds) {
  if (!holds) abort();
}

// Every refusal is of one of these kinds, and says something.
void RequireTold(const absl::Status& status) {
  if (status.ok()) return;
  Require(!status.message().empty());
  Require(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
          absl::IsNotFound(status) || absl::IsResourceExhausted(status));
}

const std::vector<std::string>& Classes() {
  static const auto* const classes = new std::vector<std::string>{
#define INLAY_MULTIMODAL(architecture, model_type, text_type, ties) \
  architecture,
#define INLAY_NOT_TEXT_ALONE(architecture, model_type, reason) architecture,
#include "core/formats/multimodal.def"
#undef INLAY_MULTIMODAL
#undef INLAY_NOT_TEXT_ALONE
  };
  return *classes;
}

// The configurations of the golden models, and what their keys are given.
struct Golden {
  std::vector<std::string> names;
  std::map<std::string, Json> configs;
  // By key, and by key of an object in that key's value ("rope_scaling/type").
  std::map<std::string, std::vector<Json>> values;
  std::vector<std::string> keys;

  Golden() {
    for (const auto& entry :
         std::filesystem::directory_iterator(inlay::TestData() + "/models")) {
      auto config =
          inlay::ReadOptionalPythonJson(entry.path().string() + "/config.json");
      if (!config.ok() || !config->is_object()) continue;
      names.push_back(entry.path().filename().string());
      for (const auto& [key, value] : config->items()) {
        values[key].push_back(value);
        if (!value.is_object()) continue;
        for (const auto& [inner, of] : value.items()) {
          values[key + "/" + inner].push_back(of);
        }
      }
      configs.emplace(names.back(), *std::move(config));
    }
    std::sort(names.begin(), names.end());
    for (const auto& [key, all] : values) keys.push_back(key);
  }
};

const Golden& Models() {
  static const auto* const golden = new Golden();
  return *golden;
}

// What opening a multimodal checkpoint makes of its text_config.
void TakeOutOfClass(const Json& input, Json* config) {
  const Json* name = inlay::JsonFind(input, "class");
  if (name == nullptr) return;
  Json outer = {{"architectures", Json::array({*name})}};
  outer["text_config"] = std::move(*config);
  auto text = inlay::FindTextModel(outer);
  RequireTold(text.status());
  RequireTold(inlay::WhyNoTextModel(outer));
  *config = text.ok() && text->has_value() ? std::move((*text)->config)
                                           : Json::object();
}

inlay::ModelFiles Files(const Json& input) {
  inlay::ModelFiles files;
  const auto name = inlay::JsonString(input, "model", "llama3");
  const auto found = Models().configs.find(name.value_or(""));
  if (found != Models().configs.end()) files.config = found->second;
  const Json* changes = inlay::JsonFind(input, "changes");
  if (changes != nullptr) files.config.merge_patch(*changes);
  TakeOutOfClass(input, &files.config);
  const auto dtype = inlay::JsonString(input, "dtype", "f32");
  files.random = inlay::RandomWeights();
  files.random->dtype =
      inlay::DTypeFromName(dtype.value_or("")).value_or(inlay::DType::kF32);
  return files;
}

inlay::ModelLoadOptions Options(const Json& input) {
  inlay::ModelLoadOptions options;
  const auto kv = inlay::JsonString(input, "kv_dtype", "");
  options.kv_dtype = inlay::DTypeFromName(kv.value_or(""));
  const auto block = inlay::JsonInt(input, "kv_block_size", 16, -1, 2048);
  options.kv_block_size = static_cast<int>(block.value_or(16));
  return options;
}

// Of what a few tokens take.
bool IsSmall(const inlay::Model& plan) {
  const inlay::ModelInfo& info = plan.info();
  return info.weight_bytes <= kMaxWeightBytes && info.vocab_size <= kMaxSide &&
         info.hidden_size <= kMaxSide && info.num_layers <= 64 &&
         plan.kv_layout().block_bytes() <= kMaxScratchBytes / 16 &&
         plan.WorkspaceBytes(8, 8, 2) <= kMaxScratchBytes;
}

// A prompt in two parts beside another, then a token of each.
void Compute(const inlay::Model& model, inlay::Device& device) {
  const int64_t longest = std::min<int64_t>(model.info().max_positions, 7);
  const auto last = static_cast<int32_t>(model.info().vocab_size - 1);
  const std::vector<int32_t> prompt = {0, last, last / 2, 0, 0, last};
  inlay::ModelHarness harness(model, device, 64);
  const int first = harness.AddSequence(longest);
  const int second = harness.AddSequence(longest);
  const auto feed = [&](int64_t a, int64_t b) {
    const auto part = [&](int sequence, int64_t count) {
      count = std::min(count, longest - harness.Length(sequence));
      return inlay::ModelHarness::Chunk{
          sequence,
          absl::MakeConstSpan(prompt).subspan(0, static_cast<size_t>(count))};
    };
    std::vector<inlay::ModelHarness::Chunk> chunks;
    for (const auto& chunk : {part(first, a), part(second, b)}) {
      if (!chunk.tokens.empty()) chunks.push_back(chunk);
    }
    if (chunks.empty()) return;
    const auto logits = harness.Forward(chunks);
    Require(logits.ok() || model.info().is_encoder);
  };
  feed(4, 3);
  if (model.info().is_encoder) return;
  feed(2, 1);
  feed(1, 1);
}

void CheckRun(const inlay::ModelFiles& files, const Json& input,
              inlay::Device& device) {
  const inlay::ModelLoadOptions options = Options(input);
  const auto plan = inlay::PlanModel(files, device, options);
  RequireTold(plan.status());
  if (!plan.ok() || !IsSmall(**plan)) return;
  const auto model = inlay::LoadModel(files, device, options);
  RequireTold(model.status());
  if (!model.ok()) return;
  Require((*model)->info().weight_bytes == (*plan)->info().weight_bytes);
  Compute(**model, device);
}

void CheckGguf(const inlay::ModelFiles& files, inlay::Device& device) {
  const auto plan = inlay::PlanModel(files, device, {});
  if (!plan.ok() || !IsSmall(**plan)) return;
  inlay::QuantizeOptions options;
  options.type = "f32";
  options.tokenizer = false;
  options.num_threads = 1;
  static const std::string path = std::filesystem::temp_directory_path() /
                                  ("fuzz_model_" + std::to_string(getpid()));
  const auto report = inlay::QuantizeModel(files, options, path);
  RequireTold(report.status());
  if (!report.ok()) return;
  // Whoever writes a file can read it.
  auto written = inlay::OpenGgufModel(path, {});
  unlink(path.c_str());
  RequireTold(written.status());
  if (!written.ok()) return;
  const auto model = inlay::LoadModel(*written, device, {});
  RequireTold(model.status());
  if (model.ok() && IsSmall(**model)) Compute(**model, device);
}

// ---- Mutation ---------------------------------------------------------------

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void Mutate(Json& input) {
    switch (Below(11)) {
      case 10:
        input["class"] = Below(4) == 0 ? Scalar() : Json(Of(Classes()));
        break;
      case 0:
        input["model"] = Of(Models().names);
        break;
      case 1:
        input["dtype"] =
            Of<std::string>({"f32", "f16", "bf16", "q8_0", "q4_k", "u4_g128"});
        break;
      case 2:
        input["kv_dtype"] = Of<std::string>({"f32", "bf16", "i8", "kv_q4"});
        input["kv_block_size"] = Of<int>({1, 3, 8, 16, 48});
        break;
      case 3:
        input["gguf"] = Below(2) == 0;
        break;
      case 4:
        Drop(input["changes"]);
        break;
      default:
        Change(input);
    }
  }

 private:
  size_t Below(size_t end) { return random_() % end; }
  template <typename T>
  const T& Of(const std::vector<T>& all) {
    return all[Below(all.size())];
  }
  template <typename T>
  T Of(std::initializer_list<T> all) {
    return all.begin()[Below(all.size())];
  }

  void Drop(Json& changes) {
    if (!changes.is_object() || changes.empty()) return;
    auto at = changes.begin();
    std::advance(at, static_cast<ptrdiff_t>(Below(changes.size())));
    changes.erase(at);
  }

  Json Scalar() {
    switch (Below(8)) {
      case 0:
        return nullptr;
      case 1:
        return Below(2) == 0;
      case 2:
        return Of<double>({0.0, 0.25, 0.5, 1.5, -1.0, 1e-30, 1e30, 1e300});
      case 3:
        return Of<int64_t>({-1, int64_t{1} << 20, int64_t{1} << 31,
                            int64_t{1} << 33, INT64_MAX, INT64_MIN});
      case 4:
        return Of<std::string>({"", "x"});
      case 5:
        return Of<int64_t>({7, 12, 24, 33, 48, 100, 256, 1024});
      default:
        return int64_t{1} << Below(8) >> 1;
    }
  }

  // An element more, less or another.
  void Bend(Json& list) {
    const size_t at = Below(list.size() + 1);
    if (at == list.size()) {
      list.push_back(list.empty() ? Scalar() : list[Below(at)]);
    } else if (Below(3) == 0) {
      list.erase(at);
    } else {
      list[at] = Below(2) == 0 ? list[Below(list.size())] : Scalar();
    }
  }

  void Change(Json& input) {
    Json& changes = input["changes"];
    if (!changes.is_object()) changes = Json::object();
    const auto name = inlay::JsonString(input, "model", "llama3");
    const auto found = Models().configs.find(name.value_or(""));
    const bool own = found != Models().configs.end() && Below(3) != 0;
    std::string key = Of(Models().keys);
    if (own) {
      auto at = found->second.begin();
      std::advance(at, static_cast<ptrdiff_t>(Below(found->second.size())));
      key = at.key();
    }
    Json value = Scalar();
    if (Below(3) == 0) value = Of(Models().values.at(key));
    if (own && Below(3) != 0) {
      const Json& now = found->second.at(key);
      if (now.is_array()) Bend(value = now);
      if (now.is_number_integer()) {
        value = now.get<int64_t>() + Of<int64_t>({-2, -1, 1, 2, 16});
      }
    }
    const size_t slash = key.find('/');
    if (slash == key.npos) {
      changes[key] = std::move(value);
      return;
    }
    Json& outer = changes[key.substr(0, slash)];
    if (!outer.is_object()) outer = Json::object();
    outer[key.substr(slash + 1)] = std::move(value);
  }

  std::mt19937 random_;
};

}  // namespace

// Not the first input's time.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  Models();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned seed) {
  auto input = inlay::ParseJson({reinterpret_cast<const char*>(data), size},
                                "the input");
  Json json = input.ok() && input->is_object() ? *std::move(input)
                                               : Json({{"model", "llama3"}});
  Mutator(seed).Mutate(json);
  const std::string text = inlay::DumpJson(json);
  if (text.size() > max_size) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = inlay::ParseJson(
      {reinterpret_cast<const char*>(data), size}, "the input");
  if (!input.ok() || !input->is_object()) return 0;
  const auto device = inlay::CreateCpuDevice(1, 0);
  Require(device.ok());
  const inlay::ModelFiles files = Files(*input);
  if (inlay::JsonBool(*input, "gguf", false).value_or(false)) {
    CheckGguf(files, **device);
  } else {
    CheckRun(files, *input, **device);
  }
  return 0;
}
