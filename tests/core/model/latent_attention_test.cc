// Latent attention: what the cache keeps of a token, tiles of tokens, and the
// matrix that is taken apart, in every format and wherever it comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/attention_expand.h"
#include "kernels/cpu_float.h"
#include "kernels/quant/quant.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr char kUp[] = "self_attn.kv_b_proj.weight";

TEST(LatentAttentionTest, TheCacheHoldsOneRowATokenAndLayer) {
  const auto device = Cpu();
  const ModelFiles files = Open("deepseek_v3", "config.json");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    ModelLoadOptions options;
    options.kv_dtype = dtype;
    const auto model = PlanModel(files, *device, options);
    ASSERT_TRUE(model.ok()) << model.status();
    const KvLayout& layout = (*model)->kv_layout();
    EXPECT_EQ(layout.num_layers(), 3);
    // The latent's 32 elements and 16 that are rotated.
    const size_t layer_bytes = (16 * KvRowBytes(dtype, 48) + 63) / 64 * 64;
    EXPECT_EQ(layout.block_bytes(), 3 * layer_bytes);
    const KvLayerView view = layout.LayerView(1, nullptr);
    EXPECT_EQ(view.num_kv_heads, 1);
    EXPECT_EQ(view.head_dim, 48);
    EXPECT_EQ(view.value_dim, 32);
  }
}

// 64 heads of DeepSeek's row: tiles of 56 tokens, which sequences cross. Plain
// weights, and blocks as large as a latent can have.
TEST(LatentAttentionTest, TilesChangeNothing) {
  const auto device = Cpu();
  ModelFiles files;
  files.config = {{"architectures", {"DeepseekV2ForCausalLM"}},
                  {"vocab_size", 40},
                  {"hidden_size", 256},
                  {"intermediate_size", 256},
                  {"num_hidden_layers", 1},
                  {"first_k_dense_replace", 1},
                  {"num_attention_heads", 64},
                  {"q_lora_rank", nullptr},
                  {"qk_nope_head_dim", 16},
                  {"v_head_dim", 16}};
  std::mt19937 random(3);
  std::vector<int32_t> tokens(130);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  const auto first = absl::MakeConstSpan(tokens).first(100);
  const auto second = absl::MakeConstSpan(tokens).subspan(100);
  for (const DType dtype : {DType::kBF16, DType::kQ4_K, DType::kF8_G128}) {
    SCOPED_TRACE(DTypeName(dtype));
    files.random = RandomWeights{};
    files.random->dtype = dtype;
    const auto model = LoadModel(files, *device, {});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto alone = RunChunks(**model, *device, first, 7);
    const auto other = RunChunks(**model, *device, second, 30);
    EXPECT_TRUE(RunChunks(**model, *device, first, 100) == alone);

    ModelHarness harness(**model, *device, 1024);
    const int a = harness.AddSequence(200), b = harness.AddSequence(200);
    const ModelHarness::Chunk begins[] = {{a, first.first(35)}};
    const ModelHarness::Chunk goes_on[] = {{b, second}, {a, first.subspan(35)}};
    const auto head = harness.Forward(begins);
    const auto rest = harness.Forward(goes_on);
    ASSERT_TRUE(head.ok() && rest.ok());
    EXPECT_TRUE(std::equal(other.begin(), other.end(), rest->begin()));
    EXPECT_TRUE(std::equal(head->begin(), head->end(), alone.begin()));
    EXPECT_TRUE(
        std::equal(alone.begin() + 35, alone.end(), rest->begin() + 30));
  }
}

// The weights of a golden model, each kv_b_proj in another form.
class UpMatrices {
 public:
  UpMatrices() : files_(Open("deepseek_v3", "config.json")) {}

  // As `codec` has it; or the floats that this stands for.
  ModelFiles Encoded(const BlockCodec& codec, bool decoded, bool mapped) const {
    auto weights = std::make_shared<MemoryWeights>(mapped);
    for (const WeightInfo& info : files_.weights->weights()) {
      std::vector<std::byte> stored(info.bytes);
      EXPECT_TRUE(files_.weights->Read(info, 0, absl::MakeSpan(stored)).ok());
      if (!info.name.ends_with(kUp)) {
        weights->Add(info.name, info.dtype, info.shape, stored.data());
        continue;
      }
      const int64_t elements = info.shape[0] * info.shape[1];
      std::vector<float> values(static_cast<size_t>(elements));
      for (int64_t i = 0; i < elements; ++i) {
        values[static_cast<size_t>(i)] =
            LoadFloat(info.dtype, stored.data(), i);
      }
      const int64_t blocks =
          elements / GetFormatInfo(codec.dtype).block_elements;
      std::vector<std::byte> encoded(
          RowBytes(codec.dtype, static_cast<size_t>(elements)));
      codec.encode(values.data(), blocks, encoded.data());
      codec.decode(encoded.data(), blocks, values.data());
      if (decoded) {
        weights->Add(info.name, DType::kF32, info.shape, values.data());
      } else {
        weights->Add(info.name, codec.dtype, info.shape, encoded.data());
      }
    }
    ModelFiles files = files_;
    files.weights = weights;
    return files;
  }

 private:
  ModelFiles files_;
};

// A quantised matrix gives what the floats that it stands for give: keys'
// halves are those floats, values' halves are multiplied as every quantised
// matrix is. Chunks change nothing then either.
TEST(LatentAttentionTest, QuantisedMatricesAreTakenApart) {
  const auto device = Cpu();
  const UpMatrices matrices;
  const std::vector<int32_t> tokens =
      ReadGolden(Directory("deepseek_v3"))[2].input_ids;
  int formats = 0;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr ||
        32 % GetFormatInfo(codec->dtype).block_elements != 0) {
      continue;
    }
    SCOPED_TRACE(DTypeName(codec->dtype));
    ++formats;
    const auto floats =
        LoadModel(matrices.Encoded(*codec, true, true), *device, {});
    ASSERT_TRUE(floats.ok()) << floats.status();
    const auto want = RunChunks(**floats, *device, tokens, 100);
    // Rounding activations to 8 bits moves logits by less than this
    // (quantized_golden_test.cc).
    const std::pair<const char*, double> rows[] = {
        {"cpu_scalar", kTolerance}, {"cpu_simd", kTolerance}, {"", 0.15}};
    for (const auto& [row, tolerance] : rows) {
      for (const bool mapped : {true, false}) {
        ModelLoadOptions options;
        if (*row != '\0') options.forced_kernels["expert_linear"] = row;
        const auto model = LoadModel(matrices.Encoded(*codec, false, mapped),
                                     *device, options);
        ASSERT_TRUE(model.ok()) << model.status();
        const auto got = RunChunks(**model, *device, tokens, 100);
        // Rounded, a token goes to another expert now and then
        // (PositionsWithin).
        EXPECT_GE(ShareWithin(got, want, tolerance),
                  *row == '\0' ? kMostPositions : 1.0)
            << row;
        EXPECT_TRUE(RunChunks(**model, *device, tokens, 1) == got) << row;
      }
    }
  }
  EXPECT_GE(formats, 5);
}

// On a GPU codes become floats when they are loaded: with all else in float32,
// the floats that they stand for.
TEST(LatentAttentionTest, CudaWidensQuantisedMatrices) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  const UpMatrices matrices;
  const std::vector<int32_t> tokens =
      ReadGolden(Directory("deepseek_v3"))[2].input_ids;
  int formats = 0;
  for (const BlockCodec* codec : BlockCodecs()) {
    if (codec->encode == nullptr ||
        32 % GetFormatInfo(codec->dtype).block_elements != 0) {
      continue;
    }
    SCOPED_TRACE(DTypeName(codec->dtype));
    ++formats;
    const auto run = [&](const ModelFiles& files) {
      const auto model = LoadModel(files, **gpu, {});
      EXPECT_TRUE(model.ok()) << model.status();
      return model.ok() ? RunChunks(**model, **gpu, tokens, 100)
                        : ModelHarness::Logits();
    };
    ModelFiles floats = matrices.Encoded(*codec, true, true);
    ModelFiles codes = matrices.Encoded(*codec, false, true);
    floats.weights = Widened(*floats.weights);
    codes.weights = Widened(*codes.weights);
    const auto want = run(floats);
    ASSERT_FALSE(want.empty());
    EXPECT_TRUE(run(codes) == want);
    // All else in bf16, and read piece by piece.
    const auto narrow = run(matrices.Encoded(*codec, false, false));
    ASSERT_FALSE(narrow.empty());
    EXPECT_GE(ShareWithin(narrow, want, 0.15), kMostPositions);
  }
  EXPECT_GE(formats, 5);
}

// DeepSeek's own sizes, whose kernels are others than of small heads: what the
// CPU gives, and in batches the same as alone.
TEST(LatentAttentionTest, CudaAtFullSize) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  const auto cpu = Cpu();
  ModelFiles files;
  files.config = {{"architectures", {"DeepseekV2ForCausalLM"}},
                  {"vocab_size", 40},
                  {"hidden_size", 256},
                  {"intermediate_size", 256},
                  {"num_hidden_layers", 2},
                  {"first_k_dense_replace", 2},
                  {"num_attention_heads", 32},
                  {"q_lora_rank", nullptr}};
  files.random = RandomWeights{};
  std::mt19937 random(3);
  std::vector<int32_t> tokens(300);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  const auto first = absl::MakeConstSpan(tokens).first(200);
  const auto second = absl::MakeConstSpan(tokens).subspan(200);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    files.random->dtype = dtype;
    ModelLoadOptions options;
    options.batch_invariant = true;
    const auto on_gpu = LoadModel(files, **gpu, options);
    const auto fast = LoadModel(files, **gpu, {});
    const auto on_cpu = LoadModel(files, *cpu, {});
    ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
    ASSERT_TRUE(fast.ok() && on_cpu.ok());
    const auto want = RunChunks(**on_cpu, *cpu, first, 200);
    const auto whole = RunChunks(**on_gpu, **gpu, first, 200);
    // 0.1: roundings to 2^-8, two for each of a dozen matrices in turn.
    const double tolerance = dtype == DType::kF32 ? kTolerance : 0.1;
    EXPECT_EQ(ShareWithin(whole, want, tolerance), 1.0);
    for (const int64_t chunk : {1, 64, 200}) {
      EXPECT_EQ(
          ShareWithin(RunChunks(**fast, **gpu, first, chunk), want, tolerance),
          1.0)
          << chunk;
    }
    EXPECT_TRUE(RunChunks(**on_gpu, **gpu, first, 7) == whole);
    const auto other = RunChunks(**on_gpu, **gpu, second, 30);
    ModelHarness harness(**on_gpu, **gpu, 1024);
    const int a = harness.AddSequence(200), b = harness.AddSequence(200);
    const ModelHarness::Chunk both[] = {{b, second}, {a, first}};
    const auto logits = harness.Forward(both);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(std::equal(other.begin(), other.end(), logits->begin()));
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), logits->begin() + 100));
  }
}

// Of a model's sizes, DeepSeek's if nothing is said, and of two layers.
ModelFiles FullSize(DType dtype, const ExpandedDims& dims = kExpandedDims[0]) {
  ModelFiles files;
  files.config = {{"architectures", {"DeepseekV2ForCausalLM"}},
                  {"vocab_size", 40},
                  {"hidden_size", 256},
                  {"intermediate_size", 256},
                  {"num_hidden_layers", 2},
                  {"first_k_dense_replace", 2},
                  {"num_attention_heads", 32},
                  {"qk_nope_head_dim", dims.key_dim},
                  {"qk_rope_head_dim", dims.rope_dim},
                  {"v_head_dim", dims.value_dim},
                  {"kv_lora_rank", dims.rank},
                  {"q_lora_rank", nullptr}};
  files.random = RandomWeights{};
  files.random->dtype = dtype;
  return files;
}

// Whether a GPU expands the prompts of FullSize().
bool ExpandsOn(const Device& gpu, int q_len, int kv_len,
               const ExpandedDims& dims = kExpandedDims[0]) {
  AttentionPlanShape shape;
  shape.num_kv_heads = 1;
  shape.group = 32;
  shape.head_dim = dims.rank + dims.rope_dim;
  shape.block_size = 16;
  shape.grid = gpu.info().num_sms;
  if (dims.rank == 512) shape.item_rows = kAttentionWideItemRows;
  LetExpand(dims, shape);
  return Expands(shape, {0, q_len, kv_len, nullptr});
}

ModelHarness::Logits RunLong(const Model& model, Device& device,
                             absl::Span<const int32_t> tokens, int64_t chunk) {
  ModelHarness harness(model, device, 1024);
  auto logits = harness.Run(harness.AddSequence(1000), tokens, chunk);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
}

// Prompts in the expanded form, whole and in chunks of which some are, give
// what the absorbed form gives, and the CPU. Codes are widened for both.
TEST(LatentAttentionTest, CudaExpandsPrompts) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  if ((*gpu)->info().sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  ASSERT_TRUE(ExpandsOn(**gpu, 700, 700));
  ASSERT_TRUE(ExpandsOn(**gpu, 640, 640));
  ASSERT_FALSE(ExpandsOn(**gpu, 60, 700));
  const auto cpu = Cpu();
  std::mt19937 random(4);
  std::vector<int32_t> tokens(700);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kQ4_K}) {
    SCOPED_TRACE(DTypeName(dtype));
    const ModelFiles files = FullSize(dtype);
    ModelLoadOptions options;
    options.batch_invariant = true;
    const auto absorbed = LoadModel(files, **gpu, options);
    const auto expanded = LoadModel(files, **gpu, {});
    ASSERT_TRUE(absorbed.ok()) << absorbed.status();
    ASSERT_TRUE(expanded.ok()) << expanded.status();
    const auto want = RunLong(**absorbed, **gpu, tokens, 700);
    // 0.1: as in CudaAtFullSize. Quantised layers may round inputs too.
    const double tolerance = dtype == DType::kQ4_K ? 0.15 : 0.1;
    for (const int64_t chunk : {700, 640, 64}) {
      const auto got = RunLong(**expanded, **gpu, tokens, chunk);
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(ShareWithin(got, want, tolerance), 1.0) << chunk;
    }
    if (dtype != DType::kBF16) continue;
    const auto on_cpu = LoadModel(files, *cpu, {});
    ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
    EXPECT_EQ(ShareWithin(RunLong(**expanded, **gpu, tokens, 700),
                          RunLong(**on_cpu, *cpu, tokens, 700), tolerance),
              1.0);
  }
}

// The same of models whose keys and values are of other lengths.
TEST(LatentAttentionTest, CudaExpandsPromptsOfOtherModels) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  if ((*gpu)->info().sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  const auto cpu = Cpu();
  std::mt19937 random(4);
  std::vector<int32_t> tokens(400);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  for (const ExpandedDims& dims : {kExpandedDims[1], kExpandedDims[2]}) {
    SCOPED_TRACE(dims.key_dim);
    ASSERT_TRUE(ExpandsOn(**gpu, 400, 400, dims));
    const ModelFiles files = FullSize(DType::kBF16, dims);
    ModelLoadOptions options;
    options.batch_invariant = true;
    const auto absorbed = LoadModel(files, **gpu, options);
    const auto expanded = LoadModel(files, **gpu, {});
    const auto on_cpu = LoadModel(files, *cpu, {});
    ASSERT_TRUE(absorbed.ok()) << absorbed.status();
    ASSERT_TRUE(expanded.ok()) << expanded.status();
    ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
    const auto got = RunLong(**expanded, **gpu, tokens, 400);
    const auto want = RunLong(**absorbed, **gpu, tokens, 400);
    EXPECT_NE(got, want);  // another order of sums: something was expanded
    // 0.1: as in CudaAtFullSize.
    EXPECT_EQ(ShareWithin(got, want, 0.1), 1.0);
    EXPECT_EQ(ShareWithin(got, RunLong(**on_cpu, *cpu, tokens, 400), 0.1), 1.0);
  }
}

// Where keys are selected: a prompt no longer than what is selected is
// expanded, and what follows it selects. Layers without an indexer do alike.
TEST(LatentAttentionTest, CudaExpandsPromptsThatSelectAllKeys) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  if ((*gpu)->info().sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  const ExpandedDims& dims = kExpandedDims[1];
  ASSERT_TRUE(ExpandsOn(**gpu, 400, 400, dims));
  std::mt19937 random(4);
  std::vector<int32_t> tokens(450);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  ModelFiles files = FullSize(DType::kBF16, dims);
  files.config["architectures"] = {"GlmMoeDsaForCausalLM"};
  files.config["q_lora_rank"] = 128;
  files.config["index_n_heads"] = 4;
  files.config["index_topk"] = 448;
  files.config["indexer_types"] = {"full", "shared"};
  ModelLoadOptions options;
  options.batch_invariant = true;
  const auto absorbed = LoadModel(files, **gpu, options);
  const auto expanded = LoadModel(files, **gpu, {});
  ASSERT_TRUE(absorbed.ok()) << absorbed.status();
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  // The last two of 450 select. Nothing but the order of sums tells the forms
  // apart, and what is left out of 450 keys hardly counts.
  const auto got = RunLong(**expanded, **gpu, tokens, 400);
  const auto want = RunLong(**absorbed, **gpu, tokens, 400);
  EXPECT_NE(got, want);
  EXPECT_EQ(ShareWithin(got, want, 0.1), 1.0);
  // One step has both: a prompt, and single tokens of another sequence.
  ModelHarness harness(**expanded, **gpu, 1024);
  const int first = harness.AddSequence(500), second = harness.AddSequence(500);
  const auto all = absl::MakeConstSpan(tokens);
  ASSERT_TRUE(harness.Forward({{{first, all.subspan(0, 400)}}}).ok());
  const auto both = harness.Forward(
      {{{first, all.subspan(400, 1)}, {second, all.subspan(0, 400)}}});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(ShareWithin({(*both)[0]}, {want[400]}, 0.1), 1.0);
  for (size_t i = 0; i < 400; ++i) {
    ASSERT_EQ(ShareWithin({(*both)[1 + i]}, {want[i]}, 0.1), 1.0) << i;
  }
}

// In a step with a prompt that is expanded, a token that selects few of its
// keys has what it has alone, which is not what it has of all keys.
TEST(LatentAttentionTest, CudaSelectsBesideExpandedPrompts) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  if ((*gpu)->info().sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  constexpr int kLong = 3000;
  std::mt19937 random(6);
  std::vector<int32_t> tokens(kLong + 1);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  const auto all = absl::MakeConstSpan(tokens);
  const auto last = [&](int top_k, bool prompt) {
    ModelFiles files = FullSize(DType::kBF16, kExpandedDims[1]);
    files.config["architectures"] = {"GlmMoeDsaForCausalLM"};
    files.config["q_lora_rank"] = 128;
    files.config["index_n_heads"] = 4;
    files.config["index_topk"] = top_k;
    files.config["indexer_types"] = {"full", "shared"};
    const auto model = LoadModel(files, **gpu, {});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return ModelHarness::Logits();
    ModelHarness harness(**model, **gpu, 4096);
    const int sequence = harness.AddSequence(kLong + 1);
    const int other = harness.AddSequence(400);
    for (int at = 0; at < kLong; at += 500) {
      EXPECT_TRUE(harness.Forward({{{sequence, all.subspan(at, 500)}}}).ok());
    }
    std::vector<ModelHarness::Chunk> chunks;
    if (prompt) chunks.push_back({other, all.subspan(5, 400)});
    chunks.push_back({sequence, all.subspan(kLong, 1)});
    const auto logits = harness.Forward(chunks);
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return ModelHarness::Logits();
    return ModelHarness::Logits{logits->back()};
  };
  ASSERT_TRUE(ExpandsOn(**gpu, 400, 400, kExpandedDims[1]));
  const auto alone = last(400, false);
  ASSERT_EQ(alone.size(), 1);
  // 0.02: the plan cuts its keys at other places, which moves last bits of
  // 16-bit values.
  EXPECT_EQ(ShareWithin(last(400, true), alone, 0.02), 1.0);
  EXPECT_LT(ShareWithin(last(kLong + 8, false), alone, 0.02), 0.9);
}

// One step: two prompts in the expanded form, and before, between and behind
// them single tokens in the absorbed one.
TEST(LatentAttentionTest, CudaDecodesBesideExpandedPrompts) {
  auto gpu = CreateCudaDevice(0, 0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.status();
  if ((*gpu)->info().sm != 90) GTEST_SKIP() << "needs compute capability 9.0";
  const ModelFiles files = FullSize(DType::kBF16);
  ModelLoadOptions options;
  options.batch_invariant = true;
  const auto absorbed = LoadModel(files, **gpu, options);
  const auto expanded = LoadModel(files, **gpu, {});
  ASSERT_TRUE(absorbed.ok()) << absorbed.status();
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  std::mt19937 random(5);
  std::vector<int32_t> tokens(1500);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 40);
  const auto all = absl::MakeConstSpan(tokens);
  const auto run = [&](const Model& model) {
    ModelHarness harness(model, **gpu, 4096);
    int sequences[5];
    for (int& sequence : sequences) sequence = harness.AddSequence(1000);
    const ModelHarness::Chunk begins[] = {{sequences[0], all.subspan(7, 40)},
                                          {sequences[2], all.subspan(9, 33)},
                                          {sequences[4], all.subspan(2, 90)}};
    EXPECT_TRUE(harness.Forward(begins).ok());
    const ModelHarness::Chunk both[] = {{sequences[0], all.subspan(47, 1)},
                                        {sequences[1], all.subspan(100, 600)},
                                        {sequences[2], all.subspan(42, 1)},
                                        {sequences[3], all.subspan(800, 700)},
                                        {sequences[4], all.subspan(92, 3)}};
    auto logits = harness.Forward(both);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? *std::move(logits) : ModelHarness::Logits();
  };
  const auto want = run(**absorbed);
  const auto got = run(**expanded);
  ASSERT_EQ(got.size(), 1305);
  EXPECT_EQ(ShareWithin(got, want, 0.1), 1.0);
}

TEST(LatentAttentionTest, PermutedInputsAreRefused) {
  const auto device = Cpu();
  ModelFiles files = Open("deepseek_v3", "config.json");
  auto weights = std::make_shared<MemoryWeights>(true);
  for (const WeightInfo& info : files.weights->weights()) {
    weights->Add(info.name, info.dtype, info.shape,
                 files.weights->Mapped(info));
  }
  std::vector<int32_t> order(32);
  std::iota(order.begin(), order.end(), 0);
  weights->Add("model.layers.1.self_attn.kv_b_proj.input_permutation",
               DType::kI32, {32}, order.data());
  files.weights = weights;
  const auto model = LoadModel(files, *device, {});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("model.layers.1.self_attn.kv_b_proj.weight"));
}

}  // namespace
}  // namespace inlay
