// Files that QuantizeModel writes, opened again and run: against the model they
// were made of.
#include "core/quantize/quantize.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "core/formats/gguf_metadata.h"
#include "core/formats/gguf_types.h"
#include "core/model/load_model.h"
#include "core/quantize/tensor_types.h"
#include "kernels/quant/quant.h"
#include "memory/mapped_file.h"
#include "memory/status.h"
#include "tests/core/formats/gguf_bytes.h"
#include "tests/support/engine_harness.h"
#include "tests/support/model_harness.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::inlay::testing::EngineHarness;

class QuantizeTest : public ::testing::Test {
 protected:
  QuantizeTest()
      : folder_(::testing::TempDir() + "quantize_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    device_ = *CreateCpuDevice(2, 0);
  }
  ~QuantizeTest() override { std::filesystem::remove_all(folder_); }

  std::string Out() const { return folder_ + "/out.gguf"; }
  size_t FilesLeft() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static std::string Golden(const std::string& model) {
    return TestData() + "/models/" + model;
  }
  // One layer whose rows all K-quants fit.
  std::string Drawn(const std::string& options) {
    std::filesystem::create_directories(folder_ + "/shape");
    std::ofstream(folder_ + "/shape/config.json") << R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 128, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 128,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";
    return "random:" + folder_ + "/shape" + options;
  }

  QuantizeReport Quantize(const std::string& model, const std::string& type,
                          const std::vector<std::string>& tensors = {}) {
    QuantizeOptions options;
    options.type = type;
    options.tensor_types = tensors;
    options.num_threads = 2;
    auto report = QuantizePath(model, options, Out());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : QuantizeReport();
  }

  // Logits of a prompt, one token after another.
  std::vector<float> Logits(const std::string& path) {
    std::vector<float> all;
    auto files = OpenModelFiles(path, {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) return all;
    auto model = LoadModel(*files, *device_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return all;
    ModelHarness harness(**model, *device_, 64);
    const std::vector<int32_t> prompt = {5, 9, 33, 2, 71, 8, 100, 41};
    const auto logits = harness.Run(harness.AddSequence(64), prompt, 64);
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return all;
    for (const auto& row : *logits) {
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  const std::string folder_;
  std::unique_ptr<Device> device_;
};

double RelativeError(const std::vector<float>& got,
                     const std::vector<float>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    difference += std::pow(double{got[i]} - wanted[i], 2);
    norm += std::pow(double{wanted[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// Keys, names, orders of rows: nothing is lost where nothing is rounded.
TEST_F(QuantizeTest, EveryArchitectureComesBackTheSame) {
  for (const char* model : {"llama2",
                            "llama3",
                            "llama_tied_bias",
                            "llama_rope_linear",
                            "llama_bf16",
                            "mistral",
                            "qwen2",
                            "qwen2_yarn",
                            "qwen3",
                            "gemma",
                            "gemma2",
                            "gemma3_text",
                            "phi3",
                            "phi3_longrope",
                            "gpt2",
                            "olmo2",
                            "granite",
                            "starcoder2",
                            "glm4",
                            "smollm3",
                            "exaone4",
                            "cohere2"}) {
    SCOPED_TRACE(model);
    Quantize(Golden(model), "f32");
    // Vectors of 1 + w and scales in float32 round once, by 2^-24: what a model
    // makes of that is not derived, a dozen layers of some times it.
    EXPECT_LT(RelativeError(Logits(Out()), Logits(Golden(model))), 2e-5);
  }
}

TEST_F(QuantizeTest, QuantizedCheckpointsAreReadThroughTheirFormats) {
  const std::string gptq = TestData() + "/quantized/gptq_int4_actorder";
  Quantize(gptq, "f32");
  EXPECT_LT(RelativeError(Logits(Out()), Logits(gptq)), 2e-2)
      << "int8 activations of the source's rows are the difference";
}

// The errors of a path's matrices are independent: eight of them add up to
// three times one, with a margin of two.
TEST_F(QuantizeTest, ErrorsFallWithBits) {
  const std::string source = Drawn("?dtype=f32&seed=3");
  const std::vector<float> wanted = Logits(source);
  int types = 0;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr || !GgmlTypeFromDType(codec->dtype)) continue;
    const FormatInfo& format = GetFormatInfo(codec->dtype);
    SCOPED_TRACE(format.name);
    const std::string name(DTypeName(codec->dtype));
    // Their encoders search: one matrix will do.
    const bool slow = name < "iq4" && name.starts_with("iq");
    const std::string pattern = slow ? "*.down_proj.weight" : "*";
    const QuantizeReport report =
        Quantize(source, "f16", {pattern + "=" + name});
    double worst = 0;
    for (const QuantizedTensor& tensor : report.tensors) {
      EXPECT_EQ(
          tensor.to == codec->dtype,
          tensor.shape.size() == 2 && MatchesPattern(pattern, tensor.name));
      worst = std::max(worst, tensor.error);
    }
    const double bits = 8.0 * format.block_bytes / format.block_elements;
    EXPECT_LT(worst, std::exp2(2 - bits));
    EXPECT_GT(worst, std::exp2(-1.5 - bits));
    EXPECT_LT(RelativeError(Logits(Out()), wanted), 6 * worst + 0.01);
    ++types;
  }
  EXPECT_GE(types, 20);
  for (const char* mixture : {"q3_k_m", "q4_k_s", "q4_k_m", "q5_k_m"}) {
    Quantize(source, mixture);
    // Not derived: a wrong matrix moves logits by more than their deviation.
    EXPECT_LT(RelativeError(Logits(Out()), wanted), 1.0) << mixture;
  }
}

// A draw in a file is the draw that loading makes.
TEST_F(QuantizeTest, DrawsAreThoseOfLoading) {
  for (const char* dtype : {"bf16", "f32"}) {
    const std::string source = Drawn("?dtype=" + std::string(dtype));
    Quantize(source, dtype);
    EXPECT_LT(RelativeError(Logits(Out()), Logits(source)), 1e-6);
  }
  // With convolutions, A_log and D.
  for (const char* model : {"mamba2", "mamba", "lfm2", "qwen3_5_text"}) {
    SCOPED_TRACE(model);
    const std::string source = "random:" + Golden(model) + "?dtype=f32";
    Quantize(source, "f32");
    EXPECT_LT(RelativeError(Logits(Out()), Logits(source)), 1e-6);
  }
}

TEST_F(QuantizeTest, OneTypeIsCopiedToTheBit) {
  Quantize(Golden("llama3"), "q4_0");
  const std::vector<float> once = Logits(Out());
  std::filesystem::rename(Out(), folder_ + "/in.gguf");
  const QuantizeReport report = Quantize(folder_ + "/in.gguf", "q4_0");
  EXPECT_EQ(Logits(Out()), once);
  for (const QuantizedTensor& tensor : report.tensors) {
    EXPECT_EQ(tensor.error, 0.0) << tensor.name;
  }
}

TEST_F(QuantizeTest, OverridesAndFallbacks) {
  const QuantizeReport report =
      Quantize(Golden("llama3"), "q6_k",
               {"*.mlp.*=q4_0", "model.layers.1.mlp.down_proj.weight=f16"});
  int seen = 0;
  for (const QuantizedTensor& tensor : report.tensors) {
    DType to = DType::kQ8_0;  // rows of 64 and 128 do not fit q6_k
    if (tensor.name.find(".mlp.") != std::string::npos) to = DType::kQ4_0;
    if (tensor.name == "model.layers.1.mlp.down_proj.weight") to = DType::kF16;
    if (tensor.shape.size() == 1) to = DType::kF32;
    EXPECT_EQ(tensor.to, to) << tensor.name;
    if (to == DType::kQ8_0) {
      EXPECT_EQ(tensor.wanted, DType::kQ6_K);
      ++seen;
    }
  }
  EXPECT_GT(seen, 4);
  EXPECT_EQ(report.file_bytes, std::filesystem::file_size(Out()));
}

// Where answers are right or wrong: in a story the likeliest words may be so
// close that the rounding of sums decides, which differs between processors.
TEST_F(QuantizeTest, PocketAnswersTheSame) {
  const std::string pocket = ::inlay::testing::PocketModel();
  const QuantizeReport report = Quantize(pocket, "q8_0");
  EXPECT_TRUE(report.has_tokenizer);
  EngineHarness folder(pocket);
  EngineHarness file(Out());
  ASSERT_TRUE(folder.ok() && file.ok());
  for (const auto& [question, answer] :
       {std::pair("946 - 73", "873"),
        std::pair("Echo: 90QW7 695-711 Z080", "90QW7 695-711 Z080")}) {
    RequestOptions options;
    options.input = InputKind::kChat;
    options.text = absl::StrFormat(
        R"({"messages":[{"role":"user","content":"%s"}]})", question);
    options.max_tokens = 24;
    EXPECT_EQ(folder.RunAlone(options).text, answer);
    EXPECT_EQ(file.RunAlone(options).text, answer);
  }
}

// llama.cpp refuses files that lack these keys.
TEST_F(QuantizeTest, FilesWithoutATokenizerSaySo) {
  for (const char* model : {"llama3", "falcon_h1"}) {
    SCOPED_TRACE(model);
    EXPECT_FALSE(Quantize(Golden(model), "f32").has_tokenizer);
    const auto bytes = *ReadWholeFile(Out(), 64 << 20);
    const auto header = ParseGgufHeader(AsSpan(bytes), bytes.size());
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(**GgufString(*header, "tokenizer.ggml.model"), "no_vocab");
    const std::string arch = **GgufString(*header, "general.architecture");
    const auto source = OpenModelFiles(Golden(model), {});
    ASSERT_TRUE(source.ok());
    EXPECT_EQ(**GgufInt(*header, arch + ".vocab_size", 1, INT32_MAX),
              source->config["vocab_size"].get<int64_t>());
  }
}

TEST_F(QuantizeTest, CancellingLeavesNothing) {
  for (const int at : {1, 5}) {
    QuantizeOptions options;
    int calls = 0;
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      return ++calls < at;
    };
    const auto report = QuantizePath(Golden("llama3"), options, Out());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(calls, at);
    EXPECT_EQ(FilesLeft(), 0u);
  }
}

TEST_F(QuantizeTest, FilesThatCannotBeWritten) {
  const auto missing =
      QuantizePath(Golden("llama3"), {}, folder_ + "/no/out.gguf");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  // A folder that nobody may make, not even root.
  const auto refused = QuantizePath(Golden("llama_bf16"), {.type = "u4_g64"},
                                    "/sys/no/such/folder");
  EXPECT_EQ(refused.status().code(), IoError("").code()) << refused.status();
  // A limit on files stands for a full disk.
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 10000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto full = QuantizePath(Golden("llama3"), {}, Out());
  setrlimit(RLIMIT_FSIZE, &before);
  // And no SIGXFSZ, which would end this process.
  EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
  EXPECT_EQ(FilesLeft(), 0u);
}

TEST_F(QuantizeTest, ErrorsNameWhatIsWrong) {
  const auto status = [&](const std::string& model, QuantizeOptions options) {
    return QuantizePath(model, options, Out()).status();
  };
  const auto type = status(Golden("llama3"), {.type = "q4"});
  EXPECT_TRUE(absl::IsInvalidArgument(type));
  EXPECT_NE(type.message().find("q4_k_m"), absl::string_view::npos) << type;
  EXPECT_TRUE(absl::IsInvalidArgument(
      status(Golden("llama3"), {.tensor_types = {"*.mlp.*"}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      status(Golden("llama3"), {.tensor_types = {"*=u4_g32"}})));
  // A pattern of no tensor, beside one of some, in files and in folders.
  for (const std::string format : {"q8_0", "u4_g32"}) {
    const auto misspelt = status(
        Golden("llama3"),
        {.type = format, .tensor_types = {"*.mlp.*=f16", "*_prj.*=bf16"}});
    EXPECT_TRUE(absl::IsInvalidArgument(misspelt)) << misspelt;
    EXPECT_NE(misspelt.message().find("\"*_prj.*\""), absl::string_view::npos);
    EXPECT_NE(misspelt.message().find(".weight"), absl::string_view::npos);
  }
  EXPECT_TRUE(absl::IsUnimplemented(status(Golden("opt"), {})));
  EXPECT_TRUE(absl::IsUnimplemented(status(Drawn("?dtype=q8_0"), {})));
  EXPECT_TRUE(absl::IsNotFound(status(folder_ + "/nothing", {})));
  std::filesystem::remove_all(folder_ + "/shape");
  EXPECT_EQ(FilesLeft(), 0u);
}

TEST(TensorTypesTest, MixturesAreThoseOfTheirNames) {
  const auto get = [](const char* type, const char* gguf, bool head = false) {
    const auto parsed = ParseQuantizedType(type);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    const std::vector<int64_t> shape = {4096, 4096};
    const auto chosen =
        ChooseTensorType(*parsed, {}, {"any.weight", gguf, shape, 32, head});
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    return chosen->dtype;
  };
  // llama.cpp's q4_k_m of 32 layers: 0-3, 6, 9, .., 28-31 get more.
  for (int layer = 0; layer < 32; ++layer) {
    const std::string down = absl::StrFormat("blk.%d.ffn_down.weight", layer);
    const bool more =
        layer < 4 || layer >= 28 || (layer >= 6 && layer % 3 == 0);
    EXPECT_EQ(get("q4_k_m", down.c_str()), more ? DType::kQ6_K : DType::kQ4_K)
        << layer;
    EXPECT_EQ(get("q4_k_s", down.c_str()),
              layer < 4 ? DType::kQ5_K : DType::kQ4_K);
    EXPECT_EQ(get("q3_k_m", down.c_str()),
              layer < 2 ? DType::kQ5_K : DType::kQ4_K);
  }
  EXPECT_EQ(get("q4_k_m", "output.weight", true), DType::kQ6_K);
  EXPECT_EQ(get("q4_k_m", "token_embd.weight"), DType::kQ4_K);
  EXPECT_EQ(get("q4_k_m", "blk.5.attn_q.weight"), DType::kQ4_K);
  EXPECT_EQ(get("q5_k_m", "blk.0.attn_v.weight"), DType::kQ6_K);
  EXPECT_EQ(get("q3_k_m", "blk.1.attn_v.weight"), DType::kQ5_K);
  EXPECT_EQ(get("q3_k_m", "blk.9.attn_output.weight"), DType::kQ4_K);
  EXPECT_EQ(get("q8_0", "output.weight", true), DType::kQ8_0);
}

TEST(TensorTypesTest, Patterns) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("*.mlp.*", "model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(MatchesPattern("a?c*d", "abcccd"));
  EXPECT_TRUE(MatchesPattern("*ab*ab", "abxabab"));
  EXPECT_FALSE(MatchesPattern("a", "ab"));
  EXPECT_FALSE(MatchesPattern("?", ""));
  EXPECT_FALSE(MatchesPattern("*ab", "abx"));
}

}  // namespace
}  // namespace inlay
