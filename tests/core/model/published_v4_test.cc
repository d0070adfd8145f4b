// DeepSeek-V4's files as they are published: e4m3 with exponents of blocks of
// 128 x 128 under ".scale", experts in MXFP4, what predicts further tokens
// beside them; against the same model in float32. Source: transformers'
// quantizer_finegrained_fp8.py and conversion_mapping.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/formats/safetensors_source.h"
#include "tests/core/formats/format_test_util.h"
#include "tests/core/model/rounded_models.h"
#include "tests/support/nvfp4_tensors.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

// Tensors of a safetensors file.
class FileOfTensors {
 public:
  void Add(const std::string& name, const char* dtype,
           const std::vector<int64_t>& shape, std::string_view bytes) {
    header_[name] = {
        {"dtype", dtype},
        {"shape", shape},
        {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_.append(bytes);
  }
  std::string Text() const {
    return SafetensorsFile(DumpJson(header_)) + data_;
  }

 private:
  Json header_ = Json::object();
  std::string data_;
};

template <typename T>
std::string_view ViewOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

// The least power of two that brings `most` to `limit` or below, plus 127.
uint8_t Exponent(float most, float limit) {
  if (most == 0.0f) return 0;
  return static_cast<uint8_t>(127 + std::ceil(std::log2(most / limit)));
}

// Rounds `values` [n, k] in place.
void AddE4M3(FileOfTensors& file, const std::string& layer, int64_t n,
             int64_t k, std::vector<float>& values) {
  constexpr int64_t kCell = 128;
  const int64_t down = (n - 1) / kCell + 1, across = (k - 1) / kCell + 1;
  std::vector<float> most(static_cast<size_t>(down * across));
  const auto cell = [&](size_t i) {
    const auto at = static_cast<int64_t>(i);
    return static_cast<size_t>(at / k / kCell * across + at % k / kCell);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    most[cell(i)] = std::max(most[cell(i)], std::fabs(values[i]));
  }
  std::vector<uint8_t> exponents;
  for (const float x : most) exponents.push_back(Exponent(x, 448.0f));
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = std::ldexp(1.0f, exponents[cell(i)] - 127);
    codes.push_back(F32ToF8E4M3(values[i] / scale));
    values[i] = F8E4M3ToF32(codes.back()) * scale;
  }
  file.Add(layer + ".weight", "F8_E4M3", {n, k}, ViewOf(codes));
  file.Add(layer + ".scale", "F8_E8M0", {down, across}, ViewOf(exponents));
}

void AddE2M1(FileOfTensors& file, const std::string& layer, int64_t n,
             int64_t k, std::vector<float>& values) {
  constexpr size_t kCell = 32;
  std::vector<uint8_t> pairs, exponents;
  for (size_t first = 0; first < values.size(); first += kCell) {
    float most = 0.0f;
    for (size_t i = first; i < first + kCell; ++i) {
      most = std::max(most, std::fabs(values[i]));
    }
    exponents.push_back(Exponent(most, 6.0f));
    const float scale = std::ldexp(1.0f, exponents.back() - 127);
    for (size_t i = first; i < first + kCell; ++i) {
      const int code =
          Nvfp4Matrix::Nearest(values[i] / scale, 16, Nvfp4Matrix::E2M1);
      values[i] = static_cast<float>(Nvfp4Matrix::E2M1(code)) * scale;
      if (i % 2 == 0) {
        pairs.push_back(static_cast<uint8_t>(code));
      } else {
        pairs.back() = static_cast<uint8_t>(pairs.back() | code << 4);
      }
    }
  }
  file.Add(layer + ".weight", "I8", {n, k / 2}, ViewOf(pairs));
  file.Add(layer + ".scale", "F8_E8M0", {n, k / 32}, ViewOf(exponents));
}

bool IsE4M3(const std::string& layer) {
  for (const char* end : {".wq_a", ".wq_b", ".wo_a", ".wo_b"}) {
    if (layer.ends_with(end)) return true;
  }
  return layer.ends_with(".attn.wkv") ||
         layer.find(".shared_experts.") != layer.npos;
}

absl::StatusOr<RoundedFiles> Published(const std::string& model,
                                       const TempFolder& folder) {
  const std::string golden = TestData() + "/models/" + model;
  INLAY_ASSIGN_OR_RETURN(const auto stored,
                         OpenSafetensors(golden, WeightAccess::kMap));
  INLAY_ASSIGN_OR_RETURN(Json config,
                         ReadOptionalPythonJson(golden + "/config.json"));
  RoundedFiles files;
  FileOfTensors rounded, wide;
  const auto source = Widened(*stored);
  for (const WeightInfo& info : source->weights()) {
    std::string bytes(info.bytes, '\0');
    INLAY_RETURN_IF_ERROR(
        source->Read(info, 0,
                     absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()),
                                    bytes.size())));
    const std::string layer = info.name.substr(0, info.name.rfind('.'));
    const bool is_expert = layer.find(".ffn.experts.") != layer.npos;
    if (!is_expert && !IsE4M3(layer)) {
      const char* dtype = info.dtype == DType::kI64   ? "I64"
                          : info.dtype == DType::kI32 ? "I32"
                                                      : "F32";
      rounded.Add(info.name, dtype, info.shape, bytes);
      wide.Add(info.name, dtype, info.shape, bytes);
      continue;
    }
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    (is_expert ? AddE2M1 : AddE4M3)(rounded, layer, info.shape[0],
                                    info.shape[1], values);
    wide.Add(info.name, "F32", info.shape, ViewOf(values));
    ++files.layers;
  }
  std::vector<float> further(64 * 64, 0.5f);
  AddE4M3(rounded, "mtp.0.e_proj", 64, 64, further);
  folder.Write("wide/config.json", DumpJson(config));
  folder.Write("wide/model.safetensors", wide.Text());
  config["expert_dtype"] = "fp4";
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"activation_scheme", "dynamic"},
                                   {"scale_fmt", "ue8m0"},
                                   {"weight_block_size", {128, 128}}};
  folder.Write("rounded/config.json", DumpJson(config));
  folder.Write("rounded/model.safetensors", rounded.Text());
  INLAY_ASSIGN_OR_RETURN(files.wide,
                         OpenModelFiles(folder.path() + "/wide", {}));
  INLAY_ASSIGN_OR_RETURN(files.rounded,
                         OpenModelFiles(folder.path() + "/rounded", {}));
  return files;
}

class PublishedV4Test : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedV4Test, RunsAsWhatItStandsFor) {
  const TempFolder folder;
  const auto files = Published(GetParam(), folder);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_GT(files->layers, 2 * (3 * 4 + 3 + 5));
  ExpectRunsAsWide(GetParam(), *files, {3, kWholePrompt}, {3, kWholePrompt});
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedV4Test,
                         ::testing::Values("deepseek_v4", "deepseek_v4_rates"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace inlay
