// How the command answers when it is called wrongly, and what every form says
// of itself.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/examples/subprocess.h"

namespace inlay {
namespace {

using ::testing::TestWithParam;
using Words = std::vector<std::string>;

TEST(UsageTest, VersionAndHelp) {
  const Ran version = Inlay({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("inlay 0.", 0), 0u) << version.out;
  const Ran help = Inlay({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const std::string command :
       {"generate", "chat", "logits", "tokenize", "template", "inspect", "eval",
        "quantize", "bench"}) {
    EXPECT_NE(help.out.find("  " + command + " "), std::string::npos);
    const Ran one = Inlay({command, "--help"});
    EXPECT_EQ(one.status, 0);
    EXPECT_EQ(one.err, "");
    EXPECT_EQ(Inlay({"help", command}).out, one.out);
    for (const char* option : {"--backend", "--json", "--threads", "--kv-type",
                               "--kv-budget", "--kernels", "--quiet"}) {
      EXPECT_NE(one.out.find(option), std::string::npos) << command << option;
    }
  }
}

struct Wrong {
  Words words;
  const char* message;  // in what stderr says
};

// What ctest shows as the case's parameter.
void PrintTo(const Wrong& wrong, std::ostream* out) {
  for (const auto& word : wrong.words) *out << word << ' ';
}

class WrongUsageTest : public TestWithParam<Wrong> {};

TEST_P(WrongUsageTest, ExitsTwoAndNamesIt) {
  const Ran ran = Inlay(GetParam().words);
  EXPECT_EQ(ran.status, 2) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find(GetParam().message), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("usage: inlay"), std::string::npos) << ran.err;
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongUsageTest,
    ::testing::Values(
        Wrong{{}, "no command"}, Wrong{{"sing"}, "\"sing\""},
        Wrong{{"generate"}, "MODEL is missing"},
        Wrong{{"generate", "m", "extra"}, "\"extra\""},
        Wrong{{"generate", "m", "--nothing"}, "--nothing"},
        Wrong{{"generate", "m", "-x"}, "-x"},
        Wrong{{"generate", "m", "--prompt"}, "--prompt"},
        Wrong{{"generate", "m", "--json=1"}, "--json takes no value"},
        Wrong{{"generate", "m", "--max-tokens", "many"}, "got \"many\""},
        Wrong{{"generate", "m", "--max-tokens", "-2"}, "from -1 to"},
        Wrong{{"generate", "m", "--top-p", "1.5"}, "from 0 to 1"},
        Wrong{{"generate", "m", "--temperature", "nan"}, "got \"nan\""},
        Wrong{{"generate", "m", "--seed", "99999999999999999999"}, "--seed"},
        Wrong{{"generate", "m", "--backend", "tpu"}, "auto|cpu|cuda"},
        Wrong{{"generate", "m", "--kv-budget", "12T"}, "K, M or G"},
        Wrong{{"generate", "m", "--kv-budget", "99999999999999G"}, "--kv-bud"},
        Wrong{{"generate", "m", "--threads", "0"}, "from 1 to 1024"},
        Wrong{{"generate", "m", "--prompt", "x", "--system", "y"}, "--chat"},
        Wrong{{"generate", "m", "--prompt", "x", "--answer", "y"}, "--chat"},
        Wrong{{"generate", "m", "--disk-cache", "d"}, "without --host-cache"},
        Wrong{{"generate", "m", "--disk-cache-bytes=1M"}, "without --disk-cac"},
        Wrong{{"logits", "m"}, "--ids is missing"},
        Wrong{{"logits", "m", "--ids", ""}, "--ids"},
        Wrong{{"logits", "m", "--ids", "1,,2"}, "got \"1,,2\""},
        Wrong{{"logits", "m", "--ids", "-1"}, "got -1"},
        Wrong{{"logits", "m", "--ids", "1,2", "--positions", "2"}, "0 to 1"},
        Wrong{{"logits", "m", "--ids", "1,2", "--positions", "-1"}, "got -1"},
        Wrong{{"template", "m"}, "--input is missing"},
        Wrong{{"eval", "m"}, "--jsonl"},
        Wrong{{"eval", "m", "--text", "t", "--limit", "3"}, "without --jsonl"},
        Wrong{{"bench", "m", "--concurrency=2", "--shared-prefix", "999"},
              "--shared-prefix"},
        Wrong{{"bench", "m", "--rate", "5"},
              "--rate does nothing without --requests, --concurrency or --sw"},
        Wrong{{"bench", "m", "--long-at", "5"}, "without --long-prompt"},
        Wrong{{"bench", "m", "--in", "5"}, "or --long-prompt"},
        Wrong{{"bench", "m", "--batch", "5", "--sweep", "1,2"},
              "--batch does nothing with --sweep"},
        Wrong{{"quantize", "m"}, "OUT is missing"},
        Wrong{{"quantize", "m", "o"}, "--type is missing"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--method", "best"},
              "--method is best"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--method", "awq"},
              "needs --calibration"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--imatrix", "i",
               "--method", "gptq"},
              "--imatrix goes with --method imatrix"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--imatrix", "i",
               "--calibration", "c"},
              "--imatrix goes with --method imatrix"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--act-order"},
              "--act-order does nothing with --method rtn"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--calibration", "c",
               "--smoothing", "0.4"},
              "--smoothing does nothing with --method gptq"},
        Wrong{{"quantize", "m", "o", "--type", "q4_0", "--expert-sums", "1G"},
              "without --calibration"}));

TEST(FailureTest, ExitsOneAndKeepsStdoutJson) {
  const Ran ran = Inlay({"generate", "/no/such/model", "--prompt", "x"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("/no/such/model"), std::string::npos) << ran.err;
  const Ran json =
      Inlay({"generate", "/no/such/model", "--prompt", "x", "--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(json.JsonLine()["status"], "INLAY_NOT_FOUND") << json.out;
}

// What --trace asks for is part of the work.
TEST(FailureTest, ATraceThatCannotBeWritten) {
  const Ran ran = Inlay({"generate", Pocket1m(), "--prompt", "x", "--json",
                         "--max-tokens", "1", "--trace", "/no/such/folder/t"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("cannot write /no/such/folder/t: No such file"),
            std::string::npos)
      << ran.err;
  EXPECT_NE(ran.out.find("\"finished\""), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("{\"error\":\"cannot write"), std::string::npos);
}

TEST(FailureTest, TextForAModelWithoutTokenizer) {
  const Ran ran = Inlay({"chat", DataPath("models/llama3")}, "Hi\n");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("has no tokenizer"), std::string::npos) << ran.err;
}

TEST(FailureTest, FullDiskIsSaidAndAClosedPipeIsNot) {
  const std::string inlay = std::string(INLAY_BIN) + "/inlay";
  EXPECT_EQ(system((inlay + " --help >/dev/full 2>/dev/null").c_str()), 256);
  // The reader is gone before the first write.
  EXPECT_EQ(system(("bash -c 'set -o pipefail; (sleep 0.2; " + inlay +
                    " --help) 2>&1 | true'")
                       .c_str()),
            0);
}

}  // namespace
}  // namespace inlay
