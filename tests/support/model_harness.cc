#include "tests/support/model_harness.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "memory/status.h"

namespace inlay {
namespace {

// All ones is a NaN in f32, f16 and bf16: whatever is read before it was
// written shows.
constexpr std::byte kPoison{0xff};

}  // namespace

ModelHarness::ModelHarness(const Model& model, Device& device,
                           int64_t max_tokens)
    : model_(model), device_(device) {
  // Every sequence may leave its last blocks partly filled.
  int64_t num_blocks = 64;
  for (const KvGroup& group : model.kv_layout().groups())
    num_blocks += max_tokens / group.block_size + 64;
  kv_.assign(static_cast<size_t>(num_blocks) * model.kv_layout().block_bytes(),
             kPoison);
  free_blocks_.resize(static_cast<size_t>(num_blocks));
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
  // Neighbours in a sequence must not be neighbours in memory.
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), std::mt19937(7));
}

int ModelHarness::AddSequence(int64_t final_length) {
  sequences_.push_back(
      {0, final_length,
       std::vector<std::vector<int32_t>>(model_.kv_layout().num_groups())});
  return static_cast<int>(sequences_.size()) - 1;
}

absl::StatusOr<ModelHarness::Logits> ModelHarness::Forward(
    absl::Span<const Chunk> chunks, LayerObserver* observer) {
  if (stream_ == nullptr) {
    INLAY_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  }
  const absl::Span<const KvGroup> groups = model_.kv_layout().groups();
  std::vector<int32_t> tokens, positions, rows, final_lengths;
  std::vector<std::vector<int64_t>> slots(groups.size());
  std::vector<std::vector<AttentionSequence>> attention(groups.size());
  for (const Chunk& chunk : chunks) {
    Sequence& sequence = sequences_[static_cast<size_t>(chunk.sequence)];
    AttentionSequence entry;
    entry.q_begin = static_cast<int32_t>(tokens.size());
    entry.q_len = static_cast<int32_t>(chunk.tokens.size());
    for (const int32_t token : chunk.tokens) {
      const int64_t position = sequence.length++;
      for (size_t g = 0; g < groups.size(); ++g) {
        const int64_t block_size = groups[g].block_size;
        std::vector<int32_t>& blocks = sequence.blocks[g];
        if (position % block_size == 0) {
          if (free_blocks_.empty()) {
            return absl::ResourceExhaustedError("the harness is out of blocks");
          }
          blocks.push_back(free_blocks_.back());
          free_blocks_.pop_back();
        }
        slots[g].push_back(blocks.back() * block_size + position % block_size);
      }
      rows.push_back(static_cast<int32_t>(tokens.size()));
      tokens.push_back(token);
      positions.push_back(static_cast<int32_t>(position));
    }
    entry.kv_len = static_cast<int32_t>(sequence.length);
    for (size_t g = 0; g < groups.size(); ++g) {
      entry.blocks = sequence.blocks[g].data();
      attention[g].push_back(entry);
    }
    final_lengths.push_back(static_cast<int32_t>(sequence.final_length));
  }
  std::vector<int64_t> all_slots;
  std::vector<AttentionSequence> all_sequences;
  for (size_t g = 0; g < groups.size(); ++g) {
    all_slots.insert(all_slots.end(), slots[g].begin(), slots[g].end());
    all_sequences.insert(all_sequences.end(), attention[g].begin(),
                         attention[g].end());
  }
  const auto vocab = static_cast<size_t>(model_.info().vocab_size);
  std::vector<float> flat(tokens.size() * vocab);
  ForwardBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.slots = all_slots;
  batch.sequences = all_sequences;
  batch.num_groups = groups.size();
  batch.final_lengths = final_lengths;
  batch.logit_rows = rows;
  batch.kv_base = kv_.data();
  std::vector<float> hidden(tokens.size() *
                            static_cast<size_t>(model_.info().hidden_size));
  const auto count = static_cast<int64_t>(tokens.size());
  batch.hidden =
      MatrixView(hidden.data(), DType::kF32, count, model_.info().hidden_size);
  batch.observer = observer;
  workspace_.assign(model_.WorkspaceBytes(count, count), kPoison);
  INLAY_RETURN_IF_ERROR(
      model_.Forward(batch, absl::MakeSpan(workspace_), *stream_));
  INLAY_RETURN_IF_ERROR(model_.Logits(
      batch.hidden,
      MatrixView(flat.data(), DType::kF32, count, model_.info().vocab_size),
      absl::MakeSpan(workspace_), *stream_));
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  Logits logits;
  for (size_t i = 0; i < tokens.size(); ++i) {
    logits.emplace_back(flat.begin() + static_cast<ptrdiff_t>(i * vocab),
                        flat.begin() + static_cast<ptrdiff_t>((i + 1) * vocab));
  }
  return logits;
}

absl::StatusOr<ModelHarness::Logits> ModelHarness::Run(
    int sequence, absl::Span<const int32_t> tokens, int64_t chunk,
    LayerObserver* observer) {
  Logits all;
  while (!tokens.empty()) {
    const Chunk part{sequence, tokens.subspan(0, static_cast<size_t>(chunk))};
    INLAY_ASSIGN_OR_RETURN(Logits logits, Forward({part}, observer));
    for (std::vector<float>& row : logits) all.push_back(std::move(row));
    tokens.remove_prefix(part.tokens.size());
  }
  return all;
}

absl::StatusOr<std::vector<int32_t>> ModelHarness::Greedy(
    int sequence, std::vector<float> logits, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(
        std::max_element(logits.begin(), logits.end()) - logits.begin()));
    const Chunk chunk{sequence, absl::MakeConstSpan(&tokens.back(), 1)};
    INLAY_ASSIGN_OR_RETURN(Logits next, Forward({chunk}));
    logits = std::move(next.back());
  }
  return tokens;
}

}  // namespace inlay
