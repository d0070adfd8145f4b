/* Stands for a libinlay.so of an earlier ABI. */
#include <stdint.h>

uint32_t inlay_abi_version(void);
uint32_t inlay_abi_version(void) { return 1; }
