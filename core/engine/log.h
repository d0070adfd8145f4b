// Log: where the library says what a host may want to know. It prints nothing
// itself.
#ifndef INLAY_CORE_ENGINE_LOG_H_
#define INLAY_CORE_ENGINE_LOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace inlay {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };

// Thread-safe if the sink is. Messages above the level are dropped before they
// are made where that costs something: ask wants().
class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;

  Log() = default;
  Log(LogLevel level, Sink sink) : level_(level), sink_(std::move(sink)) {}

  bool wants(LogLevel level) const { return sink_ && level <= level_; }
  void operator()(LogLevel level, const std::string& message) const {
    if (wants(level)) sink_(level, message);
  }

 private:
  LogLevel level_ = LogLevel::kWarning;
  Sink sink_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_LOG_H_
