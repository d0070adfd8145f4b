// Python's operators on values: + - * / // % ** ~ and the signs.
#ifndef INLAY_CORE_TEXT_TEMPLATE_ARITHMETIC_H_
#define INLAY_CORE_TEXT_TEMPLATE_ARITHMETIC_H_

#include "absl/status/statusor.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kConcat,
};

// INVALID_ARGUMENT for operands of other types, division by zero, integers
// beyond 127 bits.
absl::StatusOr<Value> Apply(Env& env, BinaryOp op, const Value& a,
                            const Value& b);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);

// The integer a float truncates to; INVALID_ARGUMENT for nan, inf and beyond.
absl::StatusOr<Int> Truncate(double value);
// Python's // and %, whose results follow the divisor's sign; b is not zero.
Int FloorDivide(Int a, Int b);
Int FloorModulo(Int a, Int b);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_ARITHMETIC_H_
