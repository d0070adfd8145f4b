// Both ends of a decoder: what makes the residual stream of tokens, and what
// becomes of it behind the last layer.
#include <algorithm>
#include <memory>
#include <optional>

#include "core/model/decoder_impl.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<Op<EmbeddingDesc, EmbeddingParams>> ChooseEmbedding(
    int64_t width, DType table, const ModelBuild& build,
    DType activation = DType::kF32) {
  EmbeddingDesc desc;
  desc.width = width;
  desc.table = table;
  desc.activation = activation;
  return build.kernels.Choose("embedding", EmbeddingTable(), desc);
}

absl::StatusOr<Op<ElementwiseDesc, ElementwiseParams>> ChooseElementwise(
    Elementwise function, int64_t width, const ModelBuild& build,
    DType activation = DType::kF32) {
  ElementwiseDesc desc;
  desc.function = function;
  desc.width = width;
  desc.activation = activation;
  return build.kernels.Choose("elementwise", ElementwiseTable(), desc);
}

}  // namespace

absl::Status Decoder::BuildNarrowed(ModelBuild& build) {
  narrows_ = CanNarrow(build);
  const std::vector<DecoderBlock>* const last =
      layers_.empty() ? nullptr : &layers_.back().blocks;
  if (!narrows_ || last->size() != 2 || layers_.back().defers ||
      last->front().attention == nullptr) {
    return absl::OkStatus();
  }
  narrowed_attention_ = last->front().attention;
  INLAY_ASSIGN_OR_RETURN(select_context_,
                         ChooseEmbedding(narrowed_attention_->output().desc().k,
                                         activation_, build, activation_));
  if (build.on_cpu() || !narrowed_attention_->may_leave_out()) {
    return absl::OkStatus();
  }
  AttentionCut cut = narrowed_attention_->cut();
  cut.wanted = true;
  cut.shape.leaves_out = true;
  // decode_attention takes steps in which every row of q is a query.
  cut.shape.few = {};
  wanted_cut_ = build.AddCut(cut);
  return absl::OkStatus();
}

absl::Status Decoder::AddTable(TensorView table, int64_t width, bool by_segment,
                               ModelBuild& build) {
  Added& added = added_.emplace_back();
  added.table = table;
  added.by_segment = by_segment;
  INLAY_ASSIGN_OR_RETURN(added.op, ChooseEmbedding(width, table.dtype, build));
  return absl::OkStatus();
}

absl::Status Decoder::BuildEmbeddings(const DecoderSpec& spec,
                                      ModelBuild& build) {
  embedding_scale_ = spec.embedding_scale;
  const bool projects = spec.embedding_projection.has_value();
  const int64_t width =
      projects ? spec.embedding_projection->width() : spec.hidden_size;
  INLAY_DCHECK(width <= spec.hidden_size);
  INLAY_DCHECK(spec.embedding_rows == 0 || !spec.head.empty());
  INLAY_ASSIGN_OR_RETURN(
      embedding_, build.weights.Matrix(
                      spec.embedding,
                      std::max(spec.vocab_size, spec.embedding_rows), width));
  INLAY_ASSIGN_OR_RETURN(embed_,
                         ChooseEmbedding(width, embedding_.dtype, build));
  if (projects) {
    INLAY_ASSIGN_OR_RETURN(
        convert_embedding_,
        Norm::Copy(width, DType::kF32, build.activation, build));
    INLAY_ASSIGN_OR_RETURN(embedding_projection_,
                           Linear::Create(spec.embedding_projection->input,
                                          LinearOutput::kFloat, build));
    projects_last_ = spec.embedding_projection->comes_last;
  }
  // Of what is added to the tokens' rows, and of their norm.
  const int64_t added_width = projects_last_ ? width : spec.hidden_size;
  if (!spec.position_embedding.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        TensorView table,
        build.weights.Matrix(spec.position_embedding,
                             spec.position_offset + spec.max_positions,
                             added_width));
    sparse_bytes_ += table.bytes();
    if (!table.empty()) {  // empty: planning
      table = table.RowSlice(spec.position_offset, spec.max_positions);
    }
    INLAY_RETURN_IF_ERROR(
        AddTable(table, added_width, /*by_segment=*/false, build));
  }
  if (!spec.segment_embedding.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        const TensorView table,
        build.weights.Matrix(spec.segment_embedding, spec.num_segments,
                             added_width));
    INLAY_RETURN_IF_ERROR(
        AddTable(table, added_width, /*by_segment=*/true, build));
  }
  if (!spec.task_embedding.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        TensorView table,
        build.weights.Matrix(spec.task_embedding, spec.num_tasks, added_width));
    // At every position.
    table.dims[0] = spec.max_positions;
    table.row_stride_bytes = 0;
    INLAY_RETURN_IF_ERROR(
        AddTable(table, added_width, /*by_segment=*/false, build));
  }
  INLAY_ASSIGN_OR_RETURN(embedding_norm_,
                         Norm::Create(spec.embedding_norm, added_width,
                                      DType::kF32, DType::kF32, build));
  if (!spec.per_layer_inputs.has_value()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(per_layer_inputs_,
                         PerLayerInputs::Create(*spec.per_layer_inputs, build));
  sparse_bytes_ += per_layer_inputs_.table_bytes();
  return absl::OkStatus();
}

absl::Status Decoder::BuildHead(const DecoderSpec& spec, ModelBuild& build) {
  int64_t width = spec.hidden_size;
  if (spec.embedding_projection.has_value()) {
    width = spec.embedding_projection->width();
    HeadLayerSpec narrow;
    narrow.linear = spec.embedding_projection->output;
    INLAY_ASSIGN_OR_RETURN(
        before_head_,
        RowHead::Create({&narrow, 1}, LinearOutput::kActivation, build));
  }
  if (!spec.head_layers.empty()) {
    INLAY_DCHECK(!spec.embedding_projection.has_value());
    INLAY_ASSIGN_OR_RETURN(
        before_head_,
        RowHead::Create(spec.head_layers, LinearOutput::kActivation, build));
  }
  INLAY_DCHECK(!spec.head_bias || !spec.head.empty());
  if (spec.head.empty()) {
    INLAY_ASSIGN_OR_RETURN(head_, Linear::Over(embedding_, LinearOutput::kFloat,
                                               build, spec.tied_bias));
  } else {
    INLAY_ASSIGN_OR_RETURN(head_, Linear::Create({spec.head, spec.vocab_size,
                                                  width, spec.head_bias},
                                                 LinearOutput::kFloat, build));
  }
  if (!spec.head.empty() || head_.is_packed()) {
    sparse_bytes_ += embedding_.bytes();
  }
  INLAY_ASSIGN_OR_RETURN(
      logit_channels_,
      Norm::Channels(spec.logit_channels, spec.vocab_size, DType::kF32, build));
  logit_scale_ = spec.logit_scale;
  INLAY_ASSIGN_OR_RETURN(
      scale_logits_,
      ChooseElementwise(Elementwise::kScale, spec.vocab_size, build));
  final_softcap_ = spec.final_softcap;
  INLAY_ASSIGN_OR_RETURN(softcap_, ChooseElementwise(Elementwise::kSoftcap,
                                                     spec.vocab_size, build));
  return absl::OkStatus();
}

absl::Status Decoder::BuildEnds(const DecoderSpec& spec, ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(BuildEmbeddings(spec, build));
  INLAY_ASSIGN_OR_RETURN(select_rows_,
                         ChooseEmbedding(spec.hidden_size, DType::kF32, build));
  INLAY_ASSIGN_OR_RETURN(
      final_norm_, Norm::Create(spec.final_norm, spec.hidden_size, DType::kF32,
                                build.activation, build));
  if (keeps_inputs_) {
    INLAY_ASSIGN_OR_RETURN(
        keep_input_,
        Norm::Copy(spec.hidden_size, DType::kF32, DType::kF32, build));
  }
  if (spec.streams.has_value()) {
    INLAY_ASSIGN_OR_RETURN(
        hyper_head_, HyperConnection::Create(*spec.streams, spec.streams->head,
                                             spec.hidden_size, true, build));
  }
  if (spec.altup.has_value()) {
    INLAY_ASSIGN_OR_RETURN(
        altup_, AltUpEnds::Create(*spec.altup, spec.hidden_size, build));
  }
  if (spec.is_encoder || spec.headless) {
    sparse_bytes_ += embedding_.bytes();
    if (spec.classifier.has_value()) {
      INLAY_RETURN_IF_ERROR(BuildClassifier(*spec.classifier, build));
    }
  } else {
    INLAY_RETURN_IF_ERROR(BuildHead(spec, build));
  }
  INLAY_ASSIGN_OR_RETURN(
      pooled_, RowHead::Create(spec.pooled, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      add_, ChooseElementwise(Elementwise::kAdd, spec.hidden_size, build));
  INLAY_ASSIGN_OR_RETURN(
      scale_, ChooseElementwise(Elementwise::kScale, spec.hidden_size, build));
  info_.num_parameters = build.weights.num_parameters();
  info_.weight_bytes = build.weights.bytes();
  info_.experts = build.experts;
  expert_counts_ = build.expert_counts;
  info_.weight_bytes_per_token =
      info_.weight_bytes - sparse_bytes_ - build.idle_bytes;
  return absl::OkStatus();
}

}  // namespace inlay
