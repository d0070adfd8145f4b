// What the two files of f16 weights with AMX share: gemm_cpu_amx_f16.cc, whose
// head says what the order of sums is, and gemm_cpu_amx_f16_few.cc. Only for
// code that is compiled for AVX-512.
#ifndef INLAY_KERNELS_GEMM_AMX_F16_H_
#define INLAY_KERNELS_GEMM_AMX_F16_H_

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/thread_pool.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
namespace inlay::amx {

inline constexpr int64_t kBlock = 512;        // elements of k
inline constexpr int64_t kMostByVectors = 2;  // rows of x

HWY_INLINE __m512 Widen(const uint16_t* w) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
}
// The first `count`, then zeros.
HWY_INLINE __m512 Widen(const uint16_t* w, int64_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(count), w));
}

// Rows [first, end) of w in groups of 16 that lie apart, so that a thread reads
// 16 streams of consecutive rows, and a last group of those that fill none.
struct Streams {
  int64_t begin, apart, rest, count;

  Streams(int64_t first, int64_t end)
      : begin(first),
        apart((end - first) / kTileRows),
        rest((end - first) % kTileRows),
        count(apart + (rest > 0 ? 1 : 0)) {}
  int64_t rows(int64_t g) const { return g < apart ? kTileRows : rest; }
  // Of group g; a missing row is the last one once more.
  int64_t row(int64_t g, int64_t r) const {
    return g < apart ? begin + g + r * apart
                     : begin + apart * kTileRows + std::min(r, rest - 1);
  }
};

}  // namespace inlay::amx
HWY_POP_ATTRIBUTES

namespace inlay::amx {

// gemm_cpu_amx_f16_few.cc: y of up to kMostByVectors rows of x, and what that
// takes.
int64_t VectorsWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
void RunByVectors(const GemmDesc& desc, const GemmParams& params,
                  ThreadPool& pool);

}  // namespace inlay::amx
#endif  // __x86_64__

#endif  // INLAY_KERNELS_GEMM_AMX_F16_H_
