// Per target: elementary functions on float32 vectors. Coefficients are
// minimax fits made for this file (weighted least squares on Chebyshev nodes,
// reweighted until equal ripple); errors below are of the polynomial alone, in
// units of 2^-24 relative, and tests/kernels/simd_math_test.cc holds the whole
// functions to theirs.
#if defined(INLAY_KERNELS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_SIMD_MATH_INL_H_
#undef INLAY_KERNELS_SIMD_MATH_INL_H_
#else
#define INLAY_KERNELS_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {

// c[0] + c[1] x + ... by Horner's rule.
HWY_INLINE VF Polynomial(VF, float c0) { return hn::Set(DF(), c0); }
template <typename... Rest>
HWY_INLINE VF Polynomial(VF x, float c0, Rest... rest) {
  return hn::MulAdd(x, Polynomial(x, rest...), hn::Set(DF(), c0));
}

// (e^x - 1 - x) / x^2 for |x| <= ln2 / 2: q of degree 4 (0.05 of e^x).
HWY_INLINE VF ExpRest(VF x) {
  return Polynomial(x, 0x1.fffffcp-2f, 0x1.55549p-3f, 0x1.5558f4p-5f,
                    0x1.123a6cp-7f, 0x1.6a234ep-10f);
}

// e^x for x <= 0, -infinity included; 0 where the result would be subnormal
// (x < -87.33). NaN stays NaN. At most 2 ulp from the true value.
// x = n ln2 + r, |r| <= ln2 / 2; e^r = 1 + r + r^2 q(r).
HWY_INLINE VF ExpNonPositive(VF x) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const VF n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  // ln2 in two parts, the first with so few bits that n times it is exact.
  VF r = hn::NegMulAdd(n, hn::Set(d, 0x1.62ep-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.0bfbe8p-15f), r);
  const VF e =
      hn::Add(hn::MulAdd(hn::Mul(r, r), ExpRest(r), r), hn::Set(d, 1.0f));
  // What has no exponent (NaN) or needs none (the zeros) must not be converted:
  // where the compiler does it, that is undefined.
  const VF bounded = hn::IfThenElseZero(hn::Ge(n, hn::Set(d, -127.0f)), n);
  const auto exponent =
      hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, bounded), hn::Set(di, 127)));
  const VF scaled = hn::Mul(e, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), scaled);
}

// 1 - e^x for x <= 0, without cancellation; NaN stays. At most 6 ulp: beyond
// -ln2 / 2 the difference is 0.29 at least, and e^x two of its own, of up to
// 2^-24, off.
HWY_INLINE VF OneMinusExp(VF x) {
  const DF d;
  const VF small = hn::NegMulSub(hn::Mul(x, x), ExpRest(x), x);
  const VF large = hn::Sub(hn::Set(d, 1.0f), ExpNonPositive(x));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -0.34657359f)), large, small);
}

// 1 / (1 + e^-x). At most 4 ulp.
HWY_INLINE VF Sigmoid(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF e = ExpNonPositive(hn::Neg(hn::Abs(x)));
  const VF numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

// log(1 + e^x) = max(x, 0) + log(1 + e), e = e^-|x|; NaN stays. With
// t = e / (2 + e), at most 1/3, log(1 + e) = 2 atanh(t)
// = 2 t (1 + t^2 / 3 + t^4 / 5 + ..): up to t^14, what is left out is below
// 2^-29 of the sum.
HWY_INLINE VF Softplus(VF x) {
  const DF d;
  const VF e = ExpNonPositive(hn::Neg(hn::Abs(x)));
  const VF t = hn::Div(e, hn::Add(e, hn::Set(d, 2.0f)));
  const VF series =
      Polynomial(hn::Mul(t, t), 1.0f, 1.0f / 3, 1.0f / 5, 1.0f / 7, 1.0f / 9,
                 1.0f / 11, 1.0f / 13, 1.0f / 15);
  const VF above = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  return hn::MulAdd(hn::Add(t, t), series, above);
}

// tanh. At most 4 ulp. |x| < 0.625: x + x^3 p(x^2), p of degree 5 (0.003);
// beyond: (1 - e) / (1 + e) with e = e^(-2|x|) <= 0.29, so that 1 - e does not
// cancel.
HWY_INLINE VF Tanh(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF magnitude = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  const VF p = Polynomial(z, -0x1.555554p-2f, 0x1.11106cp-3f, -0x1.b9ef7cp-5f,
                          0x1.6394d8p-6f, -0x1.0c213ep-7f, 0x1.197b62p-9f);
  const VF small = hn::MulAdd(hn::Mul(x, z), p, x);
  const VF e = ExpNonPositive(hn::Mul(magnitude, hn::Set(d, -2.0f)));
  const VF large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, large);
}

// Gelu by its tanh form. 0.5 (1 + tanh(u)) is the sigmoid of 2u, which does not
// cancel for negative u. 2 sqrt(2 / pi) and 0.044715: Hendrycks and Gimpel,
// arXiv:1606.08415.
HWY_INLINE VF GeluTanh(VF x) {
  const DF d;
  const VF cube = hn::Mul(hn::Mul(x, x), x);
  const VF inner = hn::MulAdd(cube, hn::Set(d, 0.044715f), x);
  return hn::Mul(x, Sigmoid(hn::Mul(inner, hn::Set(d, 1.59576912f))));
}

// 1 + erf(x) = erfc(-x), without cancellation for negative x. At most 2^-23
// absolute, and 84 ulp where x > -9. |x| < 1: erf(x) = x p(x^2), p of degree 6
// (0.02). Beyond: erfc(|x|) = e^(-x^2) f(t), t = 1 / (1 + |x| / 2), f of degree
// 8 (0.14); the square's rounding is what the ulps come from.
HWY_INLINE VF OnePlusErf(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF magnitude = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  const VF p = Polynomial(z, 0x1.20dd74p+0f, -0x1.81273ep-2f, 0x1.ce2cf8p-4f,
                          -0x1.b7f90cp-6f, 0x1.5405b2p-8f, -0x1.a3f6fcp-11f,
                          0x1.496a28p-14f);
  const VF small = hn::MulAdd(x, p, one);
  const VF t = hn::Div(one, hn::MulAdd(magnitude, hn::Set(d, 0.5f), one));
  const VF f = Polynomial(t, -5.64737798e-06f, 2.82238859e-01f, 2.80564213e-01f,
                          2.55515332e-01f, 1.48842265e-01f, 1.25914281e-01f,
                          -2.79944771e-03f, -1.64118988e-01f, 7.42098099e-02f);
  const VF tail = hn::Mul(ExpNonPositive(hn::Neg(z)), f);
  const VF large = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail,
                                  hn::Sub(hn::Set(d, 2.0f), tail));
  return hn::IfThenElse(hn::Lt(magnitude, one), small, large);
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
