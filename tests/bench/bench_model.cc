// Times a model's steps on a device without a scheduler above them: loading, a
// long prompt, decodes by batch size; beside the device's copy bandwidth of the
// same run.
//   bench_model MODEL cpu|cuda [PROMPT [CONTEXT [KERNELS [BATCH]]]]
// MODEL as `inlay` takes it ("random:CONFIG_DIR?dtype=bf16"). PROMPT 0: none.
// CONTEXT may be several lengths, "65536,131000": no prompt is computed for
// them, the cache holds random numbers. KERNELS "op=row", "kv=TYPE" (the
// cache's), "select=METHOD:TOKENS" (blocks of keys, bounds, kmeans or lsh),
// "experts=PERCENT" (so much of them on the device, the others in host memory),
// or "apart": ops are not fused; several with spaces between. BATCH: the
// largest to decode, 64 where it is not given.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/executor.h"
#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "memory/kv/storage.h"

namespace inlay {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Take(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

// Bytes read and written a second by copies within the device.
double CopyBandwidth(Device& device) {
  const size_t bytes =
      device.host_addressable() ? size_t{256} << 20 : size_t{2} << 30;
  const Buffer from = Take(device.Allocate(bytes, MemoryClass::kWorkspace));
  const Buffer to = Take(device.Allocate(bytes, MemoryClass::kWorkspace));
  const auto stream = Take(device.CreateStream());
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < 4; ++i)
      Require(device.Copy(to.data(), from.data(), bytes, *stream));
    Require(stream->Synchronize());
    best = std::max(best, 8 * static_cast<double>(bytes) / SecondsSince(begin));
  }
  return best;
}

class Bench {
 public:
  Bench(const std::string& path, const std::string& device, int64_t prompt,
        int64_t context, const std::string& kernels, int64_t most_batch)
      : prompt_(prompt), context_(context), most_batch_(most_batch) {
    device_ =
        Take(device == "cuda" ? CreateCudaDevice(0, 0) : CreateCpuDevice(0, 0));
    std::printf("%s on %s\n", path.c_str(), device_->info().name.c_str());
    const ModelFiles files = Take(OpenModelFiles(path, {}));
    ModelLoadOptions options;
    std::istringstream words(kernels);
    for (std::string word; words >> word;) AddOption(word, files, options);
    auto begin = Clock::now();
    model_ = Take(LoadModel(files, *device_, options));
    const double seconds = SecondsSince(begin);
    std::printf(
        "load %.2f s, %.1f GB, %.1f GB/s\n", seconds,
        1e-9 * static_cast<double>(model_->info().weight_bytes),
        1e-9 * static_cast<double>(model_->info().weight_bytes) / seconds);
    if (context_ + kSteps > model_->info().max_positions) {
      Require(absl::InvalidArgumentError(
          "CONTEXT: expected at least 48 tokens less than the model's " +
          std::to_string(model_->info().max_positions)));
    }
    const ExpertMemory& experts = model_->info().experts;
    if (experts.slots > 0) {
      std::printf(
          "%d experts of each layer on the device, %.1f GB; %.1f GB in "
          "host memory\n",
          experts.slots, 1e-9 * static_cast<double>(experts.device_bytes),
          1e-9 * static_cast<double>(experts.host_bytes));
    }
    copy_ = CopyBandwidth(*device_);
    pool_ = Take(ThreadPool::Create(1));
    if (model_->kv_layout().has_states()) {
      Require(absl::UnimplementedError(
          "bench_model: layers with states are not supported"));
    }
    storage_ = std::make_unique<KvStorage>(
        device_.get(), model_->kv_layout().block_bytes(), size_t{64} << 20);
    const int64_t blocks =
        std::max(KvBlocksFor(prompt_, groups()),
                 most_batch_ * KvBlocksFor(context_ + kSteps, groups()));
    while (int64_t{storage_->num_extents()} * storage_->blocks_per_extent() <
           blocks) {
      Take(storage_->AddExtent());
    }
    FillCache();
    executor_ = Take(Executor::Create(
        device_.get(), model_.get(), pool_.get(),
        {std::max(prompt_, most_batch_), most_batch_, blocks}));
  }

  // One sequence of `prompt` tokens in one step.
  void Prompt() {
    const auto tokens = static_cast<int32_t>(prompt_);
    for (int round = 0; round < 3; ++round) {
      const auto begin = Clock::now();
      Step({{0, tokens, tokens}}, {tokens - 1});
      const double seconds = SecondsSince(begin);
      std::printf("prompt %d: %.1f ms, %.0f tok/s\n", tokens, 1e3 * seconds,
                  tokens / seconds);
    }
    PrintExperts(3, 0.0);
  }

  // `context`: at most what the cache was made for.
  void Decode(int batch, int64_t context) {
    std::vector<double> times;
    PrintExperts(0, 0.0);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Sequence> sequences;
      std::vector<int32_t> rows;
      for (int32_t i = 0; i < batch; ++i) {
        sequences.push_back({i, 1, static_cast<int32_t>(context) + step + 1});
        rows.push_back(i);
      }
      const auto begin = Clock::now();
      Step(sequences, rows);
      times.push_back(SecondsSince(begin));
    }
    std::sort(times.begin(), times.end());
    const double seconds = times[times.size() / 2];
    const double bytes =
        static_cast<double>(model_->info().weight_bytes_per_token);
    std::printf(
        "decode batch %3d at %d: %.3f ms (best %.3f, worst %.3f), %.0f tok/s, "
        "weights %.0f GB/s, %.0f %% of copy (%.0f GB/s)\n",
        batch, static_cast<int>(context), 1e3 * seconds, 1e3 * times.front(),
        1e3 * times.back(), batch / seconds, 1e-9 * bytes / seconds,
        100 * bytes / seconds / copy_, 1e-9 * copy_);
    PrintExperts(kSteps, seconds);
  }

 private:
  static constexpr int kSteps = 48;

  // The last q_len of kv_len tokens; the i-th of the batch has blocks of its
  // own.
  struct Sequence {
    int64_t index;
    int32_t q_len;
    int32_t kv_len;
  };

  absl::Span<const KvGroup> groups() const {
    return model_->kv_layout().groups();
  }

  void AddOption(const std::string& word, const ModelFiles& files,
                 ModelLoadOptions& options) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    if (word == "apart") {
      options.fused = false;
    } else if (name == "kv") {
      options.kv_dtype = DTypeFromName(value);
    } else if (name == "select") {
      for (const BlockMethod method :
           {BlockMethod::kBounds, BlockMethod::kKMeans, BlockMethod::kLsh}) {
        const int64_t tokens =
            std::atoll(value.substr(value.find(':') + 1).c_str());
        if (FormatBlockSelection({method, tokens}) == value) {
          options.block_selection = {method, tokens};
        }
      }
      if (!options.block_selection.any()) {
        Require(absl::InvalidArgumentError(
            "select: expected bounds:TOKENS, kmeans:TOKENS or lsh:TOKENS"));
      }
    } else if (name == "experts") {
      const ExpertMemory experts =
          Take(PlanModel(files, *device_, options))->info().experts;
      options.expert_device_bytes =
          experts.bytes * std::strtoull(value.c_str(), nullptr, 10) / 100;
    } else {
      options.forced_kernels[name] = value;
    }
  }

  // Numbers that are finite and not small in every format of the cache, as
  // elements and as scales, so that scores are of all sizes.
  void FillCache() {
    std::vector<uint16_t> numbers(storage_->extent_bytes() / 2);
    for (uint16_t& x : numbers) {
      const auto bits = static_cast<uint32_t>(random_());
      x = static_cast<uint16_t>((bits & 0x80ffu) | 0x3f00u);
    }
    const auto stream = Take(device_->CreateStream());
    for (int32_t i = 0; i < storage_->num_extents(); ++i) {
      Require(device_->Copy(storage_->Block(i * storage_->blocks_per_extent()),
                            reinterpret_cast<const std::byte*>(numbers.data()),
                            storage_->extent_bytes(), *stream));
    }
    Require(stream->Synchronize());
  }

  // What became of the experts that the last `steps` steps, of `seconds` each,
  // needed; 0 steps: counting begins.
  void PrintExperts(int steps, double seconds) {
    const ExpertMemory& experts = model_->info().experts;
    if (experts.slots == 0) return;
    const auto stream = Take(device_->CreateStream());
    const ExpertFetchCounts now = Take(model_->ReadExpertCounts(*stream));
    const ExpertFetchCounts before = std::exchange(counts_, now);
    const auto hits = static_cast<double>(now.hits - before.hits);
    const auto fetches = static_cast<double>(now.fetches - before.fetches);
    const auto direct = static_cast<double>(now.direct - before.direct);
    if (steps == 0) return;
    const double layers = static_cast<double>(now.steps - before.steps) / steps;
    const double fetched =
        fetches / steps * static_cast<double>(experts.slot_bytes) / layers;
    std::printf(
        "  experts a step: %.1f on the device (%.0f %%), %.1f fetched "
        "(%.0f MB",
        hits / steps, 100 * hits / (hits + fetches + direct), fetches / steps,
        1e-6 * fetched);
    if (seconds > 0) std::printf(", %.1f GB/s", 1e-9 * fetched / seconds);
    std::printf("), %.1f read where they are\n", direct / steps);
  }

  void Step(const std::vector<Sequence>& wanted,
            const std::vector<int32_t>& rows) {
    std::vector<int32_t> tokens, positions, blocks;
    std::vector<int64_t> slots;
    std::vector<AttentionSequence> sequences;
    for (const Sequence& sequence : wanted) {
      for (int32_t i = 0; i < sequence.q_len; ++i) {
        tokens.push_back(static_cast<int32_t>(
            random_() % static_cast<uint32_t>(model_->info().vocab_size)));
        positions.push_back(sequence.kv_len - sequence.q_len + i);
      }
    }
    // The i-th of the batch has the i-th share of blocks, group by group, all
    // of them beyond windows too. A prompt is alone and may be longer.
    const int64_t most_tokens =
        std::max<int64_t>(context_ + kSteps, wanted.front().kv_len);
    const int64_t share = KvBlocksFor(most_tokens, groups());
    int64_t before = 0;  // of a share
    int64_t most_blocks = 0;
    for (const KvGroup& group : groups()) {
      int32_t row = 0;
      const size_t begin = blocks.size();
      for (const Sequence& sequence : wanted) {
        const int64_t first = sequence.index * share + before;
        for (int64_t i = 0; i < KvBlocksFor(sequence.kv_len, group.block_size);
             ++i) {
          blocks.push_back(static_cast<int32_t>(first + i));
        }
        for (int32_t i = 0; i < sequence.q_len; ++i) {
          slots.push_back(first * group.block_size +
                          positions[static_cast<size_t>(row + i)]);
        }
        sequences.push_back({row, sequence.q_len, sequence.kv_len, nullptr});
        row += sequence.q_len;
      }
      before += KvBlocksFor(most_tokens, group.block_size);
      most_blocks =
          std::max(most_blocks, static_cast<int64_t>(blocks.size() - begin));
    }
    const int32_t* next = blocks.data();
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].blocks = next;
      next += KvBlocksFor(sequences[i].kv_len,
                          groups()[i / wanted.size()].block_size);
    }
    ForwardBatch batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.slots = slots;
    batch.sequences = sequences;
    batch.num_groups = groups().size();
    batch.logit_rows = rows;
    batch.kv_base = storage_->base();
    if (executor_->CanSample()) {
      const std::vector<SampleOptions> greedy(rows.size());
      const SampleBatch sampling = {greedy, {}};
      Require(executor_->Forward(batch, most_blocks, &sampling));
      Take(executor_->Tokens());
      return;
    }
    Require(executor_->Forward(batch, most_blocks));
    const auto count = static_cast<int64_t>(rows.size());
    for (int64_t row = 0; row < count; row += Executor::kLogitSlice) {
      Take(
          executor_->Logits(row, std::min(Executor::kLogitSlice, count - row)));
    }
  }

  const int64_t prompt_;
  const int64_t context_;  // the longest
  const int64_t most_batch_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<KvStorage> storage_;
  std::unique_ptr<Executor> executor_;
  double copy_ = 0;
  ExpertFetchCounts counts_;
  std::mt19937 random_{1};
};

}  // namespace
}  // namespace inlay

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr,
        "usage: %s MODEL cpu|cuda [PROMPT [CONTEXT [KERNELS [BATCH]]]]\n",
        argv[0]);
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<int64_t> contexts;
  std::istringstream lengths(argc > 4 ? argv[4] : "512");
  for (std::string length; std::getline(lengths, length, ',');) {
    contexts.push_back(std::atoll(length.c_str()));
  }
  const int64_t prompt = argc > 3 ? std::atoll(argv[3]) : 8192;
  const int most_batch = argc > 6 ? std::atoi(argv[6]) : 64;
  inlay::Bench bench(argv[1], argv[2], prompt,
                     *std::max_element(contexts.begin(), contexts.end()),
                     argc > 5 ? argv[5] : "", most_batch);
  for (const int64_t context : contexts) {
    for (int batch = 1; batch <= most_batch; batch *= 2) {
      bench.Decode(batch, context);
    }
  }
  if (prompt > 0) bench.Prompt();
  return 0;
}
