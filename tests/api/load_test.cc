// What a host is told while a model loads, log and progress, and that it can
// cancel there.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

TEST(Log, GoesToTheHostUpToItsLevel) {
  struct Sink {
    int count = 0;
    int32_t highest = -1;
    std::string text;
  };
  for (const int32_t level : {INLAY_LOG_ERROR, INLAY_LOG_DEBUG}) {
    Sink sink;
    auto options = EngineDefaults();
    options.log_level = level;
    options.log_user = &sink;
    options.log = [](void* user, int32_t at, const char* message) {
      auto* into = static_cast<Sink*>(user);
      ++into->count;
      into->highest = std::max(into->highest, at);
      into->text += message;
    };
    { Host(TinyModel(), options).ExpectWorks(); }
    EXPECT_LE(sink.highest, level);
    if (level == INLAY_LOG_DEBUG) {
      EXPECT_GT(sink.count, 0);
      EXPECT_THAT(sink.text, HasSubstr("LlamaForCausalLM"));
    } else {
      EXPECT_EQ(sink.count, 0) << sink.text;
    }
  }
}

// At once, also where no step computes anything: of a request whose deadline
// passed while it waited.
TEST(Log, TellsOfARequestThatFailedWhileItWaited) {
  int count = 0;
  auto options = EngineDefaults();
  options.log_user = &count;
  options.log = [](void* user, int32_t, const char* message) {
    EXPECT_THAT(message, HasSubstr("deadline"));
    ++*static_cast<int*>(user);
  };
  Host host(TinyModel(), options);
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {1, 2, 3};
  auto late = TokensRequest(prompt, 4);
  late.deadline_us = 1;
  inlay_request* request = host.Submit(session, late);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  host.Step();
  EXPECT_EQ(count, 1);
  EXPECT_EQ(host.Finish(request).finish.status, INLAY_TIMEOUT);
  EXPECT_EQ(count, 1);
  inlay_session_release(session);
}

// Paths are bytes; what quotes them is UTF-8.
TEST(Log, AndErrorsAreUtf8) {
  std::string text;
  auto options = EngineDefaults();
  options.log_level = INLAY_LOG_INFO;
  options.log_user = &text;
  options.log = [](void* user, int32_t, const char* message) {
    *static_cast<std::string*>(user) += message;
  };
  Host host("", options);
  std::string folder = ::testing::TempDir() + "inlay-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder +
                           "/\xff\xc0"
                           "model";
  std::filesystem::create_directory_symlink(TinyModel(), path);
  inlay_model* model = nullptr;
  EXPECT_EQ(
      inlay_model_load(host.engine, path.c_str(), nullptr, &model, nullptr),
      INLAY_OK);
  inlay_model_release(model);
  EXPECT_THAT(text, HasSubstr("loaded " + folder +
                              "/\xef\xbf\xbd\xef\xbf\xbd"
                              "model"));
  Error error;
  EXPECT_EQ(inlay_model_load(host.engine, (path + "s").c_str(), nullptr, &model,
                             error.out()),
            INLAY_NOT_FOUND);
  EXPECT_THAT(error.message(), HasSubstr("/\xef\xbf\xbd\xef\xbf\xbd"
                                         "models"));
  std::filesystem::remove_all(folder);
}

struct Progress {
  std::vector<std::pair<int32_t, float>> calls;
  size_t cancel_at = SIZE_MAX;

  static int32_t Call(void* user, int32_t stage, float fraction) {
    auto* self = static_cast<Progress*>(user);
    self->calls.emplace_back(stage, fraction);
    return self->calls.size() > self->cancel_at ? 1 : 0;
  }
  void AttachTo(inlay_model_options& options) {
    options.progress = Call;
    options.progress_user = this;
  }
};

TEST(Progress, StagesInOrderFractionsGrowing) {
  for (const int32_t weights : {INLAY_WEIGHTS_MAP, INLAY_WEIGHTS_READ}) {
    Progress progress;
    auto options = ModelDefaults();
    options.weights = weights;
    progress.AttachTo(options);
    Host host(PocketModel(), EngineDefaults(), options);
    ASSERT_GE(progress.calls.size(), 5u);
    EXPECT_EQ(progress.calls.front().first, INLAY_LOAD_CONFIG);
    EXPECT_EQ(progress.calls.back(),
              std::make_pair(int32_t{INLAY_LOAD_READY}, 1.0f));
    std::map<int32_t, float> last;
    int32_t stage = INLAY_LOAD_CONFIG;
    for (const auto& [now, fraction] : progress.calls) {
      EXPECT_GE(now, stage);
      EXPECT_LE(now, stage + 1) << "a stage was skipped";
      stage = now;
      EXPECT_GE(fraction, 0.0f);
      EXPECT_LE(fraction, 1.0f);
      const auto previous = last.find(now);
      EXPECT_GE(fraction, previous == last.end() ? 0.0f : previous->second);
      last[now] = fraction;
    }
    EXPECT_EQ(last[INLAY_LOAD_WEIGHTS], 1.0f);
  }
}

TEST(Progress, CancelsAtEveryCall) {
  CountingAllocator allocator;
  auto engine_options = EngineDefaults();
  allocator.AttachTo(engine_options);
  Host host("", engine_options);
  bool completed = false;
  for (size_t n = 0; n < 500 && !completed; ++n) {
    Progress progress;
    progress.cancel_at = n;
    auto options = ModelDefaults();
    options.weights = INLAY_WEIGHTS_READ;
    progress.AttachTo(options);
    Error error;
    inlay_model* model = nullptr;
    const auto status = inlay_model_load(host.engine, TinyModel().c_str(),
                                         &options, &model, error.out());
    completed = progress.calls.size() <= n;
    EXPECT_EQ(status, completed ? INLAY_OK : INLAY_CANCELLED)
        << n << ": " << error.message();
    if (!completed) {
      EXPECT_EQ(progress.calls.size(), n + 1) << "called after the cancel";
    }
    if (completed) {
      inlay_model_release(model);
      host.Step();
    }
    EXPECT_EQ(allocator.live_bytes(), 0) << n;
  }
  EXPECT_TRUE(completed);
}

// A copy of the small model whose files give no ids; the tokenizer's name
// what begins and ends texts.
class WithoutIds : public ::testing::Test {
 protected:
  WithoutIds() : folder_(::testing::TempDir() + "inlay_XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
    for (const char* name : {"config.json", "model.safetensors",
                             "tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::copy(SmallModel() + "/" + name, folder_);
    }
    Edit("config.json", R"re("(bos|eos)_token_id": ([0-9]+|\[[^\]]*\]),)re",
         "");
  }
  ~WithoutIds() override { std::filesystem::remove_all(folder_); }

  void Edit(const std::string& name, const char* what, const char* to) const {
    const std::string path = folder_ + "/" + name;
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    const std::string edited =
        std::regex_replace(text.str(), std::regex(what), to);
    EXPECT_NE(edited, text.str());
    std::ofstream(path) << edited;
  }

  std::string folder_;
};

TEST_F(WithoutIds, TheTokenizersEndStops) {
  Edit("tokenizer_config.json", R"re("eos_token": "<\|eos\|>")re",
       R"("eos_token": "<|end|>")");
  Host host(folder_), whole(SmallModel());
  auto info = Defaults(inlay_model_info_init_sized);
  ASSERT_EQ(inlay_model_get_info(host.model, &info, nullptr), INLAY_OK);
  EXPECT_EQ(info.bos_token, 0);
  EXPECT_EQ(info.eos_token, 6);
  const std::string chat =
      R"({"messages":[{"role":"user","content":"12 + 30"}]})";
  const auto options = ChatRequest(chat, 200);
  const Outcome expected = whole.RunAlone(options);
  ASSERT_EQ(expected.finish.finish_reason, INLAY_FINISH_STOP);
  const Outcome outcome = host.RunAlone(options);
  EXPECT_EQ(outcome.finish.finish_reason, INLAY_FINISH_STOP);
  EXPECT_EQ(outcome.finish.stop_token, 6);
  EXPECT_EQ(outcome.tokens, expected.tokens);
}

// Ids come before names, and a name that the vocabulary has not is none.
TEST_F(WithoutIds, IdsComeFirst) {
  const auto eos = [&] {
    Host host(folder_);
    auto info = Defaults(inlay_model_info_init_sized);
    EXPECT_EQ(inlay_model_get_info(host.model, &info, nullptr), INLAY_OK);
    return info.eos_token;
  };
  EXPECT_EQ(eos(), 1);
  Edit("config.json", R"re("pad_token_id")re",
       R"("eos_token_id": 7, "pad_token_id")");
  EXPECT_EQ(eos(), 7);
  Edit("config.json", R"re("eos_token_id": 7)re", R"("eos_token_id": null)");
  EXPECT_EQ(eos(), 1);
  Edit("tokenizer_config.json", R"re("eos_token": "<\|eos\|>")re",
       R"("eos_token": "<|no such|>")");
  EXPECT_EQ(eos(), -1);
}

// The engine is another thread's to use meanwhile: a budget that comes when the
// cache is there already is kept too.
TEST(Progress, BudgetsSetMeanwhileAreKept) {
  struct Meanwhile {
    inlay_engine* engine = nullptr;
    uint64_t budget = 0;
    inlay_status status = INLAY_INTERNAL;
  } meanwhile;
  for (const int32_t drive : {INLAY_DRIVE_HOST, INLAY_DRIVE_THREAD}) {
    auto engine_options = EngineDefaults();
    engine_options.drive = drive;
    Host host(TinyModel(), engine_options, SmallCache());
    const auto before = host.Stats();
    const uint64_t floor = before.weight_bytes + before.workspace_bytes;
    meanwhile.engine = host.engine;
    meanwhile.budget = 2 * floor + 24 * kBlockBytes;
    auto options = SmallCache();
    options.progress_user = &meanwhile;
    options.progress = [](void* user, int32_t stage, float) -> int32_t {
      auto* self = static_cast<Meanwhile*>(user);
      if (stage != INLAY_LOAD_READY) return 0;
      std::thread([self] {
        self->status = inlay_engine_set_memory_budget(self->engine, 0,
                                                      self->budget, nullptr);
      }).join();
      return 0;
    };
    Error error;
    inlay_model* second = nullptr;
    ASSERT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), &options,
                               &second, error.out()),
              INLAY_OK)
        << error.message();
    EXPECT_EQ(meanwhile.status, INLAY_OK);
    const auto kept = [&] {
      return host.Stats().memory_bytes <= meanwhile.budget;
    };
    for (int i = 0; i < 5000 && !kept(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(kept()) << host.Stats().memory_bytes;
    EXPECT_GT(host.Stats().kv_bytes, 0u);
    // A larger one, too: the new model's cache, which is of a size that the
    // library chose, comes to it.
    const auto is_first = [&] { return host.Stats().num_models == 1; };
    inlay_model_release(second);
    for (int i = 0; i < 5000 && !is_first(); ++i) {
      if (drive == INLAY_DRIVE_HOST) host.Step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(inlay_engine_set_memory_budget(
                  host.engine, 0, 2 * floor + 40 * kBlockBytes, nullptr),
              INLAY_OK);
    options.kv_budget_bytes = 0;
    meanwhile.budget = 0;
    ASSERT_EQ(inlay_model_load(host.engine, TinyModel().c_str(), &options,
                               &second, error.out()),
              INLAY_OK)
        << error.message();
    const auto grown = [&] {
      return host.Stats().kv_bytes > before.kv_bytes + 25 * kBlockBytes;
    };
    for (int i = 0; i < 5000 && !grown(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(grown()) << host.Stats().kv_bytes;
    inlay_model_release(second);
    host.ExpectWorks();
  }
}

}  // namespace
}  // namespace inlay::testing
