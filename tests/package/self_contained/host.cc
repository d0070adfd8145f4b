// A host with an abseil, a protobuf (the full runtime, with schemas of Inlay's
// names registered) and a C++ runtime of its own, all in the global scope, that
// loads the self-contained library into it: each keeps to its own.
//   host LIBRARY MODEL
#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <inlay/inlay.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "stats.pb.h"
#include "trace.pb.h"

namespace {

#define CHECK_THAT(condition)                                      \
  if (!(condition)) {                                              \
    std::cerr << __LINE__ << ": " << #condition << " is not so\n"; \
    std::exit(1);                                                  \
  }

// What the host does with its own libraries; before, beside and after the
// library's work.
void UseOwn() {
  absl::flat_hash_map<std::string, int> map;
  absl::Mutex mutex;
  for (int i = 0; i < 1000; ++i) {
    absl::MutexLock lock(&mutex);
    map[absl::StrCat("key ", i)] = i;
  }
  CHECK_THAT(map.at("key 999") == 999);
  const absl::StatusOr<int> status = absl::NotFoundError("no such thing");
  CHECK_THAT(absl::IsNotFound(status.status()));
  try {
    throw std::runtime_error("thrown by the host");
  } catch (const std::exception& error) {
    CHECK_THAT(std::strcmp(error.what(), "thrown by the host") == 0);
  }
  std::ostringstream stream;
  stream << 1.5 << std::hex << 255;
  CHECK_THAT(stream.str() == "1.5ff");
  const google::protobuf::DescriptorPool& pool =
      *google::protobuf::DescriptorPool::generated_pool();
  CHECK_THAT(pool.FindFileByName("stats.proto") != nullptr);
  CHECK_THAT(pool.FindFileByName("trace.proto") != nullptr);
}

template <typename Function>
Function* Find(void* library, const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) {
    std::cerr << dlerror() << "\n";
    std::exit(1);
  }
  return found;
}
#define FIND(name) const auto name##_ = Find<decltype(name)>(library, #name)

}  // namespace

int main(int argc, char** argv) {
  CHECK_THAT(argc == 3);
  UseOwn();
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::cerr << dlerror() << "\n";
    return 1;
  }
  FIND(inlay_engine_create);
  FIND(inlay_engine_step);
  FIND(inlay_engine_metrics);
  FIND(inlay_engine_release);
  FIND(inlay_model_load);
  FIND(inlay_session_create);
  FIND(inlay_session_submit);
  FIND(inlay_request_options_init_sized);
  FIND(inlay_event_next);
  FIND(inlay_event_get_info);
  FIND(inlay_event_info_init);
  FIND(inlay_event_release);
  FIND(inlay_buffer_data);
  FIND(inlay_buffer_size);
  FIND(inlay_buffer_release);
  FIND(inlay_request_release);
  FIND(inlay_session_release);
  FIND(inlay_model_release);
  FIND(inlay_error_message);
  FIND(inlay_error_release);

  inlay_engine* engine = nullptr;
  inlay_model* model = nullptr;
  inlay_session* session = nullptr;
  inlay_request* request = nullptr;
  inlay_error* error = nullptr;
  CHECK_THAT(inlay_engine_create_(nullptr, &engine, &error) == INLAY_OK);
  // What the library has for errors inside does not meet the host's.
  CHECK_THAT(inlay_model_load_(engine, "/no/such/model", nullptr, &model,
                               &error) == INLAY_NOT_FOUND);
  CHECK_THAT(std::strlen(inlay_error_message_(error)) > 0);
  inlay_error_release_(error);
  CHECK_THAT(inlay_model_load_(engine, argv[2], nullptr, &model, &error) ==
             INLAY_OK);
  CHECK_THAT(inlay_session_create_(model, &session, &error) == INLAY_OK);
  inlay_request_options options;
  inlay_request_options_init_sized_(&options, sizeof options);
  options.text = "Once upon a time,";
  options.text_bytes = std::strlen(options.text);
  CHECK_THAT(inlay_session_submit_(session, &options, &request, &error) ==
             INLAY_OK);

  std::thread beside([] {
    for (int i = 0; i < 20; ++i) UseOwn();
  });
  std::string said;
  inlay_event_info info;
  inlay_event_info_init_(&info);
  while (info.kind != INLAY_EVENT_FINISHED) {
    CHECK_THAT(inlay_engine_step_(engine, 0, nullptr, &error) == INLAY_OK);
    inlay_event* event = nullptr;
    while (inlay_event_next_(engine, 0, &event, nullptr) == INLAY_OK) {
      inlay_event_get_info_(event, &info, nullptr);
      if (info.kind == INLAY_EVENT_TOKENS) said += info.text;
      inlay_event_release_(event);
    }
  }
  beside.join();

  // Written by the protobuf inside, read by the host's.
  inlay_buffer* bytes = nullptr;
  CHECK_THAT(inlay_engine_metrics_(engine, INLAY_METRICS_PROTOBUF, &bytes,
                                   &error) == INLAY_OK);
  const std::string written(inlay_buffer_data_(bytes),
                            inlay_buffer_size_(bytes));
  inlay_buffer_release_(bytes);
  inlay::stats::EngineStats read;
  CHECK_THAT(read.ParseFromString(written));
  CHECK_THAT(read.requests_submitted() == 1);
  CHECK_THAT(read.GetReflection()->GetUnknownFields(read).empty());

  // All of them: the engine's threads end with the last.
  inlay_request_release_(request);
  inlay_session_release_(session);
  inlay_model_release_(model);
  inlay_engine_release_(engine);
  UseOwn();
  CHECK_THAT(dlclose(library) == 0);
  UseOwn();
  std::cout << said;
}
