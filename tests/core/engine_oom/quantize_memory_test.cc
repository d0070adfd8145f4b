// What quantising takes of memory, and that it keeps to a limit.
#include <gtest/gtest.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>

#include "core/quantize/quantize.h"
#include "tests/core/engine_oom/failing_new.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 1024,
  "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 16,
  "head_dim": 64, "vocab_size": 128, "max_position_embeddings": 256,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "torch_dtype": "float32"})";

constexpr const char* kMixture = R"({"architectures": ["MixtralForCausalLM"],
  "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 1024,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "vocab_size": 128, "max_position_embeddings": 1024,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": null,
  "torch_dtype": "float32"})";

struct Case {
  const char* name;
  const char* config;  // of a model to draw; null: a folder of plain weights
  QuantizeMethod method;
  bool act_order = false;
  const char* type = "q8_0";
  int sequence = 64;  // tokens

  friend void PrintTo(const Case& test, std::ostream* out) {
    *out << test.name;
  }
};

class QuantizeMemory : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("quantize_memory_") + GetParam().name);
    std::filesystem::create_directories(folder_);
    source_ = Path("in.gguf");
    if (GetParam().config == nullptr) {
      source_ = SourceDir() + "/tests/data/models/llama_bf16";
      return;
    }
    std::ofstream(folder_ / "config.json") << GetParam().config;
    QuantizeOptions plain;
    plain.type = "f32";
    plain.num_threads = 2;
    const auto report =
        QuantizePath("random:" + folder_.string(), plain, source_);
    ASSERT_TRUE(report.ok()) << report.status();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }

  QuantizeOptions Options(uint64_t limit) const {
    QuantizeOptions options;
    options.type = GetParam().type;
    options.num_threads = 2;
    options.method = GetParam().method;
    options.act_order = GetParam().act_order;
    options.memory_limit = limit;
    for (int s = 0; s < 3; ++s) {
      std::vector<int32_t>& tokens =
          options.calibration_sequences.emplace_back();
      for (int i = 0; i < GetParam().sequence; ++i)
        tokens.push_back((i * i + 31 * s) % 128);
    }
    return options;
  }

  absl::Status Run(uint64_t limit, const char* out, int64_t* peak) const {
    FailingNew::StartPeak();
    const auto report = QuantizePath(source_, Options(limit), Path(out));
    *peak = FailingNew::peak_bytes();
    return report.status();
  }

  // The weights of a file or folder.
  static std::string Read(const std::string& path) {
    const bool is_folder = std::filesystem::is_directory(path);
    std::ifstream file(path + (is_folder ? "/model.safetensors" : ""),
                       std::ios::binary);
    EXPECT_TRUE(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // What the error says is needed at least.
  static std::optional<uint64_t> Needed(const absl::Status& status) {
    constexpr std::string_view kSays = "takes at least ";
    const std::string text(status.message());
    const size_t at = text.find(kSays);
    if (at == std::string::npos) return std::nullopt;
    uint64_t bytes = 0;
    std::from_chars(text.data() + at + kSays.size(), text.data() + text.size(),
                    bytes);
    return bytes;
  }

  std::filesystem::path folder_;
  std::string source_;
};

TEST_P(QuantizeMemory, KeepsToItsLimit) {
  int64_t unlimited = 0, peak = 0;
  ASSERT_TRUE(Run(0, "free.gguf", &unlimited).ok());
  // With less than the model and its tokens take, the device says so.
  uint64_t limit = 1;
  bool is_exact = false;
  for (int i = 0; i < 64; ++i) {
    const absl::Status status = Run(limit, "less.gguf", &peak);
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << limit << " " << status;
    EXPECT_FALSE(std::filesystem::exists(Path("less.gguf")));
    const std::optional<uint64_t> needed = Needed(status);
    ASSERT_TRUE(!needed.has_value() || *needed > limit) << status;
    const uint64_t more = needed.value_or(limit + (limit >> 4) + 1);
    is_exact = needed.has_value();
    limit = more;
    if (Run(limit, "limited.gguf", &peak).ok()) break;
  }
  ASSERT_TRUE(std::filesystem::exists(Path("limited.gguf")));
  const int64_t limited = peak;
  EXPECT_LE(limited, static_cast<int64_t>(limit)) << "unlimited " << unlimited;
  if (GetParam().method != QuantizeMethod::kNearest) {
    EXPECT_GT(limited, static_cast<int64_t>(limit / 3));
  }
  EXPECT_EQ(Read(Path("free.gguf")), Read(Path("limited.gguf")));
  if (is_exact) {
    const absl::Status below = Run(limit - 1, "less.gguf", &peak);
    EXPECT_TRUE(absl::IsResourceExhausted(below)) << below;
  }
  RecordProperty("unlimited", unlimited);
  RecordProperty("limit", static_cast<int64_t>(limit));
  RecordProperty("peak", limited);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, QuantizeMemory,
    ::testing::Values(
        Case{"nearest", kLlama, QuantizeMethod::kNearest},
        Case{"imatrix", kLlama, QuantizeMethod::kImportance},
        Case{"gptq", kLlama, QuantizeMethod::kGptq},
        Case{"gptq_in_order", kLlama, QuantizeMethod::kGptq, true},
        Case{"awq", kLlama, QuantizeMethod::kAwq},
        Case{"smoothquant", kLlama, QuantizeMethod::kSmoothQuant},
        Case{"gptq_experts", kMixture, QuantizeMethod::kGptq, false, "q4_0",
             600},
        Case{"awq_experts", kMixture, QuantizeMethod::kAwq},
        Case{"imatrix_experts", kMixture, QuantizeMethod::kImportance, false,
             "q4_0", 600},
        Case{"gptq_folder", nullptr, QuantizeMethod::kGptq, false, "u4_g128"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace inlay
