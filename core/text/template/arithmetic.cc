#include "core/text/template/arithmetic.h"

#include <cmath>
#include <limits>

#include "core/text/template/python_format.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

constexpr std::string_view kNames[] = {"+",  "-", "*",           "/",
                                       "//", "%", "** or pow()", "~"};
constexpr Int kMinInt = static_cast<Int>(1) << 127;

absl::Status Overflow() {
  return absl::InvalidArgumentError(
      "integer result too large: at most 127 bits are supported");
}

absl::Status ZeroDivision() {
  return absl::InvalidArgumentError("division by zero");
}

absl::Status BadOperands(BinaryOp op, const Value& a, const Value& b) {
  return TypeError(FormattedString(
      "unsupported operand type(s) for %s: '%s' and '%s'",
      kNames[static_cast<size_t>(op)], TypeName(a), TypeName(b)));
}

absl::StatusOr<Value> PowIntegers(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return ZeroDivision();
    return Value::OfFloat(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return Overflow();
    }
    exponent >>= 1;
    if (exponent == 0) return Value::OfInt(result);
    if (base == 0 || base == 1) continue;
    if (__builtin_mul_overflow(base, base, &base)) return Overflow();
  }
}

absl::StatusOr<Value> ApplyIntegers(BinaryOp op, Int a, Int b) {
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kDiv:
      if (b == 0) return ZeroDivision();
      return Value::OfFloat(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDiv:
      if (b == 0) return ZeroDivision();
      if (a == kMinInt && b == -1) return Overflow();
      result = FloorDivide(a, b);
      break;
    case BinaryOp::kMod:
      if (b == 0) return ZeroDivision();
      result = FloorModulo(a, b);
      break;
    default:
      return PowIntegers(a, b);
  }
  if (overflow) return Overflow();
  return Value::OfInt(result);
}

double FloorModulo(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) mod += b;
  } else {
    mod = std::copysign(0.0, b);
  }
  return mod;
}

// As CPython does it: derived from the modulo, so that both stay consistent.
double FloorDivide(double a, double b) {
  const double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
  if (div == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(div);
  if (div - floor > 0.5) floor += 1.0;
  return floor;
}

absl::StatusOr<Value> ApplyFloats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::OfFloat(a + b);
    case BinaryOp::kSub:
      return Value::OfFloat(a - b);
    case BinaryOp::kMul:
      return Value::OfFloat(a * b);
    case BinaryOp::kPow: {
      if (a == 0 && b < 0) return ZeroDivision();
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        return absl::InvalidArgumentError("complex numbers are not supported");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return absl::InvalidArgumentError("numerical result out of range");
      }
      return Value::OfFloat(result);
    }
    default:
      break;
  }
  if (b == 0) return ZeroDivision();
  if (op == BinaryOp::kDiv) return Value::OfFloat(a / b);
  return Value::OfFloat(op == BinaryOp::kMod ? FloorModulo(a, b)
                                             : FloorDivide(a, b));
}

absl::StatusOr<Value> Repeat(Env& env, const Value& value, Int times) {
  if (value.is_string()) {
    if (times == 1) return value;
    TextSink out(env.budget());
    constexpr Int kMax = std::numeric_limits<int64_t>::max();
    out.AppendRepeated(value.text(),
                       static_cast<int64_t>(times > kMax ? kMax : times));
    INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
    return env.String(std::move(text));
  }
  const auto& items = value.items();
  std::vector<Value> repeated;
  if (times > 0 && !items.empty()) {
    const size_t most = env.budget().room_bytes() / sizeof(Value);
    if (times > static_cast<Int>(most / items.size())) {
      return env.budget().CheckRoom(std::numeric_limits<size_t>::max());
    }
    const auto total = static_cast<size_t>(times) * items.size();
    INLAY_RETURN_IF_ERROR(env.budget().Spend(static_cast<int64_t>(total)));
    repeated.reserve(total);
    for (Int i = 0; i < times; ++i) {
      repeated.insert(repeated.end(), items.begin(), items.end());
    }
  }
  return value.is(Kind::kList) ? env.List(std::move(repeated))
                               : env.Tuple(std::move(repeated));
}

absl::StatusOr<Value> Add(Env& env, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    TextSink out(env.budget());
    out.Append(a.text());
    out.Append(b.text());
    INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
    return env.String(std::move(text));
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t total = a.items().size() + b.items().size();
    INLAY_RETURN_IF_ERROR(env.budget().CheckRoom(total * sizeof(Value)));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? env.List(std::move(items))
                             : env.Tuple(std::move(items));
  }
  if (a.is_string()) {
    return TypeError(FormattedString(
        "can only concatenate str (not \"%s\") to str", TypeName(b)));
  }
  return BadOperands(BinaryOp::kAdd, a, b);
}

absl::StatusOr<Value> Concatenate(Env& env, const Value& a, const Value& b) {
  TextSink out(env.budget());
  INLAY_RETURN_IF_ERROR(AppendStr(env, a, out));
  INLAY_RETURN_IF_ERROR(AppendStr(env, b, out));
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

}  // namespace

Int FloorDivide(Int a, Int b) {
  const Int quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

Int FloorModulo(Int a, Int b) {
  if (b == -1) return 0;  // the one divisor whose quotient can overflow
  const Int rest = a % b;
  return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
}

absl::StatusOr<Int> Truncate(double value) {
  if (std::isnan(value) || std::abs(value) >= 0x1p126) {
    return absl::InvalidArgumentError(FormattedString(
        "cannot convert float %s to an integer", FloatText(value)));
  }
  return static_cast<Int>(value);
}

absl::StatusOr<Value> Apply(Env& env, BinaryOp op, const Value& a,
                            const Value& b) {
  INLAY_RETURN_IF_ERROR(env.budget().Spend(1));
  if (op == BinaryOp::kConcat) return Concatenate(env, a, b);
  if (op == BinaryOp::kMod && a.is_string()) {
    return FormatPercent(env, a.text(), b);
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral()
               ? ApplyIntegers(op, a.integer(), b.integer())
               : ApplyFloats(op, a.real(), b.real());
  }
  if (op == BinaryOp::kAdd) return Add(env, a, b);
  if (op == BinaryOp::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) {
      return Repeat(env, a, b.integer());
    }
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) {
      return Repeat(env, b, a.integer());
    }
  }
  return BadOperands(op, a, b);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is(Kind::kFloat)) return Value::OfFloat(-value.real());
  if (value.is_integral()) {
    if (value.integer() == kMinInt) return Overflow();
    return Value::OfInt(-value.integer());
  }
  return TypeError(
      FormattedString("bad operand type for unary -: '%s'", TypeName(value)));
}

absl::StatusOr<Value> Plus(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is(Kind::kFloat)) return value;
  if (value.is_integral()) return Value::OfInt(value.integer());
  return TypeError(
      FormattedString("bad operand type for unary +: '%s'", TypeName(value)));
}

}  // namespace inlay::tmpl
