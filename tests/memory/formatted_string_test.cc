#include "memory/formatted_string.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "memory/caught.h"
#include "tests/memory/failing_new.h"

namespace inlay {
namespace {

TEST(FormattedStringTest, FormatsAsAbslDoes) {
  EXPECT_EQ(FormattedString("%s is %d, %5.2f", "it", 3, 1.5), "it is 3,  1.50");
  EXPECT_EQ(FormattedString("%%"), "%");
  // Longer than absl's own buffer.
  const std::string text(5000, 'x');
  EXPECT_EQ(FormattedString("%s.%s", text, text), text + "." + text);
}

// Whichever allocation of a message fails: absl::StrFormat ends the process.
TEST(FormattedStringTest, WithoutMemoryItThrows) {
  const std::string text(5000, 'x');
  int succeed = 0;
  for (bool failed = true; failed; ++succeed) {
    ASSERT_LT(succeed, 20);
    std::string made;
    try {
      const FailingNew fail(succeed);
      made = FormattedString("%s: a sentence of some length, %d", text, 7);
      failed = false;
    } catch (const std::bad_alloc&) {
    }
    EXPECT_EQ(made.empty(), failed);
  }
  EXPECT_GT(succeed, 1);
}

TEST(CaughtTest, StatusesWithoutMemory) {
  FailingNew fail(0);
  const absl::Status bare =
      StatusOf(absl::StatusCode::kInternal, "a message that needs memory");
  EXPECT_EQ(bare.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(bare.message(), "");
  EXPECT_EQ(StatusOf(absl::StatusCode::kInternal, "text").message(), "text");
}

TEST(CaughtTest, WhatIsThrown) {
  EXPECT_TRUE(Caught([] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(Caught([]() -> absl::Status { throw std::bad_alloc(); }).code(),
            absl::StatusCode::kAlreadyExists);
  const absl::Status other =
      Caught([]() -> absl::Status { throw std::runtime_error("something"); });
  EXPECT_EQ(other.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(other.message(), "something");
  EXPECT_EQ(Caught([]() -> absl::Status { throw 7; }).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace inlay
