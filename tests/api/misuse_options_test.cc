// Options and arguments that are wrong: each gives its typed error, whose
// message has the name and the value, and the engine goes on.
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <functional>
#include <limits>

#include "tests/api/misuse.h"
#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

TEST(EngineOptions, OutOfRange) {
  struct Case {
    std::function<void(inlay_engine_options&)> spoil;
    std::vector<std::string> words;
    inlay_status status = INLAY_INVALID_ARGUMENT;
  };
  const std::vector<Case> cases = {
      {[](auto& o) { o.backend = 3; }, {"backend", "3"}},
      {[](auto& o) { o.backend = -1; }, {"backend", "-1"}},
      {[](auto& o) { o.drive = 2; }, {"drive", "2"}},
      {[](auto& o) { o.num_threads = -1; }, {"num_threads", "-1"}},
      {[](auto& o) { o.num_threads = 1025; }, {"num_threads", "1025"}},
      {[](auto& o) { o.max_batch_tokens = 0; }, {"max_batch_tokens", "0"}},
      {[](auto& o) { o.max_batch_tokens = 65537; },
       {"max_batch_tokens", "65537"}},
      {[](auto& o) { o.max_running = 0; }, {"max_running", "0"}},
      {[](auto& o) { o.max_running = 4097; }, {"max_running", "4097"}},
      {[](auto& o) { o.max_queue = 0; }, {"max_queue", "0"}},
      {[](auto& o) { o.log_level = 4; }, {"log_level", "4"}},
      {[](auto& o) { o.prefix_sharing = 2; }, {"prefix_sharing", "2"}},
      {[](auto& o) { o.max_prefill_chunk = 65537; },
       {"max_prefill_chunk", "65537"}},
      {[](auto& o) { o.tpot_target_us = UINT64_MAX; },
       {"tpot_target_us", std::to_string(UINT64_MAX)}},
      {[](auto& o) { o.starvation_us = UINT64_MAX; },
       {"starvation_us", std::to_string(UINT64_MAX)}},
      {[](auto& o) { o.gpu = 1024; }, {"gpu", "1024"}},
      {[](auto& o) { o.batch_invariant = 2; }, {"batch_invariant", "2"}},
      {[](auto& o) {
         o.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
       },
       {"allocate"}},
      {[](auto& o) { o.deallocate = [](void*, void*, size_t, size_t) {}; },
       {"deallocate"}},
  };
  for (const Case& c : cases) {
    auto options = EngineDefaults();
    c.spoil(options);
    Error error;
    auto* engine = reinterpret_cast<inlay_engine*>(1);
    ExpectError(inlay_engine_create(&options, &engine, error.out()), error,
                c.status, c.words);
    EXPECT_EQ(engine, nullptr);
  }
}

TEST(QuantizeOptions, OutOfRange) {
  const std::string out = ::testing::TempDir() + "misuse.gguf";
  const char* types[] = {"*=q8_0", nullptr};
  const auto defaults = Defaults(inlay_quantize_options_init_sized);
  const auto expect = [&](const inlay_quantize_options& options,
                          inlay_status status,
                          const std::vector<std::string>& words) {
    auto* report = reinterpret_cast<inlay_buffer*>(1);
    Error error;
    ExpectError(inlay_quantize(TinyModel().c_str(), out.c_str(), &options,
                               &report, error.out()),
                error, status, words);
    EXPECT_EQ(report, nullptr);
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  const auto with = [&](auto field, auto value) {
    auto options = defaults;
    options.*field = value;
    return options;
  };
  using Options = inlay_quantize_options;
  expect(with(&Options::num_threads, -1), INLAY_INVALID_ARGUMENT,
         {"num_threads is -1", "1024"});
  expect(with(&Options::type, nullptr), INLAY_INVALID_ARGUMENT, {"type"});
  expect(with(&Options::type, "q9"), INLAY_INVALID_ARGUMENT,
         {"q9", "q8_0", "q4_k_m"});
  expect(with(&Options::no_tokenizer, 2u), INLAY_INVALID_ARGUMENT,
         {"no_tokenizer is 2"});
  expect(with(&Options::num_tensor_types, size_t{1}), INLAY_INVALID_ARGUMENT,
         {"tensor_types"});
  auto options = with(&Options::tensor_types, types);
  options.num_tensor_types = 2;
  expect(options, INLAY_INVALID_ARGUMENT, {"tensor_types"});
  options.num_tensor_types = 5000;
  expect(options, INLAY_INVALID_ARGUMENT, {"5000", "4096"});
  expect(with(&Options::method, 5u), INLAY_INVALID_ARGUMENT,
         {"method is 5", "0 to 4"});
  expect(with(&Options::imatrix_path, "none"), INLAY_INVALID_ARGUMENT,
         {"an imatrix goes with the method imatrix", "rtn"});
  options = with(&Options::imatrix_path, "none");
  options.method = INLAY_QUANTIZE_IMATRIX;
  options.type = "q4_0";
  expect(options, INLAY_NOT_FOUND, {"none"});
  expect(with(&Options::method, uint32_t{INLAY_QUANTIZE_GPTQ}),
         INLAY_INVALID_ARGUMENT, {"gptq", "calibration"});
  expect(with(&Options::act_order, 2u), INLAY_INVALID_ARGUMENT,
         {"act_order is 2"});
  expect(with(&Options::num_calibration, size_t{1}), INLAY_INVALID_ARGUMENT,
         {"calibration"});
  options = with(&Options::calibration, types);
  options.num_calibration = 2;
  expect(options, INLAY_INVALID_ARGUMENT, {"calibration"});
  options.num_calibration = 1 << 21;
  expect(options, INLAY_INVALID_ARGUMENT, {"2097152", "1048576"});
  options.num_calibration = 1;
  options.method = INLAY_QUANTIZE_AWQ;
  options.sequence_tokens = 1;
  expect(options, INLAY_INVALID_ARGUMENT, {"sequences of 1", "2"});
  options.sequence_tokens = 512;
  options.method = INLAY_QUANTIZE_SMOOTHQUANT;
  options.smoothing = 1.5f;
  expect(options, INLAY_INVALID_ARGUMENT, {"smoothing is 1.5", "0 to 1"});
  options.smoothing = std::numeric_limits<float>::quiet_NaN();
  expect(options, INLAY_INVALID_ARGUMENT, {"smoothing is nan"});
  options = defaults;
  options.progress = [](void*, int32_t, float) { return 1; };
  expect(options, INLAY_CANCELLED, {"progress"});
}

TEST(MeasureCopy, OutOfRange) {
  Host host;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 19, UINT64_MAX}) {
    Error error;
    double rate = 0;
    ExpectError(
        inlay_engine_measure_copy(host.engine, bytes, &rate, error.out()),
        error, INLAY_INVALID_ARGUMENT, {"bytes", std::to_string(bytes)});
  }
}

class OptionsTest : public ::testing::Test {
 protected:
  void ExpectLoad(const std::string& path, const inlay_model_options& options,
                  inlay_status expected,
                  const std::vector<std::string>& words) {
    Error error;
    auto* model = reinterpret_cast<inlay_model*>(1);
    ExpectError(inlay_model_load(host_.engine, path.c_str(), &options, &model,
                                 error.out()),
                error, expected, words);
    EXPECT_EQ(model, nullptr);
  }
  void ExpectLoad(const std::function<void(inlay_model_options&)>& spoil,
                  inlay_status expected,
                  const std::vector<std::string>& words) {
    auto options = ModelDefaults();
    spoil(options);
    ExpectLoad(TinyModel(), options, expected, words);
  }

  Host host_;
};

TEST_F(OptionsTest, OfModels) {
  const auto bad = INLAY_INVALID_ARGUMENT;
  ExpectLoad([](auto& o) { o.vocab_only = 2; }, bad, {"vocab_only", "2"});
  ExpectLoad([](auto& o) { o.weights = -1; }, bad, {"weights", "-1"});
  ExpectLoad([](auto& o) { o.kv_type = 7; }, bad, {"kv_type", "7"});
  for (const uint32_t size : {1u, 4u, 7u, 24u, 512u, UINT32_MAX}) {
    ExpectLoad([&](auto& o) { o.kv_block_size = size; }, bad,
               {"kv_block_size", std::to_string(size)});
  }
  ExpectLoad([](auto& o) { o.kernels = "gemm"; }, bad, {"gemm"});
  ExpectLoad([](auto& o) { o.kernels = "=x"; }, bad, {"=x"});
  ExpectLoad([](auto& o) { o.kernels = "gemm=no_such_row"; }, INLAY_NOT_FOUND,
             {"gemm"});
  ExpectLoad([](auto& o) { o.kernels = "no_such_op=cpu_scalar"; }, bad,
             {"no_such_op"});
  ExpectLoad([](auto& o) { o.attention_pattern = "window"; }, bad,
             {"attention pattern", "window"});
  ExpectLoad([](auto& o) { o.attention_pattern = "window=100"; }, bad,
             {"window is 100", "multiple of block"});
  ExpectLoad([](auto& o) { o.block_selection = 4; }, bad, {"block_selection"});
  ExpectLoad([](auto& o) { o.selected_tokens = 64; }, bad,
             {"block_selection", "without a method"});
  ExpectLoad(
      [](auto& o) {
        o.block_selection = INLAY_BLOCK_SELECTION_LSH;
        o.selected_tokens = 100;
      },
      bad, {"block_selection", "100", "multiple of 16"});
  ExpectLoad(
      [](auto& o) {
        o.block_selection = INLAY_BLOCK_SELECTION_BOUNDS;
        o.selected_tokens = 64;
        o.kv_block_size = 8;
      },
      bad, {"kv_block_size is 8", "block_selection"});
  // Experts are in host memory there, and this model has none.
  {
    auto options = ModelDefaults();
    options.expert_device_bytes = 1;
    Host host(PocketModel(), EngineDefaults(), options);
    EXPECT_EQ(host.RunAlone(TokensRequest({7, 8, 9}, 3)).tokens.size(), 3u);
  }
  ExpectLoad([](auto& o) { o.disk_cache_folder = "/tmp"; }, bad,
             {"disk_cache_folder", "host_cache_bytes", "disk_cache_bytes"});
  ExpectLoad(
      [](auto& o) {
        o.disk_cache_folder = "/tmp";
        o.host_cache_bytes = 1 << 20;
      },
      bad, {"disk_cache_bytes", "0"});
  ExpectLoad([](auto& o) { o.kv_budget_bytes = 100; }, INLAY_RESOURCE_EXHAUSTED,
             {"100"});
  host_.ExpectWorks();
}

TEST_F(OptionsTest, Paths) {
  const auto options = ModelDefaults();
  ExpectLoad("/no/such/model", options, INLAY_NOT_FOUND, {"/no/such/model"});
  ExpectLoad("", options, INLAY_INVALID_ARGUMENT, {});
  ExpectLoad("random:", options, INLAY_INVALID_ARGUMENT, {"random:"});
  ExpectLoad("random:" + TinyModel() + "?dtype=q9", options,
             INLAY_INVALID_ARGUMENT, {"q9"});
  ExpectLoad(TestData(), options, INLAY_NOT_FOUND, {});
  const std::string deep(100'000, 'x');
  Error error;
  inlay_model* model = nullptr;
  EXPECT_NE(inlay_model_load(host_.engine, deep.c_str(), nullptr, &model,
                             error.out()),
            INLAY_OK);
  inlay_buffer* json = nullptr;
  ExpectError(inlay_model_inspect("/no/such/model", &json, error.out()), error,
              INLAY_NOT_FOUND, {"/no/such/model"});
  host_.ExpectWorks();
}

TEST_F(OptionsTest, BrokenWeightFiles) {
  namespace fs = std::filesystem;
  const fs::path dir =
      fs::temp_directory_path() / ("inlay_api_" + std::to_string(getpid()));
  fs::create_directories(dir);
  fs::copy_file(TinyModel() + "/config.json", dir / "config.json");
  const fs::path weights = dir / "model.safetensors";
  for (const int32_t access : {INLAY_WEIGHTS_MAP, INLAY_WEIGHTS_READ}) {
    for (const uint64_t size : {0u, 4u, 100u, 4000u, 330'000u}) {
      fs::remove(weights);
      fs::copy_file(TinyModel() + "/model.safetensors", weights);
      fs::resize_file(weights, size);
      auto options = ModelDefaults();
      options.weights = access;
      ExpectLoad(dir.string(), options, INLAY_INVALID_ARGUMENT,
                 {"model.safetensors"});
    }
  }
  fs::remove_all(dir);
  host_.ExpectWorks();
}

TEST_F(OptionsTest, SessionsOfVocabularyOnlyModels) {
  auto options = ModelDefaults();
  options.vocab_only = 1;
  Host host(PocketModel(), EngineDefaults(), options);
  Error error;
  inlay_session* session = nullptr;
  ExpectError(inlay_session_create(host.model, &session, error.out()), error,
              INLAY_INVALID_STATE, {"vocab_only"});
  size_t count = 0;
  EXPECT_EQ(inlay_model_tokenize(host.model, "a fox", 5, 0, nullptr, 0, &count,
                                 error.out()),
            INLAY_OK)
      << error.message();
  EXPECT_GT(count, 0u);
}

TEST_F(OptionsTest, StepOfThreadDrivenEngines) {
  auto options = EngineDefaults();
  options.drive = INLAY_DRIVE_THREAD;
  Host host(TinyModel(), options);
  Error error;
  ExpectError(inlay_engine_step(host.engine, 0, nullptr, error.out()), error,
              INLAY_INVALID_STATE, {"thread"});
  host.ExpectWorks();
}

TEST_F(OptionsTest, TextOfModelsWithoutTokenizer) {
  Error error;
  size_t count = 0;
  inlay_buffer* buffer = nullptr;
  ExpectError(inlay_model_tokenize(host_.model, "a", 1, 0, nullptr, 0, &count,
                                   error.out()),
              error, INLAY_UNSUPPORTED, {"tokenizer"});
  const int32_t token = 1;
  ExpectError(
      inlay_model_detokenize(host_.model, &token, 1, 0, &buffer, error.out()),
      error, INLAY_UNSUPPORTED, {"tokenizer"});
  const std::string chat = R"({"messages":[]})";
  ExpectError(inlay_chat_render(host_.model, chat.data(), chat.size(), &buffer,
                                error.out()),
              error, INLAY_UNSUPPORTED, {"template"});
}

TEST_F(OptionsTest, Text) {
  auto vocab = ModelDefaults();
  vocab.vocab_only = 1;
  Host host(PocketModel(), EngineDefaults(), vocab);
  Error error;
  size_t count = 0;
  inlay_buffer* buffer = nullptr;
  const auto render = [&](const std::string& json) {
    return inlay_chat_render(host.model, json.data(), json.size(), &buffer,
                             error.out());
  };
  ExpectError(inlay_model_tokenize(host.model, "a", 1, 8, nullptr, 0, &count,
                                   error.out()),
              error, INLAY_INVALID_ARGUMENT, {"flags", "0x8"});
  for (const int32_t token : {-1, 1 << 20, INT_MAX, INT_MIN}) {
    const int32_t tokens[] = {1, token};
    ExpectError(
        inlay_model_detokenize(host.model, tokens, 2, 0, &buffer, error.out()),
        error, INLAY_INVALID_ARGUMENT, {"tokens[1]", std::to_string(token)});
  }
  const auto bad = INLAY_INVALID_ARGUMENT;
  ExpectError(render(""), error, bad, {"JSON"});
  ExpectError(render("{"), error, bad, {"JSON"});
  ExpectError(render("[]"), error, bad, {"array"});
  ExpectError(render(R"({"messages":[],"template":3})"), error, bad,
              {"template", "number"});
  ExpectError(render(R"({"messages":[],"template":"{{ 1 +"})"), error, bad, {});
  ExpectError(render(R"({"messages":[],"now":"noon"})"), error, bad, {"noon"});
  ExpectError(inlay_chat_render(nullptr, R"({"messages":[]})", 15, &buffer,
                                error.out()),
              error, bad, {"template"});
  ExpectError(render(std::string(100'000, '[')), error,
              INLAY_RESOURCE_EXHAUSTED, {"64"});
  // Invalid UTF-8 reads as U+FFFD.
  int32_t wrong[8], right[8];
  size_t num_wrong = 0, num_right = 0;
  EXPECT_EQ(inlay_model_tokenize(host.model,
                                 "a\xff"
                                 "b",
                                 3, 0, wrong, 8, &num_wrong, error.out()),
            INLAY_OK)
      << error.message();
  EXPECT_EQ(inlay_model_tokenize(host.model,
                                 "a\xef\xbf\xbd"
                                 "b",
                                 5, 0, right, 8, &num_right, error.out()),
            INLAY_OK);
  ASSERT_EQ(num_wrong, num_right);
  EXPECT_TRUE(std::equal(wrong, wrong + std::min<size_t>(num_wrong, 8), right));
  // Fewer places than tokens: the count is whole, what fits is written.
  int32_t one = -7;
  EXPECT_EQ(inlay_model_tokenize(host.model, "a fox and a hen", 15, 0, &one, 1,
                                 &count, error.out()),
            INLAY_OK);
  EXPECT_GT(count, 1u);
  EXPECT_GE(one, 0);
}

}  // namespace
}  // namespace inlay::testing
