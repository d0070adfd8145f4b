// Package inlay runs large language models inside a Go program.
//
// An Engine has the device, its memory and the scheduler that batches every request; a Model is loaded into it; a Session is a
// token log with its KV cache; Submit starts a generation in a session, which a Stream gives piece by piece. Whatever waits
// takes a context.Context.
//
// Everything is closed by whoever made it, in any order. What is forgotten is closed when the collector finds it; that is a net,
// not a plan, for the collector does not see the library's memory. Used after Close, everything gives ErrClosed, and
// ErrInvalidHandle where the two ran at once.
//
// All methods may be called from several goroutines at once, except Scan, Event, Text and Err of one Stream, which belong
// together.
//
// Errors are of type *Error and compare with the Codes: errors.Is(err, inlay.ErrNotFound).
//
// The package needs libinlay and its headers, which cgo finds by pkg-config.
package inlay
