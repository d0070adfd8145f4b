/* How inlay.h crosses to C#. All of it is internal to the assembly; src/ is what a program sees.
 *   handles    SafeHandles: the marshaller holds a reference for as long as a call is in flight, and a closed one throws
 *   pointers   IntPtr: src/ pins arrays for the length of a call and copies results; nothing is allocated here
 *   structs    SWIG's proxies, made by the _init function, without setters for what only the library writes
 * SWIG's helpers that call back for strings and exceptions are off (-DSWIG_CSHARP_NO_..._HELPER): text is bytes, and no C function throws.
 */
%module InlayNative

%pragma(csharp) moduleclassmodifiers="internal static class"
%pragma(csharp) imclassclassmodifiers="internal static class"

/* size_t is SWIG's uint otherwise, which cuts it on 64 bits. */
%apply unsigned long long { size_t };

/* ---- Pointers ---------------------------------------------------------------------------------------------------------- */

%define INLAY_POINTER(TYPE)
%typemap(ctype) TYPE "void*"
%typemap(imtype, out="global::System.IntPtr") TYPE "global::System.IntPtr"
%typemap(cstype) TYPE "global::System.IntPtr"
%typemap(csin) TYPE "$csinput"
%typemap(csout, excode=SWIGEXCODE) TYPE { return $imcall; }
%typemap(csvarin) TYPE %{ set { $imcall; } %}
%typemap(csvarout) TYPE %{ get { return $imcall; } %}
%typemap(in) TYPE %{ $1 = ($1_ltype)$input; %}
%typemap(out) TYPE %{ $result = (void*)$1; %}
%typemap(memberin) TYPE %{ $1 = ($1_ltype)$input; %}
%typemap(freearg) TYPE ""
%typemap(argout) TYPE ""
%enddef

INLAY_POINTER(void*)
INLAY_POINTER(const void*)
INLAY_POINTER(const char*)
INLAY_POINTER(const char* const*)
INLAY_POINTER(int32_t*)
INLAY_POINTER(const int32_t*)
INLAY_POINTER(const int64_t*)
INLAY_POINTER(const float*)
INLAY_POINTER(const inlay_logit_bias*)
INLAY_POINTER(const inlay_token_logprob*)
INLAY_POINTER(inlay_error*)
INLAY_POINTER(const inlay_error*)
INLAY_POINTER(inlay_buffer*)
INLAY_POINTER(const inlay_buffer*)
INLAY_POINTER(inlay_event*)
INLAY_POINTER(const inlay_event*)
INLAY_POINTER(inlay_log_callback)
INLAY_POINTER(inlay_progress_callback)

/* SWIG's own cast loses the second const. */
%typemap(memberin) const char* const* %{ $1 = (const char* const*)$input; %}

/* Text within a struct: where it is. */
%typemap(ctype) char[ANY] "void*"
%typemap(imtype) char[ANY] "global::System.IntPtr"
%typemap(cstype) char[ANY] "global::System.IntPtr"
%typemap(csvarout) char[ANY] %{ get { return $imcall; } %}
%typemap(out) char[ANY] %{ $result = (void*)$1; %}

/* ---- Results by pointer ------------------------------------------------------------------------------------------------ */

%define INLAY_OUT(TYPE, CSTYPE)
%typemap(ctype) TYPE "void*"
%typemap(imtype) TYPE "out CSTYPE"
%typemap(cstype) TYPE "out CSTYPE"
%typemap(csin) TYPE "out $csinput"
%typemap(in) TYPE %{ $1 = ($1_ltype)$input; %}
%typemap(freearg) TYPE ""
%typemap(argout) TYPE ""
%enddef

INLAY_OUT(size_t* num_tokens, ulong)
INLAY_OUT(double* bytes_per_second, double)
INLAY_OUT(inlay_error** error, global::System.IntPtr)
INLAY_OUT(inlay_buffer**, global::System.IntPtr)
INLAY_OUT(inlay_event** event, global::System.IntPtr)

/* ---- Handles ----------------------------------------------------------------------------------------------------------- */

%define INLAY_HANDLE(NAME, CSTYPE)
%typemap(ctype) inlay_##NAME* "void*"
%typemap(imtype) inlay_##NAME* "CSTYPE"
%typemap(cstype) inlay_##NAME* "CSTYPE"
%typemap(csin) inlay_##NAME* "$csinput"
%typemap(in) inlay_##NAME* %{ $1 = ($1_ltype)$input; %}
INLAY_OUT(inlay_##NAME**, CSTYPE)
/* Called by a SafeHandle's own release, when there is only the pointer. */
%ignore inlay_##NAME##_release;
%inline %{
static void release_##NAME(void* handle) { inlay_##NAME##_release((inlay_##NAME*)handle); }
%}
%enddef

INLAY_HANDLE(engine, EngineHandle)
INLAY_HANDLE(model, ModelHandle)
INLAY_HANDLE(session, SessionHandle)
INLAY_HANDLE(prefix, PrefixHandle)
INLAY_HANDLE(request, RequestHandle)

/* ---- Structs ----------------------------------------------------------------------------------------------------------- */

/* Freed by whoever uses it (internal code always does), and by the finalizer otherwise. */
%typemap(csclassmodifiers) SWIGTYPE "internal class"
%typemap(csbody) SWIGTYPE %{
  private global::System.Runtime.InteropServices.HandleRef swigCPtr;
  private bool swigCMemOwn;
  internal $csclassname(global::System.IntPtr pointer, bool own) {
    if (pointer == global::System.IntPtr.Zero) { throw new global::System.OutOfMemoryException(); }
    swigCMemOwn = own;
    swigCPtr = new global::System.Runtime.InteropServices.HandleRef(this, pointer);
  }
  internal static global::System.Runtime.InteropServices.HandleRef getCPtr($csclassname value) {
    return value == null ? new global::System.Runtime.InteropServices.HandleRef(null, global::System.IntPtr.Zero) : value.swigCPtr;
  }
%}

%define INLAY_STRUCT(NAME)
%ignore NAME##_init;
%ignore NAME##_init_sized;
%ignore NAME::struct_size;
%extend NAME {
  NAME() {
    NAME* made = (NAME*)calloc(1, sizeof(NAME));
    if (made != NULL) NAME##_init(made);
    return made;
  }
}
%enddef

INLAY_STRUCT(inlay_engine_options)
INLAY_STRUCT(inlay_device_info)
INLAY_STRUCT(inlay_step_info)
INLAY_STRUCT(inlay_stats)
INLAY_STRUCT(inlay_model_options)
INLAY_STRUCT(inlay_model_info)
INLAY_STRUCT(inlay_quantize_options)
INLAY_STRUCT(inlay_session_info)
INLAY_STRUCT(inlay_restore_info)
INLAY_STRUCT(inlay_prefix_options)
INLAY_STRUCT(inlay_prefix_info)
INLAY_STRUCT(inlay_request_options)
INLAY_STRUCT(inlay_quote)
INLAY_STRUCT(inlay_event_info)

%nodefaultctor inlay_distribution;
%nodefaultdtor inlay_distribution;

%immutable inlay_device_info::name;
%immutable inlay_model_info::architecture;
%immutable inlay_restore_info::note;

/* What a streamed token costs is mostly the calls it takes: one for all that a token event has. `view` is int64_t[11], in the order
 * of Events.cs. */
%inline %{
static inlay_status read_event(const inlay_event* event, inlay_event_info* info, void* view, inlay_error** error) {
  const inlay_status status = inlay_event_get_info(event, info, error);
  if (status == INLAY_OK) {
    const int64_t fields[] = {info->kind, (intptr_t)info->user_data, (intptr_t)info->tokens, (int64_t)info->num_tokens,
      (intptr_t)info->text, (int64_t)info->text_bytes, (intptr_t)info->bytes, (int64_t)info->num_bytes,
      (intptr_t)info->logprobs, (int64_t)info->num_logprobs, (int64_t)info->top_logprobs};
    memcpy(view, fields, sizeof(fields));
  }
  return status;
}
%}

/* ---- What the binding does not use -------------------------------------------------------------------------------------- */

/* To C# these are arrays of plain values (LogitBias, TokenLogprob). */
%ignore inlay_logit_bias;
%ignore inlay_token_logprob;
/* Compared by user_data instead: a second owner of the handle must not come to be. */
%ignore inlay_event_info::request;
%ignore inlay_event_get_info;
/* Managed code is no place for an allocator. */
%ignore inlay_allocate_callback;
%ignore inlay_deallocate_callback;
%ignore inlay_engine_options::allocate;
%ignore inlay_engine_options::deallocate;
%ignore inlay_engine_options::allocator_user;
%ignore inlay_engine_event_fd;

/* Values of enumerators, known when the assembly is compiled: the ABI version is the header's, not the library's. */
%csconst(1);
