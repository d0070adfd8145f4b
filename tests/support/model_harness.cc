#include "tests/support/model_harness.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "memory/formatted_string.h"
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
  num_blocks_ = 64;
  for (const KvGroup& group : model.kv_layout().groups())
    num_blocks_ += max_tokens / group.block_size + 64;
  free_blocks_.resize(static_cast<size_t>(num_blocks_));
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

absl::Status ModelHarness::Start() {
  if (stream_ != nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  INLAY_ASSIGN_OR_RETURN(kv_, Poisoned(static_cast<size_t>(num_blocks_) *
                                       model_.kv_layout().block_bytes()));
  return model_.Prepare(*stream_);
}

absl::StatusOr<Buffer> ModelHarness::Poisoned(size_t bytes) {
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_.Allocate(bytes, MemoryClass::kWorkspace));
  const std::vector<std::byte> poison(bytes, kPoison);
  INLAY_RETURN_IF_ERROR(
      device_.Copy(buffer.data(), poison.data(), bytes, *stream_));
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  return buffer;
}

absl::StatusOr<int32_t> ModelHarness::TakeBlock() {
  if (free_blocks_.empty()) {
    return absl::ResourceExhaustedError("the harness is out of blocks");
  }
  const int32_t block = free_blocks_.back();
  free_blocks_.pop_back();
  return block;
}

absl::Status ModelHarness::LeaveState(Sequence& sequence, Arrays& arrays) {
  const KvLayout& layout = model_.kv_layout();
  if (!layout.has_states()) return absl::OkStatus();
  std::vector<int32_t>& blocks = sequence.blocks[layout.state_group()];
  arrays.state_sources.push_back(blocks.empty() ? -1 : blocks.back());
  if (sequence.length % layout.groups().back().block_size == 0) {
    return absl::OkStatus();
  }
  const int32_t left = blocks.back();
  INLAY_ASSIGN_OR_RETURN(blocks.back(), TakeBlock());
  // Not soon again: others of this step must not write it.
  free_blocks_.insert(free_blocks_.begin(), left);
  return absl::OkStatus();
}

absl::Status ModelHarness::AddChunk(const Chunk& chunk, Arrays& arrays) {
  const absl::Span<const KvGroup> groups = model_.kv_layout().groups();
  Sequence& sequence = sequences_[static_cast<size_t>(chunk.sequence)];
  AttentionSequence entry;
  entry.q_begin = static_cast<int32_t>(arrays.tokens.size());
  entry.q_len = static_cast<int32_t>(chunk.tokens.size());
  INLAY_RETURN_IF_ERROR(LeaveState(sequence, arrays));
  auto left = static_cast<int64_t>(chunk.tokens.size());
  for (const int32_t token : chunk.tokens) {
    if (token < 0 || token >= model_.info().vocab_size) {
      return absl::InvalidArgumentError(FormattedString(
          "token %d, allowed: below %d", token, model_.info().vocab_size));
    }
    const int64_t position = sequence.length++;
    for (size_t g = 0; g < groups.size(); ++g) {
      const int64_t block_size = groups[g].block_size;
      std::vector<int32_t>& blocks = sequence.blocks[g];
      if (position % block_size == 0) {
        INLAY_ASSIGN_OR_RETURN(blocks.emplace_back(), TakeBlock());
      }
      arrays.slots[g].push_back(blocks.back() * block_size +
                                position % block_size);
    }
    if (chunk.logits < 0 || left <= chunk.logits) {
      arrays.rows.push_back(static_cast<int32_t>(arrays.tokens.size()));
    }
    --left;
    arrays.tokens.push_back(token);
    arrays.positions.push_back(static_cast<int32_t>(position));
  }
  entry.kv_len = static_cast<int32_t>(sequence.length);
  for (size_t g = 0; g < groups.size(); ++g) {
    entry.blocks = sequence.blocks[g].data();
    arrays.num_blocks += static_cast<int64_t>(sequence.blocks[g].size());
    arrays.attention[g].push_back(entry);
  }
  arrays.final_lengths.push_back(static_cast<int32_t>(sequence.final_length));
  return absl::OkStatus();
}

absl::Status ModelHarness::MakeExchange() {
  const size_t bytes = model_.ExchangeBytes();
  if (bytes == exchange_.bytes()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(exchange_,
                         device_.Allocate(bytes, MemoryClass::kWorkspace));
  const std::vector<std::byte> zeros(bytes);
  INLAY_RETURN_IF_ERROR(
      device_.Copy(exchange_.data(), zeros.data(), bytes, *stream_));
  return stream_->Synchronize();
}

absl::Status ModelHarness::Upload(const Arrays& arrays, ForwardBatch& batch) {
  BatchLimits limits;
  limits.tokens = static_cast<int64_t>(arrays.tokens.size());
  limits.sequences = static_cast<int64_t>(arrays.attention[0].size());
  limits.blocks = arrays.num_blocks;
  for (const AttentionSequence& sequence : arrays.attention[0]) {
    limits.longest = std::max<int64_t>(limits.longest, sequence.kv_len);
  }
  const size_t bytes = model_.BatchImageBytes(limits);
  if (bytes == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const Buffer staging, device_.AllocateStaging(bytes));
  INLAY_ASSIGN_OR_RETURN(image_, Poisoned(bytes));
  INLAY_ASSIGN_OR_RETURN(
      device_batch_,
      model_.PackBatch(batch, limits, staging.data(), image_.data()));
  INLAY_RETURN_IF_ERROR(MakeExchange());
  device_batch_.exchange = exchange_.data();
  batch.device = &device_batch_;
  INLAY_RETURN_IF_ERROR(device_.Copy(image_.data(), staging.data(),
                                     device_batch_.used_bytes, *stream_));
  return stream_->Synchronize();
}

absl::StatusOr<ModelHarness::Logits> ModelHarness::Forward(
    absl::Span<const Chunk> chunks, LayerObserver* observer) {
  INLAY_RETURN_IF_ERROR(Start());
  const size_t num_groups = model_.kv_layout().num_groups();
  Arrays arrays;
  arrays.slots.resize(num_groups);
  arrays.attention.resize(num_groups);
  for (const Chunk& chunk : chunks) {
    INLAY_RETURN_IF_ERROR(AddChunk(chunk, arrays));
  }
  std::vector<int64_t> slots;
  std::vector<AttentionSequence> attention;
  for (size_t g = 0; g < num_groups; ++g) {
    slots.insert(slots.end(), arrays.slots[g].begin(), arrays.slots[g].end());
    attention.insert(attention.end(), arrays.attention[g].begin(),
                     arrays.attention[g].end());
  }
  ForwardBatch batch;
  batch.tokens = arrays.tokens;
  batch.positions = arrays.positions;
  batch.slots = slots;
  batch.sequences = attention;
  batch.num_groups = num_groups;
  batch.state_sources = arrays.state_sources;
  batch.final_lengths = arrays.final_lengths;
  batch.logit_rows = arrays.rows;
  batch.kv_base = kv_.data();
  batch.observer = observer;
  INLAY_RETURN_IF_ERROR(Upload(arrays, batch));
  return Run(arrays, batch);
}

absl::StatusOr<ModelHarness::Logits> ModelHarness::Run(const Arrays& arrays,
                                                       ForwardBatch& batch) {
  const ModelInfo& info = model_.info();
  const auto vocab = static_cast<size_t>(info.vocab_size);
  const auto count = static_cast<int64_t>(arrays.rows.size());
  TensorView hidden =
      MatrixView(nullptr, info.hidden_dtype, count, info.hidden_size);
  TensorView out = MatrixView(nullptr, DType::kF32, count, info.vocab_size);
  INLAY_ASSIGN_OR_RETURN(const Buffer hidden_memory, Poisoned(hidden.bytes()));
  INLAY_ASSIGN_OR_RETURN(const Buffer logit_memory, Poisoned(out.bytes()));
  INLAY_ASSIGN_OR_RETURN(
      const Buffer workspace,
      Poisoned(model_.WorkspaceBytes(
          static_cast<int64_t>(arrays.tokens.size()), count,
          static_cast<int64_t>(arrays.attention[0].size()))));
  const auto scratch = absl::MakeSpan(workspace.data(), workspace.bytes());
  hidden.data = hidden_memory.data();
  out.data = logit_memory.data();
  batch.hidden = hidden;
  INLAY_RETURN_IF_ERROR(model_.Forward(batch, scratch, *stream_));
  if (info.is_encoder) return States(hidden);
  if (count > 0) {
    INLAY_RETURN_IF_ERROR(model_.Logits(hidden, out, scratch, *stream_));
  }
  std::vector<float> flat(arrays.rows.size() * vocab);
  INLAY_RETURN_IF_ERROR(
      device_.Copy(flat.data(), out.data, out.bytes(), *stream_));
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  Logits logits;
  for (size_t i = 0; i < arrays.rows.size(); ++i) {
    logits.emplace_back(flat.begin() + static_cast<ptrdiff_t>(i * vocab),
                        flat.begin() + static_cast<ptrdiff_t>((i + 1) * vocab));
  }
  return logits;
}

absl::StatusOr<ModelHarness::Logits> ModelHarness::States(
    const TensorView& hidden) {
  std::vector<std::byte> stored(hidden.bytes());
  INLAY_RETURN_IF_ERROR(
      device_.Copy(stored.data(), hidden.data, stored.size(), *stream_));
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  const auto width = static_cast<size_t>(hidden.cols());
  Logits states(static_cast<size_t>(hidden.rows()), std::vector<float>(width));
  for (size_t i = 0; i < states.size(); ++i) {
    for (size_t d = 0; d < width; ++d) {
      float& value = states[i][d];
      const size_t at = i * width + d;
      if (hidden.dtype == DType::kF32) {
        std::memcpy(&value, &stored[at * sizeof(value)], sizeof(value));
        continue;
      }
      uint16_t bits;
      std::memcpy(&bits, &stored[at * sizeof(bits)], sizeof(bits));
      value = hidden.dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
    }
  }
  return states;
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
