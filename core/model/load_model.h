// LoadModel: from opened files to a Model on a device.
#ifndef INLAY_CORE_MODEL_LOAD_MODEL_H_
#define INLAY_CORE_MODEL_LOAD_MODEL_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/model/decoder_spec.h"
#include "core/model/model.h"
#include "core/model/weights.h"
#include "kernels/attention/attention_pattern.h"
#include "kernels/block_selection/block_selection.h"
#include "memory/device/device.h"
#include "memory/dtype.h"

namespace inlay {

class ExpertLender;

inline constexpr int kMaxKvBlockSize = 1024;

struct ModelLoadOptions {
  // IsKvFormat(); none: f32 on CPU, otherwise the type of most weights.
  std::optional<DType> kv_dtype;
  // Tokens, in [1, kMaxKvBlockSize]; on CUDA a multiple of 16.
  int kv_block_size = 16;
  // Ops in a row are computed in one launch where there is a kernel for that.
  bool fused = true;
  // On CUDA: a sequence's logits have the same bits in every batch, however its
  // prompt was cut. On CPU always so.
  bool batch_invariant = false;
  // Inputs are rounded where the checkpoint says so (WeightInfo::input_codes)
  // and a kernel does that.
  bool round_inputs = true;
  // What layers see that otherwise see all before a token (of an encoder: all);
  // those with windows or chunks of their own keep them.
  AttentionPattern attention_pattern;
  // Which keys layers see that otherwise see all before a token, chosen by
  // content; those with windows or chunks of their own keep them. Not together
  // with a pattern. Needs whole blocks of kSelectBlock in kv_block_size.
  BlockSelectionOptions block_selection;
  // What the experts of all layers may take of the device's memory, not a
  // CPU's; 0, and where all fit: all are there. Otherwise they lie in pinned
  // host memory, and the device has those that were asked for last: the same
  // number of each layer's.
  uint64_t expert_device_bytes = 0;
  LoadProgress progress;  // may be null
  // Where the host addresses the device's memory; outlives the model; may be
  // null. Needs `fused` off.
  InputObserver* input_observer = nullptr;
  // On a CPU: lends the matrices of experts that it has, which are not loaded
  // then; outlives the model; may be null. Logits are the same to the bit.
  ExpertLender* expert_lender = nullptr;
  // Op name (kOpNames) -> name of the kernel row to use for it; for tests.
  // Where an op stands for others, those run if it has no such row ("apart").
  std::map<std::string, std::string, std::less<>> forced_kernels;
};

// Everything is checked (configuration, names, shapes, dtypes, room) before the
// first weight is read. `device` must outlive the model; the model keeps
// files.weights alive. Errors: INVALID_ARGUMENT for bad values in config.json
// or shapes that disagree with it, for a pattern that no layer takes and for
// expert_device_bytes that do not hold the experts of one token,
// NOT_FOUND for a missing tensor or when no kernel serves, UNIMPLEMENTED for an
// architecture or feature that is not supported and for a selection of blocks
// that no layer can make, RESOURCE_EXHAUSTED, CANCELLED.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(
    const ModelFiles& files, Device& device, const ModelLoadOptions& options);

// The same without reading or allocating: the model that comes back answers
// info(), kv_layout() and WorkspaceBytes() only.
absl::StatusOr<std::unique_ptr<Model>> PlanModel(
    const ModelFiles& files, Device& device, const ModelLoadOptions& options);

// The tensors that the model asks for, in the order in which it does, checked
// as there. They point into `files`.
absl::StatusOr<std::vector<PlannedWeight>> PlanWeights(const ModelFiles& files,
                                                       Device& device);

// What the model consists of, by names of tensors. UNIMPLEMENTED for one that
// is no decoder of parts.
absl::StatusOr<DecoderSpec> DescribeDecoder(const ModelFiles& files,
                                            Device& device);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LOAD_MODEL_H_
