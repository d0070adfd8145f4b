// What is no number, or none that is finite.
#ifndef INLAY_TESTS_CORE_SAMPLING_SPECIAL_FLOATS_H_
#define INLAY_TESTS_CORE_SAMPLING_SPECIAL_FLOATS_H_

#include <limits>

namespace inlay {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_SAMPLING_SPECIAL_FLOATS_H_
