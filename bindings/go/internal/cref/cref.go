// Package cref is what the tests compare with: the same work in plain C over inlay.h, with nothing of SWIG in it.
package cref

/*
#cgo pkg-config: inlay
#include "cref.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"time"
	"unsafe"
)

// Generated is what a generation gave.
type Generated struct {
	Tokens []int32
	Text   string
}

// Generate runs one greedy request on a host-driven engine of its own: input is a text, or a chat's JSON.
func Generate(model, input string, chat bool, maxTokens int) (*Generated, error) {
	path, text := C.CString(model), C.CString(input)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(text))
	tokens := make([]int32, maxTokens)
	out := make([]byte, 64*maxTokens+1)
	isChat := C.int(0)
	if chat {
		isChat = 1
	}
	var length C.size_t
	n := C.cref_generate(path, text, isChat, C.int32_t(maxTokens), (*C.int32_t)(unsafe.Pointer(&tokens[0])),
		(*C.char)(unsafe.Pointer(&out[0])), C.size_t(len(out)), &length)
	if n < 0 {
		return nil, errors.New("cref_generate failed")
	}
	return &Generated{tokens[:n], string(out[:length])}, nil
}

// Embed gives one text's vector, from a host-driven engine of its own.
func Embed(model, input string, embedding int32, normalise bool) ([]float32, error) {
	path, text := C.CString(model), C.CString(input)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(text))
	vector := make([]float32, 8192)
	scale := C.uint32_t(0)
	if normalise {
		scale = 1
	}
	n := C.cref_embed(path, text, C.int32_t(embedding), scale, (*C.float)(unsafe.Pointer(&vector[0])), C.size_t(len(vector)))
	if n < 0 {
		return nil, errors.New("cref_embed failed")
	}
	return vector[:n], nil
}

// CPUTime is what the process has computed, on all cores: unlike the time, it hardly tells what else the machine does.
func CPUTime() time.Duration { return time.Duration(C.cref_cpu_time()) }

// Time is the clock that Steps reads.
func Time() time.Duration { return time.Duration(C.cref_time()) }

// Stream generates that many tokens on an engine with a thread, and reads them as they come: the CPU time from submit to the end.
func Stream(model string, prompt int32, maxTokens int) (time.Duration, error) {
	path := C.CString(model)
	defer C.free(unsafe.Pointer(path))
	took := C.cref_stream(path, C.int32_t(prompt), C.int32_t(maxTokens))
	if took < 0 {
		return 0, errors.New("cref_stream failed")
	}
	return time.Duration(took), nil
}

// Steps does the same on an engine that it steps itself. For each step, the time of stepping and taking the event, less what the
// library says the step took.
func Steps(model string, prompt int32, maxTokens int) ([]time.Duration, error) {
	path := C.CString(model)
	defer C.free(unsafe.Pointer(path))
	steps := make([]time.Duration, maxTokens)
	n := C.cref_steps(path, C.int32_t(prompt), C.int32_t(maxTokens), (*C.int64_t)(unsafe.Pointer(&steps[0])))
	if n < 0 {
		return nil, errors.New("cref_steps failed")
	}
	return steps[:n], nil
}

// Allocated is what C has allocated in this process and not freed.
func Allocated() int64 { return int64(C.cref_allocated()) }
