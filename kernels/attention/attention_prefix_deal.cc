#include "kernels/attention/attention_prefix_deal.h"

#include <algorithm>
#include <cstring>

#include "memory/status.h"

namespace inlay {
namespace {

// Rests are chunks of a quarter of a CTA's share, so that shares come out
// equal; most rests are one.
constexpr int64_t kChunksAShare = 4;

}  // namespace

// Units are full but for the last of a group; each has a chunk of shared keys,
// two of its own (and kChunksAShare for each CTA, in all), and a group of
// those. Packed badly, or where one of many has a long rest, there is not room
// for all.
ItemRoom GroupRoom(const AttentionPlanShape& shape, int64_t sequences) {
  if (!SharesPrefixes(shape, sequences)) return {};
  const int64_t tiles = sequences * RowTiles(shape, 1);
  ItemRoom room;
  room.items = shape.num_kv_heads * CeilDiv(tiles, 4);
  room.slots = 4 * shape.num_kv_heads *
                   CeilDiv(sequences * shape.group, kAttentionItemRows) +
               (kChunksAShare + 1) * shape.grid;
  room.counters = 3 * shape.num_kv_heads * tiles + kChunksAShare * shape.grid;
  return room;
}

ItemRoom CutRoom(const AttentionPlanShape& shape, int64_t sequences) {
  if (!SharesPrefixes(shape, sequences)) return {};
  const int64_t room = int64_t{2} * shape.prefix_units * shape.grid;
  return {0, room, room};
}

int64_t GroupDealer::Admit(int64_t others, const ItemRoom& room) {
  int64_t total = others;
  for (const PrefixGroup& group : finder_.groups()) total += CostOf(group);
  share_ = CeilDiv(total, shape_.grid);
  ItemRoom left = room;
  for (PrefixGroup& group : finder_.groups()) {
    const ItemRoom need = RoomOf(group);
    if (need.items <= left.items && need.slots <= left.slots &&
        need.counters <= left.counters) {
      left.items -= need.items;
      left.slots -= need.slots;
      left.counters -= need.counters;
      continue;
    }
    total -= CostOf(group);
    for (int32_t i = group.first; i >= 0; i = finder_.node(i).next) {
      total += CostAlone(shape_, nullptr, sequences_[static_cast<size_t>(i)]);
    }
    finder_.Dissolve(group);
  }
  return total;
}

bool GroupDealer::Deal(Dealer& dealer, int32_t* blocks, int32_t& num_blocks) {
  bool any = false;
  for (const PrefixGroup& group : finder_.groups()) {
    if (group.sequences == 0) continue;
    DealGroup(group, dealer, blocks, num_blocks);
    any = true;
  }
  return any;
}

int64_t GroupDealer::CostOf(const PrefixGroup& group) {
  int64_t cost = 0;
  PrefixPacker packer(shape_, sequences_, finder_, group);
  for (auto pieces = packer.Next(); !pieces.empty(); pieces = packer.Next()) {
    cost += group.keys * kSharedKeyWeight / kKeyWeight + kPrefixOverhead;
    for (const PrefixPiece& piece : pieces) {
      cost += piece.rest.end - piece.rest.begin + kRestOverhead;
    }
  }
  return shape_.num_kv_heads * cost;
}

ItemRoom GroupDealer::RoomOf(const PrefixGroup& group) {
  ItemRoom room;
  PrefixPacker packer(shape_, sequences_, finder_, group);
  for (auto pieces = packer.Next(); !pieces.empty(); pieces = packer.Next()) {
    int64_t chunks = 0;
    for (const PrefixPiece& piece : pieces) {
      chunks = std::max(chunks, RestChunks(piece.rest));
    }
    const int64_t groups = CeilDiv(1 + chunks, kAttentionFoldGroup);
    room.items += 1;
    room.slots += packer.num_units() * (1 + chunks + groups);
    room.counters += static_cast<int64_t>(pieces.size()) * (2 + groups);
  }
  room.items *= shape_.num_kv_heads;
  room.slots *= shape_.num_kv_heads;
  room.counters *= shape_.num_kv_heads;
  return room;
}

int64_t GroupDealer::RestChunk(const KeyRange& rest) const {
  const int64_t chunk =
      RoundUp(std::max(2 * kLeastChunk, share_ / kChunksAShare), kKeyTile);
  return rest.end - rest.begin <= chunk ? kNoChunks : chunk;
}

int64_t GroupDealer::RestChunks(const KeyRange& rest) const {
  const int64_t chunk = RestChunk(rest);
  return chunk == kNoChunks ? 1 : CeilDiv(rest.end, chunk) - rest.begin / chunk;
}

void GroupDealer::WriteUnits(absl::Span<const PrefixPiece> pieces, int units,
                             int32_t* to) const {
  AttentionUnit unit;
  size_t at = 0;
  for (int u = 0; u < units; ++u) {
    unit = {};
    std::fill(std::begin(unit.rows), std::end(unit.rows), -1);
    unit.members_before = static_cast<int32_t>(at);
    for (; at < pieces.size() && pieces[at].unit == u; ++at) {
      const PrefixPiece& piece = pieces[at];
      const auto own = static_cast<int16_t>(RestChunks(piece.rest));
      const int32_t begin =
          piece.item.q_begin * shape_.group + piece.item.row_begin;
      unit.firsts |= 1u << piece.item.slot_row;
      for (int r = 0; r < piece.item.num_rows; ++r) {
        unit.rows[piece.item.slot_row + r] = begin + r;
        unit.own_chunks[piece.item.slot_row + r] = own;
      }
    }
    std::memcpy(to + u * ptrdiff_t{kUnitWords}, &unit, sizeof(unit));
  }
}

void GroupDealer::DealGroup(const PrefixGroup& group, Dealer& dealer,
                            int32_t* blocks, int32_t& num_blocks) {
  AttentionItem shared = {};
  shared.blocks_begin = finder_.node(group.first).blocks_begin;
  PrefixPacker packer(shape_, sequences_, finder_, group);
  for (auto pieces = packer.Next(); !pieces.empty(); pieces = packer.Next()) {
    shared.num_units = static_cast<uint8_t>(packer.num_units());
    shared.units_begin = num_blocks;
    WriteUnits(pieces, packer.num_units(), blocks + num_blocks);
    num_blocks += packer.num_units() * kUnitWords;
    int64_t own_chunks = 0;
    for (const PrefixPiece& piece : pieces) {
      own_chunks = std::max(own_chunks, RestChunks(piece.rest));
    }
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      shared.kv_head = head;
      dealer.AddShared(shared, group.keys, kPrefixOverhead,
                       static_cast<int64_t>(pieces.size()), own_chunks);
      for (size_t i = 0; i < pieces.size(); ++i) {
        PrefixPiece& piece = pieces[i];
        piece.item.kv_head = head;
        dealer.AddRest(piece.item, piece.rest, RestChunk(piece.rest),
                       kRestOverhead, static_cast<int64_t>(i), piece.unit);
      }
    }
  }
}

}  // namespace inlay
