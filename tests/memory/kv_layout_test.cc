#include "memory/kv/kv_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace inlay {
namespace {

// Every row of every layer, head and slot lies inside its block and overlaps no
// other: marks each byte once.
TEST(KvLayoutTest, RowsTileTheBlockWithoutOverlap) {
  // The last keeps values in its keys' rows.
  const std::vector<KvLayerShape> shapes = {
      {2, 64}, {1, 80}, {3, 7}, {2, 64}, {1, 48, 0, 32}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                            DType::kF8E4M3, DType::kKvQ4}) {
    for (const int block_size : {1, 16, 32}) {
      const KvLayout layout(shapes, dtype, block_size);
      EXPECT_EQ(layout.num_layers(), 5);
      EXPECT_EQ(layout.block_bytes() % 64, 0u);
      constexpr int kBlocks = 3;
      std::vector<int> marks(kBlocks * layout.block_bytes());
      std::vector<std::byte> memory(marks.size());
      size_t rows_bytes = 0;
      const auto mark = [&](const std::byte* row, int block, size_t bytes) {
        const size_t begin = static_cast<size_t>(row - memory.data());
        ASSERT_EQ(begin / layout.block_bytes(), static_cast<size_t>(block));
        ASSERT_EQ((begin + bytes - 1) / layout.block_bytes(),
                  static_cast<size_t>(block));
        for (size_t i = begin; i < begin + bytes; ++i) ++marks[i];
        rows_bytes += bytes;
      };
      for (int layer = 0; layer < layout.num_layers(); ++layer) {
        const KvLayerView view = layout.LayerView(layer, memory.data());
        const KvLayerShape& shape = shapes[static_cast<size_t>(layer)];
        EXPECT_EQ(view.num_kv_heads, shape.num_kv_heads);
        EXPECT_EQ(view.head_dim, shape.head_dim);
        EXPECT_EQ(view.value_dim, shape.value_dim);
        EXPECT_EQ(view.k_offset_bytes % 64, 0);
        const size_t bytes = KvRowBytes(dtype, shape.head_dim);
        for (int block = 0; block < kBlocks; ++block) {
          for (int head = 0; head < shape.num_kv_heads; ++head) {
            for (int slot = 0; slot < block_size; ++slot) {
              mark(view.KeyRow(block, head, slot), block, bytes);
              if (shape.value_dim > 0) {
                EXPECT_EQ(view.ValueRow(block, head, slot),
                          view.KeyRow(block, head, slot));
                continue;
              }
              mark(view.ValueRow(block, head, slot), block, bytes);
            }
          }
        }
      }
      size_t marked = 0;
      for (const int count : marks) {
        ASSERT_LE(count, 1);
        marked += static_cast<size_t>(count);
      }
      EXPECT_EQ(marked, rows_bytes);
      EXPECT_LT(marks.size() - marked, kBlocks * 64u * shapes.size());
    }
  }
}

// Latent attention's row is all that a token takes.
TEST(KvLayoutTest, LatentRowsHaveNoValuesBesideThem) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const KvLayout layout({{1, 576, 0, 512}, {1, 576, 0, 512}}, dtype, 16);
    EXPECT_EQ(layout.block_bytes(), 2 * 16 * KvRowBytes(dtype, 576));
    EXPECT_EQ(layout.bytes_per_token(), 2 * KvRowBytes(dtype, 576));
  }
}

TEST(KvLayoutTest, SlotsOfAHeadAreContiguous) {
  const KvLayout layout({{2, 8}}, DType::kBF16, 4);
  std::vector<std::byte> memory(layout.block_bytes());
  const KvLayerView view = layout.LayerView(0, memory.data());
  EXPECT_EQ(view.KeyRow(0, 1, 3) - view.KeyRow(0, 1, 2), 16);
  EXPECT_EQ(view.KeyRow(0, 1, 0) - view.KeyRow(0, 0, 3), 16);
  EXPECT_EQ(view.ValueRow(0, 0, 0) - view.KeyRow(0, 1, 3), 16);
}

TEST(KvLayoutTest, RowBytesAreAsDrawn) {
  const struct {
    DType dtype;
    size_t bytes[5];  // of head_dim 1, 20, 64, 80, 128
  } kRows[] = {{DType::kF32, {4, 80, 256, 320, 512}},
               {DType::kF16, {2, 40, 128, 160, 256}},
               {DType::kBF16, {2, 40, 128, 160, 256}},
               {DType::kI8, {8, 24, 68, 84, 132}},
               {DType::kF8E4M3, {8, 24, 68, 84, 132}},
               {DType::kKvQ4, {20, 20, 40, 60, 80}}};
  constexpr int kDims[] = {1, 20, 64, 80, 128};
  int formats = 0;
  for (const auto& row : kRows) {
    EXPECT_TRUE(IsKvFormat(row.dtype));
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(KvRowBytes(row.dtype, kDims[i]), row.bytes[i])
          << DTypeName(row.dtype) << " " << kDims[i];
    }
  }
#define INLAY_FORMAT(id, value, name, block_elements, block_bytes) \
  formats += IsKvFormat(DType::id) ? 1 : 0;
#include "memory/formats.def"
#undef INLAY_FORMAT
  EXPECT_EQ(formats, 6);
}

std::vector<KvLayerShape> Layers(int full, int windowed, int64_t window = 512) {
  std::vector<KvLayerShape> layers;
  for (int i = 0; i < full; ++i) layers.push_back({4, 64, 0});
  for (int i = 0; i < windowed; ++i) layers.push_back({4, 64, window});
  return layers;
}

TEST(KvLayoutTest, LayersOfOneWindowAreAGroup) {
  const KvLayout one(Layers(0, 4), DType::kF16, 16);
  EXPECT_EQ(one.groups(), (KvGroups{{16, 512}}));
  // gemma2, gemma3 (12b), cohere2: as many tokens more as layers fewer.
  EXPECT_EQ(KvLayout(Layers(13, 13), DType::kF16, 16).groups(),
            (KvGroups{{16, 0}, {16, 512}}));
  EXPECT_EQ(KvLayout(Layers(8, 40), DType::kF16, 16).groups(),
            (KvGroups{{80, 0}, {16, 512}}));
  EXPECT_EQ(KvLayout(Layers(8, 24), DType::kF16, 32).groups(),
            (KvGroups{{96, 0}, {32, 512}}));
  // Where one step of 16 would waste too much, larger blocks (gemma3, 4b).
  EXPECT_EQ(KvLayout(Layers(5, 29), DType::kF16, 16).groups(),
            (KvGroups{{176, 0}, {32, 512}}));
  EXPECT_EQ(KvLayout(Layers(4, 6), DType::kF16, 16).groups(),
            (KvGroups{{48, 0}, {32, 512}}));
  // The first group reaches furthest; more than four are four.
  std::vector<KvLayerShape> many;
  for (const int64_t window : {8, 1, 0, 4, 2, 16})
    many.push_back({1, 8, window});
  const KvLayout four(many, DType::kF32, 4);
  EXPECT_EQ(four.groups(), (KvGroups{{12, 0}, {12, 16}, {12, 8}, {4, 4}}));
  EXPECT_EQ(four.group_of(2), 0u);
  for (const int layer : {1, 3, 4}) EXPECT_EQ(four.group_of(layer), 3u);
}

TEST(KvLayoutTest, GroupsFillTheirBlocksAndStayInThem) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const int block_size : {1, 5, 16, 64}) {
      for (int full = 1; full <= 12; ++full) {
        for (int windowed = 1; windowed <= 40; ++windowed) {
          const KvLayout layout(Layers(full, windowed), dtype, block_size);
          ASSERT_EQ(layout.num_groups(), 2u);
          for (size_t g = 0; g < 2; ++g) {
            ASSERT_LE(layout.used_bytes(g), layout.block_bytes());
            ASSERT_GE(10 * layout.used_bytes(g), 8 * layout.block_bytes())
                << full << " and " << windowed << " layers";
            ASSERT_EQ(layout.groups()[g].block_size % block_size, 0);
          }
          for (int layer = 0; layer < layout.num_layers(); ++layer) {
            const KvLayerView view = layout.LayerView(layer, nullptr);
            ASSERT_EQ(view.block_size,
                      layout.groups()[layout.group_of(layer)].block_size);
            ASSERT_LE(2 * view.v_offset_bytes - view.k_offset_bytes,
                      static_cast<int64_t>(
                          layout.used_bytes(layout.group_of(layer))));
          }
        }
      }
    }
  }
}

// Of several tokens a row: fewer rows a block, whole numbers of them, and
// layers that count rows lie at whole rows of their block.
TEST(KvLayoutTest, RowsOfSeveralTokens) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kKvQ4}) {
    for (const int block_size : {1, 16, 32}) {
      const KvLayout layout({{1, 40, 12, 40, 1, true},
                             {2, 40, 8},
                             {1, 40, 0, 40, 4, true},
                             {1, 24, 0, 24, 4},
                             {1, 40, 0, 40, 128, true}},
                            dtype, block_size);
      ASSERT_EQ(layout.num_groups(), 3u);
      const int tokens = layout.groups()[0].block_size;
      EXPECT_EQ(tokens % 128, 0);
      EXPECT_EQ(layout.LayerView(2, nullptr).block_size, tokens / 4);
      EXPECT_EQ(layout.LayerView(3, nullptr).block_size, tokens / 4);
      EXPECT_EQ(layout.LayerView(4, nullptr).block_size, tokens / 128);
      std::vector<std::byte> memory(2 * layout.block_bytes());
      for (const int layer : {0, 2, 4}) {
        const KvLayerView view = layout.LayerView(layer, memory.data());
        const KvLayerView rows = view.InRows();
        EXPECT_EQ(rows.block_size,
                  layout.LayerView(0, nullptr).InRows().block_size);
        for (int t = 0; t < view.block_size; ++t) {
          const int slot = view.first_row() + t;
          ASSERT_LT(slot, rows.block_size);
          ASSERT_EQ(rows.KeyRow(1, 0, slot), view.KeyRow(1, 0, t));
          ASSERT_LE(view.KeyRow(1, 0, t) + view.row_bytes(),
                    memory.data() + memory.size());
        }
      }
      // Nothing overlaps.
      const KvLayerView first = layout.LayerView(2, nullptr);
      const KvLayerView second = layout.LayerView(3, nullptr);
      const KvLayerView third = layout.LayerView(4, nullptr);
      EXPECT_GE(second.k_offset_bytes,
                first.k_offset_bytes + first.block_size * first.row_bytes());
      EXPECT_GE(third.k_offset_bytes,
                second.k_offset_bytes + second.block_size * second.row_bytes());
    }
  }
}

TEST(KvLayoutTest, NoLayersIsNoBytes) {
  EXPECT_EQ(KvLayout({}, DType::kF32, 16).block_bytes(), 0u);
  EXPECT_EQ(KvLayout().num_layers(), 0);
}

}  // namespace
}  // namespace inlay
