package capi

// #include "glue.h"
import "C"

import (
	"sync"
	"sync/atomic"
)

// Go functions that C may call, by number: `user` of their callback. A number that is not there any more is ignored, so a
// callback that comes late does no harm.
var (
	functions    sync.Map // uintptr -> func(int32, string) or func(int32, float32) bool
	lastFunction atomic.Uintptr
)

// Callback keeps a Go function for C until Release.
type Callback struct {
	Function uintptr // for the option struct
	User     uintptr
}

func register(function uintptr, f any) Callback {
	c := Callback{Function: function, User: lastFunction.Add(1)}
	functions.Store(c.User, f)
	return c
}

// Release forgets the function. The zero Callback has none.
func (c Callback) Release() { functions.Delete(c.User) }

// LogCallback is an inlay_log_callback.
func LogCallback(f func(level int32, message string)) Callback {
	return register(uintptr(C.inlay_go_log()), f)
}

// ProgressCallback is an inlay_progress_callback: false cancels, and so does a panic.
func ProgressCallback(f func(stage int32, fraction float32) bool) Callback {
	return register(uintptr(C.inlay_go_progress()), f)
}

// guarded runs f to its end, its panic or its Goexit, none of which may unwind the library's frames below: so a goroutine of
// its own. What callbacks serve, logs and progress, is rare enough for that.
func guarded(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

//export inlayGoLog
func inlayGoLog(user C.uintptr_t, level C.int32_t, message *C.char) {
	f, ok := functions.Load(uintptr(user))
	if !ok {
		return
	}
	text := C.GoString(message)
	guarded(func() { f.(func(int32, string))(int32(level), text) })
}

//export inlayGoProgress
func inlayGoProgress(user C.uintptr_t, stage C.int32_t, fraction C.float) C.int32_t {
	f, ok := functions.Load(uintptr(user))
	if !ok {
		return 1
	}
	result := C.int32_t(1)
	guarded(func() {
		if f.(func(int32, float32) bool)(int32(stage), float32(fraction)) {
			result = 0
		}
	})
	return result
}
