// Sessions saved and restored: the tokens that follow are those of a session
// that never stopped.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/api/host.h"

namespace inlay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kText = "Once upon a time there was a little fox who";

std::string Save(inlay_session* session) {
  Error error;
  inlay_buffer* buffer = nullptr;
  EXPECT_EQ(inlay_session_save_buffer(session, &buffer, error.out()), INLAY_OK)
      << error.message();
  std::string bytes(inlay_buffer_data(buffer), inlay_buffer_size(buffer));
  inlay_buffer_release(buffer);
  return bytes;
}

struct Restored {
  inlay_status status = INLAY_OK;
  std::string message;
  inlay_session* session = nullptr;
  inlay_restore_info info = Defaults(inlay_restore_info_init);
};

Restored Restore(const Host& host, const std::string& bytes) {
  Restored result;
  Error error;
  result.session = reinterpret_cast<inlay_session*>(1);
  result.status =
      inlay_session_restore_buffer(host.model, bytes.data(), bytes.size(),
                                   &result.session, &result.info, error.out());
  result.message = error.message();
  EXPECT_EQ(result.session != nullptr, result.status == INLAY_OK);
  return result;
}

inlay_request_options TextRequest(const std::string& text, int32_t max_tokens) {
  auto options = Defaults(inlay_request_options_init_sized);
  options.text = text.data();
  options.text_bytes = text.size();
  options.max_tokens = max_tokens;
  options.ignore_eos = 1;
  return options;
}

// The options refer to the text.
inlay_request_options TextRequest(std::string&&, int32_t) = delete;

// Going on from the log.
inlay_request_options Resume(int32_t max_tokens) {
  auto options = TokensRequest({}, max_tokens);
  options.resume = 1;
  return options;
}

// What a host puts beside the input.
struct Manner {
  const char* name;
  std::function<void(inlay_request_options&)> apply;
};
void PrintTo(const Manner& manner, std::ostream* out) { *out << manner.name; }

const Manner kManners[] = {
    {"Greedy", [](auto&) {}},
    {"Sampled",
     [](auto& o) {
       o.temperature = 1.1f;
       o.seed = 77;
     }},
    {"Penalised",
     [](auto& o) {
       o.temperature = 0.8f;
       o.top_k = 40;
       o.top_p = 0.95f;
       o.repetition_penalty = 1.3f;
       o.frequency_penalty = 0.5f;
       o.presence_penalty = 0.7f;
       o.seed = 5;
     }},
};

class GoesOn : public ::testing::TestWithParam<Manner> {};
INSTANTIATE_TEST_SUITE_P(Restore, GoesOn, ::testing::ValuesIn(kManners),
                         [](const auto& param) { return param.param.name; });

TEST_P(GoesOn, WithTheTokensOfASessionThatNeverStopped) {
  Host host(SmallModel());
  auto options = TextRequest(kText, 40);
  GetParam().apply(options);
  const auto expected = host.RunAlone(options).tokens;
  ASSERT_EQ(expected.size(), 40u);

  // After 1, 16 and 39 of them, by its length or cancelled under way.
  for (const size_t cut : {1u, 16u, 39u}) {
    for (const bool cancel : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << cut << (cancel ? ", cancelled" : ""));
      inlay_session* session = host.NewSession();
      auto first = options;
      first.max_tokens = cancel ? 40 : static_cast<int32_t>(cut);
      Outcome outcome;
      if (cancel) {
        inlay_request* request = host.Submit(session, first);
        for (size_t i = 0; i < cut; ++i) host.Step();
        inlay_request_cancel(request, nullptr);
        outcome = host.Finish(request);
        EXPECT_EQ(outcome.finish.status, INLAY_CANCELLED);
      } else {
        outcome = host.Run(session, first);
      }
      ASSERT_EQ(outcome.tokens.size(), cut);
      const std::string bytes = Save(session);
      // Here, in a fork, and in an engine that has seen nothing of it.
      inlay_session* fork = nullptr;
      ASSERT_EQ(inlay_session_fork(session, &fork, nullptr), INLAY_OK);
      Host elsewhere(SmallModel());
      const auto check = [&](const Host& where, inlay_session* from) {
        auto rest = Resume(static_cast<int32_t>(40 - cut));
        GetParam().apply(rest);
        auto tokens = outcome.tokens;
        const Outcome more = where.Run(from, rest);
        tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
        EXPECT_EQ(tokens, expected);
        inlay_session_release(from);
      };
      check(host, fork);
      const Restored here = Restore(host, bytes);
      ASSERT_EQ(here.status, INLAY_OK) << here.message;
      check(host, here.session);
      const Restored there = Restore(elsewhere, bytes);
      ASSERT_EQ(there.status, INLAY_OK) << there.message;
      EXPECT_EQ(there.info.num_tokens, host.Info(session).num_tokens);
      // The last token's KV is there where another has gone on from it.
      EXPECT_GE(there.info.num_restored, there.info.num_tokens - 1);
      EXPECT_STREQ(there.info.note, "");
      EXPECT_EQ(elsewhere.Info(there.session).num_cached,
                there.info.num_restored);
      check(elsewhere, there.session);
      // A token of a block of two may not be worth a copy.
      EXPECT_LE(
          elsewhere.Stats().prefill_tokens + elsewhere.Stats().decode_tokens,
          40 - cut + 1)
          << "little was computed again";
      check(host, session);
    }
  }
}

// Step after step: each part in an engine of its own.
TEST(Restore, ManyTimesOver) {
  auto options = TextRequest(kText, 24);
  kManners[2].apply(options);
  Host host(SmallModel());
  const auto expected = host.RunAlone(options).tokens;
  std::vector<int32_t> tokens;
  std::string bytes;
  for (int part = 0; part < 4; ++part) {
    Host engine(SmallModel());
    inlay_session* session = nullptr;
    auto asked = part == 0 ? TextRequest(kText, 6) : Resume(6);
    kManners[2].apply(asked);
    if (part == 0) {
      session = engine.NewSession();
    } else {
      session = Restore(engine, bytes).session;
    }
    const Outcome outcome = engine.Run(session, asked);
    tokens.insert(tokens.end(), outcome.tokens.begin(), outcome.tokens.end());
    bytes = Save(session);
    inlay_session_release(session);
  }
  EXPECT_EQ(tokens, expected);
}

class Files : public ::testing::Test {
 protected:
  Files()
      : folder_(fs::temp_directory_path() /
                ("inlay_save_" + std::to_string(getpid()))),
        host_(SmallModel()),
        session_(host_.NewSession()) {
    fs::create_directories(folder_);
    const Outcome outcome = host_.Run(session_, TextRequest(kText, 9));
    EXPECT_EQ(outcome.finish.status, INLAY_OK);
  }
  ~Files() override {
    inlay_session_release(session_);
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  size_t NumFiles() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), {}));
  }
  inlay_status SaveTo(const std::string& path) {
    return inlay_session_save(session_, path.c_str(), error_.out());
  }
  inlay_status RestoreFrom(const std::string& path) {
    restored_ = reinterpret_cast<inlay_session*>(1);
    const auto status = inlay_session_restore(
        host_.model, path.c_str(), &restored_, nullptr, error_.out());
    EXPECT_EQ(restored_ != nullptr, status == INLAY_OK);
    return status;
  }

  const fs::path folder_;
  Host host_;
  inlay_session* session_;
  inlay_session* restored_ = nullptr;
  Error error_;
};

TEST_F(Files, HoldWhatBuffersDo) {
  ASSERT_EQ(SaveTo(Path("a")), INLAY_OK) << error_.message();
  ASSERT_EQ(SaveTo(Path("a")), INLAY_OK) << "over what was there";
  EXPECT_EQ(NumFiles(), 1u) << "nothing else is left there";
  std::ifstream stream(Path("a"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_EQ(bytes, Save(session_));
  ASSERT_EQ(RestoreFrom(Path("a")), INLAY_OK) << error_.message();
  EXPECT_EQ(host_.Log(restored_), host_.Log(session_));
  inlay_session_release(restored_);
}

TEST_F(Files, ThatCannotBe) {
  EXPECT_EQ(RestoreFrom(Path("none")), INLAY_NOT_FOUND);
  EXPECT_THAT(error_.message(), HasSubstr(Path("none")));
  EXPECT_NE(RestoreFrom(folder_.string()), INLAY_OK);
  EXPECT_NE(RestoreFrom(""), INLAY_OK);
  EXPECT_NE(SaveTo(""), INLAY_OK);
  EXPECT_NE(SaveTo(folder_.string()), INLAY_OK) << "a folder";
  EXPECT_EQ(SaveTo(Path("no/such/folder")), INLAY_NOT_FOUND);
  EXPECT_THAT(error_.message(), HasSubstr(Path("no/such")));
  std::ofstream(Path("text")) << "not a snapshot";
  std::ofstream(Path("empty"));
  for (const char* name : {"text", "empty"}) {
    EXPECT_EQ(RestoreFrom(Path(name)), INLAY_INVALID_ARGUMENT);
    EXPECT_FALSE(error_.message().empty());
  }
  EXPECT_EQ(NumFiles(), 2u);
}

TEST_F(Files, AreLeftAloneByABusySession) {
  ASSERT_EQ(SaveTo(Path("a")), INLAY_OK);
  const auto time = fs::last_write_time(Path("a"));
  inlay_request* request = host_.Submit(session_, TokensRequest({}, 30));
  host_.Step();
  EXPECT_EQ(SaveTo(Path("a")), INLAY_INVALID_STATE);
  EXPECT_THAT(error_.message(), HasSubstr("busy"));
  EXPECT_EQ(SaveTo(Path("b")), INLAY_INVALID_STATE);
  EXPECT_EQ(NumFiles(), 1u);
  EXPECT_EQ(fs::last_write_time(Path("a")), time);
  inlay_buffer* buffer = reinterpret_cast<inlay_buffer*>(1);
  EXPECT_EQ(inlay_session_save_buffer(session_, &buffer, error_.out()),
            INLAY_INVALID_STATE);
  EXPECT_EQ(buffer, nullptr);
  inlay_request_cancel(request, nullptr);
  host_.Finish(request);
  EXPECT_EQ(SaveTo(Path("b")), INLAY_OK);
}

TEST_F(Files, OfAReleasedEngine) {
  const std::string bytes = Save(session_);
  inlay_engine_release(host_.engine);
  EXPECT_EQ(SaveTo(Path("a")), INLAY_CLOSED);
  EXPECT_EQ(NumFiles(), 0u);
  inlay_buffer* buffer = nullptr;
  EXPECT_EQ(inlay_session_save_buffer(session_, &buffer, error_.out()),
            INLAY_CLOSED);
  EXPECT_EQ(Restore(host_, bytes).status, INLAY_CLOSED);
}

// A flipped byte anywhere: the very log comes back, with a prefix of its KV
// and a note, or an error; and what follows is what would have followed.
TEST(Damage, OfAnyByteIsFound) {
  Host host(TinyModel());
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  host.Run(session, TokensRequest(prompt, 40));
  const auto log = host.Log(session);
  const std::string bytes = Save(session);
  const auto expected = host.Run(session, TokensRequest({}, 5)).tokens;
  inlay_session_release(session);
  // Every byte of the head and the tail, and some of the KV between.
  int notes = 0, errors = 0;
  Host fresh(TinyModel());
  for (size_t at = 0; at < bytes.size();
       at += at < 800 || at + 800 > bytes.size() ? 1 : 997) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const Restored restored = Restore(host, damaged);
    if (restored.status != INLAY_OK) {
      ++errors;
      EXPECT_TRUE(restored.status == INLAY_IO_ERROR ||
                  restored.status == INLAY_INVALID_ARGUMENT ||
                  restored.status == INLAY_UNSUPPORTED)
          << at << ": " << inlay_status_name(restored.status);
      EXPECT_FALSE(restored.message.empty());
      continue;
    }
    EXPECT_EQ(host.Log(restored.session), log) << at;
    EXPECT_LE(restored.info.num_restored, log.size());
    inlay_session_release(restored.session);
    // The engine that saved it has the KV still; another needs the snapshot's.
    if (at % 7 != 0) continue;
    inlay_session* same = Restore(fresh, damaged).session;
    EXPECT_EQ(fresh.Run(same, TokensRequest({}, 5)).tokens, expected) << at;
    inlay_session_release(same);
  }
  EXPECT_EQ(errors, 0) << "one damaged byte leaves the log";
  for (size_t at = 900; at + 900 < bytes.size(); at += 4999) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    Host empty(TinyModel());
    const Restored restored = Restore(empty, damaged);
    ASSERT_EQ(restored.status, INLAY_OK) << restored.message;
    EXPECT_LT(restored.info.num_restored, log.size() - 1) << at;
    EXPECT_STRNE(restored.info.note, "");
    ++notes;
    EXPECT_EQ(empty.Run(restored.session, TokensRequest({}, 5)).tokens,
              expected);
    inlay_session_release(restored.session);
  }
  EXPECT_GT(notes, 4);
}

TEST(Damage, OfItsLength) {
  Host host(TinyModel());
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  host.Run(session, TokensRequest(prompt, 30));
  const auto log = host.Log(session);
  const std::string bytes = Save(session);
  inlay_session_release(session);
  int restored_count = 0;
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 9) {
    const Restored restored = Restore(host, bytes.substr(0, size));
    if (restored.status == INLAY_OK) {
      ++restored_count;
      EXPECT_EQ(host.Log(restored.session), log) << size;
      inlay_session_release(restored.session);
    } else {
      EXPECT_TRUE(restored.status == INLAY_IO_ERROR ||
                  restored.status == INLAY_INVALID_ARGUMENT)
          << size << ": " << inlay_status_name(restored.status);
    }
  }
  EXPECT_GT(restored_count, 5);
  const Restored longer = Restore(host, bytes + std::string(999, 'x'));
  EXPECT_EQ(longer.status, INLAY_OK) << longer.message;
  EXPECT_EQ(host.Log(longer.session), log);
  inlay_session_release(longer.session);
  host.ExpectWorks();
}

TEST(Restore, InAnotherModel) {
  Host tiny(TinyModel());
  inlay_session* session = tiny.NewSession();
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  tiny.Run(session, TokensRequest(prompt, 30));
  const auto log = tiny.Log(session);
  const std::string bytes = Save(session);
  inlay_session_release(session);

  // Of another vocabulary: no session.
  Host pocket(SmallModel());
  const Restored refused = Restore(pocket, bytes);
  EXPECT_EQ(refused.status, INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(refused.message, HasSubstr("vocabulary"));

  // The same in another form of KV: the log, and a note.
  for (const bool by_type : {false, true}) {
    auto options = ModelDefaults();
    if (by_type) {
      options.kv_type = INLAY_KV_F16;
    } else {
      options.kv_block_size = 32;
    }
    Host other(TinyModel(), EngineDefaults(), options);
    const Restored restored = Restore(other, bytes);
    ASSERT_EQ(restored.status, INLAY_OK) << restored.message;
    EXPECT_EQ(restored.info.num_tokens, log.size());
    EXPECT_EQ(restored.info.num_restored, 0u);
    EXPECT_STRNE(restored.info.note, "");
    EXPECT_EQ(other.Log(restored.session), log);
    const Outcome outcome = other.Run(restored.session, TokensRequest({}, 4));
    EXPECT_EQ(outcome.finish.status, INLAY_OK);
    EXPECT_EQ(outcome.finish.cached_tokens, 0u);
    inlay_session_release(restored.session);
  }

  // Too long for the model.
  auto options = ModelDefaults();
  options.max_context = 20;
  Host narrow(TinyModel(), EngineDefaults(), options);
  const Restored too_long = Restore(narrow, bytes);
  EXPECT_EQ(too_long.status, INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(too_long.message, AllOf(HasSubstr("35"), HasSubstr("20")));

  // Without weights nothing can be restored.
  options = ModelDefaults();
  options.vocab_only = 1;
  Host words(SmallModel(), EngineDefaults(), options);
  EXPECT_EQ(Restore(words, bytes).status, INLAY_INVALID_STATE);
}

TEST(Restore, WhereThereIsNoRoom) {
  Host host(TinyModel());
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  host.Run(session, TokensRequest(prompt, 200));
  const std::string bytes = Save(session);
  const auto expected = host.Run(session, TokensRequest({}, 5)).tokens;
  inlay_session_release(session);

  auto options = ModelDefaults();
  options.kv_budget_bytes = 16 * 16 * 1024;  // 256 tokens
  Host small(TinyModel(), EngineDefaults(), options);
  inlay_session* other = small.NewSession();
  const std::vector<int32_t> elsewhere(100, 3);
  inlay_request* running = small.Submit(other, TokensRequest(elsewhere, 60));
  small.Step();
  const Restored restored = Restore(small, bytes);
  ASSERT_EQ(restored.status, INLAY_OK) << restored.message;
  EXPECT_LT(restored.info.num_restored, 204u);
  EXPECT_GT(restored.info.num_restored, 0u);
  EXPECT_THAT(restored.info.note, HasSubstr("room"));
  EXPECT_EQ(small.Finish(running).tokens.size(), 60u);
  EXPECT_EQ(small.Run(restored.session, TokensRequest({}, 5)).tokens, expected);
  inlay_session_release(restored.session);
  inlay_session_release(other);
}

TEST(Restore, EmptyAndRewoundSessions) {
  Host host(TinyModel());
  inlay_session* session = host.NewSession();
  const Restored empty = Restore(host, Save(session));
  ASSERT_EQ(empty.status, INLAY_OK) << empty.message;
  EXPECT_EQ(empty.info.num_tokens, 0u);
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  EXPECT_EQ(host.Run(empty.session, TokensRequest(prompt, 3)).tokens,
            host.Run(session, TokensRequest(prompt, 3)).tokens);
  ASSERT_EQ(inlay_session_rewind(session, 2, nullptr), INLAY_OK);
  const Restored rewound = Restore(host, Save(session));
  ASSERT_EQ(rewound.status, INLAY_OK) << rewound.message;
  EXPECT_EQ(host.Log(rewound.session), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(rewound.info.num_restored, 2u);
  for (inlay_session* each : {session, empty.session, rewound.session})
    inlay_session_release(each);
}

// ---- resume ----------------------------------------------------------------

TEST(Resume, Errors) {
  Host host(TinyModel());
  inlay_session* session = host.NewSession();
  const std::vector<int32_t> prompt = {5, 6, 7};
  auto options = TokensRequest(prompt, 4);
  Error error;
  inlay_request* request = nullptr;
  options.resume = 1;
  EXPECT_EQ(inlay_session_submit(session, &options, &request, error.out()),
            INLAY_INVALID_STATE);
  EXPECT_THAT(error.message(), HasSubstr("resume"));
  EXPECT_EQ(host.Info(session).num_tokens, 0u);
  options.resume = 0;
  options.seed = 8;
  options.temperature = 1;
  host.Run(session, options);
  auto rest = Resume(4);
  rest.temperature = 1;
  rest.seed = 9;
  EXPECT_EQ(inlay_session_submit(session, &rest, &request, error.out()),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("resume"), HasSubstr("seed"),
                                     HasSubstr("9"), HasSubstr("8")));
  rest.seed = 8;
  rest.resume = 2;
  EXPECT_EQ(inlay_session_submit(session, &rest, &request, error.out()),
            INLAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("resume"), HasSubstr("2")));
  EXPECT_EQ(host.Info(session).num_tokens, 7u);
  rest.resume = 1;
  EXPECT_EQ(host.Run(session, rest).tokens.size(), 4u);
  inlay_session_release(session);
}

}  // namespace
}  // namespace inlay::testing
