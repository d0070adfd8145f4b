#include "core/engine/ahead_step.h"

#include <algorithm>

namespace inlay {
namespace {

// The position that comes behind an item's tokens.
int64_t NextPosition(const StepItem& item) {
  return item.first_token + item.num_tokens;
}

bool SameOptions(const SampleOptions& a, const SampleOptions& b) {
  return a.temperature == b.temperature && a.top_k == b.top_k &&
         a.top_p == b.top_p && a.min_p == b.min_p &&
         a.num_edits == b.num_edits && a.seed == b.seed && a.index == b.index;
}

}  // namespace

const KvReservation& AheadStep::ReservationOf(const StepBatch& batch,
                                              const Row& row, size_t group) {
  return batch.reservations[static_cast<size_t>(row.item)].group(group);
}

bool AheadStep::Ends(const StepBatch& batch, const LogitRow& row) {
  const Request& request = *batch.items[static_cast<size_t>(row.item)].request;
  return request.cancelled || request.finish.generated_tokens + 1 >=
                                  static_cast<uint64_t>(request.max_new_tokens);
}

bool AheadStep::GoesOn(const StepBatch& batch, const LogitRow& row) {
  const BatchItem& item = batch.items[static_cast<size_t>(row.item)];
  if (Ends(batch, row) || item.request->sampler.remembers()) return false;
  const int64_t position = NextPosition(item.plan);
  const LogitRow next =
      MakeLogitRow({item.plan.id, position, 1, true}, *item.request, position);
  return next.samples && !next.emits && next.scored < 0;
}

void AheadStep::Add(const StepBatch& batch, const LogitRow& row,
                    int32_t source) {
  const BatchItem& item = batch.items[static_cast<size_t>(row.item)];
  const auto position = static_cast<int32_t>(NextPosition(item.plan));
  const Sampler& sampler = item.request->sampler;
  SampleOptions options = sampler.Options();
  ++options.index;
  options.first_edit = static_cast<int32_t>(logit_edits_.size());
  sampler.AppendEdits(logit_edits_);
  options.num_edits =
      static_cast<int32_t>(logit_edits_.size()) - options.first_edit;
  sample_options_.push_back(options);
  logit_rows_.push_back(static_cast<int32_t>(rows_.size()));
  sources_.push_back(source);
  tokens_.push_back(0);
  positions_.push_back(position);
  rows_.push_back({item.plan.id, row.item, position});
}

bool AheadStep::Take(const StepBatch& batch, absl::Span<const KvGroup> groups,
                     KvBlockPool& pool) {
  num_groups_ = groups.size();
  held_.reserve(rows_.size() * num_groups_);
  for (const Row& row : rows_) {
    for (size_t g = 0; g < num_groups_; ++g) {
      const KvReservation& reserved = ReservationOf(batch, row, g);
      const int64_t index = row.position / groups[g].block_size;
      // A state goes to a block of its own at every step.
      if (!groups[g].is_state && index < reserved.num_blocks()) {
        held_.push_back(reserved.block(index));
        pool.Ref(held_.back());
        continue;
      }
      const auto taken = pool.Allocate(1);
      if (!taken.ok()) return false;
      held_.push_back(taken->front());
    }
  }
  return true;
}

bool AheadStep::Place(const StepBatch& batch, absl::Span<const KvGroup> groups,
                      KvBlockPool& pool) {
  if (!Take(batch, groups, pool)) {
    Release(pool, [](RequestId) { return true; });
    Clear();
    return false;
  }
  for (size_t g = 0; g < num_groups_; ++g) {
    const int64_t block_size = groups[g].block_size;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      const int32_t block = held_[i * num_groups_ + g];
      slots_.push_back(int64_t{block} * block_size + row.position % block_size);
      AttentionSequence sequence;
      sequence.q_begin = static_cast<int32_t>(i);
      sequence.q_len = 1;
      sequence.kv_len = row.position + 1;
      sequences_.push_back(sequence);
      tables_.push_back(blocks_.size());
      blocks_.resize(blocks_.size() +
                     static_cast<size_t>(row.position / block_size) + 1);
      const auto table = absl::MakeSpan(blocks_).subspan(tables_.back());
      const KvReservation& reserved = ReservationOf(batch, row, g);
      reserved.CopyBlocksTo(table.first(
          std::min(table.size(), static_cast<size_t>(reserved.num_blocks()))));
      table.back() = block;
      if (groups[g].is_state)
        state_sources_.push_back(reserved.block(reserved.num_blocks() - 1));
    }
  }
  return true;
}

ForwardBatch AheadStep::View(KvBase kv_base) {
  for (size_t i = 0; i < sequences_.size(); ++i)
    sequences_[i].blocks = blocks_.data() + tables_[i];
  ForwardBatch batch;
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.slots = slots_;
  batch.sequences = sequences_;
  batch.num_groups = num_groups_;
  batch.state_sources = state_sources_;
  batch.logit_rows = logit_rows_;
  batch.kv_base = kv_base;
  return batch;
}

bool AheadStep::Match(const StepBatch& batch,
                      std::vector<int32_t>* rows) const {
  rows->clear();
  if (!batch.copies.empty() || batch.tokens.empty() ||
      batch.sample_options.size() != batch.tokens.size() ||
      batch.items.size() != batch.tokens.size())
    return false;
  size_t at = 0;  // both are in the scheduler's order
  for (size_t i = 0; i < batch.tokens.size(); ++i, ++at) {
    const RequestId id = batch.items[i].plan.id;
    while (at < rows_.size() && rows_[at].request != id) ++at;
    if (at == rows_.size() || batch.positions[i] != positions_[at] ||
        !SameOptions(batch.sample_options[i], sample_options_[at]))
      return false;
    if (!state_sources_.empty() && batch.state_sources[i] != state_sources_[at])
      return false;
    for (size_t g = 0; g < num_groups_; ++g) {
      if (batch.slots[g * batch.tokens.size() + i] !=
          slots_[g * rows_.size() + at])
        return false;
    }
    rows->push_back(static_cast<int32_t>(at));
  }
  return true;
}

void AheadStep::Clear() {
  INLAY_DCHECK(held_.empty());
  rows_.clear();
  sources_.clear();
  tokens_.clear();
  positions_.clear();
  slots_.clear();
  sequences_.clear();
  state_sources_.clear();
  tables_.clear();
  blocks_.clear();
  logit_rows_.clear();
  sample_options_.clear();
  logit_edits_.clear();
}

}  // namespace inlay
