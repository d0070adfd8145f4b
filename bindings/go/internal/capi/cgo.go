// Package capi is inlay.h in Go. capi.go and capi_wrap.c are made by SWIG from bindings/inlay.i and ../../typemaps.i (see
// generate.sh); the other files hold what SWIG has no words for: memory for option structs, events in bulk, callbacks.
//
// Handles are numbers here. Package inlay gives them owners.
package capi

// #cgo pkg-config: inlay
import "C"
