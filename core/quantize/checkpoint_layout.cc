#include "core/quantize/checkpoint_layout.h"

namespace inlay {

std::unique_ptr<CheckpointLayout> MakeCheckpointLayout(
    const CheckpointType& type) {
  switch (type.kind) {
    case CheckpointKind::kGptq:
      return MakeGptqLayout(type);
    case CheckpointKind::kAwq:
      return MakeAwqLayout(type);
    case CheckpointKind::kBitsAndBytes:
      return MakeBitsAndBytesLayout(type);
    default:
      return MakeCompressedTensorsLayout(type);
  }
}

}  // namespace inlay
