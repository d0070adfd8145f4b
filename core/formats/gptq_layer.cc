#include "core/formats/gptq_layer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// 32 fields of one output, in `bits` words that lie `pitch` words apart.
void UnpackRun(const std::byte* words, int64_t pitch, int bits, uint8_t* to) {
  const uint64_t mask = (1u << bits) - 1;
  uint64_t pending = 0;
  int held = 0;
  for (int i = 0; i < 32; ++i) {
    if (held < bits) {
      pending |= uint64_t{LoadWord(words, 0)} << held;
      words += pitch * 4;
      held += 32;
    }
    *to++ = static_cast<uint8_t>(pending & mask);
    pending >>= bits;
    held -= bits;
  }
}

class GptqLayer final : public InputMajorLayer {
 public:
  GptqLayer(const std::string& layer, Grouping grouping,
            const InputMajorTensors& tensors, const ZeroPacking& packing,
            std::shared_ptr<const WeightSource> stored)
      : InputMajorLayer(layer, std::move(grouping), tensors, packing,
                        std::move(stored)) {}

 private:
  // Words of some 16 rows of `codes` at a time, a row of codes per output: both
  // sides stay in cache, and each output gets a run of 64 or more bytes.
  absl::Status LoadCodes(Band& band) const override {
    const int64_t tile = 16 / bits() * bits();
    const int64_t word_rows = codes().shape[0];
    std::vector<std::byte> words(static_cast<size_t>(tile * band.rows * 4));
    for (int64_t w0 = 0; w0 < word_rows; w0 += tile) {
      const int64_t count = std::min(tile, word_rows - w0);
      INLAY_RETURN_IF_ERROR(ReadStrip(stored(), codes(), w0, count,
                                      band.first * 4, band.rows * 4,
                                      words.data()));
      for (int64_t row = 0; row < band.rows; ++row) {
        Unpack(words.data() + row * 4, count, band.rows,
               band.codes.data() + row * grouping().k + w0 * 32 / bits());
      }
    }
    return absl::OkStatus();
  }

  // The fields of one output's `count` words, which lie `pitch` words apart.
  void Unpack(const std::byte* words, int64_t count, int64_t pitch,
              uint8_t* to) const {
    if (bits() != 4 && bits() != 8) {
      // k is a multiple of 32: blocks are.
      for (int64_t w = 0; w < count; w += bits(), to += 32) {
        UnpackRun(words + w * pitch * 4, pitch, bits(), to);
      }
      return;
    }
    for (int64_t w = 0; w < count; ++w, to += 32 / bits()) {
      const uint32_t word = LoadWord(words, w * pitch);
      if (bits() == 4) {
        const uint64_t spread = SpreadNibbles(word);
        std::memcpy(to, &spread, sizeof(spread));
      } else {
        const uint32_t centred = word ^ 0x80808080u;
        std::memcpy(to, &centred, sizeof(centred));
      }
    }
  }
};

absl::StatusOr<Grouping> FindGptqGrouping(const WeightSource& stored,
                                          const std::string& layer, int64_t k,
                                          int64_t group_size, bool indexed) {
  if (!indexed) return ContiguousGroups(layer, k, group_size);
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, layer + ".g_idx", {DType::kI32}));
  INLAY_RETURN_IF_ERROR(CheckShape(*info, {k}));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int32_t> index,
                         ReadInts(stored, *info));
  return IndexedGroups(layer, index, (k - 1) / group_size + 1);
}

// The inputs that `codes` holds.
absl::StatusOr<int64_t> GptqInputs(const WeightInfo& codes, int bits) {
  const int64_t words = codes.shape[0];
  if (32 % bits != 0 && words % bits != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s has %d rows of words; with fields of %d bits it must be a "
        "multiple of %d",
        Quoted(codes.name), words, bits, bits));
  }
  return FieldsIn(words, 32) / bits;
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindGptqLayer(
    const std::shared_ptr<const WeightSource>& stored, const GptqScheme& scheme,
    const std::string& layer) {
  INLAY_ASSIGN_OR_RETURN(
      const WeightInfo* codes,
      StoredMatrix(*stored, layer + ".qweight", {DType::kI32}));
  const int64_t n = codes->shape[1];
  ZeroPacking packing;
  packing.bits = LayerBits(*stored, layer, n, scheme.choices);
  packing.less_one = scheme.zeros_less_one;
  INLAY_ASSIGN_OR_RETURN(const int64_t k, GptqInputs(*codes, packing.bits));
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  const bool indexed =
      scheme.act_order || stored->Find(layer + ".g_idx") != nullptr;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t group_size,
      LayerGroupSize(*stored, layer, {}, k, scheme.choices, indexed));
  INLAY_ASSIGN_OR_RETURN(
      const InputMajorTensors tensors,
      FindInputMajorTensors(*stored, layer, {}, codes, n,
                            (k - 1) / group_size + 1, packing.bits));
  INLAY_ASSIGN_OR_RETURN(
      Grouping grouping,
      FindGptqGrouping(*stored, layer, k, group_size, indexed));
  return std::make_unique<GptqLayer>(layer, std::move(grouping), tensors,
                                     packing, stored);
}

}  // namespace

absl::Status AddGptqLayers(const std::shared_ptr<const WeightSource>& stored,
                           const GptqScheme& scheme, QuantizedLayers& found) {
  for (const std::string& layer : LayersWith(*stored, ".qweight")) {
    INLAY_ASSIGN_OR_RETURN(auto made, FindGptqLayer(stored, scheme, layer));
    found.layers.push_back(std::move(made));
    for (const char* suffix : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
