#include "tests/core/engine_oom/script.h"

#include <gtest/gtest.h>

#include <new>
#include <utility>

#include "memory/status.h"
#include "tests/support/engine_harness.h"

namespace inlay {
namespace {

using ::inlay::testing::RandomTokens;
using ::inlay::testing::TokenRequest;

bool IsShortage(const absl::Status& status) {
  return status.code() == OutOfMemoryError("x").code() ||
         absl::IsResourceExhausted(status);
}

RequestOptions Sampled(size_t prompt, int64_t max_tokens) {
  RequestOptions options = TokenRequest(
      RandomTokens(static_cast<uint32_t>(prompt), prompt), max_tokens);
  options.sampling.temperature = 0.8f;
  options.sampling.top_p = 0.9f;
  options.sampling.repetition_penalty = 1.1f;
  options.sampling.seed = prompt;
  return options;
}

}  // namespace

// True: it went well. Shortages are no fault; a closed engine is none that ran
// out of memory for a scheduler.
bool Script::Do(const char* what, const std::function<absl::Status()>& call) {
  absl::Status status;
  bool thrown = false;
  weather_.bad();
  try {
    status = call();
  } catch (const std::bad_alloc&) {
    thrown = true;  // the C ABI makes INLAY_OUT_OF_MEMORY of it
  } catch (...) {
    weather_.good();
    ADD_FAILURE() << what << ": a foreign exception";
    throw;
  }
  weather_.good();
  if (thrown) return false;
  if (!status.ok() && !IsShortage(status) && !absl::IsUnavailable(status))
    ADD_FAILURE() << what << ": " << status;
  return status.ok();
}

bool Script::Load() {
  EngineOptions options = engine_options_;
  const bool created = Do("create", [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(engine_, Engine::Create(options));
    return absl::OkStatus();
  });
  return created && Do("load", [&]() -> absl::Status {
           INLAY_ASSIGN_OR_RETURN(loaded_,
                                  engine_->Load(model_, model_options_));
           return absl::OkStatus();
         });
}

SessionId Script::Open() {
  SessionId session = 0;
  Do("create session", [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(session, loaded_.runner->CreateSession());
    return absl::OkStatus();
  });
  if (session != 0) sessions_.push_back(session);
  return session;
}

void Script::Submit(const std::string& name, SessionId session,
                    RequestOptions options) {
  if (session == 0) return;
  RequestId request = 0;
  const bool in = Do("submit", [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(request,
                           loaded_.runner->Submit(session, std::move(options)));
    return absl::OkStatus();
  });
  if (in) {
    asked_[request] = {name, session, {}, false, absl::OkStatus()};
    return;
  }
  spoilt_.insert(session);
  // What was refused leaves the session idle.
  const auto info = loaded_.runner->GetSessionInfo(session);
  EXPECT_TRUE(!info.ok() || !info->busy) << name;
}

void Script::Step(int times) {
  for (int i = 0; i < times; ++i) {
    bool more = true;
    Do("step", [&]() -> absl::Status {
      INLAY_ASSIGN_OR_RETURN(const Engine::StepSummary summary,
                             engine_->Step(0));
      more = summary.more_work;
      return absl::OkStatus();
    });
    if (!more) return;
  }
}

void Script::Take(Event event) {
  const auto found = asked_.find(event.request);
  if (found == asked_.end()) {
    ADD_FAILURE() << "an event of request " << event.request
                  << ", which nobody made";
    return;
  }
  Asked& asked = found->second;
  EXPECT_FALSE(asked.finished) << asked.name;
  asked.tokens.insert(asked.tokens.end(), event.tokens.begin(),
                      event.tokens.end());
  if (event.kind != EventKind::kFinished) return;
  asked.finished = true;
  asked.status = event.finish.status;
  if (!asked.status.ok()) spoilt_.insert(asked.session);
}

void Script::TakeEvents() {
  while (true) {
    Event event;
    if (!Do("next event", [&]() -> absl::Status {
          auto next = engine_->events().Next(0);
          if (absl::IsDeadlineExceeded(next.status()))
            return absl::ResourceExhaustedError("");
          INLAY_RETURN_IF_ERROR(next.status());
          event = *std::move(next);
          return absl::OkStatus();
        })) {
      return;
    }
    Take(std::move(event));
  }
}

void Script::Serve() {
  const SessionId text = Open(), scored = Open(), longer = Open();
  RequestOptions options;
  options.input = InputKind::kText;
  options.text = "to be or not";
  options.max_tokens = 14;
  options.ignore_eos = true;
  options.stop_strings = {"never", "~~~"};
  options.sampling.num_logprobs = 2;
  Submit("text", text, options);
  options = Sampled(20, 6);
  options.score_prompt = true;
  options.logits = LogitsMode::kLast;
  Submit("scored", scored, options);
  Step(2);
  // Too long to run beside the others: somebody is preempted.
  options = Sampled(90, 20);
  options.priority = 1;
  Submit("longer", longer, options);
  Step(5);
  TakeEvents();
  const SessionId cancelled = Open();
  Submit("cancelled", cancelled, Sampled(30, 30));
  Step(1);
  if (!asked_.empty()) {
    const auto last = std::prev(asked_.end());
    if (last->second.name == "cancelled")
      Do("cancel", [&] { return loaded_.runner->Cancel(last->first); });
  }
  Step(200);
  TakeEvents();

  // The same prompt again, and a fork that goes on from it.
  const SessionId again = Open();
  Submit("again", again, Sampled(90, 5));
  Step(200);
  SessionId fork = 0;
  if (longer != 0) {
    Do("fork", [&]() -> absl::Status {
      INLAY_ASSIGN_OR_RETURN(fork, loaded_.runner->Fork(longer));
      return absl::OkStatus();
    });
  }
  if (fork != 0) {
    sessions_.push_back(fork);
    if (spoilt_.contains(longer) ||
        !Do("rewind", [&] { return loaded_.runner->Rewind(fork, 95); })) {
      spoilt_.insert(fork);
    }
    Submit("fork", fork, TokenRequest({5, 6}, 4));
  }
  Step(200);
  TakeEvents();
  Prefixes();
  Snapshots();
  Reports();
}

void Script::Prefixes() {
  ModelRunner& runner = *loaded_.runner;
  PrefixId prefix = 0;
  RequestOptions input = TokenRequest(RandomTokens(77, 40), 0);
  Do("create prefix", [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(
        prefix, runner.CreatePrefix("system", std::move(input), true, 0));
    return absl::OkStatus();
  });
  Step(3);
  if (prefix != 0) {
    SessionId session = 0;
    Do("open prefix", [&]() -> absl::Status {
      INLAY_ASSIGN_OR_RETURN(session, runner.OpenPrefix(prefix));
      return absl::OkStatus();
    });
    if (session != 0) sessions_.push_back(session);
    Submit("prefixed", session, TokenRequest({9}, 4));
  }
  const SessionId quoted = Open();
  const RequestOptions asked = Sampled(33, 8);
  if (quoted != 0) {
    RequestOptions copy = asked;
    Do("quote",
       [&] { return runner.Quote(quoted, std::move(copy), true).status(); });
  }
  // The lease shrinks to nothing, and is lifted.
  const MemoryUse use = [&] {
    EngineStats stats;
    engine_->GetStats(&stats);
    return stats.memory;
  }();
  const uint64_t fixed =
      use.total_bytes - use.by_class[static_cast<size_t>(MemoryClass::kKv)];
  Do("lower budget",
     [&] { return engine_->SetMemoryBudget(0, fixed + (1 << 14)); });
  Step(2);
  Do("lift budget", [&] { return engine_->SetMemoryBudget(0, 0); });
  Step(1);
  Submit("quoted", quoted, asked);
  Step(200);
  TakeEvents();
  if (prefix != 0) {
    Do("prefix info", [&] { return runner.GetPrefixInfo(prefix).status(); });
    Do("unpin", [&] { return runner.PinPrefix(prefix, false); });
    Do("pin", [&] { return runner.PinPrefix(prefix, true); });
    Do("release prefix", [&] {
      runner.ReleasePrefix(prefix);
      return absl::OkStatus();
    });
  }
}

void Script::Snapshots() {
  ModelRunner& runner = *loaded_.runner;
  const SessionId session = Open();
  Submit("saved", session, Sampled(25, 5));
  Step(200);
  TakeEvents();
  if (session == 0 || spoilt_.contains(session)) return;
  const auto info = runner.GetSessionInfo(session);
  if (!info.ok() || info->busy) return;  // it waits for memory
  std::vector<std::byte> bytes;
  bytes.reserve(1 << 20);
  const bool saved = Do("save", [&] {
    return runner.Save(session, [&](absl::Span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
      return absl::OkStatus();
    });
  });
  if (!saved) return;
  ModelRunner::Restored restored;
  Do("restore", [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(restored, runner.Restore(bytes));
    return absl::OkStatus();
  });
  if (restored.session == 0) return;
  sessions_.push_back(restored.session);
  RequestOptions options = Sampled(25, 4);
  options.tokens.clear();
  options.resume = true;
  Submit("restored", restored.session, options);
  Step(200);
  TakeEvents();
}

void Script::Reports() {
  auto stats = std::make_unique<EngineStats>();
  Do("stats", [&] {
    engine_->GetStats(stats.get());
    return absl::OkStatus();
  });
  const bool on = Do("trace", [&] { return engine_->trace().Start(64); });
  const SessionId session = Open();
  Submit("traced", session, Sampled(8, 3));
  Step(200);
  if (on) Do("stop trace", [&] { return engine_->trace().Stop().status(); });
  for (const SessionId each : sessions_) {
    Do("session",
       [&] { return loaded_.runner->GetSessionInfo(each).status(); });
    Do("tokens", [&] { return loaded_.runner->Tokens(each).status(); });
  }
  TakeEvents();
}

void Script::Finish(const Tokens* want) {
  if (loaded_.runner != nullptr) {
    Step(2000);
    EXPECT_FALSE(loaded_.runner->HasRequests());
    TakeEvents();
    for (const auto& [id, asked] : asked_) {
      EXPECT_TRUE(asked.finished) << asked.name;
      if (!asked.status.ok()) {
        EXPECT_TRUE(
            IsShortage(asked.status) ||
            (absl::IsCancelled(asked.status) && asked.name == "cancelled"))
            << asked.name << ": " << asked.status;
        continue;
      }
      if (spoilt_.contains(asked.session)) continue;
      tokens_[asked.name] = asked.tokens;
      if (want == nullptr) continue;
      const auto found = want->find(asked.name);
      if (found != want->end()) {
        EXPECT_EQ(asked.tokens, found->second) << asked.name;
      }
    }
    for (const SessionId session : sessions_)
      loaded_.runner->ReleaseSession(session);
    // As good as new.
    EngineMetrics metrics;
    const auto session = loaded_.runner->CreateSession();
    survived_ = session.ok();
    if (survived_) {
      sessions_ = {*session};
      asked_.clear();
      Submit("after", *session, Sampled(60, 10));
      Step(2000);
      TakeEvents();
      ASSERT_EQ(asked_.size(), 1u);
      const Asked& after = asked_.begin()->second;
      EXPECT_TRUE(after.finished && after.status.ok()) << after.status;
      tokens_["after"] = after.tokens;
      if (want != nullptr) {
        EXPECT_EQ(after.tokens, want->at("after"));
      }
      loaded_.runner->ReleaseSession(*session);
      loaded_.runner->AddMetrics(&metrics);
      EXPECT_EQ(metrics.kv_blocks_used, metrics.kv_blocks_evictable);
      EXPECT_EQ(metrics.sessions, 0u);
    } else {
      EXPECT_TRUE(absl::IsUnavailable(session.status())) << session.status();
    }
  }
  loaded_ = {};
  engine_.reset();
  asked_.clear();
}

}  // namespace inlay
