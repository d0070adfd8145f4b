// inlay.hpp: what it adds is ownership and results; its calls do what the C
// functions do.
#include <gmock/gmock.h>

#include <filesystem>
#include <inlay/inlay.hpp>
#include <utility>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

using ::testing::HasSubstr;

// Reads the request to its end: its tokens.
std::vector<int32_t> Read(inlay::Engine& engine, inlay::Request& request) {
  std::vector<int32_t> tokens;
  while (true) {
    auto event = engine.NextStepping(request);
    if (!event.ok()) {
      EXPECT_EQ(event.error().status(), INLAY_END) << event.error().message();
      return tokens;
    }
    const inlay_event_info& info = event->info();
    tokens.insert(tokens.end(), info.tokens, info.tokens + info.num_tokens);
  }
}

class CppTest : public ::testing::Test {
 protected:
  CppTest()
      : options_(EngineDefaults()),
        engine_(std::move(*inlay::Engine::Create(&options_))),
        model_(std::move(*engine_.Load(SmallModel()))) {}

  std::vector<int32_t> Run(inlay::Session& session, std::string_view text,
                           const inlay::Generate& generate) {
    auto request = session.Submit(text, generate);
    if (!request.ok()) {
      ADD_FAILURE() << request.error().message();
      return {};
    }
    return Read(engine_, *request);
  }

  const inlay_engine_options options_;
  inlay::Engine engine_;
  inlay::Model model_;
};

TEST_F(CppTest, Prefixes) {
  auto prefix = model_.CreatePrefix("fox", "Once upon a time a fox");
  ASSERT_TRUE(prefix.ok()) << prefix.error().message();
  ASSERT_TRUE(engine_.Step().ok());
  auto info = prefix->Info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->pinned, 1u);
  EXPECT_EQ(info->num_cached, info->num_tokens);
  {
    auto found = model_.FindPrefix("fox");
    ASSERT_TRUE(found.ok()) << found.error().message();
    EXPECT_TRUE(found->Pin(false).ok());
    EXPECT_EQ(prefix->Info()->pinned, 0u);
    EXPECT_TRUE(found->Pin().ok());
  }
  auto session = prefix->Open();
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->Info()->num_tokens, info->num_tokens);

  EXPECT_EQ(model_.CreatePrefix("fox", "Another").error().status(),
            INLAY_INVALID_STATE);
  EXPECT_EQ(model_.FindPrefix("wolf").error().status(), INLAY_NOT_FOUND);
  EXPECT_TRUE(prefix->Open().ok());
  {
    const inlay::Prefix moved = std::move(*prefix);
    EXPECT_EQ(prefix->Open().error().status(), INLAY_INVALID_HANDLE);
  }
  EXPECT_EQ(model_.FindPrefix("fox").error().status(), INLAY_NOT_FOUND)
      << "its destructor was the last holder's";
}

TEST_F(CppTest, SaveAndRestore) {
  auto session = model_.NewSession();
  inlay::Generate generate;
  generate.max_tokens = 6;
  generate.temperature = 0.9f;
  generate.seed = 4;
  auto request = session->Submit("Once upon a time", generate);
  EXPECT_EQ(session->SaveBuffer().error().status(), INLAY_INVALID_STATE);
  Read(engine_, *request);
  auto bytes = session->SaveBuffer();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message();
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("inlay_cpp_" + std::to_string(getpid())))
                               .string();
  ASSERT_TRUE(session->Save(path).ok());

  inlay_restore_info info;
  auto restored = model_.RestoreBuffer(bytes->bytes(), &info);
  ASSERT_TRUE(restored.ok()) << restored.error().message();
  EXPECT_EQ(info.num_tokens, session->Info()->num_tokens);
  EXPECT_STREQ(info.note, "");
  auto from_file = model_.Restore(path);
  ASSERT_TRUE(from_file.ok()) << from_file.error().message();
  EXPECT_EQ(*from_file->Tokens(), *session->Tokens());
  std::filesystem::remove(path);
  EXPECT_EQ(model_.Restore(path).error().status(), INLAY_NOT_FOUND);
  EXPECT_EQ(model_.RestoreBuffer("nothing").error().status(),
            INLAY_INVALID_ARGUMENT);

  generate.resume = true;
  const auto expected = Run(*session, "", generate);
  EXPECT_EQ(expected.size(), 6u);
  EXPECT_EQ(Run(*restored, "", generate), expected);
  generate.seed = 5;
  EXPECT_EQ(restored->Submit("", generate).error().status(),
            INLAY_INVALID_ARGUMENT);
}

TEST_F(CppTest, Quotes) {
  auto session = model_.NewSession();
  inlay::Generate generate;
  generate.max_tokens = 8;
  auto quote = session->Quote("Once upon a time", generate);
  ASSERT_TRUE(quote.ok()) << quote.error().message();
  EXPECT_EQ(quote->fits_now, 1u);
  EXPECT_EQ(quote->reserved, 0u);
  quote = session->Quote("Once upon a time", generate, /*reserve=*/true);
  EXPECT_EQ(quote->reserved, 1u);
  EXPECT_GT(engine_.Stats()->kv_blocks_used, 0u);
  EXPECT_EQ(Run(*session, "Once upon a time", generate).size(), 8u);
  EXPECT_EQ(engine_.Stats()->kv_blocks_used, 0u);
}

TEST_F(CppTest, DeviceAndItsMemory) {
  const uint64_t before = engine_.Stats()->workspace_bytes;
  auto device = engine_.Device();
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device->compute_capability > 0,
            device->backend == INLAY_BACKEND_CUDA);
  EXPECT_GT(*engine_.MeasureCopy(8 << 20), 1e6);
  EXPECT_EQ(engine_.MeasureCopy(0).error().status(), INLAY_INVALID_ARGUMENT);
  EXPECT_EQ(engine_.Stats()->workspace_bytes, before)
      << "its scratch is given back";
}

TEST_F(CppTest, BudgetMetricsAndTraces) {
  EXPECT_TRUE(engine_.SetMemoryBudget(64 << 20).ok());
  EXPECT_EQ(engine_.Stats()->memory_budget_bytes, 64u << 20);
  EXPECT_EQ(engine_.SetMemoryBudget(1).status(), INLAY_RESOURCE_EXHAUSTED);
  EXPECT_EQ(engine_.SetMemoryBudget(64 << 20, 7).status(),
            INLAY_INVALID_ARGUMENT);
  auto text = engine_.Metrics();
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("# HELP"));
  EXPECT_FALSE(engine_.Metrics(INLAY_METRICS_PROTOBUF)->empty());
  EXPECT_EQ(engine_.TakeTrace().error().status(), INLAY_INVALID_STATE);
  EXPECT_TRUE(engine_.StartTrace(100).ok());
  EXPECT_EQ(engine_.StartTrace(100).status(), INLAY_INVALID_STATE);
  EXPECT_FALSE(engine_.TakeTrace(false)->bytes().empty());
  EXPECT_FALSE(engine_.TakeTrace()->bytes().empty());
}

TEST_F(CppTest, Deadlines) {
  auto session = model_.NewSession();
  inlay::Generate generate;
  generate.deadline_us = 1;
  auto request = session->Submit("Once upon a time", generate);
  ASSERT_TRUE(request.ok());
  Result<inlay::Event> event = engine_.NextStepping(*request);
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(event->finished());
  EXPECT_EQ(event->info().status, INLAY_TIMEOUT);
}

}  // namespace
}  // namespace inlay::testing
