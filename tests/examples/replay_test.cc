// --record, inlay replay, and --trace.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

TEST(ReplayTest, WhatWasGeneratedComesOutTheSame) {
  const TempFile recording("recording");
  const Ran generated =
      Inlay({"generate", Pocket7m(), "--prompt", "Once upon a time,",
             "--max-tokens", "12", "--temperature", "1", "--seed", "5",
             "--record", recording.path(), "--json"});
  ASSERT_EQ(generated.status, 0) << generated.err;
  std::vector<int32_t> tokens;
  for (const auto& line : generated.JsonLines()) {
    if (line["event"] != "tokens") continue;
    for (const int32_t token : line["tokens"]) tokens.push_back(token);
  }
  const Ran replayed =
      Inlay({"replay", Pocket7m(), recording.path(), "--json"});
  ASSERT_EQ(replayed.status, 0) << replayed.err;
  const nlohmann::json report = replayed.JsonLine();
  EXPECT_EQ(report["same"], true);
  EXPECT_EQ(report["tokens"], 12);
  EXPECT_EQ(report["damage"], "");
  ASSERT_EQ(report["tokens_of"].size(), 1u);
  EXPECT_EQ(report["tokens_of"].begin()->get<std::vector<int32_t>>(), tokens);

  const Ran readable = Inlay({"replay", Pocket7m(), recording.path()});
  EXPECT_EQ(readable.out,
            "1 requests, 12 steps, 12 tokens: the same as recorded\n");

  // Cut in the middle: what is there is the same.
  const std::string bytes = ReadText(recording.path());
  std::ofstream(recording.path(), std::ios::binary)
      << bytes.substr(0, bytes.size() / 2);
  const Ran cut = Inlay({"replay", Pocket7m(), recording.path()});
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_NE(cut.out.find("up to there"), std::string::npos) << cut.out;
  EXPECT_NE(cut.err.find("at byte"), std::string::npos) << cut.err;
}

TEST(TraceTest, HasTheStepsOfTheGeneration) {
  const TempFile trace("trace");
  const Ran ran =
      Inlay({"generate", Pocket7m(), "--prompt", "Once upon a time,",
             "--max-tokens", "5", "--trace", trace.path(), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  // Its format is Engine::StartTrace()'s to test; names are in it as they are.
  const std::string bytes = ReadText(trace.path());
  size_t steps = 0;
  for (size_t at = bytes.find("forward"); at != std::string::npos;
       at = bytes.find("forward", at + 1)) {
    ++steps;
  }
  EXPECT_EQ(steps, 5u);
  const Ran unwritten = Inlay({"generate", Pocket7m(), "--prompt", "a",
                               "--max-tokens", "1", "--trace", "/no/such/x"});
  EXPECT_NE(unwritten.err.find("/no/such/x"), std::string::npos);
}

TEST(ReplayTest, RefusesOtherFiles) {
  const TempFile text("text", "no recording at all");
  const Ran ran = Inlay({"replay", Pocket7m(), text.path(), "--json"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.JsonLine()["status"], "INLAY_INVALID_ARGUMENT");
  EXPECT_EQ(Inlay({"replay", Pocket7m()}).status, 2);
  const Ran full = Inlay({"generate", Pocket7m(), "--prompt", "a",
                          "--max-tokens", "1", "--record", "/no/such/file"});
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("/no/such/file"), std::string::npos) << full.err;
}

}  // namespace
}  // namespace inlay
