package capi

/*
#include "glue.h"
#include <stdlib.h>
*/
import "C"

import (
	"sort"
	"unsafe"
)

// Memory holds what the pointers in an option struct point to. Go's own memory may not be stored in C's, not even for one
// call; the library copies what it keeps, so Free comes right after the call.
type Memory struct {
	blocks []unsafe.Pointer
}

func (m *Memory) allocate(bytes int) unsafe.Pointer {
	if bytes == 0 {
		bytes = 1 // an empty text is not the same as none
	}
	block := C.malloc(C.size_t(bytes))
	m.blocks = append(m.blocks, block)
	return block
}

// Free releases everything at once.
func (m *Memory) Free() {
	for _, block := range m.blocks {
		C.free(block)
	}
	m.blocks = nil
}

// String copies s and ends it with a NUL that does not count.
func (m *Memory) String(s string) uintptr {
	block := m.allocate(len(s) + 1)
	bytes := unsafe.Slice((*byte)(block), len(s)+1)
	copy(bytes, s)
	bytes[len(s)] = 0
	return uintptr(block)
}

// Strings copies each string, and makes an array of pointers to them.
func (m *Memory) Strings(list []string) uintptr {
	if len(list) == 0 {
		return 0
	}
	block := m.allocate(len(list) * int(unsafe.Sizeof(uintptr(0))))
	pointers := unsafe.Slice((*uintptr)(block), len(list))
	for i, s := range list {
		pointers[i] = m.String(s)
	}
	return uintptr(block)
}

// Int32s copies a list; 0 for nil, which means none, while an empty list is one.
func (m *Memory) Int32s(list []int32) uintptr {
	if list == nil {
		return 0
	}
	block := m.allocate(4 * len(list))
	copy(unsafe.Slice((*int32)(block), len(list)), list)
	return uintptr(block)
}

// Int64s copies a list; 0 for nil.
func (m *Memory) Int64s(list []int64) uintptr {
	if list == nil {
		return 0
	}
	block := m.allocate(8 * len(list))
	copy(unsafe.Slice((*int64)(block), len(list)), list)
	return uintptr(block)
}

// LogitBias makes an array of inlay_logit_bias, in order of the tokens.
func (m *Memory) LogitBias(bias map[int32]float32) uintptr {
	if len(bias) == 0 {
		return 0
	}
	tokens := make([]int32, 0, len(bias))
	for token := range bias {
		tokens = append(tokens, token)
	}
	sort.Slice(tokens, func(i, j int) bool { return tokens[i] < tokens[j] })
	block := m.allocate(len(bias) * C.sizeof_inlay_logit_bias)
	entries := unsafe.Slice((*C.inlay_logit_bias)(block), len(bias))
	for i, token := range tokens {
		entries[i].token = C.int32_t(token)
		entries[i].bias = C.float(bias[token])
	}
	return uintptr(block)
}

// TakeBuffer copies the buffer's bytes and releases it.
func TakeBuffer(buffer uintptr) []byte {
	defer Inlay_buffer_release(buffer)
	bytes := make([]byte, Inlay_buffer_size(buffer))
	if len(bytes) > 0 {
		C.inlay_go_copy_buffer(C.uintptr_t(buffer), unsafe.Pointer(&bytes[0]), C.size_t(len(bytes)))
	}
	return bytes
}
