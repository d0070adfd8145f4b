#include "kernels/quant/quant.h"

namespace inlay {

// Defined in the formats' folders.
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes)
#define INLAY_WEIGHT_FORMAT(id, value, name, block_elements, block_bytes) \
  extern const BlockCodec k##id##Codec;
#include "memory/formats.def"
#undef INLAY_FORMAT

namespace {

#define INLAY_FORMAT(id, value, name, block_elements, block_bytes)
#define INLAY_WEIGHT_FORMAT(id, value, name, block_elements, block_bytes) \
  static_assert(kMaxBlockElements % block_elements == 0);
#include "memory/formats.def"
#undef INLAY_FORMAT

constexpr const BlockCodec* kCodecs[] = {
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes)
#define INLAY_WEIGHT_FORMAT(id, value, name, block_elements, block_bytes) \
  &k##id##Codec,
#include "memory/formats.def"
#undef INLAY_FORMAT
};

}  // namespace

absl::Span<const BlockCodec* const> BlockCodecs() { return kCodecs; }

const BlockCodec* FindBlockCodec(DType dtype) {
  for (const BlockCodec* codec : kCodecs) {
    if (codec->dtype == dtype) return codec;
  }
  return nullptr;
}

}  // namespace inlay
