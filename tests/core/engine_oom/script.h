// What a host does with an engine, from its creation to its end, each call on
// its own while memory may run out; and what must hold of it afterwards.
#ifndef INLAY_TESTS_CORE_ENGINE_OOM_SCRIPT_H_
#define INLAY_TESTS_CORE_ENGINE_OOM_SCRIPT_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/engine/engine.h"

namespace inlay {

class Script {
 public:
  // Called around every call of the engine's interface.
  struct Weather {
    std::function<void()> bad = [] {};
    std::function<void()> good = [] {};
  };
  // What requests gave, by their names.
  using Tokens = std::map<std::string, std::vector<int32_t>>;

  Script(std::string model, EngineOptions engine, ModelOptions options,
         Weather weather)
      : model_(std::move(model)),
        engine_options_(std::move(engine)),
        model_options_(std::move(options)),
        weather_(std::move(weather)) {}

  // Makes the engine in whatever weather it is. True: it is there.
  bool Load();
  // Works with it.
  void Serve();
  // In good weather from here on: every request ends, and those that say all
  // was well gave what they give in `want`; the engine serves again, or is
  // closed. Then releases everything.
  void Finish(const Tokens* want);

  const Tokens& tokens() const { return tokens_; }
  // The engine went on serving.
  bool survived() const { return survived_; }

 private:
  struct Asked {
    std::string name;
    SessionId session = 0;
    std::vector<int32_t> tokens;
    bool finished = false;
    absl::Status status;
  };

  bool Do(const char* what, const std::function<absl::Status()>& call);
  SessionId Open();
  void Submit(const std::string& name, SessionId session,
              RequestOptions options);
  void Step(int times);
  void TakeEvents();
  void Take(Event event);
  void Prefixes();
  void Snapshots();
  void Reports();

  const std::string model_;
  const EngineOptions engine_options_;
  const ModelOptions model_options_;
  const Weather weather_;
  std::shared_ptr<Engine> engine_;
  Engine::Loaded loaded_;
  std::map<RequestId, Asked> asked_;
  std::set<SessionId> spoilt_;  // something failed in it: its log may differ
  std::vector<SessionId> sessions_;
  Tokens tokens_;
  bool survived_ = false;
};

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_ENGINE_OOM_SCRIPT_H_
