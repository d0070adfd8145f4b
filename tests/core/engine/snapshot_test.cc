#include "core/engine/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/engine/snapshot_format.h"
#include "memory/checksum.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Bytes = std::vector<std::byte>;

constexpr uint64_t kBlockBytes = 24;

// The bytes of block `index`.
Bytes Block(size_t group, uint64_t index) {
  Bytes bytes(kBlockBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(group * 101 + index * 31 + i * 7 + 1);
  }
  return bytes;
}

SessionSnapshot MakeSnapshot(size_t num_tokens, uint64_t num_kv_tokens,
                             uint64_t first_kv_block = 0) {
  SessionSnapshot snapshot;
  snapshot.log.resize(num_tokens);
  std::iota(snapshot.log.begin(), snapshot.log.end(), 100);
  snapshot.is_long = true;
  snapshot.seed = 0x0123456789abcdefu;
  snapshot.num_draws = 77;
  snapshot.generation_begin = num_tokens / 2;
  snapshot.model = {0x1111222233334444u, 0x5555666677778888u};
  snapshot.vocabulary = 0x99;
  snapshot.kv = {DType::kF16, 4, kBlockBytes, 0xabcdef};
  snapshot.num_kv_tokens = num_kv_tokens;
  snapshot.first_kv_block = first_kv_block;
  return snapshot;
}

SnapshotTarget TargetOf(const SessionSnapshot& snapshot) {
  SnapshotTarget target;
  target.model = snapshot.model;
  target.vocabulary = snapshot.vocabulary;
  target.vocab_size = 1 << 20;
  target.max_tokens = 1 << 20;
  target.kv = snapshot.kv;
  return target;
}

Bytes Encode(const SessionSnapshot& snapshot) {
  Bytes encoded;
  Bytes block;
  const absl::Status status = EncodeSnapshot(
      snapshot,
      [&](size_t group,
          uint64_t index) -> absl::StatusOr<absl::Span<const std::byte>> {
        block = Block(group, index);
        return absl::MakeConstSpan(block);
      },
      [&](absl::Span<const std::byte> piece) {
        encoded.insert(encoded.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(encoded.size(), EncodedSnapshotBytes(snapshot));
  return encoded;
}

// Everything but KV is as saved, and what is usable of KV is a prefix of it.
::testing::AssertionResult IsTrue(const RestoredSession& restored,
                                  const SessionSnapshot& saved) {
  const SessionSnapshot& got = restored.snapshot;
  if (got.log != saved.log || got.is_long != saved.is_long ||
      got.seed != saved.seed || got.num_draws != saved.num_draws ||
      got.generation_begin != saved.generation_begin ||
      got.model != saved.model || got.vocabulary != saved.vocabulary ||
      got.kv != saved.kv || got.num_kv_tokens != saved.num_kv_tokens ||
      got.first_kv_block != saved.first_kv_block ||
      got.other_groups != saved.other_groups) {
    return ::testing::AssertionFailure() << "log or fields differ";
  }
  if (restored.usable_kv_tokens > saved.num_kv_tokens) {
    return ::testing::AssertionFailure() << "more KV than was saved";
  }
  if (restored.kv_note.empty() !=
      (restored.usable_kv_tokens == saved.num_kv_tokens)) {
    return ::testing::AssertionFailure() << "note: " << restored.kv_note;
  }
  for (size_t g = 0; g < saved.num_groups(); ++g) {
    const SessionSnapshot::Group group = saved.group(g);
    for (uint64_t i = group.first_block;
         i * static_cast<uint64_t>(group.block_size) <
         restored.usable_kv_tokens;
         ++i) {
      if (restored.KvBlock(g, i) != absl::MakeConstSpan(Block(g, i))) {
        return ::testing::AssertionFailure()
               << "block " << i << " of group " << g << " differs";
      }
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(SnapshotTest, RoundTrips) {
  for (const size_t tokens : {0, 1, 3, 4, 5, 8, 100}) {
    for (uint64_t kv_tokens = 0; kv_tokens <= tokens; ++kv_tokens) {
      const SessionSnapshot saved = MakeSnapshot(tokens, kv_tokens);
      const Bytes encoded = Encode(saved);
      const auto restored = DecodeSnapshot(encoded, TargetOf(saved));
      ASSERT_TRUE(restored.ok()) << restored.status();
      EXPECT_TRUE(IsTrue(*restored, saved));
      EXPECT_EQ(restored->usable_kv_tokens, kv_tokens);
    }
  }
}

TEST(SnapshotTest, TheFormatIsPinned) {
  SessionSnapshot saved = MakeSnapshot(2, 1);
  const Bytes encoded = Encode(saved);
  // Version 1 must stay readable: a change of this number is a new version.
  EXPECT_EQ(encoded.size(), 2u * (136 + 8) + 28 + 20);
  EXPECT_EQ(Hash64(encoded), 0x7686e1d6f6871444u);
}

// Any one damaged byte leaves the whole log and KV up to the damage.
TEST(SnapshotTest, AnyOneDamagedByte) {
  const SessionSnapshot saved = MakeSnapshot(9, 9);
  const SnapshotTarget target = TargetOf(saved);
  Bytes encoded = Encode(saved);
  const size_t record = snapshot_format::kFixedRecordBytes + 4 * 9;
  for (size_t at = 0; at < encoded.size(); ++at) {
    const std::byte good = encoded[at];
    uint64_t want = 9;
    if (at >= record && at < encoded.size() - record - 20) {
      want = (at - record) / (kBlockBytes + 4) * 4;
    }
    for (int flip = 1; flip < 256; ++flip) {
      encoded[at] = good ^ static_cast<std::byte>(flip);
      const auto restored = DecodeSnapshot(encoded, target);
      ASSERT_TRUE(restored.ok()) << at << ": " << restored.status();
      ASSERT_TRUE(IsTrue(*restored, saved)) << at;
      ASSERT_EQ(restored->usable_kv_tokens, want) << at;
    }
    encoded[at] = good;
  }
}

TEST(SnapshotTest, CutAnywhere) {
  const SessionSnapshot saved = MakeSnapshot(9, 9);
  const Bytes encoded = Encode(saved);
  const size_t record = snapshot_format::kFixedRecordBytes + 4 * 9;
  for (size_t size = 0; size < encoded.size(); ++size) {
    // On its own in memory, so that a sanitizer sees a read past the cut.
    const Bytes cut(encoded.begin(), encoded.begin() + static_cast<long>(size));
    const auto restored = DecodeSnapshot(cut, TargetOf(saved));
    if (size < record) {
      EXPECT_EQ(
          restored.status().code(),
          size < 8 ? absl::StatusCode::kInvalidArgument : IoError("").code());
      continue;
    }
    ASSERT_TRUE(restored.ok()) << size << ": " << restored.status();
    EXPECT_TRUE(IsTrue(*restored, saved)) << size;
    const uint64_t blocks =
        std::min<uint64_t>((size - record) / (kBlockBytes + 4), 3);
    EXPECT_EQ(restored->usable_kv_tokens, std::min<uint64_t>(9, blocks * 4));
  }
}

TEST(SnapshotTest, CutAtTheFrontOrPadded) {
  const SessionSnapshot saved = MakeSnapshot(9, 9);
  const Bytes encoded = Encode(saved);
  for (size_t cut = 1; cut < encoded.size(); ++cut) {
    const Bytes rest(encoded.begin() + static_cast<long>(cut), encoded.end());
    const auto restored = DecodeSnapshot(rest, TargetOf(saved));
    if (restored.ok()) {
      EXPECT_TRUE(IsTrue(*restored, saved)) << cut;
    }
  }
  for (size_t extra = 1; extra < 300; ++extra) {
    Bytes padded = encoded;
    padded.resize(encoded.size() + extra, std::byte{0x5a});
    const auto restored = DecodeSnapshot(padded, TargetOf(saved));
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_TRUE(IsTrue(*restored, saved));
    EXPECT_EQ(restored->usable_kv_tokens, 9u);
  }
}

TEST(SnapshotTest, TwoDamagedBytes) {
  const SessionSnapshot saved = MakeSnapshot(5, 5);
  Bytes encoded = Encode(saved);
  const size_t record = snapshot_format::kFixedRecordBytes + 4 * 5;
  int num_errors = 0;
  for (size_t a = 0; a < encoded.size(); ++a) {
    for (size_t b = a + 1; b < encoded.size(); ++b) {
      encoded[a] ^= std::byte{0x41};
      encoded[b] ^= std::byte{0x80};
      const auto restored = DecodeSnapshot(encoded, TargetOf(saved));
      if (restored.ok()) {
        ASSERT_TRUE(IsTrue(*restored, saved)) << a << " " << b;
      } else {
        ++num_errors;
        ASSERT_TRUE(a < record && b >= encoded.size() - record - 20);
      }
      encoded[a] ^= std::byte{0x41};
      encoded[b] ^= std::byte{0x80};
    }
  }
  EXPECT_GT(num_errors, 0);
}

TEST(SnapshotTest, BlocksCountOnlyInTheirPlace) {
  const SessionSnapshot saved = MakeSnapshot(12, 12);
  const Bytes encoded = Encode(saved);
  const size_t record = snapshot_format::kFixedRecordBytes + 4 * 12;
  const size_t stride = kBlockBytes + 4;
  Bytes swapped = encoded;
  std::swap_ranges(swapped.begin() + static_cast<long>(record + stride),
                   swapped.begin() + static_cast<long>(record + 2 * stride),
                   swapped.begin() + static_cast<long>(record + 2 * stride));
  auto restored = DecodeSnapshot(swapped, TargetOf(saved));
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored->usable_kv_tokens, 4u);
  // Blocks of another session.
  SessionSnapshot other = saved;
  other.log[0] = 1;
  Bytes spliced = Encode(other);
  std::copy(encoded.begin() + static_cast<long>(record),
            encoded.begin() + static_cast<long>(record + 3 * stride),
            spliced.begin() + static_cast<long>(record));
  restored = DecodeSnapshot(spliced, TargetOf(saved));
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored->snapshot.log, other.log);
  EXPECT_EQ(restored->usable_kv_tokens, 0u);
}

TEST(SnapshotTest, SaysWhyKvIsNotUsed) {
  const SessionSnapshot saved = MakeSnapshot(9, 9);
  const Bytes encoded = Encode(saved);
  const auto expect = [&](const SnapshotTarget& target, const char* why) {
    const auto restored = DecodeSnapshot(encoded, target);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_TRUE(IsTrue(*restored, saved));
    EXPECT_EQ(restored->usable_kv_tokens, 0u);
    EXPECT_THAT(restored->kv_note, HasSubstr(why));
  };
  SnapshotTarget target = TargetOf(saved);
  target.model.low ^= 1;
  expect(target, "another model");
  target = TargetOf(saved);
  target.kv.dtype = DType::kF32;
  expect(target, "stored as format 1, this model's as f32");
  target = TargetOf(saved);
  target.kv.block_size = 8;
  expect(target, "blocks of 4 tokens, this model's of 8");
  target = TargetOf(saved);
  target.kv.layout_hash ^= 1;
  expect(target, "lies differently");
  target = TargetOf(saved);
  target.kv.block_bytes += 1;
  expect(target, "lies differently");

  Bytes damaged = encoded;
  damaged[snapshot_format::kFixedRecordBytes + 36 + kBlockBytes + 4] ^=
      std::byte{1};
  const auto restored = DecodeSnapshot(damaged, TargetOf(saved));
  ASSERT_TRUE(restored.ok());
  EXPECT_THAT(restored->kv_note,
              HasSubstr("4 of the snapshot's 9 cached tokens are used: block 1 "
                        "of its KV is damaged or missing (it has 0 to 2)"));
}

TEST(SnapshotTest, Windows) {
  // Blocks of 4; block 0 and 1 were dropped: KV of tokens 8 to 16.
  const SessionSnapshot saved = MakeSnapshot(20, 17, 2);
  const Bytes encoded = Encode(saved);
  const size_t record = snapshot_format::kFixedRecordBytes + 4 * 20;
  for (int64_t window = 0; window <= 20; ++window) {
    SnapshotTarget target = TargetOf(saved);
    target.groups[0].window = window;
    const auto restored = DecodeSnapshot(encoded, target);
    ASSERT_TRUE(restored.ok());
    EXPECT_TRUE(IsTrue(*restored, saved));
    // Token 17 reads (17 - window, 17].
    const bool fits = window >= 1 && window <= 10;
    EXPECT_EQ(restored->usable_kv_tokens, fits ? 17u : 0u) << window;
    // With the last block gone, token 16 is next.
    Bytes damaged = encoded;
    damaged[record + 2 * (kBlockBytes + 4)] ^= std::byte{1};
    const auto shorter = DecodeSnapshot(damaged, target);
    ASSERT_TRUE(shorter.ok());
    EXPECT_EQ(shorter->usable_kv_tokens, window >= 1 && window <= 9 ? 16u : 0u)
        << window;
  }
}

TEST(SnapshotTest, RefusesAnotherVocabularyAndLogsThatDoNotFit) {
  const SessionSnapshot saved = MakeSnapshot(9, 9);
  const Bytes encoded = Encode(saved);
  const auto expect = [&](const SnapshotTarget& target, const char* why) {
    const absl::Status status = DecodeSnapshot(encoded, target).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  SnapshotTarget target = TargetOf(saved);
  target.vocabulary = 0;
  expect(target, "another vocabulary");
  target = TargetOf(saved);
  target.vocab_size = 108;
  expect(target, "token 8 of the snapshot is 108, allowed: 0 to 107");
  target = TargetOf(saved);
  target.max_tokens = 8;
  expect(target, "has 9 tokens, allowed: at most 8");
}

TEST(SnapshotTest, NoSnapshotAtAll) {
  for (const size_t size : {0, 1, 7, 8, 20, 24, 136, 1000}) {
    for (const int fill : {0, 0x89, 0xff}) {
      const Bytes bytes(size, static_cast<std::byte>(fill));
      EXPECT_EQ(
          DecodeSnapshot(bytes, TargetOf(MakeSnapshot(1, 1))).status().code(),
          absl::StatusCode::kInvalidArgument);
    }
  }
}

// A snapshot of `fields`, however wrong, with checksums that hold.
Bytes Forge(const SessionSnapshot& fields) {
  Bytes bytes = snapshot_format::MakeRecord(fields);
  bytes.resize(bytes.size() + 64);
  return bytes;
}

TEST(SnapshotTest, NewerVersions) {
  const SessionSnapshot saved = MakeSnapshot(3, 3);
  Bytes encoded = Encode(saved);
  StoreLittleEndian<uint32_t>(3, encoded.data() + 16);
  // As one damaged byte it counts for nothing ...
  EXPECT_TRUE(DecodeSnapshot(encoded, TargetOf(saved)).ok());
  // ... but as what the checksum confirms.
  StoreLittleEndian<uint32_t>(
      Crc32c(absl::MakeConstSpan(encoded).subspan(0, 20)), encoded.data() + 20);
  const absl::Status status = DecodeSnapshot(encoded, TargetOf(saved)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 3"));
}

TEST(SnapshotTest, FieldsThatLie) {
  const SessionSnapshot good = MakeSnapshot(9, 9);
  std::vector<SessionSnapshot> forged(8, good);
  forged[0].num_kv_tokens = 10;
  forged[1].generation_begin = 10;
  forged[2].kv.block_size = 0;
  forged[3].kv.block_size = -4;
  forged[4].kv.block_size = INT32_MAX;
  forged[5].kv.block_bytes = UINT64_MAX - 3;
  forged[6].first_kv_block = 3;
  forged[7].num_kv_tokens = UINT64_MAX;
  for (const SessionSnapshot& snapshot : forged) {
    const auto restored = DecodeSnapshot(Forge(snapshot), TargetOf(snapshot));
    EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(restored.status().message()),
                HasSubstr("the snapshot says"));
    int num_pieces = 0;
    const absl::Status status = EncodeSnapshot(
        snapshot,
        [](size_t, uint64_t) -> absl::StatusOr<absl::Span<const std::byte>> {
          return absl::Span<const std::byte>();
        },
        [&](absl::Span<const std::byte>) {
          ++num_pieces;
          return absl::OkStatus();
        });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(num_pieces, 0);
  }
  // Large claims, true to each other, take no memory.
  SessionSnapshot large = good;
  large.kv.block_bytes = uint64_t{1} << 40;
  const auto restored = DecodeSnapshot(Forge(large), TargetOf(large));
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->usable_kv_tokens, 0u);
  // A record that says it is longer than the data, or shorter than any.
  for (const uint64_t claim : {uint64_t{0}, uint64_t{135}, UINT64_MAX}) {
    Bytes bytes = Forge(good);
    StoreLittleEndian(claim, bytes.data() + 8);
    StoreLittleEndian(Crc32c(absl::MakeConstSpan(bytes).subspan(0, 20)),
                      bytes.data() + 20);
    EXPECT_FALSE(DecodeSnapshot(bytes, TargetOf(good)).ok());
    Bytes trailer = snapshot_format::MakeTrailer(claim);
    trailer.insert(trailer.begin(), 200, std::byte{});
    EXPECT_FALSE(DecodeSnapshot(trailer, TargetOf(good)).ok());
  }
}

TEST(SnapshotTest, ErrorsOfSourceAndSinkEndIt) {
  const SessionSnapshot saved = MakeSnapshot(12, 12);
  const Bytes block = Block(0, 0);
  for (int fail_at = 0; fail_at < 20; ++fail_at) {
    int calls = 0;
    const auto fails = [&] { return calls++ == fail_at; };
    const absl::Status status = EncodeSnapshot(
        saved,
        [&](size_t, uint64_t) -> absl::StatusOr<absl::Span<const std::byte>> {
          if (fails()) return absl::AbortedError("source");
          return absl::MakeConstSpan(block);
        },
        [&](absl::Span<const std::byte>) {
          return fails() ? absl::AbortedError("sink") : absl::OkStatus();
        });
    // 2 records, 3 blocks in 3 calls each, a trailer.
    EXPECT_EQ(status.ok(), fail_at >= 12);
    if (!status.ok()) {
      EXPECT_EQ(calls, fail_at + 1);
    }
  }
  const absl::Status status = EncodeSnapshot(
      saved,
      [&](size_t, uint64_t) -> absl::StatusOr<absl::Span<const std::byte>> {
        return absl::MakeConstSpan(block).subspan(1);
      },
      [](absl::Span<const std::byte>) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("block 0 has 23 bytes, allowed: 24"));
}

// Of a model with two groups: blocks of 4 and of 12 tokens.
SessionSnapshot MakeGrouped(uint64_t num_kv_tokens, uint64_t first_block) {
  SessionSnapshot snapshot = MakeSnapshot(40, num_kv_tokens);
  snapshot.kv.block_size = 12;
  snapshot.other_groups = {{4, first_block}};
  return snapshot;
}

SnapshotTarget GroupedTarget(const SessionSnapshot& snapshot, int64_t window) {
  SnapshotTarget target = TargetOf(snapshot);
  target.groups = {{12, 0}, {4, window}};
  return target;
}

TEST(SnapshotTest, GroupsRoundTrip) {
  for (uint64_t kv_tokens = 0; kv_tokens <= 40; ++kv_tokens) {
    const uint64_t first = kv_tokens < 8 ? 0 : (kv_tokens - 7) / 4;
    const SessionSnapshot saved = MakeGrouped(kv_tokens, first);
    const Bytes encoded = Encode(saved);
    const auto restored = DecodeSnapshot(encoded, GroupedTarget(saved, 8));
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_TRUE(IsTrue(*restored, saved));
    EXPECT_EQ(restored->usable_kv_tokens, kv_tokens);
  }
}

TEST(SnapshotTest, GroupsThatDoNotFitGiveTheLogAlone) {
  const SessionSnapshot saved = MakeGrouped(30, 5);
  const Bytes encoded = Encode(saved);
  const auto usable = [&](const SnapshotTarget& target) {
    const auto restored = DecodeSnapshot(encoded, target);
    EXPECT_TRUE(restored.ok() && IsTrue(*restored, saved));
    return restored->usable_kv_tokens;
  };
  EXPECT_EQ(usable(GroupedTarget(saved, 11)), 30u);
  EXPECT_EQ(usable(GroupedTarget(saved, 12)), 0u) << "reads token 19 too";
  EXPECT_EQ(usable(GroupedTarget(saved, 0)), 0u);
  EXPECT_EQ(usable(TargetOf(saved)), 0u) << "one group";
  SnapshotTarget other = GroupedTarget(saved, 11);
  other.groups[1].block_size = 8;
  EXPECT_EQ(usable(other), 0u);
  // Whatever is damaged, all of the log comes back, and all KV or none.
  for (size_t i = 0; i < encoded.size(); ++i) {
    Bytes damaged = encoded;
    damaged[i] ^= std::byte{4};
    const auto restored = DecodeSnapshot(damaged, GroupedTarget(saved, 11));
    ASSERT_TRUE(restored.ok()) << restored.status();
    ASSERT_TRUE(IsTrue(*restored, saved)) << "byte " << i;
    ASSERT_TRUE(restored->usable_kv_tokens == 0 ||
                restored->usable_kv_tokens == 30);
  }
  // Fields that lie.
  for (const SessionSnapshot::Group group :
       {SessionSnapshot::Group{0, 0}, SessionSnapshot::Group{-1, 0},
        SessionSnapshot::Group{4, 8}, SessionSnapshot::Group{4, UINT64_MAX}}) {
    SessionSnapshot forged = saved;
    forged.other_groups = {group};
    EXPECT_EQ(
        DecodeSnapshot(Forge(forged), GroupedTarget(saved, 11)).status().code(),
        absl::StatusCode::kInvalidArgument);
  }
  SessionSnapshot many = saved;
  many.other_groups.assign(kMaxKvGroups, {4, 5});
  EXPECT_FALSE(DecodeSnapshot(Forge(many), GroupedTarget(saved, 11)).ok());
}

// One group, and two of which the second has padding; every format.
TEST(SnapshotTest, CopiesTheRowsUsedAlone) {
  for (const DType dtype : {DType::kF16, DType::kI8, DType::kKvQ4}) {
    for (const int64_t window : {0, 9}) {
      const KvLayout layout({{2, 8}, {1, 17, window}, {1, 24, 0, 16}, {3, 8}},
                            dtype, 4);
      for (size_t group = 0; group < layout.num_groups(); ++group) {
        const int size = layout.groups()[group].block_size;
        for (int used = 0; used <= size; ++used) {
          const Bytes from(layout.block_bytes(), std::byte{0x77});
          Bytes block(layout.block_bytes(), std::byte{0x55});
          CopyUsed(layout, group, used, from, absl::MakeSpan(block));
          Bytes want(layout.block_bytes());
          for (int layer = 0; layer < layout.num_layers(); ++layer) {
            if (layout.group_of(layer) != group) continue;
            const KvLayerView view = layout.LayerView(layer, want.data());
            const size_t bytes = KvRowBytes(dtype, view.head_dim);
            for (int head = 0; head < view.num_kv_heads; ++head) {
              for (int slot = 0; slot < used; ++slot) {
                std::fill_n(view.KeyRow(0, head, slot), bytes, std::byte{0x77});
                std::fill_n(view.ValueRow(0, head, slot), bytes,
                            std::byte{0x77});
              }
            }
          }
          ASSERT_TRUE(block == want) << "group " << group << " used " << used;
        }
      }
    }
  }
  const KvLayout layout({{2, 8}, {1, 16}}, DType::kF16, 4);
  const KvForm form = KvFormOf(layout);
  EXPECT_EQ(form.block_size, 4);
  EXPECT_EQ(form.block_bytes, layout.block_bytes());
}

}  // namespace
}  // namespace inlay
