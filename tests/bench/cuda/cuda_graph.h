// A graph of many calls, so that what is timed is the device and not the host's
// launches: as a model's decode step runs.
#ifndef INLAY_TESTS_BENCH_CUDA_CUDA_GRAPH_H_
#define INLAY_TESTS_BENCH_CUDA_CUDA_GRAPH_H_

#include "tests/bench/cuda/bench_cuda.h"

namespace inlay::bench {

// Seconds of one of `calls` calls run(i) -> absl::Status in a graph.
template <typename Fn>
double GraphSeconds(const Bench& bench, int calls, Fn run) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Require(run(0));  // what is made at first use
  Require(cudaStreamBeginCapture(bench.stream.handle(),
                                 cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; ++i) Require(run(i));
  Require(cudaStreamEndCapture(bench.stream.handle(), &graph));
  Require(cudaGraphInstantiate(&exec, graph, 0));
  const double seconds = bench.Seconds(
      [&](int) { Require(cudaGraphLaunch(exec, bench.stream.handle())); });
  Require(cudaGraphExecDestroy(exec));
  Require(cudaGraphDestroy(graph));
  return seconds / calls;
}

}  // namespace inlay::bench

#endif  // INLAY_TESTS_BENCH_CUDA_CUDA_GRAPH_H_
