// Integers as files store them: little endian, at any address. Knows nothing of
// what they mean.
#ifndef INLAY_MEMORY_LITTLE_ENDIAN_H_
#define INLAY_MEMORY_LITTLE_ENDIAN_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace inlay {

static_assert(std::endian::native == std::endian::little,
              "files are read and written without swapping bytes");

// `data` has sizeof(T) readable bytes.
template <typename T>
T LoadLittleEndian(const std::byte* data) {
  static_assert(std::is_integral_v<T>);
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// `data` has sizeof(T) writable bytes.
template <typename T>
void StoreLittleEndian(T value, std::byte* data) {
  static_assert(std::is_integral_v<T>);
  std::memcpy(data, &value, sizeof(T));
}

}  // namespace inlay

#endif  // INLAY_MEMORY_LITTLE_ENDIAN_H_
