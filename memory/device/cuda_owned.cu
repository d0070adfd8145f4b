#include "memory/device/cuda_owned.h"

#include <algorithm>

#include "memory/device/cuda_status.h"
#include "memory/status.h"

namespace inlay {
namespace {

// More than a graph takes: up to 3 KB a node were measured, in pieces of 2 MB
// that graphs share.
constexpr size_t kBytesOfNode = size_t{8} << 10;
constexpr size_t kBytesOfGraph = size_t{4} << 20;

}  // namespace

OwnedCudaEvent::~OwnedCudaEvent() {
  const CudaContext::Scope scope(*context_);
  cudaEventDestroy(handle());
}

absl::Status OwnedCudaEvent::Synchronize() {
  INLAY_RETURN_IF_ERROR(context_->status());
  const CudaContext::Scope scope(*context_);
  return context_->Check(cudaEventSynchronize(handle()),
                         "waiting for work on the device");
}

CudaGraph::~CudaGraph() {
  const CudaContext::Scope scope(*context_);
  cudaGraphExecDestroy(handle_);
  account_->Refund(bytes_, MemoryClass::kWorkspace);
}

OwnedCudaStream::~OwnedCudaStream() {
  const CudaContext::Scope scope(*context_);
  cudaStreamSynchronize(handle());
  attachment() = nullptr;
  cudaStreamDestroy(handle());
}

absl::Status OwnedCudaStream::Synchronize() {
  INLAY_RETURN_IF_ERROR(context_->status());
  const CudaContext::Scope scope(*context_);
  return context_->Check(cudaStreamSynchronize(handle()),
                         "waiting for work on the device");
}

absl::Status OwnedCudaStream::Record(StreamEvent& event) {
  INLAY_RETURN_IF_ERROR(context_->status());
  const CudaContext::Scope scope(*context_);
  return CudaStream::Record(event);
}

absl::Status OwnedCudaStream::Wait(StreamEvent& event) {
  INLAY_RETURN_IF_ERROR(context_->status());
  const CudaContext::Scope scope(*context_);
  return CudaStream::Wait(event);
}

absl::Status OwnedCudaStream::BeginGraph() {
  INLAY_RETURN_IF_ERROR(context_->status());
  const CudaContext::Scope scope(*context_);
  // What other threads do with the device meanwhile is their own.
  return context_->Check(
      cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal),
      "beginning a graph");
}

absl::StatusOr<std::unique_ptr<Graph>> OwnedCudaStream::EndGraph() {
  const CudaContext::Scope scope(*context_);
  cudaGraph_t graph = nullptr;
  INLAY_RETURN_IF_ERROR(context_->Check(cudaStreamEndCapture(handle(), &graph),
                                        "ending a graph"));
  auto made = Instantiate(graph);
  cudaGraphDestroy(graph);
  return made;
}

absl::StatusOr<std::unique_ptr<Graph>> OwnedCudaStream::Instantiate(
    cudaGraph_t graph) {
  size_t before = 0, after = 0, total = 0, nodes = 0;
  INLAY_RETURN_IF_ERROR(context_->Check(
      cudaGraphGetNodes(graph, nullptr, &nodes), "a graph's nodes"));
  cudaGraphExec_t handle = nullptr;
  cudaMemGetInfo(&before, &total);
  INLAY_RETURN_IF_ERROR(context_->Check(cudaGraphInstantiate(&handle, graph, 0),
                                        "making a graph"));
  const absl::Status uploaded =
      context_->Check(cudaGraphUpload(handle, this->handle()), "a graph");
  cudaMemGetInfo(&after, &total);
  // Of the whole device: what other programs take meanwhile is not the graph's.
  const size_t bytes = std::min(before > after ? before - after : 0,
                                kBytesOfGraph + nodes * kBytesOfNode);
  const absl::Status charged =
      uploaded.ok() ? account_->Charge(bytes, MemoryClass::kWorkspace)
                    : uploaded;
  if (!charged.ok()) {
    cudaGraphExecDestroy(handle);
    return charged;
  }
  return std::make_unique<CudaGraph>(context_, account_, handle, bytes);
}

absl::Status OwnedCudaStream::Launch(Graph& graph) {
  INLAY_RETURN_IF_ERROR(context_->status());
  const CudaContext::Scope scope(*context_);
  return context_->Check(
      cudaGraphLaunch(static_cast<CudaGraph&>(graph).handle(), handle()),
      "launching a graph");
}

}  // namespace inlay
