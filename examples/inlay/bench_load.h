// inlay bench under load: one measurement.
#ifndef INLAY_EXAMPLES_INLAY_BENCH_LOAD_H_
#define INLAY_EXAMPLES_INLAY_BENCH_LOAD_H_

#include <cstddef>
#include <cstdint>

#include "examples/inlay/bench.h"

namespace inlay::cli {

inline constexpr size_t kDefaultRequests = 64;
inline constexpr size_t kDefaultConcurrency = 16;

// `num_requests` with at most `concurrency` of them at once; `result` gets an
// object of numbers and distributions. Prompts differ with the seed.
Outcome MeasureLoad(Host& host, const BenchOptions& options,
                    size_t num_requests, size_t concurrency, uint64_t seed,
                    Progress& progress, Json* result);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_BENCH_LOAD_H_
