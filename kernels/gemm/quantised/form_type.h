// A form (layout.h) as a type, for kernels that are compiled for each.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_FORM_TYPE_H_
#define INLAY_KERNELS_GEMM_QUANTISED_FORM_TYPE_H_

#include "kernels/gemm/quantised/layout.h"

namespace inlay {

template <QuantCodes kCodesOf, int kGroupOf, bool kHasMinOf>
struct QuantFormType {
  static constexpr QuantCodes kCodes = kCodesOf;
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kHasMin = kHasMinOf;
};

// run(QuantFormType<..>()) of `form`, whose codes are kCodes: of those forms
// that some format has.
template <QuantCodes kCodes, typename Run>
auto WithQuantForm(const QuantForm& form, Run run) {
  constexpr bool kLinear4 = kCodes == QuantCodes::kLinear4;
  if constexpr (kCodes == QuantCodes::kLinear6) {
    return form.has_min ? run(QuantFormType<kCodes, 32, true>())
                        : run(QuantFormType<kCodes, 16, false>());
  } else if constexpr (kCodes == QuantCodes::kTable4) {
    return form.group == 16 ? run(QuantFormType<kCodes, 16, false>())
                            : run(QuantFormType<kCodes, 32, false>());
  } else if constexpr (kCodes == QuantCodes::kE4M3) {
    return form.group == 128 ? run(QuantFormType<kCodes, 128, false>())
                             : run(QuantFormType<kCodes, 32, false>());
  } else {
    if constexpr (kLinear4) {
      if (form.group == 16) {
        return form.has_min ? run(QuantFormType<kCodes, 16, true>())
                            : run(QuantFormType<kCodes, 16, false>());
      }
    }
    if (form.group == 128) return run(QuantFormType<kCodes, 128, true>());
    return form.has_min ? run(QuantFormType<kCodes, 32, true>())
                        : run(QuantFormType<kCodes, 32, false>());
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_FORM_TYPE_H_
