// A GPU as a device: memory within a budget, pinned host memory, streams,
// events, ranges of addresses. Source: CUDA runtime and driver API manuals.
#include <utility>

#include "memory/device/cuda_context.h"
#include "memory/device/cuda_owned.h"
#include "memory/device/cuda_range.h"
#include "memory/device/cuda_status.h"
#include "memory/device/deferred_frees.h"
#include "memory/device/device.h"
#include "memory/device/memory_account.h"
#include "memory/device/thread_pool.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kMinSm = 80;

class CudaDevice final : public Device, public DeferredFrees {
 public:
  CudaDevice(std::unique_ptr<CudaContext> context, const DeviceInfo& info,
             size_t granularity, size_t budget_bytes)
      : context_(std::move(context)),
        info_(info),
        granularity_(granularity),
        account_(FormattedString("cuda:%d", context_->ordinal()),
                 info.memory_bytes, budget_bytes) {}

  ~CudaDevice() override {
    while (FreeSome()) {
    }
  }

  const DeviceInfo& info() const override { return info_; }
  absl::Status status() const override { return context_->status(); }

  absl::StatusOr<Buffer> Allocate(size_t bytes,
                                  MemoryClass memory_class) override {
    if (bytes == 0) return Buffer();
    INLAY_RETURN_IF_ERROR(status());
    INLAY_RETURN_IF_ERROR(Charge(bytes, memory_class));
    const CudaContext::Scope scope(*context_);
    void* data = nullptr;
    const absl::Status allocated = Malloc(&data, bytes);
    if (!allocated.ok()) {
      account_.Refund(bytes, memory_class);
      return allocated;
    }
    return Buffer(this, static_cast<std::byte*>(data), bytes, memory_class);
  }

  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override {
    if (bytes == 0) return Buffer();
    INLAY_RETURN_IF_ERROR(status());
    const CudaContext::Scope scope(*context_);
    void* data = nullptr;
    // Mapped: kernels read it at the same address (experts).
    const absl::Status allocated = context_->Check(
        cudaHostAlloc(&data, bytes,
                      cudaHostAllocPortable | cudaHostAllocMapped),
        "pinning host memory");
    if (absl::IsResourceExhausted(allocated)) {
      return OutOfMemoryError(std::string(allocated.message()));
    }
    INLAY_RETURN_IF_ERROR(allocated);
    return Buffer(this, static_cast<std::byte*>(data), bytes,
                  MemoryClass::kStaging);
  }

  size_t range_granularity() const override { return granularity_; }
  absl::StatusOr<std::unique_ptr<AddressRange>> ReserveRange(
      size_t bytes, MemoryClass memory_class) override {
    return CudaRange::Create(context_.get(), &account_, memory_class, bytes);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    INLAY_RETURN_IF_ERROR(status());
    const CudaContext::Scope scope(*context_);
    cudaStream_t handle = nullptr;
    // Neither waits for what the host puts into the default stream, nor does
    // the host for us.
    INLAY_RETURN_IF_ERROR(context_->Check(
        cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking),
        "creating a stream"));
    return std::make_unique<OwnedCudaStream>(context_.get(), &account_, handle,
                                             info_);
  }

  absl::StatusOr<std::unique_ptr<StreamEvent>> CreateEvent() override {
    INLAY_RETURN_IF_ERROR(status());
    const CudaContext::Scope scope(*context_);
    cudaEvent_t handle = nullptr;
    INLAY_RETURN_IF_ERROR(context_->Check(
        cudaEventCreateWithFlags(&handle, cudaEventDisableTiming),
        "creating an event"));
    return std::make_unique<OwnedCudaEvent>(context_.get(), handle);
  }

  absl::Status Copy(void* dst, const void* src, size_t bytes,
                    Stream& stream) override {
    if (bytes == 0) return absl::OkStatus();
    INLAY_RETURN_IF_ERROR(status());
    const CudaContext::Scope scope(*context_);
    return context_->Check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault,
                                           CudaStream::Of(stream).handle()),
                           "copying memory");
  }

  MemoryUse memory_use() const override { return account_.use(); }
  void set_budget(size_t bytes) override { account_.set_budget(bytes); }

 private:
  void Free(std::byte* data, size_t bytes, MemoryClass memory_class) override {
    if (!Defer(data, bytes, memory_class)) FreeNow(data, bytes, memory_class);
  }
  absl::Status Charge(size_t bytes, MemoryClass memory_class) {
    while (true) {
      absl::Status charged = account_.Charge(bytes, memory_class);
      if (charged.ok() || !FreeSome()) return charged;
    }
  }
  absl::Status Malloc(void** data, size_t bytes) {
    while (true) {
      absl::Status allocated =
          context_->Check(cudaMalloc(data, bytes), "allocating memory");
      if (!absl::IsResourceExhausted(allocated) || !FreeSome())
        return allocated;
    }
  }
  // Whole buffers only.
  bool Discard(std::byte*, size_t) override { return false; }
  void FreeNow(std::byte* data, size_t bytes,
               MemoryClass memory_class) override {
    const CudaContext::Scope scope(*context_);
    if (memory_class == MemoryClass::kStaging) {
      context_->Check(cudaFreeHost(data), "freeing pinned memory")
          .IgnoreError();
      return;
    }
    context_->Check(cudaFree(data), "freeing memory").IgnoreError();
    account_.Refund(bytes, memory_class);
  }

  void* Enter() override { return context_->Enter(); }
  void Leave(void* previous) override {
    context_->Leave(static_cast<CUcontext>(previous));
  }

  std::unique_ptr<CudaContext> context_;
  DeviceInfo info_;
  size_t granularity_;
  MemoryAccount account_;
};

absl::StatusOr<DeviceInfo> Describe(CudaContext& context) {
  const CudaContext::Scope scope(context);
  cudaDeviceProp properties;
  INLAY_RETURN_IF_ERROR(
      context.Check(cudaGetDeviceProperties(&properties, context.ordinal()),
                    "asking for the device's properties"));
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.name = properties.name;
  info.sm = properties.major * 10 + properties.minor;
  info.num_sms = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  if (info.sm >= kMinSm) return info;
  return absl::UnimplementedError(FormattedString(
      "cuda: device %d (%s) has compute capability %d.%d, needed: %d.%d or "
      "newer; use the CPU",
      context.ordinal(), info.name, properties.major, properties.minor,
      kMinSm / 10, kMinSm % 10));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(int ordinal,
                                                         size_t budget_bytes,
                                                         int num_threads) {
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context,
                         CudaContext::Create(ordinal));
  INLAY_ASSIGN_OR_RETURN(DeviceInfo info, Describe(*context));
  info.num_threads =
      num_threads == 0 ? ThreadPool::NumUsableCores() : num_threads;
  INLAY_ASSIGN_OR_RETURN(const size_t granularity,
                         CudaRangeGranularity(*context));
  return std::make_unique<CudaDevice>(std::move(context), info, granularity,
                                      budget_bytes);
}

}  // namespace inlay
