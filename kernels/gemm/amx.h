// Tiles of AMX, the matrix unit of x86-64 servers: whether this process may use
// them, and their shapes. Source: Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 1, chapter 18.
//
// A tile is up to 16 rows of 64 bytes. A product adds a (rows of one matrix,
// elements of k one after another) times b (elements of k downwards, those that
// fill 4 bytes side by side, rows of the other matrix to the right) to c.
#ifndef INLAY_KERNELS_GEMM_AMX_H_
#define INLAY_KERNELS_GEMM_AMX_H_

#include <cstdint>

namespace inlay::amx {

enum class Products : uint8_t { kBF16, kI8 };

// Null where this process may run `products`; otherwise why not, as a phrase.
// The first call asks the system for the tiles' state, for the whole process:
// from then on signal stacks must have room for it (sysconf(_SC_MINSIGSTKSZ),
// which counts it in any case).
const char* Refuses(Products products);

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  // of a row

// What LDTILECFG takes: palette 1, eight tiles.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int num_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

// GCC 12 believes that LDTILECFG reads 8 bytes and that loads of tiles read
// nothing: what they read at `data` must be written by here.
inline void Written(const void* data) {
  asm volatile("" : : "r"(data) : "memory");
}

}  // namespace inlay::amx

#endif  // INLAY_KERNELS_GEMM_AMX_H_
