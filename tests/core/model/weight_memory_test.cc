// What a model of quantised weights takes of the CPU's memory: packed matrices
// as their layout has them, and none of the file's beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/model/load_model.h"
#include "kernels/gemm/gemm.h"
#include "tests/support/memory_weights.h"
#include "tests/support/random_blocks.h"

namespace inlay {
namespace {

constexpr int64_t kHidden = 256, kInner = 512, kVocab = 300, kLayers = 2;

Json BlockLlama(bool tied) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", kVocab},
          {"hidden_size", kHidden},
          {"intermediate_size", kInner},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 32},
          {"tie_word_embeddings", tied}};
}

class WeightMemoryTest : public ::testing::Test {
 protected:
  struct Memory {
    uint64_t weights = 0;    // ModelInfo::weight_bytes
    uint64_t allocated = 0;  // of MemoryClass::kWeights
    uint64_t workspace = 0;
  };

  // The tensors that a llama asks for, norms in float32.
  static std::shared_ptr<const WeightSource> Weights(DType dtype, bool tied,
                                                     bool mapped) {
    auto weights = std::make_shared<MemoryWeights>(mapped);
    std::mt19937 rng(7);
    const auto add = [&](const std::string& name, int64_t n, int64_t k) {
      const BlockCodec* codec = FindBlockCodec(dtype);
      const int64_t blocks = n * k / GetFormatInfo(dtype).block_elements;
      weights->Add(name, dtype, {n, k},
                   ::inlay::testing::RandomBlocks(*codec, blocks, rng).data());
    };
    const std::vector<float> ones(kHidden, 1.0f);
    add("model.embed_tokens.weight", kVocab, kHidden);
    if (!tied) add("lm_head.weight", kVocab, kHidden);
    weights->Add("model.norm.weight", DType::kF32, {kHidden}, ones.data());
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
        weights->Add(layer + norm + ".weight", DType::kF32, {kHidden},
                     ones.data());
      }
      add(layer + "self_attn.q_proj.weight", kHidden, kHidden);
      add(layer + "self_attn.k_proj.weight", kHidden / 2, kHidden);
      add(layer + "self_attn.v_proj.weight", kHidden / 2, kHidden);
      add(layer + "self_attn.o_proj.weight", kHidden, kHidden);
      add(layer + "mlp.gate_proj.weight", kInner, kHidden);
      add(layer + "mlp.up_proj.weight", kInner, kHidden);
      add(layer + "mlp.down_proj.weight", kHidden, kInner);
    }
    return weights;
  }

  static Memory MemoryOf(DType dtype, bool tied, bool mapped) {
    Memory memory;
    const auto device = *CreateCpuDevice(1, 0);
    ModelFiles files;
    files.config = BlockLlama(tied);
    files.weights = Weights(dtype, tied, mapped);
    const auto model = LoadModel(files, *device, {});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return memory;
    const MemoryUse use = device->memory_use();
    memory.weights = (*model)->info().weight_bytes;
    memory.allocated = use.by_class[static_cast<size_t>(MemoryClass::kWeights)];
    memory.workspace =
        use.by_class[static_cast<size_t>(MemoryClass::kWorkspace)];
    EXPECT_EQ((*PlanModel(files, *device, {}))->info().weight_bytes,
              memory.weights);
    return memory;
  }

  // Whether this processor has a packed layout of it.
  static bool IsPacked(DType dtype) {
    const auto device = *CreateCpuDevice(1, 0);
    GemmDesc desc;
    desc.n = desc.k = kHidden;
    desc.weight = dtype;
    const auto row = Select("gemm", GemmTable(), desc, device->info());
    return row.ok() && (*row)->packing != nullptr;
  }
};

TEST_F(WeightMemoryTest, PackedMatricesTakeThePlaceOfTheFile) {
  // Bytes of 256 elements, in the file and packed. q4_0: eight scales of 16
  // bits and the codes, as in the file. q4_k: two scales of 16 bits, the codes,
  // and eight scales and minima of 6 bits, which take bytes when packed.
  const struct {
    DType dtype;
    uint64_t stored;
    uint64_t packed;
  } kCases[] = {
      {DType::kQ4_0, 8 * 2 + 128, 8 * 2 + 128},
      {DType::kQ4_K, 2 * 2 + 128 + 8 * 2 * 6 / 8, 2 * 2 + 128 + 8 * 2},
  };
  const auto blocks = [](int64_t elements) {
    return static_cast<uint64_t>(elements / 256);
  };
  const int64_t layers =
      kLayers * (3 * kHidden * kHidden + 3 * kInner * kHidden);
  // Rows are packed by eight.
  const int64_t head = (kVocab + 7) / 8 * 8 * kHidden;
  const uint64_t table = blocks(kVocab * kHidden);
  constexpr uint64_t kNorms = sizeof(float) * kHidden * (2 * kLayers + 1);
  for (const auto& [dtype, stored, packed] : kCases) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << (tied ? ", tied" : ""));
      const bool is_packed = IsPacked(dtype);
      // The table of tokens stays as it is, also where the head is made of it.
      const uint64_t products =
          is_packed ? packed * blocks(layers + head)
                    : stored * blocks(layers + (tied ? 0 : kVocab * kHidden));
      const uint64_t all = products + stored * table + kNorms;
      const Memory read = MemoryOf(dtype, tied, false);
      EXPECT_EQ(read.weights, all);
      EXPECT_EQ(read.allocated, all);
      EXPECT_EQ(read.workspace, 0u);
      // What is mapped is counted as weights and not allocated; what was packed
      // out of it is there once.
      const Memory mapped = MemoryOf(dtype, tied, true);
      EXPECT_EQ(mapped.weights, all);
      EXPECT_EQ(mapped.allocated, kNorms + (is_packed ? products : 0));
      EXPECT_EQ(mapped.workspace, 0u);
    }
  }
}

}  // namespace
}  // namespace inlay
