#include "kernels/gemm/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>

namespace inlay::amx {
namespace {

struct Support {
  bool avx512 = false;  // what the rows have beside tiles
  bool bf16 = false;
  bool i8 = false;
};

// Documentation/arch/x86/xstate.rst of Linux.
bool AskForTiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Support Find() {
  Support support;
  support.avx512 = __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512vnni");
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!support.avx512 || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) {
    return support;
  }
  constexpr uint32_t kBF16Bit = 1u << 22, kTileBit = 1u << 24,
                     kI8Bit = 1u << 25;
  if ((edx & kTileBit) == 0) return support;
  support.bf16 = (edx & kBF16Bit) != 0;
  support.i8 = (edx & kI8Bit) != 0;
  return support;
}

// When the library is loaded. A constant of a function is made by whoever comes
// first, and a child forked meanwhile by another thread waits for that one.
const Support kSupport = Find();

// Asked only by who wants tiles: it changes the process. Twice does no harm.
bool HasTiles() {
  enum State : int { kUnknown, kGranted, kRefused };
  static constinit std::atomic<int> state{kUnknown};
  if (state.load(std::memory_order_relaxed) == kUnknown) {
    state.store(AskForTiles() ? kGranted : kRefused, std::memory_order_relaxed);
  }
  return state.load(std::memory_order_relaxed) == kGranted;
}

}  // namespace

const char* Refuses(Products products) {
  if (!kSupport.avx512) return "needs AVX-512 with VNNI";
  if (!(products == Products::kBF16 ? kSupport.bf16 : kSupport.i8)) {
    return "needs AMX";
  }
  return HasTiles() ? nullptr : "the system does not grant AMX's tiles";
}

}  // namespace inlay::amx
#endif  // __x86_64__
