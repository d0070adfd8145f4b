// block_configs of Llama-Nemotron's config.json: what each layer's attention
// and MLP are, where it has them. Knows nothing of networks and of GGUF.
// Source: NVIDIA's published block_config.py; intermediate_size and hidden_act
// of an MLP: vLLM's nemotron_nas.py.
#ifndef INLAY_CORE_FORMATS_NAS_BLOCKS_H_
#define INLAY_CORE_FORMATS_NAS_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

inline constexpr char kNasBlocks[] = "block_configs";

struct NasLayer {
  int64_t num_kv_heads = 0;  // 0: no attention
  int64_t width = 0;         // 0: no MLP
};

// One for each of `num_layers` entries, of a config.json that has the key.
// INVALID_ARGUMENT naming what is no list of as many, lacks a part or a size of
// one that it does not leave out, or has sizes out of bounds; UNIMPLEMENTED for
// other parts than attention by groups of `num_heads` and MLPs.
absl::StatusOr<std::vector<NasLayer>> ReadNasBlocks(const Json& config,
                                                    int64_t num_layers,
                                                    int64_t num_heads,
                                                    int64_t hidden_size);

// An entry's ffn of this width: by the factor that makes it, as published files
// have it, where one does.
Json NasMlp(int64_t width, int64_t hidden_size);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_NAS_BLOCKS_H_
