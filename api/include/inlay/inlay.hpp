// The C++ face of inlay.h: owning handles and results, header-only, C++17, no
// exceptions. Everything here is inline over the C ABI, so a program built with
// it needs nothing of the library but the exported C functions. Meaning,
// thread-safety and errors are those of inlay.h.
//
//   auto engine = inlay::Engine::Create();
//   auto model = engine->Load("models/pocket-7m");
//   auto session = model->NewSession();
//   auto request = session->Submit("Once upon a time", {.max_tokens = 64});
//   while (auto event = engine->NextStepping(*request)) std::cout <<
//   event->text();
//
// Since: 0.1.
#ifndef INLAY_INLAY_HPP_
#define INLAY_INLAY_HPP_

#include <inlay/inlay.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inlay {
// Versioned, so that these names never meet those inside a statically linked
// library.
inline namespace api_v0 {

// Why a call failed. ok() for none.
class Error {
 public:
  Error() = default;
  // Takes the error object, if there is one, and releases it.
  Error(inlay_status status, inlay_error* error) : status_(status) {
    if (error == nullptr) return;
    message_ = inlay_error_message(error);
    inlay_error_release(error);
  }
  Error(inlay_status status, std::string message)
      : status_(status), message_(std::move(message)) {}
  bool ok() const { return status_ == INLAY_OK; }
  inlay_status status() const { return status_; }
  const char* name() const { return inlay_status_name(status_); }
  const std::string& message() const { return message_; }

 private:
  inlay_status status_ = INLAY_OK;
  std::string message_;
};

// A value, or the error why there is none. Ask before taking the value.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }

 private:
  std::optional<T> value_;
  Error error_;
};

// Owns one C handle. Move-only.
template <typename C, void (*kRelease)(C*)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(C* handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Handle() { Reset(); }
  C* get() const { return handle_; }
  void Reset() {
    if (handle_ != nullptr) kRelease(std::exchange(handle_, nullptr));
  }

 private:
  C* handle_ = nullptr;
};

namespace internal {

// Runs call(&error) and keeps what it says.
template <typename Call>
Error Try(Call&& call) {
  inlay_error* error = nullptr;
  const inlay_status status = call(&error);
  return Error(status, error);
}

inline std::string TakeBuffer(inlay_buffer* buffer) {
  std::string bytes(inlay_buffer_data(buffer), inlay_buffer_size(buffer));
  inlay_buffer_release(buffer);
  return bytes;
}

// Reads an array of tokens in two calls, again if it grew in between.
template <typename Read>
Result<std::vector<int32_t>> ReadTokens(Read&& read) {
  std::vector<int32_t> tokens(256);
  while (true) {
    size_t count = 0;
    Error error = Try([&](inlay_error** out) {
      return read(tokens.data(), tokens.size(), &count, out);
    });
    if (!error.ok()) return error;
    const bool fits = count <= tokens.size();
    tokens.resize(count);
    if (fits) return tokens;
  }
}

}  // namespace internal

// Bytes that the library made.
class Buffer {
 public:
  explicit Buffer(inlay_buffer* buffer) : handle_(buffer) {}
  inlay_buffer* get() const { return handle_.get(); }
  // Valid as long as this object.
  std::string_view bytes() const {
    return {inlay_buffer_data(get()), inlay_buffer_size(get())};
  }

 private:
  Handle<inlay_buffer, inlay_buffer_release> handle_;
};

// One event, and the view into it.
class Event {
 public:
  explicit Event(inlay_event* event) : handle_(event) {
    inlay_event_info_init(&info_);
    inlay_event_get_info(event, &info_, nullptr);
  }
  const inlay_event_info& info() const { return info_; }
  std::string_view text() const {
    return info_.text == nullptr
               ? std::string_view()
               : std::string_view(info_.text, info_.text_bytes);
  }
  bool finished() const { return info_.kind == INLAY_EVENT_FINISHED; }

 private:
  Handle<inlay_event, inlay_event_release> handle_;
  inlay_event_info info_;
};

class Request {
 public:
  explicit Request(inlay_request* request) : handle_(request) {}
  inlay_request* get() const { return handle_.get(); }
  Error Cancel() {
    return internal::Try(
        [&](inlay_error** e) { return inlay_request_cancel(get(), e); });
  }
  // This request's next event; INLAY_TIMEOUT and INLAY_END are errors here.
  Result<Event> Next(uint64_t timeout_us) {
    inlay_event* event = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_request_next_event(get(), timeout_us, &event, e);
    });
    if (!error.ok()) return error;
    return Event(event);
  }

 private:
  Handle<inlay_request, inlay_request_release> handle_;
};

// The settings most callers touch; Session::Submit(options) takes them all.
struct Generate {
  int32_t max_tokens = -1;
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
  // The session's last generation goes on, with the same seed.
  bool resume = false;
  uint64_t deadline_us = 0;  // from submit; 0: none
};

class Session {
 public:
  explicit Session(inlay_session* session) : handle_(session) {}
  inlay_session* get() const { return handle_.get(); }

  Result<Request> Submit(const inlay_request_options& options) {
    inlay_request* request = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_session_submit(get(), &options, &request, e);
    });
    if (!error.ok()) return error;
    return Request(request);
  }
  // `text` follows the session's log.
  Result<Request> Submit(std::string_view text, const Generate& generate = {}) {
    inlay_request_options options = Options(generate);
    options.text = text.data();
    options.text_bytes = text.size();
    return Submit(options);
  }
  // `json` is the whole conversation, as inlay_chat_render() takes it.
  Result<Request> Chat(std::string_view json, const Generate& generate = {}) {
    inlay_request_options options = Options(generate);
    options.chat = json.data();
    options.chat_bytes = json.size();
    return Submit(options);
  }
  // What Submit(options) would need now; with `reserve`, its KV is set aside.
  Result<inlay_quote> Quote(const inlay_request_options& options,
                            bool reserve = false) {
    inlay_quote quote;
    inlay_quote_init(&quote);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_request_quote(get(), &options, reserve ? 1 : 0, &quote, e);
    });
    if (!error.ok()) return error;
    return quote;
  }
  // The same for Submit(text, generate).
  Result<inlay_quote> Quote(std::string_view text,
                            const Generate& generate = {},
                            bool reserve = false) {
    inlay_request_options options = Options(generate);
    options.text = text.data();
    options.text_bytes = text.size();
    return Quote(options, reserve);
  }
  // To a file, replaced as a whole; Model::Restore() brings it back.
  Error Save(const std::string& path) {
    return internal::Try([&](inlay_error** e) {
      return inlay_session_save(get(), path.c_str(), e);
    });
  }
  Result<Buffer> SaveBuffer() {
    inlay_buffer* buffer = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_session_save_buffer(get(), &buffer, e);
    });
    if (!error.ok()) return error;
    return Buffer(buffer);
  }
  Result<Session> Fork() {
    inlay_session* fork = nullptr;
    Error error = internal::Try(
        [&](inlay_error** e) { return inlay_session_fork(get(), &fork, e); });
    if (!error.ok()) return error;
    return Session(fork);
  }
  Error Rewind(size_t num_tokens) {
    return internal::Try([&](inlay_error** e) {
      return inlay_session_rewind(get(), num_tokens, e);
    });
  }
  Result<std::vector<int32_t>> Tokens() {
    return internal::ReadTokens(
        [&](int32_t* tokens, size_t capacity, size_t* count, inlay_error** e) {
          return inlay_session_tokens(get(), tokens, capacity, count, e);
        });
  }
  Result<inlay_session_info> Info() {
    inlay_session_info info;
    inlay_session_info_init(&info);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_session_get_info(get(), &info, e);
    });
    if (!error.ok()) return error;
    return info;
  }

 private:
  static inlay_request_options Options(const Generate& generate) {
    inlay_request_options options;
    inlay_request_options_init(&options);
    options.max_tokens = generate.max_tokens;
    options.temperature = generate.temperature;
    options.top_k = generate.top_k;
    options.top_p = generate.top_p;
    options.min_p = generate.min_p;
    options.seed = generate.seed;
    options.resume = generate.resume ? 1 : 0;
    options.deadline_us = generate.deadline_us;
    return options;
  }

  Handle<inlay_session, inlay_session_release> handle_;
};

// A handle on a named prefix: Model::CreatePrefix(), Model::FindPrefix().
class Prefix {
 public:
  explicit Prefix(inlay_prefix* prefix) : handle_(prefix) {}
  inlay_prefix* get() const { return handle_.get(); }

  // A session whose log is the prefix.
  Result<Session> Open() {
    inlay_session* session = nullptr;
    Error error = internal::Try(
        [&](inlay_error** e) { return inlay_prefix_open(get(), &session, e); });
    if (!error.ok()) return error;
    return Session(session);
  }
  Error Pin(bool pinned = true) {
    return internal::Try([&](inlay_error** e) {
      return inlay_prefix_pin(get(), pinned ? 1 : 0, e);
    });
  }
  Result<inlay_prefix_info> Info() {
    inlay_prefix_info info;
    inlay_prefix_info_init(&info);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_prefix_get_info(get(), &info, e);
    });
    if (!error.ok()) return error;
    return info;
  }

 private:
  Handle<inlay_prefix, inlay_prefix_release> handle_;
};

class Model {
 public:
  explicit Model(inlay_model* model) : handle_(model) {}
  inlay_model* get() const { return handle_.get(); }

  Result<Session> NewSession() {
    inlay_session* session = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_session_create(get(), &session, e);
    });
    if (!error.ok()) return error;
    return Session(session);
  }
  // A session saved by Session::Save(). `info`, which may be null, is
  // initialised here.
  Result<Session> Restore(const std::string& path,
                          inlay_restore_info* info = nullptr) {
    inlay_session* session = nullptr;
    inlay_restore_info_init(info);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_session_restore(get(), path.c_str(), &session, info, e);
    });
    if (!error.ok()) return error;
    return Session(session);
  }
  // The same from Session::SaveBuffer()'s bytes.
  Result<Session> RestoreBuffer(std::string_view bytes,
                                inlay_restore_info* info = nullptr) {
    inlay_session* session = nullptr;
    inlay_restore_info_init(info);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_session_restore_buffer(get(), bytes.data(), bytes.size(),
                                          &session, info, e);
    });
    if (!error.ok()) return error;
    return Session(session);
  }
  Result<Prefix> CreatePrefix(const std::string& name,
                              const inlay_prefix_options& options) {
    inlay_prefix* prefix = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_prefix_create(get(), name.c_str(), &options, &prefix, e);
    });
    if (!error.ok()) return error;
    return Prefix(prefix);
  }
  // Of a text, pinned.
  Result<Prefix> CreatePrefix(const std::string& name, std::string_view text) {
    inlay_prefix_options options;
    inlay_prefix_options_init(&options);
    options.text = text.data();
    options.text_bytes = text.size();
    return CreatePrefix(name, options);
  }
  Result<Prefix> FindPrefix(const std::string& name) {
    inlay_prefix* prefix = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_prefix_find(get(), name.c_str(), &prefix, e);
    });
    if (!error.ok()) return error;
    return Prefix(prefix);
  }
  Result<inlay_model_info> Info() {
    inlay_model_info info;
    inlay_model_info_init(&info);
    Error error = internal::Try(
        [&](inlay_error** e) { return inlay_model_get_info(get(), &info, e); });
    if (!error.ok()) return error;
    return info;
  }
  Result<std::vector<int32_t>> Tokenize(
      std::string_view text,
      uint32_t flags = INLAY_TEXT_ADD_SPECIAL | INLAY_TEXT_PARSE_SPECIAL) {
    return internal::ReadTokens(
        [&](int32_t* tokens, size_t capacity, size_t* count, inlay_error** e) {
          return inlay_model_tokenize(get(), text.data(), text.size(), flags,
                                      tokens, capacity, count, e);
        });
  }
  Result<std::string> Detokenize(const std::vector<int32_t>& tokens,
                                 uint32_t flags = INLAY_TEXT_SKIP_SPECIAL) {
    inlay_buffer* text = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_model_detokenize(get(), tokens.data(), tokens.size(), flags,
                                    &text, e);
    });
    if (!error.ok()) return error;
    return internal::TakeBuffer(text);
  }
  // The defaults for requests, with the sampling settings the model's files ask
  // for.
  Result<inlay_request_options> RequestOptions() {
    inlay_request_options options;
    inlay_request_options_init(&options);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_model_request_options(get(), &options, e);
    });
    if (!error.ok()) return error;
    return options;
  }
  // What comes in and what is sampled goes to a file, for Replay().
  Error RecordStart(const std::string& path) {
    return internal::Try([&](inlay_error** e) {
      return inlay_model_record_start(get(), path.c_str(), e);
    });
  }
  Error RecordStop() {
    return internal::Try(
        [&](inlay_error** e) { return inlay_model_record_stop(get(), e); });
  }
  // Serves a recording again: a report, as JSON.
  Result<std::string> Replay(const std::string& path) {
    inlay_buffer* report = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_model_replay(get(), path.c_str(), &report, e);
    });
    if (!error.ok()) return error;
    return internal::TakeBuffer(report);
  }
  Result<std::string> RenderChat(std::string_view json) {
    inlay_buffer* text = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_chat_render(get(), json.data(), json.size(), &text, e);
    });
    if (!error.ok()) return error;
    return internal::TakeBuffer(text);
  }

 private:
  Handle<inlay_model, inlay_model_release> handle_;
};

// What a model path holds, as JSON, without loading weights.
inline Result<std::string> InspectModel(const std::string& path) {
  inlay_buffer* json = nullptr;
  Error error = internal::Try([&](inlay_error** e) {
    return inlay_model_inspect(path.c_str(), &json, e);
  });
  if (!error.ok()) return error;
  return internal::TakeBuffer(json);
}

// Writes a model as a GGUF file; the report is JSON. `options` may be null.
inline Result<std::string> Quantize(const std::string& model_path,
                                    const std::string& out_path,
                                    const inlay_quantize_options* options) {
  inlay_buffer* report = nullptr;
  Error error = internal::Try([&](inlay_error** e) {
    return inlay_quantize(model_path.c_str(), out_path.c_str(), options,
                          &report, e);
  });
  if (!error.ok()) return error;
  return internal::TakeBuffer(report);
}

class Engine {
 public:
  explicit Engine(inlay_engine* engine) : handle_(engine) {}
  inlay_engine* get() const { return handle_.get(); }

  // Null options: the defaults, host-driven.
  static Result<Engine> Create(const inlay_engine_options* options = nullptr) {
    inlay_engine* engine = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_engine_create(options, &engine, e);
    });
    if (!error.ok()) return error;
    return Engine(engine);
  }
  Result<Model> Load(const std::string& path,
                     const inlay_model_options* options = nullptr) {
    inlay_model* model = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_model_load(get(), path.c_str(), options, &model, e);
    });
    if (!error.ok()) return error;
    return Model(model);
  }
  Result<inlay_step_info> Step(uint64_t budget_us = 0) {
    inlay_step_info info;
    inlay_step_info_init(&info);
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_engine_step(get(), budget_us, &info, e);
    });
    if (!error.ok()) return error;
    return info;
  }
  Result<inlay_device_info> Device() {
    inlay_device_info info;
    inlay_device_info_init(&info);
    Error error = internal::Try(
        [&](inlay_error** e) { return inlay_engine_device(get(), &info, e); });
    if (!error.ok()) return error;
    return info;
  }
  // Bytes a second.
  Result<double> MeasureCopy(uint64_t bytes) {
    double rate = 0;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_engine_measure_copy(get(), bytes, &rate, e);
    });
    if (!error.ok()) return error;
    return rate;
  }
  Result<inlay_stats> Stats() {
    inlay_stats stats;
    inlay_stats_init(&stats);
    Error error = internal::Try(
        [&](inlay_error** e) { return inlay_engine_stats(get(), &stats, e); });
    if (!error.ok()) return error;
    return stats;
  }
  // 0 lifts the limit.
  Error SetMemoryBudget(uint64_t bytes, int32_t device = 0) {
    return internal::Try([&](inlay_error** e) {
      return inlay_engine_set_memory_budget(get(), device, bytes, e);
    });
  }
  // INLAY_METRICS_*.
  Result<std::string> Metrics(int32_t format = INLAY_METRICS_PROMETHEUS) {
    inlay_buffer* metrics = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_engine_metrics(get(), format, &metrics, e);
    });
    if (!error.ok()) return error;
    return internal::TakeBuffer(metrics);
  }
  Error StartTrace(size_t num_events) {
    return internal::Try([&](inlay_error** e) {
      return inlay_engine_trace_start(get(), num_events, e);
    });
  }
  // What was recorded since; with `stop`, recording ends.
  Result<Buffer> TakeTrace(bool stop = true) {
    inlay_buffer* trace = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_engine_trace_take(get(), stop ? 1 : 0, &trace, e);
    });
    if (!error.ok()) return error;
    return Buffer(trace);
  }
  // The oldest event of any request; INLAY_TIMEOUT is an error here.
  Result<Event> Next(uint64_t timeout_us) {
    inlay_event* event = nullptr;
    Error error = internal::Try([&](inlay_error** e) {
      return inlay_event_next(get(), timeout_us, &event, e);
    });
    if (!error.ok()) return error;
    return Event(event);
  }
  // Host-driven engines: `request`'s next event, stepping until it has one. The
  // error is INLAY_END after its last.
  Result<Event> NextStepping(Request& request) {
    while (true) {
      Result<Event> event = request.Next(0);
      if (event.ok() || event.error().status() != INLAY_TIMEOUT) return event;
      Result<inlay_step_info> step = Step();
      if (!step.ok()) return step.error();
    }
  }
  // Host-driven engines: a vector for each of `texts`, all computed side by
  // side. `embedding`: INLAY_EMBEDDING_*. The first error ends it.
  Result<std::vector<std::vector<float>>> Embed(
      Model& model, const std::vector<std::string>& texts,
      int32_t embedding = INLAY_EMBEDDING_DEFAULT, bool normalise = false) {
    inlay_request_options options;
    inlay_request_options_init(&options);
    options.embedding = embedding;
    options.normalise = normalise ? 1 : 0;
    return VectorOfEach(model, options, texts, nullptr);
  }
  // The same for the scores of a model's labels. `classification`:
  // INLAY_CLASSIFICATION_*.
  Result<std::vector<std::vector<float>>> Classify(
      Model& model, const std::vector<std::string>& texts,
      int32_t classification = INLAY_CLASSIFICATION_DEFAULT) {
    inlay_request_options options;
    inlay_request_options_init(&options);
    options.classification = classification;
    return VectorOfEach(model, options, texts, nullptr);
  }
  // The same of pairs: `text` with each of `others`, as a cross-encoder scores
  // a query's documents.
  Result<std::vector<std::vector<float>>> ClassifyPairs(
      Model& model, const std::string& text,
      const std::vector<std::string>& others,
      int32_t classification = INLAY_CLASSIFICATION_DEFAULT) {
    inlay_request_options options;
    inlay_request_options_init(&options);
    options.classification = classification;
    return VectorOfEach(model, options, others, &text);
  }

 private:
  // `first`: of pairs whose second texts are `texts`; null: there are none.
  Result<std::vector<std::vector<float>>> VectorOfEach(
      Model& model, inlay_request_options options,
      const std::vector<std::string>& texts, const std::string* first) {
    std::vector<Session> sessions;
    std::vector<Request> requests;
    for (const std::string& text : texts) {
      const std::string& head = first == nullptr ? text : *first;
      options.text = head.data();
      options.text_bytes = head.size();
      if (first != nullptr) {
        options.text_pair = text.data();
        options.text_pair_bytes = text.size();
      }
      Result<Session> session = model.NewSession();
      if (!session.ok()) return session.error();
      Result<Request> request = session->Submit(options);
      if (!request.ok()) return request.error();
      sessions.push_back(std::move(*session));
      requests.push_back(std::move(*request));
    }
    std::vector<std::vector<float>> vectors(texts.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Result<Event> event = NextStepping(requests[i]);
      for (; event.ok() && !event->finished();
           event = NextStepping(requests[i])) {
        const inlay_event_info& info = event->info();
        if (info.kind == INLAY_EVENT_CLASSIFICATION) {
          vectors[i].assign(info.scores, info.scores + info.num_scores);
        } else {
          vectors[i].assign(info.embedding,
                            info.embedding + info.num_embedding);
        }
      }
      if (!event.ok()) return event.error();
      const inlay_event_info& end = event->info();
      if (end.status != INLAY_OK)
        return Error(end.status, std::string(end.message));
    }
    return vectors;
  }

  Handle<inlay_engine, inlay_engine_release> handle_;
};

}  // namespace api_v0
}  // namespace inlay

#endif  // INLAY_INLAY_HPP_
