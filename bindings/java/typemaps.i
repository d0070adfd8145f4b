/* How inlay.h looks from Java, below the classes of src/main/java. All that SWIG makes is package-private.
 *   handles          long: numbers that the library looks up, never addresses to follow
 *   result handles   long[1]
 *   text, bytes      byte[], UTF-8: strings of JNI are not UTF-8 and garble what is outside the BMP
 *   buffers          byte[1][], the native buffer is released at once
 *   errors           InlayException; the status is returned too, for INLAY_TIMEOUT and INLAY_END
 *   option structs   proxies whose pointer members own what they point to; delete() frees it
 *   callbacks        a number under which Callbacks finds the listener: a late call finds none
 */
%pragma(java) moduleclassmodifiers="final class"
%pragma(java) jniclassclassmodifiers="final class"
%pragma(java) jniclasscode=%{
  static {
    NativeLoader.load();
  }
%}
%typemap(javaclassmodifiers) SWIGTYPE "final class"
%typemap(javafinalize) SWIGTYPE ""

/* Java's enums have the pinned values; the interface of constants would be public. */
%rename("$ignore", %$isenum) "";
%rename("$ignore", %$isenumitem) "";
%rename("$ignore", %$isconstant) "";
%rename("%(camelcase)s", %$isclass) "";

%include "java/jni.i"

/* ---- Numbers. Java has no unsigned types: what is above 2^63 is no number that occurs. --------------------------------- */

%apply long long { uint64_t, size_t, int64_t };
%apply int { int32_t, inlay_status };

/* ---- Handles ----------------------------------------------------------------------------------------------------------- */

%define INLAY_JAVA_HANDLE(TYPE)
%typemap(jni) TYPE*, const TYPE* "jlong"
%typemap(jtype) TYPE*, const TYPE* "long"
%typemap(jstype) TYPE*, const TYPE* "long"
%typemap(javain) TYPE*, const TYPE* "$javainput"
%typemap(javaout) TYPE*, const TYPE* { return $jnicall; }
%typemap(in) TYPE*, const TYPE* %{ $1 = (TYPE*)(intptr_t)$input; %}
%typemap(out) TYPE*, const TYPE* %{ $result = (jlong)(intptr_t)$1; %}
%typemap(jni) TYPE** "jlongArray"
%typemap(jtype) TYPE** "long[]"
%typemap(jstype) TYPE** "long[]"
%typemap(javain) TYPE** "$javainput"
%typemap(in) TYPE** (TYPE* made = NULL) %{ $1 = &made; %}
%typemap(argout) TYPE** %{
  {
    const jlong number = (jlong)(intptr_t)made$argnum;
    (*jenv)->SetLongArrayRegion(jenv, $input, 0, 1, &number);
  }
%}
%enddef
INLAY_JAVA_HANDLE(inlay_engine)
INLAY_JAVA_HANDLE(inlay_model)
INLAY_JAVA_HANDLE(inlay_session)
INLAY_JAVA_HANDLE(inlay_request)
INLAY_JAVA_HANDLE(inlay_event)
INLAY_JAVA_HANDLE(inlay_prefix)

%typemap(in, numinputs=0) inlay_error** error (inlay_error* raised = NULL) %{ $1 = &raised; %}
%typemap(argout) inlay_error** error %{ RaiseFor(jenv, result, raised$argnum); %}

%typemap(jni) inlay_buffer** "jobjectArray"
%typemap(jtype) inlay_buffer** "byte[][]"
%typemap(jstype) inlay_buffer** "byte[][]"
%typemap(javain) inlay_buffer** "$javainput"
%typemap(in) inlay_buffer** (inlay_buffer* made = NULL) %{ $1 = &made; %}
%typemap(argout) inlay_buffer** %{
  if (result == INLAY_OK) {
    jbyteArray bytes = ToByteArray(jenv, inlay_buffer_data(made$argnum), inlay_buffer_size(made$argnum));
    inlay_buffer_release(made$argnum);
    if (bytes != NULL) (*jenv)->SetObjectArrayElement(jenv, $input, 0, bytes);
  }
%}

%typemap(jni) size_t* num_tokens "jlongArray"
%typemap(jtype) size_t* num_tokens "long[]"
%typemap(jstype) size_t* num_tokens "long[]"
%typemap(javain) size_t* num_tokens "$javainput"
%typemap(in) size_t* num_tokens (size_t count = 0) %{ $1 = &count; %}
%typemap(argout) size_t* num_tokens %{
  {
    const jlong number = (jlong)count$argnum;
    (*jenv)->SetLongArrayRegion(jenv, $input, 0, 1, &number);
  }
%}
%typemap(jni) double* bytes_per_second "jdoubleArray"
%typemap(jtype) double* bytes_per_second "double[]"
%typemap(jstype) double* bytes_per_second "double[]"
%typemap(javain) double* bytes_per_second "$javainput"
%typemap(in) double* bytes_per_second (double rate = 0) %{ $1 = &rate; %}
%typemap(argout) double* bytes_per_second %{ (*jenv)->SetDoubleArrayRegion(jenv, $input, 0, 1, &rate$argnum); %}

/* ---- Text and bytes ---------------------------------------------------------------------------------------------------- */

/* NUL-terminated in: a copy for the call. Text.java refuses a NUL inside. */
%typemap(jni) const char* "jbyteArray"
%typemap(jtype) const char* "byte[]"
%typemap(jstype) const char* "byte[]"
%typemap(javain) const char* "$javainput"
%typemap(javaout) const char* { return $jnicall; }
%typemap(in) const char* %{
  $1 = CopyBytes(jenv, $input, NULL);
  if ($1 == NULL) return $null;
%}
%typemap(freearg) const char* %{ free((void*)$1); %}
%typemap(out) const char* %{ $result = ToByteArray(jenv, $1, strlen($1)); %}
%typemap(jni) char[ANY] "jbyteArray"
%typemap(jtype) char[ANY] "byte[]"
%typemap(jstype) char[ANY] "byte[]"
%typemap(javaout) char[ANY] { return $jnicall; }
%typemap(out) char[ANY] %{
  {
    const char* end = (const char*)memchr($1, 0, $1_dim0);
    $result = ToByteArray(jenv, $1, end == NULL ? $1_dim0 : (size_t)(end - $1));
  }
%}

/* With a length: the JVM's own copy or pin, for the call. */
%typemap(jni) (const char* text, size_t text_bytes), (const void* data, size_t bytes) "jbyteArray"
%typemap(jtype) (const char* text, size_t text_bytes), (const void* data, size_t bytes) "byte[]"
%typemap(jstype) (const char* text, size_t text_bytes), (const void* data, size_t bytes) "byte[]"
%typemap(javain) (const char* text, size_t text_bytes), (const void* data, size_t bytes) "$javainput"
%typemap(in) (const char* text, size_t text_bytes), (const void* data, size_t bytes) %{
  if (IsNull(jenv, $input)) return $null;
  $1 = ($1_ltype)(*jenv)->GetByteArrayElements(jenv, $input, NULL);
  if ($1 == NULL) return $null;
  $2 = (size_t)(*jenv)->GetArrayLength(jenv, $input);
%}
%typemap(freearg) (const char* text, size_t text_bytes), (const void* data, size_t bytes) %{
  (*jenv)->ReleaseByteArrayElements(jenv, $input, (jbyte*)$1, JNI_ABORT);
%}
%apply (const char* text, size_t text_bytes) { (const char* json, size_t json_bytes) };

%typemap(jni) (const int32_t* tokens, size_t num_tokens), (int32_t* tokens, size_t capacity) "jintArray"
%typemap(jtype) (const int32_t* tokens, size_t num_tokens), (int32_t* tokens, size_t capacity) "int[]"
%typemap(jstype) (const int32_t* tokens, size_t num_tokens), (int32_t* tokens, size_t capacity) "int[]"
%typemap(javain) (const int32_t* tokens, size_t num_tokens), (int32_t* tokens, size_t capacity) "$javainput"
%typemap(in) (const int32_t* tokens, size_t num_tokens), (int32_t* tokens, size_t capacity) %{
  if (IsNull(jenv, $input)) return $null;
  $1 = ($1_ltype)(*jenv)->GetIntArrayElements(jenv, $input, NULL);
  if ($1 == NULL) return $null;
  $2 = (size_t)(*jenv)->GetArrayLength(jenv, $input);
%}
%typemap(freearg) (const int32_t* tokens, size_t num_tokens) %{ (*jenv)->ReleaseIntArrayElements(jenv, $input, (jint*)$1, JNI_ABORT); %}
%typemap(freearg) (int32_t* tokens, size_t capacity) %{ (*jenv)->ReleaseIntArrayElements(jenv, $input, (jint*)$1, 0); %}

/* ---- What a struct keeps: copies that its setters take over --------------------------------------------------------------- */

%typemap(jni) (char* kept, size_t kept_bytes), char* kept_string "jbyteArray"
%typemap(jtype) (char* kept, size_t kept_bytes), char* kept_string "byte[]"
%typemap(jstype) (char* kept, size_t kept_bytes), char* kept_string "byte[]"
%typemap(javain) (char* kept, size_t kept_bytes), char* kept_string "$javainput"
%typemap(in) (char* kept, size_t kept_bytes) %{
  $1 = CopyBytes(jenv, $input, &$2);
  if ($1 == NULL) return $null;
%}
%typemap(in) char* kept_string %{
  $1 = CopyBytes(jenv, $input, NULL);
  if ($1 == NULL) return $null;
%}
%typemap(freearg) (char* kept, size_t kept_bytes), char* kept_string ""
%typemap(argout) (char* kept, size_t kept_bytes), char* kept_string ""
%typemap(jni) (const char** kept, size_t count) "jobjectArray"
%typemap(jtype) (const char** kept, size_t count) "byte[][]"
%typemap(jstype) (const char** kept, size_t count) "byte[][]"
%typemap(javain) (const char** kept, size_t count) "$javainput"
%typemap(in) (const char** kept, size_t count) %{
  $1 = ($1_ltype)CopyStrings(jenv, $input, &$2);
  if ($1 == NULL) return $null;
%}
%typemap(freearg) (const char** kept, size_t count) ""
%define INLAY_JAVA_KEPT_ARRAY(TYPE, JNI, JAVA, GET)
%typemap(jni) (TYPE* kept, size_t count) #JNI "Array"
%typemap(jtype) (TYPE* kept, size_t count) #JAVA "[]"
%typemap(jstype) (TYPE* kept, size_t count) #JAVA "[]"
%typemap(javain) (TYPE* kept, size_t count) "$javainput"
%typemap(in) (TYPE* kept, size_t count) %{
  if (IsNull(jenv, $input)) return $null;
  $2 = (size_t)(*jenv)->GetArrayLength(jenv, $input);
  $1 = (TYPE*)malloc(($2 + 1) * sizeof(TYPE));
  if ($1 == NULL) {
    ThrowOutOfMemory(jenv);
    return $null;
  }
  (*jenv)->GET(jenv, $input, 0, (jsize)$2, (JNI*)$1);
%}
%typemap(freearg) (TYPE* kept, size_t count) ""
%enddef
INLAY_JAVA_KEPT_ARRAY(int32_t, jint, int, GetIntArrayRegion)
INLAY_JAVA_KEPT_ARRAY(int64_t, jlong, long, GetLongArrayRegion)

/* The init functions run in the constructors. */
%rename("$ignore", regextarget=1) "^inlay_.*_init(_sized)?$";
%rename("$ignore", regextarget=1) "^inlay_(buffer|error)_";
%ignore inlay_logit_bias;
%ignore inlay_token_logprob;
%ignore inlay_engine_event_fd;
%ignore inlay_event_next;

%define INLAY_JAVA_STRUCT(TYPE, PREPARE, RELEASE)
%ignore TYPE::struct_size;
%ignore TYPE::reserved;
%ignore TYPE::reserved2;
%extend TYPE {
  TYPE() {
    TYPE* made = (TYPE*)calloc(1, sizeof(TYPE));
    if (made != NULL) {
      TYPE##_init(made);
      PREPARE;
    }
    return made;
  }
  ~TYPE() {
    RELEASE;
    free($self);
  }
}
%enddef
INLAY_JAVA_STRUCT(inlay_device_info, , )
INLAY_JAVA_STRUCT(inlay_step_info, , )
INLAY_JAVA_STRUCT(inlay_stats, , )
INLAY_JAVA_STRUCT(inlay_model_info, , )
INLAY_JAVA_STRUCT(inlay_session_info, , )
INLAY_JAVA_STRUCT(inlay_restore_info, , )
INLAY_JAVA_STRUCT(inlay_prefix_info, , )
INLAY_JAVA_STRUCT(inlay_quote, , )
%rename(reserved) inlay_quote::reserved;
INLAY_JAVA_STRUCT(inlay_event_info, , )
INLAY_JAVA_STRUCT(inlay_engine_options, , )
INLAY_JAVA_STRUCT(inlay_model_options, , FreeModelOptions($self))
INLAY_JAVA_STRUCT(inlay_quantize_options, made->type = NULL, FreeQuantizeOptions($self))
INLAY_JAVA_STRUCT(inlay_prefix_options, , FreePrefixOptions($self))
INLAY_JAVA_STRUCT(inlay_request_options, , FreeRequestOptions($self))
%nodefaultctor inlay_distribution;
%nodefaultdtor inlay_distribution;

%{
static void FreeModelOptions(inlay_model_options* options) {
  free((void*)options->kernels);
  free((void*)options->disk_cache_folder);
  free((void*)options->attention_pattern);
}
static void FreeQuantizeOptions(inlay_quantize_options* options) {
  free((void*)options->type);
  FreeStrings(options->tensor_types, options->num_tensor_types);
  FreeStrings(options->calibration, options->num_calibration);
  free((void*)options->imatrix_path);
}
static void FreePrefixOptions(inlay_prefix_options* options) {
  free((void*)options->text);
  free((void*)options->tokens);
  free((void*)options->chat);
}
static void FreeRequestOptions(inlay_request_options* options) {
  free((void*)options->text);
  free((void*)options->text_pair);
  free((void*)options->token_types);
  free((void*)options->tokens);
  free((void*)options->chat);
  free((void*)options->stop_tokens);
  FreeStrings(options->stop_strings, options->num_stop_strings);
  free((void*)options->logit_bias);
  free((void*)options->logits_positions);
}
%}

%define INLAY_JAVA_INPUT(TYPE)
%ignore TYPE::text;
%ignore TYPE::text_bytes;
%ignore TYPE::tokens;
%ignore TYPE::num_tokens;
%ignore TYPE::chat;
%ignore TYPE::chat_bytes;
%extend TYPE {
  void keepText(char* kept, size_t kept_bytes) {
    free((void*)$self->text);
    $self->text = kept;
    $self->text_bytes = kept_bytes;
  }
  void keepTokens(int32_t* kept, size_t count) {
    free((void*)$self->tokens);
    $self->tokens = kept;
    $self->num_tokens = count;
  }
  void keepChat(char* kept, size_t kept_bytes) {
    free((void*)$self->chat);
    $self->chat = kept;
    $self->chat_bytes = kept_bytes;
  }
}
%enddef
INLAY_JAVA_INPUT(inlay_prefix_options)
INLAY_JAVA_INPUT(inlay_request_options)

%ignore inlay_request_options::stop_tokens;
%ignore inlay_request_options::num_stop_tokens;
%ignore inlay_request_options::stop_strings;
%ignore inlay_request_options::num_stop_strings;
%ignore inlay_request_options::logit_bias;
%ignore inlay_request_options::num_logit_bias;
%ignore inlay_request_options::logits_positions;
%ignore inlay_request_options::num_logits_positions;
%ignore inlay_request_options::user_data;
%ignore inlay_request_options::text_pair;
%ignore inlay_request_options::text_pair_bytes;
%ignore inlay_request_options::token_types;
%extend inlay_request_options {
  void keepTextPair(char* kept, size_t kept_bytes) {
    free((void*)$self->text_pair);
    $self->text_pair = kept;
    $self->text_pair_bytes = kept_bytes;
  }
  /* As many as tokens: the caller sees to it. */
  void keepTokenTypes(int32_t* kept, size_t count) {
    (void)count;
    free((void*)$self->token_types);
    $self->token_types = kept;
  }
  void keepStopTokens(int32_t* kept, size_t count) {
    free((void*)$self->stop_tokens);
    $self->stop_tokens = kept;
    $self->num_stop_tokens = count;
  }
  void keepStopStrings(const char** kept, size_t count) {
    FreeStrings($self->stop_strings, $self->num_stop_strings);
    $self->stop_strings = kept;
    $self->num_stop_strings = count;
  }
  /* Pairs of a token and the bits of its bias: the layout of the struct. */
  void keepLogitBias(int32_t* kept, size_t count) {
    free((void*)$self->logit_bias);
    $self->logit_bias = (inlay_logit_bias*)kept;
    $self->num_logit_bias = count / 2;
  }
  void keepLogitsPositions(int64_t* kept, size_t count) {
    free((void*)$self->logits_positions);
    $self->logits_positions = kept;
    $self->num_logits_positions = count;
  }
}

%ignore inlay_engine_options::log;
%ignore inlay_engine_options::log_user;
%ignore inlay_engine_options::allocate;
%ignore inlay_engine_options::deallocate;
%ignore inlay_engine_options::allocator_user;
%extend inlay_engine_options {
  void logTo(int64_t listener) {
    $self->log = OnLog;
    $self->log_user = (void*)(intptr_t)listener;
  }
}

%ignore inlay_model_options::kernels;
%ignore inlay_model_options::disk_cache_folder;
%ignore inlay_model_options::attention_pattern;
%ignore inlay_model_options::progress;
%ignore inlay_model_options::progress_user;
%extend inlay_model_options {
  void keepKernels(char* kept_string) {
    free((void*)$self->kernels);
    $self->kernels = kept_string;
  }
  void keepDiskCacheFolder(char* kept_string) {
    free((void*)$self->disk_cache_folder);
    $self->disk_cache_folder = kept_string;
  }
  void keepAttentionPattern(char* kept_string) {
    free((void*)$self->attention_pattern);
    $self->attention_pattern = kept_string;
  }
  void progressTo(int64_t listener) {
    $self->progress = OnProgress;
    $self->progress_user = (void*)(intptr_t)listener;
  }
}

%ignore inlay_quantize_options::type;
%ignore inlay_quantize_options::tensor_types;
%ignore inlay_quantize_options::num_tensor_types;
%ignore inlay_quantize_options::progress;
%ignore inlay_quantize_options::progress_user;
%ignore inlay_quantize_options::calibration;
%ignore inlay_quantize_options::num_calibration;
%ignore inlay_quantize_options::imatrix_path;
%extend inlay_quantize_options {
  /* Must be set: the default is a string of the library's own, and here it is one of ours. */
  void keepType(char* kept_string) {
    free((void*)$self->type);
    $self->type = kept_string;
  }
  void keepTensorTypes(const char** kept, size_t count) {
    FreeStrings($self->tensor_types, $self->num_tensor_types);
    $self->tensor_types = kept;
    $self->num_tensor_types = count;
  }
  void keepCalibration(const char** kept, size_t count) {
    FreeStrings($self->calibration, $self->num_calibration);
    $self->calibration = kept;
    $self->num_calibration = count;
  }
  void keepImatrixPath(char* kept_string) {
    free((void*)$self->imatrix_path);
    $self->imatrix_path = kept_string;
  }
  void progressTo(int64_t listener) {
    $self->progress = OnProgress;
    $self->progress_user = (void*)(intptr_t)listener;
  }
}

/* ---- Events ---------------------------------------------------------------------------------------------------------------- */

%typemap(in, numinputs=0) JNIEnv* %{ $1 = jenv; %}
%ignore inlay_event_info::request;
%ignore inlay_event_info::user_data;
%immutable inlay_event_info::message;
%ignore inlay_event_info::tokens;
%ignore inlay_event_info::num_tokens;
%ignore inlay_event_info::text;
%ignore inlay_event_info::text_bytes;
%ignore inlay_event_info::bytes;
%ignore inlay_event_info::num_bytes;
%ignore inlay_event_info::logprobs;
%ignore inlay_event_info::logits;
%ignore inlay_event_info::num_logits;
%ignore inlay_event_info::scores;
%ignore inlay_event_info::num_scores;
%ignore inlay_event_info::embedding;
%ignore inlay_event_info::num_embedding;
%extend inlay_event_info {
  jintArray getTokens(JNIEnv* jenv) { return ToIntArray(jenv, $self->tokens, $self->num_tokens); }
  jbyteArray getText(JNIEnv* jenv) { return ToByteArray(jenv, $self->text, $self->text_bytes); }
  jbyteArray getBytes(JNIEnv* jenv) { return ToByteArray(jenv, $self->bytes, $self->num_bytes); }
  jfloatArray getLogits(JNIEnv* jenv) { return ToFloatArray(jenv, $self->logits, $self->num_logits); }
  jfloatArray getEmbedding(JNIEnv* jenv) { return ToFloatArray(jenv, $self->embedding, $self->num_embedding); }
  jfloatArray getScores(JNIEnv* jenv) { return ToFloatArray(jenv, $self->scores, $self->num_scores); }
  /* Pairs of a token and the bits of its log-probability: the layout of the struct. */
  jintArray getLogprobs(JNIEnv* jenv) {
    return ToIntArray(jenv, (const int32_t*)$self->logprobs, 2 * $self->num_logprobs);
  }
}

%inline %{
/* The ABI this binding was made for; inlay_abi_version() is that of the library it found. */
uint32_t inlay_java_abi(void) { return INLAY_ABI_VERSION; }
%}
