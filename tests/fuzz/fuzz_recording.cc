// Any bytes as a recording (recording_format.h): no crash, and a report that
// adds up. Frames' lengths are brought within the input and their checksums
// made to hold, and the header is that of the model it is replayed on, so that
// entries with any fields get that far. Mutations keep entries whole, and
// change their order or the bytes of one.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/recording.h"
#include "core/engine/recording_format.h"
#include "core/engine/replay.h"
#include "memory/checksum.h"
#include "memory/little_endian.h"
#include "tests/support/paths/paths.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Payloads = std::vector<std::string>;

// More show nothing that so many do not.
constexpr size_t kMaxEntries = 400;
constexpr size_t kHeadBytes = 12;
constexpr size_t kFrameBytes = 8;

void Require(bool holds) {
  if (!holds) abort();
}

absl::Span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A file without a folder. The process has one all its life.
int MemoryFile() {
  static const int file = memfd_create("fuzz_recording", 0);
  return file;
}
std::string MemoryPath() {
  return "/proc/self/fd/" + std::to_string(MemoryFile());
}

// What is recorded and replayed on.
struct Served {
  std::shared_ptr<inlay::Engine> engine;
  inlay::Engine::Loaded loaded;
  inlay::RecordingHeader header;

  Served() {
    inlay::EngineOptions options;
    options.num_threads = 1;
    options.scheduler.max_batch_tokens = 16;
    options.scheduler.max_running = 3;
    options.scheduler.max_queue = 4;
    auto created = inlay::Engine::Create(options);
    Require(created.ok());
    engine = *std::move(created);
    inlay::ModelOptions model;
    model.kv_block_size = 8;
    model.kv_budget_bytes = 96 * 1024;
    model.max_context = 100;
    auto opened = engine->Load(inlay::TestData() + "/models/llama3", model);
    Require(opened.ok());
    loaded = *std::move(opened);
    Require(loaded.runner->StartRecording(MemoryPath()).ok());
    Require(loaded.runner->StopRecording().ok());
    auto reader = inlay::RecordingReader::Open(MemoryPath());
    Require(reader.ok());
    auto entry = reader->Next();
    Require(entry.ok() && entry->has_value());
    header = std::get<inlay::RecordingHeader>(**entry);
  }
};

Served& Runner() {
  static auto* const served = new Served();
  return *served;
}

// The payloads of a file, its head left out; lengths end at the file's end.
Payloads Split(std::string_view file) {
  Payloads payloads;
  file.remove_prefix(std::min(file.size(), kHeadBytes));
  while (file.size() > kFrameBytes && payloads.size() < kMaxEntries) {
    const auto claimed = inlay::LoadLittleEndian<uint32_t>(
        reinterpret_cast<const std::byte*>(file.data()));
    file.remove_prefix(kFrameBytes);
    const size_t bytes = std::min<size_t>(claimed, file.size());
    payloads.emplace_back(file.substr(0, bytes));
    file.remove_prefix(bytes);
  }
  return payloads;
}

std::string Join(const Payloads& payloads) {
  std::string file(inlay::kRecordingMagic);
  file.resize(kHeadBytes);
  const auto at = [&](size_t place) {
    return reinterpret_cast<std::byte*>(file.data()) + place;
  };
  inlay::StoreLittleEndian(inlay::kRecordingVersion, at(8));
  uint32_t checksum = 0;
  for (const std::string& payload : payloads) {
    const size_t begin = file.size();
    file.resize(begin + kFrameBytes);
    inlay::StoreLittleEndian(static_cast<uint32_t>(payload.size()), at(begin));
    checksum = inlay::Crc32c(AsBytes(payload),
                             inlay::Crc32c({at(begin), 4}, checksum));
    inlay::StoreLittleEndian(checksum, at(begin + 4));
    file += payload;
  }
  return file;
}

// Of the header what it says of the scheduler stays.
void MakeHeaderFit(Payloads* payloads) {
  inlay::RecordingHeader header = Runner().header;
  const auto first = payloads->empty() ? absl::StatusOr<inlay::RecordingEntry>()
                                       : inlay::DecodeEntry(payloads->front());
  const auto* own =
      first.ok() ? std::get_if<inlay::RecordingHeader>(&*first) : nullptr;
  if (own != nullptr) {
    header.scheduler = own->scheduler;
    header.prefix_sharing = own->prefix_sharing;
    payloads->erase(payloads->begin());
    // Scratch grows with them: as a host may choose them, and no more.
    auto& most = header.scheduler.max_batch_tokens;
    most = std::min(most, 64);
  }
  std::string payload;
  inlay::EncodeEntry(header, &payload);
  payloads->insert(payloads->begin(), std::move(payload));
}

void CheckReport(const inlay::ReplayReport& report, size_t entries) {
  Require(report.entries <= entries);
  Require(report.tokens_differing <= report.tokens);
  uint64_t tokens = 0;
  for (const auto& [request, own] : report.tokens_of) tokens += own.size();
  Require(tokens == report.tokens);
  Require(report.same() || report.first_difference.has_value());
  Require(!ToJson(report).empty());
}

}  // namespace

// Not the first input's time.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  Runner();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  Payloads payloads = Split({reinterpret_cast<const char*>(data), size});
  if (payloads.empty()) payloads.emplace_back(1, '\3');
  std::string& one = payloads[random() % payloads.size()];
  switch (random() % 8) {
    case 0:
      std::swap(one, payloads[random() % payloads.size()]);
      break;
    case 1:
      payloads.insert(
          payloads.begin() + static_cast<ptrdiff_t>(random() % payloads.size()),
          std::string(one));
      break;
    case 2:
      payloads.erase(payloads.begin() +
                     static_cast<ptrdiff_t>(random() % payloads.size()));
      break;
    default: {
      const size_t before = one.size();
      one.resize(before + 32);
      one.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(one.data()),
                                  before, one.size()));
    }
  }
  const std::string file = Join(payloads);
  if (file.size() > max_size) return size;
  std::memcpy(data, file.data(), file.size());
  return file.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Payloads payloads = Split({reinterpret_cast<const char*>(data), size});
  for (const std::string& payload : payloads) {
    const auto entry = inlay::DecodeEntry(payload);
    if (!entry.ok()) continue;
    // What was read is written again as it was, numbers in their shortest form.
    std::string first, second;
    inlay::EncodeEntry(*entry, &first);
    const auto again = inlay::DecodeEntry(first);
    Require(again.ok());
    inlay::EncodeEntry(*again, &second);
    Require(first == second);
  }
  MakeHeaderFit(&payloads);
  const std::string file = Join(payloads);
  Require(ftruncate(MemoryFile(), 0) == 0 &&
          pwrite(MemoryFile(), file.data(), file.size(), 0) ==
              static_cast<ssize_t>(file.size()));
  Served& served = Runner();
  const auto report =
      served.engine->Replay(*served.loaded.runner, MemoryPath());
  if (report.ok()) {
    CheckReport(*report, payloads.size());
  } else {
    Require(!report.status().message().empty());
    Require(!absl::IsInternal(report.status()));
  }
  return 0;
}
