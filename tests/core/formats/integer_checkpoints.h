// Checkpoints of integers in GPTQ's and AWQ's layouts, drawn by a test, with
// the weights they stand for.
#ifndef INLAY_TESTS_CORE_FORMATS_INTEGER_CHECKPOINTS_H_
#define INLAY_TESTS_CORE_FORMATS_INTEGER_CHECKPOINTS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/formats/quantized_test_util.h"

namespace inlay {

// Field f of a word holds this output.
inline constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};

// Adds a matrix [rows, columns] as i32 words that hold `bits` of each value,
// one after another from the lowest bit on, `down` columns or along rows.
template <typename ValueAt>
void AddStream(MemoryWeights& weights, const std::string& name, int64_t rows,
               int64_t columns, int bits, bool down, const ValueAt& value_at) {
  const int64_t lines = down ? columns : rows;
  const int64_t count = down ? rows : columns;
  const int64_t length = count * bits / 32;
  std::vector<uint32_t> words(static_cast<size_t>(lines * length), 0);
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < count * bits; ++i) {
      const int64_t place = i / bits;
      const auto value = static_cast<uint32_t>(down ? value_at(place, line)
                                                    : value_at(line, place));
      const uint32_t bit = value >> i % bits & 1;
      const int64_t word =
          down ? i / 32 * lines + line : line * length + i / 32;
      words[static_cast<size_t>(word)] |= bit << i % 32;
    }
  }
  weights.Add(name, DType::kI32, {down ? length : lines, down ? lines : length},
              words.data());
}

struct GptqCase {
  int bits;
  int64_t group_size;  // -1: all
  bool v2;
  bool scattered;  // g_idx
  int64_t n, k;
  std::string dtype;
};

// 5 to 7 bits are AutoRound's alone.
inline Checkpoint MakeGptq(const GptqCase& c, uint32_t seed, bool mapped,
                           bool with_index = true) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "gptq"},
                  {"bits", c.bits},
                  {"group_size", c.group_size},
                  {"desc_act", c.scattered},
                  {"sym", false},
                  {"checkpoint_format", c.v2 ? "gptq_v2" : "gptq"}},
                 std::make_shared<MemoryWeights>(mapped),
                 c.n,
                 c.k,
                 {}};
  const int most = (1 << c.bits) - 1;
  const int64_t group = c.group_size < 0 ? c.k : c.group_size;
  const int64_t groups = (c.k - 1) / group + 1;
  std::vector<int32_t> index;
  for (int64_t i = 0; i < c.k; ++i) {
    index.push_back(static_cast<int32_t>(i / group));
  }
  if (c.scattered) std::shuffle(index.begin(), index.end(), draw.engine());
  const auto codes = draw.Ints(c.k * c.n, 0, most);  // [k, n]
  const auto zeros = draw.Ints(groups * c.n, c.v2 ? 0 : 1, most);
  const auto scales = draw.Scales(groups * c.n);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  AddStream(*out.weights, "l.qweight", c.k, c.n, c.bits, true,
            [&](int64_t i, int64_t o) { return codes[at(i * c.n + o)]; });
  AddStream(*out.weights, "l.qzeros", groups, c.n, c.bits, false,
            [&](int64_t g, int64_t o) {
              return zeros[at(g * c.n + o)] - (c.v2 ? 0 : 1);
            });
  AddFloats(*out.weights, "l.scales", DType::kF16, {groups, c.n}, scales);
  if (with_index) {
    out.weights->Add("l.g_idx", DType::kI32, {c.k}, index.data());
  }
  for (int64_t o = 0; o < c.n; ++o) {
    for (int64_t i = 0; i < c.k; ++i) {
      const int64_t g = index[at(i)] * c.n + o;
      out.dense.push_back(double{scales[at(g)]} *
                          (codes[at(i * c.n + o)] - zeros[at(g)]));
    }
  }
  if (c.bits > 4 && c.bits < 8) {
    out.config = {
        {"quant_method", "auto-round"},
        {"bits", c.bits},
        {"group_size", c.group_size},
        {"packing_format", c.v2 ? "auto_round" : "auto_round:auto_gptq"}};
  }
  return out;
}

inline Checkpoint MakeAwq(int64_t group_size, int64_t n, int64_t k,
                          uint32_t seed) {
  Draw draw(seed);
  Checkpoint out{{{"quant_method", "awq"},
                  {"bits", 4},
                  {"group_size", group_size},
                  {"version", "GEMM"},
                  {"zero_point", true}},
                 std::make_shared<MemoryWeights>(seed % 2 == 0),
                 n,
                 k,
                 {}};
  const int64_t group = group_size < 0 ? k : group_size;
  const int64_t groups = k / group;
  const auto codes = draw.Ints(k * n, 0, 15);  // [k, n]
  const auto zeros = draw.Ints(groups * n, 0, 15);
  const auto scales = draw.Scales(groups * n);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto add = [&](const std::string& name, int64_t rows,
                       const std::vector<int>& values) {
    AddPacked(*out.weights, name, rows, n / 8, 4,
              [&](int64_t r, int64_t c, int f) {
                return values[at(r * n + c * 8 + kAwqOrder[f])];
              });
  };
  add("l.qweight", k, codes);
  add("l.qzeros", groups, zeros);
  AddFloats(*out.weights, "l.scales", DType::kF16, {groups, n}, scales);
  for (int64_t o = 0; o < n; ++o) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t g = i / group * n + o;
      out.dense.push_back(double{scales[at(g)]} *
                          (codes[at(i * n + o)] - zeros[at(g)]));
    }
  }
  return out;
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_FORMATS_INTEGER_CHECKPOINTS_H_
