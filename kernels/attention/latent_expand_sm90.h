// Keys and values of heads made of a cache of latents: latent_expand_sm90.cu.
#ifndef INLAY_KERNELS_ATTENTION_LATENT_EXPAND_SM90_H_
#define INLAY_KERNELS_ATTENTION_LATENT_EXPAND_SM90_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/expanded_attention.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

struct LatentExpansion {
  KvLayerView kv;
  DType dtype = DType::kBF16;
  const int32_t* blocks = nullptr;  // of the cache, [num_blocks], on the device
  int num_blocks = 0;
  ExpandedDims dims;  // one of kExpandedDims
  // Of the first of so many heads.
  HeadMatrices keys;    // [rank, key_dim]
  HeadMatrices values;  // [value_dim, rank]
  int heads = 0;
  // [heads][num_blocks * block_size][key_dim], [..][value_dim]. Rows of slots
  // that nobody wrote are what the matrices make of what lies there.
  std::byte* expanded_keys = nullptr;
  std::byte* expanded_values = nullptr;
};

absl::Status LaunchLatentExpand(const LatentExpansion& expansion,
                                CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_LATENT_EXPAND_SM90_H_
