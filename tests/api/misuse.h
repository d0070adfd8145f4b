// What the tests of misuse share: a call gives its typed error, whose message
// says what is wrong.
#ifndef INLAY_TESTS_API_MISUSE_H_
#define INLAY_TESTS_API_MISUSE_H_

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/api/host.h"

namespace inlay::testing {

inline void ExpectError(inlay_status got, const Error& error,
                        inlay_status expected,
                        const std::vector<std::string>& words) {
  EXPECT_EQ(got, expected) << inlay_status_name(got) << ": " << error.message();
  EXPECT_EQ(error.status(), expected);
  for (const std::string& word : words) {
    EXPECT_THAT(error.message(), ::testing::HasSubstr(word));
  }
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_API_MISUSE_H_
