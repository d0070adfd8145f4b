// Any bytes as a host's calls of the C ABI, in any order, on live, stale and
// made-up handles: no crash, no hang, and the engine's release gives back every
// byte. Two bytes a call: the function, then which of the slots' handles and
// values it gets.
#include <inlay/inlay.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/paths/paths.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

// Calls beyond this add nothing that two shorter inputs do not show.
constexpr size_t kMaxCalls = 200;
constexpr size_t kSlots = 4;
constexpr int32_t kVocab = 512;  // of the tiny model

// The fuzzer is one thread, and so is the engine.
int64_t live_bytes = 0;
int64_t budget_bytes = 0;  // of the moment; 0: none

constexpr int64_t kFirstBudget = 4 << 20;

void* Allocate(void*, size_t bytes, size_t alignment) {
  live_bytes += static_cast<int64_t>(bytes);
  Require(budget_bytes == 0 || live_bytes <= budget_bytes);
  return aligned_alloc(alignment,
                       (bytes + alignment - 1) / alignment * alignment);
}

void Deallocate(void*, void* memory, size_t bytes, size_t) {
  live_bytes -= static_cast<int64_t>(bytes);
  free(memory);
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint8_t Next() { return empty() ? 0 : data_[at_++]; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

class Host {
 public:
  explicit Host(Input input) : input_(input) {
    inlay_engine_options options;
    inlay_engine_options_init(&options);
    options.num_threads = 1;
    options.max_batch_tokens = 16;
    options.max_running = 3;
    options.max_queue = 4;
    options.memory_budget_bytes = kFirstBudget;
    budget_bytes = kFirstBudget;
    options.allocate = Allocate;
    options.deallocate = Deallocate;
    Require(inlay_engine_create(&options, &engine_, nullptr) == INLAY_OK);
    models_[0] = Load();
    Require(models_[0] != nullptr);
  }

  ~Host() {
    inlay_engine_release(engine_);
    Require(live_bytes == 0);
    for (auto* handle : models_) inlay_model_release(handle);
    for (auto* handle : sessions_) inlay_session_release(handle);
    for (auto* handle : requests_) inlay_request_release(handle);
    for (auto* handle : events_) inlay_event_release(handle);
    for (auto* handle : prefixes_) inlay_prefix_release(handle);
    for (auto* handle : saved_) inlay_buffer_release(handle);
    for (auto* handle : made_) inlay_request_release(handle);
  }

  void Run() {
    for (size_t i = 0; i < kMaxCalls && !input_.empty(); ++i) Call();
  }

 private:
  inlay_model* Load() {
    inlay_model_options options;
    inlay_model_options_init(&options);
    options.kv_block_size = 8;
    options.kv_budget_bytes = 96 * 1024;
    options.max_context = 100;
    inlay_model* model = nullptr;
    inlay_model_load(engine_, (inlay::TestData() + "/models/llama3").c_str(),
                     &options, &model, nullptr);
    return model;
  }

  // Mostly one of the slots, sometimes what is no such handle.
  template <typename T>
  T* Pick(const std::array<T*, kSlots>& slots, uint8_t byte) {
    switch (byte >> 4) {
      case 12:
        return nullptr;
      case 13:
        return reinterpret_cast<T*>(engine_);
      case 14:
        return reinterpret_cast<T*>(sessions_[byte % kSlots]);
      case 15:
        return reinterpret_cast<T*>(
            reinterpret_cast<uintptr_t>(slots[byte % kSlots]) ^
            (uintptr_t{1} << (byte % 64)));
      default:
        return slots[byte % kSlots];
    }
  }

  // A handle that falls out of its slot is released, now or never before the
  // engine is.
  template <typename T>
  void Put(std::array<T*, kSlots>& slots, uint8_t byte, T* made,
           void (*release)(T*)) {
    if (made == nullptr) return;
    T*& slot = slots[(byte >> 2) % kSlots];
    release(slot);
    slot = made;
  }

  void Call() {
    const uint8_t function = input_.Next();
    const uint8_t byte = input_.Next();
    inlay_error* error = nullptr;
    inlay_status status = INLAY_OK;
    switch (function % 32) {
      case 0:
        status = inlay_engine_step(engine_, 0, nullptr, &error);
        break;
      case 1:
        status = Submit(byte, 0, &error);
        break;
      case 2: {
        inlay_session* made = nullptr;
        status = inlay_session_create(Pick(models_, byte), &made, &error);
        Put(sessions_, byte, made, inlay_session_release);
        break;
      }
      case 3: {
        inlay_session* made = nullptr;
        status = inlay_session_fork(Pick(sessions_, byte), &made, &error);
        Put(sessions_, byte, made, inlay_session_release);
        break;
      }
      case 4:
        status =
            inlay_session_rewind(Pick(sessions_, byte), input_.Next(), &error);
        break;
      case 5:
        status = inlay_request_cancel(Pick(requests_, byte), &error);
        break;
      case 6: {
        inlay_event* made = nullptr;
        status = inlay_event_next(engine_, 0, &made, &error);
        Put(events_, byte, made, inlay_event_release);
        break;
      }
      case 7: {
        inlay_event* made = nullptr;
        status =
            inlay_request_next_event(Pick(requests_, byte), 0, &made, &error);
        Put(events_, byte, made, inlay_event_release);
        break;
      }
      case 8:
        ReadEvent(Pick(events_, byte));
        break;
      case 9:
        inlay_session_release(Pick(sessions_, byte));
        break;
      case 10:
        inlay_request_release(Pick(requests_, byte));
        break;
      case 11:
        inlay_event_release(Pick(events_, byte));
        break;
      case 12:
        inlay_model_release(Pick(models_, byte));
        break;
      case 13:
        Put(models_, byte, Load(), inlay_model_release);
        break;
      case 14:
        status = ReadSession(Pick(sessions_, byte), &error);
        break;
      case 15:
        CheckStats();
        break;
      case 16:
        // Once in a while the engine goes first.
        if (byte == 0xee) inlay_engine_release(engine_);
        break;
      case 17:
        status = Submit(byte, input_.Next(), &error);
        break;
      default:
        status = CallSince2(function % 32, byte, &error);
    }
    // An error object comes with every failure, and with nothing else.
    const bool failed =
        status != INLAY_OK && status != INLAY_TIMEOUT && status != INLAY_END;
    Require(failed == (error != nullptr));
    if (failed) {
      Require(inlay_error_status(error) == status);
      Require(inlay_error_message(error)[0] != '\0');
      Require(status != INLAY_INTERNAL && status != INLAY_NUMERIC);
    }
    inlay_error_release(error);
  }

  // What ABI 2 brought.
  inlay_status CallSince2(int function, uint8_t byte, inlay_error** error) {
    inlay_buffer* bytes = nullptr;
    inlay_status status = INLAY_OK;
    switch (function) {
      case 18:
        return SetBudget(byte, error);
      case 19:
        status = inlay_engine_metrics(engine_, byte % 3, &bytes, error);
        break;
      case 20:
        return inlay_engine_trace_start(engine_, byte, error);
      case 21:
        status = inlay_engine_trace_take(engine_, byte % 3, &bytes, error);
        break;
      case 22: {
        inlay_buffer* made = nullptr;
        status = inlay_session_save_buffer(Pick(sessions_, byte), &made, error);
        Put(saved_, byte, made, inlay_buffer_release);
        return status;
      }
      case 23:
        return Restore(byte, error);
      case 24:
        return Quote(byte, error);
      case 25:
        return CreatePrefix(byte, error);
      case 26: {
        inlay_prefix* made = nullptr;
        status =
            inlay_prefix_find(Pick(models_, byte), Name(byte), &made, error);
        Put(prefixes_, byte, made, inlay_prefix_release);
        return status;
      }
      case 27:
        return inlay_prefix_pin(Pick(prefixes_, byte), byte >> 2 & 1, error);
      case 28: {
        inlay_session* made = nullptr;
        status = inlay_prefix_open(Pick(prefixes_, byte), &made, error);
        Put(sessions_, byte, made, inlay_session_release);
        return status;
      }
      case 29:
        return ReadPrefix(Pick(prefixes_, byte), error);
      case 30:
        inlay_prefix_release(Pick(prefixes_, byte));
        return INLAY_OK;
      default:
        return inlay_engine_step(engine_, byte, nullptr, error);
    }
    inlay_buffer_release(bytes);
    return status;
  }

  static const char* Name(uint8_t byte) {
    constexpr const char* kNames[] = {"", "a", "b", "c"};
    return kNames[byte >> 2 & 3];
  }

  inlay_status SetBudget(uint8_t byte, inlay_error** error) {
    // Up before the engine may use it, down after it has agreed.
    const int64_t before = budget_bytes;
    const int64_t bytes = int64_t{byte} << 13;
    if (bytes == 0 || (before != 0 && bytes > before)) budget_bytes = bytes;
    const auto status = inlay_engine_set_memory_budget(
        engine_, 0, static_cast<uint64_t>(bytes), error);
    budget_bytes = status == INLAY_OK ? bytes : before;
    return status;
  }

  inlay_status Restore(uint8_t byte, inlay_error** error) {
    inlay_buffer* buffer = saved_[byte % kSlots];
    std::string snapshot(inlay_buffer_data(buffer), inlay_buffer_size(buffer));
    const uint8_t damage = input_.Next();
    if (damage != 0 && !snapshot.empty()) {
      const size_t at = damage * size_t{2654435761} % snapshot.size();
      snapshot[at] = static_cast<char>(snapshot[at] ^ damage);
    }
    inlay_restore_info info;
    inlay_restore_info_init(&info);
    inlay_session* made = nullptr;
    const auto status =
        inlay_session_restore_buffer(Pick(models_, byte), snapshot.data(),
                                     snapshot.size(), &made, &info, error);
    Require((made != nullptr) == (status == INLAY_OK));
    Require(info.num_restored <= info.num_tokens);
    Put(sessions_, byte, made, inlay_session_release);
    return status;
  }

  inlay_status Quote(uint8_t byte, inlay_error** error) {
    const uint8_t shape = input_.Next();
    const std::vector<int32_t> tokens = Tokens(shape % 40, shape);
    inlay_request_options options;
    inlay_request_options_init(&options);
    options.tokens = tokens.data();
    options.num_tokens = tokens.size();
    options.max_tokens = shape >> 3;
    inlay_quote quote;
    inlay_quote_init(&quote);
    const auto status = inlay_request_quote(Pick(sessions_, byte), &options,
                                            byte >> 2 & 1, &quote, error);
    if (status != INLAY_OK) return status;
    Require(quote.reserved == (byte >> 2 & 1));
    Require(quote.fits >= quote.fits_now);
    Require(quote.cached_tokens < quote.prompt_tokens);
    Require(quote.new_kv_bytes <= quote.kv_bytes);
    return status;
  }

  inlay_status CreatePrefix(uint8_t byte, inlay_error** error) {
    const uint8_t shape = input_.Next();
    const std::vector<int32_t> tokens = Tokens(shape % 40, shape);
    inlay_prefix_options options;
    inlay_prefix_options_init(&options);
    options.tokens = tokens.data();
    options.num_tokens = tokens.size();
    options.pin = shape >> 7;
    options.budget_bytes = shape == 0xfe ? 1 : 0;
    inlay_prefix* made = nullptr;
    const auto status = inlay_prefix_create(Pick(models_, byte), Name(byte),
                                            &options, &made, error);
    Put(prefixes_, byte, made, inlay_prefix_release);
    return status;
  }

  static inlay_status ReadPrefix(inlay_prefix* prefix, inlay_error** error) {
    inlay_prefix_info info;
    inlay_prefix_info_init(&info);
    const auto status = inlay_prefix_get_info(prefix, &info, error);
    if (status != INLAY_OK) return status;
    Require(info.num_tokens > 0 && info.num_cached <= info.num_tokens);
    return status;
  }

  static std::vector<int32_t> Tokens(size_t count, uint8_t first) {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(first * 3 + i * i) % kVocab;
    }
    return tokens;
  }

  // `more`: resume, a deadline that has passed, and a share.
  inlay_status Submit(uint8_t byte, uint8_t more, inlay_error** error) {
    inlay_request_options options;
    inlay_request_options_init(&options);
    options.resume = more & 1;
    options.deadline_us = more >> 1 & 1;
    options.share_key = more >> 2;
    const uint8_t shape = input_.Next();
    const uint8_t first = input_.Next();
    const std::vector<int32_t> tokens = Tokens(shape % 40, first);
    options.tokens = tokens.data();
    options.num_tokens = tokens.size();
    options.input_mode = shape >> 7;
    const uint8_t flags = input_.Next();
    options.max_tokens = static_cast<int32_t>(flags % 16) - 1;
    options.ignore_eos = flags >> 4 & 1;
    options.score_prompt = flags >> 5 & 1;
    options.logits = flags >> 6;
    const int64_t positions[] = {first % 32, -5, 7};
    options.logits_positions = positions;
    options.num_logits_positions = 3;
    const uint8_t sampling = input_.Next();
    options.temperature = static_cast<float>(sampling % 4) / 2;
    options.top_k = sampling >> 4;
    options.num_logprobs = static_cast<int32_t>(sampling >> 2 & 3) - 1;
    options.priority = static_cast<int8_t>(first) / 64;
    options.user_data = this;
    inlay_request* made = nullptr;
    const auto status =
        inlay_session_submit(Pick(sessions_, byte), &options, &made, error);
    if (made == nullptr) return status;
    // What falls out of its slot stays submitted: the engine has to end it.
    inlay_request*& slot = requests_[(byte >> 2) % kSlots];
    made_.push_back(slot);
    slot = made;
    if (options.deadline_us != 0) ++num_deadlines_;
    return status;
  }

  void ReadEvent(inlay_event* event) {
    inlay_event_info info;
    inlay_event_info_init(&info);
    if (inlay_event_get_info(event, &info, nullptr) != INLAY_OK) return;
    Require(info.kind >= INLAY_EVENT_TOKENS &&
            info.kind <= INLAY_EVENT_FINISHED);
    Require(info.user_data == this);
    for (size_t i = 0; i < info.num_tokens; ++i) {
      Require(info.tokens[i] >= 0 && info.tokens[i] < kVocab);
    }
    Require(info.num_logprobs == 0 ||
            info.num_logprobs == info.num_tokens * (1 + info.top_logprobs));
    Require(info.num_logits == 0 || info.num_logits == kVocab);
    Require(info.text[info.text_bytes] == '\0');
    Require(info.message != nullptr);
    Require(info.finish_reason != INLAY_FINISH_ERROR ||
            info.status == INLAY_TIMEOUT);
  }

  inlay_status ReadSession(inlay_session* session, inlay_error** error) {
    inlay_session_info info;
    inlay_session_info_init(&info);
    const auto status = inlay_session_get_info(session, &info, error);
    if (status != INLAY_OK) return status;
    Require(info.num_cached <= info.num_tokens && info.num_tokens <= 101);
    size_t count = 0;
    int32_t tokens[16];
    Require(inlay_session_tokens(session, tokens, 16, &count, nullptr) ==
            INLAY_OK);
    Require(count == info.num_tokens);
    return status;
  }

  void CheckStats() {
    inlay_stats stats;
    inlay_stats_init(&stats);
    if (inlay_engine_stats(engine_, &stats, nullptr) != INLAY_OK) return;
    Require(stats.memory_bytes == static_cast<uint64_t>(live_bytes));
    Require(stats.memory_budget_bytes == static_cast<uint64_t>(budget_bytes));
    Require(stats.kv_blocks_used + stats.kv_blocks_cached <=
            stats.kv_blocks_total);
    Require(stats.hit_tokens <= stats.lookup_tokens);
    Require(stats.failed_requests <= num_deadlines_);
  }

  Input input_;
  inlay_engine* engine_ = nullptr;
  std::array<inlay_model*, kSlots> models_ = {};
  std::array<inlay_session*, kSlots> sessions_ = {};
  std::array<inlay_request*, kSlots> requests_ = {};
  std::array<inlay_event*, kSlots> events_ = {};
  std::array<inlay_prefix*, kSlots> prefixes_ = {};
  std::array<inlay_buffer*, kSlots> saved_ = {};
  std::vector<inlay_request*> made_;
  uint64_t num_deadlines_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Host(Input(data, size)).Run();
  return 0;
}
