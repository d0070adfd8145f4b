#include "core/model/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/model/layers/attention_block.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/mlp.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/rope_tables.h"
#include "core/model/layers/step.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Block {
  Norm pre_norm;
  Norm post_norm;
  std::unique_ptr<Sublayer> part;
};

class Decoder : public Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Build(const DecoderSpec& spec,
                                                      ModelBuild& build);

  const ModelInfo& info() const override { return info_; }
  const KvLayout& kv_layout() const override { return kv_layout_; }
  size_t WorkspaceBytes(int64_t max_tokens,
                        int64_t max_logit_rows) const override;
  absl::Status Forward(const ForwardBatch& batch,
                       absl::Span<std::byte> workspace,
                       Stream& stream) const override;
  absl::Status Logits(TensorView hidden, TensorView logits,
                      absl::Span<std::byte> workspace,
                      Stream& stream) const override;

 private:
  struct Workspace {
    TensorView hidden;  // the residual stream
    TensorView branch;  // a block's input after its norm
    TensorView output;  // a block's output before its post-norm
    absl::Span<RopeAngles> angles;
    std::byte* scratch = nullptr;
    std::byte* kernel = nullptr;
  };

  Workspace Place(Arena& arena, int64_t tokens) const;
  absl::Status BuildLayers(const DecoderSpec& spec, ModelBuild& build);
  absl::Status BuildEnds(const DecoderSpec& spec, ModelBuild& build);
  void DescribeLayout(const DecoderSpec& spec, const ModelBuild& build);
  absl::Status Embed(const ForwardBatch& batch, const TensorView& hidden,
                     Stream& stream) const;
  absl::Status ForwardBlock(const Block& block, const Step& step,
                            const Workspace& space) const;
  absl::Status SelectRows(const ForwardBatch& batch, const TensorView& hidden,
                          Stream& stream) const;

  ModelInfo info_;
  KvLayout kv_layout_;
  WeightStorage storage_;
  TensorView embedding_;
  TensorView position_embedding_;  // may be empty
  float embedding_scale_ = 1.0f;
  float final_softcap_ = 0.0f;
  bool has_post_norms_ = false;
  RopeTables ropes_;
  std::vector<std::vector<Block>> layers_;
  Norm final_norm_;
  Linear head_;
  Op<EmbeddingDesc, EmbeddingParams> embed_;
  Op<EmbeddingDesc, EmbeddingParams> embed_positions_;
  Op<EmbeddingDesc, EmbeddingParams> select_rows_;
  Op<ElementwiseDesc, ElementwiseParams> add_;
  Op<ElementwiseDesc, ElementwiseParams> softcap_;
};

// The first aligned byte of a caller's scratch that has at least `needed`
// bytes.
absl::StatusOr<std::byte*> AlignScratch(absl::Span<std::byte> workspace,
                                        size_t needed) {
  if (workspace.size() < needed) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the workspace has %d bytes, this call needs %d",
                        workspace.size(), needed));
  }
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  return workspace.data() + (-address) % kScratchAlignment;
}

void Decoder::DescribeLayout(const DecoderSpec& spec, const ModelBuild& build) {
  info_.architecture = build.architecture;
  info_.model_type = build.model_type;
  info_.vocab_size = spec.vocab_size;
  info_.hidden_size = spec.hidden_size;
  info_.num_layers = static_cast<int>(spec.layers.size());
  info_.max_positions = spec.max_positions;
  for (const LayerSpec& layer : spec.layers) {
    for (const BlockSpec& block : layer.blocks) {
      if (const auto* attention = std::get_if<AttentionSpec>(&block.part)) {
        info_.kv_layers.push_back(
            {attention->num_kv_heads, attention->head_dim});
      }
    }
  }
  kv_layout_ = KvLayout(info_.kv_layers, build.kv_dtype, build.kv_block_size);
  ropes_ = RopeTables(spec.ropes);
  info_.rope_threshold = ropes_.threshold();
}

absl::Status Decoder::BuildLayers(const DecoderSpec& spec, ModelBuild& build) {
  int kv_layer = 0;
  for (const LayerSpec& layer : spec.layers) {
    std::vector<Block>& blocks = layers_.emplace_back();
    for (const BlockSpec& block_spec : layer.blocks) {
      Block& block = blocks.emplace_back();
      INLAY_ASSIGN_OR_RETURN(
          block.pre_norm,
          Norm::Create(block_spec.pre_norm, spec.hidden_size, build));
      INLAY_ASSIGN_OR_RETURN(
          block.post_norm,
          Norm::Create(block_spec.post_norm, spec.hidden_size, build));
      has_post_norms_ |= block.post_norm.present();
      if (const auto* part = std::get_if<AttentionSpec>(&block_spec.part)) {
        const int rotary_dim =
            part->rope < 0
                ? 0
                : spec.ropes[static_cast<size_t>(part->rope)].rotary_dim;
        INLAY_ASSIGN_OR_RETURN(
            block.part, AttentionBlock::Create(
                            *part, kv_layout_.LayerView(kv_layer++, nullptr),
                            rotary_dim, build));
      } else {
        INLAY_ASSIGN_OR_RETURN(
            block.part, Mlp::Create(std::get<MlpSpec>(block_spec.part), build));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Decoder::BuildEnds(const DecoderSpec& spec, ModelBuild& build) {
  const auto choose = [&](const TensorView& table) {
    EmbeddingDesc desc;
    desc.width = spec.hidden_size;
    desc.table = table.dtype;
    return build.kernels.Choose("embedding", EmbeddingTable(), desc);
  };
  embedding_scale_ = spec.embedding_scale;
  INLAY_ASSIGN_OR_RETURN(
      embedding_,
      build.weights.Matrix(spec.embedding, spec.vocab_size, spec.hidden_size));
  INLAY_ASSIGN_OR_RETURN(embed_, choose(embedding_));
  INLAY_ASSIGN_OR_RETURN(select_rows_, choose(TensorView()));
  // Tables that a decode step reads a row of, not the whole.
  size_t sparse_bytes = 0;
  if (!spec.position_embedding.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        position_embedding_,
        build.weights.Matrix(spec.position_embedding, spec.max_positions,
                             spec.hidden_size));
    INLAY_ASSIGN_OR_RETURN(embed_positions_, choose(position_embedding_));
    sparse_bytes += position_embedding_.bytes();
  }
  INLAY_ASSIGN_OR_RETURN(
      final_norm_, Norm::Create(spec.final_norm, spec.hidden_size, build));
  TensorView head = embedding_;
  if (!spec.head.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        head,
        build.weights.Matrix(spec.head, spec.vocab_size, spec.hidden_size));
    sparse_bytes += embedding_.bytes();
  }
  INLAY_ASSIGN_OR_RETURN(head_, Linear::Over(head, build));

  ElementwiseDesc elementwise;
  elementwise.width = spec.hidden_size;
  INLAY_ASSIGN_OR_RETURN(
      add_,
      build.kernels.Choose("elementwise", ElementwiseTable(), elementwise));
  final_softcap_ = spec.final_softcap;
  elementwise.function = Elementwise::kSoftcap;
  elementwise.width = spec.vocab_size;
  INLAY_ASSIGN_OR_RETURN(
      softcap_,
      build.kernels.Choose("elementwise", ElementwiseTable(), elementwise));
  info_.num_parameters = build.weights.num_parameters();
  info_.weight_bytes = build.weights.bytes();
  info_.weight_bytes_per_token = info_.weight_bytes - sparse_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> Decoder::Build(const DecoderSpec& spec,
                                                      ModelBuild& build) {
  auto decoder = std::make_unique<Decoder>();
  build.weights.set_optional_prefix(spec.optional_prefix);
  decoder->DescribeLayout(spec, build);
  INLAY_RETURN_IF_ERROR(decoder->BuildLayers(spec, build));
  INLAY_RETURN_IF_ERROR(decoder->BuildEnds(spec, build));
  decoder->storage_ = build.weights.TakeStorage();
  return std::unique_ptr<Model>(std::move(decoder));
}

Decoder::Workspace Decoder::Place(Arena& arena, int64_t tokens) const {
  Workspace space;
  space.hidden = arena.TakeMatrix(tokens, info_.hidden_size);
  space.branch = arena.TakeMatrix(tokens, info_.hidden_size);
  if (has_post_norms_) {
    space.output = arena.TakeMatrix(tokens, info_.hidden_size);
  }
  space.angles = ropes_.Place(arena, tokens);
  size_t scratch_bytes = 0;
  size_t kernel_bytes = 0;
  for (const std::vector<Block>& layer : layers_) {
    for (const Block& block : layer) {
      scratch_bytes = std::max(scratch_bytes, block.part->ScratchBytes(tokens));
      kernel_bytes = std::max(kernel_bytes, block.part->KernelBytes(tokens));
    }
  }
  space.scratch = arena.Take(scratch_bytes);
  space.kernel = arena.Take(kernel_bytes);
  return space;
}

size_t Decoder::WorkspaceBytes(int64_t max_tokens,
                               int64_t max_logit_rows) const {
  Arena arena(nullptr);
  Place(arena, max_tokens);
  // Room to align the caller's range.
  return std::max(arena.used(), head_.KernelBytes(max_logit_rows)) +
         kScratchAlignment;
}

absl::Status Decoder::Embed(const ForwardBatch& batch, const TensorView& hidden,
                            Stream& stream) const {
  EmbeddingParams params;
  params.table = embedding_;
  params.ids = batch.tokens.data();
  params.scale = embedding_scale_;
  params.y = hidden;
  INLAY_RETURN_IF_ERROR(embed_.Run(params, stream));
  if (position_embedding_.rank == 0) return absl::OkStatus();
  params.table = position_embedding_;
  params.ids = batch.positions.data();
  params.scale = 1.0f;
  params.accumulate = true;
  return embed_positions_.Run(params, stream);
}

absl::Status Decoder::ForwardBlock(const Block& block, const Step& step,
                                   const Workspace& space) const {
  TensorView x = space.hidden;
  if (block.pre_norm.present()) {
    x = space.branch;
    INLAY_RETURN_IF_ERROR(block.pre_norm.Forward(space.hidden, x, step.stream));
  }
  if (!block.post_norm.present()) {
    return block.part->Forward(step, x, space.hidden, space.hidden);
  }
  INLAY_RETURN_IF_ERROR(block.part->Forward(step, x, {}, space.output));
  INLAY_RETURN_IF_ERROR(
      block.post_norm.Forward(space.output, space.output, step.stream));
  ElementwiseParams add;
  add.y = space.hidden;
  add.x = space.output;
  return add_.Run(add, step.stream);
}

absl::Status Decoder::SelectRows(const ForwardBatch& batch,
                                 const TensorView& hidden,
                                 Stream& stream) const {
  if (batch.logit_rows.empty()) return absl::OkStatus();
  EmbeddingParams select;
  select.table = hidden;
  select.ids = batch.logit_rows.data();
  select.y = batch.hidden;
  INLAY_RETURN_IF_ERROR(select_rows_.Run(select, stream));
  if (!final_norm_.present()) return absl::OkStatus();
  return final_norm_.Forward(batch.hidden, batch.hidden, stream);
}

absl::Status Decoder::Logits(TensorView hidden, TensorView logits,
                             absl::Span<std::byte> workspace,
                             Stream& stream) const {
  INLAY_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      AlignScratch(workspace, WorkspaceBytes(0, hidden.rows())));
  INLAY_RETURN_IF_ERROR(head_.Forward(hidden, {}, logits, scratch, stream));
  if (final_softcap_ == 0.0f) return absl::OkStatus();
  ElementwiseParams softcap;
  softcap.y = logits;
  softcap.value = final_softcap_;
  return softcap_.Run(softcap, stream);
}

absl::Status Decoder::Forward(const ForwardBatch& batch,
                              absl::Span<std::byte> workspace,
                              Stream& stream) const {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  if (tokens == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(std::byte* const scratch,
                         AlignScratch(workspace, WorkspaceBytes(tokens, 0)));
  Arena arena(scratch);
  const Workspace space = Place(arena, tokens);

  ropes_.Fill(batch, space.angles);
  INLAY_RETURN_IF_ERROR(Embed(batch, space.hidden, stream));
  const Step step{batch, stream, space.angles, space.scratch, space.kernel};
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const Block& block : layers_[i]) {
      INLAY_RETURN_IF_ERROR(ForwardBlock(block, step, space));
    }
    if (batch.observer != nullptr) {
      INLAY_RETURN_IF_ERROR(stream.Synchronize());
      batch.observer->OnLayer(static_cast<int>(i), space.hidden);
    }
  }
  return SelectRows(batch, space.hidden, stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> BuildDecoder(const DecoderSpec& spec,
                                                    ModelBuild& build) {
  return Decoder::Build(spec, build);
}

}  // namespace inlay
