#include "memory/kv/tier_host.h"

#include <algorithm>
#include <utility>

namespace inlay {
namespace {

// A slot's part of slots_, links_, free_ and a half-filled hash table.
constexpr uint64_t kBookkeepingBytes = 160;

uint64_t RoundUp(uint64_t bytes) {
  constexpr uint64_t kTo = Device::kAlignment;
  return (bytes + kTo - 1) / kTo * kTo;
}

// Of one slot in the buffer: bytes, then tokens.
uint64_t Stride(uint64_t block_bytes, int32_t block_size) {
  return RoundUp(block_bytes) +
         RoundUp(static_cast<uint64_t>(block_size) * sizeof(int32_t));
}

}  // namespace

uint64_t KvHostSlots::SlotCost(uint64_t block_bytes, int32_t block_size) {
  return Stride(block_bytes, block_size) + kBookkeepingBytes;
}

uint64_t KvHostSlots::BufferBytes(int32_t num_slots, uint64_t block_bytes,
                                  int32_t block_size) {
  return static_cast<uint64_t>(num_slots) * Stride(block_bytes, block_size);
}

KvHostSlots::KvHostSlots(Buffer memory, int32_t num_slots, uint64_t block_bytes,
                         int32_t block_size)
    : memory_(std::move(memory)),
      block_bytes_(block_bytes),
      block_size_(block_size),
      slots_(static_cast<size_t>(num_slots)),
      links_(static_cast<size_t>(num_slots)),
      // Twice: so it is never full enough to grow when erased entries pile up.
      index_(2 * static_cast<size_t>(num_slots)) {
  free_.reserve(static_cast<size_t>(num_slots));
  for (int32_t slot = num_slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

int32_t KvHostSlots::Find(const KvBlockKey& key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? -1 : it->second;
}

KvHostSlots::Taken KvHostSlots::Take(bool even_fresh) {
  Taken taken;
  if (free_.empty()) {
    const int32_t victim = offered_.oldest() >= 0 ? offered_.oldest()
                           : even_fresh           ? fresh_.oldest()
                                                  : -1;
    if (victim < 0) return taken;
    taken.replaced = At(victim).key;
    Forget(victim);
  }
  taken.slot = free_.back();
  free_.pop_back();
  At(taken.slot).pins = 1;
  return taken;
}

void KvHostSlots::Publish(int32_t slot, const KvBlockKey& key, bool offered) {
  index_.emplace(key, slot);
  most_found_ = std::max(most_found_, num_found());
  Slot& state = At(slot);
  state.key = key;
  state.findable = true;
  state.offered = offered;
  Unpin(slot);
}

void KvHostSlots::Pin(int32_t slot) {
  Slot& state = At(slot);
  if (state.pins++ == 0) ListOf(state).Remove(slot);
}

void KvHostSlots::Unpin(int32_t slot) {
  Slot& state = At(slot);
  if (--state.pins > 0) return;
  if (state.findable) {
    ListOf(state).PushNewest(slot);
  } else {
    free_.push_back(slot);
  }
}

void KvHostSlots::Forget(int32_t slot) {
  Slot& state = At(slot);
  index_.erase(state.key);
  state.findable = false;
  if (state.pins > 0) return;
  ListOf(state).Remove(slot);
  free_.push_back(slot);
}

void KvHostSlots::SetOffered(int32_t slot) {
  Slot& state = At(slot);
  if (state.offered) return;
  const bool listed = state.findable && state.pins == 0;
  if (listed) fresh_.Remove(slot);
  state.offered = true;
  if (listed) offered_.PushNewest(slot);
}

absl::Span<std::byte> KvHostSlots::bytes(int32_t slot) {
  return {memory_.data() + BufferBytes(slot, block_bytes_, block_size_),
          static_cast<size_t>(block_bytes_)};
}

absl::Span<int32_t> KvHostSlots::tokens(int32_t slot) {
  return {
      reinterpret_cast<int32_t*>(bytes(slot).data() + RoundUp(block_bytes_)),
      static_cast<size_t>(block_size_)};
}

}  // namespace inlay
