// The sizes that structs had in the first version that brought them: what hosts
// built then still pass.
#ifndef INLAY_TESTS_API_ABI_SIZES_H_
#define INLAY_TESTS_API_ABI_SIZES_H_

#include <inlay/inlay.h>

#include <cstddef>

namespace inlay::testing {

template <typename T>
inline constexpr size_t kFirstSize =
    0;  // every struct of the header has its own

#define INLAY_ABI_ENUM(name, value)
#define INLAY_ABI_FUNCTION(name)
#define INLAY_ABI_STRUCT(name, bytes) \
  template <>                         \
  inline constexpr size_t kFirstSize<name> = bytes;
#define INLAY_ABI_GROWN(name, bytes)
#define INLAY_ABI_FIELD(type, field, offset, bytes)
#include "tests/api/abi_1.def"
#include "tests/api/abi_2.def"
#include "tests/api/abi_3.def"
#include "tests/api/abi_4.def"
#include "tests/api/abi_5.def"
#include "tests/api/abi_6.def"
#include "tests/api/abi_7.def"
#include "tests/api/abi_8.def"
#include "tests/api/abi_9.def"
#include "tests/api/abi_10.def"
#include "tests/api/abi_11.def"
#include "tests/api/abi_12.def"
#include "tests/api/abi_13.def"
#undef INLAY_ABI_ENUM
#undef INLAY_ABI_FUNCTION
#undef INLAY_ABI_STRUCT
#undef INLAY_ABI_GROWN
#undef INLAY_ABI_FIELD

}  // namespace inlay::testing

#endif  // INLAY_TESTS_API_ABI_SIZES_H_
