#include "core/engine/executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Logits that are in memory at once where they are sampled: mostly of all rows,
// so that the output layer's weights are read once a step.
constexpr int64_t kMostSampledRows = 128;

// Sizes that steps are recorded for: what is computed for nobody stays below a
// quarter, or costs nothing since weights have to be read once for all.
int64_t RoundedUpTokens(int64_t tokens) {
  int64_t size = 1;
  while (size < tokens && size < 8) size *= 2;
  while (size < tokens) {
    int64_t step = 8;
    while (step * 8 < size) step *= 2;
    size += step;
  }
  return size;
}

// What the sampler adds to an image of `rows` rows.
size_t OptionsBytes(int64_t rows) {
  constexpr size_t kPart = 64;
  return (DeviceSampler::ImageBytes(rows) + kPart - 1) / kPart * kPart;
}

// Doubling, so that a growing sequence is recorded anew seldom.
int64_t RoundedUpBlocks(int64_t tokens, int64_t blocks) {
  int64_t size = 16 * tokens;
  while (size < blocks) size *= 2;
  return size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    Device* device, const Model* model, ThreadPool* pool,
    const Limits& limits) {
  auto executor = absl::WrapUnique(new Executor(device, model, limits));
  INLAY_ASSIGN_OR_RETURN(executor->stream_, device->CreateStream());
  executor->pool_ = executor->stream_->thread_pool();
  if (executor->pool_ == nullptr) executor->pool_ = pool;
  INLAY_RETURN_IF_ERROR(executor->Allocate());
  INLAY_RETURN_IF_ERROR(model->Prepare(*executor->stream_));
  return executor;
}

Executor::~Executor() {
  if (stream_ != nullptr) stream_->Synchronize().IgnoreError();
}

absl::Status Executor::Allocate() {
  const ModelInfo& info = model_->info();
  if (info.is_encoder || info.is_headless) {
    logit_rows_ = head_width() > 0 ? kLogitSlice : 0;
  } else {
    INLAY_ASSIGN_OR_RETURN(
        sampler_,
        DeviceSampler::Create(device_, info.vocab_size, limits_.sequences));
  }
  if (sampler_ != nullptr) {
    logit_rows_ =
        std::max(kLogitSlice, std::min(limits_.sequences, kMostSampledRows));
    options_room_ = OptionsBytes(limits_.sequences);
    for (Turn& turn : turns_) {
      INLAY_ASSIGN_OR_RETURN(turn.sampled, device_->CreateEvent());
    }
  }
  const size_t workspace =
      model_->WorkspaceBytes(limits_.tokens, logit_rows_, limits_.sequences);
  INLAY_ASSIGN_OR_RETURN(workspace_,
                         device_->Allocate(workspace, MemoryClass::kWorkspace));
  hidden_ =
      MatrixView(nullptr, info.hidden_dtype, limits_.tokens, info.hidden_size);
  INLAY_ASSIGN_OR_RETURN(
      hidden_memory_,
      device_->Allocate(hidden_.bytes(), MemoryClass::kWorkspace));
  hidden_.data = hidden_memory_.data();
  if (logit_rows_ > 0) {
    INLAY_ASSIGN_OR_RETURN(
        logits_, device_->Allocate(HeadRows(logit_rows_, head_width()).bytes(),
                                   MemoryClass::kWorkspace));
  }
  if (device_->host_addressable()) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(AllocateExchange());
  if (logit_rows_ > 0) {
    INLAY_ASSIGN_OR_RETURN(
        host_logits_,
        device_->AllocateStaging(HeadRows(kLogitSlice, head_width()).bytes()));
  }
  BatchLimits most;
  most.tokens = limits_.tokens;
  most.sequences = limits_.sequences;
  // Steps at fixed addresses have up to twice what they need.
  most.blocks = 2 * limits_.blocks;
  most.longest = info.max_positions;
  return ReserveImage(options_room_ + model_->BatchImageBytes(most));
}

absl::Status Executor::AllocateExchange() {
  const size_t bytes = model_->ExchangeBytes();
  if (bytes == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(exchange_,
                         device_->Allocate(bytes, MemoryClass::kWorkspace));
  const std::vector<std::byte> zeros(bytes);
  INLAY_RETURN_IF_ERROR(
      device_->Copy(exchange_.data(), zeros.data(), bytes, *stream_));
  return stream_->Synchronize();
}

absl::Status Executor::ReserveImage(size_t bytes) {
  if (bytes <= image_.bytes()) return absl::OkStatus();
  bytes = std::max(bytes, 2 * image_.bytes());
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  DropGraphs();
  for (Turn& turn : turns_) turn.staging = Buffer();
  image_ = Buffer();
  for (Turn& turn : turns_) {
    INLAY_ASSIGN_OR_RETURN(turn.staging, device_->AllocateStaging(bytes));
  }
  INLAY_ASSIGN_OR_RETURN(image_,
                         device_->Allocate(bytes, MemoryClass::kWorkspace));
  return absl::OkStatus();
}

// The turn's staging memory is free: no step returns before its pass is over.
absl::Status Executor::Upload(ForwardBatch& batch, const BatchLimits& limits,
                              const SampleBatch* sampling, int64_t rows,
                              int turn) {
  INLAY_RETURN_IF_ERROR(
      ReserveImage(options_room_ + model_->BatchImageBytes(limits)));
  std::byte* const staging = turns_[static_cast<size_t>(turn)].staging.data();
  INLAY_ASSIGN_OR_RETURN(
      device_batch_, model_->PackBatch(batch, limits, staging + options_room_,
                                       image_.data() + options_room_));
  device_batch_.exchange = exchange_.data();
  batch.device = &device_batch_;
  size_t begin = options_room_;
  if (sampling != nullptr) {
    begin -= OptionsBytes(rows);
    INLAY_RETURN_IF_ERROR(sampler_->Pack(*sampling, rows, turn, staging + begin,
                                         image_.data() + begin, *stream_));
  }
  return device_->Copy(image_.data() + begin, staging + begin,
                       options_room_ - begin + device_batch_.used_bytes,
                       *stream_);
}

absl::Status Executor::Compute(const ForwardBatch& batch) {
  return model_->Forward(
      batch, absl::MakeSpan(workspace_.data(), workspace_.bytes()), *stream_);
}

// One token of each sequence, and the logits of all.
bool Executor::IsDecode(const ForwardBatch& batch) const {
  return model_->CanBeFixed() && !model_->info().is_encoder &&
         !model_->info().is_headless && batch.tokens.size() <= kMostFixed &&
         batch.logit_rows.size() == batch.tokens.size() &&
         batch.SequencesOf(0).size() == batch.tokens.size();
}

absl::Status Executor::Forward(ForwardBatch batch, int64_t num_blocks,
                               const SampleBatch* sampling) {
  logits_queued_ = false;
  turn_ = NextTurn();
  if (IsDecode(batch))
    return ForwardFixed(batch, num_blocks, sampling, turn_, {});
  const auto rows = static_cast<int64_t>(batch.logit_rows.size());
  if (!device_->host_addressable()) {
    BatchLimits limits;
    limits.tokens = static_cast<int64_t>(batch.tokens.size());
    limits.sequences = static_cast<int64_t>(batch.SequencesOf(0).size());
    limits.blocks = num_blocks;
    for (const AttentionSequence& sequence : batch.SequencesOf(0)) {
      limits.longest = std::max<int64_t>(limits.longest, sequence.kv_len);
    }
    INLAY_RETURN_IF_ERROR(Upload(batch, limits, sampling, rows, turn_));
  }
  batch.hidden = hidden_.RowSlice(0, rows);
  INLAY_RETURN_IF_ERROR(Compute(batch));
  if (sampling != nullptr) {
    INLAY_RETURN_IF_ERROR(QueueSampling(rows));
    return QueueTokens(rows, turn_);
  }
  // A step without logits has nothing else to wait for.
  return batch.logit_rows.empty() ? stream_->Synchronize() : absl::OkStatus();
}

absl::Status Executor::ForwardAhead(ForwardBatch batch, int64_t num_blocks,
                                    const SampleBatch& sampling,
                                    absl::Span<const int32_t> sources) {
  INLAY_DCHECK(CanGoAhead() && IsDecode(batch) &&
               sources.size() == batch.tokens.size());
  return ForwardFixed(batch, num_blocks, &sampling, NextTurn(), sources);
}

absl::Status Executor::ForwardFixed(ForwardBatch& batch, int64_t num_blocks,
                                    const SampleBatch* sampling, int turn,
                                    absl::Span<const int32_t> sources) {
  BatchLimits limits;
  limits.tokens = limits.sequences =
      std::min(RoundedUpTokens(static_cast<int64_t>(batch.tokens.size())),
               std::min(limits_.tokens, limits_.sequences));
  limits.blocks = RoundedUpBlocks(limits.tokens, num_blocks);
  limits.fixed = true;
  INLAY_RETURN_IF_ERROR(Upload(batch, limits, sampling, limits.tokens, turn));
  batch.hidden = hidden_.RowSlice(0, limits.tokens);
  const bool samples = sampling != nullptr;
  if (!sources.empty()) {
    const auto at =
        reinterpret_cast<const std::byte*>(device_batch_.ids) - image_.data();
    INLAY_RETURN_IF_ERROR(sampler_->Gather(
        sources, reinterpret_cast<int32_t*>(image_.data() + at), *stream_));
  }
  INLAY_RETURN_IF_ERROR(Launch(batch, limits, samples));
  return samples ? QueueTokens(limits.tokens, turn) : absl::OkStatus();
}

absl::Status Executor::Launch(const ForwardBatch& batch,
                              const BatchLimits& limits, bool samples) {
  logits_queued_ = !samples && limits.tokens <= kLogitSlice;
  const auto queue = [&]() -> absl::Status {
    INLAY_RETURN_IF_ERROR(Compute(batch));
    if (samples) return QueueSampling(limits.tokens);
    return logits_queued_ ? QueueLogits(0, limits.tokens) : absl::OkStatus();
  };
  uint64_t plans = 0;
  for (const AttentionPlan& plan : device_batch_.plans) {
    plans = plans << 2 | (plan.shares ? 1 : 0) | (plan.few ? 2 : 0);
  }
  Recorded& recorded = graphs_[{limits.tokens, limits.blocks, samples, plans}];
  if (recorded.graph == nullptr && recorded.warm && !recorded.refused) {
    INLAY_RETURN_IF_ERROR(stream_->BeginGraph());
    // Should the host's memory run out meanwhile.
    auto end = absl::MakeCleanup(
        [this] { stream_->EndGraph().status().IgnoreError(); });
    const absl::Status queued = queue();
    std::move(end).Cancel();
    auto graph = stream_->EndGraph();
    INLAY_RETURN_IF_ERROR(queued);
    // Without room for it the step runs as it is.
    recorded.refused = !graph.ok();
    if (graph.ok()) recorded.graph = *std::move(graph);
  }
  recorded.warm = true;
  return recorded.graph == nullptr ? queue() : stream_->Launch(*recorded.graph);
}

absl::Status Executor::ComputeLogits(int64_t begin, const TensorView& logits) {
  return model_->Logits(hidden_.RowSlice(begin, logits.rows()), logits,
                        absl::MakeSpan(workspace_.data(), workspace_.bytes()),
                        *stream_);
}

absl::Status Executor::QueueLogits(int64_t begin, int64_t count) {
  const TensorView logits = LogitRows(count);
  INLAY_RETURN_IF_ERROR(ComputeLogits(begin, logits));
  if (host_logits_.empty()) return absl::OkStatus();
  return device_->Copy(host_logits_.data(), logits_.data(), logits.bytes(),
                       *stream_);
}

absl::Status Executor::QueueSampling(int64_t count) {
  for (int64_t begin = 0; begin < count; begin += logit_rows_) {
    const TensorView logits = LogitRows(std::min(logit_rows_, count - begin));
    INLAY_RETURN_IF_ERROR(ComputeLogits(begin, logits));
    INLAY_RETURN_IF_ERROR(sampler_->Sample(logits, begin, *stream_));
  }
  return absl::OkStatus();
}

// Not part of a graph: turns take turns.
absl::Status Executor::QueueTokens(int64_t count, int turn) {
  INLAY_RETURN_IF_ERROR(sampler_->Fetch(count, turn, *stream_));
  return stream_->Record(*turns_[static_cast<size_t>(turn)].sampled);
}

absl::StatusOr<const int32_t*> Executor::Tokens() {
  INLAY_RETURN_IF_ERROR(
      turns_[static_cast<size_t>(turn_)].sampled->Synchronize());
  return sampler_->tokens(turn_);
}

absl::Status Executor::Hidden(int64_t begin, int64_t count,
                              std::vector<float>* rows) {
  const TensorView view = hidden_.RowSlice(begin, count);
  const std::byte* states = view.data;
  std::vector<std::byte> staging;
  if (!device_->host_addressable()) {
    staging.resize(view.bytes());
    INLAY_RETURN_IF_ERROR(
        device_->Copy(staging.data(), view.data, staging.size(), *stream_));
    states = staging.data();
  }
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  const auto elements = static_cast<size_t>(view.elements());
  rows->reserve(rows->size() + elements);
  for (size_t i = 0; i < elements; ++i) {
    if (view.dtype == DType::kF32) {
      rows->push_back(reinterpret_cast<const float*>(states)[i]);
      continue;
    }
    const uint16_t bits = reinterpret_cast<const uint16_t*>(states)[i];
    rows->push_back(view.dtype == DType::kBF16 ? BF16ToF32(bits)
                                               : F16ToF32(bits));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> Executor::OfPooled(
    PooledHead head, absl::Span<const float> rows) {
  const ModelInfo& info = model_->info();
  const auto count = static_cast<int64_t>(rows.size()) /
                     std::max<int64_t>(1, info.hidden_size);
  const bool embeds = head == PooledHead::kEmbedding;
  const TensorView input = hidden_.RowSlice(0, count);
  const TensorView output =
      HeadRows(count, embeds ? info.pooled_width : info.logit_width());
  std::vector<uint16_t> rounded;
  const void* states = rows.data();
  if (input.dtype != DType::kF32) {
    rounded.reserve(rows.size());
    for (const float value : rows) {
      rounded.push_back(input.dtype == DType::kBF16 ? F32ToBF16(value)
                                                    : F32ToF16(value));
    }
    states = rounded.data();
  }
  const auto workspace = absl::MakeSpan(workspace_.data(), workspace_.bytes());
  INLAY_RETURN_IF_ERROR(
      device_->Copy(input.data, states, input.bytes(), *stream_));
  INLAY_RETURN_IF_ERROR(
      embeds ? model_->Pooled(input, output, workspace, *stream_)
             : model_->Logits(input, output, workspace, *stream_));
  if (!host_logits_.empty()) {
    INLAY_RETURN_IF_ERROR(device_->Copy(host_logits_.data(), logits_.data(),
                                        output.bytes(), *stream_));
  }
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  const Buffer& out = host_logits_.empty() ? logits_ : host_logits_;
  return absl::MakeConstSpan(out.as<float>(),
                             static_cast<size_t>(output.elements()));
}

absl::StatusOr<float*> Executor::Logits(int64_t begin, int64_t count) {
  if (!logits_queued_) INLAY_RETURN_IF_ERROR(QueueLogits(begin, count));
  INLAY_RETURN_IF_ERROR(stream_->Synchronize());
  const Buffer& logits = host_logits_.empty() ? logits_ : host_logits_;
  return logits.as<float>();
}

}  // namespace inlay
