/* A libinlay of an older ABI, as far as the binding comes with it. */
#include <stdint.h>

const char* inlay_version(void) { return "0.0.9"; }
uint32_t inlay_abi_version(void) { return 1; }
