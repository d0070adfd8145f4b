// The 16 levels of iq4_nl and iq4_xs: denser near zero, as weights are.
// Source: ggml (ggml-common.h, kvalues_iq4nl).
#ifndef INLAY_KERNELS_QUANT_IQ4_H_
#define INLAY_KERNELS_QUANT_IQ4_H_

#include <cstdint>

namespace inlay {

inline constexpr int8_t kIq4Levels[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The code of the level nearest to `value`; of NaN: 0.
inline int Iq4Code(float value) {
  int code = 0;
  for (int i = 0; i < 15; ++i) {
    const int twice_middle = kIq4Levels[i] + kIq4Levels[i + 1];
    code += value > static_cast<float>(twice_middle) / 2 ? 1 : 0;
  }
  return code;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ4_H_
