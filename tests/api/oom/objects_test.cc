// Calls that make something in the engine (sessions, prefixes, reservations,
// requests, files) when the host's memory runs out in them and stays so: who
// got no handle left nothing there either.
#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/api/oom/exhausted.h"

namespace inlay::testing {
namespace {

class ExhaustedObjectsTest : public ExhaustedTest {
 protected:
  ExhaustedObjectsTest() {
    folder_ =
        (std::filesystem::temp_directory_path() / "inlay-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~ExhaustedObjectsTest() override { std::filesystem::remove_all(folder_); }

  inlay_stats Stats() const {
    auto stats = Defaults(inlay_stats_init_sized);
    EXPECT_EQ(inlay_engine_stats(engine_, &stats, nullptr), INLAY_OK);
    return stats;
  }

  // As Sweep(); then there are as many sessions, models and held blocks as
  // before: what was refused left none.
  void SweepKept(
      const char* what, const Call& call,
      const std::function<void()>& undo = [] {},
      const std::function<void()>& check = [] {}) {
    const auto before = Stats();
    Sweep(what, INLAY_OK, call, undo);
    const auto after = Stats();
    EXPECT_EQ(after.num_sessions, before.num_sessions) << what;
    EXPECT_EQ(after.kv_blocks_used, before.kv_blocks_used) << what;
    EXPECT_EQ(after.num_models, before.num_models) << what;
    check();
  }

  inlay_prefix_options PrefixOptions(uint32_t pin) const {
    auto options = Defaults(inlay_prefix_options_init);
    options.tokens = tokens_.data();
    options.num_tokens = tokens_.size();
    options.pin = pin;
    return options;
  }

  // It is not known by that name.
  void ExpectNoPrefix(const char* name) const {
    inlay_prefix* prefix = nullptr;
    EXPECT_EQ(inlay_prefix_find(model_, name, &prefix, nullptr),
              INLAY_NOT_FOUND);
    inlay_prefix_release(prefix);
  }

  const std::vector<int32_t> tokens_ = Tokens(3, 40);
  std::string folder_;
};

TEST_F(ExhaustedObjectsTest, Sessions) {
  inlay_session* session = nullptr;
  const auto release = [&] { inlay_session_release(session); };
  SweepKept(
      "a session",
      [&](auto** error) {
        return inlay_session_create(model_, &session, error);
      },
      release);
  SweepKept(
      "a fork",
      [&](auto** error) {
        return inlay_session_fork(session_, &session, error);
      },
      release);
  inlay_buffer* saved = nullptr;
  ASSERT_EQ(inlay_session_save_buffer(session_, &saved, nullptr), INLAY_OK);
  SweepKept(
      "a restored session",
      [&](auto** error) {
        auto info = Defaults(inlay_restore_info_init);
        return inlay_session_restore_buffer(model_, inlay_buffer_data(saved),
                                            inlay_buffer_size(saved), &session,
                                            &info, error);
      },
      release);
  inlay_buffer_release(saved);
  ExpectAlive();
}

TEST_F(ExhaustedObjectsTest, Prefixes) {
  for (const uint32_t pin : {0u, 1u}) {
    SCOPED_TRACE(pin);
    const auto options = PrefixOptions(pin);
    inlay_prefix* prefix = nullptr;
    const auto release = [&] { inlay_prefix_release(prefix); };
    const auto gone = [&] { ExpectNoPrefix("a name that is allocated"); };
    // Each begins with no prefix of that name: a refused one left none.
    SweepKept(
        "a prefix",
        [&](auto** error) {
          return inlay_prefix_create(model_, "a name that is allocated",
                                     &options, &prefix, error);
        },
        release, gone);
    inlay_prefix* kept = nullptr;
    ASSERT_EQ(inlay_prefix_create(model_, "a name that is allocated", &options,
                                  &kept, nullptr),
              INLAY_OK);
    SweepKept(
        "the same found",
        [&](auto** error) {
          return inlay_prefix_find(model_, "a name that is allocated", &prefix,
                                   error);
        },
        release);
    inlay_session* session = nullptr;
    SweepKept(
        "the same opened",
        [&](auto** error) { return inlay_prefix_open(kept, &session, error); },
        [&] { inlay_session_release(session); });
    if (pin == 0) {
      SweepKept(
          "the same pinned",
          [&](auto** error) { return inlay_prefix_pin(kept, 1, error); },
          [&] { inlay_prefix_pin(kept, 0, nullptr); });
    }
    auto info = Defaults(inlay_prefix_info_init);
    ASSERT_EQ(inlay_prefix_get_info(kept, &info, nullptr), INLAY_OK);
    EXPECT_EQ(info.num_tokens, tokens_.size());
    inlay_prefix_release(kept);
    gone();
    EXPECT_EQ(Stats().kv_blocks_used, 0u);
  }
  ExpectAlive();
}

TEST_F(ExhaustedObjectsTest, Quotes) {
  const auto options = TokensRequest(tokens_, 8);
  for (const int32_t reserve : {0, 1}) {
    inlay_session* session = nullptr;
    ASSERT_EQ(inlay_session_create(model_, &session, nullptr), INLAY_OK);
    SweepKept(
        "a quote",
        [&](auto** error) {
          auto quote = Defaults(inlay_quote_init);
          return inlay_request_quote(session, &options, reserve, &quote, error);
        },
        [&] {
          // Gives back what it set aside.
          auto quote = Defaults(inlay_quote_init);
          EXPECT_EQ(inlay_request_quote(session, &options, 0, &quote, nullptr),
                    INLAY_OK);
        });
    inlay_session_release(session);
  }
  EXPECT_EQ(Stats().kv_blocks_used, 0u);
  ExpectAlive();
}

// A file is written as a whole or not at all.
TEST_F(ExhaustedObjectsTest, Files) {
  const std::string path = folder_ + "/a session";
  const auto num_files = [&] {
    const auto files = std::filesystem::directory_iterator(folder_);
    return std::distance(begin(files), end(files));
  };
  SweepKept(
      "a saved session",
      [&](auto** error) {
        return inlay_session_save(session_, path.c_str(), error);
      },
      [] {}, [&] { EXPECT_EQ(num_files(), 1); });
  inlay_session* session = nullptr;
  SweepKept(
      "a session from a file",
      [&](auto** error) {
        return inlay_session_restore(model_, path.c_str(), &session, nullptr,
                                     error);
      },
      [&] { inlay_session_release(session); });
  const std::string recording = folder_ + "/a recording";
  SweepKept(
      "a recording",
      [&](auto** error) {
        return inlay_model_record_start(model_, recording.c_str(), error);
      },
      [&] { EXPECT_EQ(inlay_model_record_stop(model_, nullptr), INLAY_OK); });
  ExpectAlive();
}

// What a request gave, and how it ended.
struct Gave {
  std::vector<float> values;
  inlay_status status = INLAY_INTERNAL;
  bool finished = false;

  void Take(inlay_event* event) {
    auto info = Defaults(inlay_event_info_init_sized);
    ASSERT_EQ(inlay_event_get_info(event, &info, nullptr), INLAY_OK);
    const auto add = [&](const float* from, size_t count) {
      values.insert(values.end(), from, from + count);
    };
    add(info.embedding, info.num_embedding);
    add(info.logits, info.num_logits);
    add(info.scores, info.num_scores);
    finished |= info.kind == INLAY_EVENT_FINISHED;
    if (finished) status = info.status;
    inlay_event_release(event);
  }
};

// Requests for vectors and labels: all of it, or an error; never less.
TEST_F(ExhaustedObjectsTest, EmbeddingsAndClassifications) {
  const std::vector<int32_t> prompt = {1, 9, 17, 25, 33};
  inlay_model* encoder = nullptr;
  ASSERT_EQ(inlay_model_load(engine_, ModelPath("bert_labels").c_str(), nullptr,
                             &encoder, nullptr),
            INLAY_OK);
  auto embeds = TokensRequest(prompt, 0);
  embeds.embedding = INLAY_EMBEDDING_MEAN;
  embeds.normalise = 1;
  auto classifies = TokensRequest(prompt, 0);
  classifies.classification = INLAY_CLASSIFICATION_SOFTMAX;
  auto scores = TokensRequest(prompt, 0);
  scores.score_prompt = 1;
  scores.logits = INLAY_LOGITS_LAST;
  const std::pair<inlay_model*, inlay_request_options*> kinds[] = {
      {encoder, &embeds},
      {encoder, &classifies},
      {model_, &embeds},
      {model_, &scores}};
  for (const auto& [model, options] : kinds) {
    // One life of a request whose calls have no memory from the `first`
    // allocation on, until it is allowed to end.
    const auto run = [&, model = model, options = options](int64_t first,
                                                           bool* failed) {
      Gave gave;
      inlay_session* session = nullptr;
      inlay_request* request = nullptr;
      inlay_event* event = nullptr;
      EXPECT_EQ(inlay_session_create(model, &session, nullptr), INLAY_OK);
      const auto without = [&](const Call& call) {
        inlay_status status = INLAY_OK;
        *failed |= CallWithout(first, call, &status);
        EXPECT_TRUE(status == INLAY_OK || status == INLAY_OUT_OF_MEMORY ||
                    status == INLAY_TIMEOUT || status == INLAY_END)
            << inlay_status_name(status);
        return status;
      };
      gave.status = without([&](auto** error) {
        return inlay_session_submit(session, options, &request, error);
      });
      for (int i = 0; request != nullptr && i < 2; ++i) {
        without([&](auto** error) {
          return inlay_engine_step(engine_, 0, nullptr, error);
        });
        event = nullptr;
        without([&](auto** error) {
          return inlay_request_next_event(request, 0, &event, error);
        });
        if (event != nullptr) gave.Take(event);
      }
      for (int i = 0; request != nullptr && i < 20 && !gave.finished; ++i) {
        inlay_engine_step(engine_, 0, nullptr, nullptr);
        while (inlay_request_next_event(request, 0, &event, nullptr) ==
               INLAY_OK) {
          gave.Take(event);
        }
      }
      EXPECT_EQ(gave.finished, request != nullptr);
      inlay_request_release(request);
      inlay_session_release(session);
      return gave;
    };
    bool failed = false;
    const Gave expected = run(kForever, &failed);
    ASSERT_EQ(expected.status, INLAY_OK);
    ASSERT_FALSE(expected.values.empty());
    const auto before = Stats();
    failed = true;
    for (int64_t first = 1; failed && !HasFailure(); first += 1 + first / 8) {
      SCOPED_TRACE(::testing::Message() << "without allocation " << first);
      failed = false;
      const Gave gave = run(first, &failed);
      if (gave.status == INLAY_OK) {
        EXPECT_EQ(gave.values, expected.values);
      } else {
        EXPECT_EQ(gave.status, INLAY_OUT_OF_MEMORY);
      }
      EXPECT_EQ(Stats().num_sessions, before.num_sessions);
      EXPECT_EQ(Stats().kv_blocks_used, 0u);
    }
  }
  inlay_model_release(encoder);
  ExpectAlive();
}

// Answers of the engine itself.
TEST_F(ExhaustedObjectsTest, Engine) {
  inlay_engine* engine = nullptr;
  auto options = EngineDefaults();
  options.num_threads = 1;
  ASSERT_EQ(inlay_engine_create(&options, &engine, nullptr), INLAY_OK);
  Sweep("statistics", INLAY_OK, [&](auto** error) {
    auto stats = Defaults(inlay_stats_init_sized);
    return inlay_engine_stats(engine, &stats, error);
  });
  Sweep("the rate of copies", INLAY_OK, [&](auto** error) {
    double rate = 0;
    return inlay_engine_measure_copy(engine, 1 << 20, &rate, error);
  });
  Sweep(
      "a trace", INLAY_OK,
      [&](auto** error) { return inlay_engine_trace_start(engine, 64, error); },
      [&] {
        inlay_buffer* trace = nullptr;
        EXPECT_EQ(inlay_engine_trace_take(engine, 1, &trace, nullptr),
                  INLAY_OK);
        inlay_buffer_release(trace);
      });
  const std::string path = TinyModel();
  inlay_model* model = nullptr;
  auto model_options = ModelDefaults();
  model_options.host_cache_bytes = 1 << 18;
  model_options.disk_cache_bytes = 1 << 20;
  const std::string disk = folder_ + "/kv";
  model_options.disk_cache_folder = disk.c_str();
  Sweep(
      "a model with lower tiers", INLAY_OK,
      [&](auto** error) {
        return inlay_model_load(engine, path.c_str(), &model_options, &model,
                                error);
      },
      [&] {
        inlay_model_release(model);
        EXPECT_EQ(inlay_engine_step(engine, 0, nullptr, nullptr), INLAY_OK);
      });
  inlay_engine_step(engine, 0, nullptr, nullptr);
  auto stats = Defaults(inlay_stats_init_sized);
  EXPECT_EQ(inlay_engine_stats(engine, &stats, nullptr), INLAY_OK);
  EXPECT_EQ(stats.num_models, 0u);
  EXPECT_EQ(stats.memory_bytes, 0u);
  inlay_engine_release(engine);
}

}  // namespace
}  // namespace inlay::testing
