// Memory runs out at every allocation that the engine makes, the host's and the
// device's: nothing crashes, ends the process, leaks or is forgotten.
//
// A run costs milliseconds and there are thousands of allocations: a few
// hundred are tried, all of them with INLAY_FULL_SWEEP set.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "tests/core/engine_oom/failing_new.h"
#include "tests/core/engine_oom/script.h"
#include "tests/support/engine_harness.h"
#include "tests/support/lease_allocator.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::GoldenModel;
using ::inlay::testing::LeaseAllocator;

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

std::string Utf8(int code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// GPT-2's letters for bytes, and a few merges.
std::string TokenizerJson() {
  std::string vocab;
  int moved = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool shown = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const std::string letter = Utf8(shown ? byte : 256 + moved);
    if (!shown) ++moved;
    vocab += (byte > 0 ? ",\"" : "\"") +
             (letter == "\"" || letter == "\\" ? "\\" + letter : letter) +
             "\":" + std::to_string(byte);
  }
  return R"({"version":"1.0","added_tokens":[{"id":260,"content":"<|end|>",)"
         R"("single_word":false,"lstrip":false,"rstrip":false,)"
         R"("normalized":false,"special":true}],"normalizer":null,)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
         R"("trim_offsets":true,"use_regex":true},"post_processor":null,)"
         R"("decoder":{"type":"ByteLevel","add_prefix_space":true,)"
         R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE",)"
         R"("dropout":null,"unk_token":null,"fuse_unk":false,)"
         R"("byte_fallback":false,"vocab":{)" +
         vocab +
         R"(,"th":256,"to":257,"or":258,"be":259},)"
         R"("merges":["t h","t o","o r","b e"]}})";
}

// The smallest model that has everything: llama3 of tests/data with a tokenizer
// and a chat template.
class SmallModel {
 public:
  SmallModel() {
    path_ = (std::filesystem::temp_directory_path() / "inlay-XXXXXX").string();
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::create_symlink(GoldenModel("llama3") + "/" + file,
                                      path_ + "/" + file);
    }
    std::ofstream(path_ + "/tokenizer.json") << TokenizerJson();
    std::ofstream(path_ + "/tokenizer_config.json")
        << R"({"tokenizer_class":"GPT2Tokenizer","eos_token":"<|end|>",)"
           R"("chat_template":"{% for m in messages %}{{ m.role + ':' + )"
           R"(m.content }}{% endfor %}"})";
  }
  ~SmallModel() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

EngineOptions SmallEngine() {
  EngineOptions options;
  options.num_threads = 2;
  options.scheduler.max_batch_tokens = 32;
  options.scheduler.max_running = 6;
  return options;
}

ModelOptions SmallCache() {
  ModelOptions options;
  options.kv_budget_bytes = 9 << 14;
  options.host_cache_bytes = 6 * ((1 << 14) + 1024);
  return options;
}

int64_t Stride(int64_t count, int64_t runs) {
  if (std::getenv("INLAY_FULL_SWEEP") != nullptr) return 1;
  return std::max<int64_t>(1, count / runs);
}

class OomTest : public ::testing::Test {
 protected:
  OomTest() {
    weather_.bad = [] { armed_.emplace(); };
    weather_.good = [] { armed_.reset(); };
  }

  // One life of an engine; allocations fail while it serves.
  bool Live(int64_t first, int64_t count) {
    Script script(model_.path(), SmallEngine(), cache_, weather_);
    FailingNew::PlanNone();
    EXPECT_TRUE(script.Load());
    FailingNew::Plan(first, count);
    script.Serve();
    const int64_t failed = FailingNew::failed();
    seen_ = FailingNew::seen();
    FailingNew::PlanNone();
    script.Finish(want_.empty() ? nullptr : &want_);
    if (want_.empty()) want_ = script.tokens();
    EXPECT_TRUE(script.survived() || count > 1);
    survived_ += script.survived() ? 1 : 0;
    return failed > 0;
  }

  // Lives until none of an engine's allocations is left to fail.
  void Sweep(int64_t count, int64_t runs) {
    Live(kForever, 0);  // what is made once and kept
    ASSERT_GT(want_.size(), 10u);
    Live(kForever, 0);
    const int64_t stride = Stride(seen_, runs);
    int lives = 0;
    for (int64_t k = 1;; k += stride, ++lives) {
      SCOPED_TRACE(::testing::Message() << "allocation " << k);
      const int64_t before = FailingNew::live_bytes();
      const bool failed = Live(k, count);
      ASSERT_EQ(FailingNew::live_bytes(), before);
      if (!failed || HasFailure()) break;
    }
    RecordProperty("lives", lives);
    RecordProperty("survived", survived_);
  }

  // One at a time: the calls of a script are.
  static inline std::optional<FailingNew::Armed> armed_;
  SmallModel model_;
  ModelOptions cache_ = SmallCache();
  Script::Weather weather_;
  Script::Tokens want_;
  int64_t seen_ = 0;
  int survived_ = 0;
};

TEST_F(OomTest, WhileServingOneFails) {
  Sweep(1, ::inlay::testing::FewerWhenSanitized(120));
}
// The device's memory, as the host's allocator gives it.
TEST_F(OomTest, TheDevicesMemory) {
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{1000000}}) {
    bool failed = true;
    for (int64_t k = 1; failed && !HasFailure(); ++k) {
      SCOPED_TRACE(::testing::Message() << count << " from allocation " << k);
      LeaseAllocator allocator;
      EngineOptions options = SmallEngine();
      options.allocator = allocator.hooks();
      Script script(model_.path(), options, cache_, {});
      allocator.FailFrom(k, count);
      const bool loaded = script.Load();
      if (loaded) script.Serve();
      failed = allocator.num_failed() > 0;
      allocator.FailFrom(0, 0);
      script.Finish(want_.empty() ? nullptr : &want_);
      EXPECT_EQ(script.survived(), loaded);
      EXPECT_EQ(allocator.num_live(), 0);
      EXPECT_EQ(allocator.live(), 0u);
    }
  }
}

}  // namespace
}  // namespace inlay
