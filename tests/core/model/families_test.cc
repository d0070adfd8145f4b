// The README's table of families, made of the table of architectures and of the
// specs of their golden models; and the lists of those models.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/formats/gguf_arch.h"
#include "core/formats/model_files.h"
#include "core/formats/sinusoid_source.h"
#include "core/model/arch.h"
#include "core/model/layers/recurrent.h"
#include "core/model/load_model.h"
#include "tests/support/model_names.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

constexpr char kBegin[] = "<!-- families: what families_test prints -->\n";
constexpr char kEnd[] = "<!-- families end -->";

// In the order in which they are first added.
class Features {
 public:
  void Add(const std::string& feature, bool has = true) {
    if (!has || std::find(all_.begin(), all_.end(), feature) != all_.end()) {
      return;
    }
    all_.push_back(feature);
  }
  std::string Text() const {
    return all_.empty() ? "-" : absl::StrJoin(all_, ", ");
  }

 private:
  std::vector<std::string> all_;
};

struct Family {
  Features attention;
  Features positions;
  Features norms;
  Features feed_forward;
  Features scales;
};

// "on all layers" or "on some", of a number of layers.
std::string Which(int count, int all) { return count == all ? "" : " on some"; }

void AddAttention(const std::vector<const AttentionSpec*>& layers,
                  Features* features) {
  const auto all = static_cast<int>(layers.size());
  const auto add = [&](const char* name, auto has) {
    const auto count =
        static_cast<int>(std::count_if(layers.begin(), layers.end(), has));
    if (count > 0) features->Add(name + Which(count, all));
  };
  using Spec = const AttentionSpec*;
  add("window", [](Spec a) { return a->window > 0; });
  add("chunks", [](Spec a) { return a->chunk > 0; });
  add("sinks", [](Spec a) { return !a->sinks.empty(); });
  add("softcap", [](Spec a) { return a->softcap != 0.0f; });
  add("temperature", [](Spec a) { return a->query_factor >= 0; });
  const auto normed = [](Spec a) { return a->q_norm.kind != NormKind::kNone; };
  add("q and k norms of heads",
      [&](Spec a) { return normed(a) && !a->joint_norms; });
  add("q and k norms of all heads at once",
      [&](Spec a) { return normed(a) && a->joint_norms; });
  add("biases", [](Spec a) { return a->qkv.front().bias; });
  features->Add("v norms",
                std::any_of(layers.begin(), layers.end(), [](Spec a) {
                  return a->v_norm.kind != NormKind::kNone;
                }));
  add("values of keys", [](Spec a) { return a->keys_as_values; });
  add("keys and values of others", [](Spec a) { return a->kv_source >= 0; });
  add("narrower values",
      [](Spec a) { return a->value_dim > 0 && a->value_dim < a->head_dim; });
  add("blocks of keys selected",
      [](Spec a) { return a->block_index.has_value(); });
  add("gated", [](Spec a) { return a->gated && !a->head_gates; });
  add("gated by heads", [](Spec a) { return a->head_gates; });
  add("a norm behind",
      [](Spec a) { return a->output_norm.kind != NormKind::kNone; });
  add("both ways", [](Spec a) { return !a->causal; });
}

const char* ScalingName(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kDynamic:
      return "dynamic";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kLongRope:
      return "longrope";
    case RopeScaling::kProportional:
      return "proportional";
    case RopeScaling::kNone:
    case RopeScaling::kFactor:
      break;
  }
  return nullptr;
}

void AddPositions(const DecoderSpec& spec,
                  const std::vector<const AttentionSpec*>& layers,
                  Features* features) {
  const bool is_computed = spec.position_embedding == kComputedPositions;
  features->Add(is_computed ? "sinusoids" : "learned",
                !spec.position_embedding.empty());
  std::set<int> ropes;
  bool some_without = false, neighbours = false, partial = false;
  for (const AttentionSpec* layer : layers) {
    features->Add("ALiBi", layer->alibi_scale != 0.0f);
    features->Add("bias of distances", layer->distance_bias.has_value());
    features->Add("rows of distances", layer->relative.has_value());
    some_without |= layer->rope < 0;
    if (layer->rope < 0) continue;
    ropes.insert(layer->rope);
    neighbours |= layer->rope_style == RopeStyle::kInterleaved;
    partial |= spec.ropes[static_cast<size_t>(layer->rope)].rotary_dim <
               layer->head_dim;
  }
  if (ropes.empty()) return;
  features->Add(some_without ? "rope on some" : "rope");
  features->Add("of neighbours", neighbours);
  features->Add("of a part of heads", partial);
  features->Add("another for windows", ropes.size() > 1);
}

void AddNorms(const DecoderSpec& spec, Features* features) {
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      const bool after = block.post_norm.kind != NormKind::kNone ||
                         block.sum_norm.kind != NormKind::kNone;
      const bool before = block.pre_norm.kind != NormKind::kNone ||
                          layer.pre_norm.kind != NormKind::kNone;
      const bool is_layer = IsLayerNorm(block.pre_norm.kind) ||
                            IsLayerNorm(block.post_norm.kind) ||
                            IsLayerNorm(block.sum_norm.kind) ||
                            IsLayerNorm(layer.pre_norm.kind);
      if (!before && !after) continue;  // ModernBERT's first part
      features->Add(absl::StrFormat("%s %s", is_layer ? "LayerNorm" : "RMS",
                                    before && after ? "on both sides"
                                    : before        ? "before"
                                                    : "after"));
      features->Add("gates behind some", block.input_gate.has_value());
    }
    features->Add("parts in parallel", layer.parallel);
  }
}

void AddExperts(const MoeSpec& moe, Features* features) {
  switch (moe.routing.score) {
    case RoutingScore::kSoftmax:
      features->Add("experts by softmax");
      break;
    case RoutingScore::kSigmoid:
      features->Add("experts by sigmoid");
      break;
    case RoutingScore::kLogitSigmoid:
      features->Add("experts by logits, weighed by sigmoid");
      break;
    case RoutingScore::kSqrtSoftplus:
      features->Add("experts by root of softplus");
      break;
    case RoutingScore::kSparseMixer:
      features->Add("experts by SparseMixer");
      break;
  }
  features->Add("by token on some", moe.routing.hashed);
  features->Add("corrected choice", !moe.correction.empty());
  features->Add("scaled experts", moe.routing.scales_experts);
  features->Add("shared expert", moe.shared.has_value());
  features->Add("weighted inputs", moe.input_weights >= 0);
  features->Add("over latents", moe.latent_down.has_value());
  features->Add("some give back what they read",
                moe.routing.num_experts > static_cast<int>(moe.experts.size()));
}

void AddFeedForward(const DecoderSpec& spec, Features* features) {
  bool dense = false, sparse = false;
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      if (const auto* mlp = std::get_if<MlpSpec>(&block.part)) {
        dense = true;
        features->Add(mlp->gated ? "gated" : "plain");
        features->Add("xIELU", mlp->xielu.has_value());
        features->Add("a norm inside", mlp->inner_norm.kind != NormKind::kNone);
        features->Add("few gates on some", mlp->gate_cut.has_value());
      }
      if (std::holds_alternative<ShiftedMlpSpec>(block.part)) {
        features->Add("plain");
        features->Add("mixed with the token before");
      }
      if (const auto* both = std::get_if<MlpMoeSpec>(&block.part)) {
        features->Add("experts beside an MLP");
        AddExperts(both->moe, features);
      }
      features->Add("experts beside all that follows", block.deferred);
      if (const auto* moe = std::get_if<MoeSpec>(&block.part)) {
        sparse |= !block.deferred;
        AddExperts(*moe, features);
      }
    }
  }
  features->Add("some layers dense", dense && sparse);
  features->Add("inputs per layer", spec.per_layer_inputs.has_value());
}

void AddScales(const DecoderSpec& spec, Features* features) {
  features->Add("embeddings", spec.embedding_scale != 1.0f);
  features->Add("narrower embeddings", spec.embedding_projection.has_value());
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      features->Add("parts", block.scale != 1.0f);
      features->Add("augmented residual", block.laurel.has_value());
      features->Add("channels", block.stream_norm.kind != NormKind::kNone);
    }
    features->Add("layers in loops", layer.loop_norm.kind != NormKind::kNone);
    features->Add("layers", !layer.scale.empty());
  }
  features->Add("several residual streams",
                spec.streams.has_value() || spec.altup.has_value());
  features->Add("logits", spec.logit_scale != 1.0f);
  features->Add("softcap of logits", spec.final_softcap != 0.0f);
}

// What AddPositions looks at.
AttentionSpec PositionsOf(const LatentAttentionSpec& latent) {
  AttentionSpec positions;
  positions.rope = latent.rope;
  positions.rope_style = latent.rope_style;
  positions.head_dim = latent.query_dim();
  return positions;
}

AttentionSpec PositionsOf(const CompressedAttentionSpec& compressed) {
  AttentionSpec positions;
  positions.rope = compressed.rope;
  positions.rope_style = RopeStyle::kInterleaved;
  positions.head_dim = compressed.head_dim;
  return positions;
}

// Parts in attention's place.
void AddRecurrent(const PartSpec& part, Features* features) {
  features->Add("short convolutions",
                std::holds_alternative<ShortConvSpec>(part));
  features->Add("mamba 2", std::holds_alternative<MambaSpec>(part));
  if (const auto* selective = std::get_if<SelectiveSpec>(&part)) {
    features->Add("mamba");
    features->Add("norms of dt, B and C",
                  selective->b_norm.kind != NormKind::kNone);
  }
  if (const auto* lightning = std::get_if<LightningSpec>(&part)) {
    features->Add(lightning->decays.empty() ? "linear" : "lightning");
    features->Add("feature maps", lightning->feature_map != FeatureMap::kNone);
    features->Add("normaliser", lightning->normalised);
  }
  if (const auto* delta = std::get_if<DeltaSpec>(&part)) {
    features->Add(delta->decays_channels ? "Kimi delta attention"
                                         : "gated DeltaNet");
    features->Add("bounded decays", delta->decay_bound < 0);
  }
  features->Add("RWKV-7's delta rule",
                std::holds_alternative<TimeMixSpec>(part));
  features->Add("RG-LRU", std::holds_alternative<LruSpec>(part));
  features->Add("attention beside mamba 2",
                std::holds_alternative<AttentionMambaSpec>(part));
  features->Add("shared transformers before some, for them alone",
                std::holds_alternative<SharedTransformerSpec>(part));
}

bool IsRecurrent(const PartSpec& part) {
  return std::holds_alternative<ShortConvSpec>(part) ||
         std::holds_alternative<MambaSpec>(part) ||
         std::holds_alternative<SelectiveSpec>(part) ||
         std::holds_alternative<LightningSpec>(part) ||
         std::holds_alternative<DeltaSpec>(part) ||
         std::holds_alternative<TimeMixSpec>(part) ||
         std::holds_alternative<LruSpec>(part) ||
         std::holds_alternative<ShiftedMlpSpec>(part);
}

bool HasPart(const DecoderSpec& spec, bool (*is)(const PartSpec&)) {
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      if (is(block.part)) return true;
    }
  }
  return false;
}

void AddSpec(const DecoderSpec& spec, Family* family) {
  const bool hybrid = HasPart(spec, IsRecurrent);
  std::vector<const AttentionSpec*> attention;
  std::vector<const AttentionSpec*> positions;
  std::list<AttentionSpec> latents;
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      AddRecurrent(block.part, &family->attention);
      family->attention.Add(
          "attention on some",
          hybrid && std::holds_alternative<AttentionSpec>(block.part));
      if (const AttentionSpec* part = AttentionOf(block.part)) {
        attention.push_back(part);
        positions.push_back(part);
      }
      const auto* compressed =
          std::get_if<CompressedAttentionSpec>(&block.part);
      if (compressed != nullptr) {
        family->attention.Add("window");
        family->attention.Add("sinks", !compressed->sinks.empty());
        family->attention.Add("compressed keys on some",
                              compressed->compressor.has_value());
        family->attention.Add("selected ones on some",
                              compressed->index.has_value());
        positions.push_back(&latents.emplace_back(PositionsOf(*compressed)));
      }
      if (const auto* mixed = std::get_if<AttentionExpertsSpec>(&block.part)) {
        family->attention.Add("experts of queries and outputs by softmax");
        AttentionSpec& heads = latents.emplace_back();
        heads.rope = mixed->rope;
        heads.head_dim = mixed->head_dim;
        positions.push_back(&heads);
      }
      const auto* latent = std::get_if<LatentAttentionSpec>(&block.part);
      if (latent == nullptr) continue;
      family->attention.Add(hybrid ? "latent on some" : "latent");
      if (latent->gate.has_value()) {
        const bool by_heads = latent->gate->n == latent->num_heads;
        family->attention.Add(by_heads ? "gated by heads" : "gated");
      }
      family->attention.Add("sinks", !latent->sinks.empty());
      family->attention.Add("temperature", latent->query_factor >= 0);
      family->attention.Add("temperature of heads",
                            !latent->head_scale.empty());
      family->attention.Add("latents of others on some",
                            latent->kv_source >= 0);
      family->attention.Add(
          latent->select_block > 1 ? "selected pools of keys" : "selected keys",
          latent->selects > 0);
      family->attention.Add("selections of others on some",
                            latent->selects > 0 && !latent->indexer);
      positions.push_back(&latents.emplace_back(PositionsOf(*latent)));
    }
  }
  AddAttention(attention, &family->attention);
  AddPositions(spec, positions, &family->positions);
  for (const RopeSpec& rope : spec.ropes) {
    const char* scaling = ScalingName(rope.scaling);
    if (scaling != nullptr) family->positions.Add(scaling);
  }
  AddNorms(spec, &family->norms);
  AddFeedForward(spec, &family->feed_forward);
  family->feed_forward.Add("labels", spec.classifier.has_value());
  AddScales(spec, &family->scales);
}

// Sorted.
std::set<std::filesystem::path> ModelFolders() {
  std::set<std::filesystem::path> folders;
  for (const auto& entry :
       std::filesystem::directory_iterator(TestData() + "/models")) {
    if (entry.is_directory()) folders.insert(entry.path());
  }
  return folders;
}

std::string FirstArchitecture(const Json& config) {
  const Json* list = JsonFind(config, "architectures");
  return list != nullptr && list->is_array() && !list->empty()
             ? list->front().get<std::string>()
             : "";
}

std::string GgufArchitecture(const ArchRow& row) {
  const Json config = {{"architectures", {row.architecture}},
                       {"model_type", row.model_type}};
  const auto arch = FindGgufArchOf(config);
  return arch.ok() ? std::string((*arch)->name) : "-";
}

// Every factory has a golden model to be described by; names without one are
// other names of its family.
std::string Table() {
  std::string table =
      "| model_type | attention | positions | norms | feed-forward | scales | "
      "GGUF |\n|---|---|---|---|---|---|---|\n";
  const auto device = *CreateCpuDevice(1, 0);
  std::map<std::string, Family> families;
  for (const auto& folder : ModelFolders()) {
    const auto files = OpenModelFiles(folder.string(), {});
    EXPECT_TRUE(files.ok()) << files.status();
    if (!files.ok()) continue;
    Family& family = families[FirstArchitecture(files->config)];
    const auto spec = DescribeDecoder(*files, *device);
    if (spec.ok()) AddSpec(*spec, &family);
  }
  for (const ArchRow& row : Architectures()) {
    const auto found = families.find(std::string(row.architecture));
    if (found == families.end()) {
      const auto rows = Architectures();
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                              [&](const ArchRow& other) {
                                return other.factory == row.factory &&
                                       families.contains(
                                           std::string(other.architecture));
                              }))
          << row.architecture << " has no model in tests/data/models";
      continue;
    }
    const Family& family = found->second;
    absl::StrAppendFormat(&table, "| %s | %s | %s | %s | %s | %s | %s |\n",
                          row.model_type, family.attention.Text(),
                          family.positions.Text(), family.norms.Text(),
                          family.feed_forward.Text(), family.scales.Text(),
                          GgufArchitecture(row));
  }
  return table;
}

TEST(FamiliesTest, TheReadmeHasTheTable) {
  std::ifstream file(SourceDir() + "/README.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string readme = text.str();
  const size_t begin = readme.find(kBegin);
  const size_t end = readme.find(kEnd);
  ASSERT_TRUE(begin != readme.npos && end != readme.npos && begin < end);
  const size_t first = begin + sizeof(kBegin) - 1;
  const std::string table = Table();
  EXPECT_TRUE(readme.substr(first, end - first) == table)
      << "README.md has another table; put this one there:\n"
      << table;
}

// What tests of all families iterate is all that is there: a new model that is
// in no list would be tested by none.
TEST(FamiliesTest, EveryModelIsInTheLists) {
  const auto device = *CreateCpuDevice(1, 0);
  const auto is_expert = [](const PartSpec& part) {
    return std::holds_alternative<MoeSpec>(part) ||
           std::holds_alternative<MlpMoeSpec>(part);
  };
  std::set<std::string> decoders, encoders, recurrent, mixtures;
  for (const auto& folder : ModelFolders()) {
    if (!std::filesystem::exists(folder / "golden.json")) continue;
    const auto files = OpenModelFiles(folder.string(), {});
    ASSERT_TRUE(files.ok()) << files.status();
    const auto plan = PlanModel(*files, *device, {});
    ASSERT_TRUE(plan.ok()) << folder << ": " << plan.status();
    const std::string name = folder.filename();
    if ((*plan)->info().is_encoder) {
      encoders.insert(name);
      continue;
    }
    decoders.insert(name);
    if ((*plan)->kv_layout().has_states()) recurrent.insert(name);
    const auto spec = DescribeDecoder(*files, *device);
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.status();
    if (HasPart(*spec, is_expert)) mixtures.insert(name);
  }
  const auto listed = [](absl::Span<const char* const> names) {
    const std::set<std::string> set(names.begin(), names.end());
    EXPECT_EQ(set.size(), names.size()) << "one is there twice";
    return set;
  };
  EXPECT_EQ(listed(kDecoderNames), decoders);
  EXPECT_EQ(listed(kEncoderNames), encoders);
  EXPECT_EQ(listed(kRecurrentNames), recurrent);
  EXPECT_EQ(listed(kMixtureNames), mixtures);
}

}  // namespace
}  // namespace inlay
