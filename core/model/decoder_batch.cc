// What a batch's tokens see by their positions, and Decoder's batches for
// devices that cannot read the host's arrays. An image:
//   ids | positions | segments, where a model has several | slots, group by
//   group | logit rows | state plan | plan | plan ... | index plan ...
// each at a multiple of kPart bytes. What holds block tables comes last: of
// what it may need it uses the beginning.
#include <algorithm>
#include <cstring>

#include "core/model/decoder_impl.h"
#include "core/model/layers/attention_chunks.h"
#include "core/model/layers/wanted_queries.h"
#include "kernels/attention/attention_expand.h"
#include "kernels/attention/attention_gather.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/linear_attention/state_plan.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kPart = 64;
constexpr int64_t kNowhere = -1;

// Where the parts of an image begin.
struct Layout {
  size_t positions = 0;
  size_t segments = 0;
  size_t slots = 0;
  size_t logit_rows = 0;
  size_t states = 0;
  absl::InlinedVector<size_t, 2> plans;
  absl::InlinedVector<size_t, 4> index;  // by group; where it is asked for
  size_t bytes = 0;
};

AttentionPlanLimits PlanLimits(const BatchLimits& limits,
                               const AttentionCut& cut,
                               const AttentionPattern& pattern) {
  AttentionPlanLimits plan;
  plan.sequences =
      cut.chunk == 0
          ? limits.sequences
          : MaxChunkSequences(limits.tokens, limits.sequences, cut.chunk);
  plan.tokens = limits.tokens;
  plan.blocks = limits.blocks;
  if (cut.shape.selects > 0) {
    plan.sequences = limits.tokens;
    if (!cut.shape.expands()) plan.blocks = 0;
  }
  plan.graph = limits.fixed;
  if (cut.pattern) AddPatternLimits(pattern, cut.shape, limits.longest, &plan);
  if (cut.reach >= 0) AddReachLimits(cut.shape, &plan);
  return plan;
}

Layout LayOut(const BatchLimits& limits, const KvLayout& kv, bool segments,
              const std::vector<AttentionCut>& cuts,
              const AttentionPattern& pattern,
              absl::Span<const uint8_t> indexed) {
  const auto round = [](size_t bytes) {
    return (bytes + kPart - 1) / kPart * kPart;
  };
  const auto tokens = static_cast<size_t>(limits.tokens);
  Layout layout;
  layout.positions = round(tokens * sizeof(int32_t));
  layout.segments = layout.positions + round(tokens * sizeof(int32_t));
  layout.slots =
      layout.segments + (segments ? round(tokens * sizeof(int32_t)) : 0);
  layout.logit_rows =
      layout.slots + round(kv.num_groups() * tokens * sizeof(int64_t));
  layout.states = layout.logit_rows + round(tokens * sizeof(int32_t));
  layout.bytes = layout.states;
  if (kv.has_states()) {
    layout.bytes += round(StatePlanBytes(limits.sequences, limits.tokens));
  }
  for (const AttentionCut& cut : cuts) {
    layout.plans.push_back(layout.bytes);
    if (cut.wanted && limits.fixed) continue;
    layout.bytes += round(
        LayOutAttentionPlan(cut.shape, PlanLimits(limits, cut, pattern)).bytes);
  }
  for (const uint8_t is_indexed : indexed) {
    layout.index.push_back(layout.bytes);
    if (is_indexed == 0) continue;
    layout.bytes += round(IndexPlanBytes(limits.tokens, limits.blocks));
  }
  return layout;
}

// Copies `from`, and fills up to `count` with `rest`.
template <typename T>
void Put(absl::Span<const T> from, int64_t count, T rest, std::byte* to) {
  auto* out = reinterpret_cast<T*>(to);
  std::copy(from.begin(), from.end(), out);
  std::fill(out + from.size(), out + count, rest);
}

}  // namespace

absl::StatusOr<AttentionMask> Decoder::CompilePattern(
    const ForwardBatch& batch) const {
  // Groups differ in blocks only, of which a mask knows nothing.
  const absl::Span<const AttentionSequence> sequences = batch.SequencesOf(0);
  AttentionDesc desc;
  desc.causal = !info_.is_encoder;
  std::vector<AttentionPatternRows> rows;
  std::vector<AttentionMaskSpec> specs;
  rows.reserve(sequences.size());
  specs.reserve(sequences.size());
  for (const AttentionSequence& sequence : sequences) {
    rows.emplace_back(pattern_, desc.causal, sequence);
    specs.push_back(rows.back().Spec());
  }
  return CompileAttentionMask(desc, sequences, specs);
}

absl::StatusOr<std::vector<AttentionMask>> Decoder::CompileReaches(
    const ForwardBatch& batch) const {
  const absl::Span<const AttentionSequence> sequences = batch.SequencesOf(0);
  AttentionDesc desc;
  desc.causal = false;
  std::vector<AttentionMask> masks;
  masks.reserve(reaches_.size());
  for (const int32_t reach : reaches_) {
    AttentionMaskSpec spec;
    spec.reach = reach;
    INLAY_ASSIGN_OR_RETURN(masks.emplace_back(),
                           CompileAttentionMask(desc, sequences,
                                                std::vector<AttentionMaskSpec>(
                                                    sequences.size(), spec)));
  }
  return masks;
}

size_t Decoder::BatchImageBytes(const BatchLimits& limits) const {
  if (device_->host_addressable()) return 0;
  return LayOut(limits, kv_layout_, info_.num_segments > 1, cuts_, pattern_,
                indexed_groups_)
      .bytes;
}

size_t Decoder::ExchangeBytes() const {
  size_t bytes = 0;
  for (const DecoderLayer& layer : layers_) {
    bytes = std::max(bytes, layer.chain.exchange_bytes());
    for (const DecoderBlock& block : layer.blocks) {
      bytes = std::max(bytes, block.part->ExchangeBytes());
    }
  }
  return bytes;
}

absl::StatusOr<DeviceBatch> Decoder::PackBatch(const ForwardBatch& batch,
                                               const BatchLimits& limits,
                                               std::byte* image,
                                               std::byte* device) const {
  const size_t groups = kv_layout_.num_groups();
  const auto used = static_cast<int64_t>(batch.tokens.size());
  INLAY_DCHECK(used <= limits.tokens && groups == batch.num_groups);
  const bool has_segments = info_.num_segments > 1;
  const Layout layout = LayOut(limits, kv_layout_, has_segments, cuts_,
                               pattern_, indexed_groups_);
  DeviceBatch packed;
  packed.tokens = limits.fixed ? limits.tokens : used;
  const int64_t tokens = packed.tokens;
  Put<int32_t>(batch.tokens, tokens, 0, image);
  Put<int32_t>(batch.positions, tokens, 0, image + layout.positions);
  if (has_segments) {
    Put<int32_t>(batch.segments, tokens, 0, image + layout.segments);
    packed.segments =
        reinterpret_cast<const int32_t*>(device + layout.segments);
  }
  for (size_t g = 0; g < groups; ++g) {
    const auto slots =
        absl::MakeConstSpan(batch.SlotsOf(g), batch.tokens.size());
    Put<int64_t>(slots, tokens, kNowhere,
                 image + layout.slots +
                     g * static_cast<size_t>(tokens) * sizeof(int64_t));
  }
  const int64_t rows =
      limits.fixed ? tokens : static_cast<int64_t>(batch.logit_rows.size());
  Put<int32_t>(batch.logit_rows, rows, 0, image + layout.logit_rows);
  packed.ids = reinterpret_cast<const int32_t*>(device);
  packed.positions =
      reinterpret_cast<const int32_t*>(device + layout.positions);
  packed.slots = reinterpret_cast<const int64_t*>(device + layout.slots);
  packed.logit_rows =
      reinterpret_cast<const int32_t*>(device + layout.logit_rows);
  packed.used_bytes = layout.bytes;
  if (kv_layout_.has_states()) {
    const size_t group = kv_layout_.state_group();
    packed.states =
        BuildStatePlan(batch.SequencesOf(group), batch.state_sources.data(),
                       kv_layout_.groups()[group].block_size, limits.sequences,
                       tokens, image + layout.states, device + layout.states);
  }
  AttentionMask mask;
  if (pattern_.any()) {
    INLAY_ASSIGN_OR_RETURN(mask, CompilePattern(batch));
  }
  std::vector<AttentionMask> reaches;
  if (!reaches_.empty()) {
    INLAY_ASSIGN_OR_RETURN(reaches, CompileReaches(batch));
  }
  std::vector<AttentionSequence> cut_sequences, wanted;
  SeenBlocks seen;
  const bool leaves_out = !limits.fixed && !batch.logit_rows.empty() &&
                          batch.logit_rows.size() < batch.tokens.size();
  for (size_t i = 0; i < cuts_.size(); ++i) {
    const AttentionCut& cut = cuts_[i];
    AttentionPlanLimits plan_limits = PlanLimits(limits, cut, pattern_);
    absl::Span<const AttentionSequence> sequences =
        batch.SequencesOf(cut.kv_group);
    if (cut.wanted) {
      if (!leaves_out) {
        packed.plans.emplace_back();
        continue;
      }
      wanted.resize(sequences.size());
      const int64_t count =
          KeepWantedQueries(sequences, batch.logit_rows, wanted.data());
      sequences = absl::MakeConstSpan(wanted).first(static_cast<size_t>(count));
    }
    if (cut.chunk > 0) {
      cut_sequences.resize(static_cast<size_t>(plan_limits.sequences));
      const int64_t count = SplitIntoChunks(
          sequences, cut.chunk, kv_layout_.groups()[cut.kv_group].block_size,
          cut_sequences.data());
      sequences =
          absl::MakeConstSpan(cut_sequences).first(static_cast<size_t>(count));
    } else if (cut.shape.selects > 0) {
      cut_sequences.resize(static_cast<size_t>(plan_limits.sequences));
      const int64_t count =
          SplitUnlessExpanded(cut.shape, sequences, cut_sequences.data());
      sequences =
          absl::MakeConstSpan(cut_sequences).first(static_cast<size_t>(count));
    }
    // Room for queries that are not there would be uploaded with the others.
    if (cut.wanted) plan_limits = AttentionPlanLimitsOf(cut.shape, sequences);
    const AttentionMask* shown = cut.pattern ? &mask : nullptr;
    if (cut.reach >= 0) shown = &reaches[static_cast<size_t>(cut.reach)];
    // With whole_rows sums keep the order that queries in company have.
    if (cut.pattern && !cut.shape.whole_rows) {
      seen.Gather(sequences, cut.shape.block_size, mask);
      sequences = seen.sequences();
      shown = &seen.mask();
    }
    AttentionPlan& plan = packed.plans.emplace_back(BuildAttentionPlan(
        cut.shape, plan_limits, sequences, image + layout.plans[i], shown));
    plan.device = device + layout.plans[i];
    packed.used_bytes = layout.plans[i] + plan.used_bytes;
  }
  for (size_t g = 0; g < indexed_groups_.size(); ++g) {
    IndexPlan& plan = packed.index.emplace_back();
    if (indexed_groups_[g] == 0) continue;
    const size_t at = layout.index[g];
    plan =
        BuildIndexPlan(batch.SequencesOf(g), kv_layout_.groups()[g].block_size,
                       tokens, image + at, device + at);
    packed.used_bytes = at + plan.used_bytes;
  }
  return packed;
}

bool Decoder::CanBeFixed() const {
  return !device_->host_addressable() && info_.rope_threshold == 0 &&
         !ropes_.has_temperature();
}

}  // namespace inlay
