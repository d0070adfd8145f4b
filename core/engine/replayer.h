// Replayer: serves a recording again (replay.h). A friend of ModelRunner: it
// runs a step's parts itself, so that what came in between them comes in there
// again.
#ifndef INLAY_CORE_ENGINE_REPLAYER_H_
#define INLAY_CORE_ENGINE_REPLAYER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/engine/model_runner.h"
#include "core/engine/recording.h"
#include "core/engine/replay.h"
#include "memory/caught.h"

namespace inlay {

// One replay. INVALID_ARGUMENT: the recording is of another model, or its
// entries contradict each other; whatever they say, nothing worse happens.
class Replayer {
 public:
  // Of a runner of the model.
  Replayer(const RunnerContext& context, std::shared_ptr<LoadedModel> loaded)
      : context_(context), loaded_(std::move(loaded)) {}
  ~Replayer() {
    static_cast<void>(Caught([this] {
      AbandonStep();
      return absl::OkStatus();
    }));
  }

  absl::Status Run(RecordingReader& reader, const std::function<bool()>& go_on);
  ReplayReport TakeReport() { return std::move(report_); }

 private:
  // Sums of times, of ids and of holders stay far from overflow.
  static constexpr int64_t kMostTimeUs = int64_t{1} << 50;
  static constexpr uint64_t kMostId = uint64_t{1} << 62;
  static constexpr int32_t kMostHolders = 1 << 30;

  absl::Status Apply(const RecordingHeader& header);
  absl::Status Apply(const SessionEntry& entry);
  absl::Status Apply(const PrefixEntry& entry);
  absl::Status Apply(const CreateEntry& entry);
  absl::Status Apply(const ForkEntry& entry);
  absl::Status Apply(const RewindEntry& entry);
  absl::Status Apply(const ReleaseEntry& entry);
  absl::Status Apply(const SubmitEntry& entry);
  absl::Status Apply(const CancelEntry& entry);
  absl::Status Apply(const QuoteEntry& entry);
  absl::Status Apply(const RestoreEntry& entry);
  absl::Status Apply(const BeginRestoreEntry& entry);
  absl::Status Apply(const EndRestoreEntry& entry);
  absl::Status Apply(const ResizeEntry& entry);
  absl::Status Apply(const CreatePrefixEntry& entry);
  absl::Status Apply(const RetainPrefixEntry& entry);
  absl::Status Apply(const PinPrefixEntry& entry);
  absl::Status Apply(const OpenPrefixEntry& entry);
  absl::Status Apply(const ReleasePrefixEntry& entry);
  absl::Status Apply(const PlanEntry& entry);
  absl::Status Apply(const CommitEntry& entry);
  absl::Status Apply(const EndEntry& entry);

  static absl::Status Senseless(const std::string& what);
  static absl::StatusOr<SteadyTime> TimeOf(int64_t us);
  absl::Status CheckSame(const RecordingHeader& header) const;
  absl::Status CheckTokens(const std::vector<int32_t>& tokens) const;
  // The next id drawn is `id`.
  absl::Status DrawFrom(uint64_t id);
  // An input that was taken when it was recorded.
  absl::Status Taken(const char* what, const absl::Status& status);
  template <typename T>
  absl::Status Taken(const char* what, const absl::StatusOr<T>& result) {
    return Taken(what, result.status());
  }
  void Note(RequestId request, std::string what);
  absl::Status Stop(RequestId request, std::string what);
  bool Same(RequestId recorded, RequestId own);
  bool Same(const std::vector<RequestId>& recorded,
            const std::vector<RequestId>& own);
  std::string ComparePlan(const PlanEntry& entry);
  absl::Status Execute(const CommitEntry& entry);
  void Impose(const CommitEntry::Item& recorded, BatchItem& item);
  void AbandonStep();

  RunnerContext context_;
  const std::shared_ptr<LoadedModel> loaded_;
  EventQueue events_;  // nobody reads it
  TraceRecorder trace_;
  std::atomic<uint64_t> next_id_{1};
  std::unique_ptr<ModelRunner> runner_;  // null before the header
  bool begun_ = false;                   // past what was there at the beginning
  bool in_flight_ = false;               // a plan that waits for its commit
  bool ended_ = false;
  // Requests of pinned prefixes: their ids are drawn in the middle of an input
  // and may differ.
  std::map<RequestId, RequestId> renamed_;
  ReplayReport report_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_REPLAYER_H_
