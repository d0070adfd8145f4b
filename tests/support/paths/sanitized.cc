#include "tests/support/sanitized.h"

namespace inlay::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool kSanitized = true;
#elif defined(__has_feature)
const bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
const bool kSanitized = false;
#endif

}  // namespace inlay::testing
