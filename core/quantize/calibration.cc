#include "core/quantize/calibration.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>

#include "core/model/load_model.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Whether layers read the keys and values of others.
bool SharesKv(const DecoderSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      const auto* attention = std::get_if<AttentionSpec>(&block.part);
      if (attention != nullptr && attention->kv_source >= 0) return true;
      const auto* latent = std::get_if<LatentAttentionSpec>(&block.part);
      if (latent != nullptr && latent->kv_source >= 0) return true;
    }
  }
  return false;
}

// Whether queries are made by experts, of whose inputs nothing is kept.
bool MixesHeads(const DecoderSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      if (std::holds_alternative<AttentionExpertsSpec>(block.part)) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<TokenSequences> CalibrationSequences(
    const Tokenizer& tokenizer, absl::Span<const std::string> texts,
    int64_t length, int64_t most) {
  TokenSequences sequences;
  int64_t total = 0;
  std::vector<int32_t> ids;
  for (const std::string& text : texts) {
    ids.clear();
    INLAY_RETURN_IF_ERROR(tokenizer.Encode(text, {}, &ids));
    const auto size = static_cast<int64_t>(ids.size());
    for (int64_t first = 0; first < size && total < most; first += length) {
      const int64_t count = std::min({length, size - first, most - total});
      if (count < 2) continue;
      sequences.emplace_back(ids.begin() + first, ids.begin() + first + count);
      total += count;
    }
  }
  if (total > 0) return sequences;
  return absl::InvalidArgumentError(FormattedString(
      "the %d texts of calibration give no sequence of 2 tokens, allowed: at "
      "least one",
      texts.size()));
}

Calibration::Calibration(const ModelFiles& files, Device& device,
                         Stream& stream, Progress progress)
    : files_(files),
      device_(device),
      stream_(stream),
      progress_(std::move(progress)) {}

absl::StatusOr<std::unique_ptr<Calibration>> Calibration::Create(
    const ModelFiles& files, TokenSequences sequences, Device& device,
    Stream& stream, Progress progress) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<Calibration> made(
      new Calibration(files, device, stream, std::move(progress)));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         DescribeDecoder(files, device));
  if (spec.shares_layers) {
    return absl::UnimplementedError(
        "calibration goes layer by layer, and this model's layers share their "
        "weights; allowed: methods without calibration");
  }
  if (MixesHeads(spec)) {
    return absl::UnimplementedError(
        "calibration does not know mixtures of attention heads, which this "
        "model has; allowed: methods without calibration");
  }
  ModelLoadOptions options;
  options.fused = false;
  options.input_observer = made.get();
  INLAY_ASSIGN_OR_RETURN(made->model_, LoadModel(files, device, options));
  INLAY_RETURN_IF_ERROR(made->CheckSequences(sequences));
  for (std::vector<int32_t>& tokens : sequences) {
    const auto size = static_cast<int64_t>(tokens.size());
    made->num_tokens_ += size;
    Sequence& sequence = made->sequences_.emplace_back();
    const ModelInfo& info = made->model_->info();
    INLAY_ASSIGN_OR_RETURN(sequence.hidden,
                           made->Values(size * info.stream_width));
    INLAY_ASSIGN_OR_RETURN(sequence.selection,
                           made->Values(size * info.shared_selection));
    INLAY_ASSIGN_OR_RETURN(sequence.first_values,
                           made->Values(size * info.first_values));
    sequence.tokens = std::move(tokens);
  }
  INLAY_RETURN_IF_ERROR(made->Allocate(SharesKv(spec)));
  return made;
}

absl::StatusOr<Buffer> Calibration::Values(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  INLAY_ASSIGN_OR_RETURN(Buffer values,
                         device_.Allocate(bytes, MemoryClass::kWorkspace));
  if (bytes > 0) std::memset(values.data(), 0, bytes);
  return values;
}

// A model of the same shape, a band of what it packs, and its workspace before
// this one's is gone.
uint64_t Calibration::advance_bytes() const {
  constexpr uint64_t kBand = uint64_t{17} << 20;
  const uint64_t weights =
      device_.memory_use().by_class[static_cast<size_t>(MemoryClass::kWeights)];
  return weights + std::min(weights, kBand) + 2 * workspace_.bytes();
}

absl::Status Calibration::CheckSequences(
    const TokenSequences& sequences) const {
  const ModelInfo& info = model_->info();
  if (sequences.empty()) {
    return absl::InvalidArgumentError(
        "calibration has 0 sequences, allowed: at least 1");
  }
  for (const std::vector<int32_t>& tokens : sequences) {
    const auto size = static_cast<int64_t>(tokens.size());
    if (size < 1 || size > info.max_positions) {
      return absl::InvalidArgumentError(FormattedString(
          "a sequence of calibration has %d tokens, allowed: 1 to %d", size,
          info.max_positions));
    }
    for (const int32_t token : tokens) {
      if (token >= 0 && token < info.vocab_size) continue;
      return absl::InvalidArgumentError(
          FormattedString("calibration has the token %d, allowed: 0 to %d",
                          token, info.vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Calibration::Allocate(bool keeps_kv) {
  const KvLayout& layout = model_->kv_layout();
  int32_t most = 0, next = 0;
  for (Sequence& sequence : sequences_) {
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    longest_ = std::max(longest_, size);
    if (!keeps_kv) next = 0;
    for (const KvGroup& group : layout.groups()) {
      std::vector<int32_t>& blocks = sequence.blocks.emplace_back();
      blocks.resize(static_cast<size_t>((size - 1) / group.block_size + 1));
      std::iota(blocks.begin(), blocks.end(), next);
      next += static_cast<int32_t>(blocks.size());
    }
    most = std::max(most, next);
  }
  INLAY_ASSIGN_OR_RETURN(
      kv_, device_.Allocate(static_cast<size_t>(most) * layout.block_bytes(),
                            MemoryClass::kWorkspace));
  INLAY_ASSIGN_OR_RETURN(
      workspace_, device_.Allocate(model_->WorkspaceBytes(longest_, 0, 1),
                                   MemoryClass::kWorkspace));
  INLAY_ASSIGN_OR_RETURN(scratch_,
                         Values(longest_ * model_->info().stream_width));
  INLAY_ASSIGN_OR_RETURN(output_,
                         Values(longest_ * model_->info().hidden_size));
  return absl::OkStatus();
}

absl::Status Calibration::Run(const Model& model, int layer, int count,
                              Sequence& sequence, float* hidden) {
  const auto size = static_cast<int64_t>(sequence.tokens.size());
  const auto length = static_cast<int32_t>(size);
  const auto hidden_size = model.info().hidden_size;
  std::vector<int32_t> positions(sequence.tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int64_t> slots;
  std::vector<AttentionSequence> entries;
  for (size_t g = 0; g < sequence.blocks.size(); ++g) {
    const int64_t block_size = model.kv_layout().groups()[g].block_size;
    for (int64_t position = 0; position < size; ++position) {
      const int32_t block =
          sequence.blocks[g][static_cast<size_t>(position / block_size)];
      slots.push_back(block * block_size + position % block_size);
    }
    entries.push_back({0, length, length, sequence.blocks[g].data()});
  }
  LayerRange range;
  range.first = layer;
  range.count = count;
  const auto stream_width = model.info().stream_width;
  range.hidden = FloatView(hidden, size, stream_width, stream_width);
  if (!sequence.selection.empty())
    range.selection = sequence.selection.as<int32_t>();
  if (!sequence.first_values.empty())
    range.first_values = sequence.first_values.as<std::byte>();
  ForwardBatch batch;
  batch.tokens = sequence.tokens;
  batch.positions = positions;
  batch.slots = slots;
  batch.sequences = entries;
  batch.num_groups = sequence.blocks.size();
  const int32_t no_state = -1;
  if (model.kv_layout().has_states()) {
    batch.state_sources = absl::MakeConstSpan(&no_state, 1);
  }
  batch.final_lengths = absl::MakeConstSpan(&length, 1);
  batch.kv_base = kv_.data();
  batch.layers = &range;
  if (layer + count == model.info().num_layers) {
    batch.logit_rows = positions;
    batch.hidden =
        FloatView(output_.as<float>(), size, hidden_size, hidden_size);
  }
  return model.Forward(
      batch, absl::MakeSpan(workspace_.data(), workspace_.bytes()), stream_);
}

absl::Status Calibration::Report() const {
  if (progress_ == nullptr || progress_()) return absl::OkStatus();
  return absl::CancelledError("cancelled by the progress callback");
}

void Calibration::OnInput(std::string_view layer, const TensorView& x) {
  if (hessians_ == nullptr || !observed_.ok()) return;
  const auto found = hessians_->find(layer);
  if (found != hessians_->end()) observed_ = found->second.Add(x, stream_);
}

absl::Status Calibration::Collect(int layer, bool advance, Hessians* hessians) {
  for (Sequence& sequence : sequences_) {
    auto* hidden = sequence.hidden.as<float>();
    if (!advance) {
      std::memcpy(scratch_.data(), hidden, sequence.hidden.bytes());
      hidden = scratch_.as<float>();
    }
    hessians_ = hessians;
    observed_ = absl::OkStatus();
    const absl::Status run = Run(*model_, layer, 1, sequence, hidden);
    hessians_ = nullptr;
    INLAY_RETURN_IF_ERROR(run);
    INLAY_RETURN_IF_ERROR(observed_);
    INLAY_RETURN_IF_ERROR(Report());
  }
  return absl::OkStatus();
}

absl::Status Calibration::CollectHead(std::string_view head,
                                      Hessians* hessians) {
  const auto found = hessians->find(head);
  if (found == hessians->end()) return absl::OkStatus();
  const int64_t width = model_->info().hidden_size;
  for (Sequence& sequence : sequences_) {
    INLAY_RETURN_IF_ERROR(
        Run(*model_, num_layers(), 0, sequence, sequence.hidden.as<float>()));
    INLAY_RETURN_IF_ERROR(found->second.Add(
        FloatView(output_.as<float>(),
                  static_cast<int64_t>(sequence.tokens.size()), width, width),
        stream_));
    INLAY_RETURN_IF_ERROR(Report());
  }
  return absl::OkStatus();
}

absl::Status Calibration::Advance(int layer,
                                  std::shared_ptr<const WeightSource> weights,
                                  ExpertLender* lender) {
  ModelFiles files = files_;
  files.weights = std::move(weights);
  ModelLoadOptions options;
  options.fused = false;
  options.expert_lender = lender;
  INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                         LoadModel(files, device_, options));
  const size_t bytes = model->WorkspaceBytes(longest_, 0, 1);
  if (bytes > workspace_.bytes()) {
    INLAY_ASSIGN_OR_RETURN(workspace_,
                           device_.Allocate(bytes, MemoryClass::kWorkspace));
  }
  for (Sequence& sequence : sequences_) {
    INLAY_RETURN_IF_ERROR(
        Run(*model, layer, 1, sequence, sequence.hidden.as<float>()));
    INLAY_RETURN_IF_ERROR(Report());
  }
  return absl::OkStatus();
}

}  // namespace inlay
