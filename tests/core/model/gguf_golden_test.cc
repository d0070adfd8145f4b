// Models through GGUF against the reference's outputs. The files in
// tests/data/gguf are what llama.cpp's converter made of the checkpoints in
// tests/data/models; the other families are written here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "tests/core/model/golden_models.h"
#include "tests/support/gguf_from_published.h"

namespace inlay {
namespace {

class GgufGoldenModel : public GoldenModel {
 protected:
  void CheckGoldens(const ModelFiles& files) {
    auto model = LoadModel(files, *device_, {});
    ASSERT_TRUE(model.ok()) << model.status();
    double worst = 0;
    for (const GoldenCase& golden : cases_) {
      SCOPED_TRACE(golden.name);
      ModelHarness harness(**model, *device_, FinalLength(golden));
      const int sequence = harness.AddSequence(FinalLength(golden));
      const auto logits = harness.Run(sequence, golden.input_ids, 1 << 20);
      ASSERT_TRUE(logits.ok()) << logits.status();
      const double error = GoldenError(golden, *logits);
      EXPECT_LT(error, kTolerance);
      worst = std::max(worst, error);
      const auto greedy =
          harness.Greedy(sequence, logits->back(), kGreedySteps);
      ASSERT_TRUE(greedy.ok()) << greedy.status();
      EXPECT_EQ(*greedy, golden.greedy);
    }
    std::printf("%-18s GGUF max error / logit_std %.2e\n", GetParam(), worst);
  }
};

// --- What the converter made.

class ConvertedGguf : public GgufGoldenModel {};

// Keys of config.json that the format does not hold where they are not what
// everyone has.
void AddWhatIsLost(const std::string& model, Json* config) {
  const Json published = Open(model, "config.json").config;
  for (const char* key : {"query_pre_attn_scalar", "sliding_window_pattern"}) {
    if (published.contains(key)) (*config)[key] = published[key];
  }
  if (model != "mistral") return;
  for (const char* key : {"architectures", "model_type", "sliding_window"}) {
    (*config)[key] = published[key];
  }
}

TEST_P(ConvertedGguf, Goldens) {
  const std::string path =
      std::string(INLAY_TEST_DATA "/gguf/") + GetParam() + ".gguf";
  for (const WeightAccess access : {WeightAccess::kMap, WeightAccess::kRead}) {
    auto files = OpenModelFiles(path, {.access = access});
    ASSERT_TRUE(files.ok()) << files.status();
    AddWhatIsLost(GetParam(), &files->config);
    CheckGoldens(*files);
  }
}

// Every tensor as the checkpoint has it, to the bit where it was not rounded.
TEST_P(ConvertedGguf, TensorsAreThePublishedOnes) {
  const std::string path =
      std::string(INLAY_TEST_DATA "/gguf/") + GetParam() + ".gguf";
  const ModelFiles published = Open(GetParam(), "config.json");
  const auto files = OpenModelFiles(path, {});
  ASSERT_TRUE(files.ok()) << files.status();
  for (const WeightInfo& info : files->weights->weights()) {
    SCOPED_TRACE(info.name);
    const WeightInfo* other = published.weights->Find(info.name);
    ASSERT_NE(other, nullptr);
    std::string bytes(info.bytes, '\0'), wanted(other->bytes, '\0');
    const auto span = [](std::string& s) {
      return absl::MakeSpan(reinterpret_cast<std::byte*>(s.data()), s.size());
    };
    ASSERT_TRUE(files->weights->Read(info, 0, span(bytes)).ok());
    ASSERT_TRUE(published.weights->Read(*other, 0, span(wanted)).ok());
    GgufTensorData tensor{info.name, other->dtype, other->shape, wanted};
    if (info.rows_are_outputs) Turn(&tensor);
    EXPECT_EQ(info.shape, tensor.shape);
    for (size_t i = 0; i < info.bytes / RowBytes(info.dtype, 1); ++i) {
      // (w + 1) - 1 was rounded to the last bit of a number above 1.
      ASSERT_NEAR(FloatFrom(bytes, info.dtype, i),
                  FloatFrom(tensor.bytes, tensor.dtype, i), 0x1p-23);
    }
    // Any piece is a piece of the whole.
    for (const auto& [begin, size] : std::vector<std::pair<size_t, size_t>>{
             {0, 1}, {5, 70}, {info.bytes / 2 - 3, 9}}) {
      std::string piece(std::min(size, info.bytes - begin), '\0');
      ASSERT_TRUE(files->weights->Read(info, begin, span(piece)).ok());
      EXPECT_EQ(piece, bytes.substr(begin, piece.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ConvertedGguf,
                         testing::Values("llama3", "gemma", "phi3", "gpt2"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// --- What is written here, in the formats that the checkpoints have.

class WrittenGguf : public GgufGoldenModel {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  absl::Status Write(const ModelFiles& published, const std::string& name) {
    INLAY_ASSIGN_OR_RETURN(const GgufArch* arch, FindGgufArch(name));
    INLAY_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(path_));
    const Json& config = published.config;
    const auto number = [&](const char* key) {
      return config[key].get<uint32_t>();
    };
    const auto key = [&](const char* rest) { return name + "." + rest; };
    std::vector<absl::Status> all = {
        writer.SetString("general.architecture", name),
        writer.SetU32(key("block_count"), number("num_hidden_layers")),
        writer.SetU32(key("embedding_length"), number("hidden_size")),
        writer.SetU32(key("context_length"), number("max_position_embeddings")),
        writer.SetU32(key("feed_forward_length"), number("intermediate_size")),
        writer.SetU32(key("attention.head_count"),
                      number("num_attention_heads")),
        writer.SetU32(key("attention.head_count_kv"),
                      number("num_key_value_heads")),
        writer.SetF32(key("attention.layer_norm_rms_epsilon"),
                      config["rms_norm_eps"].get<float>()),
        writer.SetF32(key("rope.freq_base"), config["rope_theta"].get<float>()),
    };
    if (config.contains("head_dim")) {
      all.push_back(
          writer.SetU32(key("attention.key_length"), number("head_dim")));
    }
    SetOptional(config, name, &writer, &all);
    for (const absl::Status& status : all) INLAY_RETURN_IF_ERROR(status);
    INLAY_ASSIGN_OR_RETURN(
        const auto tensors,
        GgufTensorsFrom(*published.weights, *arch,
                        static_cast<int>(number("num_hidden_layers")),
                        number("num_attention_heads"),
                        number("num_key_value_heads")));
    int64_t parts = 0;
    for (const GgufTensorData& tensor : tensors) parts += tensor.parts;
    EXPECT_EQ(parts, published.weights->weights().size());
    return WriteGgufTensors(tensors, &writer);
  }

  void SetOptional(const Json& config, const std::string& arch,
                   GgufWriter* writer, std::vector<absl::Status>* all) {
    const auto set = [&](const char* from, const char* to, bool inverse) {
      if (!config.contains(from) || config[from].is_null()) return;
      const double value = config[from].get<double>();
      all->push_back(writer->SetF32(
          arch + "." + to,
          static_cast<float>(inverse ? 1.0 / std::sqrt(value) : value)));
    };
    set("query_pre_attn_scalar", "attention.scale", true);
    set("attn_logit_softcapping", "attn_logit_softcapping", false);
    set("final_logit_softcapping", "final_logit_softcapping", false);
    set("rope_local_base_freq", "rope.freq_base_swa", false);
    const auto set_int = [&](const char* from, const char* to) {
      if (!config.contains(from) || config[from].is_null()) return;
      all->push_back(
          writer->SetU32(arch + "." + to, config[from].get<uint32_t>()));
    };
    set_int("sliding_window", "attention.sliding_window");
    set_int("sliding_window_pattern", "attention.sliding_window_pattern");
    set_int("num_experts", "expert_count");
    set_int("num_local_experts", "expert_count");
    set_int("num_experts_per_tok", "expert_used_count");
    set_int("moe_intermediate_size", "expert_feed_forward_length");
    set_int("shared_expert_intermediate_size",
            "expert_shared_feed_forward_length");
    if (!config["rope_scaling"].is_object()) return;
    const Json& scaling = config["rope_scaling"];
    const std::string type = scaling.contains("rope_type")
                                 ? scaling["rope_type"].get<std::string>()
                                 : scaling["type"].get<std::string>();
    all->push_back(writer->SetString(arch + ".rope.scaling.type", type));
    all->push_back(writer->SetF32(arch + ".rope.scaling.factor",
                                  scaling["factor"].get<float>()));
    if (scaling.contains("original_max_position_embeddings")) {
      all->push_back(writer->SetU32(
          arch + ".rope.scaling.original_context_length",
          scaling["original_max_position_embeddings"].get<uint32_t>()));
    }
  }

  std::string path_ =
      testing::TempDir() + "written_" + std::to_string(getpid()) + ".gguf";
};

TEST_P(WrittenGguf, Goldens) {
  static const std::map<std::string, std::string> kArchs = {
      {"llama2", "llama"},       {"llama_tied_bias", "llama"},
      {"mistral", "llama"},      {"llama_rope_linear", "llama"},
      {"qwen2", "qwen2"},        {"qwen2_yarn", "qwen2"},
      {"qwen3", "qwen3"},        {"gemma2", "gemma2"},
      {"gemma3_text", "gemma3"}, {"mixtral", "llama"},
      {"qwen2_moe", "qwen2moe"}, {"qwen3_moe", "qwen3moe"},
      {"gpt_oss", "gpt-oss"}};
  const absl::Status written =
      Write(Open(GetParam(), "config.json"), kArchs.at(GetParam()));
  ASSERT_TRUE(written.ok()) << written;
  auto files = OpenModelFiles(path_, {});
  ASSERT_TRUE(files.ok()) << files.status();
  // The format has no key for the layers without experts.
  if (GetParam() == std::string("qwen2_moe")) {
    files->config["mlp_only_layers"] = {1};
  }
  CheckGoldens(*files);
}

INSTANTIATE_TEST_SUITE_P(
    Models, WrittenGguf,
    testing::Values("llama2", "llama_tied_bias", "llama_rope_linear", "mistral",
                    "qwen2", "qwen2_yarn", "qwen3", "gemma2", "gemma3_text",
                    "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace inlay
