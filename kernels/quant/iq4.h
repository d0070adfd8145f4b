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

inline float NearestIq4Level(float value) {
  return static_cast<float>(kIq4Levels[Iq4Code(value)]);
}

// What FitScale tries: the extreme value at -127 and around.
inline constexpr float kIq4First = -127.0f;
inline constexpr float kIq4Step = 5.0f;

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ4_H_
