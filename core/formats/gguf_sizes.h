// The sizes that every architecture has keys for. Knows nothing of config.json.
#ifndef INLAY_CORE_FORMATS_GGUF_SIZES_H_
#define INLAY_CORE_FORMATS_GGUF_SIZES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_files.h"

namespace inlay {

inline constexpr int64_t kMaxGgufLayers = 4096;
inline constexpr int64_t kMaxGgufSize = int64_t{1} << 28;

struct GgufSizes {
  int64_t layers = 0;  // without those that predict further tokens
  int64_t hidden = 0;
  int64_t context = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t inner = 0;  // of the feed-forward network
  int64_t head_dim = 0;
  int64_t value_dim = 0;  // of heads, where it may be another (mimo2)
  int64_t vocab = 0;      // rows of the embedding
  // Which layers have attention, where files say so by KV heads: those of the
  // others are 0. Empty where all have it, or other keys say so.
  std::vector<bool> attends;
};

// All at least 1. INVALID_ARGUMENT naming a key or tensor that is missing or
// out of range, UNIMPLEMENTED where layers or heads differ in size.
absl::StatusOr<GgufSizes> ReadGgufSizes(const GgufFiles& files,
                                        const GgufArchKeys& keys);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_SIZES_H_
