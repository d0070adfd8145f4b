// How a decoder's layers run where the residual stream is several of which they
// read and write one, and blocks that add to their sum besides (Gemma 3n).
#include "core/model/decoder_impl.h"
#include "memory/status.h"

namespace inlay {

AltUpEnds::Scratch Decoder::AltUpScratch(const Workspace& space) const {
  return {space.branch, space.output, space.kernel};
}

absl::Status Decoder::EmbedAltUp(const DeviceBatch& batch,
                                 const Workspace& space, Stream& stream) const {
  INLAY_RETURN_IF_ERROR(Embed(batch, space.mixed, space, stream));
  return altup_.Begin(space.mixed, space.hidden, AltUpScratch(space), stream);
}

absl::Status Decoder::ForwardLaurel(const DecoderBlock& block, const Step& step,
                                    const Workspace& space) const {
  // In float32 where the part's output will be, if the part reads fewer bits.
  const TensorView& n = block.laurel.narrows() ? space.output : space.branch;
  INLAY_RETURN_IF_ERROR(block.pre_norm.Forward(space.hidden, n, step.stream));
  INLAY_RETURN_IF_ERROR(
      block.laurel.AddTo(space.hidden, n, space.branch, space.output, step));
  const BlockInput narrow = {Norm::None(), space.branch, space.branch};
  INLAY_RETURN_IF_ERROR(AddPart(
      block, step, space, [&](const TensorView& residual, const TensorView& y) {
        return block.part->Forward(step, narrow, residual, y);
      }));
  return block.laurel.Scale(space.hidden, step.stream);
}

absl::Status Decoder::ForwardAltUp(const DecoderLayer& layer, const Step& step,
                                   const Workspace& space) const {
  INLAY_RETURN_IF_ERROR(
      layer.altup.Predict(space.hidden, space.mixed, step.stream));
  Workspace active = space;
  active.hidden = space.mixed;
  for (size_t i = 0; i + 1 < layer.blocks.size(); ++i) {
    INLAY_RETURN_IF_ERROR(ForwardBlock(layer.blocks[i], step, active));
  }
  INLAY_RETURN_IF_ERROR(
      layer.altup.Correct(space.hidden, space.mixed, step.stream));
  const DecoderBlock& last = layer.blocks.back();
  INLAY_RETURN_IF_ERROR(last.part->Forward(step, InputOf(last.pre_norm, active),
                                           {}, space.output));
  INLAY_RETURN_IF_ERROR(
      last.post_norm.Forward(space.output, space.output, step.stream));
  return layer.altup.Add(space.output, space.hidden, step.stream);
}

}  // namespace inlay
