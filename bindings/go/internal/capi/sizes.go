package capi

// #include <inlay/inlay.h>
import "C"

// What the _init_sized functions want to know: the structs as this package was compiled.
const (
	SizeofEngineOptions   = C.sizeof_inlay_engine_options
	SizeofStats           = C.sizeof_inlay_stats
	SizeofModelOptions    = C.sizeof_inlay_model_options
	SizeofModelInfo       = C.sizeof_inlay_model_info
	SizeofQuantizeOptions = C.sizeof_inlay_quantize_options
	SizeofRequestOptions  = C.sizeof_inlay_request_options
)
