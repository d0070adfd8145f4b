#include "core/model/load_model.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_join.h"
#include "core/model/arch.h"
#include "core/model/model_build.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What kernels move at once there.
constexpr int kCudaKvBlock = 16;

absl::Status CheckOptions(const ModelLoadOptions& options,
                          const DeviceInfo& device) {
  if (options.kv_block_size < 1 || options.kv_block_size > kMaxKvBlockSize) {
    return absl::InvalidArgumentError(
        FormattedString("kv_block_size is %d; it must be in [1, %d]",
                        options.kv_block_size, kMaxKvBlockSize));
  }
  if (options.kv_dtype.has_value() && !IsKvFormat(*options.kv_dtype)) {
    return absl::UnimplementedError(FormattedString(
        "kv_dtype %s is not supported; supported are f32, f16, bf16, i8, "
        "f8_e4m3 and kv_q4",
        DTypeName(*options.kv_dtype)));
  }
  if (device.kind == DeviceKind::kCuda &&
      options.kv_block_size % kCudaKvBlock != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "kv_block_size is %d; on %s it must be a multiple of %d",
        options.kv_block_size, device.name, kCudaKvBlock));
  }
  INLAY_RETURN_IF_ERROR(ValidateBlockSelectionOptions(options.block_selection));
  if (options.block_selection.any()) {
    if (options.attention_pattern.any()) {
      return absl::InvalidArgumentError(
          "block_selection and attention_pattern, allowed: one of the two");
    }
    if (options.kv_block_size % kSelectBlock != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "kv_block_size is %d; with block_selection it must be a multiple of "
          "%d",
          options.kv_block_size, kSelectBlock));
    }
  }
  if (options.input_observer != nullptr &&
      (options.fused || device.kind != DeviceKind::kCpu)) {
    return absl::InvalidArgumentError(FormattedString(
        "input_observer on %s%s, allowed: on a CPU, without fused ops",
        device.name, options.fused ? " with fused ops" : ""));
  }
  if (options.expert_lender != nullptr && device.kind != DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        FormattedString("expert_lender on %s, allowed: on a CPU", device.name));
  }
  for (const auto& [op, row] : options.forced_kernels) {
    if (std::find(std::begin(kOpNames), std::end(kOpNames), op) ==
        std::end(kOpNames)) {
      return absl::InvalidArgumentError(
          FormattedString("forced kernel for \"%s\": there is no such op", op));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const ModelFiles& files) {
  if (!files.config.is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json is %s; it must be an object", files.config.type_name()));
  }
  if (files.weights == nullptr && !files.random) {
    return absl::InvalidArgumentError("the model was opened without weights");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> Build(const ModelFiles& files,
                                             const DeviceInfo& device,
                                             const ModelLoadOptions& options,
                                             WeightLoader& weights,
                                             int expert_slots = 0,
                                             DecoderSpec* described = nullptr) {
  INLAY_ASSIGN_OR_RETURN(const ArchRow* row, FindArchitecture(files.config));
  const KernelChooser kernels(device, options.forced_kernels);
  ModelBuild build{weights, kernels};
  // On CPU everything is computed in float32; GPUs multiply in the weights'
  // type.
  if (!build.on_cpu()) build.activation = weights.PrevailingDType();
  build.kv_dtype = options.kv_dtype.value_or(build.activation);
  build.kv_block_size = options.kv_block_size;
  build.fused = options.fused;
  build.batch_invariant = options.batch_invariant;
  build.round_inputs = options.round_inputs;
  build.attention_pattern = options.attention_pattern;
  build.block_selection = options.block_selection;
  build.expert_slots = expert_slots;
  build.architecture = row->architecture;
  build.model_type = row->model_type;
  build.input_observer = options.input_observer;
  build.expert_lender = options.expert_lender;
  build.described = described;
  // null is false, as in transformers.
  INLAY_ASSIGN_OR_RETURN(const bool is_causal,
                         JsonFlag(files.config, "is_causal", true));
  build.sees_both_ways = !is_causal;
  build.is_bare = IsBareNetwork(files.config, *row);
  build.dense = files.embedding.dense;
  return row->factory(files.config, build);
}

// How many of each layer's experts the device keeps; 0: all.
absl::StatusOr<int> ExpertSlots(const ExpertMemory& experts,
                                const DeviceInfo& device,
                                const ModelLoadOptions& options) {
  const uint64_t budget = options.expert_device_bytes;
  if (device.kind == DeviceKind::kCpu || budget == 0 ||
      budget >= experts.bytes) {
    return 0;
  }
  const uint64_t slots = budget / experts.slot_bytes;
  if (slots < static_cast<uint64_t>(experts.least_slots)) {
    return absl::InvalidArgumentError(FormattedString(
        "expert_device_bytes is %d, allowed: 0 (all experts on the device) or "
        "at least %d, the %d experts of one token in every layer; all take %d",
        budget, experts.slot_bytes * static_cast<uint64_t>(experts.least_slots),
        experts.least_slots, experts.bytes));
  }
  return static_cast<int>(slots);
}

// A clean refusal before the machine begins to swap.
absl::Status CheckHostRoom(const ExpertMemory& experts) {
  if (experts.host_bytes == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Device> host,
                         CreateCpuDevice(1, 0));
  const uint64_t room = host->info().memory_bytes;
  if (experts.host_bytes <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(FormattedString(
      "the experts take %d bytes of pinned host memory; the machine has %d",
      experts.host_bytes, room));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> PlanModel(
    const ModelFiles& files, Device& device, const ModelLoadOptions& options) {
  INLAY_RETURN_IF_ERROR(CheckOptions(options, device.info()));
  INLAY_RETURN_IF_ERROR(CheckFiles(files));
  WeightLoader weights(files, device, WeightLoader::Mode::kPlan);
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Model> plan,
                         Build(files, device.info(), options, weights));
  INLAY_ASSIGN_OR_RETURN(const int slots, ExpertSlots(plan->info().experts,
                                                      device.info(), options));
  if (slots == 0) return plan;
  WeightLoader again(files, device, WeightLoader::Mode::kPlan);
  return Build(files, device.info(), options, again, slots);
}

absl::StatusOr<DecoderSpec> DescribeDecoder(const ModelFiles& files,
                                            Device& device) {
  INLAY_RETURN_IF_ERROR(CheckFiles(files));
  WeightLoader weights(files, device, WeightLoader::Mode::kPlan);
  DecoderSpec spec;
  INLAY_RETURN_IF_ERROR(
      Build(files, device.info(), ModelLoadOptions(), weights, 0, &spec)
          .status());
  if (!spec.layers.empty()) return spec;
  return absl::UnimplementedError("the model is no decoder of known parts");
}

absl::StatusOr<std::vector<PlannedWeight>> PlanWeights(const ModelFiles& files,
                                                       Device& device) {
  INLAY_RETURN_IF_ERROR(CheckFiles(files));
  WeightLoader weights(files, device, WeightLoader::Mode::kPlan);
  INLAY_RETURN_IF_ERROR(
      Build(files, device.info(), ModelLoadOptions(), weights).status());
  uint64_t elements = 0;
  for (const PlannedWeight& weight : weights.planned()) {
    uint64_t size = 1;
    for (const int64_t side : weight.shape) size *= static_cast<uint64_t>(side);
    elements += size;
  }
  if (elements == weights.num_parameters()) return weights.planned();
  return absl::InternalError(
      FormattedString("the plan lists %d parameters of %d", elements,
                      weights.num_parameters()));
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(
    const ModelFiles& files, Device& device, const ModelLoadOptions& options) {
  INLAY_ASSIGN_OR_RETURN(const std::unique_ptr<Model> plan,
                         PlanModel(files, device, options));
  const uint64_t total_bytes = plan->info().weight_bytes;
  // Files bound what they can ask for; a draw is as large as config.json says.
  const ExpertMemory& experts = plan->info().experts;
  const uint64_t device_bytes =
      experts.slots == 0 ? total_bytes
                         : total_bytes - experts.bytes + experts.device_bytes;
  if (files.random && device.info().memory_bytes != 0 &&
      device_bytes > device.info().memory_bytes) {
    return absl::ResourceExhaustedError(
        FormattedString("the weights take %d bytes; %s has %d", device_bytes,
                        device.info().name, device.info().memory_bytes));
  }
  INLAY_RETURN_IF_ERROR(CheckHostRoom(experts));
  WeightLoader weights(files, device, WeightLoader::Mode::kLoad,
                       options.progress, total_bytes);
  return Build(files, device.info(), options, weights, experts.slots);
}

}  // namespace inlay
