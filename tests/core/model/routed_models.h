// Mixtures of experts whose tokens go to experts by what kind of token they
// are, far from where a rounding would send them elsewhere: models that differ
// by roundings can be compared although each token leaves most experts idle.
// Header only.
#ifndef INLAY_TESTS_CORE_MODEL_ROUTED_MODELS_H_
#define INLAY_TESTS_CORE_MODEL_ROUTED_MODELS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/expert_inputs.h"
#include "core/model/random_weights.h"
#include "kernels/quant/quant.h"
#include "tests/core/model/golden_models.h"

namespace inlay {

// A router, its experts and what may be multiplied so that they count.
struct RoutedPart {
  const LinearSpec* router = nullptr;
  const RoutingDesc* routing = nullptr;
  std::string table;               // of hashed ones
  int64_t table_rows = 0;          // the same
  std::vector<std::string> names;  // of each expert's first matrix; of
                                   // attention's: none
  const NormSpec* norm =
      nullptr;                   // of what the experts alone read, may be null
  bool norm_is_routers = false;  // and the router
};

inline std::vector<RoutedPart> RoutedPartsOf(const DecoderSpec& spec) {
  std::vector<RoutedPart> parts;
  const auto add = [&](const MoeSpec& moe, const NormSpec* norm) {
    RoutedPart part{&moe.router, &moe.routing, moe.table, moe.table_rows};
    for (const MlpSpec& expert : moe.experts) {
      part.names.push_back(expert.input.front().name);
    }
    if (norm != nullptr && !norm->name.empty()) part.norm = norm;
    part.norm_is_routers =
        moe.router_norm.kind == NormKind::kNone && !moe.routes_ahead;
    parts.push_back(std::move(part));
  };
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      if (const auto* moe = std::get_if<MoeSpec>(&block.part)) {
        add(*moe, &block.pre_norm);
      } else if (const auto* both = std::get_if<MlpMoeSpec>(&block.part)) {
        add(both->moe, &both->moe_pre_norm);
      } else if (const auto* heads =
                     std::get_if<AttentionExpertsSpec>(&block.part)) {
        parts.push_back({&heads->router, &heads->routing});
      }
    }
  }
  return parts;
}

// Kinds of tokens differ by a vector of +-1 in the embedding, orthogonal to the
// others' in every 32 columns; the rest of a row is normal, of half that size.
// What layers add has 1 / sqrt(hidden_size) of its size along such a vector.
inline constexpr int kTokenKinds = 3;
inline constexpr float kOwnPart = 0.5f;

inline float KindMark(int kind, int64_t column) {
  constexpr int kMasks[kTokenKinds] = {5, 11, 22};
  return std::popcount(static_cast<uint32_t>(column & kMasks[kind])) % 2 == 0
             ? 1.0f
             : -1.0f;
}

inline std::vector<float> KindEmbedding(int64_t rows, int64_t columns,
                                        float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  const auto cpu = Cpu(1);
  const auto stream = *cpu->CreateStream();
  DrawWeights(3, "embedding", DType::kF32, rows * columns, values.data(),
              *stream->thread_pool());
  float marks[kTokenKinds][32];
  for (int kind = 0; kind < kTokenKinds; ++kind) {
    for (int i = 0; i < 32; ++i) marks[kind][i] = KindMark(kind, i);
  }
  float* value = values.data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* mark = marks[row % kTokenKinds];
    for (int64_t i = 0; i < columns; ++i, ++value) {
      *value = scale * (mark[i % 32] + kOwnPart / 0.02f * *value);
    }
  }
  return values;
}

// Scores of experts for a token of a kind, where the router's input is as large
// as `gain`: the top_k best are 0.4 to 1, the others -1 to -0.4. They follow
// each other from one that the router's name says, and from the one before for
// each further kind; with groups, from a group's first.
inline std::vector<float> KindRouter(const LinearSpec& router, int top_k,
                                     int num_groups = 1, float gain = 1.0f) {
  const int64_t step = num_groups > 1 ? router.n / num_groups : 1;
  const int64_t first =
      step * std::accumulate(router.name.begin(), router.name.end(), 0);
  std::vector<float> values;
  for (int64_t e = 0; e < router.n; ++e) {
    float scores[kTokenKinds];
    for (int kind = 0; kind < kTokenKinds; ++kind) {
      const auto rank =
          static_cast<float>((e + first + kind * step) % router.n);
      const auto chosen = static_cast<float>(top_k);
      const auto idle = static_cast<float>(router.n - top_k);
      scores[kind] = rank < chosen ? 1.0f - 0.6f * rank / chosen
                                   : -0.4f - 0.6f * (rank - chosen) / idle;
    }
    for (int64_t i = 0; i < router.k; ++i) {
      float sum = 0;
      for (int kind = 0; kind < kTokenKinds; ++kind) {
        sum += scores[kind] * KindMark(kind, i);
      }
      values.push_back(sum / gain / static_cast<float>(router.k));
    }
  }
  return values;
}

inline std::vector<std::byte> Encoded(DType dtype,
                                      const std::vector<float>& values) {
  std::vector<std::byte> bytes(RowBytes(dtype, values.size()));
  if (const BlockCodec* codec = FindBlockCodec(dtype)) {
    codec->encode(values.data(),
                  static_cast<int64_t>(values.size()) /
                      GetFormatInfo(dtype).block_elements,
                  bytes.data());
  } else if (dtype == DType::kF32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits =
          dtype == DType::kBF16 ? F32ToBF16(values[i]) : F32ToF16(values[i]);
      std::memcpy(&bytes[2 * i], &bits, sizeof(bits));
    }
  }
  return bytes;
}

// Another source's tensors, but for some.
class ReplacedWeights : public WeightSource {
 public:
  explicit ReplacedWeights(std::shared_ptr<const WeightSource> source)
      : source_(std::move(source)) {}

  void Replace(const std::string& name, const std::vector<float>& values) {
    const WeightInfo* info = source_->Find(name);
    ASSERT_NE(info, nullptr) << name;
    std::vector<std::byte> bytes = Encoded(info->dtype, values);
    ASSERT_EQ(bytes.size(), info->bytes) << name;
    own_[name] = std::move(bytes);
  }
  // All ones: values, or what blocks scale theirs by, are NaN.
  void Poison(const std::string& name) {
    const WeightInfo* info = source_->Find(name);
    ASSERT_NE(info, nullptr) << name;
    own_[name].assign(info->bytes, std::byte{0xff});
  }

  absl::Span<const WeightInfo> weights() const override {
    return source_->weights();
  }
  const std::byte* Mapped(const WeightInfo& info) const override {
    const auto own = own_.find(info.name);
    return own == own_.end() ? source_->Mapped(info) : own->second.data();
  }
  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const auto own = own_.find(info.name);
    if (own == own_.end()) return source_->Read(info, offset, destination);
    std::memcpy(destination.data(), own->second.data() + offset,
                destination.size());
    return absl::OkStatus();
  }
  uint64_t LeavePages(FileRange) const override { return 0; }

 private:
  std::shared_ptr<const WeightSource> source_;
  std::map<std::string, std::vector<std::byte>> own_;
};

// `source` with an embedding and routers as above. `gain`: what weights of
// norms before experts become.
inline std::shared_ptr<const WeightSource> RoutedByKind(
    std::shared_ptr<const WeightSource> source, const DecoderSpec& spec,
    float gain = 1.0f) {
  auto routed = std::make_shared<ReplacedWeights>(std::move(source));
  const int64_t rows =
      spec.embedding_rows > 0 ? spec.embedding_rows : spec.vocab_size;
  // Families that multiply it normalise what layers add.
  routed->Replace(spec.embedding,
                  KindEmbedding(rows, spec.hidden_size,
                                1.0f / std::sqrt(spec.embedding_scale)));
  for (const RoutedPart& part : RoutedPartsOf(spec)) {
    float read = 1.0f;
    if (gain != 1.0f && part.norm != nullptr) {
      const bool less_one = IsZeroCentred(part.norm->kind);
      routed->Replace(part.norm->name + std::string(part.norm->suffix),
                      std::vector<float>(static_cast<size_t>(spec.hidden_size),
                                         less_one ? gain - 1.0f : gain));
      if (part.norm_is_routers) read = gain;
    }
    routed->Replace(part.router->name + std::string(part.router->suffix),
                    KindRouter(*part.router, part.routing->top_k,
                               part.routing->num_groups, read));
  }
  return routed;
}

// The tensors that `random` stands for.
inline std::shared_ptr<const WeightSource> Drawn(
    const RandomWeights& random, const std::vector<PlannedWeight>& planned,
    const DecoderSpec& spec) {
  auto weights = std::make_shared<MemoryWeights>(true);
  const auto cpu = Cpu();
  const auto stream = *cpu->CreateStream();
  std::vector<std::byte> bytes;
  std::vector<float> constants;
  for (const PlannedWeight& weight : planned) {
    WeightInfo info;
    info.name = weight.name;
    info.shape = weight.shape;
    info.rows_are_outputs = true;
    const int64_t elements =
        std::accumulate(info.shape.begin(), info.shape.end(), int64_t{1},
                        std::multiplies<int64_t>());
    if (weight.vector.has_value()) {
      constants.assign(static_cast<size_t>(elements),
                       weight.vector == VectorKind::kScale ? 1.0f : 0.0f);
      weights->Add(std::move(info), constants.data());
      continue;
    }
    info.dtype = random.DTypeOf(info.name);
    bytes.resize(RowBytes(info.dtype, static_cast<uint64_t>(elements)));
    if (const BlockCodec* codec = FindBlockCodec(info.dtype)) {
      const int64_t blocks =
          elements / GetFormatInfo(info.dtype).block_elements;
      EXPECT_TRUE(DrawBlocks(random.seed, info.name, *codec, 0, blocks,
                             bytes.data(), *stream->thread_pool())
                      .ok());
    } else {
      DrawWeights(random.seed, info.name, info.dtype, elements, bytes.data(),
                  *stream->thread_pool());
    }
    weights->Add(std::move(info), bytes.data());
  }
  for (const RoutedPart& part : RoutedPartsOf(spec)) {
    if (!part.routing->hashed) continue;
    std::vector<int32_t> table;
    for (int64_t token = 0; token < part.table_rows; ++token) {
      for (int rank = 0; rank < part.routing->top_k; ++rank) {
        table.push_back(
            static_cast<int32_t>((token + rank) % part.routing->num_experts));
      }
    }
    weights->Add(part.table, DType::kI32,
                 {part.table_rows, part.routing->top_k}, table.data());
  }
  return weights;
}

// What `random` draws for a model of that configuration; of mixtures routed by
// kind, with norms that make inputs of activations of about the size 2.
inline ModelFiles DrawModel(const Json& config, const RandomWeights& random) {
  ModelFiles files;
  files.config = config;
  files.random = random;
  const auto cpu = Cpu(1);
  const auto spec = DescribeDecoder(files, *cpu);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok() || RoutedPartsOf(*spec).empty()) return files;
  const auto planned = PlanWeights(files, *cpu);
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (!planned.ok()) return files;
  files.weights = RoutedByKind(
      Drawn(random, *planned, *spec), *spec,
      2.0f / (0.02f * std::sqrt(static_cast<float>(spec->hidden_size))));
  files.random.reset();
  return files;
}

// Which tokens went to which experts, whatever the chunks, in any number of
// runs of a prompt of `length` different tokens.
class ExpertChoices : public InputObserver {
 public:
  ExpertChoices(const ModelFiles& files, size_t length) : length_(length) {
    const auto cpu = Cpu(1);
    const auto spec = DescribeDecoder(files, *cpu);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (!spec.ok()) return;
    for (const RoutedPart& part : RoutedPartsOf(*spec)) {
      if (part.names.empty()) continue;
      layers_.push_back(part.names);
      for (const std::string& name : part.names) tokens_[name];
    }
  }

  void OnInput(std::string_view layer, const TensorView& x) override {
    if (layer.ends_with(kAllExperts)) {
      layer.remove_suffix(kAllExperts.size());
      if (tokens_.count(std::string(layer)) == 0) return;
      first_ = seen_[std::string(layer)];
      seen_[std::string(layer)] += static_cast<size_t>(x.rows());
      all_.resize(static_cast<size_t>(x.rows()));
      for (size_t r = 0; r < all_.size(); ++r) {
        const auto* row = x.row<const float>(static_cast<int64_t>(r));
        all_[r].assign(row, row + x.cols());
      }
      return;
    }
    const auto expert = tokens_.find(std::string(layer));
    if (expert == tokens_.end()) return;
    for (int64_t r = 0; r < x.rows(); ++r) {
      const auto* row = x.row<const float>(r);
      const auto token = std::find(all_.begin(), all_.end(),
                                   std::vector<float>(row, row + x.cols()));
      ASSERT_TRUE(token != all_.end()) << layer;
      expert->second.insert(
          (first_ + static_cast<size_t>(token - all_.begin())) % length_);
    }
  }

  // By the name of an expert's first matrix.
  const std::map<std::string, std::set<size_t>>& tokens() const {
    return tokens_;
  }
  // Every layer with experts has some that a part of the tokens goes to.
  void ExpectChoices() const {
    for (const std::vector<std::string>& names : layers_) {
      EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                              [&](const auto& name) {
                                const size_t count = tokens_.at(name).size();
                                return count > 0 && count < length_;
                              }))
          << names.front();
    }
  }

 private:
  size_t length_;
  std::vector<std::vector<std::string>> layers_;
  std::map<std::string, std::set<size_t>> tokens_;
  std::map<std::string, size_t> seen_;  // by the layer's first expert
  std::vector<std::vector<float>> all_;
  size_t first_ = 0;  // the token of all_[0]
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_MODEL_ROUTED_MODELS_H_
