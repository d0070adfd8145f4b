// Every option's range: its edges pass, what lies beyond is refused by name.
#include "core/sampling/sampling_params.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/sampling/special_floats.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 10;

absl::Status ValidateWith(const std::function<void(SamplingParams&)>& edit) {
  SamplingParams params;
  edit(params);
  return Validate(params, kVocab);
}

struct FloatOption {
  const char* name;
  float SamplingParams::*field;
  float low, high;
};

constexpr FloatOption kFloats[] = {
    {"temperature", &SamplingParams::temperature, 0, kMaxTemperature},
    {"top_p", &SamplingParams::top_p, 0, 1},
    {"min_p", &SamplingParams::min_p, 0, 1},
    {"repetition_penalty", &SamplingParams::repetition_penalty,
     kMinRepetitionPenalty, kMaxRepetitionPenalty},
    {"frequency_penalty", &SamplingParams::frequency_penalty,
     -kMaxAdditivePenalty, kMaxAdditivePenalty},
    {"presence_penalty", &SamplingParams::presence_penalty,
     -kMaxAdditivePenalty, kMaxAdditivePenalty},
};

TEST(SamplingParams, DefaultsAreValid) {
  EXPECT_TRUE(Validate(SamplingParams{}, kVocab).ok());
}

TEST(SamplingParams, FloatRanges) {
  for (const FloatOption& option : kFloats) {
    for (float good : {option.low, option.high}) {
      EXPECT_TRUE(ValidateWith([&](auto& p) { p.*option.field = good; }).ok())
          << option.name << " " << good;
    }
    for (float bad : {kNan, kInf, -kInf, std::nextafter(option.low, -kInf),
                      std::nextafter(option.high, kInf)}) {
      const absl::Status status =
          ValidateWith([&](auto& p) { p.*option.field = bad; });
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << option.name << " " << bad;
      EXPECT_THAT(std::string(status.message()),
                  ::testing::StartsWith(std::string(option.name) + " is "));
      EXPECT_THAT(std::string(status.message()), HasSubstr("allowed is"));
    }
  }
}

TEST(SamplingParams, IntegerRanges) {
  EXPECT_TRUE(ValidateWith([](auto& p) { p.top_k = 1 << 30; }).ok());
  EXPECT_TRUE(ValidateWith([](auto& p) { p.penalty_last_n = -1; }).ok());
  EXPECT_TRUE(ValidateWith([](auto& p) { p.num_logprobs = 1024; }).ok());
  EXPECT_EQ(ValidateWith([](auto& p) { p.top_k = -1; }).message(),
            "top_k is -1, allowed is 0 to 2147483647");
  EXPECT_FALSE(ValidateWith([](auto& p) { p.penalty_last_n = -2; }).ok());
  EXPECT_FALSE(ValidateWith([](auto& p) { p.num_logprobs = -2; }).ok());
  EXPECT_EQ(ValidateWith([](auto& p) { p.num_logprobs = 1025; }).message(),
            "num_logprobs is 1025, allowed is -1 to 1024");
}

TEST(SamplingParams, TokenLists) {
  EXPECT_TRUE(ValidateWith([](auto& p) {
                p.logit_bias = {{0, -100.0f}, {9, 100.0f}, {9, 1.0f}};
                p.banned_tokens = {0, 9};
              }).ok());
  EXPECT_EQ(ValidateWith([](auto& p) {
              p.logit_bias = {{0, 1}, {10, 1}};
            }).message(),
            "logit_bias[1] names token 10, allowed is 0 to 9");
  EXPECT_FALSE(ValidateWith([](auto& p) { p.logit_bias = {{-1, 1}}; }).ok());
  EXPECT_FALSE(ValidateWith([](auto& p) { p.banned_tokens = {10}; }).ok());
  for (float bad : {kNan, kInf, -kInf}) {
    EXPECT_THAT(std::string(ValidateWith([&](auto& p) {
                              p.logit_bias = {{3, bad}};
                            }).message()),
                HasSubstr("for token 3, allowed are finite values"));
  }
  EXPECT_FALSE(ValidateWith([](auto& p) { p.logit_bias.resize(11); }).ok());
  EXPECT_FALSE(ValidateWith([](auto& p) { p.banned_tokens.resize(11); }).ok());
}

TEST(SamplingParams, Vocabulary) {
  EXPECT_TRUE(Validate(SamplingParams{}, 1).ok());
  EXPECT_FALSE(Validate(SamplingParams{}, 0).ok());
  EXPECT_FALSE(Validate(SamplingParams{}, -5).ok());
  EXPECT_FALSE(Validate(SamplingParams{}, int64_t{1} << 31).ok());
}

}  // namespace
}  // namespace inlay
