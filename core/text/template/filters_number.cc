// Filters on numbers.
#include <cmath>

#include "core/text/template/arithmetic.h"
#include "core/text/template/callables.h"
#include "core/text/template/literals.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

Result IntFilter(Env&, const Value& self, const Args& args) {
  const Value fallback = args.has(0) ? args[0] : Value::OfInt(0);
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is_integral()) return Value::OfInt(self.integer());
  double real = self.is(Kind::kFloat) ? self.real() : 0;
  if (self.is_string()) {
    INLAY_ASSIGN_OR_RETURN(const int64_t base,
                           args.Integer(1, 10, "int's base"));
    Int value = 0;
    const bool base_ok = base == 0 || (base >= 2 && base <= 36);
    if (base_ok && ParseInt(self.text(), static_cast<int>(base), value)) {
      return Value::OfInt(value);
    }
    // "42.23" is 42.
    if (!ParseFloat(self.text(), real)) return fallback;
  } else if (!self.is(Kind::kFloat)) {
    return fallback;
  }
  const absl::StatusOr<Int> whole = Truncate(real);
  if (!whole.ok()) return fallback;
  return Value::OfInt(*whole);
}

Result FloatFilter(Env&, const Value& self, const Args& args) {
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is_number()) return Value::OfFloat(self.real());
  double real = 0;
  if (self.is_string() && ParseFloat(self.text(), real)) {
    return Value::OfFloat(real);
  }
  return args.has(0) ? args[0] : Value::OfFloat(0);
}

Result Abs(Env&, const Value& self, const Args&) {
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is(Kind::kFloat)) return Value::OfFloat(std::abs(self.real()));
  if (self.is_integral()) {
    return self.integer() < 0 ? Negate(self) : Value::OfInt(self.integer());
  }
  return TypeError(
      FormattedString("bad operand type for abs(): '%s'", TypeName(self)));
}

// Correctly rounded half to even of the exact binary value, as Python does it:
// by way of the decimal text.
double RoundDecimal(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision >= 0) {
    double rounded = value;
    ParseFloat(FormattedString("%.*f", static_cast<int>(precision), value),
               rounded);
    return rounded;
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

Result RoundInteger(Env& env, const Value& self, int64_t precision) {
  if (precision >= 0) return Value::OfInt(self.integer());
  if (precision < -38) return Value::OfInt(0);
  INLAY_ASSIGN_OR_RETURN(
      const Value unit,
      Apply(env, BinaryOp::kPow, Value::OfInt(10), Value::OfInt(-precision)));
  const Int scale = unit.integer();
  const Int rest = FloorModulo(self.integer(), scale);
  const Int low = self.integer() - rest;
  const bool odd = (FloorDivide(low, scale) & 1) != 0;
  const bool up = rest > scale - rest || (rest == scale - rest && odd);
  return Apply(env, BinaryOp::kAdd, Value::OfInt(low),
               Value::OfInt(up ? scale : 0));
}

Result Round(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const int64_t precision,
                         args.Integer(0, 0, "round's precision"));
  INLAY_ASSIGN_OR_RETURN(const std::string_view method,
                         args.Text(1, "common", "round's method"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return TypeError("method must be common, ceil or floor");
  }
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_number()) {
    return TypeError(FormattedString("type %s doesn't define __round__ method",
                                     TypeName(self)));
  }
  if (method == "common") {
    if (self.is_integral()) return RoundInteger(env, self, precision);
    return Value::OfFloat(RoundDecimal(self.real(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.real() * scale;
  if (!std::isfinite(scaled) || scale == 0) {
    return absl::InvalidArgumentError("round's result is out of range");
  }
  return Value::OfFloat(
      (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr NativeDef kFilters[] = {
    {"abs", "", Abs},
    {"float", "default", FloatFilter},
    {"int", "default base", IntFilter},
    {"round", "precision method", Round},
};

}  // namespace

std::span<const NativeDef> NumberFilters() { return kFilters; }

}  // namespace inlay::tmpl
