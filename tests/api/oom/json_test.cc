// Calls that read JSON (a model's files, conversations) or write it (reports)
// when the host's memory runs out in them and stays so. Nothing is left behind.
#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/api/oom/exhausted.h"
#include "tests/support/sanitized.h"

namespace inlay::testing {
namespace {

// A folder of its own, gone with it.
class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "inlay-XXXXXX").string();
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

// Tools, and members and values too long to be held without memory.
constexpr char kChat[] =
    R"({"messages":[{"role":"system","content":"You are a fox by the river."},)"
    R"({"role":"user","content":"Where is the lantern, and who has it?",)"
    R"("a_name_of_many_letters":null},{"role":"assistant","content":"","tool_calls":[)"
    R"({"function":{"name":"lantern_whereabouts","arguments":{"of":"the fox",)"
    R"("radius_in_metres":1.5e3,"nearest":[true,-7,[[{}]]]}}}]}],)"
    R"("now":"2024-02-29T12:00:00","bos_token":"<of a length to allocate>",)"
    R"("a_second_name_of_many_letters":{"one_member_of_it_":["a text that is long"]},)"
    R"("tools":[{"type":"function","function":{"name":"lantern_whereabouts",)"
    R"("parameters":{"properties":{"radius_in_metres":{"type":"number"}}}}}])";
constexpr char kTemplate[] =
    R"(,"template":"{{ bos_token }}{% for m in messages %}{{ m.role }}: )"
    R"({{ m | tojson }}{% endfor %}{{ tools | tojson(indent=2) }})"
    R"({{ a_second_name_of_many_letters }}"})";

using Paths = std::vector<std::string>;

// Every small model of the tests' data, of each architecture and format.
Paths Models(const std::string& kind) {
  Paths paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(TestData() + kind)) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ExhaustedJsonTest : public ExhaustedTest {
 protected:
  ExhaustedJsonTest() {
    // The registry of handles has its tables once each was used.
    for (int i = 0; i < 64; ++i) {
      Error error;
      EXPECT_EQ(inlay_chat_render(model_, "", 0, nullptr, error.out()),
                INLAY_INVALID_ARGUMENT);
    }
  }

  // As Sweep(), in a life of its own each time, of which nothing may be left.
  // Two have all memory, for what is made once and kept.
  static void SweepLives(const std::string& what, inlay_status expected,
                         const std::function<void()>& begin, const Call& call,
                         const std::function<void()>& end) {
    SCOPED_TRACE(what);
    for (int i = 0; i < 2; ++i) {
      begin();
      Error error;
      ASSERT_EQ(call(error.out()), expected)
          << (error.empty() ? "" : error.message());
      end();
    }
    const int64_t before = FailingNew::live_bytes();
    const bool all = std::getenv("INLAY_FULL_SWEEP") != nullptr;
    // Sanitized, fewer of each, and others of the next.
    const bool kFew = ::inlay::testing::kSanitized;
    static int64_t round = 0;
    int64_t first = 1;
    for (bool failed = true; failed;
         first += all ? 1 : 1 + first / (kFew ? 2 : 8)) {
      if (kFew && !all) first += ++round % (1 + first / 4);
      inlay_status status = INLAY_OK;
      begin();
      failed = CallWithout(first, call, &status);
      end();
      ASSERT_TRUE(status == expected ||
                  (failed && status == INLAY_OUT_OF_MEMORY))
          << inlay_status_name(status) << " without allocation " << first;
      ASSERT_EQ(FailingNew::live_bytes(), before)
          << "without allocation " << first;
    }
    EXPECT_GT(first, 2) << "it allocates nothing";
  }

  static void SweepLoad(const std::string& path) {
    inlay_engine* engine = nullptr;
    inlay_model* model = nullptr;
    inlay_engine_options options = EngineDefaults();
    options.num_threads = 1;
    SweepLives(
        "loading " + path, INLAY_OK,
        [&] {
          model = nullptr;
          ASSERT_EQ(inlay_engine_create(&options, &engine, nullptr), INLAY_OK);
        },
        [&](auto** error) {
          return inlay_model_load(engine, path.c_str(), nullptr, &model, error);
        },
        [&] {
          inlay_model_release(model);
          inlay_engine_release(engine);
        });
  }

  // Calls that give a buffer, or refuse.
  static void SweepBuffer(
      const std::string& what, inlay_status expected,
      const std::function<inlay_status(inlay_buffer**, inlay_error**)>& call) {
    inlay_buffer* buffer = nullptr;
    SweepLives(
        what, expected, [&] { buffer = nullptr; },
        [&](auto** error) { return call(&buffer, error); },
        [&] { inlay_buffer_release(buffer); });
  }

  // The tiny model with a tokenizer of the tests' data.
  std::string WithTokenizer(const std::string& tokenizer) {
    std::string path = folder_ / std::filesystem::path(tokenizer).filename();
    std::filesystem::create_directory(path);
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::create_symlink(TinyModel() + "/" + file,
                                      path + "/" + file);
    }
    for (const auto& entry : std::filesystem::directory_iterator(tokenizer)) {
      std::filesystem::create_symlink(
          entry.path(), path + "/" + entry.path().filename().string());
    }
    return path;
  }

  Folder folder_;
};

TEST_F(ExhaustedJsonTest, LoadingArchitectures) {
  for (const std::string& path : Models("/models")) SweepLoad(path);
  ExpectAlive();
}

TEST_F(ExhaustedJsonTest, LoadingFormats) {
  for (const std::string& path : Models("/quantized")) SweepLoad(path);
  for (const std::string& path : Models("/gguf")) SweepLoad(path);
  SweepLoad("random:" + TinyModel() + "?dtype=q4_0&*v_proj*=q8_0");
  ExpectAlive();
}

TEST_F(ExhaustedJsonTest, LoadingTokenizers) {
  for (const std::string& path : Models("/tokenizers")) {
    SweepLoad(WithTokenizer(path));
  }
  ExpectAlive();
}

TEST_F(ExhaustedJsonTest, Inspecting) {
  for (const char* kind : {"/models", "/quantized", "/gguf"}) {
    for (const std::string& path : Models(kind)) {
      SweepBuffer("inspecting " + path, INLAY_OK,
                  [&](auto** buffer, auto** error) {
                    return inlay_model_inspect(path.c_str(), buffer, error);
                  });
    }
  }
}

TEST_F(ExhaustedJsonTest, Chats) {
  const auto sweep = [&](const char* what, inlay_status expected,
                         const std::string& json) {
    SweepBuffer(what, expected, [&](auto** buffer, auto** error) {
      return inlay_chat_render(model_, json.data(), json.size(), buffer, error);
    });
  };
  const std::string chat = kChat;
  sweep("with the model's template", INLAY_OK, chat + "}");
  sweep("with its own", INLAY_OK, chat + kTemplate);
  sweep("without an end", INLAY_INVALID_ARGUMENT, chat);
  sweep("with text behind", INLAY_INVALID_ARGUMENT, chat + "}]");
  sweep("with a time that is none", INLAY_INVALID_ARGUMENT,
        chat + R"(,"now":"an hour after midnight"})");
  sweep("with a template of no kind", INLAY_INVALID_ARGUMENT,
        chat + R"(,"template":["a text that is long"]})");
  sweep("of a list", INLAY_INVALID_ARGUMENT, "[" + chat + "}]");
  sweep("too deep", INLAY_RESOURCE_EXHAUSTED,
        chat + ",\"a\":" + std::string(100, '[') + "}");

  const std::string asked = chat + "}";
  const inlay_request_options options = ChatRequest(asked, 2);
  inlay_session* session = nullptr;
  inlay_request* request = nullptr;
  Sweep(
      "a request", INLAY_OK,
      [&](auto** error) {
        inlay_status status = inlay_session_create(model_, &session, error);
        if (status != INLAY_OK) return status;
        status = inlay_session_submit(session, &options, &request, error);
        if (status != INLAY_OK) inlay_session_release(session);
        return status;
      },
      [&] {
        inlay_request_release(request);
        inlay_session_release(session);
        inlay_engine_step(engine_, 0, nullptr, nullptr);
      });
  ExpectAlive();
}

// Files of every kind, written and read again.
TEST_F(ExhaustedJsonTest, Quantizing) {
  const char* const text = "Where is the lantern, and who has it?";
  const auto sweep = [&](const std::string& model, const char* type,
                         uint32_t method = INLAY_QUANTIZE_NEAREST) {
    const std::string out = folder_ / type + (type[0] == 'q' ? ".gguf" : "");
    auto options = Defaults(inlay_quantize_options_init_sized);
    options.num_threads = 1;
    options.type = type;
    options.method = method;
    options.calibration = &text;
    options.num_calibration = method == INLAY_QUANTIZE_NEAREST ? 0 : 1;
    SweepBuffer(model + " to " + type, INLAY_OK,
                [&](auto** report, auto** error) {
                  return inlay_quantize(model.c_str(), out.c_str(), &options,
                                        report, error);
                });
    SweepLoad(out);
  };
  sweep(SmallModel(), "q4_k_m");
  for (const char* type : {"u4_g32", "awq_g32", "w8a8_int8", "w8a8_fp8"}) {
    sweep(TinyModel(), type);
  }
  for (const std::string& path : Models("/gguf")) sweep(path, "q8_0");
  sweep(SmallModel(), "u4_g32_sym", INLAY_QUANTIZE_GPTQ);
  ExpectAlive();
}

TEST_F(ExhaustedJsonTest, Metrics) {
  for (const int32_t format :
       {INLAY_METRICS_PROMETHEUS, INLAY_METRICS_PROTOBUF}) {
    SweepBuffer("metrics", INLAY_OK, [&](auto** buffer, auto** error) {
      return inlay_engine_metrics(engine_, format, buffer, error);
    });
  }
}

// Nothing is lost by a take that finds no memory: the first that does has all.
TEST_F(ExhaustedJsonTest, Traces) {
  ASSERT_EQ(inlay_engine_trace_start(engine_, 4096, nullptr), INLAY_OK);
  ExpectAlive();
  inlay_buffer* trace = nullptr;
  ASSERT_EQ(inlay_engine_trace_take(engine_, 0, &trace, nullptr), INLAY_OK);
  const size_t expected = inlay_buffer_size(trace);
  inlay_buffer_release(trace);
  EXPECT_GT(expected, 200u);
  for (const int32_t stop : {0, 1}) {
    ExpectAlive();
    size_t size = 0;
    Sweep(
        "a trace", INLAY_OK,
        [&](auto** error) {
          return inlay_engine_trace_take(engine_, stop, &trace, error);
        },
        [&] {
          size = std::max(size, inlay_buffer_size(trace));
          inlay_buffer_release(trace);
        });
    EXPECT_GT(size, expected / 2);
  }
  EXPECT_EQ(inlay_engine_trace_take(engine_, 0, &trace, nullptr),
            INLAY_INVALID_STATE);
  ExpectAlive();
}

TEST_F(ExhaustedJsonTest, Replaying) {
  inlay_session_release(session_);
  const std::string path = folder_ / "recording";
  ASSERT_EQ(inlay_model_record_start(model_, path.c_str(), nullptr), INLAY_OK);
  ExpectAlive();
  ASSERT_EQ(inlay_model_record_stop(model_, nullptr), INLAY_OK);
  SweepBuffer("a replay", INLAY_OK, [&](auto** report, auto** error) {
    return inlay_model_replay(model_, path.c_str(), report, error);
  });
  ExpectAlive();
}

}  // namespace
}  // namespace inlay::testing
