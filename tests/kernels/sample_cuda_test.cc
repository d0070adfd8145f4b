// The CUDA rows of sample against the host's, token for token: shapes of
// logits, corners of the options, vocabularies with remainders, mixed batches.
#if INLAY_HAS_CUDA

#include <limits>

#include "kernels/sample/sample.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kNumShapes = 10;

float Logit(std::mt19937& rng, int shape, int64_t id) {
  std::normal_distribution<float> normal(0, 1);
  const float x = normal(rng);
  switch (shape) {
    case 0:
      return 3 * x;
    case 1:
      return std::round(2 * x);  // few values, many ties, 0 and -0
    case 2:
      return rng() % 3 == 0 ? -kInf : 3 * x;
    case 3:
      return 1e-3f * x + 100;  // nearly flat
    case 4:
      return rng() % 200 == 0 ? 12 + x : x;  // peaked
    case 5:
      return 2.5f;  // all equal
    case 6:
      return id % 97 == 3 ? x : -kInf;
    case 7:
      return rng() % 50 == 0 ? (x > 0 ? kMax : -kMax) : x * 1e30f;
    case 8:
      return static_cast<float>(id % 1000) * 0.01f;
    default:
      return x * 1e-40f;  // subnormal
  }
}

struct Batch {
  std::vector<SampleOptions> options;
  std::vector<LogitEdit> edits;
  std::vector<uint32_t> masks;
};

void AddEdits(std::mt19937& rng, int64_t vocab, SampleOptions& options,
              Batch& batch) {
  const int kind = static_cast<int>(rng() % 4);
  options.first_edit = static_cast<int32_t>(batch.edits.size());
  std::vector<int64_t> ids;
  if (kind == 1 && vocab > 4) ids = {0, vocab / 2, vocab - 1};
  if (kind == 2) {
    for (int64_t id = 0; id < vocab; id += 1 + vocab / 300) ids.push_back(id);
  }
  if (kind == 3 && vocab < 2000) {
    for (int64_t id = 0; id < vocab; ++id) ids.push_back(id);
  }
  for (const int64_t id : ids) {
    LogitEdit edit;
    edit.token = static_cast<int32_t>(id);
    if (rng() % 2 == 0) edit.bias = static_cast<float>(rng() % 100) * 0.1f - 5;
    edit.generated = static_cast<int32_t>(rng() % 5) - 1;
    edit.banned = rng() % 5 == 0 ? 1 : 0;
    batch.edits.push_back(edit);
  }
  options.num_edits = static_cast<int32_t>(ids.size());
}

SampleOptions RandomOptions(std::mt19937& rng, int64_t vocab, Batch& batch) {
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(rng);
  };
  const auto one_of = [&](std::initializer_list<float> values) {
    return values.begin()[rng() % values.size()];
  };
  SampleOptions o;
  o.temperature = one_of({0, 1, 1, uniform(0.1f, 3), uniform(0.5f, 1), 1e-45f,
                          1000, 1e-3f, uniform(0.5f, 1)});
  const int64_t ks[] = {0, 0, 0, 1, 2, 40, 127, 300, vocab - 1, vocab};
  o.top_k = static_cast<int32_t>(
      rng() % 3 == 0 ? rng() % (vocab + 3)
                     : std::max<int64_t>(ks[rng() % std::size(ks)], 0));
  o.top_p = one_of({1, 1, 0, 0.5f, 0.9f, 0.95f, 0.9999f, 1 - 0x1p-24f,
                    uniform(0, 1), 1e-6f});
  o.min_p = one_of({0, 0, 0, 0.05f, 1, uniform(0, 0.3f)});
  o.repetition_penalty = one_of({1, 1.1f, 0.001f, 1000, uniform(0.8f, 1.3f)});
  o.frequency_penalty = one_of({0, 0.3f, -1000, 1000});
  o.presence_penalty = one_of({0, 0.7f, -0.7f});
  o.seed = uint64_t{rng()} << 32 | rng();
  o.index = rng() % 7 == 0 ? ~uint64_t{0} - rng() : rng() % 1000;
  AddEdits(rng, vocab, o, batch);
  if (rng() % 3 == 0) {
    o.first_mask_word = static_cast<int32_t>(batch.masks.size());
    for (int64_t word = 0; word < (vocab + 31) / 32; ++word) {
      batch.masks.push_back(rng() | (rng() % 2 == 0 ? rng() : 0));
    }
  }
  if (rng() % 40 == 0) o.temperature = -1;
  return o;
}

std::vector<int32_t> HostTokens(TestCpu& cpu, TestMatrix logits,
                                const Batch& batch) {
  std::vector<int32_t> tokens(batch.options.size(), -100);
  EXPECT_TRUE(SampleTable()
                  .back()
                  .run({logits.cols()},
                       {logits.view(), batch.options.data(), batch.edits.data(),
                        batch.masks.data(), tokens.data()},
                       *cpu.stream)
                  .ok());
  return tokens;
}

struct Device {
  TestCpu cpu;
  TestCuda cuda;
  int sampled = 0;
};

void ExpectSameTokens(Device& device, const TestMatrix& logits,
                      const Batch& batch) {
  const std::vector<int32_t> want = HostTokens(device.cpu, logits, batch);
  const CudaBytes options(batch.options);
  const CudaBytes edits(batch.edits);
  const CudaBytes masks(batch.masks);
  const SampleDesc desc{logits.cols()};
  ForEachCudaRow(SampleTable(), desc, device.cuda, [&](const SampleRow& row) {
    CudaTestMatrix on_device(logits);
    std::vector<int32_t> tokens(want.size(), -200);
    const CudaBytes out(tokens);
    const SampleParams params = {on_device.view(), options.as<SampleOptions>(),
                                 edits.as<LogitEdit>(), masks.as<uint32_t>(),
                                 out.as<int32_t>()};
    ASSERT_TRUE(ValidateSample(desc, params).ok());
    ASSERT_TRUE(row.run(desc, params, *device.cuda.stream).ok());
    out.Download(tokens.data());
    for (size_t i = 0; i < want.size(); ++i) {
      const SampleOptions& o = batch.options[i];
      ASSERT_EQ(tokens[i], want[i])
          << "row " << i << " of " << want.size() << " vocab " << desc.vocab
          << " T " << o.temperature << " k " << o.top_k << " p " << o.top_p
          << " min_p " << o.min_p << " edits " << o.num_edits << " mask "
          << o.first_mask_word;
    }
  });
  for (const int32_t token : want) device.sampled += token >= 0 ? 1 : 0;
}

// As wide as asked for, each row of its own shape.
TestMatrix RandomLogits(std::mt19937& rng, int64_t rows, int64_t vocab,
                        int64_t pad) {
  TestMatrix logits(DType::kF32, rows, vocab, pad);
  for (int64_t r = 0; r < rows; ++r) {
    const auto shape = static_cast<int>(rng() % kNumShapes);
    for (int64_t c = 0; c < vocab; ++c) logits.Set(r, c, Logit(rng, shape, c));
    if (rng() % 25 == 0) {
      const float bad[] = {kNan, kInf, -kNan};
      logits.Set(r, static_cast<int64_t>(rng()) % vocab, bad[rng() % 3]);
    }
    if (rng() % 40 == 0) {
      for (int64_t c = 0; c < vocab; ++c) logits.Set(r, c, -kInf);
    }
  }
  return logits;
}

void Sweep(Device& device, unsigned seed, int64_t rows, int64_t vocab) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  const TestMatrix logits =
      RandomLogits(rng, rows, vocab, seed % 3 == 0 ? 0 : seed % 5);
  Batch batch;
  // Never empty, so that there is something on the device.
  batch.edits.emplace_back();
  batch.masks.push_back(0);
  for (int64_t r = 0; r < rows; ++r) {
    batch.options.push_back(RandomOptions(rng, vocab, batch));
  }
  ExpectSameTokens(device, logits, batch);
}

TEST(SampleCudaTest, SmallVocabulariesChooseAsTheHost) {
  INLAY_REQUIRE_CUDA();
  Device device;
  unsigned seed = 0;
  for (int64_t vocab = 1; vocab <= 140; ++vocab) {
    Sweep(device, ++seed, 32, vocab);
    if (HasFatalFailure()) return;
  }
  for (const int64_t vocab : {500, 1000, 1023, 1024, 1025, 2047, 4099, 8195}) {
    Sweep(device, ++seed, 64, vocab);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(device.sampled, 3000);
}

TEST(SampleCudaTest, LargeVocabulariesChooseAsTheHost) {
  INLAY_REQUIRE_CUDA();
  Device device;
  unsigned seed = 1000;
  for (const int64_t vocab :
       {32000, 50257, 128256, 151936, 200003, 262144, 393216, 400001}) {
    for (const int64_t rows : {1, 5, 40}) {
      Sweep(device, ++seed, rows, vocab);
      if (HasFatalFailure()) return;
    }
  }
}

// Small enough for the sanitizers.
TEST(SampleCudaTest, MixedRows) {
  INLAY_REQUIRE_CUDA();
  Device device;
  Sweep(device, 2000, 24, 3001);
}

// What generation uses, on what models give: many draws of one distribution.
TEST(SampleCudaTest, ManyDrawsOfUsualOptions) {
  INLAY_REQUIRE_CUDA();
  Device device;
  std::mt19937 rng(5);
  constexpr int64_t kVocab = 32003;
  constexpr int64_t kRows = 64;
  for (const int shape : {0, 1, 4}) {
    TestMatrix logits(DType::kF32, kRows, kVocab);
    for (int64_t c = 0; c < kVocab; ++c) {
      const float x = Logit(rng, shape, c);
      for (int64_t r = 0; r < kRows; ++r) logits.Set(r, c, x);
    }
    for (int kind = 0; kind < 6; ++kind) {
      Batch batch;
      batch.edits.emplace_back();
      batch.masks.push_back(0);
      for (int64_t r = 0; r < kRows; ++r) {
        SampleOptions o;
        o.temperature = 0.8f;
        o.top_k = kind == 1 || kind == 4 ? 40 : kind == 5 ? 2000 : 0;
        o.top_p = kind == 2 || kind >= 4 ? 0.95f : 1.0f;
        o.min_p = kind == 3 ? 0.05f : 0.0f;
        o.seed = static_cast<uint64_t>(r);
        o.index = static_cast<uint64_t>(kind);
        batch.options.push_back(o);
      }
      ExpectSameTokens(device, logits, batch);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
