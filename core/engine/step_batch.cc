#include "core/engine/step_batch.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "core/engine/device_sampler.h"

namespace inlay {
namespace {

bool WantsLogits(const Request& request, int64_t position, bool samples,
                 int64_t prompt_last) {
  switch (request.options.logits) {
    case LogitsMode::kNone:
      return false;
    case LogitsMode::kLast:
      return position == prompt_last;
    case LogitsMode::kAll:
      return position <= prompt_last;
    case LogitsMode::kPositions:
      return std::binary_search(request.options.logits_positions.begin(),
                                request.options.logits_positions.end(),
                                position);
    case LogitsMode::kGenerated:
      return samples || position == prompt_last;
  }
  return false;
}

}  // namespace

LogitRow MakeLogitRow(const StepItem& item, const Request& request,
                      int64_t position) {
  const int64_t last = item.first_token + item.num_tokens - 1;
  LogitRow row;
  row.position = position;
  row.samples = item.samples && position == last && request.max_new_tokens > 0;
  const bool fresh = position >= request.delivered_end;
  row.emits = fresh && WantsLogits(request, position, row.samples,
                                   request.prompt_end - 1);
  // The token after `position` is scored from its logits.
  if (fresh && request.options.score_prompt &&
      position + 1 >= request.prompt_begin &&
      position + 1 < request.prompt_end) {
    row.scored = request.session->log[static_cast<size_t>(position + 1)];
  }
  row.classifies = fresh && request.options.classifies &&
                   !request.pooler.active() && position == 0;
  row.pools = fresh && request.pooler.Wants(position, request.prompt_end);
  return row;
}

void AddToBatch(const StepItem& item, Request& request,
                KvTablesReservation reservation, StepBatch& batch) {
  BatchItem entry;
  entry.plan = item;
  entry.request = &request;
  entry.first_row = static_cast<int32_t>(batch.rows.size());

  AttentionSequence sequence;
  sequence.q_begin = static_cast<int32_t>(batch.tokens.size());
  sequence.q_len = item.num_tokens;
  sequence.kv_len = static_cast<int32_t>(item.first_token + item.num_tokens);
  batch.sequences.push_back(sequence);
  batch.final_lengths.push_back(request.session->is_long
                                    ? std::numeric_limits<int32_t>::max()
                                    : sequence.kv_len);

  if (!request.options.token_types.empty()) {
    batch.segments.resize(batch.tokens.size(), 0);
    for (int32_t i = 0; i < item.num_tokens; ++i) {
      batch.segments.push_back(request.token_type(item.first_token + i));
    }
  }
  for (int32_t i = 0; i < item.num_tokens; ++i) {
    const int64_t position = item.first_token + i;
    LogitRow row = MakeLogitRow(item, request, position);
    if (row.needs_logits() || row.pools) {
      row.item = static_cast<int32_t>(batch.items.size());
      batch.logit_rows.push_back(static_cast<int32_t>(batch.tokens.size()));
      batch.rows.push_back(std::move(row));
    }
    batch.tokens.push_back(request.session->log[static_cast<size_t>(position)]);
    batch.positions.push_back(static_cast<int32_t>(position));
  }
  entry.last_row = static_cast<int32_t>(batch.rows.size());
  for (size_t g = 0; g < reservation.num_groups(); ++g) {
    const KvReservation& group = reservation.group(g);
    const std::optional<KvBlockCopy> copy = group.copy();
    if (copy.has_value()) batch.copies.push_back(*copy);
    if (group.is_state()) batch.state_sources.push_back(group.source());
  }
  batch.items.push_back(std::move(entry));
  batch.reservations.push_back(std::move(reservation));
}

void PlaceKv(absl::Span<const KvGroup> groups, StepBatch& batch) {
  batch.num_groups = groups.size();
  const size_t num_sequences = batch.sequences.size();
  batch.slots.reserve(groups.size() * batch.tokens.size());
  batch.sequences.reserve(groups.size() * num_sequences);
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t block_size = groups[g].block_size;
    for (size_t i = 0; i < num_sequences; ++i) {
      // A copy: the list grows below.
      const AttentionSequence sequence = batch.sequences[i];
      if (g > 0) batch.sequences.push_back(sequence);
      const KvReservation& reservation = batch.reservations[i].group(g);
      const size_t begin = batch.blocks.size();
      batch.blocks.resize(begin +
                          static_cast<size_t>(reservation.num_blocks()));
      const auto blocks = absl::MakeSpan(batch.blocks).subspan(begin);
      reservation.CopyBlocksTo(blocks);
      for (int64_t p = sequence.kv_len - sequence.q_len; p < sequence.kv_len;
           ++p) {
        const int64_t block = blocks[static_cast<size_t>(p / block_size)];
        batch.slots.push_back(block * block_size + p % block_size);
      }
    }
  }
}

void PrepareSampling(StepBatch& batch) {
  for (const LogitRow& row : batch.rows) {
    const Sampler& sampler =
        batch.items[static_cast<size_t>(row.item)].request->sampler;
    if (row.samples && !row.emits && row.scored < 0 &&
        sampler.params().num_logprobs < 0 &&
        batch.logit_edits.size() <= DeviceSampler::kMostEdits) {
      SampleOptions options = sampler.Options();
      options.first_edit = static_cast<int32_t>(batch.logit_edits.size());
      sampler.AppendEdits(batch.logit_edits);
      options.num_edits =
          static_cast<int32_t>(batch.logit_edits.size()) - options.first_edit;
      batch.sample_options.push_back(options);
    }
  }
  if (batch.sample_options.size() == batch.rows.size() &&
      batch.logit_edits.size() <= DeviceSampler::kMostEdits) {
    return;
  }
  batch.sample_options.clear();
  batch.logit_edits.clear();
}

ForwardBatch MakeForwardBatch(StepBatch& batch, KvBase kv_base) {
  // Only now do the block tables stand still in memory.
  const int32_t* blocks = batch.blocks.data();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const size_t count = batch.reservations.size();
    batch.sequences[i].blocks = blocks;
    blocks += batch.reservations[i % count].group(i / count).num_blocks();
  }
  ForwardBatch forward;
  forward.tokens = batch.tokens;
  forward.positions = batch.positions;
  if (!batch.segments.empty()) batch.segments.resize(batch.tokens.size(), 0);
  forward.segments = batch.segments;
  forward.slots = batch.slots;
  forward.sequences = batch.sequences;
  forward.num_groups = batch.num_groups;
  forward.final_lengths = batch.final_lengths;
  forward.state_sources = batch.state_sources;
  forward.logit_rows = batch.logit_rows;
  forward.kv_base = kv_base;
  return forward;
}

}  // namespace inlay
