// Any bytes as what llama.cpp's imatrix measured, in both forms of such files:
// no crash, and of what is accepted every number is a mean square.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/formats/imatrix.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

void CheckEntries(const inlay::Imatrix& imatrix, size_t size) {
  size_t values = 0;
  for (const auto& [name, squares] : imatrix) {
    Require(!squares.empty());
    for (const float square : squares) {
      Require(std::isfinite(square) && square >= 0.0f);
    }
    values += squares.size();
  }
  Require(values <= size / sizeof(float));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto old =
      inlay::ParseOldImatrix({reinterpret_cast<const std::byte*>(data), size});
  if (old.ok()) CheckEntries(*old, size);
  // A file without a folder. The process has one all its life.
  static const int file = memfd_create("fuzz_imatrix", 0);
  Require(file >= 0 && ftruncate(file, 0) == 0 &&
          pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  const auto imatrix =
      inlay::ReadImatrix("/proc/self/fd/" + std::to_string(file));
  if (imatrix.ok()) CheckEntries(*imatrix, size);
  return 0;
}
