/* How inlay.h looks from Go: internal/capi. Source: the SWIG 4.1 manual, chapter 25, and lib/go/go.swg. */

/* -intgosize tells SWIG that int is 64 bits, so that an int32_t* would cross as *int: of the wrong width. */
%define INLAY_GO_INTEGER(TYPE, GO)
%typemap(gotype) TYPE, const TYPE & "GO"
%typemap(gotype) TYPE*, const TYPE* "*GO"
%typemap(in) TYPE*, const TYPE* %{ $1 = ($1_ltype)$input; %}
%enddef
INLAY_GO_INTEGER(int32_t, int32)
INLAY_GO_INTEGER(uint32_t, uint32)
INLAY_GO_INTEGER(int64_t, int64)
INLAY_GO_INTEGER(uint64_t, uint64)
INLAY_GO_INTEGER(size_t, int)
%apply int32_t { inlay_status };

/* A number that only C may follow. Go's collector ends the process when it meets a small number in a pointer, and handles are
 * small numbers. Nothing is freed: SWIG would free a char* after it has stored it. */
%define INLAY_GO_NUMBER(TYPE)
%typemap(gotype) TYPE "uintptr"
%typemap(in) TYPE %{ $1 = ($1_ltype)$input; %}
%typemap(freearg) TYPE ""
%typemap(memberin) TYPE %{ $1 = (void*)$input; %}
%typemap(out) TYPE %{ $result = ($1_ltype)$1; %}
%typemap(goin) TYPE ""
%typemap(goout) TYPE ""
%enddef

%define INLAY_GO_HANDLE(TYPE)
INLAY_GO_NUMBER(TYPE*)
INLAY_GO_NUMBER(const TYPE*)
%typemap(gotype) TYPE** "*uintptr"
%typemap(in) TYPE** %{ $1 = ($1_ltype)$input; %}
%enddef
INLAY_GO_HANDLE(inlay_engine)
INLAY_GO_HANDLE(inlay_model)
INLAY_GO_HANDLE(inlay_session)
INLAY_GO_HANDLE(inlay_request)
INLAY_GO_HANDLE(inlay_prefix)
INLAY_GO_HANDLE(inlay_event)
INLAY_GO_HANDLE(inlay_buffer)
INLAY_GO_HANDLE(inlay_error)

/* Arguments that are read or filled during the call: Go's own memory, which has no pointers in it. */
%apply (char *STRING, size_t LENGTH) { (const char* text, size_t text_bytes), (const char* json, size_t json_bytes) };
%define INLAY_GO_SLICE(ELEMENT, GO, POINTER, COUNT)
%typemap(gotype) (ELEMENT POINTER, size_t COUNT) "[]GO"
%typemap(in) (ELEMENT POINTER, size_t COUNT) %{ $1 = ($1_ltype)$input.array; $2 = (size_t)$input.len; %}
%enddef
INLAY_GO_SLICE(const int32_t*, int32, tokens, num_tokens)
INLAY_GO_SLICE(int32_t*, int32, tokens, capacity)
INLAY_GO_SLICE(const void*, byte, data, bytes)

/* Fields that point somewhere: to memory that Go has allocated by capi.Memory, for the time of one call. */
INLAY_GO_NUMBER(const char* text)
INLAY_GO_NUMBER(const char* text_pair)
INLAY_GO_NUMBER(const char* chat)
INLAY_GO_NUMBER(const char* kernels)
INLAY_GO_NUMBER(const char* disk_cache_folder)
INLAY_GO_NUMBER(const char* imatrix_path)
INLAY_GO_NUMBER(const char* attention_pattern)
INLAY_GO_NUMBER(const char* type)
INLAY_GO_NUMBER(const char* const*)
INLAY_GO_NUMBER(const int32_t* tokens)
INLAY_GO_NUMBER(const int32_t* token_types)
INLAY_GO_NUMBER(const int32_t* stop_tokens)
INLAY_GO_NUMBER(const int64_t* logits_positions)
INLAY_GO_NUMBER(const inlay_logit_bias*)
INLAY_GO_NUMBER(void*)
INLAY_GO_NUMBER(inlay_log_callback)
INLAY_GO_NUMBER(inlay_progress_callback)
INLAY_GO_NUMBER(inlay_allocate_callback)
INLAY_GO_NUMBER(inlay_deallocate_callback)
/* Bytes, which may hold NUL; capi.TakeBuffer copies them. */
INLAY_GO_NUMBER(const char* inlay_buffer_data)

/* These come for each token: events.go reads their fields in place, without a call for each. */
%ignore inlay_event_info;
%ignore inlay_event_info_init;
%ignore inlay_event_info_init_sized;
%ignore inlay_event_get_info;
%ignore inlay_event_next;
%ignore inlay_step_info;
%ignore inlay_step_info_init_sized;
%ignore inlay_engine_step;
%ignore inlay_logit_bias;
%ignore inlay_token_logprob;
/* The macros of these names, and the functions behind them that serve old callers; _init_sized is called instead. */
%ignore inlay_engine_options_init;
%ignore inlay_step_info_init;
%ignore inlay_stats_init;
%ignore inlay_model_options_init;
%ignore inlay_model_info_init;
%ignore inlay_quantize_options_init;
%ignore inlay_request_options_init;
/* A keyword. */
%rename(Type_name) inlay_quantize_options::type;
