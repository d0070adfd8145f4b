// The arithmetic that decides which token is sampled, written once for host and
// device. Every operation is one correctly rounded float32 or float64
// operation in the order of the source, so it must be compiled without
// contraction: on the host -ffp-contract=off (this folder's flags; include it
// nowhere else), on devices through RoundedFloat.
//
// Weights exp((logit - max) / temperature) are summed in fixed point with
// kMassBits fraction bits: integer sums depend on no order.
#ifndef INLAY_KERNELS_SAMPLE_SAMPLE_MATH_H_
#define INLAY_KERNELS_SAMPLE_SAMPLE_MATH_H_

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/sample/host_device.h"
#include "kernels/sample/sample.h"

namespace inlay {

#ifdef __CUDACC__
// A float whose operations a device does not fuse.
struct RoundedFloat {
  float value;
};
__device__ inline RoundedFloat operator+(RoundedFloat a, RoundedFloat b) {
  return {__fadd_rn(a.value, b.value)};
}
__device__ inline RoundedFloat operator-(RoundedFloat a, RoundedFloat b) {
  return {__fsub_rn(a.value, b.value)};
}
__device__ inline RoundedFloat operator*(RoundedFloat a, RoundedFloat b) {
  return {__fmul_rn(a.value, b.value)};
}
__device__ inline RoundedFloat operator/(RoundedFloat a, RoundedFloat b) {
  return {__fdiv_rn(a.value, b.value)};
}
__device__ inline bool operator>(RoundedFloat a, RoundedFloat b) {
  return a.value > b.value;
}
// Functions of RoundedFloat are for the device alone.
#define INLAY_SAMPLE_MATH __device__
#else
#define INLAY_SAMPLE_MATH
#endif

// 2^24 weights of at most 1 stay below 2^63; what is rounded away of 2^17
// weights, 2^-22 of the largest at most, is less than a float's rounding.
inline constexpr int kMassBits = 38;

// Added to a double of 0 to 1 it leaves a multiple of 2^-kMassBits in the low
// mantissa bits, rounded to nearest even.
inline constexpr double kMassRound = 1.5 * (uint64_t{1} << (52 - kMassBits));

#ifdef __CUDACC__
__device__ inline uint64_t FixedWeight(float weight) {
  return __float2ull_rn(
      __fmul_rn(weight, static_cast<float>(uint64_t{1} << kMassBits)));
}
#else
inline uint64_t DoubleBits(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// A weight of 0 to 1 in fixed point, rounded to nearest even.
inline uint64_t FixedWeight(float weight) {
  return DoubleBits(double{weight} + kMassRound) - DoubleBits(kMassRound);
}
#endif

// exp(z) = fraction * 2^n for -86 <= z <= 0. With n = round(z / ln 2), r = z -
// n ln 2 lies in +-0.347 and the Taylor terms left out of exp(r) are below
// 0.347^8 / 8! = 5e-9, a tenth of a float's rounding. `shifted` holds n in its
// low mantissa bits. F: RoundedFloat or a vector of floats.
inline constexpr float kLowestExponent = -86.0f;
template <typename F, typename Constant>
INLAY_SAMPLE_MATH inline F ExpFraction(F z, F* shifted, Constant constant) {
  // Adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits.
  const F round = constant(12582912.0f);
  *shifted = z * constant(1.44269504f) + round;
  const F n = *shifted - round;
  // 9 bits, so that n times it is exact, and the rest of ln 2.
  const F r = (z - n * constant(0.693359375f)) - n * constant(-2.12194440e-4f);
  F e = r * constant(1.0f / 5040) + constant(1.0f / 720);
  e = e * r + constant(1.0f / 120);
  e = e * r + constant(1.0f / 24);
  e = e * r + constant(1.0f / 6);
  e = e * r + constant(0.5f);
  e = e * r + constant(1.0f);
  return e * r + constant(1.0f);
}

// The bits of 2^n from `shifted`: its low bits count up from those of 1.5 *
// 2^23 by n, so shifting them into the exponent field gives the power.
inline constexpr uint32_t kRoundBits = 0x4B400000u;
inline constexpr uint32_t kExponentBias = 127;
inline constexpr int kMantissaBits = 23;

// F: float or RoundedFloat. What edits do, in sample.h's words.
template <typename F>
INLAY_SAMPLE_MATH inline F EditedLogit(F logit, const LogitEdit& edit,
                                       const SampleOptions& options) {
  const F most = {FLT_MAX};
  logit = logit + F{edit.bias};
  if (logit > most) logit = most;
  if (edit.generated >= 0) {
    logit = logit > F{0.0f} ? logit / F{options.repetition_penalty}
                            : logit * F{options.repetition_penalty};
  }
  if (edit.generated > 0) {
    logit = logit - F{options.frequency_penalty} *
                        F{static_cast<float>(edit.generated)};
    logit = logit - F{options.presence_penalty};
  }
  if (edit.banned != 0) return F{-INFINITY};
  return logit > most ? most : logit;
}

// A subnormal temperature has no finite inverse; the largest float separates
// all but equal logits as well as it would.
template <typename F>
INLAY_SAMPLE_MATH inline F InverseTemperature(F temperature) {
  const F inverse = F{1.0f} / temperature;
  return inverse > F{FLT_MAX} ? F{FLT_MAX} : inverse;
}

// The mass that top-p's prefix must reach, of `mass` > 0 in all; at least 1, so
// that one token stays.
INLAY_HOST_DEVICE inline uint64_t TopPTarget(float top_p, uint64_t mass) {
  const auto target = static_cast<uint64_t>(static_cast<double>(top_p) *
                                            static_cast<double>(mass));
  return target > 0 ? target : 1;
}

// Uniform in [0, total) for uniform 64 bits.
INLAY_HOST_DEVICE inline uint64_t ScaleDraw(uint64_t bits, uint64_t total) {
#ifdef __CUDA_ARCH__
  return __umul64hi(bits, total);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{bits} * total >> 64);
#endif
}

}  // namespace inlay

#endif  // INLAY_KERNELS_SAMPLE_SAMPLE_MATH_H_
